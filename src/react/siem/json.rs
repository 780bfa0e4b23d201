//! The same as JSON: OCSF 1.3 (Detection Finding 2004, API Activity 6003) and ECS 8. Characters beyond ASCII are escaped, so that a message
//! is text in every encoding.

use serde_json::{Map, Value, json};
use weir_config::vocab::Severity;

use super::event::{Event, Kind};

/// The classes of OCSF: category, class, activity.
const DETECTION_FINDING: (u64, u64, u64) = (2, 2_004, 1);
const API_ACTIVITY: (u64, u64, u64) = (6, 6_003, 99);

/// OCSF.
pub(super) fn ocsf(event: &Event) -> String {
    let (category, class, activity) = if event.kind == Kind::Finding { DETECTION_FINDING } else { API_ACTIVITY };
    let mut record = json!({
        "category_uid": category,
        "class_uid": class,
        "activity_id": activity,
        "type_uid": class * 100 + activity,
        "time": event.at.micros() / 1_000,
        "severity_id": severity_id(event.severity),
        "severity": event.severity.as_str(),
        "message": event.says,
        "status_id": if event.kind == Kind::Refusal { 2 } else { 1 },
        "metadata": {
            "version": "1.3.0",
            "uid": event.id,
            "event_code": event.name,
            "product": {"name": "Weir", "vendor_name": "Weir", "version": env!("CARGO_PKG_VERSION")},
        },
        "unmapped": unmapped(event),
    });
    let more = match event.kind {
        Kind::Finding => json!({
            "finding_info": {"uid": event.id, "title": event.name, "desc": event.says, "types": [event.name], "created_time": event.at.micros() / 1_000},
            "confidence_score": event.confidence.map(|confidence| (confidence * 100.0).round() as u64),
            "disposition_id": if event.is_blocked { 2 } else { 15 },
            "evidences": event.evidence.as_ref().map(|evidence| json!([{"data": {"text": evidence}}])),
        }),
        Kind::Refusal | Kind::Audit => json!({
            "api": {"operation": event.name, "response": {"code": event.status}},
            "resources": event.target.as_ref().map(|target| json!([{"uid": target}])),
            "disposition_id": if event.is_blocked { 2 } else { 1 },
        }),
    };
    join(&mut record, more);
    join(
        &mut record,
        json!({
            "actor": event.actor.as_ref().map(|actor| json!({"user": {"uid": actor}})),
            "src_endpoint": event.source.as_ref().map(|source| json!({"ip": source})),
        }),
    );
    ascii(&record)
}

/// ECS.
pub(super) fn ecs(event: &Event) -> String {
    let (kind, category) = match event.kind {
        Kind::Finding => ("alert", "intrusion_detection"),
        Kind::Refusal => ("event", "network"),
        Kind::Audit => ("event", "configuration"),
    };
    let mut record = json!({
        "@timestamp": event.at,
        "ecs": {"version": "8.17.0"},
        "message": event.says,
        "event": {
            "kind": kind,
            "category": [category],
            "type": [match (event.kind, event.is_blocked) { (Kind::Audit, _) => "change", (_, true) => "denied", (_, false) => "info" }],
            "action": event.name,
            "id": event.id,
            "module": "weir",
            "dataset": format!("weir.{}", event.kind.as_str()),
            "severity": event.severity.score(),
            "outcome": if event.kind == Kind::Refusal { "failure" } else { "success" },
        },
        "log": {"level": event.severity.as_str().to_ascii_lowercase()},
        "observer": {"vendor": "Weir", "product": "Weir", "version": env!("CARGO_PKG_VERSION")},
        "weir": unmapped(event),
    });
    let id = |id: &Option<String>| id.as_ref().map(|id| json!({"id": id}));
    join(
        &mut record,
        json!({
            "rule": event.rule.as_ref().map(|rule| json!({"id": rule, "name": event.name})),
            "source": event.source.as_ref().map(|source| json!({"ip": source})),
            "user": id(&event.actor),
            "trace": id(&event.trace),
            "span": id(&event.span),
            "organization": id(&event.tenant),
            "http": event.status.map(|status| json!({"response": {"status_code": status}})),
        }),
    );
    ascii(&record)
}

/// What neither schema has a place for.
fn unmapped(event: &Event) -> Value {
    let mut fields = json!({});
    join(
        &mut fields,
        json!({
            "kind": event.kind.as_str(),
            "tenant_id": event.tenant,
            "trace_id": event.trace,
            "span_id": event.span,
            "provider": event.provider,
            "model": event.model,
            "session_id": event.session,
            "detector": event.detector,
            "rule": event.rule,
            "location": event.location,
            "evidence": event.evidence,
            "confidence": event.confidence,
            "security_score": event.score,
            "target": event.target,
            "detail": (!event.detail.is_empty()).then_some(&event.detail),
        }),
    );
    fields
}

/// Puts the fields of one object that are not null into another one.
fn join(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        let set: Map<String, Value> = more.into_iter().filter(|(_, value)| !value.is_null()).collect();
        into.extend(set);
    }
}

fn severity_id(severity: Severity) -> u64 {
    match severity {
        Severity::Info => 1,
        Severity::Low => 2,
        Severity::Medium => 3,
        Severity::High => 4,
        Severity::Critical => 5,
    }
}

/// In one line of ASCII.
fn ascii(record: &Value) -> String {
    use std::fmt::Write as _;
    let text = record.to_string();
    if text.is_ascii() {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + text.len() / 2);
    let mut units = [0; 2];
    for c in text.chars() {
        if c.is_ascii() {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut units) {
            // Writing to a string cannot fail.
            let _infallible = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}
