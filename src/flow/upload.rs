//! The request's body on its way in: held whole where something has to read it first, relayed as it arrives otherwise.

use std::io;
use std::ops::Range;
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::future::{Either, select};
use smallvec::SmallVec;

use super::hearing::Hearing;
use super::pace::Pace;
use super::session::Session;
use super::unsent::{self, Unsent};
use super::watch::ClientWatch;
use super::{CROWDED_BYTES_PER_S_MIN, CROWDED_LOOK, READ_BYTES_STREAM, upstream};
use crate::exchange::Refusal;
use crate::forward::UpstreamConn;
use crate::record::Permit;
use crate::rt::{self, Listen};
use crate::wire::{BodyScanner, ChunkSink, RequestBody, RequestHead};

/// While memory is plentiful, a held body is looked after only from this size on.
const LOOK_FROM_BYTES: usize = 64 * 1024;

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

/// Collects the ranges a scan reports.
#[derive(Default)]
pub(crate) struct Ranges {
    pub(crate) forward: SmallVec<[Range<usize>; 4]>,
    pub(crate) data: SmallVec<[Range<usize>; 8]>,
}

impl ChunkSink for Ranges {
    fn forward(&mut self, range: Range<usize>) {
        self.forward.push(range);
    }

    fn data(&mut self, range: Range<usize>) {
        self.data.push(range);
    }
}

impl Ranges {
    pub(crate) fn clear(&mut self) {
        self.forward.clear();
        self.data.clear();
    }

    /// What to relay of `input`: the input itself when nothing is left out, else its parts put together.
    pub(crate) fn relayed(&self, input: &Bytes) -> Bytes {
        match self.forward.as_slice() {
            [] => Bytes::new(),
            [one] => input.slice(one.clone()),
            many => gather(input, many),
        }
    }

    /// The content of `input`.
    pub(crate) fn content(&self, input: &Bytes) -> Bytes {
        match self.data.as_slice() {
            [] => Bytes::new(),
            [one] => input.slice(one.clone()),
            many => gather(input, many),
        }
    }
}

fn gather(input: &Bytes, ranges: &[Range<usize>]) -> Bytes {
    let mut out = BytesMut::with_capacity(input.len());
    for range in ranges {
        out.extend_from_slice(input.get(range.clone()).unwrap_or_default());
    }
    out.freeze()
}

/// Whether the whole body is in the buffer already, as far as can be told without reading it: then waiting for it costs
/// nothing. For chunked bodies this is a guess, since content can end like a body.
pub(crate) fn is_at_hand(session: &Session, body: RequestBody) -> bool {
    match body {
        RequestBody::Empty => true,
        RequestBody::Length(length) => session.buf.len() as u64 >= length,
        RequestBody::Chunked => session.buf.ends_with(crate::wire::LAST_CHUNK),
    }
}

