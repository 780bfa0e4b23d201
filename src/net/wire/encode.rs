//! Writing heads and chunks: always HTTP/1.1, CRLF only, one space where one belongs.
//!
//! Invariant: nothing written here can end a line but the writer itself. Fields of a parsed head are safe because
//! parsing checked them; text from anywhere else has its control characters replaced on the way out (RFC 9110 5.5).
//! Formats numbers without `std::fmt`. Knows nothing of which fields a message needs.

use bytes::BufMut;

use crate::wire::fields::FieldRef;
use crate::wire::grammar::{is_control, is_token_byte};

/// The end of a chunked body without trailer fields.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Appends one head to a buffer, line by line; [`Self::end`] ends it. Reserve space once before: a typical head takes
/// under 1 KiB.
#[derive(Debug)]
pub struct HeadWriter<'a, B> {
    out: &'a mut B,
}

// === impl HeadWriter ===

impl<'a, B: BufMut> HeadWriter<'a, B> {
    /// A writer at the end of `out`.
    pub fn new(out: &'a mut B) -> Self {
        Self { out }
    }

    /// The request line; method and target come from a parsed head or are constants.
    pub fn request_line(&mut self, method: &str, target: &str) {
        self.request_line_below(method, ["", ""], target);
    }

    /// The request line of a target that lies below `prefix`: scheme and authority where a proxy wants them, and the path
    /// of the upstream's own URL; either may be empty.
    pub fn request_line_below(&mut self, method: &str, prefix: [&str; 2], target: &str) {
        let [base, path] = prefix;
        debug_assert!(method.bytes().all(is_token_byte), "a method is a token");
        debug_assert!(
            base.bytes().chain(path.bytes()).chain(target.bytes()).all(|b| b.is_ascii_graphic()),
            "a target is visible ASCII"
        );
        self.out.put_slice(method.as_bytes());
        self.out.put_slice(b" ");
        self.out.put_slice(base.as_bytes());
        self.out.put_slice(path.as_bytes());
        self.out.put_slice(target.as_bytes());
        self.out.put_slice(b" HTTP/1.1\r\n");
    }

    /// The status line; the reason comes from a parsed head or from [`canonical_reason`].
    pub fn status_line(&mut self, status: u16, reason: &[u8]) {
        self.out.put_slice(b"HTTP/1.1 ");
        write_decimal(self.out, u64::from(status));
        self.out.put_slice(b" ");
        self.text(reason);
        self.out.put_slice(b"\r\n");
    }

    /// Passes on a field of a parsed head, byte for byte.
    #[inline]
    pub fn relay(&mut self, field: FieldRef<'_>) {
        self.out.put_slice(field.name_bytes());
        self.out.put_slice(b": ");
        self.out.put_slice(field.value());
        self.out.put_slice(b"\r\n");
    }

    /// Writes a field of our own. The name is a constant.
    pub fn field(&mut self, name: &str, value: &[u8]) {
        self.named(name.as_bytes());
        self.text(value);
        self.out.put_slice(b"\r\n");
    }

    /// Writes another value under the name of a field of a parsed head.
    pub fn relay_with(&mut self, field: FieldRef<'_>, value: &[u8]) {
        self.named(field.name_bytes());
        self.text(value);
        self.out.put_slice(b"\r\n");
    }

    /// Writes a field with a decimal number as its value; the name is a constant.
    pub fn number(&mut self, name: &str, value: u64) {
        self.named(name.as_bytes());
        write_decimal(self.out, value);
        self.out.put_slice(b"\r\n");
    }

    /// Writes a number under the name of a field of a parsed head.
    pub fn relay_with_number(&mut self, field: FieldRef<'_>, value: u64) {
        self.named(field.name_bytes());
        write_decimal(self.out, value);
        self.out.put_slice(b"\r\n");
    }

    #[inline]
    fn named(&mut self, name: &[u8]) {
        debug_assert!(!name.is_empty() && name.iter().copied().all(is_token_byte), "a field name is a token");
        self.out.put_slice(name);
        self.out.put_slice(b": ");
    }

    /// Announces a body of `length` bytes. The one framing field, if [`Self::chunked`] is not.
    pub fn content_length(&mut self, length: u64) {
        self.number("Content-Length", length);
    }

    /// Announces a chunked body. The one framing field, if [`Self::content_length`] is not.
    pub fn chunked(&mut self) {
        self.out.put_slice(b"Transfer-Encoding: chunked\r\n");
    }

    /// Announces that the connection ends with this message.
    pub fn connection_close(&mut self) {
        self.out.put_slice(b"Connection: close\r\n");
    }

    /// The empty line that ends the head.
    pub fn end(self) {
        self.out.put_slice(b"\r\n");
    }

    /// Text from outside a parsed head: a control character becomes a space.
    fn text(&mut self, text: &[u8]) {
        // Without a way out in the middle, so that many bytes are looked at in one instruction.
        if !text.iter().fold(false, |found, byte| found | is_control(*byte)) {
            self.out.put_slice(text);
        } else {
            for byte in text {
                self.out.put_u8(if is_control(*byte) { b' ' } else { *byte });
            }
        }
    }
}

/// Appends `data` as one chunk; nothing when it is empty, because an empty chunk would end the body.
pub fn data_chunk(out: &mut impl BufMut, data: &[u8]) {
    if !data.is_empty() {
        chunk_head(out, data.len() as u64);
        out.put_slice(data);
        out.put_slice(b"\r\n");
    }
}

/// Appends the size line of a chunk of `size` bytes, for data that is sent from where it lies; CRLF has to follow the
/// data. A size of 0 begins the end of the body.
pub fn chunk_head(out: &mut impl BufMut, size: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut line = *b"0000000000000000\r\n";
    let mut start = 16;
    let mut rest = size;
    for place in line.iter_mut().take(16).rev() {
        *place = DIGITS[(rest & 0xf) as usize];
        start -= 1;
        rest >>= 4;
        if rest == 0 {
            break;
        }
    }
    out.put_slice(&line[start..]);
}

/// Appends a number in decimal.
pub fn write_decimal(out: &mut impl BufMut, number: u64) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    let mut rest = number;
    for place in digits.iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        start -= 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.put_slice(&digits[start..]);
}

/// The reason phrase that goes with a status we send ourselves; empty for one that has none.
pub const fn canonical_reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        508 => "Loop Detected",
        _ => "",
    }
}
