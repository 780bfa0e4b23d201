//! One proxied exchange from its head to its end, stage by stage. This file reads like the picture in `exchange`.

use std::rc::Rc;

use bytes::Bytes;
use uuid::Uuid;
use weir_config::Settings;
use weir_config::vocab::{Dialect, Operation, Provider, Role, SpanId, Timestamp, TraceId};

use super::act::{enforce, rewrite};
use super::capped::{bills, hold_to_caps};
use super::door::{self, Approach};
use super::forward::forward;
use super::gate::admit;
use super::ledger::Ledger;
use super::look::inspect;
use super::session::{Next, Session};
use super::upload::NoBody;
use super::{Core, page, target};
use crate::admit::Denied;
use crate::admit::web::Path;
use crate::enforce::can_block;
use crate::exchange::{Caller, Moments, Parsed, Proof, Refusal, Skip, TraceContext};
use crate::inspect;
use crate::record::Identity;
use crate::wire::{Fault, RequestBody, RequestHead};

/// Why an exchange ends before the provider's answer is relayed.
pub(crate) enum Stop {
    /// Weir says no.
    Refused(Refusal),
    /// Nobody is there to be told.
    ClientLeft,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<NoBody> for Stop {
    fn from(error: NoBody) -> Self {
        match error {
            NoBody::ClientLeft => Self::ClientLeft,
            NoBody::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

/// The methods of every target.
pub(super) const ALLOW: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// The refusal a framing fault earns.
pub(crate) fn fault_refusal(fault: &Fault) -> Refusal {
    let error_type = match fault.status() {
        405 => "method_not_allowed",
        413 => "request_too_large",
        _ => "invalid_request",
    };
    let refusal = Refusal::new(fault.status(), error_type, fault.message()).closing();
    if fault.status() == 405 { refusal.header("Allow", ALLOW) } else { refusal }
}

/// Serves one proxied request.
pub(crate) async fn exchange(session: &mut Session, head: RequestHead) -> Next {
    let core = Rc::clone(&session.core);
    let settings = core.settings();
    let moments = Moments::now();
    let start_time = Timestamp::now();
    let presented = door::presented(&head);
    let tries = match door::approach(session, &head, &presented, Path::Proxied, &settings).await {
        Approach::Nearer { tries } => tries,
        Approach::Preflight => return page::answer_preflight(session, &head).await,
        Approach::Refused(refusal) => {
            let route = route(&settings, &head);
            return door::refuse_stranger(session, &head, &route, &refusal, moments).await;
        }
    };
    let (caller, denied) = match door::caller(session, &presented, Role::Operator, start_time, tries) {
        Ok(caller) => (caller, None),
        Err(denied) => match denied.tenant() {
            Some(tenant_id) => (Caller { tenant_id, role: Role::Viewer, proof: Proof::Open }, Some(denied)),
            None => {
                let route = route(&settings, &head);
                return door::refuse_stranger(session, &head, &route, &denied.into(), moments).await;
            }
        },
    };
    let line = head.line();
    let mut parsed = parse(&settings, caller, start_time, head);
    if let Some(agent) = &mut parsed.identity.agent_id {
        // Spend is kept by it.
        core.process.parts.guard.mask_text(agent);
    }
    let (skip, storage) = admission(&core, &settings, &parsed.head);
    let (dialect, body, keep_alive) = (parsed.dialect(), parsed.head.body, parsed.head.keep_alive);
    let head_only = parsed.head.method() == "HEAD";
    let mut ledger = Ledger::open(&core, &settings, moments, &parsed.identity, dialect, (skip, storage));
    ledger.told.line = Some(line);
    ledger.retrieval = inspect::retrieves_response(parsed.head.method(), parsed.head.path());
    ledger.billable = bills(&parsed.head, parsed.route.operation) && !ledger.retrieval;
    session.begin_body(body);
    let _serving = session.tenure.serve();
    match run(session, &settings, parsed, denied, &mut ledger).await {
        Ok(next) => next,
        Err(Stop::ClientLeft) => {
            ledger.cut_off(session.tenure.is_over());
            Next::Close
        }
        Err(Stop::Refused(refusal)) => {
            skip_body(session, body);
            let close = refusal.close || session.body_unread || !keep_alive || core.process.is_draining();
            refuse(session, &mut ledger, dialect, &refusal, close, head_only).await
        }
    }
}

/// The journey.
async fn run(
    session: &mut Session,
    settings: &Settings,
    parsed: Box<Parsed>,
    denied: Option<Denied>,
    ledger: &mut Ledger,
) -> Result<Next, Stop> {
    if let Some(denied) = denied {
        return Err(Refusal::from(denied).into());
    }
    let core = Rc::clone(&session.core);
    door::refuse_exposed(&core, &parsed.head)?;
    let hops_left = target::hops_left(&parsed.head)?;
    let admitted = admit(&core, settings, parsed)?;
    if hops_left == Some(0) {
        return Ok(answer_options(session, &admitted.0.head, ledger).await);
    }
    let inspected = inspect(session, settings, admitted, ledger).await?;
    let enforced = enforce(settings, inspected, ledger)?;
    let affordable = hold_to_caps(&core, settings, enforced, ledger)?;
    let ready = rewrite(settings, affordable, ledger);
    forward(session, settings, ready, ledger).await
}

// === parse ===

/// Names the exchange: where it goes, whose it is, under which ids.
fn parse(settings: &Settings, caller: Caller, start_time: Timestamp, head: RequestHead) -> Box<Parsed> {
    let route = route(settings, &head);
    let trace = head.get("traceparent").and_then(TraceContext::parse);
    let identity = Identity {
        tenant_id: caller.tenant_id,
        trace_id: trace.map_or_else(|| TraceId::fresh_at(start_time), |trace| trace.trace_id),
        // Inside a caller's trace the id has to survive the 8 bytes that W3C trace context carries.
        span_id: if trace.is_some() { fresh_w3c_span() } else { SpanId::fresh_at(start_time) },
        parent_span_id: trace.map(|trace| trace.parent),
        agent_id: head.get("x-service-agent-id").map(|value| bounded_text(value, 256)),
        provider: route.provider.clone(),
        priced_as: priced_as(settings, &head),
        operation: route.operation,
        path_model: path_model(&head),
        start_time,
    };
    // Boxed: it travels by value through every stage, and a head is some hundred bytes.
    Box::new(Parsed { head, route, caller, identity, trace })
}

fn path_model(head: &RequestHead) -> Option<String> {
    let path = head.path();
    inspect::model_in_path(path).or_else(|| inspect::model_in_query(path, head.query()))
}

fn route(settings: &Settings, head: &RequestHead) -> inspect::Route {
    let forced = head.get("x-service-provider").and_then(|value| std::str::from_utf8(value).ok());
    let mut route = inspect::route(forced, head.path(), &settings.upstream.host);
    // `/v1/models` and `/v1/files` are several providers' paths; only the clients of one say which version they speak.
    if matches!(route.operation, Operation::ListModels | Operation::Proxy)
        && route.provider == Provider::OPENAI
        && forced.is_none()
        && head.get("anthropic-version").is_some()
    {
        (route.provider, route.dialect) = (Provider::ANTHROPIC, Dialect::Messages);
    }
    route
}

/// Whose prices hold where that is not the route's provider: a client with a credential says who answers, not what it costs.
fn priced_as(settings: &Settings, head: &RequestHead) -> Option<Provider> {
    let trusted = !settings.auth.enabled || settings.cost_estimation.trust_provider_header;
    (!trusted && head.get("x-service-provider").is_some())
        .then(|| inspect::route(None, head.path(), &settings.upstream.host).provider)
}

fn fresh_w3c_span() -> SpanId {
    let (_, low) = Uuid::new_v4().as_u64_pair();
    SpanId::from_w3c(low.max(1).to_be_bytes())
}

fn bounded_text(value: &[u8], bytes_max: usize) -> String {
    String::from_utf8_lossy(value.get(..bytes_max).unwrap_or(value)).into_owned()
}

/// Why analysis will not take place at all, if so, and whether the breakers let the record be stored.
fn admission(core: &Core, settings: &Settings, head: &RequestHead) -> (Option<Skip>, bool) {
    let granted = core.process.parts.breakers.grant();
    // What blocks goes on with short texts, which the core looks at by itself: the pool's trouble is none of theirs.
    let goes_on = || {
        let breakers = &core.process.parts.breakers;
        let is_short =
            matches!(head.body, RequestBody::Length(length) if length <= super::INLINE_TEXT_BYTES_MAX as u64);
        is_short
            && can_block(&settings.enforcement)
            && breakers.security.refuses()
            && !breakers.storage.refuses()
            && head.get_all("content-encoding").next().is_none()
    };
    let skip = if !granted.analysis && !goes_on() {
        Some(Skip::BreakerOpen)
    } else if !settings.enable_security_analysis {
        Some(Skip::Disabled)
    } else {
        None
    };
    (skip, granted.storage)
}

/// An OPTIONS that may travel no further is answered by whom it has reached (RFC 9110 section 7.6.2).
async fn answer_options(session: &mut Session, head: &RequestHead, ledger: &mut Ledger) -> Next {
    skip_body(session, head.body);
    let close = session.body_unread || !head.keep_alive || session.core.process.is_draining();
    ledger.answered(200);
    let headers = [("Allow", ALLOW.to_owned()), ("X-Service-Trace-Id", ledger.trace_id.to_string())];
    let sent = session.send_own(200, &headers, "text/plain", Bytes::new(), close, false).await;
    if close && sent.is_ok() {
        ledger.settle();
        session.linger().await;
    }
    if close || sent.is_err() { Next::Close } else { Next::Keep }
}

// === refuse ===

/// Answers with a refusal in the shape of the dialect.
async fn refuse(
    session: &mut Session,
    ledger: &mut Ledger,
    dialect: Dialect,
    refusal: &Refusal,
    close: bool,
    head_only: bool,
) -> Next {
    ledger.refused(refusal);
    let body = refusal.body(dialect, ledger.trace_id);
    ledger.told.bytes = if head_only { 0 } else { body.len() as u64 };
    let mut headers = refusal.headers.clone();
    headers.push(("X-Service-Trace-Id", ledger.trace_id.to_string()));
    let sent = session.send_own(refusal.status, &headers, "application/json", body.into(), close, head_only).await;
    if close && sent.is_ok() {
        ledger.settle();
        session.linger().await;
    }
    if close || sent.is_err() { Next::Close } else { Next::Keep }
}

/// Drops a refused request's body if all of it has arrived already, so that the connection can go on.
pub(super) fn skip_body(session: &mut Session, body: RequestBody) {
    if let RequestBody::Length(length) = body
        && session.body_unread
        && !session.body_begun()
        && let Ok(length) = usize::try_from(length)
        && session.buf.len() >= length
    {
        bytes::Buf::advance(&mut session.buf, length);
        session.body_unread = false;
    }
}
