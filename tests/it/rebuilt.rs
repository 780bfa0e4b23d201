//! Promise: what is kept of a call is enough to ask the same again in its dialect: who said what, in the order of the wire, which tools
//! there are, were asked for and answered. What was redacted stays redacted.
//!
//! A call with tools gives back its whole body (`request`). `messages` alone, of any call, say less; what they leave out is left
//! out on both sides ([`kept`]): parameters beside the model and streaming, schemas, and the field names of arguments that are an
//! object. Of a file its SHA-256 is kept.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::conversations::{cases, told};
use crate::support::{Call, Gateway, Setup, Upstream, call, on_both_drivers};

/// What of a span's conversation was sent to the model.
fn asked(span: &Value) -> Vec<&Value> {
    span["messages"].as_array().unwrap().iter().filter(|message| message["side"] == "request").collect()
}

fn parts(message: &Value) -> impl Iterator<Item = &Value> {
    message["parts"].as_array().unwrap().iter()
}

fn is(part: &Value, kind: &str) -> bool {
    part["type"] == kind
}

/// Those messages of the conversation proper, without instructions and definitions that stand beside it.
fn turns<'a>(asked: &[&'a Value]) -> Vec<&'a Value> {
    asked.iter().copied().filter(|message| !message["index"].is_null()).collect()
}

fn beside<'a>(asked: &[&'a Value], role: &str) -> Vec<&'a Value> {
    let found = asked.iter().copied().filter(|message| message["index"].is_null() && message["role"] == role);
    found.flat_map(parts).collect()
}

/// A request in its dialect, of what the record says.
fn rebuilt(path: &str, span: &Value) -> Value {
    let asked = asked(span);
    let (turns, tools, system) = (turns(&asked), beside(&asked, "tools"), beside(&asked, "system"));
    let mut request = match path {
        "/v1/chat/completions" => json!({ "messages": turns.iter().map(|turn| chat(turn)).collect::<Vec<_>>(),
            "tools": tools.iter().map(|tool| json!({ "type": "function", "function": defined(tool) })).collect::<Vec<_>>() }),
        "/v1/messages" => json!({ "messages": turns.iter().map(|turn| blocks(turn)).collect::<Vec<_>>(),
            "system": text_of(&system), "tools": tools.iter().map(|tool| defined(tool)).collect::<Vec<_>>() }),
        "/v1/responses" => json!({ "input": turns.iter().flat_map(|turn| items(turn)).collect::<Vec<_>>(),
            "instructions": text_of(&system), "tools": tools.iter().map(|tool| {
                let mut tool = defined(tool);
                tool["type"] = json!("function");
                tool
            }).collect::<Vec<_>>() }),
        "/api/chat" => json!({ "messages": turns.iter().map(|turn| local(turn)).collect::<Vec<_>>() }),
        path if path.ends_with(":generateContent") => json!({
            "contents": turns.iter().map(|turn| json!({ "role": turn["role"], "parts": parts(turn).map(gemini).collect::<Vec<_>>() }))
                .collect::<Vec<_>>(),
            "systemInstruction": { "parts": [{ "text": text_of(&system) }] },
            "tools": [{ "functionDeclarations": tools.iter().map(|tool| defined(tool)).collect::<Vec<_>>() }] }),
        path if path.ends_with("/converse") => json!({
            "messages": turns.iter().map(|turn| json!({ "role": turn["role"], "content": parts(turn).map(converse).collect::<Vec<_>>() }))
                .collect::<Vec<_>>(),
            "system": [{ "text": text_of(&system) }],
            "toolConfig": { "tools": tools.iter().map(|tool| json!({ "toolSpec": defined(tool) })).collect::<Vec<_>>() } }),
        "/v1/completions" => json!({ "prompt": text_of(&asked.iter().copied().flat_map(parts).collect::<Vec<_>>()) }),
        "/generate" => json!({ "inputs": text_of(&asked.iter().copied().flat_map(parts).collect::<Vec<_>>()) }),
        _ => panic!("no dialect of {path}"),
    };
    // Where the path does not say it.
    if path.starts_with("/v1/") || path.starts_with("/api/") {
        request["model"] = span["model"].clone();
    }
    if path == "/api/chat" {
        request["stream"] = span["streaming"].clone();
    }
    request
}

fn text_of(parts: &[&Value]) -> Value {
    json!(parts.iter().map(|part| part["text"].as_str().unwrap()).collect::<Vec<_>>().join("\n"))
}

fn defined(tool: &Value) -> Value {
    json!({ "name": tool["name"], "description": tool["text"] })
}

/// The words of arguments that are an object.
fn words(part: &Value) -> Value {
    json!({ "": part["text"] })
}

