//! The body of a request relayed to the provider as it arrives.

use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures_util::future::{Either, select};
use weir_config::vocab::TenantId;

use super::answer_listener::AnswerListener;
use super::unsent::{self, Unsent};
use super::upstream::{self, WaitingClient};
use crate::client::body::{BodyCap, NoBody, broken};
use crate::client::pace::Pace;
use crate::client::session::Session;
use crate::exchange::{Moments, Refusal};
use crate::forward::{ConnPool, UpstreamConn};
use crate::limits::{CROWDED_BYTES_PER_S_MIN, CROWDED_LOOK, JOIN_BYTES_MAX, READ_BYTES_LARGE, READ_BYTES_STREAM};
use crate::record::Permit;
use crate::rt::{self, ReadWhileWriting};
use crate::wire::{BodyScanner, Ranges, RequestBody};

/// The provider takes no more of the request.
pub(crate) fn stalled_refusal() -> Refusal {
    let seconds = crate::limits::WRITE_STALL_LIMIT.as_secs();
    Refusal::new(504, "upstream_timeout", format!("the provider took none of the request's bytes for {seconds} s"))
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

impl From<NoBody> for Relayed {
    fn from(why: NoBody) -> Self {
        match why {
            NoBody::Refused(refusal) => Self::Refused(refusal),
            NoBody::ClientLeft => Self::ClientLeft,
        }
    }
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

/// How much of a body is read at once: a large buffer while its bytes come faster than they are passed on, counted among the
/// bodies in memory, and the usual one otherwise.
struct ReadRoom {
    bytes: usize,
    permit: Permit,
}

impl ReadRoom {
    const fn new(permit: Permit) -> Self {
        Self { bytes: READ_BYTES_STREAM, permit }
    }

    /// Reads what has arrived, as much as there is room for, and waits where nothing has. `Ok(0)` where the client has closed.
    async fn fill(&mut self, session: &mut Session) -> io::Result<usize> {
        let mut all = 0;
        loop {
            let came = session.fill_body(self.bytes.saturating_sub(session.buf.len()).max(1)).await?;
            all += came;
            // Room that is left says that all there was has been read.
            let drained = came == 0 || session.buf.capacity() > session.buf.len();
            self.came(all, session);
            if drained || session.buf.len() >= self.bytes || session.conn.is_quiet() {
                return Ok(all);
            }
        }
    }

    /// So many bytes have come together.
    fn came(&mut self, bytes: usize, session: &mut Session) {
        if bytes >= READ_BYTES_STREAM / 2 && self.bytes < READ_BYTES_LARGE {
            if self.permit.grow(READ_BYTES_LARGE) {
                self.bytes = READ_BYTES_LARGE;
            }
        } else if bytes < READ_BYTES_STREAM / 2 && self.bytes > READ_BYTES_STREAM {
            self.permit.give_back();
            self.bytes = READ_BYTES_STREAM;
            session.shrink();
        }
    }
}

/// Where a body goes.
pub(crate) struct Towards<'a, 'h> {
    pub(crate) conn: &'a mut UpstreamConn,
    /// Where the connection comes from.
    pub(crate) pool: &'a ConnPool,
    pub(crate) listener: &'a mut AnswerListener<'h>,
}

/// A body that is relayed as it arrives.
pub(crate) struct Upload {
    /// How the client frames it.
    pub(crate) framing: RequestBody,
    pub(crate) cap: BodyCap,
    /// What is kept of it, where the record wants some.
    pub(crate) kept: Option<Kept>,
    /// In whose name memory is taken.
    pub(crate) tenant: TenantId,
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
    (upstream, pool): (&mut UpstreamConn, &ConnPool),
    listener: &mut AnswerListener<'_>,
    pace: &Pace,
) -> io::Result<Came> {
    loop {
        if upstream.read_early(listener) {
            return Ok(Came::Answer);
        }
        listener.pass_on(session).await;
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
                None if pool.is_waited_for() && pace.is_used_up(waiting.elapsed()) => {
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
            return Ok(if upstream.read_early(listener) { Came::Answer } else { Came::More });
        }
    }
}

impl Upload {
    /// Whether more of the body is to come than stands in the buffer; of chunks nobody knows yet.
    fn is_known_to_go_on(&self, session: &Session) -> bool {
        matches!(self.framing, RequestBody::Length(length) if length > session.buf.len() as u64)
    }

    /// Relays the body as it arrives. The head of the upstream request stands in the session's buffer and goes out together
    /// with the first body bytes.
    pub(super) async fn relay(
        &mut self,
        client: &mut WaitingClient<'_>,
        to: Towards<'_, '_>,
        moments: &mut Moments,
    ) -> Relayed {
        let Towards { conn: upstream, pool, listener } = to;
        let mut scanner = BodyScanner::request(self.framing);
        let mut ranges = Ranges::default();
        let mut reading = ReadWhileWriting::new();
        let mut pace = Pace::new();
        let bodies = &client.session.core.process.bodies;
        let mut room = ReadRoom::new(bodies.of(self.tenant).permit());
        let mut head_is_due = true;
        let mut content_bytes: u64 = 0;
        if self.is_known_to_go_on(client.session) && !client.session.conn.is_quiet() {
            // What lies there goes with the head: each further write wakes the provider once more.
            if let Err(error) = room.fill(client.session).await {
                return Relayed::from(broken(&error));
            }
        }
        loop {
            ranges.clear();
            let progress = match scanner.scan(&client.session.buf, &mut ranges) {
                Ok(progress) => progress,
                Err(fault) => return Relayed::Refused(Refusal::broken_framing(&fault)),
            };
            let input = client.session.buf.split_to(progress.consumed).freeze();
            content_bytes += ranges.data.iter().map(|range| range.len() as u64).sum::<u64>();
            if let Err(refusal) = self.cap.check(content_bytes) {
                return Relayed::Refused(refusal);
            }
            let mut piece = ranges.relayed(&input);
            let sending = Instant::now();
            let mut sent = Ok(());
            if std::mem::take(&mut head_is_due) {
                client.session.out.extend_from_slice(&piece.split_to(piece.len().min(JOIN_BYTES_MAX)));
                let first = client.session.written();
                sent = upstream::send_listening(client, upstream, first, &mut reading, listener).await;
            }
            if sent.is_ok() {
                sent = upstream::send_listening(client, upstream, piece, &mut reading, listener).await;
            }
            moments.awaiting_upstream += sending.elapsed();
            if let Err(error) = sent {
                if client.watch.client_left() {
                    return Relayed::ClientLeft;
                }
                let stalled = error.kind() == std::io::ErrorKind::TimedOut;
                return if stalled { Relayed::Refused(stalled_refusal()) } else { Relayed::UpstreamStopped };
            }
            if let Some(kept) = &mut self.kept {
                for range in &ranges.data {
                    kept.keep(input.get(range.clone()).unwrap_or_default());
                }
            }
            if scanner.is_done() {
                client.session.end_body();
                return Relayed::Complete;
            }
            pace.came(input.len());
            // So that what comes next takes the same memory.
            drop(input);
            if pool.is_waited_for() && pace.is_used_up(Duration::ZERO) {
                return Relayed::Refused(crowded_out());
            }
            let waiting = Instant::now();
            let session = &mut *client.session;
            let got = match more_comes(session, (upstream, pool), listener, &pace).await {
                Ok(Came::More) => room.fill(session).await,
                Ok(Came::Answer) => match unsent::has_arrived(session, listener, &scanner).await {
                    Ok(true) => Ok(session.buf.len()),
                    Ok(false) => return answered(Unsent::behind(listener, &scanner)),
                    Err(error) => Err(error),
                },
                Ok(Came::TooLate) => return Relayed::Refused(crowded_out()),
                Err(error) => Err(error),
            };
            let waited = waiting.elapsed();
            pace.waited(waited);
            moments.awaiting_client += waited;
            match got {
                Ok(0) => return Relayed::ClientLeft,
                Ok(_) => {}
                Err(error) => return Relayed::from(broken(&error)),
            }
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
