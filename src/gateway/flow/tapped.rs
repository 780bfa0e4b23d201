//! An answer that goes through a tap: bytes no longer go first. Knows how the tap's verdicts become framed bytes for the client.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use super::exchange::Exchange;
use crate::codec::{ContentDecoder, DecodeError, can_decode, is_identity};
use crate::exchange::Refusal;
use crate::inspect::array_stream;
use crate::meter::AnswerStop;
use crate::observe::AnswerKind;
use crate::output::{self, Body, Form};
use crate::process::Core;
use crate::record::Permit;
use crate::rewrite::{Framed, Onward, Tapped};
use crate::settle::journal::Journal;
use crate::settle::text::DECODE_RATIO_MAX;
use crate::wire::{self, ResponseBody, ResponseHead};

/// How a tap has ended an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    /// The client has a legal end of it.
    Ended,
    /// The client has nothing of it, and gets a refusal instead.
    Replaced,
    /// The client has a part of it that must not look whole.
    Cut,
}

/// An answer on its way through a tap.
pub(super) struct Through {
    tapped: Tapped,
    /// Undoes the content coding of an answer that came with one all the same: the client gets it without.
    decoder: Option<Box<ContentDecoder>>,
    /// What waits, at its most, in the budget for bodies.
    room: Permit,
    charged: usize,
}

/// What the client gets for a piece of the body, and what comes of the answer.
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    pub(super) halt: Option<Halt>,
    /// The content coding is broken: nothing more can be passed on.
    pub(super) fault: Option<DecodeError>,
}

/// The tap for this answer, where there is one: that of the settings, or the first of those tests bring that wants to look at it. Of a
/// content coding nobody can undo it sees what stands on the wire, which says little: that is tagged and counted.
pub(super) fn tap(
    core: &Rc<Core>,
    exchange: &mut Exchange,
    head: &ResponseHead,
    kind: AnswerKind,
    beginning: &[u8],
) -> Option<Box<Through>> {
    let (journal, tests) = (&mut exchange.journal, &core.process.parts.inspection.taps);
    let redacts = journal.settings.redacts_answers();
    if (tests.is_empty() && !journal.settings.output_safety.enabled && !redacts) || head.body == ResponseBody::Empty {
        return None;
    }
    // The record reads it whole, as any other document.
    let kind =
        if kind == AnswerKind::Json && array_stream(exchange.head.path()) { AnswerKind::JsonArray } else { kind };
    let coding = head.get("content-encoding");
    let (encoded, readable) = (!is_identity(coding), can_decode(coding));
    // A stream that does not say so is one all the same: a document would wait for its end.
    let is_stream = || output::sniffed(content(head, beginning)) == Some(AnswerKind::EventStream);
    let kind = if kind == AnswerKind::Other && !encoded && is_stream() { AnswerKind::EventStream } else { kind };
    let framed = match kind {
        _ if !readable => Framed::Whole,
        AnswerKind::EventStream => Framed::Events,
        AnswerKind::JsonLines => Framed::Lines,
        AnswerKind::AmazonEvents => Framed::Amazon,
        AnswerKind::JsonArray => Framed::Array,
        AnswerKind::Json | AnswerKind::Other => Framed::Whole,
    };
    let form = Form { kind, framed, body: Body::of(kind, head.get("content-type")) };
    let tap = output::tap(core, journal, head.status, form);
    let tap = tap.or_else(|| tests.iter().find_map(|make| make(&journal.settings)))?;
    if !readable {
        core.meter.dropped("tap", "content_encoding");
        journal.tag("untapped_response", "content_encoding".to_owned());
    }
    let decoder = (encoded && readable).then(|| Box::new(ContentDecoder::new(coding, u64::MAX, DECODE_RATIO_MAX)));
    let room = core.process.bodies.of(journal.ids.tenant_id).permit();
    let tapped = Tapped::new(tap, framed, journal.client_retries());
    Some(Box::new(Through { tapped, decoder, room, charged: 0 }))
}

/// What has come of the body's content with the head, from its beginning on.
fn content<'a>(head: &ResponseHead, beginning: &'a [u8]) -> &'a [u8] {
    if head.body != ResponseBody::Chunked {
        return beginning;
    }
    let size = memchr::memmem::find(beginning, b"\r\n").map_or(beginning.len(), |at| at + 2);
    beginning.get(size..).unwrap_or_default()
}

