//! WebSocket: once the provider has agreed to switch, both directions are copied as they come, and the copy is read.
//!
//! Invariant: bytes pass in order, and unchanged but for what is taken out of answers (`answers`); a side that takes nothing holds up the
//! other after one buffer; when one side ends the other is told at once. A message of the client is held until it is whole only where
//! somebody may say no to it, and then it goes on as it came or not at all. What is said has records of its own (`turns`); that of the
//! socket counts bytes and says what was not read.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::os::fd::RawFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::future::{Either, select};
use weir_config::settings::PiiAction;
use weir_config::vocab::Unread;

use super::admit_request::turn_within_rates;
use super::answers::Answers;
use super::caps;
use super::exchange::Exchange;
use super::judge_turn::{error_event, judge};
use super::speaks::Speaks;
use super::tapped::Halt;
use super::turns::{Asks, Heard, Looked, NewTurn, Peek, Turns};
use super::upstream::Answered;
use crate::client::session::{Next, Session};
use crate::codec::websocket::{Event, Extensions, Frames, MESSAGE_BYTES_MAX, close_frame, text_frame};
use crate::exchange::{Refusal, Skip};
use crate::forward::Lease;
use crate::limits::{READ_BYTES_STREAM, WRITE_STALL_LIMIT};
use crate::process::Core;
use crate::record::Permit;
use crate::rt::{self, Deadline, On, ReadHalf, WriteHalf};
use crate::settle::journal::Journal;
use crate::wire::{HeadWriter, ResponseHead};

/// Code of a close that says a message broke a rule of this side (RFC 6455 section 7.4.1).
pub(super) const POLICY_VIOLATION: u16 = 1008;
/// Why a socket ends whose message has no room.
const NO_ROOM: &str = "there is no memory for a message of this size at the moment; send it again, or by HTTP";
/// What is held of a message beside its text: heads of its frames, and frames between them.
pub(super) const HELD_BEYOND_MESSAGE: usize = 64 * 1024;

/// Code of a close that says there is no room at the moment (IANA's registry of close codes).
const TRY_AGAIN_LATER: u16 = 1013;
/// Bytes of a message that are not counted among the bodies in memory.
const FREE_BYTES: usize = 64 * 1024;
/// How often a byte of it may lie in memory: in its frames, in the message, and in the text that is looked at.
const COPIES: usize = 2;

/// How long a client may take to close after the provider has.
const FAREWELL: Duration = Duration::from_secs(1);

/// Passes the 101 on and copies until one side ends.
pub(super) async fn serve(
    session: &mut Session,
    mut exchange: Box<Exchange>,
    mut lease: Lease,
    answered: Answered,
) -> Next {
    let Answered { head, rest, .. } = answered;
    let extensions = Extensions::read(head.get_all("sec-websocket-extensions"));
    let is_unread = Speaks::of(&exchange.head).is_none() || extensions == Extensions::Unknown;
    let journal = &mut exchange.journal;
    journal.answered(head.status);
    journal.tunnelled();
    switch_head(session, &head, journal, is_unread);
    let out = session.written();
    if session.send(out).await.is_err() {
        journal.cut_off(session.connection_caller.is_over());
        return Next::Close;
    }
    let early = std::mem::take(&mut session.buf);
    let Some(upstream) = lease.conn() else { return Next::Close };
    let core = Rc::clone(&session.core);
    let reading = reading(&core, &exchange, extensions);
    if reading.is_none() {
        exchange.journal.passes_unread(Unread::WebSocket);
    }
    let (from_client_frames, from_server_frames, said) =
        reading.map_or((None, None, None), |(client, server, said)| (Some(client), Some(server), Some(said)));
    let tunnel = Tunnel {
        idle: Deadline::new(),
        idle_limit: Duration::from_millis(exchange.journal.settings.limits.stream_idle_timeout_ms),
        client: session.conn.fd(),
        upstream: upstream.tcp().fd(),
        ended: Cell::new(None),
        sent: Cell::new(0),
        received: Cell::new(0),
        said: RefCell::new(said),
        room: RefCell::new(Room::new(&core, &exchange)),
        unread: Cell::new(0),
        injected: RefCell::new(Vec::new()),
        waker: Cell::new(None),
        between: Cell::new(true),
        closes: Cell::new(false),
    };
    let is_deflated = matches!(extensions, Extensions::Deflate(..));
    let mut answers = from_server_frames.map(|frames| Answers::new(&core, frames, is_deflated));
    let (mut ours, mut theirs) = (session.conn.duplex(), upstream.duplex());
    let mut open_for = Duration::ZERO;
    let split = match (ours.split(), theirs.split()) {
        (Ok((from_client, to_client)), Ok((from_provider, to_provider))) => {
            tunnel.touch();
            let mut listener = from_client_frames.map(|frames| Listener::new(&core, &mut exchange, frames));
            let (requests, answers) = (Reader::of_client(listener.as_mut()), Reader::of_server(answers.as_mut()));
            let sending = tunnel.pump(End::Client, from_client, to_provider, early, requests);
            let receiving = tunnel.pump(End::Provider, from_provider, to_client, rest, answers);
            let open = Instant::now();
            futures_util::join!(sending, receiving);
            open_for = open.elapsed();
            true
        }
        _ => false,
    };
    let journal = &mut exchange.journal;
    // As long as it stands, both sides are waited for.
    journal.moments.awaiting_upstream += open_for;
    if !split {
        journal.failed("internal_error", "no descriptor was left for the two directions of a tunnel");
    }
    tunnel.settle(journal);
    if session.connection_caller.is_over() {
        journal.cut_off(true);
    }
    Next::Close
}

