//! Rows of prices and caps.
//!
//! Dollars become whole nanodollars here, once, rounded to the nearest.

use std::collections::HashMap;

use serde_json::Value;

use super::value::{flag, one_of, optional_path, text};
use super::{Field, Keys, Kind, Literal, Setting, Unfit, set};
use crate::prices::{Price, per_million};
use crate::settings::{AgentCaps, Budget, Budgets, CapStatus, ReserveTokens, TokenCap, Tokenizer, Window};

/// A price per million tokens.
const PRICE_USD: Kind = Kind::Float { min: 0.0, max: 1e6 };
/// A limit; as nanodollars it fits 63 bits.
const LIMIT_USD: Kind = Kind::Float { min: 0.0, max: 1e9 };

const PRICE: &[Field] = &[
    Field::required("input_per_million", PRICE_USD),
    Field::required("output_per_million", PRICE_USD),
    Field::optional("cache_read_per_million", PRICE_USD),
    Field::optional("cache_write_per_million", PRICE_USD),
    Field::optional("cache_write_1h_per_million", PRICE_USD),
    Field::optional("reasoning_per_million", PRICE_USD),
];
const BUDGET_CAP: &[Field] = &[
    Field::required("window", Kind::Choice(&["hourly", "daily", "weekly", "monthly"])),
    Field::required("hard_limit_usd", LIMIT_USD),
    Field::optional("soft_limit_usd", LIMIT_USD),
];
const TOKEN_CAP: &[Field] = &[
    Field::optional("max_prompt_tokens", Kind::u32_at_least(1)),
    Field::optional("max_completion_tokens", Kind::u32_at_least(1)),
    Field::optional("max_total_tokens", Kind::u32_at_least(1)),
];
const AGENT: &[Field] = &[
    Field::required("agent_id", Kind::Name),
    Field::optional("budget_caps", Kind::Records(BUDGET_CAP)),
    Field::optional("token_cap", Kind::Record(TOKEN_CAP)),
];

pub(super) static SETTINGS: &[Setting] = &[
    // --- cost_estimation ---
    Setting::built(
        "cost_estimation.enabled",
        Kind::Bool,
        Literal::Bool(true),
        "Put an estimated cost on every span whose model has a price.",
        set!(cost_estimation.enabled, flag),
    ),
    Setting::built(
        "cost_estimation.pricing_file",
        Kind::File,
        Literal::Null,
        "YAML or JSON file with prices that win over the built-in list; read again on SIGHUP.",
        set!(cost_estimation.pricing_file, optional_path),
    ),
    Setting::built(
        "cost_estimation.custom_models",
        Kind::RecordMap(Keys::Text, PRICE),
        Literal::EmptyMap,
        "Prices that win over the file and the list: model name to input_per_million and output_per_million in USD.",
        set!(cost_estimation.custom_models, custom_models),
    ),
    Setting::built(
        "cost_estimation.tokenizer",
        Kind::Choice(&["auto", "estimate"]),
        Literal::Text("auto"),
        "auto: where a provider counted no tokens, count with the family's public vocabulary, loaded when first needed.",
        set!(cost_estimation.tokenizer, |v| one_of(v, &[("auto", Tokenizer::Auto), ("estimate", Tokenizer::Estimate)])),
    ),
    Setting::built(
        "cost_estimation.trust_provider_header",
        Kind::Bool,
        Literal::Bool(false),
        "With authentication on, let a client's X-Service-Provider choose the price too, not the label only. Ours.",
        set!(cost_estimation.trust_provider_header, flag),
    ),
    // --- cost_caps ---
    Setting::built(
        "cost_caps.enabled",
        Kind::Bool,
        Literal::Bool(false),
        "Refuse requests over a hard budget or a token cap with 429.",
        set!(cost_caps.enabled, flag),
    )
    .wire("cost_caps_enabled"),
    Setting::built(
        "cost_caps.default_budget_caps",
        Kind::Records(BUDGET_CAP),
        Literal::EmptyList,
        "Budgets of each agent of each tenant: window (hourly, daily, weekly, monthly), hard_limit_usd, soft_limit_usd.",
        set!(cost_caps.default_budgets, budgets),
    ),
    Setting::built(
        "cost_caps.tenant_budget_caps",
        Kind::Records(BUDGET_CAP),
        Literal::EmptyList,
        "Budgets of each tenant over all its agents, in the same form; they hold beside those of the agent. Ours.",
        set!(cost_caps.tenant_budgets, budgets),
    ),
    Setting::built(
        "cost_caps.default_token_cap",
        Kind::Record(TOKEN_CAP),
        Literal::Null,
        "Token cap of each request: max_prompt_tokens, max_completion_tokens, max_total_tokens.",
        set!(cost_caps.default_tokens, token_cap),
    ),
    Setting::built(
        "cost_caps.agents",
        Kind::Records(AGENT),
        Literal::EmptyList,
        "Caps of single agents (X-Service-Agent-ID), which win over the defaults: agent_id, budget_caps, token_cap.",
        set!(cost_caps.agents, agents),
    ),
    Setting::built(
        "cost_caps.reserve_completion_tokens",
        Kind::Int { min: 0, max: 1_000_000 },
        Literal::Int(1_024),
        "Output tokens reserved against a budget for a request that does not bound them itself.",
        set!(cost_caps.reserve_completion_tokens, |v: &Value| super::value::int(v).map(ReserveTokens)),
    ),
    Setting::built(
        "cost_caps.status",
        Kind::Int { min: 402, max: 429 },
        Literal::Int(429),
        "Status of a request that a cap refuses: 429, or 402 or 422 for clients that try a 429 again. Ours.",
        set!(cost_caps.status, cap_status),
    ),
];

