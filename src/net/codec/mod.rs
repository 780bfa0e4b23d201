//! Content codings (RFC 9110 section 8.4.1): decodes the copy of a body that analysis reads.
//!
//! For: request bodies at once, answers as they arrive. Invariants: what is forwarded is never touched; one coding
//! only, stacked ones are refused; output is bounded by a cap and by a ratio to the input, so that a small body cannot
//! make a large text. Must not know: JSON, providers, what the text is for.

pub mod amazon;
pub mod websocket;

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Operation};

/// Output that is always allowed, whatever the ratio: small bodies of repeated text compress very well.
const RATIO_FREE_BYTES: u64 = 64 * 1024;
/// The ratio is judged for input in steps of this size, counted from the body's beginning: how a body was cut on its way
/// then does not decide whether it is read.
const RATIO_STEP_BYTES: u64 = 4096;
/// Largest zstd window accepted, as a power of two: 8 MiB, the bound RFC 9659 sets for HTTP.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Working buffer of the brotli decoder.
const BROTLI_BUFFER_BYTES: usize = 4096;
/// Working buffer of the deflate and zstd decoders.
const BUFFER_BYTES: usize = 16 * 1024;

/// Why a body could not be decoded, or not to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A coding we have no decoder for.
    #[error("unknown content coding")]
    Unknown,
    /// More than one coding.
    #[error("stacked content codings")]
    Stacked,
    /// The bytes are not of the named coding, or something follows their end.
    #[error("corrupt compressed body")]
    Corrupt,
    /// The body ends before the coding's end mark.
    #[error("compressed body ends early")]
    Truncated,
    /// More output than the cap allows.
    #[error("decoded body over the size cap")]
    TooLarge,
    /// More output per input byte than the ratio allows.
    #[error("decoded body over the compression ratio cap")]
    Ratio,
    /// The deadline passed before all of it was decoded.
    #[error("not decoded in time")]
    Late,
}

impl DecodeError {
    /// A short phrase for a person; the same as `Display`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown content coding",
            Self::Stacked => "stacked content codings",
            Self::Corrupt => "corrupt compressed body",
            Self::Truncated => "compressed body ends early",
            Self::TooLarge => "decoded body over the size cap",
            Self::Ratio => "decoded body over the compression ratio cap",
            Self::Late => "not decoded in time",
        }
    }
}

/// A coding named by `Content-Encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Identity,
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

fn coding(content_encoding: Option<&[u8]>) -> Result<Coding, DecodeError> {
    let mut found = Coding::Identity;
    for token in content_encoding.unwrap_or_default().split(|&b| b == b',') {
        let token = token.trim_ascii();
        let next = match token {
            b"" => continue,
            _ if token.eq_ignore_ascii_case(b"identity") => continue,
            _ if token.eq_ignore_ascii_case(b"gzip") || token.eq_ignore_ascii_case(b"x-gzip") => Coding::Gzip,
            _ if token.eq_ignore_ascii_case(b"deflate") => Coding::Deflate,
            _ if token.eq_ignore_ascii_case(b"br") => Coding::Brotli,
            _ if token.eq_ignore_ascii_case(b"zstd") => Coding::Zstd,
            _ => return Err(DecodeError::Unknown),
        };
        if found != Coding::Identity {
            return Err(DecodeError::Stacked);
        }
        found = next;
    }
    Ok(found)
}

/// Whether a `Content-Encoding` means that the bytes are the body as it is.
pub fn is_identity(content_encoding: Option<&[u8]>) -> bool {
    coding(content_encoding) == Ok(Coding::Identity)
}

/// Whether a `Content-Encoding` names at most one coding, and one that can be undone.
pub fn can_decode(content_encoding: Option<&[u8]>) -> bool {
    coding(content_encoding).is_ok()
}

