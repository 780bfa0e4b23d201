//! Promise: what RFC 9110 and 9112 ask of an intermediary, row by row as docs/evidence.md lists them (R1 to R26). Here
//! stand the rows that no other suite shows; each test names its row.

use std::time::Duration;

use serde_json::json;

use crate::support::{Call, Client, Gate, Setup, Upstream, call, chat_call, on_both_drivers};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

/// What becomes of an answer.
enum Expected {
    /// 502, and the connection is not used again.
    Refused,
    /// The client gets 200 with this body; the connection is used again or not.
    Served(&'static [u8], bool),
}

on_both_drivers! {
    fn r1_r3_r4_r10_r11_r12_faulty_answers_are_refused_or_repaired_and_end_their_connection(driver) {
        use Expected::{Refused, Served};
        for (row, answer, expected) in [
            ("R1 both framings", "Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", Served(b"ok", false)),
            ("R3 a coding in HTTP/1.0", "1.0 Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", Refused),
            ("R4 differing lengths", "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok", Refused),
            ("R4 no number", "Content-Length: 2x\r\n\r\nok", Refused),
            ("R4 a sign", "Content-Length: +2\r\n\r\nok", Refused),
            ("R10 a folded field", "X: y\r\n z\r\nContent-Length: 2\r\n\r\nok", Refused),
            ("R11 a space before the colon", "X : y\r\nContent-Length: 2\r\n\r\nok", Served(b"ok", true)),
            ("R11 NUL in a value", "X: a\0b\r\nContent-Length: 2\r\n\r\nok", Refused),
            ("R12 a bare CR", "X: a\rb\r\nContent-Length: 2\r\n\r\nok", Refused),
            ("R12 a bare LF", "X: a\nContent-Length: 2\r\n\r\nok", Refused),
            ("R14 an extension", "Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0;z\r\n\r\n", Served(b"ok", true)),
            ("nothing odd", "Content-Length: 2\r\n\r\nok", Served(b"ok", true)),
        ] {
            let answer = match answer.strip_prefix("1.0 ") {
                Some(rest) => format!("HTTP/1.0 200 OK\r\n{rest}"),
                None => format!("HTTP/1.1 200 OK\r\n{answer}"),
            };
            let upstream = Upstream::always(answer);
            let gateway = Setup::new(driver).upstream(upstream.url()).server("core_threads: 1").start();
            let mut client = Client::connect(gateway.addr);
            for _ in 0..2 {
                client.say(Call::post("/v1/files", "{}").bytes());
                let got = client.answer();
                match expected {
                    Refused => assert_eq!((got.status, &got.json()["error"]["type"]), (502, &json!("upstream_protocol_error")), "{row}"),
                    Served(body, _) => assert_eq!((got.status, got.body.as_slice()), (200, body), "{row}"),
                }
                let raw = [got.head.as_slice(), &got.raw_body].concat();
                assert!(!raw.windows(3).any(|at| at == b"x=y"), "{row}: an extension was passed on");
            }
            let used_again = matches!(expected, Served(_, true));
            assert_eq!(upstream.connections(), if used_again { 1 } else { 2 }, "{row}");
        }
    }

    fn r5_a_body_shorter_than_promised_is_no_request(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        for framing in ["Content-Length: 100\r\n\r\nonly this", "Transfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n"] {
            let mut client = Client::connect(gateway.addr);
            client.say(format!("POST /v1/files HTTP/1.1\r\nHost: x\r\n{framing}"));
            client.finish();
            client.rest();
        }
        let span = gateway.newest_span_of(2);
        assert_eq!(span["error_type"], "client_disconnected");
        assert_eq!(upstream.requests().len(), 0, "the provider never saw a whole request");
    }

    fn r7_what_connection_names_ends_here_in_both_directions(driver) {
        let upstream = Upstream::always(
            "HTTP/1.1 200 OK\r\nConnection: X-Hop, keep-alive\r\nX-Hop: a\r\nX-Stays: b\r\nKeep-Alive: timeout=5\r\n\
             Proxy-Authenticate: Basic\r\nTrailer: X-T\r\nUpgrade: h2\r\nContent-Length: 2\r\n\r\n{}",
        );
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let answer = call(
            gateway.addr,
            "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: x-hop\r\nConnection: , TE\r\nX-Hop: a\r\nX-Stays: b\r\n\
             Keep-Alive: 5\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\nTE: trailers\r\n\
             Trailer: X-T\r\nUpgrade: h2c\r\n\r\n",
        );
        let hop = ["connection", "x-hop", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate",
                   "te", "trailer", "upgrade"];
        let seen = upstream.requests().remove(0);
        for name in hop {
            assert_eq!((seen.header(name), answer.header(name)), (None, None), "{name}");
        }
        assert_eq!((seen.header("x-stays"), answer.header("x-stays").as_deref()), (Some("b"), Some("b")));
    }

    fn r9_an_absolute_form_is_served_only_where_it_names_us(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let ask = |authority: &str, host: &str| {
            call(gateway.addr, format!("GET http://{authority}/v1/models?x=1 HTTP/1.1\r\nHost: {host}\r\n\r\n"))
        };
        let ours = gateway.addr.to_string();
        for (authority, host) in [("llm.example", "llm.example"), ("LLM.example:80", "llm.example:80"), (ours.as_str(), "other.example")] {
            assert_eq!(ask(authority, host).status, 200, "{authority}");
            let seen = upstream.requests().pop().unwrap();
            assert!(seen.raw_head().starts_with(b"GET /v1/models?x=1 HTTP/1.1\r\n"));
            assert_eq!(seen.header("host"), Some(upstream.addr().to_string().as_str()), "never routed by it");
        }
        let before = upstream.requests().len();
        for (authority, host) in [("169.254.169.254", "llm.example"), ("llm.example:81", "llm.example"), ("127.0.0.1:1", "127.0.0.1")] {
            let answer = ask(authority, host);
            assert_eq!((answer.status, answer.keep_alive), (400, false), "{authority}");
            assert_eq!(answer.json()["error"]["type"], "invalid_request");
        }
        assert_eq!(upstream.requests().len(), before);
    }

    fn r14_chunk_extensions_and_r15_trailers_stay_on_their_hop(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let request = "POST /v1/files HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                       2;ext=\"a;b\"\r\nok\r\n0;last\r\nX-Trailer: t\r\n\r\n";
        assert_eq!(call(gateway.addr, request).status, 200);
        let seen = upstream.requests().remove(0);
        assert_eq!(seen.body, b"ok");
        let raw = String::from_utf8_lossy(&seen.raw).into_owned();
        assert!(!raw.contains("ext") && !raw.contains("last") && !raw.contains("X-Trailer"), "{raw}");
    }

    fn r18_options_travels_as_far_as_max_forwards_says(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        for (target, hops) in [("*", "0"), ("/v1/models", "000")] {
            client.say(format!("OPTIONS {target} HTTP/1.1\r\nHost: x\r\nMax-Forwards: {hops}\r\nContent-Length: 2\r\n\r\n{{}}"));
            let answer = client.answer();
            assert_eq!((answer.status, answer.body.len()), (200, 0));
            assert_eq!(answer.header("allow").as_deref(), Some("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"));
        }
        assert_eq!(upstream.requests().len(), 0, "we were its destination");
        assert_eq!(gateway.newest_span_of(2)["status_code"], 200);
        for (hops, onward) in [("1", "0"), ("10", "9")] {
            client.say(format!("OPTIONS * HTTP/1.1\r\nHost: x\r\nMax-Forwards: {hops}\r\n\r\n"));
            assert_eq!(client.answer().status, 200);
            assert_eq!(upstream.requests().pop().unwrap().header("max-forwards"), Some(onward));
        }
        client.say("OPTIONS * HTTP/1.1\r\nHost: x\r\nMax-Forwards: -1\r\n\r\n");
        assert_eq!(client.answer().status, 400);
        // On any other method the field is nobody's business on the way.
        client.say("GET /v1/models HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n");
        assert_eq!(client.answer().status, 200);
        assert_eq!(upstream.requests().pop().unwrap().header("max-forwards"), Some("0"));
    }

    fn r20_nothing_behind_a_close_is_processed(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say("GET /v1/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /v1/b HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.answer().status, 200);
        client.assert_closed();
        assert_eq!(upstream.requests().len(), 1);
    }

    fn r24_r25_order_unknown_fields_and_challenges_pass_untouched(driver) {
        let upstream = Upstream::always(
            "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"a\"\r\nX-Odd: 1\r\nWWW-Authenticate: Basic\r\n\
             Allow: GET,  POST\r\nX-Odd: 2\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nContent-Length: 0\r\n\r\n",
        );
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let answer = call(gateway.addr, Call::get("/v1/models").field("X-Odd", "b").field("x-ODD", "a").bytes());
        assert_eq!(answer.all("www-authenticate"), ["Bearer realm=\"a\"", "Basic"]);
        assert_eq!((answer.all("x-odd"), answer.all("set-cookie")), (vec!["1".into(), "2".into()], vec!["a=b".into(), "c=d".into()]));
        assert_eq!(answer.header("allow").as_deref(), Some("GET,  POST"));
        let head = String::from_utf8_lossy(upstream.requests()[0].raw_head()).into_owned();
        assert!(head.contains("X-Odd: b\r\nx-ODD: a\r\n"), "{head}");
    }

    fn a_provider_cannot_speak_in_our_name(driver) {
        let upstream = Upstream::always(
            "HTTP/1.1 103 Early Hints\r\nX-Service-Flagged: true\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\
             X-Service-Trace-Id: forged\r\nx-service-flagged: true\r\nX-SERVICE-Anything: x\r\nContent-Length: 2\r\n\r\n{}",
        );
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say(chat_call("hello").bytes());
        let got = client.read_until(|bytes| bytes.ends_with(b"{}"));
        let got = String::from_utf8_lossy(&got).to_lowercase();
        assert!(got.starts_with("http/1.1 103 ") && got.contains("link: </a>"), "{got}");
        assert!(!got.contains("forged") && !got.contains("flagged") && !got.contains("anything"), "{got}");
        assert_eq!(got.matches("x-service-trace-id: ").count(), 1);
    }

    fn an_interim_response_does_not_end_an_upload(driver) {
        let (hinted, gate) = (Gate::new(), Gate::new());
        let upstream = Upstream::play({
            let (hinted, gate) = (hinted.clone(), gate.clone());
            move |peer| {
                peer.say("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
                hinted.open();
                gate.pass();
                while peer.request().is_some() {
                    peer.say(OK);
                }
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
        client.say([b'x'; 20_000]);
        assert!(hinted.pass());
        gate.open();
        std::thread::sleep(Duration::from_millis(60));
        client.say([b'x'; 40_000]);
        let got = client.read_until(|bytes| bytes.ends_with(b"{}"));
        assert!(String::from_utf8_lossy(&got).contains("HTTP/1.1 200 OK"));
        assert_eq!(upstream.requests()[0].body.len(), 60_000);
    }
}
