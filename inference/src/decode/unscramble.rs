//! Letters that make no words: found by what ordinary words they become when they are shifted, mirrored or turned round.
//!
//! Looks at a few lines only, so its cost is bounded however long the text is. What it takes for plain text it leaves
//! alone: most texts are settled by their first few words, most other lines by a glance at all of theirs ([`Glance`]).

use super::letters::{each_word, from_pig_latin, mirror, reverse_words, rotate};
use crate::bits;

/// Bytes at the beginning of a text that are looked at though nothing announces a cipher.
pub(crate) const HEAD_BYTES: usize = 512;
/// Lines that are tried in one window.
const LINES_MAX: usize = 6;
/// Shortest line that is tried, in bytes.
const LINE_MIN: usize = 16;
/// Bytes of a line by which it is judged.
const SAMPLE_BYTES: usize = 192;
/// Words of a line by which it is judged.
const SAMPLE_WORDS: usize = 24;

/// Common words of languages in Latin letters, sorted. None becomes another one when it is turned round or shifted by 13.
const COMMON: [&str; 84] = [
    "about",
    "above",
    "all",
    "and",
    "answer",
    "any",
    "are",
    "before",
    "but",
    "can",
    "con",
    "das",
    "del",
    "der",
    "des",
    "die",
    "dit",
    "do",
    "een",
    "ein",
    "est",
    "everything",
    "for",
    "forget",
    "from",
    "give",
    "have",
    "here",
    "het",
    "how",
    "ignore",
    "in",
    "instructions",
    "is",
    "ist",
    "it",
    "les",
    "like",
    "los",
    "me",
    "message",
    "mit",
    "must",
    "my",
    "new",
    "nicht",
    "not",
    "of",
    "one",
    "original",
    "para",
    "pas",
    "password",
    "please",
    "por",
    "previous",
    "print",
    "prompt",
    "que",
    "qui",
    "reveal",
    "rules",
    "say",
    "secret",
    "show",
    "system",
    "tell",
    "that",
    "the",
    "their",
    "these",
    "this",
    "to",
    "und",
    "van",
    "what",
    "which",
    "will",
    "with",
    "without",
    "would",
    "write",
    "you",
    "your",
];

/// How often each letter stands in a thousand of English.
const FREQUENCY: [u32; 26] =
    [82, 15, 28, 43, 127, 22, 20, 61, 70, 2, 8, 40, 24, 67, 75, 19, 1, 60, 63, 91, 28, 10, 24, 2, 20, 1];

/// Whether a byte ends a line.
const fn ends_line(byte: u8) -> bool {
    (byte == b'\n')
        | (byte == b':')
        | (byte == b'"')
        | (byte == b'`')
        | (byte == b'(')
        | (byte == b'[')
        | (byte == b'<')
        | (byte == b'>')
}

/// Decodes the first line of `text` that is scrambled, with all that follows it. Says how, and where it begins.
pub(crate) fn unscramble(text: &[u8], out: &mut Vec<u8>) -> Option<(&'static str, usize)> {
    let mut tried = 0;
    let mut start = 0;
    for end in bits::positions(text, ends_line).chain([text.len()]) {
        let at = start;
        start = end + 1;
        let line = text.get(at..end).unwrap_or_default();
        if line.len() < LINE_MIN || !is_lettered(line) || is_plain(line) {
            continue;
        }
        tried += 1;
        if let Some(method) = find_method(line) {
            out.clear();
            method.write(text.get(at..).unwrap_or_default(), out);
            return Some((method.name(), at));
        }
        if tried == LINES_MAX {
            break;
        }
    }
    None
}

/// How a line was scrambled.
#[derive(Debug, Clone, Copy)]
enum Method {
    Shift(u8),
    Atbash,
    Reversed,
    WordsReversed,
    PigLatin,
}

impl Method {
    const fn name(self) -> &'static str {
        match self {
            Self::Shift(13) => "rot13",
            Self::Shift(_) => "caesar",
            Self::Atbash => "atbash",
            Self::Reversed | Self::WordsReversed => "reversed",
            Self::PigLatin => "pig_latin",
        }
    }

    /// Appends what `text` says.
    fn write(self, text: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Shift(by) => out.extend(text.iter().map(|byte| rotate(*byte, by))),
            Self::Atbash => out.extend(text.iter().map(|byte| mirror(*byte))),
            Self::Reversed => out.extend(text.iter().rev()),
            Self::WordsReversed => reverse_words(text, out),
            Self::PigLatin => each_word(text, out, from_pig_latin),
        }
    }
}

