//! One client connection of the generator: write a request, read its answer, note the times.

use std::cell::RefCell;
use std::io;
use std::time::Instant;

use super::cli::Settings;
use super::frames::FrameCutter;
use super::runtime::Socket;
use super::tally::{Failure, Tally};
use weir_fake_provider::http::{BodyFraming, ChunkDecoder, ResponseHead};

/// Enough for nearly every answer in one read.
const BUF_BYTES: usize = 64 * 1024;

/// An answer that arrived whole.
pub(super) struct Answered {
    pub(super) status: u16,
    /// Whether the connection may be used again.
    pub(super) keep_alive: bool,
}

/// An open connection.
pub(super) struct Connection {
    socket: Socket,
    buf: Vec<u8>,
    /// Bytes of `buf` that have arrived.
    filled: usize,
    /// Present when answers are streams.
    cutter: Option<FrameCutter>,
    /// Heads are written by themselves.
    head_first: bool,
}

impl Connection {
    /// Opens a connection.
    pub(super) async fn open(settings: &Settings, cutter: Option<FrameCutter>) -> io::Result<Self> {
        let socket = Socket::connect(settings.addr, settings.timeout).await?;
        Ok(Self { socket, buf: vec![0; BUF_BYTES], filled: 0, cutter, head_first: settings.head_first })
    }

    /// Sends a request and reads its answer. `since` is the moment from which its first byte is timed.
    pub(super) async fn exchange(
        &mut self,
        request: &[u8],
        since: Instant,
        tally: &RefCell<Tally>,
    ) -> Result<Answered, Failure> {
        let end = if self.head_first { memchr::memmem::find(request, b"\r\n\r\n").map_or(0, |at| at + 4) } else { 0 };
        let (first, rest) = request.split_at_checked(end).unwrap_or((&[], request));
        for part in [first, rest] {
            self.socket.write_all(part).await.map_err(|error| failure_of(&error, Failure::Write))?;
        }
        tally.borrow_mut().sent_bytes += request.len() as u64;
        let head = self.read_head().await?;
        let mut body = Body { since, last_frame: None, frames: 0, cutter: self.cutter.take(), tally };
        let read = self.read_body(head, &mut body).await;
        self.cutter = body.cutter.take();
        read?;
        if self.cutter.is_some() {
            *tally.borrow_mut().streams_by_frames.entry(body.frames).or_default() += 1;
        }
        Ok(Answered { status: head.status, keep_alive: head.keep_alive })
    }

    /// Reads up to the end of the final head and leaves the body's first bytes at the start of the buffer.
    async fn read_head(&mut self) -> Result<ResponseHead, Failure> {
        loop {
            let arrived = self.buf.get(..self.filled).unwrap_or_default();
            match ResponseHead::parse(arrived).map_err(|_| Failure::Protocol)? {
                Some(head) => {
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
        let count = self.socket.read(free).await.map_err(|error| failure_of(&error, Failure::Read))?;
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
    last_frame: Option<Instant>,
    frames: u64,
    cutter: Option<FrameCutter>,
    tally: &'a RefCell<Tally>,
}

impl Body<'_> {
    fn arrive(&mut self, payload: &[u8]) {
        let mut tally = self.tally.borrow_mut();
        tally.received_bytes += payload.len() as u64;
        let Some(cutter) = self.cutter.as_mut().filter(|_| !payload.is_empty()) else { return };
        let now = Instant::now();
        if self.last_frame.is_none() {
            cutter.reset();
            tally.first_byte.add(now - self.since);
        }
        let mut previous = self.last_frame.replace(now);
        tally.frames_split += u64::from(cutter.is_amid_frame());
        let before = self.frames;
        cutter.push(payload, |frame| {
            tally.frames += 1;
            self.frames += 1;
            if let Some(delay_ns) = frame.delay_ns {
                tally.frame_delay.add_ns(delay_ns);
            }
            if let Some(previous) = previous.replace(now) {
                tally.frame_gap.add(now - previous);
            }
        });
        tally.frames_joined += (self.frames - before).saturating_sub(1);
    }
}

fn failure_of(error: &io::Error, otherwise: Failure) -> Failure {
    match error.kind() {
        io::ErrorKind::TimedOut => Failure::Timeout,
        _ => otherwise,
    }
}
