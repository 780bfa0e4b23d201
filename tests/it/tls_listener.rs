//! Promise: over TLS the gateway behaves as it does in plain text; its certificate can be replaced while it serves; and
//! what is wrong with a certificate is said at the start.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore, SupportedProtocolVersion};
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    Call, Client, Driver, Gateway, Setup, Upstream, chat_body, chat_call, eventually, on_both_drivers, weir,
    with_stream,
};

const CA: &str = include_str!("data/ca.pem");
pub(crate) const SERVER: &str = include_str!("data/server.pem");
pub(crate) const KEY: &str = include_str!("data/server.key.pem");
pub(crate) const OTHER: &str = include_str!("data/other.pem");
pub(crate) const OTHER_KEY: &str = include_str!("data/other.key.pem");

/// A pair of files and the settings that name them.
pub(crate) struct Pair {
    folder: TempDir,
}

impl Pair {
    pub(crate) fn new(cert: &str, key: &str) -> Self {
        let pair = Self { folder: TempDir::new().unwrap() };
        pair.write(cert, key);
        pair
    }

    pub(crate) fn write(&self, cert: &str, key: &str) {
        std::fs::write(self.cert(), cert).unwrap();
        std::fs::write(self.key(), key).unwrap();
    }

    fn cert(&self) -> std::path::PathBuf {
        self.folder.path().join("cert.pem")
    }

    fn key(&self) -> std::path::PathBuf {
        self.folder.path().join("key.pem")
    }

    pub(crate) fn settings(&self) -> String {
        let shown = |path: &Path| path.display().to_string();
        format!("enable_tls: true\ntls_cert_file: '{}'\ntls_key_file: '{}'", shown(&self.cert()), shown(&self.key()))
    }
}

