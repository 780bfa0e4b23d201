//! Memory as a promise: each step that touches strangers' text takes memory in proportion to it, whatever it repeats and with everything
//! switched on. What the steps may take together is what `server.max_body_memory_bytes` is charged (`docs/decisions/memory.md`).

use std::io::Write as _;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use bytes::Bytes;
use serde_json::json;
use weir_config::Settings;
use weir_config::settings::{MarkerKind, PiiAction, ZoneMode};
use weir_config::vocab::{Dialect, Operation, Provider, SpanId, TenantId, Timestamp, TraceId};
use weir_inference::{Analyser, Call, Original, Plan, PlanSettings, Taking};
use weir_storage::record::SpanRecord;

use crate::api::SpanShown;
use crate::defence::{Ask, Shape, weave};
use crate::ingest::otlp::{Unreadable, read_json, read_protobuf, weight};
use crate::inspect::{Declared, RequestView, Takes, ZoneAsk, decode_body, find_zones, find_zones_by, read_request};
use crate::observe::{Answer, AnswerKind, AnswerReader};
use crate::output::redacts;
use crate::peak::{Bound, Whose, assert_bounded, assert_bounded_in, assert_bounded_of, peak_of};
use crate::record::{Budget, CallIds, blank};
use crate::rewrite::Edits;
use crate::settle::inspection::{How, Texts, run};
use crate::settle::masking::{Masking, Means};
use crate::settle::publish::MaskedWithin;
use crate::settle::redact::redaction;
use crate::settle::text::{Goes, RawBody, read_raw};
use crate::texts::hostile;

static ANALYSER: LazyLock<Analyser> = LazyLock::new(|| Analyser::builtin().unwrap().without_memory());
static PLAN: LazyLock<Arc<Plan>> = LazyLock::new(|| Arc::new(ANALYSER.plan(&PlanSettings::default())));

/// Everything that changes what is sent or kept.
fn everything() -> Settings {
    let mut settings = Settings { pii_action: PiiAction::AlertAndRedact, ..Settings::default() };
    settings.storage.mask_secrets = true;
    settings.security_analysis.zones.enabled = true;
    settings.security_analysis.zones.mode = ZoneMode::Both;
    settings.boundary_defense.enabled = true;
    let marking = &mut settings.boundary_defense.datamarking;
    (marking.enabled, marking.shadow_mode) = (true, false);
    (marking.kind, marking.value) = (MarkerKind::Fixed, Some('\u{e0f0}'));
    settings
}

fn view_of(body: &[u8], content_type: Option<&str>) -> Box<RequestView> {
    let declared = Declared { content_type: content_type.map(str::as_bytes), ..Declared::default() };
    read_request(Dialect::ChatCompletions, declared, body, usize::MAX)
}

fn fenced(body: &[u8]) -> Box<RequestView> {
    let mut view = view_of(body, None);
    find_zones(&mut view, &ZoneAsk { mode: ZoneMode::Both, header: None, scanned: true }, Some(body));
    view
}

/// A user's message and a tool's, as a body.
fn body_of(text: &str) -> Bytes {
    let half = text.floor_char_boundary(text.len() / 2);
    let (before, after) = text.split_at(half);
    let messages = json!([
        {"role": "user", "content": before},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": after},
    ]);
    Bytes::from(json!({ "messages": messages }).to_string())
}

fn bodies(family: usize, length: usize) -> Bytes {
    body_of(&hostile(family, length))
}

#[test]
fn reading_requests() {
    for (name, content_type) in [
        ("something", None),
        ("JSON", Some("application/json")),
        ("a form", Some("multipart/form-data; boundary=x")),
        ("fields", Some("application/x-www-form-urlencoded")),
        ("a text", Some("text/plain")),
    ] {
        // What a form's many fields take is bounded by their number, not by the text.
        assert_bounded(name, Bound::mine(16, 8 << 20), |text| {
            view_of(text.as_bytes(), content_type);
        });
    }
    assert_bounded_in("messages", Bound::mine(24, 1 << 20), bodies, |body| {
        view_of(body, None);
    });
    let escaped = |family, length| format!("{{\"messages\":[\"{}\"]}}", hostile(family, length));
    assert_bounded_in("an escaped text", Bound::mine(16, 1 << 20), escaped, |body| {
        view_of(body.as_bytes(), None);
    });
}

