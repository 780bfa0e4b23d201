//! `GET /api/v1/costs/current`: what an agent, its tenant and one of its keys have spent in the windows they have budgets for.
//!
//! Answered from memory, so it is as exact as the caps themselves. Knows no prices.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use weir_config::Settings;
use weir_config::settings::{Budget, Budgets, TokenCap, Window};
use weir_config::vocab::{KeyId, TenantId, Timestamp};

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::route::Answer;
use super::state::{Api, answer, to_json};
use crate::admit::access::AccessTable;
use crate::money::{DEFAULT_AGENT, Spend, WHOLE_TENANT, WindowSpend};

const MICROS_PER_SECOND: i64 = 1_000_000;
const NANO_PER_USD: f64 = 1e9;

/// Where the answer comes from.
pub struct Costs {
    /// The settings in effect.
    pub settings: Arc<ArcSwap<Settings>>,
    /// What has been spent.
    pub spend: Arc<Spend>,
    /// What keys may spend.
    pub access: Arc<AccessTable>,
}

impl Costs {
    /// Forgets what a deleted tenant has spent.
    pub(super) fn forget(&self, tenant: TenantId) {
        self.spend.erase(tenant, Timestamp::now().micros() / MICROS_PER_SECOND);
    }
}

/// Spend of one agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SpendSnapshot {
    tenant_id: TenantId,
    agent_id: String,
    /// The windows the agent has budgets for, shortest first.
    windows: Vec<WindowSnapshot>,
    /// The windows the tenant has budgets for, over all its agents.
    tenant_windows: Vec<WindowSnapshot>,
    /// The key, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<KeyId>,
    /// The windows that key has budgets for.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_windows: Option<Vec<WindowSnapshot>>,
    /// The cap on each request of the agent.
    token_cap: Option<TokenCapShown>,
}

/// One window; it is a calendar period in UTC.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct WindowSnapshot {
    /// `hourly`, `daily`, `weekly` or `monthly`.
    window: &'static str,
    current_spend_usd: f64,
    /// Estimated cost of calls under way.
    reserved_usd: f64,
    hard_limit_usd: f64,
    soft_limit_usd: Option<f64>,
    /// Spend as a part of the hard limit.
    utilization_pct: f64,
    resets_at: Timestamp,
}

/// A token cap.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TokenCapShown {
    max_prompt_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    max_total_tokens: Option<u32>,
}

pub(super) async fn current(api: Api, ask: Ask) -> Answer {
    let tenant_id = ask.tenant()?;
    let agent_id = ask.query.text("agent_id")?.unwrap_or_else(|| DEFAULT_AGENT.to_owned());
    let key_id: Option<KeyId> = ask.query.id("key_id")?;
    let costs = api.costs.as_deref().ok_or_else(disabled)?;
    let settings = costs.settings.load();
    let allowed = key_id.and_then(|key| costs.access.of(tenant_id, Some(key)));
    let of_key = allowed.as_ref().and_then(|allowed| allowed.key_budgets());
    if !settings.cost_caps.enabled && of_key.is_none() {
        return Err(disabled());
    }
    // A key's budgets hold, and its spend is counted, whether or not the caps of the settings are on.
    let caps = Some(&settings.cost_caps).filter(|caps| caps.enabled);
    let now_s = Timestamp::now().micros() / MICROS_PER_SECOND;
    let of_agent = |agent: &str| costs.spend.snapshot(tenant_id, agent, now_s);
    let key_windows = of_key.map(|(key, budgets)| windows(costs.spend.snapshot_of_key(tenant_id, key, now_s), budgets));
    let snapshot = SpendSnapshot {
        tenant_id,
        windows: caps.map(|caps| windows(of_agent(&agent_id), caps.budgets(&agent_id))).unwrap_or_default(),
        tenant_windows: caps.map(|caps| windows(of_agent(WHOLE_TENANT), &caps.tenant_budgets)).unwrap_or_default(),
        key_id,
        key_windows: key_id.map(|_| key_windows.unwrap_or_default()),
        token_cap: caps.and_then(|caps| caps.tokens(&agent_id)).map(TokenCapShown::from),
        agent_id,
    };
    Ok(answer(StatusCode::OK, to_json(&snapshot)?, "application/json"))
}

fn disabled() -> ErrorAnswer {
    let message = "cost caps are off, so nothing is counted; switch `cost_caps.enabled` on, or ask for a `key_id` that has budgets in \
                   its tenant's `config`";
    ErrorAnswer::not_found(message)
}

/// Those of the windows that have a budget.
fn windows(spent: [WindowSpend; 4], budgets: &Budgets) -> Vec<WindowSnapshot> {
    let bounded = |((window, spent), budget): ((&Window, WindowSpend), &Option<Budget>)| {
        let budget = budget.as_ref()?;
        Some(shown(*window, &spent, budget.hard_nano_usd, budget.soft_nano_usd))
    };
    Window::ALL.iter().zip(spent).zip(budgets).filter_map(bounded).collect()
}

fn shown(window: Window, spent: &WindowSpend, hard: u64, soft: Option<u64>) -> WindowSnapshot {
    let dollars = |nano_usd: u64| nano_usd as f64 / NANO_PER_USD;
    // A budget of nothing is used up from the start.
    let utilization_pct = if hard == 0 { 100.0 } else { spent.spent_nano_usd as f64 / hard as f64 * 100.0 };
    WindowSnapshot {
        window: window.as_str(),
        current_spend_usd: dollars(spent.spent_nano_usd),
        reserved_usd: dollars(spent.reserved_nano_usd),
        hard_limit_usd: dollars(hard),
        soft_limit_usd: soft.map(dollars),
        utilization_pct: (utilization_pct * 100.0).round() / 100.0,
        resets_at: Timestamp::from_micros(spent.period.end_s.saturating_mul(MICROS_PER_SECOND)),
    }
}

impl From<TokenCap> for TokenCapShown {
    fn from(cap: TokenCap) -> Self {
        let TokenCap { max_prompt_tokens, max_completion_tokens, max_total_tokens } = cap;
        Self { max_prompt_tokens, max_completion_tokens, max_total_tokens }
    }
}
