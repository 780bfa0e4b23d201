//! What becomes of a question to the judge, and why there is no verdict.

use std::time::Duration;

use crate::outbound::OutboundError;

/// The label `status` of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// A verdict.
    Success,
    /// The backend took too long.
    Timeout,
    /// The backend refused, or said more than is read.
    BackendError,
    /// The backend answered, and the answer holds no verdict.
    ParseError,
    /// A key is missing, or the backend's address cannot be called.
    Misconfigured,
    /// No connection, or one that broke.
    TransportError,
    /// The gateway stopped.
    Shutdown,
}

impl Status {
    /// As the label has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Timeout => "timeout",
            Self::BackendError => "backend_error",
            Self::ParseError => "parse_error",
            Self::Misconfigured => "misconfigured",
            Self::TransportError => "transport_error",
            Self::Shutdown => "shutdown",
        }
    }
}

/// Why there is no verdict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// Its kind.
    pub status: Status,
    /// For a person; names no credential.
    pub reason: String,
    /// Whether the same question may succeed in a moment.
    pub again: Again,
}

/// Whether to ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// It would come to the same.
    No,
    /// Not before so long, where the backend says so.
    After(Option<Duration>),
}

impl Failure {
    /// One that would come again.
    pub fn lasting(status: Status, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), again: Again::No }
    }
}

impl From<OutboundError> for Failure {
    fn from(error: OutboundError) -> Self {
        let reason = error.to_string();
        let (status, again) = match error {
            OutboundError::Url(_) | OutboundError::Proxy { .. } => (Status::Misconfigured, Again::No),
            OutboundError::Connect { .. } => (Status::TransportError, Again::After(None)),
            OutboundError::Deadline { .. } => (Status::Timeout, Again::After(None)),
            OutboundError::TooLarge { .. } if error.is_transient() => (Status::BackendError, Again::After(None)),
            OutboundError::TooLarge { .. } => (Status::BackendError, Again::No),
            // What was sent may have been taken, and paid for.
            OutboundError::Broken { .. } => (Status::TransportError, Again::No),
        };
        Self { status, reason, again }
    }
}
