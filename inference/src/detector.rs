//! What a detector is: its name, what it costs, which texts it reads and in which form, and how it reports.
//!
//! The built-in ones share one fold and one pass over the literals of all rules, which the analyser makes before it asks
//! them (`builtin`); others are handed texts in the forms they ask for. A detector is asked once per text, or once per
//! batch. To add one: implement [`Detector`] and give it to [`crate::Analyser::with`].

use std::fmt;
use std::ops::Range;
use std::time::Instant;

use weir_config::vocab::{Finding, TenantId};

use crate::fold::Folded;
use crate::gate::{FirstLook, Gate, Skips};
use crate::part::PartKind;
use crate::shared_look::SharedLook;
use crate::signals::Signals;
use crate::tuning::Tuning;

/// Something that looks at texts and reports what it finds.
pub trait Detector: fmt::Debug + Send + Sync {
    /// Its name among the detectors, by which plans know it.
    fn name(&self) -> &'static str;

    /// Its name on spans, in findings and as a metric label. Detectors of which one stands in for another share it.
    fn label(&self) -> &'static str {
        self.name()
    }

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

    /// Whether it is asked only about texts that [`Self::gate`] lets through. Analyses are whole without it, and wait for it only where
    /// they wait for models.
    fn is_gated(&self) -> bool {
        false
    }

    /// Whether it is to look at a text, now that the detectors of class core have. On whichever thread: must not wait. What it knows of
    /// the text it reports at once.
    fn gate(&self, _text: &Text<'_>, _first: &FirstLook, _tuning: &Tuning, _found: &mut Found<'_>) -> Gate {
        Gate::Look
    }

    /// Whether it may have time for a text of so many bytes that it passed over for want of it ([`Gate::Skip`]) and that comes again: if so, the detectors of
    /// class core look at the text once more and the gate is asked. Must not wait.
    fn has_time(&self, _bytes: usize, _tuning: &Tuning) -> bool {
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
    pub(crate) folding: Option<&'a Folded>,
    pub(crate) words: Option<&'a dyn Words>,
    pub(crate) tenant: TenantId,
    pub(crate) first: Option<FirstLook>,
}

/// Who says of words how much they are like those of attacks.
pub(crate) trait Words: fmt::Debug + Sync {
    /// In logits. Linear in the words.
    fn logits(&self, folded: &[u8]) -> f64;
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
    /// More was said than is kept.
    pub(crate) full: bool,
    /// Not all that encoded words say was looked at.
    pub(crate) skipped: bool,
    /// Why the second stage was not asked about all of it.
    pub(crate) second_stage_skipped: Skips,
    /// What models say of the text, reported or not.
    pub(crate) heard: Signals,
    pub(crate) shared: Option<SharedLook<'a>>,
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

    /// Whose text it is.
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// What the detectors of class core said of it, where one with a gate looks at it.
    pub const fn first_look(&self) -> Option<&FirstLook> {
        self.first.as_ref()
    }

    /// Where a part of the folded text stands in the text.
    pub fn original(&self, folded: Range<usize>) -> Range<usize> {
        self.folding.map_or(folded.clone(), |folding| {
            let (start, end) = folding.original(self.raw, folded.start, folded.end);
            start..end
        })
    }

    /// What the embedded classifier says of some folded words, in logits; 0 where there is none. Linear in the words.
    pub fn words_say(&self, words: &[u8]) -> f64 {
        self.words.map_or(0.0, |classifier| classifier.logits(words))
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
        } else {
            self.full = true;
        }
    }

    /// Takes note of how probable a model, by the name of its detector, finds it that the text is an attack, whether it reports that or
    /// not.
    pub fn probability(&mut self, detector: &str, probability: f64) {
        self.heard.hear(detector, probability);
    }

    /// Not all that encoded words in the text say was looked at: it is no clean text, and that is said.
    pub fn skip(&mut self) {
        self.skipped = true;
    }

    /// Not all of the text was looked at by a detector that analyses are whole without.
    pub fn skip_second_stage(&mut self, why: Skips) {
        self.second_stage_skipped.add(why);
    }

    /// The text could not be judged: it is no clean text, and the analysis is not whole.
    pub fn fail(&mut self) {
        self.failed = true;
    }
}
