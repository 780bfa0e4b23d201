//! Promise: the tools an application offers do not make its calls suspicious, in any dialect, however they talk to the
//! model; and a tool that is poisoned is refused in `block` mode (T-H2).

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::support::{Call, Driver, Gateway, Setup, call, provider};

/// The labelled definitions that the detectors are measured with.
fn labelled(label: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("inference/tests/data/tools.jsonl");
    let rows = std::fs::read_to_string(path).unwrap();
    let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.filter(|row| row["label"] == label).collect()
}

fn schema(row: &Value) -> Value {
    let arguments = row["arguments"].as_object().unwrap().iter();
    let properties: Map<String, Value> =
        arguments.map(|(name, says)| (name.clone(), json!({ "type": "string", "description": says }))).collect();
    json!({ "type": "object", "properties": properties })
}

/// A harmless question with these tools, as each family of clients sends it.
fn calls(rows: &[Value]) -> Vec<(&'static str, Call)> {
    let each = |make: fn(&Value, Value) -> Value| Value::Array(rows.iter().map(|row| make(row, schema(row))).collect());
    let question = json!([{ "role": "user", "content": "Tell me about foxes." }]);
    let wrapped = each(
        |row, schema| json!({ "type": "function", "function": { "name": row["name"], "description": row["description"], "parameters": schema } }),
    );
    let bodies = [
        ("/v1/chat/completions", json!({ "model": "fake-large", "messages": question, "tools": wrapped })),
        (
            "/v1/chat/completions",
            json!({ "model": "fake-large", "messages": question, "functions": each(|row, schema| {
                json!({ "name": row["name"], "description": row["description"], "parameters": schema })
            }) }),
        ),
        ("/api/chat", json!({ "model": "fake-large", "stream": false, "messages": question, "tools": wrapped })),
        (
            "/v1/messages",
            json!({ "model": "fake-large", "max_tokens": 9, "messages": question, "tools": each(|row, schema| {
                json!({ "name": row["name"], "description": row["description"], "input_schema": schema })
            }) }),
        ),
        (
            "/v1/responses",
            json!({ "model": "fake-large", "input": "Tell me about foxes.", "tools": each(|row, schema| {
                json!({ "type": "function", "name": row["name"], "description": row["description"], "parameters": schema })
            }) }),
        ),
        (
            "/v1beta/models/fake-large:generateContent",
            json!({ "contents": [{ "role": "user", "parts": [{ "text": "Tell me about foxes." }] }], "tools": [{
                "functionDeclarations": each(|row, schema| {
                    json!({ "name": row["name"], "description": row["description"], "parametersJsonSchema": schema })
                })
            }] }),
        ),
        (
            "/model/fake-large/converse",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "Tell me about foxes." }] }], "toolConfig": {
                "tools": each(|row, schema| {
                    json!({ "toolSpec": { "name": row["name"], "description": row["description"], "inputSchema": { "json": schema } } })
                })
            } }),
        ),
    ];
    bodies.into_iter().map(|(path, body)| (path, Call::post(path, body.to_string()))).collect()
}

fn blocking(provider_url: String) -> Gateway {
    let setup = Setup::new(Driver::Auto).upstream(provider_url).unlimited().storage("{profile: memory}");
    setup.with("enforcement: {mode: block}").start()
}

#[test]
fn tools_that_give_orders_to_the_model_are_not_refused_in_any_dialect() {
    let provider = provider();
    let gateway = blocking(provider.url());
    let rows = labelled("benign");
    assert!(rows.len() >= 30, "{} definitions", rows.len());
    for (path, call_made) in calls(&rows) {
        let answer = call(gateway.addr, call_made.bytes());
        assert_ne!(answer.status, 403, "{path}: {}", answer.text());
        // The worst of them is no more than a hint.
        let score = gateway.span_of(&answer)["security_score"].as_u64().unwrap();
        assert!(score < 60, "{path}: score {score}");
    }
    assert_eq!(provider.requests_seen(), 7);
}

// An agent sends its own definitions with every call; an address that stands in one is nobody's leak (docs/decisions.md).
#[test]
fn an_address_in_a_definition_scores_nothing_and_elsewhere_as_before() {
    let provider = provider();
    let gateway = blocking(provider.url());
    let says = "Commits; ends the message with `Co-Authored-By: Agent <noreply@agent.example>`. Call +1 202 555 0143 or \
                ask 203.0.113.7.";
    let row = json!({ "name": "commit", "description": says, "arguments": { "to": "e.g. anna@mail.example.org" } });
    for (path, call_made) in calls(std::slice::from_ref(&row)) {
        let span = gateway.span_of(&call(gateway.addr, call_made.bytes()));
        assert_eq!((&span["security_score"], &span["security_findings"]), (&json!(0), &json!([])), "{path}");
    }
    let row = json!({ "name": "pay", "description": "Pays with 4111 1111 1111 1111.", "arguments": {} });
    for (path, call_made) in calls(std::slice::from_ref(&row)) {
        let span = gateway.span_of(&call(gateway.addr, call_made.bytes()));
        assert_eq!(span["security_findings"][0]["metadata"]["pii_type"], "credit_card", "{path}");
    }
    for role in ["system", "user", "tool"] {
        let body = json!({ "model": "fake-large", "messages": [{ "role": role, "content": says }] });
        let span = gateway.span_of(&call(gateway.addr, Call::post("/v1/chat/completions", body.to_string()).bytes()));
        assert_eq!(span["security_score"], 30, "{role}: {span}");
    }
}

#[test]
fn poisoned_tools_are_refused_in_every_dialect() {
    let provider = provider();
    let gateway = blocking(provider.url());
    let rows = labelled("poisoned");
    assert!(rows.len() >= 40, "{} definitions", rows.len());
    let mut refused = vec![0; calls(&rows[..1]).len()];
    for row in &rows {
        for ((path, call_made), refused) in calls(std::slice::from_ref(row)).into_iter().zip(&mut refused) {
            let answer = call(gateway.addr, call_made.bytes());
            if answer.status == 403 {
                assert!(answer.text().contains("security_enforcement_blocked"), "{path}: {}", answer.text());
                *refused += 1;
            }
        }
    }
    println!("refused of {}: {refused:?}", rows.len());
    assert!(refused.iter().all(|count| count * 10 >= rows.len() * 9), "of {}: {refused:?}", rows.len());
}
