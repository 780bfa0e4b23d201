//! Promise: a conversation of an agent with its tools goes through redaction, boundary and marks together, and `docs/rewriting.md`
//! shows what the provider gets.

use std::path::Path;

use serde_json::Value;

use crate::support::{Call, Driver, Gateway, ServerHandle, Setup, call, on_both_drivers, provider};

const SETTINGS: &str = "pii: {action: alert_and_redact}\nboundary_defense: {enabled: true, datamarking: {enabled: true, \
    shadow_mode: false, marker_strategy: {kind: fixed, value: U+E0F0}}}";

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Twenty turns behind a system prompt, streamed: a customer's mail, seven tools, one page among them with an attack in it.
fn conversation() -> String {
    read("tests/it/data/agent_conversation.json")
}

fn received(gateway: &Gateway, provider: &ServerHandle) -> String {
    let answer = call(gateway.addr, Call::post("/v1/chat/completions", conversation()).bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    String::from_utf8(provider.take_received().remove(0).request.body).unwrap()
}

/// The message at `index` as JSON on one line, markers as a person can see them.
fn shown(body: &Value, index: usize) -> String {
    body["messages"][index].to_string().replace('\u{e0f0}', "\u{b7}")
}

on_both_drivers! {
    fn an_agents_conversation_is_what_the_document_shows(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).with(SETTINGS).start();
        let (before, after) = (conversation(), received(&gateway, &provider));
        let (sent, got): (Value, Value) = (serde_json::from_str(&before).unwrap(), serde_json::from_str(&after).unwrap());
        let messages = sent["messages"].as_array().unwrap();
        assert_eq!((messages.len(), got["messages"].as_array().unwrap().len()), (21, 21));
        for (index, message) in messages.iter().enumerate() {
            let now = &got["messages"][index];
            assert_eq!((&message["role"], &message["tool_call_id"]), (&now["role"], &now["tool_call_id"]));
            match message["role"].as_str().unwrap() {
                "assistant" => {
                    let redacted = message.to_string().replace("lena.hofer@example.com", "[PII:EMAIL]");
                    assert_eq!(now.to_string(), redacted, "calls and answers keep their form");
                }
                "tool" if message["content"] == "" => assert_eq!(now, message, "what is empty stays"),
                "tool" => {
                    let content = now["content"].as_str().unwrap();
                    let inside = content.strip_prefix("<service-boundary>\n").unwrap().strip_suffix("\n</service-boundary>").unwrap();
                    assert!(!inside.contains(char::is_whitespace) && !inside.contains("service-boundary>\n"), "{inside}");
                    assert!(!inside.contains("lena.hofer") && !inside.contains("4111"), "{inside}");
                }
                _ => {}
            }
        }
        for untouched in ["model", "temperature", "tools", "stream"] {
            assert_eq!(sent[untouched], got[untouched]);
        }
        assert_eq!(received(&gateway, &provider), after, "with a fixed marker each turn begins like the one before");
        let document = read("docs/rewriting.md");
        let figures = format!("{} bytes came, {} bytes went on", before.len(), after.len());
        let shown = [0, 1, 3, 8, 16].map(|index| shown(&got, index));
        let missing: Vec<&String> =
            std::iter::once(&figures).chain(&shown).filter(|line| !document.contains(line.as_str())).collect();
        assert!(missing.is_empty(), "docs/rewriting.md lacks:\n{}", missing.iter().map(|line| format!("{line}\n")).collect::<String>());
    }
}

/// The calls an agent made until it had the whole conversation: each has what the one before had and what came since.
fn calls() -> Vec<Value> {
    let whole: Value = serde_json::from_str(&conversation()).unwrap();
    let messages = whole["messages"].as_array().unwrap();
    let is_call = |end: &usize| *end == messages.len() || (messages[*end]["role"] == "assistant" && *end > 1);
    let upto = |end: usize| {
        let mut call = whole.clone();
        call["messages"] = Value::Array(messages[..end].to_vec());
        call
    };
    (2..=messages.len()).filter(is_call).map(upto).collect()
}

#[test]
fn played_turn_by_turn_each_call_begins_like_the_one_before() {
    let provider = provider();
    let gateway = Setup::new(Driver::Auto).upstream(provider.url()).with(SETTINGS).start();
    let calls = calls();
    assert_eq!(calls.len(), 10);
    let mut before: Option<String> = None;
    for sent in calls {
        let body = sent.to_string();
        let answer = call(gateway.addr, Call::post("/v1/chat/completions", body.clone()).bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        let got = String::from_utf8(provider.take_received().remove(0).request.body).unwrap();
        let span = gateway.span_of(&answer);
        let messages = sent["messages"].as_array().unwrap().len();
        println!(
            "{messages} messages: {} bytes came, {} went on, {} us added",
            body.len(),
            got.len(),
            span["overhead_us"]
        );
        // The messages stand in front of everything else; what follows them differs by where they end.
        let end = got.rfind("],\"model\"").unwrap();
        // The reminder comes with the first result of a tool; what went before that begins otherwise.
        if !sent["messages"].as_array().unwrap().iter().any(|message| message["role"] == "tool") {
            continue;
        }
        if let Some(before) = before.replace(got[..end].to_owned()) {
            assert!(got.starts_with(&before), "the provider's cache of the prompt is lost at {messages} messages");
            assert!(got.len() > before.len());
        }
    }
}

/// Ways to rewrite the conversation, from none to all.
fn ways() -> [(&'static str, &'static str); 5] {
    [
        ("nothing", ""),
        ("redaction", "pii: {action: alert_and_redact}"),
        ("boundary", "boundary_defense: {enabled: true}"),
        ("boundary and marks", SETTINGS.split_once('\n').unwrap().1),
        ("all three", SETTINGS),
    ]
}

/// The time the gateway adds to each of the conversation's calls, and what the provider gets, without rewriting and with each way of it.
/// Of a release build: `WEIR_TEST_BINARY=$PWD/target/release/weir cargo test --workspace --test it rewriting::what_it_costs -- --ignored --nocapture`.
#[test]
#[ignore = "measures; only a release build says something"]
fn what_it_costs() {
    let provider = provider();
    let setup =
        Setup::new(Driver::Auto).upstream(provider.url()).unlimited().with("llm_advisory_injection_enabled: false");
    let gateways = ways().map(|(name, settings)| (name, setup.clone().with(settings).start()));
    let calls: Vec<String> = calls().iter().map(Value::to_string).chain([conversation()]).collect();
    for body in &calls {
        let mut overheads: [Vec<u64>; 5] = Default::default();
        let mut got = [0; 5];
        // In turns, so that what else the machine does falls on each alike.
        for _ in 0..100 {
            for ((at, (_, gateway)), overheads) in gateways.iter().enumerate().zip(&mut overheads) {
                let answer = call(gateway.addr, Call::post("/v1/chat/completions", body.clone()).bytes());
                overheads.push(gateway.span_of(&answer)["overhead_us"].as_u64().unwrap());
                got[at] = provider.take_received().remove(0).request.body.len();
            }
        }
        for ((at, (name, _)), overheads) in gateways.iter().enumerate().zip(&mut overheads) {
            overheads.sort_unstable();
            let (p50, p99) = (overheads[49], overheads[98]);
            println!("{name}: {} bytes came, {} went on; p50 {p50} µs, p99 {p99} µs", body.len(), got[at]);
        }
    }
}
