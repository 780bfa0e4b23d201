//! Promise: the bill agrees. Three hundred scripted calls over all dialects, transports and service tiers: the tokens are the provider's own to
//! the token and the cost is that of its price list to the nanodollar, wherever a client cuts the answer once the counters have come.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::dialects::event;
use crate::support::{Call, Client, Driver, Setup, Upstream, call};
use crate::turns::{says_on_socket, told_on_socket};

/// What a call uses.
#[derive(Clone, Copy)]
struct Used {
    /// Read, without what came from a cache.
    fresh: u64,
    cached: u64,
    written: u64,
}

/// Nanodollars of one token: read, read from a cache, written.
type Rates = (u64, u64, u64);

struct Form {
    name: &'static str,
    path: &'static str,
    model: &'static str,
    content_type: &'static str,
    /// What is told of the tier, and its rates.
    tier: &'static str,
    rates: Rates,
    says: fn(&Form, Used) -> Vec<u8>,
}

fn sse(events: &[Value]) -> Vec<u8> {
    events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>().into_bytes()
}

fn chat_usage(used: Used) -> Value {
    let prompt = used.fresh + used.cached;
    json!({ "prompt_tokens": prompt, "completion_tokens": used.written, "total_tokens": prompt + used.written, "prompt_tokens_details": { "cached_tokens": used.cached } })
}

fn chat_json(form: &Form, used: Used) -> Vec<u8> {
    json!({ "id": "x", "model": form.model, "service_tier": form.tier, "usage": chat_usage(used), "choices": [{ "index": 0, "message": { "content": "ok" }, "finish_reason": "stop" }] }).to_string().into()
}

fn chat_sse(form: &Form, used: Used) -> Vec<u8> {
    let mut said = sse(&[
        json!({ "id": "x", "model": form.model, "service_tier": form.tier, "choices": [{ "index": 0, "delta": { "content": "ok" }, "finish_reason": "stop" }] }),
        json!({ "id": "x", "model": form.model, "service_tier": form.tier, "choices": [], "usage": chat_usage(used) }),
    ]);
    said.extend_from_slice(b"data: [DONE]\n\n");
    said
}

fn response(form: &Form, used: Used) -> Value {
    let input = used.fresh + used.cached;
    json!({ "id": "r", "object": "response", "status": "completed", "model": form.model, "service_tier": form.tier, "output": [{ "type": "message", "content": [{ "type": "output_text", "text": "ok" }] }],
        "usage": { "input_tokens": input, "output_tokens": used.written, "total_tokens": input + used.written, "input_tokens_details": { "cached_tokens": used.cached } } })
}

fn responses_json(form: &Form, used: Used) -> Vec<u8> {
    response(form, used).to_string().into()
}

