//! What follows from a finished call: alerts, actions of the router, anomalies, the judge, spans for others, receipts, and models that are fetched.
//!
//! Runs off the cores and delays no call. Reads finished spans (`feed`) and calls out (`net::outbound`); knows no request under way.
//! The way in is `feed::Consumer`.

pub mod alerts;
pub mod anomalies;
#[cfg(test)]
#[path = "../../tests/it/support/effort.rs"]
#[allow(dead_code)] // The gateway's suites use all of it.
mod effort;
pub mod feed;
#[cfg(test)]
#[path = "../../tests/it/support/hostile.rs"]
#[allow(dead_code)]
mod hostile;
pub mod hub;
pub mod judge;
pub mod otel;
pub mod receipts;
pub mod router;
pub mod siem;
#[cfg(test)]
#[path = "../../tests/hostile/texts.rs"]
mod texts;

use weir_govern::{admit, enforce, meter, money};
use weir_net::{outbound, per_tenant};
use weir_read::record;
