//! What an analysis does: which detectors run, on which roles of text, and how strict they are. Computed once for each
//! state of the settings and shared by every analysis under it.
//!
//! Invariant: two plans under which a text could be judged differently have different fingerprints, so that nothing that
//! was found clean under one is taken for clean under the other.

use std::hash::Hasher as _;
use std::sync::Arc;
use std::time::Instant;

use siphasher::sip::SipHasher13;
use weir_config::vocab::TenantId;

use crate::detector::{CostClass, Detector};
use crate::detector_set::{DETECTORS_MAX, DetectorSet};
use crate::names::FUSION;
use crate::part::PartKind;
use crate::tuning::{Levels, OperatingPoint, Tuning};

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub struct PlanSettings<'a> {
    /// Names of detectors that do not run.
    pub off: &'a [&'a str],
    /// For all detectors.
    pub point: OperatingPoint,
    /// Thresholds by the name of the detector.
    pub thresholds: &'a [(&'a str, f64)],
    /// What probabilities mean to the detectors that heed it.
    pub levels: Levels,
    /// Shares of one core by the name of the detector, as far as the detector heeds it.
    pub shares: &'a [(&'a str, f64)],
    /// Characters a text must have to be looked at, by the name of the detector, as far as the detector heeds it.
    pub shortest: &'a [(&'a str, usize)],
    /// Models are given so many bytes of the texts of one analysis, from the beginning.
    pub model_text_max: usize,
    /// Personal data is looked for and not reported.
    pub silent_pii: bool,
    /// What all detectors say is weighed together.
    pub fusion: bool,
    /// What the rules say of texts that hold trigger words and no attack is lowered.
    pub over_defence: bool,
    /// Texts of these roles are left to the rules: nothing that has learned looks at them.
    pub rules_only: &'a [PartKind],
    /// What is done about definitions of tools that change.
    pub tool_changes: ToolChanges,
}

/// What is done about a definition of a tool that comes back changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolChanges {
    /// Nothing; none is remembered.
    Off,
    /// What is new is judged by itself, recorded, and known from then on unless it holds an order.
    #[default]
    Record,
    /// Whatever is new is a finding of High, each time it comes.
    Refuse,
}

/// Which detectors run, and at which operating point.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Detectors of [`CostClass::Core`] by role of text, and the others.
    now: [DetectorSet; KINDS],
    later: [DetectorSet; KINDS],
    models: DetectorSet,
    /// Those that are asked only about texts that they let through.
    gated: DetectorSet,
    /// Those that hold a text against its context.
    contextual: DetectorSet,
    all: DetectorSet,
    /// Those that are switched on and not ready.
    absent: DetectorSet,
    tuning: [Tuning; DETECTORS_MAX],
    pub(crate) model_text_max: usize,
    pub(crate) silent_pii: bool,
    pub(crate) over_defence: bool,
    pub(crate) tool_changes: ToolChanges,
    fingerprint: u64,
}

/// One analysis: its plan, and what differs from call to call.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// What is done.
    pub plan: &'a Arc<Plan>,
    /// Whose texts these are: what is remembered of them is remembered for this tenant alone.
    pub tenant: TenantId,
    /// Which of the tenant's agents sends them, where it says so: allow rules may name it.
    pub agent: Option<&'a str>,
    /// Stop looking when this instant has passed; what was found until then is reported.
    pub deadline: Option<Instant>,
}

/// Bits of a role.
const KINDS: usize = 7;

// === impl PlanSettings ===

impl Default for PlanSettings<'_> {
    fn default() -> Self {
        Self {
            off: &[],
            point: OperatingPoint::default(),
            thresholds: &[],
            levels: Levels::default(),
            shares: &[],
            shortest: &[],
            model_text_max: usize::MAX,
            silent_pii: false,
            fusion: false,
            over_defence: false,
            rules_only: &[],
            tool_changes: ToolChanges::default(),
        }
    }
}

// === impl Call ===

impl<'a> Call<'a> {
    /// One of the default tenant that takes the time it takes.
    pub const fn of(plan: &'a Arc<Plan>) -> Self {
        Self { plan, tenant: TenantId::DEFAULT, agent: None, deadline: None }
    }
}

// === impl Plan ===

