//! TLS on both sides: rustls over a [`Conn`], with owned buffers.
//!
//! An operation that a deadline has ended leaves the session unusable; callers close the connection then, as they do
//! for plain ones.

use std::io::{self, BufRead as _, Write as _};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::{Bytes, BytesMut};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use super::{Conn, Deadline, EarlyReader, On, ReadWhileWriting};

/// Most plaintext that is encrypted before it is written: bounds the session's buffer.
pub(super) const PLAINTEXT_STEP: usize = 64 * 1024;
/// Room for one TLS record and its header.
pub(super) const RECORD_ROOM: usize = 17 * 1024;

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
        let session =
            ClientConnection::new(Arc::clone(&self.config), self.server_name.clone()).map_err(io::Error::other)?;
        let mut tls = TlsConn::over(conn, session.into());
        let deadline = Deadline::new();
        deadline.arm(limit, On::Stop(tls.conn.fd()));
        let shaken = tls.shake_hands().await;
        if deadline.disarm() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        shaken.map(|()| tls)
    }
}

/// Answers TLS sessions under a certificate that may be replaced while connections live.
pub struct TlsAcceptor {
    config: ArcSwap<ServerConfig>,
}

/// What came of waiting for a client's handshake.
pub enum Greeting {
    /// A session.
    Tls(Box<TlsConn>),
    /// The client speaks, but not TLS: its connection, and what it has said so far.
    Other(Conn, BytesMut),
    /// No session: too slow, closed, or nothing in common.
    Failed(io::Error),
}

/// The first byte of a TLS connection: a record that carries a handshake (RFC 8446 section 5.1).
const HANDSHAKE_RECORD: u8 = 22;

impl TlsAcceptor {
    /// An acceptor for new sessions under `config`.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self { config: ArcSwap::new(config) }
    }

    /// Later sessions are under `config`; present ones stay as they are.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        self.config.store(config);
    }

    /// The present certificate's configuration, for sessions that another runtime drives.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }

    /// Shakes hands over `conn` within `limit`.
    pub async fn accept(&self, conn: Conn, limit: Duration) -> Greeting {
        let session = match ServerConnection::new(self.config.load_full()) {
            Ok(session) => session,
            Err(error) => return Greeting::Failed(io::Error::other(error)),
        };
        let mut tls = Box::new(TlsConn::over(conn, session.into()));
        let deadline = Deadline::new();
        deadline.arm(limit, On::Stop(tls.conn.fd()));
        let shaken = match tls.fill().await {
            Ok(()) if tls.incoming.first() != Some(&HANDSHAKE_RECORD) => {
                deadline.disarm();
                return Greeting::Other(tls.conn, tls.incoming);
            }
            Ok(()) => match tls.digest_early() {
                Ok(()) => tls.shake_hands().await,
                Err(error) => {
                    drop(tls.flush().await);
                    Err(error)
                }
            },
            Err(error) => Err(error),
        };
        if deadline.disarm() {
            return Greeting::Failed(io::ErrorKind::TimedOut.into());
        }
        match shaken {
            Ok(()) => Greeting::Tls(tls),
            Err(error) => Greeting::Failed(error),
        }
    }
}

/// What the two directions of a session share.
pub(super) struct Parts<'a> {
    pub(super) session: &'a mut Connection,
    pub(super) conn: &'a mut Conn,
    pub(super) incoming: &'a mut BytesMut,
    pub(super) early: &'a mut BytesMut,
    pub(super) closed: &'a mut bool,
}

/// The reading half of a session whose other half is writing.
struct ReadHalf<'a> {
    session: &'a mut Connection,
    incoming: &'a mut BytesMut,
    early: &'a mut BytesMut,
    closed: &'a mut bool,
}

impl ReadHalf<'_> {
    /// As [`Conn::read_early`], with the plaintext: tickets and the like are taken in and are nothing.
    fn read_early(&mut self, fd: RawFd, reader: &mut impl EarlyReader) -> bool {
        if !self.early.is_empty() {
            reader.buffer().unsplit(std::mem::take(self.early));
            if reader.take_in() {
                return true;
            }
        }
        loop {
            self.incoming.reserve(RECORD_ROOM);
            match Conn::read_now(fd, self.incoming) {
                Ok(count) if count > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return *self.closed,
                Ok(_) | Err(_) => return true,
            }
            let before = reader.buffer().len();
            let digested = digest(self.session, self.incoming, self.closed, reader.buffer());
            if digested.is_err() || (reader.buffer().len() > before && reader.take_in()) {
                return true;
            }
        }
    }
}

