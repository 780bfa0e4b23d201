//! The weights, and what they say of a text. Integers only and sums in the order of the text, so that every machine says the
//! same.
//!
//! A feature has two weights: one in what somebody asks, one in data. Only features that stood in texts of several sources
//! have any; the table is one of buckets, and each entry carries what tells its feature from others of the bucket.
//!
//! A word is worth the weights of its features; what windows and texts are worth stands in `trained`.

use std::time::Instant;

use super::words::{Read, Words};
use crate::trained::{BLOCK_WORDS, Block, ModelError, Reader, SLICE_WORDS, Window, Windows, checksum, is_over};

/// What is embedded, in the form `train/train.py` writes.
pub(super) static WEIGHTS: &[u8] = include_bytes!("../../model/learned.bin");
/// What a model file begins with.
const MAGIC: &[u8; 8] = b"weirlm04";
/// Points of the curve from a score to a confidence, for each role.
pub(super) const CURVE_POINTS: usize = 5;
/// Entries of a bucket of the table.
const BUCKET: usize = 4;
/// Blocks after which the clock is looked at.
const SLICE_BLOCKS: usize = SLICE_WORDS / BLOCK_WORDS;
/// Texts whose scores are known, in a model file.
const KNOWN_MAX: usize = 64;

/// A trained model.
#[derive(Debug)]
pub(super) struct Model {
    /// Two to this power are the buckets of the table.
    bits: u32,
    table: Box<[Bucket]>,
    /// What a sum over so many words is multiplied by.
    roots: [i32; 2 * BLOCK_WORDS + 1],
    /// For what somebody asks, and for data.
    biases: [i32; 2],
    /// What it adds that the rules have a suspicion too weak to speak of.
    hints: [i32; 2],
    /// Below these scores what the rules say by one sign alone is doubted.
    doubts: [i32; 2],
    /// Scores with their confidence in 65,536ths, ascending: for what somebody asks, and for data.
    curves: [[(i32, u16); CURVE_POINTS]; 2],
    /// Texts, whether they are data, and their scores.
    known: Vec<(String, bool, i32)>,
    checksum: u64,
}

/// Features that share a place. Both halves are looked through at once, without a branch for each of them.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    /// The low half of each feature's name, 16 bits each; the high one says which bucket it is in.
    tags: u64,
    /// The weight of each, 8 bits each: first those for what somebody asks, then those for data. Without a feature: 0.
    weights: u64,
}

// === impl Model ===

impl Model {
    /// Reads a model and asks it what it said when it was trained.
    pub(super) fn load(bytes: &[u8]) -> Result<Self, ModelError> {
        let mut reader = Reader::open(bytes, MAGIC)?;
        let bits = reader.u32()?;
        if !(8..=16).contains(&bits) {
            return Err(ModelError::Damaged("the size of its table is out of range"));
        }
        let mut table = Vec::with_capacity(1 << bits);
        for _ in 0..1_usize << bits {
            let mut bucket = Bucket::default();
            for at in 0..BUCKET {
                let [low, high, asked, data] = reader.array()?;
                bucket.tags |= u64::from(u16::from_le_bytes([low, high])) << (16 * at);
                bucket.weights |= u64::from(asked) << (8 * at) | u64::from(data) << (8 * (BUCKET + at));
            }
            table.push(bucket);
        }
        let mut roots = [0; 2 * BLOCK_WORDS + 1];
        for root in &mut roots {
            *root = reader.i32()?;
        }
        let biases = [reader.i32()?, reader.i32()?];
        let hints = [reader.i32()?, reader.i32()?];
        let doubts = [reader.i32()?, reader.i32()?];
        let mut curves = [[(0, 0); CURVE_POINTS]; 2];
        for point in curves.iter_mut().flatten() {
            *point = (reader.i32()?, reader.u16()?);
        }
        let mut known = Vec::new();
        for _ in 0..reader.count(KNOWN_MAX)? {
            known.push((reader.text()?, reader.u32()? != 0, reader.i32()?));
        }
        reader.end()?;
        let checksum = checksum(bytes);
        let model = Self { bits, table: table.into(), roots, biases, hints, doubts, curves, known, checksum };
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

    /// Whether it doubts, with such a score, what the rules say by one sign alone.
    pub(super) fn doubts(&self, score: i32, is_data: bool) -> bool {
        score < self.doubts[usize::from(is_data)]
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
    pub(super) fn worst(&self, text: &[u8], is_data: bool, deadline: Option<Instant>) -> Option<Window> {
        let role = usize::from(is_data);
        let root = |words: usize| i64::from(self.roots.get(words).copied().unwrap_or_default());
        let mut windows = Windows::new(root, self.biases[role]);
        let (mut words, mut read) = (Words::new(text), Read::default());
        let mut blocks = 0;
        let mut goes_on = true;
        while goes_on {
            goes_on = words.read(&mut read, SLICE_WORDS);
            // A block that did not become full is one of words that are said again and again.
            let looks = blocks % SLICE_BLOCKS == SLICE_BLOCKS - 1 || !read.is_full();
            let cut = goes_on && looks && is_over(deadline);
            if read.is_full() || (!goes_on || cut) && !read.features().is_empty() {
                windows.add(self.block(&read, role));
                read.clear();
            }
            if cut {
                return windows.end(true);
            }
            blocks += 1;
        }
        windows.end(false)
    }

    /// What the words are worth together in a text of this role.
    fn block(&self, read: &Read, role: usize) -> Block {
        let features = read.features();
        let sum = features.iter().flatten().map(|feature| self.weight(*feature, role)).sum();
        Block { sum, words: features.len(), start: read.start, end: read.end }
    }

    fn weight(&self, feature: u32, role: usize) -> i32 {
        let bucket = self.table.get((feature >> (32 - self.bits)) as usize);
        bucket.map_or(0, |bucket| bucket.weight((feature & 0xFFFF) as u16, role))
    }
}

// === impl Bucket ===

impl Bucket {
    /// The weight of the first feature with this tag.
    fn weight(&self, tag: u16, role: usize) -> i32 {
        const EACH: u64 = 0x0001_0001_0001_0001;
        // Zero where a tag is this one; the lowest of the top bits that are set belongs to the first of those.
        let differ = self.tags ^ (u64::from(tag) * EACH);
        let same = differ.wrapping_sub(EACH) & !differ & (EACH << 15);
        if same == 0 {
            return 0;
        }
        let at = 8 * (same.trailing_zeros() as usize / 16 + BUCKET * role);
        i32::from(((self.weights >> at) as u8).cast_signed())
    }
}
