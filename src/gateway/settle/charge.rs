//! What an exchange used and what that costs: the one place where tokens become money, for every dialect, path and
//! ending. Runs where the record is completed, on a core or on the pool; no I/O.
//!
//! | the provider counted | tokens | flagged `tokens_estimated` |
//! |---|---|---|
//! | both directions | its own | no |
//! | nothing, or one direction | its own, the rest counted from the text | yes |
//! | a stream that was cut before the final count | what it said or the text that came, whichever is more | yes |
//! | nothing, in an answer that was not read whole | from the text that was kept and the bytes that were not | yes |
//!
//! What a provider says itself that a call cost holds where the model has no price here. Only an answered request (2xx) has used tokens. A model without a price has no cost: a tag and a counter say so. Where the
//! What a body that is unreadable, cut, or names two models says of its model sets no price. Where the
//! list has different prices for the model asked for and the one that says it answered, the dearer holds; a price of the
//! operator's own for the model asked for holds in any case.

use std::borrow::Cow;

use weir_config::vocab::Provider;
use weir_storage::record::{COST_BREAKDOWN, SpanRecord};

use crate::money::{Counted, Family, Itemised, Prices, Source, Tier, itemise};
use crate::observe::{self, Usage, estimate_tokens};
use crate::process::bill::Bill;

/// The tag of a span whose model has no price.
pub(crate) const UNPRICED: &str = "unpriced_model";

/// The tag that names what was used of a priced model and has no price itself: a service tier, a tool of the provider's.
pub(crate) const UNPRICED_UNITS: &str = "unpriced_units";

/// The tag that names the method of a call by JSON-RPC.
pub(crate) const RPC_METHOD: &str = "rpc_method";

/// Bytes of text one token stands for, where the text is not there to be counted.
const BYTES_PER_TOKEN: u64 = 4;
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

/// Whether the provider has done what it was asked.
pub(crate) fn is_answered(span: &SpanRecord) -> bool {
    span.status_code.is_some_and(|status| (200..300).contains(&status))
}

