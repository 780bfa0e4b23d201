//! The one place where a request waits for what others say of it, models and outside verdicts: between inspection and decision, on a
//! timer, holding no core.
//! What they find joins the findings, and the decision is taken over all of them; without an answer in time the first one
//! stands. No verdict is asked for a request that is refused in any case.

use std::rc::Rc;
use std::time::Instant;

use weir_config::settings::{EnforcementScope, PiiAction};
use weir_config::vocab::Finding;

use super::exchange::{Exchange, Stopped};
use super::look::{Cause, Pending, conclude};
use super::operations::Permitted;
use crate::enforce::{self, Decision};
use crate::exchange::{Payload, Refusal};
use crate::process::{Core, Question};
use crate::rt;
use crate::settle::marks::is_name;
use crate::settle::masking::Masking;
use crate::settle::models;
use crate::settle::text::{RequestText, request_parts};

/// A request of which all has been said that is waited for.
pub(super) struct Heard {
    exchange: Box<Exchange>,
    payload: Payload,
}

impl Heard {
    pub(super) fn into_parts(self) -> (Box<Exchange>, Payload) {
        (self.exchange, self.payload)
    }
}

/// Lets models and others speak, where there are any.
pub(super) async fn hear(core: &Core, permitted: Permitted) -> Result<Heard, Stopped> {
    let (mut exchange, payload, pending) = permitted.into_parts();
    if let Some(pending) = pending
        && let Err(refusal) = Box::pin(hear_models(core, &mut exchange, *pending)).await
    {
        return Err(Stopped { exchange, why: refusal.into() });
    }
    mark_earlier(core, &mut exchange);
    if !core.process.parts.inspection.outside.is_empty() {
        ask(core, &mut exchange).await;
    }
    Ok(Heard { exchange, payload })
}

/// Has models look at the rest of a request, for the decision or for the names that are taken out.
async fn hear_models(core: &Core, exchange: &mut Exchange, pending: Pending) -> Result<(), Refusal> {
    let Pending { rest, again, decides, deadline, mut so_far } = pending;
    let settings = Rc::clone(&exchange.journal.settings);
    let names = again.is_some();
    let is_optional = rest.later().is_optional();
    let Some(place) = core.process.models.enter(settings.ml_max_concurrent) else {
        if is_optional {
            // The words have decided; the record asks once more.
            so_far.skip_second_stage();
            return conclude(core, exchange, so_far);
        }
        if decides {
            return Err(models_saturated());
        }
        so_far.unnamed = so_far.unnamed.or(Some(Cause::Load));
        return conclude(core, exchange, so_far);
    };
    let then = move |found: &[Finding]| again.and_then(|again| again.changes(found));
    let said = models::ask_then(&core.process, rest, deadline, then).await;
    drop(place);
    let is_whole = said.as_ref().is_ok_and(|(_, ran, _)| !ran.cut && !ran.failed);
    let cause = Cause::of(said.as_ref().err().is_none_or(|missed| missed.by_content));
    so_far.unnamed = so_far.unnamed.or((names && !is_whole).then_some(cause));
    match said {
        Ok((found, ran, redone)) => {
            let inspection = &mut exchange.journal.inspection;
            if redone.is_some() {
                inspection.changes = redone;
            }
            // Where something is decided, what the settings do not wait for has no say; models are asked once more after the answer.
            if decides || (is_whole && !enforce::can_act(&settings.enforcement)) {
                let is_silent = settings.pii_action == PiiAction::RedactSilent;
                let (quiet, found): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| is_silent && is_name(found));
                inspection.names = quiet;
                inspection.findings.extend(found);
                if let Some(before) = &mut so_far.ran {
                    before.join(&ran);
                }
                so_far.leaves_models = is_optional && !ran.second_stage_skipped.is_empty();
            }
        }
        Err(_) if is_optional => so_far.skip_second_stage(),
        Err(why) if decides => so_far.missed = Some(why),
        Err(_) => {}
    }
    conclude(core, exchange, so_far)
}

fn models_saturated() -> Refusal {
    let message = "as many requests as may (`ml_pipeline.max_concurrent_requests`) wait for what models say of them; retry \
                   after a second";
    Refusal::new(503, "ml_pipeline_saturated", message).header("Retry-After", 1)
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
    let acts = |finding: &Finding| enforce::acts(finding, rules);
    let acting = core.process.earlier.mark(tenant, &mut inspection.findings, acts, text, last);
    inspection.acting = (!acting.is_empty()).then(|| Box::new(acting));
}

async fn ask(core: &Core, exchange: &mut Exchange) {
    let inspection = &exchange.journal.inspection;
    let RequestText::Read(view) = &inspection.text else { return };
    if enforce::decide(&inspection.findings, &exchange.settings().enforcement) == Decision::Block {
        return;
    }
    // Others see of it what the record will show.
    let known: Vec<Finding> = inspection.findings.iter().chain(&inspection.names).cloned().collect();
    let shown = Masking::of(exchange.settings()).shown(view, &known);
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
    let outside = core.process.parts.inspection.outside.iter();
    // All of them work at once.
    let asked: Vec<_> = outside.filter_map(|other| Some((other, other.ask(&question)?))).collect();
    for (other, verdict) in asked {
        let left = other.limit().saturating_sub(begun.elapsed());
        let Some(findings) = rt::within(left, verdict).await else {
            core.meter.dropped(other.name(), "timeout");
            let said = format!("`{}` gave no verdict within {} ms", other.name(), other.limit().as_millis());
            exchange.journal.event("verdict_timeout", &said);
            exchange.journal.inspection.misses_verdict = true;
            exchange.journal.tag("verdict_skipped", format!("{};reason=timeout", other.name()));
            continue;
        };
        core.meter.detector(other.name(), u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
        let inspection = &mut exchange.journal.inspection;
        inspection.findings.extend(findings.iter().cloned());
        inspection.outside.push((other.name(), findings));
    }
}
