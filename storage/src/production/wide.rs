//! Spans as rows of the analytics store, and back.
//!
//! A whole span is its `record` (its fields as JSON), its open attributes and its texts, in columns of their own so that nothing reads
//! a text it does not show. A field that a later version adds travels in `record`; it needs no column before somebody filters by
//! it. [`call`] makes the narrow row, in which lists and sums look.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
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
struct Framed {
    json: String,
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

/// What both tables call a span.
fn key(span: &SpanRecord, mark: Mark) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("tenant_id".to_owned(), json!(span.tenant_id));
    row.insert("start_us".to_owned(), json!(span.start_time.micros()));
    row.insert("trace_id".to_owned(), json!(Uuid::from_bytes(*span.trace_id.as_bytes())));
    row.insert("span_id".to_owned(), json!(Uuid::from_bytes(*span.span_id.as_bytes())));
    row.insert("tenant_id".to_owned(), json!(Uuid::from_bytes(*span.tenant_id.as_bytes())));
    row.insert("node".to_owned(), json!(mark.node));
    row.insert("seq".to_owned(), json!(mark.seq));
    row.insert("version".to_owned(), json!(mark.version));
    row
}

/// The row of the wide table.
pub(super) fn row(span: &SpanRecord, mark: Mark) -> Result<String, String> {
    let mut row = key(span, mark);
    let mut record = serde_json::to_value(span).map_err(|error| error.to_string())?;
    if let Value::Object(fields) = &mut record {
        fields.insert("prompt".to_owned(), Value::Null);
        fields.insert("response".to_owned(), Value::Null);
        // The interface does not show in which part a finding lies, so its JSON lacks it.
        let parts: Vec<_> = span.security_findings.iter().map(|finding| finding.part).collect();
        fields.insert("finding_parts".to_owned(), json!(parts));
    }
    row.insert("reported".to_owned(), json!(mark.reported));
    row.insert("record".to_owned(), Value::String(text(&record)?));
    let attributes: Map<String, Value> =
        span.attributes.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
    row.insert("attributes".to_owned(), Value::String(text(&attributes)?));
    row.insert("prompt".to_owned(), json!(span.prompt));
    row.insert("response".to_owned(), json!(span.response));
    let parts = if span.parts.is_empty() { String::new() } else { text(&span.parts)? };
    row.insert("parts".to_owned(), Value::String(parts));
    let framed = span.frame.as_ref().map(|frame| Framed {
        json: frame.json.clone(),
        texts: frame.texts.iter().map(|range| (range.start, range.end)).collect(),
    });
    let frame = framed.map(|framed| text(&framed)).transpose()?.unwrap_or_default();
    row.insert("frame".to_owned(), Value::String(frame));
    text(&row)
}

/// The row of the narrow table: everything that lists filter by and sums add up, and no text.
pub(super) fn call(span: &SpanRecord, mark: Mark) -> Result<String, String> {
    let mut row = key(span, mark);
    let reported = span.agent_actions.len().saturating_sub(mark.reported as usize);
    let reported = span.agent_actions.get(reported..).unwrap_or_default();
    let cost = span.estimated_cost_usd.map(|usd| (usd * 1e9).round().clamp(-1e15, 1e15) as i64);
    let compared = span.prompt_cache.as_deref();
    let of_compared = |tokens: Option<u64>| compared.and(tokens).unwrap_or(0);
    let nano = |usd: f64| (usd * 1e9).round().clamp(-1e15, 1e15) as i64;
    let values = json!({
        "provider": span.provider,
        "model": span.model,
        "operation": span.operation_name,
        "agent_id": span.agent_id,
        "session_id": span.session_id,
        "client": span.client,
        "upstream": span.tags.get("upstream"),
        "status": span.status_code.unwrap_or(0),
        "streaming": u8::from(span.streaming),
        "error_type": span.error_type,
        "enforcement": span.enforcement,
        "score": span.security_score,
        "prompt_tokens": span.prompt_tokens.unwrap_or(0),
        "completion_tokens": span.completion_tokens.unwrap_or(0),
        "total_tokens": span.total_tokens.unwrap_or(0),
        "cached_tokens": span.cached_tokens.unwrap_or(0),
        "cost_nano_usd": cost,
        "duration_us": (span.duration_ms * 1e3).round().clamp(-1e15, 1e15) as i64,
        "finding_types": span.security_findings.iter().map(|finding| &finding.finding_type).collect::<Vec<_>>(),
        "findings": span.security_findings.len(),
        "action_types": reported.iter().map(|action| &action.action_type).collect::<Vec<_>>(),
        "action_names": reported.iter().map(|action| &action.name).collect::<Vec<_>>(),
        "action_succeeded": reported.iter().map(|action| u8::from(action.success)).collect::<Vec<_>>(),
        "prompt_broken": u8::from(compared.is_some_and(|of| of.state == PromptState::Broken)),
        "prompt_unused": u8::from(compared.is_some_and(|of| of.provider_use == ProviderUse::NotUsed)),
        "lost_tokens": compared.map_or(0, |of| of.lost_tokens),
        "lost_nano_usd": compared.and_then(|of| of.lost_usd).map_or(0, nano),
        "compared_tokens": of_compared(span.prompt_tokens),
        "compared_cached_tokens": of_compared(span.cached_tokens),
        "bytes": weigh(span),
    });
    if let Value::Object(values) = values {
        row.extend(values);
    }
    text(&row)
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
            let framed: Framed = serde_json::from_str(&self.frame).ok()?;
            let texts = framed.texts.into_iter().map(|(start, end)| start..end).collect();
            span.frame = Some(Box::new(Frame { json: framed.json, texts }));
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