fn cap_status(value: &Value) -> Result<CapStatus, Unfit> {
    match value.as_u64() {
        Some(status @ (402 | 422 | 429)) => u16::try_from(status).map(CapStatus).map_err(|_| Unfit),
        _ => Err(Unfit),
    }
}

fn custom_models(value: &Value) -> Result<HashMap<String, Price>, Unfit> {
    let entries = value.as_object().ok_or(Unfit)?;
    let price = |entry: &Value| per_million(entry.as_object().ok_or(Unfit)?).map_err(|_| Unfit);
    entries.iter().map(|(model, entry)| Ok((model.clone(), price(entry)?))).collect()
}

fn nano_usd(value: &Value) -> Result<u64, Unfit> {
    // The cast is exact: the row bounds the value.
    value.as_f64().map(|dollars| (dollars * 1e9).round() as u64).ok_or(Unfit)
}

/// Of several caps on one window the strictest counts.
fn budgets(value: &Value) -> Result<Budgets, Unfit> {
    let mut budgets = Budgets::default();
    for entry in value.as_array().ok_or(Unfit)? {
        let name = text(entry.get("window").ok_or(Unfit)?)?;
        let at = Window::ALL.iter().position(|window| window.as_str() == name).ok_or(Unfit)?;
        let soft = entry.get("soft_limit_usd").filter(|soft| !soft.is_null()).map(nano_usd).transpose()?;
        let own = Budget { hard_nano_usd: nano_usd(entry.get("hard_limit_usd").ok_or(Unfit)?)?, soft_nano_usd: soft };
        let slot = budgets.get_mut(at).ok_or(Unfit)?;
        *slot = Some(slot.map_or(own, |known| Budget {
            hard_nano_usd: known.hard_nano_usd.min(own.hard_nano_usd),
            soft_nano_usd: known.soft_nano_usd.into_iter().chain(own.soft_nano_usd).min(),
        }));
    }
    Ok(budgets)
}

fn token_cap(value: &Value) -> Result<Option<TokenCap>, Unfit> {
    if value.is_null() {
        return Ok(None);
    }
    let cap = value.as_object().ok_or(Unfit)?;
    let field = |name: &str| match cap.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(number) => super::value::int(number).map(Some),
    };
    Ok(Some(TokenCap {
        max_prompt_tokens: field("max_prompt_tokens")?,
        max_completion_tokens: field("max_completion_tokens")?,
        max_total_tokens: field("max_total_tokens")?,
    }))
}

fn agents(value: &Value) -> Result<HashMap<String, AgentCaps>, Unfit> {
    let entry = |entry: &Value| {
        let name = text(entry.get("agent_id").ok_or(Unfit)?)?.to_owned();
        let own = entry.get("budget_caps").filter(|caps| !caps.is_null()).map(budgets).transpose()?;
        let tokens = entry.get("token_cap").map_or(Ok(None), token_cap)?;
        Ok((name, AgentCaps { budgets: own, tokens }))
    };
    value.as_array().ok_or(Unfit)?.iter().map(entry).collect()
}
