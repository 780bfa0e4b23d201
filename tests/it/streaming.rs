//! Promise: a stream passes frame by frame, as it arrives, and its end is never mistaken. Nothing waits for analysis.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Call, Client, Gate, Peer, Setup, Upstream, chat_body, eventually, on_both_drivers, provider, with_stream,
};

const SSE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const NDJSON: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n";

fn delta(text: &str) -> String {
    let choice = json!({ "index": 0, "delta": { "content": text }, "finish_reason": null });
    let event = json!({ "id": "c", "object": "chat.completion.chunk", "model": "seen-model", "choices": [choice] });
    format!("data: {event}\n\n")
}

fn stop() -> String {
    let choice = json!({ "index": 0, "delta": {}, "finish_reason": "stop" });
    let event = json!({ "id": "c", "object": "chat.completion.chunk", "model": "seen-model", "choices": [choice] });
    format!("data: {event}\n\ndata: [DONE]\n\n")
}

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

fn streaming_call() -> Vec<u8> {
    Call::post("/v1/chat/completions", with_stream(chat_body("hello")).to_string()).bytes()
}

/// A provider that says `frames`, each only after the gate has been opened once more.
fn gated(head: &'static str, frames: Vec<String>) -> (Upstream, Gate) {
    Upstream::gated(move |peer, gate| {
        while peer.request().is_some() {
            peer.say(head);
            for frame in &frames {
                if !gate.pass() {
                    return;
                }
                peer.say(chunk(frame));
            }
            peer.say("0\r\n\r\n");
        }
    })
}

/// Asserts that each frame reaches the client before the provider may say the next.
fn assert_frame_by_frame(client: &mut Client, gate: &Gate, frames: &[String]) {
    let head = client.read_until(|bytes| bytes.ends_with(b"\r\n\r\n"));
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"));
    for (at, frame) in frames.iter().enumerate() {
        gate.open();
        let mut expected = chunk(frame).into_bytes();
        if at + 1 == frames.len() {
            expected.extend_from_slice(b"0\r\n\r\n");
        }
        let got = client.read_until(|bytes| bytes.len() >= expected.len());
        assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(&expected));
    }
}

