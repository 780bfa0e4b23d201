//! An answer that goes through a tap: bytes no longer go first. Knows how the tap's verdicts become framed bytes for the client.

use bytes::{Bytes, BytesMut};

use super::exchange::Exchange;
use crate::codec::is_identity;
use crate::exchange::Refusal;
use crate::observe::AnswerKind;
use crate::process::Core;
use crate::rewrite::{Framed, Onward, Tapped};
use crate::settle::journal::Journal;
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

/// The tap for this answer, where there is one: the first that wants to look at it. Of one with a content coding it sees what stands
/// on the wire, which says little: that is tagged and counted.
pub(super) fn tap(core: &Core, exchange: &mut Exchange, head: &ResponseHead, kind: AnswerKind) -> Option<Box<Tapped>> {
    let taps = &core.process.parts.taps;
    if taps.is_empty() || head.body == ResponseBody::Empty {
        return None;
    }
    let tap = taps.iter().find_map(|make| make(exchange.settings()))?;
    let encoded = !is_identity(head.get("content-encoding"));
    if encoded {
        core.meter.dropped("tap", "content_encoding");
        exchange.journal.tag("untapped_response", "content_encoding".to_owned());
    }
    let framed = match kind {
        _ if encoded => Framed::Whole,
        AnswerKind::EventStream => Framed::Events,
        AnswerKind::JsonLines => Framed::Lines,
        AnswerKind::AmazonEvents => Framed::Amazon,
        AnswerKind::Json | AnswerKind::Other => Framed::Whole,
    };
    Some(Box::new(Tapped::new(tap, framed)))
}

/// What the client gets for the next `content` of the body, of which no more comes when it is `done`.
pub(super) fn through(tapped: &mut Tapped, content: &[u8], done: bool, chunked: bool) -> (Bytes, Option<Halt>) {
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
    let mut halt = put(tapped.feed(content));
    if halt.is_none() && done {
        halt = put(tapped.finish());
    }
    let whole = (done && halt.is_none()) || halt == Some(Halt::Ended);
    if chunked && whole {
        out.extend_from_slice(wire::LAST_CHUNK);
    }
    (out.freeze(), halt)
}

/// Notes what the tap did, and what the client gets where it has seen nothing of the answer.
pub(super) fn record(core: &Core, journal: &mut Journal, tapped: &Tapped, halt: Option<Halt>) -> Option<Refusal> {
    if tapped.overheld() > 0 {
        core.meter.dropped("tap", "held_too_much");
    }
    let halt = halt?;
    let end = match halt {
        Halt::Ended => "ended",
        Halt::Replaced => "replaced",
        Halt::Cut => "cut",
    };
    journal.tag("response_stopped", end.to_owned());
    journal.event("response_stopped", tapped.warning());
    match halt {
        Halt::Ended => None,
        Halt::Replaced => Some(Refusal::new(403, "output_safety_blocked", tapped.warning())),
        Halt::Cut => {
            journal.failed("output_safety_blocked", tapped.warning());
            None
        }
    }
}