/// Gives the session the ciphertext that has been read and moves the plaintext that comes out to `out`. Record by record,
/// because the session takes no more ciphertext while much plaintext waits in it.
pub(super) fn digest(
    session: &mut Connection,
    incoming: &mut BytesMut,
    closed: &mut bool,
    out: &mut BytesMut,
) -> io::Result<()> {
    loop {
        let mut ciphertext: &[u8] = incoming;
        let taken = if ciphertext.is_empty() { 0 } else { session.read_tls(&mut ciphertext)? };
        bytes::Buf::advance(incoming, taken);
        let state = session.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        *closed |= state.peer_has_closed();
        take_plaintext(session, out)?;
        if taken == 0 {
            return Ok(());
        }
    }
}

fn take_plaintext(session: &mut Connection, out: &mut BytesMut) -> io::Result<()> {
    let mut reader = session.reader();
    loop {
        match reader.fill_buf() {
            Ok([]) => return Ok(()),
            Ok(chunk) => {
                let length = chunk.len();
                out.extend_from_slice(chunk);
                reader.consume(length);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// A TLS session over one connection.
pub struct TlsConn {
    session: Connection,
    conn: Conn,
    /// Ciphertext that has been read and not yet been given to the session.
    incoming: BytesMut,
    /// Plaintext that came together with the end of the handshake.
    early: BytesMut,
    /// The peer has said that it sends no more.
    closed: bool,
}

impl TlsConn {
    fn over(conn: Conn, mut session: Connection) -> Self {
        // Beside one step there is room for what the session says of its own accord (a key update): a step taken in part
        // would be an error.
        session.set_buffer_limit(Some(2 * PLAINTEXT_STEP));
        Self { session, conn, incoming: BytesMut::new(), early: BytesMut::new(), closed: false }
    }

    /// Completes the handshake.
    async fn shake_hands(&mut self) -> io::Result<()> {
        while self.session.is_handshaking() {
            if self.session.wants_write() {
                self.flush().await?;
            } else {
                self.advance_handshake().await?;
            }
        }
        self.flush().await
    }

    /// The connection underneath, for deadlines and abort.
    pub fn conn(&self) -> &Conn {
        &self.conn
    }

    /// Reads decrypted bytes and appends them to `buf`. `Ok(0)` is an orderly end of the session.
    pub async fn read(&mut self, mut buf: BytesMut) -> (io::Result<usize>, BytesMut) {
        let before = buf.len();
        buf.unsplit(std::mem::take(&mut self.early));
        loop {
            if let Err(error) = self.digest(&mut buf) {
                return (Err(error), buf);
            }
            if buf.len() > before || self.closed {
                return (Ok(buf.len() - before), buf);
            }
            if let Err(error) = self.fill().await {
                return (Err(error), buf);
            }
        }
    }

    /// Reads as [`TlsConn::read`] does, but gives up without loss when nothing has come within `patience`; see
    /// [`Conn::read_within`].
    pub async fn read_within(
        &mut self,
        mut buf: BytesMut,
        deadline: &Deadline,
        patience: Duration,
    ) -> (io::Result<Option<usize>>, BytesMut) {
        let before = buf.len();
        buf.unsplit(std::mem::take(&mut self.early));
        loop {
            if let Err(error) = self.digest(&mut buf) {
                return (Err(error), buf);
            }
            if buf.len() > before || self.closed {
                return (Ok(Some(buf.len() - before)), buf);
            }
            match self.fill_within(deadline, patience).await {
                Ok(true) => {}
                Ok(false) => return (Ok(None), buf),
                Err(error) => return (Err(error), buf),
            }
        }
    }

    /// Gives back what memory it can while nothing is expected for a while.
    pub fn release(&mut self) {
        if self.incoming.is_empty() {
            self.incoming = BytesMut::new();
        }
        self.conn.release();
    }

    /// Tells the peer that everything has been said (RFC 8446 section 6.1). A peer that has gone will not miss it.
    pub async fn say_farewell(&mut self) {
        self.session.send_close_notify();
        drop(self.flush().await);
    }

    /// Gives the session what has been read and moves the plaintext that comes out to `out`.
    fn digest(&mut self, out: &mut BytesMut) -> io::Result<()> {
        digest(&mut self.session, &mut self.incoming, &mut self.closed, out)
    }

    /// What the two directions of a session share, for [`super::Duplex`].
    pub(super) fn parts(&mut self) -> Parts<'_> {
        let Self { session, conn, incoming, early, closed } = self;
        Parts { session, conn, incoming, early, closed }
    }

    /// As [`Conn::read_early`].
    pub fn read_early(&mut self, reader: &mut impl EarlyReader) -> bool {
        let Self { session, conn, incoming, early, closed } = self;
        let mut half = ReadHalf { session, incoming, early, closed };
        half.read_early(conn.fd(), reader)
    }

    /// As [`Conn::write_some_reading`].
    ///
    /// # Errors
    /// As [`TlsConn::write_all`].
    pub async fn write_some_reading(
        &mut self,
        data: &mut Bytes,
        reading: &mut ReadWhileWriting,
        reader: &mut impl EarlyReader,
    ) -> io::Result<()> {
        let Self { session, conn, incoming, early, closed } = self;
        let fd = conn.fd();
        session.writer().write_all(&data.split_to(data.len().min(PLAINTEXT_STEP)))?;
        while session.wants_write() {
            let mut record = Vec::new();
            session.write_tls(&mut record)?;
            // What is heard may make the session want to write, which the next turn does.
            let mut half = ReadHalf { session, incoming, early, closed };
            reading.during(fd, conn.write_all(record.into()), || half.read_early(fd, reader)).await?;
        }
        Ok(())
    }

    /// One step of the handshake: reads, and says what there is to say.
    async fn advance_handshake(&mut self) -> io::Result<()> {
        self.fill().await?;
        let digested = self.digest_early();
        if digested.is_err() {
            // The alert that tells the peer why is worth a try; the reason that counts is ours.
            drop(self.flush().await);
        }
        digested
    }

    /// Gives the session what has been read and keeps the plaintext that comes out for the first read.
    fn digest_early(&mut self) -> io::Result<()> {
        let mut early = std::mem::take(&mut self.early);
        let digested = self.digest(&mut early);
        self.early = early;
        digested
    }

    /// Encrypts and writes all of `data`.
    ///
    /// # Errors
    /// The session's or the kernel's.
    pub async fn write_all(&mut self, mut data: Bytes) -> io::Result<()> {
        while !data.is_empty() {
            self.write_some(&mut data).await?;
        }
        Ok(())
    }

    /// Encrypts and writes the first step of `data`.
    ///
    /// # Errors
    /// As [`TlsConn::write_all`].
    pub async fn write_some(&mut self, data: &mut Bytes) -> io::Result<()> {
        self.session.writer().write_all(&data.split_to(data.len().min(PLAINTEXT_STEP)))?;
        self.flush().await
    }

    /// Whether a read would bring something, or the session's end, without waiting for the socket.
    pub fn has_unread(&self) -> bool {
        self.closed || !self.early.is_empty()
    }

    /// Whether an idle session is still quiet.
    pub fn is_quiet(&self) -> bool {
        !self.closed && self.early.is_empty() && self.incoming.is_empty() && self.conn.is_quiet()
    }

    /// Reads ciphertext once. An end of the connection without the session's own end is an error. What the session has to say
    /// meanwhile leaves with the next write: nobody guards a write from in here.
    async fn fill(&mut self) -> io::Result<()> {
        let mut buf = std::mem::take(&mut self.incoming);
        buf.reserve(RECORD_ROOM);
        let (result, buf) = self.conn.read(buf).await;
        self.incoming = buf;
        if result? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// As [`TlsConn::fill`]; false when nothing has come within `patience`.
    async fn fill_within(&mut self, deadline: &Deadline, patience: Duration) -> io::Result<bool> {
        let mut buf = std::mem::take(&mut self.incoming);
        buf.reserve(RECORD_ROOM);
        let (result, buf) = self.conn.read_within(buf, deadline, patience).await;
        self.incoming = buf;
        match result? {
            None => Ok(false),
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(_) => Ok(true),
        }
    }

    /// Writes what the session has to say.
    async fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            let mut record = Vec::new();
            self.session.write_tls(&mut record)?;
            self.conn.write_all(record.into()).await?;
        }
        Ok(())
    }
}