/// A client's configuration that trusts both pairs.
pub(crate) fn trusting(versions: &[&'static SupportedProtocolVersion], alpn: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for pem in [CA, OTHER] {
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

fn usual() -> Arc<ClientConfig> {
    trusting(&[&TLS12, &TLS13], &["h2", "http/1.1"])
}

fn try_connect(addr: SocketAddr, config: Arc<ClientConfig>) -> std::io::Result<Client> {
    let name = ServerName::try_from("localhost").unwrap();
    Client::connect(addr).secured(ClientConnection::new(config, name).unwrap())
}

fn connect(gateway: &Gateway) -> Client {
    try_connect(gateway.addr, usual()).unwrap()
}

fn start(driver: Driver, upstream: &Upstream) -> (Gateway, Pair) {
    let pair = Pair::new(SERVER, KEY);
    (Setup::new(driver).upstream(upstream.url()).unlimited().with(&pair.settings()).start(), pair)
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// A metric, over TLS.
fn metric(gateway: &Gateway, line: &str) -> f64 {
    let mut client = connect(gateway);
    client.say("GET /metrics HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n");
    let text = client.answer().text();
    let value = text.lines().find_map(|sample| sample.strip_prefix(line)).unwrap_or_else(|| panic!("no {line}"));
    value.trim().parse().unwrap()
}

on_both_drivers! {
    fn a_handshake_under_way_when_the_stop_begins_is_completed_and_its_request_served(driver) {
        let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        let pair = Pair::new(SERVER, KEY);
        let mut gateway = Setup::new(driver).upstream(upstream.url()).with(&pair.settings()).start();
        let waiting = Client::connect(gateway.addr);
        gateway.terminate();
        eventually("no new connection is taken", || TcpStream::connect(gateway.addr).is_err().then_some(()));
        // Idle connections have been ended by then.
        std::thread::sleep(Duration::from_millis(300));
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = waiting.secured(ClientConnection::new(usual(), name).unwrap()).unwrap();
        client.say(chat_call("hello").bytes());
        assert_eq!(client.answer().status, 200);
        assert_eq!(gateway.wait().code(), Some(0));
    }
}

on_both_drivers! {
    fn a_websocket_passes_through_in_both_directions(driver) {
        let upstream = Upstream::play(|peer| {
            peer.request();
            peer.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n");
            drop(std::io::copy(&mut peer.stream.try_clone().unwrap(), &mut peer.stream));
        });
        let (gateway, _pair) = start(driver, &upstream);
        let mut client = connect(&gateway);
        client.say(
            "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        let head = client.read_until(|bytes| bytes.ends_with(b"\r\n\r\n"));
        assert!(head.starts_with(b"HTTP/1.1 101 "));
        for bytes in [5, 100_000, 1] {
            let said: Vec<u8> = (0..bytes).map(|at: u32| (at % 251) as u8).collect();
            client.say(&said);
            assert!(client.read_until(|got| got.len() >= said.len()) == said, "{bytes} bytes");
        }
    }

    fn bodies_pass_in_both_directions_and_the_connection_is_kept(driver) {
        let upstream = Upstream::play(|peer| {
            while let Some(request) = peer.request() {
                peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()));
                peer.say(&request.body);
            }
        });
        let (gateway, _pair) = start(driver, &upstream);
        let mut client = connect(&gateway);
        assert_eq!(client.tls().alpn_protocol(), Some(b"http/1.1".as_slice()));
        for (bytes, chunked) in [(10, false), (100_000, true), (3_000_000, false), (70_000, true), (1, false)] {
            let body: Vec<u8> = (0..bytes).map(|at: u32| (at % 251) as u8).collect();
            let call = Call::post("/v1/files", body.clone());
            client.say(if chunked { call.chunked(9_999) } else { call.bytes() });
            let answer = client.answer_to("POST").unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(answer.body == body, "{bytes} bytes");
        }
        // Two at once, then one behind a pause in which the connection gives its buffers back.
        client.say([chat_call("one").bytes(), chat_call("two").bytes()].concat());
        assert_eq!((client.answer().status, client.answer().status), (200, 200));
        std::thread::sleep(Duration::from_millis(1_300));
        client.say(chat_call("three").bytes());
        assert_eq!(client.answer().status, 200);
        client.say("HEAD /livez HTTP/1.1\r\nHost: weir\r\n\r\n");
        assert_eq!(client.answer_to("HEAD").unwrap().status, 200);
    }

    fn a_stream_arrives_frame_by_frame_and_survives_a_drain(driver) {
        let (upstream, gate) = Upstream::gated(|peer, gate| {
            peer.request();
            peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
            for text in ["a", "b", "c"] {
                peer.say(format!("9\r\ndata: {text}\n\n\r\n"));
                gate.pass();
            }
            peer.say("0\r\n\r\n");
        });
        let (mut gateway, _pair) = start(driver, &upstream);
        let mut client = connect(&gateway);
        client.say(Call::post("/v1/chat/completions", with_stream(chat_body("hello")).to_string()).bytes());
        client.read_until(|bytes| bytes.ends_with(b"data: a\n\n\r\n"));
        gate.open();
        assert_eq!(client.read_until(|bytes| bytes.ends_with(b"\n\n\r\n")), b"9\r\ndata: b\n\n\r\n");
        gateway.terminate();
        eventually("no new connection is taken", || TcpStream::connect(gateway.addr).is_err().then_some(()));
        gate.open();
        gate.open();
        assert_eq!(client.rest(), b"9\r\ndata: c\n\n\r\n0\r\n\r\n");
        assert_eq!(gateway.wait().code(), Some(0));
    }

    fn the_provider_is_told_when_a_client_leaves_with_a_farewell(driver) {
        let (told, when) = std::sync::mpsc::channel();
        let told = std::sync::Mutex::new(told);
        let upstream = Upstream::play(move |peer| {
            if peer.request().is_none() {
                return;
            }
            peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
            peer.say("9\r\ndata: a\n\n\r\n");
            let closed = peer.wait_closed();
            // The last connection is closed by the gateway's end, when nobody asks any more.
            let _unheard = told.lock().unwrap().send((closed, Instant::now())).is_err();
        });
        let (gateway, _pair) = start(driver, &upstream);
        let mut client = connect(&gateway);
        client.say(Call::post("/v1/chat/completions", with_stream(chat_body("hello")).to_string()).bytes());
        client.read_until(|bytes| bytes.ends_with(b"data: a\n\n\r\n"));
        let left = Instant::now();
        client.close();
        let (closed, at) = when.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(closed.is_some(), "the provider's connection was never closed");
        assert!(at - left < Duration::from_secs(1), "{:?}", at - left);
    }

    fn an_answer_until_close_ends_with_a_farewell_only_when_it_is_whole(driver) {
        let upstream = Upstream::play(|peer| {
            while let Some(request) = peer.request() {
                peer.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
                if request.path.ends_with("cut") {
                    return;
                }
                peer.say("0\r\n\r\n");
            }
        });
        let (gateway, _pair) = start(driver, &upstream);
        for (target, whole) in [("/v1/files/whole", true), ("/v1/files/cut", false)] {
            let mut client = connect(&gateway);
            client.say(format!("GET {target} HTTP/1.0\r\nHost: llm.example\r\n\r\n"));
            let (said, in_order) = client.until_end();
            assert!(said.ends_with(b"hello"), "{:?}", String::from_utf8_lossy(&said));
            assert_eq!(in_order, whole, "{target}: RFC 9112 section 9.8");
        }
    }

    fn refusals_reach_the_client(driver) {
        let upstream = Upstream::always(ok("ok"));
        let (gateway, _pair) = start(driver, &upstream);
        let mut client = connect(&gateway);
        client.say("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection").as_deref()), (400, Some("close")));
        assert!(client.rest().is_empty());
        let mut client = connect(&gateway);
        client.try_say(format!("POST /v1/files HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 1_u64 << 40));
        assert_eq!(client.answer().status, 413);
    }

    fn plain_http_on_the_tls_port_is_told_so_and_noise_is_not_answered(driver) {
        let upstream = Upstream::always(ok("ok"));
        let (gateway, _pair) = start(driver, &upstream);
        let mut client = Client::connect(gateway.addr);
        client.say(chat_call("hello").bytes());
        let answer = client.answer();
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (400, &json!("invalid_request")));
        assert!(answer.text().contains("https://"), "{}", answer.text());
        assert!(client.rest().is_empty());
        let mut client = Client::connect(gateway.addr);
        client.try_say([0x80, 0x2e, 1, 0, 2]);
        assert!(client.rest().is_empty());
        assert!(upstream.requests().is_empty());
        let failed = metric(&gateway, "service_client_connections_total{event=\"handshake_failed\"}");
        assert_eq!(failed, 2.0);
    }

    fn both_versions_are_served_sessions_resume_and_other_protocols_are_refused(driver) {
        let upstream = Upstream::always(ok("ok"));
        let (gateway, _pair) = start(driver, &upstream);
        for (version, number) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
            let config = trusting(&[version], &[]);
            for round in 0..2 {
                let mut client = try_connect(gateway.addr, Arc::clone(&config)).unwrap();
                client.say(chat_call("hello").bytes());
                assert_eq!(client.answer().status, 200);
                assert_eq!(client.tls().protocol_version(), Some(number));
                let expected = if round == 0 { HandshakeKind::Full } else { HandshakeKind::Resumed };
                assert_eq!(client.tls().handshake_kind(), Some(expected), "{number:?}");
                client.close();
            }
        }
        assert!(try_connect(gateway.addr, trusting(&[&TLS13], &["h2"])).is_err());
    }

    fn a_new_certificate_is_taken_on_sighup_and_a_bad_one_is_not(driver) {
        let upstream = Upstream::always(ok("ok"));
        let (gateway, pair) = start(driver, &upstream);
        let shown = |client: &Client| client.tls().peer_certificates().unwrap()[0].clone();
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut old = connect(&gateway);
        assert_eq!(shown(&old), der(SERVER));
        let said = |what: &str| gateway.log().iter().filter(|line| line.contains(what)).count();
        for (count, (cert, key)) in [(OTHER, KEY), ("no certificate", OTHER_KEY), (OTHER, "")].into_iter().enumerate() {
            pair.write(cert, key);
            gateway.hang_up();
            eventually("the reload is refused", || (said("not reloaded") == count + 1).then_some(()));
            assert_eq!(shown(&connect(&gateway)), der(SERVER));
        }
        pair.write(OTHER, OTHER_KEY);
        gateway.hang_up();
        let done = |line: &String| line.contains("\"message\":\"reloaded\"") && line.contains("\"certificate\"");
        eventually("the reload is done", || gateway.log().iter().any(done).then_some(()));
        assert_eq!(shown(&connect(&gateway)), der(OTHER));
        old.say(chat_call("hello").bytes());
        assert_eq!(old.answer().status, 200, "present connections live on");
    }
}

