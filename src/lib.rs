//! Weir, an LLM egress gateway: a transparent HTTP proxy between applications and LLM providers that records every call
//! as a trace, scores it for security, enforces limits, and stays out of the way.
//!
//! Seven rooms, each above all that it may import; each says in its first lines what lives there and what it may know:
//! [`net`], [`read`], [`govern`], [`react`], [`gateway`], [`serve`] and [`app`]. Folders of a room are named without it
//! (`crate::wire`), so that one can move. The four lower rooms are crates, and the compiler holds
//! that each knows nothing above it. `tests/tidy.rs` holds the order, ARCHITECTURE.md has the reasons.

pub mod app;
#[cfg(test)]
#[path = "../tests/it/support/effort.rs"]
#[allow(dead_code)] // The other suite uses all of it.
mod effort;
pub mod gateway;
#[cfg(test)]
#[path = "../tests/it/support/hostile.rs"]
#[allow(dead_code)]
mod hostile;
#[cfg(test)]
#[path = "../tests/hostile/peak.rs"]
mod peak;
pub mod serve;
#[cfg(test)]
mod tests;
#[cfg(test)]
#[path = "../tests/hostile/texts.rs"]
mod texts;

pub use app::{boot, cli};
pub use gateway::{client, flow, golden, judging, process, replay, settle};
pub use serve::{api, grpc, ingest, reports};
pub use weir_govern as govern;
pub use weir_govern::{admit, control, enforce, identity, meter, money, ops, redaction, upstreams};
pub use weir_net as net;
pub use weir_net::{codec, forward, json, limits, outbound, rt, wire};
pub use weir_react as react;
pub use weir_react::{alerts, anomalies, feed, judge, otel, receipts, router, siem};
pub use weir_read as read;
pub use weir_read::{exchange, inspect, observe, record, rewrite};

pub(crate) use gateway::output;
pub(crate) use weir_react::hub;
pub(crate) use weir_read::defence;
