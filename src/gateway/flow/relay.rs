//! The answer on its way back: bytes leave for the client first, then the copy is looked at.

use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use weir_config::vocab::Unread;

use super::exchange::{Exchange, Stopped};
use super::operations;
use super::rewrite_request::{ANALYSIS_HEADER, Marks, REDACTION_HEADER};
use super::tapped::{self, Halt, Piece, Through};
use super::unread_answer;
use super::unsent;
use super::upstream::{Answered, StopUpstream, WaitingClient};
use crate::client::own_answer::End;
use crate::client::page;
use crate::client::session::{Next, Session};
use crate::client::watch::ClientWatch;
use crate::exchange::Refusal;
use crate::forward::Lease;
use crate::inspect::array_stream;
use crate::limits::{JOIN_BYTES_MAX, READ_BYTES_ANSWER, READ_BYTES_FRAMES, READ_BYTES_STREAM};
use crate::observe::{AnswerKind, AnswerReader};
use crate::output::{self, Observer};
use crate::rt::{self, Deadline, On};
use crate::settle::journal::Journal;
use crate::wire::{self, BodyScanner, HeadWriter, Ranges, ResponseBody, ResponseHead, Version};

/// How long the provider may take to end an answer whose last message a client has seen that has left since.
const TAIL_LIMIT: Duration = Duration::from_secs(1);

/// How the body is framed towards the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// As the provider framed it.
    Same,
    /// The provider ends its body by closing; a 1.1 client gets chunks.
    Chunks,
    /// A 1.0 client gets the bare content, ended by closing.
    Bare,
}

/// Relays head and body of the answer, records what was seen, and gives the connection back if it can be used again.
pub(super) async fn answer(
    client: WaitingClient<'_>,
    mut exchange: Box<Exchange>,
    mut lease: Lease,
    answered: Answered,
    marks: &Marks,
) -> Result<Next, Stopped> {
    let WaitingClient { session, mut watch } = client;
    let Answered { head, rest, unsent: missing } = answered;
    let core = Rc::clone(&session.core);
    let kind = AnswerKind::from_content_type(head.get("content-type"));
    let tapped = tapped::tap(&core, &mut exchange, &head, kind, &rest);
    let framing = framing(&head, exchange.head.version, tapped.is_some());
    let keep = exchange.head.keep_alive
        && framing != Framing::Bare
        && (!session.body_unread || missing.is_some())
        && !core.process.is_draining();
    begin_record(&mut exchange, &head, kind);
    operations::begin(&mut exchange, &head, kind.is_stream());
    let decoded = tapped.as_ref().is_some_and(|tapped| tapped.is_decoded());
    let unread = unread_answer::from_the_start(&exchange.journal, &head, kind, &rest);
    response_head(session, &exchange.journal, &head, &Shape { framing, keep, decoded, unread, marks });
    let observer = match &tapped {
        None => output::observer(&core, &exchange.journal, head.status, kind),
        Some(_) => None,
    };
    let (body, reusable) = (head.body, head.keep_alive);
    // It shares the read buffer's memory, which a stream uses again from its beginning for every frame.
    drop(head);
    let mut relay = Relay {
        head_is_due: true,
        says_unredacted: marks.iter().any(|(name, _)| *name == REDACTION_HEADER),
        is_stream: kind.is_stream(),
        reads_frames: false,
        client_gone: false,
        session,
        scanner: BodyScanner::response(body),
        framing,
        ranges: Ranges::default(),
        tapped,
        observer,
        idle_limit: Duration::from_millis(exchange.settings().limits.stream_idle_timeout_ms),
    };
    let ended = relay.run(&mut lease, rest, &mut watch, &mut exchange.journal).await;
    let keep = keep && !relay.client_gone;
    let complete = ended.is_cut() && relay.has_all(&mut exchange.journal);
    note_end(&exchange, &ended, complete);
    let tapped = relay.tapped.take();
    // While a tap holds all of an answer back, its client has been told nothing.
    let untold = relay.head_is_due && tapped.is_some();
    let halt = if let Body::Halted(halt) = &ended { Some(*halt) } else { None };
    let replaced = tapped.and_then(|tapped| tapped::record(&core, &mut exchange.journal, tapped.tapped(), halt));
    if let Some(refusal) = replaced.or_else(|| ended.refusal().filter(|_| untold)) {
        // The provider has answered and bills it, whatever the client is told.
        exchange.journal.left_unanswered();
        return Err(Stopped { exchange, why: refusal.into() });
    }
    if kind == AnswerKind::Json && array_stream(exchange.head.path()) {
        // Kept whole until its end like any other document.
        exchange.journal.streams();
    }
    let in_order = matches!(ended, Body::Complete { .. } | Body::Halted(Halt::Ended));
    if framing == Framing::Bare && !in_order {
        // Only the end of the connection ends this body: an end in order would make the part look whole.
        session.conn.reset();
    }
    let (clean, buf) = match ended {
        Body::Complete { clean, buf } => (clean, buf),
        // What the provider still has to say goes with its connection.
        Body::Halted(Halt::Ended) => (false, BytesMut::new()),
        ended => {
            record_cut(&mut exchange.journal, ended, complete, session);
            return Ok(Next::Cut);
        }
    };
    if clean && reusable && !session.body_unread {
        lease.give_back(buf);
    } else {
        drop(lease);
    }
    if missing.is_some() || session.body_unread {
        // What is waited for from here on is no part of it.
        drop(exchange);
    }
    if let Some(rest) = missing {
        Box::pin(unsent::finish(session, rest)).await;
    }
    let end = match (session.body_unread, keep) {
        (true, _) => End::LastUnread,
        (false, true) => End::Whole,
        (false, false) => End::Last,
    };
    Ok(session.end(end).await)
}

