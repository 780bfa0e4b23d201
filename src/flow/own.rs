//! Paths Weir answers itself: the request goes to the control thread's router and its answer comes back. Probes are answered
//! here, on the core, whatever keeps the control thread busy.

use std::rc::Rc;

use bytes::Bytes;
use weir_config::vocab::{Dialect, Role, TenantId, Timestamp};

use super::core::{Core, HEALTH, Process};
use super::door::{self, Approach};
use super::session::{Next, Session};
use super::{gate, page, upload};
use crate::admit::web::Path;
use crate::api::{self, Access, ApiError, ErrorKind, Terms};
use crate::exchange::{Caller, Refusal};
use crate::record::Permit;
use crate::wire::{HeadWriter, RequestHead, canonical_reason};

/// Fields that say who asks; the answer to that is [`Caller`].
const IDENTITY_FIELDS: [&str; 5] = ["authorization", "x-api-key", "api-key", "x-service-token", "x-service-tenant-id"];

/// Paths that say whether the gateway works.
const PROBES: [&str; 3] = [HEALTH, "/livez", "/readyz"];

/// Longest body of a request that needs none, and of one that anybody may make.
const MEANINGLESS_BODY_BYTES_MAX: u64 = 4 * 1024;

/// Longest body that is copied behind its head, to leave in one write with it.
const JOINED_BYTES_MAX: usize = 8 * 1024;

/// Whether Weir answers this path itself. A moved health report leaves its path to the provider.
pub(crate) fn is_ours(process: &Process, path: &str) -> bool {
    match process.moved_health() {
        None => api::is_own_path(path),
        Some(moved) => path == moved || path != HEALTH && api::is_own_path(path),
    }
}

/// The path as the router knows it.
fn known_as<'a>(process: &Process, path: &'a str) -> &'a str {
    if process.moved_health() == Some(path) { HEALTH } else { path }
}

/// Answers one request to our own API.
pub(crate) async fn answer(session: &mut Session, head: RequestHead) -> Next {
    let close = !head.keep_alive || session.core.process.is_draining();
    let head_only = head.method() == "HEAD";
    let core = Rc::clone(&session.core);
    let path = known_as(&core.process, head.path());
    let terms = api::terms(head.method(), path);
    let presented = door::presented(&head);
    let path = if PROBES.contains(&path) { Path::Probe } else { Path::Own };
    let admitted = match door::approach(session, &head, &presented, path, &core.settings()).await {
        Approach::Nearer { tries } => admit(session, &head, terms, tries),
        Approach::Preflight => return page::answer_preflight(session, &head).await,
        Approach::Refused(refusal) => Err(refusal),
    };
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(refusal) => return door::answer(session, &head, Dialect::ChatCompletions, &refusal).await,
    };
    session.said.tenant_id = admitted.map(|caller| caller.tenant_id);
    if let Err(refusal) = within_rate(&core, terms, admitted) {
        return door::answer(session, &head, Dialect::ChatCompletions, &refusal).await;
    }
    let at_hand = upload::is_at_hand(session, head.body);
    session.begin_body(head.body);
    let bodies =
        core.process.bodies.own(admitted.filter(|caller| caller.role != Role::Admin).map(|caller| caller.tenant_id));
    let reads_body = admitted.is_some() && matches!(head.method(), "POST" | "PUT" | "PATCH");
    let upload::Whole { body, permit: _held } = match read_body(session, &head, reads_body, bodies.permit()).await {
        Ok(whole) => whole,
        Err(upload::NoBody::ClientLeft) => return Next::Close,
        Err(upload::NoBody::Refused(refusal)) => return refuse(session, &refusal, close, head_only).await,
    };
    // A body may take minutes to come, and the credential may have been taken away meanwhile.
    let admitted = match if at_hand { Ok(admitted) } else { admit(session, &head, terms, 0) } {
        Ok(admitted) => admitted,
        Err(refusal) => return refuse(session, &refusal, close, head_only).await,
    };
    let path = known_as(&core.process, head.path());
    if let Some(response) = api::probe(&core.process.parts.health, head.method(), path) {
        let sent = write(session, response, close, head_only).await;
        return if sent && !close { Next::Keep } else { Next::Close };
    }
    // A health report takes no query, so that the path is all of a moved target.
    let target = if core.process.moved_health() == Some(head.path()) { HEALTH } else { head.target() };
    let Some(request) = to_http(&head, target, body, admitted) else {
        let refusal = Refusal::new(400, "invalid_request", "the request target is not a valid URI");
        return refuse(session, &refusal, close, head_only).await;
    };
    let response = ask(&core, request, terms, admitted).await;
    // Answers stay in memory for as long as the client takes to read them.
    let mut permit = bodies.permit();
    if !permit.grow(response.body().len()) {
        return refuse(session, &upload::out_of_room(), close, head_only).await;
    }
    if write(session, response, close, head_only).await && !close { Next::Keep } else { Next::Close }
}

/// Asks the router on the control thread, if the tenant's share of this core's calls has room. What takes a credential away
/// needs none.
async fn ask(
    core: &Core,
    request: http::Request<Bytes>,
    terms: Terms,
    caller: Option<Caller>,
) -> http::Response<Bytes> {
    let api = &core.process.parts.api;
    let answered = if terms.urgent {
        api.call_urgently(request).await
    } else {
        match Underway::begin(core, caller.map(|caller| caller.tenant_id)) {
            Some(_underway) => api.call(request).await,
            None => Err(ApiError::Crowded),
        }
    };
    answered.unwrap_or_else(ApiError::into_response)
}

