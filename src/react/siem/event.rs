//! What a SIEM is told: one finding, one refusal, one administrative event.

use std::collections::BTreeMap;

use weir_config::vocab::{Finding, Severity, Timestamp};
use weir_storage::audit::AuditEntry;
use weir_storage::record::{ANSWERED_BY, SpanRecord, WEIR};

use crate::router::SOURCE;

/// Characters of a quoted text.
const EVIDENCE_CHARACTERS: usize = 400;

/// Which of the three it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Finding,
    Refusal,
    Audit,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Finding => "finding",
            Self::Refusal => "refusal",
            Self::Audit => "audit",
        }
    }
}

/// An event, whatever its form; texts are as strangers wrote them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    pub(super) kind: Kind,
    /// The same where it comes twice.
    pub(super) id: String,
    pub(super) at: Timestamp,
    /// Type of the finding, error of the refusal, action of the administrator.
    pub(super) name: String,
    pub(super) says: String,
    pub(super) severity: Severity,
    pub(super) is_blocked: bool,
    pub(super) confidence: Option<f64>,
    pub(super) detector: Option<String>,
    pub(super) rule: Option<String>,
    pub(super) location: Option<String>,
    pub(super) evidence: Option<String>,
    pub(super) tenant: Option<String>,
    pub(super) trace: Option<String>,
    pub(super) span: Option<String>,
    pub(super) provider: Option<String>,
    pub(super) model: Option<String>,
    pub(super) session: Option<String>,
    /// The agent of a call, who acted of an administrative event.
    pub(super) actor: Option<String>,
    pub(super) target: Option<String>,
    pub(super) source: Option<String>,
    pub(super) status: Option<u16>,
    pub(super) score: Option<u8>,
    pub(super) detail: BTreeMap<String, String>,
}

/// What of a call is told.
pub(super) struct Wanted {
    pub(super) min_severity: Severity,
    pub(super) refusals: bool,
    pub(super) evidence: bool,
}

/// The events of a call.
pub(super) fn of_call(span: &SpanRecord, wanted: &Wanted) -> Vec<Event> {
    let found = span.security_findings.iter().filter(|finding| finding.severity >= wanted.min_severity);
    let found = found.map(|finding| of_finding(span, finding, wanted.evidence));
    found.chain(wanted.refusals.then(|| of_refusal(span)).flatten()).collect()
}

fn of_finding(span: &SpanRecord, finding: &Finding, with_evidence: bool) -> Event {
    let evidence = || finding.evidence.chars().take(EVIDENCE_CHARACTERS).collect();
    Event {
        id: finding.id.to_string(),
        at: finding.detected_at,
        name: finding.finding_type.to_string(),
        says: finding.description.to_string(),
        severity: finding.severity,
        confidence: Some(finding.confidence),
        detector: Some(finding.detector.to_string()),
        rule: finding.metadata.get("rule").cloned(),
        location: Some(finding.location.clone()).filter(|location| !location.is_empty()),
        evidence: (with_evidence && !finding.evidence.is_empty()).then(evidence),
        ..about(span, Kind::Finding)
    }
}

/// A call that the gateway answered itself.
fn of_refusal(span: &SpanRecord) -> Option<Event> {
    let is_own = span.tags.get(ANSWERED_BY).is_some_and(|who| who == WEIR);
    let error = span.error_type.as_ref().filter(|_| is_own)?;
    Some(Event {
        name: error.clone(),
        says: format!("the gateway refused a call: {error}"),
        severity: if span.enforcement == "blocked" { Severity::High } else { Severity::Low },
        is_blocked: true,
        ..about(span, Kind::Refusal)
    })
}

fn about(span: &SpanRecord, kind: Kind) -> Event {
    Event {
        kind,
        id: span.span_id.to_string(),
        at: span.end_time,
        name: String::new(),
        says: String::new(),
        severity: Severity::Info,
        is_blocked: span.enforcement == "blocked",
        confidence: None,
        detector: None,
        rule: None,
        location: None,
        evidence: None,
        tenant: Some(span.tenant_id.to_string()),
        trace: Some(span.trace_id.to_string()),
        span: Some(span.span_id.to_string()),
        provider: Some(span.provider.to_string()),
        model: span.model.clone(),
        session: span.session_id.clone(),
        actor: span.agent_id.clone(),
        target: None,
        source: span.tags.get(SOURCE).cloned(),
        status: span.status_code,
        score: span.security_score,
        detail: BTreeMap::new(),
    }
}

/// Digits of a line's hash in its event's id: numbers begin anew with another store.
const HASH_DIGITS: usize = 16;

/// What an administrator did.
pub(super) fn of_audit(entry: &AuditEntry) -> Event {
    Event {
        kind: Kind::Audit,
        id: format!("audit-{}-{}", entry.seq, entry.hash.get(..HASH_DIGITS).unwrap_or_default()),
        at: entry.timestamp,
        name: entry.action.clone(),
        says: format!("{} by {}", entry.action, entry.actor),
        severity: Severity::Info,
        is_blocked: false,
        confidence: None,
        detector: None,
        rule: None,
        location: None,
        evidence: None,
        tenant: entry.tenant_id.map(|tenant| tenant.to_string()),
        trace: None,
        span: None,
        provider: None,
        model: None,
        session: None,
        actor: Some(entry.actor.clone()),
        target: entry.target.clone(),
        source: None,
        status: None,
        score: None,
        detail: entry.detail.clone(),
    }
}
