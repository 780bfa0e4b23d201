//! One client connection: request after request until somebody closes.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_config::vocab::Dialect;

use super::watch::ClientWatch;
use super::{
    BODY_BYTES_PER_S_MIN, BODY_GRACE, BODY_PAUSE_LIMIT, Core, DRAIN_LIMIT, HEAD_LIMIT, IDLE_LIMIT, READ_BYTES_START,
    WRITE_SLICE_BYTES, WRITE_STALL_LIMIT, date, own, request,
};
use crate::admit::Memory;
use crate::exchange::{Moments, Refusal};
use crate::rt::{self, Conn, Deadline, On};
use crate::wire::{Fault, HeadScanner, HeadWriter, RequestBody, RequestHead, canonical_reason};

/// A write buffer up to this size stays with the connection.
const OUT_BYTES_KEPT: usize = 16 * 1024;

/// One client connection and what belongs to it.
pub(crate) struct Session {
    pub(crate) core: Rc<Core>,
    /// Before the connection, so that it goes first: a deadline must not outlive the descriptor it would shut down.
    pub(crate) deadline: Deadline,
    pub(crate) conn: Conn,
    /// Bytes read and not yet used.
    pub(crate) buf: BytesMut,
    /// Part of the present request's body has not been read: nothing behind it may be taken for a request. True from the
    /// head on, and false only once the body's end has been seen.
    pub(crate) body_unread: bool,
    /// When the present body began, in milliseconds, and how much of it has been read from the socket since.
    body_pace: (u64, u64),
    /// Our own drain may have ended the reading side of the connection.
    input_ended_by_us: bool,
    /// What is remembered of the last caller; it decides nothing by itself.
    pub(crate) memory: Memory,
    scanner: HeadScanner,
    /// What is being written; its memory is used again once the kernel has taken it.
    pub(crate) out: BytesMut,
}

/// What happens to the connection after an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for another request.
    Keep,
    /// Close.
    Close,
}

/// Why there is no (further) request.
enum NoRequest {
    /// The client closed, idled too long, or Weir is draining.
    Closed,
    /// It sent part of a head and then nothing.
    SlowHead,
    /// It sent something that is not HTTP/1.1 as Weir accepts it.
    Fault(Fault),
}

/// Serves `conn` until it closes.
pub async fn serve_connection(core: Rc<Core>, conn: Conn, _peer: SocketAddr) {
    core.open.borrow_mut().insert(conn.fd());
    core.meter.connections_add(1);
    let _gauge = ConnectionGauge(Rc::clone(&core), conn.fd());
    let mut session = Session {
        core,
        deadline: Deadline::new(),
        conn,
        buf: BytesMut::with_capacity(READ_BYTES_START),
        body_unread: false,
        body_pace: (0, 0),
        input_ended_by_us: false,
        memory: Memory::default(),
        out: BytesMut::new(),
        scanner: HeadScanner::default(),
    };
    loop {
        match session.next_head().await {
            Ok(head) => {
                let next = if crate::api::is_own_path(head.path()) {
                    own::answer(&mut session, head).await
                } else {
                    request::exchange(&mut session, head).await
                };
                if next == Next::Close {
                    break;
                }
            }
            Err(NoRequest::Closed) => break,
            Err(NoRequest::SlowHead) => {
                let refusal = Refusal::new(
                    408,
                    "invalid_request",
                    format!("the request head was not complete within {} s", HEAD_LIMIT.as_secs()),
                );
                session.refuse_unparsed(&refusal.closing()).await;
                break;
            }
            Err(NoRequest::Fault(fault)) => {
                let refusal = request::fault_refusal(&fault);
                session.refuse_unparsed(&refusal).await;
                break;
            }
        }
    }
}

/// Keeps the gauge true however the connection ends.
struct ConnectionGauge(Rc<Core>, RawFd);

impl Drop for ConnectionGauge {
    fn drop(&mut self) {
        self.0.open.borrow_mut().remove(&self.1);
        self.0.idle.borrow_mut().remove(&self.1);
        self.0.meter.connections_add(-1);
    }
}

