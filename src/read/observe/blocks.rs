//! Content that comes in blocks: messages-style blocks, parts, output items and tool calls.
//!
//! Invariant: a block is understood whatever the order of its keys, so its texts are kept until its end.

use smallvec::SmallVec;

use super::answer::{Channel, Collector, Piece, Slot};
use super::items::{self, Follows};
use super::message::message_object;
use super::value::{Value, next_key, next_value, position, skip, value};
use crate::json::{Event, JsonError, Location, Text, Walker, integer};

/// What a block or an item says.
#[derive(Default)]
struct Draft<'a> {
    kind: Option<Text<'a>>,
    texts: SmallVec<[(Channel, Text<'a>); 2]>,
    thought: bool,
    id: Option<Text<'a>>,
    name: Option<Text<'a>>,
    arguments: Option<Piece<'a>>,
}

/// Where a block stands; `holder` is the key of its array: `content`, `choices`, `candidates`, `outputs`, ...
fn block_place(holder: &'static str, choice: u32, at: u32) -> Location {
    let root = Location::root("response").key(holder);
    match holder {
        "choices" => root.index(choice).key("message").key("content").index(at),
        "candidates" => root.index(choice).key("content").key("parts").index(at),
        _ => root.index(at),
    }
}

/// An array of blocks or plain strings; see [`block_place`] for `holder`.
pub(super) fn list(
    collector: &mut Collector,
    walker: &mut Walker<'_>,
    choice: u32,
    holder: &'static str,
) -> Result<(), JsonError> {
    let mut at = 0;
    while let Some(item) = next_value(walker)? {
        match item {
            Value::Object => block(collector, walker, choice, at, holder)?,
            Value::Str(text) => {
                let slot = Slot { choice, channel: Channel::Content, block: at };
                collector.append(slot, Piece::Text(text), || block_place(holder, choice, at));
            }
            other => skip(walker, other)?,
        }
        at += 1;
    }
    Ok(())
}

/// One block that has been entered.
pub(super) fn block(
    collector: &mut Collector,
    walker: &mut Walker<'_>,
    choice: u32,
    at: u32,
    holder: &'static str,
) -> Result<(), JsonError> {
    let mut draft = Draft::default();
    while let Some(key) = next_key(walker)? {
        let known = key.decode();
        if matches!(known.as_bytes(), b"input" | b"args") {
            draft.arguments = unquoted(walker)?;
            continue;
        }
        match (known.as_bytes(), value(walker)?) {
            (b"type", Value::Str(kind)) => draft.kind = Some(kind),
            (b"text" | b"transcript" | b"revised_prompt", Value::Str(text)) => {
                draft.texts.push((Channel::Content, text))
            }
            (b"refusal", Value::Str(text)) => draft.texts.push((Channel::Refusal, text)),
            (b"thinking" | b"reasoning", Value::Str(text)) => draft.texts.push((Channel::Reasoning, text)),
            // Some say in a list, or in an object, what others say in a string.
            (b"thinking" | b"reasoning", list @ (Value::Array | Value::Object)) => {
                texts(walker, list, Channel::Reasoning, &mut draft.texts)?;
            }
            (b"text" | b"transcript", list @ (Value::Array | Value::Object)) => {
                texts(walker, list, Channel::Content, &mut draft.texts)?;
            }
            (b"refusal", list @ (Value::Array | Value::Object)) => {
                texts(walker, list, Channel::Refusal, &mut draft.texts)?
            }
            (b"thought", Value::Bool(value)) => draft.thought = value,
            (b"id" | b"call_id" | b"toolUseId", Value::Str(id)) => draft.id = Some(id),
            (b"name", Value::Str(name)) => draft.name = Some(name),
            (b"functionCall" | b"function_call" | b"toolUse" | b"tool_use", Value::Object) => {
                call(collector, walker, choice, None, holder)?;
            }
            (b"reasoningContent" | b"reasoningText", Value::Object) => {
                texts(walker, Value::Object, Channel::Reasoning, &mut draft.texts)?;
            }
            (b"stop_reason" | b"finish_reason", Value::Str(reason)) => collector.finished(choice, reason),
            // Results of tools that the provider ran, citations.
            (_, other) => items::rest(collector, walker, other, key.raw(), at, Follows::OnItsLine)?,
        }
    }
    let place = || block_place(holder, choice, at);
    for (channel, text) in &draft.texts {
        let channel = if draft.thought { Channel::Reasoning } else { *channel };
        let slot = Slot { choice, channel, block: at };
        if channel == Channel::Reasoning && holder == "content" {
            collector.append_signed(slot, Piece::Text(*text), || place().key("thinking"));
        } else {
            collector.append(slot, Piece::Text(*text), || place().key("text"));
        }
    }
    let called = draft.kind.is_some_and(|kind| kind.raw().ends_with("tool_use"));
    if called || (draft.kind.is_none() && draft.name.is_some() && draft.arguments.is_some()) {
        // `{}` at the start of a streamed block is a placeholder: the deltas bring the arguments.
        let arguments = draft.arguments.filter(|piece| !matches!(piece, Piece::Raw("{}")));
        collector.call(choice, Some(u64::from(at)), draft.id, draft.name, arguments, |_| place().key("input"));
    }
    Ok(())
}

/// A messages-style `delta` object.
pub(super) fn delta(collector: &mut Collector, walker: &mut Walker<'_>, at: u32) -> Result<(), JsonError> {
    let place = || Location::root("response").key("content").index(at);
    let slot = |channel| Slot { choice: 0, channel, block: at };
    while let Some(key) = next_key(walker)? {
        let known = key.decode();
        match (known.as_bytes(), value(walker)?) {
            (b"text", Value::Str(text)) => {
                collector.append(slot(Channel::Content), Piece::Text(text), || place().key("text"));
            }
            (b"thinking", Value::Str(text)) => {
                collector.append_signed(slot(Channel::Reasoning), Piece::Text(text), || place().key("thinking"));
            }
            (b"thinking" | b"reasoning", list @ (Value::Array | Value::Object)) => {
                let mut found = SmallVec::new();
                texts(walker, list, Channel::Reasoning, &mut found)?;
                for (channel, text) in found {
                    collector.append(slot(channel), Piece::Text(text), || place().key("thinking"));
                }
            }
            (b"partial_json", Value::Str(text)) => {
                let index = Some(u64::from(at));
                collector.call(0, index, None, None, Some(Piece::Text(text)), |_| place().key("input"));
            }
            (b"stop_reason" | b"finish_reason", Value::Str(reason)) => collector.finished(0, reason),
            // Some servers put a chat message here.
            (b"content", Value::Str(text)) => {
                collector.append(slot(Channel::Content), Piece::Text(text), || place().key("text"));
            }
            (b"message", Value::Object) => message_object(collector, walker, 0, "message")?,
            (b"arguments", Value::Str(text)) => {
                let index = Some(u64::from(at));
                collector.call(0, index, None, None, Some(Piece::Text(text)), |_| place().key("arguments"));
            }
            (b"stop_sequence" | b"container" | b"name", other) => skip(walker, other)?,
            // In one piece with those before it, whatever it is.
            (_, Value::Str(text)) if !items::is_left_out(key.raw(), text) => {
                collector.append(slot(Channel::Result), Piece::Text(text), || Location::root("response"));
            }
            (_, other) => items::rest(collector, walker, other, key.raw(), at, Follows::AtOnce)?,
        }
    }
    Ok(())
}

/// An array of tool calls.
pub(super) fn calls(
    collector: &mut Collector,
    walker: &mut Walker<'_>,
    choice: u32,
    holder: &'static str,
) -> Result<(), JsonError> {
    let mut at = 0;
    while let Some(item) = next_value(walker)? {
        match item {
            Value::Object => call(collector, walker, choice, Some(at), holder)?,
            other => skip(walker, other)?,
        }
        at += 1;
    }
    Ok(())
}

/// One tool call that has been entered; `at` is its position in its array.
pub(super) fn call(
    collector: &mut Collector,
    walker: &mut Walker<'_>,
    choice: u32,
    at: Option<u32>,
    holder: &'static str,
) -> Result<(), JsonError> {
    let mut draft = Draft::default();
    let mut index = None;
    call_fields(walker, &mut draft, &mut index, 0)?;
    // Where neither index nor id tells calls apart, whole calls in one array are told apart by having a name.
    let place = |block: u32| {
        let root = Location::root("response").key(holder);
        match (holder, at) {
            ("choices", Some(_)) => {
                root.index(choice).key("message").key("tool_calls").index(block).key("function").key("arguments")
            }
            ("choices", None) => root.index(choice).key("message").key("function_call").key("arguments"),
            (_, Some(_)) if holder == "tool_calls" => root.index(block).key("function").key("arguments"),
            (_, Some(_)) => root.key("tool_calls").index(block).key("function").key("arguments"),
            (_, None) => root.key("function_call").index(block).key("args"),
        }
    };
    // A legacy `function_call` has no index and streams its arguments without a name: there is one per message.
    let index = if at.is_none() && holder == "choices" { Some(0) } else { index };
    collector.call(choice, index, draft.id, draft.name, draft.arguments, place);
    Ok(())
}

fn call_fields<'a>(
    walker: &mut Walker<'a>,
    draft: &mut Draft<'a>,
    index: &mut Option<u64>,
    depth: u32,
) -> Result<(), JsonError> {
    while let Some(key) = next_key(walker)? {
        let known = key.decode();
        if matches!(known.as_bytes(), b"arguments" | b"args" | b"input") {
            draft.arguments = unquoted(walker)?;
            continue;
        }
        match (known.as_bytes(), value(walker)?) {
            (b"index", Value::Number(spelled)) => *index = integer(spelled),
            (b"id" | b"toolUseId" | b"tool_use_id", Value::Str(id)) => draft.id = Some(id),
            (b"name", Value::Str(name)) => draft.name = Some(name),
            (b"function" | b"custom", Value::Object) if depth == 0 => call_fields(walker, draft, index, 1)?,
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}

/// Arguments as JSON text: a string is decoded, an object is taken as it is spelled.
pub(super) fn unquoted<'a>(walker: &mut Walker<'a>) -> Result<Option<Piece<'a>>, JsonError> {
    let Some(raw) = walker.next_raw()? else { return Ok(None) };
    Ok(Some(match walker.string_of(raw) {
        Some(text) => Piece::Text(text),
        None if raw == "null" => Piece::Raw(""),
        None => Piece::Raw(raw),
    }))
}

