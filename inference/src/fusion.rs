//! `fusion`: one confidence from what all detectors say of a text (`security_analysis.fusion_enabled`). Signs that are each too weak
//! to speak of may be an attack together.
//!
//! A weighted sum of [`Signals`], in logits, and a curve from there to a confidence. The weights in the binary were fitted by
//! `train/fusion.py` on sources that the classifier had not seen; a file of the operator's takes their place
//! (`fusion_model_path`), in the same form: `model/fusion.json`. What it is worth: `docs/detection-learned.md`.
//!
//! It is asked twice at most: when the detectors of class core are through with a text, and again once models on the pool have
//! spoken, unless it has reported the text by then.

use std::hash::Hasher as _;
use std::sync::Arc;

use serde::Deserialize;
use siphasher::sip::SipHasher13;
use weir_config::vocab::{Finding, Severity};

use crate::detector::{CostClass, Detector, Found, Kinds, Text};
use crate::names::FUSION;
use crate::part::PartKind;
use crate::signals::Signals;
use crate::tuning::{OperatingPoint, Tuning};

/// What is embedded, as `train/fusion.py` wrote it.
static EMBEDDED: &str = include_str!("../model/fusion.json");
/// The only form of files there is.
const VERSION: u32 = 1;
/// Largest bias, weight or logit, either way.
const LARGEST: f64 = 100.0;
/// Points of the curve.
const POINTS_MAX: usize = 16;
/// Logits of one signal count as far as this.
const LOGITS: (f64, f64) = (-4.0, 8.0);
/// From here on a finding is High.
const SURE: f64 = 0.95;
/// The detector.
#[derive(Debug)]
pub struct Fusion {
    model: Model,
    /// Tells models apart.
    version: u64,
}

/// A model file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    version: u32,
    bias: f64,
    weights: Weights,
    /// What stands for the classifier's logits where no classifier was asked.
    classifier_absent: f64,
    /// Logits with their confidence, both ascending.
    confidence: Vec<(f64, f64)>,
}

/// What each signal counts for.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Weights {
    high: f64,
    medium: f64,
    low: f64,
    signs: f64,
    encoded: f64,
    data: f64,
    classifier: f64,
    guard_a: f64,
    guard_b: f64,
}

// === impl Fusion ===

impl Fusion {
    /// The one in the binary.
    ///
    /// # Errors
    /// When it is damaged; a test keeps that from being released.
    pub(crate) fn embedded() -> Result<Arc<Self>, String> {
        Self::read(EMBEDDED)
    }

    /// Reads a model file: JSON in the form of `model/fusion.json`.
    ///
    /// # Errors
    /// What does not fit, with the field and what would.
    pub fn read(text: &str) -> Result<Arc<Self>, String> {
        let model: Model = serde_json::from_str(text).map_err(|error| format!("is no fusion model: {error}"))?;
        model.check()?;
        let mut hasher = SipHasher13::new();
        hasher.write(text.as_bytes());
        Ok(Arc::new(Self { model, version: hasher.finish() }))
    }

    /// A finding, if all together is enough for one.
    pub(crate) fn fuse(&self, signals: &Signals, tuning: &Tuning) -> Option<Finding> {
        let confidence = self.confidence(signals);
        let threshold = tuning.threshold.unwrap_or(match tuning.point {
            OperatingPoint::HighRecall => 0.5,
            OperatingPoint::Balanced => 0.8,
            OperatingPoint::HighPrecision => SURE,
        });
        if confidence < threshold || confidence <= 0.0 {
            return None;
        }
        let severity = if confidence >= SURE { Severity::High } else { Severity::Medium };
        let about = "What all detectors say of it adds up to an attack";
        let mut finding = Finding::new("fusion_prompt_injection", severity, confidence, FUSION, about);
        let mut put = |key: &str, value: String| finding.metadata.insert(key.to_owned(), value);
        put("signs", signals.signs.to_string());
        if let Some(logits) = signals.classifier {
            put("classifier", format!("{logits:.2}"));
        }
        for (name, logits) in ["guard_a", "guard_b"].into_iter().zip(signals.guards) {
            logits.map(|logits| put(name, format!("{logits:.2}")));
        }
        Some(finding)
    }

