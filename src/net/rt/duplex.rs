//! Both directions of a connection at once, as a tunnel needs them.
//!
//! Reading and writing go over a descriptor each, so neither waits for the other; a TLS session is shared by both and
//! borrowed only between waits. Invariant: ciphertext is written by the writing half alone, in the session's order.

use std::cell::RefCell;
use std::io::{self, Write as _};
use std::os::fd::RawFd;

use bytes::{Bytes, BytesMut};
use rustls::Connection;

use super::Conn;
use super::tls::{self, PLAINTEXT_STEP, RECORD_ROOM, TlsConn};

/// A connection about to be used in both directions.
pub struct Duplex<'a> {
    conn: &'a mut Conn,
    tls: Option<Session<'a>>,
}

/// A TLS session and what has arrived for it.
struct Session<'a> {
    session: RefCell<&'a mut Connection>,
    incoming: &'a mut BytesMut,
    early: &'a mut BytesMut,
    closed: &'a mut bool,
}

/// The direction towards us.
pub struct ReadHalf<'s, 'a> {
    conn: &'s mut Conn,
    tls: Option<Incoming<'s, 'a>>,
}

struct Incoming<'s, 'a> {
    session: &'s RefCell<&'a mut Connection>,
    incoming: &'s mut BytesMut,
    early: &'s mut BytesMut,
    closed: &'s mut bool,
}

/// The direction towards the peer.
pub struct WriteHalf<'s, 'a> {
    conn: Conn,
    tls: Option<&'s RefCell<&'a mut Connection>>,
}

impl<'a> Duplex<'a> {
    /// Over plain TCP.
    pub fn plain(conn: &'a mut Conn) -> Self {
        Self { conn, tls: None }
    }

    /// Over TLS.
    pub fn tls(tls: &'a mut TlsConn) -> Self {
        let tls::Parts { session, conn, incoming, early, closed } = tls.parts();
        Self { conn, tls: Some(Session { session: RefCell::new(session), incoming, early, closed }) }
    }

    /// The two directions.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn split(&mut self) -> io::Result<(ReadHalf<'_, 'a>, WriteHalf<'_, 'a>)> {
        let out = self.conn.duplicate()?;
        let Some(Session { session, incoming, early, closed }) = &mut self.tls else {
            return Ok((ReadHalf { conn: self.conn, tls: None }, WriteHalf { conn: out, tls: None }));
        };
        let session = &*session;
        let tls = Some(Incoming { session, incoming, early, closed });
        Ok((ReadHalf { conn: self.conn, tls }, WriteHalf { conn: out, tls: Some(session) }))
    }
}

impl ReadHalf<'_, '_> {
    /// See [`Conn::read`] and [`TlsConn::read`].
    pub async fn read(&mut self, mut buf: BytesMut) -> (io::Result<usize>, BytesMut) {
        let Some(tls) = &mut self.tls else { return self.conn.read(buf).await };
        let before = buf.len();
        buf.unsplit(std::mem::take(tls.early));
        loop {
            let digested = tls::digest(&mut tls.session.borrow_mut(), tls.incoming, tls.closed, &mut buf);
            if let Err(error) = digested {
                return (Err(error), buf);
            }
            if buf.len() > before || *tls.closed {
                return (Ok(buf.len() - before), buf);
            }
            let mut ciphertext = std::mem::take(tls.incoming);
            ciphertext.reserve(RECORD_ROOM);
            let (got, ciphertext) = self.conn.read(ciphertext).await;
            *tls.incoming = ciphertext;
            match got {
                Ok(0) => return (Err(io::ErrorKind::UnexpectedEof.into()), buf),
                Ok(_) => {}
                Err(error) => return (Err(error), buf),
            }
        }
    }
}

impl WriteHalf<'_, '_> {
    /// The descriptor, for a deadline.
    pub fn fd(&self) -> RawFd {
        self.conn.fd()
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// The session's or the kernel's.
    pub async fn write_all(&mut self, data: Bytes) -> io::Result<()> {
        let Some(session) = self.tls else { return self.conn.write_all(data).await };
        for step in data.chunks(PLAINTEXT_STEP) {
            session.borrow_mut().writer().write_all(step)?;
            self.flush(session).await?;
        }
        Ok(())
    }

    /// Says that nothing more comes from us.
    pub async fn finish(&mut self) {
        if let Some(session) = self.tls {
            session.borrow_mut().send_close_notify();
            // A peer that has gone will not miss it.
            drop(self.flush(session).await);
        }
        self.conn.finish_writing();
    }

    async fn flush(&mut self, session: &RefCell<&mut Connection>) -> io::Result<()> {
        loop {
            let mut record = Vec::new();
            {
                let mut session = session.borrow_mut();
                if !session.wants_write() {
                    return Ok(());
                }
                session.write_tls(&mut record)?;
            }
            self.conn.write_all(record.into()).await?;
        }
    }
}
