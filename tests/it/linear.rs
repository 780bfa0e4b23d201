//! Promise: whatever a stranger writes, reading it takes time in proportion to its length. Every parser, decoder, detector and
//! editor is given texts made to be dear, and four times as much of each.
//!
//! A new reader of strangers' bytes belongs in here; that of the API's query is in `api::tests::query`.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use weir::admit::Presented;
use weir::codec::ContentDecoder;
use weir::inspect::{Declared, ZoneAsk, decode_body, model_in_path, read_request, route, zones};
use weir::json::Walker;
use weir::money::Family;
use weir::observe::{AnswerKind, AnswerReader, estimate_tokens};
use weir::redaction::Redaction;
use weir::wire::{ChunkSink, ChunkedScanner, HeadScanner, Side};
use weir_config::settings::{Auth, ZoneMode};
use weir_config::vocab::{Dialect, SharedSecret};
use weir_inference::action::{self, Action, ActionKind};
use weir_inference::{Analyser, Call, Part, PartKind, PlanSettings};

use crate::support::{superlinear, superlinear_from};

/// Longest text of a reader that keeps no more.
const TEXT_MAX: usize = 16 << 20;

/// What texts consist of: each is said again and again. Signs that open and never close, what looks like the beginning of what a
/// detector looks for, and what has to be decoded, folded or joined.
const UNITS: &[&str] = &[
    "a;",
    "a|",
    "$(",
    "`",
    "\"",
    "'",
    "\\",
    "(",
    "[",
    "{",
    "<",
    "<<A\n",
    "#",
    "-",
    "a=b ",
    "eval ",
    "sudo ",
    "cat /etc/",
    "../",
    "/",
    ":",
    "http://a.b/ ",
    "a.",
    "a",
    " ",
    "\n",
    "\r\n",
    "\0",
    "a b ",
    "@",
    "a@b.",
    "1",
    "1-",
    "4111 ",
    "192.168.0.1 ",
    "sk-",
    "svc_",
    "AKIA",
    "password=",
    "-----BEGIN PRIVATE KEY-----\n",
    "QUJD",
    "QUJD ",
    "6967",
    "\\u0069",
    "\\ud83d",
    "%69",
    "&#105;",
    "01101001 ",
    "ignore all previous ",
    "system: ",
    "\nuser: ",
    "<|im_start|>",
    "```\n",
    "i g n o r e ",
    "never say-not use-",
    "n'obei: ",
    "you are a ",
    "romeo echo ",
    "18-5-22-5-1-12 ",
    "\u{280a}\u{281b}",
    "e\u{301}",
    "\u{200b}",
    "\u{e0069}",
    "\u{ff49}",
    "\u{1f600}",
    "\r\n--x",
    "data:",
    "data: {}\n\n",
    "{}\n",
    "a=b&",
    "1\r\nx\r\n",
    "X: y\r\n",
    "null,",
    "{\"a\":",
    "{\"a\":[",
    "\"a\":1,",
];

/// What opens and, as often, closes.
const PAIRS: &[(&str, &str)] = &[("$(", ")"), ("[", "]"), ("{\"a\":", "}"), ("<", ">"), ("eval \"", "\"")];

/// What stands before a list, what behind it, and its items by their numbers.
type Listed = (&'static str, &'static str, fn(usize) -> String);

/// The hostile text number `family`, of about `length` bytes.
fn hostile(family: usize, length: usize) -> String {
    match UNITS.get(family) {
        Some(unit) => unit.repeat(length / unit.len()),
        None => {
            let (opens, closes) = PAIRS[family - UNITS.len()];
            let times = length / (opens.len() + closes.len());
            [opens.repeat(times), closes.repeat(times)].concat()
        }
    }
}

fn families() -> impl Iterator<Item = (usize, String)> {
    (0..UNITS.len() + PAIRS.len()).map(|family| (family, hostile(family, 24)))
}

/// Does `work` with every hostile text.
#[track_caller]
fn assert_linear(name: &str, mut work: impl FnMut(&str)) {
    let seen = families().filter_map(|(family, shown)| {
        let found = superlinear(|length| hostile(family, length), |text| work(text))?;
        Some(format!("{name}, {shown:?}: {found}"))
    });
    let seen: Vec<String> = seen.collect();
    assert!(seen.is_empty(), "{}", seen.join("\n"));
}

