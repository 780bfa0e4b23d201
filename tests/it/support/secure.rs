//! A provider that speaks TLS. The certificates in `data/` are made for these tests and protect nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, Stream};
use tempfile::TempDir;

use weir_fake_provider::http::{Request, RequestReader, Step};

pub(crate) const CA: &str = include_str!("../data/ca.pem");
const SERVER: &str = include_str!("../data/server.pem");
const KEY: &str = include_str!("../data/server.key.pem");

/// How a TLS provider ends its connection after an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    KeepAlive,
    CloseNotify,
    Abrupt,
}

/// What a TLS provider has seen.
#[derive(Default)]
pub(crate) struct Handshakes {
    pub(crate) full: AtomicUsize,
    pub(crate) resumed: AtomicUsize,
}

/// A TLS provider that gives every request the same answer.
pub(crate) fn secure_provider(
    answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static,
    ending: Ending,
) -> SocketAddr {
    counted_provider(answer, ending).0
}

/// The same, and how its sessions began.
pub(crate) fn counted_provider(
    answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static,
    ending: Ending,
) -> (SocketAddr, Arc<Handshakes>) {
    let handshakes = Arc::new(Handshakes::default());
    let seen = Arc::clone(&handshakes);
    let mut config = server_config(SERVER, KEY);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let (config, answer) = (Arc::new(config), Arc::new(answer));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let (config, answer, seen) = (Arc::clone(&config), Arc::clone(&answer), Arc::clone(&seen));
            std::thread::spawn(move || {
                let mut counted = false;
                let mut tls = ServerConnection::new(config).unwrap();
                let (mut reader, mut piece) = (RequestReader::default(), [0; 16 * 1024]);
                loop {
                    match reader.next_step() {
                        Ok(Step::Complete(request)) => {
                            if !std::mem::replace(&mut counted, true) {
                                let resumed = tls.handshake_kind() == Some(HandshakeKind::Resumed);
                                let kind = if resumed { &seen.resumed } else { &seen.full };
                                kind.fetch_add(1, Ordering::SeqCst);
                            }
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
    (addr, handshakes)
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
pub(crate) fn trust() -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, CA).unwrap();
    let line = format!("upstream_ca_file: '{}'", path.display());
    (folder, line)
}

fn server_config(cert: &str, key: &str) -> ServerConfig {
    let chain = CertificateDer::pem_slice_iter(cert.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap()
}

/// A TLS provider that follows `script` on each connection. Its port.
pub(crate) fn secure_peer(
    script: impl Fn(&mut Stream<'_, ServerConnection, TcpStream>) + Send + Sync + 'static,
) -> u16 {
    secure_peer_as((SERVER, KEY), script)
}

/// The same with another certificate and key, both PEM.
pub(crate) fn secure_peer_as(
    pair: (&'static str, &'static str),
    script: impl Fn(&mut Stream<'_, ServerConnection, TcpStream>) + Send + Sync + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = Arc::new(script);
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let script = Arc::clone(&script);
            std::thread::spawn(move || {
                let mut tls = ServerConnection::new(Arc::new(server_config(pair.0, pair.1))).unwrap();
                script(&mut Stream::new(&mut tls, &mut socket));
            });
        }
    });
    port
}