/// A call that counts against its tenant's share until it is answered.
struct Underway<'a> {
    core: &'a Core,
    tenant: Option<TenantId>,
}

impl<'a> Underway<'a> {
    fn begin(core: &'a Core, tenant: Option<TenantId>) -> Option<Self> {
        core.own_calls.borrow_mut().enter(tenant).then_some(Self { core, tenant })
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.core.own_calls.borrow_mut().leave(self.tenant);
    }
}

/// Own paths have a bucket beside that of proxied requests: whoever has used up the one can still read what became of it.
fn within_rate(core: &Core, terms: Terms, caller: Option<Caller>) -> Result<(), Refusal> {
    match caller.filter(|_| terms.limited) {
        Some(caller) => gate::within_rate(core, &core.settings(), &core.process.own_rates, caller.tenant_id),
        None => Ok(()),
    }
}

/// Reads the body. Strangers get no room in memory, and where a body means nothing it needs none.
async fn read_body(
    session: &mut Session,
    head: &RequestHead,
    reads_body: bool,
    permit: Permit,
) -> Result<upload::Whole, upload::NoBody> {
    let cap = session.core.settings().limits.max_api_request_bytes;
    if reads_body {
        return upload::read_whole(session, head, cap, "SERVICE_MAX_REQUEST_BYTES", Some(permit)).await;
    }
    match upload::read_whole(session, head, MEANINGLESS_BODY_BYTES_MAX, "", Some(permit)).await {
        Err(upload::NoBody::Refused(refusal)) if refusal.status == 413 => {
            let message = format!("{} {} takes no request body; send none", head.method(), head.path());
            Err(upload::NoBody::Refused(Refusal::new(413, "request_too_large", message).closing()))
        }
        other => other,
    }
}

async fn refuse(session: &mut Session, refusal: &Refusal, close: bool, head_only: bool) -> Next {
    session.said.reason = Some(refusal.error_type);
    let body = refusal.body(Dialect::ChatCompletions, weir_config::vocab::TraceId::fresh());
    let close = close || refusal.close || session.body_unread;
    let sent =
        session.send_own(refusal.status, &refusal.headers, "application/json", body.into(), close, head_only).await;
    if close && sent.is_ok() {
        session.linger().await;
    }
    if close || sent.is_err() { Next::Close } else { Next::Keep }
}

/// The caller, or why it gets no further; `None` for what everybody may ask.
fn admit(session: &Session, head: &RequestHead, terms: Terms, tries: u32) -> Result<Option<Caller>, Refusal> {
    let core = Rc::clone(&session.core);
    let Access::Role(needed) = terms.access else { return Ok(None) };
    let caller = door::caller(session, &door::presented(head), needed, Timestamp::now(), tries)?;
    door::refuse_exposed(&core, head)?;
    Ok(Some(caller))
}

/// The request as the router sees it: the caller in place of the credentials, which end here.
fn to_http(head: &RequestHead, target: &str, body: Bytes, caller: Option<Caller>) -> Option<http::Request<Bytes>> {
    let mut request = http::Request::builder().method(head.method()).uri(target);
    for field in head.fields().filter(|field| !IDENTITY_FIELDS.iter().any(|name| field.is(name))) {
        request = request.header(field.name_bytes(), field.value());
    }
    if let Some(caller) = caller {
        request = request.extension(caller);
    }
    request.body(body).ok()
}

async fn write(session: &mut Session, response: http::Response<Bytes>, close: bool, head_only: bool) -> bool {
    let (parts, mut body) = response.into_parts();
    if parts.status.is_client_error()
        && let Ok(text) = std::str::from_utf8(&body)
    {
        // A refusal may repeat what the client said, and that may be a credential in the wrong place.
        let mut text = text.to_owned();
        session.core.process.parts.guard.mask_text(&mut text);
        body = text.into();
    }
    // A long body goes out from where it lies, after its head: copying it would hold up every other call of this core.
    let joined = if head_only || body.len() > JOINED_BYTES_MAX { 0 } else { body.len() };
    let mut out = bytes::BytesMut::with_capacity(512 + joined);
    let status = parts.status.as_u16();
    session.said.status = status;
    session.said.bytes = if head_only { 0 } else { body.len() as u64 };
    session.said.reason = parts.extensions.get::<ErrorKind>().map(|kind| kind.0);
    let mut writer = HeadWriter::new(&mut out);
    writer.status_line(status, parts.status.canonical_reason().unwrap_or(canonical_reason(status)).as_bytes());
    for (name, value) in &parts.headers {
        if name != http::header::CONTENT_LENGTH && name != http::header::CONNECTION {
            writer.field(name.as_str(), value.as_bytes());
        }
    }
    if status != 204 && status != 304 {
        writer.field("content-length", body.len().to_string().as_bytes());
    }
    writer.field("date", super::date::http_date().as_bytes());
    page::let_read(&mut writer, session.page.as_ref());
    if close {
        writer.field("connection", b"close");
    }
    writer.end();
    out.extend_from_slice(body.get(..joined).unwrap_or_default());
    if session.send(out.freeze()).await.is_err() {
        return false;
    }
    head_only || joined == body.len() || session.send(body).await.is_ok()
}
