//! How a call's prompt goes on from the one that its session sent before, where it parts from it, and what that costs: what the record
//! says as `prompt_cache`. Done where the record is completed, off the cores for what is long, from texts that have been read anyway.

use std::sync::Arc;

use weir_config::vocab::{Dialect, Finding, Severity};
use weir_storage::prompt::{Comparison, Draft, Outline, PromptCache, PromptState, ProviderUse, compare};
use weir_storage::record::SpanRecord;

use super::charge::is_answered;
use crate::money::Prices;
use crate::process::prompts::{Lane, Prompts};

/// Tokens of the shortest prompt that any provider caches.
const CACHED_TOKENS_MIN: u64 = 1024;
/// Tokens of a prompt that each of them caches, whatever the model.
const CACHED_TOKENS_SURE: u64 = 4096;
/// For how long each of them keeps it, at least.
const KEPT_SECONDS: i64 = 300;
/// Bytes one token stands for, where nobody has counted.
const BYTES_PER_TOKEN: u64 = 4;
/// Operations that send a prompt.
const PROMPTED: [&str; 10] = [
    "chat_completion",
    "responses",
    "messages",
    "generate_content",
    "interaction",
    "converse",
    "chat",
    "generate",
    "completion",
    "realtime",
];

/// The finding of a prompt that parts from the one before it.
const BREAK: &str = "prompt_cache_break";
/// The finding of a prompt that its provider did not read from its cache although it could have.
const UNUSED: &str = "prompt_cache_unused";

/// Compares the prompt of an answered call, and remembers it for the next.
pub(super) fn look(prompts: &Prompts, prices: Option<&Prices>, dialect: Dialect, span: &mut SpanRecord) {
    if !is_answered(span) || !PROMPTED.contains(&&*span.operation_name) {
        return;
    }
    let Some(session) = span.session_id.as_deref() else { return };
    let Some(draft) = Draft::of(span) else { return };
    let outline = Arc::new(draft.outline());
    let lanes = prompts.lanes(span.tenant_id, session);
    let best = most_alike(&lanes, &outline);
    let former = best.as_ref().filter(|(_, found)| found.is_one_conversation).map(|(lane, _)| *lane);
    let cache = judge(best.as_ref(), &outline, &draft, Call { span, dialect, prices });
    // Of calls that overlap, the one that began last is the one to go on from.
    if former.is_none_or(|former| former.began <= span.start_time) {
        let lane = Lane { outline, span: span.span_id, began: span.start_time, ended: span.end_time };
        prompts.keep(span.tenant_id, session, former.map(|former| former.span), lane);
    }
    span.prompt_cache = Some(Box::new(cache));
}

/// The conversation that a prompt goes on in, or is most like.
fn most_alike<'a>(lanes: &'a [Lane], outline: &Outline) -> Option<(&'a Lane, Comparison)> {
    let comparable = lanes.iter().filter(|lane| lane.outline.is_framed == outline.is_framed);
    let compared = comparable.map(|lane| (lane, compare(&lane.outline, outline)));
    compared.max_by_key(|(_, found)| (found.is_one_conversation, found.equal_bytes))
}

/// The call whose prompt is judged.
struct Call<'a> {
    span: &'a SpanRecord,
    dialect: Dialect,
    prices: Option<&'a Prices>,
}

