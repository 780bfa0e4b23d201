//! May this caller send this request now? Who it is, whether it fits, whether its bucket has room.
//!
//! Pure: no I/O, no database, no lock. Cheapest check first.

pub mod access;
pub mod attempts;
pub mod blocked;
pub mod connection_caller;
pub mod connection_table;
pub mod connections;
pub mod directory;
pub mod eviction;
mod guard;
mod key_limits;
pub mod operations;
mod presented;
pub mod provider_keys;
pub mod rate;
pub mod shared;
pub mod tenant;
pub mod web;

pub use guard::{CallerCache, Denied, Guard};
pub use presented::Presented;
