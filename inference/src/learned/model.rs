//! The weights, and what they say of a text. Integers only and sums in the order of the text, so that every machine says the
//! same.
//!
//! A feature has two weights: one in what somebody asks, one in data. Only features that stood in texts of several sources
//! have any; the table is one of buckets, and each entry carries what tells its feature from others of the bucket.
//!
//! A word is worth the weights of its features; a window is [`WINDOW_BLOCKS`] blocks of words, worth the sum of its words
//! over the root of their number; a text is as bad as its worst window. Windows overlap by half, so what stands anywhere in
//! a text stands whole in one of them. Invariant: work is linear in the text, and memory does not depend on it.

use std::time::Instant;

use super::words::{PER_WORD, Words};

/// Words in half a window.
const BLOCK_WORDS: usize = 32;
/// Words after which the clock is looked at.
const SLICE_WORDS: usize = 1024;
/// What a model file begins with.
const MAGIC: &[u8; 8] = b"weirlm02";
/// Bits behind the point in the table of roots.
const ROOT_BITS: u32 = 12;
/// Points of the curve from a score to a confidence, for each role.
pub(super) const CURVE_POINTS: usize = 5;
/// Entries of a bucket of the table.
const BUCKET: usize = 4;
/// Texts whose scores are known, in a model file.
const KNOWN_MAX: usize = 64;

/// A trained model.
#[derive(Debug)]
pub(super) struct Model {
    /// Two to this power are the buckets of the table.
    bits: u32,
    table: Box<[[Entry; BUCKET]]>,
    /// What a sum over so many words is multiplied by.
    roots: [i32; 2 * BLOCK_WORDS + 1],
    /// For what somebody asks, and for data.
    biases: [i32; 2],
    /// What it adds that the rules have a suspicion too weak to speak of.
    hints: [i32; 2],
    /// Scores with their confidence in 65,536ths, ascending: for what somebody asks, and for data.
    curves: [[(i32, u16); CURVE_POINTS]; 2],
    /// Texts, whether they are data, and their scores.
    known: Vec<(String, bool, i32)>,
    checksum: u64,
}

/// One feature. Without one: no weights.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// The low half of the feature's name; the high one says which bucket it is in.
    tag: u16,
    weights: [i8; 2],
}

/// The worst window of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Worst {
    pub(super) score: i32,
    pub(super) start: usize,
    pub(super) end: usize,
    /// The time was over before the end of the text.
    pub(super) cut: bool,
}

