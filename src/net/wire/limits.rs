//! Every bound this layer sets on a peer, each with its reason.
//!
//! Invariant: nothing in `wire` grows, waits or loops beyond one of these numbers. Body sizes, times and connection
//! counts are policy and are bounded elsewhere.

/// Longest request line, without its line end; more is 414. Twice what the large public APIs use with long queries,
/// and what the common servers accept by default, so a longer one would fail behind us anyway.
pub const REQUEST_LINE_BYTES_MAX: usize = 8 * 1024;

/// Longest request head, request line and closing empty line included; more is 431. Several bearer tokens, cookies
/// and tracing fields fit; ten thousand connections stalling in their heads cost at most 320 MiB.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Longest response head; more is a broken upstream. Larger than the request's because providers add policy and
/// rate fields we do not control. Offsets into a head are 16 bits wide, which this bound makes exact.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most fields in one head, either direction; more is 431 (request) or a broken upstream. Ordinary clients send 8 to
/// 25; the bound keeps each look-up over the list cheap.
pub const FIELDS_MAX: usize = 100;

/// Most elements in all `Connection` fields of one head together, empty ones included. Every element that is not one
/// of the well-known options is compared with every field name, so the product has to stay small.
pub const CONNECTION_OPTIONS_MAX: usize = 32;

/// Most digits of a `Content-Length`: 19 decimal digits always fit an unsigned 64-bit number.
pub const CONTENT_LENGTH_DIGITS_MAX: usize = 19;

/// Most hexadecimal digits of a chunk size, leading zeros included: 60 bits, so adding sizes cannot overflow before
/// any real transfer ends, and no peer's 64-bit parser can wrap.
pub const CHUNK_SIZE_DIGITS_MAX: u8 = 15;

/// Most bytes of chunk extensions in one message, all chunks together. Nobody uses them; unbounded ones would let a
/// peer make us read for ever without a byte of content.
pub const CHUNK_EXT_BYTES_MAX: usize = 1024;

/// Most bytes of trailer fields in one message. They are checked and dropped, so a small bound loses nothing.
pub const TRAILER_BYTES_MAX: usize = 4096;

const _: () = assert!(HEAD_BYTES_MAX + REQUEST_LINE_BYTES_MAX < RESPONSE_HEAD_BYTES_MAX);
const _: () = assert!(RESPONSE_HEAD_BYTES_MAX <= u16::MAX as usize + 1);
const _: () = assert!(FIELDS_MAX <= u128::BITS as usize);
