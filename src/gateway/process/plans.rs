//! What the settings say about analyses, as plans of the analyser: made once for each generation of the settings, whoever needs them
//! first, and shared by the cores and by the threads that deal with reports.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use weir_config::Settings;
use weir_config::settings::{self, EMBEDDED_MODEL, SecurityAnalysis};
use weir_inference::{
    Analyser, EMBEDDED, Levels, OperatingPoint, PartKind, Plan, PlanSettings, SECOND_STAGE, ToolChanges,
};
use weir_models::Slot;

/// The plans under one state of the settings.
#[derive(Debug, Clone)]
pub(crate) struct Plans {
    /// Of requests, records and reports.
    pub(crate) all: Arc<Plan>,
    /// Of answers that are looked at before their clients have them.
    pub(crate) of_answers: Arc<Plan>,
}

/// The plans of the latest generation that somebody has asked for.
#[derive(Debug, Default)]
pub(crate) struct SharedPlans(ArcSwapOption<Generation>);

#[derive(Debug)]
struct Generation {
    settings: Arc<Settings>,
    plans: OnceLock<Plans>,
}

impl SharedPlans {
    /// The plans under `settings`. The first to ask makes them; whoever asks meanwhile waits for that, which takes no longer than
    /// making them would.
    pub(super) fn of(&self, analyser: &Analyser, settings: &Arc<Settings>) -> Plans {
        let is_theirs = |generation: &Arc<Generation>| Arc::ptr_eq(&generation.settings, settings);
        let current = self.0.load_full();
        let generation = match current {
            Some(generation) if is_theirs(&generation) => generation,
            current => {
                let fresh = Arc::new(Generation { settings: Arc::clone(settings), plans: OnceLock::new() });
                let before = self.0.compare_and_swap(&current, Some(Arc::clone(&fresh)));
                // Another thread may have come first, with the same settings.
                let theirs = before.as_ref().filter(|generation| is_theirs(generation)).map(Arc::clone);
                theirs.unwrap_or(fresh)
            }
        };
        let make =
            || Plans { all: Arc::new(plan(analyser, settings)), of_answers: Arc::new(answer_plan(analyser, settings)) };
        generation.plans.get_or_init(make).clone()
    }
}

/// What looks at an answer before its client has it: names are no reason to stop one, so nobody waits for the model that finds them.
fn answer_plan(analyser: &Analyser, settings: &Settings) -> Plan {
    let mut settings = settings.clone();
    settings.security_analysis.ner.enabled = false;
    plan(analyser, &settings)
}

/// The same where nobody waits and nothing else wants the time: the second stage looks at all it is to look at.
pub(crate) fn plan_at_leisure(analyser: &Analyser, settings: &Settings) -> Plan {
    let mut settings = settings.clone();
    let share = &mut settings.security_analysis.second_stage_cpu_share;
    if *share > 0.0 {
        *share = f64::INFINITY;
    }
    plan(analyser, &settings)
}

/// What the settings say about analyses.
pub(crate) fn plan(analyser: &Analyser, settings: &Settings) -> Plan {
    let analysis = &settings.security_analysis;
    let zones = analysis.zones;
    let (classifier, guard_a, guard_b) = (Slot::Classifier.name(), Slot::GuardA.name(), Slot::GuardB.name());
    let (toxicity, hallucination) = (Slot::Toxicity.name(), Slot::Hallucination.name());
    let is_embedded = analysis.ml_model == EMBEDDED_MODEL;
    let switches = [
        (analysis.jailbreak_enabled, "jailbreak"),
        // It stands in for the model of the operator until that is loaded.
        (analysis.ml_enabled && (is_embedded || !analyser.is_ready(classifier)), EMBEDDED),
        (analysis.ml_enabled || is_embedded, classifier),
        // A model of the operator's stands in for both stages.
        (analysis.ml_enabled && is_embedded && analysis.second_stage_cpu_share > 0.0, SECOND_STAGE),
        (analysis.guard_a.enabled, guard_a),
        (analysis.guard_b.enabled, guard_b),
        (analysis.ner.enabled, Slot::Entities.name()),
        (settings.output_safety.enabled && settings.toxicity.enabled, toxicity),
        (settings.output_safety.enabled && settings.hallucination.enabled, hallucination),
    ];
    let off: Vec<&str> = switches.into_iter().filter(|(on, _)| !on).map(|(_, name)| name).collect();
    // A threshold that nobody wrote is that of the operating point.
    let written: Vec<(&str, f64)> = [
        (EMBEDDED, analysis.ml_threshold),
        (classifier, analysis.ml_threshold),
        (guard_a, analysis.guard_a.threshold),
        (guard_b, analysis.guard_b.threshold),
        (toxicity, settings.toxicity.threshold),
        (hallucination, settings.hallucination.threshold),
        ("jailbreak", analysis.jailbreak_threshold),
    ]
    .into_iter()
    .filter_map(|(name, written)| Some((name, written?)))
    .collect();
    analyser.plan(&PlanSettings {
        off: &off,
        point: point(analysis),
        thresholds: &written,
        levels: levels(analysis),
        shares: &[(SECOND_STAGE, analysis.second_stage_cpu_share)],
        shortest: &[(hallucination, settings.hallucination.min_response_length)],
        model_text_max: analysis.max_analysis_text_bytes,
        silent_pii: settings.pii_action == settings::PiiAction::RedactSilent,
        fusion: analysis.fusion_enabled,
        over_defence: analysis.over_defence,
        tool_changes: match analysis.tool_changes {
            settings::ToolChanges::Ignore => ToolChanges::Off,
            settings::ToolChanges::Record => ToolChanges::Record,
            settings::ToolChanges::Refuse => ToolChanges::Refuse,
        },
        // Where zones are told apart, models look at data, and at the rest where they are asked to.
        rules_only: if zones.enabled && !zones.scan_instruction_zones { &[PartKind::User] } else { &[] },
    })
}

/// How detectors weigh what they miss.
pub(crate) const fn point(analysis: &SecurityAnalysis) -> OperatingPoint {
    match analysis.operating_point {
        settings::OperatingPoint::Balanced => OperatingPoint::Balanced,
        settings::OperatingPoint::HighRecall => OperatingPoint::HighRecall,
        settings::OperatingPoint::HighPrecision => OperatingPoint::HighPrecision,
    }
}

/// The thresholds of the second stage that somebody wrote.
pub(crate) const fn levels(analysis: &SecurityAnalysis) -> Levels {
    Levels { finding: analysis.finding_threshold, flag: analysis.flag_threshold, block: analysis.block_threshold }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_generation_of_the_settings_has_one_plan() {
        let analyser = Analyser::builtin().unwrap();
        let shared = SharedPlans::default();
        let (first, next) = (Arc::new(Settings::default()), Arc::new(Settings::default()));
        let made = shared.of(&analyser, &first);
        assert!(Arc::ptr_eq(&made.all, &shared.of(&analyser, &first).all));
        let after = shared.of(&analyser, &next);
        assert!(!Arc::ptr_eq(&made.all, &after.all));
        assert!(Arc::ptr_eq(&after.of_answers, &shared.of(&analyser, &next).of_answers));
    }
}