#[test]
fn a_request_in_the_same_packet_as_the_end_of_the_handshake_is_answered_in_a_crowd() {
    let upstream = Upstream::always(ok("ok"));
    let pair = Pair::new(SERVER, KEY);
    let setup = Setup::new(Driver::Auto).upstream(upstream.url()).unlimited().server("core_threads: 1");
    let gateway = setup.with(&pair.settings()).start();
    // More than a core keeps buffers for: a new connection rests until something comes.
    let _crowd: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(gateway.addr).unwrap()).collect();
    let mut socket = TcpStream::connect(gateway.addr).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut session = ClientConnection::new(usual(), ServerName::try_from("localhost").unwrap()).unwrap();
    while session.is_handshaking() {
        while session.wants_write() {
            session.write_tls(&mut socket).unwrap();
        }
        session.read_tls(&mut socket).unwrap();
        session.process_new_packets().unwrap();
    }
    let request = "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    session.writer().write_all(request.as_bytes()).unwrap();
    let mut last = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut last).unwrap();
    }
    socket.write_all(&last).unwrap();
    let mut answer = [0; 12];
    rustls::Stream::new(&mut session, &mut socket).read_exact(&mut answer).expect("an answer within five seconds");
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn a_handshake_that_does_not_come_is_given_up() {
    let upstream = Upstream::always(ok("ok"));
    let (gateway, _pair) = start(Driver::Auto, &upstream);
    let start = Instant::now();
    let mut silent = Client::connect(gateway.addr);
    let mut slow = Client::connect(gateway.addr);
    slow.say([22, 3, 1]);
    silent.assert_closed();
    slow.assert_closed();
    let took = start.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(15)).contains(&took), "{took:?}");
}

