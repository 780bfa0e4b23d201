//! SGLang's own interface. Each message repeats the text so far, unless its server brings pieces only; a call that is given up ends
//! with the reason `abort`.

use serde_json::{Value, json};

use super::message::{Data, Message, Stream, keep};

#[derive(Default)]
struct Native {
    id: Value,
    prompt_tokens: Value,
    completion_tokens: Value,
    /// The last text, which was part of one frame: the frames' bound is its own.
    text: String,
    /// Each message has its own piece.
    in_pieces: bool,
}

pub(super) fn opens(_: Option<&str>, message: &Value) -> Option<Box<dyn Stream>> {
    let has_text = message.get("text").is_some_and(Value::is_string);
    let is_native = has_text && message.get("meta_info").is_some_and(Value::is_object);
    is_native.then(|| Box::new(Native::default()) as _)
}

impl Stream for Native {
    fn note(&mut self, _: Option<&str>, message: &Value) {
        if let Some(about) = message.get("meta_info") {
            keep(&mut self.id, about.get("id"));
            keep(&mut self.prompt_tokens, about.get("prompt_tokens"));
            keep(&mut self.completion_tokens, about.get("completion_tokens"));
        }
        if let Some(text) = message.get("text").and_then(Value::as_str) {
            self.in_pieces |= !text.starts_with(&self.text);
            text.clone_into(&mut self.text);
        }
    }

    fn end(&self, warning: &str) -> Vec<Message> {
        let text = if self.in_pieces { warning.to_owned() } else { format!("{}{warning}", self.text) };
        let reason = json!({ "type": "abort", "message": warning });
        let last = json!({
            "text": text,
            "meta_info": {
                "id": self.id, "finish_reason": reason, "prompt_tokens": self.prompt_tokens,
                "completion_tokens": self.completion_tokens,
            },
        });
        vec![Message::json(last), Message { event: None, data: Data::Bare("[DONE]") }]
    }
}
