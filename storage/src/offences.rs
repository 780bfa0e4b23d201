//! Offences of addresses, and which of them are turned away.

use std::net::IpAddr;

use weir_config::vocab::{SpanId, Timestamp};

/// One call that counts against the address it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offence {
    /// Whose.
    pub address: IpAddr,
    /// The call; it counts once, however often it is noted.
    pub span: SpanId,
    /// When it is noted.
    pub at: Timestamp,
    /// For how long it counts, and for how long an address is turned away, in microseconds.
    pub ttl_us: i64,
    /// With how many an address is turned away.
    pub max: u32,
}

/// An address that is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockedAddress {
    /// Which one.
    pub address: IpAddr,
    /// Until then.
    pub until: Timestamp,
}
