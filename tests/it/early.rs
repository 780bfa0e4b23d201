//! Promise: a provider that answers before it has seen the whole upload costs nobody a connection where all of it has arrived, and
//! the client none while little is missing; the answer does not wait for the rest, the rest is not waited for long, and nobody
//! can make it somebody else's request.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{
    Call, Client, Driver, Gateway, Setup, Upstream, call, eventually, on_both_drivers, secure_peer, trust,
};

const REFUSED: &str = "HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nmuch";

/// What a provider has seen.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    /// Bytes of each upload, when it was complete.
    uploads: Mutex<Vec<usize>>,
}

/// Answers each upload from its head, then reads it to its end, and so on.
fn answer_from_heads(stream: &mut (impl Read + Write), answer: &str, seen: &Seen) {
    seen.connections.fetch_add(1, Ordering::SeqCst);
    let (mut got, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let end = loop {
            if let Some(at) = got.windows(4).position(|at| at == b"\r\n\r\n") {
                break at + 4;
            }
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => got.extend_from_slice(&piece[..count]),
                _ => return,
            }
        };
        if stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).is_err() {
            return;
        }
        let head = String::from_utf8_lossy(&got[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        let length: usize = length.parse().expect("a number");
        while got.len() < end + length {
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => got.extend_from_slice(&piece[..count]),
                _ => return,
            }
        }
        seen.uploads.lock().unwrap().push(length);
        got.drain(..end + length);
    }
}

/// Gateways in front of such a provider, over TCP and over TLS.
fn gateways(driver: Driver, answer: &'static str) -> (Upstream, Vec<(Gateway, Arc<Seen>)>) {
    let (plain, secure) = (Arc::new(Seen::default()), Arc::new(Seen::default()));
    let (over_plain, over_tls) = (Arc::clone(&plain), Arc::clone(&secure));
    let upstream = Upstream::play(move |peer| answer_from_heads(&mut peer.stream, answer, &over_plain));
    let port = secure_peer(move |stream| answer_from_heads(stream, answer, &over_tls));
    let (_folder, trusted) = trust();
    let start = |url: String| Setup::new(driver).upstream(url).with(&trusted).server("core_threads: 1").start();
    let gateways = vec![(start(upstream.url()), plain), (start(format!("https://localhost:{port}")), secure)];
    (upstream, gateways)
}

/// Answers each request with its path and never expects a body, so that one which comes is the next request.
fn answer_and_take_the_rest_for_requests(stream: &mut (impl Read + Write), asked: &Mutex<Vec<String>>) {
    let (mut got, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        while let Some(end) = got.windows(4).position(|at| at == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&got[..end]).into_owned();
            got.drain(..end + 4);
            let path = head.split(' ').nth(1).unwrap_or_default();
            asked.lock().unwrap().push(path.to_owned());
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => got.extend_from_slice(&piece[..count]),
            _ => return,
        }
    }
}

fn upload_head(length: usize) -> String {
    format!("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n")
}

fn begin_upload(client: &mut Client, length: usize, begun: usize) {
    client.say(upload_head(length));
    client.say(vec![b'x'; begun]);
}

