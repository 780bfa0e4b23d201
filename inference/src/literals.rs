//! Finds every occurrence of many literals in one pass: each literal is found by the rarest four bytes in it.
//!
//! Every position of the text costs two loads, a multiplication and a store, none of which waits for the one before, so
//! a large set costs no more than a small one, and no branch depends on them; an automaton of the same literals follows a chain of loads through memory
//! and was measured at four times the cost. The few positions that pass are tested for a fifth byte, then compared.
//! Letters match without regard to ASCII case. Invariant: what is reported is an occurrence, and every occurrence whose
//! four bytes lie in the scanned range is reported.

use std::collections::HashMap;

/// Bytes that identify a literal.
const GRAM: usize = 4;
/// Entries of the filter that every position is put to, a power of two; four bytes each, so that it stays in the
/// first-level cache with all else that is needed there: one of 32 KB was measured at half as much again.
const FIRST_ENTRIES: usize = 1 << 11;
/// Entries of the filters of grams of four and of three bytes, powers of two; a byte each.
const FOUR_ENTRIES: usize = 1 << 15;
const THREE_ENTRIES: usize = 1 << 12;
/// Number of buckets, as a power of two.
const BUCKET_BITS: u32 = 12;
/// Odd constant that spreads the bytes over the upper bits (2^32 divided by the golden ratio).
const SPREAD: u32 = 0x9E37_79B1;
/// Bit that makes ASCII letters lower case; other bytes merely collide.
const FOLD: u32 = 0x2020_2020;
/// The same for a word.
const FOLD_WORD: u64 = 0x2020_2020_2020_2020;
/// Bytes compared at once.
const WORD: usize = 8;
/// Positions that are looked at together.
const CHUNK: usize = 256;
/// The first three bytes of a gram.
const THREE: u32 = 0x00FF_FFFF;

/// Literals must have at least this many bytes.
pub(crate) const LITERAL_BYTES_MIN: usize = 3;

/// The class of each byte, as a bit. Upper and lower case letters have the same one.
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < classes.len() {
        classes[byte] = 1 << (byte & 7);
        byte += 1;
    }
    classes
};
/// Stands for a byte of any class.
const ANY_CLASS: u8 = u8::MAX;

/// A literal and where its rarest bytes are.
#[derive(Debug)]
struct Entry {
    bytes: Box<[u8]>,
    /// Offset of the gram in `bytes`.
    gram_at: usize,
}

/// Grams of one length: a filter, then buckets. The filter has for each hash a bit per class of the byte that follows the
/// gram in a literal (see [`CLASSES`]), so that few positions of ordinary text get past it.
#[derive(Debug)]
struct Grams<const ENTRIES: usize> {
    filter: Box<[u8; ENTRIES]>,
    /// First and one past the last entry of each bucket in `order`.
    buckets: Box<[(u16, u16)]>,
    order: Box<[Known]>,
}

/// A literal in a bucket, with what decides in one comparison for nearly all texts that it is not there.
#[derive(Debug)]
struct Known {
    /// Folded bytes of the literal around its gram, zero where it has none.
    word: u64,
    /// Ones where `word` has a byte.
    mask: u64,
    /// Bytes of `word` before the gram.
    before: u8,
    /// Number of the literal.
    literal: u16,
}

/// Which grams there may be: for each hash of the last three bytes a bit per first byte, of which the lower five bits
/// count, so that letters have a bit each.
#[derive(Debug)]
struct First(Box<[u32; FIRST_ENTRIES]>);

/// The literals, indexed.
#[derive(Debug)]
pub(crate) struct Literals {
    first: First,
    four: Grams<FOUR_ENTRIES>,
    /// Literals of three bytes.
    three: Grams<THREE_ENTRIES>,
    entries: Box<[Entry]>,
}

/// One occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// Number of the literal, in the order they were given.
    pub(crate) literal: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

// === impl Literals ===

