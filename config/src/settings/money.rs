//! `cost_estimation.*` and `cost_caps.*`, checked.
//!
//! Limits are whole nanodollars from here on: sums of them are exact. Knows no model and no price.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::prices::Price;

/// `cost_estimation.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct CostEstimation {
    /// `enabled`: put a cost on every span whose model has a price.
    pub enabled: bool,
    /// `pricing_file`: prices that win over the built-in list.
    pub pricing_file: Option<PathBuf>,
    /// `custom_models`: prices that win over both.
    pub custom_models: HashMap<String, Price>,
    /// `tokenizer` (ours): how tokens are counted where the provider did not.
    pub tokenizer: Tokenizer,
    /// `trust_provider_header` (ours): a client's `X-Service-Provider` chooses the price, also with authentication on.
    pub trust_provider_header: bool,
}

/// `cost_estimation.tokenizer` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokenizer {
    /// The model family's own vocabulary where it is public, loaded when first needed; else the estimate.
    Auto,
    /// Always the estimate by kinds of bytes.
    Estimate,
}

/// `cost_caps.*`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CostCaps {
    /// `enabled`.
    pub enabled: bool,
    /// `default_budget_caps`: what each agent without caps of its own may spend.
    pub default_budgets: Budgets,
    /// `tenant_budget_caps` (ours): what all agents of a tenant may spend together.
    pub tenant_budgets: Budgets,
    /// `default_token_cap`.
    pub default_tokens: Option<TokenCap>,
    /// `agents[]`, by agent id.
    pub agents: HashMap<String, AgentCaps>,
    /// `reserve_completion_tokens` (ours): output tokens a request that names no bound is expected to take.
    pub reserve_completion_tokens: ReserveTokens,
    /// `status` (ours): what a request that a cap refuses is answered with.
    pub status: CapStatus,
}

/// A status that says that a cap is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapStatus(pub u16);

impl Default for CapStatus {
    fn default() -> Self {
        Self(429)
    }
}

/// Output tokens that are reserved for a request without a bound of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReserveTokens(pub u32);

/// Caps of one agent; what it leaves out is taken from the defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentCaps {
    /// `budget_caps`.
    pub budgets: Option<Budgets>,
    /// `token_cap`.
    pub tokens: Option<TokenCap>,
}

/// At most one budget per window, in the order of [`Window::ALL`]; of several for a window the strictest.
pub type Budgets = [Option<Budget>; 4];

/// A budget cap of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// `hard_limit_usd` in nanodollars: a request that would exceed it is refused.
    pub hard_nano_usd: u64,
    /// `soft_limit_usd` in nanodollars: reaching it is reported.
    pub soft_nano_usd: Option<u64>,
}

/// A token cap, applied to each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenCap {
    /// `max_prompt_tokens`.
    pub max_prompt_tokens: Option<u32>,
    /// `max_completion_tokens`.
    pub max_completion_tokens: Option<u32>,
    /// `max_total_tokens`.
    pub max_total_tokens: Option<u32>,
}

/// The calendar windows of budgets, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// From one full hour to the next.
    Hourly,
    /// From midnight to midnight.
    Daily,
    /// From Monday to Monday (ISO 8601).
    Weekly,
    /// From the first of a month to the first of the next.
    Monthly,
}

// === impls ===

impl Window {
    /// All of them, shortest first.
    pub const ALL: [Self; 4] = [Self::Hourly, Self::Daily, Self::Weekly, Self::Monthly];

    /// The name in the configuration and in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
        }
    }
}

impl CostCaps {
    /// The budgets of an agent.
    pub fn budgets(&self, agent: &str) -> &Budgets {
        self.agents.get(agent).and_then(|own| own.budgets.as_ref()).unwrap_or(&self.default_budgets)
    }

    /// The token cap of an agent.
    pub fn tokens(&self, agent: &str) -> Option<TokenCap> {
        self.agents.get(agent).and_then(|own| own.tokens).or(self.default_tokens)
    }
}

impl Default for CostEstimation {
    fn default() -> Self {
        Self {
            enabled: true,
            pricing_file: None,
            custom_models: HashMap::new(),
            tokenizer: Tokenizer::Auto,
            trust_provider_header: false,
        }
    }
}

impl Default for ReserveTokens {
    fn default() -> Self {
        Self(1_024)
    }
}
