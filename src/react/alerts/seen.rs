//! What a channel is to hear of the spans of a batch: findings of one tenant and type together.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use weir_config::settings::Window;
use weir_config::vocab::{Finding, Timestamp};
use weir_storage::alerts::{AlertKey, Sighting};
use weir_storage::record::SpanRecord;

use super::book::later;
use super::message::Notice;
use super::text::cut;
use crate::anomalies::{self, CONTINUES};
use crate::feed::Batch;
use crate::money::Period;

/// Nobody is told of what is older: it waited for a channel that did not answer, or for alerts to be switched on again.
pub(super) const TOO_OLD: Duration = Duration::from_secs(3_600);
/// An anomaly is over when it did not go on for so long; one in the number of calls sooner, because it is seen sooner.
const ANOMALY_OVER: Duration = Duration::from_secs(300);
const VELOCITY_OVER: Duration = Duration::from_secs(60);
/// Types come from rules and from reported spans; a long one is cut.
const TYPE_CHARACTERS: usize = 100;
const MICROS_PER_SECOND: i64 = 1_000_000;

/// Findings of one tenant and type in a batch.
pub(super) struct Seen {
    pub(super) sighting: Sighting,
    /// What is told of the first one; nothing where all of them go on with what was told of.
    pub(super) notice: Option<Notice>,
}

/// What the channel called `label`, which wants some of the findings, is to hear of, and how many are too old for that.
pub(super) fn look(label: &str, wants: impl Fn(&SpanRecord, &Finding) -> bool, batch: Batch<'_>) -> (Vec<Seen>, u64) {
    let oldest = Timestamp::now().micros() - i64::try_from(TOO_OLD.as_micros()).unwrap_or(i64::MAX);
    let (mut seen, mut expired) = (BTreeMap::new(), 0);
    for &span in batch.spans {
        for (nth, finding) in span.security_findings.iter().enumerate().filter(|(_, finding)| wants(span, finding)) {
            if span.end_time.micros() < oldest {
                expired += 1;
            } else {
                take_in(&mut seen, label, span, (nth, finding));
            }
        }
    }
    seen.values_mut().for_each(|seen| seen.sighting.read_to = batch.end);
    (seen.into_values().collect(), expired)
}

/// What is told together: of several types, those that were first seen in the same call, the worst first, then in the order they were found.
pub(super) fn by_call(due: Vec<Seen>) -> Vec<Vec<Seen>> {
    let mut groups: Vec<Vec<Seen>> = Vec::new();
    for seen in due {
        let place = seen.sighting.place;
        let same = |group: &&mut Vec<Seen>| {
            let first = group.first().map(|first| (first.sighting.key.tenant, first.sighting.place));
            place.is_some() && first == Some((seen.sighting.key.tenant, place))
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(seen),
            None => groups.push(vec![seen]),
        }
    }
    groups.iter_mut().for_each(|group| {
        group.sort_by_key(|seen| (Reverse(seen.sighting.severity), seen.notice.as_ref().map(Notice::place)))
    });
    groups
}

fn take_in(seen: &mut BTreeMap<AlertKey, Seen>, label: &str, span: &SpanRecord, (nth, finding): (usize, &Finding)) {
    let finding_type = cut(&finding.finding_type, TYPE_CHARACTERS);
    let key = AlertKey { tenant: span.tenant_id, channel: label.to_owned(), finding_type };
    let Seen { sighting, notice } = seen.entry(key).or_insert_with_key(|key| Seen {
        sighting: Sighting {
            key: key.clone(),
            findings: Vec::new(),
            severity: finding.severity,
            security_score: 0,
            place: Some((span.trace_id, span.span_id)),
            first_at: span.end_time,
            last_at: span.end_time,
            resolves_at: None,
            read_to: None,
        },
        notice: None,
    });
    sighting.severity = sighting.severity.max(finding.severity);
    sighting.security_score = sighting.security_score.max(span.security_score.unwrap_or_default());
    sighting.last_at = sighting.last_at.max(span.end_time);
    sighting.resolves_at = sighting.resolves_at.max(ends(span, finding));
    // One that goes on with what was told of is no news.
    if finding.metadata.contains_key(CONTINUES) {
        return;
    }
    if notice.is_none() {
        *notice = Some(Notice::of(span, finding).nth(nth));
        (sighting.place, sighting.first_at) = (Some((span.trace_id, span.span_id)), span.end_time);
    }
    sighting.findings.push(finding.id);
}

/// Whether a call was held against the tenant's others.
pub(super) fn is_anomaly(finding: &Finding) -> bool {
    finding.detector == anomalies::DETECTOR
}

/// Whether it says that a budget's soft limit was reached, for which nothing but an alert is there.
pub(super) fn is_soft_cap(finding: &Finding) -> bool {
    finding.detector == "cost_caps" && window(finding).is_some()
}

fn window(finding: &Finding) -> Option<Window> {
    let name = finding.metadata.get("window")?;
    Window::ALL.into_iter().find(|window| window.as_str() == name)
}

/// When what a finding is about is over, where it ends by itself.
fn ends(span: &SpanRecord, finding: &Finding) -> Option<Timestamp> {
    if is_anomaly(finding) {
        let over = if finding.finding_type == "anomaly_velocity" { VELOCITY_OVER } else { ANOMALY_OVER };
        return Some(later(span.end_time, over));
    }
    let window = window(finding).filter(|_| is_soft_cap(finding))?;
    let period = Period::of(window, span.end_time.micros().div_euclid(MICROS_PER_SECOND));
    Some(Timestamp::from_micros(period.end_s.saturating_mul(MICROS_PER_SECOND)))
}
