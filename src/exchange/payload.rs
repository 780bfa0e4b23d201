//! A request's body and what is known of its text.

use bytes::Bytes;
use weir_config::vocab::Unread;

use crate::inspect::{RequestView, Takes};
use crate::record::Permit;

/// The body on its way to the provider.
pub enum Payload {
    /// There is none.
    Empty,
    /// The whole body is in memory.
    Held {
        /// The bytes to forward.
        body: Bytes,
        /// Whether the client sent it chunked; then it is forwarded chunked.
        chunked: bool,
        /// What it took from the body budget.
        permit: Option<Permit>,
    },
    /// It is relayed as it arrives.
    Streamed,
}

/// What is known of the request's text.
pub enum RequestText {
    /// Nothing to read, or nothing is to be recorded.
    None,
    /// Read already; `Inspected::findings` holds what was found if it was also analysed.
    Read(Box<RequestView>),
    /// Still to be read: after the answer, off the client's way.
    Raw(RawBody),
}

/// A body as it was received, and what its head says about it.
pub struct RawBody {
    /// The bytes.
    pub body: Bytes,
    /// What the operation takes.
    pub takes: Takes,
    /// `Content-Type` of the request.
    pub content_type: Option<Bytes>,
    /// `Content-Encoding` of the request; of several, all of them.
    pub content_encoding: Option<Bytes>,
    /// A field that was given twice: servers differ in which one they believe.
    pub repeated: Option<&'static str>,
    /// True when only the beginning was kept.
    pub truncated: bool,
}

/// Whether the request has been analysed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Analysis {
    /// Findings are complete.
    Ran,
    /// To be done after the answer.
    Due,
    /// Left out, and the client and the record are told why.
    Skipped(Skip),
}

/// Why analysis was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// `enable_security_analysis` is false.
    Disabled,
    /// A circuit breaker is open.
    BreakerOpen,
    /// It took longer than `enforcement.timeout_ms`.
    Timeout,
    /// A detector failed.
    Error,
    /// The analysis queue or the body budget was full.
    QueueFull,
    /// What passes through a tunnel is not looked at.
    WebSocket,
}

impl Skip {
    /// The value of the `reason` tag.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::BreakerOpen => "circuit_breaker_open",
            Self::Timeout => "analyzer_timeout",
            Self::Error => "analyzer_error",
            Self::QueueFull => "queue_full",
            Self::WebSocket => Unread::WebSocket.as_str(),
        }
    }

    /// The value of `X-Service-Analysis`.
    pub const fn header(self) -> &'static str {
        match self {
            Self::Disabled => "skipped;reason=disabled",
            Self::BreakerOpen => "skipped;reason=circuit_breaker_open",
            Self::Timeout => "skipped;reason=analyzer_timeout",
            Self::Error => "skipped;reason=analyzer_error",
            Self::QueueFull => "skipped;reason=queue_full",
            Self::WebSocket => Unread::WebSocket.header(),
        }
    }
}
