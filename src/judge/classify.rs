//! A classifier as a judge: the embedded one, or a model of the operator's. It gives a probability and nothing else; category and
//! reasoning come from a template.

use weir_inference::{Classifier, Part};

use super::candidate::Candidate;
use super::failure::Failure;
use super::verdict::{Category, Recommended, Verdict};

/// From here on a threat is to be blocked, below it to be flagged.
const BLOCK_FROM: f64 = 0.8;

/// What gives the probability that a candidate is an attack.
pub trait Classify: Send + Sync + 'static {
    /// Its name, which is the label `model`.
    fn name(&self) -> &str;

    /// From 0.0 to 1.0. Takes milliseconds or more for a long candidate.
    ///
    /// # Errors
    /// Why it says nothing.
    fn probability(&self, candidate: &Candidate) -> Result<f64, Failure>;
}

impl Classify for Classifier {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn probability(&self, candidate: &Candidate) -> Result<f64, Failure> {
        let parts = candidate.pieces.iter().map(|piece| Part { text: &piece.text, kind: piece.kind });
        Ok(Self::probability(self, &parts.collect::<Vec<_>>()))
    }
}

/// A classifier's verdict.
pub(super) fn verdict(classifier: &dyn Classify, candidate: &Candidate, threshold: f64) -> Result<Verdict, Failure> {
    classifier.probability(candidate).map(|probability| template(probability, threshold))
}

fn template(probability: f64, threshold: f64) -> Verdict {
    let is_threat = probability >= threshold;
    let (category, recommended_action) = match is_threat {
        true if probability >= BLOCK_FROM => (Category::PromptInjection, Recommended::Block),
        true => (Category::PromptInjection, Recommended::Flag),
        false => (Category::Benign, Recommended::Allow),
    };
    Verdict {
        is_threat,
        category,
        confidence: if is_threat { probability } else { 1.0 - probability },
        security_score: (probability * 100.0).round().clamp(0.0, 100.0) as u8,
        recommended_action,
        reasoning: format!(
            "The classifier gives the text a probability of {probability:.2} of being an attack; its threshold is \
             {threshold:.2}."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_classifier_cannot_say_comes_from_the_template() {
        let said = |probability| {
            let verdict = template(probability, 0.5);
            (verdict.is_threat, verdict.category, verdict.recommended_action, verdict.security_score)
        };
        assert_eq!(said(0.93), (true, Category::PromptInjection, Recommended::Block, 93));
        assert_eq!(said(0.5), (true, Category::PromptInjection, Recommended::Flag, 50));
        assert_eq!(said(0.49), (false, Category::Benign, Recommended::Allow, 49));
        assert_eq!(template(0.25, 0.5).confidence, 0.75);
        assert!(template(0.93, 0.5).reasoning.contains("0.93"));
    }
}
