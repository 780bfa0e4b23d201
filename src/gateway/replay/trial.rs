//! A change that is to be tried on recorded calls: what may be asked for, and the settings and rules it comes to.
//!
//! Invariant: rules of a change are read as an operator's are, with the same bounds, and tried on their own examples before a call is
//! looked at.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_config::Settings;
use weir_config::settings::{EnforcementMode, OperatingPoint};
use weir_config::vocab::{Severity, Timestamp};
use weir_inference::{Analyser, OperatorRules};
use weir_storage::query::{Facets, SpanFilter};

/// Most calls of one replay, and how many where no number is named.
const CALLS_MAX: u32 = 100_000;
const CALLS_DEFAULT: u32 = 10_000;
/// Longest text of rules, in bytes.
const RULES_BYTES_MAX: usize = 128 << 10;
/// Most rules that are left out, and the longest name of one, in bytes.
const WITHOUT_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 64;
/// Longest text of a filter, in bytes.
const FILTER_BYTES_MAX: usize = 1_024;

/// A replay: over which calls, and with which change.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayRequest {
    /// Calls that began at this time or later; left out, since the first.
    #[serde(default)]
    pub(crate) start_time: Option<Timestamp>,
    /// Calls that began at this time or earlier; left out, until now.
    #[serde(default)]
    pub(crate) end_time: Option<Timestamp>,
    /// At most so many calls, the newest first; left out, 10,000.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100_000))]
    pub(crate) limit: Option<u32>,
    /// Calls in which a finding of this type was made.
    #[serde(default)]
    pub(crate) finding_type: Option<String>,
    /// Calls of this agent.
    #[serde(default)]
    pub(crate) agent_id: Option<String>,
    /// Calls of this model.
    #[serde(default)]
    pub(crate) model: Option<String>,
    /// Rules and allow rules in the form of a rule file (YAML), up to 131,072 bytes. They come on top of those of
    /// `security_analysis.rules_dir`; one of the same `id` takes that one's place.
    #[serde(default)]
    pub(crate) rules: Option<String>,
    /// Rules and allow rules of `security_analysis.rules_dir` to be left out, by `id`, up to 64.
    #[serde(default)]
    pub(crate) without: Vec<String>,
    /// Settings that would be different.
    #[serde(default)]
    pub(crate) settings: SettingsChange,
    /// What the change is compared with.
    #[serde(default)]
    pub(crate) against: Against,
}

/// Settings that would be different; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingsChange {
    /// `security_analysis.operating_point`.
    #[serde(default)]
    operating_point: Option<Point>,
    /// `security_analysis.ml_threshold`.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    ml_threshold: Option<f64>,
    /// `security_analysis.jailbreak_threshold`.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    jailbreak_threshold: Option<f64>,
    /// `security_analysis.finding_threshold`.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    finding_threshold: Option<f64>,
    /// `security_analysis.flag_threshold`.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    flag_threshold: Option<f64>,
    /// `security_analysis.block_threshold`.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    block_threshold: Option<f64>,
    /// `enforcement.mode`.
    #[serde(default)]
    enforcement_mode: Option<Mode>,
    /// `enforcement.min_severity`.
    #[serde(default)]
    enforcement_min_severity: Option<Severity>,
    /// `enforcement.min_confidence`.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    enforcement_min_confidence: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Point {
    Balanced,
    HighRecall,
    HighPrecision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Log,
    Flag,
    Block,
}

/// What a change is compared with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Against {
    /// What the settings and rules in force find in the same records: each call is looked at twice.
    #[default]
    Current,
    /// What was found when the calls were made, under the settings, rules and version of that time.
    Record,
}

/// A change that can be tried: settings and rules.
pub(crate) struct Trial {
    pub(crate) settings: Settings,
    rules: Option<Arc<OperatorRules>>,
}

impl ReplayRequest {
    /// At most so many calls.
    pub(crate) fn calls_max(&self) -> u64 {
        u64::from(self.limit.unwrap_or(CALLS_DEFAULT))
    }

    /// Which calls; none that begins after `now`.
    pub(crate) fn filter(&self, now: Timestamp) -> SpanFilter {
        let facets =
            Facets { agent_id: self.agent_id.clone(), finding_type: self.finding_type.clone(), ..Facets::default() };
        SpanFilter {
            start_time: self.start_time,
            end_time: Some(self.end_time.unwrap_or(now).min(now)),
            model: self.model.clone(),
            facets,
            ..SpanFilter::default()
        }
    }

