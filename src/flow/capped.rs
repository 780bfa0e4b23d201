//! The stage that holds a request to its caps: tokens first, then money. It stands behind enforcement, so that what is
//! blocked reserves nothing, and before anything is sent. What is reserved here is settled by the ledger, whatever happens.
//!
//! Off, it costs one branch. On, every body is read before it is forwarded, because its model, its text and its own bound on
//! the answer decide. Knows no prices of its own; decides with `money`.

use weir_config::Settings;
use weir_config::settings::CostCaps;
use weir_config::vocab::{Operation, TenantId, Timestamp};

use super::Core;
use super::ledger::Ledger;
use crate::exchange::{Enforced, Inspected, Payload, Refusal, RequestText};
use crate::money::{Ask, DEFAULT_AGENT, Exceeded, Holder, TokenExcess, estimate_nano_usd, excess_asked};
use crate::observe::estimate_tokens;
use crate::record::Identity;
use crate::wire::{RequestBody, RequestHead};

/// Text looked at to estimate its tokens; of a longer one the rest is taken to be like the beginning.
const SAMPLE_BYTES: usize = 64 * 1024;
/// Tokens that the frame of one message costs beside its text.
const TOKENS_PER_PART: u64 = 4;
const MICROS_PER_SECOND: i64 = 1_000_000;

/// Lets the request through with its estimate reserved, or says which cap does not. What was refused keeps its text: who hit
/// the cap, and with what, is the first question.
pub(super) fn hold_to_caps(
    core: &Core,
    settings: &Settings,
    enforced: Enforced,
    ledger: &mut Ledger,
) -> Result<Enforced, Refusal> {
    let caps = &settings.cost_caps;
    if caps.enabled && enforced.inspected.parsed.head.upgrade_websocket {
        return refuse_tunnel_over_budget(core, caps, &enforced.inspected).map(|()| enforced);
    }
    if !applies(caps, &enforced.inspected) {
        return Ok(enforced);
    }
    match reserve(core, caps, &enforced.inspected, ledger) {
        Ok(()) => Ok(enforced),
        Err(refusal) => {
            ledger.text = enforced.inspected.text;
            Err(refusal)
        }
    }
}

fn reserve(core: &Core, caps: &CostCaps, inspected: &Inspected, ledger: &mut Ledger) -> Result<(), Refusal> {
    let identity = &inspected.parsed.identity;
    let agent = agent_of(identity);
    let ask = ask(inspected);
    if let Some(cap) = caps.tokens(agent) {
        if let Some(excess) = excess_asked(&cap, ask) {
            return Err(too_many_tokens(agent, &excess));
        }
        ledger.hold_to_tokens(cap);
    }
    let model = match &inspected.text {
        RequestText::Read(view) => view.model.as_deref(),
        RequestText::None | RequestText::Raw(_) => None,
    };
    let find = |model: Option<&str>| core.process.parts.prices.find(identity.priced_as().as_str(), model?);
    // What a path names is what the provider runs, whatever stands in the body.
    let price = find(identity.path_model.as_deref()).or_else(|| find(model));
    let output_tokens =
        if identity.operation == Operation::Embedding { 0 } else { u64::from(caps.reserve_completion_tokens.0) };
    let estimate = price.map_or(0, |price| estimate_nano_usd(&price, ask, output_tokens));
    let now_s = identity.start_time.micros() / MICROS_PER_SECOND;
    let spend = &core.process.parts.spend;
    let reservation = spend
        .reserve(identity.tenant_id, agent, caps.budgets(agent), &caps.tenant_budgets, estimate, now_s)
        .map_err(|exceeded| {
            let cost = format!("this request may cost ${}", dollars(estimate));
            over_budget((identity.tenant_id, agent), &exceeded, &cost, now_s)
        })?;
    ledger.reserved(reservation);
    Ok(())
}

/// A tunnel's frames are not read, so what it costs is counted nowhere; but none is opened once a budget is used up.
fn refuse_tunnel_over_budget(core: &Core, caps: &CostCaps, inspected: &Inspected) -> Result<(), Refusal> {
    let identity = &inspected.parsed.identity;
    let agent = agent_of(identity);
    let now_s = identity.start_time.micros() / MICROS_PER_SECOND;
    let spend = &core.process.parts.spend;
    // The smallest amount finds room in every budget that has any left.
    let probe = spend.reserve(identity.tenant_id, agent, caps.budgets(agent), &caps.tenant_budgets, 1, now_s);
    match probe {
        Ok(reservation) => {
            reservation.settle(0);
            Ok(())
        }
        Err(exceeded) => {
            let cost = "nobody can say what a WebSocket costs";
            Err(over_budget((identity.tenant_id, agent), &exceeded, cost, now_s))
        }
    }
}

