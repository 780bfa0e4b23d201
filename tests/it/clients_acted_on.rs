//! Promise: official clients live with everything the gateway does to a call: a request rewritten, one that is flagged, one that is
//! refused, an answer that is withheld or stopped. Each reads what comes without complaint, raises what its users catch, and asks
//! once. The cases are in `tests/clients`; this starts both ends and runs them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};
use weir_fake_provider::http::Request;
use weir_fake_provider::provider::{Answer, respond};
use weir_fake_provider::server::{Options, ServerHandle, StdServer};

use crate::clients::{cases, python, python_with, run_client};
use crate::coding_agents::packages;
use crate::output::DIALECTS;
use crate::support::{Driver, Gateway, Setup, as_calling, as_gemini, on_both_drivers};

const QUIET: &str = "llm_advisory_injection_enabled: false";
const MARKING: &str = "marker_strategy: {kind: fixed, value: U+E0F0}";

/// Every rewrite of a request by its name in `test_rewrites.py`, and the settings that ask for it.
fn rewrites() -> [(&'static str, String); 11] {
    let pii = |action: &str| format!("{QUIET}\npii: {{action: {action}}}");
    let boundary = |more: &str| format!("{QUIET}\nboundary_defense: {{enabled: true, {more}}}");
    let marks = |shadow: bool| format!("datamarking: {{enabled: true, shadow_mode: {shadow}, {MARKING}}}");
    let everything =
        format!("pii: {{action: alert_and_redact}}\nboundary_defense: {{enabled: true, {}}}", marks(false));
    [
        ("alert_only", pii("alert_only")),
        ("alert_and_redact", pii("alert_and_redact")),
        ("redact_silent", pii("redact_silent")),
        ("redact_shadow", pii("alert_and_redact, shadow_mode: true")),
        ("boundary", boundary("shadow_mode: false")),
        ("boundary_shadow", boundary("shadow_mode: true")),
        ("datamarking", boundary(&marks(false))),
        ("datamarking_shadow", boundary(&marks(true))),
        ("advisory", String::new()),
        ("advisory_shadow", "llm_advisory_shadow_mode: true".to_owned()),
        ("everything", everything),
    ]
}

/// The fake provider, which says at `/seen` what it has received since it was last asked.
fn watched() -> ServerHandle {
    let seen = Mutex::new(Vec::<(String, String)>::new());
    let responder = move |request: &Request| {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if request.path == "/seen" {
            return Answer::whole(200, "application/json", json!(std::mem::take(&mut *seen)).to_string());
        }
        seen.push((request.path.clone(), String::from_utf8_lossy(&request.body).into_owned()));
        drop(seen);
        match as_calling(request) {
            Some(answer) => answer,
            None if request.path.starts_with("/model/") => as_bedrock(request),
            None if request.path.contains(':') => as_gemini(request),
            None => respond(request),
        }
    };
    let options = Options { responder: Box::new(responder), ..Options::default() };
    StdServer::start_with("127.0.0.1:0", options).unwrap()
}

/// Bedrock's ways of answering: what the field `x-fake-reply` says, or always the same.
fn as_bedrock(request: &Request) -> Answer {
    let reply = request.header("x-fake-reply").unwrap_or("The parcel is in Graz.");
    let said = match request.path.rsplit('/').next() {
        Some("converse-stream") => {
            let dialect = DIALECTS.into_iter().find(|dialect| dialect.path.ends_with("converse-stream")).unwrap();
            let words: Vec<&str> = reply.split_inclusive(' ').collect();
            return Answer::stream(dialect.content_type, dialect.frames(&words), 0);
        }
        Some("converse") => json!({
            "output": { "message": { "role": "assistant", "content": [{ "text": reply }] } }, "stopReason": "end_turn",
            "usage": { "inputTokens": 3, "outputTokens": 9, "totalTokens": 12 }, "metrics": { "latencyMs": 1 }
        }),
        _ => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{ "type": "text", "text": reply }], "usage": { "input_tokens": 3, "output_tokens": 9 }
        }),
    };
    Answer::whole(200, "application/json", said.to_string())
}

/// Settings under which a gateway refuses, flags, redacts, withholds and stops.
const STOPS: &str = "enforcement: {categories: [{finding_type: prompt_injection, action: block}, \
    {finding_type: secret_leakage, action: flag}]}\npii: {action: alert_and_redact}\n\
    output_safety: {enabled: true, block_on_critical: true}";

