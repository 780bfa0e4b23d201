//! Letters that make no words: found by what ordinary words they become when they are shifted, mirrored or turned round.
//!
//! Looks at a few lines only, so its cost is bounded however long the text is. What it takes for plain text it leaves
//! alone: most texts are settled by their first few words, most other lines by a glance at all of theirs ([`Glance`]).

use super::letters::{from_pig_latin, mirror, reverse_words, rotate};
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
            Self::PigLatin => from_pig_latin(text, out),
        }
    }
}

/// Whether a line is made of letters and blanks for the most part.
fn is_lettered(line: &[u8]) -> bool {
    let sample = line.get(..SAMPLE_BYTES).unwrap_or(line);
    let is_letter_or_blank = |byte: u8| ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte == b' ');
    bits::count(sample, is_letter_or_blank) * 5 >= sample.len() * 4
}

/// The words of a sample as numbers, 0 for those of more than [`KEY_BYTES`]: found a block of bytes at a time, so that no byte costs a
/// branch.
struct Words<'a> {
    sample: &'a [u8],
    /// Where the next block begins.
    next: usize,
    /// The letters of the block before it, and the words that begin in it and are not handed out yet.
    letters: u64,
    starts: u64,
}

impl<'a> Words<'a> {
    fn of(line: &'a [u8]) -> Self {
        Self { sample: line.get(..SAMPLE_BYTES).unwrap_or(line), next: 0, letters: 0, starts: 0 }
    }
}

impl Iterator for Words<'_> {
    type Item = u128;

    fn next(&mut self) -> Option<Self::Item> {
        while self.starts == 0 {
            if self.next >= self.sample.len() {
                return None;
            }
            let goes_on = self.letters >> (bits::BLOCK - 1);
            self.letters = bits::block(self.sample, self.next, |byte| (byte | 0x20).wrapping_sub(b'a') < 26);
            self.starts = self.letters & !(self.letters << 1 | goes_on);
            self.next += bits::BLOCK;
        }
        let bit = self.starts.trailing_zeros() as usize;
        self.starts &= self.starts - 1;
        let start = self.next - bits::BLOCK + bit;
        let mut end = start + (!(self.letters >> bit)).trailing_zeros() as usize;
        if end == self.next {
            let rest = self.sample.get(end..).unwrap_or_default();
            end += rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        }
        Some(key(self.sample.get(start..).unwrap_or_default(), end - start))
    }
}

/// Whether each word of a sample is a common one.
fn words(line: &[u8]) -> impl Iterator<Item = bool> {
    Words::of(line).take(SAMPLE_WORDS).map(is_common)
}

/// Words of a sample, and how many of them are common.
fn count(line: &[u8]) -> (usize, usize) {
    words(line).fold((0, 0), |(all, common), is_common| (all + 1, common + usize::from(is_common)))
}

fn is_common(key: u128) -> bool {
    let (spread, slots) = &COMMON_AT;
    COMMON_KEYS.get(usize::from(slots[slot(key, *spread)])) == Some(&key)
}

/// Bytes of a word as a number.
const KEY_BYTES: usize = 16;

/// A word of `len` letters that a text begins with, in small letters, as a number.
const fn key(text: &[u8], len: usize) -> u128 {
    const FOLD: u128 = u128::MAX / 0xFF * 0x20;
    let bytes = match text.first_chunk::<KEY_BYTES>() {
        Some(bytes) => *bytes,
        None => {
            let (mut bytes, mut at) = ([0; KEY_BYTES], 0);
            while at < text.len() {
                bytes[at] = text[at];
                at += 1;
            }
            bytes
        }
    };
    if len > KEY_BYTES {
        return 0;
    }
    (u128::from_le_bytes(bytes) | FOLD) & u128::MAX >> (u128::BITS as usize - len * u8::BITS as usize)
}

const COMMON_KEYS: [u128; COMMON.len()] = {
    let mut keys = [0; COMMON.len()];
    let mut at = 0;
    while at < keys.len() {
        assert!(COMMON[at].len() <= KEY_BYTES);
        keys[at] = key(COMMON[at].as_bytes(), COMMON[at].len());
        at += 1;
    }
    keys
};

/// Bits of the slot of a common word.
const SLOT_BITS: u32 = 10;

/// By its slot, which of [`COMMON_KEYS`] a word can be alone; before that, what multiplies keys so that no two of those have one slot.
static COMMON_AT: (u64, [u8; 1 << SLOT_BITS]) = {
    let mut spread = SPREAD as u64 | 1 << 63;
    'spread: loop {
        spread = spread.wrapping_mul(0x5851_F42D_4C95_7F2D);
        let mut slots = [0; 1 << SLOT_BITS];
        let mut at = COMMON.len();
        while at > 0 {
            at -= 1;
            let slot = &mut slots[slot(COMMON_KEYS[at], spread)];
            if *slot != 0 {
                continue 'spread;
            }
            *slot = at as u8;
        }
        break (spread, slots);
    }
};

/// Where a word is: by its first eight bytes.
const fn slot(key: u128, spread: u64) -> usize {
    ((key as u64).wrapping_mul(spread) >> (u64::BITS - SLOT_BITS)) as usize
}

/// What a common word looks like with its alphabet mirrored, ...
const MIRRORED: u8 = 1;
/// ... turned round, ...
const TURNED: u8 = 1 << 1;
/// ... and in a line of pig Latin.
const PIG: u8 = 1 << 2;

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
        forms[form(plain)] |= PIG;
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
            let pig = |word: &[u8]| match word {
                [first, rest @ ..] if first.is_ascii_alphabetic() => [rest, &[*first], b"ay"].concat(),
                between => between.to_vec(),
            };
            let (line, mut disguised) = (line.as_bytes(), Vec::new());
            match method {
                0 => disguised.extend(line.iter().map(|byte| rotate(*byte, by))),
                1 => disguised.extend(line.iter().map(|byte| mirror(*byte))),
                2 => disguised.extend(line.iter().rev()),
                3 => reverse_words(line, &mut disguised),
                _ => {
                    let words = line.chunk_by(|a, b| a.is_ascii_alphabetic() == b.is_ascii_alphabetic());
                    disguised.extend(words.flat_map(pig));
                }
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