fn agent_of(identity: &Identity) -> &str {
    identity.agent_id.as_deref().filter(|agent| !agent.is_empty()).unwrap_or(DEFAULT_AGENT)
}

/// Whether this request can cost anything.
fn applies(caps: &CostCaps, inspected: &Inspected) -> bool {
    let parsed = &inspected.parsed;
    caps.enabled && !matches!(inspected.payload, Payload::Empty) && bills(&parsed.head, parsed.route.operation)
}

/// Whether providers charge for a request like this one: what is posted, and whatever brings a body to where a model answers,
/// under any method they may let pass for it.
pub(super) fn bills(head: &RequestHead, operation: Operation) -> bool {
    let answers = !matches!(operation, Operation::Proxy | Operation::ListModels);
    head.method() == "POST" || answers && head.body != RequestBody::Empty || head.method().eq_ignore_ascii_case("POST")
}

fn ask(inspected: &Inspected) -> Ask {
    match &inspected.text {
        RequestText::Read(view) => {
            let frames = TOKENS_PER_PART.saturating_mul(view.parts.len() as u64);
            let tokens = estimate_long(&view.text).saturating_add(frames).saturating_add(view.token_ids);
            Ask { prompt_tokens: tokens, max_tokens: view.max_tokens }
        }
        // What could not be read in time is taken to be text.
        RequestText::Raw(raw) => Ask { prompt_tokens: raw.body.len() as u64 / 4, max_tokens: None },
        RequestText::None => Ask { prompt_tokens: 0, max_tokens: None },
    }
}

fn estimate_long(text: &str) -> u64 {
    if text.len() <= SAMPLE_BYTES {
        return estimate_tokens(text);
    }
    let mut end = SAMPLE_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let sample = text.get(..end).unwrap_or_default();
    estimate_tokens(sample).saturating_mul(text.len() as u64) / sample.len().max(1) as u64
}

fn too_many_tokens(agent: &str, excess: &TokenExcess) -> Refusal {
    let TokenExcess { cap, limit, tokens } = excess;
    let message = format!(
        "this request of agent `{agent}` takes about {tokens} tokens, more than the {limit} of `cost_caps` \
         `{cap}`; send less, lower its `max_tokens`, or raise the cap"
    );
    Refusal::new(429, "cost_cap_exceeded", message)
        .header("x-should-retry", false)
        .with("scope", "tokens")
        .with("cap", *cap)
        .with("window", serde_json::Value::Null)
        .with("limit", *limit)
        .with("current", *tokens)
        .with("agent_id", agent)
}

fn over_budget((tenant, agent): (TenantId, &str), exceeded: &Exceeded, cost: &str, now_s: i64) -> Refusal {
    let window = exceeded.window.as_str();
    let resets_at = Timestamp::from_micros(exceeded.resets_at_s.saturating_mul(MICROS_PER_SECOND));
    let [limit, current, reserved] =
        [exceeded.limit_nano_usd, exceeded.spent_nano_usd, exceeded.reserved_nano_usd].map(dollars);
    let (who, setting) = match exceeded.holder {
        Holder::Agent => (format!("agent `{agent}`"), "cost_caps"),
        Holder::Tenant => (format!("tenant {tenant}, over all its agents,"), "cost_caps.tenant_budget_caps"),
    };
    let message = format!(
        "{who} has spent ${current} of its {window} budget of ${limit} (${reserved} more is reserved by requests under \
         way), and {cost}; wait until {resets_at}, or raise `{setting}`"
    );
    Refusal::new(429, "cost_cap_exceeded", message)
        .header("Retry-After", (exceeded.resets_at_s - now_s).max(1))
        .header("x-should-retry", false)
        .with("scope", "budget")
        .with("budget_of", exceeded.holder.as_str())
        .with("window", window)
        .with("limit", limit)
        .with("current", current)
        .with("reserved", reserved)
        .with("agent_id", agent)
        .with("tenant_id", tenant.to_string())
        .with("resets_at", resets_at.to_string())
}

/// For people and for JSON, where money is dollars.
pub(crate) fn dollars(nano_usd: u64) -> f64 {
    nano_usd as f64 / 1e9
}
