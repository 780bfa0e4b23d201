//! Words and the names of their features, as `inference/train/features.py` reads them: what is learned there holds here only
//! while both agree, which a test checks.
//!
//! A word is a run of letters and digits (digits all read as one, capitals as small letters), at most 24 bytes long; of
//! scripts without spaces, one character, or four of those of South Asia. Each word has two features: itself, and itself
//! after the word before. A word that stood behind the same word a moment ago says nothing new: without this a harmless pair of words,
//! said fifty times, adds up to an attack. Invariants: linear in the text, any bytes will do, nothing is allocated.

use crate::trained::{BLOCK_WORDS, SEED, mix, step};

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
/// What each byte is read as: 0 between words, from 0x80 on as it is. A table, because every byte of every text is looked up.
static READ: [u8; 256] = read_as();

/// The words of a text, some at a time.
#[derive(Debug)]
pub(super) struct Words<'a> {
    text: &'a [u8],
    at: usize,
    /// The hash of the word before.
    last: u32,
    /// Words read, and [`REMEMBERED`], so that no place looks filled that is not.
    count: u32,
    /// Pairs of words, and `count` when they were met last.
    pairs: [(u32, u32); PLACES],
}

/// Up to [`BLOCK_WORDS`] words, without those that stood behind the same word a moment ago. Read together and looked up together: what is
/// read of one word and what is looked up of another do not wait for each other.
#[derive(Debug, Default)]
pub(super) struct Read {
    features: [[u32; PER_WORD]; BLOCK_WORDS],
    words: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

// === impl Words ===

impl<'a> Words<'a> {
    /// Of `text`.
    pub(super) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, last: 0, count: REMEMBERED, pairs: [(0, 0); PLACES] }
    }

    /// Reads on until `read` is full or so many words were looked at; false at the end of the text.
    pub(super) fn read(&mut self, read: &mut Read, most: usize) -> bool {
        let text = self.text;
        let until = self.count.saturating_add(u32::try_from(most).unwrap_or(u32::MAX));
        while read.words < BLOCK_WORDS && self.count < until {
            let mut at = self.at;
            // A blank after a word is the rule, so this loop and the next are left at once or nearly so.
            let mut letter = loop {
                let Some(byte) = text.get(at) else { return false };
                let letter = READ[usize::from(*byte)];
                if letter != 0 {
                    break letter;
                }
                at += 1;
            };
            let start = at;
            let mut hash = SEED;
            if letter < 0x80 {
                let end = text.len().min(start + WORD_BYTES);
                while letter.cast_signed() > 0 {
                    hash = step(hash, letter);
                    at += 1;
                    if at >= end {
                        break;
                    }
                    letter = READ[usize::from(text[at])];
                }
            } else {
                (hash, at) = self.foreign_word(start);
            }
            self.at = at;
            let features = [mix(1, hash, 0), mix(2, hash, self.last)];
            self.last = hash;
            if !self.was_met(features[1]) {
                read.add(features, start, at);
            }
        }
        true
    }

    /// Reads a word that begins at `at` and not in ASCII; its hash, and where it ends.
    #[inline(never)]
    fn foreign_word(&self, at: usize) -> (u32, usize) {
        let rest = self.text.get(at..).unwrap_or_default();
        let (most, is_character) = match rest.first() {
            // One character is a word.
            Some(0xF0..) => (4, true),
            Some(0xE1..) => (3, true),
            Some(0xE0) => (CLUSTER_BYTES, false),
            _ => (WORD_BYTES, false),
        };
        let word = rest.iter().take(most).take_while(|byte| is_character || (0x80..0xE1).contains(*byte));
        word.fold((SEED, at), |(hash, end), byte| (step(hash, *byte), end + 1))
    }

    /// Whether this pair of words was met a moment ago; remembers it.
    #[inline(always)]
    fn was_met(&mut self, pair: u32) -> bool {
        self.count += 1;
        let place = &mut self.pairs[pair as usize % PLACES];
        let was_met = place.0 == pair && self.count - place.1 <= REMEMBERED;
        *place = (pair, self.count);
        was_met
    }
}

// === impl Read ===

impl Read {
    #[inline(always)]
    fn add(&mut self, features: [u32; PER_WORD], start: usize, end: usize) {
        if self.words == 0 {
            self.start = start;
        }
        self.end = end;
        if let Some(slot) = self.features.get_mut(self.words) {
            *slot = features;
            self.words += 1;
        }
    }

    /// The names of the features of each word.
    pub(super) fn features(&self) -> &[[u32; PER_WORD]] {
        self.features.get(..self.words).unwrap_or_default()
    }

    pub(super) const fn is_full(&self) -> bool {
        self.words == BLOCK_WORDS
    }

    pub(super) const fn clear(&mut self) {
        self.words = 0;
    }
}

