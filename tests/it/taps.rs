//! Promise: who stops an answer on its way stops all of it, and nobody takes what was let through for something else: a stream ends
//! as its dialect ends streams, an answer of which nothing went is replaced, and anything else does not look whole. What is not
//! stopped is not changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::guests::{LONGEST, WARNING};
use crate::support::{
    Answer, Call, Client, Driver, Gateway, Setup, Upstream, call, chat_body, eventually, messages_body,
    on_both_drivers, with_stream,
};

const SSE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

fn event(data: &Value) -> String {
    let name = data["type"].as_str().map(|name| format!("event: {name}\n"));
    format!("{}data: {data}\n\n", name.unwrap_or_default())
}

/// A stream with so many words and no end, in the dialect of the path.
fn stream(path: &str, words: usize) -> Vec<String> {
    let chat = |number| {
        let choice = json!({"index": 0, "delta": {"content": format!("word{number} ")}, "finish_reason": null});
        json!({"id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "seen-model", "choices": [choice]})
    };
    let delta = |number| {
        let delta = json!({"type": "text_delta", "text": format!("word{number} ")});
        json!({"type": "content_block_delta", "index": 0, "delta": delta})
    };
    let usage = json!({"input_tokens": 3, "output_tokens": 1});
    let message = json!({
        "id": "m-1", "type": "message", "role": "assistant", "model": "seen-model", "content": [], "usage": usage,
    });
    let begin = json!({"type": "message_start", "message": message});
    let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let events: Vec<Value> = match path {
        "/v1/chat/completions" => (0..words).map(chat).collect(),
        "/v1/messages" => [begin, block].into_iter().chain((0..words).map(delta)).collect(),
        _ => (0..words).map(|number| json!({"strange": format!("a dialect that nobody knows {number}")})).collect(),
    };
    events.iter().map(event).collect()
}

/// What the tap lets through of it.
fn let_through(path: &str) -> String {
    let mut all = String::new();
    for event in stream(path, 60) {
        if all.len() + event.len() > LONGEST {
            return all;
        }
        all.push_str(&event);
    }
    panic!("the stream is too short to be stopped");
}

/// A provider whose streams go on for ever, and how many of them somebody has ended.
fn endless() -> (Upstream, Arc<AtomicUsize>) {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let upstream = Upstream::play(move |peer| {
        let Some(request) = peer.request() else { return };
        peer.say(SSE);
        for event in stream(&request.path, 60) {
            peer.say(chunk(&event));
        }
        if peer.wait_closed().is_some() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (upstream, ended)
}

fn tapped(driver: Driver, upstream: &Upstream) -> Gateway {
    Setup::new(driver).upstream(upstream.url()).guest("toy_tap").start()
}

fn chat_stream() -> Call {
    Call::post("/v1/chat/completions", with_stream(chat_body("Tell me a long story.")).to_string())
}

fn messages_stream() -> Call {
    Call::post("/v1/messages", with_stream(messages_body("Tell me a long story.")).to_string())
}

/// The events of what the gateway has added to what it let through.
fn added(answer: &Answer, path: &str) -> Vec<(String, Value)> {
    let (text, passed) = (answer.text(), let_through(path));
    let end = text.strip_prefix(&passed).unwrap_or_else(|| panic!("what passed is the provider's own: {text}"));
    let events = end.split_terminator("\n\n").map(|event| {
        let (name, data) = event.rsplit_once("data: ").unwrap();
        (name.trim_start_matches("event: ").trim().to_owned(), serde_json::from_str(data).unwrap_or(json!(data)))
    });
    events.collect()
}

fn assert_recorded(span: &Value, how: &str) {
    assert_eq!(span["tags"]["response_stopped"], how, "{span}");
    let told = |event: &Value| event["event_type"] == "response_stopped" && event["description"] == WARNING;
    assert!(span["events"].as_array().unwrap().iter().any(told), "{span}");
    let error = if how == "ended" { Value::Null } else { json!("output_safety_blocked") };
    assert_eq!(span["error_type"], error, "{span}");
}

on_both_drivers! {
    fn a_stopped_chat_stream_ends_with_a_content_filter(driver) {
        let (upstream, ended) = endless();
        let gateway = tapped(driver, &upstream);
        let mut client = Client::connect(gateway.addr);
        for count in 1..=2 {
            client.say(chat_stream().bytes());
            let answer = client.answer();
            assert_eq!((answer.status, answer.keep_alive), (200, true));
            let added = added(&answer, "/v1/chat/completions");
            let [(_, warning), (_, last), (_, done)] = &added[..] else { panic!("{added:?}") };
            for chunk in [warning, last] {
                assert_eq!((&chunk["id"], &chunk["created"]), (&json!("c-1"), &json!(7)));
                assert_eq!((&chunk["model"], &chunk["choices"][0]["index"]), (&json!("seen-model"), &json!(0)));
            }
            assert_eq!(warning["choices"][0]["delta"]["content"], WARNING);
            assert_eq!(last["choices"][0]["finish_reason"], "content_filter");
            assert_eq!(done, "[DONE]");
            assert_recorded(&gateway.span_of(&answer), "ended");
            eventually("the provider is not kept at work", || (ended.load(Ordering::SeqCst) == count).then_some(()));
        }
    }

    fn a_stopped_messages_stream_ends_with_a_refusal(driver) {
        let (upstream, ended) = endless();
        let gateway = tapped(driver, &upstream);
        let mut client = Client::connect(gateway.addr);
        for count in 1..=2 {
            client.say(messages_stream().bytes());
            let answer = client.answer();
            assert_eq!((answer.status, answer.keep_alive), (200, true));
            let added = added(&answer, "/v1/messages");
            let names: Vec<&str> = added.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["content_block_delta", "content_block_stop", "message_delta", "message_stop"]);
            assert!(added.iter().all(|(name, data)| data["type"] == **name), "{added:?}");
            assert_eq!((&added[0].1["delta"]["text"], &added[0].1["index"]), (&json!(WARNING), &json!(0)));
            assert_eq!(added[2].1["delta"]["stop_reason"], "refusal");
            assert_eq!(added[2].1["usage"]["output_tokens"], 1);
            assert_recorded(&gateway.span_of(&answer), "ended");
            eventually("the provider is not kept at work", || (ended.load(Ordering::SeqCst) == count).then_some(()));
        }
    }

    fn a_stopped_stream_ends_in_order_for_a_client_that_knows_no_chunks(driver) {
        let (upstream, _ended) = endless();
        let gateway = tapped(driver, &upstream);
        let mut client = Client::connect(gateway.addr);
        client.say(String::from_utf8(chat_stream().bytes()).unwrap().replacen("HTTP/1.1", "HTTP/1.0", 1));
        let (got, in_order) = client.until_end();
        assert!(in_order && got.ends_with(b"data: [DONE]\n\n"), "{}", String::from_utf8_lossy(&got));
    }

    fn a_stream_without_a_known_end_does_not_look_whole(driver) {
        let (upstream, _ended) = endless();
        let gateway = tapped(driver, &upstream);
        let mut client = Client::connect(gateway.addr);
        client.say(Call::post("/v1/strange", with_stream(chat_body("Tell me a long story.")).to_string()).bytes());
        let cut = client.answer_to("POST").unwrap_err();
        let received = String::from_utf8_lossy(&cut.received).into_owned();
        assert!(received.starts_with("HTTP/1.1 200") && received.contains("nobody knows 3"), "{received}");
        assert!(!received.contains(WARNING) && !received.ends_with("0\r\n\r\n"), "{received}");
        assert_recorded(&gateway.newest_span_of(1), "cut");
        assert_eq!(gateway.metric("service_answers_stopped_total", "how=\"cut\""), 1.0);
    }

    fn a_stopped_document_is_replaced(driver) {
        let text = "word ".repeat(1_000);
        let body = json!({"id": "d", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}).to_string();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        let upstream = Upstream::play(move |peer| {
            while peer.request().is_some() {
                let (begin, rest) = body.split_at(1_000);
                peer.say(format!("{head}{begin}"));
                std::thread::sleep(std::time::Duration::from_millis(50));
                peer.say(rest);
            }
        });
        let gateway = tapped(driver, &upstream);
        let mut client = Client::connect(gateway.addr);
        for _ in 0..2 {
            client.say(Call::post("/v1/chat/completions", chat_body("Tell me a long story.").to_string()).bytes());
            let answer = client.answer();
            assert_eq!((answer.status, answer.keep_alive), (403, true), "{}", answer.text());
            let error = &answer.json()["error"];
            assert_eq!((&error["type"], &error["message"]), (&json!("output_safety_blocked"), &json!(WARNING)));
            let span = gateway.span_of(&answer);
            assert_recorded(&span, "replaced");
            assert_eq!(span["tags"]["answered_by"], "weir", "{span}");
        }
    }

    // What the provider did in the background is billed, whatever the client gets of it.
    fn an_answer_fetched_later_is_charged_although_it_is_replaced(driver) {
        let text = "word ".repeat(1_000);
        let upstream = Upstream::play(move |peer| {
            while let Some(request) = peer.request() {
                let (status, output) = if request.method == "POST" { ("queued", "") } else { ("completed", &*text) };
                let usage = if output.is_empty() { Value::Null } else { json!({"input_tokens": 1, "output_tokens": 3, "total_tokens": 4}) };
                let content = json!([{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": output}]}]);
                let body = json!({"id": "resp_1", "object": "response", "background": true, "status": status, "model": "cent",
                    "output": content, "usage": usage}).to_string();
                peer.say(format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
            }
        });
        let prices = "cost_estimation: {custom_models: {cent: {input_per_million: 0, output_per_million: 10000}}}";
        let caps = "cost_caps: {enabled: true, default_budget_caps: [{window: monthly, hard_limit_usd: 1}]}";
        let gateway = Setup::new(driver).upstream(upstream.url()).with(prices).with(caps).guest("toy_tap").start();
        let asked = json!({"model": "cent", "input": "hi", "background": true, "max_output_tokens": 5});
        assert_eq!(call(gateway.addr, Call::post("/v1/responses", asked.to_string()).bytes()).status, 200);
        let fetched = call(gateway.addr, Call::get("/v1/responses/resp_1").bytes());
        assert_eq!(fetched.status, 403, "{}", fetched.text());
        eventually("it is charged", || {
            let window = gateway.json("/api/v1/costs/current")["windows"][0].clone();
            (window["reserved_usd"] == 0.0 && window["current_spend_usd"] == 0.03).then_some(())
        });
    }

    fn an_answer_that_the_tap_cannot_read_is_tagged_and_counted(driver) {
        let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Encoding: xyz\r\nContent-Length: 4\r\n\r\ndddd");
        let gateway = tapped(driver, &upstream);
        let answer = call(gateway.addr, Call::post("/v1/chat/completions", chat_body("Hello.").to_string()).bytes());
        assert_eq!((answer.status, &*answer.body), (200, b"dddd".as_slice()));
        assert_eq!(gateway.span_of(&answer)["tags"]["untapped_response"], "content_encoding");
        assert_eq!(gateway.metric("service_dropped_total", "queue=\"tap\",reason=\"content_encoding\""), 1.0);
    }

    fn a_provider_that_breaks_off_what_waits_is_told_as_any_other_failure(driver) {
        let upstream = Upstream::play(|peer| {
            peer.request();
            peer.say("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{\"id\": \"d\", ");
        });
        let gateway = tapped(driver, &upstream);
        let mut client = Client::connect(gateway.addr);
        for _ in 0..2 {
            client.say(Call::post("/v1/chat/completions", chat_body("Hello.").to_string()).bytes());
            let answer = client.answer();
            assert_eq!((answer.status, answer.keep_alive), (502, true), "{}", answer.text());
            assert_eq!(answer.json()["error"]["type"], "upstream_protocol_error");
            assert_eq!(gateway.span_of(&answer)["error_type"], "upstream_protocol_error");
        }
    }

    fn a_provider_that_falls_silent_over_what_waits_is_told_too(driver) {
        let upstream = Upstream::play(|peer| {
            peer.request();
            peer.say("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{\"id\": \"d\", ");
            peer.wait_closed();
        });
        let soon = "stream_idle_timeout_ms: 300";
        let gateway = Setup::new(driver).upstream(upstream.url()).with(soon).guest("toy_tap").start();
        let answer = call(gateway.addr, Call::post("/v1/chat/completions", chat_body("Hello.").to_string()).bytes());
        assert_eq!((answer.status, answer.keep_alive), (504, true), "{}", answer.text());
        assert_eq!(answer.json()["error"]["type"], "upstream_timeout");
        assert!(answer.text().contains("`stream_idle_timeout_ms`"), "{}", answer.text());
    }

    fn what_is_not_stopped_is_the_provider_s_own(driver) {
        let document = json!({"id": "d", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}}]}).to_string();
        let events = stream("/v1/chat/completions", 5).into_iter().chain(["data: [DONE]\n\n".to_owned()]);
        let (events, framed): (Vec<_>, Vec<_>) = events.map(|event| (event.clone(), chunk(&event))).unzip();
        let (events, framed) = (events.concat(), format!("{}0\r\n\r\n", framed.concat()));
        let answers = (document.clone(), format!("{SSE}{framed}"));
        let upstream = Upstream::play(move |peer| {
            while let Some(request) = peer.request() {
                let length = format!("Content-Type: application/json\r\nContent-Length: {}", answers.0.len());
                match String::from_utf8_lossy(&request.body).contains("stream") {
                    true => peer.say(&answers.1),
                    false => peer.say(format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\n{}", answers.0)),
                }
            }
        });
        let chat = Call::post("/v1/chat/completions", chat_body("Hello.").to_string());
        let with_tap = tapped(driver, &upstream);
        let mut client = Client::connect(with_tap.addr);
        for (call, body) in [(&chat, &document), (&chat_stream(), &events), (&chat, &document)] {
            client.say(call.bytes());
            let answer = client.answer();
            assert_eq!((answer.status, answer.keep_alive, &answer.text()), (200, true, body));
            assert_eq!(with_tap.span_of(&answer)["tags"]["response_stopped"], Value::Null);
        }
        assert_eq!(upstream.connections(), 1, "it is used again");
        let without = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(without.addr);
        for (call, body) in [(&chat, &document), (&chat_stream(), &framed)] {
            client.say(call.bytes());
            let answer = client.answer();
            assert_eq!((answer.status, &String::from_utf8_lossy(&answer.raw_body).into_owned()), (200, body));
        }
    }
}
