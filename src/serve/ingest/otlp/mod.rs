//! The OpenTelemetry protocol (OTLP 1.9): export requests in, reported spans out.
//!
//! Invariants: whatever comes, the work is linear in its bytes and what is made of it is bounded ([`VALUES_MAX`], [`DEPTH_MAX`]); a
//! span that cannot be read is named and costs only itself; a request that cannot be read is refused whole.

mod details;
mod fields;
mod indexed;
mod json;
mod messages;
mod names;
mod protobuf;
mod steps;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;

use serde_json::Value;
use weir_config::vocab::{SpanId, Timestamp, TraceId};
use weir_storage::record::SpanEvent;

pub(crate) use json::{read_json, weight};
pub(crate) use protobuf::read_protobuf;

use super::intake::SPANS_MAX;
use super::span::{LeftOut, ReportedSpan, SCOPE_NAME};
use crate::rt::yielding;

/// Values (attributes, elements of lists) one request may hold.
pub(crate) const VALUES_MAX: usize = 1_000_000;
/// How deep values may stand in one another.
const DEPTH_MAX: usize = 32;
/// Events of one span that are kept.
const EVENTS_MAX: usize = 128;
/// Links of one span that are kept.
const LINKS_MAX: usize = 128;
/// Bytes of one of a resource's or scope's values, and of its attributes together, that are kept with each of its spans.
const RESOURCE_VALUE_BYTES_MAX: usize = 1024;
const RESOURCE_BYTES_MAX: usize = 4 * 1024;
/// Bytes of a name that stands once for many spans.
const NAME_BYTES_MAX: usize = 256;

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
    /// There is no memory for what its values become.
    #[error("no memory is free for the values of this request at the moment; send it again in a second, or in parts")]
    NoRoom,
    /// No JSON.
    #[error("the body is not valid JSON: {0}")]
    Json(String),
    /// JSON of another shape.
    #[error("`{0}` must be {1}")]
    Shape(&'static str, &'static str),
}

/// A span, or why it is none.
pub(crate) type Read = Result<ReportedSpan, String>;

/// The spans of a request.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    /// As many as are taken at once.
    pub(crate) read: Vec<Read>,
    /// How many more there are.
    pub(crate) beyond: usize,
}

impl Spans {
    /// Reads one more, where it may be taken.
    fn push<F>(&mut self, read: impl FnOnce() -> Result<Read, F>) -> Result<(), F> {
        if self.read.len() < SPANS_MAX {
            yielding::pause();
            self.read.push(read()?);
        } else {
            self.beyond += 1;
        }
        Ok(())
    }
}

/// Spans that can be taken, apart from those that cannot.
pub(crate) struct Sorted {
    pub(crate) spans: Vec<ReportedSpan>,
    /// Where each of them stood.
    places: Vec<usize>,
    /// Where the others stood, and why they are none.
    rejected: Vec<(usize, String)>,
    beyond: usize,
}

impl Spans {
    pub(crate) fn sorted(self) -> Sorted {
        let mut sorted = Sorted {
            spans: Vec::with_capacity(self.read.len()),
            places: Vec::with_capacity(self.read.len()),
            rejected: Vec::new(),
            beyond: self.beyond,
        };
        for (at, read) in self.read.into_iter().enumerate() {
            match read {
                Ok(span) => {
                    sorted.spans.push(span);
                    sorted.places.push(at);
                }
                Err(reason) => sorted.rejected.push((at, reason)),
            }
        }
        sorted
    }
}

impl Sorted {
    /// All that was rejected, by places in the request, when `more` of its spans were; and how many were not read at all.
    pub(crate) fn rejected(mut self, more: Vec<(usize, String)>) -> (Vec<(usize, String)>, usize) {
        let more = more.into_iter().filter_map(|(at, reason)| Some((*self.places.get(at)?, reason)));
        self.rejected.extend(more);
        self.rejected.sort_by_key(|(at, _)| *at);
        (self.rejected, self.beyond)
    }
}

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
    /// Its number in the protocol.
    kind: u64,
    trace_state: String,
    links: Vec<RawLink>,
    /// What the sender itself has left out: attributes, events, links.
    dropped: [u64; 3],
    left_out: LeftOut,
}

