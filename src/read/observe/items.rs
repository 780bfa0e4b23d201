//! Items of the responses interface: messages, reasoning, and everything a model or its provider runs.
//!
//! | of an item | becomes |
//! |---|---|
//! | the texts of its content and summary | output, reasoning |
//! | what it asks for: `arguments`, `input`, `action`, `operation`, `code`, ... | a tool call |
//! | every other string: outputs, logs, results, citations | results, which come from third parties |
//! | the same of a list of tools | definitions of tools |
//!
//! Only ids, labels and encoded bytes are left out, so that an item nobody has heard of is read, too. A streamed item
//! comes several times, in deltas and whole; what is known of it is not repeated. Invariant: linear in the bytes read.

use smallvec::SmallVec;

use super::answer::{Asked, Channel, Collector, Piece, Slot};
use super::blocks::unquoted;
use super::value::{Value, next_key, next_value, skip, value};
use crate::json::{Event, JsonError, Location, Text, Walker};

/// A string of base64 from this length on is a file, an image or something encrypted.
const ENCODED_CHARS_MIN: usize = 200;
/// Where a reasoning item's own text stands behind its summaries.
pub(super) const REASONING_TEXT: u32 = 128;

/// Keys of names and times, beside those of ids and labels.
pub(super) const NAMES: [&str; 17] = [
    "model",
    "modelVersion",
    "name",
    "created_at",
    "createTime",
    "system_fingerprint",
    "service_tier",
    "obfuscation",
    "finish_reason",
    "finishReason",
    "stop_reason",
    "stopReason",
    "done_reason",
    "completionReason",
    "event",
    "encrypted_index",
    "mimeType",
];

/// The block of a part of an item.
pub(super) const fn block_of(output: u32, part: u32) -> u32 {
    output.saturating_mul(256).saturating_add(part)
}