    /// How sure all together is, 0.0 to 1.0.
    pub fn confidence(&self, signals: &Signals) -> f64 {
        let Model { bias, weights, classifier_absent, .. } = &self.model;
        let clipped = |logits: f64| logits.clamp(LOGITS.0, LOGITS.1);
        let guard = |at: usize| signals.guards[at].map_or(0.0, clipped);
        let sum = bias
            + weights.high * signals.high
            + weights.medium * signals.medium
            + weights.low * signals.low
            + weights.signs * (signals.signs as f64).ln_1p()
            + if signals.encoded { weights.encoded } else { 0.0 }
            + if signals.data { weights.data } else { 0.0 }
            + weights.classifier * clipped(signals.classifier.unwrap_or(*classifier_absent))
            + weights.guard_a * guard(0)
            + weights.guard_b * guard(1);
        self.model.curve(sum)
    }
}

impl Detector for Fusion {
    fn name(&self) -> &'static str {
        FUSION
    }

    fn cost(&self) -> CostClass {
        CostClass::Core
    }

    fn is_learned(&self) -> bool {
        true
    }

    fn reads(&self) -> Kinds {
        Kinds::of(&[PartKind::User, PartKind::Tool])
    }

    fn version(&self) -> u64 {
        self.version
    }

    /// It has nothing to look at: the analyser asks it for a verdict when all others have spoken ([`Self::fuse`]).
    fn look(&self, _text: &Text<'_>, _tuning: &Tuning, _found: &mut Found<'_>) {}
}

// === impl Model ===

