//! The blocking server seen over a socket.

use super::*;

const ASK: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

fn connect(server: &ServerHandle) -> TcpStream {
    let socket = TcpStream::connect(server.addr()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

fn post(fields: &str, body: &str) -> String {
    format!("POST /v1/chat/completions HTTP/1.1\r\nHost: fake\r\n{fields}\r\n{body}")
}

fn post_counted(fields: &str) -> String {
    post(&format!("Content-Length: {}\r\n{fields}", ASK.len()), ASK)
}

/// Reads one answer delimited by Content-Length.
fn read_answer(socket: &mut TcpStream) -> (u16, Vec<u8>) {
    let mut bytes = Vec::new();
    loop {
        if let Some(head) = crate::http::ResponseHead::parse(&bytes).unwrap() {
            let crate::http::BodyFraming::Length(length) = head.framing else { panic!("{head:?}") };
            bytes.resize(bytes.len().max(head.head_bytes), 0);
            let mut body = bytes.split_off(head.head_bytes);
            let have = body.len();
            body.resize(length, 0);
            socket.read_exact(&mut body[have..]).unwrap();
            return (head.status, body);
        }
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
}

#[test]
fn keeps_a_connection_and_records_what_came() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let mut socket = connect(&server);
    let chunked = format!("{:x}\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n", 10, &ASK[..10], ASK.len() - 10, &ASK[10..]);
    let first = post_counted("");
    let second = post("Transfer-Encoding: chunked\r\n", &chunked);
    socket.write_all(first.as_bytes()).unwrap();
    let counted_answer = read_answer(&mut socket);
    socket.write_all(second.as_bytes()).unwrap();
    assert_eq!(read_answer(&mut socket), counted_answer, "same body, other framing");
    assert_eq!(counted_answer.0, 200);

    let received = server.received();
    let raw: Vec<&[u8]> = received.iter().map(|one| one.request.raw.as_slice()).collect();
    assert_eq!(raw, [first.as_bytes(), second.as_bytes()]);
    assert!(received.iter().all(|one| one.connection == 1 && one.request.body == ASK.as_bytes()));
    assert_eq!((server.requests_seen(), server.connections_accepted()), (2, 1));
}

#[test]
fn answers_expect_before_the_body_is_sent() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let mut socket = connect(&server);
    let request = post_counted("Expect: 100-continue\r\n");
    socket.write_all(&request.as_bytes()[..request.len() - ASK.len()]).unwrap();
    let mut interim = [0; 25];
    socket.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(ASK.as_bytes()).unwrap();
    assert_eq!(read_answer(&mut socket).0, 200);
}

#[test]
fn paces_a_stream_by_its_frames() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let mut socket = connect(&server);
    let start = Instant::now();
    let body = ASK.replace("\"model\"", "\"stream\":true,\"model\"");
    let fields =
        format!("Content-Length: {}\r\nConnection: close\r\nx-fake-frames: 4\r\nx-fake-frame-ms: 20\r\n", body.len());
    socket.write_all(post(&fields, &body).as_bytes()).unwrap();
    let mut all = String::new();
    socket.read_to_string(&mut all).unwrap();
    // Role, four words, finish reason and [DONE]: seven frames, six pauses.
    assert!(start.elapsed() >= Duration::from_millis(6 * 20), "{:?}", start.elapsed());
    assert_eq!(all.matches("data: ").count(), 7);
    assert!(all.ends_with("0\r\n\r\n"));
}

#[test]
fn cuts_a_body_where_told() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let mut socket = connect(&server);
    socket.write_all(post_counted("x-fake-cut-after: 100\r\n").as_bytes()).unwrap();
    let mut all = String::new();
    socket.read_to_string(&mut all).unwrap();
    assert_eq!(all.split_once("\r\n\r\n").unwrap().1.len(), 100);
}

#[test]
fn refuses_what_it_cannot_frame_and_closes() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let mut socket = connect(&server);
    socket.write_all(post("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "x").as_bytes()).unwrap();
    let mut all = String::new();
    socket.read_to_string(&mut all).unwrap();
    assert!(all.starts_with("HTTP/1.1 400 ") && all.contains("Content-Length beside Transfer-Encoding"), "{all}");
    assert_eq!(server.requests_seen(), 0);
}

#[test]
fn forgets_the_oldest_requests_first() {
    let options = Options { record_requests_max: 2, ..Options::default() };
    let server = StdServer::start_with("127.0.0.1:0", options).unwrap();
    let mut socket = connect(&server);
    for path in ["/v1/models/a", "/v1/models/b", "/v1/models/c"] {
        socket.write_all(format!("GET {path} HTTP/1.1\r\nHost: fake\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(read_answer(&mut socket).0, 200);
    }
    let paths: Vec<String> = server.take_received().into_iter().map(|one| one.request.path).collect();
    assert_eq!(paths, ["/v1/models/b", "/v1/models/c"]);
    assert!(server.received().is_empty() && server.requests_seen() == 3);
}

#[test]
fn stopping_lets_an_answer_finish_and_closes_idle_connections() {
    let server = StdServer::start("127.0.0.1:0").unwrap();
    let (mut busy, mut idle) = (connect(&server), connect(&server));
    idle.write_all(b"GET /v1/models HTTP/1.1\r\nHost: fake\r\n\r\n").unwrap();
    read_answer(&mut idle);
    busy.write_all(post_counted("x-fake-delay-ms: 150\r\n").as_bytes()).unwrap();
    assert!(server.wait_for_requests(2, Duration::from_secs(10)));
    let addr = server.addr();
    let stopper = std::thread::spawn(move || server.stop());
    assert_eq!(read_answer(&mut busy).0, 200);
    assert_eq!(idle.read(&mut [0; 8]).unwrap(), 0);
    stopper.join().unwrap();
    assert!(TcpStream::connect(addr).is_err());
}

#[test]
fn stopping_cuts_an_answer_that_outlasts_the_grace() {
    let options = Options { stop_grace: Duration::from_millis(10), ..Options::default() };
    let server = StdServer::start_with("127.0.0.1:0", options).unwrap();
    let mut socket = connect(&server);
    socket.write_all(post_counted("x-fake-delay-ms: 600000\r\n").as_bytes()).unwrap();
    assert!(server.wait_for_requests(1, Duration::from_secs(10)));
    let start = Instant::now();
    server.stop();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(socket.read(&mut [0; 8]).unwrap_or(0), 0);
}
