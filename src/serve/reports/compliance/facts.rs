//! What a span is evidence of. One pass over the spans of the period fills this in; its size does not grow with them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_config::vocab::{Severity, Timestamp};
use weir_storage::record::{ANSWERED_BY, SpanRecord, WEIR};

/// Ids kept per kind.
const IDS_MAX: usize = 50;
/// Names counted per kind of name; further ones count as `other`.
const NAMES_MAX: usize = 100;

/// A kind of evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Recorded,
    Forwarded,
    Analysed,
    NotAnalysed,
    Truncated,
    Attack,
    Severe,
    SevereForwarded,
    Blocked,
    Flagged,
    Denied,
    Overloaded,
    ProviderFailed,
    PiiSent,
    SecretSent,
    LeakReceived,
    Action,
    DangerousAction,
}

impl Kind {
    /// Machine name and one sentence.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Recorded => ("recorded", "exchanges recorded"),
            Self::Forwarded => ("forwarded", "exchanges a provider answered"),
            Self::Analysed => ("analysed", "exchanges the detectors read"),
            Self::NotAnalysed => ("not_analysed", "exchanges that were not, or not fully, analysed"),
            Self::Truncated => ("truncated", "records whose text was cut"),
            Self::Attack => ("attack", "exchanges with signs of manipulation"),
            Self::Severe => ("severe", "exchanges with a High or Critical finding"),
            Self::SevereForwarded => {
                ("severe_forwarded", "High or Critical findings that were neither blocked nor flagged")
            }
            Self::Blocked => ("blocked", "exchanges that enforcement refused"),
            Self::Flagged => ("flagged", "exchanges that enforcement marked"),
            Self::Denied => ("denied", "requests refused for lack of a valid credential or role"),
            Self::Overloaded => ("overloaded", "requests refused by a limit or for lack of capacity"),
            Self::ProviderFailed => ("provider_failed", "exchanges the provider failed or did not answer in time"),
            Self::PiiSent => ("pii_sent", "exchanges with personal data in what was sent"),
            Self::SecretSent => ("secret_sent", "exchanges with a credential in what was sent"),
            Self::LeakReceived => ("leak_received", "answers with personal data or a credential"),
            Self::Action => ("agent_action", "exchanges with reported agent actions"),
            Self::DangerousAction => ("dangerous_action", "exchanges with a reported action that was found dangerous"),
        }
    }
}

/// Finding types that mean an attempt to manipulate the model.
const ATTACKS: &[&str] = &[
    "prompt_injection",
    "indirect_injection",
    "role_injection",
    "jailbreak",
    "prompt_extraction",
    "data_exfiltration",
    "shell_injection",
    "sql_injection",
    "header_injection",
    "synonym_injection",
    "context_flooding",
    "many_shot",
    "ml_prompt_injection",
    "guard_a_injection",
    "guard_b_injection",
    "fusion_prompt_injection",
];
const PERSONAL: &[&str] = &["pii_detected", "person_name", "organization", "location"];
const SECRET: &[&str] = &["secret_leakage"];
const ACTIONS: &[&str] = &["dangerous_command", "suspicious_url", "sensitive_file_access"];

/// Count and first ids.
#[derive(Debug, Default)]
struct Evidence {
    count: u64,
    ids: Vec<Value>,
}

/// What the spans of a period show.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    kinds: BTreeMap<Kind, Evidence>,
    findings: BTreeMap<String, u64>,
    severities: BTreeMap<&'static str, u64>,
    pii_types: BTreeMap<String, u64>,
    providers: BTreeMap<String, u64>,
    models: BTreeMap<String, u64>,
    agents: BTreeMap<String, u64>,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
}

impl Facts {
    /// Takes a span in; spans come in order of their start.
    pub(crate) fn take(&mut self, span: &SpanRecord) {
        self.first = self.first.or(Some(span.start_time));
        self.last = Some(span.start_time);
        bump(&mut self.providers, &span.provider);
        bump(&mut self.models, span.model.as_deref().unwrap_or("unknown"));
        if let Some(agent) = &span.agent_id {
            bump(&mut self.agents, agent);
        }
        for finding in &span.security_findings {
            bump(&mut self.findings, &finding.finding_type);
            *self.severities.entry(finding.severity.as_str()).or_default() += 1;
            if let Some(kind) = finding.metadata.get("pii_type") {
                bump(&mut self.pii_types, kind);
            }
        }
        for kind in kinds(span) {
            let evidence = self.kinds.entry(kind).or_default();
            evidence.count += 1;
            if evidence.ids.len() < IDS_MAX {
                evidence.ids.push(json!({"trace_id": span.trace_id, "span_id": span.span_id}));
            }
        }
    }

