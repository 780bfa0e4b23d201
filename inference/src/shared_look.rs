//! What the built-in detectors share while one text is looked at: its fold, one pass over all literals, words that may be encoded, and
//! what they have said of it so far.

use crate::candidate::Candidate;
use crate::decode::Run;
use crate::fold::Folded;
use crate::rule_matcher::{Limits, MatcherScratch, Outcome};

/// What the built-in detectors share while one text is looked at.
#[derive(Debug)]
pub(crate) struct SharedLook<'a> {
    pub(crate) folded: &'a Folded,
    pub(crate) limits: Limits,
    /// What the pass over all literals matched.
    pub(crate) memory: &'a MatcherScratch,
    /// Words that may be encoded.
    pub(crate) runs: &'a [Run],
    pub(crate) outcome: &'a mut Outcome,
    pub(crate) candidates: &'a mut Vec<Candidate>,
    /// For scans of decoded text.
    pub(crate) inner: &'a mut MatcherScratch,
    pub(crate) plain: &'a mut [Vec<u8>],
    /// The decoded forms of encoded words in the text, once they were looked for.
    pub(crate) decoded: &'a mut DecodedTexts,
    /// Whether what the rules say of harmless texts is lowered.
    pub(crate) over_defence: bool,
    /// Whether the classifier is asked whatever the rules say.
    pub(crate) asks_classifier: bool,
    /// Whether its score is needed for more than its own finding.
    pub(crate) keeps_score: bool,
    /// Its score, once it was asked.
    pub(crate) score: Option<Score>,
    /// For scans with an operator's rules.
    pub(crate) operator: &'a mut OperatorScratch,
}

/// What the embedded classifier says of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Score {
    pub(crate) logits: f64,
    /// Its worst window, in offsets of the raw text.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// What encoded words in a text say: whoever decodes them first keeps it for the others.
#[derive(Debug, Default)]
pub(crate) struct DecodedTexts {
    bytes: Vec<u8>,
    /// Where each ends in `bytes`, where it stood, and how it was encoded.
    texts: Vec<(usize, (usize, usize), &'static str)>,
    /// Everything there is.
    is_whole: bool,
}

/// Memory for one thread, good for one state of the rules.
#[derive(Debug, Default)]
pub(crate) struct OperatorScratch {
    pub(crate) version: u64,
    pub(crate) memory: MatcherScratch,
    pub(crate) candidates: Vec<Candidate>,
}

/// Decoded bytes that keep their buffer; more are given back with the next text.
const DECODED_KEEP_MAX: usize = 1 << 20;

// === impl DecodedTexts ===

impl DecodedTexts {
    /// Forgets the text before.
    pub(crate) fn clear(&mut self) {
        if self.bytes.capacity() > DECODED_KEEP_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.texts.clear();
        self.is_whole = false;
    }

    /// Keeps a text that stood, encoded, at `span`.
    pub(crate) fn keep(&mut self, plain: &[u8], span: (usize, usize), encoding: &'static str) {
        self.bytes.extend_from_slice(plain);
        self.texts.push((self.bytes.len(), span, encoding));
    }

    /// Says that nothing else is encoded.
    pub(crate) const fn end(&mut self) {
        self.is_whole = true;
    }

    /// All of them, where somebody has looked.
    pub(crate) fn known(&self) -> Option<impl Iterator<Item = (&[u8], (usize, usize), &'static str)>> {
        let mut start = 0;
        self.is_whole.then(|| {
            self.texts.iter().map(move |(end, span, encoding)| {
                let text = self.bytes.get(start..*end).unwrap_or_default();
                start = *end;
                (text, *span, *encoding)
            })
        })
    }
}
