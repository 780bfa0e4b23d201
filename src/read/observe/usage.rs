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
//! Some servers write them as texts (`"1000"`) or with decimals, which are rounded up. Invariant: counters only grow, because
//! streams repeat them cumulatively.

use super::answer::Collector;
use super::value::{Value, next_key, next_value, skip, value};
use crate::json::{JsonError, Walker, integer};

/// Takes a counter if it is larger than what is known.
pub(super) fn raise(counter: &mut Option<u64>, spelled: &str) {
    if let Some(n) = count(spelled) {
        *counter = Some(counter.map_or(n, |known| known.max(n)));
    }
}

/// A counter, however it is written.
fn count(spelled: &str) -> Option<u64> {
    integer(spelled).or_else(|| {
        let value: f64 = spelled.parse().ok()?;
        // What a whole number may say, too.
        (0.0..=9_007_199_254_740_992.0).contains(&value).then_some(value.ceil() as u64)
    })
}

/// Reads a usage object that has been entered.
pub(super) fn read(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    while let Some(key) = next_key(walker)? {
        let known = key.decode();
        let counters = &mut collector.counters;
        let told = match value(walker)? {
            Value::Str(text) => Value::Number(text.raw()),
            told => told,
        };
        match (known.as_bytes(), told) {
            (b"prompt_tokens", Value::Number(n)) => {
                counters.inclusive = true;
                raise(&mut counters.prompt, n);
            }
            (
                b"input_tokens" | b"promptTokenCount" | b"inputTokens" | b"inputTokenCount" | b"total_input_tokens",
                Value::Number(n),
            ) => raise(&mut counters.prompt, n),
            (b"toolUsePromptTokenCount" | b"total_tool_use_tokens", Value::Number(n)) => {
                raise(&mut counters.tool_prompt, n);
            }
            (
                b"completion_tokens"
                | b"output_tokens"
                | b"candidatesTokenCount"
                | b"outputTokens"
                | b"outputTokenCount"
                | b"total_output_tokens",
                Value::Number(n),
            ) => raise(&mut counters.completion, n),
            (b"total_tokens" | b"totalTokenCount" | b"totalTokens", Value::Number(n)) => raise(&mut counters.total, n),
            (
                b"cached_tokens" | b"prompt_cache_hit_tokens" | b"cachedContentTokenCount" | b"total_cached_tokens",
                Value::Number(n),
            ) => raise(&mut counters.cached, n),
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
            (b"reasoning_tokens" | b"thinking_tokens", Value::Number(n)) => raise(&mut counters.reasoning, n),
            (b"thoughtsTokenCount" | b"total_thought_tokens", Value::Number(n)) => raise(&mut counters.thoughts, n),
            (b"cacheDetails", Value::Array) => cache_details(collector, walker)?,
            (b"iterations", Value::Array) => iterations(collector, walker)?,
            (
                b"prompt_tokens_details"
                | b"input_tokens_details"
                | b"input_token_details"
                | b"completion_tokens_details"
                | b"output_tokens_details"
                | b"output_token_details"
                | b"cache_creation"
                | b"billed_units",
                Value::Object,
            ) => read(collector, walker)?,
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}

/// `cacheDetails` of Bedrock: `[{ttl, inputTokens}]`, what was written to its cache for how long.
fn cache_details(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    let (mut hour, mut minutes) = (0_u64, 0_u64);
    while let Some(entry) = next_value(walker)? {
        let Value::Object = entry else {
            skip(walker, entry)?;
            continue;
        };
        let (mut tokens, mut long) = (0, false);
        while let Some(key) = next_key(walker)? {
            match (key.raw().as_bytes(), value(walker)?) {
                (b"inputTokens", Value::Number(n)) => tokens = count(n).unwrap_or(0),
                (b"ttl", Value::Str(ttl)) => long = ttl.raw() == "1h",
                (_, other) => skip(walker, other)?,
            }
        }
        let sum = if long { &mut hour } else { &mut minutes };
        *sum = sum.saturating_add(tokens);
    }
    let counters = &mut collector.counters;
    counters.cache_write_1h = counters.cache_write_1h.max((hour > 0).then_some(hour));
    counters.cache_write_5m = counters.cache_write_5m.max((minutes > 0).then_some(minutes));
    Ok(())
}

/// `iterations` of the messages interface: what each pass used. Their sum is what is charged; the counters beside it leave
/// out the passes that compacted the conversation.
fn iterations(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    let mut sums = [0_u64; 4];
    while let Some(entry) = next_value(walker)? {
        let Value::Object = entry else {
            skip(walker, entry)?;
            continue;
        };
        while let Some(key) = next_key(walker)? {
            let value = value(walker)?;
            let at = match key.raw() {
                "input_tokens" => 0,
                "output_tokens" => 1,
                "cache_read_input_tokens" => 2,
                "cache_creation_input_tokens" => 3,
                _ => 4,
            };
            match (sums.get_mut(at), value) {
                (Some(sum), Value::Number(n)) => *sum = sum.saturating_add(count(n).unwrap_or(0)),
                (_, other) => skip(walker, other)?,
            }
        }
    }
    let counters = &mut collector.counters;
    let all = [&mut counters.prompt, &mut counters.completion, &mut counters.cache_read, &mut counters.cache_write];
    for (counter, sum) in all.into_iter().zip(sums) {
        *counter = (*counter).max((sum > 0).then_some(sum));
    }
    Ok(())
}
