//! The one HTTP client for what is not forwarded: webhooks, alerts, a judge, shipping. It runs on the network runtime
//! (`boot::network`), never on a core.
//!
//! It goes out under the rules of the data path: the proxy that `HTTPS_PROXY`, `http_proxy` and `NO_PROXY` name, the roots
//! that `SSL_CERT_FILE`, `SSL_CERT_DIR` and `upstream_ca_file` add, HTTP/1.1.
//!
//! Invariants: a redirect is an answer like any other and is never followed, so no credential reaches a host that was not
//! asked for; one deadline covers the whole call, the answer's body included; an answer is bounded; a message names the host
//! and never the path or the query, which may be secrets (chat webhooks). Knows nothing of what is sent.

mod again;
mod connect;
mod error;
mod signed;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::Client as Pooled;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower::Service as _;
use weir_config::egress::Egress;

use crate::forward::{self, PeerError};
pub use again::{Reception, packed, reception, retry_after};
pub use connect::Opened;
use connect::{Connector, Destination};
pub use error::OutboundError;
pub use signed::signature;

/// Idle connections kept to one destination, and for how long.
const IDLE_MAX: usize = 4;
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Bounds the head of an answer.
const ANSWER_HEAD_BYTES: usize = 64 * 1024;

/// The bounds of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For the whole call, up to the last byte of the answer.
    pub total: Duration,
    /// Bytes of the answer's body.
    pub answer_bytes: usize,
    /// A larger body is cut there instead of being an error: for calls of which only the answer's status is asked.
    pub cut: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { total: Duration::from_secs(30), answer_bytes: 64 * 1024, cut: false }
    }
}

/// A request to send.
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    uri: Uri,
    fields: HeaderMap,
    body: Bytes,
}

impl Call {
    /// A request of `url`, which has to be a whole `http://` or `https://` URL.
    ///
    /// # Errors
    /// [`OutboundError::Url`].
    pub fn new(method: Method, url: &str) -> Result<Self, OutboundError> {
        let uri: Uri = url.parse().map_err(|_| OutboundError::Url("it cannot be parsed"))?;
        Destination::of(&uri)?;
        Ok(Self { method, uri, fields: HeaderMap::new(), body: Bytes::new() })
    }

    /// A POST of `body`.
    ///
    /// # Errors
    /// [`OutboundError::Url`].
    pub fn post(url: &str, content_type: &'static str, body: impl Into<Bytes>) -> Result<Self, OutboundError> {
        let call = Self::new(Method::POST, url)?;
        let call = call.field(http::header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        Ok(Self { body: body.into(), ..call })
    }

    /// Adds a header field. Mark credentials with [`HeaderValue::set_sensitive`].
    #[must_use]
    pub fn field(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.fields.append(name, value);
        self
    }
}

/// An answer, whatever its status.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub fields: HeaderMap,
    /// The body: whole, or as much of it as [`Limits::cut`] leaves.
    pub body: Bytes,
}

/// Sends calls. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    connector: Connector,
    pooled: Pooled<Connector, Full<Bytes>>,
}

/// Who takes the pieces of a download, each with the length the answer says it has.
pub type Pieces<'a> = dyn FnMut(&[u8], Option<u64>) -> ControlFlow<()> + Send + 'a;

