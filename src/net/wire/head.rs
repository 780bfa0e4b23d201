//! Finding and tokenizing heads in a growing buffer.
//!
//! The usual head arrives whole: one tokenizer pass finds its end, then a look at each line end makes sure it is CRLF.
//! A head in pieces is searched line by line from where the last search stopped and tokenized once more when it is
//! whole, so the work stays linear however slowly it dribbles in.
//!
//! Invariant: a whole head gives the same head or the same fault for any cut; when something is wrong the offence
//! that comes first in the bytes is reported, whichever check noticed. Knows nothing of what the fields mean.

use std::mem::MaybeUninit;

use bytes::{Buf, BytesMut};

use crate::wire::Version;
use crate::wire::diagnose::{diagnose, first_offence};
use crate::wire::fault::{Fault, FaultKind, Side};
use crate::wire::fields::{Field, FieldList, Span};
use crate::wire::limits::{FIELDS_MAX, HEAD_BYTES_MAX, REQUEST_LINE_BYTES_MAX, RESPONSE_HEAD_BYTES_MAX};
use crate::wire::request::RequestHead;
use crate::wire::response::ResponseHead;

/// The state of the search for one head after another on one connection and direction.
#[derive(Debug, Clone, Default)]
pub struct HeadScanner {
    /// Bytes of the buffer already searched for line ends; none of them ends the head.
    scanned: usize,
    /// Where the line being searched begins.
    line_start: usize,
    skipped_empty_line: bool,
}

/// What the tokenizer found, as spans into the buffer. Filled in place: it is too large to be passed around.
pub(super) struct Tokens {
    /// Bytes of the head, its empty line included.
    pub(super) len: usize,
    pub(super) version: Version,
    pub(super) fields: FieldList,
    /// Method and target, or reason phrase and nothing.
    pub(super) start: [Span; 2],
    pub(super) status: u16,
}

type Headers<'a> = [MaybeUninit<httparse::Header<'a>>; FIELDS_MAX];

const fn no_headers<'a>() -> Headers<'a> {
    [const { MaybeUninit::uninit() }; FIELDS_MAX]
}

// === impl HeadScanner ===

impl HeadScanner {
    /// Takes one request head off the front of `buffer`; `None` asks for more bytes. Bytes after the head stay.
    ///
    /// # Errors
    /// The first offence in the head; the connection cannot be used any further.
    pub fn request(&mut self, buffer: &mut BytesMut) -> Result<Option<RequestHead>, Fault> {
        if !self.skip_empty_line(buffer)? {
            return Ok(None);
        }
        let mut tokens = Tokens::new();
        if !self.tokens(buffer, Side::Request, &mut tokens)? {
            return Ok(None);
        }
        *self = Self::default();
        RequestHead::new(buffer.split_to(tokens.len).freeze(), tokens)
    }

    /// Takes one response head off the front of `buffer`. The method of the request it answers decides on the body
    /// (RFC 9112 6.3). Interim responses are heads too, with an empty body.
    ///
    /// # Errors
    /// The first offence in the head; the upstream connection cannot be used any further.
    pub fn response(&mut self, buffer: &mut BytesMut, request_method: &str) -> Result<Option<ResponseHead>, Fault> {
        if matches!(buffer.first(), Some(b'\r' | b'\n')) {
            return Err(Fault::new(FaultKind::EmptyLines, Side::Response, 0));
        }
        let mut tokens = Tokens::new();
        if !self.tokens(buffer, Side::Response, &mut tokens)? {
            return Ok(None);
        }
        *self = Self::default();
        ResponseHead::new(buffer.split_to(tokens.len).freeze(), tokens, request_method)
    }

    /// Whether part of a head has been seen: tells a connection that idles from one that is slow.
    pub fn has_begun(&self) -> bool {
        self.scanned > 0 || self.skipped_empty_line
    }

    /// Drops the one empty line that may precede a request line (RFC 9112 2.2). False while its LF is missing.
    fn skip_empty_line(&mut self, buffer: &mut BytesMut) -> Result<bool, Fault> {
        match (buffer.first(), buffer.get(1)) {
            (Some(b'\r'), None) if !self.skipped_empty_line => return Ok(false),
            (Some(b'\r'), Some(b'\n')) if !self.skipped_empty_line => {
                buffer.advance(2);
                self.skipped_empty_line = true;
                if matches!(buffer.first(), Some(b'\r' | b'\n')) {
                    return Err(Fault::new(FaultKind::EmptyLines, Side::Request, 0));
                }
            }
            (Some(b'\r' | b'\n'), _) => return Err(Fault::new(FaultKind::EmptyLines, Side::Request, 0)),
            _ => {}
        }
        Ok(!buffer.is_empty())
    }

