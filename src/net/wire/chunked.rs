//! The chunked transfer coding, read as it passes by (RFC 9112 7.1).
//!
//! ```text
//!          ┌────────────── CRLF ──────────────┐
//!          ▼                                  │
//!  ──▶ size [; extension] CRLF ── >0 ──▶ data of that size
//!          │
//!          └─ =0 ──▶ [name: value CRLF]... ──▶ CRLF ──▶ done
//! ```
//!
//! Two things are reported about the input, as ranges of it: what to relay (the canonical form: everything but chunk
//! extensions and trailer fields) and what is content. A body with neither is relayed in one piece per read.
//!
//! Invariant: any cut of the input gives the same relayed bytes, the same content and the same end; every line ends
//! with CRLF, every size is 1 to 15 hexadecimal digits. Holds no bytes. Knows nothing of what the content means.

use std::ops::Range;

use crate::wire::fault::{Fault, FaultKind, Side};
use crate::wire::grammar::{is_token_byte, is_value_byte};
use crate::wire::limits::{CHUNK_EXT_BYTES_MAX, CHUNK_SIZE_DIGITS_MAX, TRAILER_BYTES_MAX};

/// Receives what a scan finds. Ranges index the scanned input, ascend, and never overlap within one kind.
pub trait ChunkSink {
    /// These bytes are part of the canonical form; relay them.
    fn forward(&mut self, range: Range<usize>);
    /// These bytes are content.
    fn data(&mut self, range: Range<usize>);
}

/// How far one scan came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that belong to this body. What follows belongs to the next message, if anything may.
    pub consumed: usize,
    /// The body is complete.
    pub done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the digits of a size.
    Size,
    /// White space after a size; only an extension may follow.
    SizeSpace,
    Extension,
    /// After the CR of a size line.
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a line after the last chunk.
    TrailerLine,
    TrailerName,
    TrailerValue,
    /// After the CR of a trailer field.
    TrailerLf,
    /// After the CR of the final empty line.
    LastLf,
    Done,
}

/// The reader of one chunked body.
#[derive(Debug, Clone)]
pub struct ChunkedScanner {
    state: State,
    side: Side,
    digits: u8,
    /// The size being read, then what is left of the chunk.
    remaining: u64,
    extension_bytes: usize,
    trailer_bytes: usize,
    /// Bytes of the body consumed by earlier scans.
    position: u64,
    data_bytes: u64,
}

// === impl ChunkedScanner ===

impl ChunkedScanner {
    /// A scanner at the first byte of a body that travels on `side`.
    pub const fn new(side: Side) -> Self {
        Self {
            state: State::Size,
            side,
            digits: 0,
            remaining: 0,
            extension_bytes: 0,
            trailer_bytes: 0,
            position: 0,
            data_bytes: 0,
        }
    }

    /// Bytes of content seen so far, framing excluded.
    pub const fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Whether the body is complete.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The connection has ended: is the body complete?
    ///
    /// # Errors
    /// It is not; what was relayed must not be made to look complete (RFC 9112 8).
    pub fn finish(&self) -> Result<(), Fault> {
        if self.is_done() { Ok(()) } else { Err(Fault::new(FaultKind::BodyIncomplete, self.side, self.position)) }
    }

    /// Reads on. Everything up to the end of the body or of the input is consumed.
    ///
    /// # Errors
    /// The framing is broken. What was reported before is well-formed as far as it goes, but the body will never be
    /// complete: both connections have to be closed.
    pub fn scan(&mut self, input: &[u8], sink: &mut impl ChunkSink) -> Result<Progress, Fault> {
        let mut at = 0;
        // Start of the stretch to relay that has not been reported yet.
        let mut relay_from = self.relays().then_some(0);
        while self.state != State::Done {
            let Some(byte) = input.get(at) else { break };
            if self.state == State::Data {
                let available = input.len() - at;
                let taken = usize::try_from(self.remaining).map_or(available, |left| left.min(available));
                sink.data(at..at + taken);
                self.remaining -= taken as u64;
                self.data_bytes = self.data_bytes.saturating_add(taken as u64);
                at += taken;
                if self.remaining == 0 {
                    self.state = State::DataCr;
                }
                continue;
            }
            self.state = self.step(*byte).map_err(|kind| Fault::new(kind, self.side, self.position + at as u64))?;
            match (relay_from, self.relays()) {
                (Some(from), false) => {
                    forward(sink, from..at);
                    relay_from = None;
                }
                (None, true) => relay_from = Some(if self.state == State::TrailerLine { at + 1 } else { at }),
                _ => {}
            }
            at += 1;
        }
        if let Some(from) = relay_from {
            forward(sink, from..at);
        }
        self.position += at as u64;
        Ok(Progress { consumed: at, done: self.is_done() })
    }

