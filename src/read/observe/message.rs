//! A message of a conversation, whole or in deltas: chat completions call it so, and others have borrowed it.

use smallvec::SmallVec;

use super::answer::{Channel, Collector, Piece, Slot, bounded};
use super::value::{Value, next_key, skip, value};
use super::{blocks, unknown, usage};
use crate::json::{JsonError, Location, Walker};

/// A message or the delta of one. `holder` is the key it stands under: `choices` or `message`.
pub(super) fn message_object(
    collector: &mut Collector,
    walker: &mut Walker<'_>,
    choice: u32,
    holder: &'static str,
) -> Result<(), JsonError> {
    let place = |key: &'static str| {
        let at = Location::root("response").key(holder);
        if holder == "choices" { at.index(choice).key("message").key(key) } else { at.key(key) }
    };
    let slot = |channel| Slot { choice, channel, block: 0 };
    while let Some(key) = next_key(walker)? {
        let known = key.decode();
        match (known.as_bytes(), value(walker)?) {
            (b"content", Value::Str(text)) => {
                collector.append(slot(Channel::Content), Piece::Text(text), || place("content"));
            }
            (b"content", Value::Array) => {
                blocks::list(collector, walker, choice, if holder == "choices" { "choices" } else { "content" })?;
            }
            // A delta of Cohere's chat.
            (b"content", Value::Object) => {
                while let Some(key) = next_key(walker)? {
                    match (key.raw().as_bytes(), value(walker)?) {
                        (b"text", Value::Str(text)) => {
                            collector
                                .append(slot(Channel::Content), Piece::Text(text), || place("content").key("text"));
                        }
                        (_, other) => skip(walker, other)?,
                    }
                }
            }
            (b"reasoning_content" | b"reasoning" | b"thinking", Value::Str(text)) => {
                collector.append(slot(Channel::Reasoning), Piece::Text(text), || place("reasoning_content"));
            }
            (
                member @ (b"reasoning_content" | b"reasoning" | b"thinking" | b"refusal"),
                list @ (Value::Array | Value::Object),
            ) => {
                let (channel, key) = match member {
                    b"refusal" => (Channel::Refusal, "refusal"),
                    _ => (Channel::Reasoning, "reasoning_content"),
                };
                let mut found = SmallVec::new();
                blocks::texts(walker, list, channel, &mut found)?;
                for (channel, text) in found {
                    collector.append(slot(channel), Piece::Text(text), || place(key));
                }
            }
            (b"refusal", Value::Str(text)) => {
                collector.append(slot(Channel::Refusal), Piece::Text(text), || place("refusal"));
            }
            (b"tool_calls", Value::Array) => blocks::calls(collector, walker, choice, holder)?,
            (b"function_call", Value::Object) => blocks::call(collector, walker, choice, None, holder)?,
            (b"audio", Value::Object) => {
                while let Some(key) = next_key(walker)? {
                    match (key.raw().as_bytes(), value(walker)?) {
                        (b"transcript", Value::Str(text)) => {
                            // Apart from the content, which may be there too.
                            let slot = Slot { block: u32::MAX, ..slot(Channel::Content) };
                            collector.append(slot, Piece::Text(text), || place("audio").key("transcript"));
                        }
                        (_, other) => skip(walker, other)?,
                    }
                }
            }
            (b"id", Value::Str(id)) if collector.answer.response_id.is_none() && holder == "message" => {
                collector.answer.response_id = Some(bounded(&id.decode()));
            }
            (b"model", Value::Str(model)) if collector.answer.model.is_none() => {
                collector.answer.model = Some(bounded(&model.decode()));
            }
            (b"usage", Value::Object) => usage::read(collector, walker)?,
            (b"stop_reason", Value::Str(reason)) => collector.finished(choice, reason),
            (_, other) => unknown::member(collector, walker, choice, key.raw(), other)?,
        }
    }
    Ok(())
}
