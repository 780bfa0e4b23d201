//! Promise: the official clients of several makers, the AI SDK and coding agents work through one listening address at once, unchanged
//! but for the base URL: each gets what it would have got directly, is recorded whole, and costs what its own provider asks.

mod wire;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use weir_fake_provider::http::Request;
use weir_fake_provider::provider::{Answer, respond};

use self::wire::{Seen, Watched};
use crate::clients::{python, python_with, run_cases};
use crate::coding_agents::{Desk, PROMPTS, REPLY, installed, packages, saying};
use crate::support::{Driver, Gateway, Setup, as_gemini, call, eventually, provider};

/// Prices of models that nobody sells, and one that is not the list's.
const PRICES: &str = "cost_estimation: {custom_models: {fake-large: {input_per_million: 100, output_per_million: 200}, \
                      fake-embedding: {input_per_million: 50, output_per_million: 0}, \
                      gemini-2.5-flash: {input_per_million: 3, output_per_million: 5}}}";

/// The model that an agent talks to, or a provider's own answers for whoever else asks.
fn with_agents(others: fn(&Request) -> Answer) -> Watched {
    let is_agent = |request: &Request| {
        let agent = request.header("user-agent").unwrap_or_default();
        agent.starts_with("claude-cli") || agent.starts_with("codex")
    };
    Watched::start(move |request| if is_agent(request) { saying(request, REPLY) } else { others(request) })
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
    let (ollama, gemini) = (with_agents(respond), with_agents(as_gemini));
    let named = [("openai", &openai), ("anthropic", &anthropic), ("ollama", &ollama), ("gemini", &gemini)];
    let upstreams: String = named
        .iter()
        .map(|(name, watched)| format!("  at-{name}: {{url: '{}', providers: [{name}]}}\n", watched.server.url()))
        .collect();
    // `upstream_url` leads nowhere: whatever is sent there fails.
    let azure = provider();
    let upstreams =
        format!("upstreams:\n{upstreams}  at-azure: {{url: '{}', providers: [azure_openai]}}\n", azure.url());
    let setup = Setup::new(Driver::Auto).unlimited().with(PRICES).with(&upstreams);
    let gateway = setup.start();
    // Whom the clients ask directly, to compare.
    let (direct, direct_gemini) = (provider(), with_agents(as_gemini));
    let (url, direct, direct_gemini) = (gateway.url(), direct.url(), direct_gemini.server.url());
    let (three, google) = (python(), python_with("gemini_pins.txt"));
    let (claude, codex) = (Desk::set_up(&gateway), Desk::set_up(&gateway));
    let by_ai_sdk = std::thread::scope(|scope| {
        scope.spawn(|| run_cases(&three, "test_clients.py", &direct, &gateway));
        scope.spawn(|| run_cases(&google, "test_gemini.py", &direct_gemini, &gateway));
        scope.spawn(|| claude.run("claude", claude.claude(&agents, &url, PROMPTS[0])));
        scope.spawn(|| codex.run("codex", codex.codex(&agents, PROMPTS[0])));
        let sdk = scope.spawn(|| run_ai_sdk(&ai_sdk, [&direct, &direct, &direct_gemini], &gateway));
        sdk.join().unwrap()
    });
    assert_eq!(by_ai_sdk, json!({ "openai": 4, "anthropic": 2, "gemini": 2 }));
    for (name, watched) in named {
        let seen = watched.seen();
        let spans = recorded(&gateway, name, seen.len());
        let (mut left, mut sums) = (spans.clone(), Sums::default());
        for exchange in &*seen {
            let at = left.iter().position(|span| faults(name, exchange, span).is_empty());
            let span = left.remove(at.unwrap_or_else(|| panic!("{name}: {}", nearest(name, exchange, &left))));
            sums.add(&span);
        }
        println!("{name}: {} exchanges, each with its record; {sums:?}", seen.len());
        assert!(seen.len() > 3 && sums.with_texts > 1 && sums.with_costs > 1, "{name}: {sums:?}");
        // The turn that calls the tool, and the one with its answer.
        let agent = match name {
            "anthropic" => "claude-cli",
            "openai" => "codex",
            _ => continue,
        };
        let turns: Vec<&Value> =
            spans.iter().filter(|span| span["client"].as_str().is_some_and(|is| is.starts_with(agent))).collect();
        assert!(turns.len() >= 2 && turns.iter().any(|span| span["response"] == REPLY), "{agent}: {turns:?}");
        assert!(turns.iter().any(|span| tool_calls(span) > 0), "{agent}: {turns:?}");
    }
}

/// What the records of one provider came to.
#[derive(Debug, Default)]
struct Sums {
    with_texts: usize,
    with_costs: usize,
    dollars: f64,
    models: std::collections::BTreeSet<String>,
}

impl Sums {
    fn add(&mut self, span: &Value) {
        let cost = span["estimated_cost_usd"].as_f64().unwrap_or_default();
        self.with_texts += usize::from(span["prompt"].is_string() && span["response"].is_string());
        self.with_costs += usize::from(cost > 0.0);
        self.dollars += cost;
        self.models.extend(span["model"].as_str().map(str::to_owned));
    }
}

