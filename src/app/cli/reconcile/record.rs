//! The record's side: what each call that may have been billed was, as far as a bill can be held against it.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_config::vocab::{TenantId, Timestamp};
use weir_storage::query::{Page, Place, SpanFilter};
use weir_storage::record::{ANSWERED_BY, COST_BREAKDOWN, SpanRecord, WEIR};
use weir_storage::{ReadError, RecordReader};

use crate::record::RESPONSE_ID;

/// Spans that are read at a time.
const PIECE_ITEMS: u32 = 256;
const NANO_PER_USD: f64 = 1e9;

/// A call that went to a provider.
#[derive(Debug, Clone, Default)]
pub(super) struct Ours {
    pub(super) span: String,
    pub(super) id: Option<String>,
    pub(super) at: i64,
    pub(super) model: String,
    pub(super) input: u64,
    pub(super) output: u64,
    /// `None` where there is no price.
    pub(super) nano_usd: Option<i128>,
    pub(super) tier: Option<String>,
    /// Tries that went to a provider before the last one.
    pub(super) retries: u64,
    /// Its client went away, or its answer ended early: the provider may have gone on.
    pub(super) is_left: bool,
    /// Its tokens are an estimate.
    pub(super) is_estimated: bool,
    /// The provider answered it.
    pub(super) is_answered: bool,
}

/// The calls of these tenants that began in a time.
pub(super) fn read(
    record: &RecordReader,
    tenants: &[TenantId],
    (from, to): (i64, i64),
    provider: Option<&str>,
) -> Result<Vec<Ours>, ReadError> {
    let filter = SpanFilter {
        start_time: Some(Timestamp::from_micros(from)),
        end_time: Some(Timestamp::from_micros(to)),
        provider: provider.map(str::to_owned),
        ..SpanFilter::default()
    };
    let mut all = Vec::new();
    for tenant in tenants {
        let mut page = Page { limit: PIECE_ITEMS, or_fewer: true, texts: false, ..Page::default() };
        loop {
            let found = record.list_spans(*tenant, &filter, page)?;
            all.extend(found.data.iter().filter_map(of));
            let Some(next) = found.next else { break };
            page.after = Some(Place::to_the_end(next));
        }
    }
    Ok(all)
}

/// `None` for what never went to a provider, and for what is not billed.
fn of(span: &SpanRecord) -> Option<Ours> {
    let answered_here = span.tags.get(ANSWERED_BY).is_some_and(|who| who == WEIR);
    let is_left = span.error_type.as_deref() == Some("client_disconnected")
        || span.tags.contains_key("response_incomplete")
        || span.tags.contains_key("response_truncated");
    let tries = span.events.iter().filter(|event| event.event_type == "upstream_attempt").count() as u64;
    let used = span.prompt_tokens.is_some() || span.completion_tokens.is_some() || span.estimated_cost_usd.is_some();
    let timed_out = span.error_type.as_deref() == Some("upstream_timeout");
    let is_answered = span.status_code.is_some_and(|status| (200..300).contains(&status)) && !answered_here;
    if span.operation_name == "list_models" || !(used || is_left || timed_out || is_answered || tries > 1) {
        return None;
    }
    let breakdown = span.attributes.get(COST_BREAKDOWN).and_then(Value::as_str).unwrap_or_default();
    let tier = breakdown.split(' ').nth(1).filter(|tier| *tier != "standard").map(str::to_owned);
    Some(Ours {
        span: span.span_id.to_string(),
        id: span.attributes.get(RESPONSE_ID).and_then(Value::as_str).map(str::to_owned),
        at: span.start_time.micros(),
        model: span.model.clone().unwrap_or_default(),
        input: span.prompt_tokens.unwrap_or(0),
        output: span.completion_tokens.unwrap_or(0),
        nano_usd: span.estimated_cost_usd.map(|cost| (cost * NANO_PER_USD).round() as i128),
        tier,
        retries: tries.saturating_sub(1),
        is_left: is_left || timed_out,
        is_estimated: span.tokens_estimated,
        is_answered: is_answered || (used && !answered_here),
    })
}

/// A model without what tells its releases apart: providers bill `gpt-4o-2024-08-06` for what was asked as `gpt-4o`.
pub(super) fn family(model: &str) -> String {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let name = name.split(['@', ':']).next().unwrap_or(&name).trim_end_matches("-latest");
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count() == text.len();
    let mut parts: Vec<&str> = name.split('-').collect();
    let is_date = |parts: &[&str]| match parts {
        [.., one] if one.len() == 8 && digits(one) => 1,
        [.., year, month, day]
            if year.len() == 4 && month.len() == 2 && day.len() == 2 && digits(&[*year, *month, *day].concat()) =>
        {
            3
        }
        _ => 0,
    };
    let cut = is_date(&parts);
    if cut < parts.len() {
        parts.truncate(parts.len() - cut);
    }
    parts.join("-")
}

/// The calls by the provider's id of their answer.
pub(super) fn by_id(ours: &[Ours]) -> BTreeMap<&str, usize> {
    ours.iter().enumerate().filter_map(|(place, ours)| Some((ours.id.as_deref()?, place))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_a_model_are_one_family() {
        let of = [
            "gpt-4o-2024-08-06",
            "openai/gpt-4o",
            "models/gemini-2.5-pro",
            "claude-sonnet-4-20250514",
            "claude-x-latest",
            "a:b",
            "20250514",
        ];
        let families = ["gpt-4o", "gpt-4o", "gemini-2.5-pro", "claude-sonnet-4", "claude-x", "a", "20250514"];
        assert_eq!(of.map(family), families);
    }
}
