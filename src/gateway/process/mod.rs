//! What everybody on the data path works with: the process, its cores, and what the log is told of an exchange. Below every room
//! that uses it.

pub(crate) mod background;
pub(crate) mod bill;
pub(crate) mod charges;
mod core;
pub(crate) mod log_entry;
pub mod objects;
mod outside;
mod parts;
mod plans;
pub(crate) mod prompts;
pub(crate) mod turns;
pub(crate) mod unsettled;
mod waiting;

pub(crate) use core::HEALTH;
pub use core::{Core, InEffect, Process};
pub use outside::{OutsideVerdict, Question, Verdict};
pub use parts::{Edge, Inspection, Policy, ProcessParts, Recording};
pub(crate) use plans::{levels, plan, plan_at_leisure, point};