/// All texts in a value that has been entered: strings of lists, and what stands under a key of texts, however deep.
pub(super) fn texts<'a>(
    walker: &mut Walker<'a>,
    value: Value<'a>,
    channel: Channel,
    out: &mut SmallVec<[(Channel, Text<'a>); 2]>,
) -> Result<(), JsonError> {
    if let Value::Str(text) = value {
        out.push((channel, text));
        return Ok(());
    }
    let outside = walker.depth().saturating_sub(1);
    // Whether a string that comes next is a text, and whose; what stands in a list is.
    let mut next = Some(channel);
    while walker.depth() > outside {
        match walker.next_event()? {
            Some(Event::Key(key)) => {
                next = match key.raw() {
                    "refusal" => Some(Channel::Refusal),
                    "text" | "transcript" | "thinking" | "reasoning" | "content" | "summary" => Some(channel),
                    _ => None,
                };
            }
            Some(Event::Str(text)) => out.extend(next.map(|channel| (channel, text))),
            Some(Event::ObjectEnd | Event::ArrayEnd) => next = Some(channel),
            Some(_) => {}
            None => break,
        }
    }
    Ok(())
}

/// The position under `name` in the object that has been entered, wherever it stands.
pub(super) fn number_ahead(mut walker: Walker<'_>, name: &str) -> Option<u32> {
    while let Ok(Some(key)) = next_key(&mut walker) {
        if key.raw() == name {
            return match value(&mut walker) {
                Ok(Value::Number(spelled)) => position(spelled),
                _ => None,
            };
        }
        walker.next_raw().ok()?;
    }
    None
}
