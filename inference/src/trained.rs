//! What the trained models in the binary (`learned`, `grams`) have in common: how their files are read, how words are hashed, and which
//! window of a text is its worst.
//!
//! A window is two blocks of words, worth the sum of their words over the root of their number; a text is as bad as its worst window.
//! Windows overlap by half, so what stands anywhere in a text stands whole in one of them. Invariant: work is linear in the text,
//! and memory does not depend on it.

use std::time::Instant;

/// Words in half a window.
pub(crate) const BLOCK_WORDS: usize = 32;
/// Bits behind the point in what a window's sum is multiplied by.
pub(crate) const ROOT_BITS: u32 = 12;
/// Words after which the clock is looked at.
pub(crate) const SLICE_WORDS: usize = 1024;
/// What the hash of a word begins with.
pub(crate) const SEED: u32 = 0x811C_9DC5;
const PRIME: u32 = 0x0100_0193;

/// Why bytes are no model.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ModelError {
    /// They end too early or are of another version.
    #[error("a model in the binary is damaged: {0}")]
    Damaged(&'static str),
    /// It does not say what it said when it was trained.
    #[error("a model in the binary fails its self-test: \"{text}\" scores {score}, not {known}")]
    SelfTest {
        /// The text.
        text: String,
        /// What the model says.
        score: i32,
        /// What it said when it was trained.
        known: i32,
    },
}

/// A window of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) score: i32,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The time was over before the end of the text.
    pub(crate) cut: bool,
}

/// A word: where it stands, and the sum of its weights.
pub(crate) struct Weighed {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) sum: i32,
}

/// Sum of some words, and where they stand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Block {
    pub(crate) sum: i32,
    pub(crate) words: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The worst of the windows of a text, which is given block by block. `root` says what the sum of so many words is multiplied by.
#[derive(Debug)]
pub(crate) struct Windows<R> {
    root: R,
    bias: i32,
    before: Block,
    worst: Option<Window>,
}

impl<R: Fn(usize) -> i64> Windows<R> {
    pub(crate) fn new(root: R, bias: i32) -> Self {
        Self { root, bias, before: Block::default(), worst: None }
    }

    /// The next block: all but the last of a text have [`BLOCK_WORDS`] words.
    pub(crate) fn add(&mut self, here: Block) {
        let before = std::mem::replace(&mut self.before, here);
        let product = i64::from(before.sum + here.sum) * (self.root)(before.words + here.words);
        let score = i32::try_from(product >> ROOT_BITS).unwrap_or(i32::MAX).saturating_add(self.bias);
        if self.worst.is_none_or(|worst| score > worst.score) {
            let start = if before.words > 0 { before.start } else { here.start };
            self.worst = Some(Window { score, start, end: here.end, cut: false });
        }
    }

    /// The worst window; nothing where there were no words. `cut`: the text goes on.
    pub(crate) fn end(self, cut: bool) -> Option<Window> {
        self.worst.map(|worst| Window { cut, ..worst })
    }
}

/// The worst window of a text of these words; nothing where there are none.
pub(crate) fn worst(
    words: impl Iterator<Item = Weighed>,
    root: impl Fn(usize) -> i64,
    bias: i32,
    deadline: Option<Instant>,
) -> Option<Window> {
    let mut windows = Windows::new(root, bias);
    let mut here = Block::default();
    let mut cut = false;
    for (count, word) in words.enumerate() {
        if count % SLICE_WORDS == SLICE_WORDS - 1 && is_over(deadline) {
            cut = true;
            break;
        }
        if here.words == BLOCK_WORDS {
            windows.add(std::mem::take(&mut here));
        }
        if here.words == 0 {
            here.start = word.start;
        }
        here.sum += word.sum;
        here.words += 1;
        here.end = word.end;
    }
    if here.words > 0 {
        windows.add(here);
    }
    windows.end(cut)
}

/// Whether the time is over.
pub(crate) fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// The hash of a word with one more byte (FNV-1a).
pub(crate) const fn step(hash: u32, byte: u8) -> u32 {
    (hash ^ byte as u32).wrapping_mul(PRIME)
}

/// The name of a feature of one or two hashes; `tag` tells kinds of features apart.
pub(crate) const fn mix(tag: u32, a: u32, b: u32) -> u32 {
    let x = tag.wrapping_mul(0x9E37_79B1).wrapping_add(a);
    let x = (x ^ (x >> 15)).wrapping_mul(0x85EB_CA6B).wrapping_add(b);
    let x = (x ^ (x >> 13)).wrapping_mul(0xC2B2_AE35);
    x ^ (x >> 16)
}

/// Tells model files apart (FNV-1a).
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// Reads a model file.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Behind `magic`, with which the file has to begin.
    pub(crate) fn open(bytes: &'a [u8], magic: &[u8]) -> Result<Self, ModelError> {
        let mut reader = Self(bytes);
        if reader.take(magic.len())? != magic {
            return Err(ModelError::Damaged("it does not begin as one of this version does"));
        }
        Ok(reader)
    }

    /// So many bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], ModelError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ModelError::Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ModelError> {
        self.take(N)?.try_into().map_err(|_| ModelError::Damaged("it ends too early"))
    }

    /// A number of things of which there is one at least.
    pub(crate) fn count(&mut self, most: usize) -> Result<usize, ModelError> {
        let count = self.u32()? as usize;
        if count == 0 || count > most { Err(ModelError::Damaged("a number in it is out of range")) } else { Ok(count) }
    }

    /// A text with its length before it.
    pub(crate) fn text(&mut self) -> Result<String, ModelError> {
        let length = self.u32()? as usize;
        let text = std::str::from_utf8(self.take(length)?);
        Ok(text.map_err(|_| ModelError::Damaged("a known text is no text"))?.to_owned())
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ModelError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, ModelError> {
        self.array().map(i32::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, ModelError> {
        self.array().map(u16::from_le_bytes)
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Result<(), ModelError> {
        if self.0.is_empty() { Ok(()) } else { Err(ModelError::Damaged("something stands behind its end")) }
    }
}
