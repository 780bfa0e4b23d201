//! Slices of rate limits that several gateways share, as they are asked for.

use uuid::Uuid;

/// Tokens that a gateway takes out of a shared bucket, or gives back to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// Which of the tables of limits.
    pub table: char,
    /// The tenant or key whose bucket it is.
    pub whose: Uuid,
    /// Tokens per second that flow into it.
    pub rate: u32,
    /// Requests that may come at once after a rest.
    pub burst: u32,
    /// How many are wished for; below zero as many are given back.
    pub tokens: i64,
}

/// What came of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leased {
    /// Gateways that share the buckets, this one included.
    pub gateways: u32,
    /// What was granted for each wish, or taken back.
    pub granted: Vec<i64>,
}

/// How many requests of one tenant or key a gateway admits before the shared bucket has granted them. The bucket itself holds the
/// burst less that of all gateways.
pub const fn credit(burst: u32, gateways: u32) -> i64 {
    let gateways = if gateways == 0 { 1 } else { gateways as i64 };
    let half = burst as i64 / (2 * gateways);
    if half < 1 { 1 } else { half }
}
