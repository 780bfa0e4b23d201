//! The REST query API, health and metrics: an axum router on the control thread, driven in-process by the core threads.
//!
//! ```text
//!   core 0..n --ApiHandle::call--> bounded queue --serve()--> router --> blocking reader (at most four) --> store
//!             <------------------- one reply each ------------------'
//!             probe(): /health, /livez and /readyz, answered where they are asked
//! ```
//!
//! Invariants: nothing here blocks the control thread (reads, serialisation, checks of what agents report and the exposition
//! run on blocking threads); what tenants share is shared out ([`Shares`]), and what ends credentials waits for none of it;
//! every read names its tenant first; a panic costs one request. The shapes are those of the contract; nothing else in the
//! gateway shapes REST JSON. Knows neither sockets nor the proxy's stages.

mod access;
mod actions;
mod ask;
mod audit;
mod config;
mod costs;
mod error;
mod handle;
mod keys;
mod lane;
mod openapi;
mod operations;
mod paths;
mod query;
mod reading;
mod records;
mod reports;
mod route;
mod router;
mod routes;
mod shares;
mod spans;
mod state;
mod stats;
mod swagger;
mod tenants;
#[cfg(test)]
mod tests;
mod traces;

pub use access::{Access, Terms, terms};
pub use costs::Costs;
pub use error::{ErrorKind, Fault};
pub use handle::{ApiError, ApiHandle, CALLS_PER_CORE, Call, Calls, channel, serve, serve_until};
pub use operations::probe;
pub use paths::is_own_path;
pub use records::{ReadFault, Records};
pub use router::router;
pub use shares::Shares;
pub use state::{Api, READERS_MAX};
