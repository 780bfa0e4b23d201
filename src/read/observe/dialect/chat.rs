//! Chat completions and completions: `choices` of messages, of their deltas, or of bare text.

use crate::json::{JsonError, Location, Walker};
use crate::observe::answer::{Channel, Collector, Piece, Slot};
use crate::observe::head::{Head, Root, Taken, error, look_ahead};
use crate::observe::message::message_object;
use crate::observe::value::{Value, next_key, next_value, skip, value};
use crate::observe::{blocks, usage};

pub(super) fn member<'a>(
    _: &mut Root<'a>,
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    key: &[u8],
    value: Value<'a>,
) -> Result<Taken, JsonError> {
    match (key, value) {
        (b"choices", Value::Array) => choices(collector, walker)?,
        (b"message", Value::Object) => message_object(collector, walker, 0, "message")?,
        (b"tool_calls", Value::Array) => blocks::calls(collector, walker, 0, "tool_calls")?,
        _ => return Ok(Taken::No),
    }
    Ok(Taken::Yes)
}

fn choices(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    let mut at = 0;
    while let Some(item) = next_value(walker)? {
        match item {
            Value::Object => choice(collector, walker, at)?,
            other => skip(walker, other)?,
        }
        at += 1;
    }
    Ok(())
}

fn choice(collector: &mut Collector, walker: &mut Walker<'_>, at: u32) -> Result<(), JsonError> {
    let mut head = Head::default();
    while let Some(key) = next_key(walker)? {
        let known = key.decode();
        if head.index.is_none() && matches!(known.as_bytes(), b"delta" | b"message" | b"text" | b"finish_reason") {
            head = look_ahead(walker.clone(), head);
            head.index = head.index.or(Some(at));
        }
        let index = head.index.unwrap_or(at);
        let value = value(walker)?;
        head.note(key, value);
        match (known.as_bytes(), value) {
            (b"delta" | b"message", Value::Object) => message_object(collector, walker, index, "choices")?,
            (b"text", Value::Str(text)) => {
                let slot = Slot { choice: index, channel: Channel::Content, block: 0 };
                let place = || Location::root("response").key("choices").index(index).key("text");
                collector.append(slot, Piece::Text(text), place);
            }
            (b"finish_reason", Value::Str(reason)) => collector.finished(index, reason),
            (b"error", Value::Object) => error(collector, walker)?,
            // Moonshot counts here in its streams.
            (b"usage", Value::Object) => usage::read(collector, walker)?,
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}