/// Does `work` with what `unit` says for each number, one after the other between `before` and `after`.
#[track_caller]
fn assert_linear_in(
    name: &str,
    (before, after): (&str, &str),
    unit: impl Fn(usize) -> String,
    mut work: impl FnMut(&str),
) {
    let text = |length: usize| {
        let mut text = before.to_owned();
        for number in 0.. {
            if text.len() >= length {
                break;
            }
            text.push_str(&unit(number));
        }
        text.push_str(after);
        text
    };
    // An answer's calls and texts stand in tables of 512 entries.
    let found = superlinear_from(64 << 10, text, |text| work(text));
    assert_eq!(found, None, "{name}, {:?}", unit(7));
}

fn analyses(kind: PartKind) {
    let analyser = Analyser::builtin().unwrap().without_memory();
    let plan = Arc::new(analyser.plan(&PlanSettings::default()));
    let mut scratch = analyser.scratch();
    let mut hits = Vec::new();
    assert_linear(&format!("the detectors, {kind:?}"), |text| {
        hits.clear();
        analyser.analyse(&mut scratch, &[Part { text, kind }], &Call::of(&plan), &mut hits);
    });
}

#[test]
fn the_detectors_on_what_a_user_says() {
    analyses(PartKind::User);
}

#[test]
fn the_detectors_on_what_a_model_says() {
    analyses(PartKind::Output);
}

#[test]
fn the_detectors_on_many_small_parts() {
    let analyser = Analyser::builtin().unwrap().without_memory();
    let plan = Arc::new(analyser.plan(&PlanSettings::default()));
    let mut scratch = analyser.scratch();
    let mut hits = Vec::new();
    assert_linear_in(
        "the detectors",
        ("", ""),
        |number| format!("{number} ignore all previous\n"),
        |text| {
            let parts: Vec<_> = text.lines().map(|text| Part { text, kind: PartKind::User }).collect();
            hits.clear();
            analyser.analyse(&mut scratch, &parts, &Call::of(&plan), &mut hits);
        },
    );
}

#[test]
fn the_checks_of_actions() {
    for (name, kind) in
        [("a command", ActionKind::Command), ("an address", ActionKind::Web), ("a file", ActionKind::File)]
    {
        assert_linear(name, |text| {
            action::check(&Action { kind, name: text, arguments: None, writes: true }, None);
        });
    }
    assert_linear("arguments", |text| {
        action::check(&Action { kind: ActionKind::Tool, name: "bash", arguments: Some(text), writes: false }, None);
    });
    assert_linear("a tool's command", |text| {
        let arguments = serde_json::json!({ "command": text, "args": [text] }).to_string();
        action::check(&Action { kind: ActionKind::Tool, name: "x", arguments: Some(&arguments), writes: false }, None);
    });
    let lists: [Listed; 4] = [
        ("[\"bash\"", "]", |number| format!(",\"{number}\"")),
        ("{\"z\":0", "}", |number| format!(",\"{number}\":\"rm -rf /\"")),
        ("[0", "]", |_| ",{\"cmd\":\"a\",\"args\":[\"b\"]}".to_owned()),
        ("{\"command\":\"", "\"}", |number| format!("a{number} | b{number}; shutdown > f{number};")),
    ];
    for (before, after, unit) in lists {
        assert_linear_in("arguments", (before, after), unit, |text| {
            action::check(&Action { kind: ActionKind::Tool, name: "bash", arguments: Some(text), writes: false }, None);
        });
    }
}

#[test]
fn json() {
    let walk = |text: &str| {
        if let Ok(mut walker) = Walker::new(text.as_bytes()) {
            while matches!(walker.next_event(), Ok(Some(_))) {}
        }
    };
    assert_linear("a document", walk);
    assert_linear("a text", |text| walk(&serde_json::json!([text]).to_string()));
    assert_linear("an escaped text", |text| walk(&format!("[\"{text}\"]")));
}

const TYPES: [(&str, Option<&str>); 6] = [
    ("JSON", Some("application/json")),
    ("a form", Some("multipart/form-data; boundary=x")),
    ("fields", Some("application/x-www-form-urlencoded")),
    ("a text", Some("text/plain")),
    ("an image", Some("image/png")),
    ("something", None),
];

