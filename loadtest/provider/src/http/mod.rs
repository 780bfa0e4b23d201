//! HTTP/1.1 framing for the test side, without I/O: chunked coding, whole requests, response heads.
//!
//! Invariant: ambiguous framing (two lengths, length beside chunked, bare LF in chunk lines) is refused, never guessed,
//! so that a gateway that forwards it is caught by its own back end. Knows no provider and no socket.

mod chunked;
mod request;
mod response;

pub use chunked::ChunkDecoder;
pub use request::{Request, RequestReader, Step};
pub use response::{BodyFraming, ResponseHead};

/// The longest head accepted, in bytes.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The longest request body accepted, in bytes; above the gateway's own default cap of 50 MiB.
pub const BODY_BYTES_MAX: usize = 128 * 1024 * 1024;
/// The most header fields accepted in one head.
pub const FIELDS_MAX: usize = 128;

/// What the peer sent is not HTTP/1.1 as RFC 9112 frames it. The text says what and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireError(pub &'static str);

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for WireError {}

/// A Content-Length value: digits only, as RFC 9110 section 8.6 has it.
fn parse_length(value: &[u8]) -> Result<usize, WireError> {
    if value.is_empty() || value.len() > 15 || !value.iter().all(u8::is_ascii_digit) {
        return Err(WireError("Content-Length is not a number of at most 15 digits"));
    }
    Ok(value.iter().fold(0usize, |sum, digit| sum * 10 + usize::from(digit - b'0')))
}
