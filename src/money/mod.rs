//! What calls cost: prices, the cost of one call, and budgets that calls are held to.
//!
//! ```text
//! list    the built-in price list, searched where it lies in the binary
//! book    custom prices ▸ pricing file ▸ list: one model name to one price, or none
//! cost    tokens × price, exactly
//! ```
//!
//! Invariants: money is whole numbers (picodollars per token, nanodollars per call) until it is shown; a model nobody
//! priced has no cost rather than a wrong one. Pure: no I/O except where a pricing file is read, no clock of its own.

mod book;
mod cost;
mod list;

pub use book::{PriceBook, Prices};
pub use cost::{Counted, cost_nano_usd};