impl Literals {
    /// Indexes `literals`, of at least [`LITERAL_BYTES_MIN`] bytes each; at most 65,535.
    pub(crate) fn new<'a>(literals: impl Iterator<Item = &'a str>) -> Self {
        let common = commonness();
        let entries: Box<[Entry]> = literals
            .map(|text| {
                let bytes: Box<[u8]> = text.to_ascii_lowercase().into_bytes().into();
                let gram_at = rarest_gram(&bytes, &common);
                Entry { bytes, gram_at }
            })
            .collect();
        let (mut four, mut three) = (Vec::new(), Vec::new());
        for (index, entry) in (0u16..).zip(&entries) {
            match *entry.bytes.get(entry.gram_at..).unwrap_or_default() {
                [a, b, c, d, ..] => four.push((u32::from_le_bytes([a, b, c, d]) | FOLD, index)),
                [a, b, c] => three.push(((u32::from_le_bytes([a, b, c, 0]) | FOLD) & THREE, index)),
                _ => {}
            }
        }
        Self {
            first: First::new(&four, &three),
            four: Grams::new(four, &entries),
            three: Grams::new(three, &entries),
            entries,
        }
    }

    /// Calls `found` for every literal whose gram begins in `from..to`.
    pub(crate) fn scan(&self, text: &[u8], from: usize, to: usize, mut found: impl FnMut(Found)) {
        // All positions with a byte after the gram, then the one at the end of the text.
        let mut picked = [0; CHUNK];
        for at in (from..to).step_by(CHUNK) {
            let end = (at + CHUNK).min(to) + GRAM;
            let chunk = text.get(at..end.min(text.len())).unwrap_or_default();
            for offset in self.pick(chunk, &mut picked) {
                self.confirm(text, at + usize::from(*offset), &mut found);
            }
        }
        if let Some(last) = text.len().checked_sub(GRAM).filter(|last| (from..to).contains(last)) {
            self.confirm(text, last, &mut found);
        }
        // One of three bytes there has nothing behind it.
        if let Some((before, [a, b, c])) =
            text.split_last_chunk().filter(|(before, _)| (from..to).contains(&before.len()))
        {
            let gram = (u32::from_le_bytes([*a, *b, *c, 0]) | FOLD) & THREE;
            self.three.bucket(gram).iter().for_each(|known| self.compare(known, text, before.len(), &mut found));
        }
    }

    /// The positions of a chunk at which a gram may begin. Each is written down and then kept or not, without a branch: one that
    /// is taken now and then costs more than all else that is done here. A function of its own, so that its loops have all
    /// registers.
    #[inline(never)]
    fn pick<'a>(&self, chunk: &[u8], picked: &'a mut [u16; CHUNK]) -> &'a [u16] {
        let mut count = 0;
        // Four positions at a time, of which one load brings all bytes.
        let (mut at, mut rest) = (0u16, chunk);
        while let Some(group) = rest.first_chunk::<WORD>() {
            let word = u64::from_le_bytes(*group) | FOLD_WORD;
            for step in 0..GRAM {
                let [gram, rest] = [step, step + 1].map(|bytes| (word >> (u8::BITS as usize * bytes)) as u32);
                picked[count % CHUNK] = at + step as u16;
                count += usize::from(self.first.may_be(gram, rest));
            }
            (at, rest) = (at + GRAM as u16, rest.get(GRAM..).unwrap_or_default());
        }
        for _ in rest.array_windows::<{ GRAM + 1 }>() {
            picked[count % CHUNK] = at;
            (at, count) = (at + 1, count + 1);
        }
        let mut kept = 0;
        for index in 0..count.min(CHUNK) {
            let at = picked[index];
            picked[kept] = at;
            let here = chunk.get(usize::from(at)..).and_then(<[u8]>::first_chunk::<{ GRAM + 1 }>);
            kept += usize::from(
                here.is_some_and(|[gram @ .., after]| self.may_be(u32::from_le_bytes(*gram) | FOLD, *after)),
            );
        }
        picked.get(..kept).unwrap_or_default()
    }

    /// The closer look at a gram, and at the byte after it.
    fn may_be(&self, gram: u32, after: u8) -> bool {
        self.four.classes(gram) & CLASSES[usize::from(after)] | self.three.classes(gram & THREE) != 0
    }

    fn confirm(&self, text: &[u8], at: usize, found: &mut impl FnMut(Found)) {
        let Some([a, b, c, d]) = text.get(at..).and_then(|gram| gram.first_chunk::<GRAM>()).copied() else { return };
        let gram = u32::from_le_bytes([a, b, c, d]) | FOLD;
        for known in self.four.bucket(gram) {
            if known.is_at(text, at) {
                self.compare(known, text, at, found);
            }
        }
        // Rare: there are few literals of three bytes.
        if self.three.classes(gram & THREE) != 0 {
            for known in self.three.bucket(gram & THREE) {
                self.compare(known, text, at, found);
            }
        }
    }

    /// Compares the whole literal.
    #[inline(never)]
    fn compare(&self, known: &Known, text: &[u8], at: usize, found: &mut impl FnMut(Found)) {
        let literal = usize::from(known.literal);
        let Some(entry) = self.entries.get(literal) else { return };
        let Some(start) = at.checked_sub(entry.gram_at) else { return };
        let end = start + entry.bytes.len();
        if text.get(start..end).is_some_and(|here| is_same(here, &entry.bytes)) {
            found(Found { literal, start, end });
        }
    }
}

