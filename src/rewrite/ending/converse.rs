//! Bedrock's converse stream.

use serde_json::{Value, json};

use super::message::{Message, Stream};

#[derive(Default)]
struct Converse {
    /// The block that has begun and not ended, and whether it is text.
    open: Option<(u64, bool)>,
    next: u64,
}

pub(super) fn opens(event: Option<&str>, _: &Value) -> Option<Box<dyn Stream>> {
    (event? == "messageStart").then(|| Box::new(Converse::default()) as _)
}

impl Stream for Converse {
    fn note(&mut self, event: Option<&str>, message: &Value) {
        let index = message.get("contentBlockIndex").and_then(Value::as_u64).unwrap_or(0);
        match event {
            Some("contentBlockStart") => self.open = Some((index, false)),
            Some("contentBlockDelta") => self.open = Some((index, message.pointer("/delta/text").is_some())),
            Some("contentBlockStop") => self.open = None,
            _ => return,
        }
        self.next = self.next.max(index.saturating_add(1));
    }

    fn end(&self, warning: &str) -> Vec<Message> {
        let stop = |index: u64| Message::event("contentBlockStop", json!({ "contentBlockIndex": index }));
        let mut end = Vec::new();
        let index = match self.open {
            Some((index, true)) => index,
            other => {
                end.extend(other.map(|(index, _)| stop(index)));
                self.next
            }
        };
        let delta = json!({ "contentBlockIndex": index, "delta": { "text": warning } });
        end.push(Message::event("contentBlockDelta", delta));
        end.push(stop(index));
        end.push(Message::event("messageStop", json!({ "stopReason": "content_filtered" })));
        end
    }
}
