//! Defects a review found, each as the dialogue that showed it: none of them may come back.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::support::{Call, Client, Setup, Upstream, call, chat_call, eventually, on_both_drivers_in_full, provider};

/// A provider that resets its first connection in the middle of the body. Tells whether `path` was ever asked for, and
/// whether the reset has happened.
fn resets_once_and_watches_for(path: &'static str) -> (String, Arc<AtomicBool>, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (asked, reset) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (seen, was_reset) = (Arc::clone(&asked), Arc::clone(&reset));
    std::thread::spawn(move || {
        for (index, mut socket) in listener.incoming().map_while(Result::ok).enumerate() {
            let (seen, was_reset) = (Arc::clone(&seen), Arc::clone(&was_reset));
            std::thread::spawn(move || {
                let mut piece = [0; 16 * 1024];
                while let Ok(count) = socket.read(&mut piece) {
                    let text = String::from_utf8_lossy(&piece[..count]).into_owned();
                    seen.fetch_or(
                        text.lines().any(|line| line.starts_with("GET ") && line.contains(path)),
                        Ordering::SeqCst,
                    );
                    if count == 0 || index == 0 {
                        // Unread bytes make the close a reset.
                        drop(socket);
                        was_reset.store(true, Ordering::SeqCst);
                        return;
                    }
                    drop(socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
                }
            });
        }
    });
    (url, asked, reset)
}

on_both_drivers_in_full! {
    fn the_rest_of_a_broken_upload_is_never_taken_for_a_request(driver) {
        let (url, smuggled, reset) = resets_once_and_watches_for("/v1/smuggled");
        let gateway = Setup::new(driver).upstream(url).start();
        let mut client = Client::connect(gateway.addr);
        client.say("POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n");
        // The gateway learns of the reset when it relays the next piece.
        client.say(vec![b' '; 20_000]);
        eventually("the connection was reset", || reset.load(Ordering::SeqCst).then_some(()));
        client.say(vec![b' '; 1_000]);
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection").as_deref()), (502, Some("close")));
        // What would have been the rest of the body; the gateway may have closed already.
        client.try_say("GET /v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.rest(), b"");
        assert!(!smuggled.load(Ordering::SeqCst), "body bytes reached the provider as a request");
    }

    fn long_bodies_without_analysis_do_not_open_the_breaker(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).with("enable_security_analysis: false").start();
        let text = "a long but harmless text ".repeat(1_000);
        let answers: Vec<_> = (0..15).map(|_| call(gateway.addr, chat_call(&text).bytes())).collect();
        for answer in &answers {
            let tags = gateway.span_of(answer)["tags"].clone();
            assert_eq!((&tags["pipeline_dropped"], &tags["reason"]), (&json!("true"), &json!("disabled")));
        }
        assert_eq!(gateway.json("/health")["circuit_breaker"], "closed");
    }

    fn what_a_stop_cuts_is_recorded(driver) {
        let (upstream, gate) = Upstream::gated(|peer, gate| {
            peer.request();
            peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
            peer.say("9\r\ndata: a\n\n\r\n");
            gate.pass();
        });
        let mut gateway = Setup::new(driver).upstream(upstream.url()).with("shutdown: {timeout_seconds: 1}").start();
        let mut client = Client::connect(gateway.addr);
        client.say(chat_call("hello").bytes());
        let head = client.read_until(|bytes| bytes.ends_with(b"data: a\n\n\r\n"));
        let head = String::from_utf8_lossy(&head).into_owned();
        let trace_id = head.lines().find_map(|line| line.strip_prefix("X-Service-Trace-Id: ")).unwrap().to_owned();
        gateway.terminate();
        assert_ne!(gateway.wait().code(), Some(0), "a stop that cuts calls is not clean");
        gate.open();
        gateway.restart();
        assert_eq!(gateway.trace(&trace_id)["spans"][0]["prompt"], "hello");
    }

    fn an_api_key_names_the_same_tenant_for_calls_and_for_reading(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).start();
        let answer = call(gateway.addr, chat_call("hello").field("api-key", "sk-azure-1").bytes());
        let path = format!("/api/v1/traces/{}", answer.trace_id());
        eventually("the key's own trace shows", || {
            (call(gateway.addr, Call::get(&path).field("api-key", "sk-azure-1").bytes()).status == 200).then_some(())
        });
        assert_eq!(call(gateway.addr, Call::get(&path).bytes()).status, 404);
    }

    fn blocking_refuses_what_cannot_be_inspected(driver) {
        let provider = provider();
        let coded = || chat_call("hello").field("Content-Encoding", "gzip, gzip").bytes();
        let gateway = Setup::new(driver).upstream(provider.url()).with("enforcement: {mode: block}").start();
        let answer = call(gateway.addr, coded());
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (400, &json!("invalid_request")));
        assert_eq!(provider.requests_seen(), 0);
        let gateway = Setup::new(driver).upstream(provider.url()).start();
        let answer = call(gateway.addr, coded());
        assert_eq!(answer.header("x-service-analysis").as_deref(), Some("skipped;reason=unreadable_body"));
    }
}
