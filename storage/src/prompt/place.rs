//! From an offset into what is compared of a segment to a path in its JSON, and what kind of text stands there.

use super::outline::MARKED_BYTES;
use super::skeleton::{Piece, Skeleton};
use crate::prompt_cache::Stands;

/// Where an offset leads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// What the path of the segment goes on with: `.function.description`.
    pub(super) path: String,
    /// The byte of the text there.
    pub(super) byte: Option<u64>,
    pub(super) stands: Option<Stands>,
}

/// A container that is open.
enum Open {
    /// The key whose value is next or being read.
    Object(String),
    /// The element.
    Array(usize),
}

/// Follows the JSON of a segment up to an offset.
#[derive(Default)]
struct Path {
    open: Vec<Open>,
    /// Whether the next string is a key.
    key_next: bool,
    /// The string that is being read, and whether the last character was a backslash.
    string: Option<(String, bool)>,
}

/// Bytes kept of a key.
const KEY_BYTES_MAX: usize = 48;
/// Steps that are written.
const STEPS_MAX: usize = 12;

impl Path {
    fn read(&mut self, c: char) {
        if let Some((text, escaped)) = &mut self.string {
            match c {
                '"' if !*escaped => {
                    let text = std::mem::take(text);
                    self.string = None;
                    self.had_string(text);
                }
                _ => {
                    *escaped = c == '\\' && !*escaped;
                    if text.len() < KEY_BYTES_MAX {
                        text.push(c);
                    }
                }
            }
            return;
        }
        match c {
            '"' => self.string = Some((String::new(), false)),
            '{' => {
                self.open.push(Open::Object(String::new()));
                self.key_next = true;
            }
            '[' => {
                self.open.push(Open::Array(0));
                self.key_next = false;
            }
            '}' | ']' => {
                self.open.pop();
                self.key_next = false;
            }
            ',' => match self.open.last_mut() {
                Some(Open::Array(at)) => *at += 1,
                Some(Open::Object(_)) => self.key_next = true,
                None => {}
            },
            _ => {}
        }
    }

    /// A whole string has been read.
    fn had_string(&mut self, text: String) {
        if let (true, Some(Open::Object(key))) = (self.key_next, self.open.last_mut()) {
            *key = text;
            self.key_next = false;
        }
    }

    fn written(&self) -> String {
        let mut out = String::new();
        for open in self.open.iter().take(STEPS_MAX) {
            match open {
                Open::Object(key) if key.is_empty() => {}
                Open::Object(key) => {
                    out.push('.');
                    out.extend(key.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }));
                }
                Open::Array(at) => out.push_str(&format!("[{at}]")),
            }
        }
        out
    }
}

/// The place of an offset.
pub(super) fn place(skeleton: &Skeleton<'_>, prompt: &str, offset: usize) -> Place {
    let mut path = Path::default();
    let mut at = 0;
    for piece in skeleton.pieces(prompt) {
        match piece {
            Piece::Json(json) => {
                // What is within a stretch of the offset may differ anywhere in it: the value that is read next is the one.
                for c in json.chars() {
                    if at >= offset + MARKED_BYTES {
                        return Place { path: path.written(), ..Place::default() };
                    }
                    path.read(c);
                    at += c.len_utf8();
                }
            }
            Piece::Text(text) => {
                let end = at + text.len() + 2;
                if end > offset {
                    let byte = offset.saturating_sub(at + 1);
                    return Place { path: path.written(), byte: Some(byte as u64), stands: stands(text, byte) };
                }
                path.had_string(text.get(..text.floor_char_boundary(KEY_BYTES_MAX)).unwrap_or_default().to_owned());
                at = end;
            }
        }
    }
    Place { path: path.written(), ..Place::default() }
}

/// What stands at a byte of a text, or within a stretch behind it. Looks at a few bytes around it.
pub(super) fn stands(text: &str, byte: usize) -> Option<Stands> {
    let from = text.floor_char_boundary(byte.saturating_sub(2 * MARKED_BYTES));
    let to = text.ceil_char_boundary((byte + 4 * MARKED_BYTES).min(text.len()));
    let window = text.get(from..to)?;
    let (first, last) = (byte - from, byte - from + MARKED_BYTES);
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | ':' | '/' | '.' | '+' | '_');
    let mut at = 0;
    let mut words: Vec<(usize, &str)> = Vec::new();
    for word in window.split(|c: char| !is_word(c)) {
        if !word.is_empty() {
            words.push((at, word));
        }
        at += word.len() + window.get(at + word.len()..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    }
    let near = words.iter().enumerate().filter(|(_, (start, word))| *start < last && start + word.len() > first);
    let mut best = None;
    for (n, (_, word)) in near {
        let word = word.trim_end_matches(['.', ':', '-', '/']);
        let beside = |step: isize| n.checked_add_signed(step).and_then(|n| words.get(n)).map_or("", |(_, word)| word);
        let found = kind_of(word, beside(-1), beside(1));
        best = match (best, found) {
            (None | Some(Stands::Number), Some(found)) => Some(found),
            (best, _) => best,
        };
    }
    best
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

fn kind_of(word: &str, before: &str, behind: &str) -> Option<Stands> {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let has_digit = |word: &str| word.bytes().any(|byte| byte.is_ascii_digit());
    let is_month = |word: &str| begins(word, &MONTHS);
    if is_date(word) || is_month(word) && (has_digit(before) || has_digit(behind)) {
        return Some(Stands::Date);
    }
    if begins(word, &DAYS) && (is_month(behind) || is_date(behind) || has_digit(behind)) {
        return Some(Stands::Date);
    }
    if digits > 0 && (1..=4).contains(&digits) && (is_month(before) || is_month(behind)) {
        return Some(Stands::Date);
    }
    let fields: Vec<&str> = word.split(':').collect();
    if fields.len() >= 2
        && fields.iter().take(2).all(|it| (1..=2).contains(&it.len()) && it.bytes().all(|b| b.is_ascii_digit()))
    {
        return Some(Stands::Time);
    }
    let hex = word.bytes().filter(u8::is_ascii_hexdigit).count();
    let plain = word.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let mixed = word.len() >= 16 && digits >= 3 && word.bytes().any(|byte| byte.is_ascii_alphabetic());
    if plain && hex >= 12 && digits >= 2 && digits < hex || mixed {
        return Some(Stands::Id);
    }
    (digits > 0 && digits * 2 >= word.len()).then_some(Stands::Number)
}

fn begins(word: &str, names: &[&str]) -> bool {
    let head: String = word.chars().take(3).map(|c| c.to_ascii_lowercase()).collect();
    word.len() <= 9 && word.chars().all(|c| c.is_ascii_alphabetic()) && names.contains(&head.as_str())
}

/// `2026-01-31`, `2026/01/31`, `31.01.2026`, with or without a time behind it.
fn is_date(word: &str) -> bool {
    let head = word.split(['T', ':']).next().unwrap_or_default();
    ['-', '/', '.'].iter().any(|mark| {
        let fields: Vec<&str> = head.split(*mark).collect();
        let lengths: Vec<usize> = fields.iter().map(|field| field.len()).collect();
        let numbers = fields.iter().all(|field| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit()));
        numbers && matches!(lengths.as_slice(), [4, 1..=2, 1..=2] | [1..=2, 1..=2, 2 | 4])
    })
}
