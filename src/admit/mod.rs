//! May this caller send this request now? Who it is, whether it fits, whether its bucket has room.
//!
//! Pure: no I/O, no database, no lock. Cheapest check first.

pub mod attempts;
pub mod connections;
mod custody;
pub mod directory;
mod guard;
mod mask;
mod presented;
pub mod rate;
pub mod tenant;
pub mod web;

pub use guard::{Denied, Guard, Memory};
pub use presented::{KEY_PREFIX, Presented, TOKEN_PREFIX};
