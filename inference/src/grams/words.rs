//! Words, pairs of words and runs of four letters, and the places of their weights, as `inference/train/grams.py` reads them:
//! what is learned there holds here only while both agree, which a test checks.
//!
//! A word is a run of letters and digits (digits all read as one, capitals as small letters) or of bytes beyond ASCII, at most 24
//! bytes long, or one of the signs that quote or ask. Invariants: linear in the text, any bytes will do, nothing is allocated.

use crate::trained::{SEED, mix, step};

/// Longest word, in bytes; what follows is the next one.
const WORD_BYTES: usize = 24;
/// Letters in a run.
const RUN: usize = 4;
/// Signs that are words.
const SIGNS: &[u8] = b"?!\"'`:";

/// The words of a text, one after the other.
#[derive(Debug)]
pub(super) struct Words<'a> {
    text: &'a [u8],
    at: usize,
    /// Bits of a place.
    bits: u32,
    /// The hash of the word before.
    last: u32,
}

/// One word: where it stands, and its letters as they are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    pub(super) start: usize,
    pub(super) end: usize,
    hash: u32,
    last: u32,
    /// With a blank before and behind.
    letters: [u8; WORD_BYTES + 2],
    bits: u32,
}

impl<'a> Words<'a> {
    /// Of `text`, for a table of two to the power of `bits` rows.
    pub(super) const fn new(text: &'a [u8], bits: u32) -> Self {
        Self { text, at: 0, bits, last: 0 }
    }
}

impl Iterator for Words<'_> {
    type Item = Word;

    fn next(&mut self) -> Option<Word> {
        let rest = self.text.get(self.at..)?;
        let start = self.at + rest.iter().position(|byte| read(*byte).is_some() || SIGNS.contains(byte))?;
        let mut letters = [b' '; WORD_BYTES + 2];
        let (mut end, mut hash) = (start, SEED);
        let word = self.text.get(start..).unwrap_or_default();
        for (slot, byte) in letters.iter_mut().skip(1).take(WORD_BYTES).zip(word) {
            let Some(letter) = read(*byte) else { break };
            *slot = letter;
            hash = step(hash, letter);
            end += 1;
        }
        if end == start {
            // A sign.
            let sign = word.first().copied().unwrap_or_default();
            letters[1] = sign;
            hash = step(hash, sign);
            end += 1;
        }
        let word = Word { start, end, hash, last: self.last, letters, bits: self.bits };
        (self.at, self.last) = (end, hash);
        Some(word)
    }
}

impl Word {
    /// Where the weights of its features stand: of the word, of the word after the one before, and of its runs of letters.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> + '_ {
        let shift = 32 - self.bits;
        let length = self.end - self.start;
        let runs = if length > 1 { self.letters.get(..length + 2).unwrap_or_default() } else { &[] };
        let runs = runs.windows(RUN).map(move |run| mix(3, run.iter().fold(SEED, |hash, byte| step(hash, *byte)), 0));
        [mix(1, self.hash, 0), mix(2, self.hash, self.last)].into_iter().chain(runs).map(move |place| place >> shift)
    }
}

/// What a byte of a word is read as.
const fn read(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(b'0'),
        b'A'..=b'Z' => Some(byte | 0x20),
        b'a'..=b'z' | 0x80.. => Some(byte),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<&str> {
        Words::new(text.as_bytes(), 16).map(|word| &text[word.start..word.end]).collect()
    }

    #[test]
    fn a_text_is_cut_into_words_and_the_signs_that_quote_or_ask() {
        assert_eq!(words("What's \"25 rules\"?"), ["What", "'", "s", "\"", "25", "rules", "\"", "?"]);
        assert_eq!(words("привет, мир"), ["привет", "мир"]);
        assert_eq!(words(&"x".repeat(30)), ["x".repeat(24), "x".repeat(6)]);
        assert!(words(" .,- ").is_empty());
    }

    #[test]
    fn a_word_has_itself_its_pair_and_its_runs_of_letters() {
        let places = |text: &str| Words::new(text.as_bytes(), 16).last().unwrap().places().collect::<Vec<_>>();
        assert_eq!(places("a word").len(), 2 + 3, "_wor, word, ord_");
        assert_eq!((places("x").len(), places("?").len()), (2, 2));
        assert_eq!(places("so RULE 17"), places("so, rule 42"));
        assert_eq!(places("a b")[0], places("c b")[0]);
        assert_ne!(places("a b")[1], places("c b")[1]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_cut_in_order_and_every_place_is_in_the_table(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reach = 0;
            for word in Words::new(&text, 10) {
                prop_assert!(word.start >= reach && word.end > word.start && word.end <= text.len());
                prop_assert!(word.places().all(|place| place < 1 << 10));
                reach = word.end;
            }
        }
    }
}
