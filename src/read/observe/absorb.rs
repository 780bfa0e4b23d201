//! Reads one JSON message of an answer (a whole document, an event, a line) into the collector.
//!
//! What dialects have in common is read here, the rest by [`dialect`]: each of their functions reads one kind of object and
//! skips what it does not know. Recursion follows only known keys, and the walker's depth bound ends it. Invariant: a fault
//! leaves what was read before it. Must not know: how messages are framed.

use ring::digest::{Context, SHA256};

use super::answer::{Channel, Collector, Tier, bounded, message as cut_message};
use super::head::{Kind, Root, Taken, error, look_ahead, plain};
use super::value::{Value, next_key, next_value, skip, value};
use super::{dialect, unknown, usage};
use crate::json::{Event, JsonError, Walker};

/// Reads one message.
///
/// # Errors
/// The first [`JsonError`].
pub(super) fn message(collector: &mut Collector, json: &[u8]) -> Result<(), JsonError> {
    let mut walker = Walker::new(json)?.until(collector.until);
    match value(&mut walker)? {
        Value::Object => {
            let is_known = root(collector, &mut walker, Root::default())?;
            if std::mem::take(&mut collector.in_batch) {
                collector.end_of_call();
            }
            if !is_known && !collector.in_document {
                unknown::message(collector, json)?;
            }
        }
        Value::Array => {
            while let Some(item) = next_value(&mut walker)? {
                match item {
                    Value::Object => drop(root(collector, &mut walker, Root::default())?),
                    other => skip(&mut walker, other)?,
                }
            }
        }
        Value::Str(text) => plain(collector, Channel::Content, text, "text"),
        Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
    // Anything after the document is a fault.
    walker.next_event().map(|_| ())
}

/// The object at the top, and the objects that carry the same keys: `message` of `message_start`, `response`. Whether anything in it
/// but names is known.
fn root<'a>(collector: &mut Collector, walker: &mut Walker<'a>, mut root: Root<'a>) -> Result<bool, JsonError> {
    let mut is_known = false;
    while let Some(key) = next_key(walker)? {
        let key_text = key.decode();
        let known = key_text.as_bytes();
        let unplaced = root.head.kind.is_none() || root.head.index.or(root.head.output).is_none();
        let asks = match known {
            b"delta" | b"content_block" | b"item" => unplaced,
            // It may repeat what deltas have said.
            b"text" | b"output_text" => root.head.kind.is_none(),
            // Whose result, parameters or error it is.
            b"result" | b"params" | b"error" => !root.head.is_rpc,
            _ => false,
        };
        if asks && !std::mem::replace(&mut root.looked, true) {
            root.head = look_ahead(walker.clone(), root.head);
        }
        let value = value(walker)?;
        root.head.note(key, value);
        if root.head.is_rpc && dialect::rpc_member(&mut root, collector, walker, known, value)? == Taken::Yes {
            is_known = true;
            continue;
        }
        if shared(&mut root, collector, walker, known, value)? {
            is_known |= !is_name(known);
            continue;
        }
        match dialect::member(&mut root, collector, walker, known, value)? {
            Taken::Yes => is_known = true,
            Taken::Nested => {
                is_known = true;
                self::root(collector, walker, Root { is_nested: true, ..Root::default() })?;
            }
            Taken::Batch => {
                is_known = true;
                batch(collector, walker, value)?;
            }
            Taken::No => is_known |= anybodys(collector, walker, &key_text, value)?,
        }
    }
    is_known |= root.head.kind.is_some_and(|kind| kind != Kind::Other);
    root.end(collector);
    Ok(is_known)
}

/// Lists of answers in one message that are compared with each other.
const LISTS_MAX: usize = 4;

/// The answers to the calls of a batch, as an operation of Gemini's has them: `{inlinedResponses: [{response, metadata}]}`, which its
/// `metadata` have under `output`, beside the model that was asked.
fn batch<'a>(collector: &mut Collector, walker: &mut Walker<'a>, entered: Value<'a>) -> Result<(), JsonError> {
    match entered {
        Value::Array => {
            // More than a few lists are no provider's, and looking ahead is not free.
            let prints = &mut collector.batch.get_or_insert_default().prints;
            if prints.len() < LISTS_MAX {
                let print = print_of(walker.clone())?;
                if prints.contains(&print) {
                    return skip(walker, entered);
                }
                prints.push(print);
            }
            while let Some(item) = next_value(walker)? {
                match item {
                    Value::Object => {
                        self::root(collector, walker, Root { is_nested: true, ..Root::default() })?;
                        collector.end_of_call();
                    }
                    other => skip(walker, other)?,
                }
            }
        }
        Value::Object => {
            while let Some(key) = next_key(walker)? {
                match (key.raw(), value(walker)?) {
                    ("model", Value::Str(model)) => {
                        collector.batch.get_or_insert_default().model = Some(bounded(&model.decode()));
                    }
                    ("inlinedResponses" | "inlined_responses" | "output", inner @ (Value::Object | Value::Array)) => {
                        batch(collector, walker, inner)?
                    }
                    (_, other) => skip(walker, other)?,
                }
            }
        }
        other => skip(walker, other)?,
    }
    Ok(())
}

