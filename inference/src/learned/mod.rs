//! `classifier`: the one that is part of the binary. It reads what people and tools say, in the folded form and with what
//! encoded words say, and speaks where the rules are silent: what they have called an order is not said twice, and what they only
//! suspect makes it surer. What they say by one sign alone, too weak to stop anything, it may doubt ([`Learned::doubts`]).
//!
//! How it was trained and what it is worth: `docs/detection-learned.md`; where its weights come from: `model/NOTICE`.

mod judge;
mod model;
mod words;

use std::sync::Arc;
use std::time::Instant;

use weir_config::vocab::{Finding, Severity};

pub use judge::Classifier;
use model::{Model, WEIGHTS};

use crate::builtin::Compiled;
use crate::candidate::Candidate;
use crate::decode::{Ciphers, Span};
use crate::detector::{CostClass, Detector, Found, Kinds, Text, Words};
use crate::names::{CLASSIFIER, EMBEDDED};
use crate::part::PartKind;
use crate::shared_look::{Score, SharedLook};
use crate::trained::{ModelError, Window};
use crate::tuning::{OperatingPoint, Tuning};

/// Scores are whole numbers of this part of a logit.
const UNIT: f64 = 256.0;
/// From here on a finding is High, where somebody else has a suspicion: the rules, or whoever had the words encoded. Its word alone stops
/// nothing by default: what an agent's harness writes may be new to it tomorrow.
const SURE: f64 = 0.95;

/// The embedded classifier.
#[derive(Debug)]
pub(crate) struct Learned {
    compiled: Arc<Compiled>,
    model: Model,
}

/// Different words that a text in plain ASCII has at least, unless the rules have a suspicion: of one or two ("system", "ignore
/// all") nobody can tell what they are about. Other scripts do not divide their words by blanks, and are asked about as they are.
const WORDS_MIN: usize = 3;

/// A window that may hold an order.
#[derive(Debug)]
struct Suspect {
    score: i32,
    start: usize,
    end: usize,
    encoding: Option<&'static str>,
}

// === impl Learned ===

impl Learned {
    /// Loads it, and asks it what it said when it was trained.
    pub(crate) fn embedded(compiled: &Arc<Compiled>) -> Result<Self, ModelError> {
        Ok(Self { compiled: Arc::clone(compiled), model: Model::load(WEIGHTS)? })
    }

    /// Whether it is all but sure that nobody gives orders in these words: what the rules say of them by one sign alone is doubted
    /// then.
    pub(crate) fn doubts(&self, folded: &[u8], kind: PartKind, deadline: Option<Instant>) -> bool {
        let is_data = kind == PartKind::Tool;
        let worst = self.model.worst(folded, is_data, deadline);
        worst.is_some_and(|worst| !worst.cut && self.model.doubts(worst.score, is_data))
    }

    /// The worst window of the text, and of what encoded words in it say.
    /// `hinted`: the rules have a suspicion.
    fn suspect(&self, text: &Text<'_>, shared: &mut SharedLook<'_>, hinted: bool) -> Option<Suspect> {
        let SharedLook { runs, outcome, plain, decoded, .. } = shared;
        let is_data = text.kind == PartKind::Tool;
        let hint = if hinted { self.model.hint(is_data) } else { 0 };
        let worst = self.model.worst(text.folded, is_data, text.deadline);
        let cut_before = worst.is_some_and(|worst| worst.cut);
        let mut cut = cut_before;
        let score = |worst: Window| worst.score.saturating_add(hint);
        let mut suspect =
            worst.map(|worst| Suspect { score: score(worst), start: worst.start, end: worst.end, encoding: None });
        // What encoded words say, or nothing where it has no words; false once the time is over.
        let mut hear = |plain: &[u8], (start, end): (usize, usize), encoding| {
            let Some(worst) = self.model.worst(plain, is_data, text.deadline) else { return true };
            let score = score(worst);
            if suspect.as_ref().is_none_or(|suspect| score > suspect.score) {
                suspect = Some(Suspect { score, start, end, encoding: Some(encoding) });
            }
            cut = worst.cut;
            !cut
        };
        if cut_before || outcome.cut {
            // Half a look is all there was time for.
        } else if let Some(mut known) = decoded.known() {
            // The rules have decoded it.
            known.all(|(plain, span, encoding)| hear(plain, span, encoding));
        } else {
            self.compiled.decode(
                text.folded,
                runs,
                &outcome.ciphers,
                plain,
                &mut |plain: &[u8], span: Span, encoding| {
                    // Which ciphers the decoded text names only the rules' pass over it would tell: none is undone inside it.
                    hear(plain, span, encoding).then(Ciphers::default)
                },
            );
        }
        outcome.cut |= cut;
        suspect
    }
}

