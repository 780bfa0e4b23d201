//! One replay that was asked for: how far it is, and what has come of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;
use weir_config::Settings;
use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};
use weir_inference::Analyser;
use weir_storage::query::Page;
use weir_storage::record::SpanRecord;
use weir_storage::{ReadError, SpanLog};

use super::look::Looker;
use super::tally::{Change, Tally, Terms, Unasked};
use super::trial::{Against, ReplayRequest, Trial, beside};

/// Spans, and about how many bytes of them, that are in memory at a time.
const PIECE_ITEMS: u32 = 64;
const PIECE_BYTES: usize = 4 << 20;
/// Longest that a replay goes on.
const RUN_FOR: Duration = Duration::from_secs(15 * 60);
/// Calls that would be different of which a replay says each; the others are counted.
const CHANGES_MAX: usize = 500;
/// Agents that are counted by themselves.
const AGENTS_MAX: usize = 500;
/// Attempts at what the store was too busy for, and the wait between two.
const ATTEMPTS: u32 = 20;
const ATTEMPT_WAIT: Duration = Duration::from_millis(250);

/// What replays work with.
pub struct ReplayMeans {
    /// The record.
    pub spans: Arc<dyn SpanLog>,
    /// The detectors and rules in force.
    pub analyser: Arc<Analyser>,
    /// The settings in force.
    pub settings: Arc<ArcSwap<Settings>>,
    /// What the settings would ask of a call and a replay does not.
    pub(crate) unasked: fn(&Settings) -> Vec<Unasked>,
    /// Called first on each thread that replays: the work can wait.
    pub on_thread: fn(),
}

/// How far a replay is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReplayState {
    /// Another one is under way.
    Waiting,
    /// Calls are being looked at.
    Running,
    /// Every call that is meant has been looked at, or as many as may be: `stopped_by`.
    Done,
    /// It was ended before it was done; what had been found until then is there.
    Cancelled,
    /// It could not go on: `error`.
    Failed,
}

/// Why a replay that is done has not looked at every call that is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoppedBy {
    /// There are more than `limit`.
    Limit,
    /// It took a quarter of an hour.
    Time,
}

/// A call of which something would be different.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ReplayChange {
    trace_id: TraceId,
    span_id: SpanId,
    start_time: Timestamp,
    agent_id: Option<String>,
    model: Option<String>,
    #[serde(flatten)]
    change: Change,
}

/// How far it is and what came of it.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    pub(crate) state: ReplayState,
    pub(crate) read: u64,
    pub(crate) expected: Option<u64>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) stopped_by: Option<StoppedBy>,
    pub(crate) error: Option<String>,
    pub(crate) tally: Tally,
    pub(crate) changes: Vec<ReplayChange>,
    pub(crate) newly_blocked: u64,
    pub(crate) no_longer_blocked: u64,
}

/// A replay that was asked for.
pub(crate) struct Run {
    pub(crate) id: Uuid,
    pub(crate) tenant: TenantId,
    pub(crate) created_at: Timestamp,
    pub(crate) request: ReplayRequest,
    progress: Mutex<Progress>,
    ends: AtomicBool,
}

impl Run {
    pub(super) fn new(tenant: TenantId, request: ReplayRequest) -> Self {
        let progress = Progress {
            state: ReplayState::Waiting,
            read: 0,
            expected: None,
            started_at: None,
            ended_at: None,
            stopped_by: None,
            error: None,
            tally: Tally { agents_max: AGENTS_MAX, ..Tally::default() },
            changes: Vec::new(),
            newly_blocked: 0,
            no_longer_blocked: 0,
        };
        let (id, created_at) = (Uuid::now_v7(), Timestamp::now());
        Self { id, tenant, created_at, request, progress: Mutex::new(progress), ends: AtomicBool::new(false) }
    }

    /// How far it is now.
    pub(crate) fn progress(&self) -> Progress {
        self.progress.lock().clone()
    }

    pub(super) fn state(&self) -> ReplayState {
        self.progress.lock().state
    }

    pub(super) fn is_over(&self) -> bool {
        !matches!(self.state(), ReplayState::Waiting | ReplayState::Running)
    }

    /// Ends it where it is; one that waits ends at once. False for one that is over.
    pub(super) fn cancel(&self) -> bool {
        let mut progress = self.progress.lock();
        match progress.state {
            ReplayState::Waiting => {
                (progress.state, progress.ended_at) = (ReplayState::Cancelled, Some(Timestamp::now()));
            }
            ReplayState::Running => self.ends.store(true, Ordering::Relaxed),
            _ => return false,
        }
        true
    }

