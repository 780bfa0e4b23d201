//! Messages as senders spell them: OpenTelemetry's parts, chat completions, the Messages API, OpenInference, the AI SDK.
//!
//! One lenient reader for all: what it does not know is kept as its JSON text, so that nothing escapes inspection.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::ingest::span::{ReportedMessage, ReportedPart};

/// How deep messages may stand in one another.
const DEPTH_MAX: usize = 8;

/// The messages a value holds, JSON in a text included; `role` where none is given.
pub(super) fn read(value: Value, role: &str) -> Vec<ReportedMessage> {
    let mut messages = Vec::new();
    read_into(&mut messages, value, role, 0);
    for message in &mut messages {
        message.parts.retain(|part| !matches!(part, ReportedPart::Text(text) if text.is_empty()));
    }
    messages.retain(|message| !message.parts.is_empty());
    messages
}

fn read_into(messages: &mut Vec<ReportedMessage>, value: Value, role: &str, depth: usize) {
    match decoded(value) {
        Value::Null => {}
        Value::Array(items) if depth < DEPTH_MAX && items.iter().any(is_message) => {
            items.into_iter().for_each(|item| read_into(messages, item, role, depth + 1));
        }
        Value::Array(items) => messages.push(said(role, items.into_iter().flat_map(part).collect())),
        Value::Object(fields) => read_object(messages, fields, role, depth),
        value => messages.push(said(role, vec![ReportedPart::Text(text(value))])),
    }
}

fn read_object(messages: &mut Vec<ReportedMessage>, mut fields: Map<String, Value>, role: &str, depth: usize) {
    if depth < DEPTH_MAX {
        if let Some(inner) = fields.remove("message") {
            return read_into(messages, inner, role, depth + 1);
        }
        if let Some(inner) = fields.remove("messages") {
            for name in ["system", "instructions"] {
                if let Some(system) = fields.remove(name) {
                    read_into(messages, system, "system", depth + 1);
                }
            }
            if let Some(offered) = fields.remove("tools").map(tools).filter(|offered| !offered.is_empty()) {
                messages.push(said("tools", offered));
            }
            return read_into(messages, inner, role, depth + 1);
        }
        if let Some(inner) = fields.remove("choices").or_else(|| fields.remove("generations")) {
            return read_into(messages, inner, role, depth + 1);
        }
    }
    if has_message(&fields) {
        messages.push(message(fields, role));
    } else {
        messages.push(said(role, part(Value::Object(fields))));
    }
}

fn is_message(value: &Value) -> bool {
    value.as_object().is_some_and(has_message)
}

fn has_message(fields: &Map<String, Value>) -> bool {
    let has = |name| fields.contains_key(name);
    has("role") || has("message") || has("parts") || has("tool_calls") || has("content") && !has("type")
}

fn said(role: &str, parts: Vec<ReportedPart>) -> ReportedMessage {
    ReportedMessage { role: role.to_owned(), parts }
}

fn message(mut fields: Map<String, Value>, role: &str) -> ReportedMessage {
    let role = take_text(&mut fields, &["role"]).unwrap_or_else(|| role.to_owned());
    let call = take_text(&mut fields, &["tool_call_id"]);
    let mut parts = Vec::new();
    if let Some(thought) = take_text(&mut fields, &["reasoning_content", "reasoning"]) {
        parts.push(ReportedPart::Reasoning(thought));
    }
    for name in ["content", "parts", "contents"] {
        match fields.remove(name).map(decoded_parts) {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) => parts.extend(items.into_iter().flat_map(part)),
            Some(value @ Value::Object(_)) => parts.extend(part(value)),
            Some(value) => parts.push(ReportedPart::Text(text(value))),
        }
    }
    if let Some(refusal) = take_text(&mut fields, &["refusal"]) {
        parts.push(ReportedPart::Refusal(refusal));
    }
    if let Some(Value::Array(calls)) = fields.remove("tool_calls").map(decoded) {
        // Senders that list calls beside the contents may have them in both.
        let known: HashSet<&ReportedPart> = parts.iter().collect();
        let calls: Vec<_> = calls.into_iter().filter_map(tool_call).filter(|call| !known.contains(call)).collect();
        parts.extend(calls);
    }
    if let Some(Value::Object(function)) = fields.remove("function_call") {
        parts.extend(tool_call(Value::Object(function)));
    }
    if role == "tool" || call.is_some() {
        let name = take_text(&mut fields, &["name"]);
        parts = parts.into_iter().map(|part| result(part, call.as_ref(), name.as_ref())).collect();
    }
    parts.retain(|part| !matches!(part, ReportedPart::Text(text) if text.is_empty()));
    ReportedMessage { role, parts }
}

