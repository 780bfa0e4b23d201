//! Reads one JSON message of an answer (a whole document, an event, a line) into the collector.
//!
//! All dialects are read by one set of functions, because their keys do not collide: `choices`, `candidates`,
//! `content`, `message`, `delta`, `response`, `output`. Each function reads one kind of object and skips what it does
//! not know. Recursion follows only known keys, and the walker's depth bound ends it. Invariant: a fault leaves what
//! was read before it. Must not know: how messages are framed.

use smallvec::SmallVec;

use super::answer::{Channel, Collector, Piece, Slot, bounded, message as cut_message};
use super::{blocks, converse, items, usage};
use crate::json::{Event, Fault, Location, Text, Walker, integer};

/// A value; an object or array has been entered and must be read to its end.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Str(Text<'a>),
    Number(&'a str),
    Bool(bool),
    Null,
    Object,
    Array,
}

/// The next value (after a key), or `None` at the end of an array.
#[inline(always)]
pub(super) fn next_value<'a>(walker: &mut Walker<'a>) -> Result<Option<Value<'a>>, Fault> {
    Ok(match walker.next_event()? {
        Some(Event::Str(text)) => Some(Value::Str(text)),
        Some(Event::Number(spelled)) => Some(Value::Number(spelled)),
        Some(Event::Bool(value)) => Some(Value::Bool(value)),
        Some(Event::Null) => Some(Value::Null),
        Some(Event::ObjectStart) => Some(Value::Object),
        Some(Event::ArrayStart) => Some(Value::Array),
        Some(Event::ArrayEnd | Event::ObjectEnd | Event::Key(_)) | None => None,
    })
}

/// The value of a key.
#[inline(always)]
pub(super) fn value<'a>(walker: &mut Walker<'a>) -> Result<Value<'a>, Fault> {
    Ok(next_value(walker)?.unwrap_or(Value::Null))
}

/// The next key of the object that was entered, or `None` at its end.
#[inline(always)]
pub(super) fn next_key<'a>(walker: &mut Walker<'a>) -> Result<Option<Text<'a>>, Fault> {
    match walker.next_event()? {
        Some(Event::Key(key)) => Ok(Some(key)),
        _ => Ok(None),
    }
}

/// Reads past a value.
#[inline(always)]
pub(super) fn skip(walker: &mut Walker<'_>, value: Value<'_>) -> Result<(), Fault> {
    match value {
        Value::Object | Value::Array => walker.leave(walker.depth().saturating_sub(1)),
        _ => Ok(()),
    }
}

/// What an event's `type` means to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Other,
    /// Repeats what deltas have said.
    Repeat,
    /// `delta` is a string of this channel.
    Delta(Channel),
    /// The last event of the answer.
    Last,
    /// The answer failed.
    Error,
}

/// What an event says about itself, wherever in the object it stands.
#[derive(Debug, Clone, Copy, Default)]
struct Head {
    kind: Option<Kind>,
    index: Option<u32>,
    output: Option<u32>,
    part: Option<u32>,
    summary: Option<u32>,
}

fn kind(name: &str) -> Kind {
    match name {
        "message_stop" | "response.completed" | "response.incomplete" | "response.failed" | "interaction.completed" => {
            Kind::Last
        }
        "error" => Kind::Error,
        "response.output_text.delta" | "response.audio_transcript.delta" | "response.output_audio_transcript.delta" => {
            Kind::Delta(Channel::Content)
        }
        "response.refusal.delta" => Kind::Delta(Channel::Refusal),
        "response.audio.delta" | "response.output_audio.delta" => Kind::Other,
        _ if name.starts_with("response.reasoning") && name.ends_with(".delta") => Kind::Delta(Channel::Reasoning),
        // What built-in tools are asked to do, by whatever name, and what they say.
        _ if name.starts_with("response.") && name.ends_with(".delta") => {
            Kind::Delta(if name.contains("_output") { Channel::Result } else { Channel::Call })
        }
        _ if name.starts_with("response.") && name.ends_with(".done") => Kind::Repeat,
        _ => Kind::Other,
    }
}

