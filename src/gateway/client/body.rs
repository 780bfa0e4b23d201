//! The body of a request as a client sends it: whether it has arrived, its declared length, and the whole of it where something
//! has to read it first.

use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use weir_config::Settings;

use super::pace::Pace;
use super::session::Session;
use crate::exchange::Refusal;
use crate::limits::{BODY_BYTES_PER_S_MIN, BODY_PAUSE_LIMIT, CROWDED_BYTES_PER_S_MIN, CROWDED_LOOK, READ_BYTES_STREAM};
use crate::record::Permit;
use crate::rt;
use crate::wire::{self, BodyScanner, Ranges, RequestBody, RequestHead};

/// While memory is plentiful, a held body is looked after only from this size on.
const LOOK_FROM_BYTES: usize = 64 * 1024;

/// Memory reserved for a body, as a multiple of what has come of it: at its beginning, and once that is some ten kilobytes.
const RESERVED_FACTOR: usize = 16;
const RESERVED_FACTOR_LATER: usize = 64;

/// A body that has been read whole.
pub(crate) struct Whole {
    /// Its content.
    pub(crate) body: Bytes,
    /// What it took from the budget.
    pub(crate) permit: Option<Permit>,
}

/// Why a body could not be had.
pub(crate) enum NoBody {
    /// The client closed before it was complete.
    ClientLeft,
    /// It is too large, broken or too slow.
    Refused(Refusal),
}

/// Whether the whole body is in the buffer already, as far as can be told without reading it: then waiting for it costs
/// nothing. For chunked bodies this is a guess, since content can end like a body.
pub(crate) fn is_at_hand(session: &Session, body: RequestBody) -> bool {
    match body {
        RequestBody::Empty => true,
        RequestBody::Length(length) => session.buf.len() as u64 >= length,
        RequestBody::Chunked => session.buf.ends_with(wire::LAST_CHUNK),
    }
}

/// How much content a body may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyCap {
    pub(crate) bytes: u64,
    /// Which setting says so.
    pub(crate) setting: &'static str,
}

impl BodyCap {
    /// Of a proxied request.
    pub(crate) fn of(settings: &Settings) -> Self {
        Self { bytes: settings.limits.max_request_size_bytes, setting: settings.limits.max_request_size_source }
    }

    /// Refuses a body whose declared length is over it, before any of it has been read.
    pub(crate) fn check_declared(self, body: RequestBody) -> Result<(), Refusal> {
        match body {
            RequestBody::Length(length) => self.check(length),
            _ => Ok(()),
        }
    }

    /// Refuses a body that has so many bytes.
    pub(crate) fn check(self, bytes: u64) -> Result<(), Refusal> {
        if bytes > self.bytes { Err(Refusal::too_large(self.bytes, self.setting)) } else { Ok(()) }
    }
}

/// Tells a waiting client to go on (RFC 9110 section 10.1.1). We stand for the origin here, so the decision is ours.
pub(crate) async fn send_continue(session: &mut Session, head: &RequestHead) -> Result<(), NoBody> {
    if head.expect_continue && session.buf.is_empty() {
        let go_on = Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n");
        session.send(go_on).await.map_err(|_| NoBody::ClientLeft)?;
    }
    Ok(())
}

/// Reads the whole body, at most `cap`. `permit` is grown as
/// needed; when the budget is used up the request is refused.
pub(crate) async fn read_whole(
    session: &mut Session,
    head: &RequestHead,
    cap: BodyCap,
    mut permit: Option<Permit>,
) -> Result<Whole, NoBody> {
    cap.check_declared(head.body).map_err(NoBody::Refused)?;
    send_continue(session, head).await?;
    if let RequestBody::Length(length) = head.body
        && session.buf.len() as u64 >= length
        && let Ok(length) = usize::try_from(length)
    {
        session.body_unread = false;
        return Ok(Whole { body: session.buf.split_to(length).freeze(), permit });
    }
    if let RequestBody::Length(length) = head.body {
        return read_declared(session, usize::try_from(length).unwrap_or(usize::MAX), permit).await;
    }
    let mut scanner = BodyScanner::request(head.body);
    let mut content = BytesMut::new();
    let mut ranges = Ranges::default();
    let mut pace = Pace::new();
    loop {
        ranges.clear();
        let progress = scanner
            .scan(&session.buf, &mut ranges)
            .map_err(|fault| NoBody::Refused(Refusal::broken_framing(&fault)))?;
        for range in &ranges.data {
            let more = session.buf.get(range.clone()).unwrap_or_default();
            cap.check((content.len() + more.len()) as u64).map_err(NoBody::Refused)?;
            if let Some(permit) = &mut permit
                && !permit.grow(more.len())
            {
                return Err(NoBody::Refused(out_of_room()));
            }
            content.extend_from_slice(more);
        }
        bytes::Buf::advance(&mut session.buf, progress.consumed);
        if scanner.is_done() {
            session.end_body();
            return Ok(Whole { body: content.freeze(), permit });
        }
        pace.came(progress.consumed);
        more_of_held(session, permit.as_ref(), content.len(), &mut pace, READ_BYTES_STREAM).await?;
    }
}