#[derive(Debug, Default)]
struct RawEvent {
    time_ns: u64,
    name: String,
    attributes: Attributes,
}

#[derive(Debug, Default)]
struct RawLink {
    trace_id: Vec<u8>,
    span_id: Vec<u8>,
    trace_state: String,
    attributes: Attributes,
}

/// Who reports, as far as a request says so for many spans at once.
#[derive(Debug, Default)]
struct RawScope {
    name: String,
    version: String,
    attributes: Attributes,
}

/// Whose spans they are: what stands once in a request, for as many spans as it may have.
#[derive(Debug, Default)]
struct Origin {
    tenant: Option<Value>,
    session: Option<String>,
    client: Option<String>,
    /// The other attributes of the resource. Spans share them, so that they take no more room than they came with.
    resource: Arc<Attributes>,
    /// The same of the scope, its name and version among them.
    scope: Arc<Attributes>,
}

impl Origin {
    /// Of a resource, of whose values so many stood too deep in others.
    fn of(resource: Attributes, too_deep: usize) -> Self {
        let mut origin = Self::default();
        let mut kept = Kept::default();
        for (name, value) in resource {
            match name.as_str() {
                "service.tenant_id" => origin.tenant = Some(value),
                "service.name" => origin.client = Some(short(messages::text(value))),
                "session.id" => origin.session = Some(short(messages::text(value))),
                name => kept.push("resource", name, value),
            }
        }
        origin.resource = kept.finish("resource", too_deep);
        origin
    }

    fn set_scope(&mut self, scope: RawScope, too_deep: usize) {
        let mut kept = Kept::default();
        for (name, value) in scope.attributes {
            kept.push("scope", &name, value);
        }
        for (name, value) in [(SCOPE_NAME, scope.name), ("otel.scope.version", scope.version)] {
            if !value.is_empty() {
                kept.attributes.push((name.to_owned(), Value::String(short(value))));
            }
        }
        self.scope = kept.finish("scope", too_deep);
    }
}

/// Attributes that are kept with many spans, within their bounds.
#[derive(Default)]
struct Kept {
    attributes: Attributes,
    bytes: usize,
    dropped: usize,
}

impl Kept {
    fn push(&mut self, of: &str, name: &str, value: Value) {
        let value = fields::cut(value, RESOURCE_VALUE_BYTES_MAX);
        let more = name.len() + messages::len(&value);
        if self.bytes + more <= RESOURCE_BYTES_MAX {
            self.bytes += more;
            self.attributes.push((format!("{of}.{name}"), value));
        } else {
            self.dropped += 1;
        }
    }

    /// All of them, and how much is missing.
    fn finish(mut self, of: &str, too_deep: usize) -> Arc<Attributes> {
        for (what, count) in [("attributes_dropped", self.dropped), ("values_dropped", too_deep)] {
            if count > 0 {
                self.attributes.push((format!("{of}.{what}"), count.into()));
            }
        }
        Arc::new(self.attributes)
    }
}

fn short(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(NAME_BYTES_MAX));
    text
}

/// The span it reports.
fn report(mut raw: Raw, origin: &Origin) -> Read {
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
        span.error_message = Some(std::mem::take(&mut raw.status_message)).filter(|said| !said.is_empty());
    }
    raw.left_out.links += raw.links.len().saturating_sub(LINKS_MAX);
    let details = details::take(&mut raw);
    let mut events: Vec<RawEvent> = raw.events;
    fields::fill(&mut span, raw.name, raw.attributes, &mut events, origin);
    span.attributes.extend(details);
    raw.left_out.events += events.len().saturating_sub(EVENTS_MAX);
    span.left_out = raw.left_out;
    span.events.extend(events.into_iter().take(EVENTS_MAX).map(event));
    Ok(span)
}

fn event(raw: RawEvent) -> SpanEvent {
    let text = |value: Value| messages::text(fields::cut(value, fields::VALUE_BYTES_MAX));
    SpanEvent {
        timestamp: time(raw.time_ns),
        event_type: raw.name.into(),
        description: String::new(),
        data: raw.attributes.into_iter().map(|(name, value)| (name, text(value))).collect(),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a text does not fail.
        let _written = write!(text, "{byte:02x}");
        text
    })
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
