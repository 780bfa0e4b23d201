//! Promise: where it is asked for, an answer with a critical finding is not read to its end: a stream ends as its dialect ends
//! streams, a document becomes an error, and the record still has all of it. Where it is not asked for, nothing is held, changed or
//! asked of the provider.

mod arrays;
pub(crate) mod codings;
mod delays;
mod documents;
mod leaks;
mod rarer;
mod redacted;
mod streams;

use serde_json::{Value, json};

use crate::dialects::event;
use crate::support::{Call, Driver, Peer, Setup, Upstream, chat_body, messages_body, with_stream};

/// What a detector calls a private key; put together here, so that no scanner of code takes it for one.
pub(crate) fn private_key() -> String {
    format!("-----BEGIN {} PRIVATE KEY-----\n{}", "EC", "FQv5VDX/LZWxjQXtdETYTgyUOuwGrZV4nV9YpH436qY5WrYc0gGj0v")
}

/// Stops streams at critical findings; a look every 10 tokens.
pub(super) const STOPPING: &str = "output_safety: {enabled: true}\nstreaming_analysis: {enabled: true, output_enabled: true, \
     early_stop_on_critical: true, token_interval: 10}";
/// The same, with hold-back.
pub(super) const HOLDING: &str = "output_safety: {enabled: true}\nstreaming_analysis: {enabled: true, output_enabled: true, \
     early_stop_on_critical: true, token_interval: 10, hold_back: true}";
/// Answers are blocked as well.
pub(super) const BLOCKING: &str = "output_safety: {enabled: true, block_on_critical: true}";

pub(super) const SSE: &str = "Content-Type: text/event-stream";
const AMAZON: &str = "application/vnd.amazon.eventstream";

pub(super) fn setup(driver: Driver, upstream: &Upstream, settings: &str) -> Setup {
    Setup::new(driver).upstream(upstream.url()).with(settings)
}

/// A dialect of streams: how its call looks, and how its answers say a word.
#[derive(Clone, Copy)]
pub(super) struct Dialect {
    pub(super) path: &'static str,
    pub(super) content_type: &'static str,
    begin: fn() -> Vec<Value>,
    word: fn(&str) -> Value,
    end: fn() -> Vec<Value>,
    /// What stands at the end of an answer that was stopped.
    pub(super) stopped: &'static str,
}

