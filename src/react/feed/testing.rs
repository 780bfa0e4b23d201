//! A span for the tests of what reads finished calls.

use weir_config::vocab::{Operation, Provider, SpanId, TenantId, Timestamp, TraceId};
use weir_storage::record::SpanRecord;

use crate::record::{CallIds, blank};

/// A span of a call of the default tenant that has only begun.
pub(crate) fn blank_call() -> Box<SpanRecord> {
    blank(&CallIds {
        tenant_id: TenantId::DEFAULT,
        trace_id: TraceId::fresh(),
        span_id: SpanId::fresh(),
        parent_span_id: None,
        agent_id: None,
        session_id: None,
        client: None,
        provider: Provider::OPENAI,
        priced_as: None,
        operation: Operation::ChatCompletion,
        path_model: None,
        start_time: Timestamp::now(),
    })
}