/// What reads the two directions, where somebody here can; `None` for what nobody reads.
fn reading(core: &Rc<Core>, exchange: &Exchange, extensions: Extensions) -> Option<(Frames, Frames, Turns)> {
    let speaks = Speaks::of(&exchange.head).filter(|_| exchange.journal.wants_text())?;
    let (client, server) = extensions.readers()?;
    Some((client, server, Turns::new(speaks, NewTurn::of(core, exchange))))
}

/// The head the client sees: the provider's fields, and the switch itself, which is of this hop.
fn switch_head(session: &mut Session, head: &ResponseHead, journal: &Journal, is_unread: bool) {
    let trace_id = journal.trace_id().to_string();
    let mut writer = HeadWriter::new(session.room(head.wire_bytes() + 256));
    writer.status_line(head.status, head.reason());
    for field in head.end_to_end_fields() {
        if !field.name_starts_with("x-service-") {
            writer.relay(field);
        }
    }
    writer.field("Upgrade", b"websocket");
    writer.field("Connection", b"Upgrade");
    writer.field("X-Service-Trace-Id", trace_id.as_bytes());
    if is_unread {
        writer.field("X-Service-Analysis", Skip::WebSocket.header().as_bytes());
    }
    writer.end();
}

/// Which side ended a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Client,
    Provider,
    /// Nothing passed for too long.
    Idle,
    /// One side took nothing for too long.
    Stalled,
    /// We have, as a message could not go on.
    Refused,
}

pub(super) struct Tunnel {
    idle: Deadline,
    idle_limit: Duration,
    client: RawFd,
    upstream: RawFd,
    ended: Cell<Option<End>>,
    sent: Cell<u64>,
    received: Cell<u64>,
    /// What has been said, where somebody reads it.
    said: RefCell<Option<Turns>>,
    /// Room for the server's messages.
    room: RefCell<Room>,
    /// Messages that passed unread.
    unread: Cell<u64>,
    /// Frames of our own for the client.
    injected: RefCell<Vec<u8>>,
    /// Wakes the direction that writes them.
    waker: Cell<Option<Waker>>,
    /// The next byte of the server's for the client is the first of a frame.
    between: Cell<bool>,
    /// Behind them the socket is closed.
    closes: Cell<bool>,
}

/// What the messages of one direction take of `server.max_body_memory_bytes`.
struct Room {
    permit: Permit,
    taken: usize,
}

impl Room {
    fn new(core: &Core, exchange: &Exchange) -> Self {
        Self { permit: core.process.bodies.of(exchange.journal.ids.tenant_id).permit(), taken: 0 }
    }

