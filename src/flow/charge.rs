//! What an exchange used and what that costs: the one place where tokens become money, for every dialect, path and
//! ending. Runs where the record is completed, on a core or on the pool; no I/O.
//!
//! | the provider counted | tokens | flagged `tokens_estimated` |
//! |---|---|---|
//! | both directions | its own | no |
//! | nothing, or one direction | its own, the rest counted from the text | yes |
//! | a stream that was cut before the final count | what it said or the text that came, whichever is more | yes |
//!
//! Only an answered request (2xx) has used tokens. A model without a price has no cost: a tag and a counter say so.

use std::borrow::Cow;

use weir_config::vocab::Provider;
use weir_storage::record::SpanRecord;

use crate::money::{Counted, Family, Prices, cost_nano_usd};
use crate::observe::{Usage, estimate_tokens};

/// The tag of a span whose model has no price.
pub(crate) const UNPRICED: &str = "unpriced_model";

/// Nanodollars of one dollar.
const NANO_PER_USD: f64 = 1e9;

/// How a text's tokens are counted where the provider did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// By kinds of bytes: cheap enough for a core.
    Estimate,
    /// With the family's vocabulary where it is public, off the cores.
    Vocabulary,
}

/// What the answer said beside its text.
#[derive(Default)]
pub(crate) struct Bill {
    /// Tokens as the provider counted them.
    pub(crate) usage: Usage,
    /// The model that answered.
    pub(crate) model: Option<String>,
    /// Whether the answer was seen to its end.
    pub(crate) complete: bool,
    /// The provider's id of an answer that may go on in the background.
    pub(crate) response_id: Option<String>,
    /// It does.
    pub(crate) pending: bool,
    /// It did, or might have, and this is its end.
    pub(crate) ended: bool,
    /// Whose prices hold, where that is not the span's provider: a client's header names a provider, never a price.
    pub(crate) priced_as: Option<Provider>,
    /// Tokens of the prompt that were given as numbers, beside its text.
    pub(crate) prompt_token_ids: u64,
}

/// Fills in tokens and, where there are prices, the cost. Returns the cost in nanodollars. May be done again with a better
/// counter.
pub(crate) fn charge(span: &mut SpanRecord, bill: &Bill, prices: Option<&Prices>, counter: Counter) -> Option<u64> {
    span.tokens_estimated = false;
    span.estimated_cost_usd = None;
    span.tags.remove(UNPRICED);
    span.prompt_tokens = bill.usage.prompt;
    span.completion_tokens = bill.usage.completion;
    span.total_tokens = bill.usage.total;
    span.cached_tokens = bill.usage.cached;
    span.reasoning_tokens = bill.usage.reasoning;
    let answered = span.status_code.is_some_and(|status| (200..300).contains(&status));
    if answered && is_counted(&span.operation_name) {
        count(span, bill, counter);
    }
    if span.total_tokens.is_none() || span.tokens_estimated {
        span.total_tokens = match (span.prompt_tokens, span.completion_tokens) {
            (None, None) => None,
            (prompt, completion) => Some(prompt.unwrap_or(0).saturating_add(completion.unwrap_or(0))),
        };
    }
    let used = span.prompt_tokens.is_some() || span.completion_tokens.is_some();
    let prices = prices.filter(|_| answered)?;
    if !used {
        // Charged by the picture, the character or the minute: nobody here knows how many.
        if matches!(span.operation_name.as_ref(), "speech" | "transcription" | "image") {
            span.tags.insert(Cow::Borrowed(UNPRICED), "true".to_owned());
        }
        return None;
    }
    let provider = bill.priced_as.as_ref().map_or(&*span.provider, Provider::as_str);
    let asked = span.model.as_deref().and_then(|model| prices.find(provider, model));
    let Some(price) = asked.or_else(|| prices.find(provider, bill.model.as_deref()?)) else {
        span.tags.insert(Cow::Borrowed(UNPRICED), "true".to_owned());
        return None;
    };
    let counted = Counted {
        input: span.prompt_tokens.unwrap_or(0),
        cache_read: bill.usage.cached.unwrap_or(0),
        cache_write: bill.usage.cache_write.unwrap_or(0),
        cache_write_1h: bill.usage.cache_write_1h.unwrap_or(0),
        output: span.completion_tokens.unwrap_or(0),
        reasoning: bill.usage.reasoning.unwrap_or(0),
    };
    let nano_usd = cost_nano_usd(&price, &counted);
    span.estimated_cost_usd = Some(nano_usd as f64 / NANO_PER_USD);
    Some(nano_usd)
}

/// Whether the texts of such a call are what its model read and wrote.
fn is_counted(operation: &str) -> bool {
    !matches!(operation, "proxy" | "list_models" | "speech" | "transcription" | "image" | "moderation")
}

/// Takes back tokens and cost: they belong to another call's record.
pub(crate) fn uncharge(span: &mut SpanRecord) {
    span.tokens_estimated = false;
    span.estimated_cost_usd = None;
    span.tags.remove(UNPRICED);
    span.tags.remove("tokens_counted_with");
    span.prompt_tokens = None;
    span.completion_tokens = None;
    span.total_tokens = None;
    span.cached_tokens = None;
    span.reasoning_tokens = None;
}

/// The family whose vocabulary counts better than the estimate that the span holds, if there is one.
pub(crate) fn better_counter(span: &SpanRecord) -> Option<Family> {
    span.model.as_deref().filter(|_| span.tokens_estimated).and_then(Family::of)
}

/// Counts what the provider did not.
fn count(span: &mut SpanRecord, bill: &Bill, counter: Counter) {
    let family = span.model.as_deref().filter(|_| counter == Counter::Vocabulary).and_then(Family::of);
    let mut counted_by = None;
    let mut tokens = |text: &str| match family.and_then(|family| Some((family, family.count(text)?))) {
        Some((family, tokens)) => {
            counted_by = Some(family.vocabulary());
            tokens
        }
        None => estimate_tokens(text),
    };
    if span.prompt_tokens.is_none() && (span.prompt.is_some() || bill.prompt_token_ids > 0) {
        let of_text = span.prompt.as_deref().map_or(0, &mut tokens);
        span.prompt_tokens = Some(of_text.saturating_add(bill.prompt_token_ids));
        span.tokens_estimated = true;
    }
    let cut = span.streaming && !bill.complete;
    if (span.completion_tokens.is_none() || cut)
        && let Some(response) = &span.response
    {
        let estimate = tokens(response);
        if span.completion_tokens.is_none_or(|counted| counted < estimate) {
            span.completion_tokens = Some(estimate);
            span.tokens_estimated = true;
        }
    }
    if let Some(vocabulary) = counted_by.filter(|_| span.tokens_estimated) {
        span.tags.insert(Cow::Borrowed("tokens_counted_with"), vocabulary.to_owned());
    }
}
