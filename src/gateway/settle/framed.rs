//! The same is taken out of a request's frame as out of its texts: names of members and numbers may be personal data, too, and ids
//! credentials.
//!
//! Invariant: the frame stays JSON; what holds any of it is replaced whole, by a string.

use std::ops::Range;
use std::time::Instant;

use weir_config::vocab::frame::{CODED, Frame};
use weir_config::vocab::part::PartKind;
use weir_inference::personal_data_by;

use super::marks::{Mark, Marks};
use crate::redaction::Credentials;

/// Whether it could be done until the deadline.
pub(super) fn mask(frame: &mut Frame, personal: bool, found: Option<&Credentials>, deadline: Option<Instant>) -> bool {
    let Some(marks) = marks(&frame.json, personal, found, deadline) else { return false };
    if !marks.is_empty() {
        frame.json = without(&frame.json, marks);
    }
    true
}

fn marks(json: &str, personal: bool, found: Option<&Credentials>, deadline: Option<Instant>) -> Option<Vec<Mark>> {
    let mut marks = Marks::of(json.len());
    if personal {
        for found in personal_data_by(json, PartKind::User, deadline)? {
            marks.push(found.range(), found.tag());
        }
    }
    if let Some(found) = found {
        for (range, tag) in found.places(json, deadline)? {
            marks.push(range, tag);
        }
    }
    Some(marks.joined().0)
}

/// The frame with a string in the place of each token that holds any of it.
fn without(json: &str, marks: Vec<Mark>) -> String {
    let mut marks = marks.into_iter().peekable();
    let (mut out, mut done) = (String::with_capacity(json.len()), 0);
    for token in tokens(json) {
        while marks.next_if(|mark| mark.range.end <= token.start).is_some() {}
        let Some(mark) = marks.peek().filter(|mark| mark.range.start < token.end) else { continue };
        if json.get(token.clone()).is_some_and(|token| !token.contains(CODED)) {
            out.push_str(json.get(done..token.start).unwrap_or_default());
            out.extend(["\"", mark.with, "\""]);
            done = token.end;
        }
    }
    out.push_str(json.get(done..).unwrap_or_default());
    out
}

/// Where the strings, numbers and words of this JSON stand.
fn tokens(json: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = json.as_bytes();
    let byte = |at: usize| bytes.get(at).copied();
    let mut at = 0;
    std::iter::from_fn(move || {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        while byte(at).is_some_and(|byte| byte != b'"' && !is_word(byte)) {
            at += 1;
        }
        let start = at;
        if byte(at)? != b'"' {
            while byte(at).is_some_and(is_word) {
                at += 1;
            }
            return Some(start..at);
        }
        at += 1;
        while let Some(byte) = byte(at).filter(|byte| *byte != b'"') {
            at += if byte == b'\\' { 2 } else { 1 };
        }
        at = (at + 1).min(bytes.len());
        Some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_go_whole_and_the_rest_is_json() {
        let mut frame = Frame {
            json: "{\"id\":\"sk-abc-1\",\"card\":4111111111111111,\"n\":-1.5e3,\"sk-abc-1\":\u{1},\"ok\":true}"
                .to_owned(),
            texts: std::iter::once(0..4).collect(),
        };
        let mut found = Credentials::default();
        found.add("api_key", "sk-abc-1");
        assert!(mask(&mut frame, true, Some(&found), None));
        let body: serde_json::Value = serde_json::from_str(&frame.body("text")).unwrap();
        let tag = "[SECRET:API_KEY]";
        assert_eq!(
            body,
            serde_json::json!({"id": tag, "card": "[PII:CREDIT_CARD]", "n": -1500.0, tag: "text", "ok": true})
        );
    }
}
