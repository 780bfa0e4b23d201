//! What stands in a compliance report: per control the records that bear on it, their number, the gaps, and the
//! administrative events.
//!
//! A report is a pure function of the spans and audit lines it was fed: `Facts` sorts each span into the `Kind`s of
//! evidence it is, `controls` says which kinds and events speak to which control. Memory is bounded: counts are kept for
//! all records, ids for the first few of each kind. A report shows what was recorded; whether that satisfies an auditor
//! is the auditor's to say.

mod controls;
mod facts;

use serde_json::{Value, json};

use weir_storage::audit::{AuditCheck, AuditEntry};
use weir_storage::reports::{Events, ReportRecord};

use controls::Control;
pub(super) use facts::Facts;
use facts::Kind;

/// Events listed per control at most; all are counted.
const EVENTS_MAX: usize = 100;

/// The report's content. Of the audit log as a whole it says only whether it is intact: its length and its end are the
/// service's, not the tenant's.
pub(super) fn content(report: &ReportRecord, facts: &Facts, events: &Events, check: &AuditCheck) -> Value {
    let controls: Vec<Value> =
        controls::of(report.report_type).iter().map(|control| section(control, facts, events, check)).collect();
    let with_gaps = controls.iter().filter(|control| control["status"] == "gaps").count();
    json!({
        "report_type": report.report_type,
        "period_start": report.period_start,
        "period_end": report.period_end,
        "records": facts.overview(),
        "audit_log": {"intact": check.intact, "verified_at": check.verified_at},
        "audit_events_read": events.lines.len(),
        "audit_events_truncated": events.truncated,
        "controls_total": controls.len(),
        "controls_with_gaps": with_gaps,
        "controls": controls,
    })
}

/// An event as the report shows it: under its place in the tenant's own log. Its position in the log of all would tell how much
/// is administered for others, and so would its hash: the position is the only part of it that would have to be guessed.
fn shown(line: &AuditEntry, place: u64) -> Value {
    json!({
        "place": (place > 0).then_some(place),
        "timestamp": line.timestamp,
        "tenant_id": line.tenant_id,
        "actor": line.actor,
        "action": line.action,
        "target": line.target,
        "detail": line.detail,
    })
}

fn section(control: &Control, facts: &Facts, events: &Events, check: &AuditCheck) -> Value {
    let concerning =
        |(line, _): &(&AuditEntry, &u64)| control.events.iter().any(|prefix| line.action.starts_with(prefix));
    let placed = || events.lines.iter().zip(&events.places).filter(concerning);
    let event_count = placed().count();
    let listed: Vec<Value> = placed().take(EVENTS_MAX).map(|(line, place)| shown(line, *place)).collect();
    let records: Vec<Value> = control.records.iter().map(|kind| facts.shown(*kind)).collect();
    let record_count: u64 = control.records.iter().map(|kind| facts.count(*kind)).sum();
    let mut gaps: Vec<Value> =
        control.gaps.iter().filter(|kind| facts.count(**kind) > 0).map(|kind| facts.shown(*kind)).collect();
    if control.needs_events && event_count == 0 {
        gaps.push(json!({
            "kind": "no_events",
            "description": "no administrative event of this control was recorded in the period",
            "count": 0,
            "record_ids": [],
        }));
    }
    if control.needs_chain && !check.intact {
        gaps.push(json!({
            "kind": "audit_log_altered",
            "description": "the chain of the audit log is broken: a line was altered, removed or put in",
            "count": 1,
            "record_ids": [],
        }));
    }
    if control.needs_records && facts.count(Kind::Recorded) == 0 {
        gaps.push(json!({
            "kind": "no_records",
            "description": "no exchange was recorded in the period",
            "count": 0,
            "record_ids": [],
        }));
    }
    let status = match (gaps.is_empty(), record_count > 0 || event_count > 0) {
        (false, _) => "gaps",
        (true, true) => "evidence",
        (true, false) => "nothing_recorded",
    };
    json!({
        "id": control.id,
        "title": control.title,
        "status": status,
        "record_count": record_count,
        "records": records,
        "gaps": gaps,
        "audit_event_count": event_count,
        "audit_events": listed,
    })
}

#[cfg(test)]
mod tests;
