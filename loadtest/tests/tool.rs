//! The load tester as its users run it: the binary, against its own fake provider and relay.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests fail by panicking, their helpers too.

#[path = "tool/support.rs"]
mod support;

#[path = "tool/compare.rs"]
mod compare;

#[path = "tool/measure.rs"]
mod measure;

#[path = "tool/plans.rs"]
mod plans;

#[path = "tool/relay.rs"]
mod relay;
