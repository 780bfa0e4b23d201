//! From an exchange to a span: the blank record, and the budget that bounds what is kept of bodies in flight.

mod budget;
mod span;

pub use budget::{Budget, Permit};
pub use span::{CallIds, blank, name_of};

/// The attribute that holds the provider's id of the answer: two records with the same one are of the same call.
pub const RESPONSE_ID: &str = "gen_ai.response.id";
