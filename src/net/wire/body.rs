//! One reader for all body framings, and the plain counter behind Content-Length.
//!
//! Invariant: no byte after the end of a body is ever consumed, and a body cut short never looks complete. Holds no
//! bytes. Knows nothing of what the content means.

use crate::wire::chunked::{ChunkSink, ChunkedScanner, Progress};
use crate::wire::fault::{Fault, FaultKind, Side};
use crate::wire::{RequestBody, ResponseBody};

/// Counts down a body of known length.
#[derive(Debug, Clone)]
pub struct LengthScanner {
    remaining: u64,
    length: u64,
    side: Side,
}

/// The reader of one body, whatever frames it. All bytes of the first two framings are content and are relayed.
#[derive(Debug, Clone)]
pub enum BodyScanner {
    /// A body of known length, 0 included.
    Length(LengthScanner),
    /// Everything until the connection ends.
    UntilClose,
    /// The chunked transfer coding.
    Chunked(ChunkedScanner),
}

// === impl LengthScanner ===

impl LengthScanner {
    /// A scanner at the first of `length` bytes that travel on `side`.
    pub const fn new(length: u64, side: Side) -> Self {
        Self { remaining: length, length, side }
    }

    /// Takes as many of `available` bytes as belong to the body.
    pub fn take(&mut self, available: usize) -> Progress {
        let consumed = usize::try_from(self.remaining).map_or(available, |left| left.min(available));
        self.remaining -= consumed as u64;
        Progress { consumed, done: self.is_done() }
    }

    /// Bytes still to come.
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Whether the body is complete.
    pub const fn is_done(&self) -> bool {
        self.remaining == 0
    }

    /// The connection has ended: is the body complete?
    ///
    /// # Errors
    /// It is not (RFC 9112 8).
    pub const fn finish(&self) -> Result<(), Fault> {
        if self.is_done() {
            Ok(())
        } else {
            Err(Fault::new(FaultKind::BodyIncomplete, self.side, self.length - self.remaining))
        }
    }
}

// === impl BodyScanner ===

impl BodyScanner {
    /// The reader for a request's body.
    pub const fn request(body: RequestBody) -> Self {
        match body {
            RequestBody::Empty => Self::Length(LengthScanner::new(0, Side::Request)),
            RequestBody::Length(length) => Self::Length(LengthScanner::new(length, Side::Request)),
            RequestBody::Chunked => Self::Chunked(ChunkedScanner::new(Side::Request)),
        }
    }

    /// The reader for a response's body.
    pub const fn response(body: ResponseBody) -> Self {
        match body {
            ResponseBody::Empty => Self::Length(LengthScanner::new(0, Side::Response)),
            ResponseBody::Length(length) => Self::Length(LengthScanner::new(length, Side::Response)),
            ResponseBody::Chunked => Self::Chunked(ChunkedScanner::new(Side::Response)),
            ResponseBody::UntilClose => Self::UntilClose,
        }
    }

    /// Reads on: reports what to relay and what is content, and says how much of the input belongs to the body.
    ///
    /// # Errors
    /// The chunked framing is broken; see [`ChunkedScanner::scan`].
    pub fn scan(&mut self, input: &[u8], sink: &mut impl ChunkSink) -> Result<Progress, Fault> {
        let progress = match self {
            Self::Chunked(scanner) => return scanner.scan(input, sink),
            Self::Length(scanner) => scanner.take(input.len()),
            Self::UntilClose => Progress { consumed: input.len(), done: false },
        };
        if progress.consumed > 0 {
            sink.forward(0..progress.consumed);
            sink.data(0..progress.consumed);
        }
        Ok(progress)
    }

    /// Whether the body is complete. One that runs until the close is complete only by [`Self::finish`].
    pub fn is_done(&self) -> bool {
        match self {
            Self::Length(scanner) => scanner.is_done(),
            Self::Chunked(scanner) => scanner.is_done(),
            Self::UntilClose => false,
        }
    }

    /// The connection has ended in order: is the body complete?
    ///
    /// # Errors
    /// It is not (RFC 9112 8).
    pub fn finish(&self) -> Result<(), Fault> {
        match self {
            Self::Length(scanner) => scanner.finish(),
            Self::Chunked(scanner) => scanner.finish(),
            Self::UntilClose => Ok(()),
        }
    }
}
