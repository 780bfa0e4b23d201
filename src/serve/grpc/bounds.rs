//! Sizes, times and counts of the gRPC listener.

use std::time::Duration;

/// Bytes a message may have, on the wire and unpacked.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Calls of which a message may be under way at the same time; a tenant has what it leaves to the others.
pub(super) const CALLS_MAX: usize = 16;
/// Connections at a time; an address has what it leaves to the others.
pub(super) const CONNECTIONS_MAX: usize = 256;
/// Calls under way on one connection.
pub(super) const CALLS_PER_CONNECTION: u32 = 32;
/// How long a TLS handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// How often a silent client is asked whether it is still there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long a connection may bring nothing, not even an answer to that.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long a batch may take from its head to its answer.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// How long the next batch of a stream may be waited for.
const BATCH_LIMIT: Duration = Duration::from_secs(60);
/// How long a stream waits for room before it is ended.
pub(super) const ROOM_LIMIT: Duration = Duration::from_secs(10);
/// Rejected spans that an answer names.
pub(super) const REJECTIONS_MAX: usize = 100;
/// Bytes of all metadata of a call.
pub(super) const METADATA_BYTES_MAX: u32 = 16 * 1024;

/// The times among them, which tests shorten.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How often a silent client is asked whether it is still there, and how long it may take to say so.
    pub ping: Duration,
    /// How long a connection may bring nothing.
    pub silence: Duration,
    /// How long a batch may take from its head to its answer.
    pub call: Duration,
    /// How long the next batch of a stream may be waited for.
    pub batch: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            handshake: HANDSHAKE_LIMIT,
            ping: PING_EVERY,
            silence: SILENCE_MAX,
            call: CALL_LIMIT,
            batch: BATCH_LIMIT,
        }
    }
}
