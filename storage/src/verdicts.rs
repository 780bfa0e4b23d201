//! Verdicts of the judge as records.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use weir_config::vocab::{Finding, SpanId, TenantId, Timestamp, TraceId};

/// A verdict of the judge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JudgeVerdict {
    /// Identifies the verdict.
    pub id: Uuid,
    /// The trace it is about.
    pub trace_id: TraceId,
    /// Whose trace.
    pub tenant_id: TenantId,
    /// Whether the call is an attack.
    pub is_threat: bool,
    /// `prompt_injection`, `jailbreak`, `data_exfiltration`, `policy_violation`, `benign` or `other`.
    pub category: String,
    /// How sure the judge is, 0.0 to 1.0.
    pub confidence: f64,
    /// How bad it is, 0 to 100.
    pub security_score: u8,
    /// `allow`, `flag` or `block`.
    pub recommended_action: String,
    /// Why; empty once the texts of its span were removed.
    pub reasoning: String,
    /// `inline` or `async`.
    pub mode: String,
    /// The judge's backend.
    pub backend: String,
    /// Its model.
    pub model: String,
    /// How long the verdict took, in milliseconds.
    pub latency_ms: u64,
    /// Tokens of the question.
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    pub completion_tokens: u64,
    /// When it was given.
    pub created_at: Timestamp,
}

/// What is found about a span after it was stored.
#[derive(Debug, Clone, PartialEq)]
pub struct LateFinding {
    /// Whose span.
    pub tenant: TenantId,
    /// Which span.
    pub span: SpanId,
    /// Joins the findings of the span, unless it has one of this id.
    pub finding: Option<Finding>,
    /// Is kept beside it, unless it is.
    pub verdict: Option<JudgeVerdict>,
}
