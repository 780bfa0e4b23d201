//! What calls cost: prices, the cost of one call, and budgets that calls are held to.
//!
//! ```text
//! list    the built-in price list, searched where it lies in the binary
//! book    custom prices ▸ pricing file ▸ list: one model name to one price, or none
//! cost    tokens × price, exactly; breakdown: how it came about
//! caps    may this request still be sent: token caps, and what it would cost at most
//! tokenizer  tokens where the provider did not count, with a public vocabulary
//! spend   who has spent how much in which period: reserve before, settle after
//! ```
//!
//! Invariants: money is whole numbers (picodollars per token, nanodollars per call) until it is shown; a model nobody
//! priced has no cost rather than a wrong one. Pure: no I/O except where a pricing file is read, no clock of its own.

mod book;
mod breakdown;
mod calendar;
mod caps;
mod cost;
mod list;
mod spend;
mod tokenizer;

pub use book::{PriceBook, Prices, Quote, list_name_of_host};
pub use breakdown::{Itemised, Source, shown as shown_breakdown};
pub use calendar::Period;
pub use caps::{Ask, TokenExcess, estimate_nano_usd, excess_asked, excess_used};
pub use cost::{Counted, Tier, cost_nano_usd, dollars, itemise};
pub use spend::{
    DEFAULT_AGENT, Exceeded, Holder, KeptSpend, OTHER_AGENT, Reservation, Spend, WHOLE_TENANT, Warning, WindowSpend,
};
pub use tokenizer::Family;