pub(super) const DIALECTS: [Dialect; 8] = [
    Dialect {
        path: "/v1/chat/completions",
        content_type: "text/event-stream",
        begin: Vec::new,
        word: |text| {
            json!({"id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "m",
            "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
        },
        end: || vec![json!({"id": "c-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})],
        stopped: "\"finish_reason\":\"content_filter\"",
    },
    Dialect {
        path: "/v1/messages",
        content_type: "text/event-stream",
        begin: || {
            vec![
                json!({"type": "message_start", "message": {"id": "m-1", "type": "message", "role": "assistant", "model": "m",
                "content": [], "usage": {"input_tokens": 3, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            ]
        },
        word: |text| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        end: || {
            vec![
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}),
                json!({"type": "message_stop"}),
            ]
        },
        stopped: "\"stop_reason\":\"refusal\"",
    },
    Dialect {
        path: "/v1/responses",
        content_type: "text/event-stream",
        begin: || {
            vec![
                json!({"type": "response.created", "sequence_number": 0, "response": {"id": "r-1", "object": "response",
            "created_at": 7, "model": "m", "status": "in_progress", "output": []}}),
            ]
        },
        word: |text| {
            json!({"type": "response.output_text.delta", "sequence_number": 1, "item_id": "i-1", "output_index": 0,
            "content_index": 0, "delta": text})
        },
        end: || {
            vec![
                json!({"type": "response.completed", "response": {"id": "r-1", "object": "response", "status": "completed"}}),
            ]
        },
        stopped: "\"reason\":\"content_filter\"",
    },
    Dialect {
        path: "/v1beta/models/m:streamGenerateContent?alt=sse",
        content_type: "text/event-stream",
        begin: Vec::new,
        word: |text| json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}]}),
        end: || vec![json!({"candidates": [{"index": 0, "content": {"parts": []}, "finishReason": "STOP"}]})],
        stopped: "\"finishReason\":\"SAFETY\"",
    },
    Dialect {
        path: "/api/chat",
        content_type: "application/x-ndjson",
        begin: Vec::new,
        word: |text| json!({"model": "m", "message": {"role": "assistant", "content": text}, "done": false}),
        end: || {
            vec![
                json!({"model": "m", "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop"}),
            ]
        },
        stopped: "\"done\":true",
    },
    Dialect {
        path: "/v1/completions",
        content_type: "text/event-stream",
        begin: Vec::new,
        word: |text| {
            json!({"id": "c-1", "object": "text_completion", "created": 7, "model": "m",
            "choices": [{"index": 0, "text": text, "logprobs": null, "finish_reason": null}]})
        },
        end: || vec![json!({"id": "c-1", "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})],
        stopped: "\"finish_reason\":\"content_filter\"",
    },
    Dialect {
        path: "/generate_stream",
        content_type: "text/event-stream",
        begin: Vec::new,
        word: |text| {
            json!({"index": 1, "token": {"id": 7, "text": text, "logprob": -0.5, "special": false},
            "generated_text": null, "details": null})
        },
        end: || {
            vec![json!({"index": 2, "token": {"id": 2, "text": "</s>", "logprob": 0.0, "special": true},
                "generated_text": "all of it", "details": {"finish_reason": "eos_token", "generated_tokens": 2}})]
        },
        stopped: "\"error_type\":\"incomplete_generation\"",
    },
    Dialect {
        path: "/model/m/converse-stream",
        content_type: AMAZON,
        begin: || vec![json!({"messageStart": {"role": "assistant"}})],
        word: |text| json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": text}}}),
        end: || {
            vec![
                json!({"contentBlockStop": {"contentBlockIndex": 0}}),
                json!({"messageStop": {"stopReason": "end_turn"}}),
                json!({"metadata": {"usage": {"inputTokens": 3, "outputTokens": 9, "totalTokens": 12}}}),
            ]
        },
        stopped: "\"stopReason\":\"content_filtered\"",
    },
];

impl Dialect {
    fn frame(&self, message: &Value) -> Vec<u8> {
        if self.content_type.ends_with("ndjson") {
            return format!("{message}\n").into_bytes();
        }
        if self.content_type == AMAZON {
            let (name, payload) = message.as_object().and_then(|members| members.iter().next()).unwrap();
            return event(name, payload);
        }
        let name = message["type"].as_str().map(|name| format!("event: {name}\n"));
        format!("{}data: {message}\n\n", name.unwrap_or_default()).into_bytes()
    }

    /// The frames of an answer that says these words.
    pub(super) fn frames<T: AsRef<str>>(&self, words: &[T]) -> Vec<Vec<u8>> {
        let says = words.iter().map(|word| (self.word)(word.as_ref()));
        let all = (self.begin)().into_iter().chain(says).chain((self.end)());
        let mut frames: Vec<Vec<u8>> = all.map(|message| self.frame(&message)).collect();
        if self.path.ends_with("/completions") {
            frames.push(b"data: [DONE]\n\n".to_vec());
        }
        frames
    }

    /// What its client gets of an answer that says these words, as text.
    pub(super) fn said<T: AsRef<str>>(&self, words: &[T]) -> String {
        String::from_utf8_lossy(&self.frames(words).concat()).into_owned()
    }

    pub(super) fn call(&self) -> Call {
        let body = match self.path {
            "/v1/messages" => messages_body("Tell me a long story."),
            "/v1/completions" => json!({"model": "m", "prompt": "Tell me a long story."}),
            "/generate_stream" => json!({"inputs": "Tell me a long story."}),
            "/model/m/converse-stream" => {
                json!({"messages": [{"role": "user", "content": [{"text": "Tell me a long story."}]}]})
            }
            _ => chat_body("Tell me a long story."),
        };
        Call::post(self.path, with_stream(body).to_string())
    }

    /// A provider that says these words to every call, and then waits for the gateway to end the stream or ask again.
    pub(super) fn provider<T: AsRef<str>>(&self, words: &[T]) -> Upstream {
        let head = format!("Content-Type: {}", self.content_type);
        let frames = self.frames(words);
        Upstream::play(move |peer| {
            while peer.request().is_some() {
                say_chunked(peer, &head, frames.iter().map(Vec::as_slice));
            }
        })
    }
}

/// An answer in chunks.
pub(super) fn say_chunked<'a>(peer: &mut Peer, fields: &str, chunks: impl Iterator<Item = &'a [u8]>) {
    peer.say(format!("HTTP/1.1 200 OK\r\n{fields}\r\nTransfer-Encoding: chunked\r\n\r\n"));
    for data in chunks.filter(|data| !data.is_empty()) {
        peer.say([format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat());
    }
    peer.say("0\r\n\r\n");
}

/// `count` words, numbered.
pub(super) fn words(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{name}{number} ")).collect()
}

/// Whether a span has a critical finding of this type.
pub(super) fn has_critical(span: &Value, finding_type: &str) -> bool {
    let fits = |found: &Value| found["finding_type"] == finding_type && found["severity"] == "Critical";
    span["security_findings"].as_array().is_some_and(|all| all.iter().any(fits))
}
