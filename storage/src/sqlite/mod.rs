//! SQLite: a file in WAL mode with synchronous=FULL (`lite`), or a database in memory (`memory`). The only folder that
//! sees rusqlite.
//!
//! One connection writes and checkpoints, on the storage thread; readers are read-only connections that never
//! checkpoint, so a slow query can neither block a commit nor damage the log.

mod action_sums;
mod actions;
mod audit;
mod ballast;
mod chain;
mod engine;
mod erase;
mod home;
mod identity;
mod intern;
mod keeper;
mod keys;
mod log_file;
mod migrate;
mod open;
mod paging;
mod pool;
mod provenance;
mod read;
mod report_builder;
mod reports;
mod rows;
mod shares;
mod spend;
mod stats;
mod tallies;
mod tenants;
mod tx;

pub(crate) use chain::Verified;
pub(crate) use engine::SqliteEngine;
pub(crate) use home::Home;
pub use migrate::MigrationReport;
pub(crate) use migrate::run as migrate;
pub(crate) use pool::Readers;
pub(crate) use report_builder::Builder;
pub use spend::SpendRow;
pub(crate) use tx::Tx;