    /// So many bytes of a message have come. False where there is no room for them.
    fn holds(&mut self, bytes: usize) -> bool {
        if bytes <= FREE_BYTES {
            if self.taken > 0 {
                self.permit.give_back();
                self.taken = 0;
            }
            return true;
        }
        let wanted = bytes.saturating_mul(COPIES);
        // In steps, so that not every read asks.
        let more = wanted.saturating_sub(self.taken).next_multiple_of(COPIES * FREE_BYTES);
        if wanted <= self.taken {
            return true;
        }
        let has = self.permit.grow(more);
        self.taken += if has { more } else { 0 };
        has
    }
}

/// Reads the client's messages, and holds those back that may be refused.
struct Listener<'e> {
    core: Rc<Core>,
    exchange: &'e mut Exchange,
    frames: Frames,
    /// Whether messages wait here until somebody has looked at them.
    holds: bool,
    /// What cannot be read is refused.
    blocks: bool,
    /// The caller has lists, budgets or rates, under which a message that cannot be read counts.
    counts: bool,
    has_budget: bool,
    room: Room,
    /// Frames of a message that has not ended, or bytes of one frame.
    held: BytesMut,
    /// Where in that the last frame begins.
    frame_at: usize,
    /// The bytes are no frames.
    lost: bool,
}

impl<'e> Listener<'e> {
    fn new(core: &Rc<Core>, exchange: &'e mut Exchange, frames: Frames) -> Self {
        let room = Room::new(core, exchange);
        let core = Rc::clone(core);
        let mut listener = Self {
            core,
            exchange,
            frames,
            holds: false,
            blocks: false,
            counts: false,
            has_budget: false,
            room,
            held: BytesMut::new(),
            frame_at: 0,
            lost: false,
        };
        listener.follow();
        listener
    }

    /// Takes over settings and lists that have changed since the socket was opened; between messages.
    fn follow(&mut self) {
        let settings = self.core.settings();
        let exchange = &mut *self.exchange;
        exchange.allowed =
            self.core.process.parts.policy.access.of(exchange.journal.ids.tenant_id, exchange.key).map(Box::new);
        let has_budget = settings.cost_caps.enabled
            || exchange.allowed.as_ref().is_some_and(|allowed| allowed.key_budgets().is_some());
        let redacts = settings.pii_action != PiiAction::AlertOnly;
        let must_read = has_budget || exchange.allowed.is_some() || exchange.is_lent;
        self.blocks = settings.enforcement.can_block() || redacts || must_read;
        (self.counts, self.has_budget) = (settings.rate_limiting.enabled, has_budget);
        self.holds = self.blocks || self.counts;
    }

    /// Reads what has come, and gives what may go on; `Err` where the socket ends.
    async fn take(&mut self, tunnel: &Tunnel, data: Bytes) -> Result<Bytes, ()> {
        if self.lost {
            return Ok(data);
        }
        let mut out = BytesMut::new();
        let mut rest = &data[..];
        while !rest.is_empty() {
            let before = rest;
            if self.held.is_empty() && self.frames.is_between() {
                self.follow();
            }
            let event = self.frames.next(&mut rest);
            if !self.room.holds(self.held.len() + self.frames.held_bytes()) {
                self.frames.leave_out();
                self.exchange.journal.failed("bodies_saturated", NO_ROOM);
                if self.holds {
                    tunnel.close(TRY_AGAIN_LATER, NO_ROOM);
                    return Err(());
                }
            }
            if self.holds {
                self.held.extend_from_slice(before.get(..before.len() - rest.len()).unwrap_or_default());
            }
            match event {
                Ok(None) if self.held.len() > MESSAGE_BYTES_MAX + HELD_BEYOND_MESSAGE => {
                    self.unread(tunnel, "a message is longer than is read", &mut out)?;
                }
                Ok(None) => {}
                Ok(Some(Event::Piece)) => self.frame_at = self.held.len(),
                // Frames between the pieces of a message go on by themselves.
                Ok(Some(Event::Control)) => {
                    out.extend_from_slice(&self.held.split_off(self.frame_at.min(self.held.len())));
                }
                Ok(Some(Event::Text { compressed })) => self.message(tunnel, compressed, &mut out).await?,
                Ok(Some(Event::Binary | Event::Unread)) => {
                    self.unread(tunnel, "a message is no text, or longer than is read", &mut out)?;
                }
                Err(_) => {
                    self.lost = true;
                    let held = rest;
                    if self.holds {
                        self.held.extend_from_slice(held);
                    }
                    self.unread(tunnel, "what the client sends are no frames", &mut out)?;
                    break;
                }
            }
        }
        self.room.holds(self.held.len() + self.frames.held_bytes());
        Ok(if self.holds { out.freeze() } else { data })
    }

