//! Who may do what, and at which price: identity, rates, budgets, enforcement, the choice of an upstream, and the state that
//! operators see (health, metrics, logs).
//!
//! Decides without waiting: everything a decision needs lies in memory. Imports `net` and `read` only. The way in is the folder of
//! the question: `admit` for a caller, `money` for a cost, `enforce` for findings, `upstreams` for a destination.

pub mod admit;
pub mod control;
pub mod enforce;
pub mod identity;
pub mod meter;
pub mod money;
pub mod ops;
pub mod redaction;
pub mod upstreams;

use weir_net::{forward, per_tenant, rt};
use weir_read::{exchange, inspect};
