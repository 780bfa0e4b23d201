//! Streams that fewer clients speak: stopped, each ends as its own provider could have ended it; unharmed, each is its provider's own.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::support::{Client, Gateway, on_both_drivers_in_full};

/// How the messages of a stream are framed.
#[derive(Clone, Copy)]
enum Framing {
    Events,
    Lines,
    /// Documents inside of the `chunk` events of an Amazon stream.
    Chunks,
}

/// A stream: what its messages are for the words said so far and the next one, and what is said before and behind them.
struct Shape {
    path: &'static str,
    framing: Framing,
    begin: fn() -> Vec<Value>,
    word: fn(&str, &str) -> Value,
    end: fn(&str) -> Vec<Value>,
    done: bool,
    /// The last messages of one that was stopped after `said`, with `warning`.
    stopped: fn(&str, &str) -> Vec<Value>,
}

const SHAPES: [Shape; 9] = [
    Shape {
        path: "/v2/chat",
        framing: Framing::Events,
        begin: || {
            let block = json!({"message": {"content": {"type": "text", "text": ""}}});
            vec![
                json!({"type": "message-start", "id": "c-1", "delta": {"message": {"role": "assistant"}}}),
                json!({"type": "content-start", "index": 0, "delta": block}),
            ]
        },
        word: |_, word| json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": word}}}}),
        end: |_| {
            let usage = json!({"tokens": {"input_tokens": 3, "output_tokens": 9}});
            vec![
                json!({"type": "content-end", "index": 0}),
                json!({"type": "message-end", "id": "c-1", "delta": {"finish_reason": "COMPLETE", "usage": usage}}),
            ]
        },
        done: false,
        stopped: |_, warning| {
            vec![
                json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": warning}}}}),
                json!({"type": "content-end", "index": 0}),
                json!({"type": "message-end", "id": "c-1", "delta": {"finish_reason": "ERROR", "error": warning}}),
            ]
        },
    },
    Shape {
        path: "/generate",
        framing: Framing::Events,
        begin: Vec::new,
        // In pieces, as with `--incremental-streaming-output`.
        word: |_, word| {
            let about = json!({"id": "g", "finish_reason": null, "prompt_tokens": 3, "completion_tokens": 9});
            json!({"text": word, "output_ids": [7], "meta_info": about})
        },
        end: |_| {
            let reason = json!({"type": "stop", "matched": 2});
            let about = json!({"id": "g", "finish_reason": reason, "prompt_tokens": 3, "completion_tokens": 9});
            vec![json!({"text": "", "output_ids": [7], "meta_info": about})]
        },
        done: true,
        stopped: |_, warning| {
            let reason = json!({"type": "abort", "message": warning});
            let about = json!({"id": "g", "finish_reason": reason, "prompt_tokens": 3, "completion_tokens": 9});
            vec![json!({"text": warning, "meta_info": about})]
        },
    },
    Shape {
        path: "/api/generate",
        framing: Framing::Lines,
        begin: Vec::new,
        word: |_, word| json!({"model": "m", "created_at": "t", "response": word, "done": false}),
        end: |_| vec![json!({"model": "m", "created_at": "t", "response": "", "done": true, "done_reason": "stop"})],
        done: false,
        stopped: |_, warning| {
            vec![
                json!({"model": "m", "created_at": "t", "response": warning, "done": true, "done_reason": "content_filter"}),
            ]
        },
    },
    Shape {
        path: "/v1/audio/transcriptions",
        framing: Framing::Events,
        begin: Vec::new,
        word: |_, word| json!({"type": "transcript.text.delta", "delta": word}),
        end: |said| vec![json!({"type": "transcript.text.done", "text": said})],
        done: false,
        stopped: |said, warning| {
            vec![
                json!({"type": "transcript.text.delta", "delta": warning}),
                json!({"type": "transcript.text.done", "text": format!("{said}{warning}")}),
            ]
        },
    },
    Shape {
        path: "/model/amazon.titan-text-express-v1/invoke-with-response-stream",
        framing: Framing::Chunks,
        begin: Vec::new,
        word: |_, word| json!({"outputText": word, "index": 0, "totalOutputTextTokenCount": null, "completionReason": null, "inputTextTokenCount": 3}),
        end: |_| {
            vec![
                json!({"outputText": "", "index": 0, "totalOutputTextTokenCount": 9, "completionReason": "FINISH", "inputTextTokenCount": null}),
            ]
        },
        done: false,
        stopped: |_, warning| {
            vec![
                json!({"outputText": warning, "index": 0, "totalOutputTextTokenCount": null, "completionReason": "CONTENT_FILTERED", "inputTextTokenCount": 3}),
            ]
        },
    },
    Shape {
        path: "/model/meta.llama3-8b-instruct-v1/invoke-with-response-stream",
        framing: Framing::Chunks,
        begin: Vec::new,
        word: |_, word| json!({"generation": word, "prompt_token_count": null, "generation_token_count": 1, "stop_reason": null}),
        end: |_| {
            vec![
                json!({"generation": "", "prompt_token_count": null, "generation_token_count": 9, "stop_reason": "stop"}),
            ]
        },
        done: false,
        stopped: |_, warning| {
            vec![
                json!({"generation": warning, "prompt_token_count": null, "generation_token_count": 1, "stop_reason": "stop"}),
            ]
        },
    },
    Shape {
        path: "/model/mistral.mistral-7b-instruct-v0/invoke-with-response-stream",
        framing: Framing::Chunks,
        begin: Vec::new,
        word: |_, word| json!({"outputs": [{"text": word, "stop_reason": null}]}),
        end: |_| vec![json!({"outputs": [{"text": "", "stop_reason": "stop"}]})],
        done: false,
        stopped: |_, warning| vec![json!({"outputs": [{"text": warning, "stop_reason": "stop"}]})],
    },
    Shape {
        path: "/model/cohere.command-r-v1/invoke-with-response-stream",
        framing: Framing::Chunks,
        begin: || vec![json!({"event_type": "stream-start", "generation_id": "g", "is_finished": false})],
        word: |_, word| json!({"event_type": "text-generation", "text": word, "is_finished": false}),
        end: |said| {
            let response = json!({"generation_id": "g", "text": said, "finish_reason": "COMPLETE"});
            vec![
                json!({"event_type": "stream-end", "finish_reason": "COMPLETE", "is_finished": true, "response": response}),
            ]
        },
        done: false,
        stopped: |_, warning| {
            let response = json!({"generation_id": "g", "text": warning, "finish_reason": "ERROR_TOXIC"});
            vec![
                json!({"event_type": "text-generation", "text": warning, "is_finished": false}),
                json!({"event_type": "stream-end", "finish_reason": "ERROR_TOXIC", "is_finished": true, "response": response}),
            ]
        },
    },
    Shape {
        path: "/model/amazon.nova-lite-v1/invoke-with-response-stream",
        framing: Framing::Chunks,
        begin: || vec![json!({"messageStart": {"role": "assistant"}})],
        word: |_, word| json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": word}}}),
        end: |_| {
            vec![
                json!({"contentBlockStop": {"contentBlockIndex": 0}}),
                json!({"messageStop": {"stopReason": "end_turn"}}),
            ]
        },
        done: false,
        stopped: |_, warning| {
            vec![
                json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": warning}}}),
                json!({"contentBlockStop": {"contentBlockIndex": 0}}),
                json!({"messageStop": {"stopReason": "content_filtered"}}),
            ]
        },
    },
];

