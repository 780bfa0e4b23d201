//! Paths Weir answers itself: the request goes to the control thread's router and its answer comes back. Probes are answered
//! here, on the core, whatever keeps the control thread busy.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use weir_config::vocab::{Dialect, Role, TraceId};

use super::asking::{admit, ask, begin_head, end_head, to_http};
use super::authenticate::{self, Approach};
use super::lines::Lines;
use super::{admit_request, preflight};
use crate::admit::web::Path;
use crate::client::body::{BodyCap, NoBody, Whole, is_at_hand, out_of_room, read_whole};
use crate::client::own_answer::{End, Refused};
use crate::client::session::{Next, Session};
use crate::control::{
    ErrorKind, Further, NOT_TAKEN, REPORTS, Terms, is_exporter, is_own_path, is_untaken_report, probe,
};
use crate::exchange::{Caller, Refusal, ReportEncoding};
use crate::process::{Core, HEALTH, Process};
use crate::record::Permit;
use crate::wire::RequestHead;

/// Paths that say whether the gateway works.
const PROBES: [&str; 3] = [HEALTH, "/livez", "/readyz"];

/// Longest body of a request that needs none, and of one that anybody may make.
const MEANINGLESS_BODY_BYTES_MAX: u64 = 4 * 1024;

/// Longest body that is copied behind its head, to leave in one write with it.
const JOINED_BYTES_MAX: usize = 8 * 1024;

/// Whether Weir answers this request itself. A moved health report leaves its path to the provider.
pub(crate) fn is_ours(process: &Process, head: &RequestHead) -> bool {
    let path = head.path();
    let is_own = match process.moved_health() {
        None => is_own_path(path),
        Some(moved) => path == moved || path != HEALTH && is_own_path(path),
    };
    is_own || is_stray_report(process, head)
}

/// Whether it is a report of a kind, or at a path, that is not taken in. Where spans are, no exporter's request goes to the provider.
fn is_stray_report(process: &Process, head: &RequestHead) -> bool {
    process.takes_spans() && (is_untaken_report(head.path()) || head.get("user-agent").is_some_and(is_exporter))
}

/// The path as the router knows it.
fn known_as<'a>(process: &Process, path: &'a str) -> &'a str {
    if process.moved_health() == Some(path) { HEALTH } else { path }
}

/// The answer to a report that is not taken in: the provider never gets it, and the exporter's log says what to change.
fn stray_report(path: &str) -> Refusal {
    let message = format!(
        "`otel_ingest` takes spans at {REPORTS} (OTLP/HTTP) and nothing at `{path}`; for spans set \
         OTEL_EXPORTER_OTLP_TRACES_ENDPOINT to this gateway's {REPORTS}, switch the other exporters off \
         (OTEL_METRICS_EXPORTER=none, OTEL_LOGS_EXPORTER=none), or give them an endpoint of their own \
         (OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, OTEL_EXPORTER_OTLP_LOGS_ENDPOINT)"
    );
    not_there(message)
}

fn not_there(message: impl Into<String>) -> Refusal {
    Refusal::new(404, "not_found", message).header("Cache-Control", "no-store")
}

/// A refusal as the sender reads it, and its `Content-Type`: exporters read another form than clients of models.
fn refusal_body(head: &RequestHead, refusal: &Refusal) -> (Bytes, &'static str) {
    let error = refusal.body(Dialect::DEFAULT, TraceId::fresh());
    let is_report = head.path() == REPORTS || !is_own_path(head.path());
    let encoding = ReportEncoding::of(head.get("content-type")).filter(|_| is_report);
    match encoding {
        Some(encoding) => (encoding.refusal(refusal.status, &refusal.message, &error).into(), encoding.media_type()),
        None => (error.into(), ReportEncoding::Json.media_type()),
    }
}