/// Gateways that do so, with hold-back and without it.
fn stopping(driver: Driver, provider: &str) -> [(&'static str, Gateway); 2] {
    let held = format!("{STOPS}\nstreaming_analysis: {{hold_back: true}}");
    [("stops", held), ("unheld", STOPS.to_owned())]
        .map(|(name, settings)| (name, setup(driver, provider).with(&settings).start()))
}

fn setup(driver: Driver, provider: &str) -> Setup {
    Setup::new(driver).upstream(provider).storage("{profile: memory}").unlimited()
}

/// Runs cases against the gateways, which they know by name; what they print.
fn run_against(command: &mut Command, provider: &str, gateways: &[(&str, Gateway)]) -> String {
    let urls: Map<String, Value> = gateways.iter().map(|(name, at)| ((*name).to_owned(), at.url().into())).collect();
    command.env("PROVIDER_URL", provider).env("WEIR_URLS", Value::from(urls).to_string());
    run_client(command)
}

on_both_drivers! {
    #[ignore = "what clients make of an answer does not depend on the driver; .ci/full runs it"]
    fn official_clients_work_through_every_rewrite(driver) {
        let provider = watched();
        let gateways = rewrites().map(|(name, settings)| (name, setup(driver, &provider.url()).with(&settings).start()));
        run_against(&mut cases(&python(), "test_rewrites.py"), &provider.url(), &gateways);
    }

    #[ignore = "what clients make of an answer does not depend on the driver; .ci/full runs it"]
    fn official_clients_are_told_no_in_a_way_they_know(driver) {
        let provider = watched();
        let gateways = stopping(driver, &provider.url());
        run_against(&mut cases(&python(), "test_stops.py"), &provider.url(), &gateways);
    }

    #[ignore = "what clients make of an answer does not depend on the driver; .ci/full runs it"]
    fn googles_client_is_told_no_in_a_way_it_knows(driver) {
        let provider = watched();
        let gateways = stopping(driver, &provider.url());
        run_against(&mut cases(&python_with("gemini_pins.txt"), "test_stops_gemini.py"), &provider.url(), &gateways);
    }

    #[ignore = "what clients make of an answer does not depend on the driver; .ci/full runs it"]
    fn amazons_client_works_through_every_rewrite_and_is_told_no_in_a_way_it_knows(driver) {
        let provider = watched();
        let gateways: Vec<(&str, Gateway)> = rewrites()
            .into_iter()
            .map(|(name, settings)| (name, setup(driver, &provider.url()).with(&settings).start()))
            .chain(stopping(driver, &provider.url()))
            .collect();
        run_against(&mut cases(&python(), "test_acted_on_bedrock.py"), &provider.url(), &gateways);
    }

    #[ignore = "what clients make of an answer does not depend on the driver; .ci/full runs it"]
    fn official_clients_read_redacted_answers(driver) {
        let provider = watched();
        let said = "Write to jane.doe@example.com, card 4111 1111 1111 1111, about 12 apples.";
        let words: Vec<&str> = said.split_inclusive(' ').collect();
        let dialect = DIALECTS.into_iter().find(|dialect| dialect.path.ends_with("converse-stream")).unwrap();
        let converse = dialect.provider(&words);
        let gateway = |url: &str| setup(driver, url).with("pii: {redact_answers: personal}").start();
        let gateways = [("redacts", gateway(&provider.url())), ("converse", gateway(&converse.url()))];
        run_against(&mut cases(&python(), "test_redacted.py"), &provider.url(), &gateways);
        run_against(&mut cases(&python_with("gemini_pins.txt"), "test_redacted_gemini.py"), &provider.url(), &gateways);
    }

    #[ignore = "what clients make of an answer does not depend on the driver; .ci/full runs it"]
    fn the_ai_sdk_works_through_every_rewrite_and_is_told_no_in_a_way_it_knows(driver) {
        let Some(folder) = packages("ai_sdk") else { return };
        let provider = watched();
        let mut gateways: Vec<(&str, Gateway)> =
            rewrites().into_iter().map(|(name, settings)| (name, setup(driver, &provider.url()).with(&settings).start())).collect();
        gateways.extend(stopping(driver, &provider.url()));
        // Packages are looked for from where the script lies; each test has its own copy.
        let script = folder.join(format!("acted_on_{driver:?}.mjs"));
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/ai_sdk/acted_on.mjs"), &script).unwrap();
        let mut command = Command::new("node");
        let said = run_against(command.arg(script).current_dir(&folder), &provider.url(), &gateways);
        println!("{said}");
    }
}
