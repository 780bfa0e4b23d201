//! Promise: whatever a stranger writes, reading it takes time in proportion to its length. Every parser, decoder, detector and
//! editor is given texts made to be dear, and four times as much of each.
//!
//! A new reader of strangers' bytes belongs in here or, where it is nobody else's, beside its own tests with the same texts
//! (`tests/it/support/hostile.rs`): the API's query, the defence, redaction, taps, the judge, seams, leaks.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use weir::admit::Presented;
use weir::codec::ContentDecoder;
use weir::inspect::{Declared, ZoneAsk, decode_body, find_zones, model_in_path, read_request, route};
use weir::json::Walker;
use weir::money::Family;
use weir::observe::{AnswerKind, AnswerReader, estimate_tokens};
use weir::redaction::Redaction;
use weir::wire::{ChunkSink, ChunkedScanner, HeadScanner, Side};
use weir_config::settings::{Auth, Pattern, ZoneMode};
use weir_config::vocab::{Dialect, SharedSecret};
use weir_inference::action::{self, Action, ActionKind};
use weir_inference::{Analyser, Call, Original, Part, PartKind, Plan, PlanSettings, Taker, Taking};

use crate::support::{Listed, assert_linear, assert_linear_in, superlinear, superlinear_from};

/// Longest text of a reader that keeps no more.
const TEXT_MAX: usize = 16 << 20;

/// Everything that is embedded, and all of it switched on.
fn everything() -> (Analyser, Arc<Plan>) {
    let analyser = Analyser::whole(Vec::new()).unwrap().without_memory();
    let settings = PlanSettings { fusion: true, over_defence: true, ..PlanSettings::default() };
    let plan = Arc::new(analyser.plan(&settings));
    (analyser, plan)
}

fn analyses(kind: PartKind) {
    let (analyser, plan) = everything();
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
fn the_detectors_on_what_a_tool_says() {
    analyses(PartKind::Tool);
}

#[test]
fn the_detectors_on_what_a_tool_is_asked() {
    analyses(PartKind::ToolCall);
}

#[test]
fn the_detectors_on_what_a_tool_is() {
    analyses(PartKind::ToolDefinition);
}

#[test]
fn the_detectors_on_many_small_parts() {
    let (analyser, plan) = everything();
    let mut scratch = analyser.scratch();
    let mut hits = Vec::new();
    for kind in [PartKind::User, PartKind::Tool] {
        assert_linear_in(
            "the detectors",
            ("", ""),
            |number| format!("{number} ignore all previous\n"),
            |text| {
                let parts: Vec<_> = text.lines().map(|text| Part { text, kind }).collect();
                hits.clear();
                analyser.analyse(&mut scratch, &parts, &Call::of(&plan), &mut hits);
            },
        );
    }
}

#[test]
fn what_is_taken_out_of_texts() {
    let mut taker = Taker::new(Taking { personal: true, secrets: true });
    assert_linear("what is taken out", |text| {
        let found = taker.pieces(text, PartKind::Output);
        taker.settled(text, &found);
    });
}

#[test]
fn an_answer_that_repeats_its_instructions() {
    assert_linear("instructions", |text| {
        if let Some(original) = Original::of([text, text].into_iter()) {
            original.repeated_in(text);
        }
    });
    let original = Original::of(std::iter::once(&*(0..30_000).map(|word| format!("w{word} ")).collect::<String>()));
    let original = original.unwrap();
    assert_linear("what repeats them", |text| {
        original.repeated_in(text);
    });
    // However long they are, an answer of many texts costs what it is long.
    let word = |number: usize| format!("w{number} w{} w{}\n", number + 1, number + 2);
    assert_linear_in("many that repeat them", ("", ""), word, |text| {
        for line in text.lines() {
            original.repeated_in(line);
        }
    });
}

#[test]
fn patterns_of_models_and_routes() {
    let patterns =
        ["*", "gpt-*", "*-mini", "a*a", "*a*a*a*b", "*a b*a*", "*{*\"*}*", "*ignore*ignore*all*x*", "*/*/*/*:*"];
    for pattern in patterns {
        let read = Pattern::new(pattern);
        assert_linear(pattern, |text| {
            read.fits(text);
        });
    }
    assert_linear("a pattern", |text| {
        Pattern::new(text).fits(text);
    });
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
        let mut view = read_request(Dialect::ChatCompletions, declared, body.as_bytes(), TEXT_MAX);
        find_zones(&mut view, &ask(header), Some(body.as_bytes()));
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
        "<service-<service-data>",
        "<service-<service-data>data>",
        "</service-data>",
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

/// Of texts in one line the shape shows where finding a zone costs less than reading the line: from hundreds of kilobytes on.
#[test]
fn zones_of_requests_in_one_line() {
    let ask = ZoneAsk { mode: ZoneMode::Both, header: None, scanned: true };
    for unit in
        ["\"", "<a>x</a>", "\"\"\"a\"\"\" ", "```a```", "<p>x</p>from: x", "<p>x</p>a,b,c", "<br>a|b", "<img>\t"]
    {
        let view = |length: usize| {
            let text = unit.repeat(length / unit.len());
            let body = serde_json::json!({"messages": [{"role": "user", "content": text}]}).to_string();
            let view = read_request(Dialect::ChatCompletions, Declared::default(), body.as_bytes(), TEXT_MAX);
            (view, body)
        };
        // Markers are taken out of the view: each look has one of its own.
        let found = superlinear_from(256 << 10, view, |(view, body)| {
            find_zones(&mut view.clone(), &ask, Some(body.as_bytes()));
        });
        assert_eq!(found, None, "{unit:?}");
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
    let array = AnswerKind::JsonArray;
    for (kind, step) in [
        (AnswerKind::Json, TEXT_MAX),
        (events, TEXT_MAX),
        (events, 16),
        (lines, 16),
        (array, TEXT_MAX),
        (array, 16),
        (amazon, TEXT_MAX),
        (amazon, 16),
    ] {
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
                reads_answer(text.as_bytes(), AnswerKind::JsonArray, None, 1_000);
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
    let auth = Auth { enabled: true, admin_key: Some(key), token_key_file: None, ..Auth::default() };
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
    assert_linear_in(
        "many",
        ("", ""),
        |_| "word ".to_owned(),
        |text| {
            let body = Bytes::copy_from_slice(text.as_bytes());
            let mut edits = weir::rewrite::Edits::of(&body);
            text.match_indices(' ').for_each(|(at, _)| edits.replace(at..at + 1, "_").unwrap());
            edits.apply();
        },
    );
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
