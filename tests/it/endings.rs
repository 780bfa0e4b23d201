//! Promise: how a connection ends tells the truth. A part of an answer cannot be taken for the whole, and a whole answer is not
//! destroyed by closing.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::support::{Call, Client, Gate, Setup, Upstream, eventually, on_both_drivers};

/// Its body lasts until the connection ends, for a client that speaks HTTP/1.0.
const ENDLESS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
const OLD_CALL: &str = "GET /v1/files/x HTTP/1.0\r\nHost: x\r\n\r\n";

/// A provider that says the beginning of an answer and, when the gate opens, closes.
fn cutting_provider() -> (Upstream, Gate) {
    Upstream::gated(|peer, gate| {
        peer.request();
        peer.say(ENDLESS);
        gate.pass();
    })
}

on_both_drivers! {
    fn a_cut_answer_that_only_the_end_frames_ends_with_a_reset(driver) {
        let (upstream, gate) = cutting_provider();
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say(OLD_CALL);
        client.read_until(|bytes| bytes.ends_with(b"\r\n\r\nhello"));
        gate.open();
        let (rest, in_order) = client.until_end();
        assert!(rest.is_empty() && !in_order, "an end in order makes the part look whole");
        assert_eq!(gateway.newest_span_of(1)["error_type"], json!("upstream_protocol_error"));
    }

    fn an_answer_that_the_end_of_a_drain_cuts_ends_with_a_reset(driver) {
        let (upstream, _gate) = cutting_provider();
        let mut gateway = Setup::new(driver).upstream(upstream.url()).with("shutdown: {timeout_seconds: 1}").start();
        let mut client = Client::connect(gateway.addr);
        client.say(OLD_CALL);
        client.read_until(|bytes| bytes.ends_with(b"\r\n\r\nhello"));
        gateway.terminate();
        let (rest, in_order) = client.until_end();
        assert!(rest.is_empty() && !in_order, "an end in order makes the part look whole");
        assert_eq!(gateway.wait().code(), Some(1));
    }

    fn a_whole_answer_that_the_end_frames_ends_in_order(driver) {
        let upstream = Upstream::always("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        client.say(OLD_CALL);
        let (got, in_order) = client.until_end();
        assert!(got.ends_with(b"\r\n\r\nhello") && in_order);
    }

    fn an_answer_survives_what_was_pipelined_behind_it(driver) {
        const BYTES: usize = 400_000;
        let (upstream, gate) = Upstream::gated(|peer, gate| {
            while peer.request().is_some() {
                gate.pass();
                peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n{}", "x".repeat(BYTES)));
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        // The answer waits in the gateway's kernel for a client with little room.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(8 * 1024).unwrap();
        socket.connect(&gateway.addr.into()).unwrap();
        let mut client = Client::over(TcpStream::from(socket));
        client.say(Call::get("/first").field("Connection", "close").bytes());
        upstream.wait_for_requests(1);
        for _ in 0..3 {
            client.say(Call::get("/never").bytes());
        }
        gate.open();
        std::thread::sleep(Duration::from_millis(150));
        let (got, _) = client.until_end();
        let head = got.windows(4).position(|at| at == b"\r\n\r\n").expect("a head") + 4;
        assert_eq!(got.len() - head, BYTES, "all of it arrives");
        assert_eq!(upstream.requests().len(), 1, "nothing behind a close is served");
    }

    fn a_gateway_with_one_connection_asks_again_at_once_and_never_opens_a_second(driver) {
        // What earlier connections look like when another one is made: `true` when their end has arrived.
        let (earlier, ended) = (Arc::new(Mutex::new(Vec::<TcpStream>::new())), Arc::new(Mutex::new(Vec::new())));
        let upstream = Upstream::play({
            let (earlier, ended) = (Arc::clone(&earlier), Arc::clone(&ended));
            move |peer| {
                {
                    let mut earlier = earlier.lock().unwrap();
                    for stream in earlier.iter() {
                        stream.set_nonblocking(true).unwrap();
                        // A request that met the provider's own end may lie in front of theirs.
                        let mut stream = stream;
                        let end = std::iter::repeat_with(|| stream.read(&mut [0; 1024])).find(|got| !matches!(got, Ok(1..)));
                        let still_open = matches!(end, Some(Err(error)) if error.kind() == ErrorKind::WouldBlock);
                        ended.lock().unwrap().push(!still_open);
                    }
                    earlier.clear();
                    earlier.push(peer.stream.try_clone().unwrap());
                }
                while let Some(request) = peer.request() {
                    if request.path == "/unasked" {
                        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}and more");
                    } else {
                        peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
                    }
                    if request.path == "/last" {
                        peer.close();
                        return;
                    }
                }
            }
        });
        let setup = Setup::new(driver).upstream(upstream.url()).unlimited().with("max_connections: 1\ntimeout_ms: 3000");
        let gateway = setup.server("core_threads: 1").start();
        let mut client = Client::connect(gateway.addr);
        for _ in 0..20 {
            // The connection cannot be kept: the next request needs another.
            for path in ["/unasked", "/usual", "/last", "/usual"] {
                client.say(Call::get(path).bytes());
                assert_eq!(client.answer().status, 200, "{path}");
            }
        }
        let ended = ended.lock().unwrap();
        assert!(ended.len() >= 20 && ended.iter().all(|ended| *ended), "{ended:?}");
        eventually("one connection is left", || {
            (gateway.metric("service_upstream_connections", "") <= 1.0).then_some(())
        });
    }
}
