//! A request's body without its texts: the JSON they stand in, with a mark wherever one of them stands.
//!
//! Together with the texts it is the body again, so that a request can be asked once more as it was. It holds no text itself: what was
//! taken out of the texts stays out.

use std::ops::Range;

/// Here stands a text, as a string or as the name of a member.
pub const TEXT: char = '\u{1}';
/// Here stands a text in base64, inside of a string.
pub const CODED: char = '\u{2}';
/// Here stood a file; its text is a description, which is JSON.
pub const FILE: char = '\u{3}';
/// Here stood a string of which nothing is kept, such as a credential. It has no text.
pub const WITHHELD: char = '\u{4}';
/// Here begins a value whose strings together are one text: arguments of a tool call, a tool's definition.
pub const VALUE: char = '\u{5}';
/// Here it ends.
pub const VALUE_END: char = '\u{6}';

/// What stands in the place of a string of which nothing is kept.
const NOT_KEPT: &str = "\"[not kept]\"";

/// The JSON of a request with marks in the places of its texts. JSON holds none of the marks as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frame {
    /// The JSON with its marks.
    pub json: String,
    /// For each mark that stands for a text, in order: where that stands in the span's `prompt`.
    pub texts: Vec<Range<u32>>,
}

impl Frame {
    /// The body as JSON, its texts as `prompt` holds them.
    pub fn body(&self, prompt: &str) -> String {
        self.filled(prompt, |_, _| {})
    }

    /// The same; `value` hears of each value whose strings are one text where its first text stands, if it has any, and how
    /// the value is spelled.
    pub fn filled(&self, prompt: &str, mut value: impl FnMut(Option<u32>, &str)) -> String {
        let mut out = String::with_capacity(self.json.len() + prompt.len());
        let mut texts = self.texts.iter();
        // Where the open value begins in `out`, and its first text.
        let mut open: Option<(usize, Option<u32>)> = None;
        let mut rest = self.json.as_str();
        while let Some(at) = rest.find(is_mark) {
            let (plain, tail) = rest.split_at(at);
            out.push_str(plain);
            let mark = tail.chars().next().unwrap_or(WITHHELD);
            rest = tail.get(mark.len_utf8()..).unwrap_or_default();
            match mark {
                VALUE => open = Some((out.len(), None)),
                VALUE_END => {
                    if let Some((from, text)) = open.take() {
                        value(text, out.get(from..).unwrap_or_default());
                    }
                }
                WITHHELD => out.push_str(NOT_KEPT),
                _ => {
                    let range = texts.next().cloned().unwrap_or_default();
                    if let Some((_, first @ None)) = &mut open {
                        *first = Some(range.start);
                    }
                    put(&mut out, mark, prompt.get(range.start as usize..range.end as usize).unwrap_or_default());
                }
            }
        }
        out.push_str(rest);
        out
    }

    /// What it takes in memory beside itself.
    pub fn bytes(&self) -> usize {
        self.json.len() + size_of_val(self.texts.as_slice())
    }
}

/// Whether a character of a frame's JSON is a mark.
pub fn is_mark(c: char) -> bool {
    (TEXT..=VALUE_END).contains(&c)
}

/// Whether a mark stands for a text.
pub const fn has_text(mark: char) -> bool {
    matches!(mark, TEXT | CODED | FILE)
}

fn put(out: &mut String, mark: char, text: &str) {
    let is_object = mark == FILE && serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).is_ok();
    match mark {
        CODED => base64_into(text.as_bytes(), out),
        _ if is_object => out.push_str(text),
        // Strings cannot fail.
        _ => out.push_str(&serde_json::to_string(text).unwrap_or_default()),
    }
}

/// Appends bytes in base64 (RFC 4648, with padding).
fn base64_into(bytes: &[u8], out: &mut String) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for three in bytes.chunks(3) {
        let of = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = of(0) << 16 | of(1) << 8 | of(2);
        for digit in 0..4_u32 {
            let six = bits >> (18 - 6 * digit) & 63;
            let is_padding = digit as usize > three.len();
            out.push(if is_padding { '=' } else { char::from(ALPHABET[six as usize]) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_in_their_places() {
        let prompt = "na\"me\nls -l\n{\"sha256\":\"ab\"}\nwords";
        let frame = Frame {
            json: format!(
                "{{\"a\":{VALUE}{{{TEXT}:{TEXT},\"n\":5}}{VALUE_END},\"f\":{FILE},\"k\":{WITHHELD},\"d\":\"data:text/plain;base64,{CODED}\"}}"
            ),
            texts: vec![0..5, 6..11, 12..27, 28..33],
        };
        let mut values = Vec::new();
        let body = frame.filled(prompt, |text, value| values.push((text, value.to_owned())));
        assert_eq!(
            body,
            r#"{"a":{"na\"me":"ls -l","n":5},"f":{"sha256":"ab"},"k":"[not kept]","d":"data:text/plain;base64,d29yZHM="}"#
        );
        assert_eq!(values, [(Some(0), r#"{"na\"me":"ls -l","n":5}"#.to_owned())]);
        assert_eq!(frame.body(prompt), body);
    }
}
