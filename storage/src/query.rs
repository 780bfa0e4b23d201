//! Questions the query API asks. Every read takes the tenant first, then one of these.

use schemars::JsonSchema;
use serde::Serialize;
use weir_config::vocab::Timestamp;

/// Items of one page at most; a larger limit is taken as this one.
pub(crate) const PAGE_MAX: u32 = 1000;

/// Window of a list: `limit` items after skipping `offset`, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// At most this many items, 1 to 1000.
    pub limit: u32,
    /// Items to skip.
    pub offset: u64,
    /// Where an answer has no room for so many: as many as it has room for, which the answer's `limit` then says, instead
    /// of an error. For who named no number.
    pub or_fewer: bool,
}

impl Page {
    pub(crate) fn within_bounds(self) -> Self {
        Self { limit: self.limit.clamp(1, PAGE_MAX), ..self }
    }
}

/// One page of a list, in the envelope the interface shows.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "PageOf{T}")]
pub struct Paged<T> {
    /// The items.
    pub data: Vec<T>,
    /// How many items match in all.
    pub total: u64,
    /// Effective limit: of the next page, items to skip further.
    pub limit: u32,
    /// Effective offset.
    pub offset: u64,
}

/// Filters of the trace list. Unset means any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceFilter {
    /// Inclusive lower bound of `created_at`.
    pub start_time: Option<Timestamp>,
    /// Inclusive upper bound of `created_at`.
    pub end_time: Option<Timestamp>,
    /// Exact provider identifier.
    pub provider: Option<String>,
    /// Exact model name.
    pub model: Option<String>,
}

/// Filters of the span list. Unset means any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpanFilter {
    /// Inclusive; spans without a score never match a score bound.
    pub security_score_min: Option<u8>,
    /// Inclusive.
    pub security_score_max: Option<u8>,
    /// Exact operation name.
    pub operation_name: Option<String>,
    /// Exact model name.
    pub model: Option<String>,
}
