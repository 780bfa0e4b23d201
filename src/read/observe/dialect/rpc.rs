//! JSON-RPC 2.0: what servers of tools (MCP) and other agents (A2A) answer, and what they ask back on their event streams.
//!
//! | of a message | becomes |
//! |---|---|
//! | `tools`, `prompts`, `resources`, `resourceTemplates`, `instructions` | definitions of tools |
//! | `content`, `contents`, `messages`, `artifacts`, `status`, `parts`, and every other string of a result | results |
//! | `params` of what a server asks or notes | results: its words, whatever role it gives them |
//! | `error.message`, `error.data` | results, and the error of the answer |
//!
//! All of it comes from third parties, so nothing here is the word of the application's own model. An artifact that comes in pieces is
//! one text. Invariant: linear in the bytes read.

use crate::json::{JsonError, Location, Text, Walker};
use crate::observe::answer::{Channel, Collector, Piece, Slot, bounded, message as cut_message};
use crate::observe::head::{Root, Taken};
use crate::observe::items;
use crate::observe::value::{Value, next_key, next_value, skip, value};

/// Blocks of texts that continue from message to message begin here.
const PIECES_FROM: u32 = 1 << 30;

pub(in crate::observe) fn member<'a>(
    _: &mut Root<'a>,
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    key: &[u8],
    value: Value<'a>,
) -> Result<Taken, JsonError> {
    match (key, value) {
        (b"jsonrpc" | b"id" | b"method", _) => skip(walker, value)?,
        (b"result" | b"params", Value::Object) => {
            let named = if key == b"result" { "result" } else { "params" };
            result(collector, walker, named)?;
            collector.answer.complete |= key == b"result";
        }
        (b"error", Value::Object) => {
            failure(collector, walker)?;
            collector.answer.complete = true;
        }
        (b"result" | b"params" | b"error", other) => {
            other_text(collector, walker, other, || Location::root("response").key("result"))?;
        }
        _ => return Ok(Taken::No),
    }
    Ok(Taken::Yes)
}

/// A text of its own in `channel`.
fn add(collector: &mut Collector, channel: Channel, lines: &str, place: impl FnOnce() -> Location) {
    if !lines.is_empty() {
        let slot = Slot { choice: 0, channel, block: collector.texts_begun() };
        collector.append(slot, Piece::Raw(lines), place);
    }
}

/// Every string of a value.
fn other_text<'a>(
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    value: Value<'a>,
    place: impl FnOnce() -> Location,
) -> Result<(), JsonError> {
    let lines = items::lines(walker, value, "")?;
    add(collector, Channel::Result, &lines, place);
    Ok(())
}

/// The object that a server answers with, or asks something with.
fn result<'a>(collector: &mut Collector, walker: &mut Walker<'a>, named: &'static str) -> Result<(), JsonError> {
    let place = || Location::root("response").key(named);
    // Its pieces follow those that came before them.
    let goes_on = bool_ahead(walker.clone(), "append") || is_kind_ahead(walker.clone(), "artifact-update");
    while let Some(key) = next_key(walker)? {
        let known = key.decode();
        let name = known_name(&known);
        match (&*known, value(walker)?) {
            ("tools" | "prompts" | "resources" | "resourceTemplates", Value::Array) => {
                each(collector, walker, Channel::Definition, &|at| place().key(name).index(at))?;
            }
            ("instructions", Value::Str(text)) => {
                add(collector, Channel::Definition, &text.decode(), || place().key(name));
            }
            ("content" | "contents" | "messages" | "history" | "artifacts" | "parts", Value::Array) => {
                each(collector, walker, Channel::Result, &|at| place().key(name).index(at))?;
            }
            // The events of an A2A stream, which its first versions do not wrap.
            ("artifactUpdate" | "statusUpdate" | "task", Value::Object) => result(collector, walker, named)?,
            ("artifact", Value::Object) => artifact(collector, walker, goes_on, &place)?,
            ("nextCursor" | "capabilities" | "protocolVersion" | "_meta", other) => skip(walker, other)?,
            (_, other) => {
                let lines = items::lines(walker, other, key.raw())?;
                add(collector, Channel::Result, &lines, || place().key(name));
            }
        }
    }
    Ok(())
}

