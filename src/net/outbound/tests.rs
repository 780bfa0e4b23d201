//! The client against scripted receivers and proxies on loopback.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

const LIMITS: Limits = Limits { total: Duration::from_secs(10), answer_bytes: 1_000, cut: false };
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn data(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/it/data").join(name).display().to_string()
}

/// The client in an environment.
fn client(env: &[(&str, &str)]) -> Client {
    let env: BTreeMap<_, _> = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let loaded = weir_config::load(&weir_config::Sources { env, ..Default::default() }).unwrap();
    Client::new(&loaded.settings.egress, None, Duration::from_millis(500)).unwrap()
}

fn send(client: &Client, call: Call, limits: Limits) -> Result<Answer, OutboundError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(client.send(call, limits))
}

fn get(url: &str) -> Call {
    Call::new(Method::GET, url).unwrap()
}

/// Reads a head; `None` at the end of the connection.
fn head(stream: &mut impl Read) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap())
}

/// What a receiver has seen: for each connection the heads it brought.
type Seen = Arc<Mutex<Vec<Vec<String>>>>;

/// Calls `serve` with each connection, on a thread of its own.
fn listen(serve: impl Fn(TcpStream, &dyn Fn(String)) + Send + Sync + 'static) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, seen, serve) = (listener.local_addr().unwrap(), Seen::default(), Arc::new(serve));
    let heads = Arc::clone(&seen);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            heads.lock().unwrap().push(Vec::new());
            let (heads, serve) = (Arc::clone(&heads), Arc::clone(&serve));
            std::thread::spawn(move || serve(stream, &|head| heads.lock().unwrap()[number].push(head)));
        }
    });
    (addr, seen)
}

/// A receiver that answers every request of a connection with `answer`.
fn receiver(answer: &'static str) -> (SocketAddr, Seen) {
    listen(move |mut stream, note| {
        while let Some(head) = head(&mut stream) {
            note(head);
            stream.write_all(answer.as_bytes()).unwrap();
        }
    })
}