    /// Something cannot be read: it goes on and is counted, or ends the socket.
    fn unread(&mut self, tunnel: &Tunnel, what: &str, out: &mut BytesMut) -> Result<(), ()> {
        tunnel.unread.set(tunnel.unread.get() + 1);
        self.frame_at = 0;
        if self.blocks {
            self.exchange.journal.failed("unreadable_message", what);
            tunnel.close(POLICY_VIOLATION, what);
            return Err(());
        }
        // It may have asked for an answer.
        if self.counts && turn_within_rates(&self.core, self.exchange).is_err() {
            self.exchange
                .journal
                .failed("rate_limit_exceeded", "messages that cannot be read came faster than the rate allows");
            tunnel.close(TRY_AGAIN_LATER, "messages that cannot be read come faster than the rate allows");
            return Err(());
        }
        out.extend_from_slice(&self.held.split());
        Ok(())
    }

    /// A message is whole.
    async fn message(&mut self, tunnel: &Tunnel, compressed: bool, out: &mut BytesMut) -> Result<(), ()> {
        self.frame_at = 0;
        let message = Bytes::from(self.frames.take_message());
        let Some(peek) = Peek::of_client(&message) else {
            return self.unread(
                tunnel,
                "a message is no JSON object, or two readers may understand it differently",
                out,
            );
        };
        if peek.is_sound() {
            self.exchange.journal.passes_unread(Unread::BinaryPart);
            // Sound may be answered without being asked to.
            if self.has_budget && caps::has_room(&self.core, self.exchange).is_err() {
                self.exchange.journal.failed("cost_cap_exceeded", "a budget was used up while the socket stood");
                tunnel.close(POLICY_VIOLATION, "a budget is used up");
                return Err(());
            }
        }
        let (asks, journal, speaks) = {
            let said = tunnel.said.borrow();
            let Some(turns) = said.as_ref() else { return Ok(()) };
            let asks = turns.asks(&message, &peek);
            let journal = match &asks {
                Asks::Turn { body, billable, .. } => Some(turns.journal(body.clone(), *billable)),
                Asks::Says { body, .. } if self.holds => Some(turns.journal(body.clone(), false)),
                _ => None,
            };
            (asks, journal, turns.speaks())
        };
        let mut journal = journal;
        if self.holds
            && let Some(of_turn) = journal.take()
        {
            let (mut of_turn, judged) = judge(&self.core, self.exchange, of_turn, &asks).await;
            if let Err(refusal) = judged {
                let refusal = if of_turn.client_retries() { refusal.for_retrying(false) } else { refusal };
                return self.refuse(tunnel, &peek, &refusal, of_turn, (speaks, compressed));
            }
            if let Asks::Says { .. } = asks {
                // It is recorded with its turn.
                of_turn.forget();
            } else {
                journal = Some(of_turn);
            }
        }
        out.extend_from_slice(&self.held.split());
        if let Some(turns) = tunnel.said.borrow_mut().as_mut() {
            match (asks, journal) {
                (Asks::Says { .. }, _) => turns.said(&peek),
                (Asks::Turn { answered: true, .. }, Some(journal)) => turns.begin(peek.lane, journal),
                // Recorded by itself.
                (Asks::Turn { .. }, Some(mut journal)) => journal.answered(200),
                _ => {}
            }
        }
        Ok(())
    }

