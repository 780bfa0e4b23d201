//! Token counters of all dialects.
//!
//! | dialect | prompt counter | cached tokens |
//! |---|---|---|
//! | chat completions, responses, Gemini | includes them | a part of it |
//! | messages, Bedrock | excludes them | counted beside it (`cache_read_*`, `cache_creation_*` / `cacheWrite*`) |
//! | messages' counters beside `prompt_tokens` (translating proxies) | includes them | a part of it |
//!
//! Reasoning is a part of the output in all of them but Gemini (`thoughtsTokenCount` stands beside it) and the servers
//! whose total says that it was added (`prompt + completion + reasoning`).
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
            (b"prompt_tokens", Value::Number(n)) => {
                counters.inclusive = true;
                raise(&mut counters.prompt, n);
            }
            (b"input_tokens" | b"promptTokenCount" | b"inputTokens", Value::Number(n)) => {
                raise(&mut counters.prompt, n);
            }
            (b"toolUsePromptTokenCount", Value::Number(n)) => raise(&mut counters.tool_prompt, n),
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
            (b"cache_write_tokens", Value::Number(n)) => raise(&mut counters.written, n),
            (b"ephemeral_5m_input_tokens", Value::Number(n)) => raise(&mut counters.cache_write_5m, n),
            (b"ephemeral_1h_input_tokens", Value::Number(n)) => raise(&mut counters.cache_write_1h, n),
            (b"reasoning_tokens", Value::Number(n)) => raise(&mut counters.reasoning, n),
            (b"thoughtsTokenCount", Value::Number(n)) => raise(&mut counters.thoughts, n),
            (
                b"prompt_tokens_details"
                | b"input_tokens_details"
                | b"completion_tokens_details"
                | b"output_tokens_details"
                | b"cache_creation"
                | b"billed_units",
                Value::Object,
            ) => read(collector, walker)?,
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}
