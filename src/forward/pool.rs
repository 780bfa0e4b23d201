//! A core's connections to the provider: last in, first out, bounded, never reused once a byte has arrived unasked.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_channel::oneshot;

use super::Peer;
use crate::rt::{self, Conn, TlsConn};

/// Idle connections are given up before providers close them (commonly after 15 s).
const IDLE_MS_MAX: u64 = 8_000;
/// A read buffer up to this size stays with an idle connection.
const BUF_BYTES_KEPT: usize = 16 * 1024;

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

    /// Writes all of `data`.
    ///
    /// # Errors
    /// See [`Conn::write_all`].
    pub async fn write_all(&mut self, data: Bytes) -> io::Result<()> {
        match self {
            Self::Plain(conn) => conn.write_all(data).await,
            Self::Tls(conn) => conn.write_all(data).await,
        }
    }

    /// The TCP connection underneath.
    pub fn tcp(&self) -> &Conn {
        match self {
            Self::Plain(conn) => conn,
            Self::Tls(conn) => conn.conn(),
        }
    }

    /// Whether an answer has begun to arrive while a request is being sent. TLS keeps that to itself: what arrives there
    /// may be a session ticket.
    pub fn has_spoken(&self) -> bool {
        match self {
            Self::Plain(conn) => !conn.is_quiet(),
            Self::Tls(_) => false,
        }
    }

    /// Whether nothing has arrived on a connection that owes nothing: no byte, no end. One system call.
    fn is_quiet(&self) -> bool {
        match self {
            Self::Plain(conn) => conn.is_quiet(),
            Self::Tls(conn) => conn.is_quiet(),
        }
    }
}

struct Idle {
    conn: UpstreamConn,
    /// Its empty read buffer, kept so that the next answer needs no new one.
    buf: BytesMut,
    since_ms: u64,
}

/// The connections of one core to one peer.
pub struct Pool {
    peer: Arc<Peer>,
    connect_limit: Duration,
    idle: RefCell<Vec<Idle>>,
    /// Connections that exist: leased and idle.
    open: Cell<u32>,
    quota: u32,
    waiters: RefCell<VecDeque<oneshot::Sender<()>>>,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum AcquireError {
    /// All connections stayed busy until the time ran out.
    Exhausted,
    /// Nothing was sent: every address refused, timed out or failed its TLS handshake.
    Connect(String),
}

impl Pool {
    /// A pool of at most `quota` connections.
    pub fn new(peer: Arc<Peer>, quota: u32, connect_limit: Duration) -> Rc<Self> {
        Rc::new(Self {
            peer,
            connect_limit,
            idle: RefCell::new(Vec::new()),
            open: Cell::new(0),
            quota: quota.max(1),
            waiters: RefCell::new(VecDeque::new()),
        })
    }

    /// Connections that exist right now, and how many of them are idle.
    pub fn gauge(&self) -> (u32, u32) {
        let idle = u32::try_from(self.idle.borrow().len()).unwrap_or(u32::MAX);
        (self.open.get(), idle)
    }

    /// The kept connection that was used last, if it is still good.
    pub fn at_hand(self: &Rc<Self>) -> Option<Lease> {
        self.take_idle().map(|idle| self.lease(idle))
    }

    /// A new connection; when all places are taken, waits at most `wait` for one, or for a connection that is given back.
    ///
    /// # Errors
    /// [`AcquireError`]; in both cases no byte of the request has been sent.
    pub async fn acquire(self: &Rc<Self>, wait: Duration) -> Result<Lease, AcquireError> {
        let give_up_ms = rt::now_ms().saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let mut first = true;
        while self.open.get() >= self.quota {
            let (wake, woken) = oneshot::channel();
            // Who was woken and came too late goes back to the front.
            if std::mem::take(&mut first) {
                self.waiters.borrow_mut().push_back(wake);
            } else {
                self.waiters.borrow_mut().push_front(wake);
            }
            let left = Duration::from_millis(give_up_ms.saturating_sub(rt::now_ms()));
            rt::within(left, woken).await.and_then(Result::ok).ok_or(AcquireError::Exhausted)?;
            if let Some(lease) = self.at_hand() {
                return Ok(lease);
            }
        }
        self.open.set(self.open.get() + 1);
        // From here on the place is taken; the lease gives it back, also when connecting fails or is dropped.
        let mut lease =
            Lease { pool: Rc::clone(self), conn: None, buf: BytesMut::new(), reused: false, owns_place: true };
        lease.conn = Some(self.dial().await.map_err(AcquireError::Connect)?);
        Ok(lease)
    }

