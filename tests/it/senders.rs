//! Promise: what the usual instrumentations report of the official clients comes out as the clients were told it: who said what, tools,
//! counters, session, user; and a call is counted once, however many report it. The cases and the table of cells are in
//! `tests/clients/test_senders.py`.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::clients::python_with;
use crate::coding_agents::packages;
use crate::support::{Driver, Setup, provider};

/// Runs one application against a gateway of its own.
fn run(sender: &str, pins: &str) {
    let provider = provider();
    let setup = Setup::new(Driver::Auto).upstream(provider.url()).with("otel_ingest: {enabled: true}").unlimited();
    let gateway = setup.start();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/test_senders.py");
    let mut command = Command::new(python_with(pins));
    command.arg("-B").arg(script).env("SENDER", sender);
    command.env("PROVIDER_URL", provider.url()).env("WEIR_URL", gateway.url()).env("TRACELOOP_TELEMETRY", "false");
    for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(proxy);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{sender}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn openllmetry_instrumentations_are_understood() {
    run("openllmetry", "senders_pins.txt");
}

#[test]
fn openinference_instrumentations_are_understood() {
    run("openinference", "senders_pins.txt");
}

#[test]
fn langfuse_is_understood() {
    run("langfuse", "senders_pins.txt");
}

#[test]
#[ignore = "its eighty packages take long to install; .ci/full runs it"]
fn the_traceloop_sdk_is_understood() {
    run("traceloop", "traceloop_pins.txt");
}

#[test]
fn the_opentelemetry_sdk_for_javascript_reports_json_and_protobuf() {
    let Some(folder) = packages("otel_js") else { return };
    let gateway = Setup::new(Driver::Auto).with("otel_ingest: {enabled: true}").unlimited().start();
    for (encoding, compression) in [("json", "none"), ("json", "gzip"), ("protobuf", "none"), ("protobuf", "gzip")] {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/otel_js/send.mjs");
        let mut command = Command::new("node");
        command.arg(script).args([encoding, compression]).current_dir(&folder).env("WEIR_URL", gateway.url());
        let output = command.output().expect("node");
        assert!(output.status.success(), "{encoding} {compression}: {}", String::from_utf8_lossy(&output.stderr));
        let ids: Value = serde_json::from_slice(&output.stdout).unwrap();
        let trace = gateway.json(&format!("/api/v1/traces/{}", ids["trace"].as_str().unwrap()));
        let of = |which: &str| {
            let id = ids[which].as_str().unwrap();
            let fits = |span: &&Value| span["span_id"].as_str().unwrap().replace('-', "").ends_with(id);
            trace["spans"].as_array().unwrap().iter().find(fits).unwrap_or_else(|| panic!("{which} in {trace}"))
        };
        let (step, call) = (of("step"), of("call"));
        assert_eq!((&call["parent_span_id"], &step["parent_span_id"]), (&step["span_id"], &Value::Null));
        assert_eq!((&call["prompt"], &call["response"]), (&json!("Wie heißt der Fluß? 🌊"), &json!("Donau")));
        assert_eq!((&call["prompt_tokens"], &call["completion_tokens"]), (&json!(120), &json!(30)));
        assert_eq!((&call["finish_reason"], &step["agent_id"]), (&json!("stop"), &json!("clerk")));
        let kept = &call["attributes"];
        assert_eq!((&kept["app.share"], &kept["app.large"]), (&json!(0.25), &json!(9_007_199_254_740_991_u64)));
        assert_eq!((&kept["app.is_new"], &kept["app.colors"]), (&json!(true), &json!(["blue", "green"])));
        assert_eq!(call["events"][0]["event_type"], "retry");
        assert_eq!((&step["error_type"], &step["error_message"]), (&json!("error"), &json!("the till is closed")));
    }
    assert_eq!(gateway.json("/api/v1/spans")["total"], 8);
}
