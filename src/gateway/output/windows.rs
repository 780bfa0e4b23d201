//! Which words of a growing answer are to be looked at next: those that are new, and so many before them that what began there is
//! seen whole.
//!
//! Invariants: every word is in a look; looks are as long as what is new and [`OVERLAP_BYTES`] more for each text that grew.

use smallvec::SmallVec;
use weir_inference::PartKind;

use crate::limits::INLINE_TEXT_BYTES_MAX;
use crate::observe::AnswerReader;

/// Words before what is new that are looked at once more, in bytes: no rule of the binary asks for more around its literal.
pub(super) const OVERLAP_BYTES: usize = 512;
/// A look comes due with so much new text, however long the interval: more is no work for a core.
const LOOK_BYTES_MAX: usize = INLINE_TEXT_BYTES_MAX - 2 * OVERLAP_BYTES;
/// Letters of one case, or digits, in a row that count as a token. Words of prose have twice as many; keys and random letters, by a
/// vocabulary in use, hardly more, and the setting's number is a promise.
const TOKEN_LETTERS: usize = 2;

/// The looks at one answer.
pub(super) struct Windows {
    /// Tokens from one look to the next.
    interval: usize,
    /// How much of each text has been looked at, in the order in which they began.
    seen: SmallVec<[usize; 4]>,
    /// Bytes of all texts at the last look, and when the last message had been read.
    looked: usize,
    read: usize,
    /// How much of each text has been counted.
    counted: SmallVec<[usize; 4]>,
    /// Messages with text since the last look, and the tokens they may hold.
    messages: usize,
    tokens: usize,
    /// Texts that the last look saw grow.
    grew: usize,
}

impl Windows {
    pub(super) fn new(interval: u32) -> Self {
        let interval = usize::try_from(interval).unwrap_or(usize::MAX);
        let counted = SmallVec::new();
        Self { interval, seen: SmallVec::new(), looked: 0, read: 0, counted, messages: 0, tokens: 0, grew: 0 }
    }

    /// Notes that messages have been read. Whether a look is due.
    pub(super) fn note(&mut self, reader: &AnswerReader) -> bool {
        let bytes = reader.text_bytes();
        if bytes != self.read {
            self.read = bytes;
            // A message carries a token at least.
            self.messages += 1;
            self.count(reader);
        }
        let new = bytes.saturating_sub(self.looked);
        new >= LOOK_BYTES_MAX || self.messages.max(self.tokens) >= self.interval
    }

    /// Counts the tokens of what is new.
    fn count(&mut self, reader: &AnswerReader) {
        for (at, (_, text)) in reader.texts().enumerate() {
            if self.counted.len() <= at {
                self.counted.push(0);
            }
            let Some(counted) = self.counted.get_mut(at) else { break };
            let from = if *counted <= text.len() { *counted } else { 0 };
            self.tokens += tokens(text.as_bytes().get(from..).unwrap_or_default());
            *counted = text.len();
        }
    }

    /// Whether there are words that no look has seen.
    pub(super) fn has_new(&self) -> bool {
        self.messages > 0
    }

    /// Bytes of all texts at the last look.
    pub(super) const fn looked(&self) -> usize {
        self.looked
    }

    /// Bytes at the end of what was looked at in which something may have begun that goes on.
    pub(super) const fn tail(&self) -> usize {
        OVERLAP_BYTES * self.grew
    }

    /// What is to be looked at now.
    pub(super) fn take(&mut self, reader: &AnswerReader) -> Vec<(PartKind, String)> {
        let mut out = Vec::new();
        for (at, (kind, text)) in reader.texts().enumerate() {
            if self.seen.len() <= at {
                self.seen.push(0);
            }
            let Some(seen) = self.seen.get_mut(at) else { break };
            // A text that was replaced by a longer telling of it begins again.
            let from = if *seen <= text.len() { *seen } else { 0 };
            if from < text.len() {
                let from = text.floor_char_boundary(from.saturating_sub(OVERLAP_BYTES));
                out.push((kind, text.get(from..).unwrap_or_default().to_owned()));
            }
            *seen = text.len();
        }
        (self.looked, self.messages, self.tokens, self.grew) = (reader.text_bytes(), 0, 0, out.len());
        out
    }
}