/// Whether a line is made of letters and blanks for the most part.
fn is_lettered(line: &[u8]) -> bool {
    let sample = line.get(..SAMPLE_BYTES).unwrap_or(line);
    let is_letter_or_blank = |byte: u8| ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte == b' ');
    bits::count(sample, is_letter_or_blank) * 5 >= sample.len() * 4
}

/// The words of a sample, each with its hash.
struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Tokens<'a> {
    type Item = (&'a [u8], u32);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.rest.iter().position(|byte| PLACES[usize::from(*byte)] != 0)?;
        let (mut hash, mut len) = (0, 0);
        let from = self.rest.get(start..)?;
        for place in from.iter().map(|byte| PLACES[usize::from(*byte)]).take_while(|place| *place != 0) {
            hash = grown(hash, u32::from(place));
            len += 1;
        }
        let (token, rest) = from.split_at_checked(len)?;
        self.rest = rest;
        Some((token, hash))
    }
}

/// Whether each word of a sample is a common one.
fn words(line: &[u8]) -> impl Iterator<Item = bool> {
    let sample = line.get(..SAMPLE_BYTES).unwrap_or(line);
    Tokens { rest: sample }.take(SAMPLE_WORDS).map(|(token, hash)| is_common(token, hash))
}

/// Words of a sample, and how many of them are common.
fn count(line: &[u8]) -> (usize, usize) {
    words(line).fold((0, 0), |(all, common), is_common| (all + 1, common + usize::from(is_common)))
}

fn is_common(token: &[u8], hash: u32) -> bool {
    FORMS[form(hash)] & PLAIN != 0 && key(token).is_some_and(|key| COMMON_KEYS.binary_search(&key).is_ok())
}

/// A word of at most 16 bytes as a number, in the order of such words: comparing these is cheap, and this is asked of every text.
const fn key(token: &[u8]) -> Option<u128> {
    let mut bytes = [0; 16];
    if token.len() > bytes.len() {
        return None;
    }
    let mut at = 0;
    while at < token.len() {
        bytes[at] = token[at].to_ascii_lowercase();
        at += 1;
    }
    Some(u128::from_be_bytes(bytes))
}

const COMMON_KEYS: [u128; COMMON.len()] = {
    let mut keys = [0; COMMON.len()];
    let mut at = 0;
    while at < keys.len() {
        keys[at] = match key(COMMON[at].as_bytes()) {
            Some(key) => key,
            None => panic!("a common word is longer than a key"),
        };
        at += 1;
    }
    keys
};

/// What a common word looks like: itself, ...
const PLAIN: u8 = 1;
/// ... with its alphabet mirrored, ...
const MIRRORED: u8 = 1 << 1;
/// ... turned round, ...
const TURNED: u8 = 1 << 2;
/// ... and in a line of pig Latin.
const PIG: u8 = 1 << 3;

/// Bits of a hash of a word, and of one of the steps between its letters.
const FORM_BITS: u32 = 12;
const STEP_BITS: u32 = 10;
/// Odd constant that spreads a hash over its upper bits (2^32 divided by the golden ratio).
const SPREAD: u32 = 0x9E37_79B1;

/// By the hash of a word, the forms of a common word that it may be.
static FORMS: [u8; 1 << FORM_BITS] = {
    let mut forms = [0; 1 << FORM_BITS];
    let mut at = 0;
    while at < COMMON.len() {
        let word = COMMON[at].as_bytes();
        let (mut plain, mut mirrored, mut turned, mut pig) = (0, 0, 0, 0);
        let mut place = 0;
        while place < word.len() {
            plain = grown(plain, letter(word[place]));
            mirrored = grown(mirrored, LETTERS + 1 - letter(word[place]));
            turned = grown(turned, letter(word[word.len() - 1 - place]));
            // The first letter goes to the end.
            pig = grown(pig, letter(word[(place + 1) % word.len()]));
            place += 1;
        }
        pig = grown(grown(pig, letter(b'a')), letter(b'y'));
        forms[form(plain)] |= PLAIN | PIG;
        forms[form(mirrored)] |= MIRRORED;
        forms[form(turned)] |= TURNED;
        forms[form(pig)] |= PIG;
        at += 1;
    }
    forms
};

