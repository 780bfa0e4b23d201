//! Why a call has no answer.

use std::error::Error;
use std::time::Duration;

use http::StatusCode;

use weir_config::egress::UnusableProxy;

/// A call without an answer. No message shows more of the URL than its host.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    /// The URL cannot be called.
    #[error("the URL cannot be called: {0}; expected http://host[:port]/path or https://host[:port]/path")]
    Url(&'static str),
    /// The variable that concerns the destination names no usable proxy.
    #[error("{to} cannot be reached: {source}")]
    Proxy {
        /// Where to.
        to: String,
        /// Why.
        source: UnusableProxy,
    },
    /// No connection.
    #[error("{to} cannot be connected to: {reason}")]
    Connect {
        /// Where to, and through which proxy.
        to: String,
        /// Why.
        reason: String,
    },
    /// The time for the call was up.
    #[error("{to} was given {limit:?} and the gateway still waited for {waiting_for}")]
    Deadline {
        /// Where to.
        to: String,
        /// How long.
        limit: Duration,
        /// What was missing.
        waiting_for: &'static str,
    },
    /// The answer's body is too large.
    #[error("the answer of {to} ({status}) is larger than {bytes_max} bytes")]
    TooLarge {
        /// Where to.
        to: String,
        /// What it said before that.
        status: StatusCode,
        /// The bound.
        bytes_max: usize,
    },
    /// The connection broke, or what came is no HTTP.
    #[error("the call to {to} broke off: {reason}")]
    Broken {
        /// Where to.
        to: String,
        /// Why.
        reason: String,
    },
}

impl OutboundError {
    /// Whether the same call may succeed later without anybody changing a setting.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Url(_) | Self::Proxy { .. } => false,
            // The page of a proxy that finds nobody behind it may be of any size.
            Self::TooLarge { status, .. } => status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429),
            Self::Connect { .. } | Self::Deadline { .. } | Self::Broken { .. } => true,
        }
    }

    pub(super) fn of(to: &str, error: &hyper_util::client::legacy::Error) -> Self {
        if error.is_connect() {
            Self::Connect { to: to.to_owned(), reason: deepest(error) }
        } else {
            Self::broken(to, error)
        }
    }

    pub(super) fn broken(to: &str, error: &(dyn Error + 'static)) -> Self {
        Self::Broken { to: to.to_owned(), reason: deepest(error) }
    }
}

/// What lies at the bottom of an error; the layers above it say "client error" and the like.
fn deepest(error: &(dyn Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
