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
    /// Whether what the rules say of harmless texts is lowered.
    pub(crate) over_defence: bool,
    /// Whether the classifier is asked whatever the rules say.
    pub(crate) asks_classifier: bool,
    /// What it said.
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

/// Memory for one thread, good for one state of the rules.
#[derive(Debug, Default)]
pub(crate) struct OperatorScratch {
    pub(crate) version: u64,
    pub(crate) memory: MatcherScratch,
    pub(crate) candidates: Vec<Candidate>,
}
