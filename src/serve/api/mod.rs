//! The REST query API, health and metrics: an axum router on the control thread, driven in-process by the core threads.
//!
//! ```text
//!   core 0..n --ApiHandle::call--> bounded queue --serve()--> router --> blocking reader (at most four) --> store
//!             <------------------- one reply each ------------------'
//!             probe(): /health, /livez and /readyz, answered where they are asked
//! ```
//!
//! Invariants: nothing here blocks the control thread (reads, serialisation, checks of what agents report and the exposition
//! run on blocking threads); what tenants share is shared out (`control::Shares`), and what ends credentials waits for none of it;
//! every read names its tenant first; a panic costs one request. The shapes are those of the contract; nothing else in the
//! gateway shapes REST JSON. Knows neither sockets nor the journey of a proxied request.

mod access;
mod actions;
mod alerts;
mod ask;
mod audit;
mod config;
mod console;
mod costs;
mod debug;
mod error;
mod keys;
mod lane;
mod listed;
mod openapi;
mod operations;
mod otlp;
mod provider_keys;
mod query;
mod reading;
mod receipts;
mod replays;
mod reports;
mod route;
mod router;
mod routes;
mod series;
mod serve;
mod sessions;
mod shown;
mod spans;
mod state;
mod static_file;
mod stats;
mod swagger;
mod tenants;
#[cfg(test)]
mod tests;
mod traces;

pub use access::terms;
pub use costs::Costs;
pub use error::ErrorAnswer;
pub use router::router;
pub use serve::{serve, serve_until};
pub(crate) use shown::{SpanShown, TraceShown};
pub use state::{Api, READERS_MAX, Roles};
