//! The record: accepted spans go in over one bounded queue and are committed in groups; readers never block the writer.
//!
//! Durability contract: a span that [`Store::flush`] has waited for, or that a read has shown, survives a kill and a power
//! loss. A span that was only pushed may vanish with the process until its group is committed, which takes one round
//! of 5 ms and one commit. A clean [`Store::close`] loses nothing. While the file cannot be written spans wait in memory,
//! within the queue's bounds, and each batch is given up only after the batch timeout; every loss is counted.
//!
//! This crate knows records and queries; it does not know HTTP, metrics or settings files.

mod encode;
mod error;
mod memory;
pub mod query;
mod queue;
pub mod record;
mod sqlite;
mod store;
mod traces;
mod writer;

pub use error::{Dropped, OpenError, ReadError};
pub use queue::SpanSink;
pub use sqlite::MigrationReport;
pub use store::{Backend, BatchOutcome, CountersSnapshot, Store, StoreObserver, StoreOptions};
