//! Gemini.

use serde_json::{Value, json};

use super::message::{Message, Stream, keep};

#[derive(Default)]
struct Gemini {
    model: Value,
    id: Value,
}

pub(super) fn opens(_: Option<&str>, message: &Value) -> Option<Box<dyn Stream>> {
    message.get("candidates").filter(|candidates| candidates.is_array()).map(|_| Box::new(Gemini::default()) as _)
}

impl Stream for Gemini {
    fn note(&mut self, _: Option<&str>, message: &Value) {
        keep(&mut self.model, message.get("modelVersion"));
        keep(&mut self.id, message.get("responseId"));
    }

    fn end(&self, warning: &str) -> Vec<Message> {
        vec![Message::json(json!({
            "candidates": [{
                "content": { "parts": [{ "text": warning }], "role": "model" }, "finishReason": "SAFETY", "index": 0,
            }],
            "modelVersion": self.model, "responseId": self.id,
        }))]
    }
}
