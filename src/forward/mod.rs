//! The way to the provider: where it is, how to reach it, which connections may be used again.
//!
//! The host comes from the settings only; nothing in a request can choose it.

mod peer;
mod pool;

pub use peer::{Peer, PeerError};
pub use pool::{AcquireError, Lease, Pool, UpstreamConn};
