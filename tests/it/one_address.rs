//! Promise: the official clients of several makers, the AI SDK and coding agents work through one listening address at once, unchanged
//! but for the base URL: each gets what it would have got directly, is recorded whole, and costs what its own provider asks.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use weir_fake_provider::http::Request;
use weir_fake_provider::provider::{Answer, respond};
use weir_fake_provider::server::{Options, ServerHandle, StdServer};

use crate::clients::{python, python_with};
use crate::coding_agents::{Desk, PROMPTS, REPLY, installed, packages, saying};
use crate::support::{Driver, Gateway, Setup, as_gemini, call, eventually, provider};

/// Prices, so that every model has one.
const PRICES: &str = "cost_estimation: {custom_models: {fake-large: {input_per_million: 100, output_per_million: 200}, \
                      gemini-2.5-flash: {input_per_million: 3, output_per_million: 5}}}";

/// Runs the cases of a file in `tests/clients` between a provider and the gateway.
fn run_cases(python: &Path, file: &str, provider: &str, gateway: &Gateway) {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(file);
    let mut command = Command::new(python);
    command.arg("-B").arg(cases).env("PROVIDER_URL", provider).env("WEIR_URL", gateway.url());
    for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(proxy);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{file}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// The model that an agent talks to, or a provider's own answers for whoever else asks.
fn with_agents(others: fn(&Request) -> Answer) -> ServerHandle {
    let is_agent = |request: &Request| {
        let agent = request.header("user-agent").unwrap_or_default();
        agent.starts_with("claude-cli") || agent.starts_with("codex")
    };
    let responder = move |request: &Request| if is_agent(request) { saying(request, REPLY) } else { others(request) };
    StdServer::start_with("127.0.0.1:0", Options { responder: Box::new(responder), ..Options::default() }).unwrap()
}

/// The AI SDK's three makers, directly and through the gateway; how many calls of each went through.
fn run_ai_sdk(folder: &Path, direct: [&str; 3], gateway: &Gateway) -> Value {
    // Packages are looked for from where the script lies.
    let script = folder.join("ask.mjs");
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/ai_sdk/ask.mjs"), &script).unwrap();
    let mut command = Command::new("node");
    command.arg(script).current_dir(folder).env("WEIR_URL", gateway.url());
    command.env("OPENAI_URL", direct[0]).env("ANTHROPIC_URL", direct[1]).env("GEMINI_URL", direct[2]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn clients_of_four_makers_the_ai_sdk_and_two_agents_share_it() {
    let Some((agents, ai_sdk)) = installed().zip(packages("ai_sdk")) else { return };
    let (openai, anthropic) = (with_agents(respond), with_agents(respond));
    let (ollama, direct, gemini) = (provider(), provider(), with_agents(as_gemini));
    let named = [("openai", &openai), ("anthropic", &anthropic), ("ollama", &ollama), ("gemini", &gemini)];
    let upstreams: String = named
        .iter()
        .map(|(name, server)| format!("  at-{name}: {{url: '{}', providers: [{name}]}}\n", server.url()))
        .collect();
    // `upstream_url` leads nowhere: whatever is sent there fails.
    let setup = Setup::new(Driver::Auto).unlimited().with(PRICES).with(&format!("upstreams:\n{upstreams}"));
    let gateway = setup.start();
    let (url, direct) = (gateway.url(), direct.url());
    let (three, google) = (python(), python_with("gemini_pins.txt"));
    let (claude, codex) = (Desk::set_up(&gateway), Desk::set_up(&gateway));
    let by_ai_sdk = std::thread::scope(|scope| {
        scope.spawn(|| run_cases(&three, "test_clients.py", &direct, &gateway));
        scope.spawn(|| run_cases(&google, "test_gemini.py", &gemini.url(), &gateway));
        scope.spawn(|| claude.run("claude", claude.claude(&agents, &url, PROMPTS[0])));
        scope.spawn(|| codex.run("codex", codex.codex(&agents, PROMPTS[0])));
        let sdk = scope.spawn(|| run_ai_sdk(&ai_sdk, [&direct, &direct, &gemini.url()], &gateway));
        sdk.join().unwrap()
    });
    assert_eq!(by_ai_sdk, json!({ "openai": 4, "anthropic": 2, "gemini": 2 }));
    for (name, server) in &named[..3] {
        let seen = server.requests_seen();
        let spans = recorded(&gateway, name, seen);
        let costs = spans.iter().filter(|span| check_price(span)).count();
        println!("{name}: {seen} requests, as many records, {costs} of them with a cost");
        assert!(seen > 3 && costs > 1, "{name}: {seen} requests, {costs} with a cost");
    }
    // Gemini's provider was asked directly as well, once for each call.
    assert_eq!(gemini.requests_seen(), 8);
    assert_eq!(recorded(&gateway, "gemini", 4).len(), 4);
    let agents_turns = |name: &str, client: &str| {
        recorded(&gateway, name, 0)
            .iter()
            .filter(|span| span["client"].as_str().is_some_and(|is| is.starts_with(client)))
            .count()
    };
    // The turn that calls the tool, and the one with its answer.
    assert!(agents_turns("anthropic", "claude-cli") >= 2 && agents_turns("openai", "codex") >= 2);
}

/// The spans of one provider, as soon as there are as many as it has seen requests; each went to its own upstream.
fn recorded(gateway: &Gateway, provider: &str, count: u64) -> Vec<Value> {
    let keys = [
        "Authorization: Bearer sk-client-tests",
        "x-api-key: sk-client-tests",
        "Authorization: Bearer sk-ai-sdk",
        "x-api-key: sk-ai-sdk",
        "x-goog-api-key: gemini-client-tests",
        "x-goog-api-key: gemini-ai-sdk",
        "X-None: 0",
    ];
    let list = |key: &str| -> Vec<Value> {
        let target = format!("/api/v1/spans?limit=1000&provider={provider}&texts=false");
        let request = format!("GET {target} HTTP/1.1\r\nHost: weir\r\n{key}\r\n\r\n");
        call(gateway.addr, request).json()["data"].as_array().unwrap().clone()
    };
    let spans = eventually("every call is recorded", || {
        let mut spans: Vec<Value> = keys.iter().flat_map(|key| list(key)).collect();
        // Claude Code looks whether there is anybody at the address before it asks.
        spans.retain(|span| span["tags"]["path"] != "/");
        // Two of the keys may be one tenant's.
        spans.sort_by_key(|span| span["span_id"].to_string());
        spans.dedup_by_key(|span| span["span_id"].to_string());
        (spans.len() as u64 >= count).then_some(spans)
    });
    assert!(count == 0 || spans.len() as u64 == count, "{provider}: {} for {count}", spans.len());
    for span in &spans {
        assert_eq!(span["tags"]["upstream"], format!("at-{provider}"), "{span}");
    }
    spans
}

/// Whether a span of `fake-large` has a cost, which has to be that of its own tokens.
fn check_price(span: &Value) -> bool {
    // The agents ask for models with prices of their own.
    let Some(cost) = span["estimated_cost_usd"].as_f64().filter(|_| span["model"] == "fake-large") else {
        return false;
    };
    let tokens = |name: &str| span[name].as_f64().unwrap_or_default();
    let expected = (tokens("prompt_tokens") * 100.0 + tokens("completion_tokens") * 200.0) / 1e6;
    assert!((cost - expected).abs() < 1e-9, "{cost} for {expected}: {span}");
    cost > 0.0
}
