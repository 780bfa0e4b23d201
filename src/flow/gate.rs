//! The stage that lets a request in, cheapest question first: no loop, not declared too large, within its rate. What is
//! admitted has a known owner and may cost something from here on. Reads no body and knows no text.

use weir_config::Settings;
use weir_config::vocab::TenantId;

use super::{Core, target, tunnel, upload};
use crate::admit::rate::{RateTable, Verdict};
use crate::exchange::{Admitted, Parsed, Refusal};
use crate::wire::RequestHead;

pub(super) fn admit(core: &Core, settings: &Settings, parsed: Box<Parsed>) -> Result<Admitted, Refusal> {
    refuse_loop(core, &parsed.head)?;
    target::check_authority(&parsed.head, core.process.parts.listen)?;
    if parsed.head.upgrade_websocket {
        tunnel::check_allowed(settings)?;
        tunnel::check_handshake(&parsed.head)?;
    }
    upload::check_declared(
        parsed.head.body,
        settings.limits.max_request_size_bytes,
        settings.limits.max_request_size_source,
    )?;
    let tenant_id = parsed.identity.tenant_id;
    within_rate(core, settings, &core.process.rates, tenant_id)?;
    Ok(Admitted(parsed))
}

/// Takes one request from the tenant's bucket in `rates`.
pub(super) fn within_rate(
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
    let seconds = retry_after_ns.div_ceil(1_000_000_000).max(1);
    let message = format!(
        "tenant {tenant_id} sends more than {} requests per second (burst {}); retry after {seconds} s, or raise \
         `rate_limiting`",
        limit.requests_per_second, limit.burst_size
    );
    Err(Refusal::new(429, "rate_limit_exceeded", message)
        .header("Retry-After", seconds)
        .header("X-RateLimit-Limit", limit.requests_per_second)
        .header("X-RateLimit-Remaining", 0)
        .header("X-RateLimit-Reset", seconds)
        .with("tenant_id", tenant_id.to_string())
        .with("limit_requests_per_second", limit.requests_per_second)
        .with("retry_after_secs", seconds))
}

/// A request that has passed through this very process before would go round for ever (RFC 9110 section 7.6.3).
fn refuse_loop(core: &Core, head: &RequestHead) -> Result<(), Refusal> {
    let ours = core.process.parts.instance.as_bytes();
    if head.get_all("via").any(|via| memchr::memmem::find(via, ours).is_some()) {
        let message = "this request has already passed through this gateway; `upstream_url` leads back to it";
        return Err(Refusal::new(508, "invalid_request", message));
    }
    Ok(())
}
