//! A small blocking server around the fake provider: one thread per connection, with a record of what arrived.
//!
//! For demonstrations and black-box tests, where clarity beats speed. Serves keep-alive, pipelined requests, bodies by
//! length or chunked, and `Expect: 100-continue`; a request it cannot frame gets 400 and the end of the connection.
//!
//! Invariant: everything is bounded (connections, recorded requests and bytes), and a stopped server has no thread left.

mod record;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::http::{Request, RequestReader, Step};
use crate::provider::{self, Answer, Script};
pub use record::Received;
use record::Record;

/// Bytes asked of the socket at once.
const READ_BYTES: usize = 16 * 1024;

/// What answers a request.
pub type Responder = dyn Fn(&Request) -> Answer + Send + Sync;

/// Settings of a [`StdServer`].
pub struct Options {
    /// What answers; the fake provider unless replaced.
    pub responder: Box<Responder>,
    /// Connections served at once; further ones are closed unanswered.
    pub connections_max: usize,
    /// Requests kept in the record; the oldest go first.
    pub record_requests_max: usize,
    /// Bytes kept in the record; the oldest requests go first.
    pub record_bytes_max: usize,
    /// How long [`ServerHandle::stop`] lets answers finish.
    pub stop_grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            responder: Box::new(provider::respond),
            connections_max: 1024,
            record_requests_max: 1024,
            record_bytes_max: 64 * 1024 * 1024,
            stop_grace: Duration::from_secs(2),
        }
    }
}

/// The provider's HTTP server.
pub struct StdServer;

impl StdServer {
    /// Starts a fake provider on `addr` (port 0 picks one).
    ///
    /// # Errors
    /// The address cannot be bound, or no thread can be started.
    pub fn start(addr: impl ToSocketAddrs) -> io::Result<ServerHandle> {
        Self::start_with(addr, Options::default())
    }

    /// Starts a server with settings of its own.
    ///
    /// # Errors
    /// As [`StdServer::start`].
    pub fn start_with(addr: impl ToSocketAddrs, options: Options) -> io::Result<ServerHandle> {
        let listener = TcpListener::bind(addr)?;
        let addr = listener.local_addr()?;
        let record = Record::new(options.record_requests_max, options.record_bytes_max);
        let shared = Arc::new(Shared { options, record, live: Mutex::default(), changed: Condvar::new() });
        let acceptor = std::thread::Builder::new().name("fake-accept".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        })?;
        Ok(ServerHandle { addr, shared, acceptor: Some(acceptor) })
    }
}

/// A running server. Dropping it stops it.
pub struct ServerHandle {
    addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl ServerHandle {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://address`, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The recorded requests, oldest first.
    pub fn received(&self) -> Vec<Received> {
        self.shared.record.list()
    }

    /// The recorded requests, oldest first; the record is empty afterwards.
    pub fn take_received(&self) -> Vec<Received> {
        self.shared.record.take()
    }

    /// Requests received since the start, recorded or not.
    pub fn requests_seen(&self) -> u64 {
        self.shared.record.seen()
    }

    /// Connections accepted since the start.
    pub fn connections_accepted(&self) -> u64 {
        self.shared.live().accepted
    }

    /// Waits until at least `count` requests have been received since the start; false when `timeout` passes first.
    pub fn wait_for_requests(&self, count: u64, timeout: Duration) -> bool {
        self.shared.record.wait_seen(count, timeout)
    }

    /// Stops: no new connection, idle ones closed, answers in progress finished within the grace time, then cut.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        let sockets: Vec<Arc<TcpStream>> = {
            let mut live = self.shared.live();
            live.stopping = true;
            live.sockets.values().cloned().collect()
        };
        // The acceptor sees the flag when its accept returns; a connection makes it return.
        drop(TcpStream::connect_timeout(&self.addr, Duration::from_secs(1)));
        for socket in &sockets {
            // Ends the wait for a next request and lets an answer in progress finish.
            drop(socket.shutdown(Shutdown::Read));
        }
        if !self.shared.wait_quiet(self.shared.options.stop_grace) {
            let mut live = self.shared.live();
            live.cutting = true;
            for socket in live.sockets.values() {
                drop(socket.shutdown(Shutdown::Both));
            }
            drop(live);
            self.shared.changed.notify_all();
            self.shared.wait_quiet(Duration::from_secs(5));
        }
        // A panic of the acceptor has nothing left to spoil.
        drop(acceptor.join());
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// What all threads of one server see.
struct Shared {
    options: Options,
    record: Record,
    live: Mutex<Live>,
    changed: Condvar,
}

#[derive(Default)]
struct Live {
    sockets: HashMap<u64, Arc<TcpStream>>,
    accepted: u64,
    stopping: bool,
    cutting: bool,
}

impl Shared {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no connection is left; false when `timeout` passes first.
    fn wait_quiet(&self, timeout: Duration) -> bool {
        let busy = |live: &mut Live| !live.sockets.is_empty();
        let waited = self.changed.wait_timeout_while(self.live(), timeout, busy);
        waited.unwrap_or_else(PoisonError::into_inner).0.sockets.is_empty()
    }

