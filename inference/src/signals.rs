//! What the detectors say of one text, in the form that `fusion` weighs.

use weir_config::vocab::{Finding, Severity};

use crate::names::{CLASSIFIER, FUSION, SECOND_STAGE};
use crate::part::{Hit, PartKind};

/// Findings about persons and credentials, which are no orders.
const DATA_TYPES: [&str; 2] = ["pii_detected", "secret_leakage"];

/// What the detectors say of one text.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Signals {
    /// The surest finding of the rules about an order that is High or worse, that is Medium, and that is less.
    pub high: f64,
    /// As above.
    pub medium: f64,
    /// As above.
    pub low: f64,
    /// Findings of Medium or worse that differ in type or rule.
    pub signs: usize,
    /// Something was encoded.
    pub encoded: bool,
    /// The text is data that was handed to the model.
    pub data: bool,
    /// What the classifier says, in logits.
    pub classifier: Option<f64>,
    /// What the guards say, in logits.
    pub guards: [Option<f64>; 2],
    /// What the second stage says, in logits.
    pub second: Option<f64>,
    /// Fusion has reported the text.
    pub(crate) reported: bool,
}

// === impl Signals ===

impl Signals {
    /// What the detectors of class core found in a text of this role.
    pub fn of(hits: &[Hit], kind: PartKind, classifier: Option<f64>) -> Self {
        let mut signals = Self { data: kind == PartKind::Tool, classifier, ..Self::default() };
        let mut seen: Vec<(&str, Option<&str>)> = Vec::new();
        for Finding { finding_type, severity, confidence, detector, metadata, .. } in
            hits.iter().map(|hit| &hit.finding)
        {
            if DATA_TYPES.contains(&&**finding_type) || [CLASSIFIER, FUSION, SECOND_STAGE].contains(&&**detector) {
                continue;
            }
            let surest = match severity {
                Severity::High | Severity::Critical => &mut signals.high,
                Severity::Medium => &mut signals.medium,
                Severity::Low | Severity::Info => &mut signals.low,
            };
            *surest = surest.max(*confidence);
            signals.encoded |= metadata.contains_key("encoding");
            let sign = (&**finding_type, metadata.get("rule").map(String::as_str));
            if *severity >= Severity::Medium && !seen.contains(&sign) {
                seen.push(sign);
            }
        }
        signals.signs = seen.len();
        signals
    }

    /// Takes note of how probable a model finds it that the text is an attack. Others than the classifiers and the guards have no
    /// say.
    pub(crate) fn hear(&mut self, detector: &str, probability: f64) {
        let odds = probability.clamp(1e-6, 1.0 - 1e-6);
        let logits = (odds / (1.0 - odds)).ln();
        match detector {
            CLASSIFIER => self.classifier = Some(logits),
            SECOND_STAGE => self.second = Some(logits),
            "guard_a" => self.guards[0] = Some(logits),
            "guard_b" => self.guards[1] = Some(logits),
            _ => {}
        }
    }

    /// Whether a model has said anything.
    pub(crate) fn is_heard(&self) -> bool {
        self.classifier.is_some() || self.second.is_some() || self.guards.iter().any(Option::is_some)
    }

    /// The same with what models say in `heard`.
    pub(crate) fn with(self, heard: &Self) -> Self {
        let guards = [heard.guards[0].or(self.guards[0]), heard.guards[1].or(self.guards[1])];
        Self { classifier: heard.classifier.or(self.classifier), second: heard.second.or(self.second), guards, ..self }
    }
}
