//! Responses.

use serde_json::{Value, json};

use super::message::{Message, Stream, keep};

#[derive(Default)]
struct Responses {
    id: Value,
    model: Value,
    created_at: Value,
    sequence: u64,
    /// Messages with words; the provider counts tokens only at the end, which never comes.
    said: u64,
    /// The item, its position and that of its part, of the text that has begun and not ended.
    open: Option<(Value, Value, Value)>,
}

pub(super) fn opens(_: Option<&str>, message: &Value) -> Option<Box<dyn Stream>> {
    let kind = message.get("type")?.as_str()?;
    (kind.starts_with("response.") && message.get("response").is_some()).then(|| Box::new(Responses::default()) as _)
}

impl Stream for Responses {
    fn note(&mut self, _: Option<&str>, message: &Value) {
        if let Some(response) = message.get("response") {
            keep(&mut self.id, response.get("id"));
            keep(&mut self.model, response.get("model"));
            keep(&mut self.created_at, response.get("created_at"));
        }
        if let Some(sequence) = message.get("sequence_number").and_then(Value::as_u64) {
            self.sequence = sequence.saturating_add(1);
        }
        match message.get("type").and_then(Value::as_str) {
            Some("response.output_text.delta") => {
                let mut open = (Value::Null, Value::Null, Value::Null);
                keep(&mut open.0, message.get("item_id"));
                keep(&mut open.1, message.get("output_index"));
                keep(&mut open.2, message.get("content_index"));
                self.open = Some(open);
                self.said = self.said.saturating_add(1);
            }
            Some("response.output_text.done" | "response.content_part.done" | "response.output_item.done") => {
                self.open = None;
            }
            _ => {}
        }
    }

    fn end(&self, warning: &str) -> Vec<Message> {
        let details = json!({ "reason": "content_filter" });
        self.close(
            warning,
            "response.incomplete",
            json!({ "status": "incomplete", "incomplete_details": details, "error": null }),
        )
    }

    fn fail(&self, warning: &str) -> Vec<Message> {
        // Of the codes that the interface has, this one says that asking again is of no use.
        let error = json!({ "code": "invalid_prompt", "message": warning });
        self.close(
            warning,
            "response.failed",
            json!({ "status": "failed", "incomplete_details": null, "error": error }),
        )
    }
}

impl Responses {
    /// The warning where a text is open, and the last event: the response with how it has ended.
    fn close(&self, warning: &str, kind: &'static str, ended: Value) -> Vec<Message> {
        let mut end = Vec::new();
        let mut sequence = self.sequence;
        if let Some((item, output, content)) = &self.open {
            let kind = "response.output_text.delta";
            let delta = json!({
                "type": kind, "sequence_number": sequence, "item_id": item, "output_index": output,
                "content_index": content, "delta": warning, "logprobs": [],
            });
            end.push(Message::event(kind, delta));
            sequence = sequence.saturating_add(1);
        }
        // Clients that check what they read take no end without it.
        let usage = json!({
            "input_tokens": 0, "input_tokens_details": { "cached_tokens": 0 },
            "output_tokens": self.said, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": self.said,
        });
        let mut response = json!({
            "id": self.id, "object": "response", "created_at": self.created_at, "model": self.model, "output": [],
            "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "usage": usage,
        });
        if let (Some(response), Value::Object(ended)) = (response.as_object_mut(), ended) {
            response.extend(ended);
        }
        end.push(Message::event(kind, json!({ "type": kind, "sequence_number": sequence, "response": response })));
        end
    }
}