#[test]
fn many_small_texts() {
    let units: [fn(usize) -> String; 6] = [
        |number| format!(",{{\"role\":\"user\",\"content\":\"a{number}\"}}"),
        |number| {
            format!(
                ",{{\"role\":\"assistant\",\"tool_calls\":[{{\"id\":\"{number}\",\"function\":{{\"name\":\"f\",\"arguments\":\"{{}}\"}}}}]}}"
            )
        },
        |number| format!(",{{\"role\":\"tool\",\"tool_call_id\":\"{number}\",\"content\":\"b\"}}"),
        |_| ",\"a\"".to_owned(),
        |_| ",{}".to_owned(),
        |_| ",1".to_owned(),
    ];
    for unit in units {
        let body = |length: usize| {
            let mut body = "{\"messages\":[0".to_owned();
            for number in 0.. {
                if body.len() >= length {
                    break;
                }
                body.push_str(&unit(number));
            }
            body + "]}"
        };
        assert_bounded_of(&format!("a list of {:?}", unit(7)), Bound::mine(48, 1 << 20), body, |body| {
            fenced(body.as_bytes());
        });
    }
}

#[test]
fn decoding_bodies() {
    let gzip = |family, length| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(hostile(family, length).as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    assert_bounded_in("gzip", Bound::mine(4, 1 << 20), gzip, |body| {
        decode_body(Some(b"gzip"), body, 1 << 30, 10_000);
    });
}

#[test]
fn zones_and_fences() {
    assert_bounded_in("zones", Bound::mine(32, 1 << 20), bodies, |body| {
        fenced(body);
    });
    let settings = everything();
    assert_bounded_in("fences, marks and tags", Bound::mine(160, 1 << 20), bodies, |body| {
        let view = fenced(body);
        let mut changes = redaction(&view, Some(body), &[], None);
        if let Some(ask) = Ask::of(&settings, Some(Shape::Chat)) {
            weave(&view, Some(body), &ask, &mut changes);
        }
        let mut edits = Edits::of(body);
        assert_eq!(changes.put(&mut edits), 0);
        edits.apply();
    });
}

fn answered(kind: AnswerKind, body: &[u8]) -> Answer {
    let mut reader = AnswerReader::new(kind, None, 1 << 30);
    body.chunks(1_000).for_each(|piece| reader.feed(piece));
    reader.finish()
}

/// An answer in pieces of so many bytes, as events.
fn streamed(text: &str, bytes: usize) -> Bytes {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.ceil_char_boundary(bytes.min(rest.len())));
        let delta = json!({ "choices": [{ "index": 0, "delta": { "content": piece } }] });
        out.push_str(&format!("data: {delta}\n\n"));
        rest = after;
    }
    Bytes::from(out)
}

fn document(family: usize, length: usize) -> Bytes {
    let text = hostile(family, length);
    let message = json!({ "role": "assistant", "content": text });
    Bytes::from(json!({ "choices": [{ "index": 0, "message": message }] }).to_string())
}

#[test]
fn reading_answers() {
    assert_bounded_in("a document", Bound::mine(24, 1 << 20), document, |body| {
        answered(AnswerKind::Json, body);
    });
    let events = |family, length| streamed(&hostile(family, length), 64);
    assert_bounded_in("events", Bound::mine(8, 1 << 20), events, |body| {
        answered(AnswerKind::EventStream, body);
    });
    for kind in [AnswerKind::Json, AnswerKind::EventStream, AnswerKind::JsonLines, AnswerKind::AmazonEvents] {
        assert_bounded(&format!("{kind:?}"), Bound::mine(8, 1 << 20), |text| {
            answered(kind, text.as_bytes());
        });
    }
}

#[test]
fn redacting_answers() {
    let taking = Taking { personal: true, secrets: true };
    assert_bounded_in("a redacted document", Bound::mine(64, 1 << 20), document, |body| {
        redacts(body, taking, None);
    });
}

fn ids() -> CallIds {
    CallIds {
        tenant_id: TenantId::DEFAULT,
        trace_id: TraceId::fresh(),
        span_id: SpanId::fresh(),
        parent_span_id: None,
        agent_id: None,
        session_id: None,
        client: None,
        provider: Provider::named("openai"),
        priced_as: None,
        operation: Operation::ChatCompletion,
        path_model: None,
        start_time: Timestamp::now(),
    }
}

