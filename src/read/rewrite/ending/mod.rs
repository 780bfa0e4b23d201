//! How an answer that is stopped in the middle ends legally: what the client has seen of it is followed, and its own dialect
//! has a way to say that the rest was withheld.
//!
//! | stream | the end |
//! |---|---|
//! | chat completions, completions | the warning as a chunk, `finish_reason: content_filter`, `[DONE]` |
//! | messages | the warning as a text delta, `content_block_stop`, `message_delta` with `refusal`, `message_stop` |
//! | responses | the warning as a text delta where a text is open, `response.incomplete`, or `response.failed` (below) |
//! | Gemini | the warning as a part, `finishReason: SAFETY`; where the stream is an array, its end |
//! | local server | a last line with the warning, `done: true` |
//! | text generation inference | the warning as its event for a stream that fails |
//! | Cohere | the warning as a delta, `message-end` with `ERROR`; in the first version `ERROR_TOXIC` |
//! | SGLang | the text so far and the warning, `finish_reason` of type `abort`, `[DONE]` |
//! | Titan; Llama, Mistral | a last piece with the warning and `CONTENT_FILTERED`; `stop`, for they know nothing better |
//! | transcriptions | the warning as a delta, `transcript.text.done` |
//! | Bedrock | the events of its converse stream, or the model's own inside of `chunk` |
//!
//! A client that takes `response.incomplete` for a broken connection gets `response.failed` with a code that it takes for final.
//!
//! A dialect is one file: what it must know of a stream, and its end. Pure: JSON in, JSON out; knows no framing.

mod bare;
mod chat;
mod cohere;
mod converse;
mod gemini;
mod local;
mod message;
mod messages;
mod responses;
mod sglang;
mod tgi;
mod transcription;

use serde_json::Value;

use message::Stream;
pub(super) use message::{Data, Message};

/// Follows one stream.
#[derive(Default)]
pub(super) struct Ending {
    stream: Option<Box<dyn Stream>>,
    /// The client would ask again after an ordinary end.
    client_retries: bool,
}

/// Tells a dialect from the first message that shows it.
type Opens = fn(Option<&str>, &Value) -> Option<Box<dyn Stream>>;

/// All dialects; what they are told by does not collide.
const DIALECTS: [Opens; 11] = [
    chat::opens,
    messages::opens,
    responses::opens,
    gemini::opens,
    local::opens,
    tgi::opens,
    converse::opens,
    cohere::opens,
    sglang::opens,
    bare::opens,
    transcription::opens,
];

impl Ending {
    /// Follows nothing yet.
    pub(super) fn new(client_retries: bool) -> Self {
        Self { stream: None, client_retries }
    }

    /// Follows a message the client gets.
    pub(super) fn note(&mut self, event: Option<&str>, message: &Value) {
        if self.stream.is_none() {
            self.stream = DIALECTS.iter().find_map(|opens| opens(event, message));
        }
        if let Some(stream) = &mut self.stream {
            stream.note(event, message);
        }
    }

    /// The messages that end the stream here; `None` where nobody knows how.
    pub(super) fn end(&self, warning: &str) -> Option<Vec<Message>> {
        let stream = self.stream.as_deref()?;
        Some(if self.client_retries { stream.fail(warning) } else { stream.end(warning) })
    }
}

#[cfg(test)]
mod tests;
