//! Promise: whatever framing HTTP/1.1 allows, a message arrives as the message it was, and the connection goes on where
//! it may.

use serde_json::json;

use crate::support::{Call, Client, Setup, Upstream, call, chat_body, chat_call, on_both_drivers, provider};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

on_both_drivers! {
    fn one_connection_carries_many_requests(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).start();
        let mut client = Client::connect(gateway.addr);
        for number in 0..20 {
            let request = chat_call(&format!("question {number}"));
            client.say(if number % 2 == 0 { request.bytes() } else { request.chunked(7) });
            let answer = client.answer();
            assert!(answer.status == 200 && answer.keep_alive, "{}", answer.lossy_head());
            assert_eq!(
                provider.received().pop().unwrap().request.body,
                chat_body(&format!("question {number}")).to_string().as_bytes()
            );
        }
        assert_eq!(provider.connections_accepted(), 1);
    }

    fn a_chunked_request_stays_chunked(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        call(gateway.addr, chat_call("hello").chunked(5));
        let seen = upstream.requests().remove(0);
        assert_eq!((seen.header("transfer-encoding"), seen.header("content-length")), (Some("chunked"), None));
        assert_eq!(seen.body, chat_body("hello").to_string().as_bytes());
    }

    fn a_chunked_answer_keeps_its_chunks(driver) {
        let upstream =
            Upstream::always("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n");
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let answer = call(gateway.addr, Call::get("/v1/files/x").bytes());
        assert_eq!(answer.raw_body, b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n");
        assert!(answer.keep_alive && answer.header("content-length").is_none());
    }

    fn trailers_do_not_cross(driver) {
        let upstream = Upstream::always(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n",
        );
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        for _ in 0..2 {
            client.say("POST /v1/files HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
            client.say("2\r\nhi\r\n0\r\nX-Service-Token: t\r\n\r\n");
            let answer = client.answer();
            assert_eq!((answer.body.as_slice(), answer.header("trailer")), (&b"abc"[..], None));
            assert!(!answer.raw_body.windows(5).any(|bytes| bytes == b"X-Sum"));
        }
        assert!(upstream.requests().iter().all(|request| request.raw.ends_with(b"0\r\n\r\n")));
    }

    fn an_answer_until_close_becomes_chunks_and_the_client_stays(driver) {
        let upstream = Upstream::play(|peer| {
            peer.request();
            peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n");
            peer.say("all that is to be said");
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        for _ in 0..3 {
            client.say(Call::get("/v1/files/x").bytes());
            let answer = client.answer();
            assert_eq!(answer.text(), "all that is to be said");
            assert_eq!(answer.header("transfer-encoding").as_deref(), Some("chunked"));
        }
    }

    fn an_http_1_0_client_gets_bare_content_and_the_end(driver) {
        let upstream =
            Upstream::always("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n");
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say("GET /v1/files/x HTTP/1.0\r\n\r\n");
        let answer = client.answer();
        assert_eq!((answer.body.as_slice(), answer.header("transfer-encoding")), (&b"abcd"[..], None));
        client.assert_closed();
        assert!(upstream.requests()[0].raw_head().starts_with(b"GET /v1/files/x HTTP/1.1\r\n"));
        assert_eq!(upstream.requests()[0].header("host"), Some(upstream.addr().to_string().as_str()));
    }

    fn an_http_1_0_client_that_asks_for_it_is_kept(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        for _ in 0..2 {
            client.say("GET /v1/models HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n");
            let answer = client.answer();
            assert_eq!(answer.body, b"{}");
            if answer.header("connection").is_none_or(|value| !value.eq_ignore_ascii_case("keep-alive")) {
                // Closing instead is allowed, but then it has to be done.
                client.assert_closed();
                return;
            }
        }
    }

    fn connection_close_is_honoured(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say(chat_call("hello").field("Connection", "close").bytes());
        let answer = client.answer();
        assert_eq!(answer.header("connection").map(|value| value.to_ascii_lowercase()).as_deref(), Some("close"));
        client.assert_closed();
        let seen = upstream.requests().remove(0);
        assert!(seen.keep_alive, "the provider's connection is ours to keep");
    }

    fn head_204_and_304_have_no_body_and_the_connection_goes_on(driver) {
        let upstream = Upstream::play(|peer| {
            while let Some(request) = peer.request() {
                peer.say(match request.path.as_str() {
                    "/head" => "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n",
                    "/head-chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                    "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                    _ => "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 99\r\n\r\n",
                });
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        for (method, path, status, length) in [
            ("HEAD", "/head", 200, Some("12345")),
            ("GET", "/204", 204, None),
            ("GET", "/304", 304, Some("99")),
            ("HEAD", "/head-chunked", 200, None),
            ("GET", "/204", 204, None),
        ] {
            client.say(format!("{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let answer = client.answer_to(method).unwrap();
            assert_eq!((answer.status, answer.header("content-length").as_deref()), (status, length), "{path}");
            assert!(answer.body.is_empty());
        }
        assert_eq!(upstream.connections(), 1);
    }

    fn pipelined_requests_are_answered_in_order(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).start();
        let mut client = Client::connect(gateway.addr);
        let mut all = Vec::new();
        for number in 0..10 {
            let call = chat_call("x").field("x-fake-reply", &format!("answer {number}"));
            all.extend_from_slice(&if number % 3 == 0 { call.chunked(9) } else { call.bytes() });
            all.extend_from_slice(&Call::get("/health").bytes());
        }
        client.say(all);
        for number in 0..10 {
            assert_eq!(client.answer().json()["choices"][0]["message"]["content"], format!("answer {number}"));
            assert_eq!(client.answer().json()["status"], "healthy");
        }
    }

    fn a_head_in_single_bytes_is_a_head(driver) {
        let upstream = Upstream::play(|peer| {
            while peer.request().is_some() {
                for byte in OK.as_bytes() {
                    peer.say([*byte]);
                }
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        for framed in [chat_call("hello").bytes(), chat_call("hello").chunked(4)] {
            for byte in framed {
                client.say([byte]);
            }
            assert_eq!(client.answer().body, b"{}");
        }
        let expected = chat_body("hello").to_string();
        assert!(upstream.requests().iter().all(|request| request.body == expected.as_bytes()));
    }

    fn large_bodies_pass_both_ways(driver) {
        const BYTES: usize = 20 * 1024 * 1024;
        let upstream = Upstream::play(|peer| {
            while let Some(request) = peer.request() {
                peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()));
                peer.say(&request.body);
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let text: String = "All work and no play makes for a long file. ".chars().cycle().take(BYTES).collect();
        let chat = json!({ "model": "fake-large", "messages": [{ "role": "user", "content": text }] }).to_string();
        for (path, body, chunked) in [
            ("/v1/files", text.clone().into_bytes(), false),
            ("/v1/files", text.into_bytes(), true),
            ("/v1/messages", chat.into_bytes(), false),
        ] {
            let request = Call::post(path, body.clone());
            let mut client = Client::connect(gateway.addr);
            let answer = std::thread::scope(|scope| {
                let mut writer = client.stream.try_clone().unwrap();
                scope.spawn(move || {
                    let bytes = if chunked { request.chunked(1 << 20) } else { request.bytes() };
                    std::io::Write::write_all(&mut writer, &bytes).unwrap();
                });
                client.answer()
            });
            assert_eq!(answer.status, 200);
            assert!(answer.body == body, "{path}: {} bytes came back", answer.body.len());
        }
    }

    fn any_method_and_target_passes(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        for (method, target) in [
            ("PUT", "/v1/files/%2Fx%00?q=a+b&&"),
            ("PATCH", "//double//slash/"),
            ("DELETE", "/v1/files/x;v=1"),
            ("OPTIONS", "/v1/models"),
            ("QUERY", "/v1/x"),
        ] {
            let answer =
                call(gateway.addr, format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"));
            assert_eq!(answer.status, 200, "{method} {target}");
            let seen = upstream.requests().pop().unwrap();
            let line = format!("{method} {target} HTTP/1.1\r\n");
            assert!(seen.raw_head().starts_with(line.as_bytes()), "{}", String::from_utf8_lossy(seen.raw_head()));
        }
    }

    fn the_absolute_form_never_chooses_the_provider(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let answer =
            call(gateway.addr, "GET http://169.254.169.254/v1/models?x=1 HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n");
        assert_eq!(answer.status, 200);
        let seen = upstream.requests().remove(0);
        assert!(seen.raw_head().starts_with(b"GET /v1/models?x=1 HTTP/1.1\r\n"));
        assert_eq!(seen.header("host"), Some(upstream.addr().to_string().as_str()));
    }
}