impl Through {
    /// Whether something was to be taken out of it and was not, as far as anybody knows by now.
    pub(super) fn is_unredacted(&self) -> bool {
        self.tapped.redaction().left.is_some()
    }

    pub(super) const fn tapped(&self) -> &Tapped {
        &self.tapped
    }

    /// Whether the client gets it without the content coding it came with.
    pub(super) fn is_decoded(&self) -> bool {
        self.decoder.is_some()
    }

    /// Whether something that has come waits, so that the client has not seen it.
    pub(super) fn holds(&self) -> bool {
        self.tapped.holds()
    }

    /// What the client gets for the next `content` of the body, of which no more comes when it is `done`.
    pub(super) async fn take(&mut self, content: &[u8], done: bool, chunked: bool) -> Piece {
        let mut decoded = Vec::new();
        let fault = self.decoder.as_mut().and_then(|decoder| {
            let fed = decoder.feed(content, &mut decoded);
            fed.and_then(|()| if done { decoder.finish(&mut decoded) } else { Ok(()) }).err()
        });
        let content = if self.decoder.is_some() { &decoded } else { content };
        let mut out = BytesMut::new();
        let mut put = |onward| {
            let (bytes, halt) = match onward {
                Onward::Send(bytes) => (bytes, None),
                Onward::End(bytes) => (bytes, Some(Halt::Ended)),
                Onward::Replace => (Bytes::new(), Some(Halt::Replaced)),
                Onward::Cut(bytes) => (bytes, Some(Halt::Cut)),
            };
            if chunked {
                wire::data_chunk(&mut out, &bytes);
            } else {
                out.extend_from_slice(&bytes);
            }
            halt
        };
        let mut halt = put(self.tapped.feed(content).await);
        let more = self.tapped.most_held_bytes().saturating_sub(self.charged);
        if halt.is_none() && !self.room.grow(more) {
            put(Onward::Send(self.tapped.let_go()));
        } else {
            self.charged += more;
        }
        let done = done && fault.is_none();
        if halt.is_none() && done {
            halt = put(self.tapped.finish().await);
        }
        let whole = (done && halt.is_none()) || halt == Some(Halt::Ended);
        if chunked && whole {
            out.extend_from_slice(wire::LAST_CHUNK);
        }
        Piece { bytes: out.freeze(), halt, fault: fault.filter(|_| halt.is_none()) }
    }
}

/// Notes what the tap did, and what the client gets where it has seen nothing of the answer.
pub(super) fn record(core: &Core, journal: &mut Journal, tapped: &Tapped, halt: Option<Halt>) -> Option<Refusal> {
    if tapped.most_held_bytes() > 0 {
        core.meter.held_back(tapped.most_held_bytes());
        journal.tag("response_held_bytes", tapped.most_held_bytes().to_string());
    }
    if let Some(reason) = tapped.missed() {
        journal.tag("untapped_response", reason.to_owned());
    }
    let redaction = tapped.redaction();
    if redaction.taken > 0 {
        core.meter.redacted(false, redaction.taken);
        journal.note_redacted(redaction.taken);
        journal.event("answer_redacted", "what was to be redacted was replaced by tags in what the client got");
    }
    if let Some(reason) = redaction.left {
        core.meter.dropped("redaction", reason);
        journal.tag("answer_unredacted", reason.to_owned());
    }
    if tapped.overheld() > 0 {
        core.meter.dropped("tap", "held_too_much");
    }
    let halt = halt?;
    let how = match halt {
        Halt::Ended => AnswerStop::Ended,
        Halt::Replaced => AnswerStop::Replaced,
        Halt::Cut => AnswerStop::Cut,
    };
    core.meter.stopped(how);
    journal.tag("response_stopped", how.label().to_owned());
    journal.event("response_stopped", tapped.warning());
    match halt {
        Halt::Ended => None,
        Halt::Replaced => {
            // Asked again, the provider may say it again; and both times it is paid.
            Some(Refusal::new(403, "output_safety_blocked", tapped.warning()).header("x-should-retry", "false"))
        }
        Halt::Cut => {
            journal.failed("output_safety_blocked", tapped.warning());
            None
        }
    }
}
