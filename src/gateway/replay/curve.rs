//! What each threshold of the second stage would have come to on recorded calls: how many would be flagged, and how many refused.
//!
//! Each call is looked at once with thresholds so low that all the second stage says comes out with its probability; what it would be at
//! another threshold follows from that. What words and rules say by themselves is the floor: no threshold of the second stage takes it away.
//!
//! Invariant: memory does not grow with the calls.

use std::collections::BTreeMap;

use weir_config::Settings;
use weir_config::settings::{EMBEDDED_MODEL, Enforcement, EnforcementMode, OperatingPoint};
use weir_config::vocab::{Finding, score};
use weir_inference::{Analyser, SECOND_STAGE};
use weir_models::SecondStage;
use weir_storage::record::SpanRecord;

use super::look::Looker;
use super::tally::{Lack, Look};
use crate::enforce::{self, Decision};
use crate::process;

/// Thresholds lie this close together.
const STEPS: usize = 200;
/// What is less probable is not told apart.
const LEAST: f64 = 1.0 / STEPS as f64;
/// The score from which on a call is flagged.
pub(crate) const FLAGGED: u8 = 60;

/// What calls come to at every threshold.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    /// Calls that were looked at.
    pub(crate) calls: u64,
    /// Calls of which nothing can be said: without texts, or a detector failed.
    pub(crate) unknown: u64,
    /// Calls of which the second stage did not see all that it was to.
    pub(crate) partly: u64,
    /// What words and rules flag by themselves.
    pub(crate) flagged_anyway: u64,
    /// What they refuse by themselves in block mode.
    pub(crate) refused_anyway: u64,
    /// Types of findings of what is flagged anyway, by how many calls have them.
    pub(crate) anyway_by_type: BTreeMap<String, u64>,
    /// Of the other calls, how many have their highest probability in each step.
    flags: Vec<u64>,
    refusals: Vec<u64>,
}

/// One threshold, with the calls at or above it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CurvePoint {
    pub(crate) threshold: f64,
    /// Calls flagged if `flag_threshold` is this, those that are flagged anyway among them.
    pub(crate) flagged: u64,
    /// Calls refused in block mode if `block_threshold` is this, likewise.
    pub(crate) refused: u64,
}

// === impl Curve ===

impl Default for Curve {
    fn default() -> Self {
        Self {
            calls: 0,
            unknown: 0,
            partly: 0,
            flagged_anyway: 0,
            refused_anyway: 0,
            anyway_by_type: BTreeMap::new(),
            flags: vec![0; STEPS + 1],
            refusals: vec![0; STEPS + 1],
        }
    }
}

impl Curve {
    /// Takes note of one call.
    fn add(&mut self, look: &Look, rules: &Enforcement) {
        let is_unknown = |lack: &Lack| matches!(lack, Lack::NoTexts | Lack::Failed);
        if look.lacks.iter().any(is_unknown) {
            self.unknown += 1;
            return;
        }
        self.calls += 1;
        self.partly += u64::from(look.lacks.contains(&Lack::Models));
        let (second, others): (Vec<Finding>, Vec<Finding>) =
            look.findings.iter().cloned().partition(|finding| finding.detector == SECOND_STAGE);
        if score(&others) >= FLAGGED {
            self.flagged_anyway += 1;
            let mut types: Vec<&str> = others.iter().map(|finding| &*finding.finding_type).collect();
            types.sort_unstable();
            types.dedup();
            for name in types {
                *self.anyway_by_type.entry(name.to_owned()).or_default() += 1;
            }
        } else if let Some(step) = highest(second.iter().filter(|finding| score([*finding]) >= FLAGGED)) {
            self.flags[step] += 1;
        }
        let of_request = |finding: &&Finding| finding.location.starts_with("request");
        let refuses = |finding: &Finding| enforce::decide(std::slice::from_ref(finding), rules) == Decision::Block;
        if others.iter().filter(of_request).any(refuses) {
            self.refused_anyway += 1;
        } else if let Some(step) = highest(second.iter().filter(of_request).filter(|finding| refuses(finding))) {
            self.refusals[step] += 1;
        }
    }

    /// The thresholds of `at`, with what they come to.
    pub(crate) fn points(&self, at: impl IntoIterator<Item = f64>) -> Vec<CurvePoint> {
        let above = |steps: &[u64], threshold: f64| steps.iter().skip(step_from(threshold)).sum::<u64>();
        let point = |threshold| CurvePoint {
            threshold,
            flagged: self.flagged_anyway + above(&self.flags, threshold),
            refused: self.refused_anyway + above(&self.refusals, threshold),
        };
        at.into_iter().map(point).collect()
    }

    /// The lowest threshold, from `least` on, at which no more than `share` of the calls are flagged; nothing where more are flagged
    /// anyway.
    pub(crate) fn flag_threshold(&self, share: f64, least: f64) -> Option<CurvePoint> {
        self.lowest(least, |point| point.flagged as f64 <= share * self.calls as f64)
    }

    /// The same of refusals.
    pub(crate) fn block_threshold(&self, share: f64, least: f64) -> Option<CurvePoint> {
        self.lowest(least, |point| point.refused as f64 <= share * self.calls as f64)
    }

    fn lowest(&self, least: f64, fits: impl Fn(&CurvePoint) -> bool) -> Option<CurvePoint> {
        let steps = (step_from(least)..=STEPS).map(|step| step as f64 / STEPS as f64);
        self.points(steps).into_iter().find(fits)
    }
}