/// Fills in tokens and, where there are prices, the cost. Returns the cost in nanodollars. May be done again with a better
/// counter.
pub(crate) fn charge(span: &mut SpanRecord, bill: &Bill, prices: Option<&Prices>, counter: Counter) -> Option<u64> {
    span.tokens_estimated = false;
    span.estimated_cost_usd = None;
    span.tags.remove(UNPRICED);
    span.tags.remove(UNPRICED_UNITS);
    span.prompt_tokens = bill.usage.prompt;
    span.completion_tokens = bill.usage.completion;
    span.total_tokens = bill.usage.total;
    span.cached_tokens = bill.usage.cached;
    span.reasoning_tokens = bill.usage.reasoning;
    let answered = is_answered(span);
    if answered && is_counted(span) {
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
    if !bill.batch.is_empty() {
        return charge_batch(span, bill, prices);
    }
    let counted = counted(span, bill);
    if !used && !has_other_units(&counted) && bill.usage.cost_nano_usd.is_none() {
        // Charged by the picture, the character or the minute: nobody here knows how many.
        if matches!(span.operation_name.as_ref(), "speech" | "transcription" | "image") {
            span.tags.insert(Cow::Borrowed(UNPRICED), "true".to_owned());
        }
        return None;
    }
    let provider = bill.priced_as.as_ref().map_or(&*span.provider, Provider::as_str);
    let quote = |model: Option<&str>| prices.quote(provider, model?);
    let asked = if bill.doubts_model { None } else { quote(span.model.as_deref()) };
    // Mostly the same name, and then the same price.
    let other = bill.model.as_deref().filter(|model| Some(*model) != span.model.as_deref());
    let said = if asked.is_some_and(|asked| asked.is_own) { None } else { quote(other) };
    let source = |is_own| if is_own { Source::Own } else { Source::List };
    let costs =
        [asked, said].into_iter().flatten().map(|quote| (itemise(&quote.price, &counted), source(quote.is_own)));
    // A price that says nothing of what was used is none.
    let costs = costs.filter(|(items, _)| !items.lines.is_empty() || items.unpriced.is_empty());
    let by_provider = || bill.usage.cost_nano_usd.map(|cost| (Itemised::provider_cost(cost), Source::Provider));
    let Some((items, source)) = costs.max_by_key(|(items, _)| items.nano_usd).or_else(by_provider) else {
        span.tags.insert(Cow::Borrowed(UNPRICED), "true".to_owned());
        return None;
    };
    if let Some(names) = items.without_price() {
        span.tags.insert(Cow::Borrowed(UNPRICED_UNITS), names);
    }
    span.estimated_cost_usd = Some(items.nano_usd as f64 / NANO_PER_USD);
    // A record that is being made has room.
    let _full = span.attributes.insert(COST_BREAKDOWN, items.to_text(source).into()).is_err();
    Some(items.nano_usd)
}

/// The calls of a batch, each at the price of its own model and of a batch; long requests are told apart only so.
fn charge_batch(span: &mut SpanRecord, bill: &Bill, prices: &Prices) -> Option<u64> {
    let provider = bill.priced_as.as_ref().map_or(&*span.provider, Provider::as_str);
    let (mut all, mut source, mut unpriced) = (None::<Itemised>, Source::List, false);
    for (model, usage) in &bill.batch {
        let Some(quote) = model.as_deref().and_then(|model| prices.quote(provider, model)) else {
            unpriced = true;
            continue;
        };
        if quote.is_own {
            source = Source::Own;
        }
        let counted = Counted {
            input: usage.prompt.unwrap_or(0),
            output: usage.completion.unwrap_or(0),
            tier: Some(Tier::Batch),
            ..of_usage(usage)
        };
        let items = itemise(&quote.price, &counted);
        match &mut all {
            Some(all) => all.join(&items),
            None => all = Some(items),
        }
    }
    if unpriced {
        span.tags.insert(Cow::Borrowed(UNPRICED), "true".to_owned());
    }
    let items = all?;
    if let Some(names) = items.without_price() {
        span.tags.insert(Cow::Borrowed(UNPRICED_UNITS), names);
    }
    span.estimated_cost_usd = Some(items.nano_usd as f64 / NANO_PER_USD);
    let _full = span.attributes.insert(COST_BREAKDOWN, items.to_text(source).into()).is_err();
    Some(items.nano_usd)
}

/// What is charged of a call.
fn counted(span: &SpanRecord, bill: &Bill) -> Counted {
    Counted {
        input: span.prompt_tokens.unwrap_or(0),
        output: span.completion_tokens.unwrap_or(0),
        // Not all say that what such a model writes are pictures.
        image_out: match bill.usage.media.image_out {
            0 if span.operation_name == "image" => span.completion_tokens.unwrap_or(0),
            known => known,
        },
        characters: bill.spoken_characters,
        ..of_usage(&bill.usage)
    }
}

/// What a provider has counted beside all tokens.
fn of_usage(usage: &Usage) -> Counted {
    let Usage { media, tool_runs, tier, .. } = *usage;
    Counted {
        cache_read: usage.cached.unwrap_or(0),
        cache_write: usage.cache_write.unwrap_or(0),
        cache_write_1h: usage.cache_write_1h.unwrap_or(0),
        reasoning: usage.reasoning.unwrap_or(0),
        audio_in: media.audio_in,
        audio_cached: media.audio_cached,
        image_in: media.image_in,
        video_in: media.video_in,
        audio_out: media.audio_out,
        image_out: media.image_out,
        heard_ms: media.heard_ms,
        images: media.images,
        web_searches: tool_runs.web_searches,
        file_searches: tool_runs.file_searches,
        tier: tier.and_then(|tier| match tier {
            observe::Tier::Priority => Some(Tier::Priority),
            observe::Tier::Flex => Some(Tier::Flex),
            observe::Tier::Batch => Some(Tier::Batch),
            observe::Tier::Standard => None,
            observe::Tier::Unknown => Some(Tier::Unknown),
        }),
        ..Counted::default()
    }
}

const fn has_other_units(counted: &Counted) -> bool {
    counted.heard_ms > 0 || counted.characters > 0 || counted.images > 0 || counted.web_searches > 0
}

/// Whether the texts of such a call are what its model read and wrote. On a path nobody knows, a stream of text is a model's.
fn is_counted(span: &SpanRecord) -> bool {
    match &*span.operation_name {
        // A tool's words are nobody's tokens, streamed or not. The path of a model's operation says what it is, whatever its body says.
        "proxy" => span.streaming && span.response.is_some() && !span.tags.contains_key(RPC_METHOD),
        operation => !matches!(operation, "list_models" | "speech" | "transcription" | "image" | "moderation"),
    }
}

/// Takes back tokens and cost: they belong to another call's record.
pub(crate) fn uncharge(span: &mut SpanRecord) {
    span.tokens_estimated = false;
    span.estimated_cost_usd = None;
    span.tags.remove(UNPRICED);
    span.tags.remove(UNPRICED_UNITS);
    span.attributes.remove(COST_BREAKDOWN);
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
    let unseen = if span.operation_name == "embedding" { 0 } else { bill.unseen_bytes.div_ceil(BYTES_PER_TOKEN) };
    if (span.completion_tokens.is_none() || cut) && (span.response.is_some() || unseen > 0) {
        let estimate = span.response.as_deref().map_or(0, &mut tokens).saturating_add(unseen);
        if span.completion_tokens.is_none_or(|counted| counted < estimate) {
            span.completion_tokens = Some(estimate);
            span.tokens_estimated = true;
        }
    }
    if let Some(vocabulary) = counted_by.filter(|_| span.tokens_estimated) {
        span.tags.insert(Cow::Borrowed("tokens_counted_with"), vocabulary.to_owned());
    }
}
