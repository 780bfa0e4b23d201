//! The generator against the blocking provider, and the fast provider against a plain client.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::*;
use weir_fake_provider::server::{Options, StdServer};

/// Settings of a small run; the address points nowhere.
pub(super) fn settings() -> Settings {
    Settings {
        addr: ([127, 0, 0, 1], 9).into(),
        target: "http://127.0.0.1:9".to_owned(),
        authority: "127.0.0.1:9".to_owned(),
        path_prefix: String::new(),
        mode: Mode::Closed,
        connections: 4,
        duration: Duration::from_millis(200),
        warmup: Duration::ZERO,
        rate_per_s: 0.0,
        arrivals: Arrivals::Constant,
        dialect: RequestDialect::Chat,
        body_bytes: 1000,
        plan: Plan::Bodies,
        bodies: 16,
        unique: true,
        seen_share: None,
        stream: false,
        gzip: false,
        head_first: false,
        headers: Vec::new(),
        pids: Vec::new(),
        expect_status: None,
        allow_non_2xx: false,
        timeout: Duration::from_secs(5),
        tools: false,
        image: false,
        keep_alive: true,
        recorded: std::rc::Rc::from(Vec::new()),
        mix: Vec::new(),
        tls: None,
        seed: 0,
        sends_first: true,
    }
}

const DIALECTS: [RequestDialect; 5] = [
    RequestDialect::Chat,
    RequestDialect::Messages,
    RequestDialect::Responses,
    RequestDialect::Gemini,
    RequestDialect::Local,
];

fn header(name: &str, value: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), value.to_owned())]
}

#[test]
fn a_closed_run_counts_every_request_the_server_saw() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let report = run(Settings { addr: server.addr(), pids: vec![std::process::id()], ..settings() }).unwrap();
    assert_eq!((report.ok, report.failed), (server.requests_seen(), 0));
    assert_eq!(report.latency.unwrap().count, report.ok);
    assert!(report.ok > 20 && report.process.unwrap().cpu_us_per_request.unwrap() > 0.0);
    assert_eq!(server.connections_accepted(), 4);
}

#[test]
fn frames_of_plain_and_compressed_streams_are_counted_stream_by_stream() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let frames = header("x-fake-frames", "12");
    let plain = Settings { addr: server.addr(), stream: true, headers: frames.clone(), ..settings() };
    let report = run(plain.clone()).unwrap();
    let per_stream: Vec<u64> = report.streams_by_frames.keys().copied().collect();
    assert!(matches!(per_stream[..], [count] if count >= 12), "{report:?}");
    assert_eq!(report.streams_by_frames.values().sum::<u64>(), report.ok);
    let gzip = [frames, header("x-fake-encoding", "gzip")].concat();
    let report = run(Settings { gzip: true, headers: gzip, ..plain }).unwrap();
    assert!(report.streams_by_frames.keys().all(|count| *count >= 12) && report.failed == 0, "{report:?}");
}

#[test]
fn an_open_run_sends_what_is_due() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let open = Settings { mode: Mode::Open, rate_per_s: 500.0, addr: server.addr(), ..settings() };
    let report = run(open).unwrap();
    assert_eq!((report.ok, report.failed, server.requests_seen()), (100, 0, 100));
    assert_eq!(report.send_lag.unwrap().count, 100);
}

/// The answers to the last requests come after the last of them was due; the rate is no lower for it.
#[test]
fn the_rate_of_an_open_run_is_that_of_its_requests() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let headers = header("x-fake-delay-ms", "300");
    let open =
        Settings { mode: Mode::Open, rate_per_s: 50.0, connections: 16, addr: server.addr(), headers, ..settings() };
    let report = run(open).unwrap();
    assert_eq!(report.ok, 10);
    assert!(report.ok_per_s > 1.4 * report.ok as f64 / report.elapsed_s, "{report:?}");
}

#[test]
fn latency_in_an_open_run_counts_the_wait_for_a_free_connection() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let headers = header("x-fake-delay-ms", "20");
    // One connection can do 50 a second; 100 a second are due, so the queue grows to about the run's length.
    let open =
        Settings { mode: Mode::Open, rate_per_s: 100.0, connections: 1, addr: server.addr(), headers, ..settings() };
    let report = run(open).unwrap();
    assert_eq!(report.ok, 20);
    assert!(report.latency.unwrap().max_us > 200_000.0);
}

#[test]
fn unexpected_statuses_fail_a_run_unless_allowed_or_expected() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let refused = Settings { addr: server.addr(), headers: header("x-fake-status", "429"), ..settings() };
    let report = run(refused.clone()).unwrap();
    assert!(report.ok == 0 && report.failed == report.statuses[&429] && report.latency.is_none());
    let report = run(Settings { allow_non_2xx: true, ..refused.clone() }).unwrap();
    assert!(report.failed == 0 && report.ok == 0);
    let report = run(Settings { expect_status: Some(429), ..refused }).unwrap();
    assert!(report.failed == 0 && report.ok == report.statuses[&429]);
}

