//! What was said, as attributes of a span: messages as JSON, and as events where the conventions of 1.36 are asked for. Texts beyond a bound
//! are cut, those of the oldest messages first.

use serde_json::{Value as Json, json};
use weir_config::settings::OtelSemconv;
use weir_config::vocab::Timestamp;
use weir_config::vocab::part::PartSide;
use weir_storage::messages::{self, Message as Said, MessagePart, MessagePartType};
use weir_storage::record::SpanRecord;

use super::names;
use super::wire::{Message, Value};

/// Bytes of texts that one span carries; receivers take 4 MiB at once, of all spans.
const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of one text that stands beside messages.
const HEAD_BYTES_MAX: usize = 16 * 1024;

const NANOS_PER_MICRO: u64 = 1_000;

/// A time as the format has it.
pub(super) fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.micros()).unwrap_or(0).saturating_mul(NANOS_PER_MICRO)
}

/// The beginning of a text.
pub(super) fn head(text: &str) -> &str {
    text.get(..text.floor_char_boundary(HEAD_BYTES_MAX)).unwrap_or_default()
}

/// Writes what was said into `span`; whether something was cut.
pub(super) fn write(span: &mut Message, record: &SpanRecord, semconv: OtelSemconv) -> bool {
    let mut room = Room { left: TEXT_BYTES_MAX, is_cut: false };
    let said = messages::of(record);
    let (asked, answered): (Vec<&Said<'_>>, Vec<&Said<'_>>) =
        said.iter().partition(|message| message.side == PartSide::Request);
    let mut output = room.messages(&answered);
    let mut input = room.messages(&asked);
    if said.is_empty() {
        let whole = |role: &str, text: &Option<String>, room: &mut Room| {
            text.as_deref().map(|text| Spoken {
                role: role.to_owned(),
                parts: vec![text_part(room.cut(text))],
                apart: false,
            })
        };
        output.extend(whole("assistant", &record.response, &mut room));
        input.extend(whole("user", &record.prompt, &mut room));
    }
    match semconv {
        OtelSemconv::Latest => attributes(span, record, input, output),
        OtelSemconv::V1_36 => events(span, record, input, output),
    }
    room.is_cut
}

/// A message as the conventions have it.
struct Spoken {
    role: String,
    parts: Vec<Json>,
    /// It stands beside the conversation, as instructions of their own do.
    apart: bool,
}

/// How much may still be said.
struct Room {
    left: usize,
    is_cut: bool,
}