/// A position as a number; out of range ones fold into the largest.
pub(super) fn position(spelled: &str) -> Option<u32> {
    integer(spelled).map(|at| u32::try_from(at).unwrap_or(u32::MAX))
}

/// Reads one message.
///
/// # Errors
/// The first [`Fault`].
pub(super) fn message(collector: &mut Collector, json: &[u8]) -> Result<(), Fault> {
    let mut walker = Walker::new(json)?;
    match value(&mut walker)? {
        Value::Object => root(collector, &mut walker)?,
        Value::Array => {
            while let Some(item) = next_value(&mut walker)? {
                match item {
                    Value::Object => root(collector, &mut walker)?,
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

fn plain(collector: &mut Collector, channel: Channel, text: Text<'_>, key: &'static str) {
    let slot = Slot { choice: 0, channel, block: 0 };
    collector.append(slot, Piece::Text(text), || Location::root("response").key(key));
}

#[cfg(test)]
thread_local! {
    /// How often an object's rest has been read ahead.
    pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Looks ahead for the keys an event is understood by; `walker` stands before the value of a key of its object.
/// It reads the rest of the object: once per object, or a message of nothing but such keys would take quadratic time.
fn look_ahead(mut walker: Walker<'_>, mut head: Head) -> Head {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + 1);
    let Ok(Some(_)) = walker.next_raw() else { return head };
    while let Ok(Some(key)) = next_key(&mut walker) {
        let Ok(value) = value(&mut walker) else { break };
        head.note(key, value);
        if skip(&mut walker, value).is_err() {
            break;
        }
    }
    head
}

impl Head {
    fn note(&mut self, key: Text<'_>, value: Value<'_>) {
        match (key.raw().as_bytes(), value) {
            (b"type" | b"event_type", Value::Str(name)) => self.kind = Some(kind(&name.decode())),
            (b"index", Value::Number(spelled)) => self.index = position(spelled),
            (b"output_index", Value::Number(spelled)) => self.output = position(spelled),
            (b"content_index" | b"command_index", Value::Number(spelled)) => self.part = position(spelled),
            (b"summary_index", Value::Number(spelled)) => self.summary = position(spelled),
            _ => {}
        }
    }
}

/// The object at the top, and the objects that carry the same keys: `message` of `message_start`, `response`.
fn root(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), Fault> {
    let mut head = Head::default();
    let mut looked = false;
    let mut status = None;
    let mut loose = (None, None);
    while let Some(key) = next_key(walker)? {
        let key_text = key.decode();
        let known = &*key_text;
        if matches!(known.as_bytes(), b"delta" | b"content_block" | b"item")
            && (head.kind.is_none() || head.index.or(head.output).is_none())
            && !std::mem::replace(&mut looked, true)
        {
            head = look_ahead(walker.clone(), head);
        }
        let value = value(walker)?;
        head.note(key, value);
        match (known.as_bytes(), value) {
            (b"choices", Value::Array) => choices(collector, walker)?,
            (b"candidates", Value::Array) => blocks::candidates(collector, walker)?,
            (b"usage" | b"usageMetadata" | b"usage_metadata", Value::Object) => usage::read(collector, walker)?,
            (b"id" | b"responseId", Value::Str(id)) if collector.answer.response_id.is_none() => {
                collector.answer.response_id = Some(bounded(&id.decode()));
            }
            (b"model" | b"modelVersion", Value::Str(model)) if collector.answer.model.is_none() => {
                collector.answer.model = Some(bounded(&model.decode()));
            }
            (b"message", Value::Object) => message_object(collector, walker, 0, "message")?,
            (b"message", Value::Str(text)) => loose.0 = Some(text),
            (b"code", Value::Str(text)) => loose.1 = Some(text),
            (b"content", Value::Array) => blocks::list(collector, walker, 0, "content")?,
            (b"delta", Value::Object) if matches!(head.kind, Some(Kind::Delta(_))) => {
                items::continued(collector, walker, value, "", head.output.unwrap_or(0))?;
            }
            (b"delta", Value::Object) => blocks::delta(collector, walker, head.index.unwrap_or(0))?,
            (b"delta", Value::Str(text)) => text_delta(collector, head, text),
            (b"content_block", Value::Object) => {
                blocks::block(collector, walker, 0, head.index.unwrap_or(0), "content")?
            }
            (b"item", Value::Object) => items::item(collector, walker, head.output.unwrap_or(0))?,
            (b"response" | b"interaction", Value::Object) => root(collector, walker)?,
            (b"output", Value::Array) => items::output(collector, walker)?,
            (b"outputs" | b"generations", Value::Array) => blocks::list(collector, walker, 0, "outputs")?,
            (b"steps", Value::Array) => steps(collector, walker)?,
            (b"results", Value::Array) => results(collector, walker)?,
            (name, Value::Object) if converse::is_event(name) => converse::event(collector, walker, known)?,
            (b"amazon-bedrock-invocationMetrics", Value::Object) => {
                usage::read(collector, walker)?;
                collector.answer.complete = true;
            }
            (b"output", Value::Object) => output_object(collector, walker)?,
            (b"token", Value::Object) => token(collector, walker)?,
            (b"tool_calls", Value::Array) => blocks::calls(collector, walker, 0, "tool_calls")?,
            (b"text" | b"generated_text" | b"output_text", Value::Str(_)) if head.kind == Some(Kind::Repeat) => {}
            (b"generated_text", Value::Str(_)) if collector.has_text() => {}
            (
                b"content" | b"response" | b"text" | b"generated_text" | b"completion" | b"outputText" | b"generation"
                | b"output",
                Value::Str(text),
            ) => {
                plain(collector, Channel::Content, text, text_key(known));
            }
            (b"thinking" | b"reasoning" | b"reasoning_content", Value::Str(text)) => {
                plain(collector, Channel::Reasoning, text, "thinking");
            }
            (
                b"stop_reason" | b"stopReason" | b"done_reason" | b"finish_reason" | b"completionReason",
                Value::Str(reason),
            ) => {
                collector.finished(0, reason);
            }
            (b"status", Value::Str(text)) => status = Some(text),
            (b"object", Value::Str(kind)) => collector.is_response |= kind.raw() == "response",
            (b"background", Value::Bool(value)) => collector.background = Some(value),
            (b"incomplete_details", Value::Object) => incomplete(collector, walker)?,
            (b"done", Value::Bool(true)) => collector.answer.complete = true,
            (b"prompt_eval_count" | b"prompt_token_count" | b"inputTextTokenCount", Value::Number(n)) => {
                usage::raise(&mut collector.counters.prompt, n);
            }
            (b"eval_count" | b"generation_token_count" | b"totalOutputTextTokenCount", Value::Number(n)) => {
                usage::raise(&mut collector.counters.completion, n);
            }
            (b"error", Value::Object) => error(collector, walker)?,
            (b"error" | b"detail", Value::Str(text)) => {
                collector.answer.error_message = Some(cut_message(&text.decode()))
            }
            (b"__type", Value::Str(text)) => collector.answer.error_type = Some(bounded(&text.decode())),
            (b"data", Value::Array) => blocks::data(collector, walker)?,
            (_, other) => skip(walker, other)?,
        }
    }
    if head.kind == Some(Kind::Last) {
        collector.answer.complete = true;
    }
    if let Some(status) = status {
        collector.unfinished = matches!(status.raw(), "queued" | "in_progress");
    }
    if let Some(status) = status.filter(|_| collector.answer.finish_reason.is_none())
        && matches!(status.raw(), "completed" | "incomplete" | "failed" | "cancelled")
    {
        collector.finished(0, status);
    }
    // `{"message": ...}` and `{"code": ..., "message": ...}` alone are how some providers say that they failed.
    if let Some(text) = loose.0.filter(|_| head.kind == Some(Kind::Error) || !collector.has_text()) {
        collector.answer.error_message.get_or_insert_with(|| cut_message(&text.decode()));
        if let Some(code) = loose.1 {
            collector.answer.error_type.get_or_insert_with(|| bounded(&code.decode()));
        }
    }
    Ok(())
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
        // Audio and other payloads that are no text have their own names; an unnamed delta is taken as text.
        None => plain(collector, Channel::Content, text, "delta"),
        Some(Kind::Other | Kind::Repeat | Kind::Last | Kind::Error) => {}
    }
}

fn choices(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), Fault> {
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

fn choice(collector: &mut Collector, walker: &mut Walker<'_>, at: u32) -> Result<(), Fault> {
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
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}

/// A message or the delta of one. `holder` is the key it stands under: `choices` or `message`.
pub(super) fn message_object(
    collector: &mut Collector,
    walker: &mut Walker<'_>,
    choice: u32,
    holder: &'static str,
) -> Result<(), Fault> {
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
            (b"reasoning_content" | b"reasoning" | b"thinking", Value::Str(text)) => {
                collector.append(slot(Channel::Reasoning), Piece::Text(text), || place("reasoning_content"));
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
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}

/// `output` as an object: `{"message": {...}}`.
fn output_object(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), Fault> {
    while let Some(key) = next_key(walker)? {
        match (key.raw().as_bytes(), value(walker)?) {
            (b"message", Value::Object) => message_object(collector, walker, 0, "output")?,
            (b"text", Value::Str(text)) => plain(collector, Channel::Content, text, "output"),
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}

/// `token` of a text-generation stream.
fn token(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), Fault> {
    let mut special = false;
    let mut text = None;
    while let Some(key) = next_key(walker)? {
        match (key.raw().as_bytes(), value(walker)?) {
            (b"text", Value::Str(piece)) => text = Some(piece),
            (b"special", Value::Bool(value)) => special = value,
            (_, other) => skip(walker, other)?,
        }
    }
    if let Some(text) = text.filter(|_| !special) {
        plain(collector, Channel::Content, text, "generated_text");
    }
    Ok(())
}

/// `results` of a text model: `[{outputText, tokenCount, completionReason}]`.
fn results(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), Fault> {
    while let Some(item) = next_value(walker)? {
        let Value::Object = item else {
            skip(walker, item)?;
            continue;
        };
        while let Some(key) = next_key(walker)? {
            match (key.raw().as_bytes(), value(walker)?) {
                (b"outputText", Value::Str(text)) => plain(collector, Channel::Content, text, "outputText"),
                (b"tokenCount", Value::Number(n)) => usage::raise(&mut collector.counters.completion, n),
                (b"completionReason", Value::Str(reason)) => collector.finished(0, reason),
                (_, other) => skip(walker, other)?,
            }
        }
    }
    Ok(())
}

/// `steps` of an interaction: thoughts, calls and `{type: model_output, content: [...]}`.
fn steps(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), Fault> {
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

fn incomplete(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), Fault> {
    while let Some(key) = next_key(walker)? {
        match (key.raw().as_bytes(), value(walker)?) {
            (b"reason", Value::Str(reason)) => collector.finished(0, reason),
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}

fn error(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), Fault> {
    let mut names: SmallVec<[(u8, String); 3]> = SmallVec::new();
    while let Some(key) = next_key(walker)? {
        match (key.raw().as_bytes(), value(walker)?) {
            (b"message", Value::Str(text)) => collector.answer.error_message = Some(cut_message(&text.decode())),
            (b"type", Value::Str(text)) => names.push((0, bounded(&text.decode()))),
            (b"status", Value::Str(text)) => names.push((1, bounded(&text.decode()))),
            (b"code", Value::Str(text)) => names.push((2, bounded(&text.decode()))),
            (b"code", Value::Number(spelled)) => names.push((3, bounded(spelled))),
            (_, other) => skip(walker, other)?,
        }
    }
    // The most telling name there is.
    if let Some((_, name)) = names.into_iter().filter(|(_, name)| !name.is_empty()).min() {
        collector.answer.error_type = Some(name);
    }
    Ok(())
}