/// The record of a request and what was found in it.
fn recorded(body: &[u8]) -> Box<SpanRecord> {
    let view = fenced(body);
    let how = How { call: Call::of(&PLAN), text_max: usize::MAX };
    let texts = Texts { request: Some(&view), answer: None, before: 0, context: None };
    let findings = run(&ANALYSER, &mut ANALYSER.scratch(), &texts, &how).unwrap().findings;
    let mut span = blank(&ids());
    let (text, parts) = view.into_record();
    (span.prompt, span.parts, span.security_findings) = (Some(text), parts, findings);
    span
}

#[test]
fn records() {
    assert_bounded_in("an inspected record", Bound::mine(32, 8 << 20), bodies, |body| {
        recorded(body);
    });
    let masking = Masking::of(&everything());
    let bodies_max = Budget::new(1 << 40, false);
    let made = |family, length| recorded(&bodies(family, length));
    assert_bounded_in("a masked record", Bound::mine(16, 2 << 20), made, |span| {
        let means = Means { deadline: None, bodies: &bodies_max, longest: usize::MAX };
        masking.apply(&mut span.clone(), &means);
    });
    // Each finding has a dozen named fields; there are no more than so many of them.
    assert_bounded_in("a shown record", Bound::mine(96, 24 << 20), made, |span| {
        serde_json::to_vec(&serde_json::to_value(SpanShown::of(span)).unwrap()).unwrap();
    });
}

/// A text as the value of an attribute, as JSON.
fn reported(attributes: impl Iterator<Item = (String, String)>) -> String {
    let attributes: Vec<_> =
        attributes.map(|(key, text)| json!({ "key": key, "value": { "stringValue": text } })).collect();
    let span = json!({
        "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331", "name": "chat",
        "startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000", "attributes": attributes,
    });
    json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": [span] }] }] }).to_string()
}

#[test]
fn reports() {
    let text = |family, length| reported(std::iter::once(("gen_ai.prompt".to_owned(), hostile(family, length))));
    assert_bounded_in("a reported text", Bound::mine(24, 1 << 20), text, |body| {
        read_json(body.as_bytes(), &mut |_| true).unwrap();
    });
    assert_bounded("a report", Bound::mine(24, 1 << 20), |text| {
        drop(read_json(text.as_bytes(), &mut |_| true));
        drop(read_protobuf(text.as_bytes(), &mut |_| true));
    });
}

/// What a report with many values takes is no more than what it is charged.
#[test]
fn many_values_of_reports() {
    for count in [1_000, 10_000, 100_000] {
        let body = reported((0..count).map(|number| (format!("key.{number}"), "a".to_owned())));
        let mut charged = body.len() + weight(body.as_bytes());
        let mut room = |bytes| {
            charged += bytes;
            true
        };
        let peak = peak_of(Whose::Mine, || read_json(body.as_bytes(), &mut room).unwrap());
        println!("{count} attributes as JSON: {peak} bytes, {charged} charged");
        assert!(peak <= charged, "{count}: {peak} bytes, {charged} charged");

        let attribute = |number: usize| {
            let key = format!("key.{number}");
            let mut pair = vec![0x0a, key.len() as u8];
            pair.extend(key.as_bytes());
            pair.extend([0x12, 3, 0x0a, 1, b'a']);
            [vec![0x4a, pair.len() as u8], pair].concat()
        };
        let field = |number: u8, inside: Vec<u8>| {
            let (mut out, mut left) = (vec![number << 3 | 2], inside.len());
            while left >= 0x80 {
                out.push(left as u8 | 0x80);
                left >>= 7;
            }
            out.push(left as u8);
            [out, inside].concat()
        };
        let span: Vec<u8> = (0..count).flat_map(attribute).collect();
        let body = field(1, field(2, field(2, span)));
        let mut charged = body.len();
        let mut room = |bytes| {
            charged += bytes;
            true
        };
        let peak = peak_of(Whose::Mine, || read_protobuf(&body, &mut room).unwrap());
        println!("{count} attributes as protobuf: {peak} bytes, {charged} charged");
        assert!(peak <= charged, "{count}: {peak} bytes, {charged} charged");
        assert!(matches!(read_protobuf(&body, &mut |_| false), Err(Unreadable::NoRoom)));
    }
}