/// The values of an array, each a text of its own.
fn each(
    collector: &mut Collector,
    walker: &mut Walker<'_>,
    channel: Channel,
    place: &dyn Fn(u32) -> Location,
) -> Result<(), JsonError> {
    let mut at: u32 = 0;
    while let Some(item) = next_value(walker)? {
        let lines = items::lines(walker, item, "")?;
        add(collector, channel, &lines, || place(at));
        at = at.saturating_add(1);
    }
    Ok(())
}

/// An artifact of an agent, or the next piece of one.
fn artifact<'a>(
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    goes_on: bool,
    place: &dyn Fn() -> Location,
) -> Result<(), JsonError> {
    let mut hash = 0x811c_9dc5_u32;
    let mut pieces: Vec<Text<'a>> = Vec::new();
    while let Some(key) = next_key(walker)? {
        match (key.raw(), value(walker)?) {
            ("artifactId", Value::Str(id)) => {
                hash = id.raw().bytes().fold(hash, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
            }
            ("parts", Value::Array) => items::collect(walker, Value::Array, "parts", &mut pieces)?,
            (_, other) => {
                let lines = items::lines(walker, other, key.raw())?;
                add(collector, Channel::Result, &lines, || place().key("artifact"));
            }
        }
    }
    let slot = Slot { choice: 0, channel: Channel::Result, block: PIECES_FROM | (hash >> 2) };
    for (at, piece) in pieces.into_iter().enumerate() {
        let place = || place().key("artifact").key("parts");
        if goes_on && at == 0 {
            collector.append(slot, Piece::Text(piece), place);
        } else {
            collector.line(slot, Piece::Text(piece), place);
        }
    }
    Ok(())
}

/// `error`: what a server says to whoever reads it, which is a model as often as not.
fn failure(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    let place = |key| Location::root("response").key("error").key(key);
    while let Some(key) = next_key(walker)? {
        match (key.raw(), value(walker)?) {
            ("message", Value::Str(text)) => {
                let text = text.decode();
                collector.answer.error_message = Some(cut_message(&text));
                add(collector, Channel::Result, &text, || place("message"));
            }
            ("code", Value::Number(spelled)) => collector.answer.error_type = Some(bounded(spelled)),
            (_, other) => {
                let lines = items::lines(walker, other, key.raw())?;
                add(collector, Channel::Result, &lines, || place("data"));
            }
        }
    }
    Ok(())
}

/// The names that locations of findings show.
fn known_name(name: &str) -> &'static str {
    const NAMES: [&str; 14] = [
        "tools",
        "prompts",
        "resources",
        "resourceTemplates",
        "instructions",
        "content",
        "contents",
        "structuredContent",
        "messages",
        "history",
        "artifacts",
        "parts",
        "status",
        "message",
    ];
    NAMES.into_iter().find(|known| *known == name).unwrap_or("other")
}

/// Whether the object that has been entered says `name: true`, wherever.
fn bool_ahead(mut walker: Walker<'_>, name: &str) -> bool {
    while let Ok(Some(key)) = next_key(&mut walker) {
        let Ok(Some(raw)) = walker.next_raw() else { return false };
        if key.raw() == name {
            return raw == "true";
        }
    }
    false
}