#[test]
fn broken_answers_are_counted_by_kind() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let base = Settings { addr: server.addr(), connections: 1, ..settings() };
    let cut = run(Settings { headers: header("x-fake-cut-after", "10"), ..base.clone() }).unwrap();
    assert!(cut.ok == 0 && cut.failures["closed"] == cut.failed && cut.failed > 0, "{cut:?}");
    let timeout = Duration::from_millis(50);
    let silent = Settings { headers: header("x-fake-delay-ms", "2000"), timeout, ..base };
    let silent = run(silent).unwrap();
    assert!(silent.ok == 0 && silent.failures["timeout"] == silent.failed && silent.failed > 0, "{silent:?}");
}

#[test]
fn bytes_are_compared_with_what_the_provider_sent() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    for (dialect, stream) in DIALECTS.into_iter().flat_map(|dialect| [(dialect, false), (dialect, true)]) {
        let headers = [header("x-fake-digest", "1"), header("x-fake-stamp", "1")].concat();
        let report = run(Settings { addr: server.addr(), dialect, stream, headers, ..settings() }).unwrap();
        assert!(report.failed == 0 && report.checked == report.ok && report.ok > 0, "{dialect:?} {stream}: {report:?}");
    }
    let other = header("x-fake-header", "x-fake-digest: 0000000000000001");
    let report = run(Settings { addr: server.addr(), headers: other, ..settings() }).unwrap();
    assert!(report.ok == 0 && report.failures["altered"] == report.failed && report.failed > 0, "{report:?}");
}

#[test]
fn a_connection_for_each_request_is_opened_and_closed() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let report = run(Settings { addr: server.addr(), keep_alive: false, ..settings() }).unwrap();
    assert!(report.failed == 0 && report.ok > 4, "{report:?}");
    // Those opened before the load carry a request each, too.
    assert_eq!(server.connections_accepted(), report.ok);
}

#[test]
fn a_refused_connection_is_a_setup_error() {
    let addr = StdServer::start("127.0.0.1:0").unwrap().addr();
    let error = run(Settings { addr, ..settings() }).unwrap_err();
    assert!(error.0.contains("connection 1 failed"), "{error}");
}

#[test]
fn streams_are_measured_frame_by_frame_in_every_dialect() {
    for dialect in DIALECTS {
        let server = StdServer::start_with("127.0.0.1:0", Options::default()).unwrap();
        let mut headers = header("x-fake-frames", "5");
        headers.extend(header("x-fake-frame-ms", "4"));
        headers.extend(header("x-fake-stamp", "1"));
        let report = run(Settings { addr: server.addr(), stream: true, dialect, headers, ..settings() }).unwrap();
        // Content frames, and those of the dialect around them.
        let per_answer = match dialect {
            RequestDialect::Chat => 5 + 4,
            RequestDialect::Messages => 5 + 6,
            RequestDialect::Responses => 5 + 7,
            RequestDialect::Gemini => 5 + 1,
            RequestDialect::Local => 5 + 1,
        };
        assert_eq!((report.failed, report.frames), (0, report.ok * per_answer), "{dialect:?}");
        let (gap, delay) = (report.frame_gap.unwrap(), report.frame_delay.unwrap());
        assert!(gap.mean_us > 3_000.0 && delay.p50_us < gap.p50_us, "{gap:?} {delay:?}");
        let (first_byte, latency) = (report.first_byte.unwrap().p50_us, report.latency.unwrap().p50_us);
        let first_token = report.first_token.unwrap().p50_us;
        assert!(
            first_byte <= first_token && first_token < latency,
            "{dialect:?}: {first_byte} {first_token} {latency}"
        );
    }
}

/// A fast provider for a second, and what a client reads from it until the connection ends.
fn ask_fast(settings: ProviderSettings, request: &str) -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || serve(settings, move |addr| sender.send(addr).unwrap()));
    let mut socket = TcpStream::connect(receiver.recv().unwrap()).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut all = String::new();
    socket.read_to_string(&mut all).unwrap();
    server.join().unwrap().unwrap();
    all
}

pub(super) fn provider_settings() -> ProviderSettings {
    ProviderSettings {
        listen: ([127, 0, 0, 1], 0).into(),
        cores: 1,
        answer_bytes: 1024,
        frames: 3,
        frame_ms: 5,
        delay_ms: 0,
        stall: None,
        digest: false,
        tls: None,
        full: false,
        early: None,
        run_for: Some(Duration::from_secs(1)),
    }
}

fn post(fields: &str, body: &str) -> String {
    let length = body.len();
    format!("POST /v1/chat/completions HTTP/1.1\r\nHost: fake\r\n{fields}Content-Length: {length}\r\n\r\n{body}")
}

