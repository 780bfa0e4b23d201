//! The stage that names an exchange, from its head alone.

use std::net::IpAddr;
use std::rc::Rc;

use uuid::Uuid;
use weir_config::Settings;
use weir_config::vocab::{Operation, SpanId, Timestamp, TraceId};

use super::credentials;
use super::exchange::Exchange;
use super::speaks::Speaks;
use super::steer::{self, Named, path_model};
use crate::enforce::can_block;
use crate::exchange::{Caller, Moments, Proof, Skip, TraceContext};
use crate::inspect::{self, Sender};
use crate::limits::INLINE_TEXT_BYTES_MAX;
use crate::ops::exchanges::SHOWN_BYTES_MAX;
use crate::process::{Core, InEffect};
use crate::record::CallIds;
use crate::settle::journal::{Journal, Opening};
use crate::wire::{RequestBody, RequestHead};

/// A request whose head is well-formed, and whose sender is known.
pub(super) struct Parsed(Box<Exchange>);

impl Parsed {
    pub(super) fn into_exchange(self) -> Box<Exchange> {
        self.0
    }
}

/// What is known of a request beside its head.
pub(super) struct Facts {
    pub(super) caller: Caller,
    pub(super) start_time: Timestamp,
    pub(super) moments: Moments,
    pub(super) address: IpAddr,
}

/// Names the exchange: where it goes, whose it is, under which ids.
pub(super) fn parse(core: &Rc<Core>, settings: &Rc<InEffect>, facts: Facts, mut head: Box<RequestHead>) -> Parsed {
    let Facts { caller, start_time, moments, address } = facts;
    let tenant_id = caller.tenant_id;
    let key = if let Proof::Key(id) = caller.proof { Some(id) } else { None };
    let allowed = core.process.parts.policy.access.of(tenant_id, key).map(Box::new);
    // Anybody may name a tenant while nobody has to prove it.
    let is_proven = caller.proof != Proof::Open;
    let own_keys = if is_proven { core.process.parts.policy.provider_keys.of(tenant_id) } else { None };
    let chosen = steer::at_first(&settings.local_upstreams, &mut head);
    let Named { route, priced_as } = steer::named(settings, &head, &chosen);
    let trace = head.get("traceparent").and_then(TraceContext::parse);
    let mut agent_id = head.get("x-service-agent-id").map(|value| bounded_text(value, 256));
    if let Some(agent) = &mut agent_id {
        // Spend is kept by it.
        core.process.parts.policy.redaction.mask_text(agent);
    }
    let sender = Sender::read(head.fields().map(|field| (field.name_bytes(), field.value())));
    let trace_id = trace.map_or_else(|| TraceId::fresh_at(start_time), |trace| trace.trace_id);
    let speaks = head.upgrade_websocket.then(|| Speaks::of(&head)).flatten();
    let ids = CallIds {
        tenant_id,
        trace_id,
        // Inside a caller's trace the id has to survive the 8 bytes that W3C trace context carries.
        span_id: if trace.is_some() { fresh_w3c_span() } else { SpanId::of_lone(trace_id) },
        parent_span_id: trace.map(|trace| trace.parent),
        agent_id,
        session_id: sender.session_id,
        client: sender.client,
        provider: route.provider.clone(),
        priced_as,
        operation: speaks.map_or(route.operation, Speaks::operation),
        path_model: path_model(&head),
        start_time,
    };
    let (skip, storable) = admission(core, settings, &head);
    let retrieval = inspect::retrieves_response(head.method(), head.path());
    let billable = bills(&head, route.operation) && !retrieval;
    let results = inspect::fetched_results(head.method(), head.path());
    let (dialect, line) = (route.dialect, head.line());
    let opening =
        Opening { ids, source: address, dialect, moments, line, billable, retrieval, results, skip, storable };
    let mut journal = Journal::open(core, settings, opening);
    for (name, value) in sender.tags {
        journal.tag(name, value);
    }
    if route.operation == Operation::Proxy {
        journal.tag("path", shown_path(core, &head));
    }
    let (is_lent, makes, is_decoded) = (false, None, false);
    let mut exchange = Box::new(Exchange {
        head,
        route,
        chosen,
        member: 0,
        key,
        allowed,
        is_lent,
        makes,
        own_keys,
        trace,
        is_decoded,
        journal,
    });
    exchange.is_lent = credentials::is_lent(core, &exchange);
    exchange.journal.doubts_agent = exchange.allowed.as_ref().is_some_and(|allowed| allowed.limits_key());
    Parsed(exchange)
}

/// What an operation that has no name of its own was, for its record: the path without the query.
fn shown_path(core: &Core, head: &RequestHead) -> String {
    let path = head.path();
    if core.process.parts.policy.redaction.is_exposed(path) {
        return "(holds a credential)".to_owned();
    }
    bounded_text(path.as_bytes(), SHOWN_BYTES_MAX)
}

pub(super) fn fresh_w3c_span() -> SpanId {
    let (_, low) = Uuid::new_v4().as_u64_pair();
    SpanId::from_w3c(low.max(1).to_be_bytes())
}

fn bounded_text(value: &[u8], bytes_max: usize) -> String {
    String::from_utf8_lossy(value.get(..bytes_max).unwrap_or(value)).into_owned()
}

/// Why analysis will not take place at all, if so, and whether the breakers let the record be stored.
pub(super) fn admission(core: &Core, settings: &Settings, head: &RequestHead) -> (Option<Skip>, bool) {
    let granted = core.process.parts.policy.breakers.grant();
    // Blocking goes on for short texts while the pool is in trouble, since the core inspects them itself.
    let goes_on = || {
        let breakers = &core.process.parts.policy.breakers;
        let is_short = matches!(head.body, RequestBody::Length(length) if length <= INLINE_TEXT_BYTES_MAX as u64);
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

/// Whether providers charge for a request like this one: what is posted, and whatever brings a body to where a model answers,
/// under any method they may let pass for it.
pub(super) fn bills(head: &RequestHead, operation: Operation) -> bool {
    let answers = !matches!(operation, Operation::Proxy | Operation::ListModels);
    head.method() == "POST" || answers && head.body != RequestBody::Empty || head.method().eq_ignore_ascii_case("POST")
}