/// Tells the member's health whether its answer came to an end.
fn note_end(exchange: &Exchange, ended: &Body, complete: bool) {
    let upstreams = &exchange.journal.settings.local_upstreams;
    if upstreams.is_alone {
        return;
    }
    let health = &upstreams.member(exchange.member).health;
    match ended {
        Body::Complete { .. } => health.completed(),
        Body::UpstreamCut(_) | Body::UpstreamIdle(_) if !complete => health.broke_off(rt::now_ms(), &upstreams.health),
        _ => {}
    }
}

/// The fields in which Bedrock says what an invoked model read and wrote, and what it read from and wrote to a cache.
const COUNTED: [&str; 4] = [
    "x-amzn-bedrock-input-token-count",
    "x-amzn-bedrock-output-token-count",
    "x-amzn-bedrock-cache-read-input-token-count",
    "x-amzn-bedrock-cache-write-input-token-count",
];

/// Notes that the answer has begun.
fn begin_record(exchange: &mut Exchange, head: &ResponseHead, kind: AnswerKind) {
    let journal = &mut exchange.journal;
    journal.answered(head.status);
    if kind.is_stream() {
        journal.streams();
    }
    if journal.wants_text() {
        let text_max = usize::try_from(journal.settings.limits.max_response_size_bytes).unwrap_or(usize::MAX);
        let coding = head.get("content-encoding");
        let mut reader = AnswerReader::new(kind, coding, text_max);
        if head.get(COUNTED[0]).is_some() {
            // What Bedrock counts where the model's own answer counts nothing.
            reader.counted(COUNTED.map(|name| head.get(name)));
        }
        journal.read_answer(Box::new(reader));
    }
}

/// Notes that the client has a part of the answer at most. What it has must not look whole, even where nothing is missing from it
/// but the end of its framing.
fn record_cut(journal: &mut Journal, ended: Body, complete: bool, session: &Session) {
    let (error_type, what) = match ended {
        Body::Complete { .. } | Body::Halted(_) => return,
        Body::ClientLeft => {
            // A client that has seen the last message may go.
            if !complete {
                journal.cut_off(session.connection_caller.is_over());
            }
            return;
        }
        Body::UpstreamCut(what) => ("upstream_protocol_error", what),
        Body::UpstreamIdle(what) => ("upstream_timeout", what),
    };
    if complete {
        journal.event(
            "response_cut",
            "the provider broke off after its last message; the client's connection was closed too",
        );
    } else {
        journal.failed(error_type, &what);
        journal.event("response_cut", "the provider's answer ended early; the client's connection was closed too");
    }
}

/// With a tap nobody knows how long the body will be.
fn framing(head: &ResponseHead, client: Version, tapped: bool) -> Framing {
    match (head.body, client) {
        (ResponseBody::Length(_) | ResponseBody::Chunked, Version::Http11) if tapped => Framing::Chunks,
        (ResponseBody::Length(_), Version::Http10) if tapped => Framing::Bare,
        (ResponseBody::Empty | ResponseBody::Length(_), _) => Framing::Same,
        (ResponseBody::Chunked, Version::Http11) => Framing::Same,
        (ResponseBody::UntilClose, Version::Http11) => Framing::Chunks,
        (ResponseBody::Chunked | ResponseBody::UntilClose, Version::Http10) => Framing::Bare,
    }
}

