//! The answer on its way back: bytes leave for the client first, then the copy is looked at.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use weir_config::Settings;

use super::complete::survive;
use super::ledger::Ledger;
use super::session::Session;
use super::unsent;
use super::upload::Ranges;
use super::upstream::{Answered, StopUpstream};
use super::watch::ClientWatch;
use super::{JOIN_BYTES_MAX, READ_BYTES_STREAM, page};
use crate::exchange::Parsed;
use crate::forward::Lease;
use crate::inspect::array_stream;
use crate::observe::{AnswerKind, AnswerReader};
use crate::rt::{Deadline, On};
use crate::wire::{self, BodyScanner, HeadWriter, ResponseBody, ResponseHead, Version};

/// How long the provider may take to end an answer whose last message a client has seen that has left since.
const TAIL_LIMIT: Duration = Duration::from_secs(1);

/// How an exchange ended on the client's side.
pub(crate) enum Ended {
    /// The client has the whole answer.
    Complete {
        /// Whether its connection can go on.
        keep: bool,
    },
    /// It has a part of it at most: its connection must end, so that the part cannot look whole.
    Cut,
}

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
#[allow(clippy::too_many_arguments)] // The end of the journey: everything meets here once.
pub(crate) async fn answer(
    session: &mut Session,
    settings: &Settings,
    parsed: &Parsed,
    mut lease: Lease,
    answered: Answered,
    marks: &[(&'static str, Bytes)],
    watch: &mut ClientWatch,
    ledger: &mut Ledger,
) -> Ended {
    let Answered { head, rest, unsent: missing } = answered;
    let framing = framing(&head, parsed.head.version);
    let keep = parsed.head.keep_alive
        && framing != Framing::Bare
        && (!session.body_unread || missing.is_some())
        && !session.core.process.is_draining();
    ledger.answered(head.status);
    let kind = AnswerKind::from_content_type(head.get("content-type"));
    if kind.is_stream() {
        ledger.streams();
    }
    if ledger.wants_text() {
        let text_max = usize::try_from(settings.limits.max_response_size_bytes).unwrap_or(usize::MAX);
        ledger.answer = Some(AnswerReader::new(parsed.dialect(), kind, head.get("content-encoding"), text_max));
    }
    response_head(session, settings, &head, framing, keep, marks, ledger);
    let (body, reusable) = (head.body, head.keep_alive);
    // It shares the read buffer's memory, which a stream uses again from its beginning for every frame.
    drop(head);
    let mut relay = Relay {
        head_is_due: true,
        client_gone: false,
        session,
        scanner: BodyScanner::response(body),
        framing,
        ranges: Ranges::default(),
        idle_limit: Duration::from_millis(settings.limits.stream_idle_timeout_ms),
    };
    let ended = relay.run(&mut lease, rest, watch, ledger).await;
    let keep = keep && !relay.client_gone;
    if kind == AnswerKind::Json && array_stream(parsed.head.path()) {
        // Kept whole until its end like any other document.
        ledger.streams();
    }
    if framing == Framing::Bare && !matches!(ended, Body::Complete { .. }) {
        // Only the end of the connection ends this body: an end in order would make the part look whole.
        session.conn.reset();
    }
    match ended {
        Body::Complete { clean, buf } => {
            if clean && reusable && !session.body_unread {
                lease.give_back(buf);
            } else {
                drop(lease);
            }
            if let Some(rest) = missing {
                ledger.settle();
                unsent::finish(session, rest).await;
            }
            let keep = keep && !session.body_unread;
            if session.body_unread {
                ledger.settle();
                session.linger().await;
            }
            Ended::Complete { keep }
        }
        Body::ClientLeft => {
            // A client that has seen the last message may go.
            if !is_complete(ledger) {
                ledger.cut_off(session.tenure.is_over());
            }
            Ended::Cut
        }
        Body::UpstreamCut(what) => cut(ledger, "upstream_protocol_error", &what),
        Body::UpstreamIdle(what) => cut(ledger, "upstream_timeout", &what),
    }
}

/// The provider has not ended its answer as it should. What the client has must not look whole, even where nothing is missing
/// from it but the end of its framing.
fn cut(ledger: &mut Ledger, error_type: &'static str, what: &str) -> Ended {
    if is_complete(ledger) {
        ledger.event(
            "response_cut",
            "the provider broke off after its last message; the client's connection was closed too",
        );
    } else {
        ledger.failed(error_type, what);
        ledger.event("response_cut", "the provider's answer ended early; the client's connection was closed too");
    }
    Ended::Cut
}

/// Whether the last message of a stream has been relayed.
fn is_complete(ledger: &Ledger) -> bool {
    ledger.answer.as_ref().is_some_and(AnswerReader::is_complete)
}

fn framing(head: &ResponseHead, client: Version) -> Framing {
    match (head.body, client) {
        (ResponseBody::Empty | ResponseBody::Length(_), _) => Framing::Same,
        (ResponseBody::Chunked, Version::Http11) => Framing::Same,
        (ResponseBody::UntilClose, Version::Http11) => Framing::Chunks,
        (ResponseBody::Chunked | ResponseBody::UntilClose, Version::Http10) => Framing::Bare,
    }
}

/// The head the client sees: the provider's fields in their order and spelling, one framing field, our marks. Written
/// into the session's buffer.
fn response_head(
    session: &mut Session,
    settings: &Settings,
    head: &ResponseHead,
    framing: Framing,
    keep: bool,
    marks: &[(&'static str, Bytes)],
    ledger: &Ledger,
) {
    let page = session.page.clone();
    let mut writer = HeadWriter::new(session.room(head.wire_bytes() + 256 + READ_BYTES_STREAM / 4));
    writer.status_line(head.status, head.reason());
    let mut dated = false;
    for field in head.fields() {
        if field.is("content-length") {
            if let Some(length) = head.declared_length {
                writer.number(field.name(), length);
            }
        } else if field.is("transfer-encoding") {
            if head.body == ResponseBody::Chunked && framing == Framing::Same {
                writer.chunked();
            }
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
        writer.field("Date", super::date::http_date().as_bytes());
    }
    let mut id = [0; uuid::fmt::Hyphenated::LENGTH];
    writer.field("X-Service-Trace-Id", ledger.trace_id.uuid().hyphenated().encode_lower(&mut id).as_bytes());
    page::let_read(&mut writer, page.as_ref());
    for (name, value) in marks {
        writer.field(name, value);
    }
    if settings.server.timing_header {
        let overhead = ledger.moments.overhead(ledger.moments.started.elapsed());
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
}

struct Relay<'a> {
    session: &'a mut Session,
    scanner: BodyScanner,
    framing: Framing,
    ranges: Ranges,
    /// The head stands in the session's buffer and goes out with the first body bytes.
    head_is_due: bool,
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
        ledger: &mut Ledger,
    ) -> Body {
        let deadline = Deadline::new();
        let mut tail_ends: Option<Instant> = None;
        loop {
            let progress = match self.step(&mut buf, ledger).await {
                Ok(progress) => progress,
                Err(ended) => return ended,
            };
            if progress {
                return Body::Complete { clean: buf.is_empty(), buf };
            }
            let Some(conn) = lease.conn() else { return Body::UpstreamCut("its connection is gone".to_owned()) };
            // A frame has been written by now: the next one takes the same memory, which is in the cache.
            let again = buf.is_empty() && buf.try_reclaim(READ_BYTES_STREAM / 2);
            if !again && buf.capacity() - buf.len() < READ_BYTES_STREAM / 4 {
                buf.reserve(READ_BYTES_STREAM);
            }
            let fd = conn.tcp().fd();
            let stop = StopUpstream(fd);
            let waiting = Instant::now();
            let complete = is_complete(ledger);
            if self.client_gone {
                tail_ends.get_or_insert(waiting + TAIL_LIMIT);
            }
            let limit = tail_ends.map_or(self.idle_limit, |end| end.saturating_duration_since(waiting));
            deadline.arm(limit, On::Stop(fd));
            // Nothing is paid for any more once the answer is complete: its end keeps the provider's connection.
            let on_gone = || if complete { deadline.arm(TAIL_LIMIT, On::Stop(fd)) } else { stop.stop() };
            let (got, filled) = watch.during(&self.session.conn, on_gone, conn.read(buf)).await;
            ledger.moments.awaiting_upstream += waiting.elapsed();
            buf = filled;
            let idle = deadline.disarm();
            if watch.client_left() {
                if !complete || idle {
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

    /// Relays what is in `buf`; true when the body is complete.
    async fn step(&mut self, buf: &mut BytesMut, ledger: &mut Ledger) -> Result<bool, Body> {
        self.ranges.clear();
        let progress = self
            .scanner
            .scan(buf, &mut self.ranges)
            .map_err(|fault| Body::UpstreamCut(format!("the provider broke its framing: {}", fault.message())))?;
        let input = buf.split_to(progress.consumed).freeze();
        let done = self.scanner.is_done();
        let piece = match self.framing {
            Framing::Same => self.ranges.relayed(&input),
            Framing::Bare => self.ranges.content(&input),
            Framing::Chunks => chunks(&self.ranges.content(&input)),
        };
        if ledger.wants_text() && ledger.moments.first_byte.is_none() && !self.ranges.data.is_empty() {
            ledger.moments.first_byte = Some(Instant::now());
        }
        let writing = Instant::now();
        if !self.client_gone
            && let Err(left) = self.write(piece).await
        {
            if !is_complete(ledger) {
                return Err(left);
            }
            self.client_gone = true;
        }
        ledger.moments.awaiting_client += writing.elapsed();
        // Only now, with the bytes on their way, is the copy looked at.
        let content: usize = self.ranges.data.iter().map(std::ops::Range::len).sum();
        ledger.told.bytes += content as u64;
        if content > 0
            && let Some(mut reader) = ledger.answer.take()
        {
            if !reader.keeps_less() && !ledger.make_room(content) {
                reader.keep_less();
            }
            let before = reader.decoded_bytes();
            let read = survive(|| {
                for range in &self.ranges.data {
                    reader.feed(input.get(range.clone()).unwrap_or_default());
                }
                reader
            });
            ledger.answer_lost |= read.is_none();
            ledger.answer = read.map(|mut reader| {
                // A compressed answer is kept as the many times more that it is.
                let more = reader.decoded_bytes().saturating_sub(before + content);
                if more > 0 && !reader.keeps_less() && !ledger.make_room(more) {
                    reader.keep_less();
                }
                reader
            });
        }
        Ok(done)
    }

    async fn write(&mut self, piece: Bytes) -> Result<(), Body> {
        let sent = if std::mem::take(&mut self.head_is_due) {
            let joined = piece.len() <= JOIN_BYTES_MAX;
            if joined {
                self.session.out.extend_from_slice(&piece);
            }
            let first = self.session.written();
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

    /// The provider has closed: the end of the body, or a cut.
    async fn end_of_stream(&mut self) -> Body {
        if let Err(fault) = self.scanner.finish() {
            return Body::UpstreamCut(format!(
                "the provider closed before its answer was complete: {}",
                fault.message()
            ));
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