/// Why bytes are no model.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ModelError {
    /// They end too early or are of another version.
    #[error("the embedded classifier is damaged: {0}")]
    Damaged(&'static str),
    /// It does not say what it said when it was trained.
    #[error("the embedded classifier fails its self-test: \"{text}\" scores {score}, not {known}")]
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

// === impl Model ===

impl Model {
    /// Reads a model and asks it what it said when it was trained.
    pub(super) fn load(bytes: &[u8]) -> Result<Self, ModelError> {
        let mut reader = Reader(bytes);
        if reader.take(MAGIC.len())? != MAGIC {
            return Err(ModelError::Damaged("it does not begin as one of this version does"));
        }
        let bits = reader.u32()?;
        if !(8..=16).contains(&bits) {
            return Err(ModelError::Damaged("the size of its table is out of range"));
        }
        let mut table = Vec::with_capacity(1 << bits);
        for _ in 0..1_usize << bits {
            let mut bucket = [Entry::default(); BUCKET];
            for entry in &mut bucket {
                let [low, high, asked, data] = reader.array()?;
                *entry =
                    Entry { tag: u16::from_le_bytes([low, high]), weights: [asked.cast_signed(), data.cast_signed()] };
            }
            table.push(bucket);
        }
        let mut roots = [0; 2 * BLOCK_WORDS + 1];
        for root in &mut roots {
            *root = reader.i32()?;
        }
        let biases = [reader.i32()?, reader.i32()?];
        let hints = [reader.i32()?, reader.i32()?];
        let mut curves = [[(0, 0); CURVE_POINTS]; 2];
        for point in curves.iter_mut().flatten() {
            *point = (reader.i32()?, reader.u16()?);
        }
        let count = reader.u32()? as usize;
        if count == 0 || count > KNOWN_MAX {
            return Err(ModelError::Damaged("the number of its known answers is out of range"));
        }
        let mut known = Vec::with_capacity(count);
        for _ in 0..count {
            let length = reader.u32()? as usize;
            let text = std::str::from_utf8(reader.take(length)?);
            let text = text.map_err(|_| ModelError::Damaged("a known text is no text"))?.to_owned();
            known.push((text, reader.u32()? != 0, reader.i32()?));
        }
        if !reader.0.is_empty() {
            return Err(ModelError::Damaged("something stands behind its end"));
        }
        let checksum = bytes
            .iter()
            .fold(0xCBF2_9CE4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3));
        let model = Self { bits, table: table.into(), roots, biases, hints, curves, known, checksum };
        model.test()?;
        Ok(model)
    }

    /// Asks it what is known.
    fn test(&self) -> Result<(), ModelError> {
        for (text, is_data, known) in &self.known {
            let score = self.worst(text.as_bytes(), *is_data, None).map_or(0, |worst| worst.score);
            if score != *known {
                return Err(ModelError::SelfTest { text: text.clone(), score, known: *known });
            }
        }
        Ok(())
    }

    /// Tells models apart.
    pub(super) const fn checksum(&self) -> u64 {
        self.checksum
    }

    /// What is added to the score of a text of which the rules have a suspicion, too weak to speak of.
    pub(super) fn hint(&self, is_data: bool) -> i32 {
        self.hints[usize::from(is_data)]
    }

    /// How sure a score is, as a share of one: the curve between its points, flat beyond them.
    pub(super) fn confidence(&self, score: i32, is_data: bool) -> f64 {
        let curve = &self.curves[usize::from(is_data)];
        let share = |value: i64| value as f64 / 65536.0;
        let mut before: Option<(i32, u16)> = None;
        for (at, value) in curve.iter().copied() {
            if score < at {
                return match before {
                    None => 0.0,
                    Some((from, low)) => {
                        let (whole, part) = (i64::from(at) - i64::from(from), i64::from(score) - i64::from(from));
                        share(i64::from(low) + (i64::from(value) - i64::from(low)) * part / whole.max(1))
                    }
                };
            }
            before = Some((at, value));
        }
        before.map_or(0.0, |(_, value)| share(i64::from(value)))
    }

    /// The worst window of `text`, which may be data that was handed to the model; nothing where it has no words.
    pub(super) fn worst(&self, text: &[u8], is_data: bool, deadline: Option<Instant>) -> Option<Worst> {
        let role = usize::from(is_data);
        let bias = self.biases[role];
        let mut worst: Option<Worst> = None;
        let (mut before, mut here) = (Block::default(), Block::default());
        let mut cut = false;
        for (count, word) in Words::new(text).enumerate() {
            if count % SLICE_WORDS == SLICE_WORDS - 1 && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                cut = true;
                break;
            }
            if here.words == BLOCK_WORDS {
                self.weigh(before, here, bias, &mut worst);
                before = std::mem::take(&mut here);
            }
            if here.words == 0 {
                here.start = word.start;
            }
            here.sum += self.value(&word.features, role);
            here.words += 1;
            here.end = word.end;
        }
        if here.words > 0 {
            self.weigh(before, here, bias, &mut worst);
        }
        worst.map(|worst| Worst { cut, ..worst })
    }

    /// What a word is worth in a text of this role.
    fn value(&self, features: &[u32; PER_WORD], role: usize) -> i32 {
        features.iter().map(|feature| self.weight(*feature, role)).sum()
    }

    fn weight(&self, feature: u32, role: usize) -> i32 {
        let bucket = self.table.get((feature >> (32 - self.bits)) as usize);
        let tag = (feature & 0xFFFF) as u16;
        let entry = bucket.and_then(|bucket| bucket.iter().find(|entry| entry.tag == tag));
        entry.map_or(0, |entry| i32::from(entry.weights[role]))
    }

    /// Keeps the window of two neighbouring blocks if it is the worst so far.
    fn weigh(&self, before: Block, here: Block, bias: i32, worst: &mut Option<Worst>) {
        let words = before.words + here.words;
        let root = self.roots.get(words).copied().unwrap_or_default();
        let product = i64::from(before.sum + here.sum) * i64::from(root);
        let score = i32::try_from(product >> ROOT_BITS).unwrap_or(i32::MAX).saturating_add(bias);
        if worst.is_none_or(|worst| score > worst.score) {
            let start = if before.words > 0 { before.start } else { here.start };
            *worst = Some(Worst { score, start, end: here.end, cut: false });
        }
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], ModelError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ModelError::Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ModelError> {
        self.take(N)?.try_into().map_err(|_| ModelError::Damaged("it ends too early"))
    }

    fn u32(&mut self) -> Result<u32, ModelError> {
        self.array().map(u32::from_le_bytes)
    }

    fn i32(&mut self) -> Result<i32, ModelError> {
        self.array().map(i32::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, ModelError> {
        self.array().map(u16::from_le_bytes)
    }
}
