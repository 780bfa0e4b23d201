//! SQLite: a file in WAL mode with synchronous=FULL (`lite`), or a database in memory (`memory`). The only folder that
//! sees rusqlite.
//!
//! One connection writes and checkpoints, on the storage thread; readers are read-only connections that never
//! checkpoint, so a slow query can neither block a commit nor damage the log.

mod action_sums;
mod actions;
mod alert_holders;
mod alerts;
mod audit;
mod chain;
mod changes;
mod charges;
mod contents;
mod copy;
mod engine;
mod erase;
mod eviction;
mod facets;
mod feed;
mod file_id;
mod gaps;
mod home;
mod housekeeping;
mod intern;
mod keys;
mod kin;
mod known;
mod late;
mod log_file;
mod lone;
mod migrate;
mod objects;
mod offences;
mod open;
mod paging;
mod provenance;
mod provider_keys;
mod read;
mod readers;
mod reads;
mod reports;
mod reserve;
mod rows;
mod series;
mod spend;
mod stats;
mod tallies;
mod tenants;
mod text_ages;
mod texts;
mod tx;
mod usage;
mod walk;

pub(crate) use chain::Auditor;
pub(crate) use contents::{Contents, PIECE as CONTENTS_PIECE, Value};
pub use copy::{Copied, Examined, check, copy};
pub(crate) use engine::SqliteEngine;
pub(crate) use feed::Texts;
pub(crate) use home::Home;
pub use migrate::MigrationReport;
pub(crate) use migrate::{CopyFirst, Pending, down, examine, run as migrate};
pub(crate) use readers::Readers;
pub(crate) use reads::Reads;
