//! A span's body as stored: everything of the record that is not a column, numbers packed and text compressed.
//!
//! Layout: format byte, length of the head, head, length of the text, text as the format says. Formats are never
//! reused: a file written by any earlier version stays readable. This module knows nothing of SQL.

mod bytes;
mod fields;
mod frames;
mod huffman;
mod layout;
mod pieces;
mod short_code;
mod text_code;

pub(crate) use frames::{ReadStretch, Reframing, Stretch, stretches};
pub(crate) use layout::{Entries, Entry, Laid, Layout, Lying, Stored};
pub(crate) use pieces::{Joining, Piece, Read as ReadPiece, Side, divide, last_message};

use bytes::{Packer, Unpacker, put_varint, take_varint};

use weir_config::vocab::Finding;

use crate::record::{AgentAction, SpanRecord};

/// Text as it is.
const RAW: u8 = 0;
/// Text as one zstd frame.
const ZSTD: u8 = 1;
/// Text in the fixed code that versions before schema 26 wrote for short texts.
const HUFFMAN: u8 = 2;
/// A shared text that is made of others, whose integers follow.
const BRANCH: u8 = 3;
/// Text in the fixed code for longer ones; from schema 15 on.
const TEXT_CODE: u8 = 4;
/// Text in the fixed code for short ones; from schema 26 on.
const SHORT_CODE: u8 = 5;

/// From this many bytes on, the better of the fixed codes pays.
const TEXT_CODE_FROM: usize = 2 * 1024;
/// Below this many bytes the fixed codes are cheaper than zstd, and the better one as small.
const ZSTD_FROM: usize = 16 * 1024;
/// From this many on zstd may leave less of what is written once for many.
const SMALL_FROM: usize = 4 * 1024;
/// Text of this length that a fixed code leaves nearly as it is (other scripts, base64) is given to zstd, too.
const SHORT_FROM: usize = 256;
/// Fast, and on a few kilobytes nearly as small as higher levels.
const ZSTD_LEVEL: i32 = 1;
/// SQLite's own limit for a value is 10^9 bytes; stay well below it, compressed or not.
const TEXT_MAX: usize = 900_000_000;

/// A body that cannot be read back: the file is damaged, or a newer version wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damaged;

/// A body larger than a row may be, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge(pub(crate) usize);

/// Encodes bodies; keeps its buffers and its zstd context from row to row.
#[derive(Default)]
pub(crate) struct Encoder {
    packer: Packer,
    body: Vec<u8>,
    room: Vec<u8>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

/// Pieces of a text in the form they are compressed from.
#[derive(Default)]
pub(crate) struct Packed(Packer);

impl Packed {
    /// Packs these pieces in place of what was packed before; see [`Laid`] for `last`.
    pub(crate) fn put(&mut self, pieces: &[Piece<'_>], last: &mut i64) {
        self.0.clear();
        pieces::pack(&mut self.0, pieces, last);
    }

    /// Packs this stretch in place of what was packed before.
    pub(crate) fn put_stretch(&mut self, stretch: &Stretch<'_>) {
        self.0.clear();
        frames::pack(&mut self.0, stretch);
    }

    /// The packed form in two strings of bytes.
    pub(crate) fn bytes(&self) -> (&[u8], &[u8]) {
        (&self.0.head, &self.0.text)
    }
}

/// What a text is compressed for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    /// It is one of many that are written once and seldom read.
    Cheap,
    /// It is written once for many.
    Small,
    /// So is this, and it is JSON, in which much comes again.
    SmallJson,
}

/// What a row's columns hold besides its body.
pub(crate) struct Columns {
    pub(crate) trace_id: weir_config::vocab::TraceId,
    pub(crate) span_id: weir_config::vocab::SpanId,
    pub(crate) tenant_id: weir_config::vocab::TenantId,
    pub(crate) start_time: weir_config::vocab::Timestamp,
    pub(crate) provider: String,
    pub(crate) model: Option<String>,
    pub(crate) operation: String,
    pub(crate) score: Option<u8>,
    pub(crate) session: Option<String>,
    pub(crate) client: Option<String>,
}

impl Columns {
    /// Those of a row of which only the body matters.
    pub(crate) fn unknown() -> Self {
        use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};
        Self {
            trace_id: TraceId::from_bytes([0; 16]),
            span_id: SpanId::from_bytes([0; 16]),
            tenant_id: TenantId::DEFAULT,
            start_time: Timestamp::from_micros(0),
            provider: String::new(),
            model: None,
            operation: String::new(),
            score: None,
            session: None,
            client: None,
        }
    }
}