on_both_drivers! {
    fn an_early_answer_keeps_both_connections_where_all_of_the_upload_has_arrived(driver) {
        let (_upstream, gateways) = gateways(driver, REFUSED);
        for (gateway, seen) in gateways {
            let mut client = Client::connect(gateway.addr);
            for _ in 0..20 {
                client.say([upload_head(8_000).as_bytes(), &[b'x'; 8_000]].concat());
                let answer = client.answer();
                assert_eq!((answer.status, answer.body.as_slice(), answer.keep_alive), (413, &b"much"[..], true));
            }
            eventually("all of each upload", || (*seen.uploads.lock().unwrap() == [8_000; 20]).then_some(()));
            assert_eq!(seen.connections.load(Ordering::SeqCst), 1);
        }
    }

    fn what_is_held_back_until_an_early_answer_keeps_the_clients_connection_only(driver) {
        let (_upstream, gateways) = gateways(driver, REFUSED);
        for (gateway, seen) in gateways {
            let mut client = Client::connect(gateway.addr);
            for (length, begun) in [(60_000, 10_000), (8_000, 0)] {
                begin_upload(&mut client, length, begun);
                let answer = client.answer();
                assert_eq!((answer.status, answer.body.as_slice(), answer.keep_alive), (413, &b"much"[..], true));
                client.say(vec![b'x'; length - begun]);
            }
            begin_upload(&mut client, 5, 5);
            assert_eq!(client.answer().status, 413);
            eventually("the last upload", || (*seen.uploads.lock().unwrap() == [5]).then_some(()));
            assert_eq!(seen.connections.load(Ordering::SeqCst), 3);
        }
    }

    fn what_is_held_back_until_an_early_answer_is_nobodys_request(driver) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&asked);
        let upstream = Upstream::play(move |peer| answer_and_take_the_rest_for_requests(&mut peer.stream, &lines));
        let gateway = Setup::new(driver).upstream(upstream.url()).server("core_threads: 1").start();
        let smuggled = "GET /v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
        for begun in [0, 10] {
            let mut attacker = Client::connect(gateway.addr);
            attacker.say([&upload_head(smuggled.len()), &smuggled[..begun]].concat());
            assert_eq!(attacker.answer().text(), "/v1/files");
            attacker.say(&smuggled[begun..]);
            for victim in ["/v1/a", "/v1/b", "/v1/c"] {
                let answer = call(gateway.addr, Call::get(victim).bytes());
                assert_eq!(answer.text(), victim, "its own answer");
            }
        }
        let asked = asked.lock().unwrap();
        assert!(!asked.iter().any(|line| line.contains("smuggled")), "{asked:?}");
    }

    fn a_provider_that_closes_after_its_early_answer_costs_its_own_connection_only(driver) {
        const CLOSING: &str = "HTTP/1.1 429 Slow Down\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";
        let (_upstream, gateways) = gateways(driver, CLOSING);
        for (gateway, seen) in gateways {
            let mut client = Client::connect(gateway.addr);
            for _ in 0..2 {
                begin_upload(&mut client, 60_000, 10_000);
                let answer = client.answer();
                assert_eq!((answer.status, answer.keep_alive), (429, true));
                client.say([b'x'; 50_000]);
            }
            begin_upload(&mut client, 5, 5);
            assert_eq!(client.answer().status, 429);
            assert_eq!(seen.connections.load(Ordering::SeqCst), 3);
        }
    }

    fn a_rest_that_does_not_come_is_not_waited_for_long(driver) {
        let (_upstream, gateways) = gateways(driver, REFUSED);
        for (gateway, seen) in gateways {
            let mut client = Client::connect(gateway.addr);
            begin_upload(&mut client, 60_000, 10_000);
            assert_eq!(client.answer().status, 413);
            let answered = Instant::now();
            client.assert_closed();
            let waited = answered.elapsed();
            assert!((Duration::from_secs(1)..Duration::from_secs(8)).contains(&waited), "{waited:?}");
            assert!(seen.uploads.lock().unwrap().is_empty());
            // Half an upload stands on the provider's connection.
            begin_upload(&mut Client::connect(gateway.addr), 5, 5);
            eventually("a new connection", || (seen.connections.load(Ordering::SeqCst) == 2).then_some(()));
        }
    }

    fn with_much_missing_both_connections_end_with_the_early_answer(driver) {
        let (_upstream, gateways) = gateways(driver, REFUSED);
        for (gateway, seen) in gateways {
            let mut client = Client::connect(gateway.addr);
            begin_upload(&mut client, 400_000, 10_000);
            let answer = client.answer();
            assert_eq!((answer.status, answer.keep_alive), (413, false));
            client.assert_closed();
            assert!(seen.uploads.lock().unwrap().is_empty());
        }
    }
}
