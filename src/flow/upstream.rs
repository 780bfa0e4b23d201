//! Asking the provider: a connection, the request, and the head of its answer.

use std::io;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::session::Session;
use super::watch::ClientWatch;
use super::{INTERIM_MAX, READ_BYTES_STREAM, WRITE_SLICE_BYTES, WRITE_STALL_LIMIT, tunnel};
use crate::exchange::Refusal;
use crate::forward::{AcquireError, Lease, UpstreamConn};
use crate::rt::{Deadline, Listen, On};
use crate::wire::{HeadScanner, HeadWriter, RequestHead, ResponseHead, Version};

/// Writes to the provider; one that takes nothing for [`WRITE_STALL_LIMIT`] is given up.
/// That is `TimedOut`.
pub(crate) async fn send(session: &Session, upstream: &mut UpstreamConn, mut data: Bytes) -> io::Result<()> {
    while !data.is_empty() {
        let slice = data.split_to(data.len().min(WRITE_SLICE_BYTES));
        // The session's own deadline guards the client; a write to the provider borrows it, nothing else is pending then.
        session.deadline.arm(WRITE_STALL_LIMIT, On::Stop(upstream.tcp().fd()));
        let sent = upstream.write_all(slice).await;
        if session.deadline.disarm() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sent?;
    }
    Ok(())
}

/// The same while the provider may answer already: then the writing ends with an error.
pub(crate) async fn send_listening(
    session: &Session,
    upstream: &mut UpstreamConn,
    mut data: Bytes,
    listen: &mut Listen,
) -> io::Result<()> {
    while !data.is_empty() {
        let slice = data.split_to(data.len().min(WRITE_SLICE_BYTES));
        session.deadline.arm(WRITE_STALL_LIMIT, On::Stop(upstream.tcp().fd()));
        let sent = upstream.write_all_listening(slice, listen).await;
        if session.deadline.disarm() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sent?;
    }
    Ok(())
}

/// Leases a new connection, or one that is given back while waiting for a free place.
pub(crate) async fn lease(session: &Session, wait: Duration) -> Result<Lease, Refusal> {
    session.core.pool.acquire(wait).await.map_err(|error| match error {
        AcquireError::Connect(message) => Refusal::upstream_unreachable(message),
        AcquireError::Exhausted => Refusal::new(
            504,
            "upstream_timeout",
            format!(
                "all connections to the provider stayed busy for {} ms; raise `max_connections` or send less at once",
                wait.as_millis()
            ),
        ),
    })
}

/// The head of an answer and the bytes that came with it.
pub(crate) struct Answered {
    pub(crate) head: ResponseHead,
    /// Bytes read behind the head.
    pub(crate) rest: BytesMut,
}

/// Why there is no answer.
pub(crate) enum NoAnswer {
    /// The connection ended before a single byte of an answer.
    Silent,
    /// It ended before it took a single byte of the request.
    Unsent,
    /// No head in time.
    Timeout,
    /// The client left first.
    ClientLeft,
    /// It is not HTTP, or was cut in its head.
    Broken(String),
}

/// Reads the head of the answer. Interim responses are relayed to the client, except 100, which we have answered
/// ourselves.
#[allow(clippy::too_many_arguments)] // The two connections, the question and three clocks: each is needed once, here.
pub(crate) async fn await_head(
    session: &mut Session,
    upstream: &mut UpstreamConn,
    read_buf: &mut BytesMut,
    asked: &RequestHead,
    limit: Duration,
    watch: &mut ClientWatch,
    awaiting: &mut Duration,
) -> Result<Answered, NoAnswer> {
    let deadline = Deadline::new();
    deadline.arm(limit, On::Stop(upstream.tcp().fd()));
    let mut scanner = HeadScanner::default();
    let mut buf = std::mem::take(read_buf);
    buf.reserve(READ_BYTES_STREAM / 2);
    let mut interim = 0;
    // An interim response that announces a body, or is of HTTP/1.0, costs the connection like a final one.
    let mut reusable = true;
    let mut silent = true;
    let waiting = Instant::now();
    let result = loop {
        let fd_stop = StopUpstream(upstream.tcp().fd());
        let (got, filled) = watch.during(&session.conn, || fd_stop.stop(), upstream.read(buf)).await;
        buf = filled;
        if watch.client_left() {
            break Err(NoAnswer::ClientLeft);
        }
        if deadline.fired() {
            break Err(NoAnswer::Timeout);
        }
        match got {
            Ok(0) if silent => break Err(NoAnswer::Silent),
            Ok(0) => {
                break Err(NoAnswer::Broken("it closed the connection in the middle of its response head".to_owned()));
            }
            Err(_) if silent => break Err(NoAnswer::Silent),
            Err(error) => break Err(NoAnswer::Broken(error.to_string())),
            Ok(_) => silent = false,
        }
        let head = loop {
            match scanner.response(&mut buf, asked.method()) {
                Err(fault) => break Err(NoAnswer::Broken(fault.message().into_owned())),
                Ok(None) => break Ok(None),
                Ok(Some(mut head)) if !head.is_informational() => {
                    head.keep_alive &= reusable;
                    break Ok(Some(head));
                }
                Ok(Some(head)) if head.status == 101 && asked.upgrade_websocket && tunnel::has_switched(&head) => {
                    break Ok(Some(head));
                }
                Ok(Some(head)) => {
                    interim += 1;
                    reusable &= head.keep_alive;
                    if head.status == 101 || interim > INTERIM_MAX {
                        break Err(NoAnswer::Broken(format!("it sent an unexpected {} response", head.status)));
                    }
                    if head.status != 100 && asked.version == Version::Http11 {
                        relay_interim(session, &head).await;
                    }
                }
            }
        };
        match head {
            Ok(None) => {
                if buf.capacity() == buf.len() {
                    buf.reserve(READ_BYTES_STREAM);
                }
            }
            Ok(Some(head)) => break Ok(Answered { head, rest: buf }),
            Err(error) => break Err(error),
        }
    };
    deadline.disarm();
    *awaiting += waiting.elapsed();
    result
}

/// Passes an interim response on. A failure shows at the next write.
async fn relay_interim(session: &mut Session, head: &ResponseHead) {
    let mut out = BytesMut::with_capacity(head.wire_bytes() + 16);
    let mut writer = HeadWriter::new(&mut out);
    writer.status_line(head.status, head.reason());
    for field in head.end_to_end_fields() {
        if !field.name_starts_with("x-service-") {
            writer.relay(field);
        }
    }
    writer.end();
    if let Err(error) = session.send(out.freeze()).await {
        tracing::debug!(%error, "an interim response could not be relayed");
    }
}

/// Ends both directions of a connection that somebody else is reading.
pub(crate) struct StopUpstream(pub(crate) std::os::fd::RawFd);

impl StopUpstream {
    pub(crate) fn stop(&self) {
        crate::rt::stop(self.0);
    }
}
