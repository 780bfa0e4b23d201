//! What a program is made of: its steps, the words and sets of bytes that they ask for, and filters by which a search is kept from
//! steps that cannot lead anywhere. Invariant: a filter lets everything pass that can match.

use regex_syntax::hir::{ClassBytes, Look};

/// Bytes of a word that are looked at first.
pub(super) const PREFIX_BYTES: usize = 4;
/// Odd constant that spreads the bytes over the upper bits (2^32 divided by the golden ratio).
const SPREAD: u32 = 0x9E37_79B1;
/// Zero bytes behind what is searched, so that the beginning of a word can be read anywhere.
pub(crate) const PADDING: [u8; PREFIX_BYTES] = [0; PREFIX_BYTES];

/// Where in a program a step is.
pub(super) type Place = u32;

/// A pattern that is searched step by step.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) steps: Box<[Step]>,
    pub(super) first: First,
    /// How it may begin, what is preferred first.
    pub(super) begins: Box<[Begin]>,
    pub(super) gaps: usize,
    pub(super) sets: Box<[Set]>,
    pub(super) words: Box<[Word]>,
    /// The bytes of all words, one behind the other.
    pub(super) letters: Box<[u8]>,
    /// The ways of all forks.
    pub(super) ways: Box<[Way]>,
}

/// What is asked of the text at a place, and what next.
#[derive(Debug)]
pub(super) enum Step {
    /// One of some words, those from `from` to `to`; each says what is next.
    Words { filter: Filter, from: u32, to: u32 },
    /// One byte of a set.
    Byte { set: u16, next: Place },
    /// No byte, but something of those around.
    Look { look: Look, next: Place },
    /// Bytes of a set, so many. `number`: which gap of the program it is; `filter`: what the next step begins with.
    Gap { set: u16, number: u16, least: u32, most: u32, is_greedy: bool, filter: Filter, next: Place },
    /// One of several ways, the first one that comes to an end.
    Fork { from: u32, to: u32 },
    /// The pattern has matched.
    Done,
}

/// One way of a fork.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) place: Place,
    pub(super) filter: Filter,
}

/// One way to begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begin {
    pub(super) way: Way,
    /// Of bytes of this set it needs any number, so that behind one of them there is no match that does not begin earlier.
    pub(super) run: Option<Set>,
}

/// A word of a program, in the order of their beginnings, then of preference.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    /// Its first bytes, as many as the shortest word of its step has.
    pub(super) prefix: u32,
    pub(super) at: u32,
    pub(super) len: u32,
    pub(super) next: Place,
}

/// Bytes, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set(pub(super) [u64; 4]);

/// Which four bytes can begin something. It may let others pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filter {
    /// The bits of those bytes that count.
    pub(super) mask: u32,
    pub(super) bits: [u64; 4],
}

/// The same for a whole program, which may begin in many ways, and is asked at each place.
#[derive(Debug)]
pub(super) struct First {
    pub(super) mask: u32,
    pub(super) bits: [u64; 32],
}

impl Program {
    /// What it takes, in bytes.
    #[cfg(test)]
    pub(in crate::rules) fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + size_of_val(&*self.steps)
            + size_of_val(&*self.begins)
            + size_of_val(&*self.sets)
            + size_of_val(&*self.words)
            + self.letters.len()
            + size_of_val(&*self.ways)
    }
}

// === impl Set ===

impl Set {
    pub(super) fn of(class: &ClassBytes) -> Self {
        let mut set = Self([0; 4]);
        class.ranges().iter().flat_map(|range| range.start()..=range.end()).for_each(|byte| set.add(byte));
        set
    }

    pub(super) const fn add(&mut self, byte: u8) {
        self.0[(byte >> 6) as usize] |= 1 << (byte & 63);
    }

    pub(super) const fn holds(&self, byte: u8) -> bool {
        self.0[(byte >> 6) as usize] >> (byte & 63) & 1 == 1
    }

    pub(super) fn bytes(self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(move |byte| self.holds(*byte))
    }

    /// How many bytes it holds.
    pub(super) fn len(self) -> usize {
        self.0.iter().map(|bits| bits.count_ones() as usize).sum()
    }
}

// === impl Filter and First ===

impl Filter {
    /// Lets everything pass.
    pub(super) const ALL: Self = Self { mask: 0, bits: [u64::MAX; 4] };

    /// Of beginnings, none of which is empty; where there are none, everything passes.
    pub(super) fn of<T: AsRef<[u8]>>(beginnings: &[T]) -> Self {
        let mut filter = Self { mask: mask_of(beginnings), bits: [0; 4] };
        for beginning in beginnings {
            let bit = hash(prefix(beginning.as_ref()) & filter.mask) >> 24;
            filter.bits[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        if beginnings.is_empty() { Self::ALL } else { filter }
    }

    /// Whether what begins with these bytes may pass.
    pub(super) const fn passes(&self, bytes: u32) -> bool {
        let bit = hash(bytes & self.mask) >> 24;
        self.bits[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }
}

impl First {
    /// As [`Filter::of`].
    pub(super) fn of<T: AsRef<[u8]>>(beginnings: &[T]) -> Self {
        let mut first = Self { mask: mask_of(beginnings), bits: [0; 32] };
        for beginning in beginnings {
            let bit = hash(prefix(beginning.as_ref()) & first.mask) >> 21;
            first.bits[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        if beginnings.is_empty() { Self { mask: 0, bits: [u64::MAX; 32] } } else { first }
    }

    /// As [`Filter::passes`].
    pub(super) const fn passes(&self, bytes: u32) -> bool {
        let bit = hash(bytes & self.mask) >> 21;
        self.bits[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }
}

/// Those bits of a text that tell beginnings apart: of as many bytes as the shortest one has.
fn mask_of<T: AsRef<[u8]>>(beginnings: &[T]) -> u32 {
    let bytes = beginnings.iter().map(|beginning| beginning.as_ref().len()).min().unwrap_or(0);
    if bytes >= PREFIX_BYTES { u32::MAX } else { (1 << (8 * bytes)) - 1 }
}

/// The first bytes of a word or text, the first one lowest, zero behind it.
pub(super) fn prefix(bytes: &[u8]) -> u32 {
    let mut first = [0; PREFIX_BYTES];
    first.iter_mut().zip(bytes).for_each(|(first, byte)| *first = *byte);
    u32::from_le_bytes(first)
}

const fn hash(bytes: u32) -> u32 {
    bytes.wrapping_mul(SPREAD)
}