/// What an item says.
#[derive(Default)]
struct Draft<'a> {
    kind: Option<Text<'a>>,
    id: Option<Text<'a>>,
    name: Option<Text<'a>>,
    /// Texts of the content and their positions in it.
    content: SmallVec<[(Channel, u32, Text<'a>); 2]>,
    summary: SmallVec<[Text<'a>; 2]>,
    arguments: Option<Piece<'a>>,
    /// What a built-in tool is asked to do, as it is spelled.
    asked: Option<&'a str>,
    rest: Vec<Text<'a>>,
}

/// The array `output`.
pub(super) fn output(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    let mut at: u32 = 0;
    while let Some(entry) = next_value(walker)? {
        match entry {
            Value::Object => item(collector, walker, at)?,
            Value::Str(text) => {
                let slot = Slot { choice: 0, channel: Channel::Content, block: block_of(at, 0) };
                collector.append(slot, Piece::Text(text), || Location::root("response").key("output").index(at));
            }
            other => skip(walker, other)?,
        }
        at = at.saturating_add(1);
    }
    Ok(())
}

/// One item that has been entered; it may have come before.
pub(super) fn item(collector: &mut Collector, walker: &mut Walker<'_>, at: u32) -> Result<(), JsonError> {
    let mut draft = Draft::default();
    while let Some(key) = next_key(walker)? {
        let known = key.decode();
        match known.as_bytes() {
            b"arguments" | b"input" => {
                draft.arguments = unquoted(walker)?;
                continue;
            }
            b"action" | b"operation" | b"code" | b"queries" | b"query" | b"commands" | b"command" => {
                draft.asked = walker.next_raw()?.filter(|raw| *raw != "null").or(draft.asked);
                continue;
            }
            _ => {}
        }
        match (known.as_bytes(), value(walker)?) {
            (b"type", Value::Str(kind)) => draft.kind = Some(kind),
            (b"call_id", Value::Str(id)) => draft.id = Some(id),
            (b"id", Value::Str(id)) if draft.id.is_none() => draft.id = Some(id),
            (b"name", Value::Str(name)) => draft.name = Some(name),
            (b"content", Value::Array) => content(walker, &mut draft)?,
            (b"summary", Value::Array) => collect(walker, Value::Array, key.raw(), &mut draft.summary)?,
            (_, other) => collect(walker, other, &known, &mut draft.rest)?,
        }
    }
    file(collector, draft, at)
}

/// The array `content` of an item.
fn content<'a>(walker: &mut Walker<'a>, draft: &mut Draft<'a>) -> Result<(), JsonError> {
    let mut at = 0;
    while let Some(part) = next_value(walker)? {
        match part {
            Value::Object => {
                while let Some(key) = next_key(walker)? {
                    let channel = if key.raw() == "refusal" { Channel::Refusal } else { Channel::Content };
                    match (key.raw(), value(walker)?) {
                        ("text" | "transcript" | "refusal", Value::Str(text)) => {
                            draft.content.push((channel, at, text));
                        }
                        (_, other) => collect(walker, other, key.raw(), &mut draft.rest)?,
                    }
                }
            }
            Value::Str(text) => draft.content.push((Channel::Content, at, text)),
            other => skip(walker, other)?,
        }
        at += 1;
    }
    Ok(())
}

/// Puts what an item says where it belongs.
fn file(collector: &mut Collector, mut draft: Draft<'_>, at: u32) -> Result<(), JsonError> {
    let place = || Location::root("response").key("output").index(at);
    let kind = draft.kind.map(|kind| kind.decode()).unwrap_or_default();
    if matches!(&*kind, "web_search_call" | "file_search_call") {
        collector.note_run(at, kind == "web_search_call");
    }
    let reasons = kind == "reasoning";
    for (channel, part, text) in draft.content {
        let (channel, part_at) = if reasons { (Channel::Reasoning, REASONING_TEXT + part) } else { (channel, part) };
        let slot = Slot { choice: 0, channel, block: block_of(at, part_at) };
        let leaf = if channel == Channel::Refusal { "refusal" } else { "text" };
        collector.whole(slot, Piece::Text(text), || place().key("content").index(part).key(leaf));
    }
    for (part, text) in (0..).zip(draft.summary) {
        let slot = Slot { choice: 0, channel: Channel::Reasoning, block: block_of(at, part) };
        collector.whole(slot, Piece::Text(text), || place().key("summary").index(part).key("text"));
    }
    let mut asked = Vec::new();
    if let Some(raw) = draft.asked {
        let mut walker = Walker::over(raw);
        let value = value(&mut walker)?;
        collect(&mut walker, value, "", &mut asked)?;
    }
    let own = kind.strip_suffix("_call").unwrap_or(&kind);
    let named = draft.name.map(|name| name.decode()).filter(|name| !name.is_empty());
    if draft.arguments.is_some() || draft.asked.is_some() || (kind.ends_with("_call") && named.is_some()) {
        let lines = joined(&asked);
        let (text, leaf) = match draft.arguments {
            Some(arguments) => (Some(arguments), "arguments"),
            None => ((!lines.is_empty()).then_some(Piece::Raw(&lines)), "action"),
        };
        let call = Asked {
            name: named.as_deref().unwrap_or(own),
            // Command lines stand one below the other; anything else is told apart by its keys.
            spelled: draft
                .asked
                .filter(|_| draft.arguments.is_none() && own != "shell")
                .filter(|raw| raw.starts_with('{')),
            writes: own == "apply_patch",
        };
        collector.whole_call(at, draft.id, &call, text, || place().key(leaf));
    }
    if draft.arguments.is_some() {
        asked.append(&mut draft.rest);
        draft.rest = asked;
    }
    let lines = joined(&draft.rest);
    if !lines.is_empty() {
        let defines = matches!(&*kind, "mcp_list_tools" | "additional_tools" | "tool_search_output");
        let channel = if defines { Channel::Definition } else { Channel::Result };
        collector.whole(Slot { choice: 0, channel, block: at }, Piece::Raw(&lines), place);
    }
    Ok(())
}

/// One string per line.
fn joined(texts: &[Text<'_>]) -> String {
    let mut lines = String::new();
    for text in texts {
        if !lines.is_empty() {
            lines.push('\n');
        }
        text.decode_into(&mut lines);
    }
    lines
}

/// How a text follows what came before it in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follows {
    /// On a line of its own.
    OnItsLine,
    /// As the next piece of the same text.
    AtOnce,
}

/// The strings of a value nobody knows the meaning of, as a result in the answer's block `at`.
///
/// # Errors
/// The first [`JsonError`].
pub(super) fn rest<'a>(
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    value: Value<'a>,
    key: &str,
    at: u32,
    follows: Follows,
) -> Result<(), JsonError> {
    let lines = lines(walker, value, key)?;
    let slot = Slot { choice: 0, channel: Channel::Result, block: at };
    match follows {
        _ if lines.is_empty() => {}
        Follows::OnItsLine => collector.line(slot, Piece::Raw(&lines), || Location::root("response")),
        Follows::AtOnce => collector.append(slot, Piece::Raw(&lines), || Location::root("response")),
    }
    Ok(())
}

