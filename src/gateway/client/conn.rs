//! The client's side of a connection: plain, or TLS. Everything above reads and writes without knowing which.
//!
//! Invariant: an operation that a deadline ended leaves the connection good for closing only, on both kinds.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::rt::{Conn, Deadline, Duplex, TlsConn, Watch};

/// A client's connection.
pub enum ClientConn {
    /// TCP.
    Plain(Conn),
    /// TLS over TCP. Boxed: a session is a thousand bytes and more.
    Tls(Box<TlsConn>),
}

impl ClientConn {
    fn tcp(&self) -> &Conn {
        match self {
            Self::Plain(conn) => conn,
            Self::Tls(tls) => tls.conn(),
        }
    }

    /// The descriptor, for a [`Deadline`].
    pub(crate) fn fd(&self) -> RawFd {
        self.tcp().fd()
    }

    /// See [`Conn::read`].
    pub(crate) async fn read(&mut self, buf: BytesMut) -> (io::Result<usize>, BytesMut) {
        match self {
            Self::Plain(conn) => conn.read(buf).await,
            Self::Tls(tls) => tls.read(buf).await,
        }
    }

    /// See [`Conn::read_within`].
    pub(crate) async fn read_within(
        &mut self,
        buf: BytesMut,
        deadline: &Deadline,
        patience: Duration,
    ) -> (io::Result<Option<usize>>, BytesMut) {
        match self {
            Self::Plain(conn) => conn.read_within(buf, deadline, patience).await,
            Self::Tls(tls) => tls.read_within(buf, deadline, patience).await,
        }
    }

    /// Waits until something has arrived, holding no buffer; may be dropped at any time. What came together with the end of
    /// a TLS handshake has arrived: the socket would not say so again.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tls(tls) if tls.has_unread() => Ok(()),
            _ => self.tcp().readable().await,
        }
    }

    /// Whether nothing has arrived that has not been read, not even the end. One system call.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Self::Plain(conn) => conn.is_quiet(),
            Self::Tls(tls) => tls.is_quiet(),
        }
    }

    /// Whether the client has ended or reset the connection, whatever we have ended ourselves. One system call.
    pub(crate) fn has_ended(&self) -> bool {
        self.tcp().peer_has_ended()
    }

    /// Both directions at once.
    pub(crate) fn duplex(&mut self) -> Duplex<'_> {
        match self {
            Self::Plain(conn) => Duplex::plain(conn),
            Self::Tls(tls) => Duplex::tls(tls),
        }
    }

    /// Gives back what memory it can while nothing is expected for a while.
    pub(crate) fn release(&mut self) {
        match self {
            Self::Plain(conn) => conn.release(),
            Self::Tls(tls) => tls.release(),
        }
    }

    /// Writes once, what the connection takes of `data`.
    ///
    /// # Errors
    /// The session's or the kernel's.
    pub(crate) async fn write_some(&mut self, data: &mut Bytes) -> io::Result<()> {
        match self {
            Self::Plain(conn) => conn.write_some(data).await,
            Self::Tls(tls) => tls.write_some(data).await,
        }
    }

    /// Says that nothing more comes from us; on TLS in its own words first, so that what was said is known to be whole.
    pub(crate) async fn finish_writing(&mut self) {
        if let Self::Tls(tls) = self {
            tls.say_farewell().await;
        }
        self.tcp().finish_writing();
    }

    /// Ends the connection so that nobody can take what was sent for whole.
    pub(crate) fn reset(&self) {
        self.tcp().reset();
    }

    /// Whether something has arrived that has not been read. One system call.
    pub(crate) fn has_unread(&self) -> bool {
        match self {
            Self::Plain(conn) => conn.has_unread(),
            Self::Tls(tls) => tls.has_unread() || tls.conn().has_unread(),
        }
    }

    /// Whether an orderly end has to be said in bytes.
    pub(crate) fn has_farewell(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// See [`Conn::watch`]. On TLS what arrives may be no more than a farewell, so there the end of the stream behind unread
    /// bytes counts, too.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub(crate) fn watch(&self) -> io::Result<Watch> {
        match self {
            Self::Plain(conn) => conn.watch(),
            Self::Tls(tls) => tls.conn().watch().map(Watch::behind_bytes),
        }
    }
}
