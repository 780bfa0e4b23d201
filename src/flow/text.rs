//! Between the readers of bodies and the detectors: which texts are looked at, and where a finding points.

use std::ops::Range;

use weir_config::vocab::Dialect;
use weir_inference::{Part, PartKind};

use crate::inspect::{RequestView, decode_body, read_request};
use crate::observe::Answer;

/// A compressed body may grow at most this many times when it is decoded for analysis.
const DECODE_RATIO_MAX: u32 = 100;

/// Reads a request body as it came over the wire: undoes its content coding on a copy, then reads that.
pub(super) fn read_raw(
    dialect: Dialect,
    content_type: Option<&[u8]>,
    content_encoding: Option<&[u8]>,
    body: &[u8],
    decoded_bytes_max: usize,
) -> RequestView {
    let decoded = decode_body(content_encoding, body, decoded_bytes_max, DECODE_RATIO_MAX);
    let mut view = read_request(dialect, content_type, &decoded.bytes, usize::MAX);
    view.unreadable = decoded.reason().or(view.unreadable);
    view
}

fn part<'a>(text: &'a str, range: &Range<usize>, kind: PartKind) -> Part<'a> {
    Part { text: text.get(range.clone()).unwrap_or_default(), kind }
}

/// The request's texts, in the order of `RequestView::parts`.
pub(super) fn request_parts(view: &RequestView) -> impl Iterator<Item = Part<'_>> {
    view.parts.iter().map(|it| part(&view.text, &it.range, it.kind))
}

/// Where the request's `index`-th text stands in its body.
pub(super) fn request_location(view: &RequestView, index: usize) -> String {
    view.parts.get(index).map(|it| it.location.to_string()).unwrap_or_default()
}

/// The answer's texts, in the order of `Answer::parts`.
pub(super) fn answer_parts(answer: &Answer) -> impl Iterator<Item = Part<'_>> {
    answer.parts.iter().map(|it| part(&answer.text, &it.range, it.kind))
}

/// Where the answer's `index`-th text stands in its body.
pub(super) fn answer_location(answer: &Answer, index: usize) -> String {
    answer.parts.get(index).map(|it| it.location.to_string()).unwrap_or_default()
}