/// Refuses a body whose declared length is over `cap`, before any of it has been read.
pub(crate) fn check_declared(body: RequestBody, cap: u64, setting: &str) -> Result<(), Refusal> {
    match body {
        RequestBody::Length(length) if length > cap => Err(Refusal::too_large(cap, setting)),
        _ => Ok(()),
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

/// Reads the whole body, at most `cap` bytes of content; `setting` is named when it is more. `permit` is grown as
/// needed; when the budget is used up the request is refused.
pub(crate) async fn read_whole(
    session: &mut Session,
    head: &RequestHead,
    cap: u64,
    setting: &str,
    mut permit: Option<Permit>,
) -> Result<Whole, NoBody> {
    check_declared(head.body, cap, setting).map_err(NoBody::Refused)?;
    send_continue(session, head).await?;
    if let RequestBody::Length(length) = head.body
        && session.buf.len() as u64 >= length
        && let Ok(length) = usize::try_from(length)
    {
        session.body_unread = false;
        return Ok(Whole { body: session.buf.split_to(length).freeze(), permit });
    }
    let mut scanner = BodyScanner::request(head.body);
    let mut content = BytesMut::new();
    let mut ranges = Ranges::default();
    let mut pace = Pace::new();
    loop {
        ranges.clear();
        let progress = scanner
            .scan(&session.buf, &mut ranges)
            .map_err(|fault| NoBody::Refused(super::request::fault_refusal(&fault)))?;
        for range in &ranges.data {
            let more = session.buf.get(range.clone()).unwrap_or_default();
            if (content.len() + more.len()) as u64 > cap {
                return Err(NoBody::Refused(Refusal::too_large(cap, setting)));
            }
            if let Some(permit) = &mut permit
                && !permit.grow(more.len())
            {
                return Err(NoBody::Refused(out_of_room()));
            }
            content.extend_from_slice(more);
        }
        bytes::Buf::advance(&mut session.buf, progress.consumed);
        if scanner.is_done() {
            session.body_unread = false;
            return Ok(Whole { body: content.freeze(), permit });
        }
        pace.came(progress.consumed);
        let waiting = Instant::now();
        if let Some(permit) = &permit
            && !content_comes(session, permit, content.len(), &pace).await.map_err(|error| broken(&error))?
        {
            return Err(NoBody::Refused(too_slow_to_hold()));
        }
        match session.fill_body(READ_BYTES_STREAM).await {
            Ok(0) => return Err(NoBody::ClientLeft),
            Ok(_) => {}
            Err(error) => return Err(broken(&error)),
        }
        pace.waited(waiting.elapsed());
    }
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

/// The provider takes no more of the request.
pub(crate) fn stalled_refusal() -> Refusal {
    let seconds = super::WRITE_STALL_LIMIT.as_secs();
    Refusal::new(504, "upstream_timeout", format!("the provider took none of the request's bytes for {seconds} s"))
}

pub(super) fn broken(error: &std::io::Error) -> NoBody {
    if error.kind() == std::io::ErrorKind::TimedOut {
        let (seconds, pace) = (super::BODY_PAUSE_LIMIT.as_secs(), super::BODY_BYTES_PER_S_MIN);
        let message =
            format!("the request body paused for more than {seconds} s or came slower than {pace} bytes per second");
        NoBody::Refused(Refusal::new(408, "invalid_request", message).closing())
    } else {
        NoBody::ClientLeft
    }
}

pub(crate) fn out_of_room() -> Refusal {
    let message = "too many request bodies are held in memory at this moment (`server.max_body_memory_bytes`); retry after a second";
    Refusal::new(503, "bodies_saturated", message).header("Retry-After", 1).closing()
}

/// How relaying a body to the provider ended.
pub(crate) enum Relayed {
    /// All of it has been sent.
    Complete,
    /// The provider has answered, and what is missing is little.
    Answered(Unsent),
    /// The provider stopped taking it; it may have answered already.
    UpstreamStopped,
    /// The client left.
    ClientLeft,
    /// Broken framing, too slow or too large.
    Refused(Refusal),
}

/// What is kept of a relayed body for the record.
pub(crate) struct Kept {
    pub(crate) bytes: BytesMut,
    pub(crate) permit: Permit,
    pub(crate) bytes_max: usize,
    pub(crate) truncated: bool,
}

impl Kept {
    fn keep(&mut self, more: &[u8]) {
        if self.truncated {
            return;
        }
        let room = self.bytes_max.saturating_sub(self.bytes.len()).min(more.len());
        let granted = self.permit.grow(room);
        self.truncated = room < more.len() || !granted;
        if granted {
            self.bytes.extend_from_slice(more.get(..room).unwrap_or_default());
        }
    }
}

/// Where a body goes, and who is looked after meanwhile.
pub(crate) struct Towards<'a, 'h> {
    pub(crate) conn: &'a mut UpstreamConn,
    pub(crate) watch: &'a mut ClientWatch,
    pub(crate) hearing: &'a mut Hearing<'h>,
}

/// What ended the wait for more of a body.
enum Came {
    /// The client has sent more, or has ended.
    More,
    /// The provider has answered, or has gone.
    Answer,
    /// Nothing, for so long that the place goes to others.
    TooLate,
}

/// Waits until the client has sent more, or the provider has answered. Waits for readiness only, so that neither connection has
/// an operation in flight when the other turns out to be the one to attend to.
async fn more_comes(
    session: &mut Session,
    upstream: &mut UpstreamConn,
    hearing: &mut Hearing<'_>,
    pace: &Pace,
) -> io::Result<Came> {
    loop {
        if upstream.heard(hearing) {
            return Ok(Came::Answer);
        }
        hearing.pass_on(session).await;
        if !session.conn.is_quiet() {
            return Ok(Came::More);
        }
        session.arm_body();
        let waiting = Instant::now();
        let client_first = loop {
            let client = pin!(session.conn.readable());
            let provider = pin!(upstream.tcp().readable());
            match rt::within(CROWDED_LOOK, select(client, provider)).await {
                Some(first) => break matches!(first, Either::Left(_)),
                None if session.core.pool.is_waited_for() && pace.is_used_up(waiting.elapsed()) => {
                    session.deadline.disarm();
                    return Ok(Came::TooLate);
                }
                None => {}
            }
        };
        if session.deadline.disarm() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if client_first {
            // Both may have come meanwhile, and what the client sends behind the answer is too late.
            return Ok(if upstream.heard(hearing) { Came::Answer } else { Came::More });
        }
    }
}

/// Relays the body as it arrives. The head of the upstream request stands in the session's buffer and goes out together
/// with the first body bytes.
pub(crate) async fn relay(
    session: &mut Session,
    to: Towards<'_, '_>,
    head: &RequestHead,
    cap: (u64, &'static str),
    mut kept: Option<&mut Kept>,
    awaiting_client: &mut Duration,
) -> Relayed {
    let Towards { conn: upstream, watch, hearing } = to;
    let mut scanner = BodyScanner::request(head.body);
    let mut ranges = Ranges::default();
    let mut listen = Listen::new();
    let mut pace = Pace::new();
    let mut head_is_due = true;
    let mut content_bytes: u64 = 0;
    loop {
        ranges.clear();
        let progress = match scanner.scan(&session.buf, &mut ranges) {
            Ok(progress) => progress,
            Err(fault) => return Relayed::Refused(super::request::fault_refusal(&fault)),
        };
        let input = session.buf.split_to(progress.consumed).freeze();
        content_bytes += ranges.data.iter().map(|range| range.len() as u64).sum::<u64>();
        if content_bytes > cap.0 {
            return Relayed::Refused(Refusal::too_large(cap.0, cap.1));
        }
        let piece = ranges.relayed(&input);
        let out = if std::mem::take(&mut head_is_due) {
            session.out.extend_from_slice(&piece);
            session.written()
        } else {
            piece
        };
        if !out.is_empty()
            && let Err(error) = upstream::send_listening(session, upstream, out, watch, &mut listen, hearing).await
        {
            if watch.client_left() {
                return Relayed::ClientLeft;
            }
            let stalled = error.kind() == std::io::ErrorKind::TimedOut;
            return if stalled { Relayed::Refused(stalled_refusal()) } else { Relayed::UpstreamStopped };
        }
        if let Some(kept) = kept.as_deref_mut() {
            for range in &ranges.data {
                kept.keep(input.get(range.clone()).unwrap_or_default());
            }
        }
        if scanner.is_done() {
            session.body_unread = false;
            return Relayed::Complete;
        }
        pace.came(input.len());
        if session.core.pool.is_waited_for() && pace.is_used_up(Duration::ZERO) {
            return Relayed::Refused(crowded_out());
        }
        let waiting = Instant::now();
        let got = match more_comes(session, upstream, hearing, &pace).await {
            Ok(Came::More) => session.fill_body(READ_BYTES_STREAM).await,
            Ok(Came::Answer) => match unsent::has_arrived(session, hearing, &scanner).await {
                Ok(true) => Ok(session.buf.len()),
                Ok(false) => return answered(Unsent::behind(hearing, &scanner)),
                Err(error) => Err(error),
            },
            Ok(Came::TooLate) => return Relayed::Refused(crowded_out()),
            Err(error) => Err(error),
        };
        let waited = waiting.elapsed();
        pace.waited(waited);
        *awaiting_client += waited;
        match got {
            Ok(0) => return Relayed::ClientLeft,
            Ok(_) => {}
            Err(error) => match broken(&error) {
                NoBody::Refused(refusal) => return Relayed::Refused(refusal),
                NoBody::ClientLeft => return Relayed::ClientLeft,
            },
        }
    }
}

/// The provider has answered before it has seen everything, or it has gone; `unsent` where little is missing.
fn answered(unsent: Option<Unsent>) -> Relayed {
    match unsent {
        Some(unsent) => Relayed::Answered(unsent),
        None => Relayed::UpstreamStopped,
    }
}

/// The place of a slow upload goes to others.
fn crowded_out() -> Refusal {
    let message = format!(
        "the request body came slower than {CROWDED_BYTES_PER_S_MIN} bytes per second while other requests waited for a \
         connection to the provider; send it faster, or later, or raise `max_connections`"
    );
    Refusal::new(408, "invalid_request", message).closing()
}