/// The step of the most probable of them.
fn highest<'a>(findings: impl Iterator<Item = &'a Finding>) -> Option<usize> {
    let step = |finding: &Finding| ((finding.confidence * STEPS as f64 + 1e-9).floor() as usize).min(STEPS);
    findings.map(step).max()
}

/// The first step that a threshold lets through.
fn step_from(threshold: f64) -> usize {
    ((threshold * STEPS as f64 - 1e-9).ceil().max(0.0) as usize).min(STEPS)
}

/// The thresholds of the second stage that settings come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Thresholds {
    pub(crate) finding: f64,
    pub(crate) flag: f64,
    pub(crate) block: f64,
}

/// Those of `settings`; nothing where its second stage is off or not in this binary.
pub(crate) fn thresholds(settings: &Settings) -> Option<Thresholds> {
    let analysis = &settings.security_analysis;
    let is_on = analysis.ml_enabled && analysis.ml_model == EMBEDDED_MODEL && analysis.second_stage_cpu_share > 0.0;
    let second = SecondStage::embedded().ok().flatten().filter(|_| is_on)?;
    let levels = second.levels(process::point(analysis), process::levels(analysis));
    Some(Thresholds { finding: levels.finding?, flag: levels.flag?, block: levels.block? })
}

/// Draws a curve, call by call.
pub(crate) struct CurveLooker<'a> {
    looker: Looker<'a>,
    rules: Enforcement,
    pub(crate) curve: Curve,
}

impl<'a> CurveLooker<'a> {
    /// `settings` are to be [`unbounded`].
    pub(crate) fn new(settings: &'a Settings, analyser: &'a Analyser) -> Self {
        Self { looker: Looker::new(settings, analyser), rules: settings.enforcement.clone(), curve: Curve::default() }
    }

    pub(crate) fn add(&mut self, span: &SpanRecord) {
        let look = self.looker.look(span);
        self.curve.add(&look, &self.rules);
    }
}

/// These settings with thresholds of the second stage that let all through, an enforcement that refuses, and, where one is named, another
/// operating point.
pub(crate) fn unbounded(settings: &Settings, point: Option<OperatingPoint>) -> Settings {
    let mut settings = settings.clone();
    let analysis = &mut settings.security_analysis;
    analysis.finding_threshold = Some(LEAST);
    analysis.flag_threshold = Some(LEAST);
    analysis.block_threshold = Some(LEAST);
    if let Some(point) = point {
        analysis.operating_point = point;
    }
    settings.enforcement.mode = EnforcementMode::Block;
    settings
}

#[cfg(test)]
mod tests {
    use weir_config::vocab::Severity;

    use super::*;

    fn finding(detector: &'static str, severity: Severity, confidence: f64) -> Finding {
        let mut finding = Finding::new("prompt_injection", severity, confidence, detector, "said");
        finding.location = "request.messages[0].content".into();
        finding
    }

    fn curve(calls: &[&[Finding]]) -> Curve {
        let mut curve = Curve::default();
        let rules = unbounded(&Settings::default(), None).enforcement;
        for findings in calls {
            curve.add(&Look { findings: findings.to_vec(), lacks: Vec::new() }, &rules);
        }
        curve
    }

    #[test]
    fn a_call_counts_at_every_threshold_that_it_reaches_and_once() {
        let second = |confidence| finding(SECOND_STAGE, Severity::High, confidence);
        let curve = curve(&[
            &[],
            &[second(0.3)],
            &[second(0.97), second(0.4)],
            // Said in quotes: no threshold makes it an alarm.
            &[finding(SECOND_STAGE, Severity::Low, 0.99)],
            &[finding("rules", Severity::Medium, 0.7), second(0.2)],
        ]);
        let seen = |threshold| {
            let point = curve.points([threshold])[0];
            (point.flagged, point.refused)
        };
        // Enforcement asks for 0.8 whatever the threshold.
        assert_eq!([0.005, 0.3, 0.305, 0.97, 0.975].map(seen), [(3, 1), (3, 1), (2, 1), (2, 1), (1, 0)]);
        assert_eq!((curve.calls, curve.flagged_anyway, curve.refused_anyway), (5, 1, 0));
        assert_eq!(curve.anyway_by_type, BTreeMap::from([("prompt_injection".to_owned(), 1)]));
    }

    #[test]
    fn the_lowest_threshold_keeps_within_the_share_or_there_is_none() {
        let second = |confidence| finding(SECOND_STAGE, Severity::High, confidence);
        let calls: Vec<Vec<Finding>> = (0..100).map(|at| vec![second(f64::from(at) / 100.0)]).collect();
        let calls: Vec<&[Finding]> = calls.iter().map(Vec::as_slice).collect();
        let all = curve(&calls);
        assert_eq!(all.flag_threshold(0.1, 0.0).map(|point| (point.threshold, point.flagged)), Some((0.895, 10)));
        assert_eq!(all.flag_threshold(1.0, 0.25).map(|point| point.threshold), Some(0.25));
        assert_eq!(all.block_threshold(0.0, 0.0).map(|point| (point.threshold, point.refused)), Some((0.995, 0)));
        let loud = curve(&[&[finding("rules", Severity::High, 0.9)], &[]]);
        assert_eq!((loud.flag_threshold(0.4, 0.0), loud.block_threshold(0.4, 0.0)), (None, None));
    }

    #[test]
    fn what_cannot_be_looked_at_is_counted_apart() {
        let mut curve = Curve::default();
        for lacks in [vec![Lack::NoTexts], vec![Lack::Models], vec![]] {
            curve.add(&Look { findings: Vec::new(), lacks }, &Settings::default().enforcement);
        }
        assert_eq!((curve.calls, curve.unknown, curve.partly), (2, 1, 1));
    }
}
