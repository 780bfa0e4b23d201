//! Connections of a core thread: accept, connect, read, write, all with owned buffers as a ring needs them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use monoio::buf::{IoBuf, IoBufMut};
use monoio::io::{AsyncReadRent as _, AsyncWriteRent as _, Canceller};
use monoio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, Socket, Type};

use super::DriverMode;

/// Handshakes the kernel queues for one core's listener.
const BACKLOG: i32 = 4096;

/// One core's listener. Every core binds the same address with SO_REUSEPORT; the kernel spreads the connections.
pub struct Listener {
    inner: TcpListener,
    canceller: std::cell::RefCell<Option<Canceller>>,
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
        // A ring waits by itself and wants a blocking socket; epoll needs a non-blocking one.
        socket.set_nonblocking(mode == DriverMode::Epoll)?;
        Ok(socket.into())
    }

    /// Finds out whether `addr` is free, which a bind with SO_REUSEPORT does not tell, and which port it is when 0 was
    /// asked for.
    ///
    /// # Errors
    /// As [`Listener::bind`]; `AddrInUse` also when another process listens with SO_REUSEPORT.
    pub fn claim(addr: SocketAddr) -> io::Result<SocketAddr> {
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

/// accept4 without waiting.
#[allow(unsafe_code)]
fn accept_now(listener: RawFd, mode: DriverMode) -> Option<(std::net::TcpStream, SocketAddr)> {
    let mut ready = libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
    let flags = libc::SOCK_CLOEXEC | if mode == DriverMode::Epoll { libc::SOCK_NONBLOCK } else { 0 };
    // SAFETY: `ready` is one valid pollfd on our stack; accept4 is given null for the optional address arguments; the
    // descriptor it returns is owned by nobody else and goes straight into the stream that will close it.
    let stream = unsafe {
        if libc::poll(&mut ready, 1, 0) != 1 {
            return None;
        }
        let fd = libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags);
        if fd < 0 {
            return None;
        }
        std::net::TcpStream::from_raw_fd(fd)
    };
    let peer = stream.peer_addr().ok()?;
    Some((stream, peer))
}

/// Opens a TCP connection within `limit`, with TCP_NODELAY and keep-alive probes set.
///
/// # Errors
/// `TimedOut` after `limit`, else the kernel's.
pub async fn connect(addr: SocketAddr, limit: Duration) -> io::Result<Conn> {
    // A connect that is dropped closes its socket when it ends; no bytes can be lost before there is a connection.
    let stream = super::within(limit, TcpStream::connect_addr(addr)).await.ok_or(io::ErrorKind::TimedOut)??;
    stream.set_nodelay(true)?;
    stream.set_tcp_keepalive(Some(Duration::from_secs(60)), Some(Duration::from_secs(15)), Some(4))?;
    Ok(Conn::new(stream))
}

/// A TCP connection owned by one core.
pub struct Conn {
    stream: TcpStream,
}

impl Conn {
    fn new(stream: TcpStream) -> Self {
        Self { stream }
    }

    /// The descriptor, for a [`super::Deadline`].
    pub fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Reads once into the spare capacity of `buf`, which must not be empty. `Ok(0)` is the peer's end of stream, or a
    /// deadline's.
    pub async fn read(&mut self, buf: BytesMut) -> (io::Result<usize>, BytesMut) {
        debug_assert!(buf.capacity() > buf.len(), "a read needs room");
        let (result, tail) = self.stream.read(Tail(buf)).await;
        (result, tail.0)
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// The kernel's; `WriteZero` when the socket takes nothing.
    pub async fn write_all(&mut self, data: Bytes) -> io::Result<()> {
        let mut rest = data;
        while !rest.is_empty() {
            let (result, Rest(mut unsent)) = self.stream.write(Rest(rest)).await;
            let sent = result?;
            if sent == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            let sent = sent.min(unsent.len());
            rest = unsent.split_off(sent);
        }
        Ok(())
    }

    /// Sends our end of stream; reading goes on.
    pub fn finish_writing(&self) {
        shutdown_fd(self.fd(), libc::SHUT_WR);
    }

    /// Ends both directions now.
    pub fn abort(&self) {
        shutdown_fd(self.fd(), libc::SHUT_RDWR);
    }

    /// Whether an idle connection is still quiet: no byte and no end of stream has arrived. One system call.
    pub fn is_quiet(&self) -> bool {
        matches!(peek(self.fd()), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// A second handle that tells when the peer has gone; it may be dropped at any time.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn watch(&self) -> io::Result<Watch> {
        let duplicate = dup(self.fd())?;
        Ok(Watch { stream: TcpStream::from_std(duplicate)? })
    }
}

/// Watches a connection for its peer's departure while somebody else reads or writes it.
pub struct Watch {
    stream: TcpStream,
}

impl Watch {
    /// Returns when the peer has closed or reset the connection. Bytes that arrive instead (a pipelined request) end the
    /// watching without an answer: then this never returns.
    pub async fn gone(&self) {
        loop {
            if self.stream.readable(false).await.is_err() {
                return;
            }
            match peek(self.stream.as_raw_fd()) {
                Ok(0) => return,
                Ok(_) => std::future::pending::<()>().await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

/// Looks at the next byte without taking it and without waiting: `Ok(0)` is end of stream.
#[allow(unsafe_code)]
fn peek(fd: RawFd) -> io::Result<usize> {
    let mut byte = 0u8;
    // SAFETY: recv writes at most one byte into `byte`, which outlives the call.
    let got = unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Duplicates a descriptor with close-on-exec.
#[allow(unsafe_code)]
fn dup(fd: RawFd) -> io::Result<std::net::TcpStream> {
    // SAFETY: F_DUPFD_CLOEXEC either fails or returns a new descriptor owned by nobody else, which the stream closes.
    unsafe {
        let duplicate = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0);
        if duplicate < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(std::net::TcpStream::from_raw_fd(duplicate))
    }
}

/// shutdown(2); an error means the connection is gone already, which is what was wanted.
#[allow(unsafe_code)]
pub(super) fn shutdown_fd(fd: RawFd, how: libc::c_int) {
    // SAFETY: takes two integers; a descriptor that is closed or no socket yields an error that is ignored on purpose.
    unsafe {
        libc::shutdown(fd, how);
    }
}

/// The unwritten rest of a buffer, handed to the kernel.
struct Rest(Bytes);

// SAFETY: `Bytes` keeps its memory in place and alive until dropped, wherever the value itself moves.
#[allow(unsafe_code)]
unsafe impl IoBuf for Rest {
    fn read_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.0.len()
    }
}

/// The spare capacity of a buffer, handed to the kernel.
struct Tail(BytesMut);

// SAFETY: pointer and length describe the allocated, unused part of the `BytesMut`, which stays in place while the value
// moves; `set_init` is called with at most the number of bytes written there, so the new length is initialised.
#[allow(unsafe_code)]
unsafe impl IoBufMut for Tail {
    fn write_ptr(&mut self) -> *mut u8 {
        self.0.spare_capacity_mut().as_mut_ptr().cast()
    }

    fn bytes_total(&mut self) -> usize {
        self.0.spare_capacity_mut().len()
    }

    unsafe fn set_init(&mut self, read: usize) {
        let filled = self.0.len() + read;
        debug_assert!(filled <= self.0.capacity(), "the kernel wrote past the buffer");
        // SAFETY: see above; the kernel has initialised `read` bytes behind the old length.
        unsafe { self.0.set_len(filled) };
    }
}