impl Shape {
    fn frame(&self, message: &Value) -> Vec<u8> {
        match self.framing {
            Framing::Events => {
                let name = message["type"].as_str().map(|name| format!("event: {name}\n")).unwrap_or_default();
                format!("{name}data: {message}\n\n").into_bytes()
            }
            Framing::Lines => format!("{message}\n").into_bytes(),
            Framing::Chunks => event("chunk", &json!({ "bytes": BASE64_STANDARD.encode(message.to_string()) })),
        }
    }

    fn messages(&self, words: &[String]) -> Vec<Value> {
        let mut said = String::new();
        let mut messages = (self.begin)();
        for word in words {
            messages.push((self.word)(&said, word));
            said.push_str(word);
        }
        messages.extend((self.end)(&said));
        messages
    }

    fn frames(&self, words: &[String]) -> Vec<Vec<u8>> {
        let mut frames: Vec<Vec<u8>> = self.messages(words).iter().map(|message| self.frame(message)).collect();
        frames.extend(self.done.then(|| b"data: [DONE]\n\n".to_vec()));
        frames
    }

    /// The messages of a body, all of them whole, and whether `[DONE]` stands at its end.
    fn read(&self, body: &[u8]) -> (Vec<Value>, bool) {
        let text = String::from_utf8_lossy(body);
        let parse = |data: &str| serde_json::from_str(data).unwrap_or_else(|_| panic!("{}: {data}", self.path));
        match self.framing {
            Framing::Events => {
                assert!(text.ends_with("\n\n"), "{}: {text}", self.path);
                let mut data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
                let is_done = data.pop_if(|last| *last == "[DONE]").is_some();
                (data.into_iter().map(parse).collect(), is_done)
            }
            Framing::Lines => (text.lines().map(parse).collect(), false),
            Framing::Chunks => (chunks(body), false),
        }
    }

    fn call(&self) -> Vec<u8> {
        let body = json!({ "model": "m", "stream": true, "prompt": "Tell me a long story.", "text": "And a sad one." });
        Call::post(self.path, body.to_string()).bytes()
    }
}