/// A text in a message of a tool is what the tool brought.
fn result(part: ReportedPart, id: Option<&String>, name: Option<&String>) -> ReportedPart {
    match part {
        ReportedPart::Text(content) => ReportedPart::ToolResult { id: id.cloned(), name: name.cloned(), content },
        other => other,
    }
}

fn tool_call(value: Value) -> Option<ReportedPart> {
    let Value::Object(mut fields) = value else { return None };
    if let Some(inner @ Value::Object(_)) = fields.remove("tool_call") {
        return tool_call(inner);
    }
    let id = take_text(&mut fields, &["id", "toolCallId", "call_id"]);
    let mut function = match fields.remove("function") {
        Some(Value::Object(function)) => function,
        _ => fields,
    };
    let name = take_text(&mut function, &["name", "toolName"])?;
    let arguments = take_text(&mut function, &["arguments", "args", "input"]).unwrap_or_default();
    Some(ReportedPart::ToolCall { id, name, arguments })
}

/// Tool calls that stand alone, as the AI SDK lists them; what is none is kept as its text.
pub(super) fn calls(value: Value) -> Vec<ReportedPart> {
    let items = match decoded(value) {
        Value::Array(items) => items,
        one => vec![one],
    };
    let call = |item: Value| tool_call(item.clone()).map_or_else(|| part(item), |call| vec![call]);
    items.into_iter().flat_map(call).collect()
}

/// What a model thought, as a text or as parts.
pub(super) fn thoughts(value: Value) -> Vec<ReportedPart> {
    let thought = |part| if let ReportedPart::Text(text) = part { ReportedPart::Reasoning(text) } else { part };
    let parts = match decoded_parts(value) {
        Value::Null => Vec::new(),
        Value::Array(items) => items.into_iter().flat_map(part).collect(),
        other => vec![ReportedPart::Text(text(other))],
    };
    let says = |part: &ReportedPart| !matches!(part, ReportedPart::Reasoning(text) if text.is_empty());
    parts.into_iter().map(thought).filter(says).collect()
}

/// Documents that were found, each as what a tool brought: its content, and what else is said of it.
pub(super) fn documents(value: Value) -> Vec<ReportedPart> {
    let items = match decoded(value) {
        Value::Null => Vec::new(),
        Value::Array(items) => items,
        one => vec![one],
    };
    items.into_iter().filter_map(document).collect()
}

fn document(item: Value) -> Option<ReportedPart> {
    let (mut id, mut content) = (None, String::new());
    match decoded(item) {
        Value::Null => {}
        Value::Object(mut fields) => {
            if let Some(Value::Object(inner)) = fields.remove("document") {
                fields.extend(inner);
            }
            id = take_text(&mut fields, &["id"]);
            content = take_text(&mut fields, &["content", "text", "page_content"]).unwrap_or_default();
            fields.remove("score");
            for (_, more) in fields.into_iter().filter(|(_, more)| !more.is_null()) {
                content.push_str(if content.is_empty() { "" } else { "\n" });
                content.push_str(&text(more));
            }
        }
        other => content = text(other),
    }
    let document = ReportedPart::ToolResult { id, name: None, content };
    Some(document)
        .filter(|document| !matches!(document, ReportedPart::ToolResult { content, .. } if content.is_empty()))
}

