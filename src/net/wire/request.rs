//! A request head: checked, framed, and readable without copying.
//!
//! Invariant: whoever holds one knows exactly where its body ends, which host it names and which fields may be passed
//! on. Its debug form shows no field values, which hold credentials. Decides nothing about the request.

use std::fmt;

use bytes::Bytes;

use crate::wire::Version;
use crate::wire::diagnose::diagnose;
use crate::wire::fault::{Fault, FaultKind, Side};
use crate::wire::fields::{FieldRef, Fields, Span};
use crate::wire::framing::Survey;
use crate::wire::grammar::is_host;
use crate::wire::head::Tokens;
use crate::wire::target::{self, Target};

/// How the body of a request is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBody {
    /// No body, or one of length 0.
    Empty,
    /// Exactly so many bytes, at least one.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
}

/// A request head. Cheap to clone: the bytes are shared.
#[derive(Clone)]
pub struct RequestHead {
    /// The version the client spoke. A 1.0 client gets no chunked body and no second exchange.
    pub version: Version,
    /// Where the body ends.
    pub body: RequestBody,
    /// The connection may serve another request after this one (RFC 9112 9.3; never with HTTP/1.0 clients).
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends its body. Never set for HTTP/1.0 or without a body.
    pub expect_continue: bool,
    /// A complete request to switch to WebSocket: GET, HTTP/1.1, `Upgrade: websocket`, `Connection: upgrade`, no body.
    pub upgrade_websocket: bool,
    fields: Fields,
    method: Span,
    target: Target,
    host: Option<Span>,
}

/// The request line of a head: what a log may say of a request. Shares the head's bytes.
#[derive(Clone)]
pub struct RequestLine {
    raw: Bytes,
    method: Span,
    path: Span,
}

// === impl RequestLine ===

impl RequestLine {
    /// The method.
    pub fn method(&self) -> &str {
        str::from_utf8(self.method.get(&self.raw)).unwrap_or_default()
    }

    /// The target up to the query.
    pub fn path(&self) -> &str {
        str::from_utf8(self.path.get(&self.raw)).unwrap_or_default()
    }
}

impl fmt::Debug for RequestLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method(), self.path())
    }
}

// === impl RequestHead ===

impl RequestHead {
    /// Gives the head in the form that is handed out, so that it is moved as little as possible.
    #[inline]
    pub(super) fn new(mut raw: Bytes, tokens: Tokens) -> Result<Option<Self>, Fault> {
        let Tokens { version, fields: mut list, start: [method, target], .. } = tokens;
        let fault = |kind, at: usize| Fault::new(kind, Side::Request, at as u64);
        let method_bytes = method.get(&raw);
        if matches!(method_bytes, b"CONNECT" | b"TRACE") {
            return Err(fault(FaultKind::MethodRefused, 0));
        }
        let (is_get, is_options) = (method_bytes == b"GET", method_bytes == b"OPTIONS");
        let target = target::read(&mut raw, target, is_options).map_err(|kind| match kind {
            FaultKind::TargetSyntax => diagnose(&raw, Side::Request),
            kind => fault(kind, target.start()),
        })?;
        let survey = Survey::take(&raw, &mut list, Side::Request, version)?;
        let host = survey.host.and_then(|index| list.list.get(index)).map(|field| (field.name.start(), field.value));
        match host {
            Some((at, host)) if !is_host(host.get(&raw)) => return Err(fault(FaultKind::HostSyntax, at)),
            None if version == Version::Http11 => return Err(fault(FaultKind::HostMissing, tokens.len - 2)),
            _ => {}
        }
        let body = survey.request_body()?;
        let is_http11 = version == Version::Http11;
        let has_body = body != RequestBody::Empty;
        Ok(Some(Self {
            version,
            body,
            keep_alive: is_http11 && !survey.options.close,
            expect_continue: is_http11 && has_body && survey.expect_continue,
            upgrade_websocket: is_http11 && is_get && !has_body && survey.upgrade_websocket && survey.options.upgrade,
            // An absolute form beats Host (RFC 9112 3.2.2).
            host: target.authority.or(host.map(|(_, value)| value)),
            fields: Fields { raw, list },
            method,
            target,
        }))
    }