// === impl Known ===

impl Known {
    /// Of the literal with this number and gram.
    fn new(literal: u16, entry: &Entry) -> Self {
        // The gram, then what precedes it as far as a word of the text goes, then what follows.
        let before = entry.gram_at.min(WORD - GRAM);
        let from = entry.gram_at - before;
        let (mut word, mut mask) = ([0; WORD], [0; WORD]);
        for (at, byte) in entry.bytes.iter().skip(from).take(WORD).enumerate() {
            word[at] = byte | 0x20;
            mask[at] = u8::MAX;
        }
        Self { word: u64::from_le_bytes(word), mask: u64::from_le_bytes(mask), before: before as u8, literal }
    }

    /// Whether the text around the gram at `at` may be the literal's. True where the text ends within a word: that is
    /// left to the comparison.
    fn is_at(&self, text: &[u8], at: usize) -> bool {
        let Some(from) = at.checked_sub(usize::from(self.before)) else { return false };
        let Some(here) = text.get(from..from + WORD).and_then(|here| <[u8; WORD]>::try_from(here).ok()) else {
            return true;
        };
        (u64::from_le_bytes(here) | FOLD_WORD) & self.mask == self.word
    }
}

// === impl First ===

impl First {
    /// Of folded grams of four and of three bytes, and the numbers of their literals.
    fn new(four: &[(u32, u16)], three: &[(u32, u16)]) -> Self {
        let mut entries = Box::new([0; FIRST_ENTRIES]);
        // Any byte may follow one of three.
        let followed =
            three.iter().flat_map(|(gram, _)| (0..=u8::MAX).map(move |after| gram | u32::from(after) << 24 | FOLD));
        for gram in four.iter().map(|(gram, _)| *gram).chain(followed) {
            entries[Self::entry(gram >> u8::BITS)] |= 1 << (gram % u32::BITS);
        }
        Self(entries)
    }

    /// Of the gram and what follows its first byte, of which three bytes count.
    #[inline(always)]
    fn may_be(&self, gram: u32, rest: u32) -> bool {
        self.0[Self::entry(rest)] >> (gram % u32::BITS) & 1 != 0
    }

    /// Where three bytes are. The product leaves a fourth one out.
    #[inline(always)]
    const fn entry(rest: u32) -> usize {
        (rest.wrapping_mul(SPREAD << u8::BITS) >> (u32::BITS - FIRST_ENTRIES.ilog2())) as usize
    }
}

// === impl Grams ===

