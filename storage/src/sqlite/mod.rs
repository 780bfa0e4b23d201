//! The `lite` profile: one SQLite file in WAL mode with synchronous=FULL. The only folder that sees rusqlite.
//!
//! One connection writes and checkpoints, on the storage thread; readers are read-only connections that never
//! checkpoint, so a slow query can neither block a commit nor damage the log.

mod insert;
mod intern;
mod migrate;
mod open;
mod pool;
mod read;
mod tallies;

pub(crate) use insert::SqliteEngine;
pub use migrate::MigrationReport;
pub(crate) use migrate::run as migrate;
pub(crate) use pool::Readers;
