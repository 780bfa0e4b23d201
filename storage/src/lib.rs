//! The record: accepted spans go in over one bounded queue and are committed in groups; readers never block the writer.
//!
//! Durability contract: a span that [`Store::flush`] has waited for, or that a read has shown, survives a kill and a power
//! loss. So does a change whose call has returned (an audit line, an action, a report): it is made by the writer and
//! answered after its commit. A span that was only pushed may vanish with the process until its group is committed, which takes one round
//! of 5 ms and one commit. A clean [`Store::close`] loses nothing. While the file cannot be written spans wait in memory,
//! within the queue's bounds, and each batch is given up only after the batch timeout; every loss is counted.
//!
//! This crate knows records and queries; it does not know HTTP, metrics or settings files.

pub mod actions;
pub mod alerts;
mod attributes;
pub mod audit;
mod change;
mod charges;
mod claim;
mod cursor;
mod encode;
mod engine;
mod error;
pub mod leases;
pub mod messages;
mod objects;
mod observer;
mod offences;
mod order;
mod pause;
mod production;
pub mod prompt;
pub mod prompt_cache;
pub mod query;
mod queue;
mod reader;
pub mod record;
pub mod reports;
mod retention;
mod roles;
mod room;
mod spend;
mod sqlite;
pub mod stats;
mod store;
pub mod tenants;
pub mod usage;
mod verdicts;
mod writer;

pub use charges::{BATCH_ID_BYTES_MAX, BatchCharge, BatchId, Booked, CHARGES_KEPT_US, CHARGES_MAX};
pub use claim::{Joined, Neighbour, ReadingClaim, UseClaim, UsePhase};
pub use cursor::{Cursor, Fate, Inserted, SpanBatch, TracePlace, TraceRest};
pub use error::{Dropped, NotTaken, NotWritten, OpenError, ReadError};
pub use objects::{MadeObject, OBJECT_ID_BYTES_MAX, OBJECTS_MAX};
pub use observer::{BatchOutcome, StoreObserver};
pub use offences::{BlockedAddress, Offence};
pub use production::{Imported, Migrated, StoreReports, StoreState, Stores};
pub use queue::{SpanSink, Taken, weigh};
pub use reader::{RecordReader, Shipped};
pub use retention::{Erase, Retention, Space};
pub use roles::{AlertBook, AuditLog, ObjectBook, OffenceBook, Registry, ReportBook, SpanLog, SpendBook, VerdictBook};
pub use room::{Room, room_beside};
pub use spend::SpendRow;
pub use sqlite::{Copied, Examined, MigrationReport, check, copy};
pub use store::{Backend, CountersSnapshot, Store, StoreOptions};
pub use verdicts::{JudgeVerdict, LateFinding};