/// What an array that was entered says, however it is spaced.
fn print_of(mut walker: Walker<'_>) -> Result<[u8; 32], JsonError> {
    let (mut context, depth) = (Context::new(&SHA256), walker.depth());
    while walker.depth() >= depth {
        let (mark, text) = match walker.next_event()? {
            Some(Event::Key(text)) => (b'k', text.raw()),
            Some(Event::Str(text)) => (b's', text.raw()),
            Some(Event::Number(spelled)) => (b'n', spelled),
            Some(Event::ObjectStart) => (b'{', ""),
            Some(Event::ArrayStart) => (b'[', ""),
            Some(Event::ObjectEnd | Event::ArrayEnd) => (b'}', ""),
            Some(Event::Bool(true)) => (b't', ""),
            Some(Event::Bool(false)) => (b'f', ""),
            Some(Event::Null) => (b'0', ""),
            None => break,
        };
        context.update(&[mark]);
        context.update(text.as_bytes());
        context.update(b"\"");
    }
    let mut print = [0; 32];
    print.iter_mut().zip(context.finish().as_ref()).for_each(|(to, from)| *to = *from);
    Ok(print)
}

/// Whether a member that every dialect may have says nothing of what the message is.
fn is_name(key: &[u8]) -> bool {
    matches!(
        key,
        b"id"
            | b"responseId"
            | b"model"
            | b"modelVersion"
            | b"object"
            | b"type"
            | b"index"
            | b"created"
            | b"system_fingerprint"
            | b"service_tier"
            | b"obfuscation"
            | b"key"
            | b"item_id"
            | b"output_index"
            | b"content_index"
            | b"sequence_number"
    )
}

/// A member that says the same in every dialect.
#[inline]
fn shared<'a>(
    root: &mut Root<'a>,
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    key: &[u8],
    value: Value<'a>,
) -> Result<bool, JsonError> {
    match (key, value) {
        (b"usage" | b"usageMetadata" | b"usage_metadata", Value::Object) => usage::read(collector, walker)?,
        // One call of many, of which each has counters and a model of its own.
        (b"custom_id", Value::Str(_)) => (collector.in_batch, root.is_batch) = (true, true),
        (b"key", Value::Str(_)) => root.has_key = true,
        (b"timings", Value::Object) => usage::timings(collector, walker)?,
        (b"service_tier" | b"serviceTier", Value::Str(tier)) => {
            collector.counters.tier = Tier::named(tier.raw()).or(collector.counters.tier);
        }
        (b"id" | b"responseId", Value::Str(id)) => {
            // Azure's first chunk has an empty one.
            if !id.raw().is_empty() {
                collector.answer.response_id.get_or_insert_with(|| bounded(&id.decode()));
            }
        }
        (b"model" | b"modelVersion", Value::Str(model)) => {
            collector.answer.model.get_or_insert_with(|| bounded(&model.decode()));
        }
        (b"object", Value::Str(kind)) => {
            collector.is_response |= matches!(kind.raw(), "response" | "thread.run");
            if kind.raw() == "error" {
                root.head.kind = Some(Kind::Error);
            }
        }
        // In every chunk of a stream, and of no interest.
        (
            b"type"
            | b"index"
            | b"created"
            | b"system_fingerprint"
            | b"service_tier"
            | b"obfuscation"
            | b"item_id"
            | b"output_index"
            | b"content_index"
            | b"sequence_number",
            Value::Str(_) | Value::Number(_) | Value::Null,
        ) => {}
        (b"message", Value::Str(text)) => root.loose.0 = Some(text),
        (b"code", Value::Str(text)) => root.loose.1 = Some(text),
        (b"code", Value::Number(_)) => root.has_code = true,
        (
            b"stop_reason" | b"stopReason" | b"done_reason" | b"finish_reason" | b"completionReason",
            Value::Str(reason),
        ) => collector.finished(0, reason),
        (b"status", Value::Str(text)) => root.status = Some(text),
        (b"error", Value::Object) => error(collector, walker)?,
        (b"error" | b"detail", Value::Str(text)) => {
            collector.answer.error_message = Some(cut_message(&text.decode()));
            collector.failure(text);
        }
        (b"__type", Value::Str(text)) => collector.answer.error_type = Some(bounded(&text.decode())),
        _ => return Ok(false),
    }
    Ok(true)
}

/// A member that no dialect takes: text where its key is one of a text. Whether it is.
fn anybodys(
    collector: &mut Collector,
    walker: &mut Walker<'_>,
    key: &str,
    value: Value<'_>,
) -> Result<bool, JsonError> {
    match (key.as_bytes(), value) {
        (
            b"content" | b"response" | b"text" | b"generated_text" | b"completion" | b"outputText" | b"generation"
            | b"output",
            Value::Str(text),
        ) => plain(collector, Channel::Content, text, text_key(key)),
        (b"thinking" | b"reasoning" | b"reasoning_content", Value::Str(text)) => {
            plain(collector, Channel::Reasoning, text, "thinking");
        }
        // What a provider adds of its own may hold the counters (`x_groq`).
        (_, Value::Object) if key.starts_with("x_") || key == "meta" => {
            usage::nested(collector, walker)?;
            return Ok(false);
        }
        (_, other) => {
            skip(walker, other)?;
            return Ok(false);
        }
    }
    Ok(true)
}

fn text_key(known: &str) -> &'static str {
    match known {
        "content" => "content",
        "response" => "response",
        "generated_text" => "generated_text",
        "completion" => "completion",
        "outputText" => "outputText",
        "generation" => "generation",
        "output" => "output",
        _ => "text",
    }
}
