//! One client connection of the generator: write a request, read its answer, note the times.

use std::cell::RefCell;
use std::io;
use std::time::{Duration, Instant};

use super::corpus::Shape;
use super::frames::{self, Frame, FrameCutter};
use super::runtime::Socket;
use super::settings::Settings;
use super::spelling;
use super::stream::Stream;
use super::tally::{Failure, Tally};
use weir_fake_provider::http::{BodyFraming, ChunkDecoder, ResponseHead};
use weir_fake_provider::provider::{self, Digest};

/// Enough for nearly every answer in one read.
const BUF_BYTES: usize = 64 * 1024;
/// As much of a refusal is kept as says why.
const REFUSAL_BYTES: usize = 300;

/// An answer that arrived whole.
pub(super) struct Answered {
    pub(super) status: u16,
    /// Whether the connection may be used again.
    pub(super) keep_alive: bool,
    /// Of a stream: from the moment its first byte is timed from to the first frame that brought the model's text.
    pub(super) first_token: Option<Duration>,
    /// How the body begins, where the status is no 2xx.
    pub(super) refusal: Vec<u8>,
}

/// An open connection.
pub(super) struct Connection {
    stream: Stream,
    buf: Vec<u8>,
    /// Bytes of `buf` that have arrived.
    filled: usize,
    cutter: FrameCutter,
    /// What the provider said of the body's bytes.
    promised: Option<u64>,
    /// Heads are written by themselves.
    head_first: bool,
}

impl Connection {
    /// Opens a connection.
    pub(super) async fn open(settings: &Settings) -> io::Result<Self> {
        let socket = Socket::connect(settings.addr, settings.timeout).await?;
        let stream = Stream::client(socket, settings.tls.clone()).await?;
        let cutter = FrameCutter::new(frames::EVENTS);
        let (buf, head_first) = (vec![0; BUF_BYTES], settings.head_first);
        Ok(Self { stream, buf, filled: 0, cutter, promised: None, head_first })
    }

    /// Sends a request and reads its answer. `since` is the moment from which its first byte is timed.
    pub(super) async fn exchange(
        &mut self,
        request: &[u8],
        shape: Shape,
        since: Instant,
        tally: &RefCell<Tally>,
    ) -> Result<Answered, Failure> {
        let end = if self.head_first { memchr::memmem::find(request, b"\r\n\r\n").map_or(0, |at| at + 4) } else { 0 };
        let (first, rest) = request.split_at_checked(end).unwrap_or((&[], request));
        for part in [first, rest] {
            self.stream.write_all(part).await.map_err(|error| failure_of(&error, Failure::Write))?;
        }
        tally.borrow_mut().sent_bytes += request.len() as u64;
        let head = self.read_head().await?;
        // An error is a document, whatever was asked for.
        let streamed = shape.separator.filter(|_| head.status < 400);
        if let Some(separator) = streamed {
            self.cutter.reset(separator);
        }
        let cutter = std::mem::replace(&mut self.cutter, FrameCutter::new(frames::EVENTS));
        let digest = self.promised.map(|_| Digest::default());
        let refusal = (!(200..300).contains(&head.status)).then(Vec::new);
        let mut body = Body {
            since,
            shape,
            streamed,
            cutter,
            digest,
            tally,
            last_read: None,
            frames: 0,
            first_token: None,
            refusal,
        };
        let read = self.read_body(head, &mut body).await;
        let digest = body.finish();
        self.cutter = body.cutter;
        read?;
        let mut tally = tally.borrow_mut();
        if streamed.is_some() {
            *tally.streams_by_frames.entry(body.frames).or_default() += 1;
        }
        if digest.is_some() {
            tally.checked += 1;
            if digest != self.promised {
                return Err(Failure::Altered);
            }
        }
        Ok(Answered {
            status: head.status,
            keep_alive: head.keep_alive,
            first_token: body.first_token,
            refusal: body.refusal.unwrap_or_default(),
        })
    }

    /// Reads up to the end of the final head and leaves the body's first bytes at the start of the buffer.
    async fn read_head(&mut self) -> Result<ResponseHead, Failure> {
        loop {
            let arrived = self.buf.get(..self.filled).unwrap_or_default();
            match ResponseHead::parse(arrived).map_err(|_| Failure::Protocol)? {
                Some(head) => {
                    self.promised = promised(arrived.get(..head.head_bytes).unwrap_or_default());
                    self.consume(head.head_bytes);
                    if head.status >= 200 {
                        return Ok(head);
                    }
                }
                None => {
                    if self.filled == self.buf.len() {
                        return Err(Failure::Protocol);
                    }
                    if self.fill().await? == 0 {
                        return Err(Failure::Closed);
                    }
                }
            }
        }
    }