/// About how many tokens a text has, hardly ever fewer than a vocabulary says: a vocabulary joins what is of one kind, and a blank with
/// what follows it.
fn tokens(text: &[u8]) -> usize {
    /// What is joined.
    #[derive(PartialEq, Clone, Copy)]
    enum Kind {
        Small,
        Capital,
        Digit,
        /// Scripts with letters of two or three bytes.
        Script,
        /// Never joined: marks, and characters of four bytes.
        Lone,
        Blank,
    }
    let kind = |byte: u8| match byte {
        b'a'..=b'z' => Kind::Small,
        b'A'..=b'Z' => Kind::Capital,
        b'0'..=b'9' => Kind::Digit,
        b' ' => Kind::Blank,
        0x80..0xf0 => Kind::Script,
        _ => Kind::Lone,
    };
    let (mut tokens, mut row, mut before) = (0, 0, Kind::Blank);
    for kind in text.iter().map(|&byte| kind(byte)) {
        row = if kind == before { row + 1 } else { 0 };
        before = kind;
        tokens += usize::from(match kind {
            Kind::Blank => row > 0,
            Kind::Lone => true,
            _ => row % TOKEN_LETTERS == 0,
        });
    }
    tokens
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::money::Family;
    use crate::observe::AnswerKind;

    fn chunk(index: u64, text: &str) -> Vec<u8> {
        let choice = json!({"index": index, "delta": {"content": text}, "finish_reason": null});
        format!("data: {}\n\n", json!({ "choices": [choice] })).into_bytes()
    }

    fn reader() -> AnswerReader {
        AnswerReader::new(AnswerKind::EventStream, None, 1 << 20)
    }

    #[test]
    fn a_look_is_due_after_so_many_tokens_or_messages() {
        for (text, messages) in [("a", 10), ("word", 5), ("nine char", 3), ("[0]", 4), (&*"x".repeat(30), 1)] {
            let (mut reader, mut windows) = (reader(), Windows::new(10));
            let due = (1..).find(|_| {
                reader.feed(&chunk(0, text));
                windows.note(&reader)
            });
            assert_eq!(due, Some(messages), "{text}");
            assert!(windows.has_new());
            assert_eq!(windows.take(&reader).len(), 1);
            assert!(!windows.has_new() && !windows.note(&reader));
        }
        // Without text nothing is due.
        let (mut reader, mut windows) = (reader(), Windows::new(1));
        reader.feed(b"data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\"}}]}\n\n");
        assert!(!windows.note(&reader));
    }

    /// The estimate against a vocabulary in use, where frames carry many tokens each: how many tokens pass from one look to the next.
    #[test]
    fn of_any_text_few_more_tokens_pass_than_the_interval() {
        let code =
            "for (i, x) in v.iter().enumerate() { if x[i] == 0 { s += &f(x)?; } else { t[i-1] = (a*b)/(c+1); } }\n"
                .repeat(40);
        let digits: String = (0..800_u32).map(|n| format!("{},", n.wrapping_mul(2_654_435_761))).collect();
        let prose = "The river was long, and whoever lived beside it knew its name and its moods. ".repeat(40);
        // Keys, hashes, random letters: linear congruences, cut to what each alphabet has.
        let random = |alphabet: &[u8]| -> String {
            let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
            let letter = |state: u32| char::from(alphabet[(state >> 16) as usize % alphabet.len()]);
            std::iter::successors(Some(7), next).take(3_000).map(letter).collect()
        };
        let marks = "){};](!=".repeat(300);
        let hanzi = "河流很长，住在河边的人都知道它的名字。".repeat(60);
        let cyrillic = "Река была длинной, и каждый, кто жил у неё, знал её имя и её нрав. ".repeat(40);
        let emoji = "🦊🐻‍❄️🧑🏽‍🚀👨‍👩‍👧‍👦🇦🇹🏴‍☠️".repeat(30);
        for (name, text) in [
            ("prose", prose),
            ("code", code),
            ("digits", digits),
            ("marks", marks),
            ("random marks", random(b"!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~")),
            ("base64", random(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")),
            ("hex", random(b"0123456789abcdef")),
            ("letters", random(b"abcdefghijklmnopqrstuvwxyz")),
            ("hanzi", hanzi),
            ("cyrillic", cyrillic),
            ("emoji", emoji),
        ] {
            let tokens = Family::O200k.count(&text).unwrap() as f64 / text.len() as f64;
            let (mut reader, mut windows) = (reader(), Windows::new(100));
            let (mut at, mut widest) = (0, 0);
            for piece in text.chars().collect::<Vec<_>>().chunks(24) {
                reader.feed(&chunk(0, &piece.iter().collect::<String>()));
                if windows.note(&reader) {
                    widest = widest.max(reader.text_bytes() - at);
                    at = reader.text_bytes();
                    windows.take(&reader);
                }
            }
            let passed = widest as f64 * tokens;
            println!("{name}: {passed:.0} tokens from look to look at an interval of 100");
            // An interval, and the message in which it ends.
            assert!(passed <= 112.0, "{name}: {passed}");
        }
    }

    #[test]
    fn a_long_interval_ends_with_what_a_core_may_look_at() {
        let (mut reader, mut windows) = (reader(), Windows::new(u32::MAX));
        let looks = (0..1_000).filter(|_| {
            reader.feed(&chunk(0, &"word ".repeat(20)));
            let due = windows.note(&reader);
            if due {
                let bytes: usize = windows.take(&reader).iter().map(|(_, text)| text.len()).sum();
                assert!(bytes <= INLINE_TEXT_BYTES_MAX, "{bytes}");
            }
            due
        });
        assert_eq!(looks.count(), 13);
    }

    #[test]
    fn each_text_is_seen_whole_with_what_stands_before_it() {
        let (mut reader, mut windows) = (reader(), Windows::new(1));
        let (mut first, mut second) = (String::new(), String::new());
        for number in 0..200 {
            let (a, b) = (format!("é{number} "), format!("second {number}; "));
            reader.feed(&chunk(0, &a));
            first.push_str(&a);
            if number % 3 == 0 {
                reader.feed(&chunk(1, &b));
                second.push_str(&b);
            }
            assert!(windows.note(&reader));
            let looks = windows.take(&reader);
            assert_eq!(looks.len(), if number % 3 == 0 { 2 } else { 1 });
            assert_eq!(windows.tail(), looks.len() * OVERLAP_BYTES);
            for ((_, look), whole) in looks.iter().zip([&first, &second]) {
                assert!(whole.ends_with(look.as_str()), "{look}");
                assert!(look.len() >= whole.len().min(OVERLAP_BYTES), "{}", look.len());
            }
        }
    }
}
