//! Asking the router for what a caller of our own paths wants, and the head of its answer.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use weir_config::vocab::{TenantId, Timestamp};

use super::authenticate;
use crate::client::page;
use crate::client::session::Session;
use crate::control::{Access, ApiError, Terms};
use crate::exchange::{Caller, Refusal};
use crate::process::Core;
use crate::wire::{HeadWriter, RequestHead, canonical_reason};

/// Fields with credentials; what they say is in [`Caller`].
const IDENTITY_FIELDS: [&str; 5] = ["authorization", "x-api-key", "api-key", "x-service-token", "x-service-tenant-id"];

/// Asks the router on the control thread, if the tenant's share of this core's calls has room. What takes a credential away
/// needs none.
pub(super) async fn ask(
    core: &Core,
    request: http::Request<Bytes>,
    terms: Terms,
    caller: Option<Caller>,
) -> Result<http::Response<Bytes>, ApiError> {
    let api = &core.process.parts.edge.api;
    if terms.urgent {
        return api.call_urgently(request).await;
    }
    match Underway::begin(core, caller.map(|caller| caller.tenant_id)) {
        Some(_underway) => api.call(request).await,
        None => Err(ApiError::Crowded),
    }
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

/// The caller, or why it gets no further; `None` for what everybody may ask.
pub(super) fn admit(
    session: &Session,
    head: &RequestHead,
    terms: Terms,
    tries: u32,
) -> Result<Option<Caller>, Refusal> {
    let core = Rc::clone(&session.core);
    let Access::Role(needed) = terms.access else { return Ok(None) };
    let caller = authenticate::caller(session, &authenticate::presented(head), needed, Timestamp::now(), tries)?;
    authenticate::refuse_exposed(&core, head)?;
    Ok(Some(caller))
}

/// The request as the router sees it: the caller in place of the credentials, which end here.
pub(super) fn to_http(
    head: &RequestHead,
    target: &str,
    body: Bytes,
    caller: Option<Caller>,
) -> Option<http::Request<Bytes>> {
    let mut request = http::Request::builder().method(head.method()).uri(target);
    for field in head.fields().filter(|field| !IDENTITY_FIELDS.iter().any(|name| field.is(name))) {
        request = request.header(field.name_bytes(), field.value());
    }
    if let Some(caller) = caller {
        request = request.extension(caller);
    }
    request.body(body).ok()
}

/// The status line and the fields that the router gave, those about framing left out.
pub(super) fn begin_head<'a>(out: &'a mut BytesMut, parts: &http::response::Parts) -> HeadWriter<'a, BytesMut> {
    let mut writer = HeadWriter::new(out);
    let status = parts.status.as_u16();
    writer.status_line(status, parts.status.canonical_reason().unwrap_or(canonical_reason(status)).as_bytes());
    for (name, value) in &parts.headers {
        if name != http::header::CONTENT_LENGTH && name != http::header::CONNECTION {
            writer.field(name.as_str(), value.as_bytes());
        }
    }
    writer
}

/// The fields every answer of our own ends with.
pub(super) fn end_head(mut writer: HeadWriter<'_, BytesMut>, session: &Session, close: bool) {
    writer.field("date", crate::client::date::http_date().as_bytes());
    page::let_read(&mut writer, session.page.as_ref());
    if close {
        writer.field("connection", b"close");
    }
    writer.end();
}
