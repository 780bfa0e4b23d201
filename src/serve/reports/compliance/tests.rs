//! Reports over histories made up span by span.

use std::collections::BTreeMap;

use uuid::Uuid;
use weir_config::vocab::{Finding, Severity, SpanId, TenantId, Timestamp};

use weir_storage::record::SpanRecord;
use weir_storage::reports::{ReportStatus, ReportType};

use super::*;
use crate::reports::tests::sample_span;

fn plain() -> SpanRecord {
    SpanRecord { span_id: SpanId::fresh(), security_score: Some(0), status_code: Some(200), ..sample_span() }
}

fn with_finding(finding_type: &'static str, severity: Severity, location: &str) -> SpanRecord {
    let finding =
        Finding { location: location.to_owned(), ..Finding::new(finding_type, severity, 0.9, "rules", "as made up") };
    SpanRecord { security_score: Some(severity.score()), security_findings: vec![finding], ..plain() }
}

fn key_created(seq: u64) -> AuditEntry {
    AuditEntry {
        seq,
        timestamp: Timestamp::from_micros(5),
        tenant_id: Some(TenantId::DEFAULT),
        actor: "bootstrap".to_owned(),
        action: "key.create".to_owned(),
        target: None,
        detail: BTreeMap::new(),
        hash: "00".to_owned(),
    }
}

/// Every one but the first is the tenant's own.
fn read(lines: &[AuditEntry]) -> Events {
    Events { lines: lines.to_vec(), places: (0..lines.len() as u64).collect(), truncated: false }
}

fn report(report_type: ReportType, spans: &[SpanRecord], events: &[AuditEntry]) -> Value {
    let record = ReportRecord {
        id: Uuid::nil(),
        tenant_id: TenantId::DEFAULT,
        report_type,
        status: ReportStatus::Pending,
        period_start: Timestamp::from_micros(0),
        period_end: Timestamp::from_micros(9),
        created_at: Timestamp::from_micros(9),
        completed_at: None,
        content: None,
        error: None,
    };
    let mut facts = Facts::default();
    spans.iter().for_each(|span| facts.take(span));
    let (entries, verified_at) = (events.len() as u64, Timestamp::from_micros(0));
    let check = AuditCheck { intact: true, entries, first_bad_seq: None, head: String::new(), verified_at };
    content(&record, &facts, &read(events), &check)
}

fn control<'a>(content: &'a Value, id: &str) -> &'a Value {
    content["controls"].as_array().unwrap().iter().find(|control| control["id"] == id).unwrap()
}

fn gaps(control: &Value) -> Vec<(&str, u64)> {
    let gaps = control["gaps"].as_array().unwrap().iter();
    gaps.map(|gap| (gap["kind"].as_str().unwrap(), gap["count"].as_u64().unwrap())).collect()
}

#[test]
fn an_empty_history_has_gaps_where_records_are_needed() {
    let soc2 = report(ReportType::Soc2, &[], &[]);
    assert_eq!(soc2["records"]["spans"], 0);
    assert_eq!(gaps(control(&soc2, "CC6.1")), [("no_events", 0)]);
    assert_eq!(gaps(control(&soc2, "CC7.2")), [("no_records", 0)]);
    assert_eq!(control(&soc2, "CC6.6")["status"], "nothing_recorded");
}

#[test]
fn a_severe_finding_is_a_gap_unless_it_was_acted_on() {
    let attack = with_finding("prompt_injection", Severity::High, "request.messages[0].content");
    let blocked = SpanRecord { enforcement: "blocked".into(), span_id: SpanId::fresh(), ..attack.clone() };
    let soc2 = report(ReportType::Soc2, &[plain(), attack.clone(), blocked.clone()], &[key_created(4), key_created(9)]);
    let boundary = control(&soc2, "CC6.6");
    assert_eq!(gaps(boundary), [("severe_forwarded", 1)]);
    assert_eq!(boundary["gaps"][0]["record_ids"][0]["span_id"], attack.span_id.to_string());
    assert_eq!((boundary["status"].as_str(), boundary["records"][0]["count"].as_u64()), (Some("gaps"), Some(2)));
    let access = control(&soc2, "CC6.1");
    let places = [0, 1].map(|at| access["audit_events"][at]["place"].as_u64());
    assert_eq!((access["status"].as_str(), places), (Some("evidence"), [None, Some(1)]));
    let event = access["audit_events"][1].as_object().unwrap();
    let telling = ["seq", "hash"].map(|field| event.contains_key(field));
    assert_eq!(telling, [false, false], "how long the log is does not show");
    let acted = report(ReportType::Soc2, &[plain(), blocked], &[]);
    assert_eq!(control(&acted, "CC6.6")["status"], "evidence");
}

