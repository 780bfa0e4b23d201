//! Every "no" Weir says itself, and the one place where it becomes bytes.
//!
//! A refusal has the shape of the dialect the client thinks it is talking to, so that the client library raises its own
//! kind of error; our `type` values stand inside (decisions: wire conventions).

use serde_json::{Map, Value, json};
use weir_config::vocab::{Dialect, TraceId};

use crate::wire::Fault;

/// The methods of every target.
pub const ALLOW: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// A request that Weir answers itself with an error.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// `type` of the error body.
    pub error_type: &'static str,
    /// What happened, which setting or header caused it, what to do.
    pub message: String,
    /// Extra header fields, e.g. `Retry-After`.
    pub headers: Vec<(&'static str, String)>,
    /// Extra members of the error object.
    pub extra: Map<String, Value>,
    /// Whether the connection must end: after a framing fault, or when the body has not been read.
    pub close: bool,
}

impl Refusal {
    /// A refusal without extras that leaves the connection usable.
    pub fn new(status: u16, error_type: &'static str, message: impl Into<String>) -> Self {
        Self { status, error_type, message: message.into(), headers: Vec::new(), extra: Map::new(), close: false }
    }

    /// The same, ending the connection.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    /// Adds a header field.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    /// Adds a member to the error object.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(name.to_owned(), value.into());
        self
    }

    /// The same for a client that takes a 403 for a reason to ask again, or for a failed login (`enforcement.retrying_clients`): 400,
    /// which it shows. Where it has asked for a WebSocket, 426: it goes on by requests, and the first of them is told why.
    #[must_use]
    pub fn for_retrying(mut self, opens_websocket: bool) -> Self {
        match (self.status, opens_websocket) {
            (403, false) => self.status = 400,
            (403, true) => return Self { status: 426, ..self }.header("Upgrade", "HTTP/1.1"),
            _ => {}
        }
        self
    }

    /// A WebSocket that is not opened here: "speak HTTP instead". Clients that have both go on by requests, which are read and recorded,
    /// and do not give up as they do at 403.
    pub fn no_websocket(message: impl Into<String>) -> Self {
        Self::new(426, "permission_denied", message).header("Upgrade", "HTTP/1.1")
    }

    /// A framing fault.
    pub fn broken_framing(fault: &Fault) -> Self {
        let error_type = match fault.status() {
            405 => "method_not_allowed",
            413 => "request_too_large",
            _ => "invalid_request",
        };
        let refusal = Self::new(fault.status(), error_type, fault.message()).closing();
        if fault.status() == 405 { refusal.header("Allow", ALLOW) } else { refusal }
    }

    /// The upstream could not be reached.
    pub fn upstream_unreachable(message: impl Into<String>) -> Self {
        Self::new(502, "upstream_connect_error", message)
    }

    /// The upstream answered something that is not HTTP, or cut its answer before the head was complete.
    pub fn upstream_protocol(message: impl Into<String>) -> Self {
        Self::new(502, "upstream_protocol_error", message)
    }

    /// The upstream's answer did not begin in time.
    pub fn upstream_timeout(timeout_ms: u64) -> Self {
        Self::new(
            504,
            "upstream_timeout",
            format!(
                "the provider sent no response head within {timeout_ms} ms; raise `timeout_ms` if its answers \
                 legitimately take longer to begin: 600000 suits models that think before they answer"
            ),
        )
        // It may be at work on the answer, and would be paid for each try.
        .header("x-should-retry", false)
    }

    /// The body is larger than a cap allows.
    pub fn too_large(cap_bytes: u64, setting: &str) -> Self {
        Self::new(
            413,
            "request_too_large",
            format!(
                "the request body is larger than {cap_bytes} bytes, the cap set by `{setting}`; send less or raise it"
            ),
        )
        .with("limit_bytes", cap_bytes)
        .with("setting", setting)
        .closing()
    }

    /// The body in the shape of `dialect`.
    pub fn body(&self, dialect: Dialect, trace_id: TraceId) -> Vec<u8> {
        let value = match dialect {
            Dialect::LocalServer => {
                let mut object = Map::new();
                object.insert("error".to_owned(), json!(self.message));
                object.insert("type".to_owned(), json!(self.error_type));
                object.extend(self.extra.clone());
                Value::Object(object)
            }
            Dialect::ChatCompletions => json!({ "error": self.object() }),
            Dialect::Messages => {
                json!({ "type": "error", "error": self.object(), "request_id": trace_id.to_string() })
            }
            // Google's clients read no message of an error whose code is a word, or that has no status.
            Dialect::Gemini => {
                let mut object = self.object();
                object.insert("code".to_owned(), json!(self.status));
                object.insert("status".to_owned(), json!(google_status(self.status)));
                json!({ "error": object })
            }
            // Amazon's clients look for code and message outside of any object.
            Dialect::Bedrock => {
                json!({ "code": amazon_code(self.status), "message": self.message, "error": self.object() })
            }
        };
        value.to_string().into_bytes()
    }

    fn object(&self) -> Map<String, Value> {
        let mut object = Map::new();
        object.insert("type".to_owned(), json!(self.error_type));
        object.insert("message".to_owned(), json!(self.message));
        object.insert("code".to_owned(), json!(self.error_type));
        object.insert("param".to_owned(), Value::Null);
        object.extend(self.extra.clone());
        object
    }
}

/// What Google's interfaces call a status.
const fn google_status(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 | 405 => "NOT_FOUND",
        409 => "ABORTED",
        429 => "RESOURCE_EXHAUSTED",
        504 => "DEADLINE_EXCEEDED",
        502 | 503 => "UNAVAILABLE",
        500.. => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    }
}

/// The error of Bedrock that has a status.
const fn amazon_code(status: u16) -> &'static str {
    match status {
        401 | 403 => "AccessDeniedException",
        404 => "ResourceNotFoundException",
        409 => "ConflictException",
        429 => "ThrottlingException",
        504 => "ModelTimeoutException",
        502 | 503 => "ServiceUnavailableException",
        500.. => "InternalServerException",
        _ => "ValidationException",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(dialect: Dialect) -> String {
        let refusal = Refusal::new(429, "rate_limit_exceeded", "too fast").with("retry_after_secs", 1);
        String::from_utf8(refusal.body(dialect, TraceId::from_bytes([0; 16]))).unwrap()
    }

    #[test]
    fn takes_the_shape_of_each_dialect() {
        assert_eq!(
            text(Dialect::ChatCompletions),
            r#"{"error":{"code":"rate_limit_exceeded","message":"too fast","param":null,"retry_after_secs":1,"type":"rate_limit_exceeded"}}"#
        );
        assert_eq!(
            text(Dialect::Messages),
            r#"{"error":{"code":"rate_limit_exceeded","message":"too fast","param":null,"retry_after_secs":1,"type":"rate_limit_exceeded"},"request_id":"00000000-0000-0000-0000-000000000000","type":"error"}"#
        );
        assert_eq!(
            text(Dialect::LocalServer),
            r#"{"error":"too fast","retry_after_secs":1,"type":"rate_limit_exceeded"}"#
        );
        assert_eq!(
            text(Dialect::Gemini),
            r#"{"error":{"code":429,"message":"too fast","param":null,"retry_after_secs":1,"status":"RESOURCE_EXHAUSTED","type":"rate_limit_exceeded"}}"#
        );
        assert_eq!(
            text(Dialect::Bedrock),
            r#"{"code":"ThrottlingException","error":{"code":"rate_limit_exceeded","message":"too fast","param":null,"retry_after_secs":1,"type":"rate_limit_exceeded"},"message":"too fast"}"#
        );
    }
}
