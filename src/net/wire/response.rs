//! A response head: checked, framed for the request it answers, and readable without copying.
//!
//! Invariant: whoever holds one knows where its body ends and whether the upstream connection may be used again. An
//! upstream that leaves room for doubt loses its connection. Decides nothing about the response.

use std::fmt;

use bytes::Bytes;

use crate::wire::Version;
use crate::wire::fault::{Fault, FaultKind, Side};
use crate::wire::fields::{FieldRef, Fields, Span};
use crate::wire::framing::Survey;
use crate::wire::head::Tokens;

/// How the body of a response is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseBody {
    /// No body, or one of length 0.
    Empty,
    /// Exactly so many bytes, at least one.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// Everything until the upstream closes.
    UntilClose,
}

/// A response head. Cheap to clone: the bytes are shared.
#[derive(Clone)]
pub struct ResponseHead {
    /// The status, 100 to 999.
    pub status: u16,
    /// The version the upstream spoke.
    pub version: Version,
    /// Where the body ends.
    pub body: ResponseBody,
    /// The number in Content-Length where it is meant to be passed on: also with HEAD and 304, where it describes a
    /// body that is not there; not with 1xx and 204, and not beside Transfer-Encoding (RFC 9110 8.6).
    pub declared_length: Option<u64>,
    /// The upstream connection may serve another request once the body has ended.
    pub keep_alive: bool,
    fields: Fields,
    reason: Span,
}

// === impl ResponseHead ===

impl ResponseHead {
    /// Gives the head in the form that is handed out, so that it is moved as little as possible.
    #[inline]
    pub(super) fn new(raw: Bytes, tokens: Tokens, request_method: &str) -> Result<Option<Self>, Fault> {
        let Tokens { version, fields: mut list, start: [reason, _], status, .. } = tokens;
        if status < 100 {
            return Err(Fault::new(FaultKind::StatusLine, Side::Response, "HTTP/1.1 ".len() as u64));
        }
        let survey = Survey::take(&raw, &mut list, Side::Response, version)?;
        let framing = survey.response_framing(request_method, status, version)?;
        Ok(Some(Self {
            status,
            version,
            body: framing.body,
            declared_length: framing.declared_length,
            keep_alive: framing.keep_alive,
            fields: Fields { raw, list },
            reason,
        }))
    }

    /// An interim response (1xx); the final one is still to come, except after 101.
    pub fn is_informational(&self) -> bool {
        self.status < 200
    }

    /// The reason phrase as sent, possibly empty; may hold bytes above 0x7F.
    pub fn reason(&self) -> &[u8] {
        self.reason.get(&self.fields.raw)
    }

    /// All fields in order, names in the upstream's spelling.
    pub fn fields(&self) -> impl DoubleEndedIterator<Item = FieldRef<'_>> + ExactSizeIterator + '_ {
        self.fields.iter()
    }

    /// The fields to pass on, in order: without the hop-by-hop set, the fields `Connection` names, and Content-Length,
    /// which belongs to whoever writes the new head.
    pub fn end_to_end_fields(&self) -> impl Iterator<Item = FieldRef<'_>> + '_ {
        self.fields.end_to_end()
    }

    /// The value of the first field called `name`, in any letter case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.fields.get(name)
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

impl fmt::Debug for ResponseHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseHead")
            .field("status", &self.status)
            .field("version", &self.version)
            .field("body", &self.body)
            .field("fields", &self.fields().len())
            .finish_non_exhaustive()
    }
}
