//! What a file holds: text or not, and how much of it is read.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};
use std::path::Path;

use super::options::InputKind;

/// So many bytes at the beginning tell a binary file.
const HEAD_BYTES: usize = 8 * 1024;

/// What is to be made of the input called `name`, which is `None` for standard input.
pub(super) fn kind(asked: InputKind, name: Option<&Path>) -> InputKind {
    if asked != InputKind::Auto {
        return asked;
    }
    let ending = name.and_then(Path::extension).and_then(|ending| ending.to_str()).unwrap_or_default();
    match ending.to_ascii_lowercase().as_str() {
        "json" => InputKind::Json,
        "jsonl" | "ndjson" => InputKind::Jsonl,
        _ => InputKind::Text,
    }
}

/// Reads at most `max` bytes; true when there were more.
pub(in crate::app::cli) fn read_up_to(mut input: impl Read, max: usize, buffer: &mut Vec<u8>) -> io::Result<bool> {
    buffer.clear();
    input.by_ref().take(max as u64 + 1).read_to_end(buffer)?;
    let longer = buffer.len() > max;
    buffer.truncate(max);
    Ok(longer)
}

/// A line of the input.
pub(super) struct Line {
    /// How many bytes it took, those that were passed by included.
    pub(super) bytes: u64,
    /// It was longer than is read.
    pub(super) longer: bool,
}

/// Reads a line, at most `max` bytes of it, without its end. `None` at the end of the input.
pub(super) fn read_line(input: &mut impl BufRead, max: usize, buffer: &mut Vec<u8>) -> io::Result<Option<Line>> {
    buffer.clear();
    let read = input.by_ref().take(max as u64 + 1).read_until(b'\n', buffer)?;
    if read == 0 {
        return Ok(None);
    }
    let mut bytes = read as u64;
    let whole = buffer.pop_if(|last| *last == b'\n').is_some();
    let longer = !whole && buffer.len() > max;
    if longer {
        buffer.truncate(max);
        bytes += input.skip_until(b'\n')? as u64;
    }
    Ok(Some(Line { bytes, longer }))
}

/// The text that bytes are; `None` when they are none. A text of another encoding than UTF-8 and UTF-16 is read as far as it is
/// ASCII.
pub(super) fn words(bytes: &[u8]) -> Option<Cow<'_, str>> {
    match bytes {
        [0xFF, 0xFE, rest @ ..] => return wide(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => return wide(rest, u16::from_be_bytes),
        _ => {}
    }
    let head = bytes.get(..HEAD_BYTES).unwrap_or(bytes);
    (!head.contains(&0)).then(|| String::from_utf8_lossy(bytes))
}

fn wide(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Option<Cow<'static, str>> {
    let units = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    char::decode_utf16(units).collect::<Result<String, _>>().ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_up_to_the_bound() {
        let mut input = &b"one\n\nvery long\nend"[..];
        let mut buffer = Vec::new();
        let mut seen = Vec::new();
        while let Some(Line { bytes, longer }) = read_line(&mut input, 4, &mut buffer).unwrap() {
            seen.push((String::from_utf8(buffer.clone()).unwrap(), bytes, longer));
        }
        let line = |text: &str, bytes, longer| (text.to_owned(), bytes, longer);
        assert_eq!(seen, [line("one", 4, false), line("", 1, false), line("very", 10, true), line("end", 3, false)]);
        let mut buffer = Vec::new();
        assert!(!read_up_to(&b"four"[..], 4, &mut buffer).unwrap());
        assert!(read_up_to(&b"fours"[..], 4, &mut buffer).unwrap());
        assert_eq!(buffer, b"four");
    }

    #[test]
    fn text_is_told_from_other_files() {
        assert_eq!(words(b"\xFF\xFEh\0i\0").as_deref(), Some("hi"));
        assert_eq!(words(b"\xFE\xFF\0h\0i").as_deref(), Some("hi"));
        assert_eq!(words(b"caf\xE9").as_deref(), Some("caf\u{FFFD}"));
        assert_eq!(words(b"\x89PNG\r\n\0\0"), None);
    }
}
