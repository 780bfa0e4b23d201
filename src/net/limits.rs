//! The limits that several files of a request's path on a core share: sizes, times and counts, each with its reason. A limit that one
//! file obeys stands there; `docs/limits.md` lists all of them.

use std::time::Duration;

/// Longest wait for the next request on a kept connection.
pub const IDLE_LIMIT: Duration = Duration::from_secs(75);
/// How long a connection keeps its read buffer while it waits for its next request.
pub const BUFFER_PATIENCE: Duration = Duration::from_secs(1);
/// With more idle connections than this on a core, a new one gets its buffer only when something has arrived.
pub const IDLE_FEW: usize = 256;
/// A TLS handshake must be complete this long after the connection was accepted.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// A request head must be complete this long after its first byte.
pub const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// Longest pause between two reads of a request body.
pub const BODY_PAUSE_LIMIT: Duration = Duration::from_secs(30);
/// A body may be slow for this long before its pace counts.
pub const BODY_GRACE: Duration = Duration::from_secs(10);
/// Least pace of a request body after that.
pub const BODY_BYTES_PER_S_MIN: u64 = 1024;
/// While places at the provider are scarce, an upload gets one when so much of it has come, or all of it.
pub const GATHER_BYTES: usize = 64 * 1024;
/// Least pace of an upload that holds a place others wait for: under it the place is worth more than the upload.
pub const CROWDED_BYTES_PER_S_MIN: u64 = 16 * 1024;
/// For so long an upload may pause all the same.
pub const CROWDED_GRACE: Duration = Duration::from_secs(2);
/// How often an upload that pauses looks whether others wait.
pub const CROWDED_LOOK: Duration = Duration::from_millis(500);
/// An answer that comes while at most so much of the upload is missing does not cost the client its connection.
pub const EARLY_REST_BYTES_MAX: usize = 64 * 1024;
/// How long that rest is waited for behind the answer.
pub const EARLY_REST_LIMIT: Duration = Duration::from_secs(2);
/// Longest time in which that rest is taken for having been there when the answer began.
pub const EARLY_ARRIVAL_LIMIT: Duration = Duration::from_millis(20);
/// While stopping, how long a connection that waits for a request is still listened to.
pub const DRAIN_LIMIT: Duration = Duration::from_millis(100);
/// A write gets the stall limit anew for each so many bytes: large bodies may take their time. What is handed to the kernel at once is
/// all there is.
pub const WRITE_SLICE_BYTES: usize = 64 * 1024;
/// Longest time a write to the client may make no progress.
pub const WRITE_STALL_LIMIT: Duration = Duration::from_secs(30);
/// Texts up to this size are analysed on the core: it costs less than handing them to another thread would.
pub const INLINE_TEXT_BYTES_MAX: usize = 8 * 1024;
/// First read buffer of a connection: a typical request fits, and 10,000 idle connections stay below 8 KiB each.
pub const READ_BYTES_START: usize = 4 * 1024;
/// Read buffer while a body streams.
pub const READ_BYTES_STREAM: usize = 16 * 1024;
/// Read buffer while a large body streams whose bytes come faster than they are passed on. It stays in a core's cache, and a call of
/// the kernel for each 16 KiB costs several times what the copying does.
pub const READ_BYTES_LARGE: usize = 128 * 1024;
/// The same of an answer that comes whole. There is one for each place at the provider, and they are counted nowhere.
pub const READ_BYTES_ANSWER: usize = 64 * 1024;
/// Read buffer of an answer that comes frame by frame; what lies ready at once beyond it is read with the next turn.
pub const READ_BYTES_FRAMES: usize = 4 * 1024;
/// Heads and first body bytes are copied into one write up to this size; more is written piece by piece.
pub const JOIN_BYTES_MAX: usize = 16 * 1024;
/// Most that is kept of one body for the record, however large the cap on what is forwarded has been set.
pub const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most that is read of one request's body, with its content coding undone.
pub fn kept_bytes_max(settings: &weir_config::Settings) -> usize {
    usize::try_from(settings.limits.max_request_size_bytes).unwrap_or(usize::MAX).min(KEPT_BYTES_MAX)
}

/// Interim (1xx) responses relayed in one exchange.
pub const INTERIM_MAX: usize = 8;
