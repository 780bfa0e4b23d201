//! How long the body is: the decision of RFC 9112 6.3, made once per head.
//!
//! Requests (our rule; RFC 9112 6.1 to 6.3):
//!
//! | Content-Length | Transfer-Encoding | result |
//! |---|---|---|
//! | none | none | no body |
//! | one, digits | none | that many bytes |
//! | one, anything else; two or more | any | 400 |
//! | none | exactly `chunked`, HTTP/1.1 | chunked |
//! | none | codings we know, then `chunked` | 501 |
//! | none | anything else; two fields; HTTP/1.0 | 400 |
//! | one | any | 400 |
//!
//! Responses: 1xx, 204, 304, any answer to HEAD and a 2xx to CONNECT have no body; then as above, except that
//! Transfer-Encoding beside Content-Length wins and costs the connection, and that neither means "until close".
//!
//! Invariant: there is exactly one answer, and every head that two parsers could answer differently is refused or
//! loses its connection. Knows nothing of sizes that policy allows.

use crate::wire::fault::{Fault, FaultKind, Side};
use crate::wire::fields::FieldList;
use crate::wire::hop::{Options, Role};
use crate::wire::limits::CONTENT_LENGTH_DIGITS_MAX;
use crate::wire::{RequestBody, ResponseBody, Version};

/// Everything one pass over the fields learns.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) host: Option<usize>,
    pub(super) upgrade_websocket: bool,
    pub(super) expect_continue: bool,
    pub(super) options: Options,
    length: Option<u64>,
    coding: Option<Coding>,
    /// Where the last field that frames the body begins.
    framing_at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    /// Registered codings, `chunked` last: a valid message that we cannot read.
    Unsupported,
    Invalid,
}

/// A response's framing.
#[derive(Debug)]
pub(super) struct ResponseFraming {
    pub(super) body: ResponseBody,
    pub(super) declared_length: Option<u64>,
    pub(super) keep_alive: bool,
}

// === impl Survey ===

impl Survey {
    /// Reads every field that matters to framing, in one pass, and marks what is not passed on.
    pub(super) fn take(raw: &[u8], fields: &mut FieldList, side: Side, version: Version) -> Result<Self, Fault> {
        let mut survey = Self::default();
        for (index, field) in fields.list.iter().enumerate() {
            let role = Role::of(field.name.get(raw));
            if role == Role::EndToEnd {
                continue;
            }
            if role.is_hop() {
                fields.hop.set(index);
            }
            if role.is_hop() || role == Role::ContentLength || side == Side::Request {
                fields.dropped.set(index);
            }
            let at = field.name.start();
            let fault = |kind| Fault::new(kind, side, at as u64);
            let value = field.value.get(raw);
            match role {
                Role::Host if side == Side::Request => {
                    if survey.host.replace(index).is_some() {
                        return Err(fault(FaultKind::HostRepeated));
                    }
                }
                Role::ContentLength => {
                    survey.framing_at = at;
                    let length = content_length(value).ok_or(fault(FaultKind::ContentLengthSyntax))?;
                    if survey.length.replace(length).is_some() {
                        return Err(fault(FaultKind::ContentLengthRepeated));
                    }
                }
                Role::TransferEncoding => {
                    survey.framing_at = at;
                    if survey.coding.replace(coding(value)).is_some() {
                        return Err(fault(FaultKind::TransferCodingRepeated));
                    }
                    if version == Version::Http10 {
                        return Err(fault(FaultKind::TransferCodingVersion));
                    }
                }
                Role::Expect if side == Side::Request => {
                    if survey.expect_continue || !value.eq_ignore_ascii_case(b"100-continue") {
                        return Err(fault(FaultKind::Expectation));
                    }
                    survey.expect_continue = true;
                }
                Role::Connection => survey.options.read(value, side, at)?,
                Role::Upgrade => survey.upgrade_websocket = value.eq_ignore_ascii_case(b"websocket"),
                Role::Lookalike if side == Side::Request => return Err(fault(FaultKind::FramingLookalike)),
                Role::EndToEnd | Role::Host | Role::Expect | Role::Lookalike | Role::Hop => {}
            }
        }
        survey.options.mark_named(raw, fields);
        Ok(survey)
    }

    /// The body of a request, by the table above.
    pub(super) fn request_body(&self) -> Result<RequestBody, Fault> {
        let fault = |kind| Fault::new(kind, Side::Request, self.framing_at as u64);
        match (self.length, self.coding) {
            (Some(_), Some(_)) => Err(fault(FaultKind::LengthAndCoding)),
            (None, Some(coding)) => coding.accept().map(|()| RequestBody::Chunked).map_err(fault),
            (Some(0) | None, None) => Ok(RequestBody::Empty),
            (Some(length), None) => Ok(RequestBody::Length(length)),
        }
    }

    /// The body of a response to `method`, and whether the connection can serve another exchange after it.
    pub(super) fn response_framing(
        &self,
        method: &str,
        status: u16,
        version: Version,
    ) -> Result<ResponseFraming, Fault> {
        if let Some(coding) = self.coding {
            coding.accept().map_err(|kind| Fault::new(kind, Side::Response, self.framing_at as u64))?;
        }
        let persistent = match version {
            Version::Http11 => !self.options.close,
            Version::Http10 => self.options.keep_alive && !self.options.close,
        };
        let never_has_length = status < 200 || status == 204;
        let bodiless = never_has_length
            || status == 304
            || method == "HEAD"
            || (method == "CONNECT" && (200..300).contains(&status));
        // A 1xx or 204 that announces a body may well be followed by one, which must not be taken for an answer.
        let announces = self.coding.is_some() || self.length.is_some_and(|length| length > 0);
        let (body, reusable) = match (self.length, self.coding) {
            _ if bodiless => (ResponseBody::Empty, !(never_has_length && announces)),
            (length, Some(_)) => (ResponseBody::Chunked, length.is_none()),
            (Some(0), None) => (ResponseBody::Empty, true),
            (Some(length), None) => (ResponseBody::Length(length), true),
            (None, None) => (ResponseBody::UntilClose, false),
        };
        let declared_length = self.length.filter(|_| self.coding.is_none() && !never_has_length);
        Ok(ResponseFraming { body, declared_length, keep_alive: persistent && reusable })
    }
}

// === impl Coding ===

impl Coding {
    fn accept(self) -> Result<(), FaultKind> {
        match self {
            Self::Chunked => Ok(()),
            Self::Unsupported => Err(FaultKind::TransferCodingUnsupported),
            Self::Invalid => Err(FaultKind::TransferCoding),
        }
    }
}

/// 1 to 19 digits; a sign, a list, white space inside or a prefix is no number.
fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > CONTENT_LENGTH_DIGITS_MAX {
        return None;
    }
    value.iter().try_fold(0_u64, |number, byte| match byte {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

fn coding(value: &[u8]) -> Coding {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Coding::Chunked;
    }
    let known = |coding: &[u8]| {
        let names: [&[u8]; 5] = [b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress"];
        names.iter().any(|name| coding.eq_ignore_ascii_case(name))
    };
    let mut reversed = value.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let last_is_chunked = reversed.next().is_some_and(|last| last.eq_ignore_ascii_case(b"chunked"));
    if last_is_chunked && reversed.all(known) { Coding::Unsupported } else { Coding::Invalid }
}