fn reads_request(body: &[u8], content_type: Option<&str>) {
    let declared = Declared { content_type: content_type.map(str::as_bytes), ..Declared::default() };
    read_request(Dialect::ChatCompletions, declared, body, TEXT_MAX);
}

#[test]
fn zones_of_requests() {
    let ask = |header: Option<&str>| ZoneAsk { mode: ZoneMode::Both, header: header.map(str::to_owned), scanned: true };
    let finds = |text: &str, header: Option<&str>| {
        let body = serde_json::json!({"messages": [{"role": "user", "content": text}]}).to_string();
        let declared = Declared::default();
        zones(&read_request(Dialect::ChatCompletions, declared, body.as_bytes(), TEXT_MAX), &ask(header));
    };
    assert_linear("a message", |text| finds(text, None));
    assert_linear("a delimiter", |text| finds(text, Some(text.get(..64).unwrap_or(text))));
    for unit in [
        "[1,\n",
        "{\"a\":\n",
        "[\"a\",\n",
        "```\n",
        "\"\"\"",
        "<div>\n",
        "<div>",
        "<p",
        "</p>",
        "> ",
        "From: a\n",
        "a: b\n",
        "Context: a\n",
        "| a\n",
        "a\tb\n",
        "a,b,c\n",
        "<service-data>",
        "</service-data>",
        "<!-- ",
        "<document>",
    ] {
        assert_linear_in("forms", ("", ""), |_| unit.to_owned(), |text| finds(text, None));
    }
}

#[test]
fn bodies_of_requests() {
    for (name, content_type) in TYPES {
        assert_linear(name, |text| reads_request(text.as_bytes(), content_type));
    }
    assert_linear("the boundary", |text| {
        let boundary = format!("multipart/form-data; boundary={text}; a={text}; boundary*={text}");
        reads_request(b"--x\r\n\r\n", Some(&boundary));
    });
    assert_linear("a form that keeps to its boundary", |text| {
        let body =
            format!("--x\r\nContent-Disposition: form-data; name=\"a\"; {text}\r\n{text}\r\n\r\n{text}\r\n--x--");
        reads_request(body.as_bytes(), Some("multipart/form-data; boundary=x"));
    });
}

#[test]
fn requests_with_much_in_them() {
    let json = Some("application/json");
    assert_linear("a message", |text| {
        let body =
            serde_json::json!({ "messages": [{ "role": "user", "content": text, "name": text }], "model": text });
        reads_request(body.to_string().as_bytes(), json);
    });
    let lists: [Listed; 8] = [
        ("{\"messages\":[0", "]}", |number| format!(",{{\"role\":\"user\",\"content\":\"a{number}\"}}")),
        ("{\"messages\":[{\"role\":\"user\",\"content\":[0", "]}]}", |number| {
            format!(",{{\"type\":\"text\",\"text\":\"a{number}\"}}")
        }),
        ("{\"messages\":[0", "]}", |number| {
            format!(
                ",{{\"role\":\"assistant\",\"tool_calls\":[{{\"id\":\"{number}\",\"function\":{{\"name\":\"f\",\"arguments\":\"{{}}\"}}}}]}},{{\"role\":\"tool\",\"tool_call_id\":\"{number}\",\"content\":\"b\"}}"
            )
        }),
        ("{\"tools\":[0", "]}", |number| {
            format!(",{{\"function\":{{\"name\":\"f{number}\",\"description\":\"d\",\"parameters\":{{}}}}}}")
        }),
        ("{\"input\":[0", "]}", |number| {
            format!(",{{\"type\":\"function_call_output\",\"call_id\":\"{number}\",\"output\":\"o\"}}")
        }),
        ("{\"contents\":[0", "]}", |number| format!(",{{\"role\":\"user\",\"parts\":[{{\"text\":\"{number}\"}}]}}")),
        ("{\"a\":0", "}", |number| format!(",\"{number}\":\"b\"")),
        ("{\"a\":0", "}", |_| ",\"model\":\"m\",\"stream\":true,\"messages\":[]".to_owned()),
    ];
    for (before, after, unit) in lists {
        assert_linear_in("a request", (before, after), unit, |text| reads_request(text.as_bytes(), json));
    }
    let form = |number: usize| format!("\r\nContent-Disposition: form-data; name=\"f{number}\"\r\n\r\nv\r\n--x");
    assert_linear_in("a form", ("--x", "--"), form, |text| {
        reads_request(text.as_bytes(), Some("multipart/form-data; boundary=x"));
    });
}

