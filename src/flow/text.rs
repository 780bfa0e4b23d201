//! Between the readers of bodies and the detectors: which texts are looked at, and where a finding points.

use std::borrow::Cow;
use std::ops::Range;

use weir_config::vocab::{Dialect, Finding};
use weir_inference::{Hit, Part, PartKind};

use crate::codec::DecodeFault;
use crate::exchange::RawBody;
use crate::inspect::{Claim, RequestView, decode_body, read_request};
use crate::observe::Answer;
use crate::record::{Budget, Permit};

/// A compressed body may grow at most this many times when it is decoded for analysis.
pub(super) const DECODE_RATIO_MAX: u32 = 100;

/// A request body that has been read.
pub(super) struct ReadRaw {
    pub(super) view: RequestView,
    /// What its text takes from the body budget.
    pub(super) room: Option<Permit>,
    /// It was cut because there was no more room at this moment.
    pub(super) out_of_room: bool,
}

/// Reads a request body as it came over the wire: undoes its content coding on a copy, then reads that. What a compressed
/// body is decoded to counts as a body in memory: the permit stands for its text.
pub(super) fn read_raw(dialect: Dialect, raw: &RawBody, decoded_bytes_max: usize, bodies: &Budget) -> ReadRaw {
    let coding = raw.content_encoding.as_deref();
    let free = bodies.free();
    let decoded = decode_body(coding, &raw.body, decoded_bytes_max.min(free), DECODE_RATIO_MAX);
    let mut out_of_room = decoded.fault == Some(DecodeFault::TooLarge) && free < decoded_bytes_max;
    let (cut, fault) = match decoded.fault {
        Some(DecodeFault::TooLarge) => (true, None),
        Some(DecodeFault::Truncated) if raw.truncated => (true, None),
        fault => (raw.truncated, fault),
    };
    let claim = Claim { takes: raw.takes, content_type: raw.content_type.as_deref(), cut };
    let mut view = read_request(dialect, claim, &decoded.bytes, usize::MAX);
    view.unreadable = raw.repeated.or(fault.map(DecodeFault::as_str)).or(view.unreadable);
    view.truncated |= cut;
    let mut permit = None;
    if matches!(decoded.bytes, Cow::Owned(_)) {
        let mut room = bodies.permit();
        if !room.grow(view.text.len()) {
            view.text = String::new();
            view.parts.clear();
            view.unrecorded.clear();
            view.truncated = true;
            out_of_room = true;
        }
        permit = Some(room);
    }
    ReadRaw { view, room: permit, out_of_room }
}

fn part<'a>(text: &'a str, range: &Range<usize>, kind: PartKind) -> Part<'a> {
    Part { text: text.get(range.clone()).unwrap_or_default(), kind }
}

/// The request's texts, in the order of `RequestView::parts`.
pub(super) fn request_parts(view: &RequestView) -> impl Iterator<Item = Part<'_>> {
    view.parts.iter().map(|it| part(&view.text, &it.range, it.kind))
}

/// What is reported of a credential: that it is none, but tells the model what to do.
const ORDERS: [&str; 7] = [
    "prompt_injection",
    "indirect_injection",
    "role_injection",
    "synonym_injection",
    "jailbreak",
    "prompt_extraction",
    "data_exfiltration",
];

/// A finding about the request's text, with its place. In a credential a secret is nothing to report, and its words are
/// never shown.
pub(super) fn request_finding(view: &RequestView, hit: Hit) -> Option<Finding> {
    let Hit { part, mut finding } = hit;
    let Some(part) = view.parts.get(part) else { return Some(finding) };
    finding.location = part.location.to_string();
    if part.credential {
        if !ORDERS.contains(&&*finding.finding_type) {
            return None;
        }
        finding.evidence.clear();
    }
    Some(finding)
}

/// The answer's texts, in the order of `Answer::parts`.
pub(super) fn answer_parts(answer: &Answer) -> impl Iterator<Item = Part<'_>> {
    answer.parts.iter().map(|it| part(&answer.text, &it.range, it.kind))
}

/// Where the answer's `index`-th text stands in its body.
pub(super) fn answer_location(answer: &Answer, index: usize) -> String {
    answer.parts.get(index).map(|it| it.location.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;

    use super::*;
    use crate::inspect::Takes;

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
        };
        let read = |decoded_max, room| {
            let read = read_raw(Dialect::ChatCompletions, &raw, decoded_max, &Budget::new(room, false));
            (read.view.truncated, read.out_of_room)
        };
        assert_eq!(read(10_000, 100_000), (false, false));
        assert_eq!(read(1000, 100_000), (true, false));
        assert_eq!(read(10_000, 1000), (true, true));
    }
}
