//! Responses: items, their deltas, and the response object around them.

use crate::json::{JsonError, Location, Text, Walker};
use crate::observe::answer::{Channel, Collector, Piece, Slot};
use crate::observe::head::{Head, Kind, Root, Taken, plain};
use crate::observe::items::{self, Follows};
use crate::observe::value::{Value, next_key, skip, value};

pub(super) fn member<'a>(
    state: &mut Root<'a>,
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    key: &[u8],
    value: Value<'a>,
) -> Result<Taken, JsonError> {
    match (key, value) {
        (b"delta", Value::Object) if matches!(state.head.kind, Some(Kind::Delta(_))) => {
            items::rest(collector, walker, value, "", state.head.output.unwrap_or(0), Follows::AtOnce)?;
        }
        (b"delta", Value::Str(text)) => text_delta(collector, state.head, text),
        (b"item", Value::Object) => items::item(collector, walker, state.head.output.unwrap_or(0))?,
        (b"response", Value::Object) => {
            state.has_response = true;
            return Ok(Taken::Nested);
        }
        // What a call of a batch was answered.
        (b"result", Value::Object) if state.is_batch => return Ok(Taken::Nested),
        (b"body", Value::Object) if state.is_nested => return Ok(Taken::Nested),
        (b"output", Value::Array) => items::output(collector, walker)?,
        (b"text" | b"output_text", Value::Str(_)) if state.head.kind == Some(Kind::Repeat) => {}
        // The end of a transcription repeats what its deltas have said.
        (b"text", Value::Str(_)) if state.head.kind == Some(Kind::Last) && collector.has_text() => {}
        (b"incomplete_details", Value::Object) => incomplete(collector, walker)?,
        (b"object", Value::Str(kind)) => collector.is_response |= kind.raw() == "response",
        (b"background", Value::Bool(value)) => collector.background = Some(value),
        _ => return Ok(Taken::No),
    }
    Ok(Taken::Yes)
}

/// `delta` as a string: events of the responses interface.
fn text_delta(collector: &mut Collector, head: Head, text: Text<'_>) {
    let (output, part) = (head.output.unwrap_or(0), head.part.unwrap_or(0));
    let place = || Location::root("response").key("output").index(output);
    match head.kind {
        Some(Kind::Delta(Channel::Call)) => collector.call_part((output, part), text, |_| place().key("arguments")),
        Some(Kind::Delta(channel @ Channel::Result)) => {
            collector.append(Slot { choice: 0, channel, block: output }, Piece::Text(text), place);
        }
        Some(Kind::Delta(channel @ Channel::Reasoning)) => {
            let part_at = head.summary.unwrap_or(items::REASONING_TEXT.saturating_add(part));
            let slot = Slot { choice: 0, channel, block: items::block_of(output, part_at) };
            collector.append(slot, Piece::Text(text), || match head.summary {
                Some(part) => place().key("summary").index(part).key("text"),
                None => place().key("content").index(part).key("text"),
            });
        }
        Some(Kind::Delta(channel)) => {
            let slot = Slot { choice: 0, channel, block: items::block_of(output, part) };
            let leaf = if channel == Channel::Refusal { "refusal" } else { "text" };
            collector.append(slot, Piece::Text(text), || place().key("content").index(part).key(leaf));
        }
        // Payloads that are no text have their own names, or look encoded; a delta nobody has heard of is taken as text.
        None => plain(collector, Channel::Content, text, "delta"),
        Some(Kind::Other) if !items::is_left_out("delta", text) => plain(collector, Channel::Content, text, "delta"),
        Some(Kind::Other | Kind::Sound | Kind::Repeat | Kind::Last | Kind::Error) => {}
    }
}

fn incomplete(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    while let Some(key) = next_key(walker)? {
        match (key.raw().as_bytes(), value(walker)?) {
            (b"reason", Value::Str(reason)) => collector.finished(0, reason),
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}