/// Where the decoders write: stops them at the cap.
#[derive(Default)]
struct Sink {
    out: Vec<u8>,
    /// Bytes that may still be written.
    room: u64,
    full: bool,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = usize::try_from(self.room).unwrap_or(usize::MAX).min(bytes.len());
        self.out.extend_from_slice(bytes.get(..len).unwrap_or_default());
        self.room -= len as u64;
        if len < bytes.len() {
            self.full = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Stage {
    Identity(Sink),
    /// `deflate` whose first byte has come: zlib-wrapped (RFC 9110) or raw, as some servers send it?
    DeflateStart(Option<u8>, Sink),
    Gzip(MultiGzDecoder<Sink>),
    Deflate(InflateStage),
    Brotli(Box<DecompressorWriter<Sink>>),
    Zstd(ZstdStage),
    Failed(DecodeError),
}

/// Decodes a body piece by piece.
pub struct ContentDecoder {
    stage: Stage,
    fed_bytes: u64,
    made_bytes: u64,
    cap_bytes: u64,
    ratio_max: u64,
    started: bool,
}

impl ContentDecoder {
    /// A decoder for one body. At most `cap_bytes` come out, and at most `ratio_max` times the bytes fed, these rounded up
    /// to steps of 4 KiB (after the first 64 KiB). An unknown or stacked coding is reported by the first [`ContentDecoder::feed`].
    pub fn new(content_encoding: Option<&[u8]>, cap_bytes: u64, ratio_max: u32) -> Self {
        let sink = Sink::default();
        let stage = match coding(content_encoding) {
            Ok(Coding::Identity) => Stage::Identity(sink),
            Ok(Coding::Gzip) => Stage::Gzip(MultiGzDecoder::new(sink)),
            Ok(Coding::Deflate) => Stage::DeflateStart(None, sink),
            Ok(Coding::Brotli) => Stage::Brotli(Box::new(DecompressorWriter::new(sink, BROTLI_BUFFER_BYTES))),
            Ok(Coding::Zstd) => ZstdStage::new(sink).map_or(Stage::Failed(DecodeError::Corrupt), Stage::Zstd),
            Err(fault) => Stage::Failed(fault),
        };
        Self { stage, fed_bytes: 0, made_bytes: 0, cap_bytes, ratio_max: u64::from(ratio_max), started: false }
    }

    /// Whether bytes come out as they go in, so that the caller may skip the copy.
    pub const fn is_identity(&self) -> bool {
        matches!(self.stage, Stage::Identity(_))
    }

    /// Decodes `bytes` and appends what they give to `out`, also when it then fails.
    ///
    /// # Errors
    /// A [`DecodeError`]; every later call fails with the same one.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        self.started |= !bytes.is_empty();
        let mut rest = bytes;
        loop {
            let left = RATIO_STEP_BYTES - self.fed_bytes % RATIO_STEP_BYTES;
            let (step, later) = rest.split_at(rest.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
            self.fed_bytes = self.fed_bytes.saturating_add(step.len() as u64);
            self.choose_deflate(step);
            self.run(out, |stage| stage.write_all(step))?;
            rest = later;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Says that the body is over; appends the rest to `out`.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] when the coding's end mark is missing, else as [`ContentDecoder::feed`].
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        if let Stage::Failed(fault) = self.stage {
            return Err(fault);
        }
        if !self.started {
            return Ok(());
        }
        match self.run(out, Stage::end) {
            Err(DecodeError::Corrupt) => self.fail(DecodeError::Truncated),
            other => other,
        }
    }

    fn run(&mut self, out: &mut Vec<u8>, work: impl FnOnce(&mut Stage) -> io::Result<()>) -> Result<(), DecodeError> {
        let judged_bytes = self.fed_bytes.div_ceil(RATIO_STEP_BYTES).saturating_mul(RATIO_STEP_BYTES);
        let by_ratio = judged_bytes.saturating_mul(self.ratio_max).max(RATIO_FREE_BYTES);
        let room = by_ratio.min(self.cap_bytes).saturating_sub(self.made_bytes);
        let over = if by_ratio < self.cap_bytes { DecodeError::Ratio } else { DecodeError::TooLarge };
        match self.stage.sink() {
            Ok(sink) => {
                std::mem::swap(&mut sink.out, out);
                sink.room = room;
            }
            Err(fault) => return Err(fault),
        }
        let outcome = work(&mut self.stage);
        let mut full = false;
        if let Ok(sink) = self.stage.sink() {
            std::mem::swap(&mut sink.out, out);
            self.made_bytes += room - sink.room;
            full = sink.full;
        }
        match outcome {
            _ if full => self.fail(over),
            Ok(()) => Ok(()),
            Err(_) => self.fail(DecodeError::Corrupt),
        }
    }

    fn fail(&mut self, fault: DecodeError) -> Result<(), DecodeError> {
        self.stage = Stage::Failed(fault);
        Err(fault)
    }

    /// Decides between the zlib and the raw form of `deflate` once two bytes are known (RFC 1950 section 2.2).
    fn choose_deflate(&mut self, bytes: &[u8]) {
        let Stage::DeflateStart(kept, sink) = &mut self.stage else { return };
        let (first, second) = match (*kept, bytes) {
            (Some(first), &[second, ..]) | (None, &[first, second, ..]) => (first, second),
            _ => return,
        };
        let kept = kept.take();
        let sink = std::mem::take(sink);
        let zlib = first & 0x0f == 8 && u16::from_be_bytes([first, second]) % 31 == 0;
        self.stage = Stage::Deflate(InflateStage::new(zlib, sink));
        if let Some(byte) = kept
            && self.stage.write_all(&[byte]).is_err()
        {
            self.stage = Stage::Failed(DecodeError::Corrupt);
        }
    }
}

/// `deflate` by its own interface: the writers of the crate do not tell whether the end mark has come.
struct InflateStage {
    decoder: Decompress,
    sink: Sink,
    buffer: Vec<u8>,
    complete: bool,
}

impl InflateStage {
    fn new(zlib: bool, sink: Sink) -> Self {
        Self { decoder: Decompress::new(zlib), sink, buffer: vec![0; BUFFER_BYTES], complete: false }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !self.complete {
            let (read_before, made_before) = (self.decoder.total_in(), self.decoder.total_out());
            let status = self.decoder.decompress(rest, &mut self.buffer, FlushDecompress::None)?;
            let read = usize::try_from(self.decoder.total_in() - read_before).unwrap_or(usize::MAX);
            let made = usize::try_from(self.decoder.total_out() - made_before).unwrap_or(usize::MAX);
            self.sink.write_all(self.buffer.get(..made).unwrap_or_default())?;
            rest = rest.get(read..).unwrap_or_default();
            self.complete = status == Status::StreamEnd;
            // At the end of its window it stops early, with input left and more to come.
            if read == 0 && made == 0 {
                break;
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

/// zstd by its own frame interface: the writer of the crate does not tell whether the last frame was complete.
struct ZstdStage {
    decoder: zstd::stream::raw::Decoder<'static>,
    sink: Sink,
    buffer: Vec<u8>,
    complete: bool,
}

impl ZstdStage {
    fn new(sink: Sink) -> io::Result<Self> {
        let mut decoder = zstd::stream::raw::Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))?;
        Ok(Self { decoder, sink, buffer: vec![0; BUFFER_BYTES], complete: false })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        loop {
            let status = self.decoder.run_on_buffers(rest, &mut self.buffer)?;
            self.sink.write_all(self.buffer.get(..status.bytes_written).unwrap_or_default())?;
            rest = rest.get(status.bytes_read..).unwrap_or_default();
            if status.bytes_read > 0 || status.bytes_written > 0 {
                // 0 means: this frame is complete. Another one may follow (RFC 8878 section 3.1).
                self.complete = status.remaining == 0;
            }
            if rest.is_empty() && status.bytes_written < self.buffer.len() {
                return Ok(());
            }
            if status.bytes_read == 0 && status.bytes_written == 0 {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
}

impl Stage {
    fn sink(&mut self) -> Result<&mut Sink, DecodeError> {
        Ok(match self {
            Self::Identity(sink) | Self::DeflateStart(_, sink) => sink,
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Deflate(stage) => &mut stage.sink,
            Self::Brotli(decoder) => decoder.get_mut(),
            Self::Zstd(stage) => &mut stage.sink,
            Self::Failed(fault) => return Err(*fault),
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Identity(sink) => sink.write_all(bytes),
            Self::DeflateStart(kept, _) => {
                *kept = bytes.first().copied().or(*kept);
                Ok(())
            }
            Self::Gzip(decoder) => decoder.write_all(bytes),
            Self::Deflate(stage) => stage.write_all(bytes),
            Self::Brotli(decoder) => decoder.write_all(bytes),
            Self::Zstd(stage) => stage.write_all(bytes),
            Self::Failed(_) => Err(io::ErrorKind::InvalidData.into()),
        }?;
        self.flush()
    }

    /// Brings out what a decoder already knows, so that a stream can be read as it arrives.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(decoder) => decoder.flush(),
            Self::Brotli(decoder) => decoder.flush(),
            _ => Ok(()),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        match self {
            Self::Identity(_) => Ok(()),
            Self::DeflateStart(..) | Self::Failed(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Self::Gzip(decoder) => decoder.try_finish(),
            Self::Brotli(decoder) => decoder.close(),
            Self::Deflate(stage) if stage.complete => Ok(()),
            Self::Zstd(stage) if stage.complete => Ok(()),
            Self::Deflate(_) | Self::Zstd(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
mod tests;