fn responses_events(form: &Form, used: Used) -> [Value; 2] {
    [
        json!({ "type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "ok" }),
        json!({ "type": "response.completed", "response": response(form, used) }),
    ]
}

fn responses_sse(form: &Form, used: Used) -> Vec<u8> {
    sse(&responses_events(form, used))
}

fn responses_socket(form: &Form, used: Used) -> Vec<u8> {
    responses_events(form, used).iter().flat_map(|event| told_on_socket(event.to_string().as_bytes())).collect()
}

fn messages_usage(used: Used) -> Value {
    json!({ "input_tokens": used.fresh, "cache_read_input_tokens": used.cached, "output_tokens": used.written })
}

fn messages_json(form: &Form, used: Used) -> Vec<u8> {
    json!({ "type": "message", "role": "assistant", "model": form.model, "content": [{ "type": "text", "text": "ok" }], "stop_reason": "end_turn", "usage": messages_usage(used) }).to_string().into()
}

fn messages_sse(form: &Form, used: Used) -> Vec<u8> {
    sse(&[
        json!({ "type": "message_start", "message": { "role": "assistant", "model": form.model, "content": [], "usage": { "input_tokens": used.fresh, "cache_read_input_tokens": used.cached, "output_tokens": 1 } } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "ok" } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": used.written } }),
        json!({ "type": "message_stop" }),
    ])
}

fn gemini(form: &Form, used: Used) -> Value {
    let prompt = used.fresh + used.cached;
    json!({ "candidates": [{ "content": { "parts": [{ "text": "ok" }] }, "finishReason": "STOP" }], "modelVersion": form.model,
        "usageMetadata": { "promptTokenCount": prompt, "cachedContentTokenCount": used.cached, "candidatesTokenCount": used.written, "totalTokenCount": prompt + used.written } })
}

fn gemini_json(form: &Form, used: Used) -> Vec<u8> {
    gemini(form, used).to_string().into()
}

fn gemini_sse(form: &Form, used: Used) -> Vec<u8> {
    sse(&[gemini(form, used)])
}

fn bedrock_usage(used: Used) -> Value {
    json!({ "inputTokens": used.fresh, "cacheReadInputTokens": used.cached, "outputTokens": used.written, "totalTokens": used.fresh + used.cached + used.written })
}

fn converse_json(_: &Form, used: Used) -> Vec<u8> {
    json!({ "output": { "message": { "role": "assistant", "content": [{ "text": "ok" }] } }, "stopReason": "end_turn", "usage": bedrock_usage(used) }).to_string().into()
}

fn converse_events(_: &Form, used: Used) -> Vec<u8> {
    [
        event("contentBlockDelta", &json!({ "contentBlockIndex": 0, "delta": { "text": "ok" } })),
        event("messageStop", &json!({ "stopReason": "end_turn" })),
        event("metadata", &json!({ "usage": bedrock_usage(used) })),
    ]
    .concat()
}

fn ollama_lines(form: &Form, used: Used) -> Vec<u8> {
    format!(
        "{}\n{}\n",
        json!({ "model": form.model, "message": { "content": "ok" }, "done": false }),
        json!({ "model": form.model, "message": { "content": "" }, "done": true, "prompt_eval_count": used.fresh + used.cached, "eval_count": used.written })
    )
    .into()
}

/// Results of a batch, a line a call: two of them, of which the second used what is left.
fn halves(used: Used) -> [Used; 2] {
    let first = Used { fresh: used.fresh / 2, cached: used.cached / 4 * 2, written: used.written / 2 };
    let rest = Used {
        fresh: used.fresh - first.fresh,
        cached: used.cached - first.cached,
        written: used.written - first.written,
    };
    [first, rest]
}

fn lines(lines: [Value; 2]) -> Vec<u8> {
    lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes()
}

fn parsed(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

fn chat_batch(form: &Form, used: Used) -> Vec<u8> {
    lines(halves(used).map(|used| json!({ "custom_id": "a", "response": { "status_code": 200, "body": parsed(&chat_json(form, used)) }, "error": null })))
}

fn responses_batch(form: &Form, used: Used) -> Vec<u8> {
    lines(halves(used).map(|used| json!({ "custom_id": "a", "response": { "status_code": 200, "body": response(form, used) }, "error": null })))
}

fn messages_batch(form: &Form, used: Used) -> Vec<u8> {
    lines(halves(used).map(|used| json!({ "custom_id": "a", "result": { "type": "succeeded", "message": parsed(&messages_json(form, used)) } })))
}

fn gemini_batch_lines(form: &Form, used: Used) -> Vec<u8> {
    lines(halves(used).map(|used| json!({ "key": "a", "response": gemini(form, used) })))
}

fn gemini_batch(form: &Form, used: Used) -> Vec<u8> {
    let inlined = halves(used).map(|used| json!({ "response": gemini(form, used), "metadata": { "key": "a" } }));
    json!({ "name": "batches/b", "done": true, "response": { "inlinedResponses": { "inlinedResponses": inlined } } })
        .to_string()
        .into()
}

fn realtime_socket(_: &Form, used: Used) -> Vec<u8> {
    let input = used.fresh + used.cached;
    let usage = json!({ "total_tokens": input + used.written, "input_tokens": input, "output_tokens": used.written,
        "input_token_details": { "cached_tokens": used.cached, "text_tokens": input }, "output_token_details": { "text_tokens": used.written } });
    let events = [
        json!({ "type": "response.created", "response": { "id": "r", "object": "realtime.response", "status": "in_progress" } }),
        json!({ "type": "response.output_text.delta", "response_id": "r", "item_id": "i", "output_index": 0, "content_index": 0, "delta": "ok" }),
        json!({ "type": "response.done", "response": { "id": "r", "object": "realtime.response", "status": "completed", "output": [], "usage": usage } }),
    ];
    events.iter().flat_map(|event| told_on_socket(event.to_string().as_bytes())).collect()
}

const GPT: Rates = (1_250, 125, 10_000);
const GPT_PRIORITY: Rates = (2_500, 250, 20_000);
/// A cached token costs 62.5 nanodollars: in even numbers that is whole.
const GPT_FLEX: Rates = (625, 0, 5_000);
const CLAUDE: Rates = (3_000, 300, 15_000);
const CLAUDE_BATCH: Rates = (1_500, 150, 7_500);
const FLASH: Rates = (300, 30, 2_500);
const FLASH_BATCH: Rates = (150, 30, 1_250);
const REALTIME: Rates = (4_000, 400, 16_000);

fn forms() -> Vec<Form> {
    let json_type = "application/json";
    let events = "text/event-stream";
    let form = |name, path, model, content_type, tier, rates, says| Form {
        name,
        path,
        model,
        content_type,
        tier,
        rates,
        says,
    };
    let (chat, responses) = ("/v1/chat/completions", "/v1/responses");
    let mut all: Vec<Form> = Vec::new();
    for (tier, rates) in [("default", GPT), ("priority", GPT_PRIORITY), ("flex", GPT_FLEX)] {
        all.push(form("chat", chat, "gpt-5", json_type, tier, rates, chat_json));
        all.push(form("chat stream", chat, "gpt-5", events, tier, rates, chat_sse));
        all.push(form("responses", responses, "gpt-5", json_type, tier, rates, responses_json));
        all.push(form("responses stream", responses, "gpt-5", events, tier, rates, responses_sse));
        all.push(form("responses socket", responses, "gpt-5", "", tier, rates, responses_socket));
    }
    all.push(form("messages", "/v1/messages", "claude-sonnet-4-5-20250929", json_type, "", CLAUDE, messages_json));
    all.push(form("messages stream", "/v1/messages", "claude-sonnet-4-5-20250929", events, "", CLAUDE, messages_sse));
    all.push(form(
        "gemini",
        "/v1beta/models/gemini-2.5-flash:generateContent",
        "gemini-2.5-flash",
        json_type,
        "",
        FLASH,
        gemini_json,
    ));
    all.push(form(
        "gemini stream",
        "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        "gemini-2.5-flash",
        events,
        "",
        FLASH,
        gemini_sse,
    ));
    all.push(form("converse", "/model/claude-unit/converse", "claude-unit", json_type, "", CLAUDE, converse_json));
    all.push(form(
        "converse stream",
        "/model/claude-unit/converse-stream",
        "claude-unit",
        "application/vnd.amazon.eventstream",
        "",
        CLAUDE,
        converse_events,
    ));
    let (claude, flash) = ("claude-sonnet-4-5-20250929", "gemini-2.5-flash");
    let (files, operations) = ("/v1/files/NEXT/content", "/v1beta/batches/NEXT");
    let fetched = "application/octet-stream";
    all.push(form("chat", files, "gpt-5", fetched, "batch", GPT_FLEX, chat_batch));
    all.push(form("responses", files, "gpt-5", fetched, "batch", GPT_FLEX, responses_batch));
    let results = "/v1/messages/batches/NEXT/results";
    all.push(form("messages", results, claude, "application/x-jsonl", "batch", CLAUDE_BATCH, messages_batch));
    all.push(form("gemini", operations, flash, json_type, "batch", FLASH_BATCH, gemini_batch));
    let download = "/v1beta/files/NEXT:download?alt=media";
    all.push(form("gemini lines", download, flash, fetched, "batch", FLASH_BATCH, gemini_batch_lines));
    let realtime = "/v1/realtime?model=gpt-realtime";
    all.push(form("realtime socket", realtime, "gpt-realtime", "", "", REALTIME, realtime_socket));
    all.push(form("ollama", "/api/chat", "llama3.1", "application/x-ndjson", "", (0, 0, 0), ollama_lines));
    all
}

fn asked(form: &Form) -> Value {
    match form.path {
        "/v1/responses" => {
            json!({ "model": form.model, "input": "hi", "stream": form.content_type == "text/event-stream" })
        }
        path if path.starts_with("/v1/realtime") => json!({}),
        path if path.starts_with("/v1beta") => json!({ "contents": [{ "parts": [{ "text": "hi" }] }] }),
        path if path.starts_with("/model") => {
            json!({ "messages": [{ "role": "user", "content": [{ "text": "hi" }] }] })
        }
        _ => {
            json!({ "model": form.model, "max_tokens": 9, "stream": form.content_type != "application/json", "messages": [{ "role": "user", "content": "hi" }] })
        }
    }
}

fn expected_nano(form: &Form, used: Used) -> u64 {
    let (fresh, cached, written) = form.rates;
    let cached = if form.rates == GPT_FLEX { used.cached * 125 / 2 } else { used.cached * cached };
    used.fresh * fresh + cached + used.written * written
}

const EVENTS: [&str; 2] = ["text/event-stream", "application/vnd.amazon.eventstream"];

/// Bytes of an answer that stand behind its counters and may be cut.
fn behind_counters(form: &Form, said: &[u8]) -> usize {
    match form.name {
        "chat stream" => "data: [DONE]\n\n".len(),
        "messages stream" => sse(&[json!({ "type": "message_stop" })]).len(),
        // Of the last event the empty line may be missing; a binary one is whole.
        _ if said.ends_with(b"\n\n") => 1,
        _ => 0,
    }
}

#[test]
fn three_hundred_calls_are_billed_to_the_token_and_to_the_nanodollar() {
    let next = Arc::new(Mutex::new((String::new(), Vec::new(), 0)));
    let says = Arc::clone(&next);
    let upstream = Upstream::play(move |peer| {
        while let Some(request) = peer.request() {
            let (content_type, said, sent) = says.lock().unwrap().clone();
            if request.header("upgrade").is_some() {
                peer.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n");
                crate::turns::await_message(peer);
                peer.say(&said);
                peer.wait_closed();
                return;
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n",
                said.len()
            );
            if sent < said.len() {
                // The client goes first.
                peer.say([head.as_bytes(), said.get(..sent).unwrap()].concat());
                peer.wait_closed();
                return;
            }
            peer.say([head.as_bytes(), &said, b"\r\n0\r\n\r\n"].concat());
        }
    });
    let prices = "cost_estimation: {custom_models: {claude-unit: {input_per_million: 3, output_per_million: 15, cache_read_per_million: 0.3}}}";
    let gateway = Setup::new(Driver::Epoll)
        .upstream(upstream.url())
        .unlimited()
        .with(prices)
        .with("llm_advisory_injection_enabled: false")
        .start();
    let forms = forms();
    let (mut billed, mut expected, mut calls, mut cuts) = (0_u64, 0_u64, 0_u64, BTreeSet::new());
    for round in 0..15_u64 {
        for (at, form) in forms.iter().enumerate() {
            if calls == 300 {
                break;
            }
            let seed = round * 97 + at as u64 * 31;
            // Even, so that a half of a price is whole.
            let used =
                Used { fresh: 100 + seed * 7 % 5_000, cached: 2 * (seed * 13 % 900), written: 1 + seed * 11 % 3_000 };
            let said = (form.says)(form, used);
            // Cut by the client at up to ten points behind the counters, before the provider has said the rest.
            let is_cut = EVENTS.contains(&form.content_type) && round % 3 == 0;
            let most = if is_cut { behind_counters(form, &said) } else { 0 };
            let cut = if most >= 10 { cuts.len() % 10 + 1 } else { most };
            let sent = said.len() - cut;
            if cut > 0 {
                cuts.insert(cut);
            }
            *next.lock().unwrap() = (form.content_type.to_owned(), said.clone(), sent);
            let span = if form.content_type.is_empty() {
                let mut create = asked(form);
                create["type"] = json!("response.create");
                says_on_socket(&gateway, form.path, &create)
            } else if sent < said.len() {
                let mut client = Client::connect(gateway.addr);
                client.say(Call::post(form.path, asked(form).to_string()).bytes());
                let end = said.get(sent.saturating_sub(40)..sent).unwrap();
                let got = client.read_until(|bytes| bytes.windows(end.len()).any(|piece| piece == end));
                let head = String::from_utf8_lossy(&got).into_owned();
                drop(client);
                let id = head
                    .lines()
                    .find_map(|line| line.to_ascii_lowercase().strip_prefix("x-service-trace-id: ").map(str::to_owned))
                    .unwrap();
                gateway.trace(&id)["spans"][0].clone()
            } else if form.path.contains("NEXT") {
                let path = form.path.replace("NEXT", &format!("file-{calls}"));
                gateway.span_of(&call(gateway.addr, Call::get(&path).bytes()))
            } else {
                gateway.span_of(&call(gateway.addr, Call::post(form.path, asked(form).to_string()).bytes()))
            };
            let tokens =
                (span["prompt_tokens"].as_u64(), span["completion_tokens"].as_u64(), span["tokens_estimated"] == true);
            assert_eq!(
                tokens,
                (Some(used.fresh + used.cached), Some(used.written), false),
                "{} {}: {span}",
                form.name,
                form.tier
            );
            let nano = (span["estimated_cost_usd"].as_f64().unwrap_or_else(|| panic!("{}: {span}", form.name)) * 1e9)
                .round() as u64;
            assert_eq!(nano, expected_nano(form, used), "{} {}: {span}", form.name, form.tier);
            (billed, expected, calls) = (billed + nano, expected + expected_nano(form, used), calls + 1);
        }
    }
    assert_eq!((calls, billed, cuts.len()), (300, expected, 10));
}
