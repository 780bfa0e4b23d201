//! Records as one call shows them: with the conversation beside the texts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use weir_config::vocab::{TenantId, Timestamp, TraceId};
use weir_storage::messages::{self, Message};
use weir_storage::record::{COST_BREAKDOWN, SpanRecord, TraceRecord};
use weir_storage::usage::SessionRecord;

use crate::money::shown_breakdown;

/// An item of a list.
pub(super) trait Shown: Serialize + JsonSchema + Send + 'static {
    /// The item with its conversation, where it has one; with its requests, too, if `request` says so.
    fn with_messages(&self, request: bool) -> serde_json::Result<Value>;
}

impl Shown for SpanRecord {
    fn with_messages(&self, request: bool) -> serde_json::Result<Value> {
        serde_json::to_value(SpanShown::of(self).asking(request))
    }
}

impl Shown for TraceRecord {
    fn with_messages(&self, request: bool) -> serde_json::Result<Value> {
        let mut shown = TraceShown::of(self);
        shown.spans = shown.spans.into_iter().map(|span| span.asking(request)).collect();
        serde_json::to_value(shown)
    }
}

impl Shown for SessionRecord {
    fn with_messages(&self, _: bool) -> serde_json::Result<Value> {
        serde_json::to_value(self)
    }
}

/// One span with its conversation.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SpanShown<'a> {
    #[serde(flatten)]
    span: &'a SpanRecord,
    /// Who said what, in the order of the wire; empty where only the texts are known.
    messages: Vec<Message<'a>>,
    /// The body of the request as it was sent, to ask the same again: what was redacted is redacted, a file is its SHA-256. Only where
    /// `fields` names it; null for calls without tools, of which the conversation says all that a request of the dialect needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Value>,
    /// How the cost came about: units, rates, whose prices they are. Null where there is no cost.
    cost_breakdown: Option<Value>,
    /// What its sender said beyond these fields. Left out where there is nothing, as for every call that passed the gateway.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'a str, &'a Value>,
}

/// One trace whose spans have their conversations.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TraceShown<'a> {
    /// Identifies the trace within its tenant.
    trace_id: TraceId,
    /// Whose trace it is.
    tenant_id: TenantId,
    /// Provider of its first span.
    provider: &'a str,
    /// Model of its first span.
    model: Option<&'a str>,
    /// Agent of its first span.
    agent_id: Option<&'a str>,
    /// Start of its earliest span.
    created_at: Timestamp,
    /// Number of spans.
    span_count: u64,
    /// Worst score of its spans; `None` when none was analysed.
    security_score: Option<u8>,
    /// Spans, earliest first.
    spans: Vec<SpanShown<'a>>,
}

impl<'a> SpanShown<'a> {
    pub(crate) fn of(span: &'a SpanRecord) -> Self {
        let breakdown = span.attributes.get(COST_BREAKDOWN).and_then(Value::as_str);
        Self {
            span,
            messages: messages::of(span),
            request: None,
            cost_breakdown: breakdown.and_then(shown_breakdown),
            attributes: span.attributes.iter().filter(|(name, _)| *name != COST_BREAKDOWN).collect(),
        }
    }

    /// The same with the request, if it is asked for.
    fn asking(mut self, request: bool) -> Self {
        let body = || Some(self.span.frame.as_ref()?.body(self.span.prompt.as_deref().unwrap_or_default()));
        self.request = request.then(|| body().and_then(|body| serde_json::from_str(&body).ok()).unwrap_or_default());
        self
    }
}

impl<'a> TraceShown<'a> {
    pub(crate) fn of(trace: &'a TraceRecord) -> Self {
        Self {
            trace_id: trace.trace_id,
            tenant_id: trace.tenant_id,
            provider: &trace.provider,
            model: trace.model.as_deref(),
            agent_id: trace.agent_id.as_deref(),
            created_at: trace.created_at,
            span_count: trace.span_count,
            security_score: trace.security_score,
            spans: trace.spans.iter().map(SpanShown::of).collect(),
        }
    }
}
