//! Promise: with `pii.redact_answers` no personal data and no credential that a detector knows reaches the client in the words of an
//! answer, however it is cut; every other byte is the provider's, and what must go on as it came is said.

use std::ops::Range;
use std::sync::mpsc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::codings::coded;
use super::*;
use crate::support::{Client, Gateway, call, on_both_drivers_in_full};

const ALL: &str = "pii: {redact_answers: all}";
const MAIL: &str = "jane.doe@example.com";

/// Random, and of the form of a GitHub token; put together so that scanners of code hosts stay quiet.
fn token() -> String {
    ["ghp_", "6hIKgwt74CPInlfRDAagj6fvyEobZLVfjgvh"].concat()
}

/// Dialects that are not stopped by a file of their own.
const MORE: [Dialect; 5] = [
    Dialect {
        path: "/api/generate",
        content_type: "application/x-ndjson",
        begin: Vec::new,
        word: |text| json!({"model": "m", "response": text, "done": false}),
        end: || vec![json!({"model": "m", "response": "", "done": true, "done_reason": "stop"})],
        stopped: "",
    },
    Dialect {
        path: "/v2/chat",
        content_type: "text/event-stream",
        begin: || {
            vec![
                json!({"type": "message-start", "id": "c-1", "delta": {"message": {"role": "assistant", "content": []}}}),
            ]
        },
        word: |text| json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": text}}}}),
        end: || vec![json!({"type": "message-end", "delta": {"finish_reason": "COMPLETE"}})],
        stopped: "",
    },
    Dialect {
        path: "/model/m/invoke-with-response-stream",
        content_type: AMAZON,
        begin: Vec::new,
        word: |text| {
            let inner =
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
            json!({"chunk": {"bytes": BASE64_STANDARD.encode(inner.to_string()), "p": "abcdef"}})
        },
        end: || {
            let inner = json!({"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 3}});
            vec![json!({"chunk": {"bytes": BASE64_STANDARD.encode(inner.to_string()), "p": "ab"}})]
        },
        stopped: "",
    },
    // What a model thinks, where nobody signs it.
    Dialect {
        path: "/v1/chat/completions",
        content_type: "text/event-stream",
        begin: Vec::new,
        word: |text| json!({"id": "c-1", "choices": [{"index": 0, "delta": {"reasoning_content": text}, "finish_reason": null}]}),
        end: || vec![json!({"id": "c-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})],
        stopped: "",
    },
    Dialect {
        path: "/v1/responses",
        content_type: "text/event-stream",
        begin: Vec::new,
        word: |text| {
            json!({"type": "response.reasoning_summary_text.delta", "item_id": "i-1", "output_index": 0, "summary_index": 0,
            "delta": text})
        },
        end: || {
            vec![
                json!({"type": "response.completed", "response": {"id": "r-1", "object": "response", "status": "completed"}}),
            ]
        },
        stopped: "",
    },
];

fn all_dialects() -> impl Iterator<Item = Dialect> {
    DIALECTS.into_iter().chain(MORE)
}

/// What a client gets of words out of which a piece of their text is taken: the first word that has a part of it gets the tag.
fn without(words: &[String], piece: Range<usize>, tag: &str) -> Vec<String> {
    let (mut at, mut tag) = (0, tag);
    let redact = |word: &String| {
        let (begin, end) = (piece.start.clamp(at, at + word.len()) - at, piece.end.clamp(at, at + word.len()) - at);
        at += word.len();
        let put = if begin < end { std::mem::take(&mut tag) } else { "" };
        [&word[..begin], put, &word[end..]].concat()
    };
    words.iter().map(redact).collect()
}

/// A provider whose answers are these, one after the other.
fn in_turn(dialect: Dialect, answers: Vec<Vec<String>>) -> Upstream {
    let answers: Vec<Vec<Vec<u8>>> = answers.iter().map(|words| dialect.frames(words)).collect();
    let next = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    Upstream::play(move |peer| {
        while peer.request().is_some() {
            let at = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            say_chunked(
                peer,
                &format!("Content-Type: {}", dialect.content_type),
                answers[at].iter().map(Vec::as_slice),
            );
        }
    })
}

/// Words around a piece that is cut at these places of it.
fn cut(piece: &str, places: &[usize]) -> (Vec<String>, Range<usize>) {
    let before = ["Well", ", write", " to "].map(str::to_owned);
    let start = before.concat().len();
    let mut ends = places.to_vec();
    ends.push(piece.len());
    let begins = std::iter::once(0).chain(places.iter().copied());
    let pieces = begins.zip(&ends).map(|(begin, end)| piece[begin..*end].to_owned());
    let words = before.into_iter().chain(pieces).chain([" about", " 12 apples", "."].map(str::to_owned)).collect();
    (words, start..start + piece.len())
}

fn redactions(gateway: &Gateway, mode: &str) -> f64 {
    gateway.metric("service_redactions_total", &format!("mode=\"{mode}\""))
}

fn document(fields: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

const JSON: &str = "Content-Type: application/json";

/// Documents that say `text` in each dialect, the full ways in which some say it twice among them.
fn documents(text: &str) -> Vec<(&'static str, Value)> {
    let parts = json!([{"text": text}]);
    let item = json!({"id": "i", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]});
    vec![
        (
            "/v1/chat/completions",
            json!({"id": "d", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}, {"index": 1, "message": {"content": [{"type": "text", "text": text}]}}]}),
        ),
        ("/v1/completions", json!({"id": "d", "choices": [{"index": 0, "text": text, "finish_reason": "stop"}]})),
        (
            "/v1/messages",
            json!({"id": "d", "type": "message", "role": "assistant", "content": [{"type": "text", "text": text}]}),
        ),
        (
            "/v1/responses",
            json!({"id": "d", "object": "response", "status": "completed", "output": [item], "output_text": text}),
        ),
        (
            "/v1beta/models/m:generateContent",
            json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}}]}),
        ),
        (
            "/v1beta/models/m:streamGenerateContent",
            json!([{"candidates": [{"content": {"parts": parts}}]}, {"candidates": [{"content": {"parts": [{"text": "."}]}}]}]),
        ),
        ("/api/chat", json!({"model": "m", "message": {"role": "assistant", "content": text}, "done": true})),
        ("/api/generate", json!({"model": "m", "response": text, "done": true})),
        ("/generate", json!([{"generated_text": text}])),
        (
            "/model/m/converse",
            json!({"output": {"message": {"role": "assistant", "content": parts}}, "stopReason": "end_turn"}),
        ),
        ("/model/m/invoke", json!({"results": [{"outputText": text, "tokenCount": 7}]})),
        (
            "/v2/chat",
            json!({"id": "d", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}, "finish_reason": "COMPLETE"}),
        ),
        ("/v1/some/new/path", json!({"somebody": {"said": [text]}})),
    ]
}

