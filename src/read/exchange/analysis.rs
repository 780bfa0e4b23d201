//! Whether a request was analysed, and why not.

use weir_config::vocab::Unread;

/// Whether the request has been analysed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Analysis {
    /// Findings are complete.
    Ran,
    /// The rules have seen all of it, and what is left to models is done after the answer, together with them.
    Rules,
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
