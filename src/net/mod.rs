//! Bytes and sockets: the runtime seam, HTTP/1.1 framing, JSON and content codings, connections to providers, and the one client for
//! calls of the gateway's own.
//!
//! Knows nothing of tenants, prompts, findings, money or records, and imports no other room. The way in is the folder that is
//! named: `rt` for sockets and threads, `wire` for heads and bodies, `forward` for a connection to a provider.

pub mod codec;
pub mod forward;
pub mod json;
pub mod limits;
pub mod outbound;
pub mod per_tenant;
pub mod rt;
pub mod wire;
