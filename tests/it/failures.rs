//! Promise: whatever the provider does wrong, the client gets a status that says so, in time, and a POST is never sent
//! twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{
    Call, Client, ClosedPort, Gate, Setup, Upstream, call, chat_body, chat_call, messages_body, on_both_drivers,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

on_both_drivers! {
    fn a_refused_connection_is_502_in_each_dialect(driver) {
        let nobody = ClosedPort::new();
        let gateway = Setup::new(driver).upstream(format!("http://{}", nobody.addr)).start();
        let answer = call(gateway.addr, chat_call("hello").bytes());
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (502, &json!("upstream_connect_error")));
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("`upstream_url`") && message.contains(&nobody.addr.to_string()), "{message}");
        let answer = call(gateway.addr, Call::post("/v1/messages", messages_body("x").to_string()).bytes());
        assert_eq!((answer.status, &answer.json()["type"]), (502, &json!("error")));
        let answer = call(gateway.addr, Call::post("/api/chat", chat_body("x").to_string()).bytes());
        assert_eq!((answer.status, &answer.json()["type"]), (502, &json!("upstream_connect_error")));
        assert!(answer.json()["error"].is_string());
    }

    fn a_provider_that_takes_no_connection_is_given_up(driver) {
        // A listener with a full backlog answers no SYN, as a black hole would not.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let addr = socket.local_addr().unwrap().as_socket().unwrap();
        let held: Vec<_> = (0..3)
            .map_while(|_| std::net::TcpStream::connect_timeout(&addr, Duration::from_millis(100)).ok())
            .collect();
        let setup = Setup::new(driver).upstream(format!("http://{addr}"));
        let gateway = setup.with("connection_timeout_ms: 200").start();
        let start = Instant::now();
        let answer = call(gateway.addr, chat_call("hello").bytes());
        assert!([502, 504].contains(&answer.status), "{}", answer.text());
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("`connection_timeout_ms`"), "{message}");
        assert!(
            (Duration::from_millis(150)..Duration::from_secs(5)).contains(&start.elapsed()),
            "{:?}",
            start.elapsed()
        );
        drop(held);
    }

    fn a_provider_that_never_answers_is_504(driver) {
        let upstream = Upstream::play(|peer| {
            peer.request();
            peer.wait_closed();
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).with("timeout_ms: 200").start();
        let start = Instant::now();
        let answer = call(gateway.addr, chat_call("hello").bytes());
        let waited = start.elapsed();
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (504, &json!("upstream_timeout")));
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains("`timeout_ms`"));
        // The provider may be at work on it: a client library that tried again would pay once more.
        assert_eq!(answer.header("x-should-retry").as_deref(), Some("false"));
        assert!((Duration::from_millis(195)..Duration::from_secs(10)).contains(&waited), "{waited:?}");
        let span = gateway.span_of(&answer);
        assert_eq!((&span["status_code"], &span["error_type"]), (&json!(504), &json!("upstream_timeout")));
        assert_eq!(upstream.requests().len(), 1);
    }

    fn half_a_head_is_a_504_too(driver) {
        let upstream = Upstream::play(|peer| {
            peer.request();
            peer.say("HTTP/1.1 200 OK\r\nContent-Le");
            peer.wait_closed();
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).with("timeout_ms: 200").start();
        assert_eq!(call(gateway.addr, chat_call("hello").bytes()).status, 504);
    }

    fn what_is_not_http_is_502(driver) {
        for garbage in [
            "SSH-2.0-OpenSSH_9.9\r\n",
            "HTTP/1.1 abc OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n folded\r\n\r\n{}",
            "HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2",
        ] {
            let upstream = Upstream::play(move |peer| {
                peer.request();
                peer.say(garbage);
            });
            let gateway = Setup::new(driver).upstream(upstream.url()).storage("{profile: memory}").start();
            let answer = call(gateway.addr, chat_call("hello").bytes());
            assert_eq!(
                (answer.status, &answer.json()["error"]["type"]),
                (502, &json!("upstream_protocol_error")),
                "{garbage:?}"
            );
            assert_eq!(upstream.requests().len(), 1, "{garbage:?}");
        }
    }

    fn a_post_is_never_sent_twice(driver) {
        // Answers the first request on each connection, and closes when it has read the second.
        let delivered = Arc::new(AtomicUsize::new(0));
        let upstream = Upstream::play({
            let delivered = Arc::clone(&delivered);
            move |peer| {
                if peer.request().is_some_and(|request| request.method == "POST") {
                    delivered.fetch_add(1, Ordering::SeqCst);
                }
                peer.say(OK);
                if peer.request().is_some_and(|request| request.method == "POST") {
                    delivered.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).server("core_threads: 1").start();
        let mut client = Client::connect(gateway.addr);
        client.say(chat_call("first").bytes());
        assert_eq!(client.answer().status, 200);
        client.say(chat_call("second").bytes());
        let answer = client.answer();
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (502, &json!("upstream_protocol_error")));
        assert_eq!(delivered.load(Ordering::SeqCst), 2);
        // A GET changes nothing and is asked again on a new connection.
        client.say(Call::get("/v1/models").bytes());
        assert_eq!(client.answer().status, 200);
        client.say(Call::get("/v1/models").bytes());
        assert_eq!(client.answer().status, 200);
        assert_eq!(upstream.connections(), 3);
    }

    fn a_kept_connection_the_provider_closed_is_not_used(driver) {
        let closed = Gate::new();
        let upstream = Upstream::play({
            let closed = closed.clone();
            move |peer| {
                peer.request();
                peer.say(OK);
                peer.close();
                closed.open();
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).server("core_threads: 1").start();
        let mut client = Client::connect(gateway.addr);
        for number in 0..5 {
            client.say(chat_call("hello").bytes());
            assert_eq!(client.answer().status, 200, "request {number}");
            assert!(closed.pass());
            // The close has to travel to the gateway; it is under way and nothing at the far end shows its arrival.
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(upstream.connections(), 5);
    }

    fn bytes_nobody_asked_for_are_never_an_answer(driver) {
        let upstream = Upstream::play(|peer| {
            while let Some(request) = peer.request() {
                peer.say(OK);
                if request.path == "/poison" {
                    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON");
                }
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).server("core_threads: 1").start();
        let mut client = Client::connect(gateway.addr);
        for _ in 0..5 {
            client.say(Call::get("/poison").bytes());
            assert_eq!(client.answer().body, b"{}");
            std::thread::sleep(Duration::from_millis(10));
            client.say(Call::get("/v1/models").bytes());
            assert_eq!(client.answer().body, b"{}");
        }
    }

    fn an_early_refusal_reaches_a_client_that_is_still_sending(driver) {
        let upstream = Upstream::play(|peer| {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n")
                && std::io::Read::read(&mut peer.stream, &mut byte).is_ok_and(|count| count == 1)
            {
                head.push(byte[0]);
            }
            peer.say("HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\nConnection: close\r\n\r\nwho?");
            drop(peer.stream.shutdown(std::net::Shutdown::Write));
            peer.wait_closed();
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n");
        let piece = [b'x'; 10_000];
        for _ in 0..30 {
            if !client.try_say(piece) {
                break;
            }
        }
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.as_slice()), (401, &b"who?"[..]));
    }

    fn one_bad_exchange_leaves_the_others_alone(driver) {
        let upstream = Upstream::play(|peer| {
            while let Some(request) = peer.request() {
                if request.path == "/bad" {
                    return;
                }
                peer.say(OK);
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).unlimited().start();
        std::thread::scope(|scope| {
            for worker in 0..8 {
                let addr = gateway.addr;
                scope.spawn(move || {
                    let mut client = Client::connect(addr);
                    for _ in 0..25 {
                        client.say(Call::post(if worker == 0 { "/bad" } else { "/good" }, "{}").bytes());
                        assert_eq!(client.answer().status, if worker == 0 { 502 } else { 200 });
                    }
                });
            }
        });
        assert_eq!(gateway.metric("service_panics_total", ""), 0.0);
    }
}
