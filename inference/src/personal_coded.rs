//! Personal data in another spelling: characters written as `\u0040`, `%40` or `&#64;`, and base64 in prose.
//!
//! Invariants: what is found touches something that is coded, so that plain text costs one search for it; the work is linear in
//! the text; base64 is taken as one piece, because nobody can take a part out of it without writing it again.

use std::ops::Range;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Shortest base64 that may hold personal data: `a@b.example` has 16 characters in it.
const BASE64_BYTES_MIN: usize = 12;

/// Backslashes in front of one escape: three levels of JSON in strings of JSON.
const LEVELS_MAX: usize = 8;

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Bytes of the plain text between two places of which the original's are kept.
const STEP: usize = 256;

/// A text without its codings, and where its characters stood: two bytes for each of its bytes, however many of them are coded.
pub(crate) struct Plain {
    pub(crate) text: String,
    /// How many bytes of the original each byte of `text` was: one, or more where it was coded.
    lengths: Vec<u8>,
    /// Where every [`STEP`]th byte of `text` stood.
    places: Vec<usize>,
}

impl Plain {
    /// What the text says where characters of it are coded one by one; `None` where none is.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let (mut out, mut lengths) = (String::new(), Vec::new());
        let bytes = text.as_bytes();
        let mut done = 0;
        let mut from = 0;
        while let Some(step) = memchr::memchr3(b'\\', b'%', b'&', bytes.get(from..)?) {
            let at = from + step;
            from = at + 1;
            let Some((c, length)) = unit(bytes.get(at..).unwrap_or_default()) else { continue };
            if done == 0 {
                out.reserve_exact(bytes.len());
                lengths.reserve_exact(bytes.len());
            }
            out.push_str(text.get(done..at)?);
            lengths.resize(out.len(), 1);
            out.push(char::from(c));
            lengths.push(length);
            (done, from) = (at + usize::from(length), at + usize::from(length));
        }
        if lengths.is_empty() {
            return None;
        }
        out.push_str(text.get(done..)?);
        lengths.resize(out.len(), 1);
        let mut before = 0;
        let places = lengths.chunks(STEP).map(|chunk| {
            let place = before;
            before += sum(chunk);
            place
        });
        let places = places.collect();
        Some(Self { text: out, lengths, places })
    }

    /// Where a stretch of the plain text stands in the original, where it holds something coded.
    pub(crate) fn original(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let is_coded = self.lengths.get(range.clone())?.iter().any(|length| *length > 1);
        is_coded.then(|| self.place(range.start)..self.place(range.end))
    }

    /// Where a place of the plain text stands in the original.
    pub(crate) fn place(&self, at: usize) -> usize {
        // Behind the last byte there may be no step.
        let step = (at / STEP).min(self.places.len().saturating_sub(1));
        let since = self.lengths.get(step * STEP..at).unwrap_or_default();
        self.places.get(step).copied().unwrap_or_default() + sum(since)
    }
}

fn sum(lengths: &[u8]) -> usize {
    lengths.iter().map(|length| usize::from(*length)).sum()
}

/// The ASCII character that the beginning of `bytes` spells, and how long that is.
fn unit(bytes: &[u8]) -> Option<(u8, u8)> {
    let hex = |digits: &[u8]| {
        let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        u32::from_str_radix(text, 16).ok()
    };
    let (code, length) = match bytes {
        [b'\\', b'u', b'{', rest @ ..] => {
            let digits = rest.iter().take(6).take_while(|byte| byte.is_ascii_hexdigit()).count();
            (hex(rest.get(..digits).filter(|_| rest.get(digits) == Some(&b'}'))?)?, digits + 4)
        }
        // JSON in a string of JSON has an escape for each level.
        [b'\\', b'\\', ..] => {
            let slashes = bytes.iter().take(LEVELS_MAX).take_while(|byte| **byte == b'\\').count();
            let rest = bytes.get(slashes..)?.strip_prefix(b"u")?;
            (hex(rest.get(..4)?)?, slashes + 5)
        }
        [b'\\', b'u', rest @ ..] => (hex(rest.get(..4)?)?, 6),
        [b'\\', b'x', rest @ ..] => (hex(rest.get(..2)?)?, 4),
        [b'%', rest @ ..] => (hex(rest.get(..2)?)?, 3),
        [b'&', b'#', b'x' | b'X', rest @ ..] => {
            let digits = rest.iter().take(6).take_while(|byte| byte.is_ascii_hexdigit()).count();
            (hex(rest.get(..digits)?)?, 3 + digits + usize::from(rest.get(digits) == Some(&b';')))
        }
        [b'&', b'#', rest @ ..] => {
            let digits = rest.iter().take(7).take_while(|byte| byte.is_ascii_digit()).count();
            let code = std::str::from_utf8(rest.get(..digits)?).ok()?.parse().ok()?;
            (code, 2 + digits + usize::from(rest.get(digits) == Some(&b';')))
        }
        _ if bytes.starts_with(b"&commat;") => (u32::from('@'), 8),
        _ if bytes.starts_with(b"&period;") => (u32::from('.'), 8),
        _ => return None,
    };
    // What is no letter of an address or number stays coded: a line break would make two words of one.
    let c = u8::try_from(code).ok().filter(|c| (b' '..=b'~').contains(c))?;
    Some((c, u8::try_from(length).ok()?))
}

/// The runs of base64 in a text, up to `most` bytes each, and the words they spell.
pub(crate) fn base64_words(text: &str, most: usize) -> impl Iterator<Item = (Range<usize>, String)> {
    runs(text.as_bytes()).filter(move |run| run.len() <= most).filter_map(|run| {
        let coded = text.get(run.clone())?;
        let words = |engine: &GeneralPurpose| String::from_utf8(engine.decode(coded).ok()?).ok();
        let said = words(&STANDARD).or_else(|| words(&URL_SAFE))?;
        // What is made of letters by chance is hardly ever text.
        said.bytes().all(|byte| byte >= b' ' || byte.is_ascii_whitespace()).then_some((run, said))
    })
}

fn runs(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            at += bytes.get(at..)?.iter().position(|byte| is_base64(*byte))?;
            let start = at;
            at += bytes.get(at..)?.iter().take_while(|byte| is_base64(**byte)).count();
            at += bytes.get(at..)?.iter().take(2).take_while(|byte| **byte == b'=').count();
            if at - start >= BASE64_BYTES_MIN {
                return Some(start..at);
            }
        }
    })
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each stretch of the plain text stands where its characters were written.
        #[test]
        fn places_are_those_of_the_original(
            words in proptest::collection::vec(prop::sample::select(vec!["a", "\\u0040", "%41", "&#66;", "\\\\\\u0043", "é", "&commat;", " "]), 1..900),
            (from, to) in (0usize..900, 0usize..900),
        ) {
            let whole = words.concat();
            let said = |words: &[&str]| words.concat();
            let Some(plain) = Plain::of(&whole) else { return Ok(()) };
            let (from, to) = (from.min(to).min(words.len()), from.max(to).min(words.len()));
            let plainly = |words: &[&str]| Plain::of(&said(words)).map_or_else(|| said(words), |plain| plain.text);
            let start = plainly(&words[..from]).len();
            let end = start + plainly(&words[from..to]).len();
            let coded = words[from..to].iter().any(|word| word.len() > 2);
            let expected = said(&words[..from]).len()..said(&words[..to]).len();
            prop_assert_eq!(plain.original(&(start..end)), coded.then_some(expected));
        }
    }
}