/// The same over TLS, as `localhost`.
fn secure_receiver() -> (SocketAddr, Seen) {
    let certificates = CertificateDer::pem_file_iter(data("server.pem")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(data("server.key.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    let config = Arc::new(config);
    listen(move |stream, note| {
        let mut tls = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
        while let Some(head) = head(&mut tls) {
            note(head);
            tls.write_all(OK.as_bytes()).unwrap();
            tls.flush().unwrap();
        }
    })
}

/// A proxy that tunnels to `to`, whatever it is asked for.
fn tunnelling_proxy(to: SocketAddr) -> (SocketAddr, Seen) {
    proxy_saying("HTTP/1.1 200 Connection established\r\n\r\n", to)
}

/// The same with this answer.
fn proxy_saying(answer: &'static str, to: SocketAddr) -> (SocketAddr, Seen) {
    listen(move |mut client, note| {
        note(head(&mut client).unwrap());
        let mut server = TcpStream::connect(to).unwrap();
        client.write_all(answer.as_bytes()).unwrap();
        let (mut from, mut back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || drop(std::io::copy(&mut from, &mut back)));
        drop(std::io::copy(&mut server, &mut client));
    })
}

#[test]
fn a_connection_is_used_again() {
    let (addr, seen) = receiver(OK);
    let client = client(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for _ in 0..3 {
        let call = Call::post(&format!("http://{addr}/hook?key=1"), "application/json", "").unwrap();
        let answer = runtime.block_on(client.send(call, LIMITS)).unwrap();
        assert_eq!((answer.status.as_u16(), &*answer.body), (200, b"ok".as_slice()));
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), [3], "one connection");
    assert!(seen[0][0].starts_with("POST /hook?key=1 HTTP/1.1\r\n"), "{}", seen[0][0]);
    assert!(seen[0][0].contains(&format!("host: {addr}\r\n")), "{}", seen[0][0]);
}

#[test]
fn a_private_authority_is_trusted_when_it_is_named_and_not_otherwise() {
    let (addr, seen) = secure_receiver();
    let url = format!("https://localhost:{}/secret-path", addr.port());
    let trusting = client(&[("SSL_CERT_FILE", &data("ca.pem"))]);
    assert_eq!(send(&trusting, get(&url), LIMITS).unwrap().status.as_u16(), 200);
    assert_eq!(seen.lock().unwrap()[0].len(), 1);
    for env in [vec![], vec![("SSL_CERT_FILE", data("address-ca.pem"))]] {
        let env: Vec<_> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let error = send(&client(&env), get(&url), LIMITS).unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, OutboundError::Connect { .. }) && said.contains("UnknownIssuer"), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn a_redirect_is_an_answer_and_nobody_else_is_asked() {
    let (other, asked) = receiver(OK);
    let answer: &'static str =
        format!("HTTP/1.1 302 Found\r\nLocation: http://{other}/\r\nContent-Length: 0\r\n\r\n").leak();
    let (addr, _) = receiver(answer);
    let call = get(&format!("http://{addr}/")).field(http::header::AUTHORIZATION, HeaderValue::from_static("Bearer k"));
    assert_eq!(send(&client(&[]), call, LIMITS).unwrap().status.as_u16(), 302);
    assert!(asked.lock().unwrap().is_empty());
}

#[test]
fn a_slow_head_and_a_slow_body_end_at_the_deadline() {
    for (answer, missing) in
        [("", "its answer"), ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "the rest of its answer")]
    {
        let (addr, _) = receiver(answer);
        let limits = Limits { total: Duration::from_millis(200), ..LIMITS };
        let begun = Instant::now();
        let error = send(&client(&[]), get(&format!("http://{addr}/")), limits).unwrap_err();
        assert!(matches!(error, OutboundError::Deadline { waiting_for, .. } if waiting_for == missing), "{error}");
        assert!(error.is_transient() && begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}

#[test]
fn an_answer_beyond_the_bound_is_given_up() {
    let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n{}", "x".repeat(1_001));
    let endless = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        "3e8\r\n".to_owned() + &"x".repeat(1_000) + "\r\n1\r\nx\r\n"
    );
    for answer in [whole, endless] {
        let (addr, _) = receiver(answer.leak());
        let error = send(&client(&[]), get(&format!("http://{addr}/")), LIMITS).unwrap_err();
        assert!(matches!(error, OutboundError::TooLarge { bytes_max: 1_000, .. }), "{error}");
        assert!(!error.is_transient());
        let answer = send(&client(&[]), get(&format!("http://{addr}/")), Limits { cut: true, ..LIMITS }).unwrap();
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 1_000), "the status is all that was asked for");
    }
}

#[test]
fn a_page_that_says_at_length_that_nobody_is_there_may_be_another_one_later() {
    for (status, transient) in [("503 Nobody", true), ("429 Slowly", true), ("404 No", false), ("200 OK", false)] {
        let page = format!("HTTP/1.1 {status}\r\nContent-Length: 2000\r\n\r\n{}", "x".repeat(2_000));
        let (addr, _) = receiver(page.leak());
        let error = send(&client(&[]), get(&format!("http://{addr}/")), LIMITS).unwrap_err();
        assert_eq!(error.is_transient(), transient, "{error}");
    }
}

#[test]
fn the_proxy_tunnels_to_https_and_its_credential_stays_with_it() {
    let (addr, seen) = secure_receiver();
    let (proxy, asked) = tunnelling_proxy(addr);
    let proxy = format!("http://me:p%40ss@{proxy}");
    let client = client(&[("HTTPS_PROXY", &proxy), ("SSL_CERT_FILE", &data("ca.pem"))]);
    let authority = format!("localhost:{}", addr.port());
    assert_eq!(send(&client, get(&format!("https://{authority}/x")), LIMITS).unwrap().status.as_u16(), 200);
    let connect =
        format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n");
    assert_eq!(*asked.lock().unwrap(), [[connect]]);
    let head = seen.lock().unwrap()[0][0].to_ascii_lowercase();
    assert!(head.starts_with("get /x http/1.1\r\n") && !head.contains("proxy-authorization"), "{head}");
}

#[test]
fn interim_answers_of_a_proxy_are_passed_over_and_bounded() {
    let (addr, _) = secure_receiver();
    let url = format!("https://localhost:{}/x", addr.port());
    let asked = |answer: &'static str| {
        let (proxy, _) = proxy_saying(answer, addr);
        let client = client(&[("HTTPS_PROXY", &format!("http://{proxy}")), ("SSL_CERT_FILE", &data("ca.pem"))]);
        send(&client, get(&url), LIMITS)
    };
    let answer = asked("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(answer.unwrap().status.as_u16(), 200);
    let error = asked("HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000).leak()).unwrap_err();
    assert!(error.to_string().contains("the proxy's answer is too long"), "{error}");
}

#[test]
fn the_proxy_is_asked_for_a_plain_url_in_full() {
    let (proxy, asked) = receiver(OK);
    let proxy = format!("http://me:p%40ss@{proxy}");
    let client = client(&[("http_proxy", &proxy), ("NO_PROXY", "127.0.0.1")]);
    assert_eq!(send(&client, get("http://hooks.example/x"), LIMITS).unwrap().status.as_u16(), 200);
    let head = asked.lock().unwrap()[0][0].to_ascii_lowercase();
    assert!(head.starts_with("get http://hooks.example/x http/1.1\r\n"), "{head}");
    assert!(head.contains("proxy-authorization: basic bwu6cebzcw==\r\n"), "{head}");
    // An exempt host is asked directly and sees nothing of the proxy.
    let (addr, seen) = receiver(OK);
    assert_eq!(send(&client, get(&format!("http://{addr}/x")), LIMITS).unwrap().status.as_u16(), 200);
    let head = seen.lock().unwrap()[0][0].to_ascii_lowercase();
    assert!(head.starts_with("get /x http/1.1\r\n") && !head.contains("proxy-authorization"), "{head}");
}

#[test]
fn a_proxy_that_refuses_says_so_and_a_silent_one_is_given_up() {
    let (refusing, _) = receiver("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
    let (silent, _) = receiver("");
    for (proxy, reason) in [(refusing, "refused the tunnel: 407"), (silent, "no connection within 500ms")] {
        let client = client(&[("HTTPS_PROXY", &format!("http://{proxy}"))]);
        let error = send(&client, get("https://hooks.example/"), LIMITS).unwrap_err();
        assert!(matches!(error, OutboundError::Connect { .. }) && error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn what_cannot_be_called_is_refused_before_anything_is_sent() {
    for url in ["", "/x", "ftp://host/", "http://", "http://me:pw@host/", "https://host:99999/", "http://[::1/"] {
        assert!(matches!(Call::new(Method::GET, url), Err(OutboundError::Url(_))), "{url}");
    }
    let client = client(&[("SERVICE_UPSTREAM_URL", "https://llm.example"), ("http_proxy", "socks5://me:pw@x")]);
    let error = send(&client, get("http://hooks.example/secret"), LIMITS).unwrap_err();
    let said = error.to_string();
    assert!(
        matches!(error, OutboundError::Proxy { .. }) && said.contains("http_proxy names no usable proxy"),
        "{said}"
    );
    assert!(!said.contains("pw") && !said.contains("secret") && !error.is_transient(), "{said}");
}
