//! From attributes to the fields of a span, by the table of `names`. What has no field stays an attribute.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::names::{ANSWER, CALLS, FIELDS, Field, INPUT, LEVEL, OUTPUT, STATUS_MESSAGE, SYSTEM, THOUGHTS, TOOLS};
use super::words::{Words, of_role};
use super::{Attributes, Origin, RawEvent, messages, steps};
use crate::ingest::span::{ReportedMessage, ReportedSpan};
use crate::record::RESPONSE_ID;

/// Bytes of an answer's id.
const ID_BYTES_MAX: usize = 256;
/// Bytes of a value that is kept as an attribute; texts of messages have fields.
pub(super) const VALUE_BYTES_MAX: usize = 16 * 1024;

/// Fills in what the attributes of a span, of its resource and of its events say.
pub(super) fn fill(
    span: &mut ReportedSpan,
    name: String,
    mut attributes: Attributes,
    events: &mut Vec<RawEvent>,
    origin: &Origin,
) {
    take_fields(span, &mut attributes);
    if let Some(tenant) = origin.tenant.clone().filter(|_| span.tenant_id.is_none()) {
        set(span, Field::Tenant, tenant);
    }
    span.session_id = span.session_id.take().or_else(|| origin.session.clone());
    span.client = span.client.take().or_else(|| origin.client.clone());
    take_details(span, &mut attributes);
    let answer = answer_id(&mut attributes);
    notice_stream(span, &attributes, events);
    take_messages(span, &mut attributes);
    take_events(span, events);
    settle_usage(span);
    take_level(span, &mut attributes);
    if span.operation_name.is_none() && !name.is_empty() {
        // `chat gpt-4o`, `openai.chat`, `anthropic.completion`
        let word = name.split([' ', '.']).find(|word| ["chat", "completion", "embeddings"].contains(word));
        span.operation_name = word.map(str::to_owned);
    }
    span.attributes.push(("span.name".to_owned(), cut(Value::String(name), VALUE_BYTES_MAX)));
    span.attributes.extend(answer.map(|id| (RESPONSE_ID.to_owned(), Value::String(id))));
    span.attributes.extend(attributes.into_iter().map(|(name, value)| (name, cut(value, VALUE_BYTES_MAX))));
    span.shared = [Arc::clone(&origin.resource), Arc::clone(&origin.scope)];
}

/// The fields by the names they go by: places in the table, of the field and of the name in its row.
static BY_NAME: LazyLock<HashMap<&str, (usize, usize)>> = LazyLock::new(|| {
    let names = |(row, (_, names)): (usize, &(Field, &'static [&'static str]))| {
        names.iter().enumerate().map(move |(rank, name)| (*name, (row, rank)))
    };
    FIELDS.iter().enumerate().flat_map(names).collect()
});

/// Takes for each field the first of its names out that says something; the others stay, they may say something else.
fn take_fields(span: &mut ReportedSpan, attributes: &mut Attributes) {
    let place = |(at, (name, _)): (usize, &(String, Value))| {
        let (row, rank) = BY_NAME.get(name.as_str())?;
        Some((*row, *rank, at))
    };
    let mut found: Vec<(usize, usize, usize)> = attributes.iter().enumerate().filter_map(place).collect();
    found.sort_unstable();
    let mut done = None;
    for (row, _, at) in found {
        let (Some((field, _)), Some((name, value))) = (FIELDS.get(row), attributes.get_mut(at)) else { continue };
        if done != Some(row) && set(span, *field, value.clone()) {
            done = Some(row);
            name.clear();
        }
    }
    attributes.retain(|(name, _)| !name.is_empty());
}

pub(super) fn take(attributes: &mut Attributes, name: &str) -> Option<Value> {
    let at = attributes.iter().position(|(known, _)| known == name)?;
    Some(attributes.swap_remove(at).1)
}

