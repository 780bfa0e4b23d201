//! What a trace is: the spans that share its id, summed up. Both engines use this one definition.

use crate::record::{SpanRecord, TraceRecord};

/// Makes a trace of its spans, given in order of arrival; `None` when there are none. The earliest span, the first to
/// arrive among equals, names provider, model, agent and time.
pub(crate) fn assemble(mut spans: Vec<SpanRecord>) -> Option<TraceRecord> {
    spans.sort_by_key(|span| span.start_time);
    let first = spans.first()?;
    Some(TraceRecord {
        trace_id: first.trace_id,
        tenant_id: first.tenant_id,
        provider: first.provider.clone(),
        model: first.model.clone(),
        agent_id: first.agent_id.clone(),
        created_at: first.start_time,
        span_count: spans.len() as u64,
        security_score: spans.iter().filter_map(|span| span.security_score).max(),
        spans,
    })
}
