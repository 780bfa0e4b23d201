//! Servers and models that generate bare text: TGI, SGLang, Titan, Llama, Mistral, Cohere.

use crate::json::{JsonError, Location, Walker};
use crate::observe::answer::{Channel, Collector, Piece, Slot};
use crate::observe::head::{Kind, Root, Taken, plain};
use crate::observe::value::{Value, next_key, next_value, skip, value};
use crate::observe::{blocks, usage};

pub(super) fn member<'a>(
    root: &mut Root<'a>,
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    key: &[u8],
    value: Value<'a>,
) -> Result<Taken, JsonError> {
    match (key, value) {
        (b"outputs" | b"generations", Value::Array) => blocks::list(collector, walker, 0, "outputs")?,
        (b"results", Value::Array) => results(collector, walker)?,
        (b"token", Value::Object) => token(collector, walker)?,
        // SGLang sends all there is so far each time, unless it is told to send pieces.
        (b"text", Value::Str(text)) if root.head.fares => {
            let slot = Slot { choice: root.head.index.unwrap_or(0), channel: Channel::Content, block: 0 };
            collector.grown(slot, text, || Location::root("response").key("text"));
        }
        // At its end Cohere's first version says all of the text once more.
        (b"text", Value::Str(text)) if root.is_nested => {
            let slot = Slot { choice: 0, channel: Channel::Content, block: 0 };
            collector.whole(slot, Piece::Text(text), || Location::root("response").key("text"));
        }
        (b"generated_text", Value::Str(_)) if root.head.kind == Some(Kind::Repeat) || collector.has_text() => {}
        (b"prompt_token_count" | b"inputTextTokenCount", Value::Number(n)) => {
            usage::raise(&mut collector.counters.prompt, n);
        }
        (b"generation_token_count" | b"totalOutputTextTokenCount", Value::Number(n)) => {
            usage::raise(&mut collector.counters.completion, n);
        }
        _ => return Ok(Taken::No),
    }
    Ok(Taken::Yes)
}

/// `token` of a text-generation stream.
fn token(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
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
fn results(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
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
