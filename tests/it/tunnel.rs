//! Promise: a WebSocket passes as the two ends speak it, in both directions at once, and nothing else is tunnelled.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::clients::python;
use crate::support::{
    Call, Client, Gate, Gateway, Peer, Setup, Upstream, call, eventually, on_both_drivers, secure_peer, trust,
};

const HANDSHAKE: &str = "GET /v1/realtime?model=m HTTP/1.1\r\nHost: llm.example\r\nConnection: keep-alive, Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Protocol: realtime\r\nX-Odd: kept\r\n\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: realtime\r\n\
    X-Service-Trace-Id: forged\r\n\r\n";

/// Answers the handshake and says every byte again.
fn echo(peer: &mut Peer) {
    peer.request();
    peer.say(SWITCHED);
    let mut piece = [0; 16 * 1024];
    while let Ok(count) = peer.stream.read(&mut piece) {
        if count == 0 {
            return;
        }
        peer.say(&piece[..count]);
    }
}

/// A client whose handshake has been answered with 101.
fn switched(gateway: &Gateway) -> (Client, String) {
    let mut client = Client::connect(gateway.addr);
    client.say(HANDSHAKE);
    let head = client.read_until(|bytes| bytes.windows(4).any(|piece| piece == b"\r\n\r\n"));
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    (client, head)
}

