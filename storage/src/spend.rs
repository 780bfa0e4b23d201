//! Spend as it is kept.

use weir_config::settings::Window;
use weir_config::vocab::TenantId;

/// One window of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpendRow {
    /// Whose.
    pub tenant: TenantId,
    /// Which agent's.
    pub agent: String,
    /// Which window.
    pub window: Window,
    /// The period's first second, since 1970.
    pub period_start_s: i64,
    /// The second since which this process counts it; of a row that was read, when it was read, and
    /// behind any deletion: rows that are there were written since.
    pub since_s: i64,
    /// Nanodollars spent in it.
    pub spent_nano_usd: u64,
}
