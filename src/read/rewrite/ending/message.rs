//! What the dialects' endings are made of.

use serde_json::Value;

/// One message of an ending.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    /// The event's name, in framings that give events one beside their content.
    pub(crate) event: Option<&'static str>,
    /// What it says.
    pub(crate) data: Data,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    /// A JSON document.
    Json(Value),
    /// Words of the framing.
    Bare(&'static str),
}

impl Message {
    pub(super) fn json(data: Value) -> Self {
        Self { event: None, data: Data::Json(data) }
    }

    pub(super) fn event(event: &'static str, data: Value) -> Self {
        Self { event: Some(event), data: Data::Json(data) }
    }
}

/// What a stream of one dialect has said so far, as far as its end depends on it.
pub(super) trait Stream {
    /// Follows a message the client gets. `event` is its name where the framing gives one.
    fn note(&mut self, event: Option<&str>, message: &Value);

    /// The messages that end the stream here, with a text for the reader.
    fn end(&self, warning: &str) -> Vec<Message>;

    /// The same for a client that asks again unless it is told that the answer has failed for good. Where the dialect's clients
    /// take its end for final there is no other.
    fn fail(&self, warning: &str) -> Vec<Message> {
        self.end(warning)
    }
}

/// A name or a number of the stream that its end repeats. Longer ones than any provider sends are not kept.
pub(super) fn keep(slot: &mut Value, value: Option<&Value>) {
    if let Some(value) = value.filter(|value| value.is_number() || value.as_str().is_some_and(|text| text.len() <= 256))
    {
        *slot = value.clone();
    }
}