on_both_drivers! {
    fn both_directions_pass_and_are_counted(driver) {
        let upstream = Upstream::play(echo);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let (mut client, head) = switched(&gateway);
        for field in ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
                      "Sec-WebSocket-Protocol: realtime"] {
            assert_eq!(head.matches(&format!("\r\n{field}\r\n")).count(), 1, "{field} in {head}");
        }
        assert!(!head.contains("forged"), "{head}");
        // It may be read: what is none of its frames is said behind it.
        assert!(!head.contains("X-Service-Analysis"), "{head}");
        let asked = upstream.requests().remove(0);
        for (name, value) in [("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-version", "13"),
                              ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="), ("x-odd", "kept")] {
            assert_eq!(asked.header(name), Some(value));
        }
        // More than all buffers hold: it ends only if both directions are copied at the same time.
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let mut sender = client.stream.try_clone().unwrap();
        let said = bytes.clone();
        let sending = std::thread::spawn(move || sender.write_all(&said).unwrap());
        let got = client.read_until(|got| got.len() >= 3_000_000);
        sending.join().unwrap();
        assert!(got == bytes, "the bytes differ");
        drop(client);
        let span = gateway.newest_span_of(1);
        assert_eq!((&span["status_code"], &span["security_score"]), (&json!(101), &json!(null)));
        assert_eq!((&span["tags"]["unscanned"], &span["model"]), (&json!("websocket"), &json!("m")));
        assert_eq!(span["tags"]["websocket_bytes_sent"], "3000000");
        assert_eq!(span["tags"]["websocket_bytes_received"], "3000000");
        assert_eq!((&span["error_type"], &span["events"][0]["event_type"]), (&json!(null), &json!("tunnel_ended")));
    }

    fn a_side_that_ends_ends_the_other(driver) {
        let (told, leave) = (Gate::new(), Gate::new());
        let upstream = Upstream::play({
            let (told, leave) = (told.clone(), leave.clone());
            move |peer| {
                let ends_itself = peer.request().is_some_and(|request| request.header("sec-websocket-protocol").is_none());
                peer.say(SWITCHED);
                if ends_itself {
                    peer.say("bye");
                    leave.pass();
                    peer.close();
                } else if peer.wait_closed().is_some_and(|waited| waited < Duration::from_secs(5)) {
                    told.open();
                }
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let (client, _) = switched(&gateway);
        drop(client);
        assert!(told.pass(), "the provider was left waiting");
        let mut client = Client::connect(gateway.addr);
        client.say(HANDSHAKE.replace("Sec-WebSocket-Protocol: realtime\r\n", ""));
        let got = client.read_until(|bytes| bytes.ends_with(b"bye"));
        assert!(got.starts_with(b"HTTP/1.1 101 "));
        leave.open();
        client.assert_closed();
        let span = gateway.newest_span_of(2);
        assert_eq!(span["events"][0]["description"], "the provider closed");
    }

    fn a_silent_tunnel_is_ended_by_the_idle_timer(driver) {
        let upstream = Upstream::play(echo);
        let gateway = Setup::new(driver).upstream(upstream.url()).with("stream_idle_timeout_ms: 400").start();
        let (mut client, _) = switched(&gateway);
        let start = Instant::now();
        client.say("ping");
        assert_eq!(client.read_until(|got| got.len() >= 4), b"ping");
        client.assert_closed();
        assert!(start.elapsed() >= Duration::from_millis(395), "{:?}", start.elapsed());
        assert_eq!(gateway.newest_span_of(1)["error_type"], "idle_timeout");
    }

    fn a_reader_that_stops_holds_the_other_side_up(driver) {
        let written = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&written);
        let upstream = Upstream::play(move |peer| {
            peer.request();
            peer.say(SWITCHED);
            while let Ok(count) = peer.stream.write(&[b'x'; 64 * 1024]) {
                counted.fetch_add(count, Ordering::SeqCst);
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let (client, _) = switched(&gateway);
        let mut last = (0, Instant::now());
        // Every buffer on the way is full when nothing more is taken.
        eventually("the provider is held up", || {
            let now = written.load(Ordering::SeqCst);
            if now != last.0 {
                last = (now, Instant::now());
            }
            (now > 0 && last.1.elapsed() > Duration::from_millis(500)).then_some(())
        });
        assert!(last.0 < 64 * 1024 * 1024, "{} bytes went somewhere", last.0);
        drop(client);
    }

    fn a_refusal_of_the_provider_is_an_answer_like_any_other(driver) {
        let upstream = Upstream::always("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(gateway.addr);
        for _ in 0..2 {
            client.say(HANDSHAKE);
            let answer = client.answer();
            assert_eq!((answer.status, answer.text().as_str()), (403, "no"));
        }
        assert_eq!(upstream.connections(), 1);
    }

    fn only_a_switch_that_was_asked_for_is_made(driver) {
        let upstream = Upstream::always(SWITCHED);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        // Not asked for at all, and asked for something else: h2c must not become a way around the gateway.
        let asked_h2c = Call::get("/v1/models").field("Connection", "Upgrade, HTTP2-Settings").field("Upgrade", "h2c");
        for request in [Call::get("/v1/models").bytes(), asked_h2c.field("HTTP2-Settings", "AAMAAABk").bytes()] {
            let answer = call(gateway.addr, request);
            assert_eq!((answer.status, &answer.json()["error"]["type"]), (502, &json!("upstream_protocol_error")));
        }
        assert!(upstream.requests().iter().all(|seen| seen.header("upgrade").is_none()));
        let other = Upstream::always(SWITCHED.replace("Upgrade: websocket", "Upgrade: h2c"));
        let gateway = Setup::new(driver).upstream(other.url()).start();
        assert_eq!(call(gateway.addr, HANDSHAKE).status, 502);
    }

    fn a_handshake_without_a_key_is_refused(driver) {
        let upstream = Upstream::play(echo);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        for key in ["", "Sec-WebSocket-Key: short\r\n", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Key: x\r\n"] {
            let request = HANDSHAKE.replace("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", key);
            let answer = call(gateway.addr, request);
            assert_eq!((answer.status, &answer.json()["error"]["type"]), (400, &json!("invalid_request")), "{key:?}");
        }
        assert_eq!(upstream.requests().len(), 0);
    }

    fn a_stop_ends_a_tunnel_at_the_limit(driver) {
        let upstream = Upstream::play(echo);
        let mut gateway = Setup::new(driver).upstream(upstream.url()).with("shutdown: {timeout_seconds: 1}").start();
        let (mut client, _) = switched(&gateway);
        client.say("ping");
        client.read_until(|got| got.len() >= 4);
        gateway.terminate();
        client.say("pong");
        assert_eq!(client.read_until(|got| got.len() >= 4), b"pong", "what is open goes on until the limit");
        client.assert_closed();
        gateway.wait();
    }

    fn a_real_client_and_server_get_along(driver) {
        let python = python();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/websocket.py");
        let mut server = Command::new(&python);
        server.arg("-B").arg(&script).arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = server.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let gateway = Setup::new(driver).upstream(format!("http://127.0.0.1:{}", port.trim())).start();
        let url = format!("ws://{}/v1/realtime", gateway.addr);
        let output = Command::new(&python).arg("-B").arg(&script).args(["talk", &url]).env_clear().output().unwrap();
        drop(server.stdin.take());
        assert!(server.wait().unwrap().success());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(gateway.newest_span_of(1)["events"][0]["event_type"], "tunnel_ended");
    }

    fn a_tunnel_leads_through_tls_to_the_provider(driver) {
        let done = Gate::new();
        let gone = done.clone();
        let port = secure_peer(move |stream| {
            let (mut asked, mut piece) = (Vec::new(), [0; 16 * 1024]);
            while !asked.ends_with(b"\r\n\r\n") {
                let count = stream.read(&mut piece).unwrap();
                asked.extend_from_slice(&piece[..count]);
            }
            stream.write_all(SWITCHED.as_bytes()).unwrap();
            while let Ok(count) = stream.read(&mut piece) {
                if count == 0 || stream.write_all(&piece[..count]).is_err() {
                    break;
                }
            }
            gone.open();
        });
        let (_folder, trusted) = trust();
        let gateway = Setup::new(driver).upstream(format!("https://localhost:{port}")).with(&trusted).start();
        let (mut client, _) = switched(&gateway);
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        client.say(&bytes);
        let got = client.read_until(|got| got.len() >= bytes.len());
        assert!(got == bytes, "the bytes differ");
        client.stream.shutdown(Shutdown::Both).unwrap();
        assert!(done.pass(), "the provider was left waiting");
    }
}
