//! What a span keeps of the comparison of its prompt with the one before it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_config::vocab::SpanId;

/// How a prompt goes on from the one that its session sent before, and what its provider's prompt cache made of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PromptCache {
    /// Whether it goes on from it.
    pub state: PromptState,
    /// The call it was compared with.
    pub previous_span_id: Option<SpanId>,
    /// Bytes of the prompt as compared: settings that providers cache by, tools, system prompt, messages. `cache_control` is none of it.
    pub prompt_bytes: u64,
    /// The same of the call before.
    pub previous_bytes: u64,
    /// How many of them are equal, byte for byte from the beginning, to within 16.
    pub equal_bytes: u64,
    /// The tokens that these are, about.
    pub equal_tokens: u64,
    /// Where the two part; null where the one before is the beginning of this one.
    pub broke_at: Option<BrokeAt>,
    /// Tokens of the call before that this one could have read from a cache, had it not parted from it; about.
    pub lost_tokens: u64,
    /// What these cost more than from the cache, in USD; null where no price is known.
    pub lost_usd: Option<f64>,
    /// What the provider made of the part that is equal.
    pub provider_use: ProviderUse,
}

/// How a prompt goes on from the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum PromptState {
    /// It is the first one of its session that is known here.
    First,
    /// The one before is its beginning.
    Kept,
    /// It parts from the one before so near to the end that less is lost than any provider caches.
    Edited,
    /// It parts from the one before, and what follows cannot be read from a cache.
    Broken,
    /// It is another conversation with the same tools or system prompt, such as one that was summed up.
    StartedOver,
}

/// What a provider made of the part of a prompt that is equal to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ProviderUse {
    /// It read most of it from its cache.
    Used,
    /// It read some of it.
    PartlyUsed,
    /// It read nothing of it, although the prompt was equal, long enough, asked for and not old.
    NotUsed,
    /// It does not say.
    NotReported,
    /// The call before had not ended when this one began.
    NotReady,
    /// The call before is longer ago than caches keep.
    Expired,
    /// The request does not ask for it, and this provider caches only what it is asked to.
    NotAsked,
    /// The equal part is shorter than what providers cache, or there is none.
    TooShort,
}

/// Where a prompt parts from the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BrokeAt {
    /// The kind of thing that is not the same.
    pub part: SegmentKind,
    /// Its place among its kind, from 0.
    pub index: u32,
    /// The name of the tool or setting, the role of the message.
    pub name: Option<String>,
    /// What became of it.
    pub change: Change,
    /// Where it stands in the request, as far as the first byte that differs.
    pub path: String,
    /// The first byte of the text at `path` that differs, to within 16; null where it is not in a text.
    pub byte: Option<u64>,
    /// What stands there.
    pub stands: Option<Stands>,
    /// All of this in words.
    pub says: String,
}

/// A kind of thing that a prompt is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SegmentKind {
    /// The model: each has a cache of its own.
    Model,
    /// A setting that stands before everything else, such as a schema for answers.
    Setting,
    /// A tool's definition.
    Tool,
    /// A piece of the system prompt.
    System,
    /// A setting that changes how messages are read, such as the choice of tools.
    MessageSetting,
    /// A message.
    Message,
}

/// What became of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Change {
    /// It says something else.
    Changed,
    /// It was not there before.
    Inserted,
    /// It is not there any more; `name` and `index` are what it had.
    Removed,
    /// It stands elsewhere.
    Moved,
}

/// What stands where two prompts part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Stands {
    /// A date.
    Date,
    /// A time of day.
    Time,
    /// An id that looks made by chance: a UUID, or many hexadecimal digits.
    Id,
    /// A number.
    Number,
}
