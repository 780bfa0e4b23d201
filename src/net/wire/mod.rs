//! HTTP/1.1 on the wire: strict in, canonical out, without I/O, clocks or tasks.
//!
//! ```text
//!  bytes ──▶ HeadScanner ──▶ RequestHead, RequestLine / ResponseHead ──▶ BodyScanner ──▶ ranges to relay, ranges of content
//!                                     │
//!                                     └──▶ HeadWriter ──▶ bytes of a new head, from parsed parts only
//! ```
//!
//! Invariants:
//! - Nothing accepted here can be split into messages in two ways. What is ambiguous is refused; no head is ever passed
//!   on as received.
//! - Any cut of the input into reads gives the same result.
//! - A peer controls no amount of memory or work beyond [`limits`]. No input panics.
//!
//! Must not know: sockets, time, settings, policy, providers, error bodies. The tokenizer is `httparse`; what that one
//! lets through and RFC 9112 does not is refused in a second look at the same bytes.

mod body;
mod chunked;
mod diagnose;
mod encode;
mod fault;
mod fields;
mod framing;
mod grammar;
mod head;
mod hop;
pub mod limits;
mod ranges;
mod request;
mod response;
mod target;
#[cfg(test)]
mod tests;

pub use body::{BodyScanner, LengthScanner};
pub use chunked::{ChunkSink, ChunkedScanner, Progress};
pub use encode::{HeadWriter, LAST_CHUNK, canonical_reason, chunk_head, data_chunk, write_decimal};
pub use fault::{Fault, FaultKind, Side};
pub use fields::FieldRef;
pub use head::HeadScanner;
pub use ranges::Ranges;
pub use request::{RequestBody, RequestHead, RequestLine};
pub use response::{ResponseBody, ResponseHead};

/// The protocol version of a received message. What we send is always HTTP/1.1 (RFC 9112 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0: no chunked bodies, no persistence unless agreed.
    Http10,
    /// HTTP/1.1.
    Http11,
}
