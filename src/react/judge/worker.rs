//! The worker: takes cases from a bounded queue, in which tenants take turns, has so many of them judged at once, and says what becomes of each verdict.
//!
//! Invariants: handing in a case never waits, and one that is turned away is counted with its reason; a question ends
//! within the judge's deadline; when the worker stops, what waits is counted as dropped and what is being asked as
//! `shutdown`. Knows neither where cases come from nor where verdicts are kept.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use weir_config::settings::Judge as Settings;
use weir_config::vocab::{Finding, score};

use super::cache::{self, VerdictCache};
use super::case::{Case, Ruling};
use super::figures::{Dropped, Figures};
use super::gate::{Agreement, Gate, Passage};
use super::line::{FairLine, Refused};
use super::verdict::Verdict;
use super::{Judge, Outcome, Status};
use crate::meter::{Exposition, Source, names};

/// `judge.worker.*`, `judge.promotion.*` and the threshold.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// `channel_buffer`.
    pub queue: usize,
    /// `max_concurrency`.
    pub at_once: usize,
    /// `min_score_threshold`.
    pub min_score: u8,
    /// The promotion gate.
    pub gate: Gate,
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        let (worker, gate) = (&settings.worker, settings.promotion);
        Self {
            queue: worker.queue,
            at_once: worker.at_once,
            min_score: settings.min_score,
            gate: Gate {
                min_confidence: gate.min_confidence,
                min_security_score: gate.min_security_score,
                require_ensemble_support: gate.require_ensemble_support,
                shadow: gate.shadow,
            },
        }
    }
}

/// Says whether the judge is switched on.
pub type IsOpen = Arc<dyn Fn() -> bool + Send + Sync>;

/// Where cases are handed in. Cheap to clone.
#[derive(Clone)]
pub struct CaseQueue {
    queue: Arc<FairLine<Waiting>>,
    is_open: IsOpen,
    min_score: u8,
    figures: Arc<Figures>,
}

struct Waiting {
    case: Case,
    tell: oneshot::Sender<Ruling>,
    /// Somebody who is told as well, and later: whoever waits may have gone.
    also: Option<oneshot::Sender<Ruling>>,
}

/// What a case comes to, once it is ruled on; never where there is no verdict.
pub type Told = oneshot::Receiver<Ruling>;

impl CaseQueue {
    /// Hands a case in; `None` where it is turned away. Waits for nobody.
    pub fn submit(&self, case: Case) -> Option<Told> {
        let (tell, told) = oneshot::channel();
        self.take_in(case, tell, None).then_some(told)
    }

    /// The same for two who wait, each for as long as it likes.
    pub fn submit_for_two(&self, case: Case) -> Option<(Told, Told)> {
        let ((tell, told), (also, later)) = (oneshot::channel(), oneshot::channel());
        self.take_in(case, tell, Some(also)).then_some((told, later))
    }

    fn take_in(&self, case: Case, tell: oneshot::Sender<Ruling>, also: Option<oneshot::Sender<Ruling>>) -> bool {
        if !(self.is_open)() {
            self.figures.dropped(Dropped::Disabled);
            return false;
        }
        if score(&case.prior) < self.min_score {
            self.figures.dropped(Dropped::BelowThreshold);
            return false;
        }
        let (truncated, tenant) = (case.candidate.truncated, case.tenant);
        if let Err(refused) = self.queue.put(tenant, Waiting { case, tell, also }) {
            self.figures.dropped(match refused {
                Refused::Full => Dropped::ChannelFull,
                Refused::Closed => Dropped::ChannelClosed,
            });
            return false;
        }
        if truncated {
            self.figures.dropped(Dropped::AnalysisTextTruncated);
        }
        true
    }

    /// Whether a case with these findings would be taken in, but for want of room. Counts nothing.
    pub fn would_take(&self, prior: &[Finding]) -> bool {
        score(prior) >= self.min_score && (self.is_open)()
    }

    /// Counts a verdict that could not be kept.
    pub fn not_kept(&self) {
        self.figures.dropped(Dropped::PersistFailure);
    }
}

/// The counters and the depth of the queue, for a registry.
struct QueueSource {
    figures: Arc<Figures>,
    queue: Weak<FairLine<Waiting>>,
}

impl Source for QueueSource {
    fn collect(&self, out: &mut Exposition) {
        let depth = self.queue.upgrade().map_or(0, |queue| queue.len());
        out.gauge(names::JUDGE_QUEUE_DEPTH, &[], depth as f64);
        self.figures.collect(out);
    }
}

/// What one worker works with.
struct WorkerParts {
    judge: Judge,
    model: Arc<str>,
    gate: Gate,
    memory: VerdictCache,
    figures: Arc<Figures>,
}

/// What a question came to, where it came to a verdict.
struct Given {
    verdict: Verdict,
    took: Duration,
    tokens: (u64, u64),
}

/// A worker, which works from its start on.
pub struct Worker {
    cases: CaseQueue,
    stop: watch::Sender<bool>,
    places: Arc<Semaphore>,
    parts: Arc<WorkerParts>,
    waiting: Option<Arc<FairLine<Waiting>>>,
    task: Option<JoinHandle<()>>,
}

