//! Connections of a core thread: connect, read, write, all with owned buffers as a ring needs them.
//!
//! Invariant: no operation in flight is dropped; what has to end early is shut down or called back and then awaited.

use std::future::{Future as _, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use monoio::buf::{IoBuf, IoBufMut};
use monoio::io::{AsyncReadRent as _, AsyncWriteRent as _, CancelableAsyncReadRent as _, Canceller};
use monoio::net::TcpStream;

use super::{Deadline, EarlyReader, On, ReadWhileWriting};

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
    /// Bytes the kernel has taken from us.
    sent: u64,
    /// Calls a waiting read back.
    canceller: Option<Canceller>,
}

impl Conn {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, sent: 0, canceller: None }
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

    /// Reads as [`Conn::read`] does, but calls the read back when nothing has come within `patience`: `Ok(None)`, and not a
    /// byte is lost. Takes `deadline` for itself meanwhile.
    pub async fn read_within(
        &mut self,
        buf: BytesMut,
        deadline: &Deadline,
        patience: Duration,
    ) -> (io::Result<Option<usize>>, BytesMut) {
        debug_assert!(buf.capacity() > buf.len(), "a read needs room");
        let handle = self.canceller.get_or_insert_with(Canceller::new).handle();
        let mut reading = std::pin::pin!(self.stream.cancelable_read(Tail(buf), handle));
        let (mut armed, mut called_back) = (false, false);
        let canceller = &mut self.canceller;
        let (result, tail) = poll_fn(|context| {
            if let Poll::Ready(done) = reading.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            if !armed {
                armed = true;
                deadline.arm(patience, On::Wake(context.waker().clone()));
            } else if deadline.fired() && !called_back {
                called_back = true;
                *canceller = canceller.take().map(Canceller::cancel);
            }
            Poll::Pending
        })
        .await;
        deadline.disarm();
        let result = match result {
            Err(error) if called_back && error.raw_os_error() == Some(libc::ECANCELED) => Ok(None),
            other => other.map(Some),
        };
        (result, tail.0)
    }

    /// Waits until something has arrived or the peer has closed, holding no buffer. May be dropped at any time.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn readable(&self) -> io::Result<()> {
        self.stream.readable(false).await
    }

    /// Gives back what memory it can while nothing is expected for a while.
    pub fn release(&mut self) {
        self.canceller = None;
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// The kernel's; `WriteZero` when the socket takes nothing.
    pub async fn write_all(&mut self, data: Bytes) -> io::Result<()> {
        let mut rest = data;
        while !rest.is_empty() {
            self.write_some(&mut rest).await?;
        }
        Ok(())
    }

    /// Writes once, as much of `data` as the socket takes, and waits until it takes some.
    ///
    /// # Errors
    /// As [`Conn::write_all`].
    pub async fn write_some(&mut self, data: &mut Bytes) -> io::Result<()> {
        let (result, Rest(mut unsent)) = self.stream.write(Rest(std::mem::take(data))).await;
        let sent = result?.min(unsent.len());
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.sent += sent as u64;
        *data = unsent.split_off(sent);
        Ok(())
    }

    /// Writes what the socket takes of `data` without waiting.
    pub fn try_write(&self, data: &[u8]) {
        send_now(self.fd(), data);
    }

    /// As [`Conn::write_some`] while reading: what arrives meanwhile goes to `reader`, which may end the writing with an error.
    ///
    /// # Errors
    /// As [`Conn::write_all`].
    pub async fn write_some_reading(
        &mut self,
        data: &mut Bytes,
        reading: &mut ReadWhileWriting,
        reader: &mut impl EarlyReader,
    ) -> io::Result<()> {
        let fd = self.fd();
        reading.during(fd, self.write_some(data), || read_early(fd, reader)).await
    }

    /// Bytes the kernel has taken from us since the connection was opened.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Takes in what has arrived, without waiting. True when that ends the speaking, as the end of the stream does.
    pub fn read_early(&self, reader: &mut impl EarlyReader) -> bool {
        read_early(self.fd(), reader)
    }

    /// Reads what has arrived into the spare capacity of `buf`, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing, else the kernel's.
    pub(super) fn read_now(fd: RawFd, buf: &mut BytesMut) -> io::Result<usize> {
        let spare = buf.spare_capacity_mut();
        // SAFETY: recv writes at most `spare.len()` bytes into the spare capacity, and what it reports as written is
        // initialised by then.
        #[allow(unsafe_code)]
        unsafe {
            let got = libc::recv(fd, spare.as_mut_ptr().cast(), spare.len(), libc::MSG_DONTWAIT);
            let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
            buf.set_len(buf.len() + got);
            Ok(got)
        }
    }

    /// A second connection object for the same socket, on a descriptor of its own.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub(super) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self::new(TcpStream::from_std(dup(self.fd())?)?))
    }

    /// Sends our end of stream; reading goes on.
    pub fn finish_writing(&self) {
        shutdown_fd(self.fd(), libc::SHUT_WR);
    }

    /// Ends both directions now.
    pub fn abort(&self) {
        shutdown_fd(self.fd(), libc::SHUT_RDWR);
    }

    /// Ends the connection with a reset; see [`super::reset`].
    pub fn reset(&self) {
        reset_fd(self.fd());
    }

    /// Whether a byte has arrived that has not been read. One system call.
    pub fn has_unread(&self) -> bool {
        matches!(peek(self.fd()), Ok(count) if count > 0)
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
        Ok(Watch { stream: TcpStream::from_std(duplicate)?, behind_bytes: false, by_state: false })
    }

    /// Whether the peer has ended or reset the connection, whatever we have ended ourselves. One system call.
    pub fn peer_has_ended(&self) -> bool {
        peer_has_ended(self.fd())
    }
}