fn hash(part: &Value) -> String {
    format!("sha256:{}", part["file"]["sha256"].as_str().unwrap())
}

fn chat(turn: &Value) -> Value {
    let beside = |part: &&Value| is(part, "tool_call") || is(part, "reasoning");
    let content = parts(turn).filter(|part| !beside(part)).map(|part| match part["type"].as_str().unwrap() {
        "image" => json!({ "type": "image_url", "image_url": { "url": hash(part) } }),
        _ => json!({ "type": "text", "text": part["text"] }),
    });
    let mut message = json!({ "role": turn["role"], "content": content.collect::<Vec<_>>() });
    let calls = parts(turn).filter(|part| is(part, "tool_call"));
    let calls: Vec<Value> = calls
        .map(|part| json!({ "id": part["call_id"], "type": "function", "function": { "name": part["name"], "arguments": part["text"] } }))
        .collect();
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    if let Some(thought) = parts(turn).find(|part| is(part, "reasoning")) {
        message["reasoning_content"] = thought["text"].clone();
    }
    if let Some(result) = parts(turn).find(|part| is(part, "tool_result")) {
        message["tool_call_id"] = result["call_id"].clone();
    }
    message
}

fn blocks(turn: &Value) -> Value {
    let block = |part: &Value| match part["type"].as_str().unwrap() {
        "image" => {
            json!({ "type": "image", "source": { "type": "base64", "media_type": part["file"]["media_type"], "data": hash(part) } })
        }
        "tool_call" => json!({ "type": "tool_use", "id": part["call_id"], "name": part["name"], "input": words(part) }),
        "reasoning" => json!({ "type": "thinking", "thinking": part["text"] }),
        "tool_result" => {
            json!({ "type": "tool_result", "tool_use_id": part["call_id"], "content": [{ "type": "text", "text": part["text"] }] })
        }
        _ => json!({ "type": "text", "text": part["text"] }),
    };
    json!({ "role": turn["role"], "content": parts(turn).map(block).collect::<Vec<_>>() })
}

fn items(turn: &Value) -> Vec<Value> {
    let item = |part: &Value| match part["type"].as_str().unwrap() {
        "tool_call" => {
            json!({ "type": "function_call", "call_id": part["call_id"], "name": part["name"], "arguments": part["text"] })
        }
        "reasoning" => json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": part["text"] }] }),
        "tool_result" => json!({ "type": "function_call_output", "call_id": part["call_id"], "output": part["text"] }),
        _ => json!({ "role": turn["role"], "content": [{ "type": "input_text", "text": part["text"] }] }),
    };
    parts(turn).map(item).collect()
}

fn gemini(part: &Value) -> Value {
    match part["type"].as_str().unwrap() {
        "image" => json!({ "inlineData": { "mimeType": part["file"]["media_type"], "data": hash(part) } }),
        "tool_call" => json!({ "functionCall": { "name": part["name"], "args": words(part) } }),
        "reasoning" => json!({ "text": part["text"], "thought": true }),
        "tool_result" => json!({ "functionResponse": { "name": part["name"], "response": words(part) } }),
        _ => json!({ "text": part["text"] }),
    }
}

fn converse(part: &Value) -> Value {
    match part["type"].as_str().unwrap() {
        "tool_call" => {
            json!({ "toolUse": { "toolUseId": part["call_id"], "name": part["name"], "input": words(part) } })
        }
        "reasoning" => json!({ "reasoningContent": { "reasoningText": { "text": part["text"] } } }),
        "tool_result" => {
            json!({ "toolResult": { "toolUseId": part["call_id"], "content": [{ "text": part["text"] }] } })
        }
        _ => json!({ "text": part["text"] }),
    }
}

fn local(turn: &Value) -> Value {
    let calls = parts(turn).filter(|part| is(part, "tool_call"));
    let calls: Vec<Value> =
        calls.map(|part| json!({ "function": { "name": part["name"], "arguments": words(part) } })).collect();
    let beside = |part: &&Value| is(part, "tool_call") || is(part, "reasoning");
    let said: Vec<&Value> = parts(turn).filter(|part| !beside(part)).collect();
    let mut message = json!({ "role": turn["role"], "content": text_of(&said) });
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    if let Some(thought) = parts(turn).find(|part| is(part, "reasoning")) {
        message["thinking"] = thought["text"].clone();
    }
    message
}

/// Cases whose answer is one document.
fn whole_cases() -> Vec<Value> {
    cases().into_iter().filter(|case| case["stream"].is_null()).collect()
}

