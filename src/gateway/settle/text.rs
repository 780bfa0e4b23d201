//! Between the readers of bodies and the detectors: which texts are looked at, and where a finding points.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use weir_config::vocab::{Dialect, TenantId};
use weir_inference::{Part, PartKind};

use crate::codec::{self, DecodeError};
use crate::inspect::{Declared, RequestView, Takes, TextPart, ZoneAsk, decode_while, find_zones_by, read_request};
use crate::observe::Answer;
use crate::process::turns::Turns;
use crate::record::{Budget, Permit};

/// What is known of the request's text.
pub(crate) enum RequestText {
    /// Nothing to read, or nothing is to be recorded.
    None,
    /// Read already; `Inspected::findings` holds what was found if it was also analysed.
    Read(Box<RequestView>),
    /// Still to be read: after the answer, off the client's way.
    Raw(RawBody),
}

/// A body as it was received, and what its head says about it.
pub(crate) struct RawBody {
    /// The bytes.
    pub body: Bytes,
    /// What the operation takes.
    pub takes: Takes,
    /// `Content-Type` of the request.
    pub content_type: Option<Bytes>,
    /// `Content-Encoding` of the request; of several, all of them.
    pub content_encoding: Option<Bytes>,
    /// A field that was given twice: servers differ in which one they believe.
    pub repeated: Option<&'static str>,
    /// True when only the beginning was kept.
    pub truncated: bool,
    /// How data is told from other words in it, where somebody wants to know.
    pub zones: Option<Box<ZoneAsk>>,
}

/// A compressed body may grow at most this many times when it is decoded for analysis.
pub(crate) const DECODE_RATIO_MAX: u32 = 100;

/// A request body that has been read.
pub(crate) struct ReadRaw {
    pub(crate) view: Box<RequestView>,
    /// What its text takes from the body budget.
    pub(crate) room: Option<Permit>,
    /// It was cut because there was no more room at this moment.
    pub(crate) out_of_room: bool,
    /// The whole body without its content coding, where it has one.
    pub(crate) decoded: Option<Bytes>,
    /// The time for it was over: not all of it has been read.
    pub(crate) is_late: bool,
}

/// Whether a body that is read is still to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goes {
    /// It goes on with its changes.
    Changed,
    /// It has gone on as it came.
    AsItCame,
}

/// Reads a request body as it came over the wire: undoes its content coding on a copy, then reads that. What a compressed
/// body is decoded to counts as a body in memory, with its text: the permit stands for both. Ends `until` then.
pub(crate) fn read_raw(
    dialect: Dialect,
    raw: &RawBody,
    goes: Goes,
    decoded_bytes_max: usize,
    (bodies, until): (&Budget, Option<Instant>),
) -> ReadRaw {
    let coding = raw.content_encoding.as_deref();
    // The decoded bytes and the text that is read of them.
    let mut permit = bodies.permit_with_text();
    let (mut held, mut out_of_room) = (0, false);
    let is_late = || until.is_some_and(|until| Instant::now() >= until);
    let goes_on = |made: usize| {
        if is_late() {
            return Err(DecodeError::Late);
        }
        out_of_room = !permit.grow(made - held);
        held = made;
        if out_of_room { Err(DecodeError::TooLarge) } else { Ok(()) }
    };
    let decoded = decode_while(coding, &raw.body, decoded_bytes_max, DECODE_RATIO_MAX, goes_on);
    let (cut, fault) = match decoded.fault {
        Some(DecodeError::TooLarge) => (true, None),
        Some(DecodeError::Late) => (true, Some(DecodeError::Late)),
        Some(DecodeError::Truncated) if raw.truncated => (true, None),
        fault => (raw.truncated, fault),
    };
    let declared = Declared { takes: raw.takes, content_type: raw.content_type.as_deref(), cut, until };
    let mut view = read_request(dialect, declared, &decoded.bytes, usize::MAX);
    view.unreadable = raw.repeated.or(fault.map(DecodeError::as_str)).or(view.unreadable);
    view.truncated |= cut;
    view.is_cut |= cut;
    let permit = matches!(decoded.bytes, Cow::Owned(_)).then_some(permit);
    let decoded = match decoded.bytes {
        Cow::Owned(bytes) if !cut && fault.is_none() && !view.truncated => Some(Bytes::from(bytes)),
        _ => None,
    };
    if let Some(ask) = &raw.zones {
        let body = changeable(raw, &view, decoded.as_deref()).filter(|_| goes == Goes::Changed);
        find_zones_by(&mut view, ask, body, until);
    }
    ReadRaw { view, room: permit, out_of_room, decoded, is_late: is_late() }
}