/// Watches a connection for its peer's departure while somebody else reads or writes it.
pub struct Watch {
    stream: TcpStream,
    behind_bytes: bool,
    by_state: bool,
}

/// How often the state of a connection with unread bytes is asked for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl Watch {
    /// Returns when something has arrived, the end of the stream included.
    pub(super) async fn arrival(&self) {
        // An error is an arrival, too: whoever looks will see it.
        drop(self.stream.readable(false).await);
    }

    /// The same, noticing also a departure behind bytes that nobody has read.
    pub fn behind_bytes(mut self) -> Self {
        self.behind_bytes = true;
        self
    }

    /// The same for a connection whose reading we have ended ourselves, so that readiness and reads tell nothing.
    pub fn by_state(mut self) -> Self {
        self.by_state = true;
        self
    }

    /// Returns when the peer has closed or reset the connection. Bytes that arrive instead (a pipelined request) end the
    /// watching without an answer: then this never returns.
    pub async fn gone(&self) {
        if self.by_state {
            while !peer_has_ended(self.stream.as_raw_fd()) {
                super::sleep(LOOK_AGAIN).await;
            }
            return;
        }
        loop {
            if self.stream.readable(false).await.is_err() {
                return;
            }
            match peek(self.stream.as_raw_fd()) {
                Ok(0) => return,
                // Readiness tells nothing new while they lie there.
                Ok(_) if self.behind_bytes && has_ended(self.stream.as_raw_fd()) => return,
                Ok(_) if self.behind_bytes => super::sleep(LOOK_AGAIN).await,
                Ok(_) => std::future::pending::<()>().await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

/// A watch over the connection `fd`.
pub(super) fn watch_fd(fd: RawFd) -> io::Result<Watch> {
    Ok(Watch { stream: TcpStream::from_std(dup(fd)?)?, behind_bytes: false, by_state: false })
}

/// See [`Conn::read_early`].
fn read_early(fd: RawFd, reader: &mut impl EarlyReader) -> bool {
    loop {
        match Conn::read_now(fd, reader.buffer()) {
            Ok(count) if count > 0 => {
                if reader.take_in() {
                    return true;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Ok(_) | Err(_) => return true,
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

/// Sends what the socket takes of `data` without waiting; what it does not take is lost.
#[allow(unsafe_code)]
pub(super) fn send_now(fd: RawFd, data: &[u8]) {
    // SAFETY: send reads `data.len()` bytes from `data`, which outlives the call.
    unsafe {
        libc::send(fd, data.as_ptr().cast(), data.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    }
}

/// Whether the peer has sent its end of stream, whatever lies unread in front of it.
#[allow(unsafe_code)]
fn has_ended(fd: RawFd) -> bool {
    let mut state = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: `state` is one valid pollfd on our stack, and the call does not wait.
    let ready = unsafe { libc::poll(&raw mut state, 1, 0) };
    ready != 0
}

/// Whether the connection is established no more: by the peer's end or a reset, not by our having ended its reading
/// (`tcpi_state`, the first byte of TCP_INFO, tcp(7)).
#[allow(unsafe_code)]
fn peer_has_ended(fd: RawFd) -> bool {
    /// `TCP_ESTABLISHED` of the kernel.
    const ESTABLISHED: u8 = 1;
    let (mut state, mut length): (u8, libc::socklen_t) = (0, 1);
    // SAFETY: getsockopt writes at most `length` bytes, one, into `state`; both outlive the call.
    let got =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut state).cast(), &raw mut length) };
    got != 0 || state != ESTABLISHED
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

/// See [`super::reset`].
#[allow(unsafe_code)]
pub(super) fn reset_fd(fd: RawFd) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: both calls read from values on our stack, with their true sizes, and keep no pointer; a sockaddr of zeroes is
    // valid and of the family AF_UNSPEC.
    let dissolved = unsafe {
        // For a kernel that does not dissolve: then the close resets.
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const at_once).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        );
        let nobody: libc::sockaddr = std::mem::zeroed();
        libc::connect(fd, &raw const nobody, size_of::<libc::sockaddr>() as libc::socklen_t)
    };
    if dissolved != 0 {
        shutdown_fd(fd, libc::SHUT_RDWR);
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
