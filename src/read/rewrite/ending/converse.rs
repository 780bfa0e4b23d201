//! Bedrock's converse stream, and that of the models that speak it themselves when they are invoked: there an event is the value of a
//! key of its name.

use serde_json::{Value, json};

use super::message::{Message, Stream};

#[derive(Default)]
struct Converse {
    /// Its events stand inside of documents.
    inside: bool,
    /// The block that has begun and not ended, and whether it is text.
    open: Option<(u64, bool)>,
    next: u64,
}

const START: &str = "messageStart";
/// Events that begin, continue and end blocks.
const BLOCKS: [&str; 3] = ["contentBlockStart", "contentBlockDelta", "contentBlockStop"];

pub(super) fn opens(event: Option<&str>, message: &Value) -> Option<Box<dyn Stream>> {
    let inside = message.get(START).is_some_and(Value::is_object);
    (event == Some(START) || inside).then(|| Box::new(Converse { inside, ..Converse::default() }) as _)
}

impl Stream for Converse {
    fn note(&mut self, event: Option<&str>, message: &Value) {
        let inner = BLOCKS.into_iter().filter(|_| self.inside).find_map(|name| Some((name, message.get(name)?)));
        let (event, message) = inner.map_or((event, message), |(name, inner)| (Some(name), inner));
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
        let say = |event: &'static str, payload: Value| match self.inside {
            true => Message::json(json!({ event: payload })),
            false => Message::event(event, payload),
        };
        let stop = |index: u64| say("contentBlockStop", json!({ "contentBlockIndex": index }));
        let mut end = Vec::new();
        let index = match self.open {
            Some((index, true)) => index,
            other => {
                end.extend(other.map(|(index, _)| stop(index)));
                self.next
            }
        };
        end.push(say("contentBlockDelta", json!({ "contentBlockIndex": index, "delta": { "text": warning } })));
        end.push(stop(index));
        end.push(say("messageStop", json!({ "stopReason": "content_filtered" })));
        end
    }
}
