//! What requests and answers say: reading them in every dialect, and changing their bodies.
//!
//! Knows the forms of providers' messages and no runtime: everything here runs in a test, a fuzzer or a benchmark without a socket.
//! The ways in: `inspect` for requests, `observe` for answers, `rewrite` for changed bytes; `exchange` and `record` are the values
//! that the stages of a call hand to one another.

pub mod defence;
#[cfg(test)]
#[path = "../../tests/it/support/effort.rs"]
#[allow(dead_code)] // The gateway's suites use all of it.
mod effort;
pub mod exchange;
#[cfg(test)]
#[path = "../../tests/it/support/hostile.rs"]
#[allow(dead_code)]
mod hostile;
pub mod inspect;
pub mod observe;
pub mod record;
pub mod rewrite;
#[cfg(test)]
#[path = "../../tests/hostile/texts.rs"]
mod texts;

use weir_net::{codec, json, wire};
