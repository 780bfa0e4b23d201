//! Weir, an LLM egress gateway: a transparent HTTP proxy between applications and LLM providers that records every call
//! as a trace, scores it for security, enforces limits, and stays out of the way.
//!
//! The map: `rt` is the runtime seam, `wire` the HTTP/1.1 framing, `flow` the journey of a request through the stages
//! `admit`, `inspect`, `enforce`, `rewrite`, `forward`, `observe` and `record`; `exchange` holds its typed state; `api`,
//! `ops` and `meter` are the control side; `boot` builds and takes down. ARCHITECTURE.md says why.

pub mod admit;
pub mod api;
pub mod boot;
pub mod cli;
pub mod codec;
pub mod demo;
pub mod enforce;
pub mod exchange;
pub mod flow;
pub mod forward;
pub mod identity;
pub mod inspect;
pub mod json;
pub mod meter;
pub mod money;
pub mod observe;
pub mod ops;
pub mod record;
pub mod rewrite;
pub mod rt;
pub mod wire;
