//! What was used, in sum: sessions, and series over time.

use schemars::JsonSchema;
use serde::Serialize;
use weir_config::vocab::Timestamp;

/// A session: the calls that name it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SessionRecord {
    /// As its client names it.
    pub session_id: String,
    /// Agent of its latest call.
    pub agent_id: Option<String>,
    /// Client of its latest call.
    pub client: Option<String>,
    /// Model of its latest call.
    pub model: Option<String>,
    /// Start of its earliest call on record.
    pub first_call_at: Option<Timestamp>,
    /// Start of its latest call on record.
    pub last_call_at: Option<Timestamp>,
    /// Calls on record.
    pub calls: u64,
    /// Those of them that failed: a status of 400 or more, or an error.
    pub failed_calls: u64,
    /// Tokens of its calls.
    pub total_tokens: u64,
    /// USD; calls without a price count as nothing.
    pub total_cost_usd: f64,
    /// Worst score of its calls, those that retention has taken among them; `None` when none was analysed.
    pub security_score: Option<u8>,
    /// What came of its prompts.
    pub prompt_cache: PromptSums,
}

/// What came of the prompts of a session's calls, those that retention has taken among them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct PromptSums {
    /// Calls whose prompt parted from the one before so that what follows could not be read from a cache.
    pub broken_calls: u64,
    /// Calls of whose prompt the provider read nothing from its cache although it could have.
    pub unused_calls: u64,
    /// Tokens that could have been read from a cache, had no prompt parted from the one before; about.
    pub lost_tokens: u64,
    /// What these cost more than from the cache, in USD; calls without a price count as nothing.
    pub lost_usd: f64,
    /// Tokens of the prompts that were compared.
    pub prompt_tokens: u64,
    /// How many of them came from the provider's cache.
    pub cached_tokens: u64,
}

/// Filters of the list of sessions. Unset means any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Sessions with a call at this time or later.
    pub start_time: Option<Timestamp>,
    /// Sessions with a call at this time or earlier.
    pub end_time: Option<Timestamp>,
    /// Exact agent of a call.
    pub agent_id: Option<String>,
    /// Exact client of a call.
    pub client: Option<String>,
    /// What came of its prompts.
    pub prompt_cache: Option<CacheMiss>,
}

/// What may be wrong with the prompts of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMiss {
    /// One parted from the one before.
    Broken,
    /// One was not read from the provider's cache although it could have been.
    Unused,
}

impl PromptSums {
    /// Whether a call has this fault.
    pub const fn has(&self, fault: CacheMiss) -> bool {
        match fault {
            CacheMiss::Broken => self.broken_calls > 0,
            CacheMiss::Unused => self.unused_calls > 0,
        }
    }
}

/// What a series is split by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Nothing: the tenant as a whole.
    Tenant,
    /// `X-Service-Agent-ID`.
    Agent,
    /// Models.
    Model,
    /// Sessions.
    Session,
    /// Clients.
    Client,
}

/// A question for a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesQuery {
    /// Begins with the bucket that holds this moment.
    pub start: Timestamp,
    /// Ends before this moment.
    pub end: Timestamp,
    /// Hours of a bucket: 1 or 24.
    pub bucket_hours: u32,
    /// What it is split by.
    pub split: Split,
    /// Only this agent.
    pub agent_id: Option<String>,
    /// Only this session.
    pub session_id: Option<String>,
    /// Only this model.
    pub model: Option<String>,
    /// Points at most; the room is shared out between the buckets.
    pub points_max: u32,
}

/// One point of a series: what was used in a bucket of time by one of those it is split by.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SeriesPoint {
    /// Start of the bucket.
    pub start_time: Timestamp,
    /// The agent, model, session or client; `None` where a call names none, and for the tenant as a whole.
    pub name: Option<String>,
    /// Calls.
    pub calls: u64,
    /// Those of them that failed.
    pub failed_calls: u64,
    /// Tokens.
    pub total_tokens: u64,
    /// USD; calls without a price count as nothing.
    pub total_cost_usd: f64,
}

/// A series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// In order of time, the costliest of a bucket first.
    pub points: Vec<SeriesPoint>,
    /// What those that there was no room for come to, one point a bucket. Stores that several gateways share do not say it.
    pub others: Vec<SeriesPoint>,
    /// There were more.
    pub truncated: bool,
    /// Summing up took too long: what had not been reached then is in no figure.
    pub partial: bool,
}
