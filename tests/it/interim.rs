//! Promise: interim responses. We answer `Expect: 100-continue` ourselves, swallow the provider's 100, relay the rest.

use std::io::Write as _;
use std::time::Duration;

use crate::support::{
    Call, Client, Driver, Gate, Gateway, Setup, Upstream, call, chat_body, on_both_drivers, secure_peer, trust,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
const UPLOAD_BYTES: usize = 60_000;

/// A provider that says `said`, piece by piece, each when `gate` lets it, while the upload runs; then reads the upload to its
/// end and says `last`. It speaks plainly in front of one gateway and TLS in front of the other.
fn speaking_meanwhile(
    driver: Driver,
    said: &'static [&'static str],
    last: &'static str,
) -> (Upstream, Vec<(Gateway, Gate)>) {
    fn script(stream: &mut (impl std::io::Read + std::io::Write), gate: &Gate, said: &[&str], last: &str) {
        let (mut got, mut piece) = (Vec::new(), [0; 16 * 1024]);
        let read = |stream: &mut dyn std::io::Read, got: &mut Vec<u8>, piece: &mut [u8]| {
            let count = stream.read(piece).unwrap_or(0);
            got.extend_from_slice(&piece[..count]);
            count > 0
        };
        while !got.windows(4).any(|at| at == b"\r\n\r\n") && read(stream, &mut got, &mut piece) {}
        let head = got.windows(4).position(|at| at == b"\r\n\r\n").expect("a head") + 4;
        for part in said {
            gate.pass();
            if stream.write_all(part.as_bytes()).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
        while !last.is_empty() && got.len() < head + UPLOAD_BYTES && read(stream, &mut got, &mut piece) {}
        drop(stream.write_all(last.as_bytes()).and_then(|()| stream.flush()));
        Gate::new().pass();
    }
    let (plain, secure) = (Gate::new(), Gate::new());
    let upstream = Upstream::play({
        let gate = plain.clone();
        move |peer| script(&mut peer.stream, &gate, said, last)
    });
    let over_plain = Setup::new(driver).upstream(upstream.url()).start();
    let port = secure_peer({
        let gate = secure.clone();
        move |stream| script(stream, &gate, said, last)
    });
    let (_folder, trusted) = trust();
    let over_tls = Setup::new(driver).upstream(format!("https://localhost:{port}")).with(&trusted).start();
    (upstream, vec![(over_plain, plain), (over_tls, secure)])
}

/// A client that has begun an upload.
fn uploading(gateway: &Gateway) -> Client {
    let mut client = Client::connect(gateway.addr);
    client.say(format!("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: {UPLOAD_BYTES}\r\n\r\n"));
    client.say([b'x'; 10_000]);
    client
}

on_both_drivers! {
    fn an_interim_response_that_comes_in_pieces_during_an_upload_is_relayed_and_does_not_end_it(driver) {
        const PIECES: &[&str] = &["H", "TTP/1.1 ", "1", "03 Early Hints\r\nLi", "nk: </a>\r\n\r\n"];
        let (_upstream, gateways) = speaking_meanwhile(driver, PIECES, OK);
        for (gateway, gate) in gateways {
            let mut client = uploading(&gateway);
            for _ in 0..PIECES.len() - 1 {
                gate.open();
                client.assert_silent(Duration::from_millis(60));
                client.say([b'x'; 10_000]);
            }
            gate.open();
            // Nothing more is sent before it has come.
            let hints = client.answer();
            assert_eq!((hints.status, hints.header("link").as_deref()), (103, Some("</a>")));
            client.say([b'x'; 10_000]);
            assert_eq!(client.answer().status, 200);
        }
    }

    fn an_answer_behind_an_interim_response_is_heard_while_the_client_pauses(driver) {
        const REFUSED: &str = "HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nmuch";
        let (_upstream, gateways) = speaking_meanwhile(driver, &[HINTS, "HTTP/1.1 102 P\r\n\r\n", REFUSED], "");
        for (gateway, gate) in gateways {
            let mut client = uploading(&gateway);
            for status in [103, 102, 413] {
                gate.open();
                assert_eq!(client.answer().status, status);
            }
        }
    }

    fn an_answer_behind_an_interim_response_is_heard_while_nothing_more_can_be_sent(driver) {
        const REST: &str = "03 Early Hints\r\nLink: </a>\r\n\r\n";
        const REFUSED: &str = "HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nmuch";
        let (_upstream, gateways) = speaking_meanwhile(driver, &["HTTP/1.1 1", REST, REFUSED], "");
        for (gateway, gate) in gateways {
            let mut client = Client::connect(gateway.addr);
            client.say("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n");
            let mut sender = client.stream.try_clone().unwrap();
            // More than all socket buffers hold: the gateway's write to the provider blocks.
            let sending = std::thread::spawn(move || (0..48).all(|_| sender.write_all(&vec![b'x'; 1 << 20]).is_ok()));
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(80));
                gate.open();
            }
            let statuses = [client.answer().status, client.answer().status];
            assert_eq!(statuses, [103, 413]);
            drop(client.stream.shutdown(std::net::Shutdown::Both));
            assert!(!sending.join().unwrap(), "the rest is not wanted");
        }
    }

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
