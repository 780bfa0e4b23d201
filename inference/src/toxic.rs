//! `toxicity`: the small model of toxic answers that is part of the binary, in the place of an ONNX model where none is
//! configured. It has one class: Critical where it is as sure as at [`CRITICAL`], Medium below.
//!
//! How it was trained and what it is worth: `docs/detection-learned.md`; where its weights come from: `model/NOTICE`.

use weir_config::vocab::{Finding, Severity};

use crate::detector::{CostClass, Detector, Found, Kinds, Text};
use crate::grams::Grams;
use crate::part::PartKind;
use crate::shared_look::SharedLook;
use crate::trained::ModelError;
use crate::tuning::{OperatingPoint, Tuning};

/// The name of the detector, whichever model it runs.
pub const TOXICITY: &str = "toxicity";

/// From this confidence on a finding is Critical, which stops an answer where that is switched on. Found at it: 40 % of toxic texts,
/// none of 4,507 ordinary ones (at most 0.1 %), 0.1 % of harmless texts from the same forums.
const CRITICAL: f64 = 0.95;

/// What is embedded, in the form `train/grams.py` writes.
static WEIGHTS: &[u8] = include_bytes!("../model/toxic.bin");

/// The embedded model.
#[derive(Debug)]
pub(crate) struct Toxic(Grams);

impl Toxic {
    /// Loads it, and asks it what it said when it was trained.
    pub(crate) fn embedded() -> Result<Self, ModelError> {
        Grams::load(WEIGHTS).map(Self)
    }
}

impl Detector for Toxic {
    fn name(&self) -> &'static str {
        TOXICITY
    }

    fn cost(&self) -> CostClass {
        CostClass::Core
    }

    fn is_learned(&self) -> bool {
        true
    }

    fn reads(&self) -> Kinds {
        Kinds::of(&[PartKind::Output])
    }

    fn version(&self) -> u64 {
        self.0.checksum()
    }

    fn look(&self, text: &Text<'_>, tuning: &Tuning, found: &mut Found<'_>) {
        let Some(SharedLook { folded, outcome, .. }) = &mut found.shared else { return };
        let Some(worst) = self.0.worst(text.folded, text.deadline) else { return };
        outcome.cut |= worst.cut;
        let threshold = tuning.threshold.unwrap_or(match tuning.point {
            OperatingPoint::HighRecall => 0.5,
            OperatingPoint::Balanced => 0.7,
            OperatingPoint::HighPrecision => 0.95,
        });
        let confidence = self.0.confidence(worst.score);
        if confidence < threshold {
            return;
        }
        let about = "The words are like those of insults and threats";
        let severity = if confidence >= CRITICAL { Severity::Critical } else { Severity::Medium };
        let mut finding = Finding::new("output_toxicity", severity, confidence, TOXICITY, about);
        finding.metadata.insert("model".to_owned(), "embedded".to_owned());
        finding.metadata.insert("label".to_owned(), "toxic".to_owned());
        let (start, end) = folded.original(text.raw, worst.start, worst.end);
        found.report(start..end, finding);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Analyser, Call, Hit, Part, PlanSettings};

    fn look(text: &str, kind: PartKind, settings: &PlanSettings<'_>) -> Vec<Hit> {
        let analyser = Analyser::whole(Vec::new()).unwrap();
        let plan = Arc::new(analyser.plan(settings));
        let mut hits = Vec::new();
        analyser.analyse(&mut analyser.scratch(), &[Part { text, kind }], &Call::of(&plan), &mut hits);
        hits.retain(|hit| hit.finding.detector == TOXICITY);
        hits
    }

    #[test]
    fn an_insult_in_an_answer_is_found_and_critical_where_the_model_is_sure() {
        let text = "Of course. You are a stupid worthless idiot, and everybody hates you, you pathetic piece of trash.";
        let all = PlanSettings::default();
        let hits = look(text, PartKind::Output, &all);
        assert_eq!(hits.len(), 1);
        let found = &hits[0].finding;
        assert_eq!((&*found.finding_type, found.severity), ("output_toxicity", Severity::Critical));
        assert!(found.confidence >= CRITICAL, "{}", found.confidence);
        let unsure = PlanSettings { thresholds: &[(TOXICITY, 0.2)], ..PlanSettings::default() };
        for milder in ["You are not very smart, are you.", "What a stupid idea that was.", "Nobody likes losers."] {
            for hit in look(milder, PartKind::Output, &unsure) {
                let sure = hit.finding.confidence >= CRITICAL;
                assert_eq!(hit.finding.severity == Severity::Critical, sure, "{milder}: {}", hit.finding.confidence);
            }
        }
        assert_eq!(&*found.metadata["model"], "embedded");
        // What users write is theirs.
        assert!(look(text, PartKind::User, &all).is_empty());
        assert!(look("Of course. The capital of France is Paris.", PartKind::Output, &all).is_empty());
    }

    #[test]
    fn the_threshold_is_the_point_s_unless_it_was_set() {
        let text = "Of course. You are a stupid worthless idiot, and everybody hates you, you pathetic piece of trash.";
        let sure = look(text, PartKind::Output, &PlanSettings::default())[0].finding.confidence;
        let at = |threshold| {
            let settings = PlanSettings { thresholds: &[(TOXICITY, threshold)], ..PlanSettings::default() };
            look(text, PartKind::Output, &settings).len()
        };
        assert_eq!((at(sure), at(sure + 1e-6)), (1, 0));
        let off = PlanSettings { off: &[TOXICITY], ..PlanSettings::default() };
        assert!(look(text, PartKind::Output, &off).is_empty());
    }
}
