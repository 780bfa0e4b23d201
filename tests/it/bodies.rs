//! Promise: bodies of some hundred kilobytes go through as small ones do: byte for byte, in order, whatever stands behind them and
//! however they are cut; what is known of their texts is counted.

use serde_json::{Value, json};

use crate::support::{Call, Client, Driver, Gateway, Setup, call, chat_call, on_both_drivers, provider};

/// A conversation of about so many bytes, with line breaks and quotes in its texts.
fn conversation(bytes: usize, name: &str) -> Value {
    let mut messages = vec![json!({ "role": "system", "content": "You are a coding agent. Work in small steps." })];
    let mut size = 0;
    while size < bytes {
        let number = messages.len();
        let role = if number % 2 == 1 { "user" } else { "assistant" };
        let text =
            format!("{name} {number}: the \"price list\" of the delivery\nschedule has {number} columns. ").repeat(9);
        size += text.len() + 40;
        messages.push(json!({ "role": role, "content": text }));
    }
    json!({ "model": "fake-large", "messages": messages })
}

fn gateways(driver: Driver, upstream: &str) -> [Gateway; 2] {
    let pass = "enable_security_analysis: false\nenable_trace_storage: false\ncost_estimation: {enabled: false}\n";
    [
        Setup::new(driver).upstream(upstream).unlimited().start(),
        Setup::new(driver).upstream(upstream).unlimited().with(pass).start(),
    ]
}

on_both_drivers! {
    fn large_bodies_arrive_as_they_were_sent_with_the_next_request_behind_them(driver) {
        let provider = provider();
        for gateway in gateways(driver, &provider.url()) {
            let mut client = Client::connect(gateway.addr).patient();
            for bytes in [3_000, 15_000, 17_000, 60_000, 130_000, 300_000, 1_000_000] {
                let body = conversation(bytes, "turn").to_string();
                let large = Call::post("/v1/chat/completions", body.clone()).field("x-fake-reply", "the large one");
                let small = chat_call("and now?").field("x-fake-reply", "the small one");
                for framed in [large.bytes(), large.chunked(40_000)] {
                    // All at once, then in pieces that end anywhere.
                    client.say([framed.clone(), small.bytes()].concat());
                    assert_eq!(reply(&mut client), "the large one", "{bytes}");
                    assert_eq!(reply(&mut client), "the small one", "{bytes}");
                    for piece in [framed, small.bytes()].concat().chunks(bytes / 5 + 77) {
                        client.say(piece);
                    }
                    assert_eq!(reply(&mut client), "the large one", "{bytes}");
                    assert_eq!(reply(&mut client), "the small one", "{bytes}");
                }
                let seen = provider.take_received();
                assert_eq!(seen.len(), 8);
                for large in seen.iter().step_by(2) {
                    assert!(large.request.body == body.as_bytes(), "{bytes} bytes arrived as {}", large.request.body.len());
                }
            }
        }
    }

    fn a_chunked_body_without_content_has_one_end(driver) {
        let provider = provider();
        for gateway in gateways(driver, &provider.url()) {
            let mut client = Client::connect(gateway.addr);
            for _ in 0..2 {
                client.say([Call::post("/v1/chat/completions", "").chunked(1), chat_call("and now?").bytes()].concat());
                client.answer();
                assert_eq!(client.answer().status, 200);
            }
            let seen = provider.take_received();
            assert_eq!(seen.iter().filter(|request| request.request.body.is_empty()).count(), 2);
            assert_eq!(seen.len(), 4, "the second end would be a request of its own");
        }
    }

    fn what_is_known_of_a_growing_conversation_is_counted(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).unlimited().start();
        let texts = |outcome: &str| gateway.metric("service_security_texts_total", &format!("outcome=\"{outcome}\""));
        let mut body = conversation(100_000, "turn");
        let count = body["messages"].as_array().unwrap().len();
        let ask = |body: &Value| {
            let answer = call(gateway.addr, Call::post("/v1/chat/completions", body.to_string()).bytes());
            assert_eq!(answer.status, 200);
            gateway.span_of(&answer)
        };
        ask(&body);
        let (scanned, known) = (texts("scanned"), texts("known"));
        assert!(scanned >= count as f64 && known == 0.0, "{scanned} scanned, {known} known");
        let question = "And how many columns does the list of the \"last\" schedule have, all of them together, please?";
        body["messages"].as_array_mut().unwrap().push(json!({ "role": "user", "content": question }));
        ask(&body);
        assert_eq!(texts("known") - known, count as f64 - 1.0, "all but the short system prompt");
        assert!(texts("scanned") - scanned <= 3.0, "the question, the answer, the short system prompt");
        let taken = gateway.metric("service_security_known_texts_bytes", "what=\"taken\"");
        let most = gateway.metric("service_security_known_texts_bytes", "what=\"most\"");
        assert!(taken > 0.0 && taken <= most, "{taken} of {most}");
        assert_eq!(texts("forgotten"), 0.0);
    }
}

fn reply(client: &mut Client) -> String {
    let answer = client.answer();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
}