/// Whether a text is too few words to be judged by themselves. All of it: a window of few words may stand beside an order.
fn is_bare(folded: &[u8]) -> bool {
    let mut seen: [&[u8]; WORDS_MIN - 1] = [b""; WORDS_MIN - 1];
    let mut count = 0;
    for word in folded.split(|byte| !byte.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        if seen.contains(&word) {
            continue;
        }
        let Some(slot) = seen.get_mut(count) else { return false };
        (*slot, count) = (word, count + 1);
    }
    folded.is_ascii()
}

impl Words for Learned {
    /// As the words of somebody who asks, whatever they encode.
    fn logits(&self, folded: &[u8]) -> f64 {
        self.model.worst(folded, false, None).map_or(0.0, |worst| f64::from(worst.score) / UNIT)
    }
}

impl Detector for Learned {
    fn name(&self) -> &'static str {
        EMBEDDED
    }

    fn label(&self) -> &'static str {
        CLASSIFIER
    }

    fn is_learned(&self) -> bool {
        true
    }

    fn cost(&self) -> CostClass {
        // Linear, without allocations, in whole numbers; no figure in microseconds yet.
        CostClass::Core
    }

    fn reads(&self) -> Kinds {
        // Whoever writes the system prompt or defines a tool gives orders by right, and the rules look at definitions.
        Kinds::of(&[PartKind::User, PartKind::Tool])
    }

    fn version(&self) -> u64 {
        self.model.checksum()
    }

    fn look(&self, text: &Text<'_>, tuning: &Tuning, found: &mut Found<'_>) {
        let Some(shared) = &mut found.shared else { return };
        let matcher = &self.compiled.matcher;
        let orders = || shared.candidates.iter().filter(|found| found.source.is_order(matcher));
        let said = orders().filter(|found| !found.is_mention()).map(|found| found.severity).max();
        // The words that it would hear are those that the text quotes and asks about.
        let is_quoted = said.is_none_or(|worst| worst < Severity::Low) && orders().any(Candidate::is_mention);
        let is_said = said.is_some_and(|worst| worst >= Severity::Medium);
        if is_said && !shared.asks_classifier {
            return;
        }
        let hinted = is_quoted || said.is_some_and(|worst| worst >= Severity::Low);
        let Some(suspect) = self.suspect(text, shared, hinted) else { return };
        if !hinted && suspect.encoding.is_none() && is_bare(text.folded) {
            return;
        }
        if shared.keeps_score {
            let (start, end) = shared.folded.original(text.raw, suspect.start, suspect.end);
            shared.score = Some(Score { logits: f64::from(suspect.score) / UNIT, start, end });
        }
        if is_said {
            return;
        }
        let confidence = self.model.confidence(suspect.score, text.kind == PartKind::Tool);
        let threshold = tuning.threshold.unwrap_or(match tuning.point {
            OperatingPoint::HighRecall => 0.5,
            OperatingPoint::Balanced => 0.8,
            OperatingPoint::HighPrecision => SURE,
        });
        if confidence < threshold || confidence <= 0.0 {
            return;
        }
        let is_backed = hinted || suspect.encoding.is_some();
        let severity = match (is_quoted, is_backed && confidence >= SURE) {
            (true, _) if text.kind == PartKind::User => Severity::Low,
            (true, _) => Severity::Medium,
            (false, true) => Severity::High,
            (false, false) => Severity::Medium,
        };
        let finding_type = if text.kind == PartKind::Tool { "indirect_injection" } else { "prompt_injection" };
        let about = "The words are like those of attacks on a model";
        let mut finding = Finding::new(finding_type, severity, confidence, CLASSIFIER, about);
        finding.metadata.insert("model".to_owned(), "embedded".to_owned());
        if is_quoted {
            finding.metadata.insert("frame".to_owned(), "mention".to_owned());
        }
        if let Some(encoding) = suspect.encoding {
            finding.metadata.insert("encoding".to_owned(), encoding.to_owned());
        }
        let (start, end) = shared.folded.original(text.raw, suspect.start, suspect.end);
        found.report(start..end, finding);
    }
}

#[cfg(test)]
mod tests;
