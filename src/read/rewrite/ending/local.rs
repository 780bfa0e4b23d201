//! The local server's chats and completions.

use serde_json::{Value, json};

use super::message::{Message, Stream, keep};

#[derive(Default)]
struct Local {
    model: Value,
    created_at: Value,
    /// Its lines hold messages, and not bare text.
    chat: bool,
}

pub(super) fn opens(_: Option<&str>, message: &Value) -> Option<Box<dyn Stream>> {
    message.get("done").filter(|done| done.is_boolean()).map(|_| Box::new(Local::default()) as _)
}

impl Stream for Local {
    fn note(&mut self, _: Option<&str>, message: &Value) {
        keep(&mut self.model, message.get("model"));
        keep(&mut self.created_at, message.get("created_at"));
        self.chat |= message.get("message").is_some();
    }

    fn end(&self, warning: &str) -> Vec<Message> {
        let mut last = json!({
            "model": self.model, "created_at": self.created_at, "done": true, "done_reason": "content_filter",
        });
        let (key, said) = match self.chat {
            true => ("message", json!({ "role": "assistant", "content": warning })),
            false => ("response", json!(warning)),
        };
        if let Some(last) = last.as_object_mut() {
            last.insert(key.to_owned(), said);
        }
        vec![Message::json(last)]
    }
}
