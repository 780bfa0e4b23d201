//! The OpenTelemetry protocol (OTLP 1.9): export requests in, reported spans out.
//!
//! Invariants: whatever comes, the work is linear in its bytes and what is made of it is bounded ([`VALUES_MAX`], [`DEPTH_MAX`]); a
//! span that cannot be read is named and costs only itself; a request that cannot be read is refused whole.

mod fields;
mod indexed;
mod json;
mod messages;
mod names;
mod protobuf;

use serde_json::Value;
use weir_config::vocab::{SpanId, Timestamp, TraceId};
use weir_storage::record::SpanEvent;

pub(crate) use json::{read_json, structure};
pub(crate) use protobuf::read_protobuf;

use super::span::ReportedSpan;

/// Values (attributes, elements of lists) one request may hold.
pub(crate) const VALUES_MAX: usize = 4_000_000;
/// How deep values may stand in one another.
const DEPTH_MAX: usize = 32;
/// Events of one span that are kept.
const EVENTS_MAX: usize = 128;

/// Why a request cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// It ends within a field.
    #[error("the body ends within a field: it is cut, or no `ExportTraceServiceRequest`")]
    Truncated,
    /// A field has another wire type than the protocol gives it.
    #[error("`{0}` has a wire type other than the protocol's: the body is no `ExportTraceServiceRequest`")]
    WireType(&'static str),
    /// More values than are taken.
    #[error("the request holds more than {VALUES_MAX} values; send it in parts")]
    TooMany,
    /// No JSON.
    #[error("the body is not valid JSON: {0}")]
    Json(String),
    /// JSON of another shape.
    #[error("`{0}` must be {1}")]
    Shape(&'static str, &'static str),
}

/// A span, or why it is none.
pub(crate) type Read = Result<ReportedSpan, String>;
/// Attributes in the order of the wire.
type Attributes = Vec<(String, Value)>;

/// A span as the protocol has it.
#[derive(Debug, Default)]
struct Raw {
    trace_id: Vec<u8>,
    span_id: Vec<u8>,
    parent_span_id: Vec<u8>,
    name: String,
    start_ns: u64,
    end_ns: u64,
    attributes: Attributes,
    events: Vec<RawEvent>,
    is_error: bool,
    status_message: String,
}

#[derive(Debug, Default)]
struct RawEvent {
    time_ns: u64,
    name: String,
    attributes: Attributes,
}

/// Whose span it is.
#[derive(Debug, Default)]
struct Origin {
    resource: Attributes,
    scope: String,
}

/// The span it reports.
fn report(raw: Raw, origin: &Origin) -> Read {
    let trace_id: [u8; 16] =
        raw.trace_id.as_slice().try_into().map_err(|_| id_fault("traceId", 16, raw.trace_id.len()))?;
    let span_id = span_id(&raw.span_id).ok_or_else(|| id_fault("spanId", 8, raw.span_id.len()))?;
    let parent = match raw.parent_span_id.as_slice() {
        [] => None,
        given => Some(span_id_or_none(given).ok_or_else(|| id_fault("parentSpanId", 8, given.len()))?),
    };
    let (start, end) = (time(raw.start_ns), time(raw.end_ns));
    let mut span = ReportedSpan::new(TraceId::from_bytes(trace_id), span_id, start, end);
    span.parent_span_id = parent.flatten();
    if raw.is_error {
        span.error_type = Some("error".to_owned());
        span.error_message = Some(raw.status_message).filter(|said| !said.is_empty());
    }
    let mut events: Vec<RawEvent> = raw.events;
    fields::fill(&mut span, raw.name, raw.attributes, &mut events, origin);
    span.events.extend(events.into_iter().take(EVENTS_MAX).map(event));
    Ok(span)
}

fn event(raw: RawEvent) -> SpanEvent {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    SpanEvent {
        timestamp: time(raw.time_ns),
        event_type: raw.name.into(),
        description: String::new(),
        data: raw.attributes.into_iter().map(|(name, value)| (name, text(value))).collect(),
    }
}

fn span_id(bytes: &[u8]) -> Option<SpanId> {
    <[u8; 8]>::try_from(bytes).ok().map(SpanId::from_w3c)
}

/// A parent of zeros is none.
fn span_id_or_none(bytes: &[u8]) -> Option<Option<SpanId>> {
    span_id(bytes).map(|id| Some(id).filter(|id| !id.uuid().is_nil()))
}

fn id_fault(name: &str, wanted: usize, got: usize) -> String {
    format!("`{name}` has {got} bytes; it must have {wanted} ({} hexadecimal digits in JSON)", wanted * 2)
}

fn time(ns: u64) -> Timestamp {
    Timestamp::from_micros(i64::try_from(ns / 1_000).unwrap_or(i64::MAX))
}
