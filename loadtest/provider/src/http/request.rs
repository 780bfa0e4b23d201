//! Whole requests read from a growing buffer, for servers of the test side.
//!
//! Invariant: a request is handed out once, with the exact bytes that arrived for it; what follows stays in the buffer.

use super::{BODY_BYTES_MAX, ChunkDecoder, FIELDS_MAX, HEAD_BYTES_MAX, WireError, parse_length};

/// One request, as parsed and as received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The method, as sent.
    pub method: String,
    /// The target up to the question mark.
    pub path: String,
    /// The target after the question mark.
    pub query: Option<String>,
    /// Field names and values in the order received; names keep their case, values are decoded lossily.
    pub headers: Vec<(String, String)>,
    /// The body with its transfer coding removed.
    pub body: Vec<u8>,
    /// Every byte received for this request: head, then body as it was framed. Empty when built by hand.
    pub raw: Vec<u8>,
    /// Length of the head in `raw`, its empty line included.
    pub head_bytes: usize,
    /// Whether the peer may send another request on the connection.
    pub keep_alive: bool,
    /// Whether the peer speaks HTTP/1.0, which knows no chunks.
    pub is_http_1_0: bool,
}

impl Request {
    /// A request built by hand, without header fields and body.
    pub fn new(method: &str, target: &str) -> Self {
        let (path, query) = split_target(target);
        Self { method: method.to_owned(), path, query, keep_alive: true, ..Self::default() }
    }

    /// The same request with one more header field.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same request with this body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The first value of a header field; names match without regard to case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The head exactly as received, its empty line included.
    pub fn raw_head(&self) -> &[u8] {
        self.raw.get(..self.head_bytes).unwrap_or_default()
    }

    /// The body exactly as received, its chunked coding included.
    pub fn raw_body(&self) -> &[u8] {
        self.raw.get(self.head_bytes..).unwrap_or_default()
    }
}

/// What a [`RequestReader`] has to say about the bytes it holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The request is not complete.
    NeedMore,
    /// The client waits for `100 Continue` before it sends the body; said once per request.
    SendContinue,
    /// A whole request.
    Complete(Box<Request>),
}

enum Coding {
    Length(usize),
    Chunked(ChunkDecoder),
}

struct Pending {
    request: Request,
    coding: Coding,
    /// Bytes of the buffer that belong to the request so far.
    used: usize,
    continue_due: bool,
}

/// Reads requests from one connection.
#[derive(Default)]
pub struct RequestReader {
    buf: Vec<u8>,
    pending: Option<Pending>,
}

impl RequestReader {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Whether not a byte of a next request has arrived.
    pub fn is_idle(&self) -> bool {
        self.buf.is_empty() && self.pending.is_none()
    }

    /// Looks for the next request.
    ///
    /// # Errors
    /// The bytes are not a request this side accepts; answer 400 and close.
    pub fn next_step(&mut self) -> Result<Step, WireError> {
        let mut pending = match self.pending.take() {
            Some(pending) => pending,
            None => match parse_head(&self.buf)? {
                Some(pending) => pending,
                None => return Ok(Step::NeedMore),
            },
        };
        let complete = match &mut pending.coding {
            Coding::Length(length) => self.buf.len() - pending.used >= *length,
            Coding::Chunked(decoder) => {
                let body = &mut pending.request.body;
                let rest = self.buf.get(pending.used..).unwrap_or_default();
                pending.used += decoder.decode(rest, |data| body.extend_from_slice(data))?;
                if body.len() > BODY_BYTES_MAX {
                    return Err(WireError("body is longer than 128 MiB"));
                }
                decoder.is_done()
            }
        };
        if !complete {
            let step = if pending.continue_due { Step::SendContinue } else { Step::NeedMore };
            pending.continue_due = false;
            self.pending = Some(pending);
            return Ok(step);
        }
        if let Coding::Length(length) = pending.coding {
            pending.request.body = self.buf.get(pending.used..pending.used + length).unwrap_or_default().to_vec();
            pending.used += length;
        }
        let rest = self.buf.split_off(pending.used);
        pending.request.raw = std::mem::replace(&mut self.buf, rest);
        Ok(Step::Complete(Box::new(pending.request)))
    }
}

