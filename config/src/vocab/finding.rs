//! A security finding as it is stored and shown.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Severity, Timestamp, fresh_uuid};

/// Half-open range of byte offsets into the text a finding points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ByteSpan {
    /// First byte of the match.
    pub start: usize,
    /// One past the last byte of the match.
    pub end: usize,
}

/// One thing a detector saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Identifies this finding.
    pub id: Uuid,
    /// What was found, e.g. `prompt_injection`; an open set.
    pub finding_type: Cow<'static, str>,
    /// How bad it is.
    pub severity: Severity,
    /// How sure the detector is, 0.0 to 1.0.
    pub confidence: f64,
    /// One sentence for a person.
    pub description: Cow<'static, str>,
    /// Which detector saw it: `rules`, `jailbreak`, `pii`, `secrets`, ...
    pub detector: Cow<'static, str>,
    /// Where: `request.messages[2].content`, `response.choices[0]`. Empty until the caller that knows the body sets it.
    pub location: String,
    /// Byte offsets into the field named by `location`; `None` when the whole field is meant.
    pub span: Option<ByteSpan>,
    /// The matched words, at most 160 characters; PII and secrets are masked.
    pub evidence: String,
    /// Detector-specific details, e.g. `pii_type`, `rule`, `jailbreak_type`.
    pub metadata: BTreeMap<String, String>,
    /// When it was seen.
    pub detected_at: Timestamp,
    /// True for High and Critical.
    pub requires_alert: bool,
    /// Index of the part it is about among the parts of its span. Stored with the parts, and shown there.
    #[serde(skip)]
    pub part: Option<u32>,
}

impl Finding {
    /// A finding with a fresh id, no location and no metadata; `requires_alert` follows from the severity.
    pub fn new(
        finding_type: impl Into<Cow<'static, str>>,
        severity: Severity,
        confidence: f64,
        detector: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
    ) -> Self {
        let now = Timestamp::now();
        Self {
            id: fresh_uuid(now),
            finding_type: finding_type.into(),
            severity,
            confidence,
            description: description.into(),
            detector: detector.into(),
            location: String::new(),
            span: None,
            evidence: String::new(),
            metadata: BTreeMap::new(),
            detected_at: now,
            requires_alert: severity >= Severity::High,
            part: None,
        }
    }
}

/// The type of a finding that an operator's allow rule has taken the weight from: it stays in the record and leads to nothing.
pub const FINDING_ALLOWED: &str = "finding_allowed";

/// The type of a finding that is a verdict of the judge. What it may do is said by its entry [`PROMOTION`], not by its severity.
pub const JUDGE_VERDICT: &str = "llm_judge_verdict";
/// The entry of a verdict's metadata that says whether it may block: [`PROMOTED`], or why not.
pub const PROMOTION: &str = "promotion";
/// See [`PROMOTION`].
pub const PROMOTED: &str = "promoted";

/// The security score of a set of findings: that of the worst severity, 0 when there is none.
pub fn score<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> u8 {
    findings.into_iter().map(|finding| finding.severity.score()).max().unwrap_or(0)
}

/// The worst severity that the gateway's own detectors give findings of this type in a request; of types that are not listed it may be
/// any. `None` for what is found in answers alone.
pub fn worst_in_requests(finding_type: &str) -> Option<Severity> {
    Some(match finding_type {
        "output_toxicity" | "output_hallucination" | "data_leakage" | "action_from_data" => return None,
        "organization" | "location" | "analysis_timeout" => Severity::Info,
        "is_incentive" | "is_urgent" | "is_hypothetical" | "is_systemic" | "is_covert" | "is_immoral" => Severity::Low,
        "person_name" | "unreadable_body" | "analysis_truncated" => Severity::Low,
        "pii_detected" | "sql_injection" | "header_injection" | "synonym_injection" | "many_shot"
        | "context_flooding" | "suspicious_url" => Severity::Medium,
        "prompt_injection"
        | "indirect_injection"
        | "role_injection"
        | "jailbreak"
        | "prompt_extraction"
        | "data_exfiltration"
        | "shell_injection"
        | "dangerous_command"
        | "sensitive_file_access" => Severity::High,
        "ml_prompt_injection" | "guard_a_injection" | "guard_b_injection" | "fusion_prompt_injection" => Severity::High,
        _ => Severity::Critical,
    })
}

/// Whether an operator's rules may give findings of this type any severity, and find them in requests.
pub fn rules_may_raise(finding_type: &str) -> bool {
    matches!(
        finding_type,
        "prompt_injection"
            | "indirect_injection"
            | "role_injection"
            | "jailbreak"
            | "prompt_extraction"
            | "data_exfiltration"
            | "shell_injection"
            | "sql_injection"
            | "header_injection"
            | "synonym_injection"
            | "context_flooding"
            | "many_shot"
            | "secret_leakage"
            | "data_leakage"
            | "dangerous_command"
            | "suspicious_url"
            | "sensitive_file_access"
    )
}
