//! The judge: a model, or the embedded classifier, that is asked whether a recorded text is an attack.
//!
//! ```text
//!  texts + findings ─▶ candidate ─▶ prompt ─▶ backend ──▶ answer ─▶ verdict
//!                      (chosen)     (framed)  (retried)   (bounded) (exactly one, or none)
//! ```
//!
//! Invariants: a question ends within its deadline, whichever kind of backend is asked: the last byte of an answer is within it,
//! and a classifier that is still at work then is not waited for (`classify`). The candidate never speaks as the judge (`prompt`,
//! `verdict`); what a judge costs is its own and no tenant's. Works on the network runtime; knows neither requests nor who asks.

mod backend;
mod cache;
mod candidate;
mod case;
mod classify;
mod failure;
mod figures;
mod gate;
mod line;
mod prompt;
mod retry;
#[cfg(test)]
mod tests;
mod verdict;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_config::settings::{Judge as Settings, JudgeBackend, JudgeRetry, JudgeTier};
use weir_inference::{Classifier, LoadError};

use crate::money::{Counted, Prices, cost_nano_usd};
use crate::outbound::Client;
use backend::{Backend, Said};
pub use candidate::{Candidate, Piece};
pub use case::{Case, Mode, Ruling};
pub use classify::Classify;
use classify::Classifying;
pub use failure::{Again, Failure, Status};
pub use figures::Dropped;
pub use gate::{Agreement, Gate, Held, Passage};
pub use prompt::Prompt;
use retry::Patience;
pub use verdict::{Category, NoVerdict, Recommended, Verdict};
pub use worker::{CaseQueue, IsOpen, Options, Told, Worker};

/// Somebody to ask for verdicts.
pub struct Judge {
    settings: Settings,
    first: Tier,
    second: Option<Tier>,
    prices: Arc<Prices>,
}

/// One backend of a judge.
enum Tier {
    Model { backend: Box<Backend>, name: &'static str, model: String },
    Classifier(Classifying),
}

/// What one backend said.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Which one.
    pub backend: &'static str,
    /// Its model.
    pub model: String,
    /// The text of its answer; empty where there is none.
    pub raw: String,
    /// The tokens it counted.
    pub tokens: Counted,
    /// What that costs, in nanodollars; `None` without a known price.
    pub cost_nano_usd: Option<u64>,
    /// What it says.
    pub verdict: Result<Verdict, Failure>,
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The verdict that counts, or why there is none.
    pub verdict: Result<Verdict, Failure>,
    /// What the backends said that were asked, in that order.
    pub replies: Vec<Reply>,
    /// How long it took.
    pub took: Duration,
}

impl Judge {
    /// A judge after `settings`, which calls out with `client`; `classifier` judges in the place of the embedded one.
    ///
    /// # Errors
    /// When the embedded classifier is needed and cannot be loaded.
    pub fn new(
        settings: &Settings,
        client: &Client,
        prices: Arc<Prices>,
        classifier: Option<Arc<dyn Classify>>,
    ) -> Result<Self, LoadError> {
        let tier = |tier: JudgeTier| {
            Ok::<_, LoadError>(match settings.model(tier) {
                Some(model) => Tier::Model {
                    backend: Box::new(Backend::new(tier, model.clone(), client.clone())),
                    name: tier.as_str(),
                    model: model.model.clone(),
                },
                None => {
                    let classifier = match &classifier {
                        Some(classifier) => Arc::clone(classifier),
                        None => Arc::new(Classifier::embedded()?),
                    };
                    Tier::Classifier(Classifying::new(classifier, settings.classifier.threshold))
                }
            })
        };
        let mut tiers = settings.tiers().map(tier);
        let first = tiers.next().unwrap_or_else(|| tier(JudgeTier::Classifier))?;
        Ok(Self { first, second: tiers.next().transpose()?, settings: settings.clone(), prices })
    }

