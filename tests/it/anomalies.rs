//! Promise: a call far above what its tenant's calls are like is recorded with a finding, counted, and told once an episode; other
//! tenants' calls are not held against it.

use serde_json::{Value, json};
use weir_fake_provider::http::Request;
use weir_fake_provider::provider::Answer;
use weir_fake_provider::server::{Options, ServerHandle, StdServer};

use crate::support::{Answer as Reply, Call, Gateway, Setup, Upstream, call, eventually, on_both_drivers_in_full};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const TENANT: &str = "9a3b1c52-0d5e-4a57-9a36-6d2f0a1b7c11";

/// A model that says how many tokens it took: as many as it was asked to.
pub(crate) fn model() -> ServerHandle {
    let responder = |request: &Request| {
        let asked: Value = serde_json::from_slice(&request.body).unwrap();
        let tokens: u64 =
            asked["messages"][0]["content"].as_str().unwrap().trim_start_matches("Take ").parse().unwrap();
        let usage = json!({ "prompt_tokens": tokens, "completion_tokens": 10, "total_tokens": tokens + 10 });
        let choice =
            json!({ "index": 0, "message": { "role": "assistant", "content": "Done." }, "finish_reason": "stop" });
        let answer = json!({ "id": "1", "object": "chat.completion", "model": "gpt-4o-mini", "choices": [choice], "usage": usage });
        Answer::whole(200, "application/json", answer.to_string())
    };
    StdServer::start_with("127.0.0.1:0", Options { responder: Box::new(responder), ..Options::default() }).unwrap()
}

pub(crate) fn take(gateway: &Gateway, tenant: &str, tokens: u64) -> Reply {
    let body = json!({ "model": "gpt-4o-mini", "messages": [{ "role": "user", "content": format!("Take {tokens}") }] });
    let request = Call::post("/v1/chat/completions", body.to_string()).field("X-Service-Tenant-ID", tenant);
    let answer = call(gateway.addr, request.bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

/// Types and notes of what was found in a call.
fn found(gateway: &Gateway, tenant: &str, answer: &Reply) -> Vec<(String, bool)> {
    let request = Call::get(&format!("/api/v1/traces/{}", answer.trace_id())).field("X-Service-Tenant-ID", tenant);
    let span = eventually("the call is recorded", || {
        let answer = call(gateway.addr, request.bytes());
        (answer.status == 200).then(|| answer.json()["spans"][0].clone())
    });
    assert_eq!(span["security_score"], 0, "an anomaly has no share in the score");
    let findings = span["security_findings"].as_array().unwrap().iter();
    let mut found: Vec<(String, bool)> = findings
        .map(|finding| {
            (finding["finding_type"].as_str().unwrap().to_owned(), finding["metadata"]["continues"].is_string())
        })
        .collect();
    found.sort();
    found
}

on_both_drivers_in_full! {
    fn a_call_far_above_the_others_is_recorded_counted_and_told_once(driver) {
        let (model, receiver) = (model(), Upstream::always(OK));
        let gateway = Setup::new(driver)
            .upstream(model.url())
            .unlimited()
            .with("anomaly_detection: {enabled: true, check_latency: false}")
            .with(&format!("alerts: {{enabled: true, channels: [{{type: webhook, url: '{}', min_severity: Medium}}]}}", receiver.url()))
            .start();
        for number in 0..30 {
            assert_eq!(found(&gateway, TENANT, &take(&gateway, TENANT, 100 + number % 3)), []);
        }
        let anomalous = |continues| [("anomaly_cost".to_owned(), continues), ("anomaly_tokens".to_owned(), continues)];
        assert_eq!(found(&gateway, TENANT, &take(&gateway, TENANT, 900_000)), anomalous(false));
        assert_eq!(found(&gateway, TENANT, &take(&gateway, TENANT, 900_000)), anomalous(true));
        let other = "11111111-2222-4333-8444-555555555555";
        assert_eq!(found(&gateway, other, &take(&gateway, other, 900_000)), [], "nothing is known of it yet");
        assert_eq!(gateway.metric("service_anomalies_total", "anomaly_type=\"tokens\""), 2.0);
        assert_eq!(gateway.metric("service_anomalies_total", "anomaly_type=\"velocity\""), 0.0);
        let told = || -> Vec<Value> {
            receiver.requests().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect()
        };
        let told = eventually("they are told", || Some(told()).filter(|told| !told.is_empty()));
        let mut types = vec![told[0]["alert_type"].as_str().unwrap()];
        types.extend(told[0]["also"].as_array().unwrap().iter().map(|other| other.as_str().unwrap()));
        types.sort_unstable();
        assert_eq!(types, ["anomaly_cost", "anomaly_tokens"], "one message for one call");
        assert!(told.len() == 1 && told[0]["tenant_id"] == TENANT && told[0]["count"] == 1, "{told:?}");
    }
}