/// What the client's head says beside what the provider's says.
struct Shape<'a> {
    framing: Framing,
    /// The connection can be used again.
    keep: bool,
    /// The content coding has been undone.
    decoded: bool,
    /// Nobody will read it, and why.
    unread: Option<Unread>,
    /// Our own fields.
    marks: &'a Marks,
}

/// The head the client sees: the provider's fields in their order and spelling, one framing field, our marks. Written
/// into the session's buffer.
fn response_head(session: &mut Session, journal: &Journal, head: &ResponseHead, shape: &Shape<'_>) {
    let Shape { framing, keep, decoded, unread, marks } = *shape;
    let page = session.page.clone();
    let mut writer = HeadWriter::new(session.room(head.wire_bytes() + 256 + READ_BYTES_STREAM / 4));
    writer.status_line(head.status, head.reason());
    let mut dated = false;
    for field in head.fields() {
        if field.is("content-length") {
            if let Some(length) = head.declared_length.filter(|_| framing == Framing::Same) {
                writer.relay_with_number(field, length);
            }
        } else if field.is("transfer-encoding") {
            if head.body == ResponseBody::Chunked && framing == Framing::Same {
                writer.chunked();
            }
        } else if decoded && field.is("content-encoding") {
            // It has been undone.
        } else if page.is_some() && field.name_starts_with("access-control-") {
            // What its pages may read is ours to say, once.
        } else if !field.name_starts_with("x-service-") && !field.is_hop_by_hop() {
            dated |= field.is("date");
            writer.relay(field);
        }
    }
    if framing == Framing::Chunks {
        writer.chunked();
    }
    if !dated {
        writer.field("Date", crate::client::date::http_date().as_bytes());
    }
    let mut id = [0; uuid::fmt::Hyphenated::LENGTH];
    writer.field("X-Service-Trace-Id", journal.trace_id().uuid().hyphenated().encode_lower(&mut id).as_bytes());
    page::let_read(&mut writer, page.as_ref());
    for (name, value) in marks {
        writer.field(name, value);
    }
    // The request's own word may stand beside it: two fields of one name are a list.
    let told = |word: &str| marks.iter().any(|(name, value)| *name == ANALYSIS_HEADER && value == word.as_bytes());
    if let Some(word) = unread.map(Unread::header).filter(|word| !told(word)) {
        writer.field(ANALYSIS_HEADER, word.as_bytes());
    }
    if journal.settings.server.timing_header {
        let overhead = journal.moments.overhead(journal.moments.started.elapsed());
        let milliseconds = overhead.as_micros() as f64 / 1_000.0;
        writer.field("Server-Timing", format!("weir;dur={milliseconds:.3}").as_bytes());
    }
    if !keep {
        writer.connection_close();
    }
    writer.end();
}

/// How the body ended.
enum Body {
    Complete {
        /// Nothing unasked followed it.
        clean: bool,
        /// The read buffer.
        buf: BytesMut,
    },
    ClientLeft,
    UpstreamCut(String),
    UpstreamIdle(String),
    /// A tap has ended it.
    Halted(Halt),
}

impl Body {
    /// Whether it ended where neither the provider nor a tap had ended it.
    const fn is_cut(&self) -> bool {
        matches!(self, Self::ClientLeft | Self::UpstreamCut(_) | Self::UpstreamIdle(_))
    }

    /// What is said to a client that has nothing of an answer whose provider broke it off.
    fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::UpstreamCut(what) => Some(Refusal::upstream_protocol(what)),
            Self::UpstreamIdle(what) => Some(Refusal::new(504, "upstream_timeout", what)),
            Self::Complete { .. } | Self::ClientLeft | Self::Halted(_) => None,
        }
    }
}

struct Relay<'a> {
    session: &'a mut Session,
    scanner: BodyScanner,
    framing: Framing,
    ranges: Ranges,
    /// What looks at it before the client gets it.
    tapped: Option<Box<Through>>,
    /// What looks at it behind the client's bytes.
    observer: Option<Box<Observer>>,
    /// The head stands in the session's buffer and goes out with the first body bytes.
    head_is_due: bool,
    /// The head says already that something is not redacted.
    says_unredacted: bool,
    /// It takes its time, and memory that it does not need is let go.
    is_stream: bool,
    /// The read buffer is that of a stream.
    reads_frames: bool,
    /// The client has left after the last message; what is still to come is taken for the connection's sake.
    client_gone: bool,
    idle_limit: Duration,
}

