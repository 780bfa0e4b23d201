//! Response heads as the load generator needs them: status, framing, and whether the connection survives.

use super::{FIELDS_MAX, HEAD_BYTES_MAX, WireError, parse_length};

/// How the end of a response body is found (RFC 9112 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// This many bytes.
    Length(usize),
    /// The chunked coding.
    Chunked,
    /// Everything until the peer closes.
    UntilClose,
}

/// A parsed response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status code.
    pub status: u16,
    /// Length of the head with its empty line, in bytes.
    pub head_bytes: usize,
    /// How the body ends.
    pub framing: BodyFraming,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
}

impl ResponseHead {
    /// Parses the head at the start of `buf`; `None` while it is incomplete. Assumes the request was not HEAD.
    ///
    /// # Errors
    /// The head is malformed, too long, or its framing is ambiguous.
    pub fn parse(buf: &[u8]) -> Result<Option<Self>, WireError> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut head = httparse::Response::new(&mut fields);
        let head_bytes = match head.parse(buf) {
            Ok(httparse::Status::Complete(bytes)) => bytes,
            Ok(httparse::Status::Partial) if buf.len() > HEAD_BYTES_MAX => {
                return Err(WireError("response head is longer than 64 KiB"));
            }
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(WireError("response head is malformed")),
        };
        let status = head.code.unwrap_or_default();
        let mut keep_alive = head.version == Some(1);
        let (mut length, mut chunked) = (None, false);
        for field in head.headers.iter() {
            // Few fields matter, and their lengths differ from nearly all others': compare lengths first.
            match field.name.len() {
                14 if field.name.eq_ignore_ascii_case("content-length") => {
                    let twice = length.replace(parse_length(field.value)?).is_some();
                    if twice {
                        return Err(WireError("Content-Length appears twice in the response"));
                    }
                }
                17 if field.name.eq_ignore_ascii_case("transfer-encoding") => {
                    if chunked || !field.value.eq_ignore_ascii_case(b"chunked") {
                        return Err(WireError("response Transfer-Encoding is not a single `chunked`"));
                    }
                    chunked = true;
                }
                10 if field.name.eq_ignore_ascii_case("connection") => {
                    keep_alive &= !field.value.eq_ignore_ascii_case(b"close");
                }
                _ => {}
            }
        }
        let framing = match (status, length, chunked) {
            (100..=199 | 204 | 304, ..) => BodyFraming::Length(0),
            (_, Some(_), true) => return Err(WireError("response has Content-Length beside Transfer-Encoding")),
            (_, None, true) => BodyFraming::Chunked,
            (_, Some(length), false) => BodyFraming::Length(length),
            (_, None, false) => BodyFraming::UntilClose,
        };
        keep_alive &= framing != BodyFraming::UntilClose;
        Ok(Some(Self { status, head_bytes, framing, keep_alive }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_status_framing_and_persistence() {
        let head = |text: &str| ResponseHead::parse(text.as_bytes()).unwrap().unwrap();
        let counted = head("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n1234567");
        assert_eq!(
            counted,
            ResponseHead { status: 200, head_bytes: 38, framing: BodyFraming::Length(7), keep_alive: true }
        );
        let chunked = head("HTTP/1.1 429 x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
        assert_eq!((chunked.framing, chunked.keep_alive, chunked.status), (BodyFraming::Chunked, false, 429));
        let open = head("HTTP/1.1 200 OK\r\n\r\n");
        assert_eq!((open.framing, open.keep_alive), (BodyFraming::UntilClose, false));
        assert_eq!(ResponseHead::parse(b"HTTP/1.1 200 OK\r\ncontent-le"), Ok(None));
    }

    #[test]
    fn refuses_two_framings() {
        assert!(
            ResponseHead::parse(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n").is_err()
        );
        assert!(ResponseHead::parse(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n").is_err());
    }
}
