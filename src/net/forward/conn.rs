//! A connection to the provider, plain or TLS: whoever sends and reads does not know which. Knows nothing of what is sent.

use std::io;

use bytes::{Bytes, BytesMut};

use crate::rt::{Conn, Duplex, EarlyReader, ReadWhileWriting, TlsConn};

/// A connection to the provider, plain or TLS.
pub enum UpstreamConn {
    /// TCP.
    Plain(Conn),
    /// TLS over TCP.
    Tls(Box<TlsConn>),
}

impl UpstreamConn {
    /// See [`Conn::read`].
    pub async fn read(&mut self, buf: BytesMut) -> (io::Result<usize>, BytesMut) {
        match self {
            Self::Plain(conn) => conn.read(buf).await,
            Self::Tls(conn) => conn.read(buf).await,
        }
    }

    /// Writes once, what the connection takes of `data`.
    ///
    /// # Errors
    /// See [`Conn::write_all`].
    pub async fn write_some(&mut self, data: &mut Bytes) -> io::Result<()> {
        match self {
            Self::Plain(conn) => conn.write_some(data).await,
            Self::Tls(conn) => conn.write_some(data).await,
        }
    }

    /// As [`UpstreamConn::write_some`], but what comes meanwhile goes to `reader`, which may end it with an error.
    ///
    /// # Errors
    /// See [`Conn::write_all`].
    pub async fn write_some_reading(
        &mut self,
        data: &mut Bytes,
        reading: &mut ReadWhileWriting,
        reader: &mut impl EarlyReader,
    ) -> io::Result<()> {
        match self {
            Self::Plain(conn) => conn.write_some_reading(data, reading, reader).await,
            Self::Tls(conn) => conn.write_some_reading(data, reading, reader).await,
        }
    }

    /// Both directions at once.
    pub fn duplex(&mut self) -> Duplex<'_> {
        match self {
            Self::Plain(conn) => Duplex::plain(conn),
            Self::Tls(conn) => Duplex::tls(conn),
        }
    }

    /// The TCP connection underneath.
    pub fn tcp(&self) -> &Conn {
        match self {
            Self::Plain(conn) => conn,
            Self::Tls(conn) => conn.conn(),
        }
    }

    /// Takes in what has arrived while a request is being sent, without waiting. True when that ends the sending.
    pub fn read_early(&mut self, reader: &mut impl EarlyReader) -> bool {
        match self {
            Self::Plain(conn) => conn.read_early(reader),
            Self::Tls(conn) => conn.read_early(reader),
        }
    }

    /// Whether nothing has arrived on a connection that owes nothing: no byte, no end. One system call.
    pub(super) fn is_quiet(&self) -> bool {
        match self {
            Self::Plain(conn) => conn.is_quiet(),
            Self::Tls(conn) => conn.is_quiet(),
        }
    }
}
