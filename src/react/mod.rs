//! What follows from a finished call: alerts, actions of the router, anomalies, the judge, spans for others, receipts, and models that are fetched.
//!
//! Runs off the cores and delays no call. Reads finished spans (`feed`) and calls out (`net::outbound`); knows no request under way.
//! The way in is `feed::Consumer`.

pub mod alerts;
pub mod anomalies;
pub mod feed;
pub(crate) mod hub;
pub mod judge;
pub mod otel;
pub mod receipts;
pub mod router;
pub mod siem;