/// By the hash of the steps between the letters of a word, the first letters of the common words that have them, a bit each:
/// a shift leaves the steps.
static STEPS: [u32; 1 << STEP_BITS] = {
    let mut steps = [0; 1 << STEP_BITS];
    let mut at = 0;
    while at < COMMON.len() {
        let word = COMMON[at].as_bytes();
        let (mut hash, mut place) = (0, 1);
        while place < word.len() {
            hash = grown(hash, step(letter(word[place - 1]), letter(word[place])));
            place += 1;
        }
        steps[step_form(hash)] |= 1 << letter(word[0]);
        at += 1;
    }
    steps
};

const LETTERS: u32 = 26;

/// The place of a letter in the alphabet, from 1; 0 for anything else.
const fn letter(byte: u8) -> u32 {
    if byte.is_ascii_alphabetic() { (byte & 31) as u32 } else { 0 }
}

/// [`letter`] of every byte.
static PLACES: [u8; 256] = {
    let mut places = [0; 256];
    let mut byte = 0;
    while byte < places.len() {
        places[byte] = letter(byte as u8) as u8;
        byte += 1;
    }
    places
};

/// How far one letter is from the one before, round the alphabet.
const fn step(from: u32, to: u32) -> u32 {
    if to < from { to + LETTERS - from } else { to - from }
}

const fn grown(hash: u32, next: u32) -> u32 {
    hash.wrapping_mul(37).wrapping_add(next + 1)
}

const fn form(hash: u32) -> usize {
    (hash.wrapping_mul(SPREAD) >> (u32::BITS - FORM_BITS)) as usize
}

const fn step_form(hash: u32) -> usize {
    (hash.wrapping_mul(SPREAD) >> (u32::BITS - STEP_BITS)) as usize
}

/// How many words of a sample may be common ones by each method, all of them counted: never fewer than there are.
#[derive(Default)]
struct Glance {
    all: usize,
    mirrored: usize,
    turned: usize,
    pig: usize,
    /// By the shift that would make them common.
    shifted: [usize; LETTERS as usize],
}

impl Glance {
    fn at(sample: &[u8]) -> Self {
        let mut glance = Self::default();
        let (mut hash, mut steps, mut first, mut before) = (0, 0, 0, 0);
        for byte in sample.iter().copied().chain([b' ']) {
            let next = u32::from(PLACES[usize::from(byte)]);
            if next != 0 {
                if before == 0 {
                    (hash, steps, first) = (grown(0, next), 0, next);
                } else {
                    (hash, steps) = (grown(hash, next), grown(steps, step(before, next)));
                }
            } else if before != 0 {
                glance.add(hash, steps, first);
            }
            before = next;
        }
        glance
    }

    fn add(&mut self, hash: u32, steps: u32, first: u32) {
        self.all += 1;
        let forms = FORMS[form(hash)];
        self.mirrored += usize::from(forms & MIRRORED != 0);
        self.turned += usize::from(forms & TURNED != 0);
        self.pig += usize::from(forms & PIG != 0);
        let mut left = STEPS[step_form(steps)];
        while left != 0 {
            self.shifted[step(first, left.trailing_zeros()) as usize] += 1;
            left &= left - 1;
        }
    }

    /// Whether some method may make the line ordinary text ([`is_solved`]).
    fn promises(&self) -> bool {
        let shifted = self.shifted.iter().skip(1).copied().max().unwrap_or_default();
        let most = self.mirrored.max(self.turned).max(self.pig).max(shifted);
        is_enough(self.all.min(SAMPLE_WORDS), most)
    }
}

/// Whether a line is ordinary text: one in eight of its words is common.
pub(crate) fn is_plain(line: &[u8]) -> bool {
    let (mut all, mut common) = (0, 0);
    for is_common in words(line) {
        all += 1;
        common += usize::from(is_common);
        // Whatever follows: there are enough for the longest sample.
        if all >= 3 && common * 8 >= SAMPLE_WORDS {
            return true;
        }
    }
    all < 3 || common * 8 >= all
}

/// Whether a line has become ordinary text.
fn is_solved(line: &[u8]) -> bool {
    let (all, common) = count(line);
    is_enough(all, common)
}

const fn is_enough(all: usize, common: usize) -> bool {
    common >= 2 && common * 5 >= all
}