    /// Closes idle connections that are too old. Called by the core now and then.
    pub fn close_stale(&self) {
        let now = rt::now_ms();
        let stale: Vec<Idle> = {
            let mut idle = self.idle.borrow_mut();
            let keep_from = idle.iter().position(|entry| now.saturating_sub(entry.since_ms) < IDLE_MS_MAX);
            let count = keep_from.unwrap_or(idle.len());
            idle.drain(..count).collect()
        };
        for _ in stale {
            self.gave_up_one();
        }
    }

    fn lease(self: &Rc<Self>, idle: Idle) -> Lease {
        Lease { pool: Rc::clone(self), conn: Some(idle.conn), buf: idle.buf, reused: true, owns_place: true }
    }

    fn take_idle(&self) -> Option<Idle> {
        let now = rt::now_ms();
        loop {
            let entry = self.idle.borrow_mut().pop()?;
            let age = now.saturating_sub(entry.since_ms);
            if age < IDLE_MS_MAX && entry.conn.is_quiet() {
                return Some(entry);
            }
            drop(entry);
            self.gave_up_one();
        }
    }

    fn gave_up_one(&self) {
        self.open.set(self.open.get().saturating_sub(1));
        self.wake_one();
    }

    fn wake_one(&self) {
        while let Some(waiter) = self.waiters.borrow_mut().pop_front() {
            if waiter.send(()).is_ok() {
                return;
            }
        }
    }

    async fn dial(&self) -> Result<UpstreamConn, String> {
        let peer = self.peer.describe();
        let addresses = self.resolved().await;
        if addresses.is_empty() {
            return Err(format!("could not resolve the provider's host ({peer}); check `upstream_url` and DNS"));
        }
        let mut reasons = Vec::new();
        for addr in addresses.iter() {
            match self.dial_one(*addr).await {
                Ok(conn) => return Ok(conn),
                Err(error) => reasons.push(format!("{addr}: {error}")),
            }
        }
        Err(format!("could not connect to the provider ({peer}; {}); check `upstream_url`", reasons.join("; ")))
    }

    /// The addresses, waiting for the first lookup of a fresh process.
    async fn resolved(&self) -> Arc<Vec<std::net::SocketAddr>> {
        let give_up_ms = rt::now_ms().saturating_add(u64::try_from(self.connect_limit.as_millis()).unwrap_or(u64::MAX));
        loop {
            let addresses = self.peer.addresses();
            if !addresses.is_empty() || rt::now_ms() >= give_up_ms {
                return addresses;
            }
            rt::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn dial_one(&self, addr: std::net::SocketAddr) -> io::Result<UpstreamConn> {
        let began_ms = rt::now_ms();
        let conn = rt::connect(addr, self.connect_limit).await.map_err(|error| {
            if error.kind() == io::ErrorKind::TimedOut {
                let limit = self.connect_limit.as_millis();
                io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no connection within {limit} ms (`connection_timeout_ms`)"),
                )
            } else {
                error
            }
        })?;
        match self.peer.tls() {
            None => Ok(UpstreamConn::Plain(conn)),
            Some(tls) => {
                let spent = Duration::from_millis(rt::now_ms().saturating_sub(began_ms));
                let left = self.connect_limit.saturating_sub(spent);
                Ok(UpstreamConn::Tls(Box::new(tls.connect(conn, left).await?)))
            }
        }
    }
}

/// A connection on loan. Dropping it closes the connection; [`Lease::give_back`] keeps it.
pub struct Lease {
    pool: Rc<Pool>,
    conn: Option<UpstreamConn>,
    buf: BytesMut,
    reused: bool,
    /// Whether dropping this frees a place: an idle connection keeps its own.
    owns_place: bool,
}

impl Lease {
    /// Whether the connection has carried a request before.
    pub fn reused(&self) -> bool {
        self.reused
    }

    /// The connection and its read buffer; `None` only while connecting.
    pub fn parts(&mut self) -> Option<(&mut UpstreamConn, &mut BytesMut)> {
        self.conn.as_mut().map(|conn| (conn, &mut self.buf))
    }

    /// The connection; `None` only while connecting.
    pub fn conn(&mut self) -> Option<&mut UpstreamConn> {
        self.conn.as_mut()
    }

    /// Returns the connection for the next request, with its now empty read buffer. Only after a complete exchange with nothing left over.
    pub fn give_back(mut self, mut buf: BytesMut) {
        if let Some(conn) = self.conn.take() {
            self.owns_place = false;
            if buf.capacity() > BUF_BYTES_KEPT {
                buf = BytesMut::new();
            }
            self.pool.idle.borrow_mut().push(Idle { conn, buf, since_ms: rt::now_ms() });
            self.pool.wake_one();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.owns_place {
            self.conn = None;
            self.pool.gave_up_one();
        }
    }
}