    /// Waits until `due`; false when the server cuts its connections first.
    fn wait_until(&self, due: Instant) -> bool {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        let waited = self.changed.wait_timeout_while(self.live(), left, |live| !live.cutting);
        !waited.unwrap_or_else(PoisonError::into_inner).0.cutting
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for socket in listener.incoming() {
        let mut live = shared.live();
        if live.stopping {
            return;
        }
        let Ok(socket) = socket.map(Arc::new) else { continue };
        if live.sockets.len() >= shared.options.connections_max {
            continue;
        }
        live.accepted += 1;
        let id = live.accepted;
        live.sockets.insert(id, Arc::clone(&socket));
        drop(live);
        let guard = Registered { id, shared: Arc::clone(shared) };
        // Without a thread the guard is dropped with the closure, and the connection with it.
        drop(std::thread::Builder::new().name("fake-conn".to_owned()).spawn(move || {
            // A broken connection concerns its client, which sees it.
            drop(serve(&socket, &guard));
            drop(socket);
        }));
    }
}

/// Takes the connection out of the list when its thread ends, however it ends.
struct Registered {
    id: u64,
    shared: Arc<Shared>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.live().sockets.remove(&self.id);
        self.shared.changed.notify_all();
    }
}

fn serve(mut socket: &TcpStream, registered: &Registered) -> io::Result<()> {
    let shared = &registered.shared;
    socket.set_nodelay(true)?;
    let (mut reader, mut buf) = (RequestReader::default(), vec![0; READ_BYTES]);
    loop {
        let request = match reader.next_step() {
            Ok(Step::Complete(request)) => request,
            Ok(Step::SendContinue) => {
                socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                continue;
            }
            Ok(Step::NeedMore) => {
                let count = socket.read(&mut buf)?;
                if count == 0 {
                    return Ok(());
                }
                reader.push(buf.get(..count).unwrap_or_default());
                continue;
            }
            Err(error) => {
                let refusal = provider::refuse("/", 400, &error.to_string()).script(false, false);
                perform(socket, shared, &refusal, Instant::now())?;
                return linger(socket);
            }
        };
        let complete_at = Instant::now();
        let answer = (shared.options.responder)(&request);
        let script = answer.script(request.keep_alive, request.method == "HEAD");
        shared.record.add(registered.id, *request);
        perform(socket, shared, &script, complete_at)?;
        if script.closes {
            return linger(socket);
        }
    }
}

fn perform(mut socket: &TcpStream, shared: &Shared, script: &Script, start: Instant) -> io::Result<()> {
    for write in &script.writes {
        if !shared.wait_until(start + write.due) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let mut bytes = write.bytes.clone();
        provider::stamp_now(&mut bytes);
        socket.write_all(&bytes)?;
    }
    Ok(())
}

/// Says that no more is coming and reads a little of what is, so that unread bytes do not turn the close into a reset
/// that destroys the answer on its way (RFC 9112 section 9.6).
fn linger(mut socket: &TcpStream) -> io::Result<()> {
    socket.shutdown(Shutdown::Write)?;
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut sink = [0; 4096];
    for _ in 0..256 {
        if socket.read(&mut sink)? == 0 {
            break;
        }
    }
    Ok(())
}