/// The bytes that changes of a body are made in: the body as it came, or what is in its content coding; `None` where that was not
/// read whole.
pub(crate) fn changeable<'a>(raw: &'a RawBody, view: &RequestView, decoded: Option<&'a [u8]>) -> Option<&'a [u8]> {
    let body = if is_as_sent(raw, view) { Some(&raw.body[..]) } else { decoded };
    body.filter(|_| view.unreadable.is_none())
}

/// Whether the text was read from the body as it came.
pub(crate) fn is_as_sent(raw: &RawBody, view: &RequestView) -> bool {
    codec::is_identity(raw.content_encoding.as_deref()) && !view.truncated
}

/// Gives a request that goes on from an earlier answer, or in a conversation, the end of the user's turn before.
pub(crate) fn recall(turns: &Turns, tenant: TenantId, view: &mut RequestView) {
    let goes_on = [&view.previous_answer, &view.conversation];
    view.former_turn = goes_on.into_iter().flatten().find_map(|id| turns.before(tenant, id));
}

fn part<'a>(text: &'a str, range: &Range<usize>, kind: PartKind) -> Part<'a> {
    Part { text: text.get(range.clone()).unwrap_or_default(), kind }
}

/// The request's texts, in the order of `RequestView::parts`.
pub(crate) fn request_parts(view: &RequestView) -> impl Iterator<Item = Part<'_>> {
    view.parts.iter().map(|it| part(&view.text, &it.range, it.kind))
}

/// The answer's texts, in the order of `Answer::parts`.
pub(crate) fn answer_parts(answer: &Answer) -> impl Iterator<Item = Part<'_>> {
    answer.parts.iter().map(|it| part(&answer.text, &it.range, it.kind))
}

/// Longest context of an answer, in bytes.
const CONTEXT_BYTES_MAX: usize = 64 << 10;

/// What the request brings that an answer may be held against: the words of users, tools and the system prompt, the last ones
/// where they are too many.
pub(crate) fn context(view: &RequestView) -> Box<str> {
    let says = |part: &TextPart| matches!(part.kind, PartKind::System | PartKind::User | PartKind::Tool);
    let (mut room, mut texts) = (CONTEXT_BYTES_MAX, Vec::new());
    for part in view.parts.iter().rev().filter(|part| says(part) && !part.is_credential()) {
        let text = view.text.get(part.range.clone()).unwrap_or_default();
        let kept = text.get(text.ceil_char_boundary(text.len().saturating_sub(room))..).unwrap_or_default();
        texts.push(kept);
        room = room.saturating_sub(kept.len() + 1);
        if room == 0 {
            break;
        }
    }
    texts.reverse();
    texts.join("\n").into()
}

/// Where the answer's `index`-th text stands in its body.
pub(crate) fn answer_location(answer: &Answer, index: usize) -> String {
    answer.parts.get(index).map(|it| it.location.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_body_without_room_at_this_moment_is_told_from_one_too_long() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(format!("{{\"prompt\":\"{}\"}}", "a b ".repeat(1000)).as_bytes()).unwrap();
        let raw = RawBody {
            body: Bytes::from(encoder.finish().unwrap()),
            takes: Takes::Json,
            content_type: None,
            content_encoding: Some(Bytes::from_static(b"gzip")),
            repeated: None,
            truncated: false,
            zones: None,
        };
        let read = |decoded_max, room| {
            let budget = Budget::new(room, false);
            let read = read_raw(Dialect::ChatCompletions, &raw, Goes::AsItCame, decoded_max, (&budget, None));
            (read.view.truncated, read.out_of_room)
        };
        assert_eq!(read(10_000, 100_000), (false, false));
        assert_eq!(read(1000, 100_000), (true, false));
        assert_eq!(read(10_000, 1000), (true, true));
    }
}