/// Answers one request to our own API.
pub(crate) async fn answer(session: &mut Session, head: RequestHead) -> Next {
    let close = !head.keep_alive || session.core.process.is_draining();
    let head_only = head.method() == "HEAD";
    let core = Rc::clone(&session.core);
    let path = known_as(&core.process, head.path());
    if !is_own_path(path) {
        // No page is let read it: nobody has looked at where it comes from.
        session.page = None;
        return turn_away(session, &head, &stray_report(path)).await;
    }
    let terms = (core.process.parts.edge.terms)(head.method(), path);
    let presented = authenticate::presented(&head);
    if path == REPORTS
        && let Some(refusal) = authenticate::reports_turned_away(session)
    {
        return turn_away(session, &head, &refusal).await;
    }
    let path = if PROBES.contains(&path) { Path::Probe } else { Path::Own };
    let admitted = match authenticate::approach(session, &head, &presented, path, &core.settings()).await {
        Approach::Continue { tries } => admit(session, &head, terms, tries),
        Approach::Preflight => return preflight::answer(session, &head).await,
        Approach::Refused(refusal) => Err(refusal),
    };
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(refusal) => return turn_away(session, &head, &refusal).await,
    };
    session.said.tenant_id = admitted.map(|caller| caller.tenant_id);
    if let Err(refusal) = within_rate(&core, terms, admitted) {
        return turn_away(session, &head, &refusal).await;
    }
    if head.path() == REPORTS && !core.process.takes_spans() {
        // By its head, however large it is.
        return turn_away(session, &head, &not_there(NOT_TAKEN)).await;
    }
    let at_hand = is_at_hand(session, head.body);
    session.begin_body(head.body);
    let bodies =
        core.process.bodies.own(admitted.filter(|caller| caller.role != Role::Admin).map(|caller| caller.tenant_id));
    let reads_body = admitted.is_some() && matches!(head.method(), "POST" | "PUT" | "PATCH");
    let Whole { body, permit: _held } = match read_body(session, &head, terms, reads_body, bodies.permit()).await {
        Ok(whole) => whole,
        Err(NoBody::ClientLeft) => return Next::Close,
        Err(NoBody::Refused(refusal)) => return refuse(session, &head, &refusal).await,
    };
    // A body may take minutes to come, and the credential may have been taken away meanwhile.
    let admitted = match if at_hand { Ok(admitted) } else { admit(session, &head, terms, 0) } {
        Ok(admitted) => admitted,
        Err(refusal) => return refuse(session, &head, &refusal).await,
    };
    let path = known_as(&core.process, head.path());
    if let Some(response) = probe(&core.process.parts.edge.health, head.method(), path) {
        let sent = write(session, response, close, head_only).await;
        return session.end(End::of(sent, close)).await;
    }
    // A health report takes no query, so that the path is all of a moved target.
    let target = if core.process.moved_health() == Some(head.path()) { HEALTH } else { head.target() };
    let Some(request) = to_http(&head, target, body, admitted) else {
        let refusal = Refusal::new(400, "invalid_request", "the request target is not a valid URI");
        return refuse(session, &head, &refusal).await;
    };
    let response = match ask(&core, request, terms, admitted).await {
        Ok(response) => response,
        Err(error) => return refuse(session, &head, &error.refusal()).await,
    };
    // Answers stay in memory for as long as the client takes to read them.
    let mut permit = bodies.permit();
    if !permit.grow(response.body().len()) {
        return refuse(session, &head, &out_of_room()).await;
    }
    if let Some(further) = response.extensions().get::<Further>().cloned() {
        let list = Lines { head: &head, target, terms, bodies: &bodies, close, head_only };
        return list.send(session, response, permit, further).await;
    }
    let sent = write(session, response, close, head_only).await;
    session.end(End::of(sent, close)).await
}

/// Own paths have a bucket beside that of proxied requests: whoever has used up the one can still read what became of it.
fn within_rate(core: &Core, terms: Terms, caller: Option<Caller>) -> Result<(), Refusal> {
    match caller.filter(|_| terms.limited) {
        Some(caller) => {
            let settings = core.settings();
            core.process.caller_within_key_rate(&settings, &caller)?;
            admit_request::within_rate(core, &settings, &core.process.own_rates, caller.tenant_id)
        }
        None => Ok(()),
    }
}

/// Reads the body. Strangers get no room in memory, and where a body means nothing it needs none.
async fn read_body(
    session: &mut Session,
    head: &RequestHead,
    terms: Terms,
    reads_body: bool,
    permit: Permit,
) -> Result<Whole, NoBody> {
    let bytes = session.core.settings().limits.max_api_request_bytes;
    if reads_body {
        let cap = match terms.body_bytes_max {
            Some(bytes) => BodyCap { bytes, setting: "" },
            None => BodyCap { bytes, setting: "SERVICE_MAX_REQUEST_BYTES" },
        };
        return read_whole(session, head, cap, Some(permit)).await;
    }
    let cap = BodyCap { bytes: MEANINGLESS_BODY_BYTES_MAX, setting: "" };
    match read_whole(session, head, cap, Some(permit)).await {
        Err(NoBody::Refused(refusal)) if refusal.status == 413 => {
            let message = format!("{} {} takes no request body; send none", head.method(), head.path());
            Err(NoBody::Refused(Refusal::new(413, "request_too_large", message).closing()))
        }
        other => other,
    }
}

/// Refuses a request whose body has not been read.
async fn turn_away(session: &mut Session, head: &RequestHead, refusal: &Refusal) -> Next {
    session.begin_body(head.body);
    refuse(session, head, refusal).await
}

/// Refuses a request whose body has been read, or has begun to be.
async fn refuse(session: &mut Session, head: &RequestHead, refusal: &Refusal) -> Next {
    let (body, content_type) = refusal_body(head, refusal);
    let behind = session.behind(head, Some(refusal));
    session.refuse(Refused { refusal, body, content_type, trace_id: None, behind }, |_| ()).await
}

async fn write(session: &mut Session, response: http::Response<Bytes>, close: bool, head_only: bool) -> bool {
    let (parts, mut body) = response.into_parts();
    if parts.status.is_client_error()
        && let Ok(text) = std::str::from_utf8(&body)
    {
        // A refusal may repeat what the client said, and that may be a credential in the wrong place.
        let mut text = text.to_owned();
        session.core.process.parts.policy.redaction.mask_text(&mut text);
        body = text.into();
    }
    // A long body goes out from where it lies, after its head: copying it would hold up every other call of this core.
    let joined = if head_only || body.len() > JOINED_BYTES_MAX { 0 } else { body.len() };
    let mut out = BytesMut::with_capacity(512 + joined);
    let status = parts.status.as_u16();
    session.said.status = status;
    session.said.bytes = if head_only { 0 } else { body.len() as u64 };
    session.said.reason = parts.extensions.get::<ErrorKind>().map(|kind| kind.0);
    let mut writer = begin_head(&mut out, &parts);
    if status != 204 && status != 304 {
        writer.field("content-length", body.len().to_string().as_bytes());
    }
    end_head(writer, session, close);
    out.extend_from_slice(body.get(..joined).unwrap_or_default());
    if session.send(out.freeze()).await.is_err() {
        return false;
    }
    head_only || joined == body.len() || session.send(body).await.is_ok()
}