/// The record that has the fewest faults, for a message.
fn nearest(provider: &str, exchange: &Seen, spans: &[Value]) -> String {
    let mut all: Vec<(Vec<String>, &Value)> =
        spans.iter().map(|span| (faults(provider, exchange, span), span)).collect();
    all.sort_by_key(|(faults, _)| faults.len());
    all.first().map_or_else(
        || "no record is left".to_owned(),
        |(faults, span)| format!("{faults:#?}\n{exchange:#?}\n{span:#}"),
    )
}

/// Where a record is not that of this exchange, in all that it has to say of it.
fn faults(provider: &str, exchange: &Seen, span: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut hold = |what: &str, holds: bool| {
        if !holds {
            faults.push(what.to_owned())
        }
    };
    hold("provider", span["provider"] == provider);
    hold("upstream", span["tags"]["upstream"] == format!("at-{provider}"));
    hold("operation", operation(&exchange.path).is_none_or(|operation| span["operation_name"] == operation));
    hold("status", span["status_code"] == exchange.status);
    hold("model", exchange.model.is_none() || span["model"].as_str() == exchange.model.as_deref());
    hold("streaming", exchange.status >= 400 || span["streaming"] == exchange.streamed);
    let prompt = span["prompt"].as_str().unwrap_or_default();
    // What the gateway itself put before an attack, and says so, is no part of what was asked.
    let mut events = span["events"].as_array().into_iter().flatten();
    let is_advised = events.any(|event| event["event_type"] == "advisory_injected");
    let own = |text: &&String| !is_advised || !text.starts_with("Security notice from the gateway");
    hold("prompt", exchange.asked.iter().filter(own).all(|text| prompt.contains(text.trim())));
    hold("no prompt", prompt.is_empty() == exchange.asked.iter().all(|text| text.trim().is_empty()));
    let said = span["response"].as_str().unwrap_or_default();
    // What a tool is asked to do stands there, too.
    let is_response = if exchange.calls == 0 { said == exchange.said } else { said.contains(&exchange.said) };
    hold("response", exchange.status >= 400 || is_response);
    hold("tool calls", tool_calls(span) == exchange.calls);
    let (input, output) = (span["prompt_tokens"].as_u64(), span["completion_tokens"].as_u64());
    match exchange.tokens {
        Some((sent, answered)) => {
            hold("input tokens", input == Some(sent));
            hold("output tokens", output.unwrap_or(0) == answered);
            hold("counted by the provider", span["tokens_estimated"] == false);
        }
        // What the provider does not count of a call of a model is estimated.
        None => {
            hold("estimated", exchange.said.is_empty() || exchange.status >= 400 || span["tokens_estimated"] == true)
        }
    }
    let cost = span["estimated_cost_usd"].as_f64();
    match span["model"].as_str().and_then(|model| price(provider, model)) {
        Some((to, from)) if input.is_some() || output.is_some() => {
            let expected = (input.unwrap_or(0) as f64 * to + output.unwrap_or(0) as f64 * from) / 1e6;
            hold("cost", cost.is_some_and(|cost| (cost - expected).abs() < 1e-12));
        }
        _ => hold("no cost", cost.unwrap_or(0.0) == 0.0),
    }
    faults
}

/// What calls of a path are called.
fn operation(path: &str) -> Option<&'static str> {
    let known = [
        ("/v1/chat/completions", "chat_completion"),
        ("/v1/completions", "completion"),
        ("/v1/embeddings", "embedding"),
        ("/v1/responses", "responses"),
        ("/v1/models", "list_models"),
        ("/v1/messages", "messages"),
        ("/api/chat", "chat"),
        ("/api/generate", "generate"),
        ("/api/tags", "list_models"),
    ];
    known.iter().find(|(known, _)| *known == path).map(|(_, operation)| *operation)
}

fn tool_calls(span: &Value) -> usize {
    let events = span["events"].as_array().into_iter().flatten();
    events.filter(|event| event["event_type"] == "tool_call").count()
}

/// What a provider asks for a million tokens to and from a model, in dollars: as [`PRICES`] says, and as the makers of the models that
/// the agents ask for have published it.
fn price(provider: &str, model: &str) -> Option<(f64, f64)> {
    let prices = [
        ("", "fake-large", 100.0, 200.0),
        ("", "fake-embedding", 50.0, 0.0),
        ("", "gemini-2.5-flash", 3.0, 5.0),
        ("openai", "gpt-5", 1.25, 10.0),
        ("anthropic", "claude-haiku-4-5", 1.0, 5.0),
        ("anthropic", "claude-sonnet-4-5", 3.0, 15.0),
        ("anthropic", "claude-opus-4", 5.0, 25.0),
    ];
    let asks = |(whose, name, ..): &&(&str, &str, f64, f64)| provider.starts_with(whose) && model.starts_with(name);
    prices.iter().find(asks).filter(|_| !model.contains('@')).map(|(.., to, from)| (*to, *from))
}

/// The spans of one provider, as soon as there are as many as it has seen requests.
fn recorded(gateway: &Gateway, provider: &str, count: usize) -> Vec<Value> {
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
        let target = format!("/api/v1/spans?limit=1000&provider={provider}");
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
        (spans.len() >= count).then_some(spans)
    });
    assert_eq!(spans.len(), count, "{provider}");
    spans
}
