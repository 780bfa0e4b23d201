//! Transcriptions. They know no reason to stop; the last event repeats the whole text.

use serde_json::{Value, json};

use super::message::{Message, Stream};

/// Longest text that the last event repeats; of a longer one it has the beginning.
const TEXT_BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
struct Transcription {
    text: String,
}

pub(super) fn opens(_: Option<&str>, message: &Value) -> Option<Box<dyn Stream>> {
    let kind = message.get("type")?.as_str()?;
    kind.starts_with("transcript.text.").then(|| Box::new(Transcription::default()) as _)
}

impl Stream for Transcription {
    fn note(&mut self, _: Option<&str>, message: &Value) {
        if let Some(delta) = message.get("delta").and_then(Value::as_str) {
            let room = TEXT_BYTES_MAX.saturating_sub(self.text.len());
            self.text.push_str(delta.get(..delta.floor_char_boundary(room)).unwrap_or_default());
        }
    }

    fn end(&self, warning: &str) -> Vec<Message> {
        let event =
            |kind: &'static str, key: &str, text: &str| Message::event(kind, json!({ "type": kind, key: text }));
        vec![
            event("transcript.text.delta", "delta", warning),
            event("transcript.text.done", "text", &format!("{}{warning}", self.text)),
        ]
    }
}
