//! A reported call as the bodies it would have had, so that it is read by the readers of proxied calls: the same parts, roles,
//! tool calls and counters, whoever brought it.

use serde_json::{Map, Value, json};

use super::span::{ReportedMessage, ReportedPart, ReportedSpan, ReportedUsage};

/// The body of the request; `None` where nothing is said of it.
pub(super) fn request(span: &ReportedSpan) -> Option<Vec<u8>> {
    if span.input.is_empty() && span.model.is_none() {
        return None;
    }
    let mut body = Map::new();
    if let Some(model) = &span.model {
        body.insert("model".to_owned(), json!(model));
    }
    let tools: Vec<Value> = parts(&span.input).filter_map(definition).collect();
    if !tools.is_empty() {
        body.insert("tools".to_owned(), Value::Array(tools));
    }
    let messages: Vec<Value> = span.input.iter().flat_map(messages).collect();
    body.insert("messages".to_owned(), Value::Array(messages));
    Some(Value::Object(body).to_string().into_bytes())
}

/// The body of the answer; `None` where nothing is said of it.
pub(super) fn answer(span: &ReportedSpan) -> Option<Vec<u8>> {
    if span.output.is_empty() && span.usage.is_empty() && span.finish_reason.is_none() {
        return None;
    }
    let choice = |(index, message): (usize, &ReportedMessage)| json!({"index": index, "message": one(message), "finish_reason": span.finish_reason});
    let mut choices: Vec<Value> = span.output.iter().enumerate().map(choice).collect();
    if choices.is_empty() && span.finish_reason.is_some() {
        choices.push(json!({"index": 0, "message": {"role": "assistant"}, "finish_reason": span.finish_reason}));
    }
    let body = json!({"object": "chat.completion", "choices": choices, "usage": usage(&span.usage)});
    Some(body.to_string().into_bytes())
}

fn parts(messages: &[ReportedMessage]) -> impl Iterator<Item = &ReportedPart> {
    messages.iter().flat_map(|message| &message.parts)
}

/// The messages one reported message becomes: what a tool brought stands in one of its own.
fn messages(message: &ReportedMessage) -> Vec<Value> {
    let is_result = |part: &&ReportedPart| matches!(part, ReportedPart::ToolResult { .. });
    let mut all: Vec<Value> = message.parts.iter().filter(is_result).map(result).collect();
    let is_other =
        |part: &ReportedPart| !matches!(part, ReportedPart::ToolResult { .. } | ReportedPart::ToolDefinition { .. });
    if message.parts.iter().any(is_other) {
        all.push(one(message));
    }
    all
}

fn result(part: &ReportedPart) -> Value {
    match part {
        ReportedPart::ToolResult { id, name, content } => {
            json!({"role": "tool", "tool_call_id": id, "name": name, "content": content})
        }
        _ => Value::Null,
    }
}

fn definition(part: &ReportedPart) -> Option<Value> {
    let ReportedPart::ToolDefinition { name, text } = part else { return None };
    Some(json!({"type": "function", "function": {"name": name, "description": text}}))
}

/// A message without what tools brought.
fn one(message: &ReportedMessage) -> Value {
    let (mut content, mut calls, mut reasoning, mut refusal) = (Vec::new(), Vec::new(), String::new(), String::new());
    for part in &message.parts {
        match part {
            ReportedPart::Text(text) => content.push(json!({"type": "text", "text": text})),
            ReportedPart::Reasoning(text) => append(&mut reasoning, text),
            ReportedPart::Refusal(text) => append(&mut refusal, text),
            ReportedPart::ToolCall { id, name, arguments } => calls.push(json!({
                "id": id, "type": "function", "function": {"name": name, "arguments": arguments}
            })),
            ReportedPart::ToolResult { .. } | ReportedPart::ToolDefinition { .. } => {}
        }
    }
    let mut body = Map::new();
    body.insert("role".to_owned(), json!(message.role));
    for (name, text) in [("reasoning_content", reasoning), ("refusal", refusal)] {
        if !text.is_empty() {
            body.insert(name.to_owned(), Value::String(text));
        }
    }
    if !content.is_empty() {
        body.insert("content".to_owned(), Value::Array(content));
    }
    if !calls.is_empty() {
        body.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Value::Object(body)
}

fn append(all: &mut String, text: &str) {
    if !all.is_empty() {
        all.push('\n');
    }
    all.push_str(text);
}

fn usage(usage: &ReportedUsage) -> Value {
    if usage.is_empty() {
        return Value::Null;
    }
    let mut counters = Map::new();
    for (name, count) in [
        ("prompt_tokens", usage.prompt),
        ("completion_tokens", usage.completion),
        ("total_tokens", usage.total),
        ("cache_read_input_tokens", usage.cached),
        ("cache_creation_input_tokens", usage.cache_write),
    ] {
        counters.extend(count.map(|count| (name.to_owned(), json!(count))));
    }
    if let Some(reasoning) = usage.reasoning {
        counters.insert("completion_tokens_details".to_owned(), json!({"reasoning_tokens": reasoning}));
    }
    Value::Object(counters)
}