impl Worker {
    /// One that takes cases in while `is_open`.
    pub fn new(judge: Judge, options: Options, is_open: IsOpen) -> Self {
        let model: Arc<str> = judge.model().into();
        let figures = Arc::new(Figures::new(judge.backend(), &model));
        let queue = Arc::new(FairLine::new(options.queue, options.at_once));
        let parts = WorkerParts {
            judge,
            model,
            gate: options.gate,
            memory: VerdictCache::default(),
            figures: Arc::clone(&figures),
        };
        Self {
            waiting: Some(Arc::clone(&queue)),
            cases: CaseQueue { queue, is_open, min_score: options.min_score, figures },
            stop: watch::Sender::new(false),
            places: Arc::new(Semaphore::new(options.at_once.max(1))),
            parts: Arc::new(parts),
            task: None,
        }
    }

    /// Begins to work on `runtime`.
    pub fn start(&mut self, runtime: &Handle) {
        if let Some(waiting) = self.waiting.take() {
            let work = run(Arc::clone(&self.parts), waiting, Arc::clone(&self.places), self.stop.subscribe());
            self.task = Some(runtime.spawn(work));
        }
    }

    /// Where cases are handed in.
    pub fn cases(&self) -> CaseQueue {
        self.cases.clone()
    }

    /// Its counters.
    pub fn source(&self) -> Box<dyn Source> {
        Box::new(QueueSource { figures: Arc::clone(&self.cases.figures), queue: Arc::downgrade(&self.cases.queue) })
    }

    /// Ends it: what waits and what is being asked is counted. A ruling that somebody waits for never comes then.
    pub async fn stop(self) {
        // In this order: a place that becomes free now is nobody's.
        self.places.close();
        self.stop.send_replace(true);
        if let Some(task) = self.task {
            let _ended = task.await.is_ok();
        }
    }
}

async fn run(
    parts: Arc<WorkerParts>,
    waiting: Arc<FairLine<Waiting>>,
    places: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
) {
    let (mut questions, mut stopped, mut lost) = (JoinSet::new(), stop.clone(), Dropped::Shutdown);
    loop {
        // A place first: whose turn it is is asked when there is one.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            lost = Dropped::SemaphoreClosed;
            break;
        };
        let next = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => None,
            next = waiting.next() => Some(next),
        };
        let Some((one, share)) = next else { break };
        let (parts, stop) = (Arc::clone(&parts), stop.clone());
        questions.spawn(async move {
            parts.deal(one, stop).await;
            drop((share, place));
        });
        while questions.try_join_next().is_some() {}
    }
    // The first of those that wait was waiting for the place.
    for _ in waiting.close() {
        parts.figures.dropped(std::mem::replace(&mut lost, Dropped::Shutdown));
    }
    while questions.join_next().await.is_some() {}
}

impl WorkerParts {
    async fn deal(&self, Waiting { case, tell, also }: Waiting, stop: watch::Receiver<bool>) {
        let Some(Given { verdict, took, tokens }) = self.verdict(&case, stop).await else { return };
        self.figures.verdict(&verdict, Agreement::of(&verdict, case.blocked));
        let passage = self.gate.pass(&verdict, &case.prior);
        match passage {
            Passage::Held(why) => self.figures.held(why),
            Passage::Shadow => self.figures.shadow(&verdict),
            Passage::Promoted => {}
        }
        let (backend, model) = (self.judge.backend(), Arc::clone(&self.model));
        let ruling = Ruling { verdict, passage, mode: case.mode, backend, model, took, tokens };
        // Neither may be waiting any more.
        if let Some(also) = also {
            let _heard = also.send(ruling.clone()).is_ok();
        }
        let _heard = tell.send(ruling).is_ok();
    }

    /// What is remembered, or what the judge says now.
    async fn verdict(&self, case: &Case, mut stop: watch::Receiver<bool>) -> Option<Given> {
        let key = cache::key(case.tenant, &case.candidate);
        if let Some(verdict) = self.memory.get(&key, Instant::now()) {
            self.figures.remembered();
            return Some(Given { verdict, took: Duration::ZERO, tokens: (0, 0) });
        }
        let begun = Instant::now();
        let outcome = tokio::select! {
            biased;
            outcome = self.ask(case) => outcome,
            _ = stop.wait_for(|stopped| *stopped) => {
                self.figures.asked(case.mode, Status::Shutdown, begun.elapsed(), &[]);
                return None;
            }
        };
        let tokens = outcome.replies.iter().map(|reply| reply.tokens);
        let tokens = tokens.fold((0, 0), |(input, output): (u64, u64), counted| {
            (input.saturating_add(counted.input), output.saturating_add(counted.output))
        });
        let verdict = outcome.verdict.ok()?;
        self.memory.put(key, verdict.clone(), Instant::now());
        Some(Given { verdict, took: outcome.took, tokens })
    }

    async fn ask(&self, case: &Case) -> Outcome {
        let prompt = self.judge.prompt(&case.candidate);
        let outcome = self.judge.ask(&case.candidate, &prompt).await;
        let status = outcome.verdict.as_ref().err().map_or(Status::Success, |failure| failure.status);
        self.figures.asked(case.mode, status, outcome.took, &outcome.replies);
        if let Err(failure) = &outcome.verdict {
            tracing::debug!(status = status.as_str(), reason = %failure, "the judge gave no verdict");
        }
        outcome
    }
}