    /// The method, case-sensitive; never CONNECT or TRACE.
    pub fn method(&self) -> &str {
        match self.method.get(&self.fields.raw) {
            // The usual ones are known to be text.
            b"POST" => "POST",
            b"GET" => "GET",
            _ => self.fields.str(self.method),
        }
    }

    /// The target in origin form, path and query; `*` for a bare OPTIONS. An absolute form has been reduced to it.
    pub fn target(&self) -> &str {
        self.target.usual.unwrap_or_else(|| self.fields.str(self.target.origin))
    }

    /// The target up to the query.
    pub fn path(&self) -> &str {
        self.target.usual.unwrap_or_else(|| self.fields.str(self.target.path))
    }

    /// Takes the first `bytes` of the path away. What is left has to begin with a slash, or nothing is changed.
    pub fn strip_path(&mut self, bytes: usize) {
        let Target { origin, path, .. } = self.target;
        let start = path.start() + bytes;
        if bytes < path.end() - path.start() && self.fields.raw.get(start) == Some(&b'/') {
            self.target.origin = Span::new(start, origin.end());
            self.target.path = Span::new(start, path.end());
            self.target.usual = target::usual(self.target.origin.get(&self.fields.raw));
        }
    }

    /// Method and path alone, to be kept for the log.
    pub fn line(&self) -> RequestLine {
        RequestLine { raw: self.fields.raw.clone(), method: self.method, path: self.target.path }
    }

    /// What follows the first `?` of the target; `None` without one.
    pub fn query(&self) -> Option<&str> {
        let (target, path) = (self.target.origin.get(&self.fields.raw), self.target.path.get(&self.fields.raw));
        // Most requests have none.
        if target.len() == path.len() { None } else { self.target().get(path.len() + 1..) }
    }

    /// The host the client named, with its port if it gave one: the authority of an absolute target, else Host.
    /// `None` only in HTTP/1.0. Good for recognising ourselves, never for choosing an upstream.
    pub fn host(&self) -> Option<&str> {
        self.host.map(|span| self.fields.str(span))
    }

    /// Whether the target came in absolute form; its authority, which [`Self::host`] gives, has to be ours then.
    pub fn is_absolute_form(&self) -> bool {
        self.target.authority.is_some()
    }

    /// All fields in order, names in the client's spelling.
    pub fn fields(&self) -> impl DoubleEndedIterator<Item = FieldRef<'_>> + ExactSizeIterator + '_ {
        self.fields.iter()
    }

    /// The fields to pass on, in order: without the hop-by-hop set, the fields `Connection` names, and Host,
    /// Content-Length and Expect, which belong to whoever writes the new head (RFC 9110 7.6.1).
    pub fn end_to_end_fields(&self) -> impl Iterator<Item = FieldRef<'_>> + '_ {
        self.fields.end_to_end()
    }

    /// The value of the first field called `name`, in any letter case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.fields.get(name)
    }

    /// The same without copying: the bytes share the head's memory.
    pub fn get_shared(&self, name: &str) -> Option<Bytes> {
        self.fields.get(name).map(|value| self.fields.raw.slice_ref(value))
    }

    /// One of this head's values as bytes of its own, without a copy.
    pub fn share(&self, value: &[u8]) -> Bytes {
        self.fields.raw.slice_ref(value)
    }

    /// The values of all fields called `name`, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.fields.get_all(name)
    }

    /// Whether a field of this name ends at this hop: one of the fixed set, or present and named in `Connection`.
    pub fn is_hop_by_hop(&self, name: &str) -> bool {
        self.fields.is_hop_by_hop(name)
    }

    /// Bytes this head took on the wire.
    pub fn wire_bytes(&self) -> usize {
        self.fields.raw.len()
    }
}

impl fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", &self.method())
            .field("path", &self.path())
            .field("version", &self.version)
            .field("body", &self.body)
            .field("fields", &self.fields().len())
            .finish_non_exhaustive()
    }
}
