//! Spans as rows of the analytics store, and back.
//!
//! A whole span is its `record` (its fields as JSON), its open attributes and its texts, in columns of their own so that nothing reads
//! a text it does not show. A field that a later version adds travels in `record`; it needs no column before somebody filters by
//! it. [`call`] makes the narrow row, in which lists and sums look.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;
use weir_config::vocab::frame::Frame;
use weir_config::vocab::part::PartRecord;

use crate::prompt_cache::{PromptState, ProviderUse};
use crate::queue::weigh;
use crate::record::{Attributes, SpanRecord};

/// Which version of which span of which journal a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) node: Uuid,
    pub(super) seq: u64,
    pub(super) version: u64,
    /// How many of the span's actions, the last ones, a client has reported.
    pub(super) reported: u32,
}

/// A row of the wide table as it is read.
#[derive(Debug, Deserialize)]
pub(super) struct Wide {
    node: Uuid,
    seq: u64,
    version: u64,
    reported: u32,
    record: String,
    attributes: String,
    #[serde(default)]
    prompt: Option<String>,
    #[serde(default)]
    response: Option<String>,
    #[serde(default)]
    parts: String,
    #[serde(default)]
    frame: String,
}

/// Columns of the wide table with the texts, and without.
pub(super) const COLUMNS: &str = "node, seq, version, reported, record, attributes, prompt, response, parts, frame";
pub(super) const COLUMNS_BARE: &str = "node, seq, version, reported, record, attributes";

#[derive(Serialize, Deserialize)]
struct Framed<'a> {
    json: Cow<'a, str>,
    texts: Vec<(u32, u32)>,
}

/// What `record` says beside the span's own fields.
#[derive(Deserialize)]
struct Beside {
    #[serde(default)]
    finding_parts: Vec<Option<u32>>,
}

fn text(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// A value as a line behind those that are there.
fn line(into: &mut Vec<u8>, value: &impl Serialize) -> Result<(), String> {
    let before = into.len();
    let written = serde_json::to_writer(&mut *into, value).map_err(|error| error.to_string());
    if written.is_err() {
        into.truncate(before);
    } else {
        into.push(b'\n');
    }
    written
}

/// What both tables call a span.
#[derive(Serialize)]
struct Keys {
    tenant_id: Uuid,
    start_us: i64,
    trace_id: Uuid,
    span_id: Uuid,
    node: Uuid,
    seq: u64,
    version: u64,
}

impl Keys {
    fn of(span: &SpanRecord, mark: Mark) -> Self {
        Self {
            tenant_id: Uuid::from_bytes(*span.tenant_id.as_bytes()),
            start_us: span.start_time.micros(),
            trace_id: Uuid::from_bytes(*span.trace_id.as_bytes()),
            span_id: Uuid::from_bytes(*span.span_id.as_bytes()),
            node: mark.node,
            seq: mark.seq,
            version: mark.version,
        }
    }
}

/// A row of the wide table as it is written.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    keys: Keys,
    reported: u32,
    record: String,
    attributes: String,
    prompt: Option<&'a str>,
    response: Option<&'a str>,
    parts: String,
    frame: String,
}

/// The span's own JSON without its texts, which have columns of their own, and with what the interface does not show: in which part a
/// finding lies.
fn record(span: &mut SpanRecord) -> Result<String, String> {
    let texts = (span.prompt.take(), span.response.take());
    let written = text(span);
    (span.prompt, span.response) = texts;
    let mut record = written?;
    let parts: Vec<_> = span.security_findings.iter().map(|finding| finding.part).collect();
    if record.pop() != Some('}') {
        return Err("its JSON is no object".to_owned());
    }
    record.push_str(",\"finding_parts\":");
    record.push_str(&text(&parts)?);
    record.push('}');
    Ok(record)
}

/// Adds the row of the wide table to those that are there; the span is as before afterwards.
pub(super) fn row(into: &mut Vec<u8>, span: &mut SpanRecord, mark: Mark) -> Result<(), String> {
    let record = record(span)?;
    let attributes: BTreeMap<&str, &Value> = span.attributes.iter().collect();
    let framed = span.frame.as_ref().map(|frame| Framed {
        json: Cow::Borrowed(frame.json.as_str()),
        texts: frame.texts.iter().map(|range| (range.start, range.end)).collect(),
    });
    let row = Row {
        keys: Keys::of(span, mark),
        reported: mark.reported,
        record,
        attributes: text(&attributes)?,
        prompt: span.prompt.as_deref(),
        response: span.response.as_deref(),
        parts: if span.parts.is_empty() { String::new() } else { text(&span.parts)? },
        frame: framed.map(|framed| text(&framed)).transpose()?.unwrap_or_default(),
    };
    line(into, &row)
}

