//! Promise: with many clients at once nothing is mixed up: every client gets the answer to its own question, every
//! exchange has one span, and question and answer in it belong together.

use std::collections::BTreeMap;

use crate::support::{
    Call, Client, Setup, chat_body, eventually, messages_body, on_both_drivers, provider, with_stream,
};

const CLIENTS: usize = 24;
const CALLS: usize = 40;

/// The text of an answer in whichever of the shapes used here.
fn text_of(body: &str) -> String {
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let piece = |value: &serde_json::Value| {
        let places = [
            "/choices/0/message/content",
            "/choices/0/delta/content",
            "/content/0/text",
            "/delta/text",
            "/message/content",
        ];
        places.iter().find_map(|place| value.pointer(place)?.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let lines =
        || body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line)).filter(|line| line.starts_with('{'));
    lines().map(|line| piece(&value(line))).collect()
}

on_both_drivers! {
    fn every_client_gets_its_own_answer_and_every_exchange_its_own_span(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).unlimited().server("core_threads: 2").start();
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let addr = gateway.addr;
                scope.spawn(move || {
                    let mut client = Client::connect(addr);
                    for round in 0..CALLS {
                        let (question, reply) =
                            (format!("question {number}-{round}"), format!("reply {number}-{round} ends"));
                        let (path, body) = match round % 5 {
                            0 => ("/v1/chat/completions", chat_body(&question)),
                            1 => ("/v1/chat/completions", with_stream(chat_body(&question))),
                            2 => ("/v1/messages", messages_body(&question)),
                            3 => ("/v1/messages", with_stream(messages_body(&question))),
                            _ => ("/api/chat", chat_body(&question)),
                        };
                        let request = Call::post(path, body.to_string()).field("x-fake-reply", &reply);
                        client.say(if round % 3 == 0 { request.chunked(50) } else { request.bytes() });
                        let answer = client.answer();
                        assert_eq!((answer.status, text_of(&answer.text())), (200, reply), "{path}");
                        if round % 7 == 6 {
                            client = Client::connect(addr);
                        }
                    }
                });
            }
        });
        let all = CLIENTS * CALLS;
        eventually("every exchange is stored", || {
            (gateway.json("/api/v1/spans?limit=1")["total"] == all).then_some(())
        });
        let mut recorded = BTreeMap::new();
        for offset in (0..all).step_by(200) {
            for span in gateway.json(&format!("/api/v1/spans?limit=200&offset={offset}"))["data"].as_array().unwrap() {
                let text = |name: &str| span[name].as_str().unwrap_or_default().to_owned();
                assert_eq!(text("prompt").replace("question", "reply") + " ends", text("response"), "{span}");
                recorded.insert(text("prompt"), text("trace_id"));
            }
        }
        assert_eq!(recorded.len(), all);
        assert_eq!(gateway.metric("service_requests_total", "status_code=\"200\""), all as f64);
        assert_eq!(gateway.metric("service_dropped_total", ""), 0.0);
        // One per client at most on each core, as long as connections are kept and used again.
        let connections = provider.connections_accepted();
        assert!(connections <= 2 * CLIENTS as u64, "{connections} connections for {all} exchanges");
    }
}
