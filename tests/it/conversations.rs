//! Promise: a trace shows the conversation, whatever the dialect: who said what, in the order of the wire, and what was found where.

use serde_json::{Value, json};

use crate::support::{AUTH, BOOTSTRAP, Call, Driver, Setup, Upstream, call, on_both_drivers_in_full};

/// The cases: a request, the provider's answer, and the conversation in one line per message.
pub(crate) fn cases() -> Vec<Value> {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/data/conversations.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// `side role index: type(name, call id) text | ...`, a file by its type, a finding as `!`.
pub(crate) fn told(span: &Value) -> Vec<String> {
    let part = |part: &Value| {
        let word = |name: &str| part[name].as_str().map(str::to_owned);
        let about: Vec<String> = [word("name"), word("call_id")].into_iter().flatten().collect();
        let about = if about.is_empty() { String::new() } else { format!("({})", about.join(", ")) };
        let file =
            part["file"]["media_type"].as_str().map(|media_type| format!("{media_type} {}", part["file"]["bytes"]));
        let text = word("text").or(file).unwrap_or_else(|| "-".to_owned());
        let found = if part["findings"].as_array().unwrap().is_empty() { "" } else { "!" };
        format!("{}{about}{found} {}", part["type"].as_str().unwrap(), text.replace('\n', "/"))
    };
    let message = |message: &Value| {
        let parts: Vec<String> = message["parts"].as_array().unwrap().iter().map(part).collect();
        let index = message["index"].as_u64().map(|index| format!(" {index}")).unwrap_or_default();
        format!(
            "{} {}{index}: {}",
            message["side"].as_str().unwrap(),
            message["role"].as_str().unwrap(),
            parts.join(" | ")
        )
    };
    span["messages"].as_array().unwrap().iter().map(message).collect()
}

/// What the provider answers in a case: one document, or a stream of events.
fn answer_of(case: &Value) -> (&'static str, String) {
    let Some(events) = case["stream"].as_array() else { return ("application/json", case["answer"].to_string()) };
    let frame = |event: &Value| match (event.as_str(), event["type"].as_str()) {
        (Some(word), _) => format!("data: {word}\n\n"),
        (None, Some(name)) => format!("event: {name}\ndata: {event}\n\n"),
        (None, None) => format!("data: {event}\n\n"),
    };
    ("text/event-stream", events.iter().map(frame).collect())
}

on_both_drivers_in_full! {
    fn every_dialect_shows_its_conversation(driver) {
        let upstream = Upstream::play(|peer| {
            while let Some(request) = peer.request() {
                let asked: Value = serde_json::from_slice(&request.body).unwrap();
                let is_it = |case: &Value| {
                    case["path"].as_str() == Some(request.path.as_str()) && case["stream"].is_array() == (asked["stream"] == true)
                };
                let case = cases().into_iter().find(is_it).unwrap();
                let (kind, body) = answer_of(&case);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
                peer.say([head.as_bytes(), body.as_bytes()].concat().as_slice());
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut wrong = Vec::new();
        for case in cases() {
            let answer = call(gateway.addr, Call::post(case["path"].as_str().unwrap(), case["request"].to_string()).bytes());
            let span = gateway.span_of(&answer);
            let found = told(&span);
            if json!(found) != case["told"] {
                wrong.push(format!("{}:\n{}", case["path"], serde_json::to_string_pretty(&found).unwrap()));
            }
            // Lists stay as they were.
            let listed = gateway.json("/api/v1/spans?limit=1");
            assert!(listed["data"][0].get("messages").is_none());
            let one = gateway.json(&format!("/api/v1/spans/{}", span["span_id"].as_str().unwrap()));
            assert_eq!(one, span);
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

#[test]
fn a_trace_is_deleted_by_an_admin_and_the_audit_log_says_so() {
    let provider = crate::support::provider();
    let gateway = Setup::new(Driver::Auto).upstream(provider.url()).with(AUTH).start();
    let ask = |asked: Call| call(gateway.addr, asked.key(BOOTSTRAP).bytes());
    let answer = ask(crate::support::chat_call("hello"));
    let path = format!("/api/v1/traces/{}", answer.trace_id());
    let status = |asked: Call| ask(asked).status;
    crate::support::eventually("the trace can be read", || (status(Call::get(&path)) == 200).then_some(()));
    assert_eq!(status(Call::delete(&path)), 204);
    assert_eq!((status(Call::get(&path)), status(Call::delete(&path))), (404, 404));
    let audit = ask(Call::get("/api/v1/audit")).json();
    let deleted: Vec<&Value> =
        audit["data"].as_array().unwrap().iter().filter(|line| line["action"] == "trace.delete").collect();
    assert_eq!(deleted.len(), 1);
    assert_eq!((&deleted[0]["target"], &deleted[0]["actor"]), (&json!(answer.trace_id()), &json!("bootstrap")));
}
