//! Records as one call shows them: with the conversation beside the texts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use weir_config::vocab::{TenantId, Timestamp, TraceId};
use weir_storage::messages::{self, Message};
use weir_storage::record::{SpanRecord, TraceRecord};
use weir_storage::usage::SessionRecord;

/// An item of a list.
pub(super) trait Shown: Serialize + JsonSchema + Send + 'static {
    /// The item with its conversation, where it has one.
    fn with_messages(&self) -> serde_json::Result<Value>;
}

impl Shown for SpanRecord {
    fn with_messages(&self) -> serde_json::Result<Value> {
        serde_json::to_value(SpanShown::of(self))
    }
}

impl Shown for TraceRecord {
    fn with_messages(&self) -> serde_json::Result<Value> {
        serde_json::to_value(TraceShown::of(self))
    }
}

impl Shown for SessionRecord {
    fn with_messages(&self) -> serde_json::Result<Value> {
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
        Self { span, messages: messages::of(span), attributes: span.attributes.iter().collect() }
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