on_both_drivers! {
    fn an_event_arrives_before_the_next_is_said(driver) {
        let frames: Vec<String> = (0..8).map(|number| delta(&format!("word{number} "))).chain([stop()]).collect();
        let (upstream, gate) = gated(SSE, frames.clone());
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say(streaming_call());
        assert_frame_by_frame(&mut client, &gate, &frames);
        // The connection is fit for another stream.
        client.say(streaming_call());
        assert_frame_by_frame(&mut client, &gate, &frames);
        let span = gateway.newest_span_of(2);
        assert_eq!(span["response"], "word0 word1 word2 word3 word4 word5 word6 word7 ");
        assert_eq!((&span["streaming"], &span["finish_reason"]), (&json!(true), &json!("stop")));
    }

    fn a_json_line_arrives_before_the_next_is_said(driver) {
        let line = |text: &str, done: bool| {
            format!("{}\n", json!({ "model": "m", "message": { "role": "assistant", "content": text }, "done": done }))
        };
        let frames = vec![line("one ", false), line("two", false), line("", true)];
        let (upstream, gate) = gated(NDJSON, frames.clone());
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say(Call::post("/api/chat", chat_body("hello").to_string()).bytes());
        assert_frame_by_frame(&mut client, &gate, &frames);
        assert_eq!(gateway.newest_span_of(1)["response"], "one two");
    }

    fn an_event_cut_anywhere_arrives_whole_and_is_read(driver) {
        // Events end in LF, CR or CRLF, and every byte comes alone, also inside a letter of several bytes.
        let ended_by = |event: String, line_end: &str| event.replace('\n', line_end);
        let text = delta("größe ") + &ended_by(delta("二 "), "\r\n") + &ended_by(delta("🙂"), "\r");
        let said = format!("{text}{}", stop());
        let upstream = Upstream::play({
            let said = said.clone();
            move |peer| {
                peer.request();
                peer.say(SSE);
                for byte in said.as_bytes() {
                    peer.say([b"1\r\n".as_slice(), &[*byte], b"\r\n"].concat());
                }
                peer.say("0\r\n\r\n");
                peer.wait_closed();
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say(streaming_call());
        let answer = client.answer();
        assert_eq!(answer.text(), said);
        assert_eq!(gateway.span_of(&answer)["response"], "größe 二 🙂");
    }

    fn a_client_that_leaves_takes_the_provider_with_it(driver) {
        let closed_after = Arc::new(Mutex::new(None));
        let upstream = Upstream::play({
            let closed_after = Arc::clone(&closed_after);
            move |peer: &mut Peer| {
                peer.request();
                peer.say(SSE);
                peer.say(chunk(&delta("first ")));
                peer.say(chunk(&delta("second ")));
                *closed_after.lock().unwrap() = peer.wait_closed();
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say(streaming_call());
        client.read_until(|bytes| bytes.windows(7).any(|piece| piece == b"second "));
        drop(client);
        let span = gateway.newest_span_of(1);
        assert_eq!((&span["response"], &span["status_code"]), (&json!("first second "), &json!(200)));
        assert_eq!(span["error_type"], "client_disconnected");
        assert_eq!(span["events"][0]["event_type"], "client_disconnected");
        assert_eq!((&span["model"], &span["streaming"]), (&json!("fake-large"), &json!(true)));
        assert!(span["security_score"].is_u64(), "{span}");
        let closed_after: Duration = eventually("the provider is told", || *closed_after.lock().unwrap());
        // Measured at the provider, from its last word on; the client's leaving lies in between. The promise is 100 ms.
        assert!(closed_after < Duration::from_secs(1), "the provider was left talking for {closed_after:?}");
        eventually("the connection is counted out", || {
            (gateway.metric("service_active_connections", "") == 1.0).then_some(())
        });
    }

    fn a_client_that_leaves_before_the_answer_begins_is_noticed(driver) {
        let released = Gate::new();
        let upstream = Upstream::play({
            let released = released.clone();
            move |peer| {
                peer.request();
                if peer.wait_closed().is_some() {
                    released.open();
                }
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say(streaming_call());
        upstream.wait_for_requests(1);
        drop(client);
        assert!(released.pass(), "the provider is still asked");
        let span = gateway.newest_span_of(1);
        assert_eq!((&span["error_type"], &span["status_code"]), (&json!("client_disconnected"), &Value::Null));
    }

    fn a_half_closed_client_still_gets_its_answer_or_a_clean_end(driver) {
        let (upstream, gate) = gated(SSE, vec![stop()]);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say(streaming_call());
        upstream.wait_for_requests(1);
        client.finish();
        gate.open();
        // Treating the half-close as leaving is allowed; a part that looks whole is not.
        match client.answer_to("POST") {
            Ok(answer) => assert_eq!(answer.text(), stop()),
            Err(cut) => assert!(!cut.received.ends_with(b"0\r\n\r\n")),
        }
    }

    fn a_stream_the_provider_cuts_does_not_look_whole(driver) {
        let upstream = Upstream::play(|peer| {
            peer.request();
            peer.say(SSE);
            peer.say(chunk(&delta("half ")));
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say(streaming_call());
        let cut = client.answer_to("POST").expect_err("the answer is not complete");
        let received = String::from_utf8_lossy(&cut.received).into_owned();
        assert!(received.contains("half ") && !received.ends_with("0\r\n\r\n"), "{received}");
        let span = gateway.newest_span_of(1);
        assert_eq!((&span["error_type"], &span["response"]), (&json!("upstream_protocol_error"), &json!("half ")));
        assert_eq!(span["events"][0]["event_type"], "response_cut");
    }

    fn a_counted_answer_the_provider_cuts_does_not_look_whole(driver) {
        let upstream = Upstream::play(|peer| {
            peer.request();
            peer.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say(Call::get("/v1/files/x").bytes());
        let cut = client.answer_to("GET").expect_err("the answer is not complete");
        assert!(cut.received.ends_with(b"only this"));
    }

    fn a_garbled_chunk_ends_the_answer(driver) {
        let upstream = Upstream::play(|peer| {
            peer.request();
            peer.say(SSE);
            peer.say(chunk(&delta("fine ")));
            peer.say("zz\r\nnot a chunk");
            peer.wait_closed();
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say(streaming_call());
        let cut = client.answer_to("POST").expect_err("the answer is not complete");
        assert!(!String::from_utf8_lossy(&cut.received).contains("not a chunk"));
    }

    fn a_silent_stream_is_cut_by_the_idle_timer_only(driver) {
        let (upstream, gate) = gated(SSE, vec![delta("a "), stop()]);
        let setup = Setup::new(driver).upstream(upstream.url());
        let gateway = setup.with("timeout_ms: 150\nstream_idle_timeout_ms: 600").start();
        let mut client = Client::connect(gateway.addr);
        client.say(streaming_call());
        client.read_until(|bytes| bytes.ends_with(b"\r\n\r\n"));
        // Longer than `timeout_ms`, shorter than the idle limit: a live stream is never cut by a wall clock.
        client.assert_silent(Duration::from_millis(300));
        gate.open();
        client.read_until(|bytes| bytes.ends_with(chunk(&delta("a ")).as_bytes()));
        let rest = client.rest();
        assert!(rest.is_empty(), "{:?}", String::from_utf8_lossy(&rest));
        let span = gateway.newest_span_of(1);
        let message = span["error_message"].as_str().unwrap();
        assert!(message.contains("`stream_idle_timeout_ms`"), "{message}");
    }

    fn a_slow_client_gets_a_large_stream_whole(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).start();
        let request = Call::post("/v1/chat/completions", with_stream(chat_body("hello")).to_string());
        let request = request.field("x-fake-frames", "20000").bytes();
        let direct = crate::support::call(provider.addr(), &request);
        let mut client = Client::connect(gateway.addr);
        client.say(&request);
        // Not a byte is read until the gateway must have filled every buffer there is.
        eventually("the request is forwarded", || (provider.requests_seen() == 2).then_some(()));
        std::thread::sleep(Duration::from_millis(300));
        let through = client.answer();
        assert!(through.body == direct.body, "{} of {} bytes", through.body.len(), direct.body.len());
    }

    fn streaming_can_be_switched_off(driver) {
        let (upstream, gate) = gated(SSE, vec![stop()]);
        let gateway = Setup::new(driver).upstream(upstream.url()).with("enable_streaming: false").start();
        let refused = crate::support::call(gateway.addr, streaming_call());
        assert_eq!((refused.status, &refused.json()["error"]["type"]), (400, &json!("streaming_disabled")));
        let local = Call::post("/api/chat", chat_body("hello").to_string()).bytes();
        let refused = crate::support::call(gateway.addr, local);
        assert_eq!((refused.status, &refused.json()["type"]), (400, &json!("streaming_disabled")));
        assert_eq!(upstream.requests().len(), 0);
        gate.open();
        let unasked = crate::support::call(gateway.addr, crate::support::chat_call("hello").bytes());
        assert_eq!((unasked.status, &unasked.json()["error"]["type"]), (502, &json!("upstream_protocol_error")));
    }
}
