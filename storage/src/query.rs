//! Questions the query API asks. Every read takes the tenant first, then one of these.

use schemars::JsonSchema;
use serde::Serialize;
use weir_config::vocab::{SpanId, Timestamp};

/// Items of one page at most; a larger limit is taken as this one.
pub(crate) const PAGE_MAX: u32 = 1000;
/// Bytes of records one answer may hold. As many answers as there are readers are made at a time.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Entries of an index that one page is searched in, where the sums do not know what is asked for.
const LOOKS_MAX: u32 = 150_000;

/// Window of a list: `limit` items after skipping `offset`, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// At most this many items, 1 to 1000.
    pub limit: u32,
    /// Items to skip; not looked at where `after` is set.
    pub offset: u64,
    /// Where an answer has no room for so many: as many as it has room for, which the answer's `limit` then says, instead
    /// of an error. For who named no number.
    pub or_fewer: bool,
    /// Begins behind what a former page ended with.
    pub after: Option<Place>,
    /// With the texts of requests and answers.
    pub texts: bool,
    /// Nothing further is read once the items take so many bytes.
    pub enough_bytes: usize,
    /// Entries of an index that are looked through at most. What a page has then is its end, and [`Paged::next`] goes on.
    pub looks: u32,
    /// A piece of a list that is taken to its end. The first says what the list lacks
    /// ([`Paged::unshipped`]).
    pub whole: bool,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            limit: 50,
            offset: 0,
            or_fewer: false,
            after: None,
            texts: true,
            enough_bytes: ANSWER_BYTES_MAX,
            looks: LOOKS_MAX,
            whole: false,
        }
    }
}

impl Page {
    pub(crate) fn within_bounds(self) -> Self {
        Self { limit: self.limit.clamp(1, PAGE_MAX), ..self }
    }
}

/// Where a page of spans, traces or sessions ended, and what was known of the list by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Start of the last row that was passed.
    pub start_us: i64,
    /// Its number.
    pub row: i64,
    /// The id of the span there, where several gateways count rows of their own, so that two may have the same start and number.
    pub span: Option<SpanId>,
    /// Items of the list up to here, those that `offset` skipped among them.
    pub passed: u64,
    /// Matching items still to be skipped.
    pub skip: u64,
    /// As in the answer.
    pub total: u64,
    /// As in the answer.
    pub total_is_exact: bool,
}

impl Place {
    /// Behind a row, in a list that is ordered by its rows' numbers.
    pub(crate) const fn of_row(row: i64) -> Self {
        Self { start_us: 0, row, span: None, passed: 0, skip: 0, total: 0, total_is_exact: false }
    }

    /// The same place in a list that is followed to its end, whatever was known of its length: what is recorded meanwhile must not end
    /// it early.
    #[must_use]
    pub fn to_the_end(self) -> Self {
        Self { total: 0, total_is_exact: false, ..self }
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
    /// Whether `total` is all of them, or as many as were counted.
    #[serde(skip)]
    pub total_is_exact: bool,
    /// Where the next page begins; `None` at the end.
    #[serde(skip)]
    pub next: Option<Place>,
    /// Of the first piece of a whole list ([`Page::whole`]): how many of the tenant's spans waited in this gateway's journal for the store
    /// that all gateways share, and may not be in the list.
    #[serde(skip)]
    pub unshipped: u64,
}

impl<T> Paged<T> {
    /// A page of a list whose length is known.
    pub fn new(data: Vec<T>, total: u64, page: Page) -> Self {
        Self { data, total, limit: page.limit, offset: page.offset, total_is_exact: true, next: None, unshipped: 0 }
    }
}

/// Filters over what a span says about its call. Unset means any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facets {
    /// Lowest and highest status, inclusive.
    pub status: Option<(u16, u16)>,
    /// Exact error type.
    pub error_type: Option<String>,
    /// Exact agent.
    pub agent_id: Option<String>,
    /// Exact session.
    pub session_id: Option<String>,
    /// Exact client.
    pub client: Option<String>,
    /// A finding of exactly this type is among the span's.
    pub finding_type: Option<String>,
    /// Inclusive, in nanodollars; spans without a price never match a bound.
    pub cost_min_nano_usd: Option<i64>,
    /// Inclusive.
    pub cost_max_nano_usd: Option<i64>,
    /// Inclusive, in microseconds.
    pub duration_min_us: Option<i64>,
    /// Inclusive.
    pub duration_max_us: Option<i64>,
    /// Whether the answer was a stream.
    pub streaming: Option<bool>,
    /// Exact upstream: the span's tag of this name.
    pub upstream: Option<String>,
}

/// Filters of the trace list. Unset means any. All but the times are about the trace's first span.
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
    /// About the first span.
    pub facets: Facets,
}

/// Filters of the span list. Unset means any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpanFilter {
    /// Inclusive lower bound of `start_time`.
    pub start_time: Option<Timestamp>,
    /// Inclusive upper bound of `start_time`.
    pub end_time: Option<Timestamp>,
    /// Exact provider identifier.
    pub provider: Option<String>,
    /// Inclusive; spans without a score never match a score bound.
    pub security_score_min: Option<u8>,
    /// Inclusive.
    pub security_score_max: Option<u8>,
    /// Exact operation name.
    pub operation_name: Option<String>,
    /// Exact model name.
    pub model: Option<String>,
    /// About the call.
    pub facets: Facets,
}
