//! A classifier as a judge: the embedded one, or a model of the operator's. It gives a probability and nothing else; category and
//! reasoning come from a template.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use weir_inference::{Classifier, Part};

use super::candidate::Candidate;
use super::failure::{Failure, Status};
use super::verdict::{Category, Recommended, Verdict};

/// From here on a threat is to be blocked, below it to be flagged.
const BLOCK_FROM: f64 = 0.8;
/// Threads that a classifier may occupy at a time. One that hangs keeps them; the other blocking threads of the network runtime
/// are left to those who read the store.
const THREADS_MAX: usize = 4;

/// What gives the probability that a candidate is an attack.
pub trait Classify: Send + Sync + 'static {
    /// Its name, which is the label `model`.
    fn name(&self) -> &str;

    /// From 0.0 to 1.0. Takes milliseconds or more for a long candidate. Nobody waits for it after `until`, so it should stop
    /// there.
    ///
    /// # Errors
    /// Why it says nothing.
    fn probability(&self, candidate: &Candidate, until: Option<Instant>) -> Result<f64, Failure>;
}

impl Classify for Classifier {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn probability(&self, candidate: &Candidate, until: Option<Instant>) -> Result<f64, Failure> {
        let parts = candidate.pieces.iter().map(|piece| Part { text: &piece.text, kind: piece.kind });
        Self::probability(self, &parts.collect::<Vec<_>>(), until).ok_or_else(late)
    }
}

/// A classifier that is asked for verdicts.
pub(super) struct Classifying {
    classifier: Arc<dyn Classify>,
    threshold: f64,
    /// One for each thread it may occupy.
    places: Arc<Semaphore>,
}

impl Classifying {
    pub(super) fn new(classifier: Arc<dyn Classify>, threshold: f64) -> Self {
        Self { classifier, threshold, places: Arc::new(Semaphore::new(THREADS_MAX)) }
    }

    /// See [`Classify::name`].
    pub(super) fn name(&self) -> &str {
        self.classifier.name()
    }

    /// Its verdict, from a thread of its own and within `limit`; `None` is a time that is over already. A failure is never worth
    /// another try: the classifier would say the same, and take as long.
    pub(super) async fn ask(&self, candidate: &Candidate, limit: Option<Duration>) -> Result<Verdict, Failure> {
        let limit = limit.ok_or_else(late)?;
        let until = Instant::now().checked_add(limit);
        let failed = |error: String| Failure::lasting(Status::BackendError, format!("the classifier failed: {error}"));
        let asked = async {
            let place = Arc::clone(&self.places).acquire_owned().await.map_err(|error| failed(error.to_string()))?;
            let (classifier, candidate, threshold) = (Arc::clone(&self.classifier), candidate.clone(), self.threshold);
            let work = tokio::task::spawn_blocking(move || {
                // Held to the end of the work, which may come long after the last one who waited has gone.
                let _place = place;
                if until.is_some_and(|until| Instant::now() >= until) {
                    return Err(late());
                }
                classifier.probability(&candidate, until).map(|probability| template(probability, threshold))
            });
            work.await.map_err(|error| failed(error.to_string()))?
        };
        tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| Err(late()))
    }
}

/// What a classifier comes to that has had its time.
fn late() -> Failure {
    Failure::lasting(
        Status::Timeout,
        "the classifier took longer than it may (`judge.worker.timeout_ms`, `total_deadline_ms`)",
    )
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
