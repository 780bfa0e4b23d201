//! Bedrock: the answer and the events of its converse interface. An event has the name of its message, or, where an invoked
//! model speaks it itself, is the value of a key of that name.

use crate::json::{JsonError, Location, Walker};
use crate::observe::answer::{Channel, Collector, Piece, Slot};
use crate::observe::head::{Root, Taken, plain};
use crate::observe::items::{self, Follows};
use crate::observe::message::message_object;
use crate::observe::value::{Value, next_key, skip, value};
use crate::observe::{blocks, usage};

pub(super) fn member<'a>(
    _: &mut Root<'a>,
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    key: &[u8],
    value: Value<'a>,
) -> Result<Taken, JsonError> {
    match (key, value) {
        (name, Value::Object) if is_event(name) => {
            event(collector, walker, std::str::from_utf8(name).unwrap_or_default())?;
        }
        (b"amazon-bedrock-invocationMetrics", Value::Object) => {
            usage::read(collector, walker)?;
            collector.answer.complete = true;
        }
        // The model's own body says nothing of it.
        (b"amazon-bedrock-guardrailAction", Value::Str(action)) => {
            if action.raw() == "INTERVENED" {
                collector.finished(0, action);
            }
        }
        (b"output", Value::Object) => output_object(collector, walker)?,
        _ => return Ok(Taken::No),
    }
    Ok(Taken::Yes)
}

/// Whether this is the name of such an event.
fn is_event(name: &[u8]) -> bool {
    matches!(name, b"messageStart" | b"contentBlockStart" | b"contentBlockDelta" | b"messageStop" | b"metadata")
}

/// Reads the payload of one message.
///
/// # Errors
/// The first [`JsonError`].
pub(in crate::observe) fn message(collector: &mut Collector, name: &str, payload: &[u8]) -> Result<(), JsonError> {
    let mut walker = Walker::new(payload)?;
    match value(&mut walker)? {
        Value::Object if is_event(name.as_bytes()) => event(collector, &mut walker, name)?,
        other => items::loose(collector, &mut walker, other)?,
    }
    // Anything after the document is a fault.
    walker.next_event().map(|_| ())
}

/// Reads an event that has been entered.
///
/// # Errors
/// The first [`JsonError`].
fn event(collector: &mut Collector, walker: &mut Walker<'_>, name: &str) -> Result<(), JsonError> {
    let at = match name {
        "contentBlockStart" | "contentBlockDelta" => blocks::number_ahead(walker.clone(), "contentBlockIndex"),
        _ => None,
    };
    let at = at.unwrap_or(0);
    while let Some(key) = next_key(walker)? {
        match (key.raw().as_bytes(), value(walker)?) {
            (b"start" | b"delta", Value::Object) => content(collector, walker, at)?,
            (b"stopReason", Value::Str(reason)) => {
                collector.finished(0, reason);
                collector.stopped = true;
            }
            (b"usage", Value::Object) => usage::read(collector, walker)?,
            (_, other) => skip(walker, other)?,
        }
    }
    // What a call used is told after its stop.
    if name == "metadata" && collector.stopped {
        collector.answer.complete = true;
    }
    Ok(())
}

/// What begins a block, or continues one.
fn content(collector: &mut Collector, walker: &mut Walker<'_>, at: u32) -> Result<(), JsonError> {
    let place = || Location::root("response").key("output").key("message").key("content").index(at);
    while let Some(key) = next_key(walker)? {
        match (key.raw().as_bytes(), value(walker)?) {
            (b"text", Value::Str(text)) => {
                let slot = Slot { choice: 0, channel: Channel::Content, block: at };
                collector.append(slot, Piece::Text(text), || place().key("text"));
            }
            (b"toolUse", Value::Object) => tool_use(collector, walker, at)?,
            (b"reasoningContent", Value::Object) => {
                while let Some(key) = next_key(walker)? {
                    match (key.raw().as_bytes(), value(walker)?) {
                        (b"text", Value::Str(text)) => {
                            let slot = Slot { choice: 0, channel: Channel::Reasoning, block: at };
                            collector.append_signed(slot, Piece::Text(text), || place().key("reasoningContent"));
                        }
                        (_, other) => skip(walker, other)?,
                    }
                }
            }
            (_, other) => items::rest(collector, walker, other, key.raw(), at, Follows::OnItsLine)?,
        }
    }
    Ok(())
}

/// `{toolUseId, name}` begins a call, `{input}` brings a piece of its arguments.
fn tool_use(collector: &mut Collector, walker: &mut Walker<'_>, at: u32) -> Result<(), JsonError> {
    let (mut id, mut name, mut input) = (None, None, None);
    while let Some(key) = next_key(walker)? {
        match (key.raw().as_bytes(), value(walker)?) {
            (b"toolUseId", Value::Str(text)) => id = Some(text),
            (b"name", Value::Str(text)) => name = Some(text),
            (b"input", Value::Str(text)) => input = Some(Piece::Text(text)),
            (_, other) => skip(walker, other)?,
        }
    }
    let place = |_| Location::root("response").key("output").key("message").key("content").index(at).key("toolUse");
    collector.call(0, Some(u64::from(at)), id, name, input, place);
    Ok(())
}

/// `output` as an object: `{"message": {...}}`.
fn output_object(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    while let Some(key) = next_key(walker)? {
        match (key.raw().as_bytes(), value(walker)?) {
            (b"message", Value::Object) => message_object(collector, walker, 0, "output")?,
            (b"text", Value::Str(text)) => plain(collector, Channel::Content, text, "output"),
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}