/// A row of the narrow table as it is written.
#[derive(Serialize)]
struct Call<'a> {
    #[serde(flatten)]
    keys: Keys,
    provider: &'a str,
    model: Option<&'a str>,
    operation: &'a str,
    agent_id: Option<&'a str>,
    session_id: Option<&'a str>,
    client: Option<&'a str>,
    upstream: Option<&'a str>,
    status: u16,
    streaming: u8,
    error_type: Option<&'a str>,
    enforcement: &'a str,
    score: Option<u8>,
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    cached_tokens: u64,
    cost_nano_usd: Option<i64>,
    duration_us: i64,
    finding_types: Vec<&'a str>,
    findings: usize,
    action_types: Vec<&'a str>,
    action_names: Vec<&'a str>,
    action_succeeded: Vec<u8>,
    prompt_broken: u8,
    prompt_unused: u8,
    lost_tokens: u64,
    lost_nano_usd: i64,
    compared_tokens: u64,
    compared_cached_tokens: u64,
    bytes: usize,
}

/// Adds the row of the narrow table: everything that lists filter by and sums add up, and no text.
pub(super) fn call(into: &mut Vec<u8>, span: &SpanRecord, mark: Mark) -> Result<(), String> {
    let reported = span.agent_actions.len().saturating_sub(mark.reported as usize);
    let reported = span.agent_actions.get(reported..).unwrap_or_default();
    let compared = span.prompt_cache.as_deref();
    let of_compared = |tokens: Option<u64>| compared.and(tokens).unwrap_or(0);
    let whole = |value: f64| value.round().clamp(-1e15, 1e15) as i64;
    let call = Call {
        keys: Keys::of(span, mark),
        provider: &span.provider,
        model: span.model.as_deref(),
        operation: &span.operation_name,
        agent_id: span.agent_id.as_deref(),
        session_id: span.session_id.as_deref(),
        client: span.client.as_deref(),
        upstream: span.tags.get("upstream").map(String::as_str),
        status: span.status_code.unwrap_or(0),
        streaming: u8::from(span.streaming),
        error_type: span.error_type.as_deref(),
        enforcement: &span.enforcement,
        score: span.security_score,
        prompt_tokens: span.prompt_tokens.unwrap_or(0),
        completion_tokens: span.completion_tokens.unwrap_or(0),
        total_tokens: span.total_tokens.unwrap_or(0),
        cached_tokens: span.cached_tokens.unwrap_or(0),
        cost_nano_usd: span.estimated_cost_usd.map(|usd| whole(usd * 1e9)),
        duration_us: whole(span.duration_ms * 1e3),
        finding_types: span.security_findings.iter().map(|finding| &*finding.finding_type).collect(),
        findings: span.security_findings.len(),
        action_types: reported.iter().map(|action| &*action.action_type).collect(),
        action_names: reported.iter().map(|action| &*action.name).collect(),
        action_succeeded: reported.iter().map(|action| u8::from(action.success)).collect(),
        prompt_broken: u8::from(compared.is_some_and(|of| of.state == PromptState::Broken)),
        prompt_unused: u8::from(compared.is_some_and(|of| of.provider_use == ProviderUse::NotUsed)),
        lost_tokens: compared.map_or(0, |of| of.lost_tokens),
        lost_nano_usd: compared.and_then(|of| of.lost_usd).map_or(0, |usd| whole(usd * 1e9)),
        compared_tokens: of_compared(span.prompt_tokens),
        compared_cached_tokens: of_compared(span.cached_tokens),
        bytes: weigh(span),
    };
    line(into, &call)
}

impl Wide {
    /// The span, and which version of it.
    pub(super) fn span(self) -> Option<(SpanRecord, Mark)> {
        let mut span: SpanRecord = serde_json::from_str(&self.record).ok()?;
        let beside: Beside = serde_json::from_str(&self.record).ok()?;
        for (finding, part) in span.security_findings.iter_mut().zip(beside.finding_parts) {
            finding.part = part;
        }
        (span.prompt, span.response) = (self.prompt, self.response);
        if !self.parts.is_empty() {
            span.parts = serde_json::from_str::<Vec<PartRecord>>(&self.parts).ok()?;
        }
        if !self.frame.is_empty() {
            let framed: Framed<'_> = serde_json::from_str(&self.frame).ok()?;
            let texts = framed.texts.into_iter().map(|(start, end)| start..end).collect();
            span.frame = Some(Box::new(Frame { json: framed.json.into_owned(), texts }));
        }
        let attributes: Map<String, Value> = serde_json::from_str(&self.attributes).ok()?;
        let mut kept = Attributes::default();
        for (name, value) in attributes {
            // They fitted when they came.
            let _fitted = kept.insert(name, value).is_ok();
        }
        span.attributes = kept;
        Some((span, Mark { node: self.node, seq: self.seq, version: self.version, reported: self.reported }))
    }
}
