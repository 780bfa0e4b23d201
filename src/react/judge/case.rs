//! A call on its way through the worker: as it is handed in, and as it comes back.

use std::sync::Arc;
use std::time::Duration;

use weir_config::vocab::{Finding, JUDGE_VERDICT, PROMOTED, PROMOTION, Severity, TenantId};

use super::candidate::Candidate;
use super::gate::Passage;
use super::verdict::Verdict;

/// How a case is judged: the label `mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The request waits.
    Inline,
    /// It has gone on.
    Async,
}

impl Mode {
    /// As the label has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Async => "async",
        }
    }
}

/// A call to be judged.
#[derive(Debug, Clone)]
pub struct Case {
    /// Whose it is.
    pub tenant: TenantId,
    /// What the judge is shown.
    pub candidate: Candidate,
    /// What was found before.
    pub prior: Vec<Finding>,
    /// Whether it was decided to be blocked.
    pub blocked: bool,
    /// Whether somebody waits.
    pub mode: Mode,
}

/// A verdict, what becomes of it, and how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruling {
    /// The verdict.
    pub verdict: Verdict,
    /// Whether it may override the decision before it.
    pub passage: Passage,
    /// For whom it was asked.
    pub mode: Mode,
    /// The label `backend`.
    pub backend: &'static str,
    /// The label `model`.
    pub model: Arc<str>,
    /// How long it took; nothing where it was remembered.
    pub took: Duration,
    /// Tokens of the questions and of the answers.
    pub tokens: (u64, u64),
}

impl Ruling {
    /// The verdict as a finding, whose evidence is the judge's reasoning. What it may do is said by its entry `promotion`.
    pub fn finding(&self) -> Finding {
        let verdict = &self.verdict;
        let severity = match self.passage {
            Passage::Promoted if verdict.security_score >= Severity::Critical.score() => Severity::Critical,
            Passage::Promoted => Severity::High,
            _ if verdict.is_threat => Severity::Medium,
            _ => Severity::Info,
        };
        let said = match verdict.is_threat {
            true => "The judge calls this call a threat.",
            false => "The judge sees no threat in this call.",
        };
        let mut finding = Finding::new(JUDGE_VERDICT, severity, verdict.confidence, "judge", said);
        finding.evidence.clone_from(&verdict.reasoning);
        let promotion = match self.passage {
            Passage::Promoted => PROMOTED,
            Passage::Shadow => "shadow",
            Passage::Held(why) => why.as_str(),
        };
        let facts = [
            (PROMOTION, promotion.to_owned()),
            ("is_threat", verdict.is_threat.to_string()),
            ("category", verdict.category.as_str().to_owned()),
            ("security_score", verdict.security_score.to_string()),
            ("recommended_action", verdict.recommended_action.as_str().to_owned()),
            ("mode", self.mode.as_str().to_owned()),
            ("backend", self.backend.to_owned()),
            ("model", self.model.to_string()),
            ("latency_ms", self.took.as_millis().to_string()),
            ("prompt_tokens", self.tokens.0.to_string()),
            ("completion_tokens", self.tokens.1.to_string()),
        ];
        finding.metadata.extend(facts.map(|(name, value)| (name.to_owned(), value)));
        finding
    }
}
