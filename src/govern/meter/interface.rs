//! The families the interface promises, whether or not their feature runs: each is announced with help and type at every
//! scrape, so that dashboards and alerts find it before its first sample.
//!
//! Invariant: names, types and order are the contract's. A gauge without labels shows 0 until somebody sets it; a family
//! with labels has no sample until its first event. Knows no values.

use std::collections::BTreeSet;

use super::names::{self, Family};

/// Type of a family, as `# TYPE` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Rises and falls; `true` when it has no labels.
    Gauge(bool),
    /// Buckets, sum and count.
    Histogram,
}

use Kind::{Counter, Gauge, Histogram};

/// Every family of the contract.
pub const INTERFACE: [(Family, Kind); 31] = [
    (names::REQUESTS, Counter),
    (names::REQUEST_DURATION, Histogram),
    (names::TOKENS, Counter),
    (names::FINDINGS, Counter),
    (names::DETECTOR_LATENCY, Histogram),
    (names::BREAKER_STATE, Gauge(false)),
    (names::STORAGE_OPERATIONS, Counter),
    (names::COST, Counter),
    (names::ANOMALIES, Counter),
    (names::ACTIVE_CONNECTIONS, Gauge(true)),
    (names::DEFENCE_APPLIED, Counter),
    (names::DEFENCE_WRAPPED, Histogram),
    (names::DEFENCE_REMINDERS, Counter),
    (names::DEFENCE_BYTES, Histogram),
    (names::DEFENCE_ERRORS, Counter),
    (names::DEFENCE_SKIPPED, Counter),
    (names::DEFENCE_SHADOW, Gauge(true)),
    (names::JUDGE_REQUESTS, Counter),
    (names::JUDGE_LATENCY, Histogram),
    (names::JUDGE_TOKENS, Counter),
    (names::JUDGE_VERDICTS, Counter),
    (names::JUDGE_QUEUE_DEPTH, Gauge(true)),
    (names::JUDGE_AGREEMENT, Counter),
    (names::JUDGE_DROPPED, Counter),
    (names::JUDGE_HELD, Counter),
    (names::JUDGE_SHADOW, Counter),
    (names::GOLDEN_ALIGNMENT, Gauge(false)),
    (names::GOLDEN_FALSE_POSITIVES, Gauge(false)),
    (names::GOLDEN_REPLAYED, Gauge(false)),
    (names::ACTIONS, Counter),
    (names::BUILD_INFO, Gauge(false)),
];

/// The gauges without labels, which show 0 until somebody sets them.
pub(super) fn bare_gauges() -> impl Iterator<Item = Family> {
    INTERFACE.iter().filter(|(_, kind)| *kind == Gauge(true)).map(|(family, _)| *family)
}

/// Announces the families that `text`, a whole exposition, has no sample of.
pub(super) fn announce_rest(text: &mut String) {
    let there: BTreeSet<String> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned)).collect();
    for (Family { name, help }, kind) in INTERFACE.iter().filter(|(family, _)| !there.contains(family.name)) {
        let (word, value) = match kind {
            Counter => ("counter", None),
            Gauge(bare) => ("gauge", bare.then_some(0)),
            Histogram => ("histogram", None),
        };
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {word}\n"));
        if let Some(value) = value {
            text.push_str(&format!("{name} {value}\n"));
        }
    }
}
