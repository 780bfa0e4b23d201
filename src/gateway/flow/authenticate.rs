//! Settles the caller of every request, before its body is read and before anything is counted to a tenant.
//!
//! Invariant: no request gets past without a caller; a stranger's request is counted and answered, and never recorded under a tenant, so
//! that strangers can fill nobody's record.

use std::time::Duration;

use bytes::Bytes;
use weir_config::vocab::{Role, Timestamp, TraceId};

use super::preflight;
use crate::admit::attempts::Price;
use crate::admit::blocked;
use crate::admit::web::{Path, Visit};
use crate::admit::{Denied, Presented};
use crate::client::own_answer::{JSON, Refused};
use crate::client::session::{Next, Session};
use crate::exchange::{Caller, Moments, Refusal};
use crate::inspect::Route;
use crate::meter::Counted;
use crate::process::log_entry::LogEntry;
use crate::process::{Core, InEffect};
use crate::rt;
use crate::wire::RequestHead;

/// The outcome of the checks that need no sender.
pub(crate) enum Approach {
    /// It goes on to have its sender authenticated.
    Continue {
        /// How many guesses of the admin key it holds at most; each counts when it is wrong.
        tries: u32,
    },
    /// A preflight request of a browser, from a listed origin.
    Preflight,
    /// It gets no further.
    Refused(Refusal),
}

/// What a head says about who sends it.
pub(crate) fn presented(head: &RequestHead) -> Presented<'_> {
    Presented::read(head.fields().map(|field| (field.name_bytes(), field.value())))
}

/// Turns away web pages that may not ask, and lets those wait who try admin keys.
pub(crate) async fn approach(
    session: &mut Session,
    head: &RequestHead,
    presented: &Presented<'_>,
    path: Path,
    settings: &InEffect,
) -> Approach {
    if path == Path::Proxied
        && let Some(refusal) = turned_away(session)
    {
        return Approach::Refused(refusal);
    }
    let lends = path == Path::Proxied && settings.local_upstreams.lends && !presented.brings_credential();
    let pages = &session.core.process.parts.edge.pages;
    let judged = if pages.may_concern(presented, path, lends) {
        pages.judge(presented, Visit { method: head.method(), path, host: head.host(), lends })
    } else {
        Ok(None)
    };
    session.page = match judged {
        Ok(None) => None,
        Ok(Some(_)) => head.get_shared("origin"),
        Err(refusal) => {
            session.page = None;
            return Approach::Refused(refusal);
        }
    };
    if session.page.is_some() && preflight::is_preflight(head) {
        return Approach::Preflight;
    }
    let process = &session.core.process;
    let tries = process.parts.policy.guard.tries(&session.connection_caller.memory(), presented);
    if tries == 0 {
        return Approach::Continue { tries };
    }
    match process.attempts.price(session.client(), tries, process.now_ns() / 1_000_000) {
        Price::Free => Approach::Continue { tries },
        Price::Wait(wait) => {
            rt::sleep(wait).await;
            Approach::Continue { tries: 0 }
        }
        Price::TooMany { retry_after_s } => {
            let message = "too many wrong credentials came from this address, so that this one was not looked at; wait, or \
                           use an API key, which never waits";
            Approach::Refused(Refusal::new(429, "rate_limit_exceeded", message).header("Retry-After", retry_after_s))
        }
    }
}

/// The refusal of an address that the action router has blocked.
fn turned_away(session: &Session) -> Option<Refusal> {
    let blocked = session.core.process.parts.policy.blocked.as_ref()?;
    blocked.turns_away(session.client(), now_s()).map(blocked::refusal)
}

/// The same for reports of calls, which are refused as the calls themselves would be.
pub(crate) fn reports_turned_away(session: &Session) -> Option<Refusal> {
    let blocked = session.core.process.parts.policy.blocked.as_ref()?;
    blocked.left_s(session.client(), now_s()).map(blocked::refusal)
}

fn now_s() -> i64 {
    Timestamp::now().micros().div_euclid(1_000_000)
}

/// The sender of the request, if it may ask for what needs `needed`; `tries` as [`Approach::Continue`] says.
pub(crate) fn caller(
    session: &Session,
    presented: &Presented<'_>,
    needed: Role,
    now: Timestamp,
    tries: u32,
) -> Result<Caller, Denied> {
    let process = &session.core.process;
    let now_s = u32::try_from(now.micros() / 1_000_000).unwrap_or(0);
    let caller = process.parts.policy.guard.caller(&mut session.connection_caller.memory(), presented, needed, now_s);
    if tries > 0 && caller == Err(Denied::Unknown) {
        process.attempts.failed(session.client(), tries, process.now_ns() / 1_000_000);
    }
    caller
}

/// A credential in the request target would stand in every log on its way.
pub(crate) fn refuse_exposed(core: &Core, head: &RequestHead) -> Result<(), Refusal> {
    if core.process.parts.policy.redaction.is_exposed(head.target()) {
        let message = "the request target holds a credential of this gateway; send it in a header field, and replace it: \
                       it may have been logged on its way here";
        return Err(Refusal::new(400, "invalid_request", message));
    }
    Ok(())
}

/// A refusal as this client reads it, whose record would say what it is.
pub(crate) fn in_terms_of(settings: &InEffect, head: &RequestHead, refusal: Refusal) -> Refusal {
    let client = head.get("user-agent").and_then(|name| std::str::from_utf8(name).ok());
    if settings.enforcement.is_retrying(client) { refusal.for_retrying(head.upgrade_websocket) } else { refusal }
}

/// Refuses a proxied request without a valid credential, or one from a web page that is not allowed to ask.
pub(crate) async fn refuse_stranger(
    session: &mut Session,
    head: &RequestHead,
    route: &Route,
    refusal: &Refusal,
    moments: Moments,
) -> Next {
    let took_us = u64::try_from(moments.started.elapsed().as_micros()).unwrap_or(0);
    session.core.meter.request(&Counted::refused(route.provider.label(), refusal.status, took_us));
    let mut entry = LogEntry::of_ours(Some(head.line()));
    entry.refused(refusal);
    let body = refusal.body(route.dialect, TraceId::fresh());
    entry.bytes = if head.method() == "HEAD" { 0 } else { body.len() as u64 };
    let process = &session.core.process;
    if let Some(access) = entry.end(process, Some(refusal.status), moments.started.elapsed(), Duration::ZERO) {
        access.write(process, None);
    }
    say(session, head, refusal, body).await
}

/// Sends a refusal to a request whose body has not been read.
async fn say(session: &mut Session, head: &RequestHead, refusal: &Refusal, body: impl Into<Bytes>) -> Next {
    session.begin_body(head.body);
    let behind = session.behind(head, Some(refusal));
    session.refuse(Refused { refusal, body: body.into(), content_type: JSON, trace_id: None, behind }, |_| ()).await
}
