//! One client connection: request after request until somebody closes.

use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use weir_config::vocab::TenantId;

use super::watch::ClientWatch;
use super::{Admission, ClientConn};
use crate::admit::connection_caller::ConnectionCaller;
use crate::admit::connections::ClientKey;
use crate::limits::{
    BODY_BYTES_PER_S_MIN, BODY_GRACE, BODY_PAUSE_LIMIT, BUFFER_PATIENCE, DRAIN_LIMIT, HEAD_LIMIT, IDLE_LIMIT,
    READ_BYTES_START, WRITE_SLICE_BYTES, WRITE_STALL_LIMIT,
};
use crate::process::Core;
use crate::rt::{self, Deadline, On};
use crate::wire::{Fault, HeadScanner, RequestBody, RequestHead};

/// A write buffer up to this size stays with the connection.
const OUT_BYTES_KEPT: usize = 16 * 1024;
/// The read buffer of a body up to this size stays with the connection from request to request.
const READ_BYTES_KEPT: usize = 16 * 1024;
/// How often a connection whose reading we have ended is looked at for the rest of a request.
const LOOK_AGAIN: Duration = Duration::from_millis(3);
/// Unread input that is taken in while the connection ends: a client that goes on sending after that gets a reset.
const LINGER_BYTES_MAX: usize = 64 * 1024;
/// How long an orderly end may take.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// One client connection and what belongs to it.
pub(crate) struct Session {
    pub(crate) core: Rc<Core>,
    /// Before the connection, so that it goes first: a deadline must not outlive the descriptor it would shut down.
    pub(crate) deadline: Deadline,
    /// Before the connection, too: nothing may end the reading of a descriptor that belongs to another connection by then.
    admission: Admission,
    pub(crate) conn: ClientConn,
    /// Bytes read and not yet used.
    pub(crate) buf: BytesMut,
    /// Part of the present request's body has not been read: nothing behind it may be taken for a request. True from the
    /// head on, and false only once the body's end has been seen.
    pub(crate) body_unread: bool,
    /// When the present body began, in milliseconds, and how much of it has been read from the socket since.
    body_pace: (u64, u64),
    /// Our own drain, an eviction or a deadline may have ended the reading side of the connection. What the client sends is
    /// still delivered then, but a read that finds nothing ends at once.
    input_ended_by_us: bool,
    /// The end has been said, and waited for.
    lingered: bool,
    /// The listed origin whose page sent the present request, which may read the answer.
    pub(crate) page: Option<Bytes>,
    /// Whom the connection is let in as.
    pub(crate) connection_caller: Rc<ConnectionCaller>,
    scanner: HeadScanner,
    /// What the log is told of an answer of our own.
    pub(crate) said: Said,
    /// What is being written; its memory is used again once the kernel has taken it.
    pub(crate) out: BytesMut,
}

/// What was last said on an own path.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    /// Why not what was asked for.
    pub(crate) reason: Option<&'static str>,
    pub(crate) tenant_id: Option<TenantId>,
}

/// What happens to the connection after an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for another request.
    Keep,
    /// Close.
    Close,
    /// Close without a word that could make what was sent look whole.
    Cut,
}

/// Why there is no (further) request.
pub(crate) enum NoRequest {
    /// The client closed, idled too long, had to make room, or Weir is draining.
    Closed,
    /// Nothing has come for [`BUFFER_PATIENCE`].
    Quiet,
    /// It sent part of a head and then nothing.
    SlowHead,
    /// It sent something that is not HTTP/1.1 as Weir accepts it.
    Fault(Fault),
}

impl Session {
    /// A connection that has just been let in; `input_ended` when we may have ended its reading already.
    pub(crate) fn new(core: Rc<Core>, conn: ClientConn, admission: Admission, input_ended: bool) -> Self {
        let connection_caller = Rc::clone(&admission.connection_caller);
        Self {
            core,
            deadline: Deadline::new(),
            conn,
            admission,
            buf: BytesMut::new(),
            body_unread: false,
            body_pace: (0, 0),
            input_ended_by_us: input_ended,
            lingered: false,
            page: None,
            connection_caller,
            said: Said::default(),
            out: BytesMut::new(),
            scanner: HeadScanner::default(),
        }
    }

