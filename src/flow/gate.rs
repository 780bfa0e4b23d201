//! The stage that lets a request in, cheapest question first: no loop, not declared too large, within its rate. What is
//! admitted has a known owner and may cost something from here on. Reads no body and knows no text.

use weir_config::Settings;

use super::{Core, target, tunnel, upload};
use crate::admit::rate::Verdict;
use crate::exchange::{Admitted, Parsed, Refusal};
use crate::wire::RequestHead;

pub(super) fn admit(core: &Core, settings: &Settings, parsed: Box<Parsed>) -> Result<Admitted, Refusal> {
    refuse_loop(core, &parsed.head)?;
    target::check_authority(&parsed.head, core.process.parts.listen)?;
    if parsed.head.upgrade_websocket {
        tunnel::check_handshake(&parsed.head)?;
    }
    upload::check_declared(
        parsed.head.body,
        settings.limits.max_request_size_bytes,
        settings.limits.max_request_size_source,
    )?;
    if settings.rate_limiting.enabled {
        let limits = &settings.rate_limiting;
        let tenant_id = parsed.identity.tenant_id;
        if let Verdict::Limited { retry_after_ns } = core.process.rates.take(tenant_id, limits, core.process.now_ns()) {
            let limit = limits.tenant_overrides.get(&tenant_id).copied().unwrap_or(limits.default);
            let seconds = retry_after_ns.div_ceil(1_000_000_000).max(1);
            return Err(Refusal::new(
                429,
                "rate_limit_exceeded",
                format!(
                    "tenant {tenant_id} sends more than {} requests per second (burst {}); retry after {seconds} s, or \
                     raise `rate_limiting`",
                    limit.requests_per_second, limit.burst_size
                ),
            )
            .header("Retry-After", seconds)
            .header("X-RateLimit-Limit", limit.requests_per_second)
            .header("X-RateLimit-Remaining", 0)
            .header("X-RateLimit-Reset", seconds)
            .with("tenant_id", tenant_id.to_string())
            .with("limit_requests_per_second", limit.requests_per_second)
            .with("retry_after_secs", seconds));
        }
    }
    Ok(Admitted(parsed))
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
