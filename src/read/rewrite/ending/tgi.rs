//! Text generation inference. It knows no reason to stop that would say why, and has an event for streams that fail.

use serde_json::{Value, json};

use super::message::{Message, Stream};

#[derive(Default)]
struct Tgi;

pub(super) fn opens(_: Option<&str>, message: &Value) -> Option<Box<dyn Stream>> {
    let token = message.get("token").filter(|token| token.is_object());
    (token.is_some() && message.get("generated_text").is_some()).then(|| Box::new(Tgi) as _)
}

impl Stream for Tgi {
    fn note(&mut self, _: Option<&str>, _: &Value) {}

    fn end(&self, warning: &str) -> Vec<Message> {
        vec![Message::json(json!({ "error": warning, "error_type": "incomplete_generation" }))]
    }
}