#[test]
fn what_is_wrong_with_the_pair_is_said_at_the_start() {
    let said = |settings: &str| {
        let folder = TempDir::new().unwrap();
        let config = folder.path().join("service.yaml");
        std::fs::write(&config, format!("listen_addr: 127.0.0.1:0\nstorage: {{profile: memory}}\n{settings}\n"))
            .unwrap();
        let output = weir(&["--config", config.to_str().unwrap()]).output().unwrap();
        assert_eq!(output.status.code(), Some(78));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let pair = Pair::new(SERVER, KEY);
    let cases = [
        ("", KEY, "tls_cert_file", "holds no PEM certificate"),
        (SERVER, "", "tls_key_file", "holds no PEM private key"),
        (SERVER, OTHER_KEY, "tls_key_file", "not the key of the certificate"),
    ];
    for (cert, key, setting, problem) in cases {
        pair.write(cert, key);
        let text = said(&pair.settings());
        let file = if setting == "tls_cert_file" { pair.cert() } else { pair.key() };
        for part in [setting, problem, file.to_str().unwrap()] {
            assert!(text.contains(part), "no `{part}` in: {text}");
        }
    }
    std::fs::remove_file(pair.cert()).unwrap();
    assert!(said(&pair.settings()).contains("it cannot be read"));
    let text = said("enable_tls: true\ntls_cert_file: a.pem");
    assert!(text.contains("`enable_tls`: got true, but tls_key_file is not set"), "{text}");
}