/// The strings of a whole message nobody knows the meaning of.
///
/// # Errors
/// The first [`JsonError`].
pub(super) fn loose<'a>(collector: &mut Collector, walker: &mut Walker<'a>, value: Value<'a>) -> Result<(), JsonError> {
    rest(collector, walker, value, "", 0, Follows::OnItsLine)
}

/// The strings of a value nobody knows the meaning of, one per line.
///
/// # Errors
/// The first [`JsonError`].
pub(super) fn lines<'a>(walker: &mut Walker<'a>, value: Value<'a>, key: &str) -> Result<String, JsonError> {
    let mut found: SmallVec<[Text<'_>; 4]> = SmallVec::new();
    collect(walker, value, key, &mut found)?;
    Ok(joined(&found))
}

/// Every string of `value`, which has been entered, but ids, labels and encoded bytes. `key` is what it stands under.
///
/// # Errors
/// The first [`JsonError`].
pub(super) fn collect<'a>(
    walker: &mut Walker<'a>,
    value: Value<'a>,
    key: &str,
    found: &mut impl Extend<Text<'a>>,
) -> Result<(), JsonError> {
    match value {
        Value::Str(text) => {
            found.extend((!is_left_out(key, text)).then_some(text));
            return Ok(());
        }
        Value::Object | Value::Array => {}
        Value::Number(_) | Value::Bool(_) | Value::Null => return Ok(()),
    }
    if is_probability(key) {
        return skip(walker, value);
    }
    let outside = walker.depth().saturating_sub(1);
    // In an array the strings stand under the array's key.
    let mut under: Option<Text<'a>> = None;
    while walker.depth() > outside {
        match walker.next_event()? {
            Some(Event::Key(key)) if is_probability(key.raw()) => {
                walker.next_raw()?;
            }
            Some(Event::Key(key)) => {
                // A key made of words is read like any other text.
                found.extend(key.raw().contains(' ').then_some(key));
                under = Some(key);
            }
            Some(Event::Str(text)) => {
                let key = under.map_or(key, |key| key.raw());
                found.extend((!is_left_out(key, text)).then_some(text));
            }
            Some(Event::ObjectEnd | Event::ArrayEnd) => under = None,
            Some(_) => {}
            None => break,
        }
    }
    Ok(())
}

/// The answer's own tokens once more, with how likely they were.
pub(super) fn is_probability(key: &str) -> bool {
    matches!(key, "logprobs" | "top_logprobs")
}

pub(super) fn is_left_out(key: &str, text: Text<'_>) -> bool {
    let raw = text.raw();
    raw.is_empty() || (is_label(key) && !raw.contains([' ', '\\'])) || is_encoded(raw)
}

/// Keys whose values are ids or names that the interface defines.
fn is_label(key: &str) -> bool {
    let known = matches!(
        key,
        "id" | "type"
            | "kind"
            | "object"
            | "role"
            | "status"
            | "phase"
            | "language"
            | "format"
            | "encrypted_content"
            | "redactedContent"
            | "signature"
            | "data"
    );
    known
        || key.ends_with("Signature")
        || key.ends_with("_id")
        || key.ends_with("Id")
        || key.ends_with("_type")
        || key.ends_with("Type")
}

/// Base64, bare or in a `data:` URL.
fn is_encoded(raw: &str) -> bool {
    let bytes = match raw.strip_prefix("data:") {
        Some(url) => url.split_once(',').map_or(url, |(_, data)| data),
        None => raw,
    };
    bytes.len() >= ENCODED_CHARS_MIN
        && bytes
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_' | b'\\'))
}
