//! The record: accepted spans go in over one bounded queue and are committed in groups; readers never block the writer.

pub mod query;
pub mod record;
