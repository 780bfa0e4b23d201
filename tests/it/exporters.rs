//! Promise: what exporters of OpenTelemetry send is taken in or refused here, in the form they read, and goes to no provider while spans
//! are taken in; a span is found by the id under which it was exported.

use serde_json::{Value, json};

use crate::ingest::{INGEST, post, request, span};
use crate::support::{
    AUTH, Answer, Call, Driver, Setup, Upstream, call, chat_call, eventually, otlp_spans, provider, weir,
};

const PROTOBUF: &str = "application/x-protobuf";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A `google.rpc.Status` in protobuf: its code and its message.
fn status(answer: &Answer) -> (u8, String) {
    assert_eq!(answer.header("content-type").as_deref(), Some(PROTOBUF), "{}", answer.text());
    let [0x08, code, 0x12, rest @ ..] = &answer.body[..] else { panic!("no status: {:?}", answer.body) };
    let (length, at) = if rest[0] < 0x80 {
        (usize::from(rest[0]), 1)
    } else {
        (usize::from(rest[0] & 0x7f) | usize::from(rest[1]) << 7, 2)
    };
    assert_eq!(rest.len(), at + length);
    (*code, String::from_utf8(rest[at..].to_vec()).unwrap())
}

#[test]
fn no_path_of_an_exporter_is_forwarded_while_spans_are_taken_in() {
    let upstream = Upstream::always(OK);
    let setup = Setup::new(Driver::Auto).upstream(upstream.url()).unlimited();
    let gateway = setup.clone().with(INGEST).start();
    for path in [
        "/v1/metrics",
        "/v1/logs",
        "/v1/metrics/",
        "/v1/logs/?x=1",
        "/v1/traces/",
        "//v1/traces",
        "/v1/v1/traces",
        "/V1/Traces",
        "/otlp/v1/logs",
        "/api/public/otel/v1/traces",
        "/v1development/profiles",
        "/v1/profiles",
    ] {
        let bare = path.split('?').next().unwrap();
        for method in ["POST", "PUT", "GET", "OPTIONS"] {
            let answer =
                call(gateway.addr, Call::with_method(method, path, "{}").content_type("application/json").bytes());
            let body = answer.json();
            assert_eq!((answer.status, &body["error"]["type"]), (404, &json!("not_found")), "{method} {path}");
            let message = body["message"].as_str().unwrap();
            assert_eq!((&body["code"], &body["error"]["message"]), (&json!(5), &json!(message)), "{method} {path}");
            assert!(message.contains(&format!("`{bare}`")) && message.contains("OTEL_METRICS_EXPORTER"), "{message}");
        }
        for media in [PROTOBUF, "application/protobuf; v=1"] {
            let answer = call(gateway.addr, Call::post(path, "\n\0").content_type(media).bytes());
            let (code, message) = status(&answer);
            assert_eq!((answer.status, code), (404, 5), "{path}");
            assert!(message.contains(bare), "{message}");
        }
        let other = call(gateway.addr, Call::post(path, "x").content_type("text/plain").bytes());
        assert_eq!((other.status, &other.json()["error"]["type"]), (404, &json!("not_found")), "{path}");
    }
    // One that is given an address without a path sends to `/`.
    for name in [
        "OTel-OTLP-Exporter-Python/1.45.2",
        "OTel OTLP Exporter Go/1.38.0",
        "OpenTelemetry Collector/0.9 (linux/amd64)",
    ] {
        let sent = Call::post("/", "\n\0").content_type(PROTOBUF).field("User-Agent", name);
        assert_eq!(call(gateway.addr, sent.bytes()).status, 404, "{name}");
    }
    assert_eq!(upstream.requests().len(), 0);
    // What only looks like it is the provider's.
    for path in ["/v1/metricsx", "/v1/traces/1", "/v1/files/logs", "/"] {
        assert_eq!(call(gateway.addr, Call::post(path, "{}").bytes()).status, 200, "{path}");
    }
    // Where nothing is taken in, spans are refused here all the same; the other paths are the provider's as any.
    let plain = setup.start();
    let refused = call(plain.addr, Call::post("/v1/traces", "\n\0").content_type(PROTOBUF).bytes());
    assert_eq!(refused.status, 404);
    assert!(status(&refused).1.contains("otel_ingest.enabled"));
    for path in ["/v1/metrics", "/v1/logs", "/v1/traces/"] {
        assert_eq!(call(plain.addr, Call::post(path, "{}").bytes()).status, 200, "{path}");
    }
}