impl Encoder {
    /// The body of `span`, valid until the next call; the model is in it where its column cannot say it, its texts as `laid`
    /// says.
    pub(crate) fn encode(&mut self, span: &SpanRecord, model_within: bool, laid: &Laid<'_>) -> Result<&[u8], TooLarge> {
        self.body_of(Code::Cheap, |packer| fields::pack(packer, span, model_within, laid))
    }

    /// A body that holds what has been packed by somebody else, a stretch of a frame or pieces, valid until the next call.
    pub(crate) fn encode_packed(&mut self, packed: &Packed, is_frame: bool) -> Result<&[u8], TooLarge> {
        self.body_of(if is_frame { Code::SmallJson } else { Code::Small }, |packer| {
            packer.head.extend_from_slice(&packed.0.head);
            packer.text.extend_from_slice(&packed.0.text);
        })
    }

    /// The body of an agent action and of what was found in it, valid until the next call.
    pub(crate) fn encode_action(&mut self, action: &AgentAction, findings: &[Finding]) -> Result<&[u8], TooLarge> {
        self.body_of(Code::Cheap, |packer| fields::pack_reported(packer, action, findings))
    }

    fn body_of(&mut self, code: Code, pack: impl FnOnce(&mut Packer)) -> Result<&[u8], TooLarge> {
        self.packer.clear();
        pack(&mut self.packer);
        let Self { packer: Packer { head, text }, body, room, zstd } = self;
        if text.len() + head.len() > TEXT_MAX {
            return Err(TooLarge(text.len() + head.len()));
        }
        body.clear();
        body.push(RAW);
        put_varint(body, head.len() as u64);
        body.extend_from_slice(head);
        put_varint(body, text.len() as u64);
        let text_at = body.len();

        let (mut format, mut least) = (RAW, text.len());
        if text.len() < code.zstd_alone_from() {
            if code != Code::Cheap || text.len() >= TEXT_CODE_FROM {
                text_code::encode(text, room, body);
                format = TEXT_CODE;
            } else {
                short_code::encode(text, room, body);
                format = SHORT_CODE;
            }
            least = body.len() - text_at;
        }
        if code.tries_zstd(text.len(), least)
            && let Some(frame) = deflate(zstd, text).filter(|frame| frame.len() < least)
        {
            body.truncate(text_at);
            body.extend_from_slice(&frame);
            (format, least) = (ZSTD, frame.len());
        }
        if format == RAW || least > text.len() {
            body.truncate(text_at);
            body.extend_from_slice(text);
            format = RAW;
        }
        if let Some(first) = body.first_mut() {
            *first = format;
        }
        Ok(body)
    }
}

impl Code {
    /// From this many bytes on no fixed code is tried.
    const fn zstd_alone_from(self) -> usize {
        match self {
            Self::Cheap | Self::Small => ZSTD_FROM,
            Self::SmallJson => SHORT_FROM,
        }
    }

    /// Whether zstd may do enough better than a fixed code, which left `least` of `bytes`.
    const fn tries_zstd(self, bytes: usize, least: usize) -> bool {
        let is_poor = bytes > SHORT_FROM && least > bytes * 7 / 8;
        match self {
            Self::SmallJson => bytes >= SHORT_FROM,
            Self::Small => bytes >= SMALL_FROM || is_poor,
            Self::Cheap => bytes >= ZSTD_FROM || (bytes >= TEXT_CODE_FROM && least > bytes / 2) || is_poor,
        }
    }
}

/// Failing to compress is no reason to lose a row: the text is then kept as it is.
fn deflate(zstd: &mut Option<zstd::bulk::Compressor<'static>>, text: &[u8]) -> Option<Vec<u8>> {
    if zstd.is_none() {
        *zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
    }
    zstd.as_mut()?.compress(text).ok()
}

/// Puts a record together again, but for the texts that its layout names.
pub(crate) fn decode(columns: Columns, body: &[u8]) -> Result<(SpanRecord, Layout), Damaged> {
    open(body, |unpacker| fields::unpack(unpacker, columns))
}