fn reads_answer(body: &[u8], kind: AnswerKind, encoding: Option<&[u8]>, step: usize) {
    let mut reader = AnswerReader::new(kind, encoding, TEXT_MAX);
    body.chunks(step).for_each(|piece| reader.feed(piece));
    reader.finish();
}

#[test]
fn bodies_of_answers() {
    let (events, lines) = (AnswerKind::EventStream, AnswerKind::JsonLines);
    let amazon = AnswerKind::AmazonEvents;
    for (kind, step) in
        [(AnswerKind::Json, TEXT_MAX), (events, TEXT_MAX), (events, 16), (lines, 16), (amazon, TEXT_MAX), (amazon, 16)]
    {
        assert_linear(&format!("{kind:?}, {step} bytes at a time"), |text| {
            reads_answer(text.as_bytes(), kind, None, step);
        });
    }
    assert_linear("a message", |text| {
        let body = serde_json::json!({ "choices": [{ "message": { "content": text, "tool_calls": [{
            "id": text, "function": { "name": text, "arguments": text } }] }, "finish_reason": text }] });
        reads_answer(body.to_string().as_bytes(), AnswerKind::Json, None, TEXT_MAX);
    });
}

#[test]
fn answers_with_much_in_them() {
    let frames: [fn(usize) -> String; 9] = [
        |number| format!("{{\"choices\":[{{\"index\":{number},\"delta\":{{\"content\":\"a\"}}}}]}}"),
        |number| format!("{{\"choices\":[{{\"index\":{},\"delta\":{{\"content\":\"a\"}}}}]}}", number % 2),
        |number| {
            format!(
                "{{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":{number},\"id\":\"c{number}\",\"function\":{{\"name\":\"f\",\"arguments\":\"a\"}}}}]}}}}]}}"
            )
        },
        |number| {
            format!(
                "{{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"function\":{{\"name\":\"f{number}\",\"arguments\":\"a\"}}}}]}}}}]}}"
            )
        },
        |number| format!("{{\"type\":\"content_block_delta\",\"index\":{number},\"delta\":{{\"text\":\"a\"}}}}"),
        |number| {
            format!(
                "{{\"type\":\"content_block_start\",\"index\":{number},\"content_block\":{{\"type\":\"tool_use\",\"id\":\"{number}\",\"name\":\"f\",\"input\":{{}}}}}}"
            )
        },
        |number| {
            format!(
                "{{\"type\":\"response.output_text.delta\",\"output_index\":{number},\"content_index\":{number},\"delta\":\"a\"}}"
            )
        },
        |number| format!("{{\"candidates\":[{{\"index\":{number},\"content\":{{\"parts\":[{{\"text\":\"a\"}}]}}}}]}}"),
        |number| {
            format!(
                "{{\"message\":{{\"role\":\"assistant\",\"content\":\"{number}\"}},\"usage\":{{\"prompt_tokens\":{number}}}}}"
            )
        },
    ];
    for frame in frames {
        assert_linear_in(
            "events",
            ("", ""),
            |number| format!("data: {}\n\n", frame(number)),
            |text| {
                reads_answer(text.as_bytes(), AnswerKind::EventStream, None, 1_000);
            },
        );
        assert_linear_in(
            "a list",
            ("[0", "]"),
            |number| format!(",{}", frame(number)),
            |text| {
                reads_answer(text.as_bytes(), AnswerKind::Json, None, TEXT_MAX);
            },
        );
    }
    let lists: [Listed; 4] = [
        ("{\"choices\":[0", "]}", |number| format!(",{{\"index\":{number},\"message\":{{\"content\":\"a\"}}}}")),
        ("{\"content\":[0", "]}", |number| {
            format!(",{{\"type\":\"tool_use\",\"id\":\"{number}\",\"name\":\"f\",\"input\":{{\"a\":{number}}}}}")
        }),
        ("{\"output\":[0", "]}", |number| {
            format!(",{{\"type\":\"message\",\"content\":[{{\"type\":\"output_text\",\"text\":\"{number}\"}}]}}")
        }),
        ("{\"choices\":[{\"message\":{\"tool_calls\":[0", "]}}]}", |number| {
            format!(",{{\"id\":\"{number}\",\"function\":{{\"name\":\"f\",\"arguments\":\"a\"}}}}")
        }),
    ];
    for (before, after, unit) in lists {
        assert_linear_in("an answer", (before, after), unit, |text| {
            reads_answer(text.as_bytes(), AnswerKind::Json, None, TEXT_MAX);
        });
    }
}

