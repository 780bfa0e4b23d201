//! Finds every occurrence of many literals in one pass: each literal is found by the rarest four bytes in it.
//!
//! Every position of the text costs one load, one multiplication and one bit test, none of which waits for the one
//! before, so a large set costs no more than a small one; an automaton of the same literals follows a chain of loads
//! through memory and was measured at four times the cost. Letters match without regard to ASCII case. Invariant: what
//! is reported is an occurrence, and every occurrence whose four bytes lie in the scanned range is reported.

use std::collections::HashMap;

/// Bytes that identify a literal.
const GRAM: usize = 4;
/// Size of each filter, as a power of two of bits; 8 KiB, so that both stay in the first-level cache.
const FILTER_BITS: u32 = 16;
/// Number of buckets, as a power of two.
const BUCKET_BITS: u32 = 12;
/// Odd constant that spreads the bytes over the upper bits (2^32 divided by the golden ratio).
const SPREAD: u32 = 0x9E37_79B1;
/// Bit that makes ASCII letters lower case; other bytes merely collide.
const FOLD: u32 = 0x2020_2020;
/// The first three bytes of a gram.
const THREE: u32 = 0x00FF_FFFF;

/// Literals must have at least this many bytes.
pub(crate) const LITERAL_BYTES_MIN: usize = 3;

/// A literal and where its rarest bytes are.
#[derive(Debug)]
struct Entry {
    bytes: Box<[u8]>,
    /// Offset of the gram in `bytes`.
    gram_at: usize,
}

/// Grams of one length: a bit per hash, then buckets.
#[derive(Debug)]
struct Grams {
    filter: Box<[u64; 1 << (FILTER_BITS - 6)]>,
    /// First and one past the last entry of each bucket in `order`.
    buckets: Box<[(u16, u16)]>,
    /// Folded gram and number of the literal.
    order: Box<[(u32, u16)]>,
}

/// The literals, indexed.
#[derive(Debug)]
pub(crate) struct Literals {
    four: Grams,
    /// Literals of three bytes.
    three: Grams,
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
        Self { four: Grams::new(four), three: Grams::new(three), entries }
    }

    /// Calls `found` for every literal whose gram begins in `from..to`. A literal of three bytes at the very end of the
    /// text is not reported: nothing could follow it.
    pub(crate) fn scan(&self, text: &[u8], from: usize, to: usize, mut found: impl FnMut(Found)) {
        let end = (to + GRAM - 1).min(text.len());
        let Some(slice) = text.get(from..end) else { return };
        for (offset, window) in slice.windows(GRAM).enumerate() {
            let [a, b, c, d] = *window else { continue };
            let gram = u32::from_le_bytes([a, b, c, d]) | FOLD;
            if self.four.may_hold(gram) {
                self.confirm(&self.four, gram, text, from + offset, &mut found);
            }
            if self.three.may_hold(gram & THREE) {
                self.confirm(&self.three, gram & THREE, text, from + offset, &mut found);
            }
        }
    }

    #[inline(never)]
    fn confirm(&self, grams: &Grams, gram: u32, text: &[u8], at: usize, found: &mut impl FnMut(Found)) {
        for (known, literal) in grams.bucket(gram) {
            if *known != gram {
                continue;
            }
            let literal = usize::from(*literal);
            let Some(entry) = self.entries.get(literal) else { continue };
            let Some(start) = at.checked_sub(entry.gram_at) else { continue };
            let end = start + entry.bytes.len();
            if text.get(start..end).is_some_and(|here| is_same(here, &entry.bytes)) {
                found(Found { literal, start, end });
            }
        }
    }
}

// === impl Grams ===

impl Grams {
    fn new(mut grams: Vec<(u32, u16)>) -> Self {
        let bucket_of = |gram: u32| (hash(gram) >> (32 - BUCKET_BITS)) as usize;
        grams.sort_unstable_by_key(|(gram, literal)| (bucket_of(*gram), *gram, *literal));
        let mut filter = Box::new([0u64; 1 << (FILTER_BITS - 6)]);
        let mut buckets = vec![(0u16, 0u16); 1 << BUCKET_BITS].into_boxed_slice();
        for (at, (gram, _)) in (0u16..).zip(&grams) {
            let bit = hash(*gram) >> (32 - FILTER_BITS);
            if let Some(word) = filter.get_mut((bit >> 6) as usize) {
                *word |= 1 << (bit & 63);
            }
            if let Some(range) = buckets.get_mut(bucket_of(*gram)) {
                if range.1 == 0 {
                    range.0 = at;
                }
                range.1 = at + 1;
            }
        }
        Self { filter, buckets, order: grams.into_boxed_slice() }
    }

    fn may_hold(&self, gram: u32) -> bool {
        let bit = hash(gram) >> (32 - FILTER_BITS);
        let word = self.filter.get((bit >> 6) as usize).copied().unwrap_or(0);
        word & (1 << (bit & 63)) != 0
    }

    fn bucket(&self, gram: u32) -> &[(u32, u16)] {
        let (first, last) = self.buckets.get((hash(gram) >> (32 - BUCKET_BITS)) as usize).copied().unwrap_or_default();
        self.order.get(usize::from(first)..usize::from(last)).unwrap_or_default()
    }
}

fn hash(gram: u32) -> u32 {
    gram.wrapping_mul(SPREAD)
}

/// Whether `here` is `literal`, which is lower case, in any ASCII case.
fn is_same(here: &[u8], literal: &[u8]) -> bool {
    here.iter().zip(literal).all(|(byte, lower)| byte.to_ascii_lowercase() == *lower)
}

/// The 8,000 commonest sequences of four bytes in benign English text, code and chat, commonest first, 25 to a line;
/// counted over the non-synthetic benign part of the training prompts, in lower case.
const COMMON: &[u8] = include_bytes!("../data/common-grams.txt");

/// How common a gram is: 0 for those that are in no list, else higher for commoner ones.
fn commonness() -> HashMap<u32, usize> {
    let grams = COMMON.split(|byte| *byte == b'\n').flat_map(|line| line.as_chunks::<GRAM>().0);
    let ranked: Vec<u32> = grams.map(|gram| u32::from_le_bytes(*gram) | FOLD).collect();
    ranked.iter().enumerate().map(|(rank, gram)| (*gram, ranked.len() - rank)).collect()
}

/// Where the four bytes begin that ordinary text holds least often.
fn rarest_gram(bytes: &[u8], common: &HashMap<u32, usize>) -> usize {
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
    fn a_scan_in_slices_sees_each_occurrence_once() {
        let literals = Literals::new(["abcdefgh", "defg"].into_iter());
        let text = b"..abcdefgh..";
        for cut in 0..=text.len() {
            let mut seen = Vec::new();
            for (from, to) in [(0, cut), (cut, text.len())] {
                literals.scan(text, from, to, |found| seen.push((found.literal, found.start)));
            }
            seen.sort_unstable();
            assert_eq!(seen, [(0, 2), (1, 5)], "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_search(text in "[a-cA-C_]{0,60}", words in prop::collection::vec("[a-c_]{4,6}", 1..6)) {
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
    }
}
