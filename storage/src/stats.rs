//! What the interface shows about a tenant's records in sum.

use schemars::JsonSchema;
use serde::Serialize;
use weir_config::vocab::{TenantId, Timestamp};

/// `GET /api/v1/stats`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Stats {
    /// Whose.
    pub tenant_id: TenantId,
    /// Traces stored.
    pub total_traces: u64,
    /// Spans stored.
    pub total_spans: u64,
    /// Findings of those spans, those of reported actions included.
    pub total_findings: u64,
    /// Tokens of those spans.
    pub total_tokens: u64,
    /// What those spans cost, where the model has a price.
    pub total_cost_usd: f64,
    /// Bytes of the records, compressed; shares of indexes and free pages are not in it.
    pub storage_bytes: u64,
    /// Start of the oldest trace.
    pub oldest_trace: Option<Timestamp>,
    /// Start of the newest trace.
    pub newest_trace: Option<Timestamp>,
}