    /// The label `backend`.
    pub fn backend(&self) -> &'static str {
        self.settings.backend.as_str()
    }

    /// The label `model`: of a cascade both, with a plus between them.
    pub fn model(&self) -> String {
        let (first, second) = (self.first.model(), self.second.as_ref().map(Tier::model));
        second.map_or_else(|| first.to_owned(), |second| format!("{first}+{second}"))
    }

    /// The question about `candidate`.
    pub fn prompt(&self, candidate: &Candidate) -> Prompt {
        Prompt::new(candidate, self.settings.system_prompt.as_deref())
    }

    /// Asks. Ends within `judge.worker.total_deadline_ms`.
    pub async fn ask(&self, candidate: &Candidate, prompt: &Prompt) -> Outcome {
        let begun = Instant::now();
        let worker = &self.settings.worker;
        let total = Duration::from_millis(worker.total_deadline_ms);
        let patience = Patience {
            each: Duration::from_millis(worker.timeout_ms),
            until: (!total.is_zero()).then(|| tokio::time::Instant::now() + total),
            retry: self.settings.retry,
        };
        let once = Patience { retry: JudgeRetry { max: 0, ..patience.retry }, ..patience };
        // Where somebody else can be asked, the time is better spent there than on a second try.
        let how = if self.second.is_some() { &once } else { &patience };
        let mut replies = vec![self.reply(&self.first, candidate, prompt, how).await];
        let mut verdict = replies[0].verdict.clone();
        if let Some(second) = self.second.as_ref().filter(|_| self.is_open(&verdict)) {
            let reply = self.reply(second, candidate, prompt, &patience).await;
            verdict = if reply.verdict.is_ok() || verdict.is_err() { reply.verdict.clone() } else { verdict };
            replies.push(reply);
        }
        Outcome { verdict, replies, took: begun.elapsed() }
    }

    /// Whether the slow backend of a cascade is to say more: the fast one failed, or is not sure.
    fn is_open(&self, verdict: &Result<Verdict, Failure>) -> bool {
        let band = &self.settings.cascade;
        let unsure = |verdict: &Verdict| band.low < verdict.confidence && verdict.confidence < band.high;
        self.settings.backend == JudgeBackend::Cascade && verdict.as_ref().map_or(true, unsure)
    }

    async fn reply(&self, tier: &Tier, candidate: &Candidate, prompt: &Prompt, patience: &Patience) -> Reply {
        let (backend, model) = (tier.name(), tier.model().to_owned());
        let (said, verdict) = match tier {
            Tier::Model { backend, .. } => match patience.ask(|limit| backend.ask(prompt, limit)).await {
                Ok(said) => {
                    let texts = candidate.pieces.iter().map(|piece| piece.text.as_str());
                    let read = Verdict::read(&said.text, texts);
                    (said, read.map_err(|why| Failure::lasting(Status::ParseError, why.to_string())))
                }
                Err(failure) => (Said::default(), Err(failure)),
            },
            Tier::Classifier(classifier) => (Said::default(), classifier.ask(candidate, patience.left()).await),
        };
        let price = tier.provider().and_then(|provider| self.prices.find(provider, &model));
        let cost_nano_usd = price.map(|price| cost_nano_usd(&price, &said.tokens));
        Reply { backend, model, raw: said.text, tokens: said.tokens, cost_nano_usd, verdict }
    }
}

impl Tier {
    fn name(&self) -> &'static str {
        match self {
            Self::Model { name, .. } => name,
            Self::Classifier(_) => JudgeTier::Classifier.as_str(),
        }
    }

    fn model(&self) -> &str {
        match self {
            Self::Model { model, .. } => model,
            Self::Classifier(classifier) => classifier.name(),
        }
    }

    /// Under whose name its model stands in the price list; nobody's for the classifier.
    fn provider(&self) -> Option<&'static str> {
        match self {
            Self::Model { name: "hostedmessages", .. } => Some("anthropic"),
            Self::Model { name: "hostedcompat", .. } => Some("openai"),
            // Whose own machine it is knows what it costs.
            Self::Model { .. } => Some("vllm"),
            Self::Classifier(_) => None,
        }
    }
}