on_both_drivers_in_full! {
    fn wherever_a_piece_is_cut_the_client_gets_one_tag_and_every_other_byte(driver) {
        for dialect in all_dialects() {
            for (piece, tag) in [(MAIL.to_owned(), "[PII:EMAIL]"), ("4111 1111 1111 1111".to_owned(), "[PII:CREDIT_CARD]"), (token(), "[SECRET:GITHUB_PAT]")] {
                let each = (1..piece.len()).map(|at| vec![at]);
                let everywhere = (1..piece.len()).collect();
                let ways: Vec<_> = each.chain([vec![], everywhere]).map(|places| cut(&piece, &places)).collect();
                let upstream = in_turn(dialect, ways.iter().map(|(words, _)| words.clone()).collect());
                let gateway = setup(driver, &upstream, ALL).start();
                let mut client = Client::connect(gateway.addr);
                let mut last = None;
                for (words, place) in &ways {
                    client.say(dialect.call().bytes());
                    let answer = client.answer();
                    assert_eq!((answer.status, answer.keep_alive), (200, true), "{}", dialect.path);
                    let expected = dialect.frames(&without(words, place.clone(), tag)).concat();
                    assert_eq!(answer.body, expected, "{}: {}", dialect.path, answer.text());
                    last = Some(answer);
                }
                gateway.span_of(&last.unwrap());
                assert_eq!(redactions(&gateway, "active"), ways.len() as f64, "{}", dialect.path);
            }
        }
    }

    fn a_stream_without_such_a_piece_is_the_provider_s_own(driver) {
        for dialect in all_dialects() {
            let words: Vec<String> =
                words("word", 40).into_iter().chain(["doe@", "example", " 4111 1111 1111 ", "1112", " ghp_", "short"].map(str::to_owned)).collect();
            let upstream = dialect.provider(&words);
            let gateway = setup(driver, &upstream, ALL).start();
            let mut client = Client::connect(gateway.addr);
            for _ in 0..2 {
                client.say(dialect.call().bytes());
                let answer = client.answer();
                assert_eq!((answer.body.clone(), answer.keep_alive), (dialect.frames(&words).concat(), true), "{}: {}", dialect.path, answer.text());
                let span = gateway.span_of(&answer);
                assert_eq!((&span["tags"]["answer_unredacted"], &span["events"]), (&Value::Null, &json!([])), "{span}");
            }
            assert_eq!(upstream.connections(), 1, "{}: it is used again", dialect.path);
            assert_eq!(redactions(&gateway, "active"), 0.0);
        }
    }

    fn of_prose_a_client_has_all_but_the_last_words_at_once(driver) {
        for dialect in DIALECTS {
            let said = words("plain word, ", 30).iter().map(|word| format!("{} ", word.trim_matches(|c: char| c.is_numeric() || c == ' '))).collect::<Vec<_>>();
            let frames = dialect.frames(&said);
            let expected = frames.concat();
            let (seen, told) = mpsc::channel::<usize>();
            let told = std::sync::Mutex::new(told);
            let lengths: Vec<usize> = frames.iter().map(Vec::len).collect();
            let upstream = Upstream::play(move |peer| {
                if peer.request().is_none() {
                    return;
                }
                peer.say(format!("HTTP/1.1 200 OK\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n", dialect.content_type));
                let mut behind = 0;
                for frame in &frames {
                    // The client has all but the last three frames before the next one comes.
                    while behind > 3 {
                        let Ok(frames) = told.lock().unwrap().recv() else { return };
                        behind -= frames;
                    }
                    peer.say([format!("{:x}\r\n", frame.len()).as_bytes(), frame, b"\r\n"].concat());
                    behind += 1;
                }
                peer.say("0\r\n\r\n");
            });
            let gateway = setup(driver, &upstream, ALL).start();
            let mut client = Client::connect(gateway.addr);
            client.say(dialect.call().bytes());
            let (mut raw, mut have) = (Vec::new(), 0);
            while have < lengths.len() {
                raw.extend(client.read_until(|bytes| !bytes.is_empty()));
                let body = unchunked(&raw);
                assert!(expected.starts_with(&body), "{}", dialect.path);
                let mut end = 0;
                let whole = lengths.iter().take_while(|length| { end += **length; end <= body.len() }).count();
                seen.send(whole - have).unwrap();
                have = whole;
            }
        }
    }

    fn a_text_told_once_more_at_the_end_is_redacted_too(driver) {
        let text = format!("Write to {MAIL} about 12 apples");
        let frames = |pieces: [&str; 3], text: &str| {
            let at = json!({"item_id": "i", "output_index": 0, "content_index": 0});
            let with = |kind: &str, more: Value| {
                let mut event = json!({"type": kind});
                for members in [&at, &more] {
                    event.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
                }
                event
            };
            let part = json!({"type": "output_text", "text": text, "annotations": []});
            let item = json!({"id": "i", "type": "message", "role": "assistant", "content": [part]});
            let mut events: Vec<Value> = pieces.iter().map(|piece| with("response.output_text.delta", json!({"delta": piece}))).collect();
            events.extend([
                with("response.output_text.done", json!({"text": text})),
                with("response.content_part.done", json!({"part": part})),
                with("response.output_item.done", json!({"item": item})),
                json!({"type": "response.completed", "response": {"id": "r", "object": "response", "status": "completed", "output": [item]}}),
            ]);
            events.iter().map(|event| DIALECTS[2].frame(event)).collect::<Vec<_>>()
        };
        let said = frames(["Write to jane.", "doe@exam", "ple.com about 12 apples"], &text);
        let upstream = Upstream::play(move |peer| {
            while peer.request().is_some() {
                say_chunked(peer, SSE, said.iter().map(Vec::as_slice));
            }
        });
        let gateway = setup(driver, &upstream, "pii: {redact_answers: personal}").start();
        let answer = call(gateway.addr, DIALECTS[2].call().bytes());
        let expected = frames(["Write to [PII:EMAIL]", "", " about 12 apples"], "Write to [PII:EMAIL] about 12 apples").concat();
        assert_eq!(answer.text(), String::from_utf8(expected).unwrap());
        // The last words of generated text stand in its last event.
        let tgi = DIALECTS[6];
        let mut last = (tgi.end)().remove(0);
        last["generated_text"] = json!(text);
        let said = [tgi.frame(&(tgi.word)(&text)), tgi.frame(&last)];
        let upstream = Upstream::play(move |peer| {
            while peer.request().is_some() {
                say_chunked(peer, SSE, said.iter().map(Vec::as_slice));
            }
        });
        let gateway = setup(driver, &upstream, "pii: {redact_answers: personal}").start();
        let text = call(gateway.addr, tgi.call().bytes()).text();
        assert!(text.matches("[PII:EMAIL] about 12 apples").count() == 2 && !text.contains("jane"), "{text}");
    }

    fn documents_of_every_dialect_lose_it_and_keep_every_other_byte(driver) {
        let text = format!("Write to \"{MAIL}\", card 4111 1111 1111 1111,\nwith {} about 12 apples \u{e9}", token());
        let expected = "Write to \"[PII:EMAIL]\", card [PII:CREDIT_CARD],\nwith [SECRET:GITHUB_PAT] about 12 apples \u{e9}";
        let long = "word ".repeat(4_000);
        for before in ["", &long] {
            for ((path, body), (_, after)) in documents(&format!("{before}{text}")).into_iter().zip(documents(&format!("{before}{expected}"))) {
                // Spelled as another serialiser would.
                let spelled = |body: &Value| body.to_string().replace('\u{e9}', "\\u00e9").replace("\":", "\" : ");
                let upstream = Upstream::always(document(JSON, spelled(&body).as_bytes()));
                let gateway = setup(driver, &upstream, ALL).start();
                let mut client = Client::connect(gateway.addr);
                for _ in 0..2 {
                    client.say(Call::post(path, chat_body("Hello.").to_string()).bytes());
                    let answer = client.answer();
                    assert_eq!((answer.status, answer.keep_alive), (200, true), "{path}");
                    assert_eq!(answer.text(), spelled(&after), "{path}");
                    assert_eq!((answer.header("content-length"), answer.header("x-service-redaction")), (None, None), "{path}");
                    let span = gateway.span_of(&answer);
                    assert_eq!(span["events"][0]["event_type"], "answer_redacted", "{path}: {span}");
                }
            }
        }
    }

    fn documents_without_such_a_piece_and_what_says_no_words_stay(driver) {
        for (path, body) in documents("about 12 apples, doe@example and 4111 1111 1111 1112") {
            let upstream = Upstream::always(document(JSON, body.to_string().as_bytes()));
            let gateway = setup(driver, &upstream, ALL).start();
            assert_eq!(call(gateway.addr, Call::post(path, chat_body("Hello.").to_string()).bytes()).text(), body.to_string(), "{path}");
        }
        let sound = [b"RIFF\0\xff".as_slice(), MAIL.as_bytes()].concat();
        let failed = format!("HTTP/1.1 429 Too Many Requests\r\n{JSON}\r\nContent-Length: {}\r\n\r\n\"{MAIL}\"", MAIL.len() + 2);
        for (answer, body) in [
            (document("Content-Type: audio/wav", &sound), sound.clone()),
            // What a provider says of a failure is redacted like any answer.
            (failed.into_bytes(), b"\"[PII:EMAIL]\"".to_vec()),
        ] {
            let upstream = Upstream::always(answer);
            let gateway = setup(driver, &upstream, ALL).start();
            assert_eq!(call(gateway.addr, Call::post("/v1/chat/completions", chat_body("Hello.").to_string()).bytes()).body, body);
        }
        // A transcript is text without a form.
        let upstream = Upstream::always(document("Content-Type: text/plain; charset=utf-8", format!("So \\ {MAIL}, he said.\n").as_bytes()));
        let gateway = setup(driver, &upstream, ALL).start();
        let answer = call(gateway.addr, Call::post("/v1/audio/transcriptions", "{}".to_owned()).bytes());
        assert_eq!(answer.text(), "So \\ [PII:EMAIL], he said.\n");
    }

    fn compressed_answers_are_redacted_and_come_without_their_coding(driver) {
        let dialect = DIALECTS[0];
        let (said, place) = cut(MAIL, &[4, 9]);
        for coding in ["gzip", "br", "zstd"] {
            let pieces = coded(coding, &dialect.frames(&said));
            let upstream = Upstream::play(move |peer| {
                while let Some(request) = peer.request() {
                    assert_eq!(request.header("accept-encoding"), Some("identity"));
                    say_chunked(peer, &format!("{SSE}\r\nContent-Encoding: {coding}"), pieces.iter().map(Vec::as_slice));
                }
            });
            let gateway = setup(driver, &upstream, ALL).start();
            let answer = call(gateway.addr, dialect.call().bytes());
            let expected = dialect.said(&without(&said, place.clone(), "[PII:EMAIL]"));
            assert_eq!((answer.text(), answer.header("content-encoding")), (expected, None), "{coding}");
            let body = json!({"choices": [{"index": 0, "message": {"content": said.concat()}}]}).to_string();
            let packed = coded(coding, &[body.clone().into_bytes()]).concat();
            let upstream = Upstream::always(document(&format!("{JSON}\r\nContent-Encoding: {coding}"), &packed));
            let gateway = setup(driver, &upstream, ALL).start();
            let answer = call(gateway.addr, Call::post("/v1/chat/completions", chat_body("Hello.").to_string()).bytes());
            assert_eq!((answer.text(), answer.header("content-encoding")), (body.replace(MAIL, "[PII:EMAIL]"), None), "{coding}");
        }
        let upstream = Upstream::always(document(&format!("{JSON}\r\nContent-Encoding: unknown"), MAIL.as_bytes()));
        let gateway = setup(driver, &upstream, ALL).start();
        let answer = call(gateway.addr, Call::post("/v1/chat/completions", chat_body("Hello.").to_string()).bytes());
        assert_eq!((answer.text(), answer.header("x-service-redaction").as_deref()), (MAIL.to_owned(), Some("incomplete")));
        assert_eq!(gateway.span_of(&answer)["tags"]["answer_unredacted"], "not_read");
    }

    fn what_must_go_on_as_it_came_is_said(driver) {
        let arguments = json!({"to": MAIL}).to_string();
        let called = json!([{"id": "t", "type": "function", "function": {"name": "mail", "arguments": arguments}}]);
        let calling = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": MAIL, "tool_calls": called}}]});
        let thinking = json!({"type": "message", "role": "assistant", "content": [{"type": "thinking", "thinking": MAIL, "signature": "x"}, {"type": "text", "text": MAIL}]});
        let tokens = json!({"choices": [{"index": 0, "message": {"content": MAIL}, "logprobs": {"content": [{"token": "jane", "logprob": -0.5}]}}]});
        let long = json!({"choices": [{"index": 0, "message": {"content": format!("{}{MAIL}", "word ".repeat(300_000))}}]});
        for (path, body, left, stays) in [
            ("/v1/chat/completions", calling, "tool_call", 1),
            ("/v1/messages", thinking, "signed_reasoning", 1),
            ("/v1/chat/completions", tokens, "logprobs", 0),
            ("/v1/chat/completions", long, "held_too_much", 1),
        ] {
            let upstream = Upstream::always(document(JSON, body.to_string().as_bytes()));
            let gateway = setup(driver, &upstream, ALL).start();
            let answer = call(gateway.addr, Call::post(path, messages_body("Hello.").to_string()).bytes());
            assert_eq!(answer.header("x-service-redaction").as_deref(), Some("incomplete"), "{left}");
            assert_eq!(answer.text().matches(MAIL).count(), stays, "{left}");
            assert_eq!(gateway.span_of(&answer)["tags"]["answer_unredacted"], left);
            assert_eq!(gateway.metric("service_dropped_total", &format!("queue=\"redaction\",reason=\"{left}\"")), 1.0);
        }
        // In a stream the head has gone before; the record says it.
        let delta = json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "t", "function": {"name": "mail", "arguments": arguments}}]}}]});
        let frame = DIALECTS[0].frame(&delta);
        let upstream = Upstream::always([format!("HTTP/1.1 200 OK\r\n{SSE}\r\nContent-Length: {}\r\n\r\n", frame.len()).as_bytes(), &frame].concat());
        let gateway = setup(driver, &upstream, ALL).start();
        let answer = call(gateway.addr, DIALECTS[0].call().bytes());
        assert_eq!(answer.body, frame);
        assert_eq!(gateway.span_of(&answer)["tags"]["answer_unredacted"], "tool_call");
    }

    fn the_record_is_what_the_provider_said(driver) {
        let (said, _) = cut(MAIL, &[4, 9]);
        let upstream = DIALECTS[0].provider(&said);
        for (settings, stored) in [(ALL, said.concat()), ("pii: {redact_answers: all, action: redact_silent}", said.concat().replace(MAIL, "[PII:EMAIL]"))] {
            let gateway = setup(driver, &upstream, settings).start();
            let answer = call(gateway.addr, DIALECTS[0].call().bytes());
            assert!(!answer.text().contains("jane"), "{}", answer.text());
            assert_eq!(gateway.span_of(&answer)["response"], stored);
        }
    }

    fn a_shadow_of_it_counts_and_leaves_answers_as_they_come(driver) {
        let (said, _) = cut(MAIL, &[4, 9]);
        let dialect = DIALECTS[0];
        let upstream = dialect.provider(&said);
        let gateway = setup(driver, &upstream, "pii: {redact_answers: all, redact_answers_shadow_mode: true}").start();
        let answer = call(gateway.addr, dialect.call().bytes());
        let chunk = |frame: &Vec<u8>| format!("{:x}\r\n{}\r\n", frame.len(), String::from_utf8_lossy(frame));
        let framed: String = dialect.frames(&said).iter().map(chunk).collect();
        assert_eq!(String::from_utf8_lossy(&answer.raw_body), format!("{framed}0\r\n\r\n"), "chunk by chunk");
        gateway.span_of(&answer);
        assert_eq!((redactions(&gateway, "shadow"), redactions(&gateway, "active")), (1.0, 0.0));
    }

    fn an_answer_may_be_stopped_and_redacted(driver) {
        for dialect in DIALECTS {
            let (said, _) = cut(MAIL, &[4, 9]);
            let said: Vec<String> = said.into_iter().chain(words("word", 200)).chain([private_key()]).chain(words("behind", 200)).collect();
            for settings in [STOPPING, HOLDING] {
                let upstream = dialect.provider(&said);
                let gateway = setup(driver, &upstream, &format!("{settings}\npii: {{redact_answers: personal}}")).start();
                let text = call(gateway.addr, dialect.call().bytes()).text();
                assert!(text.contains("[PII:EMAIL]") && text.contains(dialect.stopped) && text.contains("word50 "), "{}: {text}", dialect.path);
                assert!(!text.contains("jane") && !text.contains("doe@"), "{}: {text}", dialect.path);
            }
        }
        let body = json!({"choices": [{"index": 0, "message": {"content": private_key()}}]}).to_string();
        for (settings, status) in [(BLOCKING, 403), ("output_safety: {enabled: true}", 200)] {
            let upstream = Upstream::always(document(JSON, body.as_bytes()));
            let gateway = setup(driver, &upstream, &format!("{settings}\n{ALL}")).start();
            let answer = call(gateway.addr, Call::post("/v1/chat/completions", chat_body("Hello.").to_string()).bytes());
            assert_eq!(answer.status, status, "{}", answer.text());
            assert_eq!(answer.text().contains("[SECRET:PRIVATE_KEY_PEM]"), status == 200);
        }
    }

    fn nothing_is_redacted_in_answers_where_nobody_asked(driver) {
        let (said, _) = cut(MAIL, &[4, 9]);
        let upstream = DIALECTS[0].provider(&said);
        let gateway = setup(driver, &upstream, "pii: {action: redact_silent}").start();
        assert_eq!(call(gateway.addr, DIALECTS[0].call().bytes()).text(), DIALECTS[0].said(&said));
    }
}

/// The body of what has come of a chunked answer; a chunk that is not whole is left out.
fn unchunked(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let Some(head) = raw.windows(4).position(|four| four == b"\r\n\r\n") else { return out };
    let mut rest = &raw[head + 4..];
    while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        let Some(chunk) = rest.get(line + 2..line + 2 + length).filter(|_| length > 0) else { break };
        out.extend_from_slice(chunk);
        rest = rest.get(line + 4 + length..).unwrap_or_default();
    }
    out
}
