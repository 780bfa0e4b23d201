//! One request's typed state. Each stage takes the former type by value and returns the next or a [`Refusal`], so a
//! stage can be neither skipped nor reordered:
//!
//! ```text
//! Parsed -> Admitted -> Inspected -> Enforced -> Ready -> (relayed) -> Done
//! ```
//!
//! `Done` is always reached, also after a refusal, a failure or a vanished client: see `flow::ledger`.

mod caller;
mod context;
mod payload;
mod refusal;

pub use caller::{Caller, OPEN_ACTOR, Proof};
pub use context::{Moments, TraceContext};
pub use payload::{Analysis, Payload, RawBody, RequestText, Skip};
pub use refusal::Refusal;

use bytes::Bytes;
use weir_config::vocab::{Dialect, Finding};

use crate::enforce::Decision;
use crate::inspect::Route;
use crate::record::Identity;
use crate::wire::RequestHead;

/// A request whose head is well-formed.
pub struct Parsed {
    /// The head.
    pub head: RequestHead,
    /// Where it goes and what it is.
    pub route: Route,
    /// Who sends it.
    pub caller: Caller,
    /// Under which ids it is recorded.
    pub identity: Identity,
    /// The caller's trace context, to be continued.
    pub trace: Option<TraceContext>,
}

/// A request that may be sent: known caller, within its rate, not declared too large.
pub struct Admitted(pub Box<Parsed>);

/// A request whose body has been read as far as something had to read it.
pub struct Inspected {
    /// The request.
    pub parsed: Box<Parsed>,
    /// Its body.
    pub payload: Payload,
    /// What is known of its text.
    pub text: RequestText,
    /// What the detectors saw before forwarding.
    pub findings: Vec<Finding>,
    /// Whether analysis took place, is due, or was skipped.
    pub analysis: Analysis,
    /// What the client is told when analysis did not see all of it.
    pub notice: Option<&'static str>,
}

/// A request that enforcement lets through.
pub struct Enforced {
    /// The request.
    pub inspected: Inspected,
    /// Forward, or forward and flag.
    pub decision: Decision,
}

/// A request in the form the provider will see.
pub struct Ready {
    /// The request.
    pub parsed: Box<Parsed>,
    /// Its body, rewritten where a rewrite was due.
    pub payload: Payload,
    /// Header fields the answer gets beside the provider's own.
    pub marks: Vec<(&'static str, Bytes)>,
}

impl Parsed {
    /// The dialect our own errors take.
    pub fn dialect(&self) -> Dialect {
        self.route.dialect
    }
}