    fn refuse(
        &mut self,
        tunnel: &Tunnel,
        peek: &Peek<'_>,
        refusal: &Refusal,
        mut journal: Box<Journal>,
        (speaks, compressed): (Speaks, bool),
    ) -> Result<(), ()> {
        let event = error_event(speaks, (peek.lane, peek.event), refusal, journal.trace_id());
        journal.refused(refusal, event.len() as u64);
        drop(journal);
        self.held.clear();
        tunnel.inject(&text_frame(&event));
        if compressed {
            // What comes behind it is compressed with what it said, which the provider does not have.
            tunnel.close(POLICY_VIOLATION, "a message was refused");
            return Err(());
        }
        Ok(())
    }
}

/// What reads one direction, where somebody does.
enum Reader<'r, 'e> {
    Requests(&'r mut Listener<'e>),
    Answers(&'r mut Answers),
    None,
}

impl<'r, 'e> Reader<'r, 'e> {
    fn of_client(listener: Option<&'r mut Listener<'e>>) -> Self {
        listener.map_or(Self::None, Self::Requests)
    }

    fn of_server(answers: Option<&'r mut Answers>) -> Self {
        answers.map_or(Self::None, Self::Answers)
    }

    /// Reads what has come, and gives what may go on; `Err` where the socket ends.
    async fn take(&mut self, tunnel: &Tunnel, data: Bytes) -> Result<Bytes, ()> {
        match self {
            Self::Requests(listener) => listener.take(tunnel, data).await,
            Self::Answers(answers) => {
                let passed = answers.take(tunnel, data).await;
                tunnel.between.set(answers.is_between_frames());
                passed
            }
            Self::None => Ok(data),
        }
    }

    /// What still goes on once nothing more comes.
    async fn end(&mut self, tunnel: &Tunnel) -> Bytes {
        match self {
            Self::Answers(answers) => answers.end(tunnel).await,
            Self::Requests(_) | Self::None => Bytes::new(),
        }
    }
}

impl Tunnel {
    /// Something has passed.
    fn touch(&self) {
        if self.ended.get().is_none() {
            self.idle.arm(self.idle_limit, On::Stop(self.client));
        }
    }

    /// A frame of our own goes to the client, as soon as none of the server's is on its way.
    fn inject(&self, frame: &[u8]) {
        self.injected.borrow_mut().extend_from_slice(frame);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// We close the socket.
    pub(super) fn close(&self, code: u16, reason: &str) {
        self.closes.set(true);
        self.inject(&close_frame(code, reason));
    }

    /// Waits for a frame of our own that may be written now.
    async fn injection(&self) -> Bytes {
        poll_fn(|context| {
            let between = self.between.get();
            let mut injected = self.injected.borrow_mut();
            if injected.is_empty() || !between {
                self.waker.set(Some(context.waker().clone()));
                return Poll::Pending;
            }
            Poll::Ready(Bytes::from(std::mem::take(&mut *injected)))
        })
        .await
    }

    /// A message passes unread.
    pub(super) fn count_unread(&self) {
        self.unread.set(self.unread.get() + 1);
    }

    /// Whether there is room for so many bytes of a message of the server's.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.room.borrow_mut().holds(bytes)
    }

    /// Whether anything looks at an answer that is under way.
    pub(super) fn has_taps(&self) -> bool {
        self.said.borrow().as_ref().is_some_and(Turns::has_taps)
    }

    /// The server has said this.
    pub(super) fn heard(&self, message: &[u8]) -> Heard {
        let mut said = self.said.borrow_mut();
        said.as_mut().map_or(Heard::Passes { redacts: false }, |turns| turns.answered(message))
    }

    /// The tap of a turn has said what becomes of a message.
    pub(super) fn looked(&self, looked: Looked, halt: Option<Halt>) {
        if let Some(turns) = self.said.borrow_mut().as_mut() {
            turns.looked(looked, halt);
        }
    }

    /// The next turn whose tap may hold something, as the socket ends.
    pub(super) fn next_tap(&self) -> Option<Looked> {
        self.said.borrow_mut().as_mut()?.next_tap()
    }

    /// What waited in a tap has gone on.
    pub(super) fn released(&self, looked: Looked, halt: Option<Halt>) {
        if let Some(turns) = self.said.borrow_mut().as_mut() {
            turns.released(looked, halt);
        }
    }

