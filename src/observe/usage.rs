//! Token counters of all dialects.
//!
//! | dialect | prompt counter | cached tokens |
//! |---|---|---|
//! | chat completions, responses, Gemini | includes them | a part of it |
//! | messages, Bedrock | excludes them | counted beside it (`cache_read_*`, `cache_creation_*` / `cacheWrite*`) |
//!
//! Invariant: counters only grow, because streams repeat them cumulatively.

use super::absorb::{Value, next_key, skip, value};
use super::answer::Collector;
use crate::json::{Fault, Walker, integer};

/// Takes a counter if it is larger than what is known.
pub(super) fn raise(counter: &mut Option<u64>, spelled: &str) {
    if let Some(n) = integer(spelled) {
        *counter = Some(counter.map_or(n, |known| known.max(n)));
    }
}

/// Reads a usage object that has been entered.
pub(super) fn read(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), Fault> {
    while let Some(key) = next_key(walker)? {
        let known = key.decode();
        let counters = &mut collector.counters;
        match (known.as_bytes(), value(walker)?) {
            (b"prompt_tokens" | b"input_tokens" | b"promptTokenCount" | b"inputTokens", Value::Number(n)) => {
                raise(&mut counters.prompt, n);
            }
            (b"completion_tokens" | b"output_tokens" | b"candidatesTokenCount" | b"outputTokens", Value::Number(n)) => {
                raise(&mut counters.completion, n);
            }
            (b"total_tokens" | b"totalTokenCount" | b"totalTokens", Value::Number(n)) => raise(&mut counters.total, n),
            (b"cached_tokens" | b"prompt_cache_hit_tokens" | b"cachedContentTokenCount", Value::Number(n)) => {
                raise(&mut counters.cached, n);
            }
            (b"cache_read_input_tokens" | b"cacheReadInputTokens" | b"cacheReadInputTokenCount", Value::Number(n)) => {
                raise(&mut counters.cache_read, n);
            }
            (
                b"cache_creation_input_tokens" | b"cacheWriteInputTokens" | b"cacheWriteInputTokenCount",
                Value::Number(n),
            ) => raise(&mut counters.cache_write, n),
            (b"reasoning_tokens", Value::Number(n)) => raise(&mut counters.reasoning, n),
            (b"thoughtsTokenCount", Value::Number(n)) => raise(&mut counters.thoughts, n),
            (
                b"prompt_tokens_details"
                | b"input_tokens_details"
                | b"completion_tokens_details"
                | b"output_tokens_details",
                Value::Object,
            ) => read(collector, walker)?,
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}
