//! Bodies that do not fit, and writes that the store does not take.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_storage::NotWritten;

use super::fake::{Fake, TRACE, World, json_of, refusal, request};

fn world() -> World {
    World::over(Arc::new(Fake::holding(Vec::new())))
}

fn actions() -> String {
    format!("/api/v1/traces/{TRACE}/actions")
}

#[track_caller]
fn refused(target: &str, body: &Value) -> String {
    let (status, answer) = world().post(target, body);
    assert_eq!((status, &answer["error"]["type"]), (400, &json!("invalid_request")), "{body}: {answer}");
    answer["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn a_body_that_does_not_fit_is_refused_with_field_value_and_what_is_accepted() {
    let action = |name: &str, value: Value| {
        let mut body = json!({"action_type": "tool_call", "name": "x"});
        body[name] = value;
        refused(&actions(), &body)
    };
    for (name, value, said) in [
        ("action_type", json!("dance"), vec!["`action_type`", "`dance`", "`command_execution`"]),
        ("nmae", json!("x"), vec!["`nmae`", "unknown field", "`arguments`"]),
        ("success", json!("yes"), vec!["`success`", "\"yes\"", "boolean"]),
        ("exit_code", json!(1.5), vec!["`exit_code`", "1.5", "i32"]),
        ("timestamp", json!("today"), vec!["`timestamp`", "today"]),
        ("span_id", json!("1"), vec!["`span_id`", "UUID"]),
        ("name", json!(" "), vec!["`name`", "4096"]),
        ("duration_ms", json!(-1), vec!["`duration_ms`", "at least 0"]),
        ("http_status", json!(42), vec!["`http_status`", "100 to 599"]),
        ("http_method", json!("X".repeat(65)), vec!["`http_method`", "64"]),
        ("metadata", json!([]), vec!["`metadata`", "map"]),
        ("metadata", json!({"a": "x".repeat(65_536)}), vec!["`metadata`", "65537 bytes", "at most 65536"]),
        ("arguments", json!("x".repeat(65_537)), vec!["`arguments`", "65537 bytes", "at most 65536"]),
    ] {
        let message = action(name, value);
        assert!(said.iter().all(|part| message.contains(part)), "{name}: {message}");
    }
    assert!(refused(&actions(), &json!({"name": "x"})).contains("`action_type`"));
    assert!(refused(&actions(), &json!([])).contains("the body"));
    let none = refused("/api/v1/reports/generate", &json!({}));
    assert_eq!(none, "the fields `report_type`, `period_start`, `period_end` are missing");
    let one =
        refused("/api/v1/reports/generate", &json!({"report_type": "soc2", "period_end": "2026-02-01T00:00:00Z"}));
    assert_eq!(one, "the field `period_start` is missing");
    let report =
        |kind: &str, start: &str, end: &str| json!({"report_type": kind, "period_start": start, "period_end": end});
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    assert!(refused("/api/v1/reports/generate", &report("pci", early, late)).contains("`soc2`"));
    for (start, end) in [(late, early), (early, early)] {
        let message = refused("/api/v1/reports/generate", &report("soc2", start, end));
        assert_eq!(message, "`period_end` must be after `period_start`");
    }
}

#[test]
fn what_is_not_json_is_refused_before_it_is_read() {
    let ask = |content_type: &[(&str, &str)], body: &'static [u8]| {
        let request = request("POST", &actions(), content_type).map(|_| Bytes::from_static(body));
        json_of(&world().run(|handle| async move { handle.call(request).await.unwrap() }))
    };
    let unsupported = "the body must be JSON; send it with `Content-Type: application/json`";
    for content_type in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "json"]
    {
        let answer = ask(&[("content-type", content_type)], b"{}");
        assert_eq!(answer, (415, refusal("unsupported_media_type", unsupported)), "{content_type}");
    }
    for content_type in ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"] {
        assert_eq!(ask(&[("content-type", content_type)], b"{}").0, 400, "{content_type}");
    }
    for body in [&b""[..], b"{", b"nonsense", b"\xff\xfe", b"{}{}"] {
        assert_eq!(ask(&[], body).0, 400, "{body:?}");
    }
}

#[test]
fn what_the_store_does_not_take_has_a_status_of_its_own() {
    let body = json!({"action_type": "tool_call", "name": "x"});
    for (error, status, kind) in [
        (NotWritten::Busy { waiting: 9 }, 503, "api_saturated"),
        (NotWritten::TimedOut { limit_ms: 5 }, 503, "storage_timeout"),
        (NotWritten::Unavailable { reason: "disk I/O error".to_owned() }, 503, "storage_unavailable"),
        (NotWritten::Closed, 503, "shutting_down"),
        (NotWritten::TooMany { waiting: 10 }, 429, "rate_limit_exceeded"),
        (NotWritten::Refused { reason: "too large".to_owned() }, 400, "invalid_request"),
    ] {
        let fake = Fake::holding(Vec::new());
        *fake.unwritten.lock() = Some(error.clone());
        let (found, answer) = World::over(Arc::new(fake)).post(&actions(), &body);
        assert_eq!((found, &answer["error"]["type"]), (status, &json!(kind)), "{error}");
        assert!(!answer.to_string().contains("disk I/O"), "{answer}");
    }
}
