//! May this caller send this request now? Who it is, whether it fits, whether its bucket has room.
//!
//! Pure: no I/O, no database, no lock. Cheapest check first.

pub mod rate;
pub mod tenant;
