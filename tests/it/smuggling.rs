//! Promise: a message two readers could read differently gets 400 and the end of the connection, and nothing of it
//! reaches the provider.

use crate::support::{Client, Setup, Upstream, call, on_both_drivers};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
const POST: &str = "POST /v1/files HTTP/1.1\r\nHost: x\r\n";
/// What an attacker would like to hide in a body.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";

on_both_drivers! {
    fn ambiguous_messages_are_refused_and_end_the_connection(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        for (why, request) in [
            ("length beside coding", format!("{POST}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
            ("coding beside length", format!("{POST}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n")),
            ("two equal lengths", format!("{POST}Content-Length: 0\r\nContent-Length: 0\r\n\r\n")),
            ("two different lengths", format!("{POST}Content-Length: 0\r\nContent-Length: 36\r\n\r\n")),
            ("a list of lengths", format!("{POST}Content-Length: 0, 0\r\n\r\n")),
            ("a signed length", format!("{POST}Content-Length: +4\r\n\r\n{{}}  ")),
            ("a hexadecimal length", format!("{POST}Content-Length: 0x4\r\n\r\n{{}}  ")),
            ("a length with an underscore", format!("{POST}Content-Length: 0\r\nContent_Length: 36\r\n\r\n")),
            ("an endless length", format!("{POST}Content-Length: 99999999999999999999\r\n\r\n")),
            (
                "chunked twice",
                format!("{POST}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            ),
            ("chunked, chunked", format!("{POST}Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n")),
            ("chunked not last", format!("{POST}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n")),
            ("a misspelt coding", format!("{POST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n")),
            ("a coding in quotes", format!("{POST}Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n")),
            (
                "a coding in HTTP/1.0",
                "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            ),
            ("bare LF in the head", "POST /v1/files HTTP/1.1\nHost: x\nContent-Length: 0\n\n".to_owned()),
            ("one bare LF", format!("{POST}X: y\nContent-Length: 0\r\n\r\n")),
            ("a bare CR", format!("{POST}X: y\rContent-Length: 36\r\n\r\n")),
            ("a folded field", format!("{POST}X: y\r\n Content-Length: 36\r\n\r\n")),
            ("space before the colon", format!("{POST}Content-Length : 36\r\n\r\n")),
            ("space before the first field", "GET / HTTP/1.1\r\n Host: x\r\n\r\n".to_owned()),
            ("NUL in a value", format!("{POST}X: a\0b\r\n\r\n")),
            ("an empty name", format!("{POST}: y\r\n\r\n")),
            ("no host", "GET / HTTP/1.1\r\n\r\n".to_owned()),
            ("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".to_owned()),
            ("a host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".to_owned()),
            ("a length declared per hop", format!("{POST}Connection: content-length\r\nContent-Length: 36\r\n\r\n")),
            ("a target with a space", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
            ("no version", "GET /\r\n\r\n".to_owned()),
            ("a dot segment", "GET /v1/../admin HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
            ("an encoded dot segment", "GET /v1/%2e%2E/admin HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
            ("a dot segment at the end", "GET /v1/. HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
            ("a dot segment in our API", "GET /api/v1/../../v1/models HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
            ("a TLS hello", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\r\n\r\n".to_owned()),
        ] {
            let mut client = Client::connect(gateway.addr);
            client.try_say(format!("{request}{HIDDEN}"));
            let answer = client.answer();
            assert_eq!(answer.status, 400, "{why}: {}", answer.text());
            assert_eq!(answer.json()["error"]["type"], "invalid_request", "{why}");
            assert!(!answer.keep_alive, "{why}: the answer announces the end");
            client.assert_closed();
        }
        assert_eq!(upstream.requests().len(), 0);
        assert!(gateway.metric("service_requests_total", "status_code=\"400\"") >= 30.0, "refusals are counted");
    }

    fn a_broken_chunk_is_refused_wherever_it_comes(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        for path in ["/v1/files", "/v1/chat/completions"] {
            for body in [
                "xyz\r\nabc\r\n0\r\n\r\n",
                "3\nabc\r\n0\r\n\r\n",
                "3\r\nabcd\r\n0\r\n\r\n",
                "-3\r\nabc\r\n0\r\n\r\n",
                "0x3\r\nabc\r\n0\r\n\r\n",
                "3 \r\nabc\r\n0\r\n\r\n",
                "fffffffffffffffff\r\nabc",
                "3\r\nabc\r\n0\r\nX : y\r\n\r\n",
                "3;a\nb\r\nabc\r\n0\r\n\r\n",
            ] {
                let mut client = Client::connect(gateway.addr);
                client.say(format!("POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"));
                client.try_say(format!("{body}{HIDDEN}"));
                let answer = client.answer();
                assert_eq!(answer.status, 400, "{path} {body:?}: {}", answer.text());
                client.assert_closed();
            }
        }
        assert_eq!(upstream.requests().len(), 0, "no request has been completed");
    }

    fn what_only_looks_odd_is_served(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        for request in [
            "\r\nGET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /v1/..hidden/a..b/.well-known HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /v1/models?path=/../.. HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /v1/models HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
            "GET /v1/models HTTP/1.1\r\nHost: x\r\nX:\r\nY:  padded \t\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: CHUNKED\r\n\r\n03;ext=\"v\"\r\nabc\r\n00\r\nX: y\r\n\r\n",
            "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 003\r\n\r\nabc",
        ] {
            let answer = call(gateway.addr, request);
            assert_eq!((answer.status, answer.body.as_slice()), (200, &b"{}"[..]), "{request:?}: {}", answer.text());
        }
    }

    fn tunnels_are_not_served(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        for method in ["CONNECT 127.0.0.1:22", "CONNECT /", "TRACE /"] {
            let answer = call(gateway.addr, format!("{method} HTTP/1.1\r\nHost: x\r\n\r\n"));
            assert_eq!((answer.status, answer.header("allow").is_some()), (405, true), "{method}");
        }
        let newer = call(gateway.addr, "GET / HTTP/2.0\r\nHost: x\r\n\r\n");
        assert_eq!(newer.status, 505);
        assert_eq!(upstream.requests().len(), 0);
    }
}
