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

use super::answer::{Collector, Counters, Tier};
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

/// Whose tokens an object counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Unknown,
    Prompt,
    Cached,
    Completion,
}

impl Side {
    fn of(key: &[u8], around: Self) -> Self {
        match key {
            b"prompt_tokens_details" | b"input_tokens_details" | b"input_token_details" => Self::Prompt,
            b"completion_tokens_details" | b"output_tokens_details" | b"output_token_details" => Self::Completion,
            b"cached_tokens_details" => Self::Cached,
            _ => around,
        }
    }
}

/// Reads a usage object that has been entered.
pub(super) fn read(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    read_side(collector, walker, Side::Unknown)
}

/// Reads the counters in an object of a vendor's own: those of its member `usage`, and of what is called like them.
pub(super) fn nested(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    while let Some(key) = next_key(walker)? {
        match (key.raw(), value(walker)?) {
            ("usage" | "usageMetadata" | "billed_units", Value::Object) => read(collector, walker)?,
            (_, other) => skip(walker, other)?,
        }
    }
    Ok(())
}

/// `timings` of llama.cpp: `prompt_n` leaves out what was in its cache (`cache_n`).
pub(super) fn timings(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    let (mut read, mut cached, mut wrote) = (None, None, None);
    while let Some(key) = next_key(walker)? {
        match (key.raw(), value(walker)?) {
            ("prompt_n", Value::Number(n)) => read = count(n),
            ("cache_n", Value::Number(n)) => cached = count(n),
            ("predicted_n", Value::Number(n)) => wrote = count(n),
            (_, other) => skip(walker, other)?,
        }
    }
    let counters = &mut collector.counters;
    let read = read.map(|read| read.saturating_add(cached.unwrap_or(0)));
    counters.prompt = counters.prompt.max(read);
    counters.cached = counters.cached.max(cached.filter(|cached| *cached > 0));
    counters.completion = counters.completion.max(wrote);
    Ok(())
}

/// Tokens of one kind among those of a side.
fn media(counters: &mut Counters, side: Side, key: &[u8], spelled: &str) {
    let media = &mut counters.media;
    let counter = match (side, key) {
        (Side::Prompt, b"audio_tokens") => &mut media.audio_in,
        (Side::Prompt, b"image_tokens") => &mut media.image_in,
        (Side::Prompt, b"video_tokens") => &mut media.video_in,
        (Side::Prompt, b"cached_audio_tokens") | (Side::Cached, b"audio_tokens") => &mut media.audio_cached,
        (Side::Completion, b"audio_tokens") => &mut media.audio_out,
        (Side::Completion, b"image_tokens") => &mut media.image_out,
        _ => return,
    };
    *counter = (*counter).max(count(spelled).unwrap_or(0));
}

/// `[{modality: "AUDIO", tokenCount: 5}]` of Gemini.
fn by_modality(collector: &mut Collector, walker: &mut Walker<'_>, key: &[u8]) -> Result<(), JsonError> {
    let side = match key {
        b"candidatesTokensDetails" | b"output_tokens_by_modality" => Side::Completion,
        b"cacheTokensDetails" => Side::Cached,
        _ => Side::Prompt,
    };
    while let Some(entry) = next_value(walker)? {
        let Value::Object = entry else {
            skip(walker, entry)?;
            continue;
        };
        let (mut kind, mut tokens) = (None, None);
        while let Some(key) = next_key(walker)? {
            match (key.raw(), value(walker)?) {
                ("modality", Value::Str(name)) => kind = Some(name.raw().to_ascii_lowercase()),
                ("tokenCount" | "token_count" | "tokens", Value::Number(n)) => tokens = Some(n),
                (_, other) => skip(walker, other)?,
            }
        }
        let key: &[u8] = match kind.as_deref() {
            Some("audio") => b"audio_tokens",
            Some("image") => b"image_tokens",
            Some("video") => b"video_tokens",
            _ => continue,
        };
        if let Some(tokens) = tokens {
            media(&mut collector.counters, side, key, tokens);
        }
    }
    Ok(())
}

/// Seconds with decimals as whole milliseconds, the last one begun.
pub(super) fn milliseconds(spelled: &str) -> Option<u64> {
    nano_usd(spelled, 3)
}