impl<const ENTRIES: usize> Grams<ENTRIES> {
    /// Of folded grams and the numbers of their literals.
    fn new(mut grams: Vec<(u32, u16)>, entries: &[Entry]) -> Self {
        let bucket_of = |gram: u32| (hash(gram) >> (32 - BUCKET_BITS)) as usize;
        grams.sort_unstable_by_key(|(gram, literal)| (bucket_of(*gram), *gram, *literal));
        let mut filter = Box::new([0; ENTRIES]);
        let mut buckets = vec![(0u16, 0u16); 1 << BUCKET_BITS].into_boxed_slice();
        let mut order = Vec::with_capacity(grams.len());
        for (at, (gram, literal)) in (0u16..).zip(grams) {
            let Some(entry) = entries.get(usize::from(literal)) else { continue };
            let after = entry.bytes.get(entry.gram_at + GRAM).map_or(ANY_CLASS, |byte| CLASSES[usize::from(*byte)]);
            filter[Self::entry(gram)] |= after;
            if let Some(range) = buckets.get_mut(bucket_of(gram)) {
                if range.1 == 0 {
                    range.0 = at;
                }
                range.1 = at + 1;
            }
            order.push(Known::new(literal, entry));
        }
        Self { filter, buckets, order: order.into_boxed_slice() }
    }

    /// Classes of the bytes that follow this gram, or one with the same hash, in a literal.
    fn classes(&self, gram: u32) -> u8 {
        self.filter[Self::entry(gram)]
    }

    /// Where the filter has a gram.
    const fn entry(gram: u32) -> usize {
        (hash(gram) >> (u32::BITS - ENTRIES.ilog2())) as usize
    }

    fn bucket(&self, gram: u32) -> &[Known] {
        let (first, last) = self.buckets.get((hash(gram) >> (32 - BUCKET_BITS)) as usize).copied().unwrap_or_default();
        self.order.get(usize::from(first)..usize::from(last)).unwrap_or_default()
    }
}

const fn hash(gram: u32) -> u32 {
    gram.wrapping_mul(SPREAD)
}

/// Whether `here` is `literal`, which is lower case, in any ASCII case.
fn is_same(here: &[u8], literal: &[u8]) -> bool {
    here.iter().zip(literal).all(|(byte, lower)| byte.to_ascii_lowercase() == *lower)
}

/// The 8,000 commonest sequences of four bytes in benign English text, code and chat, commonest first, 25 to a line;
/// counted over the non-synthetic benign part of the training prompts, in lower case.
const COMMON: &[u8] = include_bytes!("../data/common-grams.txt");

/// Grams of the list that stand in nearly every text.
const FREQUENT: usize = 400;

/// Tells which short literals stand in nearly every text.
pub(crate) fn is_frequent() -> impl Fn(&str) -> bool {
    let common = commonness();
    let least = common.len().saturating_sub(FREQUENT);
    move |literal| {
        let bytes = literal.to_ascii_lowercase().into_bytes();
        let gram = bytes.get(rarest_gram(&bytes, &common)..).and_then(|rest| rest.first_chunk::<GRAM>());
        gram.is_none_or(|gram| common.get(&(u32::from_le_bytes(*gram) | FOLD)).is_some_and(|weight| *weight >= least))
    }
}

/// How common a gram is: 0 for those that are in no list, else higher for commoner ones.
fn commonness() -> HashMap<u32, usize> {
    let grams = COMMON.split(|byte| *byte == b'\n').flat_map(|line| line.as_chunks::<GRAM>().0);
    let ranked: Vec<u32> = grams.map(|gram| u32::from_le_bytes(*gram) | FOLD).collect();
    ranked.iter().enumerate().map(|(rank, gram)| (*gram, ranked.len() - rank)).collect()
}

