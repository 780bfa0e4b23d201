//! A JSON string as it stands in a document, decoded only when somebody asks.
//!
//! Invariant: the walker has checked every escape before a [`Text`] exists, so decoding cannot fail.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr;

/// A string of a document: raw bytes between the quotes, and where they start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a> {
    pub(super) raw: &'a str,
    pub(super) start: usize,
    pub(super) escaped: bool,
}

impl<'a> Text<'a> {
    /// The bytes between the quotes, escapes not decoded.
    pub const fn raw(&self) -> &'a str {
        self.raw
    }

    /// Offset of the first byte after the opening quote.
    pub const fn start(&self) -> usize {
        self.start
    }

    /// Offset of the closing quote.
    pub const fn end(&self) -> usize {
        self.start + self.raw.len()
    }

    /// Whether it contains a backslash.
    pub const fn is_escaped(&self) -> bool {
        self.escaped
    }

    /// The string itself; borrowed when nothing is escaped.
    pub fn decode(&self) -> Cow<'a, str> {
        if !self.escaped {
            return Cow::Borrowed(self.raw);
        }
        let mut out = String::with_capacity(self.raw.len());
        self.decode_into(&mut out);
        Cow::Owned(out)
    }

    /// Appends the string itself to `out`.
    pub fn decode_into(&self, out: &mut String) {
        if !self.escaped {
            out.push_str(self.raw);
            return;
        }
        out.reserve(self.raw.len());
        let mut rest = self.raw;
        while let Some(at) = memchr(b'\\', rest.as_bytes()) {
            let (plain, tail) = rest.split_at(at);
            out.push_str(plain);
            let (c, used) = unescape(tail.as_bytes());
            out.push(c);
            rest = tail.get(used..).unwrap_or_default();
        }
        out.push_str(rest);
    }
}

/// What `raw`, the inside of a string the walker has checked, spells.
pub fn unescaped(raw: &str) -> Cow<'_, str> {
    Text { raw, start: 0, escaped: memchr(b'\\', raw.as_bytes()).is_some() }.decode()
}

/// The bytes of `raw`, the inside of a string the walker has checked, that spell the bytes `wanted` of the string itself,
/// and how far into the string they reach. An escape is taken whole, and so is a character; less than was asked for is
/// given where the string ends earlier.
pub fn spelled(raw: &str, wanted: Range<usize>) -> (Range<usize>, usize) {
    // Bytes of the string, and of `raw`, that have been passed.
    let (mut read, mut at) = (0, 0);
    let mut start = None;
    while read < wanted.end && at < raw.len() {
        let rest = raw.get(at..).unwrap_or_default();
        // No further than is asked for: whoever asks for many pieces of one string would have all of it searched for each.
        let near = rest.ceil_char_boundary(wanted.end - read);
        let plain = memchr(b'\\', rest.as_bytes().get(..near).unwrap_or_default()).unwrap_or(near);
        let (text, used) = if plain > 0 {
            (plain, plain)
        } else {
            let (c, used) = unescape(rest.as_bytes());
            (c.len_utf8(), used)
        };
        if start.is_none() && wanted.start < read + text {
            start = Some(if plain > 0 { rest.floor_char_boundary(wanted.start.saturating_sub(read)) + at } else { at });
        }
        if plain > 0 && wanted.end < read + text {
            let end = rest.ceil_char_boundary(wanted.end - read);
            return (start.unwrap_or(at)..at + end, read + end);
        }
        (read, at) = (read + text, at + used);
    }
    (start.unwrap_or(at)..at, read)
}

/// Decodes the escape at the start of `bytes`, which has been checked; returns the character and the bytes used.
fn unescape(bytes: &[u8]) -> (char, usize) {
    match bytes.get(1) {
        Some(b'b') => ('\u{8}', 2),
        Some(b'f') => ('\u{c}', 2),
        Some(b'n') => ('\n', 2),
        Some(b'r') => ('\r', 2),
        Some(b't') => ('\t', 2),
        Some(b'u') => match code_point(bytes) {
            Some((c, used)) => (c, used),
            None => (char::REPLACEMENT_CHARACTER, 2),
        },
        Some(&other) => (char::from(other), 2),
        None => (char::REPLACEMENT_CHARACTER, 1),
    }
}

/// Reads `\uXXXX`, or a surrogate pair of them, at the start of `bytes`; `None` for bad digits. Half a pair is read as U+FFFD:
/// RFC 8259 section 8.2 leaves it open, and servers that cut texts between the halves send it every day.
pub(super) fn code_point(bytes: &[u8]) -> Option<(char, usize)> {
    let unit = hex4(bytes.get(2..6)?)?;
    if let Some(c) = char::from_u32(unit) {
        return Some((c, 6));
    }
    let pair = low_half(bytes.get(6..12)).filter(|_| unit < 0xdc00);
    let whole = pair.and_then(|low| char::from_u32(0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00)));
    Some(whole.map_or((char::REPLACEMENT_CHARACTER, 6), |c| (c, 12)))
}

/// The second half of a pair, where `escape` spells one.
fn low_half(escape: Option<&[u8]>) -> Option<u32> {
    let low = hex4(escape?.strip_prefix(b"\\u")?)?;
    (0xdc00..0xe000).contains(&low).then_some(low)
}

fn hex4(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |sum, digit| Some(sum << 4 | char::from(*digit).to_digit(16)?))
}