/// The record of a body that cannot be read: what its columns say, and that the rest is damaged.
pub(crate) fn unreadable(columns: Columns) -> SpanRecord {
    fields::unreadable(columns)
}

/// Reads a shared text.
pub(crate) fn decode_stored(body: &[u8]) -> Result<Stored, Damaged> {
    match body.split_first() {
        Some((&BRANCH, rest)) => layout::branch(rest).map(Stored::Branch),
        _ => open(body, pieces::unpack).map(Stored::Leaf),
    }
}

/// Reads a shared stretch of a frame.
pub(crate) fn decode_stretch(body: &[u8]) -> Result<Stored, Damaged> {
    match body.split_first() {
        Some((&BRANCH, rest)) => layout::branch(rest).map(Stored::Branch),
        _ => open(body, frames::unpack).map(Stored::Stretch),
    }
}

/// The body of a shared text that is made of others.
pub(crate) fn encode_branch(children: &[i64]) -> Vec<u8> {
    layout::put_branch(vec![BRANCH], children)
}

/// Puts an agent action together again.
pub(crate) fn decode_action(body: &[u8]) -> Result<(AgentAction, Vec<Finding>), Damaged> {
    open(body, fields::unpack_reported)
}

fn open<T>(mut body: &[u8], unpack: impl FnOnce(&mut Unpacker<'_>) -> Result<T, Damaged>) -> Result<T, Damaged> {
    let (&format, rest) = body.split_first().ok_or(Damaged)?;
    body = rest;
    let head_len = usize::try_from(take_varint(&mut body)?).map_err(|_| Damaged)?;
    let (head, mut body) = body.split_at_checked(head_len).ok_or(Damaged)?;
    let text_len = usize::try_from(take_varint(&mut body)?).map_err(|_| Damaged)?;
    if text_len > TEXT_MAX {
        return Err(Damaged);
    }
    let unpacked;
    let text = match format {
        RAW => body,
        ZSTD => {
            unpacked = zstd::bulk::decompress(body, text_len).map_err(|_| Damaged)?;
            unpacked.as_slice()
        }
        HUFFMAN => {
            unpacked = huffman::decode(body, text_len)?;
            unpacked.as_slice()
        }
        TEXT_CODE => {
            unpacked = text_code::decode(body, text_len)?;
            unpacked.as_slice()
        }
        SHORT_CODE => {
            unpacked = short_code::decode(body, text_len)?;
            unpacked.as_slice()
        }
        _ => return Err(Damaged),
    };
    if text.len() != text_len {
        return Err(Damaged);
    }
    let mut unpacker = Unpacker::new(head, text)?;
    let value = unpack(&mut unpacker)?;
    unpacker.finish()?;
    Ok(value)
}

/// A span that holds as little as a span can.
#[cfg(test)]
pub(crate) fn sample_span() -> SpanRecord {
    use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};
    SpanRecord {
        trace_id: TraceId::from_bytes([1; 16]),
        span_id: SpanId::from_bytes([2; 16]),
        parent_span_id: None,
        tenant_id: TenantId::DEFAULT,
        agent_id: None,
        session_id: None,
        client: None,
        operation_name: "chat_completion".into(),
        start_time: Timestamp::from_micros(1_000_000),
        end_time: Timestamp::from_micros(1_250_000),
        provider: "openai".into(),
        model: None,
        streaming: false,
        prompt: None,
        response: None,
        prompt_tokens: None,
        completion_tokens: None,
        total_tokens: None,
        cached_tokens: None,
        reasoning_tokens: None,
        tokens_estimated: false,
        time_to_first_token_ms: None,
        duration_ms: 250.0,
        overhead_us: None,
        status_code: None,
        error_type: None,
        error_message: None,
        finish_reason: None,
        estimated_cost_usd: None,
        security_score: None,
        security_findings: Vec::new(),
        enforcement: "none".into(),
        detectors: Vec::new(),
        tags: std::collections::BTreeMap::new(),
        events: Vec::new(),
        agent_actions: Vec::new(),
        parts: Vec::new(),
        frame: None,
        attributes: crate::record::Attributes::default(),
        prompt_cache: None,
    }
}

#[cfg(test)]
mod tests;