/// A table of what each byte is read as.
const fn read_as() -> [u8; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() {
        let byte = at as u8;
        table[at] = match byte {
            b'0'..=b'9' => b'0',
            b'A'..=b'Z' => byte | 0x20,
            b'a'..=b'z' | 0x80.. => byte,
            _ => 0,
        };
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One word, as it is read by itself.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Word {
        start: usize,
        end: usize,
        features: [u32; PER_WORD],
        again: bool,
    }

    /// All words of a text, read one by one.
    fn each(text: &[u8]) -> Vec<Word> {
        let mut words = Words::new(text);
        let mut found = Vec::new();
        let mut read = Read::default();
        while words.read(&mut read, 1) {
            let fresh = read.features().first();
            let features = fresh.copied().unwrap_or_default();
            found.push(Word { start: read.start, end: read.end, features, again: fresh.is_none() });
            read.clear();
        }
        found
    }

    /// What the words say, by the sentences at the top: slowly, and with a memory of its own.
    fn plainly(text: &[u8]) -> Vec<([u32; PER_WORD], bool)> {
        let (mut at, mut last, mut found) = (0, 0, Vec::new());
        let mut met: Vec<Option<(u32, usize)>> = vec![None; PLACES];
        while at < text.len() {
            let (most, belongs): (usize, fn(u8) -> bool) = match text[at] {
                0xF0.. => (4, |_| true),
                0xE1.. => (3, |_| true),
                0xE0 => (CLUSTER_BYTES, |byte| (0x80..0xE1).contains(&byte)),
                0x80.. => (WORD_BYTES, |byte| (0x80..0xE1).contains(&byte)),
                byte if byte.is_ascii_alphanumeric() => (WORD_BYTES, |byte| byte.is_ascii_alphanumeric()),
                _ => {
                    at += 1;
                    continue;
                }
            };
            let word: Vec<u8> = text[at..].iter().copied().take(most).take_while(|byte| belongs(*byte)).collect();
            at += word.len();
            let read = |byte: &u8| match byte {
                b'0'..=b'9' if most == WORD_BYTES => b'0',
                b'A'..=b'Z' if most == WORD_BYTES => byte.to_ascii_lowercase(),
                _ => *byte,
            };
            let hash = word.iter().map(read).fold(SEED, step);
            let features = [mix(1, hash, 0), mix(2, hash, last)];
            last = hash;
            let number = found.len();
            let place = &mut met[features[1] as usize % PLACES];
            let again = place.is_some_and(|(pair, when)| pair == features[1] && number - when <= REMEMBERED as usize);
            *place = Some((features[1], number));
            found.push((features, again));
        }
        found
    }

    fn words(text: &str) -> Vec<&str> {
        each(text.as_bytes()).iter().map(|word| &text[word.start..word.end]).collect()
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
        let features = |text: &str| each(text.as_bytes()).last().unwrap().features;
        assert_eq!(features("Ignore RULE 17"), features("ignore, rule 42"));
        assert_eq!(features("a b")[0], features("c b")[0]);
        assert_ne!(features("a b")[1], features("c b")[1]);
    }

    #[test]
    fn what_was_said_a_moment_ago_is_not_said_again() {
        let again = |text: &str| each(text.as_bytes()).iter().map(|word| word.again).collect::<Vec<_>>();
        assert_eq!(again("ignore the apple ignore the apple"), [false, false, false, false, true, true]);
        assert_eq!(again("a b c a d"), [false; 5], "the word before is another");
        let far: String = (0..100_u32).map(|at| format!("{}x ", char::from_u32(0x4E00 + at).unwrap())).collect();
        assert!(!again(&format!("the apple {far} the apple")).contains(&true), "farther back it is new");
    }

    proptest! {
        #[test]
        fn any_bytes_are_cut_in_order(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reach = 0;
            for word in each(&text).iter().filter(|word| !word.again) {
                prop_assert!(word.start >= reach && word.end > word.start && word.end <= text.len());
                reach = word.end;
            }
        }

        #[test]
        fn words_are_read_as_the_sentences_say(
            text in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..400),
                "([a-cA-C0-2]{1,3}[ .]){0,300}".prop_map(String::into_bytes),
                "([a-zéж忽ह]{1,30}[ ,]?){0,60}".prop_map(String::into_bytes),
            ],
        ) {
            let plainly = plainly(&text);
            let again: Vec<bool> = each(&text).iter().map(|word| word.again).collect();
            prop_assert_eq!(again, plainly.iter().map(|(_, again)| *again).collect::<Vec<_>>());
            // In blocks, as they are used.
            let fresh: Vec<_> = plainly.iter().filter(|(_, again)| !again).map(|(features, _)| *features).collect();
            let (mut words, mut read, mut found) = (Words::new(&text), Read::default(), Vec::new());
            while words.read(&mut read, 7) {
                if read.is_full() {
                    found.extend_from_slice(read.features());
                    read.clear();
                }
            }
            found.extend_from_slice(read.features());
            prop_assert_eq!(found, fresh);
        }
    }
}