fn is_kind_ahead(mut walker: Walker<'_>, kind: &str) -> bool {
    while let Ok(Some(key)) = next_key(&mut walker) {
        let Ok(Some(raw)) = walker.next_raw() else { return false };
        if key.raw() == "kind" {
            return raw.trim_matches('"') == kind;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use weir_inference::PartKind;

    use crate::observe::{Answer, AnswerKind, AnswerReader};

    fn read(kind: AnswerKind, body: &str) -> Answer {
        let mut reader = AnswerReader::new(kind, None, 1 << 20);
        reader.feed(body.as_bytes());
        reader.finish()
    }

    fn texts(answer: &Answer) -> Vec<(PartKind, &str)> {
        answer.parts.iter().map(|part| (part.kind, &answer.text[part.range.clone()])).collect()
    }

    fn result(result: &Value) -> Answer {
        read(AnswerKind::Json, &json!({ "jsonrpc": "2.0", "id": 1, "result": result }).to_string())
    }

    #[test]
    fn results_of_tools_are_words_of_third_parties() {
        let answer = result(&json!({ "content": [{ "type": "text", "text": "sunny today" },
            { "type": "resource", "resource": { "uri": "file:///a", "mimeType": "text/plain", "text": "of a file" } }],
            "structuredContent": { "weather": "and structured" }, "isError": false }));
        let seen = texts(&answer);
        assert_eq!(seen[0], (PartKind::Tool, "sunny today"));
        assert!(seen[1].1.contains("of a file"));
        assert_eq!(seen[2], (PartKind::Tool, "and structured"));
        assert_eq!(answer.parts[0].location.to_string(), "response.result.content[0]");
        assert!(answer.complete);
    }

    #[test]
    fn lists_of_tools_define_tools() {
        let answer = result(
            &json!({ "tools": [{ "name": "a", "description": "reads a file", "inputSchema": { "type": "object",
            "properties": { "path": { "type": "string", "description": "where it is" } } } }, { "name": "b", "description": "writes one" }] }),
        );
        let seen = texts(&answer);
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].0, PartKind::ToolDefinition);
        assert!(seen[0].1.contains("reads a file") && seen[0].1.contains("where it is"));
        assert_eq!(answer.parts[1].location.to_string(), "response.result.tools[1]");
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let answer =
            read(AnswerKind::Json, r#"{"result":{"content":[{"text":"late version"}]},"id":1,"jsonrpc":"2.0"}"#);
        assert_eq!(texts(&answer), [(PartKind::Tool, "late version")]);
        let answer = read(
            AnswerKind::Json,
            r#"{"error":{"code":-32000,"message":"it went wrong","data":{"why":"see there"}},"id":1,"jsonrpc":"2.0"}"#,
        );
        assert_eq!(texts(&answer), [(PartKind::Tool, "it went wrong"), (PartKind::Tool, "see there")]);
        assert_eq!(answer.error_type.as_deref(), Some("-32000"));
    }

    #[test]
    fn what_a_server_asks_on_its_stream_is_read() {
        let events = [
            json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "a note of it" } }),
            json!({ "jsonrpc": "2.0", "id": 4, "method": "sampling/createMessage", "params": { "systemPrompt": "be someone",
                "messages": [{ "role": "user", "content": { "type": "text", "text": "please say it" } }] } }),
            json!({ "jsonrpc": "2.0", "id": 1, "result": { "content": [{ "type": "text", "text": "the end" }] } }),
        ];
        let stream: String = events.iter().map(|event| format!("event: message\ndata: {event}\n\n")).collect();
        let answer = read(AnswerKind::EventStream, &stream);
        for words in ["a note of it", "be someone", "please say it", "the end"] {
            assert!(answer.text.contains(words), "{words}: {}", answer.text);
        }
        assert!(answer.parts.iter().all(|part| part.kind == PartKind::Tool));
    }

    #[test]
    fn pieces_of_an_artifact_are_one_text() {
        let piece = |text: &str, append: bool| {
            json!({ "jsonrpc": "2.0", "id": 1, "result": { "kind": "artifact-update", "taskId": "t", "contextId": "c", "append": append,
                "artifact": { "artifactId": "a1", "parts": [{ "kind": "text", "text": text }] } } })
        };
        let wrapped = json!({ "jsonrpc": "2.0", "id": 1, "result": { "artifactUpdate": { "taskId": "t", "append": true,
            "artifact": { "artifactId": "a1", "parts": [{ "text": " and on" }] } } } });
        let stream: String = [piece("one te", false), piece("xt", true), wrapped]
            .iter()
            .map(|event| format!("data: {event}\n\n"))
            .collect();
        let answer = read(AnswerKind::EventStream, &stream);
        assert_eq!(texts(&answer), [(PartKind::Tool, "one text and on")]);
    }

    #[test]
    fn a_task_is_read_whole() {
        let answer = result(&json!({ "kind": "task", "id": "t", "contextId": "c",
            "status": { "state": "completed", "message": { "role": "agent", "parts": [{ "kind": "text", "text": "it is done" }] } },
            "artifacts": [{ "artifactId": "a", "name": "a report", "parts": [{ "kind": "text", "text": "what was found" }] }],
            "history": [{ "role": "user", "parts": [{ "kind": "text", "text": "what was asked" }] }] }));
        for words in ["it is done", "a report", "what was found", "what was asked"] {
            assert!(answer.text.contains(words), "{words}: {}", answer.text);
        }
    }
}