#[test]
fn content_codings() {
    assert_linear("a body that is none", |text| {
        for encoding in [b"gzip".as_slice(), b"deflate", b"br", b"zstd"] {
            decode_body(Some(encoding), text.as_bytes(), TEXT_MAX, 100);
        }
    });
    assert_linear("its name", |text| {
        decode_body(Some(text.as_bytes()), b"body", TEXT_MAX, 100);
    });
    let compressed = |length: usize| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let text: String = (0..length / 8).map(|number| format!("{:08x}", number * 2_654_435_761)).collect();
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    for step in [1, TEXT_MAX] {
        let found = superlinear(compressed, |body: &Vec<u8>| {
            let (mut decoder, mut out) = (ContentDecoder::new(Some(b"gzip"), TEXT_MAX as u64, 100), Vec::new());
            assert!(body.chunks(step).all(|piece| decoder.feed(piece, &mut out).is_ok()));
        });
        assert_eq!(found, None, "gzip, {step} bytes at a time");
    }
}

/// Takes what it is given.
struct Relayed;

impl ChunkSink for Relayed {
    fn forward(&mut self, _: std::ops::Range<usize>) {}

    fn data(&mut self, _: std::ops::Range<usize>) {}
}

#[test]
fn heads_and_chunks() {
    for step in [1, TEXT_MAX] {
        assert_linear(&format!("a request's head, {step} bytes at a time"), |text| {
            let (mut scanner, mut buffer) = (HeadScanner::default(), BytesMut::new());
            let head = format!("GET / HTTP/1.1\r\nHost: x\r\n{text}");
            for piece in head.as_bytes().chunks(step) {
                buffer.extend_from_slice(piece);
                if scanner.request(&mut buffer).is_err() {
                    break;
                }
            }
        });
        assert_linear(&format!("chunks, {step} bytes at a time"), |text| {
            let mut scanner = ChunkedScanner::new(Side::Request);
            let body = format!("1\r\nx\r\n{text}");
            for piece in body.as_bytes().chunks(step) {
                if scanner.scan(piece, &mut Relayed).is_err() {
                    break;
                }
            }
        });
    }
    assert_linear("an answer's head", |text| {
        let mut buffer = BytesMut::from(format!("HTTP/1.1 200 {text}\r\nX: {text}\r\n{text}\r\n\r\n").as_bytes());
        drop(HeadScanner::default().response(&mut buffer, "GET"));
    });
    assert_linear_in(
        "chunks",
        ("", "0\r\n\r\n"),
        |_| "1\r\nx\r\n".to_owned(),
        |text| {
            assert!(ChunkedScanner::new(Side::Request).scan(text.as_bytes(), &mut Relayed).is_ok());
        },
    );
    assert_linear("the target", |text| {
        let path = format!("/v1/{text}");
        route(Some(text), &path, text);
        model_in_path(&path);
        model_in_path(&format!("/models/{text}:x"));
    });
}

#[test]
fn what_keeps_credentials_in() {
    let key = SharedSecret::new("a-bootstrap-key-of-32-characters".to_owned());
    let auth = Auth { enabled: true, admin_key: Some(key), token_key_file: None };
    let redaction = Redaction::new(&auth);
    assert_linear("a text that is written down", |text| redaction.mask_text(&mut text.to_owned()));
    assert_linear("a target", |text| {
        redaction.is_exposed(text);
    });
    for name in ["Authorization", "Cookie", "X-Whatever"] {
        assert_linear(name, |text| {
            redaction.keeps(name.as_bytes(), text.as_bytes());
            redaction.keeps(name.as_bytes(), format!("Basic {text}").as_bytes());
        });
    }
    assert_linear("credentials", |text| {
        let value = format!("Bearer {text}");
        Presented::read([(b"authorization".as_slice(), value.as_bytes()), (b"x-service-tenant-id", text.as_bytes())]);
    });
}

#[test]
fn tokens() {
    assert_linear("an estimate", |text| {
        estimate_tokens(text);
    });
    for family in [Family::O200k, Family::Cl100k] {
        assert_linear(family.vocabulary(), |text| {
            family.count(text);
        });
    }
}

