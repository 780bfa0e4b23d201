//! Promise: a conversation of an agent with its tools goes through redaction, boundary and marks together, and `docs/rewriting.md`
//! shows what the provider gets.

use std::path::Path;

use serde_json::Value;

use crate::support::{Call, Driver, Gateway, ServerHandle, Setup, call, on_both_drivers_in_full, provider};

const SETTINGS: &str = "pii: {action: alert_and_redact}\nboundary_defense: {enabled: true, datamarking: {enabled: true, \
    shadow_mode: false, marker_strategy: {kind: fixed, value: U+E0F0}}}";
const MARK: char = '\u{e0f0}';
/// What the files of the conversation say of people, and the tags for it.
const PERSONAL: [(&str, &str); 6] = [
    ("lena.hofer@example.com", "[PII:EMAIL]"),
    ("raj.patel@example.org", "[PII:EMAIL]"),
    ("mia.novak@example.net", "[PII:EMAIL]"),
    ("shop@example.com", "[PII:EMAIL]"),
    ("+43 660 1234567", "[PII:INTL_PHONE]"),
    ("4111 1111 1111 1111", "[PII:CREDIT_CARD]"),
];

fn path(of: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

/// What Claude Code sent in each turn of a task with tools, as `tests/clients/record_agent.py` recorded it.
pub(crate) fn turns() -> Vec<String> {
    let packed = std::fs::read(path("tests/it/data/agent_turns.jsonl.zst")).unwrap();
    let lines = String::from_utf8(zstd::stream::decode_all(&packed[..]).unwrap()).unwrap();
    lines.lines().map(str::to_owned).collect()
}

fn received(gateway: &Gateway, provider: &ServerHandle, body: &str) -> String {
    let answer = call(gateway.addr, Call::post("/v1/messages", body.to_owned()).bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    String::from_utf8(provider.take_received().remove(0).request.body).unwrap()
}

/// The text of a tool's result as it has to go on.
fn fenced(text: &str) -> String {
    let redacted = PERSONAL.iter().fold(text.to_owned(), |text, (word, tag)| text.replace(word, tag));
    let closed = redacted.replace("</service-boundary>", "&lt;/service-boundary>");
    let marked: String = closed.chars().map(|c| if c.is_whitespace() { MARK } else { c }).collect();
    format!("<service-boundary>\n{marked}\n</service-boundary>")
}

/// The same request with what has to be changed in it changed; where the reminder stands it is left out.
fn expected(mut request: Value) -> Value {
    for message in request["messages"].as_array_mut().unwrap() {
        for block in message["content"].as_array_mut().into_iter().flatten() {
            if block["type"] == "tool_result" {
                block["content"] = fenced(block["content"].as_str().unwrap()).into();
            }
        }
    }
    request
}

/// A message as JSON on one line, markers as a person can see them, and long texts without their middle.
fn shown(message: &Value) -> String {
    fn shorten(value: &mut Value) {
        match value {
            Value::String(text) => {
                let letters: Vec<char> = text.chars().collect();
                if letters.len() > 400 {
                    let (head, tail) = (&letters[..240], &letters[letters.len() - 120..]);
                    *text = format!("{} [...] {}", head.iter().collect::<String>(), tail.iter().collect::<String>());
                }
            }
            Value::Array(items) => items.iter_mut().for_each(shorten),
            Value::Object(members) => members.values_mut().for_each(shorten),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut message = message.clone();
    shorten(&mut message);
    message.to_string().replace(MARK, "\u{b7}")
}

on_both_drivers_in_full! {
    fn an_agents_conversation_is_what_the_document_shows(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).with(SETTINGS).start();
        let before = turns().pop().unwrap();
        let after = received(&gateway, &provider, &before);
        let (sent, mut got): (Value, Value) = (serde_json::from_str(&before).unwrap(), serde_json::from_str(&after).unwrap());
        let reminded = got["system"][0]["text"].as_str().unwrap().to_owned();
        let (reminder, own) = reminded.split_once("\n\n").unwrap();
        assert!(reminder.contains("<service-boundary>") && reminder.contains("U+E0F0"), "{reminder}");
        got["system"][0]["text"] = own.into();
        assert_eq!(got, expected(sent.clone()), "nothing else is changed");
        let changed: Vec<usize> = (0..47).filter(|at| sent["messages"][at] != got["messages"][at]).collect();
        assert_eq!((sent["messages"].as_array().unwrap().len(), changed.len()), (47, 21));
        assert_eq!(received(&gateway, &provider, &before), after, "with a fixed marker each turn begins like the one before");

        let document = std::fs::read_to_string(path("docs/rewriting.md")).unwrap();
        let figures = format!("{} bytes came, {} bytes went on", before.len(), after.len());
        let lines = changed.iter().map(|at| shown(&got["messages"][at]));
        let lines: Vec<String> = [figures, reminder.replace(MARK, "\u{b7}")].into_iter().chain(lines).collect();
        let missing: String = lines.iter().filter(|line| !document.contains(*line)).map(|line| format!("{line}\n")).collect();
        assert!(missing.is_empty(), "docs/rewriting.md lacks:\n{missing}");
    }
}

#[test]
fn turn_by_turn_each_call_begins_like_the_one_before() {
    let provider = provider();
    let gateway = Setup::new(Driver::Auto).upstream(provider.url()).with(SETTINGS).start();
    let mut before: Option<(Vec<Value>, Value)> = None;
    let turns = turns();
    assert_eq!(turns.len(), 22);
    for body in turns {
        let mut got: Value = serde_json::from_str(&received(&gateway, &provider, &body)).unwrap();
        let mut messages = got["messages"].as_array_mut().map(std::mem::take).unwrap();
        // The agent moves a mark for the provider's cache to the newest message, and it can stand nowhere else.
        messages.iter_mut().for_each(|message| without_cache_marks(&mut message["content"]));
        let system = got["system"].take();
        // The reminder comes with the first result of a tool; what went before that begins otherwise.
        let Some((earlier, earlier_system)) = before.replace((messages.clone(), system.clone())) else { continue };
        assert_eq!(messages.get(..earlier.len()), Some(&earlier[..]), "the provider's cache of the prompt is lost");
        if earlier.len() > 3 {
            assert_eq!(system, earlier_system);
        }
    }
}

fn without_cache_marks(content: &mut Value) {
    for block in content.as_array_mut().into_iter().flatten() {
        block.as_object_mut().unwrap().remove("cache_control");
    }
}

/// Ways to rewrite the conversation, from none to all.
fn ways() -> [(&'static str, &'static str); 5] {
    [
        ("nothing", ""),
        ("redaction", "pii: {action: alert_and_redact}"),
        ("boundary", "boundary_defense: {enabled: true}"),
        ("boundary and marks", SETTINGS.split_once('\n').unwrap().1),
        ("all three", SETTINGS),
    ]
}

/// The time the gateway adds to calls of the conversation, and what the provider gets, without rewriting and with each
/// way of it. Of a release build: `WEIR_TEST_BINARY=$PWD/target/release/weir cargo test --workspace --test it
/// rewriting::what_it_costs -- --ignored --nocapture`.
#[test]
#[ignore = "measures; only a release build says something"]
fn what_it_costs() {
    let provider = provider();
    let setup =
        Setup::new(Driver::Auto).upstream(provider.url()).unlimited().with("llm_advisory_injection_enabled: false");
    let gateways = ways().map(|(name, settings)| (name, setup.clone().with(settings).start()));
    for (turn, body) in turns().iter().enumerate().filter(|(turn, _)| turn % 3 == 0) {
        let mut overheads: [Vec<u64>; 5] = Default::default();
        let mut got = [0; 5];
        // In turns, so that what else the machine does falls on each alike.
        for _ in 0..100 {
            for ((at, (_, gateway)), overheads) in gateways.iter().enumerate().zip(&mut overheads) {
                let answer = call(gateway.addr, Call::post("/v1/messages", body.clone()).bytes());
                overheads.push(gateway.span_of(&answer)["overhead_us"].as_u64().unwrap());
                got[at] = provider.take_received().remove(0).request.body.len();
            }
        }
        for ((at, (name, _)), overheads) in gateways.iter().enumerate().zip(&mut overheads) {
            overheads.sort_unstable();
            let (p50, p99) = (overheads[49], overheads[98]);
            let turn = turn + 1;
            println!("turn {turn}, {name}: {} bytes came, {} went on; p50 {p50} us, p99 {p99} us", body.len(), got[at]);
        }
    }
}