/// A decimal number in units of `10^-digits`, exactly, rounded up; no float in between, as it may be money. An exponent moves the point.
fn nano_usd(spelled: &str, digits: i32) -> Option<u64> {
    let (number, exponent) = spelled.split_once(['e', 'E']).unwrap_or((spelled, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut shift =
        exponent.parse::<i32>().ok()?.checked_add(digits)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let mut value: u128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()).take(38) {
        value = value * 10 + u128::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
    }
    if whole.len() + fraction.len() > 38 {
        return None;
    }
    while shift > 0 && value != 0 {
        value = value.checked_mul(10)?;
        shift -= 1;
    }
    if shift < 0 {
        let divisor = 10_u128.checked_pow(shift.unsigned_abs()).unwrap_or(u128::MAX);
        value = value.div_ceil(divisor);
    }
    u64::try_from(value).ok()
}

fn read_side(collector: &mut Collector, walker: &mut Walker<'_>, side: Side) -> Result<(), JsonError> {
    while let Some(key) = next_key(walker)? {
        let known = key.decode();
        let counters = &mut collector.counters;
        let is_name = matches!(known.as_bytes(), b"service_tier" | b"serviceTier" | b"trafficType" | b"traffic_type");
        let told = match value(walker)? {
            Value::Str(text) if !is_name => Value::Number(text.raw()),
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
            (b"ephemeral_1h_input_tokens" | b"ttl_12h_tokens", Value::Number(n)) => {
                raise(&mut counters.cache_write_1h, n)
            }
            (b"reasoning_tokens" | b"thinking_tokens", Value::Number(n)) => raise(&mut counters.reasoning, n),
            (b"thoughtsTokenCount" | b"total_thought_tokens", Value::Number(n)) => raise(&mut counters.thoughts, n),
            (b"audio_tokens" | b"image_tokens" | b"video_tokens" | b"cached_audio_tokens", Value::Number(n)) => {
                media(counters, side, known.as_bytes(), n)
            }
            (
                b"promptTokensDetails"
                | b"candidatesTokensDetails"
                | b"cacheTokensDetails"
                | b"input_tokens_by_modality"
                | b"output_tokens_by_modality",
                Value::Array,
            ) => by_modality(collector, walker, known.as_bytes())?,
            (b"seconds" | b"audio_seconds" | b"prompt_audio_seconds", Value::Number(n)) => {
                let heard = milliseconds(n).unwrap_or(0);
                counters.media.heard_ms = counters.media.heard_ms.max(heard);
            }
            (b"web_search_requests" | b"num_search_queries", Value::Number(n)) => {
                let runs = &mut counters.tool_runs.web_searches;
                *runs = (*runs).max(count(n).unwrap_or(0));
            }
            (b"cost" | b"total_cost" | b"estimated_cost" | b"cost_usd", Value::Number(n)) => {
                counters.cost_nano_usd = counters.cost_nano_usd.max(nano_usd(n, 9));
            }
            // xAI counts ten thousand millionths of a dollar.
            (b"cost_in_usd_ticks", Value::Number(n)) => {
                counters.cost_nano_usd = counters.cost_nano_usd.max(integer(n).map(|ticks| ticks.div_ceil(10)));
            }
            (b"service_tier" | b"serviceTier" | b"trafficType" | b"traffic_type", Value::Str(tier)) => {
                counters.tier = Tier::named(tier.raw()).or(counters.tier);
            }
            (b"cacheDetails", Value::Array) => cache_details(collector, walker)?,
            (b"iterations", Value::Array) => iterations(collector, walker)?,
            (
                b"prompt_tokens_details"
                | b"input_tokens_details"
                | b"input_token_details"
                | b"completion_tokens_details"
                | b"output_tokens_details"
                | b"output_token_details"
                | b"cached_tokens_details"
                | b"cache_write_tokens_details"
                | b"cache_creation"
                | b"cost"
                | b"server_tool_use"
                | b"server_tool_use_details"
                | b"billed_units",
                Value::Object,
            ) => read_side(collector, walker, Side::of(known.as_bytes(), side))?,
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

#[cfg(test)]
mod tests {
    use super::nano_usd;

    #[test]
    fn decimals_are_exact() {
        for (spelled, nano) in [
            ("0.0123", Some(12_300_000)),
            ("1.23e-05", Some(12_300)),
            ("2", Some(2_000_000_000)),
            ("0.0000000001", Some(1)),
            ("0", Some(0)),
            ("0e99999999", Some(0)),
            ("-1", None),
            ("1e400", None),
            ("99999999999999999999", None),
            ("", Some(0)),
        ] {
            assert_eq!(nano_usd(spelled, 9), nano, "{spelled}");
        }
    }
}
