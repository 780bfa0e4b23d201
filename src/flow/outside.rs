//! The one place where a request waits for what others say of it: between inspection and decision, on a timer, holding no core.
//! What they find joins the findings, and the decision is taken over all of them; without an answer in time the first one
//! stands. No verdict is asked for a request that is refused in any case.

use std::time::Instant;

use weir_config::settings::EnforcementScope;

use super::exchange::Exchange;
use super::look::Inspected;
use crate::enforce::{self, Decision};
use crate::process::{Core, Question};
use crate::rt;
use crate::settle::masking::Masking;
use crate::settle::text::{RequestText, request_parts};

/// Lets others speak, where there are any.
pub(super) async fn hear(core: &Core, mut inspected: Inspected) -> Inspected {
    mark_earlier(core, inspected.exchange_mut());
    if !core.process.parts.outside.is_empty() {
        ask(core, inspected.exchange_mut()).await;
    }
    inspected
}

/// Takes what stood in an earlier call out of the decision, where the settings say so.
fn mark_earlier(core: &Core, exchange: &mut Exchange) {
    let journal = &mut exchange.journal;
    let (rules, inspection) = (&journal.settings.enforcement, &mut journal.inspection);
    if rules.scope == EnforcementScope::All || inspection.findings.is_empty() {
        return;
    }
    let RequestText::Read(view) = &inspection.text else { return };
    let text = |part: usize| view.text.get(view.parts.get(part)?.range.clone());
    let (tenant, last) = (journal.ids.tenant_id, view.parts.len().saturating_sub(1));
    core.process.earlier.mark(tenant, &mut inspection.findings, |finding| enforce::acts(finding, rules), text, last);
}

async fn ask(core: &Core, exchange: &mut Exchange) {
    let inspection = &exchange.journal.inspection;
    let RequestText::Read(view) = &inspection.text else { return };
    if enforce::decide(&inspection.findings, &exchange.settings().enforcement) == Decision::Block {
        return;
    }
    // Others see of it what the record will show.
    let shown = Masking::of(exchange.settings()).shown(view, &inspection.findings);
    let (masked, findings) = shown.as_ref().map_or((None, &inspection.findings), |(texts, found)| (Some(texts), found));
    let texts = request_parts(view).enumerate().map(|(at, part)| match masked {
        Some(texts) => (part.kind, texts.get(at).map(String::as_str).unwrap_or_default()),
        None => (part.kind, part.text),
    });
    let texts: Vec<_> = texts.collect();
    let question = Question {
        tenant: exchange.journal.ids.tenant_id,
        trace: exchange.journal.trace_id(),
        span: exchange.journal.ids.span_id,
        texts: &texts,
        findings,
    };
    let begun = Instant::now();
    let outside = core.process.parts.outside.iter();
    // All of them work at once.
    let asked: Vec<_> = outside.filter_map(|other| Some((other, other.ask(&question)?))).collect();
    for (other, verdict) in asked {
        let left = other.limit().saturating_sub(begun.elapsed());
        let Some(findings) = rt::within(left, verdict).await else {
            core.meter.dropped(other.name(), "timeout");
            let said = format!("`{}` gave no verdict within {} ms", other.name(), other.limit().as_millis());
            exchange.journal.event("verdict_timeout", &said);
            continue;
        };
        core.meter.detector(other.name(), u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
        let inspection = &mut exchange.journal.inspection;
        inspection.findings.extend(findings.iter().cloned());
        inspection.outside.push((other.name(), findings));
    }
}
