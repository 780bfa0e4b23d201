//! The way to the provider: where it is, how to reach it, which connections may be used again.
//!
//! The host comes from the settings only; nothing in a request can choose it.

mod conn;
mod dial;
mod peer;
mod permits;
mod pool;
mod shares;
mod trust;

pub use conn::UpstreamConn;
pub use dial::Dialer;
pub(crate) use peer::alternating;
pub use peer::authorization;
pub use peer::{Peer, PeerError, ViaProxy};
pub use permits::Permits;
pub use pool::{AcquireError, ConnPool, Lease};
pub use shares::Holder;
pub use trust::client_config;
