//! TLS towards the upstream: rustls over a [`Conn`], with owned buffers.
//!
//! An operation that a deadline has ended leaves the session unusable; callers close the connection then, as they do
//! for plain ones.

use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::{Conn, Deadline, On};

/// Most plaintext that is encrypted before it is written: bounds the session's buffer.
const PLAINTEXT_STEP: usize = 64 * 1024;
/// Room for one TLS record and its header.
const RECORD_ROOM: usize = 17 * 1024;

/// Opens TLS sessions for one server name.
#[derive(Clone)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

impl TlsConnector {
    /// A connector for `host` (a DNS name or an address literal).
    ///
    /// # Errors
    /// When `host` is neither.
    pub fn new(config: Arc<ClientConfig>, host: &str) -> io::Result<Self> {
        let server_name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Self { config, server_name })
    }

    /// Shakes hands over `conn` within `limit`.
    ///
    /// # Errors
    /// `TimedOut`, a certificate that does not verify (with rustls' reason), or the kernel's.
    pub async fn connect(&self, conn: Conn, limit: Duration) -> io::Result<TlsConn> {
        let deadline = Deadline::new();
        deadline.arm(limit, On::Stop(conn.fd()));
        let session =
            ClientConnection::new(Arc::clone(&self.config), self.server_name.clone()).map_err(io::Error::other)?;
        let mut tls = TlsConn { session, conn, incoming: BytesMut::with_capacity(RECORD_ROOM) };
        while tls.session.is_handshaking() {
            let step = if tls.session.wants_write() { tls.flush().await } else { tls.fill().await };
            if deadline.fired() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            step?;
        }
        tls.flush().await?;
        deadline.disarm();
        Ok(tls)
    }
}

/// A TLS session over one connection.
pub struct TlsConn {
    session: ClientConnection,
    conn: Conn,
    incoming: BytesMut,
}

impl TlsConn {
    /// The connection underneath, for deadlines and abort.
    pub fn conn(&self) -> &Conn {
        &self.conn
    }

    /// Reads decrypted bytes and appends them to `buf`. `Ok(0)` is an orderly end of the session.
    pub async fn read(&mut self, mut buf: BytesMut) -> (io::Result<usize>, BytesMut) {
        loop {
            match self.take_plaintext(&mut buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return (done, buf),
            }
            if let Err(error) = self.fill().await {
                return (Err(error), buf);
            }
        }
    }

    fn take_plaintext(&mut self, buf: &mut BytesMut) -> io::Result<usize> {
        let mut reader = self.session.reader();
        let mut taken = 0;
        loop {
            match reader.fill_buf() {
                Ok([]) => return Ok(taken),
                Ok(chunk) => {
                    let length = chunk.len();
                    buf.extend_from_slice(chunk);
                    reader.consume(length);
                    taken += length;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => return Ok(taken),
                Err(error) => return Err(error),
            }
        }
    }

    /// Encrypts and writes all of `data`.
    ///
    /// # Errors
    /// The session's or the kernel's.
    pub async fn write_all(&mut self, data: Bytes) -> io::Result<()> {
        for step in data.chunks(PLAINTEXT_STEP) {
            self.session.writer().write_all(step)?;
            self.flush().await?;
        }
        Ok(())
    }

    /// Whether an idle session is still quiet underneath.
    pub fn is_quiet(&self) -> bool {
        self.incoming.is_empty() && self.conn.is_quiet()
    }

    /// Reads ciphertext once and feeds it to the session.
    async fn fill(&mut self) -> io::Result<()> {
        let mut buf = std::mem::take(&mut self.incoming);
        buf.reserve(RECORD_ROOM);
        let (result, buf) = self.conn.read(buf).await;
        self.incoming = buf;
        let got = result?;
        let mut ciphertext: &[u8] = &self.incoming;
        if got == 0 {
            // Tells the session about the end, so that a cut without close_notify becomes an error.
            self.session.read_tls(&mut io::empty())?;
        }
        while !ciphertext.is_empty() {
            if self.session.read_tls(&mut ciphertext)? == 0 {
                break;
            }
            self.session.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        let unread = ciphertext.len();
        let used = self.incoming.len() - unread;
        bytes::Buf::advance(&mut self.incoming, used);
        if self.session.is_handshaking() && got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.session.wants_write() {
            self.flush().await?;
        }
        Ok(())
    }

    /// Writes what the session has to say.
    async fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            let mut record = Vec::with_capacity(RECORD_ROOM);
            self.session.write_tls(&mut record)?;
            self.conn.write_all(record.into()).await?;
        }
        Ok(())
    }
}
