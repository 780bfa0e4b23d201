//! Chat completions, and completions of a text.

use serde_json::{Value, json};

use super::message::{Data, Message, Stream, keep};

/// Choices that are told apart; one request asks for fewer.
const CHOICES_MAX: usize = 128;

#[derive(Default)]
struct Chat {
    id: Value,
    model: Value,
    created: Value,
    /// Its choices hold bare text, and not deltas.
    text: bool,
    /// Index of each choice, and whether it goes on.
    choices: Vec<(u64, bool)>,
}

pub(super) fn opens(_: Option<&str>, message: &Value) -> Option<Box<dyn Stream>> {
    message.get("choices").filter(|choices| choices.is_array()).map(|_| Box::new(Chat::default()) as _)
}

impl Stream for Chat {
    fn note(&mut self, _: Option<&str>, message: &Value) {
        keep(&mut self.id, message.get("id"));
        keep(&mut self.model, message.get("model"));
        keep(&mut self.created, message.get("created"));
        for choice in message.get("choices").and_then(Value::as_array).into_iter().flatten() {
            self.text |= choice.get("text").is_some();
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
            let goes_on = choice.get("finish_reason").is_none_or(Value::is_null);
            if let Some(known) = self.choices.iter_mut().find(|(known, _)| *known == index) {
                known.1 = goes_on;
            } else if self.choices.len() < CHOICES_MAX {
                self.choices.push((index, goes_on));
            }
        }
    }

    fn end(&self, warning: &str) -> Vec<Message> {
        let chunk = |index: u64, words: Option<&str>, reason: Value| {
            let (object, choice) = if self.text {
                let text = words.unwrap_or_default();
                ("text_completion", json!({ "index": index, "text": text, "logprobs": null, "finish_reason": reason }))
            } else {
                let delta = words.map_or_else(|| json!({}), |words| json!({ "content": words }));
                ("chat.completion.chunk", json!({ "index": index, "delta": delta, "finish_reason": reason }))
            };
            Message::json(json!({
                "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": [choice],
            }))
        };
        let open = self.choices.iter().filter(|(_, goes_on)| *goes_on).map(|(index, _)| *index);
        let mut end: Vec<Message> = open
            .flat_map(|index| [chunk(index, Some(warning), Value::Null), chunk(index, None, json!("content_filter"))])
            .collect();
        end.push(Message { event: None, data: Data::Bare("[DONE]") });
        end
    }
}
