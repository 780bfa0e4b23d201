//! A place for a model as a detector: absent until the model has been loaded, and what the model says as findings.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weir_config::vocab::{Finding, Severity};
use weir_inference::{CostClass, Detector, Found, Kinds, Needs, Text, Tuning};

use crate::entities::Kind;
use crate::folder::Named;
use crate::labels::is_severe;
use crate::model::{Model, Worst};
use crate::slot::{DOUBTFUL, Slot};

/// A place with the model that is to stand there.
pub(crate) struct Place {
    pub(crate) slot: Slot,
    pub(crate) named: Named,
    pub(crate) status: Mutex<Status>,
    model: OnceLock<Model>,
    asked: AtomicBool,
    /// Called when somebody first asks for the model.
    wake: Box<dyn Fn() + Send + Sync>,
    /// Texts it could not judge.
    failures: AtomicU64,
}

/// How far a model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    /// Nobody has asked for it.
    Waiting,
    Loading,
    Loaded,
    Missing(String),
    Failed(String),
}

/// Why a model says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAsked {
    /// It is not there yet.
    #[error("the model is being loaded")]
    Loading,
    /// It is missing, or is no such model.
    #[error("{0}")]
    Absent(String),
    /// It could not judge a text.
    #[error("{0}")]
    Failed(String),
    /// It was not through with the texts in time.
    #[error("the model took too long")]
    Late,
}

/// Most decoded words of a text that are looked at beside it: whoever sends more of them pays for no more, and is told so.
const DECODED_MAX: usize = 8;
/// How long the sentences of one answer may take.
const SUPPORT_TIME: Duration = Duration::from_secs(5);

impl Place {
    pub(crate) fn new(slot: Slot, named: Named, wake: Box<dyn Fn() + Send + Sync>) -> Self {
        Self {
            slot,
            named,
            status: Mutex::new(Status::Waiting),
            model: OnceLock::new(),
            asked: AtomicBool::new(false),
            wake,
            failures: AtomicU64::new(0),
        }
    }

    /// Whether somebody has asked for its model.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Asks for it; whether this was the first time.
    pub(crate) fn ask(&self) -> bool {
        !self.asked.swap(true, Ordering::AcqRel)
    }

    /// Puts the model there. It stays.
    pub(crate) fn put(&self, model: Model) {
        self.model.get_or_init(|| model);
    }

