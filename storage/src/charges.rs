//! Results of batches, and how much of what their calls cost has been charged.

use weir_config::vocab::TenantId;

/// How long it is remembered that results were charged, in microseconds: providers keep them for a month.
pub const CHARGES_KEPT_US: i64 = 100 * 86_400 * 1_000_000;
/// Results of one tenant that are remembered as charged; the oldest go first.
pub const CHARGES_MAX: u32 = 100_000;
/// Longest name of results that is kept, in bytes.
pub const BATCH_ID_BYTES_MAX: usize = 256;

/// Which results of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BatchId {
    /// Whose they are.
    pub tenant: TenantId,
    /// Which provider's.
    pub provider: String,
    /// What the provider calls them.
    pub batch: String,
}

/// How much has been charged of the results of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchCharge {
    /// Which results.
    pub id: BatchId,
    /// How much had been charged of them before, in nanodollars; `None` where nothing had been.
    pub before: Option<u64>,
    /// How much is charged of them now, with what was charged before.
    pub nano_usd: u64,
    /// When the call began that fetched them.
    pub at_us: i64,
}

/// What came of a charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Booked {
    /// It and the spend are kept. Tenants whose spend was left out, each with the second of its deletion.
    Kept(Vec<(TenantId, i64)>),
    /// Nothing was kept: so much had been charged of these results meanwhile.
    Other(Option<u64>),
}