#[test]
fn what_is_refused_of_spans_is_told_in_the_form_of_the_request() {
    let upstream = Upstream::always(OK);
    let gateway = Setup::new(Driver::Auto).upstream(upstream.url()).unlimited().with(INGEST).with(AUTH).start();
    let (_, viewer) = gateway.key(&gateway.tenant("acme"), "viewer");
    for (key, expected, code) in [("", 401, 16), (viewer.as_str(), 403, 7)] {
        let with = |sent: Call| if key.is_empty() { sent } else { sent.key(key) };
        let answer = call(gateway.addr, with(Call::post("/v1/traces", "\n\0").content_type(PROTOBUF)).bytes());
        assert_eq!((answer.status, status(&answer).0), (expected, code));
        let answer = call(gateway.addr, with(post("{}")).bytes());
        assert_eq!((answer.status, &answer.json()["code"]), (expected, &json!(code)));
        assert_eq!(answer.json()["message"], answer.json()["error"]["message"]);
    }
    let (_, key) = gateway.key(&gateway.tenant("acme"), "operator");
    let spans = request(&json!([span("00f067aa0ba902b7", &json!({"gen_ai.request.model": "gpt-4o"}))])).to_string();
    for (sent, expected) in [
        (Call::post("/v1/traces", spans.clone()).content_type("Application/JSON; charset=utf-8"), 200),
        (Call::post("/v1/traces?x=1", "").content_type(PROTOBUF), 200),
        (Call::post("/v1/traces", spans.clone()).content_type("text/plain"), 415),
        (Call::post("/v1/traces", "{").content_type("application/json"), 400),
        (Call::get("/v1/traces"), 405),
        (Call::with_method("PUT", "/v1/traces", spans).content_type("application/json"), 405),
    ] {
        let answer = call(gateway.addr, sent.clone().key(&key).bytes());
        assert_eq!(answer.status, expected, "{sent:?}: {}", answer.text());
    }
    assert_eq!(upstream.requests().len(), 0);
}

/// Alone in its trace, and below a caller's span.
#[test]
fn a_span_is_found_by_the_id_it_was_exported_under() {
    let (provider, receiver) = (provider(), Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    let export = format!("otel_export: {{enabled: true, receivers: [{{endpoint: '{}'}}]}}", receiver.url());
    let gateway = Setup::new(Driver::Auto).upstream(provider.url()).unlimited().with(&export).start();
    let below =
        chat_call("And of Spain?").field("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    for asked in [chat_call("What is the capital of France?"), chat_call("And of Italy?"), below] {
        assert_eq!(call(gateway.addr, asked.bytes()).status, 200);
    }
    let spans = eventually("the spans come", || {
        let spans: Vec<_> = receiver.requests().iter().flat_map(otlp_spans).collect();
        (spans.len() == 3).then_some(spans)
    });
    let database = gateway.folder().join("weir.db");
    let show = |id: &str| {
        let output =
            weir(&["traces", "show", "--json", "--database", database.to_str().unwrap(), id]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    for span in &spans {
        let own = span.get("weir.span.id");
        for id in [span.id.as_str(), own.as_str().unwrap()] {
            assert_eq!(gateway.json(&format!("/api/v1/spans/{id}"))["span_id"], own, "{id}");
            let (code, shown) = show(id);
            assert_eq!(code, Some(0), "{id}: {shown}");
            let trace: Value = serde_json::from_str(&shown).unwrap();
            assert_eq!(trace["trace_id"].as_str().unwrap().replace('-', ""), span.trace, "{id}");
        }
    }
    let answer = call(gateway.addr, Call::get("/api/v1/spans/00000000000000ff").bytes());
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (404, &json!("not_found")));
    let (code, said) = show("00000000000000ff");
    assert!(code == Some(1) && said.contains("no trace or span 00000000000000ff of any tenant"), "{said}");
    let (code, said) = show("00f067");
    assert!(code == Some(2) && said.contains("16 hexadecimal digits"), "{said}");
}
