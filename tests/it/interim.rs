//! Promise: interim responses. We answer `Expect: 100-continue` ourselves, swallow the provider's 100, relay the rest.

use std::time::Duration;

use crate::support::{Call, Client, Setup, Upstream, call, chat_body, on_both_drivers};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

on_both_drivers! {
    fn a_client_that_expects_100_gets_it_before_its_body(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let body = chat_body("hello").to_string();
        let mut client = Client::connect(gateway.addr);
        for _ in 0..2 {
            let length = body.len();
            client.say("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n");
            client.say(format!("Content-Length: {length}\r\n\r\n"));
            assert_eq!(client.read_until(|bytes| bytes.ends_with(b"\r\n\r\n")), b"HTTP/1.1 100 Continue\r\n\r\n");
            client.say(&body);
            assert_eq!(client.answer().status, 200);
        }
        for seen in upstream.requests() {
            assert_eq!((seen.header("expect"), seen.body.as_slice()), (None, body.as_bytes()));
        }
    }

    fn a_refused_client_is_told_instead_of_100(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).with("max_request_size_bytes: 100").start();
        let mut client = Client::connect(gateway.addr);
        client.say(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 101\r\n\r\n",
        );
        assert_eq!(client.answer().status, 413);
        client.assert_closed();
    }

    fn an_unknown_expectation_is_417(driver) {
        let gateway = Setup::new(driver).start();
        let answer = call(gateway.addr, Call::post("/v1/x", "{}").field("Expect", "miracles").bytes());
        assert_eq!(answer.status, 417);
    }

    fn early_hints_are_relayed_and_100_is_swallowed(driver) {
        let upstream = Upstream::play(|peer| {
            while peer.request().is_some() {
                peer.say("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n");
                peer.say("HTTP/1.1 102 Processing\r\n\r\n");
                peer.say(OK);
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        for _ in 0..2 {
            client.say(Call::get("/v1/models").bytes());
            let hints = client.answer();
            assert_eq!((hints.status, hints.header("link").as_deref()), (103, Some("</a>; rel=preload")));
            assert_eq!(client.answer().status, 102);
            assert_eq!(client.answer().status, 200);
        }
    }

    fn an_http_1_0_client_sees_no_interim_response(driver) {
        let upstream = Upstream::play(|peer| {
            peer.request();
            peer.say("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
            peer.say(OK);
            peer.wait_closed();
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let answer = call(gateway.addr, "GET /v1/models HTTP/1.0\r\nHost: x\r\n\r\n");
        assert_eq!(answer.status, 200);
    }

    fn a_100_arrives_before_the_provider_has_been_asked_for_more(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say("POST /v1/files HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(client.read_until(|bytes| bytes.ends_with(b"\r\n\r\n")), b"HTTP/1.1 100 Continue\r\n\r\n");
        client.assert_silent(Duration::from_millis(50));
        client.say("3\r\nabc\r\n0\r\n\r\n");
        assert_eq!(client.answer().status, 200);
        assert_eq!(upstream.requests()[0].body, b"abc");
    }
}