fn part(value: Value) -> Vec<ReportedPart> {
    let Value::Object(mut fields) = value else {
        return if value.is_null() { Vec::new() } else { vec![ReportedPart::Text(text(value))] };
    };
    // OpenInference: a part is either a tool call or a content.
    if let Some(call) = fields.remove("tool_call").and_then(tool_call) {
        return vec![call];
    }
    if let Some(inner @ Value::Object(_)) = fields.remove("message_content") {
        return part(inner);
    }
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or("text").to_owned();
    let known = match kind.as_str() {
        "text" | "input_text" | "output_text" => {
            take_text(&mut fields, &["text", "content", "value"]).map(ReportedPart::Text)
        }
        "reasoning" | "thinking" => {
            take_text(&mut fields, &["content", "text", "thinking", "summary"]).map(ReportedPart::Reasoning)
        }
        "refusal" => take_text(&mut fields, &["refusal", "content", "text"]).map(ReportedPart::Refusal),
        "tool_call" | "tool-call" | "tool_use" | "function_call" | "function" => {
            return match tool_call(Value::Object(fields.clone())) {
                Some(call) => vec![call],
                None => vec![ReportedPart::Text(Value::Object(fields).to_string())],
            };
        }
        "tool_call_response" | "tool-result" | "tool_result" | "function_call_output" => {
            let id = take_text(&mut fields, &["id", "toolCallId", "tool_use_id", "call_id", "tool_call_id"]);
            let name = take_text(&mut fields, &["name", "toolName"]);
            let content = take_text(&mut fields, &["response", "result", "output", "content"]).unwrap_or_default();
            Some(ReportedPart::ToolResult { id, name, content })
        }
        _ => None,
    };
    vec![known.unwrap_or_else(|| ReportedPart::Text(Value::Object(fields).to_string()))]
}

/// Tools as an application offers them.
pub(super) fn tools(value: Value) -> Vec<ReportedPart> {
    let Value::Array(items) = decoded(value) else { return Vec::new() };
    items.into_iter().filter_map(|item| tool(item, 0)).collect()
}

fn tool(item: Value, depth: usize) -> Option<ReportedPart> {
    let Value::Object(mut fields) = decoded(item) else { return None };
    for wrapping in ["tool", "function", "json_schema"] {
        match fields.remove(wrapping) {
            Some(inner) if depth < DEPTH_MAX => return tool(inner, depth + 1),
            _ => {}
        }
    }
    let name = take_text(&mut fields, &["name"])?;
    fields.remove("type");
    let text = if fields.is_empty() { String::new() } else { Value::Object(fields).to_string() };
    Some(ReportedPart::ToolDefinition { name, text })
}

/// The first of these fields that says something, as a text.
fn take_text(fields: &mut Map<String, Value>, names: &[&str]) -> Option<String> {
    let found = names.iter().find(|name| fields.get(**name).is_some_and(|value| !value.is_null()))?;
    fields.remove(*found).map(text).filter(|text| !text.is_empty())
}

/// A value as a text: a text as it is, anything else as JSON.
pub(super) fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Bytes of a value as a text.
pub(super) fn len(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(_) | Value::Object(_) => value.to_string().len(),
        _ => size_of::<u64>(),
    }
}

/// The value a text holds as JSON, where it looks like messages or an object; otherwise the value.
pub(super) fn decoded(value: Value) -> Value {
    match value {
        Value::String(text) if text.trim_start().starts_with(['[', '{']) => {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        }
        other => other,
    }
}

/// The same for a content, which may be words that look like JSON: only a list of parts is taken for one.
fn decoded_parts(value: Value) -> Value {
    let Value::String(text) = value else { return value };
    if !text.starts_with("[{") {
        return Value::String(text);
    }
    match serde_json::from_str::<Vec<Value>>(&text) {
        Ok(items) if items.iter().all(|item| item.get("type").is_some_and(Value::is_string)) => Value::Array(items),
        _ => Value::String(text),
    }
}
