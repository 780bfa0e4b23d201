//! Messages.

use serde_json::{Value, json};

use super::message::{Message, Stream};

#[derive(Default)]
struct Messages {
    /// The block that has begun and not ended, and whether it is text.
    open: Option<(u64, bool)>,
    next: u64,
    output_tokens: u64,
}

pub(super) fn opens(_: Option<&str>, message: &Value) -> Option<Box<dyn Stream>> {
    (message.get("type")? == "message_start").then(|| Box::new(Messages::default()) as _)
}

impl Stream for Messages {
    fn note(&mut self, _: Option<&str>, message: &Value) {
        let index = message.get("index").and_then(Value::as_u64).unwrap_or(0);
        let usage = message.get("usage").or_else(|| message.pointer("/message/usage"));
        if let Some(tokens) = usage.and_then(|usage| usage.get("output_tokens")).and_then(Value::as_u64) {
            self.output_tokens = tokens;
        }
        match message.get("type").and_then(Value::as_str) {
            Some("content_block_start") => {
                let is_text = message.pointer("/content_block/type").is_some_and(|kind| kind == "text");
                self.open = Some((index, is_text));
                self.next = self.next.max(index.saturating_add(1));
            }
            Some("content_block_stop") => self.open = None,
            _ => {}
        }
    }

    fn end(&self, warning: &str) -> Vec<Message> {
        let event = |kind: &'static str, mut data: Value| {
            if let Some(data) = data.as_object_mut() {
                data.insert("type".to_owned(), json!(kind));
            }
            Message::event(kind, data)
        };
        let mut end = Vec::new();
        let index = match self.open {
            Some((index, true)) => index,
            other => {
                end.extend(other.map(|(index, _)| event("content_block_stop", json!({ "index": index }))));
                let block = json!({ "index": self.next, "content_block": { "type": "text", "text": "" } });
                end.push(event("content_block_start", block));
                self.next
            }
        };
        let delta = json!({ "index": index, "delta": { "type": "text_delta", "text": warning } });
        end.push(event("content_block_delta", delta));
        end.push(event("content_block_stop", json!({ "index": index })));
        let refusal = json!({
            "delta": { "stop_reason": "refusal", "stop_sequence": null }, "usage": { "output_tokens": self.output_tokens },
        });
        end.push(event("message_delta", refusal));
        end.push(event("message_stop", json!({})));
        end
    }
}