fn is_set(span: &ReportedSpan, field: Field) -> bool {
    let usage = &span.usage;
    match field {
        Field::Tenant => span.tenant_id.is_some(),
        Field::Agent => span.agent_id.is_some(),
        Field::Session => span.session_id.is_some(),
        Field::User => span.user_id.is_some(),
        Field::Client => span.client.is_some(),
        Field::Operation => span.operation_name.is_some(),
        Field::Provider => span.provider.is_some(),
        Field::Model => span.model.is_some(),
        Field::Streaming => span.streaming,
        Field::Prompt => usage.prompt.is_some(),
        Field::Completion => usage.completion.is_some(),
        Field::Total => usage.total.is_some(),
        Field::Cached => usage.cached.is_some(),
        Field::CacheWrite => usage.cache_write.is_some(),
        Field::Reasoning => usage.reasoning.is_some(),
        Field::FirstTokenSeconds | Field::FirstTokenMillis => span.time_to_first_token_ms.is_some(),
        Field::Status => span.status_code.is_some(),
        Field::ErrorType => span.error_type.is_some() && span.error_type.as_deref() != Some("error"),
        Field::FinishReason => span.finish_reason.is_some(),
    }
}

/// Sets a field; false where the value is none for it.
fn set(span: &mut ReportedSpan, field: Field, value: Value) -> bool {
    let words = |value: Value| Some(messages::text(value)).filter(|text| !text.is_empty() && text != "null");
    let usage = &mut span.usage;
    match field {
        Field::Tenant => {
            // What is no id is nobody's.
            span.tenant_id = value.as_str().map(|text| {
                text.parse().unwrap_or_else(|_| weir_config::vocab::TenantId::from_credential(text.as_bytes()))
            });
        }
        Field::Agent => span.agent_id = words(value),
        Field::Session => span.session_id = words(value),
        Field::User => span.user_id = words(value),
        Field::Client => span.client = words(value),
        Field::Operation => span.operation_name = words(value).map(|word| operation(&word)),
        Field::Provider => span.provider = words(value).map(|word| word.to_ascii_lowercase()),
        Field::Model => span.model = words(value),
        Field::Streaming => {
            span.streaming = value.as_bool().unwrap_or(false);
            return value.is_boolean();
        }
        Field::Prompt => usage.prompt = count(&value),
        Field::Completion => usage.completion = count(&value),
        Field::Total => usage.total = count(&value),
        Field::Cached => usage.cached = count(&value),
        Field::CacheWrite => usage.cache_write = count(&value),
        Field::Reasoning => usage.reasoning = count(&value),
        Field::FirstTokenSeconds => span.time_to_first_token_ms = value.as_f64().map(|seconds| seconds * 1_000.0),
        Field::FirstTokenMillis => span.time_to_first_token_ms = value.as_f64(),
        Field::Status => span.status_code = count(&value).and_then(|status| status.try_into().ok()),
        Field::ErrorType => span.error_type = words(value),
        Field::FinishReason => {
            let first = match messages::decoded(value) {
                Value::Array(reasons) => reasons.into_iter().next().unwrap_or_default(),
                // Langfuse has JSON texts.
                Value::String(reason) => Value::String(reason.trim_matches('"').to_owned()),
                one => one,
            };
            span.finish_reason = Some(first).filter(|reason| !reason.is_null()).and_then(words);
        }
    }
    is_set(span, field)
}

/// Frameworks' kinds of spans as operations.
fn operation(word: &str) -> String {
    match word {
        "LLM" | "generation" | "llm" => "chat".to_owned(),
        // The AI SDK: spans of single calls stand within one that sums them up.
        "ai.toolCall" => "execute_tool".to_owned(),
        "ai.embed.doEmbed" | "ai.embedMany.doEmbed" => "embeddings".to_owned(),
        word if word.starts_with("ai.") && word.contains(".do") => "chat".to_owned(),
        other => other.to_ascii_lowercase(),
    }
}

fn count(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number
            .as_u64()
            .or_else(|| number.as_f64().filter(|count| (0.0..9e15).contains(count)).map(|count| count.ceil() as u64)),
        _ => None,
    }
}

/// Langfuse's counters, which stand in one JSON text.
fn take_details(span: &mut ReportedSpan, attributes: &mut Attributes) {
    let Some(details) = take(attributes, "langfuse.observation.usage_details") else { return };
    let details = messages::decoded(details);
    // Flat names, or the provider's own counters as they are, with lists within.
    let of = |names: &[&str]| names.iter().find_map(|name| count(details.pointer(&format!("/{name}"))?));
    let usage = &mut span.usage;
    usage.prompt = usage.prompt.or_else(|| of(&["input", "prompt_tokens", "input_tokens"]));
    usage.completion = usage.completion.or_else(|| of(&["output", "completion_tokens", "output_tokens"]));
    usage.total = usage.total.or_else(|| of(&["total", "total_tokens"]));
    usage.cached = usage.cached.or_else(|| of(&CACHED));
    usage.cache_write = usage.cache_write.or_else(|| of(&["cache_creation_input_tokens", "input_cache_creation"]));
    usage.reasoning = usage.reasoning.or_else(|| of(&REASONED));
}