    /// Copies from one side, `source`, to the other until one of them ends.
    async fn pump(
        &self,
        source: End,
        mut from: ReadHalf<'_, '_>,
        mut to: WriteHalf<'_, '_>,
        mut buf: BytesMut,
        mut reader: Reader<'_, '_>,
    ) {
        let stall = Deadline::new();
        let count = if source == End::Client { &self.sent } else { &self.received };
        let end = 'copy: loop {
            if buf.has_remaining() {
                let mut data = buf.split().freeze();
                count.set(count.get() + data.len() as u64);
                match reader.take(self, data).await {
                    Ok(passed) => data = passed,
                    Err(()) => {
                        if source == End::Provider {
                            // No other direction says why.
                            let why = Bytes::from(std::mem::take(&mut *self.injected.borrow_mut()));
                            self.write(source, &mut to, why, &stall).await;
                            to.finish().await;
                        }
                        break End::Refused;
                    }
                }
                if let Some(end) = self.write(source, &mut to, data, &stall).await {
                    break end;
                }
                self.touch();
            }
            buf.reserve(READ_BYTES_STREAM);
            let mut read = pin!(from.read(buf));
            let (got, filled) = loop {
                if source == End::Client {
                    break read.await;
                }
                // A read under way is never dropped: it goes on behind what is written meanwhile.
                match select(read.as_mut(), pin!(self.injection())).await {
                    Either::Left((read, _)) => break read,
                    Either::Right((frame, _)) => {
                        let failed = self.write(source, &mut to, frame, &stall).await;
                        if self.closes.get() || failed.is_some() {
                            to.finish().await;
                            self.ended.set(self.ended.get().or(Some(End::Refused)));
                            rt::stop(self.upstream);
                            // The read ends by itself now.
                            let _ended = read.as_mut().await;
                            break 'copy End::Refused;
                        }
                    }
                }
            };
            buf = filled;
            if !matches!(got, Ok(count) if count > 0) {
                let rest = reader.end(self).await;
                self.write(source, &mut to, rest, &stall).await;
                break if self.idle.fired() { End::Idle } else { source };
            }
        };
        let first = self.ended.replace(self.ended.get().or(Some(end))).is_none();
        match (source, end) {
            // The client may still have something to read; its end is awaited for a moment.
            (End::Provider, End::Provider) => {
                to.finish().await;
                if first {
                    self.idle.arm(FAREWELL, On::Stop(self.client));
                }
            }
            // The other direction says why, and ends.
            (End::Client, End::Refused) => {}
            _ => {
                rt::stop(self.upstream);
                rt::stop(self.client);
            }
        }
    }

    /// Writes to one side; what ends the tunnel, if that does.
    async fn write(&self, source: End, to: &mut WriteHalf<'_, '_>, data: Bytes, stall: &Deadline) -> Option<End> {
        if data.is_empty() {
            return None;
        }
        stall.arm(WRITE_STALL_LIMIT, On::Stop(to.fd()));
        let written = to.write_all(data).await;
        if stall.disarm() {
            return Some(End::Stalled);
        }
        written.is_err().then_some(if source == End::Client { End::Provider } else { End::Client })
    }

    /// Writes down what became of it.
    fn settle(&self, journal: &mut Journal) {
        journal.tag("websocket_bytes_sent", self.sent.get().to_string());
        journal.tag("websocket_bytes_received", self.received.get().to_string());
        let (by, failure) = match self.ended.get() {
            Some(End::Client) | None => ("the client closed", None),
            Some(End::Provider) => ("the provider closed", None),
            Some(End::Idle) => {
                ("nothing passed in either direction within `stream_idle_timeout_ms`", Some("idle_timeout"))
            }
            Some(End::Stalled) => ("one side took no bytes for too long", Some("idle_timeout")),
            Some(End::Refused) => ("the gateway closed, as a message could not go on", None),
        };
        if self.unread.get() > 0 {
            journal.passes_unread(Unread::WebSocket);
            journal.tag("websocket_messages_unread", self.unread.get().to_string());
        }
        if let Some(turns) = self.said.borrow_mut().as_mut() {
            turns.end(by);
        }
        journal.sent(self.received.get());
        journal.event("tunnel_ended", by);
        if let Some(error_type) = failure {
            journal.failed(error_type, by);
        }
    }
}