    pub(super) fn count(&self, kind: Kind) -> u64 {
        self.kinds.get(&kind).map_or(0, |evidence| evidence.count)
    }

    /// A kind of evidence as the report shows it.
    pub(super) fn shown(&self, kind: Kind) -> Value {
        let (name, description) = kind.words();
        let ids: &[Value] = self.kinds.get(&kind).map_or(&[], |evidence| &evidence.ids);
        json!({"kind": name, "description": description, "count": self.count(kind), "record_ids": ids})
    }

    /// All spans in sum.
    pub(super) fn overview(&self) -> Value {
        json!({
            "spans": self.count(Kind::Recorded),
            "first": self.first,
            "last": self.last,
            "findings_by_type": self.findings,
            "findings_by_severity": self.severities,
            "pii_by_type": self.pii_types,
            "providers": self.providers,
            "models": self.models,
            "agents": self.agents,
        })
    }
}

fn bump(counts: &mut BTreeMap<String, u64>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count += 1;
    } else {
        let name = if counts.len() < NAMES_MAX { name } else { "other" };
        *counts.entry(name.to_owned()).or_default() += 1;
    }
}

/// The kinds of evidence a span is.
fn kinds(span: &SpanRecord) -> Vec<Kind> {
    let found = |types: &[&str]| span.security_findings.iter().any(|finding| types.contains(&&*finding.finding_type));
    let found_at = |types: &[&str], place: &str| {
        let concerned = |finding: &&weir_config::vocab::Finding| types.contains(&&*finding.finding_type);
        span.security_findings.iter().filter(concerned).any(|finding| finding.location.starts_with(place))
    };
    let error = span.error_type.as_deref().unwrap_or_default();
    // Providers use the same names for their own refusals.
    let own = span.tags.get(ANSWERED_BY).is_some_and(|who| who == WEIR);
    let unreached = matches!(error, "upstream_connect_error" | "upstream_protocol_error" | "upstream_timeout");
    let failed = unreached || (!own && span.status_code.is_some_and(|status| status >= 500));
    let denied = own && matches!(error, "authentication_error" | "permission_denied" | "ip_blocked");
    let overloaded = own
        && matches!(
            error,
            "rate_limit_exceeded" | "ml_pipeline_saturated" | "bodies_saturated" | "redaction_saturated"
        );
    let severe = span.security_findings.iter().any(|finding| finding.severity >= Severity::High);
    let skipped = span.tags.contains_key("pipeline_dropped") || found(&["analysis_truncated", "analysis_timeout"]);
    let table = [
        (Kind::Recorded, true),
        (Kind::Forwarded, !own && !failed && span.status_code.is_some()),
        (Kind::Analysed, span.security_score.is_some() && !skipped),
        (Kind::NotAnalysed, span.security_score.is_none() || skipped),
        (Kind::Truncated, span.tags.keys().any(|tag| tag.ends_with("_truncated"))),
        (Kind::Attack, found(ATTACKS)),
        (Kind::Severe, severe),
        (Kind::SevereForwarded, severe && span.enforcement == "none"),
        (Kind::Blocked, span.enforcement == "blocked"),
        (Kind::Flagged, span.enforcement == "flagged"),
        (Kind::Denied, denied),
        (Kind::Overloaded, overloaded),
        (Kind::ProviderFailed, failed),
        (Kind::PiiSent, found_at(PERSONAL, "request")),
        (Kind::SecretSent, found_at(SECRET, "request")),
        (
            Kind::LeakReceived,
            found(&["data_leakage"]) || found_at(PERSONAL, "response") || found_at(SECRET, "response"),
        ),
        (Kind::Action, !span.agent_actions.is_empty()),
        (Kind::DangerousAction, found(ACTIONS)),
    ];
    table.into_iter().filter_map(|(kind, holds)| holds.then_some(kind)).collect()
}