#[test]
fn places_in_a_request() {
    for (before, word) in [("", "word "), ("\n", "word "), ("", "word\n"), ("", "wörd ")] {
        let request = |length: usize| {
            let said = [before, &word.repeat(length / word.len())].concat();
            serde_json::json!({ "messages": [{ "role": "user", "content": said }] }).to_string()
        };
        // Searching a string is fast: what that takes for each word shows in long ones.
        let found = superlinear_from(256 << 10, request, |body| {
            let view = read_request(Dialect::ChatCompletions, Declared::default(), body.as_bytes(), TEXT_MAX);
            let mut spotter = view.spotter(body.as_bytes());
            for (at, _) in view.text.match_indices('w') {
                assert!(spotter.spots(at..at + 1).is_some());
            }
        });
        assert_eq!(found, None, "{before:?}{word:?}");
    }
}

#[test]
fn splices() {
    assert_linear("an insertion", |text| {
        let body = Bytes::copy_from_slice(text.as_bytes());
        let mut edits = weir::rewrite::Edits::of(&body);
        edits.insert(body.len() / 2, body.clone()).unwrap();
        edits.apply();
    });
}

/// An export request in JSON whose one span has this in place of its attributes and events.
fn report(attributes: &str, events: &str) -> String {
    format!(
        r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"00f067aa0ba902b7","name":"chat","startTimeUnixNano":"1700000000000000000","endTimeUnixNano":"1700000001000000000","attributes":[{attributes}],"events":[{events}]}}]}}]}}]}}"#
    )
}

fn text_attribute(name: &str, text: &str) -> String {
    serde_json::json!({"key": name, "value": {"stringValue": text}}).to_string()
}

#[test]
fn reports() {
    let read = |request: &str| {
        weir::ingest::try_otlp(request.as_bytes(), true);
    };
    assert_linear("bytes of a report", |text| {
        weir::ingest::try_otlp(text.as_bytes(), true);
        weir::ingest::try_otlp(text.as_bytes(), false);
        weir::grpc::try_native(text.as_bytes());
    });
    for name in
        ["gen_ai.input.messages", "ai.response.toolCalls", "output.value", "gen_ai.tool.definitions", "anything"]
    {
        assert_linear(name, |text| read(&report(&text_attribute(name, text), "")));
    }
}

#[test]
fn reports_with_much_of_one_kind() {
    let read = |attributes: &str, events: &str| {
        weir::ingest::try_otlp(report(attributes, events).as_bytes(), true);
    };
    let number = |at: usize| if at == 0 { "" } else { "," };
    let listed = |name: &'static str| {
        move |at: usize| format!("{}{}", number(at), text_attribute(&format!("{name}{at}.message.content"), "hi"))
    };
    assert_linear_in(
        "attributes",
        ("", ""),
        |at| format!("{}{}", number(at), text_attribute(&format!("a{at}"), "b")),
        |text| read(text, ""),
    );
    assert_linear_in("names of a list", ("", ""), listed("llm.input_messages."), |text| read(text, ""));
    assert_linear_in(
        "one name",
        ("", ""),
        |at| format!("{}{}", number(at), text_attribute("gen_ai.prompt.0.content", "b")),
        |text| read(text, ""),
    );
    let event = |at: usize| {
        let attribute = text_attribute("content", "hi");
        format!(r#"{}{{"name":"gen_ai.user.message","timeUnixNano":"1","attributes":[{attribute}]}}"#, number(at))
    };
    assert_linear_in("events", ("", ""), event, |text| read("", text));
    // Calls that stand among the contents and beside them are kept once: each is compared with all of the others.
    let call = |at: usize| format!(r#"{}{{"type":"tool_call","id":"c{at}","name":"t","arguments":"a"}}"#, number(at));
    assert_linear_in("calls in a message", ("[", "]"), call, |calls| {
        let message = format!(r#"[{{"role":"assistant","content":{calls},"tool_calls":{calls}}}]"#);
        read(&text_attribute("gen_ai.output.messages", &message), "");
    });
    let tool =
        |at: usize| format!(r#"{}{{"type":"function","function":{{"name":"t{at}","parameters":{{}}}}}}"#, number(at));
    assert_linear_in("tools", ("[", "]"), tool, |tools| read(&text_attribute("gen_ai.tool.definitions", tools), ""));
}
