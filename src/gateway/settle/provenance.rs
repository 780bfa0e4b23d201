//! Whose words the calls are made of that an answer asks for (`security_analysis.action_from_data`).
//!
//! The words of the conversation stand in the request; of one that its provider keeps (`previous_response_id`, `conversation`), the ends of
//! the turns before are remembered ([`remember`]), [`REMEMBERED_BYTES`] of each side.

use weir_config::settings::ActionFromData;
use weir_config::vocab::{Finding, Severity, TenantId};
use weir_inference::PartKind;
use weir_inference::provenance::{Origins, ToolUse};

use crate::inspect::RequestView;
use crate::observe::Answer;
use crate::process::turns::Turns;
use crate::settle::inspection::{RequestedCall, Subject as _, Texts};

/// Bytes of each side that are remembered of a conversation that its provider keeps.
const REMEMBERED_BYTES: usize = 4 << 10;

/// The words of a conversation by whose they are.
pub(crate) fn origins(view: &RequestView, turns: &Turns, tenant: TenantId) -> Origins {
    let goes_on = [&view.previous_answer, &view.conversation];
    let before = goes_on.into_iter().flatten().find_map(|id| turns.before(tenant, id));
    let mut origins = before.map(|tail| Origins::recall(&tail)).unwrap_or_default();
    let zones = view.zones.as_deref().map(|zones| zones.list.as_slice()).unwrap_or_default();
    for (at, part) in view.parts.iter().enumerate().filter(|(_, part)| !part.is_credential()) {
        let mut from = part.range.start;
        // What a user's message quotes is data.
        for zone in zones.iter().filter(|zone| zone.part == at && part.kind == PartKind::User) {
            origins.add(part.kind, view.text.get(from..zone.range.start).unwrap_or_default());
            origins.add(PartKind::Tool, view.text.get(zone.range.clone()).unwrap_or_default());
            from = zone.range.end;
        }
        origins.add(part.kind, view.text.get(from..part.range.end).unwrap_or_default());
    }
    origins
}

/// What is to be said of calls.
pub(crate) fn judge(origins: &Origins, calls: Vec<RequestedCall<'_>>, rule: ActionFromData) -> Vec<Finding> {
    let judged = calls.into_iter().filter_map(|RequestedCall { name, arguments, writes, place }| {
        let mut finding = origins.judge(&ToolUse { name, arguments, writes })?;
        if rule == ActionFromData::Refuse && finding.severity >= Severity::Medium {
            (finding.severity, finding.requires_alert) = (Severity::Critical, true);
        }
        place.put(finding)
    });
    judged.take(weir_inference::HITS_MAX).collect()
}

/// What is to be said of the calls of a recorded answer, and whether older words were left out.
pub(crate) fn findings(origins: &Origins, answer: &Answer, before: usize, rule: ActionFromData) -> Vec<Finding> {
    let texts = Texts { request: None, answer: Some(answer), before, context: None };
    judge(origins, texts.calls(), rule)
}

/// Remembers whose words there were, for the turn that goes on from here.
pub(crate) fn remember(origins: &Origins, turns: &Turns, tenant: TenantId, ids: [Option<&str>; 2]) {
    for id in ids.into_iter().flatten() {
        turns.keep(tenant, id, origins.tail(REMEMBERED_BYTES));
    }
}
