//! A small model that is the sum of weights of words, pairs of words and runs of letters: of toxic answers (`toxic`). Trained by
//! `train/grams.py` and its callers. Whole numbers only and sums in the order of the text, so that every machine says the same.
//!
//! Invariant: a model is asked at its load what it said when it was trained.

mod words;

use std::time::Instant;

use words::Words;

use crate::trained::{ModelError, ROOT_BITS, Reader, Weighed, Window, checksum, worst};

/// What a model file begins with.
const MAGIC: &[u8; 8] = b"weirgm01";
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

// === impl Grams ===

impl Grams {
    /// Reads a model and asks it what it said when it was trained.
    pub(crate) fn load(bytes: &[u8]) -> Result<Self, ModelError> {
        let mut reader = Reader::open(bytes, MAGIC)?;
        let bits = reader.u32()?;
        if !(8..=20).contains(&bits) {
            return Err(ModelError::Damaged("the size of its table is out of range"));
        }
        let weights = reader.take(1 << bits)?.iter().map(|byte| byte.cast_signed()).collect();
        let bias = reader.i32()?;
        let mut curve = Vec::new();
        for _ in 0..reader.count(CURVE_MAX)? {
            curve.push((reader.i32()?, reader.u16()?));
        }
        if !curve.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(ModelError::Damaged("its curve does not ascend"));
        }
        let mut known = Vec::new();
        for _ in 0..reader.count(KNOWN_MAX)? {
            known.push((reader.text()?, reader.i32()?));
        }
        reader.end()?;
        let model = Self { bits, weights, bias, curve, known, checksum: checksum(bytes) };
        for (text, known) in &model.known {
            let score = model.worst(text.as_bytes(), None).map_or(0, |worst| worst.score);
            if score != *known {
                return Err(ModelError::SelfTest { text: text.clone(), score, known: *known });
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
        let weight = |place| i32::from(self.weights.get(place as usize).copied().unwrap_or_default());
        let words = Words::new(text, self.bits).map(|word| Weighed {
            start: word.start,
            end: word.end,
            sum: word.places().map(weight).sum(),
        });
        worst(words, root, self.bias, deadline)
    }
}

/// What a sum over so many words is multiplied by: one over their root.
fn root(words: usize) -> i64 {
    let square = (1_u64 << (2 * ROOT_BITS)) / (words.max(1) as u64);
    i64::try_from(square.isqrt()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
