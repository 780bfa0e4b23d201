//! What the interface shows about reported agent actions in sum.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// `GET /api/v1/actions/summary`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ActionsSummary {
    /// Spans that match the filter.
    pub total_spans: u64,
    /// Those of them with at least one reported action.
    pub spans_with_actions: u64,
    /// Actions of those spans.
    pub total_actions: u64,
    /// Share of actions that worked, 0 to 1; `None` when there are no actions.
    pub success_rate: Option<f64>,
    /// Actions by type.
    pub action_counts: BTreeMap<String, u64>,
    /// The most frequent actions, at most [`TOP_ACTIONS_MAX`].
    pub top_actions: Vec<TopAction>,
}

/// Entries of [`ActionsSummary::top_actions`] at most.
pub const TOP_ACTIONS_MAX: usize = 10;

/// A frequent action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TopAction {
    /// Tool, command or resource.
    pub name: String,
    /// Its type.
    pub action_type: String,
    /// How often it was reported.
    pub count: u64,
    /// How often it failed.
    pub failures: u64,
}
