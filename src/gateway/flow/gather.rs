//! The beginning of an upload, before a place at the provider is taken for it.
//!
//! What has arrived of a small body goes out with its head. While places are scarce an upload gets one only when its first
//! [`GATHER_BYTES`] have come, or all of it: whoever dribbles holds nothing that others wait for.

use crate::client::body::{NoBody, broken, out_of_room, send_continue};
use crate::client::session::Session;
use crate::exchange::Refusal;
use crate::forward::ConnPool;
use crate::limits::{GATHER_BYTES, JOIN_BYTES_MAX, READ_BYTES_STREAM};
use crate::record::Permit;
use crate::wire::{BodyScanner, Ranges, RequestBody, RequestHead};

/// Gathers the beginning of the body in the session's buffer; what it took from the budget of bodies comes back.
pub(crate) async fn gather(
    session: &mut Session,
    pool: &ConnPool,
    head: &RequestHead,
    permit: impl FnOnce() -> Permit,
) -> Result<Option<Permit>, NoBody> {
    if pool.is_scarce() {
        return wait_for_beginning(session, head, permit()).await.map(Some);
    }
    if let RequestBody::Length(length) = head.body
        && length <= JOIN_BYTES_MAX as u64
    {
        while (session.buf.len() as u64) < length && !session.conn.is_quiet() {
            fill(session).await?;
        }
    }
    Ok(None)
}

async fn wait_for_beginning(session: &mut Session, head: &RequestHead, mut permit: Permit) -> Result<Permit, NoBody> {
    if !permit.grow(GATHER_BYTES) {
        return Err(NoBody::Refused(out_of_room()));
    }
    send_continue(session, head).await?;
    let mut scanner = BodyScanner::request(head.body);
    let (mut ranges, mut scanned) = (Ranges::default(), 0);
    loop {
        ranges.clear();
        let progress = scanner
            .scan(session.buf.get(scanned..).unwrap_or_default(), &mut ranges)
            .map_err(|fault| NoBody::Refused(Refusal::broken_framing(&fault)))?;
        scanned += progress.consumed;
        if scanner.is_done() || session.buf.len() >= GATHER_BYTES {
            return Ok(permit);
        }
        fill(session).await?;
    }
}

async fn fill(session: &mut Session) -> Result<(), NoBody> {
    match session.fill_body(READ_BYTES_STREAM).await {
        Ok(0) => Err(NoBody::ClientLeft),
        Ok(_) => Ok(()),
        Err(error) => Err(broken(&error)),
    }
}
