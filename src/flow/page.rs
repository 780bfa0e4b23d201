//! What web pages of listed origins are told (the Fetch standard, "CORS protocol"): that they may ask, and that they may read.
//!
//! Credentials a browser keeps are never part of it: there are none of ours.

use bytes::{BufMut, Bytes};

use super::request::{ALLOW, skip_body};
use super::session::{Next, Session};
use crate::wire::{HeadWriter, RequestHead};

/// How long a browser may remember the answer to a preflight, in seconds.
const REMEMBERED_S: &str = "600";

/// Lets a page of this origin read the answer whose head is being written.
pub(super) fn let_read(writer: &mut HeadWriter<'_, impl BufMut>, page: Option<&Bytes>) {
    let Some(origin) = page else { return };
    writer.field("Access-Control-Allow-Origin", origin);
    writer.field("Access-Control-Expose-Headers", b"*");
    writer.field("Vary", b"Origin");
}

/// Whether a browser asks on behalf of a page whether it may ask.
pub(super) fn is_preflight(head: &RequestHead) -> bool {
    head.method() == "OPTIONS" && head.get("access-control-request-method").is_some()
}

/// Says yes. The request itself is judged like any other when it comes.
pub(super) async fn answer_preflight(session: &mut Session, head: &RequestHead) -> Next {
    session.begin_body(head.body);
    skip_body(session, head.body);
    let close = session.body_unread || !head.keep_alive || session.core.process.is_draining();
    let mut fields =
        vec![("Access-Control-Allow-Methods", ALLOW.to_owned()), ("Access-Control-Max-Age", REMEMBERED_S.to_owned())];
    if let Some(wanted) = head.get("access-control-request-headers").and_then(|names| std::str::from_utf8(names).ok()) {
        fields.push(("Access-Control-Allow-Headers", wanted.to_owned()));
    }
    if head.get("access-control-request-private-network").is_some() {
        fields.push(("Access-Control-Allow-Private-Network", "true".to_owned()));
    }
    let sent = session.send_own(200, &fields, "text/plain", Bytes::new(), close, false).await;
    if close && sent.is_ok() {
        session.linger().await;
    }
    if close || sent.is_err() { Next::Close } else { Next::Keep }
}
