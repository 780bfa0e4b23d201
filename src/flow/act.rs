//! The stages that act on what was found: the decision, and the form in which the request goes on. Invariant: bytes that
//! are not rewritten stay as they came. Does no I/O.

use bytes::Bytes;
use weir_config::Settings;
use weir_config::settings::Enforcement;
use weir_config::vocab::{Finding, Unread};

use super::ledger::Ledger;
use super::look::{advisory_applies, unread_by_head};
use crate::enforce::{self, Decision};
use crate::exchange::{Analysis, Enforced, Inspected, Payload, Ready, Refusal, RequestText};
use crate::rewrite;

// === enforce ===

pub(super) fn enforce(settings: &Settings, inspected: Inspected, ledger: &mut Ledger) -> Result<Enforced, Refusal> {
    let decision = enforce::decide(&inspected.findings, &settings.enforcement);
    ledger.enforced(decision);
    if decision == Decision::Block {
        ledger.text = inspected.text;
        return Err(enforce::refusal(&inspected.findings, &settings.enforcement));
    }
    Ok(Enforced { inspected, decision })
}

// === rewrite ===

/// Brings the request into the form the provider will see, and hands its text to the ledger.
pub(super) fn rewrite(settings: &Settings, enforced: Enforced, ledger: &mut Ledger) -> Ready {
    let Enforced { inspected, decision } = enforced;
    let Inspected { parsed, mut payload, text, findings, analysis, notice } = inspected;
    if let (RequestText::Read(view), Payload::Held { body, .. }) = (&text, &mut payload)
        && advisory_applies(settings, &parsed)
        && view.stream != Some(true)
        && parsed.head.get("content-encoding").is_none()
        && let Some(at) = view.messages_open
        && let Some(message) =
            rewrite::advisory_message(&findings, settings.llm_advisory_min_severity, view.messages_empty)
    {
        *body = rewrite::insert(body, at, &message);
        ledger.event("advisory_injected", "a system message describing the findings was put before the conversation");
    }
    let mut marks = Vec::new();
    if decision == Decision::Flag {
        flag(&findings, &settings.enforcement, &mut marks);
    }
    let notice = match analysis {
        Analysis::Skipped(skip) => Some(skip.header()),
        Analysis::Due if !matches!(payload, Payload::Empty) => unread_by_head(&parsed).map(Unread::header),
        Analysis::Due | Analysis::Ran => notice,
    };
    if let Some(notice) = notice {
        marks.push(("X-Service-Analysis", Bytes::from_static(notice.as_bytes())));
    }
    ledger.text = text;
    Ready { parsed, payload, marks }
}

fn flag(findings: &[Finding], rules: &Enforcement, marks: &mut Vec<(&'static str, Bytes)>) {
    if let Some(worst) = enforce::worst(findings, rules) {
        marks.push(("X-Service-Flagged", Bytes::from_static(b"true")));
        marks.push(("X-Service-Finding-Type", Bytes::from(worst.finding_type.to_string())));
        marks.push(("X-Service-Severity", Bytes::from_static(worst.severity.as_str().as_bytes())));
    }
}
