//! Listening sockets: bind, accept, empty, end; and what is left to say when descriptors run out.
//!
//! Invariant: a connection the kernel has queued is either served, handed over with its socket, or told why not. Knows no
//! limits but the kernel's.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::time::Duration;

use monoio::io::Canceller;
use monoio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::DriverMode;
use super::conn::{Conn, shutdown_fd};

/// Handshakes the kernel queues for one core's listener.
const BACKLOG: i32 = 4096;

/// Reads, of some kilobytes each, that a client which is turned away gets at most: it may go on sending for ever.
const UNREAD_STEPS: usize = 64;

/// One core's listener. Every core binds the same address with SO_REUSEPORT; the kernel spreads the connections.
pub struct Listener {
    inner: TcpListener,
    canceller: std::cell::RefCell<Option<Canceller>>,
}

/// Descriptors this process has left for emergencies: one, so that a client can be told that there are none.
pub struct Spare(Option<File>);

impl Spare {
    /// Puts a descriptor by.
    pub fn new() -> Self {
        Self(put_by())
    }

    /// When no descriptor is left: takes up to `max` queued connections one by one, tells each `answer` and closes it, without
    /// waiting. How many there were.
    pub fn turn_away(&mut self, listener: &Listener, mode: DriverMode, answer: &[u8], max: usize) -> usize {
        let mut turned = 0;
        while turned < max {
            self.0 = None;
            let Some((stream, _)) = accept_now(listener.inner.as_raw_fd(), mode) else { break };
            // What has arrived is read: a close with unread input would be a reset, and the answer lost.
            let (fd, mut unread) = (stream.as_raw_fd(), [0; 4096]);
            let _sent_less = (0..UNREAD_STEPS).any(|_| receive_now(fd, &mut unread) < unread.len());
            super::conn::send_now(fd, answer);
            shutdown_fd(fd, libc::SHUT_WR);
            drop(stream);
            turned += 1;
        }
        if self.0.is_none() {
            self.0 = put_by();
        }
        turned
    }
}

impl Default for Spare {
    fn default() -> Self {
        Self::new()
    }
}

fn put_by() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Whether an error says that the process or the system has no descriptor left.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// What has arrived, as far as it fits, without waiting; 0 when there is nothing.
#[allow(unsafe_code)]
fn receive_now(fd: RawFd, into: &mut [u8]) -> usize {
    // SAFETY: recv writes at most `into.len()` bytes into `into`, which outlives the call.
    let got = unsafe { libc::recv(fd, into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) };
    usize::try_from(got).unwrap_or(0)
}

/// What [`Listener::accept`] brings.
pub enum Accepted {
    /// A new connection and its peer.
    Connection(Conn, SocketAddr),
    /// [`Listener::stop`] was called and nothing is waiting any more.
    Stopped,
}

impl Listener {
    /// Binds `addr` with SO_REUSEPORT for use under `mode`.
    ///
    /// # Errors
    /// The kernel's: address in use, not permitted, not ours.
    pub fn bind(addr: SocketAddr, mode: DriverMode) -> io::Result<std::net::TcpListener> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        if addr.is_ipv6() && addr.ip().is_unspecified() {
            socket.set_only_v6(false)?;
        }
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        let listener = socket.into();
        Self::suit(&listener, mode)?;
        Ok(listener)
    }

    /// Makes a socket fit for use under `mode`: a ring waits by itself and wants a blocking socket; epoll needs a non-blocking
    /// one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn suit(listener: &std::net::TcpListener, mode: DriverMode) -> io::Result<()> {
        listener.set_nonblocking(mode == DriverMode::Epoll)
    }

    /// Makes a socket fit for several cores at once: one may take the connection another has just seen waiting, and accept4 on
    /// a blocking socket would then wait for the next. On Linux the limit on reading holds for accepting; a ring and epoll, which
    /// do not block, never see it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn share(listener: &std::net::TcpListener) -> io::Result<()> {
        SockRef::from(listener).set_read_timeout(Some(Duration::from_millis(1)))
    }

    /// Whether a socket still queues connections; one that [`Listener::refuse`] has ended does not, whoever holds it.
    pub fn is_open(listener: &std::net::TcpListener) -> bool {
        SockRef::from(listener).is_listener().unwrap_or(false)
    }

    /// Finds out whether `addr` is free, which a bind with SO_REUSEPORT does not tell, and which port it is when 0 was
    /// asked for.
    ///
    /// # Errors
    /// As [`Listener::bind`]; `AddrInUse` also when another process listens with SO_REUSEPORT.
    pub fn probe_free(addr: SocketAddr) -> io::Result<SocketAddr> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&addr.into())?;
        let local = socket.local_addr()?;
        local.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Takes over a bound listener on the core that will run it.
    ///
    /// # Errors
    /// When the driver cannot register the descriptor.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self { inner: TcpListener::from_std(listener)?, canceller: std::cell::RefCell::new(Some(Canceller::new())) })
    }

    /// The next connection, with TCP_NODELAY set.
    ///
    /// # Errors
    /// The kernel's; descriptor exhaustion among them, so the caller pauses before it asks again.
    pub async fn accept(&self) -> io::Result<Accepted> {
        let Some(handle) = self.canceller.borrow().as_ref().map(Canceller::handle) else {
            return Ok(Accepted::Stopped);
        };
        match self.inner.cancelable_accept(handle).await {
            Ok((stream, peer)) => {
                stream.set_nodelay(true)?;
                Ok(Accepted::Connection(Conn::new(stream), peer))
            }
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => Ok(Accepted::Stopped),
            Err(error) => Err(error),
        }
    }

    /// Ends the pending accept; later ones answer [`Accepted::Stopped`]. A connection that was accepted at the same
    /// moment is still delivered.
    pub fn stop(&self) {
        if let Some(canceller) = self.canceller.borrow_mut().take() {
            drop(canceller.cancel());
        }
    }

    /// Takes no more connections from now on. A ring closes descriptors only when it waits the next time: a core with
    /// nothing to drain would end before that, and its listener would go on queueing connections nobody accepts.
    pub fn refuse(&self) {
        shutdown_fd(self.inner.as_raw_fd(), libc::SHUT_RD);
    }

    /// Connections that are queued right now, without waiting: closing an SO_REUSEPORT listener resets what is in its
    /// queue, so a drain empties it first.
    pub fn accept_queued(&self, mode: DriverMode) -> Vec<(Conn, SocketAddr)> {
        let mut queued = Vec::new();
        while let Some((stream, peer)) = accept_now(self.inner.as_raw_fd(), mode) {
            if stream.set_nodelay(true).is_ok()
                && let Ok(stream) = TcpStream::from_std(stream)
            {
                queued.push((Conn::new(stream), peer));
            }
        }
        queued
    }
}