    /// It is its turn; false where it was ended while it waited.
    pub(super) fn begin(&self) -> bool {
        let mut progress = self.progress.lock();
        if progress.state != ReplayState::Waiting {
            return false;
        }
        (progress.state, progress.started_at) = (ReplayState::Running, Some(Timestamp::now()));
        true
    }

    /// It is over. Waiting it was not.
    pub(super) fn end(&self, outcome: Result<(), String>) {
        let mut progress = self.progress.lock();
        progress.ended_at = Some(Timestamp::now());
        progress.state = match outcome {
            Ok(()) if self.ends.load(Ordering::Relaxed) => ReplayState::Cancelled,
            Ok(()) => ReplayState::Done,
            Err(error) => {
                progress.error = Some(error);
                ReplayState::Failed
            }
        };
    }

    /// Looks at all calls that are meant.
    pub(super) fn carry_out(&self, means: &ReplayMeans) -> Result<(), String> {
        let current = means.settings.load_full();
        let trial = Trial::new(&self.request, &current, &means.analyser)?;
        self.progress.lock().tally.not_asked = (means.unasked)(&trial.settings);
        let changed = trial.analyser(&means.analyser)?;
        let unchanged = match self.request.against {
            Against::Current => Some(beside(&means.analyser, means.analyser.operator().cloned())?),
            Against::Record => None,
        };
        let mut after = Looker::new(&trial.settings, &changed);
        let mut before = unchanged.as_ref().map(|analyser| Looker::new(&current, analyser));
        let (was, is) = (Terms::of(&current), Terms::of(&trial.settings));
        self.each(&*means.spans, |span| {
            let now = after.look(span);
            let former = before.as_mut().map(|looker| looker.look(span));
            let mut progress = self.progress.lock();
            let change = progress.tally.compare(span, former.as_ref().map(|look| (look, was)), (&now, is));
            if let Some(change) = change {
                progress.note(span, change);
            }
            progress.read += 1;
        })
    }

    /// Gives `look` one call after the other, the newest first.
    fn each(&self, spans: &dyn SpanLog, mut look: impl FnMut(&SpanRecord)) -> Result<(), String> {
        let (begun, filter) = (Instant::now(), self.request.filter(self.created_at));
        let mut left = self.request.calls_max();
        let mut page = Page { limit: 1, texts: false, ..Page::default() };
        let total = self.patiently(|| spans.list_spans(self.tenant, &filter, page))?.total;
        self.progress.lock().expected = Some(total.min(left));
        page = Page { or_fewer: true, enough_bytes: PIECE_BYTES, ..Page::default() };
        loop {
            page.limit = u32::try_from(left).unwrap_or(u32::MAX).min(PIECE_ITEMS);
            let found = self.patiently(|| spans.list_spans(self.tenant, &filter, page))?;
            left = left.saturating_sub(found.data.len() as u64);
            for span in &found.data {
                if self.ends.load(Ordering::Relaxed) {
                    return Ok(());
                }
                look(span);
                if begun.elapsed() > RUN_FOR {
                    self.progress.lock().stopped_by = Some(StoppedBy::Time);
                    return Ok(());
                }
            }
            let Some(next) = found.next else { return Ok(()) };
            page.after = Some(next.to_the_end());
            if left == 0 {
                self.progress.lock().stopped_by = Some(StoppedBy::Limit);
                return Ok(());
            }
        }
    }

    /// Tries again while the store is busy, and this is not to end.
    fn patiently<T>(&self, mut attempt: impl FnMut() -> Result<T, ReadError>) -> Result<T, String> {
        let mut tries = ATTEMPTS;
        loop {
            let result = attempt();
            tries -= 1;
            let is_transient = matches!(result, Err(ReadError::Busy { .. } | ReadError::TimedOut { .. }));
            if !is_transient || tries == 0 || self.ends.load(Ordering::Relaxed) {
                return result.map_err(|error| format!("the record cannot be read: {error}"));
            }
            std::thread::sleep(ATTEMPT_WAIT);
        }
    }
}

impl Progress {
    fn note(&mut self, span: &SpanRecord, change: Change) {
        const BLOCKED: &str = "blocked";
        let (was, is) = (change.decision_before == BLOCKED, change.decision_after == BLOCKED);
        self.newly_blocked += u64::from(is && !was);
        self.no_longer_blocked += u64::from(was && !is);
        if self.changes.len() < CHANGES_MAX {
            self.changes.push(ReplayChange {
                trace_id: span.trace_id,
                span_id: span.span_id,
                start_time: span.start_time,
                agent_id: span.agent_id.clone(),
                model: span.model.clone(),
                change,
            });
        }
    }
}