impl Model {
    /// Whether numbers are numbers and the curve rises.
    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("`version`: got {}; accepted: {VERSION}", self.version));
        }
        let Weights { high, medium, low, signs, encoded, data, classifier, guard_a, guard_b } = self.weights;
        let numbers = [
            ("bias", self.bias),
            ("classifier_absent", self.classifier_absent),
            ("weights.high", high),
            ("weights.medium", medium),
            ("weights.low", low),
            ("weights.signs", signs),
            ("weights.encoded", encoded),
            ("weights.data", data),
            ("weights.classifier", classifier),
            ("weights.guard_a", guard_a),
            ("weights.guard_b", guard_b),
        ];
        if let Some((name, value)) = numbers.into_iter().find(|(_, value)| value.is_nan() || value.abs() > LARGEST) {
            return Err(format!("`{name}`: got {value}; accepted: -{LARGEST} to {LARGEST}"));
        }
        let curve = &self.confidence;
        let rises = curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let fits = |(logits, share): &(f64, f64)| logits.abs() <= LARGEST && (0.0..=1.0).contains(share);
        if !(2..=POINTS_MAX).contains(&curve.len()) || !rises || !curve.iter().all(fits) {
            return Err(format!(
                "`confidence`: accepted: 2 to {POINTS_MAX} pairs of a sum from -{LARGEST} to {LARGEST} and a confidence from 0 to 1, \
                 the sums ascending and no confidence below the one before it"
            ));
        }
        Ok(())
    }

    /// The curve between its points, nothing below the first, flat beyond the last.
    fn curve(&self, sum: f64) -> f64 {
        let mut before: Option<(f64, f64)> = None;
        for (at, share) in self.confidence.iter().copied() {
            if sum < at {
                return before.map_or(0.0, |(from, low)| low + (share - low) * (sum - from) / (at - from));
            }
            before = Some((at, share));
        }
        before.map_or(0.0, |(_, share)| share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model of which each weight is its own decade.
    fn toy(change: impl FnOnce(&mut serde_json::Value)) -> Result<Arc<Fusion>, String> {
        let mut file = serde_json::json!({
            "version": 1,
            "bias": 0.0,
            "weights": {
                "high": 4.0, "medium": 2.0, "low": 1.0, "signs": 0.0, "encoded": 0.5, "data": 0.25, "classifier": 1.0,
                "guard_a": 1.0, "guard_b": 1.0,
            },
            "classifier_absent": -1.0,
            "confidence": [[0.0, 0.0], [2.0, 0.5], [4.0, 1.0]],
        });
        change(&mut file);
        Fusion::read(&file.to_string())
    }

    #[test]
    fn what_is_embedded_can_be_read() {
        let fusion = Fusion::embedded().unwrap();
        let nothing = Signals { classifier: Some(-2.0), ..Signals::default() };
        assert!(fusion.confidence(&nothing) < 0.1);
        let order = Signals { high: 0.95, signs: 3, low: 0.8, classifier: Some(3.0), ..Signals::default() };
        assert!(fusion.confidence(&order) >= 0.95, "{}", fusion.confidence(&order));
    }

    #[test]
    fn signals_add_up_along_the_curve() {
        let fusion = toy(|_| {}).unwrap();
        let sure = |signals: Signals| fusion.confidence(&signals);
        let asked = Signals { classifier: Some(0.0), ..Signals::default() };
        assert_eq!(sure(asked), 0.0);
        assert_eq!(sure(Signals { low: 1.0, ..asked }), 0.25);
        assert_eq!(sure(Signals { low: 1.0, medium: 0.5, ..asked }), 0.5);
        assert_eq!(sure(Signals { high: 0.5, encoded: true, data: true, ..asked }), 0.6875);
        // Nobody asked the classifier: what stands for that is a harmless text's.
        assert_eq!(sure(Signals { high: 0.5, classifier: None, ..asked }), 0.25);
        assert_eq!(sure(Signals { guards: [Some(3.0), None], ..asked }), 0.75);
        // One voice counts as far as it may, and beyond the curve nothing is surer.
        assert_eq!(sure(Signals { guards: [Some(50.0), Some(-50.0)], ..asked }), 1.0);
        assert_eq!(sure(Signals { guards: [Some(3.0), Some(-50.0)], ..asked }), 0.0);
    }

    #[test]
    fn the_operating_point_says_what_is_enough() {
        let fusion = toy(|_| {}).unwrap();
        let said = |logits: f64, point| {
            let tuning = Tuning { point, ..Tuning::default() };
            fusion
                .fuse(&Signals { classifier: Some(logits), ..Signals::default() }, &tuning)
                .map(|found| found.severity)
        };
        assert_eq!(said(2.0, OperatingPoint::HighRecall), Some(Severity::Medium));
        assert_eq!(said(2.0, OperatingPoint::Balanced), None);
        assert_eq!(said(3.2, OperatingPoint::Balanced), Some(Severity::Medium));
        assert_eq!(said(3.9, OperatingPoint::Balanced), Some(Severity::High));
        assert_eq!(said(3.7, OperatingPoint::HighPrecision), None);
        assert_eq!(said(3.9, OperatingPoint::HighPrecision), Some(Severity::High));
    }

    #[test]
    fn a_model_that_does_not_fit_is_refused_with_the_field() {
        let refused = |change: &dyn Fn(&mut serde_json::Value)| toy(|file| change(file)).unwrap_err();
        let has = |error: String, parts: &[&str]| assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        has(refused(&|file| file["version"] = 2.into()), &["`version`", "got 2", "accepted: 1"]);
        has(refused(&|file| file["weights"]["high"] = 1e9.into()), &["`weights.high`", "1000000000", "-100 to 100"]);
        has(refused(&|file| file["weights"]["hihg"] = 1.into()), &["hihg", "guard_b"]);
        has(refused(&|file| file["bias"] = "x".into()), &["is no fusion model", "f64"]);
        for curve in
            ["[]", "[[0, 0]]", "[[0, 0], [0, 1]]", "[[0, 1], [1, 0]]", "[[0, 0], [1, 2]]", "[[0, 0], [1000, 1]]"]
        {
            has(
                refused(&|file| file["confidence"] = serde_json::from_str(curve).unwrap()),
                &["`confidence`", "2 to 16"],
            );
        }
    }
}
