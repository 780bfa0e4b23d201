//! Asking the provider: a connection, the request, and the head of its answer, while the client waits ([`WaitingClient`]).

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::answer_listener::AnswerListener;
use super::exchange::Stop;
use super::unsent::Unsent;
use crate::client::body::NoBody;
use crate::client::session::Session;
use crate::client::watch::ClientWatch;
use crate::exchange::Refusal;
use crate::forward::{AcquireError, ConnPool, Holder, Lease, UpstreamConn};
use crate::limits::{READ_BYTES_STREAM, WRITE_SLICE_BYTES, WRITE_STALL_LIMIT};
use crate::rt::{CallOff, Deadline, On, ReadWhileWriting};
use crate::wire::ResponseHead;

/// The client of an exchange whose provider is being asked: its connection, and the watch that tells when it leaves.
pub(super) struct WaitingClient<'s> {
    pub(super) session: &'s mut Session,
    pub(super) watch: ClientWatch,
}

impl<'s> WaitingClient<'s> {
    /// From here on `session` is watched.
    pub(super) fn new(session: &'s mut Session) -> Self {
        let watch = session.watch();
        Self { session, watch }
    }
}

/// Writes to the provider; one that takes nothing for [`WRITE_STALL_LIMIT`] is given up.
/// That is `TimedOut`. A client that leaves meanwhile ends it, too: its watch tells.
pub(super) async fn send(
    client: &mut WaitingClient<'_>,
    upstream: &mut UpstreamConn,
    mut data: Bytes,
) -> io::Result<()> {
    let WaitingClient { session, watch } = client;
    let stop = StopUpstream(upstream.tcp().fd());
    while !data.is_empty() {
        let rest = data.len().saturating_sub(WRITE_SLICE_BYTES);
        let mut sent = Ok(());
        // The session's own deadline guards the client; a write to the provider borrows it, nothing else is pending then.
        session.deadline.arm(WRITE_STALL_LIMIT, On::Stop(stop.0));
        while sent.is_ok() && data.len() > rest {
            sent = watch.during(&session.conn, || stop.stop(), pin!(upstream.write_some(&mut data))).await;
        }
        if session.deadline.disarm() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sent?;
    }
    Ok(())
}

/// The same while the provider may answer already: then the writing ends with an error.
pub(super) async fn send_listening(
    client: &mut WaitingClient<'_>,
    upstream: &mut UpstreamConn,
    mut data: Bytes,
    reading: &mut ReadWhileWriting,
    listener: &mut AnswerListener<'_>,
) -> io::Result<()> {
    let WaitingClient { session, watch } = client;
    let stop = StopUpstream(upstream.tcp().fd());
    while !data.is_empty() {
        let rest = data.len().saturating_sub(WRITE_SLICE_BYTES);
        let mut sent = Ok(());
        session.deadline.arm(WRITE_STALL_LIMIT, On::Stop(stop.0));
        while sent.is_ok() && data.len() > rest {
            let writing = upstream.write_some_reading(&mut data, reading, listener);
            sent = watch.during(&session.conn, || stop.stop(), pin!(writing)).await;
        }
        if session.deadline.disarm() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sent?;
    }
    Ok(())
}

/// Leases a new connection, or one that is given back while waiting for a free place. A client that leaves meanwhile gives
/// its place up.
pub(super) async fn lease(
    client: &mut WaitingClient<'_>,
    pool: &Rc<ConnPool>,
    holder: Holder,
    wait: Duration,
) -> Result<Lease, NoLease> {
    let WaitingClient { session, watch } = client;
    let off = CallOff::default();
    // Boxed, as a few rare ones are: its state (dialling, TLS) would else be kept room for with every request.
    let mut acquiring = Box::pin(pool.acquire(holder, wait, &off));
    let acquired = watch.during(&session.conn, || off.call(), acquiring.as_mut()).await;
    drop(acquiring);
    if watch.client_left() {
        return Err(NoLease::Ended(Stop::ClientLeft));
    }
    acquired.map_err(|error| match error {
        AcquireError::CalledOff => NoLease::Ended(Stop::ClientLeft),
        AcquireError::Connect(message) => NoLease::NotConnected(Refusal::upstream_unreachable(message)),
        AcquireError::Exhausted => {
            let message = format!(
                "all connections to the provider stayed busy for {} ms; raise `max_connections` or send less at once",
                wait.as_millis()
            );
            NoLease::Ended(Refusal::new(504, "upstream_timeout", message).into())
        }
    })
}