impl Relay<'_> {
    async fn run(
        &mut self,
        lease: &mut Lease,
        mut buf: BytesMut,
        watch: &mut ClientWatch,
        journal: &mut Journal,
    ) -> Body {
        let deadline = Deadline::new();
        let mut tail_ends: Option<Instant> = None;
        let mut room = READ_BYTES_STREAM;
        loop {
            let progress = match self.step(&mut buf, journal).await {
                Ok(progress) => progress,
                Err(ended) => return ended,
            };
            if progress {
                return Body::Complete { clean: buf.is_empty(), buf };
            }
            let Some(conn) = lease.conn() else { return Body::UpstreamCut("its connection is gone".to_owned()) };
            // A frame has been written by now: the next one takes the same memory, which is in the cache.
            if self.is_stream && buf.is_empty() && !std::mem::replace(&mut self.reads_frames, true) {
                buf = BytesMut::with_capacity(READ_BYTES_FRAMES);
            }
            let kept = if self.is_stream { READ_BYTES_FRAMES } else { room / 2 };
            let again = buf.is_empty() && buf.try_reclaim(kept);
            if !again && buf.capacity() - buf.len() < room / 4 {
                buf.reserve(room);
            }
            let fd = conn.tcp().fd();
            let stop = StopUpstream(fd);
            let waiting = Instant::now();
            if self.client_gone {
                tail_ends.get_or_insert(waiting + TAIL_LIMIT);
            }
            let limit = tail_ends.map_or(self.idle_limit, |end| end.saturating_duration_since(waiting));
            deadline.arm(limit, On::Stop(fd));
            // Nothing is paid for any more once the answer is complete: its end keeps the provider's connection.
            let on_gone = || if self.has_all(journal) { deadline.arm(TAIL_LIMIT, On::Stop(fd)) } else { stop.stop() };
            let (got, filled) = watch.during(&self.session.conn, on_gone, pin!(conn.read(buf))).await;
            journal.moments.awaiting_upstream += waiting.elapsed();
            buf = filled;
            if !self.is_stream && buf.capacity() == buf.len() {
                // More was there than there was room for.
                room = READ_BYTES_ANSWER;
            }
            let idle = deadline.disarm();
            if watch.client_left() {
                if idle || !self.has_all(journal) {
                    return Body::ClientLeft;
                }
                tail_ends.get_or_insert_with(|| Instant::now() + TAIL_LIMIT);
            }
            if self.client_gone && idle {
                return Body::ClientLeft;
            }
            if idle {
                // Whatever came in the same moment: the next end of the stream would be ours, not the provider's.
                let limit = self.idle_limit.as_millis();
                return Body::UpstreamIdle(format!(
                    "the provider sent nothing for {limit} ms in the middle of its answer (`stream_idle_timeout_ms`)"
                ));
            }
            match got {
                Ok(0) => return self.end_of_stream().await,
                Ok(_) => {}
                Err(error) => return Body::UpstreamCut(format!("the provider's connection broke: {error}")),
            }
        }
    }

    /// Whether the client has the last message: it has been relayed, and no tap holds anything back.
    fn has_all(&self, journal: &mut Journal) -> bool {
        journal.answer_is_complete() && !self.tapped.as_ref().is_some_and(|tapped| tapped.holds())
    }

    /// Relays what is in `buf`; true when the body is complete.
    async fn step(&mut self, buf: &mut BytesMut, journal: &mut Journal) -> Result<bool, Body> {
        self.ranges.clear();
        let progress = self
            .scanner
            .scan(buf, &mut self.ranges)
            .map_err(|fault| Body::UpstreamCut(format!("the provider broke its framing: {}", fault.message())))?;
        let input = buf.split_to(progress.consumed).freeze();
        let done = self.scanner.is_done();
        let Piece { bytes: piece, halt, fault } = match &mut self.tapped {
            None => self.piece(&input),
            Some(tapped) => {
                let chunked = self.framing == Framing::Chunks;
                Box::pin(tapped.take(&self.ranges.content(&input), done, chunked)).await
            }
        };
        if journal.wants_text() && journal.moments.first_byte.is_none() && !self.ranges.data.is_empty() {
            journal.moments.first_byte = Some(Instant::now());
        }
        if journal.maker.is_some() {
            // Before its client can ask for what was made.
            let pieces = self.ranges.data.iter().map(|range| input.get(range.clone()).unwrap_or_default());
            journal.note_made(pieces);
        }
        let writing = Instant::now();
        // Nothing goes, the head included, while a tap holds all of it.
        let waits = self.tapped.is_some() && piece.is_empty() && (!done || fault.is_some());
        if !self.client_gone
            && !waits
            && halt != Some(Halt::Replaced)
            && let Err(left) = self.write(piece).await
        {
            if !self.has_all(journal) {
                return Err(left);
            }
            self.client_gone = true;
        }
        journal.moments.awaiting_client += writing.elapsed();
        // Only now, with the bytes on their way, is the copy looked at.
        let content = self.ranges.data.iter().map(std::ops::Range::len).sum();
        let pieces = self.ranges.data.iter().map(|range| input.get(range.clone()).unwrap_or_default());
        journal.relayed(content, pieces);
        if let Some(observer) = &mut self.observer {
            observer.look(journal);
        }
        match (halt, fault) {
            (Some(halt), _) => Err(Body::Halted(halt)),
            (None, Some(fault)) => Err(Body::UpstreamCut(format!("the provider broke its content coding: {fault}"))),
            (None, None) => Ok(done),
        }
    }

    /// What goes to the client of `input`, the next bytes of the provider, where no tap looks at them.
    fn piece(&self, input: &Bytes) -> Piece {
        let bytes = match self.framing {
            Framing::Same => self.ranges.relayed(input),
            Framing::Bare => self.ranges.content(input),
            Framing::Chunks => chunks(&self.ranges.content(input)),
        };
        Piece { bytes, halt: None, fault: None }
    }

    async fn write(&mut self, piece: Bytes) -> Result<(), Body> {
        let sent = if std::mem::take(&mut self.head_is_due) {
            self.say_unredacted();
            let joined = piece.len() <= JOIN_BYTES_MAX;
            if joined {
                self.session.out.extend_from_slice(&piece);
            }
            let first = self.session.written();
            if self.is_stream {
                // Nothing more is written into it, as long as the stream may last.
                self.session.out = BytesMut::new();
            }
            match self.session.send(first).await {
                Ok(()) if !joined => self.session.send(piece).await,
                sent => sent,
            }
        } else if piece.is_empty() {
            Ok(())
        } else {
            self.session.send(piece).await
        };
        sent.map_err(|_| Body::ClientLeft)
    }

    /// Says in the head, which has not gone yet, what is known by now of what was not redacted.
    fn say_unredacted(&mut self) {
        const END: &[u8] = b"\r\n";
        let unredacted = self.tapped.as_ref().is_some_and(|tapped| tapped.is_unredacted());
        let out = &mut self.session.out;
        if unredacted && !self.says_unredacted && out.ends_with(END) {
            out.truncate(out.len() - END.len());
            out.extend_from_slice(format!("{REDACTION_HEADER}: incomplete\r\n\r\n").as_bytes());
        }
    }

    /// The provider has closed: the end of the body, or a cut.
    async fn end_of_stream(&mut self) -> Body {
        if let Err(fault) = self.scanner.finish() {
            return Body::UpstreamCut(format!(
                "the provider closed before its answer was complete: {}",
                fault.message()
            ));
        }
        if let Some(tapped) = &mut self.tapped {
            let chunked = self.framing == Framing::Chunks;
            let Piece { bytes: piece, halt, fault } = Box::pin(tapped.take(&[], true, chunked)).await;
            if let Some(fault) = fault {
                return Body::UpstreamCut(format!("the provider broke its content coding: {fault}"));
            }
            if halt != Some(Halt::Replaced)
                && let Err(left) = self.write(piece).await
            {
                return left;
            }
            return halt.map_or(Body::Complete { clean: false, buf: BytesMut::new() }, Body::Halted);
        }
        if self.framing == Framing::Chunks && self.session.send(Bytes::from_static(wire::LAST_CHUNK)).await.is_err() {
            return Body::ClientLeft;
        }
        Body::Complete { clean: false, buf: BytesMut::new() }
    }
}

fn chunks(content: &Bytes) -> Bytes {
    let mut out = BytesMut::with_capacity(content.len() + 24);
    wire::data_chunk(&mut out, content);
    out.freeze()
}
