//! A provider that keeps every byte it gets, connection by connection, and answers each request with its own target.
//!
//! It reads as strictly as can be; what that reading refuses is kept as a violation and ends the connection.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::readings::{Strict, disagreement, strict};

/// The provider. [`Recorder::finish`] gives what it saw.
pub(crate) struct Recorder {
    pub(crate) addr: SocketAddr,
    shared: Arc<Shared>,
    listening: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    /// Targets answered, in no particular order.
    answered: Mutex<Vec<String>>,
    faults: Mutex<Vec<String>>,
}

/// What a provider saw.
pub(crate) struct Recorded {
    pub(crate) answered: Vec<String>,
    /// What two readers would have read differently.
    pub(crate) faults: Vec<String>,
}

impl Recorder {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let addr = listener.local_addr().expect("a bound socket");
        let shared = Arc::new(Shared::default());
        let listening = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let mut connections = Vec::new();
                for stream in listener.incoming().map_while(Result::ok) {
                    if shared.stopping.load(Ordering::SeqCst) {
                        break;
                    }
                    let shared = Arc::clone(&shared);
                    connections.push(std::thread::spawn(move || shared.serve(stream)));
                }
                for connection in connections {
                    connection.join().expect("the recorder does not panic");
                }
            }
        });
        Self { addr, shared, listening }
    }

    /// What has been seen, once every connection has ended: whoever connects to it must be gone.
    pub(crate) fn finish(self) -> Recorded {
        self.shared.stopping.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.addr));
        self.listening.join().expect("the recorder does not panic");
        let answered = std::mem::take(&mut *self.shared.answered.lock().expect("no panic in here"));
        let faults = std::mem::take(&mut *self.shared.faults.lock().expect("no panic in here"));
        Recorded { answered, faults }
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        stream.set_nodelay(true).expect("a TCP socket");
        let mut all = Vec::new();
        // Where the request being read begins, and whether it has been answered before its end.
        let (mut from, mut early) = (0, false);
        let mut piece = vec![0; 64 * 1024];
        'connection: loop {
            loop {
                match strict(&all[from..]) {
                    Strict::Whole(seen) => {
                        if !std::mem::take(&mut early) {
                            self.answer(&mut stream, &seen.method, &seen.target);
                        }
                        from += seen.end.unwrap_or_default();
                    }
                    Strict::Partial(Some((method, target))) if !early && target.contains("/early-") => {
                        early = true;
                        self.answer(&mut stream, &method, &target);
                    }
                    Strict::Partial(_) => break,
                    Strict::Broken(_) => break 'connection,
                }
            }
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => all.extend_from_slice(&piece[..count]),
                _ => break,
            }
        }
        if let Some(fault) = disagreement(&all) {
            self.faults.lock().expect("no panic in here").push(fault);
        }
    }

    fn answer(&self, stream: &mut TcpStream, method: &str, target: &str) {
        self.answered.lock().expect("no panic in here").push(target.to_owned());
        let body = if method == "HEAD" { "" } else { "{}" };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Method: {method}\r\nX-Target: {target}\r\n\r\n");
        // A gateway that has gone is no failure of the provider's.
        drop(stream.write_all((head + body).as_bytes()));
    }
}
