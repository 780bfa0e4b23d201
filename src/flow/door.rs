//! Who stands at the door: settles the caller of every request, before its body is read and before anything is counted
//! to a tenant.
//!
//! Invariant: nobody gets past without an identity; a stranger's request is counted and answered, and never recorded
//! under a tenant, so that strangers can fill nobody's record.

use std::time::Duration;

use weir_config::vocab::{Dialect, Role, Timestamp, TraceId};

use super::Core;
use super::request::skip_body;
use super::session::{Next, Session};
use super::told::Told;
use crate::admit::{Denied, Memory, Presented};
use crate::exchange::{Caller, Moments, Refusal};
use crate::inspect::Route;
use crate::wire::RequestHead;

/// The sender of the request, if it may ask for what needs `needed`.
pub(super) fn caller(
    core: &Core,
    memory: &mut Memory,
    head: &RequestHead,
    needed: Role,
    now: Timestamp,
) -> Result<Caller, Denied> {
    let presented = Presented::read(head.fields().map(|field| (field.name_bytes(), field.value())));
    let now_s = u32::try_from(now.micros() / 1_000_000).unwrap_or(0);
    core.process.parts.guard.caller(memory, &presented, needed, now_s)
}

/// A credential in the request target would stand in every log on its way.
pub(super) fn refuse_exposed(core: &Core, head: &RequestHead) -> Result<(), Refusal> {
    if core.process.parts.guard.is_exposed(head.target()) {
        let message = "the request target holds a credential of this gateway; send it in a header field, and replace it: \
                       it may have been logged on its way here";
        return Err(Refusal::new(400, "invalid_request", message));
    }
    Ok(())
}

/// Answers a proxied request whose sender is nobody.
pub(super) async fn refuse_stranger(
    session: &mut Session,
    head: &RequestHead,
    route: &Route,
    denied: Denied,
    moments: Moments,
) -> Next {
    let refusal = Refusal::from(denied);
    session.core.meter.request(
        route.provider.label(),
        None,
        refusal.status,
        0,
        u64::try_from(moments.started.elapsed().as_micros()).unwrap_or(0),
        None,
        None,
    );
    let mut told = Told::of_ours(Some(head.line()));
    told.refused(&refusal);
    let process = &session.core.process;
    if let Some(access) = told.end(process, Some(refusal.status), moments.started.elapsed(), Duration::ZERO) {
        access.write(process, None);
    }
    answer(session, head, route.dialect, &refusal).await
}

/// Sends a refusal to a request whose body has not been read.
pub(super) async fn answer(session: &mut Session, head: &RequestHead, dialect: Dialect, refusal: &Refusal) -> Next {
    session.said.reason = Some(refusal.error_type);
    session.begin_body(head.body);
    skip_body(session, head.body);
    let close = refusal.close || session.body_unread || !head.keep_alive || session.core.process.is_draining();
    let body = refusal.body(dialect, TraceId::fresh());
    let head_only = head.method() == "HEAD";
    let sent =
        session.send_own(refusal.status, &refusal.headers, "application/json", body.into(), close, head_only).await;
    if close && sent.is_ok() {
        session.linger().await;
    }
    if close || sent.is_err() { Next::Close } else { Next::Keep }
}