/// What Langfuse calls cached tokens.
const CACHED: [&str; 5] = [
    "input_cached_tokens",
    "cache_read_input_tokens",
    "input_cache_read",
    "prompt_tokens_details/cached_tokens",
    "input_tokens_details/cached_tokens",
];
/// What it calls tokens spent on reasoning.
const REASONED: [&str; 4] = [
    "output_reasoning_tokens",
    "output_reasoning",
    "completion_tokens_details/reasoning_tokens",
    "output_tokens_details/reasoning_tokens",
];

/// The provider's id of the answer, taken out; OpenInference has it only in the answer's body, as its first member.
fn answer_id(attributes: &mut Attributes) -> Option<String> {
    let says = |name: &&&str| {
        attributes.iter().any(|(known, value)| known == *name && value.as_str().is_some_and(|id| !id.is_empty()))
    };
    if let Some(Value::String(id)) = ANSWER.iter().find(says).and_then(|name| take(attributes, name)) {
        return Some(id);
    }
    let body = attributes.iter().find(|(name, _)| name == "output.value")?.1.as_str()?;
    let (id, _) = body.strip_prefix(r#"{"id":""#)?.split_once('"')?;
    Some(id.to_owned()).filter(|id| !id.is_empty() && id.len() <= ID_BYTES_MAX)
}

/// What frameworks say of streams in their own ways: that one was asked for, and when its first piece came.
fn notice_stream(span: &mut ReportedSpan, attributes: &Attributes, events: &[RawEvent]) {
    let named = |wanted: &str| attributes.iter().find(|(name, _)| name == wanted).and_then(|(_, value)| value.as_str());
    if let Some(parameters) = named("llm.invocation_parameters").filter(|text| text.contains("\"stream\"")) {
        let parameters: Value = serde_json::from_str(parameters).unwrap_or_default();
        span.streaming |= parameters.get("stream") == Some(&Value::Bool(true));
    }
    let of_langfuse = named("langfuse.observation.completion_start_time");
    span.streaming |= of_langfuse.is_some();
    let first_us = of_langfuse.and_then(micros).or_else(|| {
        let first = events.iter().find(|event| event.name == "First Token Stream Event")?;
        i64::try_from(first.time_ns / 1_000).ok()
    });
    let took_us = first_us.and_then(|first| first.checked_sub(span.start_time.micros())).filter(|took| *took >= 0);
    span.time_to_first_token_ms = span.time_to_first_token_ms.or(took_us.map(|took| took as f64 / 1_000.0));
}

/// A moment as JSON text of RFC 3339.
fn micros(text: &str) -> Option<i64> {
    use time::format_description::well_known::Rfc3339;
    let moment = time::OffsetDateTime::parse(text.trim_matches('"'), &Rfc3339).ok()?;
    i64::try_from(moment.unix_timestamp_nanos() / 1_000).ok()
}

/// Some senders count cached tokens beside those of the prompt.
fn settle_usage(span: &mut ReportedSpan) {
    let usage = &mut span.usage;
    let cached = usage.cached.unwrap_or(0).saturating_add(usage.cache_write.unwrap_or(0));
    if let Some(prompt) = usage.prompt.filter(|prompt| *prompt < cached) {
        usage.prompt = Some(prompt.saturating_add(cached));
        usage.total = None;
    }
}

fn take_messages(span: &mut ReportedSpan, attributes: &mut Attributes) {
    let mut words = Words::of(attributes);
    let step = steps::take(span, &mut words);
    span.input.extend(words.first(&[SYSTEM], |value| messages::read(value, "system")));
    if !step.took_input {
        span.input.extend(words.first(&[INPUT], |value| messages::read(value, "user")));
    }
    span.input.extend(words.first(&[TOOLS], |value| of_role("tools", messages::tools(value))));
    if !step.took_output {
        span.output.extend(words.first(&[OUTPUT], |value| messages::read(value, "assistant")));
    }
    // What stands beside the answer's message belongs to it.
    let thoughts = words.first(&[THOUGHTS], |value| of_role("assistant", messages::thoughts(value)));
    let calls = words.first(&[CALLS], |value| of_role("assistant", messages::calls(value)));
    for ReportedMessage { role, parts } in thoughts {
        match span.output.first_mut() {
            Some(said) => said.parts = parts.into_iter().chain(std::mem::take(&mut said.parts)).collect(),
            None => span.output.push(ReportedMessage { role, parts }),
        }
    }
    for ReportedMessage { role, parts } in calls {
        match span.output.first_mut() {
            Some(said) => said.parts.extend(parts),
            None => span.output.push(ReportedMessage { role, parts }),
        }
    }
    span.elsewhere.extend(words.leave());
}

/// Langfuse says by a level that a call failed, and beside it why.
fn take_level(span: &mut ReportedSpan, attributes: &mut Attributes) {
    let is_error = |(name, value): &(String, Value)| name == LEVEL && value.as_str() == Some("ERROR");
    if !attributes.iter().any(is_error) {
        return;
    }
    span.error_type.get_or_insert_with(|| "error".to_owned());
    if span.error_message.is_none() {
        span.error_message = take(attributes, STATUS_MESSAGE).map(messages::text);
    }
}

/// Messages that stand in events: `gen_ai.client.inference.operation.details`, and one event for each message, as earlier
/// conventions had it. Events that are nothing but messages are taken out; exceptions say what went wrong.
fn take_events(span: &mut ReportedSpan, events: &mut Vec<RawEvent>) {
    for mut event in std::mem::take(events) {
        let role = event.name.strip_prefix("gen_ai.").and_then(|rest| rest.strip_suffix(".message")).map(str::to_owned);
        match (event.name.as_str(), role) {
            ("gen_ai.client.inference.operation.details", _) => {
                take_messages(span, &mut event.attributes);
                events.extend(Some(event).filter(|event| !event.attributes.is_empty()));
            }
            ("gen_ai.content.prompt", _) => {
                let said = take(&mut event.attributes, "gen_ai.prompt").unwrap_or_default();
                span.input.extend(messages::read(said, "user"));
                events.extend(Some(event).filter(|event| !event.attributes.is_empty()));
            }
            ("gen_ai.content.completion", _) => {
                let said = take(&mut event.attributes, "gen_ai.completion").unwrap_or_default();
                span.output.extend(messages::read(said, "assistant"));
                events.extend(Some(event).filter(|event| !event.attributes.is_empty()));
            }
            ("gen_ai.choice", _) => span.output.extend(messages::read(of_event(event.attributes), "assistant")),
            (_, Some(role)) => span.input.extend(messages::read(of_event(event.attributes), &role)),
            ("exception", _) => {
                note_exception(span, &event);
                events.push(event);
            }
            _ => events.push(event),
        }
    }
}

/// The message whose fields an event's attributes are.
fn of_event(attributes: Attributes) -> Value {
    let fields = attributes.into_iter().map(|(name, value)| (name, messages::decoded(value)));
    Value::Object(fields.filter(|(name, _)| name != "gen_ai.system").collect())
}

fn note_exception(span: &mut ReportedSpan, event: &RawEvent) {
    let named = |wanted: &str| event.attributes.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
    if !is_set(span, Field::ErrorType) {
        span.error_type = named("exception.type").map(messages::text).or(span.error_type.take());
    }
    span.error_message = span.error_message.take().or_else(|| named("exception.message").map(messages::text));
}

/// A text over the bound is cut, and says so; another value over it is its text, cut.
pub(super) fn cut(value: Value, bytes_max: usize) -> Value {
    let long = match &value {
        Value::String(text) => text.len() > bytes_max,
        Value::Array(_) | Value::Object(_) => true,
        _ => false,
    };
    if !long {
        return value;
    }
    let text = match value {
        Value::String(text) => text,
        other => {
            let text = other.to_string();
            if text.len() <= bytes_max {
                return other;
            }
            text
        }
    };
    let kept = text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default();
    Value::String(format!("{kept}… [{} bytes in all]", text.len()))
}
