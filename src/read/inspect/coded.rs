//! Text that a body spells in a code: values of forms (percent-encoding), names of files (quotes), files inside JSON (base64). Which
//! bytes spell which of its characters, and how something else is spelled there.
//!
//! Invariant: a place is a whole number of coded units, so that what takes it leaves every other byte as it is.

use std::fmt::Write as _;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

/// What `bytes` say; in a form's value `+` is a blank.
pub(super) fn percent_decoded(bytes: &[u8], plus: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(&first) = rest.first() {
        let (unit, after) = rest.split_at_checked(percent_unit(rest)).unwrap_or((rest, &[]));
        rest = after;
        let digit = |at: usize| unit.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        out.push(match digit(1).zip(digit(2)) {
            Some((high, low)) => u8::try_from(high << 4 | low).unwrap_or(b'?'),
            None if plus && first == b'+' => b' ',
            None => first,
        });
    }
    out
}

/// Bytes that spell the next one.
fn percent_unit(rest: &[u8]) -> usize {
    match rest {
        [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => 3,
        _ => 1,
    }
}

/// Bytes between quotes that spell the next one.
fn quoted_unit(rest: &[u8]) -> usize {
    if matches!(rest, [b'\\', _, ..]) { 2 } else { 1 }
}

/// The bytes of `raw`, percent-encoded, that spell the bytes `wanted` of its text, and how far into the text they reach.
pub(super) fn percent_spelled(raw: &str, wanted: Range<usize>) -> (Range<usize>, usize) {
    spelled(raw.as_bytes(), wanted, percent_unit)
}

/// The same of what stands between quotes.
pub(super) fn quoted_spelled(raw: &str, wanted: Range<usize>) -> (Range<usize>, usize) {
    spelled(raw.as_bytes(), wanted, quoted_unit)
}

fn spelled(raw: &[u8], wanted: Range<usize>, unit: fn(&[u8]) -> usize) -> (Range<usize>, usize) {
    let (mut read, mut at, mut start) = (0, 0, None);
    while read < wanted.end && at < raw.len() {
        if read == wanted.start {
            start = Some(at);
        }
        at += unit(raw.get(at..).unwrap_or_default());
        read += 1;
    }
    (start.unwrap_or(at)..at, read)
}

/// `text` as it stands in a form's value or behind `filename*=`.
pub fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let written = write!(out, "%{byte:02X}");
            debug_assert!(written.is_ok());
        }
    }
    out
}

/// How a file is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Base64 {
    url_safe: bool,
    padded: bool,
}

impl Base64 {
    /// As this one is; what nothing shows is what is usual.
    pub(super) fn of(payload: &str) -> Self {
        let url_safe = payload.contains(['-', '_']);
        let letters = payload.trim_end_matches('=').len();
        // Of a length that needs no padding nobody knows.
        let padded = payload.ends_with('=') || (letters.is_multiple_of(4) && !url_safe);
        Self { url_safe, padded }
    }

    /// The text in that spelling.
    pub(super) fn encode(self, text: &str) -> String {
        match (self.url_safe, self.padded) {
            (false, true) => STANDARD.encode(text),
            (false, false) => STANDARD_NO_PAD.encode(text),
            (true, true) => URL_SAFE.encode(text),
            (true, false) => URL_SAFE_NO_PAD.encode(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_code_stands_for_itself() {
        assert_eq!(percent_decoded(b"a+b%4", true), b"a b%4");
        assert_eq!(percent_decoded(b"a+b%zz%41", false), b"a+b%zzA");
        assert_eq!(percent_encoded("[PII:EMAIL]"), "%5BPII%3AEMAIL%5D");
    }

    proptest! {
        /// What takes the bytes of a place takes these characters, and no others.
        #[test]
        fn a_place_spells_its_words(words in proptest::collection::vec("[a-z é%+&\"\\\\]{0,6}", 3), plus: bool) {
            let [before, wanted, after] = words.as_slice() else { unreachable!() };
            let text = words.concat();
            let place = before.len()..before.len() + wanted.len();
            let coded: Vec<String> = words.iter().map(|text| percent_encoded(text)).collect();
            let (raw, read) = percent_spelled(&coded.concat(), place.clone());
            prop_assert!(read == place.end || wanted.is_empty());
            let without = [&coded.concat()[..raw.start], &coded.concat()[raw.end..]].concat();
            let expected = if wanted.is_empty() { text.clone() } else { [before.as_str(), after].concat() };
            prop_assert_eq!(percent_decoded(without.as_bytes(), plus), expected.clone().into_bytes());
            let quoted: String = text.chars().flat_map(|c| ['\\', c].into_iter().skip(usize::from(!"\"\\".contains(c)))).collect();
            let (raw, _) = quoted_spelled(&quoted, place);
            let spelled = &quoted[raw];
            let spelled: String = spelled.replace("\\\\", "\u{1}").replace('\\', "").replace('\u{1}', "\\");
            prop_assert!(wanted.is_empty() || spelled == *wanted, "{} {}", spelled, wanted);
        }
    }
}
