//! `judge.*`, checked. Knows no wire format and no model.

use std::path::PathBuf;

use super::EMBEDDED_MODEL;
use crate::vocab::SharedSecret;

/// `judge.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct Judge {
    /// `enabled`, which is the flag `llm_judge_enabled`.
    pub enabled: bool,
    /// `min_score_threshold`: calls whose findings score less are not judged.
    pub min_score: u8,
    /// `persist_verdicts`: keep verdicts beside the findings they become.
    pub persist: bool,
    /// `backend`: who gives the verdict.
    pub backend: JudgeBackend,
    /// `system_prompt`: replaces the built-in instruction; how the candidate is framed and what is answered stays.
    pub system_prompt: Option<String>,
    /// `selfhosted.*`.
    pub selfhosted: JudgeModel,
    /// `selfhosted.allow_plaintext`: `http://` to other machines.
    pub allow_plaintext: bool,
    /// `hostedcompat.*`.
    pub hostedcompat: JudgeModel,
    /// `hostedmessages.*`.
    pub hostedmessages: JudgeModel,
    /// `classifier.*`.
    pub classifier: JudgeClassifier,
    /// `cascade.*`.
    pub cascade: Cascade,
    /// `retry.*`.
    pub retry: JudgeRetry,
    /// `promotion.*`.
    pub promotion: Promotion,
    /// `worker.*`.
    pub worker: JudgeWorker,
}

/// Backends that give a verdict by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JudgeTier {
    /// A model server of the operator's, chat completions.
    SelfHosted,
    /// A hosted API of the chat completions kind.
    HostedCompat,
    /// A hosted API of the messages kind.
    HostedMessages,
    /// The embedded classifier.
    Classifier,
}

/// `judge.backend` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JudgeBackend {
    /// One of them.
    One(JudgeTier),
    /// A fast one and, where that is not sure, a slow one.
    Cascade,
}

/// A model behind an API.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgeModel {
    /// `base_url`, without the path of the call.
    pub base_url: String,
    /// `model`.
    pub model: String,
    /// `max_tokens` of a verdict.
    pub max_tokens: u32,
    /// `temperature`.
    pub temperature: f64,
    /// From the environment.
    pub key: Option<SharedSecret>,
}

/// `judge.classifier.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgeClassifier {
    /// `model_id`: [`EMBEDDED_MODEL`], or a model of the operator's as a folder or an id.
    pub model: String,
    /// `threshold`: from here on it calls a text a threat.
    pub threshold: f64,
    /// `cache_dir`: where a model lies that is named by an id; `None` where the others lie.
    pub cache_dir: Option<PathBuf>,
}

/// `judge.cascade.*`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cascade {
    /// `fast_backend`: asked first.
    pub fast: JudgeTier,
    /// `slow_backend`: asked where the fast one is not sure, or fails.
    pub slow: Option<JudgeTier>,
    /// `ambiguous_low`: above it and below the next the fast one is not sure.
    pub low: f64,
    /// `ambiguous_high`.
    pub high: f64,
}

/// `judge.retry.*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JudgeRetry {
    /// `max_retries`: tries after the first one.
    pub max: u32,
    /// `backoff_base_ms`: the first wait is up to so long, each further one up to twice the one before.
    pub backoff_base_ms: u64,
}

/// `judge.promotion.*`: when a verdict may block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Promotion {
    /// `min_confidence`.
    pub min_confidence: f64,
    /// `min_security_score`.
    pub min_security_score: u8,
    /// `require_ensemble_support`: somebody else has found something of severity Medium or worse.
    pub require_ensemble_support: bool,
    /// `shadow`: nothing is promoted; what would be is counted.
    pub shadow: bool,
}

/// `judge.worker.*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JudgeWorker {
    /// `channel_buffer`: cases that wait at most.
    pub queue: usize,
    /// `max_concurrency`: cases that are judged at the same time.
    pub at_once: usize,
    /// `timeout_ms`: for one call of a backend, the answer's body included.
    pub timeout_ms: u64,
    /// `max_analysis_text_bytes`: of the candidate.
    pub max_text_bytes: usize,
    /// `total_deadline_ms`: for one verdict with all tries; 0 is none.
    pub total_deadline_ms: u64,
}

impl JudgeTier {
    /// As the configuration and the label `backend` write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SelfHosted => "selfhosted",
            Self::HostedCompat => "hostedcompat",
            Self::HostedMessages => "hostedmessages",
            Self::Classifier => "classifier",
        }
    }
}

impl JudgeBackend {
    /// As the configuration and the label `backend` write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::One(tier) => tier.as_str(),
            Self::Cascade => "cascade",
        }
    }
}

impl Judge {
    /// Whoever may be asked under these settings.
    pub fn tiers(&self) -> impl Iterator<Item = JudgeTier> + use<> {
        let (first, second) = match self.backend {
            JudgeBackend::One(tier) => (tier, None),
            JudgeBackend::Cascade => (self.cascade.fast, self.cascade.slow),
        };
        std::iter::once(first).chain(second)
    }

    /// The model behind a tier; `None` for the classifier.
    pub fn model(&self, tier: JudgeTier) -> Option<&JudgeModel> {
        match tier {
            JudgeTier::SelfHosted => Some(&self.selfhosted),
            JudgeTier::HostedCompat => Some(&self.hostedcompat),
            JudgeTier::HostedMessages => Some(&self.hostedmessages),
            JudgeTier::Classifier => None,
        }
    }
}

impl Default for Judge {
    fn default() -> Self {
        let model = |base_url: &str, model: &str| JudgeModel {
            base_url: base_url.to_owned(),
            model: model.to_owned(),
            max_tokens: 512,
            temperature: 0.1,
            key: None,
        };
        Self {
            enabled: false,
            min_score: 30,
            persist: true,
            backend: JudgeBackend::One(JudgeTier::SelfHosted),
            system_prompt: None,
            selfhosted: model("http://localhost:8000", "judge"),
            allow_plaintext: false,
            hostedcompat: model("https://api.openai.com", "gpt-4o-mini"),
            hostedmessages: model("https://api.anthropic.com", "claude-haiku-4-5"),
            classifier: JudgeClassifier { model: EMBEDDED_MODEL.to_owned(), threshold: 0.5, cache_dir: None },
            cascade: Cascade { fast: JudgeTier::Classifier, slow: None, low: 0.3, high: 0.7 },
            retry: JudgeRetry { max: 2, backoff_base_ms: 1_000 },
            promotion: Promotion {
                min_confidence: 0.7,
                min_security_score: 60,
                require_ensemble_support: true,
                shadow: false,
            },
            worker: JudgeWorker {
                queue: 1_000,
                at_once: 4,
                timeout_ms: 30_000,
                max_text_bytes: 65_536,
                total_deadline_ms: 45_000,
            },
        }
    }
}