/// Reads a body of `length` bytes into the buffer it is handed on in: nothing of it is copied.
async fn read_declared(session: &mut Session, length: usize, mut permit: Option<Permit>) -> Result<Whole, NoBody> {
    let mut pace = Pace::new();
    let mut held = 0;
    loop {
        let more = session.buf.len().min(length) - held;
        if let Some(permit) = &mut permit
            && !permit.grow(more)
        {
            return Err(NoBody::Refused(out_of_room()));
        }
        held += more;
        if held == length {
            let body = session.buf.split_to(length).freeze();
            session.end_body();
            return Ok(Whole { body, permit });
        }
        pace.came(more);
        make_room(&mut session.buf, length);
        more_of_held(session, permit.as_ref(), held, &mut pace, 1).await?;
    }
}

/// Makes room for what comes next of a body of `length` bytes, for all of it as soon as that may be: growing step by step copies what is
/// there each time, on a thread that calls wait for. Whoever declares much and sends little gets little.
fn make_room(buf: &mut BytesMut, length: usize) {
    let held = buf.len();
    if buf.capacity() - held < READ_BYTES_STREAM.min(length - held) {
        let factor = if held < LOOK_FROM_BYTES / 2 { RESERVED_FACTOR } else { RESERVED_FACTOR_LATER };
        let whole = length.min(held.saturating_mul(factor).max(READ_BYTES_STREAM)).max(held + 1);
        buf.reserve(whole - held);
    }
}

/// Reads on in a body that is held, into room for so many bytes.
async fn more_of_held(
    session: &mut Session,
    permit: Option<&Permit>,
    held_bytes: usize,
    pace: &mut Pace,
    room: usize,
) -> Result<(), NoBody> {
    let waiting = Instant::now();
    if let Some(permit) = permit
        && !content_comes(session, permit, held_bytes, pace).await.map_err(|error| broken(&error))?
    {
        return Err(NoBody::Refused(too_slow_to_hold()));
    }
    match session.fill_body(room).await {
        Ok(0) => return Err(NoBody::ClientLeft),
        Ok(_) => {}
        Err(error) => return Err(broken(&error)),
    }
    pace.waited(waiting.elapsed());
    Ok(())
}

/// Waits for more of a body that is held. False when it comes so slowly that its room goes to others: it holds what they
/// lack.
async fn content_comes(session: &mut Session, permit: &Permit, held_bytes: usize, pace: &Pace) -> io::Result<bool> {
    let scarce = permit.is_scarce();
    if scarce && pace.is_used_up(Duration::ZERO) {
        return Ok(false);
    }
    if !scarce && held_bytes < LOOK_FROM_BYTES || !session.conn.is_quiet() {
        return Ok(true);
    }
    session.arm_body();
    let waiting = Instant::now();
    loop {
        if rt::within(CROWDED_LOOK, pin!(session.conn.readable())).await.is_some() {
            return if session.deadline.disarm() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(true) };
        }
        if permit.is_scarce() && pace.is_used_up(waiting.elapsed()) {
            session.deadline.disarm();
            return Ok(false);
        }
    }
}

/// The room of a slow body goes to others.
fn too_slow_to_hold() -> Refusal {
    let message = format!(
        "the request body came slower than {CROWDED_BYTES_PER_S_MIN} bytes per second while the memory for bodies was \
         scarce; send it faster, or later, or raise `server.max_body_memory_bytes`"
    );
    Refusal::new(408, "invalid_request", message).closing()
}

/// Why reading a body has failed.
pub(crate) fn broken(error: &io::Error) -> NoBody {
    if error.kind() == io::ErrorKind::TimedOut {
        let (seconds, pace) = (BODY_PAUSE_LIMIT.as_secs(), BODY_BYTES_PER_S_MIN);
        let message =
            format!("the request body paused for more than {seconds} s or came slower than {pace} bytes per second");
        NoBody::Refused(Refusal::new(408, "invalid_request", message).closing())
    } else {
        NoBody::ClientLeft
    }
}

/// The memory for bodies is used up.
pub(crate) fn out_of_room() -> Refusal {
    let message = "too many request bodies are held in memory at this moment (`server.max_body_memory_bytes`); retry after a second";
    Refusal::new(503, "bodies_saturated", message).header("Retry-After", 1).closing()
}
