//! The blank record of an exchange: who, when, where to. Later stages fill in the rest.

use std::borrow::Cow;
use std::collections::BTreeMap;

use weir_config::vocab::{Operation, Provider, SpanId, TenantId, Timestamp, TraceId};
use weir_storage::record::{Attributes, SpanRecord};

/// What is known of an exchange as soon as its request head has been read.
#[derive(Debug, Clone)]
pub struct CallIds {
    /// Whose exchange it is.
    pub tenant_id: TenantId,
    /// The caller's trace, or a fresh one.
    pub trace_id: TraceId,
    /// This exchange.
    pub span_id: SpanId,
    /// The caller's span.
    pub parent_span_id: Option<SpanId>,
    /// `X-Service-Agent-ID`.
    pub agent_id: Option<String>,
    /// The session a header names.
    pub session_id: Option<String>,
    /// The client's software.
    pub client: Option<String>,
    /// Who answers.
    pub provider: Provider,
    /// Whose prices hold, where that is not `provider`.
    pub priced_as: Option<Provider>,
    /// What is asked for.
    pub operation: Operation,
    /// The model the path names.
    pub path_model: Option<String>,
    /// When the head had been read.
    pub start_time: Timestamp,
}

impl CallIds {
    /// Whose prices hold.
    pub fn priced_as(&self) -> &Provider {
        self.priced_as.as_ref().unwrap_or(&self.provider)
    }
}

/// A provider as a record names it.
pub fn name_of(provider: &Provider) -> Cow<'static, str> {
    let known = provider.label();
    if known == provider.as_str() { Cow::Borrowed(known) } else { Cow::Owned(provider.to_string()) }
}

/// A span that has only begun: no text, no counts, no status, nothing found, no detector run.
pub fn blank(ids: &CallIds) -> Box<SpanRecord> {
    Box::new(SpanRecord {
        trace_id: ids.trace_id,
        span_id: ids.span_id,
        parent_span_id: ids.parent_span_id,
        tenant_id: ids.tenant_id,
        agent_id: ids.agent_id.clone(),
        session_id: ids.session_id.clone(),
        client: ids.client.clone(),
        operation_name: Cow::Borrowed(ids.operation.as_str()),
        start_time: ids.start_time,
        end_time: ids.start_time,
        provider: name_of(&ids.provider),
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
        duration_ms: 0.0,
        overhead_us: None,
        status_code: None,
        error_type: None,
        error_message: None,
        finish_reason: None,
        estimated_cost_usd: None,
        security_score: None,
        security_findings: Vec::new(),
        enforcement: Cow::Borrowed("none"),
        detectors: Vec::new(),
        tags: BTreeMap::new(),
        events: Vec::new(),
        agent_actions: Vec::new(),
        parts: Vec::new(),
        frame: None,
        attributes: Attributes::default(),
        prompt_cache: None,
    })
}
