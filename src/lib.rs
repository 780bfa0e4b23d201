//! Weir, an LLM egress gateway: a transparent HTTP proxy between applications and LLM providers that records every call
//! as a trace, scores it for security, enforces limits, and stays out of the way.
//!
//! The map: `rt` is the runtime seam, `wire` the HTTP/1.1 framing, `client` a client's connection, `flow` the journey
//! of a request through the stages `admit`, `inspect`, `enforce`, `rewrite`, `forward` and `observe`, `settle` its end,
//! `output` what looks at answers before their clients have them, and `process` what they work with; `exchange` is what
//! they say to each other in. `control` is the cores' side of our own API and `api` the other; `grpc` takes in spans
//! from elsewhere; `ops` and `meter` run the gateway; `boot` builds and takes down. `tests/tidy.rs` has the floors,
//! ARCHITECTURE.md the reasons.

pub mod admit;
pub mod alerts;
pub mod anomalies;
pub mod api;
pub mod boot;
pub mod cli;
pub mod client;
pub mod codec;
pub mod control;
mod defence;
#[cfg(test)]
#[path = "../tests/it/support/effort.rs"]
#[allow(dead_code)] // The other suite uses all of it.
mod effort;
pub mod enforce;
pub mod exchange;
pub mod feed;
pub mod flow;
pub mod forward;
pub mod golden;
pub mod grpc;
#[cfg(test)]
#[path = "../tests/it/support/hostile.rs"]
#[allow(dead_code)]
mod hostile;
mod hub;
pub mod identity;
pub mod ingest;
pub mod inspect;
pub mod json;
pub mod judge;
pub mod judging;
pub mod limits;
pub mod meter;
pub mod money;
pub mod observe;
pub mod ops;
pub mod outbound;
mod output;
mod per_tenant;
pub mod process;
pub mod record;
pub mod redaction;
pub mod reports;
pub mod rewrite;
pub mod router;
pub mod rt;
pub mod settle;
pub mod upstreams;
pub mod wire;