/// The next connection queued at any of `listeners`, for as long as `patience`, ready for blocking reads and writes. For a
/// thread that accepts while no core does yet.
#[allow(unsafe_code)]
pub fn accept_any(listeners: &[std::net::TcpListener], patience: Duration) -> Option<std::net::TcpStream> {
    let watched =
        |socket: &std::net::TcpListener| libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut queued: Vec<_> = listeners.iter().map(watched).collect();
    let patience_ms = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the pointer and the length are those of one vector, which outlives the call.
    let some = unsafe { libc::poll(queued.as_mut_ptr(), queued.len() as libc::nfds_t, patience_ms) } > 0;
    let ready = queued.iter().filter(|queue| some && queue.revents & libc::POLLIN != 0);
    // A driver that waits by itself wants blocking sockets, and so does a plain thread.
    let accepted = ready.map(|queue| queue.fd).find_map(|fd| accept_now(fd, DriverMode::UringPlain));
    if some && accepted.is_none() {
        // Out of descriptors, or somebody else has just taken it: poll would say the same again at once.
        std::thread::sleep(patience);
    }
    accepted.map(|(stream, _)| stream)
}

/// accept4 without waiting. Connections that have ended in the queue are passed over.
#[allow(unsafe_code)]
fn accept_now(listener: RawFd, mode: DriverMode) -> Option<(std::net::TcpStream, SocketAddr)> {
    let flags = libc::SOCK_CLOEXEC | if mode == DriverMode::Epoll { libc::SOCK_NONBLOCK } else { 0 };
    loop {
        let mut ready = libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
        // SAFETY: `ready` is one valid pollfd on our stack; accept4 is given null for the optional address arguments; the
        // descriptor it returns is owned by nobody else and goes straight into the stream that will close it.
        let stream = unsafe {
            if libc::poll(&mut ready, 1, 0) != 1 {
                return None;
            }
            let fd = libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags);
            if fd < 0 {
                if io::Error::last_os_error().raw_os_error() == Some(libc::ECONNABORTED) {
                    continue;
                }
                return None;
            }
            std::net::TcpStream::from_raw_fd(fd)
        };
        if let Ok(peer) = stream.peer_addr() {
            return Some((stream, peer));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_that_was_reset_in_the_queue_hides_none_behind_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let gone = TcpStream::connect(addr).unwrap();
        SockRef::from(&gone).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(gone);
        let waiting = TcpStream::connect(addr).unwrap();
        let (_, peer) = accept_now(listener.as_raw_fd(), DriverMode::Epoll).expect("one waits");
        assert_eq!(peer, waiting.local_addr().unwrap());
        assert!(accept_now(listener.as_raw_fd(), DriverMode::Epoll).is_none());
    }

    #[test]
    fn a_shared_socket_never_holds_up_who_comes_too_late_for_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Listener::share(&listener).unwrap();
        // It blocks, and another core has taken what there was.
        let late = listener.accept().unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
    }
}