fn parse_head(buf: &[u8]) -> Result<Option<Pending>, WireError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let head_bytes = match head.parse(buf) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) if buf.len() > HEAD_BYTES_MAX => {
            return Err(WireError("head is longer than 64 KiB"));
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(WireError("head has more than 128 fields")),
        Err(_) => return Err(WireError("request head is malformed")),
    };
    let mut request = Request::new(head.method.unwrap_or_default(), head.path.unwrap_or_default());
    request.head_bytes = head_bytes;
    request.keep_alive = head.version == Some(1);
    request.is_http_1_0 = head.version == Some(0);
    let (mut length, mut chunked, mut continue_due) = (None, false, false);
    for field in head.headers.iter() {
        let value = String::from_utf8_lossy(field.value).into_owned();
        match field.name {
            name if name.eq_ignore_ascii_case("content-length") => {
                let twice = length.replace(parse_length(field.value)?).is_some();
                if twice {
                    return Err(WireError("Content-Length appears twice"));
                }
            }
            name if name.eq_ignore_ascii_case("transfer-encoding") => {
                if chunked || !value.eq_ignore_ascii_case("chunked") {
                    return Err(WireError("Transfer-Encoding is not a single `chunked`"));
                }
                chunked = true;
            }
            name if name.eq_ignore_ascii_case("connection") => {
                let says = |token: &str| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(token));
                request.keep_alive = (request.keep_alive || says("keep-alive")) && !says("close");
            }
            name if name.eq_ignore_ascii_case("expect") => continue_due |= value.eq_ignore_ascii_case("100-continue"),
            _ => {}
        }
        request.headers.push((field.name.to_owned(), value));
    }
    let coding = match (length, chunked) {
        (Some(_), true) => return Err(WireError("Content-Length beside Transfer-Encoding")),
        (Some(length), false) if length > BODY_BYTES_MAX => return Err(WireError("body is longer than 128 MiB")),
        (length, false) => Coding::Length(length.unwrap_or(0)),
        (None, true) => Coding::Chunked(ChunkDecoder::new()),
    };
    Ok(Some(Pending { request, coding, used: head_bytes, continue_due }))
}

fn split_target(target: &str) -> (String, Option<String>) {
    match target.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (target.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(input: &[u8], piece_bytes: usize) -> Result<Vec<Request>, WireError> {
        let (mut reader, mut requests) = (RequestReader::default(), Vec::new());
        for piece in input.chunks(piece_bytes) {
            reader.push(piece);
            loop {
                match reader.next_step()? {
                    Step::Complete(request) => requests.push(*request),
                    Step::SendContinue => {}
                    Step::NeedMore => break,
                }
            }
        }
        Ok(requests)
    }

    #[test]
    fn reads_pipelined_requests_whatever_the_cut() {
        let first = b"POST /v1/chat?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
        let second = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let input = [&first[..], second].concat();
        for piece_bytes in [1, 2, 7, input.len()] {
            let requests = read_all(&input, piece_bytes).unwrap();
            assert_eq!(requests.len(), 2, "in pieces of {piece_bytes}");
            assert_eq!((requests[0].path.as_str(), requests[0].query.as_deref()), ("/v1/chat", Some("x=1")));
            assert_eq!((requests[0].body.as_slice(), requests[0].raw.as_slice()), (&b"body"[..], &first[..]));
            assert_eq!((requests[1].body.as_slice(), requests[1].raw.as_slice()), (&b"abc"[..], &second[..]));
            assert_eq!(requests[1].raw_body(), b"3\r\nabc\r\n0\r\n\r\n");
        }
    }

    #[test]
    fn asks_for_continue_once() {
        let mut reader = RequestReader::default();
        reader.push(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
        assert_eq!(reader.next_step(), Ok(Step::SendContinue));
        assert_eq!(reader.next_step(), Ok(Step::NeedMore));
        reader.push(b"ok");
        assert!(matches!(reader.next_step(), Ok(Step::Complete(request)) if request.body == b"ok"));
    }

    #[test]
    fn refuses_ambiguous_framing() {
        for fields in [
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Content-Length: +1",
            "Content-Length: 1, 1",
        ] {
            let input = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n");
            assert!(read_all(input.as_bytes(), 512).is_err(), "{fields}");
        }
    }
}
