//! The stage that lets a request in, cheapest question first: no loop, not declared too large, within its rate. What is
//! admitted has a known owner and may cost something from here on. Reads no body and knows no text.

use weir_config::Settings;
use weir_config::vocab::TenantId;

use super::exchange::{Exchange, Stopped};
use super::parse::Parsed;
use super::{authenticate, steer, target, websocket};
use crate::admit::Denied;
use crate::admit::rate::{self, RateTable, Verdict};
use crate::client::body::BodyCap;
use crate::exchange::Refusal;
use crate::process::Core;
use crate::wire::RequestHead;

/// A request that may be sent: known caller, within its rate, not declared too large.
pub(super) struct Admitted {
    exchange: Box<Exchange>,
    /// Of an OPTIONS: how many more hops it may make.
    hops_left: Option<u64>,
}

impl Admitted {
    /// Whether Weir answers it, because its `Max-Forwards` is used up.
    pub(super) fn travels_no_further(&self) -> bool {
        self.hops_left == Some(0)
    }

    pub(super) fn into_exchange(self) -> Box<Exchange> {
        self.exchange
    }
}

/// Lets it in, unless its sender has been denied already or something else speaks against it.
pub(super) fn admit(core: &Core, parsed: Parsed, denied: Option<Denied>) -> Result<Admitted, Stopped> {
    let exchange = parsed.into_exchange();
    let judged = match denied {
        Some(denied) => Err(Refusal::from(denied)),
        None => judge(core, &exchange),
    };
    exchange.then(judged, |exchange, hops_left| Admitted { exchange, hops_left })
}

fn judge(core: &Core, exchange: &Exchange) -> Result<Option<u64>, Refusal> {
    let (head, settings) = (&exchange.head, &exchange.journal.settings);
    authenticate::refuse_exposed(core, head)?;
    steer::refuse_unknown(settings, exchange)?;
    let hops_left = target::hops_left(head)?;
    refuse_loop(core, head)?;
    target::check_authority(head, core.process.parts.edge.listen)?;
    if head.upgrade_websocket {
        websocket::check_allowed(settings, head)?;
        websocket::check_handshake(head)?;
    }
    BodyCap::of(settings).check_declared(head.body)?;
    key_within_rate(core, exchange)?;
    within_rate(core, settings, &core.process.rates, exchange.journal.ids.tenant_id)?;
    Ok(hops_left)
}

/// Whether one more turn of a WebSocket is within the rates of its sender.
pub(super) fn turn_within_rates(core: &Core, exchange: &Exchange) -> Result<(), Refusal> {
    key_within_rate(core, exchange)?;
    within_rate(core, &exchange.journal.settings, &core.process.rates, exchange.journal.ids.tenant_id)
}

/// Takes one request from the bucket of the sender's key, where it has one: before the tenant's, so that a key that sends too much
/// takes nothing from the others. It holds whether or not `rate_limiting` is on.
fn key_within_rate(core: &Core, exchange: &Exchange) -> Result<(), Refusal> {
    let Some(allowed) = &exchange.allowed else { return Ok(()) };
    core.process.key_within_rate(&core.process.key_rates, &exchange.journal.settings, allowed)
}

/// Takes one request from the tenant's bucket in `rates`.
pub(crate) fn within_rate(
    core: &Core,
    settings: &Settings,
    rates: &RateTable,
    tenant_id: TenantId,
) -> Result<(), Refusal> {
    let limits = &settings.rate_limiting;
    if !limits.enabled {
        return Ok(());
    }
    let Verdict::Limited { retry_after_ns } = rates.take(tenant_id, limits, core.process.now_ns()) else {
        return Ok(());
    };
    let limit = limits.tenant_overrides.get(&tenant_id).copied().unwrap_or(limits.default);
    let who = format!("tenant {tenant_id}");
    Err(rate::refusal(&who, limit, retry_after_ns, "`rate_limiting`").with("tenant_id", tenant_id.to_string()))
}

/// A request that has passed through this very process before would go round for ever (RFC 9110 section 7.6.3).
fn refuse_loop(core: &Core, head: &RequestHead) -> Result<(), Refusal> {
    let ours = core.process.parts.edge.instance.as_bytes();
    if head.get_all("via").any(|via| memchr::memmem::find(via, ours).is_some()) {
        let message = "this request has already passed through this gateway; `upstream_url` leads back to it";
        return Err(Refusal::new(508, "invalid_request", message));
    }
    Ok(())
}
