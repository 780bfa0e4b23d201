//! Promise: a record is named for what was asked, by the table in the book, and shows the request in the order in which the model reads
//! it, whatever the interface.

use serde_json::{Value, json};

use crate::support::{Call, Setup, Upstream, call, on_both_drivers};
use crate::turns::handshake;

const SYSTEM: &str = "Be brief.\nAnd be kind.";
const PAGE: &str = include_str!("../../docs/book/src/guide/record.md");

/// The operations that the book lists.
fn listed() -> Vec<&'static str> {
    let table = PAGE.split("## What calls are called").nth(1).unwrap().split("\n## ").next().unwrap();
    let first = |line: &'static str| line.strip_prefix("| `")?.split(" | ").next();
    let cells = table.lines().filter_map(first).filter(|cell| !cell.starts_with("operation_name"));
    cells.flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`')).collect()
}

fn turns() -> Value {
    json!([{ "role": "user", "content": "What is this?" }, { "role": "assistant", "content": "A dot." }, { "role": "user", "content": "And that?" }])
}

/// Requests with their operation; those of conversations have their instructions behind them, as most clients write them.
fn requests() -> Vec<(&'static str, &'static str, String)> {
    let gemini = json!([{ "role": "user", "parts": [{ "text": "What is this?" }] }, { "role": "user", "parts": [{ "text": "And that?" }] }]);
    let converse = json!([{ "role": "user", "content": [{ "text": "What is this?" }, { "text": "And that?" }] }]);
    let behind = |before: String, after: Value| format!("{},{}", before.trim_end_matches('}'), &after.to_string()[1..]);
    let messages = json!({ "model": "m", "max_tokens": 9, "messages": turns() }).to_string();
    let blocks =
        json!({ "system": [{ "type": "text", "text": "Be brief." }, { "type": "text", "text": "And be kind." }] });
    let contents = behind(
        json!({ "contents": gemini }).to_string(),
        json!({ "systemInstruction": { "parts": [{ "text": SYSTEM }] } }),
    );
    let mut chat = turns();
    chat.as_array_mut().unwrap().insert(0, json!({ "role": "system", "content": SYSTEM }));
    let chat = json!({ "model": "m", "messages": chat }).to_string();
    let input = json!({ "model": "m", "input": "hi" }).to_string();
    vec![
        ("/v1/chat/completions", "chat_completion", chat.clone()),
        ("/openai/deployments/m/chat/completions", "chat_completion", chat.clone()),
        (
            "/v1/responses",
            "responses",
            behind(json!({ "model": "m", "input": turns() }).to_string(), json!({ "instructions": SYSTEM })),
        ),
        (
            "/openai/v1/responses",
            "responses",
            behind(
                json!({ "model": "m", "input": turns(), "stream": true }).to_string(),
                json!({ "instructions": SYSTEM }),
            ),
        ),
        ("/v1/messages", "messages", behind(messages.clone(), json!({ "system": SYSTEM }))),
        ("/v1/messages?beta=true", "messages", behind(messages.clone(), blocks)),
        ("/model/anthropic.claude-3/invoke", "messages", behind(messages, json!({ "system": SYSTEM }))),
        ("/v1beta/models/m:generateContent", "generate_content", contents.clone()),
        ("/v1/projects/p/locations/l/publishers/google/models/m:streamGenerateContent", "generate_content", contents),
        (
            "/model/us.amazon.nova/converse",
            "converse",
            behind(json!({ "messages": converse }).to_string(), json!({ "system": [{ "text": SYSTEM }] })),
        ),
        ("/api/chat", "chat", chat),
        (
            "/api/generate",
            "generate",
            behind(json!({ "model": "m", "prompt": "What is this?" }).to_string(), json!({ "system": SYSTEM })),
        ),
        (
            "/v1beta/interactions",
            "interaction",
            behind(
                json!({ "model": "m", "input": "What is this?" }).to_string(),
                json!({ "system_instruction": SYSTEM }),
            ),
        ),
        ("/v1/completions", "completion", json!({ "model": "m", "prompt": "hi" }).to_string()),
        ("/v1/embeddings", "embedding", input.clone()),
        (
            "/v1beta/models/m:embedContent",
            "embedding",
            json!({ "content": { "parts": [{ "text": "hi" }] } }).to_string(),
        ),
        ("/api/embed", "embedding", input.clone()),
        ("/v1/audio/speech", "speech", input.clone()),
        ("/v1/audio/translations", "transcription", String::new()),
        ("/v1/images/edits", "image", String::new()),
        ("/v1/moderations", "moderation", input.clone()),
        ("/v1/models", "list_models", String::new()),
        ("/v1/messages/count_tokens", "proxy", json!({ "model": "m", "messages": turns() }).to_string()),
        ("/v1beta/models/m:countTokens", "proxy", "{}".to_owned()),
        ("/v1/rerank", "proxy", input),
    ]
}

on_both_drivers! {
    fn a_record_is_named_for_what_was_asked_and_begins_with_its_instructions(driver) {
        let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
        let gateway = Setup::new(driver).upstream(upstream.url()).unlimited().start();
        let (mut named, listed) = (vec!["responses", "realtime"], listed());
        for (path, operation, body) in requests() {
            let asked = if body.is_empty() { Call::get(path) } else { Call::post(path, body.clone()) };
            let answer = call(gateway.addr, asked.bytes());
            let span = gateway.span_of(&answer);
            assert_eq!(span["operation_name"], operation, "{path}");
            named.push(operation);
            if body.contains("be kind") {
                let prompt = span["prompt"].as_str().unwrap_or_default();
                assert!(prompt.starts_with(SYSTEM) && prompt.contains("What is this?"), "{path}: {prompt:?}");
                let first = &span["messages"][0];
                assert_eq!(first["role"], "system", "{path}: {first}");
            }
        }
        // A socket that the provider does not open; its turns have the same name (`turns`).
        for (path, operation) in [("/v1/responses", "responses"), ("/v1/realtime?model=m", "realtime")] {
            let answer = call(gateway.addr, handshake(path, ""));
            assert_eq!(gateway.span_of(&answer)["operation_name"], operation, "{path}");
        }
        for name in &named {
            assert!(listed.contains(name), "the book's table lacks `{name}`: {listed:?}");
        }
        assert!(listed.iter().all(|name| named.contains(name)), "{listed:?} has more than {named:?}");
    }
}
