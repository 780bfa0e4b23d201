//! What an operator should be told of settings that are in order: which value beats which, and what has no effect.
//!
//! Invariant: nothing is named that somebody has not written down.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::catalogue::{self, Build, Setting};
use crate::load::{Loaded, Origin};
use crate::settings::{PiiAction, RedactAnswers};

impl Loaded {
    /// One sentence each: the entries of the overlay that beat the file, then the settings that have no effect without others; and a
    /// stop that no model can ask for.
    pub fn remarks(&self) -> Vec<String> {
        let idle = self.without_others().chain(self.without_redaction());
        let caps = self.without_caps().into_iter().chain(self.never_soft());
        self.overridden().chain(idle).chain(caps).chain(self.without_model()).chain(self.without_models()).collect()
    }

    /// Budgets and token caps that nothing applies.
    fn without_caps(&self) -> Option<String> {
        let caps = &self.settings.cost_caps;
        let has_any = caps.default_budgets.iter().chain(&caps.tenant_budgets).any(Option::is_some)
            || caps.default_tokens.is_some()
            || !caps.agents.is_empty();
        (has_any && !caps.enabled).then(|| {
            "the caps of `cost_caps` have no effect while `cost_caps.enabled` is false; set that to true, too"
                .to_owned()
        })
    }

    /// Soft limits that a call is refused before.
    fn never_soft(&self) -> Option<String> {
        let caps = &self.settings.cost_caps;
        let of_agents = caps.agents.values().filter_map(|agent| agent.budgets.as_ref()).flatten();
        let mut all = caps.default_budgets.iter().chain(&caps.tenant_budgets).chain(of_agents).flatten();
        all.any(|budget| budget.soft_nano_usd.is_some_and(|soft| soft > budget.hard_nano_usd)).then(|| {
            "a `soft_limit_usd` of `cost_caps` is above the `hard_limit_usd` beside it, so it is never reached; set it to less".to_owned()
        })
    }

    /// Shadows of nothing.
    fn without_redaction(&self) -> impl Iterator<Item = String> + use<> {
        let (settings, off) = (&self.settings, self.settings.pii_redact_answers == RedactAnswers::Off);
        let of_requests = (settings.pii_shadow_mode && settings.pii_action == PiiAction::AlertOnly).then_some(
            "`pii.shadow_mode` has no effect while `pii.action` is `alert_only`; set that to an action that redacts",
        );
        let of_answers = (settings.pii_redact_answers_shadow_mode && off).then_some(
            "`pii.redact_answers_shadow_mode` has no effect while `pii.redact_answers` is `off`; set that to what is to be counted",
        );
        of_requests.into_iter().chain(of_answers).map(str::to_owned)
    }

    /// Switches that do nothing while another one is off.
    fn without_others(&self) -> impl Iterator<Item = String> + use<> {
        let (safety, stream) = (self.settings.output_safety, self.settings.streaming_analysis);
        let advisory = self.settings.llm_advisory_injection_enabled;
        let needs = [
            (
                "llm_advisory_shadow_mode",
                self.settings.llm_advisory_shadow_mode,
                "llm_advisory_injection_enabled",
                advisory,
            ),
            ("output_safety.block_on_critical", safety.block_on_critical, "output_safety.enabled", safety.enabled),
            ("output_safety.toxicity_enabled", self.settings.toxicity.enabled, "output_safety.enabled", safety.enabled),
            (
                "output_safety.hallucination_enabled",
                self.settings.hallucination.enabled,
                "output_safety.enabled",
                safety.enabled,
            ),
            ("streaming_analysis.output_enabled", stream.output_enabled, "streaming_analysis.enabled", stream.enabled),
            ("streaming_analysis.output_enabled", stream.output_enabled, "output_safety.enabled", safety.enabled),
            (
                "streaming_analysis.early_stop_on_critical",
                stream.early_stop_on_critical,
                "streaming_analysis.output_enabled",
                stream.output_enabled,
            ),
            (
                "streaming_analysis.hold_back",
                stream.hold_back,
                "streaming_analysis.early_stop_on_critical",
                stream.early_stop_on_critical || self.settings.blocks_answers(),
            ),
        ];
        let idle = needs.into_iter().filter(|(_, on, _, needed)| *on && !needed);
        idle.map(|(path, _, needed, _)| {
            format!("`{path}` has no effect while `{needed}` is false; set that to true, too")
        })
    }

    /// No toxic answer is stopped where nothing looks for one.
    fn without_model(&self) -> Option<String> {
        let (safety, toxicity) = (self.settings.output_safety, &self.settings.toxicity);
        (safety.enabled && safety.block_on_critical && !toxicity.enabled).then(|| {
            "`output_safety.block_on_critical` stops secrets and what rules find, and no toxic answer while \
             `output_safety.toxicity_enabled` is false; set that to true where toxic answers are to be stopped, too"
                .to_owned()
        })
    }

    /// Features that only a model of the operator's can carry out, without one.
    fn without_models(&self) -> impl Iterator<Item = String> + use<> {
        let settings = &self.settings;
        let analysis = &settings.security_analysis;
        let needs = [
            (
                "output_safety.hallucination_enabled",
                settings.hallucination.enabled && settings.output_safety.enabled,
                "output_safety.hallucination_model",
                settings.hallucination.model.is_some(),
            ),
            (
                "security_analysis.guard_a_enabled",
                analysis.guard_a.enabled,
                "security_analysis.guard_a_model",
                analysis.guard_a.model.is_some(),
            ),
            (
                "security_analysis.guard_b_enabled",
                analysis.guard_b.enabled,
                "security_analysis.guard_b_model",
                analysis.guard_b.model.is_some(),
            ),
            (
                "security_analysis.ner_enabled",
                analysis.ner.enabled,
                "security_analysis.ner_model",
                analysis.ner.model.is_some(),
            ),
        ];
        let inert = needs.into_iter().filter(|(_, on, _, model)| *on && !model);
        inert.map(|(path, _, model, _)| {
            format!(
                "`{path}` has no effect without a model, and `{model}` names none; nothing of the kind comes with Weir"
            )
        })
    }

    /// The value a setting has in effect.
    pub(crate) fn in_effect(&self, setting: &Setting) -> Value {
        self.shown.get(setting.path).cloned().unwrap_or_else(|| setting.default.to_value())
    }

    fn overridden(&self) -> impl Iterator<Item = String> + '_ {
        let overlay = self.overlay_path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        self.overlay.iter().filter_map(move |(flag, value)| {
            let setting = catalogue::by_wire(flag)?;
            let (beneath, origin) = self.beneath.get(flag)?;
            let is_built = matches!(setting.build, Build::Built { .. });
            let wins = self.origins.get(setting.path) == Some(&Origin::Overlay);
            if !is_built || !wins || beneath == value {
                return None;
            }
            let path = setting.path;
            let beaten = match (origin, &self.config_file) {
                (Origin::File, Some(file)) => format!("{beneath} in {}", file.display()),
                _ => format!("the default {beneath}"),
            };
            Some(format!(
                "`{path}` is {value}: the runtime overlay {overlay} wins over {beaten}; to undo it, set the flag `{flag}` to \
                 {beneath} (PUT /api/v1/config/features), or delete its line and restart"
            ))
        })
    }
}

/// The settings this version does not implement, with the feature they belong to.
pub fn not_built() -> BTreeMap<&'static str, &'static str> {
    let missing = |setting: &'static Setting| match setting.build {
        Build::NotBuilt { feature, .. } => Some((setting.path, feature)),
        Build::Built { .. } => None,
    };
    catalogue::settings().filter_map(missing).collect()
}