#[test]
fn personal_data_counts_by_the_direction_it_went() {
    let sent = with_finding("pii_detected", Severity::Medium, "request.messages[1].content");
    let received = with_finding("pii_detected", Severity::Medium, "response.choices[0]");
    let gdpr = report(ReportType::Gdpr, &[sent.clone(), received.clone()], &[]);
    assert_eq!(control(&gdpr, "Art. 5(1)(c)")["records"][0]["record_ids"][0]["span_id"], sent.span_id.to_string());
    let breach = control(&gdpr, "Art. 33");
    assert_eq!(breach["record_count"], 1);
    assert_eq!(breach["records"][0]["record_ids"][0]["span_id"], received.span_id.to_string());
    let hipaa = report(ReportType::Hipaa, &[sent], &[]);
    assert_eq!(gaps(control(&hipaa, "164.312(e)(1)")), [("pii_sent", 1)]);
    assert_eq!(control(&hipaa, "164.308(a)(6)(ii)")["status"], "nothing_recorded");
}

#[test]
fn what_was_not_analysed_is_a_gap_of_monitoring() {
    let tags = BTreeMap::from([("pipeline_dropped".into(), "true".to_owned())]);
    let dropped = SpanRecord { security_score: None, tags, ..plain() };
    let soc2 = report(ReportType::Soc2, &[plain(), dropped], &[]);
    assert_eq!(gaps(control(&soc2, "CC7.2")), [("not_analysed", 1)]);
    assert_eq!(control(&soc2, "CC7.2")["records"][0]["count"], 1);
}

#[test]
fn failures_of_the_provider_and_refusals_are_told_apart() {
    let by_provider =
        |status, error: &str| SpanRecord { status_code: Some(status), error_type: Some(error.to_owned()), ..plain() };
    let by_us = |status, error: &str| {
        let tags = BTreeMap::from([("answered_by".into(), "weir".to_owned())]);
        SpanRecord { tags, ..by_provider(status, error) }
    };
    let spans = [
        by_us(401, "authentication_error"),
        by_us(429, "rate_limit_exceeded"),
        by_us(504, "upstream_timeout"),
        by_us(400, "invalid_request"),
        by_us(405, "method_not_allowed"),
        by_us(508, "loop_detected"),
        by_us(500, "internal_error"),
        SpanRecord { status_code: Some(529), ..plain() },
        by_provider(401, "authentication_error"),
        by_provider(429, "rate_limit_exceeded"),
    ];
    let soc2 = report(ReportType::Soc2, &spans, &[]);
    assert_eq!(gaps(control(&soc2, "A1.2")), [("provider_failed", 2), ("overloaded", 1)]);
    assert_eq!(control(&soc2, "CC6.1")["records"][0]["count"], 1);
    let mut facts = Facts::default();
    spans.iter().for_each(|span| facts.take(span));
    assert_eq!(facts.count(Kind::Forwarded), 2, "what the provider refused, it answered");
}

#[test]
fn a_report_says_of_the_log_only_whether_it_is_intact() {
    let soc2 = report(ReportType::Soc2, &[plain()], &[key_created(1)]);
    assert_eq!(soc2["audit_log"], json!({"intact": true, "verified_at": Timestamp::from_micros(0)}));
    assert_eq!((&soc2["audit_events_read"], &soc2["audit_events_truncated"]), (&json!(1), &json!(false)));
}

#[test]
fn ids_and_names_are_bounded_and_counts_are_not() {
    let spans: Vec<SpanRecord> =
        (0..300).map(|at| SpanRecord { model: Some(format!("model-{at}")), ..plain() }).collect();
    let gdpr = report(ReportType::Gdpr, &spans, &[]);
    let recorded = &control(&gdpr, "Art. 30")["records"][0];
    assert_eq!((recorded["count"].as_u64(), recorded["record_ids"].as_array().unwrap().len()), (Some(300), 50));
    let models = gdpr["records"]["models"].as_object().unwrap();
    assert_eq!((models.len(), models["other"].as_u64()), (101, Some(200)));
}

#[test]
fn a_broken_audit_log_is_a_gap() {
    let mut facts = Facts::default();
    facts.take(&plain());
    let verified_at = Timestamp::from_micros(0);
    let check = AuditCheck { intact: false, entries: 3, first_bad_seq: Some(2), head: String::new(), verified_at };
    let hipaa = section(
        controls::of(ReportType::Hipaa).iter().find(|control| control.id == "164.312(b)").unwrap(),
        &facts,
        &read(&[key_created(1)]),
        &check,
    );
    assert_eq!(gaps(&hipaa), [("audit_log_altered", 1)]);
    assert_eq!(hipaa["audit_event_count"], 1, "every event is evidence of audit controls");
}