/// A request without what the record does not keep, contents that are one string written as the list they stand for.
fn kept(path: &str, request: &Value) -> Value {
    const KEPT: [&str; 12] = [
        "model",
        "messages",
        "tools",
        "system",
        "instructions",
        "input",
        "contents",
        "systemInstruction",
        "toolConfig",
        "prompt",
        "inputs",
        "stream",
    ];
    let mut request = request.clone();
    let fields = request.as_object_mut().unwrap();
    fields.retain(|name, _| KEPT.contains(&name.as_str()) && (name != "stream" || path == "/api/chat"));
    reduced(path, &mut request);
    request
}

fn reduced(path: &str, value: &mut Value) {
    let sha = |base64: &str| {
        let digest = Sha256::digest(STANDARD.decode(base64).unwrap());
        json!(format!("sha256:{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| reduced(path, item)),
        Value::Object(fields) => {
            let left_out = ["input_schema", "parameters", "inputSchema", "signature"];
            fields.retain(|name, _| !left_out.contains(&name.as_str()));
            for (name, value) in fields.iter_mut() {
                match (name.as_str(), &mut *value) {
                    // A turn of the local server has a text and nothing else.
                    ("content", Value::String(text)) if path != "/api/chat" => {
                        *value = json!([{ "type": "text", "text": text }]);
                    }
                    ("url", Value::String(url)) => *value = sha(url.rsplit_once(',').unwrap().1),
                    ("data", Value::String(data)) => *value = sha(data),
                    ("input" | "args" | "response" | "arguments", Value::Object(arguments)) => {
                        *value = spoken(arguments)
                    }
                    _ => reduced(path, value),
                }
            }
        }
        _ => {}
    }
}

/// The words of arguments, their names left out.
fn spoken(arguments: &Map<String, Value>) -> Value {
    let texts: Vec<&str> = arguments.values().filter_map(Value::as_str).collect();
    json!({ "": texts.join("\n") })
}

/// Requests of the dialects that are one text.
fn plain() -> Vec<Value> {
    let text = "Say good day.\nIn three languages.";
    let completion = json!({ "choices": [{ "index": 0, "text": "Good day." }] });
    vec![
        json!({ "path": "/v1/completions", "request": { "model": "gpt-3.5-turbo-instruct", "max_tokens": 9, "prompt": text }, "answer": completion }),
        json!({ "path": "/generate", "request": { "inputs": text, "parameters": { "temperature": 0.5 } }, "answer": { "generated_text": "Good day." } }),
    ]
}

/// A provider that answers as the case of the path says.
fn provider(cases: Vec<Value>) -> Upstream {
    Upstream::play(move |peer| {
        while let Some(request) = peer.request() {
            let case = cases.iter().find(|case| case["path"].as_str() == Some(request.path.as_str())).unwrap();
            let body = case["answer"].to_string();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
            peer.say([head.as_bytes(), body.as_bytes()].concat().as_slice());
        }
    })
}

fn recorded(gateway: &Gateway, path: &str, request: &Value) -> Value {
    let answer = call(gateway.addr, Call::post(path, request.to_string()).bytes());
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    gateway.span_of(&answer)
}

/// The request as the record gives it back.
fn request_of(gateway: &Gateway, span: &Value) -> Value {
    let path = format!("/api/v1/spans/{}?fields=request", span["span_id"].as_str().unwrap());
    let traces = format!("/api/v1/traces/{}?fields=spans.request", span["trace_id"].as_str().unwrap());
    let mut one = gateway.json(&path);
    assert_eq!(gateway.json(&traces), json!({ "spans": [&one] }));
    one["request"].take()
}

/// A request as it is given back: all of it where it has tools, files as what is known of them.
fn whole(request: &Value) -> Value {
    fn described(value: &mut Value, media_type: Option<&str>) {
        let file = |base64: &str, media_type: &str| {
            let bytes = STANDARD.decode(base64).unwrap();
            let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "sha256": sha256, "bytes": bytes.len(), "media_type": media_type })
        };
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| described(item, None)),
            Value::Object(fields) => {
                let of = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
                let media_type = of("media_type").or_else(|| of("mimeType"));
                for (name, value) in fields.iter_mut() {
                    described(value, media_type.as_deref().filter(|_| name == "data"));
                }
            }
            Value::String(text) => match (text.strip_prefix("data:image/png;base64,"), media_type) {
                (Some(base64), _) => *value = file(base64, "image/png"),
                (None, Some(media_type)) => *value = file(text, media_type),
                _ => {}
            },
            _ => {}
        }
    }
    let has_tools = ["tools", "toolConfig"].iter().any(|name| request.get(name).is_some())
        || request.to_string().contains("tool_calls");
    if !has_tools {
        return Value::Null;
    }
    let mut request = request.clone();
    described(&mut request, None);
    request
}