    /// Waits for the next request head.
    pub(crate) async fn next_head(&mut self) -> Result<RequestHead, NoRequest> {
        let mut begun = false;
        loop {
            if !self.buf.is_empty() {
                match self.scanner.request(&mut self.buf) {
                    Ok(Some(head)) => {
                        self.input_ended_by_us |= self.deadline.disarm();
                        return Ok(head);
                    }
                    Ok(None) if !begun => {
                        begun = true;
                        self.deadline.arm(HEAD_LIMIT, On::StopReading(self.conn.fd()));
                    }
                    Ok(None) => {}
                    Err(fault) => {
                        self.deadline.disarm();
                        return Err(NoRequest::Fault(fault));
                    }
                }
            }
            let got = if self.buf.is_empty() && !begun {
                match self.wait_for_request().await {
                    Ok(Some(got)) => Ok(got),
                    Ok(None) => return Err(NoRequest::Quiet),
                    Err(error) => Err(error),
                }
            } else {
                self.fill_what_comes(READ_BYTES_START).await
            };
            match got {
                Ok(0) | Err(_) => {
                    let late = self.deadline.disarm();
                    return Err(if late && begun { NoRequest::SlowHead } else { NoRequest::Closed });
                }
                Ok(_) => {}
            }
        }
    }

    /// Waits for the first bytes of a request. `None` when none have come for [`BUFFER_PATIENCE`]: then the connection goes on
    /// waiting without a buffer, in [`Session::rest`].
    async fn wait_for_request(&mut self) -> std::io::Result<Option<usize>> {
        if self.core.process.is_draining() {
            // A request may have been sent before the client could know of the stop: it is still read and served.
            self.deadline.arm(DRAIN_LIMIT, On::StopReading(self.conn.fd()));
            let got = self.fill(READ_BYTES_START).await;
            self.input_ended_by_us |= self.deadline.disarm();
            return got.map(Some);
        }
        self.admission.wait();
        self.make_room(READ_BYTES_START);
        let buf = std::mem::take(&mut self.buf);
        let (got, buf) = self.conn.read_within(buf, &self.deadline, BUFFER_PATIENCE).await;
        self.buf = buf;
        if !matches!(got, Ok(None)) {
            self.awake();
        }
        got
    }

    /// Waits for the next request without holding memory for it. Returns when something has arrived, or nothing ever will.
    pub(crate) async fn rest(&mut self) {
        (self.buf, self.out) = (BytesMut::new(), BytesMut::new());
        self.conn.release();
        if !self.core.process.is_draining() {
            self.admission.wait();
            self.deadline.arm(IDLE_LIMIT, On::StopReading(self.conn.fd()));
            // Whatever ended the waiting, the read that follows will say.
            let _cause_unknown = self.conn.readable().await.is_err();
            self.input_ended_by_us |= self.deadline.disarm();
        }
        self.awake();
    }

    /// Something has arrived.
    fn awake(&mut self) {
        // A drain or an eviction may have ended the reading side just as bytes came; that is not the client leaving.
        self.input_ended_by_us |= self.admission.work();
    }

    /// Makes room in the buffer for at least a quarter of `room` bytes, and one.
    fn make_room(&mut self, room: usize) {
        if self.buf.capacity() - self.buf.len() < (room / 4).max(1) {
            self.buf.reserve(room);
        }
    }

    /// Reads once from the client into the buffer, making room for at least `room` bytes.
    pub(crate) async fn fill(&mut self, room: usize) -> std::io::Result<usize> {
        self.make_room(room);
        let buf = std::mem::take(&mut self.buf);
        let (result, buf) = self.conn.read(buf).await;
        self.buf = buf;
        result
    }

    /// Gives a large read buffer back; what stands in it moves to one of its own size.
    pub(crate) fn shrink(&mut self) {
        let large = std::mem::take(&mut self.buf);
        self.buf = BytesMut::from(&large[..]);
    }

    /// The present body has been read to its end. What was read behind it, a pipelined request, moves out of a large buffer, which
    /// would else stay for as long as that is there.
    pub(crate) fn end_body(&mut self) {
        self.body_unread = false;
        if self.body_pace.1 > READ_BYTES_KEPT as u64 {
            self.shrink();
        }
    }

    /// Reads once in the middle of a request, until the armed deadline. Where we have ended the reading ourselves, at an instant
    /// when the request was on its way, what the client sends still arrives, and only a read of nothing ends at once.
    async fn fill_what_comes(&mut self, room: usize) -> std::io::Result<usize> {
        loop {
            // Before the read: what came in front of the client's end must have been seen.
            let over = !self.input_ended_by_us || self.conn.has_ended();
            let got = self.fill(room).await;
            let nothing = match &got {
                Ok(count) => *count == 0,
                Err(error) => error.kind() == std::io::ErrorKind::UnexpectedEof,
            };
            if !nothing || over || self.deadline.fired() {
                return got;
            }
            rt::sleep(LOOK_AGAIN).await;
        }
    }

    /// A request's head has been read; its body follows.
    pub(crate) fn begin_body(&mut self, body: RequestBody) {
        self.body_unread = body != RequestBody::Empty;
        self.body_pace = (rt::now_ms(), 0);
    }

