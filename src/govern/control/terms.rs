//! What the gateway's own paths ask of their callers.

use weir_config::vocab::Role;

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    Open,
    /// At least this role.
    Role(Role),
}

/// On which terms a call is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// What it asks of its caller.
    pub access: Access,
    /// Whether it counts against the rate of the caller's tenant.
    pub limited: bool,
    /// Whether it takes a credential away, and goes ahead of everything else.
    pub urgent: bool,
    /// The longest body it takes, where that is not `max_api_request_bytes`.
    pub body_bytes_max: Option<u64>,
}

/// The error type of an answer, carried beside it for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorKind(pub &'static str);

/// Where an answer that comes in pieces goes on. An answer that carries it is not whole; the same request carries it to get the next
/// piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Further(pub String);