/// Why there is no connection.
pub(crate) enum NoLease {
    /// The exchange ends with it.
    Ended(Stop),
    /// The provider cannot be reached; not a byte of the request has left.
    NotConnected(Refusal),
}

/// The head of an answer and the bytes that came with it.
pub(crate) struct Answered {
    /// Boxed: it is handed from one function to the next, and some hundred bytes long.
    pub(crate) head: Box<ResponseHead>,
    /// Bytes read behind the head.
    pub(crate) rest: BytesMut,
    /// What is missing of the upload, where the answer came first.
    pub(crate) unsent: Option<Unsent>,
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
    /// The client does not send the request as it has to.
    Refused(Refusal),
}

impl From<NoBody> for NoAnswer {
    fn from(error: NoBody) -> Self {
        match error {
            NoBody::ClientLeft => Self::ClientLeft,
            NoBody::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

/// Reads the head of the answer, as far as it has not been heard already. Interim responses are relayed to the client,
/// except 100, which we have answered ourselves.
pub(super) async fn await_head(
    client: &mut WaitingClient<'_>,
    upstream: &mut UpstreamConn,
    listener: &mut AnswerListener<'_>,
    limit: Duration,
    awaiting: &mut Duration,
) -> Result<Answered, NoAnswer> {
    let WaitingClient { session, watch } = client;
    let deadline = Deadline::new();
    let stop = StopUpstream(upstream.tcp().fd());
    deadline.arm(limit, On::Stop(stop.0));
    let waiting = Instant::now();
    let mut heard_before = !listener.is_silent();
    listener.buf.reserve(READ_BYTES_STREAM / 2);
    let result = loop {
        if !std::mem::take(&mut heard_before) {
            let silent = listener.is_silent();
            let buf = std::mem::take(&mut listener.buf);
            let (got, filled) = watch.during(&session.conn, || stop.stop(), pin!(upstream.read(buf))).await;
            listener.buf = filled;
            if watch.client_left() {
                break Err(NoAnswer::ClientLeft);
            }
            if deadline.fired() {
                break Err(NoAnswer::Timeout);
            }
            match got {
                Ok(0) | Err(_) if silent => break Err(NoAnswer::Silent),
                Ok(0) => {
                    let what = "it closed the connection in the middle of its response head";
                    break Err(NoAnswer::Broken(what.to_owned()));
                }
                Err(error) => break Err(NoAnswer::Broken(error.to_string())),
                Ok(_) => {}
            }
        }
        let head = listener.head();
        listener.pass_on(session).await;
        match head {
            Some(Ok(head)) => break Ok(Answered { head, rest: std::mem::take(&mut listener.buf), unsent: None }),
            Some(Err(what)) => break Err(NoAnswer::Broken(what)),
            None if listener.buf.capacity() == listener.buf.len() => listener.buf.reserve(READ_BYTES_STREAM),
            None => {}
        }
    };
    let late = deadline.disarm();
    *awaiting += waiting.elapsed();
    // A head that came in the moment of the deadline stands on a connection that we have shut down.
    if late && result.is_ok() { Err(NoAnswer::Timeout) } else { result }
}

/// Ends both directions of a connection that somebody else is reading.
pub(crate) struct StopUpstream(pub(crate) std::os::fd::RawFd);

impl StopUpstream {
    pub(crate) fn stop(&self) {
        crate::rt::stop(self.0);
    }
}