fn find_method(line: &[u8]) -> Option<Method> {
    let sample = line.get(..SAMPLE_BYTES).unwrap_or(line);
    if !Glance::at(sample).promises() {
        return None;
    }
    // The alphabet twice, so that what a shift leaves stands in a row.
    let mut counts = [0u32; 52];
    for byte in sample.iter().filter(|byte| byte.is_ascii_alphabetic()) {
        let letter = usize::from(byte.to_ascii_lowercase() - b'a');
        counts[letter] += 1;
        counts[letter + 26] += 1;
    }
    // How English the letters would be after each shift.
    let fit = |by: usize| -> u32 {
        FREQUENCY.iter().zip(counts.iter().skip(26 - by)).map(|(often, count)| often * count).sum()
    };
    let mut shifts: Vec<usize> = (1..26).collect();
    shifts.sort_by_cached_key(|by| std::cmp::Reverse(fit(*by)));
    let likely = shifts.into_iter().take(3).map(|by| Method::Shift(by as u8));
    let others = [Method::Atbash, Method::Reversed, Method::WordsReversed, Method::PigLatin];
    let mut plain = Vec::with_capacity(sample.len());
    likely.chain(others).find(|method| {
        plain.clear();
        method.write(sample, &mut plain);
        is_solved(&plain)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<(&'static str, String)> {
        let mut out = Vec::new();
        unscramble(text.as_bytes(), &mut out).map(|(name, _)| (name, String::from_utf8_lossy(&out).into_owned()))
    }

    #[test]
    fn common_words_are_sorted_and_stay_apart() {
        assert!(COMMON.is_sorted());
        for word in COMMON {
            let turned: String = word.chars().rev().collect();
            let shifted: Vec<u8> = word.bytes().map(|byte| rotate(byte, 13)).collect();
            let is_common = |text: &[u8]| words(text).any(|is_common| is_common);
            assert!(is_common(word.as_bytes()) && !is_common(turned.as_bytes()) && !is_common(&shifted), "{word}");
        }
    }

    #[test]
    fn reads_letters_that_make_no_words() {
        let plain = "you must tell me the secret of this house";
        for by in 1..26 {
            let text: String = plain.bytes().map(|byte| char::from(rotate(byte, 26 - by))).collect();
            assert_eq!(read(&text).map(|(_, text)| text).as_deref(), Some(plain), "by {by}");
        }
        let turned: String = plain.chars().rev().collect();
        assert_eq!(read(&turned), Some(("reversed", plain.to_owned())));
        assert_eq!(read(&format!("Decode this: {turned}")).map(|(name, _)| name), Some("reversed"));
    }

    #[test]
    fn leaves_plain_text_alone() {
        for text in [
            "The quick brown fox jumps over the lazy dog and sleeps",
            "Der schnelle Fuchs springt und der Hund liegt da",
            "fn main() { let mut total = 0; for n in 0..10 { total += n; } }",
            "Lorem ipsum dolor sit amet consectetur adipiscing elit sed eiusmod",
            "ls -la grep awk sed cut sort uniq head tail tee xargs find",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        /// Common words and others, some of them cut by the end of a sample, by each method.
        #[test]
        fn a_glance_promises_whatever_a_method_solves(
            words in prop::collection::vec((0..COMMON.len(), any::<bool>(), "[a-z']{1,9}", "[ ,.'0]{1,2}"), 1..40),
            by in 0u8..26, method in 0usize..5,
        ) {
            let line: String = words.iter().fold(String::new(), |line, (common, is_common, other, gap)| {
                line + if *is_common { COMMON[*common] } else { other } + gap
            });
            let pig = |word: &[u8], out: &mut Vec<u8>| {
                out.extend(word.iter().skip(1).chain(word.first()).chain(b"ay"));
            };
            let (line, mut disguised) = (line.as_bytes(), Vec::new());
            match method {
                0 => disguised.extend(line.iter().map(|byte| rotate(*byte, by))),
                1 => disguised.extend(line.iter().map(|byte| mirror(*byte))),
                2 => disguised.extend(line.iter().rev()),
                3 => reverse_words(line, &mut disguised),
                _ => each_word(line, &mut disguised, pig),
            }
            let sample = disguised.get(..SAMPLE_BYTES).unwrap_or(&disguised);
            let others = [Method::Atbash, Method::Reversed, Method::WordsReversed, Method::PigLatin];
            let solved = (1..26).map(Method::Shift).chain(others).any(|method| {
                let mut plain = Vec::new();
                method.write(sample, &mut plain);
                is_solved(&plain)
            });
            prop_assert!(!solved || Glance::at(sample).promises());
        }

        #[test]
        fn never_panics_and_never_grows(text in "\\PC{0,300}") {
            let mut out = Vec::new();
            unscramble(text.as_bytes(), &mut out);
            prop_assert!(out.len() <= text.len());
        }
    }
}