    /// Drops the body of a refused request if all of it has arrived already, so that the connection can go on.
    pub(crate) fn skip_body(&mut self, body: RequestBody) {
        let has_begun = self.body_pace.1 > 0;
        if let RequestBody::Length(length) = body
            && self.body_unread
            && !has_begun
            && let Ok(length) = usize::try_from(length)
            && self.buf.len() >= length
        {
            bytes::Buf::advance(&mut self.buf, length);
            self.body_unread = false;
        }
    }

    /// Reads once. `Ok(0)` when the client has closed, `TimedOut` when it pauses for longer than [`BODY_PAUSE_LIMIT`] or
    /// has fallen below [`BODY_BYTES_PER_S_MIN`] after [`BODY_GRACE`]: a dribbled body must not hold its place for ever.
    pub(crate) async fn fill_body(&mut self, room: usize) -> std::io::Result<usize> {
        self.arm_body();
        let got = self.fill_what_comes(room).await;
        if self.deadline.disarm() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        self.body_pace.1 += *got.as_ref().unwrap_or(&0) as u64;
        got
    }

    /// Reads once for the end of the present body, at the latest until `until`.
    pub(crate) async fn fill_until(&mut self, until: Instant) -> std::io::Result<usize> {
        let left = until.saturating_duration_since(Instant::now());
        self.deadline.arm(left.max(Duration::from_millis(1)), On::StopReading(self.conn.fd()));
        let got = self.fill_what_comes(READ_BYTES_START).await;
        if self.deadline.disarm() { Err(std::io::ErrorKind::TimedOut.into()) } else { got }
    }

    /// Arms the deadline of a read of the present body; see [`Self::fill_body`].
    pub(crate) fn arm_body(&self) {
        let (began_ms, bytes) = self.body_pace;
        let allowed = BODY_GRACE + Duration::from_secs(bytes / BODY_BYTES_PER_S_MIN);
        let left = allowed.saturating_sub(Duration::from_millis(rt::now_ms().saturating_sub(began_ms)));
        self.deadline.arm(left.min(BODY_PAUSE_LIMIT), On::StopReading(self.conn.fd()));
    }

    /// Room for `bytes` in `out`, which is empty. What was handed out before has been sent by now, so this usually takes
    /// the same memory again.
    pub(crate) fn room(&mut self, bytes: usize) -> &mut BytesMut {
        if self.out.capacity() > OUT_BYTES_KEPT {
            self.out = BytesMut::new();
        }
        self.out.clear();
        self.out.reserve(bytes.max(READ_BYTES_START));
        &mut self.out
    }

    /// What stands in `out`, to be sent.
    pub(crate) fn written(&mut self) -> Bytes {
        self.out.split().freeze()
    }

    /// Writes to the client; a client that takes nothing for [`WRITE_STALL_LIMIT`] is cut off.
    pub(crate) async fn send(&mut self, mut data: Bytes) -> std::io::Result<()> {
        while !data.is_empty() {
            let rest = data.len().saturating_sub(WRITE_SLICE_BYTES);
            let mut sent = Ok(());
            self.deadline.arm(WRITE_STALL_LIMIT, On::Stop(self.conn.fd()));
            while sent.is_ok() && data.len() > rest {
                sent = self.conn.write_some(&mut data).await;
            }
            self.deadline.disarm();
            sent?;
        }
        Ok(())
    }

    /// With unread input: says that nothing more comes and reads a little longer, so that the answer is not destroyed by a
    /// reset (RFC 9112 section 9.6).
    pub(super) async fn linger(&mut self) {
        self.lingered = true;
        self.deadline.arm(FAREWELL_LIMIT, On::Stop(self.conn.fd()));
        self.conn.finish_writing().await;
        self.deadline.arm(FAREWELL_LIMIT, On::StopReading(self.conn.fd()));
        let mut read = 0;
        while read < LINGER_BYTES_MAX {
            self.buf.clear();
            match self.fill(READ_BYTES_START).await {
                Ok(0) | Err(_) => break,
                Ok(more) => read += more,
            }
        }
        self.deadline.disarm();
    }

    /// Ends the connection in order: what was said is whole, and arrives.
    pub(crate) async fn farewell(&mut self) {
        if self.lingered {
            return;
        }
        if self.conn.has_unread() {
            // A pipelined request, most likely, that will not be served.
            self.linger().await;
        } else if self.conn.has_farewell() {
            self.deadline.arm(FAREWELL_LIMIT, On::Stop(self.conn.fd()));
            self.conn.finish_writing().await;
            self.deadline.disarm();
        }
    }

    /// Where the connection comes from.
    pub(crate) fn client(&self) -> ClientKey {
        self.admission.client
    }

    /// Its whole address.
    pub(crate) fn address(&self) -> IpAddr {
        self.admission.address
    }

    /// A watch for this exchange.
    pub(crate) fn watch(&self) -> ClientWatch {
        ClientWatch::new(self.input_ended_by_us)
    }
}
