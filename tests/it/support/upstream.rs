//! A provider that follows a script: what it must see, what it says, and when. One thread per connection.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use weir_fake_provider::http::{Request, RequestReader, Step};

use super::{PATIENCE, eventually};

/// A scripted provider.
pub(crate) struct Upstream {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Request>>,
    connections: AtomicUsize,
    stopping: AtomicBool,
}

impl Upstream {
    /// Plays `script` on each connection; when it returns, the connection is closed.
    pub(crate) fn play(script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let addr = listener.local_addr().expect("a bound socket");
        let (shared, script) = (Arc::new(Shared::default()), Arc::new(script));
        std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    if shared.stopping.load(Ordering::SeqCst) {
                        return;
                    }
                    shared.connections.fetch_add(1, Ordering::SeqCst);
                    let (shared, script) = (Arc::clone(&shared), Arc::clone(&script));
                    std::thread::spawn(move || {
                        stream.set_nodelay(true).expect("a TCP socket");
                        stream.set_read_timeout(Some(PATIENCE)).expect("a TCP socket");
                        script(&mut Peer { stream, reader: RequestReader::default(), shared });
                    });
                }
            }
        });
        Self { addr, shared }
    }

    /// Plays `script` on each connection; what it waits for at the gate, the test lets pass.
    pub(crate) fn gated(script: impl Fn(&mut Peer, &Gate) + Send + Sync + 'static) -> (Self, Gate) {
        let gate = Gate::new();
        let held = gate.clone();
        (Self::play(move |peer| script(peer, &held)), gate)
    }

    /// Answers every request with the same bytes.
    pub(crate) fn always(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::play(move |peer| {
            while peer.request().is_some() {
                peer.say(&answer);
            }
        })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Every request that has been seen whole, in order.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().expect("no panic in here").clone()
    }

    /// Waits until `count` requests have been seen and returns them.
    pub(crate) fn wait_for_requests(&self, count: usize) -> Vec<Request> {
        eventually("the provider sees the requests", || Some(self.requests()).filter(|all| all.len() >= count))
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Lets the listening thread see the flag; it has ended already when this fails.
        drop(TcpStream::connect(self.addr));
    }
}

/// The other end of one connection.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    reader: RequestReader,
    shared: Arc<Shared>,
}

impl Peer {
    /// The next request; `None` when the gateway closes instead or breaks the protocol.
    pub(crate) fn request(&mut self) -> Option<Request> {
        loop {
            match self.reader.next_step().ok()? {
                Step::Complete(request) => {
                    self.shared.requests.lock().expect("no panic in here").push((*request).clone());
                    return Some(*request);
                }
                Step::SendContinue => {}
                Step::NeedMore => {
                    let mut piece = [0; 64 * 1024];
                    match self.stream.read(&mut piece) {
                        Ok(count) if count > 0 => self.reader.push(&piece[..count]),
                        _ => return None,
                    }
                }
            }
        }
    }

    /// Says these bytes; a gateway that has gone is no failure of the provider's.
    pub(crate) fn say(&mut self, bytes: impl AsRef<[u8]>) {
        drop(self.stream.write_all(bytes.as_ref()));
    }

    /// Ends the answer without a reset.
    pub(crate) fn close(&mut self) {
        drop(self.stream.shutdown(Shutdown::Both));
    }

    /// How long it takes until the gateway closes; `None` when it does not within [`PATIENCE`].
    pub(crate) fn wait_closed(&mut self) -> Option<Duration> {
        let start = Instant::now();
        let mut sink = [0; 4096];
        loop {
            match self.stream.read(&mut sink) {
                Ok(count) if count > 0 => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return None,
                Ok(_) | Err(_) => return Some(start.elapsed()),
            }
        }
    }
}

/// Lets a script wait for a test, step by step.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<usize>, Condvar)>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Lets one more step pass.
    pub(crate) fn open(&self) {
        *self.0.0.lock().expect("no panic in here") += 1;
        self.0.1.notify_all();
    }

    /// Waits for one [`Gate::open`]; false when none comes within [`PATIENCE`].
    pub(crate) fn pass(&self) -> bool {
        let guard = self.0.0.lock().expect("no panic in here");
        let (mut steps, _) =
            self.0.1.wait_timeout_while(guard, PATIENCE, |steps| *steps == 0).expect("no panic in here");
        let passed = *steps > 0;
        *steps = steps.saturating_sub(1);
        passed
    }
}

/// A loopback address nobody listens on and nobody else can take while this lives.
pub(crate) struct ClosedPort {
    _socket: socket2::Socket,
    pub(crate) addr: SocketAddr,
}

impl ClosedPort {
    pub(crate) fn new() -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a loopback port");
        let addr = socket.local_addr().expect("a bound socket").as_socket().expect("an IPv4 address");
        Self { _socket: socket, addr }
    }
}