    fn changes_rules(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| !rules.trim().is_empty()) || !self.without.is_empty()
    }

    /// What is wrong with it as such.
    fn fault(&self) -> Option<String> {
        let settings = &self.settings;
        if self.limit.is_some_and(|limit| !(1..=CALLS_MAX).contains(&limit)) {
            return Some(format!("`limit`: 1 to {CALLS_MAX} are accepted"));
        }
        if let (Some(start), Some(end)) = (self.start_time, self.end_time)
            && end <= start
        {
            return Some("`end_time` must be after `start_time`".to_owned());
        }
        for (name, text) in [("finding_type", &self.finding_type), ("agent_id", &self.agent_id), ("model", &self.model)]
        {
            if text.as_ref().is_some_and(|text| text.is_empty() || text.len() > FILTER_BYTES_MAX) {
                return Some(format!("`{name}`: 1 to {FILTER_BYTES_MAX} bytes are accepted; leave it out for all"));
            }
        }
        if self.rules.as_ref().is_some_and(|rules| rules.len() > RULES_BYTES_MAX) {
            return Some(format!("`rules` has more than {RULES_BYTES_MAX} bytes; try fewer rules at a time"));
        }
        if self.without.len() > WITHOUT_MAX || self.without.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            return Some(format!("`without`: up to {WITHOUT_MAX} names of up to {NAME_BYTES_MAX} bytes are accepted"));
        }
        for (name, value) in [
            ("ml_threshold", settings.ml_threshold),
            ("jailbreak_threshold", settings.jailbreak_threshold),
            ("finding_threshold", settings.finding_threshold),
            ("flag_threshold", settings.flag_threshold),
            ("block_threshold", settings.block_threshold),
            ("enforcement_min_confidence", settings.enforcement_min_confidence),
        ] {
            if value.is_some_and(|value| !(0.0..=1.0).contains(&value)) {
                return Some(format!("`settings.{name}`: 0.0 to 1.0 are accepted"));
            }
        }
        let is_change = self.changes_rules() || *settings != SettingsChange::default();
        (!is_change && self.against == Against::Current).then(|| {
            "nothing is changed, so nothing could be different; name `rules`, `without` or `settings`, or compare with \
             the record (`\"against\": \"record\"`)"
                .to_owned()
        })
    }
}

impl Trial {
    /// What `request` comes to, where `settings` and the rules of `analyser` are in force.
    pub(crate) fn new(request: &ReplayRequest, settings: &Settings, analyser: &Analyser) -> Result<Self, String> {
        if let Some(fault) = request.fault() {
            return Err(fault);
        }
        let current = analyser.operator();
        let rules = if request.changes_rules() {
            let text = request.rules.as_deref().unwrap_or_default();
            let changed = OperatorRules::changed(current.map(|rules| &**rules), text, &request.without);
            Some(Arc::new(changed.map_err(|error| format!("`rules`: {error}"))?))
        } else {
            current.cloned()
        };
        let settings = request.settings.applied(settings);
        in_order(&settings)?;
        Ok(Self { settings, rules })
    }

    /// Looks with the rules of the change.
    pub(crate) fn analyser(&self, current: &Analyser) -> Result<Analyser, String> {
        beside(current, self.rules.clone())
    }
}

/// The thresholds of the second stage ascend, as they must in the configuration.
fn in_order(settings: &Settings) -> Result<(), String> {
    let analysis = &settings.security_analysis;
    let written = [
        ("finding_threshold", analysis.finding_threshold),
        ("flag_threshold", analysis.flag_threshold),
        ("block_threshold", analysis.block_threshold),
    ];
    let written: Vec<(&str, f64)> = written.into_iter().filter_map(|(name, level)| Some((name, level?))).collect();
    for pair in written.array_windows() {
        let [(before, least), (name, level)] = *pair;
        if level < least {
            return Err(format!(
                "`settings.{name}` would be {level}, below `{before}`, {least}: name one that is {least} or more"
            ));
        }
    }
    Ok(())
}

/// An analyser of its own with these rules, which remembers nothing.
pub(super) fn beside(current: &Analyser, rules: Option<Arc<OperatorRules>>) -> Result<Analyser, String> {
    let made = current.beside(rules).map_err(|error| error.to_string())?;
    Ok(made.without_memory())
}

impl SettingsChange {
    fn applied(&self, settings: &Settings) -> Settings {
        let mut changed = settings.clone();
        let analysis = &mut changed.security_analysis;
        if let Some(point) = self.operating_point {
            analysis.operating_point = match point {
                Point::Balanced => OperatingPoint::Balanced,
                Point::HighRecall => OperatingPoint::HighRecall,
                Point::HighPrecision => OperatingPoint::HighPrecision,
            };
        }
        analysis.ml_threshold = self.ml_threshold.or(analysis.ml_threshold);
        analysis.jailbreak_threshold = self.jailbreak_threshold.or(analysis.jailbreak_threshold);
        analysis.finding_threshold = self.finding_threshold.or(analysis.finding_threshold);
        analysis.flag_threshold = self.flag_threshold.or(analysis.flag_threshold);
        analysis.block_threshold = self.block_threshold.or(analysis.block_threshold);
        let enforcement = &mut changed.enforcement;
        if let Some(mode) = self.enforcement_mode {
            enforcement.mode = match mode {
                Mode::Log => EnforcementMode::Log,
                Mode::Flag => EnforcementMode::Flag,
                Mode::Block => EnforcementMode::Block,
            };
        }
        enforcement.min_severity = self.enforcement_min_severity.unwrap_or(enforcement.min_severity);
        enforcement.min_confidence = self.enforcement_min_confidence.unwrap_or(enforcement.min_confidence);
        changed
    }
}
