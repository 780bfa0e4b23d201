//! Metrics without locks or shared cache lines on the hot path.
//!
//! Each core thread writes its own cells through a [`CoreMeter`]; everybody else writes [`Shared`] ones; a scrape sums
//! both in the [`Registry`] and renders Prometheus text. Sums never fall, label values are bounded whatever clients
//! send, and no scrape makes a writer wait. Nothing here knows HTTP, storage or the stages of a request.
//!
//! ```text
//!  core 0: CoreMeter -- cells 0 <---.
//!  core 1: CoreMeter -- cells 1 <---+-- Registry::render() at a scrape --> text 0.0.4
//!  others: Shared ----- atomics <---'        ^
//!             new series --- lock-free queue -'
//! ```

mod cell;
mod core;
mod cost;
mod defence;
mod expose;
pub mod interface;
mod label;
pub mod names;
mod registry;
mod shared;
mod table;
#[cfg(test)]
mod tests;

pub use cell::HistogramSum;
pub use core::{AnswerStop, ClientEvent, CoreMeter, Counted, Direction, Model, UpstreamState};
pub use cost::TENANTS_MAX;
pub use defence::{DefenceError, DefenceSkip};
pub use expose::{CONTENT_TYPE, Exposition, Labels};
pub use label::{FINDING_TYPES_MAX, LABEL_BYTES_MAX, MODELS_MAX, NO_MODEL, OTHER, is_legal};
pub use names::Family;
pub use registry::{QueueDepth, QueueGauge, Registry, Source};
pub use shared::Shared;