fn judge(best: Option<&(&Lane, Comparison)>, outline: &Outline, draft: &Draft<'_>, call: Call<'_>) -> PromptCache {
    let mut cache = PromptCache {
        state: PromptState::First,
        previous_span_id: None,
        prompt_bytes: outline.bytes,
        previous_bytes: 0,
        equal_bytes: 0,
        equal_tokens: 0,
        broke_at: None,
        lost_tokens: 0,
        lost_usd: None,
        provider_use: ProviderUse::TooShort,
    };
    let Some((lane, found)) = best else { return cache };
    let tokens = call.span.prompt_tokens.filter(|_| !call.span.tokens_estimated);
    let as_tokens = |bytes: u64| match tokens {
        Some(tokens) if outline.bytes > 0 => (bytes as f64 / outline.bytes as f64 * tokens as f64) as u64,
        _ => bytes / BYTES_PER_TOKEN,
    };
    cache.previous_span_id = Some(lane.span);
    cache.previous_bytes = lane.outline.bytes;
    cache.equal_bytes = found.equal_bytes;
    cache.equal_tokens = as_tokens(found.equal_bytes);
    cache.provider_use = provider_use(cache.equal_tokens, lane, outline, &call);
    cache.broke_at = found.divergence.and_then(|it| it.broke_at(&lane.outline, outline, draft));
    if !found.is_one_conversation {
        cache.state = PromptState::StartedOver;
        return cache;
    }
    if cache.broke_at.is_none() {
        cache.state = PromptState::Kept;
        return cache;
    }
    let could_be_read = lane.outline.bytes.saturating_sub(found.equal_bytes).min(outline.bytes);
    let paid = tokens.unwrap_or(u64::MAX).saturating_sub(call.span.cached_tokens.unwrap_or(0));
    cache.lost_tokens = as_tokens(could_be_read).min(paid);
    cache.lost_usd = call.more_than_cached(cache.lost_tokens, outline.asks_for_cache);
    cache.state = if as_tokens(could_be_read) < CACHED_TOKENS_MIN { PromptState::Edited } else { PromptState::Broken };
    cache
}

impl Call<'_> {
    /// What so many tokens cost more than they would have from a cache, in USD.
    fn more_than_cached(&self, tokens: u64, asks_for_cache: bool) -> Option<f64> {
        let price = self.prices?.quote(&self.span.provider, self.span.model.as_deref()?)?.price;
        let written = price.cache_write.filter(|_| asks_for_cache).unwrap_or(price.input);
        Some(written.saturating_sub(price.cache_read?) as f64 * tokens as f64 / 1e12)
    }
}

/// What the provider made of the part that is equal.
fn provider_use(equal_tokens: u64, lane: &Lane, outline: &Outline, call: &Call<'_>) -> ProviderUse {
    let span = call.span;
    let Some(cached) = span.cached_tokens.filter(|_| !span.tokens_estimated) else { return ProviderUse::NotReported };
    if equal_tokens < CACHED_TOKENS_MIN {
        return ProviderUse::TooShort;
    }
    // Providers count in blocks, and what is equal is an estimate.
    if cached >= equal_tokens / 2 {
        return ProviderUse::Used;
    }
    if cached > 0 {
        return ProviderUse::PartlyUsed;
    }
    let waited = span.start_time.micros().saturating_sub(lane.ended.micros());
    let is_asked = call.dialect.caches_unasked() || outline.asks_for_cache;
    match waited {
        _ if !is_asked => ProviderUse::NotAsked,
        ..0 => ProviderUse::NotReady,
        _ if waited > KEPT_SECONDS * 1_000_000 => ProviderUse::Expired,
        _ if equal_tokens < CACHED_TOKENS_SURE => ProviderUse::TooShort,
        _ => ProviderUse::NotUsed,
    }
}

/// Adds findings of what is worth a look. They have no share in the security score.
pub(super) fn add_findings(span: &mut SpanRecord) {
    let Some(cache) = &span.prompt_cache else { return };
    let mut found = Vec::new();
    let about = |finding_type: &'static str, description: String| {
        Finding::new(finding_type, Severity::Info, 1.0, "prompt_cache", description)
    };
    if let (PromptState::Broken, Some(broke)) = (cache.state, &cache.broke_at) {
        let mut finding = about(BREAK, format!("the prompt parts from the one before it: {}", broke.says));
        finding.location = format!("request.{}", broke.path);
        let money = cache.lost_usd.map(|usd| ("lost_usd", format!("{usd:.6}")));
        let tokens = [("lost_tokens", cache.lost_tokens.to_string()), ("equal_tokens", cache.equal_tokens.to_string())];
        finding.metadata.extend(tokens.into_iter().chain(money).map(|(name, value)| (name.to_owned(), value)));
        found.push(finding);
    }
    if cache.provider_use == ProviderUse::NotUsed {
        let said = format!(
            "{} read nothing from its cache, although about {} tokens of the prompt are those of the call before",
            span.provider, cache.equal_tokens
        );
        let mut finding = about(UNUSED, said);
        finding.metadata.insert("provider".to_owned(), span.provider.to_string());
        finding.metadata.insert("equal_tokens".to_owned(), cache.equal_tokens.to_string());
        found.push(finding);
    }
    span.security_findings.extend(found);
}