    async fn read_body(&mut self, head: ResponseHead, body: &mut Body<'_>) -> Result<(), Failure> {
        let mut decoder = ChunkDecoder::new();
        let mut left = match head.framing {
            BodyFraming::Length(length) => length,
            BodyFraming::Chunked | BodyFraming::UntilClose => usize::MAX,
        };
        loop {
            let arrived = self.buf.get(..self.filled).unwrap_or_default();
            let (used, done) = match head.framing {
                BodyFraming::Length(_) => {
                    let used = arrived.len().min(left);
                    left -= used;
                    body.arrive(arrived.get(..used).unwrap_or_default());
                    (used, left == 0)
                }
                BodyFraming::Chunked => {
                    let decoded = decoder.decode(arrived, |payload| body.arrive(payload));
                    (decoded.map_err(|_| Failure::Protocol)?, decoder.is_done())
                }
                BodyFraming::UntilClose => {
                    body.arrive(arrived);
                    (arrived.len(), false)
                }
            };
            self.consume(used);
            if done {
                // Nothing was asked beyond this answer, so nothing may follow it.
                return if self.filled == 0 { Ok(()) } else { Err(Failure::Protocol) };
            }
            if self.fill().await? == 0 {
                let ended = head.framing == BodyFraming::UntilClose;
                return if ended { Ok(()) } else { Err(Failure::Closed) };
            }
        }
    }

    async fn fill(&mut self) -> Result<usize, Failure> {
        let free = self.buf.get_mut(self.filled..).unwrap_or_default();
        let count = self.stream.read(free).await.map_err(|error| failure_of(&error, Failure::Read))?;
        self.filled += count;
        Ok(count)
    }

    fn consume(&mut self, count: usize) {
        if count < self.filled {
            self.buf.copy_within(count..self.filled, 0);
        }
        self.filled = self.filled.saturating_sub(count);
    }
}

/// The body of one answer as it arrives.
struct Body<'a> {
    since: Instant,
    shape: Shape,
    /// What ends its frames, where it is a stream.
    streamed: Option<&'static [u8]>,
    cutter: FrameCutter,
    /// Of the bytes up to here, where they are compared.
    digest: Option<Digest>,
    tally: &'a RefCell<Tally>,
    /// When something came last.
    last_read: Option<Instant>,
    frames: u64,
    /// When a frame first brought the model's text, since the start.
    first_token: Option<Duration>,
    /// Its first bytes, where they are kept.
    refusal: Option<Vec<u8>>,
}

impl Body<'_> {
    fn arrive(&mut self, payload: &[u8]) {
        let mut tally = self.tally.borrow_mut();
        tally.received_bytes += payload.len() as u64;
        if payload.is_empty() {
            return;
        }
        if let Some(kept) = &mut self.refusal {
            let room = REFUSAL_BYTES.saturating_sub(kept.len()).min(payload.len());
            kept.extend_from_slice(payload.get(..room).unwrap_or_default());
        }
        if self.streamed.is_none() {
            if self.last_read.is_none() {
                let now = Instant::now();
                self.last_read = Some(now);
                tally.first_byte.add(now - self.since);
            }
            if let Some(digest) = &mut self.digest {
                digest.push(payload);
            }
            return;
        }
        let now = Instant::now();
        if self.last_read.is_none() {
            tally.first_byte.add(now - self.since);
        }
        let mut previous = self.last_read.replace(now);
        tally.frames_split += u64::from(self.cutter.is_amid_frame());
        let (before, separator) = (self.frames, self.cutter.separator());
        let Self { cutter, digest, frames, first_token, shape, since, .. } = self;
        cutter.push(payload, |frame| {
            tally.frames += 1;
            *frames += 1;
            if let Some(delay_ns) = frame.delay_ns {
                tally.frame_delay.add_ns(delay_ns);
            }
            if let Some(previous) = previous.replace(now) {
                tally.frame_gap.add(now - previous);
            }
            if first_token.is_none() && spelling::brings_text(shape.dialect, frame.bytes) {
                *first_token = Some(now - *since);
                tally.first_token.add(now - *since);
            }
            if let Some(digest) = digest {
                push_frame(digest, frame, separator);
            }
        });
        tally.frames_joined += (self.frames - before).saturating_sub(1);
    }

    /// The digest of all that came, where it is compared.
    fn finish(&mut self) -> Option<u64> {
        if let Some(digest) = self.digest.as_mut().filter(|_| self.streamed.is_some()) {
            digest.push(self.cutter.pending());
        }
        self.digest.as_ref().map(Digest::value)
    }
}

/// A frame's bytes, with the stamp of its sending as zeros, as the provider counted them.
fn push_frame(digest: &mut Digest, frame: Frame<'_>, separator: &[u8]) {
    const ZEROS: [u8; provider::STAMP_DIGITS] = [b'0'; provider::STAMP_DIGITS];
    let stamped = frame.delay_ns.and_then(|_| provider::stamp_at(frame.bytes));
    match stamped.and_then(|at| Some((frame.bytes.get(..at)?, frame.bytes.get(at + ZEROS.len()..)?))) {
        Some((before, behind)) => [before, &ZEROS, behind].into_iter().for_each(|part| digest.push(part)),
        None => digest.push(frame.bytes),
    }
    digest.push(separator);
}

/// The digest that the provider put into the head.
fn promised(head: &[u8]) -> Option<u64> {
    let mut lines = head.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| {
        let (name, value) = line.split_at_checked(provider::DIGEST_FIELD.len())?;
        value.strip_prefix(b":").filter(|_| name.eq_ignore_ascii_case(provider::DIGEST_FIELD.as_bytes()))
    })?;
    u64::from_str_radix(std::str::from_utf8(value).ok()?.trim(), 16).ok()
}

fn failure_of(error: &io::Error, otherwise: Failure) -> Failure {
    match error.kind() {
        io::ErrorKind::TimedOut => Failure::Timeout,
        _ => otherwise,
    }
}