impl Room {
    /// Messages in their order; the last ones get room first.
    fn messages(&mut self, said: &[&Said<'_>]) -> Vec<Spoken> {
        let mut all: Vec<Spoken> = said.iter().rev().map(|message| self.message(message)).collect();
        all.reverse();
        all.retain(|message| !message.parts.is_empty());
        all
    }

    fn message(&mut self, message: &Said<'_>) -> Spoken {
        let mut parts: Vec<Json> = message.parts.iter().rev().filter_map(|part| self.part(part)).collect();
        parts.reverse();
        Spoken { role: message.role.clone().into_owned(), parts, apart: message.index.is_none() }
    }

    fn part(&mut self, part: &MessagePart<'_>) -> Option<Json> {
        let text = part.text.map(|text| self.cut(text));
        Some(match part.part_type {
            MessagePartType::Text | MessagePartType::Refusal => text_part(text?),
            MessagePartType::Reasoning => json!({"type": "reasoning", "content": text?}),
            MessagePartType::ToolCall => {
                let arguments = self.value(part).or_else(|| text.map(Json::from)).unwrap_or_else(|| json!({}));
                json!({"type": "tool_call", "id": part.call_id, "name": part.name, "arguments": arguments})
            }
            MessagePartType::ToolResult => {
                json!({"type": "tool_call_response", "id": part.call_id, "response": text.unwrap_or_default()})
            }
            MessagePartType::ToolDefinition => self.value(part).unwrap_or_else(
                || json!({"type": "function", "name": part.name, "description": text.unwrap_or_default()}),
            ),
            MessagePartType::Image | MessagePartType::File => {
                let file = part.file.as_ref()?;
                json!({"type": "file", "mime_type": file.media_type, "sha256": file.sha256, "bytes": file.bytes})
            }
            MessagePartType::Credential => return None,
        })
    }

    /// The JSON of a part, where it has one and there is room: its strings have been counted with its text.
    fn value(&self, part: &MessagePart<'_>) -> Option<Json> {
        part.value.clone().filter(|_| !self.is_cut)
    }

    /// As much of a text as there is room for.
    fn cut(&mut self, text: &str) -> String {
        if text.len() <= self.left {
            self.left -= text.len();
            return text.to_owned();
        }
        self.is_cut = true;
        let kept = text.get(..text.floor_char_boundary(self.left)).unwrap_or_default();
        self.left = 0;
        format!("{kept}… [{} bytes in all]", text.len())
    }
}

fn text_part(text: String) -> Json {
    json!({"type": "text", "content": text})
}

/// The names of 0.1.0.
fn attributes(span: &mut Message, record: &SpanRecord, input: Vec<Spoken>, output: Vec<Spoken>) {
    let mut put = |name: &str, list: Vec<Json>| {
        if !list.is_empty() {
            span.attribute(9, name, Value::Text(&Json::from(list).to_string()));
        }
    };
    let (tools, input): (Vec<Spoken>, Vec<Spoken>) = input.into_iter().partition(|message| message.role == "tools");
    let (instructions, input): (Vec<Spoken>, Vec<Spoken>) =
        input.into_iter().partition(|message| message.apart && matches!(message.role.as_str(), "system" | "developer"));
    let message = |message: Spoken| json!({"role": message.role, "parts": message.parts});
    put(names::SYSTEM_INSTRUCTIONS, instructions.into_iter().flat_map(|message| message.parts).collect());
    put(names::TOOL_DEFINITIONS, tools.into_iter().flat_map(|message| message.parts).collect());
    put(names::INPUT_MESSAGES, input.into_iter().map(message).collect());
    let answered =
        |message: Spoken| json!({"role": message.role, "parts": message.parts, "finish_reason": record.finish_reason});
    put(names::OUTPUT_MESSAGES, output.into_iter().map(answered).collect());
}

/// The events of 1.36, an event for each message.
fn events(span: &mut Message, record: &SpanRecord, input: Vec<Spoken>, output: Vec<Spoken>) {
    let system = names::provider(&record.provider);
    for Spoken { role, parts, .. } in input.into_iter().filter(|message| message.role != "tools") {
        let kind = match role.as_str() {
            "system" | "developer" => "system",
            "assistant" | "model" => "assistant",
            "tool" | "function" => "tool",
            _ => "user",
        };
        let mut event = Message::event(&format!("gen_ai.{kind}.message"), nanos(record.start_time));
        event.attribute(3, "gen_ai.system", Value::Text(system));
        event.attribute(3, "role", Value::Text(&role));
        spoken(&mut event, &parts);
        span.message(11, &event);
    }
    for (index, Spoken { role, parts, .. }) in output.into_iter().enumerate() {
        let mut event = Message::event("gen_ai.choice", nanos(record.end_time));
        event.attribute(3, "gen_ai.system", Value::Text(system));
        event.attribute(3, "index", Value::Int(index as i64));
        event.attribute(3, "role", Value::Text(&role));
        if let Some(reason) = &record.finish_reason {
            event.attribute(3, "finish_reason", Value::Text(reason));
        }
        spoken(&mut event, &parts);
        span.message(11, &event);
    }
}

/// Words as one text, calls of tools as JSON.
fn spoken(event: &mut Message, parts: &[Json]) {
    let words = parts.iter().filter_map(|part| part.get("content").or_else(|| part.get("response"))?.as_str());
    let words: Vec<&str> = words.collect();
    if !words.is_empty() {
        event.attribute(3, "content", Value::Text(&words.join("\n")));
    }
    let calls: Vec<Json> = parts.iter().filter(|part| part["type"] == "tool_call").map(|call| {
        json!({"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}})
    }).collect();
    if !calls.is_empty() {
        event.attribute(3, "tool_calls", Value::Text(&Json::from(calls).to_string()));
    }
}
