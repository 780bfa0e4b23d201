//! One proxied exchange from its head to its end, stage by stage. `run` reads like the picture in `exchange`.

use std::rc::Rc;

use bytes::Bytes;
use weir_config::vocab::{Role, Timestamp};

use super::admit_request::admit;
use super::allow::allow;
use super::authenticate::{self, Approach};
use super::caps::hold_to_caps;
use super::decide::enforce;
use super::exchange::{Exchange, Stop, Stopped};
use super::forward::forward;
use super::look::inspect;
use super::operations::permit;
use super::outside;
use super::parse::{Facts, Parsed, parse};
use super::preflight;
use super::rewrite_request::rewrite;
use super::steer::route;
use crate::admit::Denied;
use crate::admit::web::Path;
use crate::client::own_answer::{JSON, OwnAnswer, Refused};
use crate::client::session::{Next, Session};
use crate::exchange::{ALLOW, Moments, Refusal};
use crate::wire::RequestHead;

/// Serves one proxied request.
pub(crate) async fn exchange(session: &mut Session, head: Box<RequestHead>) -> Next {
    let core = Rc::clone(&session.core);
    let settings = core.settings();
    let moments = Moments::now();
    let start_time = Timestamp::now();
    let presented = authenticate::presented(&head);
    let tries = match authenticate::approach(session, &head, &presented, Path::Proxied, &settings).await {
        Approach::Continue { tries } => tries,
        Approach::Preflight => return preflight::answer(session, &head).await,
        Approach::Refused(refusal) => {
            let route = route(&settings.upstream.host, &head);
            let refusal = authenticate::in_terms_of(&settings, &head, refusal);
            return authenticate::refuse_stranger(session, &head, &route, &refusal, moments).await;
        }
    };
    let (caller, denied) = match authenticate::caller(session, &presented, Role::Operator, start_time, tries) {
        Ok(caller) => (caller, None),
        Err(denied) => match denied.caller() {
            Some(caller) => (caller, Some(denied)),
            None => {
                let route = route(&settings.upstream.host, &head);
                return authenticate::refuse_stranger(session, &head, &route, &denied.into(), moments).await;
            }
        },
    };
    let (body, facts) = (head.body, Facts { caller, start_time, moments, address: session.address() });
    let parsed = parse(&core, &settings, facts, head);
    session.begin_body(body);
    let _serving = session.connection_caller.serve();
    match run(session, parsed, denied).await {
        Ok(next) => next,
        Err(Stopped { mut exchange, why: Stop::ClientLeft }) => {
            exchange.journal.cut_off(session.connection_caller.is_over());
            Next::Close
        }
        Err(Stopped { exchange, why: Stop::Refused(refusal) }) => {
            let opens_websocket = exchange.head.upgrade_websocket;
            let refusal =
                if exchange.journal.client_retries() { refusal.for_retrying(opens_websocket) } else { refusal };
            refuse(session, exchange, &refusal).await
        }
    }
}

/// The journey.
async fn run(session: &mut Session, parsed: Parsed, denied: Option<Denied>) -> Result<Next, Stopped> {
    let core = Rc::clone(&session.core);
    let admitted = admit(&core, parsed, denied)?;
    if admitted.travels_no_further() {
        return Ok(answer_options(session, admitted.into_exchange()).await);
    }
    let inspected = inspect(session, admitted).await?;
    let allowed = allow(inspected)?;
    let permitted = permit(&core, allowed).await?;
    let heard = outside::hear(&core, permitted).await?;
    let enforced = enforce(heard)?;
    let affordable = hold_to_caps(&core, enforced)?;
    let ready = rewrite(&core, affordable);
    forward(session, ready).await
}

/// Answers an OPTIONS request whose `Max-Forwards` is used up (RFC 9110 section 7.6.2).
async fn answer_options(session: &mut Session, mut exchange: Box<Exchange>) -> Next {
    let behind = session.behind(&exchange.head, None);
    exchange.journal.answered(200);
    let fields = [("Allow", ALLOW.to_owned()), ("X-Service-Trace-Id", exchange.journal.trace_id().to_string())];
    let (content_type, body) = ("text/plain", Bytes::new());
    let answer = OwnAnswer { status: 200, fields: &fields, content_type, body, behind };
    session.answer(answer, |_| drop(exchange)).await
}

/// Answers with a refusal in the shape of the dialect.
async fn refuse(session: &mut Session, mut exchange: Box<Exchange>, refusal: &Refusal) -> Next {
    let behind = session.behind(&exchange.head, Some(refusal));
    let trace_id = exchange.journal.trace_id();
    let body = Bytes::from(refusal.body(exchange.route.dialect, trace_id));
    exchange.journal.refused(refusal, if behind.head_only { 0 } else { body.len() as u64 });
    session
        .refuse(Refused { refusal, body, content_type: JSON, trace_id: Some(trace_id), behind }, |_| drop(exchange))
        .await
}