    /// Whether the byte that led to this state is relayed; for a line start, whether the next one may be.
    fn relays(&self) -> bool {
        !matches!(
            self.state,
            State::SizeSpace | State::Extension | State::TrailerName | State::TrailerValue | State::TrailerLf
        )
    }

    /// The state after one byte outside of chunk data.
    fn step(&mut self, byte: u8) -> Result<State, FaultKind> {
        match (self.state, byte) {
            (State::Size, _) => self.size(byte),
            (State::SizeSpace | State::Extension, _) => self.extension(byte),
            (State::SizeLf, b'\n') => {
                self.digits = 0;
                Ok(if self.remaining == 0 { State::TrailerLine } else { State::Data })
            }
            (State::SizeLf, _) => Err(FaultKind::ChunkLineEnd),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Size),
            (State::DataCr | State::DataLf, _) => Err(FaultKind::ChunkDataEnd),
            (State::TrailerLine, b'\r') => Ok(State::LastLf),
            (State::TrailerLine | State::TrailerName | State::TrailerValue | State::TrailerLf, _) => self.trailer(byte),
            (State::LastLf, b'\n') => Ok(State::Done),
            (State::LastLf, _) => Err(FaultKind::ChunkLineEnd),
            // Never asked: `scan` takes data in bulk and stops at the end.
            (State::Data | State::Done, _) => Ok(self.state),
        }
    }

    fn size(&mut self, byte: u8) -> Result<State, FaultKind> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b'\n' => return Err(FaultKind::ChunkLineEnd),
            _ if self.digits == 0 => return Err(FaultKind::ChunkSize),
            b'\r' => return Ok(State::SizeLf),
            b';' | b' ' | b'\t' => return self.extension(byte),
            _ => return Err(FaultKind::ChunkSize),
        };
        if self.digits == CHUNK_SIZE_DIGITS_MAX {
            return Err(FaultKind::ChunkSizeTooLong);
        }
        self.digits += 1;
        self.remaining = self.remaining << 4 | u64::from(digit);
        Ok(State::Size)
    }

    /// White space and extensions after a size. They are dropped, so their grammar matters only where another parser
    /// might see the end of the line somewhere else.
    fn extension(&mut self, byte: u8) -> Result<State, FaultKind> {
        let next = match (self.state, byte) {
            (State::Extension, b'\r') => return Ok(State::SizeLf),
            (_, b'\n') => return Err(FaultKind::ChunkLineEnd),
            (State::Extension, _) if is_value_byte(byte) => State::Extension,
            (State::Extension, _) => return Err(FaultKind::ChunkExtension),
            (_, b';') => State::Extension,
            (_, b' ' | b'\t') => State::SizeSpace,
            _ => return Err(FaultKind::ChunkSize),
        };
        self.extension_bytes += 1;
        if self.extension_bytes > CHUNK_EXT_BYTES_MAX { Err(FaultKind::ChunkExtensionsTooLong) } else { Ok(next) }
    }

    /// Trailer fields: checked as strictly as a head's, never merged into it, never relayed (RFC 9110 6.5.1).
    fn trailer(&mut self, byte: u8) -> Result<State, FaultKind> {
        let next = match (self.state, byte) {
            (State::TrailerLine | State::TrailerName, _) if is_token_byte(byte) => State::TrailerName,
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, _) if is_value_byte(byte) => State::TrailerValue,
            (State::TrailerLf, b'\n') => State::TrailerLine,
            (_, b'\n') | (State::TrailerLf, _) => return Err(FaultKind::ChunkLineEnd),
            _ => return Err(FaultKind::Trailer),
        };
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX { Err(FaultKind::TrailersTooLong) } else { Ok(next) }
    }
}

#[inline]
fn forward(sink: &mut impl ChunkSink, range: Range<usize>) {
    if !range.is_empty() {
        sink.forward(range);
    }
}