/// Where the four bytes begin that ordinary text holds least often.
fn rarest_gram(bytes: &[u8], common: &HashMap<u32, usize>) -> usize {
    // One that another byte follows, if there is one: that byte tells more.
    let bytes = bytes.split_last().filter(|(_, before)| before.len() >= GRAM).map_or(bytes, |(_, before)| before);
    let weight = |window: &[u8]| match *window {
        [a, b, c, d] => common.get(&(u32::from_le_bytes([a, b, c, d]) | FOLD)).copied().unwrap_or(0),
        _ => usize::MAX,
    };
    bytes.windows(GRAM).enumerate().min_by_key(|(_, window)| weight(window)).map_or(0, |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(literals: &Literals, text: &[u8]) -> Vec<Found> {
        let mut seen = Vec::new();
        literals.scan(text, 0, text.len(), |found| seen.push(found));
        seen.sort_by_key(|found| (found.start, found.literal));
        seen
    }

    #[test]
    fn finds_overlapping_literals_in_any_case() {
        let literals = Literals::new(["system prompt", "prompt", "sk-", "密钥"].into_iter());
        let seen = all(&literals, "SYSTEM Prompt sk-1 密钥".as_bytes());
        let spans: Vec<(usize, usize, usize)> =
            seen.iter().map(|found| (found.literal, found.start, found.end)).collect();
        assert_eq!(spans, [(0, 0, 13), (1, 7, 13), (2, 14, 17), (3, 19, 25)]);
    }

    #[test]
    fn three_bytes_are_found_wherever_they_stand() {
        let literals = Literals::new(["gpt", "gpts"].into_iter());
        for (text, expected) in [
            ("GPT", vec![(0, 0)]),
            ("a gpt", vec![(0, 2)]),
            ("gpts", vec![(0, 0), (1, 0)]),
            ("my gpts", vec![(0, 3), (1, 3)]),
            ("gp", vec![]),
        ] {
            let seen: Vec<_> =
                all(&literals, text.as_bytes()).iter().map(|found| (found.literal, found.start)).collect();
            assert_eq!(seen, expected, "{text}");
        }
    }

    #[test]
    fn a_scan_in_slices_sees_each_occurrence_once() {
        let literals = Literals::new(["abcdefgh", "defg", "xyz"].into_iter());
        let text = b"..abcdefgh..xyz";
        for cut in 0..=text.len() {
            let mut seen = Vec::new();
            for (from, to) in [(0, cut), (cut, text.len())] {
                literals.scan(text, from, to, |found| seen.push((found.literal, found.start)));
            }
            seen.sort_unstable();
            assert_eq!(seen, [(0, 2), (1, 5), (2, 12)], "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_search(text in "[a-cA-C_]{0,60}", words in prop::collection::vec("[a-c_]{3,6}", 1..6)) {
            let literals = Literals::new(words.iter().map(String::as_str));
            let mut expected = Vec::new();
            for (literal, word) in words.iter().enumerate() {
                for start in 0..text.len() {
                    let end = start + word.len();
                    if text.get(start..end).is_some_and(|here| here.eq_ignore_ascii_case(word)) {
                        expected.push(Found { literal, start, end });
                    }
                }
            }
            expected.sort_by_key(|found| (found.start, found.literal));
            prop_assert_eq!(all(&literals, text.as_bytes()), expected);
        }

        #[test]
        fn finds_every_word_wherever_it_stands(
            pieces in prop::collection::vec(("\\PC{0,9}", prop::option::of(0usize..6), any::<bool>()), 1..12),
            words in prop::collection::vec("[ -~]{3}|[ -~]{4}|[ -~é密]{5,12}", 6),
        ) {
            let mut text = String::new();
            for (filler, word, upper) in pieces {
                text.push_str(&filler);
                let word = word.map_or("", |word| &words[word]);
                text.push_str(&if upper { word.to_ascii_uppercase() } else { word.to_owned() });
            }
            let mut expected = Vec::new();
            for (literal, word) in words.iter().enumerate() {
                let ends = text.as_bytes().windows(word.len()).enumerate();
                let here = ends.filter(|(_, here)| here.eq_ignore_ascii_case(word.as_bytes()));
                expected.extend(here.map(|(start, _)| Found { literal, start, end: start + word.len() }));
            }
            expected.sort_by_key(|found| (found.start, found.literal));
            prop_assert_eq!(all(&Literals::new(words.iter().map(String::as_str)), text.as_bytes()), expected);
        }
    }
}
