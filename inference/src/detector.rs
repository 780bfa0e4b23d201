//! What a detector is: its name, what it costs, which texts it reads and in which form, and how it reports.
//!
//! The built-in ones share one fold and one pass over the literals of all rules, which the analyser makes before it asks
//! them (`builtin`); others are handed texts in the forms they ask for. A detector is asked once per text, or once per
//! batch. To add one: implement [`Detector`] and give it to [`crate::Analyser::with`].

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Range};
use std::time::Instant;

use weir_config::vocab::Finding;

use crate::candidate::Candidate;
use crate::decode::Run;
use crate::fold::Folded;
use crate::fusion::Signals;
use crate::operator::OperatorScratch;
use crate::part::PartKind;
use crate::plan::Tuning;
use crate::rule_matcher::{Limits, MatcherScratch, Outcome};

/// Something that looks at texts and reports what it finds.
pub trait Detector: fmt::Debug + Send + Sync {
    /// Its name on spans, in findings and as a metric label.
    fn name(&self) -> &'static str;

    /// Which threads may run it.
    fn cost(&self) -> CostClass;

    /// Whether it has learned what it knows: analyses that are left to the rules go without it.
    fn is_learned(&self) -> bool {
        self.cost() == CostClass::Model
    }

    /// The roles of text it reads.
    fn reads(&self) -> Kinds {
        Kinds::ALL
    }

    /// The forms of a text it wants beside the text itself.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Changes when its verdicts may: the checksum of a model, say. What was found clean by another version is looked at
    /// again.
    fn version(&self) -> u64 {
        0
    }

    /// Most texts it takes at once. Those of [`CostClass::Core`] get one at a time whatever they say.
    fn batch(&self) -> usize {
        1
    }

    /// Whether it can look at texts by now: a model that is still to be loaded cannot. Once it can, it always can.
    fn is_ready(&self) -> bool {
        true
    }

    /// Told, on whichever thread, that an analysis did without it because it was not ready. Must not wait.
    fn missed(&self) {}

    /// Looks at one text.
    fn look(&self, text: &Text<'_>, tuning: &Tuning, found: &mut Found<'_>);

    /// Looks at several texts together; `found` has a place for each.
    fn look_together(&self, texts: &[Text<'_>], tuning: &Tuning, found: &mut [Found<'_>]) {
        for (text, found) in texts.iter().zip(found) {
            self.look(text, tuning, found);
        }
    }
}

/// What it takes to run a detector, and so where it may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostClass {
    /// A few microseconds per KB: on a core, while the text is short.
    Core,
    /// More than that: on a thread of the pool, in the lane for jobs of the text's length.
    Pool,
    /// A model: on a thread of the pool, in the lane for models, several texts at a time.
    Model,
}

/// A set of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds(u8);

/// Forms of a text that take work to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// The text with look-alikes as ASCII, without invisible characters.
    pub folded: bool,
    /// What encoded runs and ciphered words in it say. Not for [`CostClass::Core`].
    pub decoded: bool,
    /// For an answer, what the request brought ([`crate::Later::give_context`]). Not for [`CostClass::Core`].
    pub context: bool,
}

/// Most detectors an analyser has room for.
pub const DETECTORS_MAX: usize = 16;

/// A set of an analyser's detectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DetectorSet(u16);

/// A text a detector looks at.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    pub(crate) raw: &'a str,
    pub(crate) kind: PartKind,
    pub(crate) folded: &'a [u8],
    pub(crate) decoded: &'a [Decoded],
    pub(crate) suspect: bool,
    pub(crate) context: &'a str,
    pub(crate) deadline: Option<Instant>,
}

/// What a part of a text says once it is decoded.
#[derive(Debug, Clone)]
pub struct Decoded {
    /// The words.
    pub text: Vec<u8>,
    /// Name of the encoding.
    pub encoding: &'static str,
    /// Where the encoded words stand in the text.
    pub range: Range<usize>,
}

/// What a detector says of one text.
#[derive(Debug, Default)]
pub struct Found<'a> {
    pub(crate) said: Vec<(Range<usize>, Finding)>,
    pub(crate) failed: bool,
    /// What models say of the text, reported or not.
    pub(crate) heard: Signals,
    pub(crate) bench: Option<Bench<'a>>,
}

/// What the built-in detectors share while one text is looked at.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
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

// === impl Kinds ===

impl Kinds {
    /// All roles.
    pub const ALL: Self = Self(u8::MAX);

    /// These roles.
    pub fn of(kinds: &[PartKind]) -> Self {
        Self(kinds.iter().fold(0, |bits, kind| bits | kind.bit()))
    }

    pub(crate) const fn has_bit(self, bit: usize) -> bool {
        self.0 >> bit & 1 == 1
    }

    /// Whether `kind` is one of them.
    pub const fn contains(self, kind: PartKind) -> bool {
        self.0 & kind.bit() != 0
    }
}

// === impl DetectorSet ===

impl DetectorSet {
    pub(crate) const fn only(index: usize) -> Self {
        Self(if index < DETECTORS_MAX { 1 << index } else { 0 })
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn has(self, index: usize) -> bool {
        self.0 & Self::only(index).0 != 0
    }

    /// The numbers of those in it, in ascending order.
    pub(crate) fn indices(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let index = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (index < DETECTORS_MAX).then_some(index)
        })
    }
}

impl BitOr for DetectorSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for DetectorSet {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOrAssign for DetectorSet {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

// === impl Text ===

impl<'a> Text<'a> {
    /// The text as the model would read it.
    pub const fn raw(&self) -> &'a str {
        self.raw
    }

    /// Its role.
    pub const fn kind(&self) -> PartKind {
        self.kind
    }

    /// The folded text; empty unless it was asked for by [`Needs::folded`].
    pub const fn folded(&self) -> &'a [u8] {
        self.folded
    }

    /// What encoded words in it say; empty unless asked for by [`Needs::decoded`].
    pub const fn decoded(&self) -> &'a [Decoded] {
        self.decoded
    }

    /// Whether another detector has found an order to the model in it. Known to those that run on the pool.
    pub const fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// What the request brought, where the text is an answer to it; empty unless asked for by [`Needs::context`].
    pub const fn context(&self) -> &'a str {
        self.context
    }

    /// When nobody waits for the findings any more. What takes long looks at this now and then.
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

// === impl Found ===

impl Found<'_> {
    /// Reports a finding about `range` of the raw text. Its evidence is filled in from there, with secrets left out.
    pub fn report(&mut self, range: Range<usize>, finding: Finding) {
        if self.said.len() < crate::part::HITS_MAX {
            self.said.push((range, finding));
        }
    }

    /// Takes note of how probable a model, by the name of its detector, finds it that the text is an attack, whether it reports that or
    /// not.
    pub fn probability(&mut self, detector: &str, probability: f64) {
        self.heard.hear(detector, probability);
    }

    /// The text could not be judged: it is no clean text, and the analysis is not whole.
    pub fn fail(&mut self) {
        self.failed = true;
    }
}