/// The documents in the `chunk` events of an Amazon stream.
fn chunks(mut body: &[u8]) -> Vec<Value> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap()) as usize;
    let mut documents = Vec::new();
    while !body.is_empty() {
        let (total, headers) = (number(&body[..4]), number(&body[4..8]));
        let payload: Value = serde_json::from_slice(&body[12 + headers..total - 4]).unwrap();
        let document = BASE64_STANDARD.decode(payload["bytes"].as_str().unwrap()).unwrap();
        documents.push(serde_json::from_slice(&document).unwrap());
        body = &body[total..];
    }
    documents
}

/// A provider that says these words to every call, in the shape that its path asks for.
fn provider(words: &[String]) -> Upstream {
    let frames: Vec<(&str, &str, Vec<Vec<u8>>)> = SHAPES
        .iter()
        .map(|shape| {
            let content_type = match shape.framing {
                Framing::Events => "text/event-stream",
                Framing::Lines => "application/x-ndjson",
                Framing::Chunks => AMAZON,
            };
            (shape.path, content_type, shape.frames(words))
        })
        .collect();
    Upstream::play(move |peer| {
        while let Some(request) = peer.request() {
            let (_, content_type, frames) = frames.iter().find(|(path, ..)| *path == request.path).unwrap();
            say_chunked(peer, &format!("Content-Type: {content_type}"), frames.iter().map(Vec::as_slice));
        }
    })
}

/// What a client is told of an answer that is stopped.
const WARNING: &str = "[The gateway withheld the rest of this answer: its analysis found secret_leakage (Critical), which \
                       `streaming_analysis.early_stop_on_critical` stops.]";

/// The messages of a stream that was stopped, which are those that its provider sent and then a legal end, and the words in them.
fn stopped(shape: &Shape, body: &[u8], words: &[String]) -> (Vec<Value>, String) {
    let (messages, is_done) = shape.read(body);
    assert_eq!(is_done, shape.done, "{}", shape.path);
    let sent = shape.messages(words);
    let same = messages.iter().zip(&sent).take_while(|(got, sent)| got == sent).count();
    let said = words[..same - (shape.begin)().len()].concat();
    assert_eq!(messages[same..], (shape.stopped)(&said, WARNING), "{}", shape.path);
    (messages, said)
}

fn check(gateway: &Gateway, words: &[String], look: impl Fn(&Shape, &[Value], &str)) {
    let mut client = Client::connect(gateway.addr);
    for shape in &SHAPES {
        client.say(shape.call());
        let answer = client.answer();
        assert_eq!((answer.status, answer.keep_alive), (200, true), "{}: {}", shape.path, answer.text());
        let (messages, said) = stopped(shape, &answer.body, words);
        look(shape, &messages, &said);
        let span = gateway.span_of(&answer);
        assert!(has_critical(&span, "secret_leakage"), "{}: {span}", shape.path);
        assert_eq!((&span["tags"]["response_stopped"], &span["security_score"]), (&json!("ended"), &json!(95)));
    }
}

on_both_drivers_in_full! {
    fn each_is_stopped_within_an_interval_and_ends_as_its_own_kind_ends(driver) {
        let key = private_key();
        let pieces = key.as_bytes().chunks(7).map(|piece| String::from_utf8_lossy(piece).into_owned());
        let words: Vec<String> = words("word", 100).into_iter().chain(pieces).chain(words("behind", 300)).collect();
        let upstream = provider(&words);
        let gateway = setup(driver, &upstream, STOPPING).start();
        check(&gateway, &words, |shape, _, said| {
            assert!(said.contains("word99 ") && said.matches("behind").count() <= 10, "{}: {said}", shape.path);
        });
        let gateway = setup(driver, &upstream, HOLDING).start();
        check(&gateway, &words, |shape, messages, said| {
            let all = Value::from(messages.to_vec()).to_string();
            assert!(said.contains("word20 ") && !all.contains("BEGIN") && !all.contains("behind"), "{}: {all}", shape.path);
        });
    }

    fn each_without_a_critical_word_is_the_provider_s_own(driver) {
        let words = words("word", 120);
        let upstream = provider(&words);
        for settings in [STOPPING, HOLDING] {
            let gateway = setup(driver, &upstream, settings).start();
            let mut client = Client::connect(gateway.addr);
            for shape in &SHAPES {
                client.say(shape.call());
                let answer = client.answer();
                assert_eq!((answer.status, answer.keep_alive), (200, true), "{}", shape.path);
                assert!(answer.body == shape.frames(&words).concat(), "{}: {}", shape.path, answer.text());
                // Some repeat all of it in their last message.
                let recorded = gateway.span_of(&answer)["response"].as_str().unwrap().to_owned();
                assert!(recorded.starts_with(&words.concat()), "{}: {recorded}", shape.path);
            }
        }
    }
}
