//! What is missing of an upload when the provider has answered before it has seen all of it.
//!
//! Where all of it had arrived when the answer began, the provider gets it and both connections go on (RFC 9112 section 9.3). What
//! arrives later goes to nobody: whoever holds it back could choose the moment at which a provider that expects no more of this
//! request takes it for the next one, which is somebody else's. Where little is missing it is read behind the answer, so that the
//! client's connection need not end. Bounded in bytes and time; over a bound that ends, too.

use std::io;
use std::time::Instant;

use super::answer_listener::AnswerListener;
use crate::client::session::Session;
use crate::limits::{EARLY_ARRIVAL_LIMIT, EARLY_REST_BYTES_MAX, EARLY_REST_LIMIT, READ_BYTES_STREAM};
use crate::wire::{BodyScanner, Ranges, RequestBody};

/// The missing part of an upload, known to be little: so many bytes.
pub(crate) struct Unsent(u64);

impl Unsent {
    /// What is missing behind the answer that `listener` has heard; `None` when too much is missing, or nobody knows how much.
    pub(crate) fn behind(listener: &AnswerListener<'_>, scanner: &BodyScanner) -> Option<Self> {
        listener.early_head()?;
        match scanner {
            BodyScanner::Length(length) => {
                let remaining = length.remaining();
                (remaining <= EARLY_REST_BYTES_MAX as u64).then_some(Self(remaining))
            }
            BodyScanner::Chunked(_) | BodyScanner::UntilClose => None,
        }
    }
}

/// Whether the provider goes on after the answer that `listener` has heard, and all that is missing has arrived from the client
/// by now; it is in the session's buffer then. Waits for nothing.
///
/// # Errors
/// The client has left, or has broken its connection.
pub(crate) async fn has_arrived(
    session: &mut Session,
    listener: &AnswerListener<'_>,
    scanner: &BodyScanner,
) -> io::Result<bool> {
    if !listener.early_head().is_some_and(|head| head.keep_alive) {
        return Ok(false);
    }
    let answered = Instant::now();
    // So many reads take what is there; more would take what comes meanwhile.
    for _ in 0..=EARLY_REST_BYTES_MAX.div_ceil(READ_BYTES_STREAM) {
        let mut ahead = scanner.clone();
        if ahead.scan(&session.buf, &mut Ranges::default()).is_err() {
            return Ok(false);
        }
        // On TLS a record may have begun to arrive, and be waited for.
        if ahead.is_done() || session.conn.is_quiet() {
            return Ok(ahead.is_done() && answered.elapsed() <= EARLY_ARRIVAL_LIMIT);
        }
        if session.fill_body(READ_BYTES_STREAM).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(false)
}

/// Reads what is missing from the client, for nobody. Where it does not come in time the body stays unread, and the client's
/// connection has to end.
pub(crate) async fn finish(session: &mut Session, unsent: Unsent) {
    let mut scanner = BodyScanner::request(RequestBody::Length(unsent.0));
    let mut bytes_left = EARLY_REST_BYTES_MAX;
    let until = Instant::now() + EARLY_REST_LIMIT;
    let mut ranges = Ranges::default();
    loop {
        ranges.clear();
        let Ok(progress) = scanner.scan(&session.buf, &mut ranges) else { return };
        bytes::Buf::advance(&mut session.buf, progress.consumed);
        if scanner.is_done() {
            session.body_unread = false;
            return;
        }
        let Some(left) = bytes_left.checked_sub(progress.consumed) else { return };
        bytes_left = left;
        if !matches!(session.fill_until(until).await, Ok(1..)) {
            return;
        }
    }
}