#[test]
fn the_fast_provider_answers_pipelined_requests_fast_and_slowly() {
    let body = r#"{"model":"m","messages":[]}"#;
    // The second is special; the third, behind it on the same connection, ends the conversation.
    let requests = post("", body) + &post("x-fake-reply: special\r\n", body) + &post("Connection: close\r\n", body);
    let all = ask_fast(provider_settings(), &requests);
    assert_eq!(all.matches("HTTP/1.1 200 OK").count(), 3, "{all}");
    let first = all.split("HTTP/1.1").nth(1).unwrap();
    assert_eq!(first.split_once("\r\n\r\n").unwrap().1.len(), 1024);
    assert!(all.contains(r#""content":"special""#));
}

/// A proxy that keeps to its defaults asks in HTTP/1.0: it gets the same bytes, paced as others' are, without chunks.
#[test]
fn a_client_of_http_1_0_gets_the_same_answer_without_chunks() {
    let digest = |answer: &str| {
        let line = answer.lines().find(|line| line.starts_with("x-fake-digest: "));
        line.unwrap_or_else(|| panic!("no digest: {answer}")).to_owned()
    };
    for body in [r#"{"model":"m","messages":[]}"#, r#"{"model":"m","stream":true,"messages":[]}"#] {
        let settings = ProviderSettings { digest: true, ..provider_settings() };
        let newer = ask_fast(settings.clone(), &post("Connection: close\r\n", body));
        let older = ask_fast(settings, &post("Connection: close\r\n", body).replace("HTTP/1.1", "HTTP/1.0"));
        let (head, content) = older.split_once("\r\n\r\n").unwrap();
        assert!(!head.contains("chunked") && head.contains("connection: close"), "{head}");
        assert_eq!(digest(&newer), digest(&older));
        match body.contains("stream") {
            true => {
                assert!(content.ends_with("data: [DONE]\n\n") && content.starts_with("data: "), "{content}");
                assert_eq!(content.matches("\"fake_sent_ns\":\"1").count(), 6, "{content}");
            }
            false => assert_eq!(content.len(), 1024),
        }
    }
    // What takes the slow way has no chunks either.
    let special = post("x-fake-frames: 3\r\n", r#"{"model":"m","stream":true,"messages":[]}"#);
    let special = ask_fast(provider_settings(), &special.replace("HTTP/1.1", "HTTP/1.0"));
    assert!(special.ends_with("data: [DONE]\n\n") && !special.contains("chunked"), "{special}");
}

#[test]
fn a_special_request_does_not_slow_down_the_ones_after_it() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || serve(provider_settings(), move |addr| sender.send(addr).unwrap()));
    let mut socket = TcpStream::connect(receiver.recv().unwrap()).unwrap();
    let mut buf = vec![0; 64 * 1024];
    socket.write_all(b"GET / HTTP/1.1\r\nHost: fake\r\n\r\n").unwrap();
    assert!(socket.read(&mut buf).unwrap() > 0);
    socket.write_all(post("", r#"{"model":"m","messages":[]}"#).as_bytes()).unwrap();
    let count = socket.read(&mut buf).unwrap();
    let answer = String::from_utf8_lossy(&buf[..count]);
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), 1024, "the precomputed length: {answer}");
    server.join().unwrap().unwrap();
}

#[test]
fn the_fast_provider_paces_and_stamps_its_streams() {
    let start = std::time::Instant::now();
    let streamed = r#"{"model":"m","stream":true,"messages":[]}"#;
    let all = ask_fast(
        provider_settings(),
        &(post("", streamed) + &post("Connection: close\r\nx-fake-status: 400\r\n", "{}")),
    );
    assert_eq!(all.matches("\"fake_sent_ns\":\"1").count(), 3 + 3, "role, three words, finish and usage: {all}");
    assert!(all.contains("data: [DONE]\n\n\r\n0\r\n\r\nHTTP/1.1 400 "), "{all}");
    assert!(start.elapsed() >= Duration::from_millis(6 * 5));
}

#[test]
fn the_fast_provider_answers_from_the_head_where_it_is_told_to() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let early = ProviderSettings { early: Some(429), ..provider_settings() };
    let server = std::thread::spawn(move || serve(early, move |addr| sender.send(addr).unwrap()));
    let addr = receiver.recv().unwrap();
    let mut socket = TcpStream::connect(addr).unwrap();
    let whole = post("", &"x".repeat(5_000));
    let (head, body) = whole.split_at(whole.len() - 5_000);
    for part in [0, 3_000, 5_000] {
        socket.write_all(head.as_bytes()).unwrap();
        socket.write_all(&body.as_bytes()[..part]).unwrap();
        let mut buf = vec![0; 8 * 1024];
        let count = socket.read(&mut buf).unwrap();
        assert!(buf[..count].starts_with(b"HTTP/1.1 429 "), "{}", String::from_utf8_lossy(&buf[..count]));
        socket.write_all(&body.as_bytes()[part..]).unwrap();
    }
    let run = run(Settings {
        addr,
        body_bytes: 8_000,
        head_first: true,
        expect_status: Some(429),
        duration: Duration::from_millis(100),
        ..settings()
    });
    let report = run.unwrap();
    assert!(report.ok > 10 && report.failed == 0, "{report:?}");
    server.join().unwrap().unwrap();
}

#[test]
fn a_taken_address_is_refused_not_shared() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let taken = ProviderSettings { listen: server.addr(), ..provider_settings() };
    assert!(serve(taken, |_| panic!("it must not listen")).unwrap_err().0.contains("in use"));
}