impl Session {
    /// Waits for the next request head.
    async fn next_head(&mut self) -> Result<RequestHead, NoRequest> {
        let mut begun = false;
        loop {
            if !self.buf.is_empty() {
                match self.scanner.request(&mut self.buf) {
                    Ok(Some(head)) => {
                        self.deadline.disarm();
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
            } else if !begun {
                // A request may have been sent before the client could know of the stop: it is still read and served.
                let draining = self.core.process.is_draining();
                self.deadline.arm(if draining { DRAIN_LIMIT } else { IDLE_LIMIT }, On::StopReading(self.conn.fd()));
                if !draining {
                    self.core.idle.borrow_mut().insert(self.conn.fd());
                }
            }
            let got = self.fill(READ_BYTES_START).await;
            let was_idle = self.core.idle.borrow_mut().remove(&self.conn.fd());
            // The drain may have ended the reading side just as these bytes came; that is not the client leaving.
            self.input_ended_by_us |= was_idle && self.core.process.is_draining();
            match got {
                Ok(0) | Err(_) => {
                    let late = self.deadline.disarm();
                    return Err(if late && begun { NoRequest::SlowHead } else { NoRequest::Closed });
                }
                Ok(_) => {}
            }
        }
    }

    /// Reads once from the client into the buffer, making room for at least `room` bytes.
    pub(crate) async fn fill(&mut self, room: usize) -> std::io::Result<usize> {
        if self.buf.capacity() - self.buf.len() < room / 4 {
            self.buf.reserve(room);
        }
        let buf = std::mem::take(&mut self.buf);
        let (result, buf) = self.conn.read(buf).await;
        self.buf = buf;
        result
    }

    /// A request's head has been read; its body follows.
    pub(crate) fn begin_body(&mut self, body: RequestBody) {
        self.body_unread = body != RequestBody::Empty;
        self.body_pace = (rt::now_ms(), 0);
    }

    /// Whether any of the body has been taken out of the buffer or read from the socket.
    pub(crate) fn body_begun(&self) -> bool {
        self.body_pace.1 > 0
    }

    /// Reads once. `Ok(0)` when the client has closed, `TimedOut` when it pauses for longer than [`BODY_PAUSE_LIMIT`] or
    /// has fallen below [`BODY_BYTES_PER_S_MIN`] after [`BODY_GRACE`]: a dribbled body must not hold its place for ever.
    pub(crate) async fn fill_body(&mut self, room: usize) -> std::io::Result<usize> {
        let (began_ms, bytes) = self.body_pace;
        let allowed = BODY_GRACE + Duration::from_secs(bytes / BODY_BYTES_PER_S_MIN);
        let left = allowed.saturating_sub(Duration::from_millis(rt::now_ms().saturating_sub(began_ms)));
        self.deadline.arm(left.min(BODY_PAUSE_LIMIT), On::StopReading(self.conn.fd()));
        let got = self.fill(room).await;
        if self.deadline.disarm() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        self.body_pace.1 += *got.as_ref().unwrap_or(&0) as u64;
        got
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
            let slice = data.split_to(data.len().min(WRITE_SLICE_BYTES));
            self.deadline.arm(WRITE_STALL_LIMIT, On::Stop(self.conn.fd()));
            let sent = self.conn.write_all(slice).await;
            self.deadline.disarm();
            sent?;
        }
        Ok(())
    }

    /// Answers something that never became a request.
    async fn refuse_unparsed(&mut self, refusal: &Refusal) {
        let trace_id = weir_config::vocab::TraceId::fresh();
        let body = refusal.body(Dialect::ChatCompletions, trace_id);
        let moments = Moments::now();
        self.core.meter.request(
            weir_config::vocab::Provider::OPENAI.label(),
            None,
            refusal.status,
            0,
            u64::try_from(moments.started.elapsed().as_micros()).unwrap_or(0),
            None,
            None,
        );
        if self.send_own(refusal.status, &refusal.headers, "application/json", body.into(), true, false).await.is_ok() {
            self.linger().await;
        }
    }

    /// Sends an answer of our own, head and body in one write.
    pub(crate) async fn send_own(
        &mut self,
        status: u16,
        headers: &[(&'static str, String)],
        content_type: &str,
        body: Bytes,
        close: bool,
        head_only: bool,
    ) -> std::io::Result<()> {
        let out = self.room(256 + body.len());
        let mut writer = HeadWriter::new(out);
        writer.status_line(status, canonical_reason(status).as_bytes());
        writer.field("Date", date::http_date().as_bytes());
        writer.field("Content-Type", content_type.as_bytes());
        writer.field("Content-Length", body.len().to_string().as_bytes());
        for (name, value) in headers {
            writer.field(name, value.as_bytes());
        }
        if close {
            writer.field("Connection", b"close");
        }
        writer.end();
        if !head_only {
            out.extend_from_slice(&body);
        }
        let written = self.written();
        self.send(written).await
    }

    /// After a refusal with unread input: says that nothing more comes and reads a little longer, so that the answer is
    /// not destroyed by a reset (RFC 9112 section 9.6).
    pub(crate) async fn linger(&mut self) {
        const LINGER_BYTES_MAX: usize = 64 * 1024;
        self.conn.finish_writing();
        self.deadline.arm(Duration::from_secs(1), On::StopReading(self.conn.fd()));
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

    /// A watch for this exchange.
    pub(crate) fn watch(&self) -> ClientWatch {
        ClientWatch::new(!self.input_ended_by_us)
    }
}