impl Client {
    /// A client under the rules of `egress`, which trusts `extra_ca` (`upstream_ca_file`) beside the system's roots, and gives
    /// a new connection (name lookup, TCP, the proxy's tunnel and TLS together) up after `connect_limit`. Reads files.
    ///
    /// # Errors
    /// [`PeerError`], for certificates that cannot be used.
    pub fn new(egress: &Egress, extra_ca: Option<&Path>, connect_limit: Duration) -> Result<Self, PeerError> {
        let tls = forward::client_config(extra_ca, egress)?;
        let connector = Connector::new(egress.rules.clone(), tls, connect_limit);
        let pooled = Pooled::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE_MAX)
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(ANSWER_HEAD_BYTES)
            .build(connector.clone());
        Ok(Self { connector, pooled })
    }

    /// Sends `call` and reads the whole answer.
    ///
    /// # Errors
    /// [`OutboundError`]; an answer of any status is none.
    pub async fn send(&self, call: Call, limits: Limits) -> Result<Answer, OutboundError> {
        let destination = Destination::of(&call.uri)?;
        let request = self.request(call, &destination)?;
        let (mut begun, to) = (false, destination.to_string());
        let whole = async {
            let answer = self.pooled.request(request).await.map_err(|error| OutboundError::of(&to, &error))?;
            begun = true;
            read(answer, limits, &to).await
        };
        let outcome = tokio::time::timeout(limits.total, whole).await;
        outcome.unwrap_or_else(|_| {
            let waiting_for = if begun { "the rest of its answer" } else { "its answer" };
            Err(OutboundError::Deadline { to, limit: limits.total, waiting_for })
        })
    }

    /// Sends `call` and hands the body of an answer that is 200 to `each`, piece by piece with the length the answer says it
    /// has, until it breaks; the answer comes back without a body.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn download(&self, call: Call, limits: Limits, each: &mut Pieces<'_>) -> Result<Answer, OutboundError> {
        let destination = Destination::of(&call.uri)?;
        let request = self.request(call, &destination)?;
        let to = destination.to_string();
        let whole = async {
            let answer = self.pooled.request(request).await.map_err(|error| OutboundError::of(&to, &error))?;
            let (head, mut incoming) = answer.into_parts();
            let of = incoming.size_hint().exact();
            let mut room = limits.answer_bytes;
            while head.status == StatusCode::OK
                && let Some(frame) = incoming.frame().await
            {
                let Ok(piece) = frame.map_err(|error| OutboundError::broken(&to, &error))?.into_data() else {
                    continue;
                };
                let too_large =
                    || OutboundError::TooLarge { to: to.clone(), status: head.status, bytes_max: limits.answer_bytes };
                room = room.checked_sub(piece.len()).ok_or_else(too_large)?;
                if each(&piece, of).is_break() {
                    break;
                }
            }
            Ok(Answer { status: head.status, fields: head.headers, body: Bytes::new() })
        };
        let late =
            |_| OutboundError::Deadline { to: to.clone(), limit: limits.total, waiting_for: "the rest of its answer" };
        tokio::time::timeout(limits.total, whole).await.map_err(late)?
    }

    /// Connects to where `url` leads, by the way a call would take, and says nothing there; its host and port.
    ///
    /// # Errors
    /// [`OutboundError`].
    pub async fn reach(&self, url: &str) -> Result<String, OutboundError> {
        let uri: Uri = url.parse().map_err(|_| OutboundError::Url("it cannot be parsed"))?;
        let to = Destination::of(&uri)?.to_string();
        let connected = self.connector.clone().call(uri).await;
        connected.map(drop).map_err(|error| OutboundError::Connect { to: to.clone(), reason: error.to_string() })?;
        Ok(to)
    }

    /// A connection of another protocol, straight to `host`: proxies are for HTTP. It trusts whom calls trust.
    ///
    /// # Errors
    /// Whatever the network, or the other side's certificate, has to say.
    pub async fn open(&self, host: &str, port: u16, is_tls: bool) -> std::io::Result<Opened> {
        self.connector.open(host, port, is_tls).await
    }

    /// A proxy is asked for a plain URL in full, with its own credential; through a tunnel it sees neither.
    fn request(&self, call: Call, destination: &Destination) -> Result<Request<Full<Bytes>>, OutboundError> {
        let Call { method, uri, fields, body } = call;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = fields;
        let authorization = self.connector.authorization(destination)?;
        if let Some(authorization) = authorization.filter(|_| !destination.is_tls()) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization);
        }
        Ok(request)
    }
}

/// Reads the body to its end, and no further than the bound.
async fn read(answer: Response<Incoming>, limits: Limits, to: &str) -> Result<Answer, OutboundError> {
    let bytes_max = limits.answer_bytes;
    let (head, mut incoming) = answer.into_parts();
    let mut body = BytesMut::new();
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| OutboundError::broken(to, &error))?;
        let Ok(piece) = frame.into_data() else { continue };
        let room = bytes_max - body.len();
        if piece.len() > room {
            // Dropped in the middle of a body, the connection is not used again.
            if limits.cut {
                body.extend_from_slice(piece.get(..room).unwrap_or_default());
                break;
            }
            return Err(OutboundError::TooLarge { to: to.to_owned(), status: head.status, bytes_max });
        }
        body.extend_from_slice(&piece);
    }
    Ok(Answer { status: head.status, fields: head.headers, body: body.freeze() })
}
