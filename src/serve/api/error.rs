//! Every refusal of the API and the one place that gives it bytes.
//!
//! Invariant: the body is always `{"error":{"type","message","code","param"}}`, `code` repeats `type`, `param` is null;
//! the message says what happened and what to do, and never repeats a credential. Knows no routes.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use weir_storage::{NotWritten, ReadError};

use crate::control::ErrorKind;

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorAnswer {
    /// Status of the answer.
    pub status: StatusCode,
    /// The error type as the interface names it.
    pub kind: &'static str,
    /// What happened and what to do.
    pub message: String,
    /// `Retry-After` in seconds.
    pub retry_after_s: Option<u32>,
    /// `Allow`.
    pub allow: Option<String>,
}

impl ErrorAnswer {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), retry_after_s: None, allow: None }
    }

    /// 400: the request does not say what it wants in a way the API understands.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// 401.
    pub fn unauthenticated() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", "no valid credential came with the request")
    }

    /// 403.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "permission_denied", message)
    }

    /// 403: the caller's key is limited, and what it asks for is not.
    pub fn limited_key(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "key_limited", message)
    }

    /// 413: nothing is taken of it.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
    }

    /// 415, and what would be taken.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
    }

    /// 415.
    pub fn unsupported_media_type() -> Self {
        let message = "the body must be JSON; send it with `Content-Type: application/json`";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
    }

    /// 400: what was to be changed has no switch.
    pub fn immutable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "immutable", message)
    }

    /// 409: the request does not fit the present state.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    /// 404.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// 405; `allow` lists the methods the path knows.
    pub fn method_not_allowed(allow: String) -> Self {
        let message = format!("this path answers {allow} only");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message) }
    }

    /// 500: our fault; details are in the log, not in the answer.
    pub fn internal() -> Self {
        let message = "the gateway failed to answer; its log says why";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    /// 503: more questions than the API answers at once; worth asking again.
    pub fn saturated(message: impl Into<String>) -> Self {
        Self { retry_after_s: Some(1), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "api_saturated", message) }
    }

    /// 429: as much of this is under way for the tenant as may be.
    pub fn too_many(message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
        Self { retry_after_s: Some(5), ..refusal }
    }

    /// 503: what the answer is made from is not set, or not as it has to be.
    pub fn unset(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "golden_set_unavailable", message)
    }

    /// 503: the query ran into the store's time limit.
    pub fn storage_timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "storage_timeout", message)
    }

    /// 503: the store cannot be read at the moment.
    pub fn storage_unavailable() -> Self {
        let message =
            "the store cannot be read at the moment; the gateway's log says why, `/health` says when it is back";
        Self { retry_after_s: Some(1), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "storage_unavailable", message) }
    }

    /// 503: the store cannot be written at the moment.
    pub fn storage_unwritable() -> Self {
        let message = "the store cannot be written at the moment, and nothing was kept; the gateway's log says why";
        Self { retry_after_s: Some(1), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "storage_unavailable", message) }
    }

    /// 503: the gateway is stopping.
    pub fn shutting_down() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", "the gateway is stopping; ask another instance")
    }

    /// The JSON body.
    pub fn body(&self) -> Vec<u8> {
        let error = ErrorDetail { r#type: self.kind, message: &self.message, code: self.kind, param: () };
        // A struct of texts always has a JSON form.
        serde_json::to_vec(&ErrorBody { error }).unwrap_or_default()
    }
}

/// The body of every refusal.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ErrorBody<'a> {
    error: ErrorDetail<'a>,
}

/// What was refused and why.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ErrorDetail<'a> {
    /// Machine-readable kind, e.g. `invalid_request`.
    r#type: &'a str,
    /// What happened and what to do, for a person.
    message: &'a str,
    /// The same as `type`.
    code: &'a str,
    /// Always null.
    param: (),
}

/// Head and body of an answer, without the router.
impl<B: From<Vec<u8>>> From<ErrorAnswer> for http::Response<B> {
    fn from(fault: ErrorAnswer) -> Self {
        let mut response = http::Response::new(B::from(fault.body()));
        *response.status_mut() = fault.status;
        response.extensions_mut().insert(ErrorKind(fault.kind));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = fault.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(methods) = fault.allow {
            // Method names are always legal in a field value.
            headers.extend(HeaderValue::try_from(methods).ok().map(|methods| (ALLOW, methods)));
        }
        response
    }
}

impl IntoResponse for ErrorAnswer {
    fn into_response(self) -> Response {
        http::Response::<Body>::from(self)
    }
}

impl From<NotWritten> for ErrorAnswer {
    fn from(error: NotWritten) -> Self {
        match error {
            NotWritten::Busy { .. } | NotWritten::Full { .. } => Self::saturated(error.to_string()),
            NotWritten::TimedOut { .. } => Self::storage_timeout(error.to_string()),
            NotWritten::Closed => Self::shutting_down(),
            NotWritten::Refused { .. } => Self::invalid(error.to_string()),
            NotWritten::TooMany { .. } => Self::too_many(error.to_string()),
            NotWritten::Unavailable { reason } => {
                tracing::error!(reason, "the store could not be written");
                Self::storage_unwritable()
            }
        }
    }
}

impl From<ReadError> for ErrorAnswer {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::TooLarge { .. } | ReadError::RecordTooLarge { .. } => Self::invalid(error.to_string()),
            ReadError::Busy { .. } => Self::saturated(error.to_string()),
            ReadError::TimedOut { .. } => Self::storage_timeout(error.to_string()),
            ReadError::Damaged { .. } => {
                tracing::error!(%error, "a stored record is damaged");
                Self::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal_error",
                    "a record that this answer needs is damaged; `weir db check` names it, and a backup from before has it whole",
                )
            }
            ReadError::NotWritable { .. } | ReadError::Unavailable { .. } => {
                let reason = error.to_string();
                tracing::error!(reason, "the store could not be read");
                Self::storage_unavailable()
            }
        }
    }
}