impl Plan {
    pub(crate) fn new(detectors: &[Arc<dyn Detector>], settings: &PlanSettings<'_>) -> Self {
        let mut plan = Self {
            now: Default::default(),
            later: Default::default(),
            models: DetectorSet::default(),
            gated: DetectorSet::default(),
            contextual: DetectorSet::default(),
            all: DetectorSet::default(),
            absent: DetectorSet::default(),
            tuning: Default::default(),
            model_text_max: settings.model_text_max,
            silent_pii: settings.silent_pii,
            over_defence: settings.over_defence,
            tool_changes: settings.tool_changes,
            fingerprint: 0,
        };
        // A fixed key: the fingerprint is no secret, and what is remembered under it is hashed with one.
        let mut hasher = SipHasher13::new();
        let spared = settings.rules_only.iter().fold(0, |bits, kind| bits | kind.bit());
        if spared != 0 {
            hasher.write_u8(spared);
        }
        if settings.over_defence {
            hasher.write_u8(0xFE);
        }
        hasher.write_u8(settings.tool_changes as u8);
        let is_on = |name| !settings.off.contains(&name) && (settings.fusion || name != FUSION);
        let running = detectors.iter().enumerate().filter(|(_, detector)| is_on(detector.name()));
        for (index, detector) in running {
            if !detector.is_ready() {
                plan.absent |= DetectorSet::only(index);
                continue;
            }
            let threshold = settings.thresholds.iter().find(|(name, _)| *name == detector.name());
            let shortest = settings.shortest.iter().find(|(name, _)| *name == detector.name());
            let share = settings.shares.iter().find(|(name, _)| *name == detector.name());
            let tuning = Tuning {
                point: settings.point,
                threshold: threshold.map(|(_, value)| *value),
                levels: settings.levels,
                shortest: shortest.map_or(0, |(_, value)| *value),
                share: share.map_or(f64::INFINITY, |(_, value)| *value),
            };
            let by_kind = if detector.cost() == CostClass::Core { &mut plan.now } else { &mut plan.later };
            let spared = if detector.is_learned() { spared } else { 0 };
            for (bit, set) in by_kind.iter_mut().enumerate().filter(|(bit, _)| detector.reads().has_bit(*bit)) {
                debug_assert!(bit < KINDS);
                if spared >> bit & 1 == 1 {
                    continue;
                }
                *set |= DetectorSet::only(index);
            }
            plan.all |= DetectorSet::only(index);
            if detector.cost() == CostClass::Model {
                plan.models |= DetectorSet::only(index);
            }
            if detector.is_gated() {
                plan.gated |= DetectorSet::only(index);
            }
            if detector.needs().context {
                plan.contextual |= DetectorSet::only(index);
            }
            if let Some(slot) = plan.tuning.get_mut(index) {
                *slot = tuning;
            }
            hasher.write(detector.name().as_bytes());
            hasher.write_u8(0xFF);
            hasher.write_u64(detector.version());
            hasher.write_u8(tuning.point as u8);
            hasher.write_u64(tuning.threshold.map_or(u64::MAX, f64::to_bits));
            let Levels { finding, flag, block } = tuning.levels;
            for (number, level) in [finding, flag, block].into_iter().enumerate() {
                if let Some(level) = level {
                    hasher.write_usize(number);
                    hasher.write_u64(level.to_bits());
                }
            }
            if tuning.shortest > 0 {
                hasher.write_usize(tuning.shortest);
            }
        }
        if !plan.models.is_empty() {
            hasher.write_usize(settings.model_text_max);
        }
        plan.fingerprint = hasher.finish();
        plan
    }

    /// Tells plans apart under which texts may be judged differently.
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Detectors that are switched on and were not ready when the plan was made.
    pub const fn absent(&self) -> DetectorSet {
        self.absent
    }

    /// Detectors that look at a text of this role at once.
    pub(crate) fn now(&self, kind: PartKind) -> DetectorSet {
        Self::of(&self.now, kind)
    }

    /// Whether the detector of this number looks at a text of this role and may doubt what others say: where few misses are wanted,
    /// none does.
    pub(crate) fn may_doubt(&self, index: usize, kind: PartKind) -> bool {
        self.now(kind).has(index) && self.tuning(index).point != OperatingPoint::HighRecall
    }

    /// Detectors that look at it on the pool.
    pub(crate) fn later(&self, kind: PartKind) -> DetectorSet {
        Self::of(&self.later, kind)
    }

    /// Whether a detector looks at some text.
    pub(crate) const fn runs(&self, index: usize) -> bool {
        self.all.has(index)
    }

    /// Whether all of these look only at texts that they let through.
    pub(crate) const fn is_gated(&self, wanted: DetectorSet) -> bool {
        wanted.without(self.gated).is_empty()
    }

    pub(crate) const fn is_model(&self, index: usize) -> bool {
        self.models.has(index)
    }

    /// Whether such a detector may look at texts of this role.
    pub(crate) fn is_gated_for(&self, kind: PartKind) -> bool {
        !(self.later(kind) & self.gated).is_empty()
    }

    /// Detectors that look only at texts that they let through.
    pub(crate) const fn gated(&self) -> DetectorSet {
        self.gated
    }

    /// Whether one of these detectors holds texts against their context.
    pub(crate) fn wants_context(&self, wanted: DetectorSet) -> bool {
        !(wanted & self.contextual).is_empty()
    }

    pub(crate) fn tuning(&self, index: usize) -> Tuning {
        self.tuning.get(index).copied().unwrap_or_default()
    }

    fn of(sets: &[DetectorSet; KINDS], kind: PartKind) -> DetectorSet {
        sets.get(kind.bit().trailing_zeros() as usize).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Analyser;

    #[test]
    fn a_plan_says_what_runs_and_its_fingerprint_what_may_differ() {
        let analyser = Analyser::whole(Vec::new()).unwrap();
        let print = |settings: PlanSettings<'_>| analyser.plan(&settings).fingerprint();
        let all = PlanSettings::default();
        assert_eq!(print(all), print(all));
        let others = [
            PlanSettings { off: &["jailbreak"], ..all },
            PlanSettings { off: &["pii"], ..all },
            PlanSettings { over_defence: true, ..all },
            PlanSettings { fusion: true, ..all },
            PlanSettings { tool_changes: ToolChanges::Off, ..all },
            PlanSettings { tool_changes: ToolChanges::Refuse, ..all },
            PlanSettings { point: OperatingPoint::HighPrecision, ..all },
            PlanSettings { thresholds: &[("jailbreak", 0.5)], ..all },
            PlanSettings { thresholds: &[("pii", 0.5)], ..all },
        ];
        let mut prints: Vec<u64> = others.into_iter().map(print).chain([print(all)]).collect();
        prints.sort_unstable();
        prints.dedup();
        assert_eq!(prints.len(), others.len() + 1);
        // Without a model nothing depends on how much of a text models see.
        assert_eq!(print(PlanSettings { model_text_max: 1, ..all }), print(all));
        let plan = analyser.plan(&PlanSettings { off: &["pii", crate::EMBEDDED], ..all });
        assert_eq!(analyser.names(plan.now(PartKind::User)).collect::<Vec<_>>(), ["rules", "jailbreak", "secrets"]);
        assert!(plan.later(PartKind::User).is_empty());
    }
}
