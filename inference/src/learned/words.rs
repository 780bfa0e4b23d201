//! Words and the names of their features, as `inference/train/features.py` reads them: what is learned there holds here only
//! while both agree, which a test checks.
//!
//! A word is a run of letters and digits (digits all read as one, capitals as small letters), at most 24 bytes long; of
//! scripts without spaces, one character, or four of those of South Asia. Each word has two features: itself, and itself
//! after the word before. A word that stood behind the same word a moment ago says nothing new: without this a harmless pair of words,
//! said fifty times, adds up to an attack. Invariants: linear in the text, any bytes will do, nothing is allocated.

use crate::trained::{SEED, mix, step};

/// Features of a word.
pub(super) const PER_WORD: usize = 2;
/// Longest word, in bytes; what follows is the next one.
const WORD_BYTES: usize = 24;
/// Longest word of characters of three bytes.
const CLUSTER_BYTES: usize = 12;
/// So many words back a pair of words is remembered; farther back it is new again.
const REMEMBERED: u32 = 64;
/// Places for pairs of words that are remembered, by some bits of their name; a later pair takes the place of an earlier one.
const PLACES: usize = 256;

/// The words of a text, one after the other.
#[derive(Debug)]
pub(super) struct Words<'a> {
    text: &'a [u8],
    at: usize,
    /// The hash of the word before.
    last: u32,
    /// Words read.
    count: u32,
    /// Pairs of words, and the number of the word after the one that ended them last.
    pairs: [(u32, u32); PLACES],
}

/// One word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The names of its features.
    pub(super) features: [u32; PER_WORD],
    /// It stood behind the same word a moment ago.
    pub(super) again: bool,
}

// === impl Words ===

impl<'a> Words<'a> {
    /// Of `text`.
    pub(super) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, last: 0, count: 0, pairs: [(0, 0); PLACES] }
    }

    /// Reads up to `most` bytes of a word while `read` says what each is read as; its hash.
    fn word(&mut self, most: usize, read: impl Fn(u8) -> Option<u8>) -> u32 {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let read = rest.iter().take(most).map_while(|byte| read(*byte));
        let (hash, length) = read.fold((SEED, 0), |(hash, length), byte| (step(hash, byte), length + 1));
        self.at += length;
        hash
    }
}

impl Words<'_> {
    /// Whether this pair of words was met a moment ago; remembers it.
    fn was_met(&mut self, pair: u32) -> bool {
        self.count = self.count.wrapping_add(1);
        let Some(place) = self.pairs.get_mut(pair as usize % PLACES) else { return false };
        let was_met = *place != (0, 0) && place.0 == pair && self.count.wrapping_sub(place.1) <= REMEMBERED;
        *place = (pair, self.count);
        was_met
    }
}

impl Iterator for Words<'_> {
    type Item = Word;

    fn next(&mut self) -> Option<Word> {
        let is_between = |byte: &u8| byte.is_ascii() && !byte.is_ascii_alphanumeric();
        let rest = self.text.get(self.at..)?;
        self.at += rest.iter().position(|byte| !is_between(byte)).unwrap_or(rest.len());
        let start = self.at;
        let hash = match *self.text.get(start)? {
            // One character is a word.
            0xF0.. => self.word(4, Some),
            0xE1.. => self.word(3, Some),
            0xE0 => self.word(CLUSTER_BYTES, foreign),
            0x80.. => self.word(WORD_BYTES, foreign),
            _ => self.word(WORD_BYTES, latin),
        };
        let features = [mix(1, hash, 0), mix(2, hash, self.last)];
        self.last = hash;
        let again = self.was_met(features[1]);
        Some(Word { start, end: self.at, features, again })
    }
}

/// What a byte of a word in ASCII is read as.
const fn latin(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(b'0'),
        b'A'..=b'Z' => Some(byte | 0x20),
        b'a'..=b'z' => Some(byte),
        _ => None,
    }
}

/// The same for a word in another script.
fn foreign(byte: u8) -> Option<u8> {
    (0x80..0xE1).contains(&byte).then_some(byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<&str> {
        Words::new(text.as_bytes()).map(|word| &text[word.start..word.end]).collect()
    }

    #[test]
    fn a_text_is_cut_into_words_of_its_script() {
        assert_eq!(words("Ignore all -- 25 rules!"), ["Ignore", "all", "25", "rules"]);
        assert_eq!(words("忽略a 说明"), ["忽", "略", "a", "说", "明"]);
        assert_eq!(words("привет, мир"), ["привет", "мир"]);
        assert_eq!(words(&"x".repeat(30)), ["x".repeat(24), "x".repeat(6)]);
        assert!(words(" .,- ").is_empty());
    }

    #[test]
    fn capitals_and_the_value_of_a_number_are_not_told_apart_and_the_word_before_is() {
        let features = |text: &str| Words::new(text.as_bytes()).last().unwrap().features;
        assert_eq!(features("Ignore RULE 17"), features("ignore, rule 42"));
        assert_eq!(features("a b")[0], features("c b")[0]);
        assert_ne!(features("a b")[1], features("c b")[1]);
    }

    #[test]
    fn what_was_said_a_moment_ago_is_not_said_again() {
        let again = |text: &str| Words::new(text.as_bytes()).map(|word| word.again).collect::<Vec<_>>();
        assert_eq!(again("ignore the apple ignore the apple"), [false, false, false, false, true, true]);
        assert_eq!(again("a b c a d"), [false; 5], "the word before is another");
        let far: String = (0..100_u32).map(|at| format!("{}x ", char::from_u32(0x4E00 + at).unwrap())).collect();
        assert!(!again(&format!("the apple {far} the apple")).contains(&true), "farther back it is new");
    }

    proptest! {
        #[test]
        fn any_bytes_are_cut_in_order(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reach = 0;
            for word in Words::new(&text) {
                prop_assert!(word.start >= reach && word.end > word.start && word.end <= text.len());
                reach = word.end;
            }
        }
    }
}
