//! Cohere's chats: the events of its second version, and the lines of its first, which its models speak on Bedrock too.

use serde_json::{Value, json};

use super::message::{Message, Stream, keep};

/// Second version.
#[derive(Default)]
struct Chat {
    id: Value,
    /// The block that has begun and not ended, and what it is.
    open: Option<(u64, Block)>,
    next: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Block {
    Text,
    Call,
}

/// Tells both by what only they say.
pub(super) fn opens(_: Option<&str>, message: &Value) -> Option<Box<dyn Stream>> {
    if message.get("type").is_some_and(|kind| kind == "message-start") {
        return Some(Box::new(Chat::default()));
    }
    let is_line = message.get("is_finished").is_some_and(Value::is_boolean);
    is_line.then(|| Box::new(Lines::default()) as _)
}

impl Stream for Chat {
    fn note(&mut self, _: Option<&str>, message: &Value) {
        keep(&mut self.id, message.get("id"));
        let index = message.get("index").and_then(Value::as_u64).unwrap_or(0);
        self.open = match message.get("type").and_then(Value::as_str) {
            Some("content-start" | "content-delta") => Some((index, Block::Text)),
            Some("tool-call-start" | "tool-call-delta") => Some((index, Block::Call)),
            Some("content-end" | "tool-call-end") => None,
            _ => return,
        };
        self.next = self.next.max(index.saturating_add(1));
    }

    fn end(&self, warning: &str) -> Vec<Message> {
        let event = |kind: &'static str, mut data: Value| {
            if let Some(data) = data.as_object_mut() {
                data.insert("type".to_owned(), json!(kind));
            }
            Message::event(kind, data)
        };
        let content = |content: Value| json!({ "message": { "content": content } });
        let mut end = Vec::new();
        let index = match self.open {
            Some((index, Block::Text)) => index,
            other => {
                end.extend(other.map(|(index, _)| event("tool-call-end", json!({ "index": index }))));
                let block = content(json!({ "type": "text", "text": "" }));
                end.push(event("content-start", json!({ "index": self.next, "delta": block })));
                self.next
            }
        };
        end.push(event("content-delta", json!({ "index": index, "delta": content(json!({ "text": warning })) })));
        end.push(event("content-end", json!({ "index": index })));
        // It has no reason of its own for what is withheld.
        end.push(event(
            "message-end",
            json!({ "id": self.id, "delta": { "finish_reason": "ERROR", "error": warning } }),
        ));
        end
    }
}

/// First version.
#[derive(Default)]
struct Lines {
    id: Value,
    /// Its lines say what event they are; those of the oldest models do not.
    named: bool,
}

impl Stream for Lines {
    fn note(&mut self, _: Option<&str>, message: &Value) {
        keep(&mut self.id, message.get("generation_id"));
        self.named |= message.get("event_type").is_some();
    }

    fn end(&self, warning: &str) -> Vec<Message> {
        if !self.named {
            return vec![
                Message::json(json!({ "text": warning, "is_finished": false })),
                Message::json(json!({ "is_finished": true, "finish_reason": "ERROR_TOXIC" })),
            ];
        }
        let response = json!({ "generation_id": self.id, "text": warning, "finish_reason": "ERROR_TOXIC" });
        vec![
            Message::json(json!({ "is_finished": false, "event_type": "text-generation", "text": warning })),
            Message::json(json!({
                "is_finished": true, "event_type": "stream-end", "finish_reason": "ERROR_TOXIC", "response": response,
            })),
        ]
    }
}
