//! Promise: an `https://` provider is verified, against the system's roots and an extra CA file, and served like a
//! plain one. The certificates in `data/` are made for these tests and protect nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};
use serde_json::json;
use tempfile::TempDir;
use weir_loadtest::http::{Request, RequestReader, Step};

use crate::support::{Call, Client, Setup, call, chat_call, on_both_drivers};

const CA: &str = include_str!("data/ca.pem");
const SERVER: &str = include_str!("data/server.pem");
const KEY: &str = include_str!("data/server.key.pem");

/// How a TLS provider ends its connection after an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    KeepAlive,
    CloseNotify,
    Abrupt,
}

/// A TLS provider that gives every request the same answer.
fn provider(answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static, ending: Ending) -> SocketAddr {
    let chain = CertificateDer::pem_slice_iter(SERVER.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let (config, answer) = (Arc::new(config), Arc::new(answer));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let (config, answer) = (Arc::clone(&config), Arc::clone(&answer));
            std::thread::spawn(move || {
                let mut tls = ServerConnection::new(config).unwrap();
                let (mut reader, mut piece) = (RequestReader::default(), [0; 16 * 1024]);
                loop {
                    match reader.next_step() {
                        Ok(Step::Complete(request)) => {
                            assert_eq!(tls.alpn_protocol(), Some(b"http/1.1".as_slice()));
                            drop(socket.write_all(&in_mixed_records(&mut tls, &answer(&request))));
                            match ending {
                                Ending::KeepAlive => continue,
                                Ending::Abrupt => return,
                                Ending::CloseNotify => {
                                    tls.send_close_notify();
                                    drop(Stream::new(&mut tls, &mut socket).flush());
                                    return;
                                }
                            }
                        }
                        Ok(_) => {}
                        Err(_) => return,
                    }
                    match Stream::new(&mut tls, &mut socket).read(&mut piece) {
                        Ok(count) if count > 0 => reader.push(&piece[..count]),
                        _ => return,
                    }
                }
            });
        }
    });
    addr
}

/// `answer` as ciphertext: records of the largest size and of 40 bytes in turn, as servers that size records by demand send
/// them. One read can then hold a large record and the beginning of the next ones, more plaintext than a session keeps.
fn in_mixed_records(tls: &mut ServerConnection, answer: &[u8]) -> Vec<u8> {
    tls.set_buffer_limit(None);
    let (mut rest, mut large, mut ciphertext) = (answer, true, Vec::new());
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(if large { 16 * 1024 } else { 40 }));
        tls.writer().write_all(piece).unwrap();
        (rest, large) = (behind, !large);
    }
    while tls.wants_write() {
        tls.write_tls(&mut ciphertext).unwrap();
    }
    ciphertext
}

/// A folder with the CA file, and the configuration line that names it.
fn trust() -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, CA).unwrap();
    let line = format!("upstream_ca_file: '{}'", path.display());
    (folder, line)
}

fn echo(request: &Request) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len());
    [head.as_bytes(), &request.body].concat()
}

on_both_drivers! {
    fn bodies_pass_in_both_directions_on_one_connection(driver) {
        let addr = provider(echo, Ending::KeepAlive);
        let (_folder, trusted) = trust();
        let gateway = Setup::new(driver).upstream(format!("https://localhost:{}", addr.port())).with(&trusted).start();
        let mut client = Client::connect(gateway.addr);
        for bytes in [10, 100_000, 3_000_000, 1] {
            let body: Vec<u8> = (0..bytes).map(|at: u32| (at % 251) as u8).collect();
            client.say(Call::post("/v1/files", body.clone()).bytes());
            let answer = client.answer();
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(answer.body == body, "{bytes} bytes");
        }
    }

    fn a_certificate_nobody_vouches_for_is_refused(driver) {
        let addr = provider(echo, Ending::KeepAlive);
        let gateway = Setup::new(driver).upstream(format!("https://localhost:{}", addr.port())).start();
        let answer = call(gateway.addr, chat_call("hello").bytes());
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (502, &json!("upstream_connect_error")));
        let message = answer.json()["error"]["message"].as_str().unwrap().to_lowercase();
        assert!(message.contains("certificate"), "{message}");
    }

    fn a_certificate_for_another_name_is_refused(driver) {
        let addr = provider(echo, Ending::KeepAlive);
        let (_folder, trusted) = trust();
        // The certificate is for `localhost` only.
        let gateway = Setup::new(driver).upstream(format!("https://{addr}")).with(&trusted).start();
        let answer = call(gateway.addr, chat_call("hello").bytes());
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (502, &json!("upstream_connect_error")));
    }

    fn an_answer_until_close_is_whole_only_with_a_farewell(driver) {
        let said = |_: &Request| b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nthe whole text".to_vec();
        let (_folder, trusted) = trust();
        for ending in [Ending::CloseNotify, Ending::Abrupt] {
            let addr = provider(said, ending);
            let gateway =
                Setup::new(driver).upstream(format!("https://localhost:{}", addr.port())).with(&trusted).start();
            let mut client = Client::connect(gateway.addr);
            client.say(Call::get("/v1/files/x").bytes());
            match client.answer_to("GET") {
                Ok(answer) => {
                    assert!(ending == Ending::CloseNotify, "a truncated answer looks whole (RFC 9112 section 9.8)");
                    assert_eq!(answer.text(), "the whole text");
                }
                Err(_) => assert!(ending == Ending::Abrupt, "a whole answer was cut"),
            }
        }
    }
}
