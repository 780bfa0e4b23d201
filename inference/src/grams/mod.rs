//! Small models that are sums of weights of words, pairs of words and runs of letters: of toxic answers (`toxic`) and of words
//! that only look like an order (`second`). Trained by `train/grams.py` and its callers. Whole numbers only and sums in the order
//! of the text, so that every machine says the same.
//!
//! A window is two blocks of words, worth the sum of their weights over the root of the number of words; a text is as bad as its
//! worst window. Invariants: work is linear in the text and memory does not depend on it; a model is asked at its load what it
//! said when it was trained.

mod words;

use std::time::Instant;

use words::Words;

/// Words in half a window.
const BLOCK_WORDS: usize = 32;
/// Words after which the clock is looked at.
const SLICE_WORDS: usize = 1024;
/// What a model file begins with.
const MAGIC: &[u8; 8] = b"weirgm01";
/// Bits behind the point in the table of roots.
const ROOT_BITS: u32 = 12;
/// Most points of the curve from a score to a confidence.
const CURVE_MAX: usize = 64;
/// Most texts whose scores are known.
const KNOWN_MAX: usize = 64;

/// A trained model.
#[derive(Debug)]
pub(crate) struct Grams {
    /// Two to this power are the rows of the table.
    bits: u32,
    weights: Box<[i8]>,
    bias: i32,
    /// Scores with their confidence in 65,536ths, ascending.
    curve: Vec<(i32, u16)>,
    known: Vec<(String, i32)>,
    checksum: u64,
}

/// The worst window of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) score: i32,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The time was over before the end of the text.
    pub(crate) cut: bool,
}

/// Why bytes are no model.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum GramsError {
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

/// Sum of some words, and where they stand.
#[derive(Debug, Clone, Copy, Default)]
struct Block {
    sum: i32,
    words: usize,
    start: usize,
    end: usize,
}

/// Reads a model file.
struct Reader<'a>(&'a [u8]);

// === impl Grams ===

impl Grams {
    /// Reads a model and asks it what it said when it was trained.
    pub(crate) fn load(bytes: &[u8]) -> Result<Self, GramsError> {
        let mut reader = Reader(bytes);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(GramsError::Damaged("it does not begin as one of this version does"));
        }
        let bits = reader.u32()?;
        if !(8..=20).contains(&bits) {
            return Err(GramsError::Damaged("the size of its table is out of range"));
        }
        let weights = reader.take(1 << bits)?.iter().map(|byte| byte.cast_signed()).collect();
        let bias = reader.i32()?;
        let mut curve = Vec::new();
        for _ in 0..reader.count(CURVE_MAX)? {
            curve.push((reader.i32()?, reader.u16()?));
        }
        if !curve.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(GramsError::Damaged("its curve does not ascend"));
        }
        let mut known = Vec::new();
        for _ in 0..reader.count(KNOWN_MAX)? {
            let length = reader.u32()? as usize;
            let text = std::str::from_utf8(reader.take(length)?);
            known.push((text.map_err(|_| GramsError::Damaged("a known text is no text"))?.to_owned(), reader.i32()?));
        }
        if !reader.0.is_empty() {
            return Err(GramsError::Damaged("something stands behind its end"));
        }
        let checksum = bytes
            .iter()
            .fold(0xCBF2_9CE4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
        let model = Self { bits, weights, bias, curve, known, checksum };
        for (text, known) in &model.known {
            let score = model.worst(text.as_bytes(), None).map_or(0, |worst| worst.score);
            if score != *known {
                return Err(GramsError::SelfTest { text: text.clone(), score, known: *known });
            }
        }
        Ok(model)
    }

    /// Tells models apart.
    pub(crate) const fn checksum(&self) -> u64 {
        self.checksum
    }

    /// How sure a score is, as a share of one: the curve between its points, flat beyond them.
    pub(crate) fn confidence(&self, score: i32) -> f64 {
        let share = |value: i64| value as f64 / 65536.0;
        let after = self.curve.partition_point(|(at, _)| *at <= score);
        let point = |at: usize| self.curve.get(at).map(|(at, value)| (i64::from(*at), i64::from(*value)));
        match (after.checked_sub(1).and_then(point), point(after)) {
            (Some((from, low)), Some((to, high))) => {
                share(low + (high - low) * (i64::from(score) - from) / (to - from).max(1))
            }
            (Some((_, only)), None) | (None, Some((_, only))) => share(only),
            (None, None) => 0.0,
        }
    }

    /// The worst window of `text`; nothing where it has no words.
    pub(crate) fn worst(&self, text: &[u8], deadline: Option<Instant>) -> Option<Window> {
        let mut worst: Option<Window> = None;
        let (mut before, mut here) = (Block::default(), Block::default());
        let mut cut = false;
        for (count, word) in Words::new(text, self.bits).enumerate() {
            if count % SLICE_WORDS == SLICE_WORDS - 1 && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                cut = true;
                break;
            }
            if here.words == BLOCK_WORDS {
                self.weigh(before, here, &mut worst);
                before = std::mem::take(&mut here);
            }
            if here.words == 0 {
                here.start = word.start;
            }
            here.sum += word
                .places()
                .map(|place| i32::from(self.weights.get(place as usize).copied().unwrap_or_default()))
                .sum::<i32>();
            here.words += 1;
            here.end = word.end;
        }
        if here.words > 0 {
            self.weigh(before, here, &mut worst);
        }
        worst.map(|worst| Window { cut, ..worst })
    }

    /// Keeps the window of two neighbouring blocks if it is the worst so far.
    fn weigh(&self, before: Block, here: Block, worst: &mut Option<Window>) {
        let words = before.words + here.words;
        let product = i64::from(before.sum + here.sum) * root(words);
        let score = i32::try_from(product >> ROOT_BITS).unwrap_or(i32::MAX).saturating_add(self.bias);
        if worst.is_none_or(|worst| score > worst.score) {
            let start = if before.words > 0 { before.start } else { here.start };
            *worst = Some(Window { score, start, end: here.end, cut: false });
        }
    }
}

/// What a sum over so many words is multiplied by: one over their root.
fn root(words: usize) -> i64 {
    let square = (1_u64 << (2 * ROOT_BITS)) / (words.max(1) as u64);
    i64::try_from(square.isqrt()).unwrap_or_default()
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], GramsError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(GramsError::Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], GramsError> {
        self.take(N)?.try_into().map_err(|_| GramsError::Damaged("it ends too early"))
    }

    /// A number of things of which there is one at least.
    fn count(&mut self, most: usize) -> Result<usize, GramsError> {
        let count = self.u32()? as usize;
        if count == 0 || count > most { Err(GramsError::Damaged("a number in it is out of range")) } else { Ok(count) }
    }

    fn u32(&mut self) -> Result<u32, GramsError> {
        self.array().map(u32::from_le_bytes)
    }

    fn i32(&mut self) -> Result<i32, GramsError> {
        self.array().map(i32::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, GramsError> {
        self.array().map(u16::from_le_bytes)
    }
}

#[cfg(test)]
mod tests;
