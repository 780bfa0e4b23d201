//! The places there are for models: what each is called, what it reads, and how sure it has to be.

use weir_inference::{Kinds, OperatingPoint, PartKind, Tuning};

/// A place for a model; each is a detector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// `security_analysis.ml_model`, in the place of the embedded classifier.
    Classifier,
    /// `security_analysis.guard_a_model`.
    GuardA,
    /// `security_analysis.guard_b_model`.
    GuardB,
    /// `security_analysis.ner_model`.
    Entities,
    /// `output_safety.toxicity_model`.
    Toxicity,
    /// `output_safety.hallucination_model`.
    Hallucination,
    /// `judge.classifier.model_id`: no detector; it is asked by the judge, whatever the detectors say.
    Judge,
}

/// The confidence from which on anything is reported at the point `high_precision`.
const PRECISE: f64 = 0.95;
/// The same at `high_recall`; below it nothing is reported at all.
pub(crate) const DOUBTFUL: f64 = 0.5;

impl Slot {
    /// All, in the order in which they run.
    pub const ALL: [Self; 7] = [
        Self::Classifier,
        Self::GuardA,
        Self::GuardB,
        Self::Entities,
        Self::Toxicity,
        Self::Hallucination,
        Self::Judge,
    ];

    /// The name of its detector.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classifier => "classifier",
            Self::GuardA => "guard_a",
            Self::GuardB => "guard_b",
            Self::Entities => "ner",
            Self::Toxicity => "toxicity",
            Self::Hallucination => "hallucination",
            Self::Judge => "judge",
        }
    }

    /// The roles of text it reads.
    pub(crate) fn reads(self) -> Kinds {
        match self {
            // As the embedded classifier: who writes the system prompt gives orders by right.
            Self::Classifier | Self::GuardA | Self::GuardB | Self::Judge => {
                Kinds::of(&[PartKind::User, PartKind::Tool])
            }
            Self::Entities => Kinds::of(&[PartKind::User, PartKind::Tool, PartKind::Output]),
            Self::Toxicity | Self::Hallucination => Kinds::of(&[PartKind::Output]),
        }
    }

    /// Whether it looks for orders to the model.
    pub(crate) const fn seeks_orders(self) -> bool {
        matches!(self, Self::Classifier | Self::GuardA | Self::GuardB | Self::Judge)
    }

    pub(crate) const fn is_guard(self) -> bool {
        matches!(self, Self::GuardA | Self::GuardB)
    }

    /// The type of its findings.
    pub(crate) const fn finding_type(self) -> &'static str {
        match self {
            Self::Classifier => "ml_prompt_injection",
            Self::GuardA => "guard_a_injection",
            Self::GuardB => "guard_b_injection",
            Self::Toxicity => "output_toxicity",
            Self::Hallucination => "output_hallucination",
            // Which its verdict becomes.
            Self::Judge => "llm_judge_verdict",
            // Each kind of entity has its own.
            Self::Entities => "person_name",
        }
    }

    /// The confidence from which on it reports something; of hallucinations, the support from which on it does not.
    pub(crate) fn threshold(self, tuning: &Tuning) -> f64 {
        if self == Self::Hallucination {
            return tuning.threshold.unwrap_or(match tuning.point {
                OperatingPoint::HighRecall => 0.7,
                OperatingPoint::Balanced => 0.5,
                OperatingPoint::HighPrecision => 0.2,
            });
        }
        let balanced = match self {
            Self::Classifier => 0.8,
            Self::GuardA | Self::GuardB => 0.85,
            Self::Toxicity => 0.7,
            Self::Entities | Self::Hallucination | Self::Judge => DOUBTFUL,
        };
        tuning.threshold.unwrap_or(match tuning.point {
            OperatingPoint::HighRecall => DOUBTFUL,
            OperatingPoint::Balanced => balanced,
            OperatingPoint::HighPrecision => PRECISE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_that_was_set_wins_over_the_operating_point() {
        let tuning = |point, threshold| Tuning { point, threshold, ..Tuning::default() };
        for slot in [Slot::Classifier, Slot::GuardA, Slot::GuardB, Slot::Toxicity] {
            let at = |point| slot.threshold(&tuning(point, None));
            assert!(at(OperatingPoint::HighRecall) < at(OperatingPoint::Balanced));
            assert!(at(OperatingPoint::Balanced) < at(OperatingPoint::HighPrecision));
            assert_eq!(slot.threshold(&tuning(OperatingPoint::HighRecall, Some(0.9))), 0.9);
        }
    }
}