fn blocks_of(message: &Value) -> impl Iterator<Item = &Value> {
    message["content"].as_array().into_iter().flatten()
}

/// A request without the files of which only hashes are there.
fn without_files(mut value: Value) -> Value {
    match &mut value {
        Value::Array(items) => {
            items.iter_mut().for_each(|item| *item = without_files(item.take()));
            items.retain(|item| !item.to_string().contains("sha256:"));
        }
        Value::Object(fields) => fields.values_mut().for_each(|value| *value = without_files(value.take())),
        _ => {}
    }
    value
}

/// What a request's record tells, files left out: their bytes are not kept.
fn told_of_request(span: &Value) -> Vec<String> {
    let lines = told(span).into_iter().filter(|line| line.starts_with("request "));
    let without = |line: String| {
        let (who, said) = line.split_once(": ").unwrap();
        let said: Vec<&str> = said.split(" | ").filter(|part| !part.starts_with("image ")).collect();
        format!("{who}: {}", said.join(" | "))
    };
    lines.map(without).collect()
}

on_both_drivers! {
    fn a_request_of_every_dialect_can_be_asked_again(driver) {
        let all: Vec<Value> = whole_cases().into_iter().chain(plain()).collect();
        let upstream = provider(all.clone());
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        for case in &all {
            let path = case["path"].as_str().unwrap();
            let span = recorded(&gateway, path, &case["request"]);
            let again = rebuilt(path, &span);
            assert_eq!(again, kept(path, &case["request"]), "{path}");
            assert_eq!(request_of(&gateway, &span), whole(&case["request"]), "{path}");
            // Asked again it is recorded as the same conversation.
            let second = recorded(&gateway, path, &without_files(again));
            assert_eq!(told_of_request(&second), told_of_request(&span), "{path}");
            for field in ["provider", "operation_name", "model", "streaming"] {
                assert_eq!(second[field], span[field], "{path}: {field}");
            }
        }
    }

    fn what_was_redacted_stays_redacted(driver) {
        let all = whole_cases();
        let upstream = provider(all.clone());
        let settings = "pii: {action: alert_and_redact}\nllm_advisory_injection_enabled: false";
        let gateway = Setup::new(driver).upstream(upstream.url()).with(settings).start();
        for case in &all {
            let path = case["path"].as_str().unwrap();
            let with = |words: &str| -> Value {
                serde_json::from_str(&case["request"].to_string().replace("What is this?", words)).unwrap()
            };
            let span = recorded(&gateway, path, &with("Write to anna.berg@example.com."));
            let again = rebuilt(path, &span);
            assert_eq!(again, kept(path, &with("Write to [PII:EMAIL].")), "{path}");
            assert_eq!(request_of(&gateway, &span), whole(&with("Write to [PII:EMAIL].")), "{path}");
        }
        // What is no text is looked at all the same.
        let told = json!({ "model": "claude", "max_tokens": 9, "messages": [{ "role": "assistant", "content": [{ "type": "tool_use",
            "id": "t1", "name": "pay", "input": { "card": 4_111_111_111_111_111_u64, "sum": 12, "for": "tea" } },
            { "type": "tool_use", "id": "t2", "name": "wait", "input": { "seconds": 5 } }] }] });
        let tagged: Value = serde_json::from_str(&told.to_string().replace("4111111111111111", "\"[PII:CREDIT_CARD]\"")).unwrap();
        assert_eq!(request_of(&gateway, &recorded(&gateway, "/v1/messages", &told)), tagged);
    }

    fn the_turns_of_an_agent_are_kept_as_they_were_sent(driver) {
        let upstream = crate::support::provider();
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let turns = crate::rewriting::turns();
        // All of them are read in `inspect::tests`.
        for turn in [&turns[0], &turns[1], turns.last().unwrap()] {
            let turn: Value = serde_json::from_str(turn).unwrap();
            let span = recorded(&gateway, "/v1/messages", &turn);
            assert_eq!(request_of(&gateway, &span), turn);
            let calls = |span: &Value| -> Vec<Value> {
                let parts = asked(span).into_iter().flat_map(parts).filter(|part| is(part, "tool_call"));
                parts.map(|part| part["value"].clone()).collect()
            };
            let inputs: Vec<&Value> = turn["messages"].as_array().unwrap().iter().flat_map(blocks_of)
                .filter(|block| block["type"] == "tool_use").map(|block| &block["input"]).collect();
            assert_eq!(calls(&span).iter().collect::<Vec<_>>(), inputs);
        }
    }
}
