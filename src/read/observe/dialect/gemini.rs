//! Gemini: candidates made of parts, and the steps of an interaction.

use crate::json::{JsonError, Location, Text, Walker};
use crate::observe::answer::{Channel, Collector, Piece, Slot};
use crate::observe::blocks::{block, number_ahead};
use crate::observe::head::{Root, Taken};
use crate::observe::items;
use crate::observe::value::{Value, next_key, next_value, position, skip, value};

pub(super) fn member<'a>(
    _: &mut Root<'a>,
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    key: &[u8],
    value: Value<'a>,
) -> Result<Taken, JsonError> {
    match (key, value) {
        (b"candidates", Value::Array) => candidates(collector, walker)?,
        (b"interaction", Value::Object) => return Ok(Taken::Nested),
        (b"inlinedResponses" | b"inlined_responses", Value::Object | Value::Array) => return Ok(Taken::Batch),
        (b"metadata", Value::Object) if is_of_batch(walker.clone()) => return Ok(Taken::Batch),
        (b"promptFeedback" | b"prompt_feedback", Value::Object) => refused_prompt(collector, walker)?,
        (b"steps", Value::Array) => steps(collector, walker)?,
        _ => return Ok(Taken::No),
    }
    Ok(Taken::Yes)
}

/// Whether the metadata that were entered are those of a batch, which repeat its answers.
fn is_of_batch(mut walker: Walker<'_>) -> bool {
    let Ok(Some(key)) = next_key(&mut walker) else { return false };
    let kind = if key.raw() == "@type" { value(&mut walker).ok() } else { None };
    matches!(kind, Some(Value::Str(name)) if name.raw().ends_with(".GenerateContentBatch"))
}

/// `{blockReason, blockReasonMessage}`: the prompt was refused, and there are no candidates.
fn refused_prompt(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    while let Some(key) = next_key(walker)? {
        match (key.raw(), value(walker)?) {
            ("blockReason" | "block_reason", Value::Str(reason)) if !reason.raw().ends_with("UNSPECIFIED") => {
                collector.finished(0, reason);
                collector.answer.complete = true;
            }
            ("blockReasonMessage" | "block_reason_message", Value::Str(text)) => refusal(collector, text),
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}

fn refusal(collector: &mut Collector, text: Text<'_>) {
    let slot = Slot { choice: 0, channel: Channel::Refusal, block: 0 };
    collector.append(slot, Piece::Text(text), || Location::root("response").key("promptFeedback"));
}

/// The array `candidates`: `{content: {parts: [...]}, finishReason, index}`.
fn candidates(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    let mut at = 0;
    while let Some(entry) = next_value(walker)? {
        match entry {
            Value::Object => candidate(collector, walker, at)?,
            other => skip(walker, other)?,
        }
        at += 1;
    }
    Ok(())
}

fn candidate(collector: &mut Collector, walker: &mut Walker<'_>, at: u32) -> Result<(), JsonError> {
    let mut choice = number_ahead(walker.clone(), "index").unwrap_or(at);
    while let Some(key) = next_key(walker)? {
        let known = key.decode();
        match (known.as_bytes(), value(walker)?) {
            (b"index", Value::Number(spelled)) => choice = position(spelled).unwrap_or(choice),
            (b"content", Value::Object) => {
                while let Some(key) = next_key(walker)? {
                    match (key.raw().as_bytes(), value(walker)?) {
                        (b"parts", Value::Array) => parts(collector, walker, choice)?,
                        (_, other) => skip(walker, other)?,
                    }
                }
            }
            (b"finishReason" | b"finish_reason", Value::Str(reason)) => {
                collector.finished(choice, reason);
                collector.answer.complete = true;
            }
            // Why it ended so.
            (b"finishMessage" | b"finish_message", Value::Str(text)) => refusal(collector, text),
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}

/// Parts of a candidate. In a stream every chunk numbers its parts from 0, so they share one text per channel; what comes behind a
/// call is another text.
fn parts(collector: &mut Collector, walker: &mut Walker<'_>, choice: u32) -> Result<(), JsonError> {
    while let Some(part) = next_value(walker)? {
        match part {
            Value::Object => block(collector, walker, choice, collector.calls_begun(), "candidates")?,
            other => skip(walker, other)?,
        }
    }
    Ok(())
}

/// `steps` of an interaction: thoughts, calls and `{type: model_output, content: [...]}`.
fn steps(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    let mut at: u32 = 0;
    while let Some(step) = next_value(walker)? {
        match step {
            Value::Object => items::item(collector, walker, at)?,
            other => skip(walker, other)?,
        }
        at = at.saturating_add(1);
    }
    Ok(())
}
