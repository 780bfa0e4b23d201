//! What is missing of an upload when the provider has answered before it has seen all of it.
//!
//! Where that is little it follows behind the answer, so that neither connection has to end (RFC 9112 section 9.3): to the
//! provider while that goes on taking it, else to nobody. Bounded in bytes and time; over a bound both connections close.

use std::time::{Duration, Instant};

use super::hearing::Hearing;
use super::session::Session;
use super::upload::Ranges;
use super::{EARLY_REST_BYTES_MAX, EARLY_REST_LIMIT};
use crate::forward::Lease;
use crate::rt::On;
use crate::wire::BodyScanner;

/// The missing part of an upload.
pub(crate) struct Unsent {
    scanner: BodyScanner,
    /// Most bytes of it that are dealt with.
    bytes_left: usize,
    /// Whether the provider's connection goes on, so that it has to have it.
    for_provider: bool,
}

impl Unsent {
    /// What is missing behind the answer that `hearing` has heard; `None` when there is none, or too much is missing.
    pub(super) fn behind(hearing: &Hearing<'_>, scanner: &BodyScanner) -> Option<Self> {
        let head = hearing.early_head()?;
        let is_little = match scanner {
            BodyScanner::Length(length) => length.remaining() <= EARLY_REST_BYTES_MAX as u64,
            BodyScanner::Chunked(_) => true,
            BodyScanner::UntilClose => false,
        };
        is_little.then(|| Self {
            scanner: scanner.clone(),
            bytes_left: EARLY_REST_BYTES_MAX,
            for_provider: head.keep_alive,
        })
    }

    /// Whether it is known to be little. Of a chunked body only what has arrived already is.
    pub(super) fn is_bounded(&self) -> bool {
        matches!(self.scanner, BodyScanner::Length(_))
    }

    /// Whether the provider's connection goes on.
    pub(super) fn is_for_provider(&self) -> bool {
        self.for_provider
    }

    /// What is missing when `bytes` more have been sent and `scanner` has seen them.
    pub(super) fn less(self, bytes: usize, scanner: &BodyScanner) -> Option<Self> {
        let bytes_left = self.bytes_left.checked_sub(bytes)?;
        Some(Self { scanner: scanner.clone(), bytes_left, ..self })
    }
}

/// Reads what is missing from the client and passes it on to the provider. Where that fails in time `lease` is dropped; where
/// the client does not send it in time its body stays unread, and its connection has to end.
pub(super) async fn finish(session: &mut Session, lease: &mut Option<Lease>, unsent: Unsent) {
    let Unsent { mut scanner, mut bytes_left, .. } = unsent;
    let until = Instant::now() + EARLY_REST_LIMIT;
    let mut ranges = Ranges::default();
    loop {
        if session.core.pool.is_waited_for() {
            *lease = None;
        }
        ranges.clear();
        let Ok(progress) = scanner.scan(&session.buf, &mut ranges) else { break };
        let input = session.buf.split_to(progress.consumed).freeze();
        pass_on(session, lease, ranges.relayed(&input), until).await;
        if scanner.is_done() {
            session.body_unread = false;
            return;
        }
        let Some(left) = bytes_left.checked_sub(input.len()) else { break };
        bytes_left = left;
        if !matches!(session.fill_until(until).await, Ok(1..)) {
            break;
        }
    }
    *lease = None;
}

async fn pass_on(session: &Session, lease: &mut Option<Lease>, piece: bytes::Bytes, until: Instant) {
    let Some(conn) = lease.as_mut().and_then(Lease::conn) else { return };
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    session.deadline.arm(left, On::Stop(conn.tcp().fd()));
    let written = conn.write_all(piece).await;
    if session.deadline.disarm() || written.is_err() {
        *lease = None;
    }
}