    /// How probable it is that the worst of these texts is an attack; `None` without a model.
    pub(crate) fn probability<'a>(
        &self,
        texts: impl IntoIterator<Item = &'a str>,
        until: Option<Instant>,
    ) -> Option<Result<f64, NotAsked>> {
        let model = self.model.get()?;
        let worst = texts.into_iter().try_fold(0.0_f64, |worst, text| {
            let said = model.worst(text, until).map_err(NotAsked::Failed)?;
            // Windows may have been left out then, and any of them may be the worst.
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(NotAsked::Late);
            }
            Ok(worst.max(said.map_or(0.0, |said| said.probability)))
        });
        Some(worst)
    }

    fn fail(&self, error: &str, found: &mut Found<'_>) {
        if self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
            // Each of them is tagged on its record; the log is told once.
            tracing::error!(detector = self.slot.name(), model = %self.named, error, "a model could not judge a text");
        }
        found.fail();
    }

    /// The worst window of the text and of what encoded words in it say.
    fn worst(&self, model: &Model, text: &Text<'_>) -> Result<Option<(Worst, Option<&'static str>)>, String> {
        let mut worst = model.worst(text.raw(), text.deadline())?.map(|worst| (worst, None));
        for decoded in text.decoded().iter().take(DECODED_MAX) {
            let words = String::from_utf8_lossy(&decoded.text);
            let Some(said) = model.worst(&words, text.deadline())? else { continue };
            if worst.as_ref().is_none_or(|(worst, _)| said.probability > worst.probability) {
                worst = Some((Worst { range: decoded.range.clone(), ..said }, Some(decoded.encoding)));
            }
        }
        Ok(worst)
    }

    /// Says that what `left` encoded words of a text say is not looked at.
    fn leave_out(&self, left: usize, text: &Text<'_>, found: &mut Found<'_>) {
        found.skip();
        let about = "more encoded words stand in the text than models are asked about; the rules have read all of them";
        let mut finding = Finding::new("analysis_truncated", Severity::Low, 1.0, self.slot.name(), about);
        finding.metadata.insert("left_out_encoded".to_owned(), left.to_string());
        let first = text.decoded().get(DECODED_MAX).map_or(0..0, |decoded| decoded.range.clone());
        found.report(first, finding);
    }

    /// Looks for orders, and at answers for what should not be in them.
    fn classify(&self, model: &Model, text: &Text<'_>, tuning: &Tuning, found: &mut Found<'_>) {
        if let Some(left @ 1..) = text.decoded().len().checked_sub(DECODED_MAX) {
            self.leave_out(left, text, found);
        }
        let (worst, encoding) = match self.worst(model, text) {
            Ok(Some(worst)) => worst,
            Ok(None) => return,
            Err(error) => return self.fail(&error, found),
        };
        found.probability(self.slot.name(), worst.probability);
        let threshold = self.slot.threshold(tuning);
        // A guard that is not sure of itself counts where somebody else has found something.
        let corroborated = worst.probability < threshold
            && self.slot.is_guard()
            && text.is_suspect()
            && worst.probability >= DOUBTFUL.min(threshold);
        if worst.probability < threshold && !corroborated || worst.probability <= 0.0 {
            return;
        }
        let severity = match self.slot {
            _ if corroborated => Severity::Medium,
            Slot::Toxicity => toxicity(&worst),
            _ => Severity::High,
        };
        let mut finding = self.finding(self.slot.finding_type(), severity, worst.probability);
        finding.metadata.insert("label".to_owned(), worst.label);
        if let Some(encoding) = encoding {
            finding.metadata.insert("encoding".to_owned(), encoding.to_owned());
        }
        if corroborated {
            finding.metadata.insert("corroborated".to_owned(), "true".to_owned());
        }
        found.report(worst.range, finding);
    }

    fn names(&self, model: &Model, text: &Text<'_>, tuning: &Tuning, found: &mut Found<'_>) {
        let entities = match model.entities(text.raw(), text.deadline()) {
            Ok(entities) => entities,
            Err(error) => return self.fail(&error, found),
        };
        let threshold = self.slot.threshold(tuning);
        for entity in entities.into_iter().filter(|entity| entity.probability >= threshold) {
            let severity = if entity.kind == Kind::Person { Severity::Low } else { Severity::Info };
            let mut finding = self.finding(entity.kind.name(), severity, entity.probability);
            finding.metadata.insert("pii_type".to_owned(), entity.kind.name().to_owned());
            found.report(Range::clone(&entity.range), finding);
        }
    }

    /// Holds an answer against what the request brought. Without that there is nothing to hold it against.
    fn hold_against(&self, model: &Model, text: &Text<'_>, tuning: &Tuning, found: &mut Found<'_>) {
        let is_short = text.raw().chars().take(tuning.shortest).count() < tuning.shortest;
        if is_short || text.context().trim().is_empty() {
            return;
        }
        // Of the time that is left others get their part: an answer of many sentences must not cost the whole analysis.
        let left = text.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()) / 2);
        let until = Instant::now() + left.map_or(SUPPORT_TIME, |left| left.min(SUPPORT_TIME));
        let judged = match model.support(text.context(), text.raw(), Some(until)) {
            Ok(judged) => judged,
            Err(error) => return self.fail(&error, found),
        };
        let threshold = self.slot.threshold(tuning);
        let flagged = judged.sentences.iter().filter(|(_, support)| *support < threshold).count();
        let Some((range, support)) = judged.worst().filter(|_| flagged > 0) else { return };
        let mut finding = self.finding(self.slot.finding_type(), Severity::Medium, 1.0 - support);
        let scores: Vec<String> = judged
            .sentences
            .iter()
            .map(|(range, support)| format!("[{},{},{support:.3}]", range.start, range.end))
            .collect();
        let said = [
            ("flagged_sentences", flagged.to_string()),
            ("judged_sentences", judged.sentences.len().to_string()),
            ("sentence_scores", format!("[{}]", scores.join(","))),
        ];
        finding.metadata.extend(said.map(|(name, value)| (name.to_owned(), value)));
        if judged.left_out > 0 {
            finding.metadata.insert("sentences_left_out".to_owned(), judged.left_out.to_string());
        }
        found.report(Range::clone(range), finding);
    }

    fn finding(&self, finding_type: &'static str, severity: Severity, probability: f64) -> Finding {
        let about = match finding_type {
            "person_name" => "The name of a person",
            "organization" => "The name of an organisation",
            "location" => "The name of a place",
            "output_hallucination" => "The answer says what the request does not support",
            "output_toxicity" => "A model finds the answer toxic",
            _ => "A model takes the text for an attack on the model it is sent to",
        };
        let mut finding = Finding::new(finding_type, severity, probability, self.slot.name(), about);
        finding.metadata.insert("model".to_owned(), self.named.to_string());
        finding
    }
}

/// How bad a class of toxicity is: the two worst are critical where the model is all but sure.
fn toxicity(worst: &Worst) -> Severity {
    match is_severe(&worst.label) {
        true if worst.probability >= 0.9 => Severity::Critical,
        true => Severity::High,
        false => Severity::Medium,
    }
}

impl Detector for Place {
    fn name(&self) -> &'static str {
        self.slot.name()
    }

    fn cost(&self) -> CostClass {
        CostClass::Model
    }

    fn reads(&self) -> Kinds {
        self.slot.reads()
    }

    fn needs(&self) -> Needs {
        Needs { folded: false, decoded: self.slot.seeks_orders(), context: self.slot == Slot::Hallucination }
    }

    fn version(&self) -> u64 {
        self.model.get().map_or(0, |model| model.version)
    }

    fn is_ready(&self) -> bool {
        self.model.get().is_some()
    }

    fn missed(&self) {
        if self.ask() {
            (self.wake)();
        }
    }

    fn look(&self, text: &Text<'_>, tuning: &Tuning, found: &mut Found<'_>) {
        let Some(model) = self.model.get() else { return };
        if text.deadline().is_some_and(|deadline| Instant::now() >= deadline) {
            return;
        }
        match self.slot {
            Slot::Entities => self.names(model, text, tuning, found),
            Slot::Hallucination => self.hold_against(model, text, tuning, found),
            _ => self.classify(model, text, tuning, found),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place {{ {:?}, {}, {:?} }}", self.slot, self.named, self.status.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_severe_classes_that_are_all_but_sure_are_critical() {
        let of = |label: &str, probability| toxicity(&Worst { probability, label: label.to_owned(), range: 0..1 });
        assert_eq!(of("severe_toxic", 0.95), Severity::Critical);
        assert_eq!(of("threat", 0.9), Severity::Critical);
        assert_eq!(of("threat", 0.89), Severity::High);
        assert_eq!(of("toxic", 0.99), Severity::Medium);
    }
}
