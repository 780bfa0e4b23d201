//! The store as its users see it: one binary, a file per question.

// Clippy's leave to unwrap in tests covers test functions, not what they call.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bounds;
mod chain;
mod contract;
mod copies;
mod crash;
mod cursors;
mod facets;
mod faults;
mod identity;
mod journals;
mod ledger;
mod lists;
mod lone;
mod meanwhile;
mod opening;
mod paging;
mod power;
mod production;
mod production_import;
mod production_limits;
mod production_scale;
mod records;
mod released;
mod reports;
mod retention;
mod shim;
mod stores;
mod support;
mod texts;
mod texts_crash;