    /// Whether the head is whole; its parts are in `tokens` then.
    fn tokens(&mut self, buffer: &[u8], side: Side, tokens: &mut Tokens) -> Result<bool, Fault> {
        let limit = head_limit(side);
        if self.scanned > 0 && !self.find_end(buffer, side)? {
            return Ok(false);
        }
        let window = buffer.get(..limit).unwrap_or(buffer);
        let outcome = match side {
            Side::Request => tokens.read_request(window),
            Side::Response => tokens.read_response(window),
        };
        match outcome {
            Ok(true) if tokens.have_strict_lines(window, side) => return Ok(true),
            // The tokenizer sometimes refuses half a line whose second half decides which offence it is.
            Ok(false) | Err(()) if self.scanned == 0 && !self.find_end(buffer, side)? => {}
            _ => return Err(diagnose(buffer, side)),
        }
        match outcome.err().and_then(|()| first_offence(buffer, side)) {
            Some(fault) => Err(fault),
            None => Ok(false),
        }
    }

    /// Searches the bytes not yet searched for the empty line that ends the head.
    fn find_end(&mut self, buffer: &[u8], side: Side) -> Result<bool, Fault> {
        let from = self.scanned;
        for offset in memchr::memchr_iter(b'\n', buffer.get(from..).unwrap_or_default()) {
            let line_end = from + offset;
            if line_end == 0 || buffer.get(line_end - 1) != Some(&b'\r') {
                return Err(diagnose(buffer, side));
            }
            if line_end == self.line_start + 1 {
                return Ok(true);
            }
            self.line_start = line_end + 1;
        }
        self.scanned = buffer.len();
        let long_line = side == Side::Request && self.line_start == 0 && buffer.len() > REQUEST_LINE_BYTES_MAX + 1;
        if long_line || buffer.len() > head_limit(side) {
            return Err(diagnose(buffer, side));
        }
        Ok(false)
    }
}

pub(super) const fn head_limit(side: Side) -> usize {
    match side {
        Side::Request => HEAD_BYTES_MAX,
        Side::Response => RESPONSE_HEAD_BYTES_MAX,
    }
}

// === impl Tokens ===

impl Tokens {
    fn new() -> Self {
        Self { len: 0, version: Version::Http11, fields: FieldList::default(), start: [Span::default(); 2], status: 0 }
    }

    /// Whether the window holds a whole request head.
    fn read_request(&mut self, window: &[u8]) -> Result<bool, ()> {
        let mut headers = no_headers();
        let mut request = httparse::Request::new(&mut []);
        match request.parse_with_uninit_headers(window, &mut headers) {
            Ok(httparse::Status::Complete(len)) => {
                let (Some(method), Some(target)) = (request.method, request.path) else { return Err(()) };
                self.start = [Span::of(method.as_bytes(), window), Span::of(target.as_bytes(), window)];
                self.len = len;
                self.finish(window, request.version, request.headers)
            }
            Ok(httparse::Status::Partial) => Ok(false),
            Err(_) => Err(()),
        }
    }

    /// Whether the window holds a whole response head.
    fn read_response(&mut self, window: &[u8]) -> Result<bool, ()> {
        let mut headers = no_headers();
        let mut response = httparse::Response::new(&mut []);
        let mut config = httparse::ParserConfig::default();
        // RFC 9112 5.1: a proxy removes this space from a response. The new head is written without it.
        config.allow_spaces_after_header_name_in_responses(true);
        match config.parse_response_with_uninit_headers(&mut response, window, &mut headers) {
            Ok(httparse::Status::Complete(len)) => {
                self.status = response.code.ok_or(())?;
                self.start = [reason_span(window), Span::default()];
                self.len = len;
                self.finish(window, response.version, response.headers)
            }
            Ok(httparse::Status::Partial) => Ok(false),
            Err(_) => Err(()),
        }
    }

    #[inline]
    fn finish(&mut self, window: &[u8], minor: Option<u8>, headers: &[httparse::Header<'_>]) -> Result<bool, ()> {
        self.version = match minor {
            Some(0) => Version::Http10,
            Some(1) => Version::Http11,
            _ => return Err(()),
        };
        self.fields.extend(headers.iter().map(|header| Field {
            name: Span::of(header.name.as_bytes(), window),
            value: Span::of(header.value, window),
        }));
        Ok(true)
    }

    /// The tokenizer takes a bare LF for a line end; this does not. Between two fields stands nothing but white space
    /// and one line end, so the two bytes before each field and the four that end the head tell.
    #[inline]
    fn have_strict_lines(&self, window: &[u8], side: Side) -> bool {
        let crlf_before = |end: usize| end >= 2 && window.get(end - 2..end) == Some(b"\r\n");
        let head = window.get(..self.len).unwrap_or_default();
        let line_len = self.start[1].end() + " HTTP/1.1".len();
        (side == Side::Response || line_len <= REQUEST_LINE_BYTES_MAX)
            && head.ends_with(b"\r\n\r\n")
            && self.fields.list.iter().all(|field| crlf_before(field.name.start()))
    }
}

/// The reason phrase's place. The tokenizer has checked the line but hides phrases with bytes above 0x7F.
fn reason_span(window: &[u8]) -> Span {
    const START: usize = "HTTP/1.1 200 ".len();
    let line_end = memchr::memchr(b'\r', window).unwrap_or(0);
    Span::new(START.min(line_end), line_end)
}