/// What jobs of the pool consist of (`docs/decisions/deadlines.md`): each step ends when the time for it is over, and says so.
#[test]
fn each_step_of_a_job_ends_with_its_deadline() {
    let late = Some(Instant::now());
    let text = "```\nWrite to anna@example.com about the order.\n```\n".repeat(20_000);
    let body = body_of(&text);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    encoder.write_all(&body).unwrap();
    let raw = RawBody {
        body: Bytes::from(encoder.finish().unwrap()),
        takes: Takes::Json,
        content_type: None,
        content_encoding: Some(Bytes::from_static(b"gzip")),
        repeated: None,
        truncated: false,
        zones: None,
    };
    let room = Budget::new(1 << 40, false);
    let read = |until| read_raw(Dialect::ChatCompletions, &raw, Goes::Changed, 1 << 30, (&room, until));
    assert_eq!((read(late).is_late, read(late).view.unreadable), (true, Some("not decoded in time")));
    assert_eq!((read(None).is_late, read(None).view.unreadable), (false, None));

    let declared = Declared { until: late, ..Declared::default() };
    let view = read_request(Dialect::ChatCompletions, declared, &body, usize::MAX);
    assert_eq!((view.unreadable, view.truncated, view.is_cut), (Some("not read in time"), true, true));

    let ask = ZoneAsk { mode: ZoneMode::Both, header: None, scanned: true };
    let zones = |deadline| {
        let mut view = view_of(&body, None);
        find_zones_by(&mut view, &ask, Some(&body), deadline);
        view.zones.map_or(0, |zones| zones.list.len())
    };
    assert!(zones(late) == 0 && zones(None) > 0);

    let view = fenced(&body);
    assert!(redaction(&view, Some(&body), &[], late).is_late && !redaction(&view, Some(&body), &[], None).is_late);

    let said = Bytes::from(json!({ "choices": [{ "message": { "content": text } }] }).to_string());
    let taking = Taking { personal: true, secrets: true };
    assert_eq!([late, None].map(|deadline| redacts(&said, taking, deadline)), [false, true]);

    // As many separate texts as an answer's reader keeps.
    let words = "a word ".repeat(100);
    let items: Vec<_> =
        (0..500).map(|number| json!({ "message": { "content": format!("{number} {words}") } })).collect();
    let long = json!({ "choices": items }).to_string();
    let answer = |deadline| {
        let mut reader = AnswerReader::new(AnswerKind::Json, None, 1 << 30);
        reader.feed(long.as_bytes());
        reader.finish_by(deadline).unread.is_empty()
    };
    assert_eq!([late, None].map(answer), [false, true]);

    let words: String = (0..100_000).map(|number| format!("w{number} ")).collect();
    let original = Original::of(std::iter::once(words.as_str())).unwrap();
    let share = |deadline| original.repeated_by(&words, deadline).map_or(0.0, |found| found.share);
    assert!(share(late) < 0.5 && share(None) > 0.9);

    let how = |deadline| How { call: Call { deadline, ..Call::of(&PLAN) }, text_max: usize::MAX };
    let texts = Texts { request: Some(&view), answer: None, before: 0, context: None };
    let cut = |deadline| run(&ANALYSER, &mut ANALYSER.scratch(), &texts, &how(deadline)).unwrap().ran.cut;
    assert_eq!([late, None].map(cut), [true, false]);

    let mut span = recorded(&body);
    let means = Means { deadline: late, bodies: &room, longest: usize::MAX };
    Masking::of(&everything()).apply(&mut span, &means);
    assert_eq!((span.prompt.as_deref(), &*span.tags["masking_incomplete"]), (Some("[NOT_KEPT]"), "request"));
}

/// What the pool had no room for is done on a core, which is not held up: a long text is not masked there, and not kept.
#[test]
fn what_is_masked_on_a_core_is_short() {
    let room = Budget::new(1 << 40, false);
    let masked = |length: usize| {
        let mut span = recorded(&body_of(&"a@example.com ".repeat(length / 14)));
        let MaskedWithin { deadline, longest } = MaskedWithin::SHORT;
        Masking::of(&everything()).apply(&mut span, &Means { deadline, bodies: &room, longest });
        span.prompt.unwrap_or_default()
    };
    assert!(masked(4 << 10).contains("[PII:EMAIL]"));
    assert_eq!(masked(256 << 10), "[NOT_KEPT]");
}
