//! Recorded requests from JSON Lines, one record a line. Understood are:
//!
//! - `{"path": "/v1/messages", "body": {...}}`: a request as it is.
//! - A span of `weir traces export --spans`, or a trace with its `spans`: its `request` where the record has it, else its `messages`
//!   (`--messages`), else its `prompt`. Of messages and prompts a request in the run's dialect is made that says the same.
//!
//! Invariant: no line is left out in silence; one that holds no request is an error with its number.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::error::SetupError;
use crate::settings::{RecordedCall, RequestDialect};
use crate::spelling;

/// More than this in one file is for another tool.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Reads a file's requests.
pub(super) fn read(path: &Path, dialect: RequestDialect) -> Result<Vec<RecordedCall>, SetupError> {
    let shown = path.display();
    let length = std::fs::metadata(path).map_err(|error| SetupError(format!("recorded: {shown}: {error}")))?.len();
    if length > FILE_BYTES_MAX {
        return Err(SetupError(format!(
            "recorded: {shown} has {length} bytes; accepted are up to {FILE_BYTES_MAX}: keep some of its lines"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|error| SetupError(format!("recorded: {shown}: {error}")))?;
    let calls = parse(&text, dialect).map_err(|error| SetupError(format!("recorded: {shown}: {error}")))?;
    match calls.is_empty() {
        true => Err(SetupError(format!(
            "recorded: {shown} holds no request; make one with `weir traces export --spans --messages`"
        ))),
        false => Ok(calls),
    }
}

fn parse(text: &str, dialect: RequestDialect) -> Result<Vec<RecordedCall>, String> {
    let mut calls = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = at + 1;
        let record: Value =
            serde_json::from_str(line).map_err(|error| format!("line {number} is not JSON: {error}"))?;
        let before = calls.len();
        match record.get("spans").and_then(Value::as_array) {
            Some(spans) => calls.extend(spans.iter().filter_map(|span| call_of(span, dialect))),
            None => calls.extend(call_of(&record, dialect)),
        }
        if calls.len() == before {
            return Err(format!(
                "line {number} holds no request: neither `path` with `body`, nor `request`, `messages` or `prompt` (an export with --no-texts has none)"
            ));
        }
    }
    Ok(calls)
}

fn call_of(record: &Value, dialect: RequestDialect) -> Option<RecordedCall> {
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    if let (Some(path), Some(body)) = (text("path"), record.get("body").filter(|body| body.is_object())) {
        let dialect = dialect_of(body, path);
        return Some(call(path.to_owned(), dialect, is_stream(body, path), body));
    }
    let streaming = record.get("streaming").and_then(Value::as_bool).unwrap_or(false);
    if let Some(body) = record.get("request").filter(|body| body.is_object()) {
        let dialect = dialect_of(body, text("operation_name").unwrap_or_default());
        let stream = streaming || is_stream(body, "");
        return Some(call(path_of(dialect, stream), dialect, stream, body));
    }
    let turns = record.get("messages").and_then(Value::as_array).map(|all| turns_of(all)).unwrap_or_default();
    let prompt = || text("prompt").filter(|prompt| !prompt.is_empty()).map(|prompt| vec![(true, prompt.to_owned())]);
    let turns = if turns.is_empty() { prompt()? } else { turns };
    let system: String = record.get("messages").and_then(Value::as_array).map(|all| system_of(all)).unwrap_or_default();
    let body = body_of(dialect, text("model").unwrap_or("fake-small"), &system, &turns, streaming);
    Some(call(path_of(dialect, streaming), dialect, streaming, &body))
}

fn call(path: String, dialect: RequestDialect, stream: bool, body: &Value) -> RecordedCall {
    RecordedCall { path, dialect, stream, body: body.to_string() }
}

fn is_stream(body: &Value, path: &str) -> bool {
    body.get("stream").and_then(Value::as_bool).unwrap_or(false) || path.contains(":streamGenerateContent")
}

/// Whose request it is, by its members and by its path or the name of its operation.
fn dialect_of(body: &Value, hint: &str) -> RequestDialect {
    match hint {
        _ if body.get("contents").is_some() => RequestDialect::Gemini,
        _ if body.get("input").is_some() => RequestDialect::Responses,
        _ if hint.starts_with("/v1/messages") || hint == "messages" => RequestDialect::Messages,
        _ if hint.starts_with("/api/") || hint == "chat" || hint == "generate" => RequestDialect::Local,
        _ if body.get("system").is_some() => RequestDialect::Messages,
        _ => RequestDialect::Chat,
    }
}

fn path_of(dialect: RequestDialect, stream: bool) -> String {
    match dialect {
        RequestDialect::Chat => "/v1/chat/completions",
        RequestDialect::Messages => "/v1/messages",
        RequestDialect::Responses => "/v1/responses",
        RequestDialect::Gemini if stream => "/v1beta/models/fake-small:streamGenerateContent?alt=sse",
        RequestDialect::Gemini => "/v1beta/models/fake-small:generateContent",
        RequestDialect::Local => "/api/chat",
    }
    .to_owned()
}

/// What was said to the model and by it before, in turns that alternate: whether the user's, and the text.
fn turns_of(messages: &[Value]) -> Vec<(bool, String)> {
    let mut turns: Vec<(bool, String)> = Vec::new();
    for message in messages.iter().filter(|message| is_sent(message)) {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        if matches!(role, "system" | "developer" | "tools") {
            continue;
        }
        let (is_users, text) = (!matches!(role, "assistant" | "model"), words_of(message));
        match turns.last_mut() {
            _ if text.is_empty() => {}
            Some((last, said)) if *last == is_users => *said = format!("{said}\n{text}"),
            _ => turns.push((is_users, text)),
        }
    }
    turns
}

fn system_of(messages: &[Value]) -> String {
    let is_system =
        |message: &&Value| matches!(message.get("role").and_then(Value::as_str), Some("system" | "developer"));
    messages.iter().filter(is_system).map(words_of).collect::<Vec<_>>().join("\n")
}

/// Whether a message went to the model; one that does not say so did.
fn is_sent(message: &Value) -> bool {
    !matches!(message.get("side").and_then(Value::as_str), Some("response" | "received" | "output" | "answer"))
}

fn words_of(message: &Value) -> String {
    let parts = message.get("parts").or_else(|| message.get("content"));
    let text_of = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
    match parts {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(text_of).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

fn body_of(dialect: RequestDialect, model: &str, system: &str, turns: &[(bool, String)], stream: bool) -> Value {
    let spelled = |(is_users, text): &(bool, String)| spelling::turn(dialect, *is_users, text);
    let turns = turns.iter().map(|turn| serde_json::from_str(&spelled(turn)).unwrap_or_default());
    let mut turns: Vec<Value> = turns.collect();
    let mut body = Map::new();
    let (list, instructions) = match dialect {
        RequestDialect::Gemini => ("contents", Some(("systemInstruction", json!({"parts": [{"text": system}]})))),
        RequestDialect::Messages => ("messages", Some(("system", json!(system)))),
        RequestDialect::Responses => ("input", Some(("instructions", json!(system)))),
        RequestDialect::Chat | RequestDialect::Local => {
            if !system.is_empty() {
                turns.insert(0, json!({"role": "system", "content": system}));
            }
            ("messages", None)
        }
    };
    if dialect != RequestDialect::Gemini {
        body.insert("model".to_owned(), json!(model));
        body.insert("stream".to_owned(), json!(stream));
    }
    if dialect == RequestDialect::Messages {
        body.insert("max_tokens".to_owned(), json!(4096));
    }
    if let Some((name, value)) = instructions.filter(|_| !system.is_empty()) {
        body.insert(name.to_owned(), value);
    }
    body.insert(list.to_owned(), Value::Array(turns));
    Value::Object(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_spans_and_traces_are_read() {
        let lines = [
            r#"{"path":"/v1/messages","body":{"model":"m","messages":[],"stream":true}}"#,
            r#"{"operation_name":"responses","streaming":false,"request":{"model":"m","input":"hi"}}"#,
            r#"{"spans":[{"model":"m","streaming":true,"messages":[{"side":"request","role":"system","parts":[{"type":"text","text":"be brief"}]},{"side":"request","role":"user","parts":[{"type":"text","text":"one"},{"type":"text","text":"two"}]},{"side":"response","role":"assistant","parts":[{"type":"text","text":"answer"}]}]}]}"#,
            r#"{"model":"m","prompt":"plain words"}"#,
        ];
        let calls = parse(&lines.join("\n"), RequestDialect::Chat).unwrap();
        let seen: Vec<_> = calls.iter().map(|call| (call.path.as_str(), call.dialect, call.stream)).collect();
        assert_eq!(
            seen,
            [
                ("/v1/messages", RequestDialect::Messages, true),
                ("/v1/responses", RequestDialect::Responses, false),
                ("/v1/chat/completions", RequestDialect::Chat, true),
                ("/v1/chat/completions", RequestDialect::Chat, false),
            ]
        );
        let third: Value = serde_json::from_str(&calls[2].body).unwrap();
        assert_eq!(
            third["messages"],
            json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "one\ntwo"}])
        );
    }

    #[test]
    fn a_line_without_a_request_is_named() {
        assert!(
            parse("{\"prompt\":\"a\"}\n{\"x\":1}", RequestDialect::Chat)
                .unwrap_err()
                .starts_with("line 2 holds no request")
        );
        assert!(parse("\n{", RequestDialect::Chat).unwrap_err().starts_with("line 2 is not JSON"));
        assert!(
            read(Path::new("/nowhere.jsonl"), RequestDialect::Chat)
                .unwrap_err()
                .0
                .starts_with("recorded: /nowhere.jsonl: ")
        );
    }
}
