//! One consumer's task: reads behind its cursor and from its queue, brings what it finds, keeps how far it has come.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::watch;
use weir_storage::record::SpanRecord;
use weir_storage::{Cursor, ReadingClaim, SpanBatch, SpanLog};

use super::consumer::{Batch, Consumer, Failure, Limits, Texts};
use super::queue::Waiting;

/// Spans of one batch, and about their bytes.
pub(super) const BATCH_SPANS: usize = 256;
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Least time between two looks that find less than a full batch: commits come every 5 ms under load.
const PAUSE: Duration = Duration::from_millis(50);
/// A batch of no more spans is one of few calls, which are not kept waiting.
const FEW: usize = 8;
/// How often the store is read without word of a commit: other processes may write to the same file.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often a process that may not read because another one does asks whether that is still there.
const CLAIM_EVERY: Duration = Duration::from_secs(1);
/// How long the cursor of a consumer may lag behind calls that do not concern it: a restart passes them once more, which costs next to
/// nothing, while each cursor that is written is a commit.
const KEEP_EVERY: Duration = Duration::from_secs(60);
/// Waits between attempts.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// What those who run the consumers want of their tasks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Orders {
    /// Not to begin with what is stored: another process that has the store may still be at it.
    pub(super) held: bool,
    /// Another process reads what is stored from now on.
    pub(super) handed_over: bool,
    /// To deal with what there is, and end.
    pub(super) stopping: bool,
}

pub(super) struct Delivery<C: Consumer> {
    consumer: C,
    limits: Limits,
    waiting: Arc<Waiting>,
    store: Arc<dyn SpanLog>,
    /// `None` while the store cannot say.
    cursor: Option<Cursor>,
    /// Another process may have moved the saved cursor on.
    adrift: bool,
    /// The right to read, where one process alone has it.
    claim: Claim,
    /// What was stored when it was told to stop; what comes later is for the next start.
    until: Option<Cursor>,
    /// Spans of the batch under way that are nowhere else.
    in_hand: usize,
    orders: watch::Receiver<Orders>,
    /// Spans of the batch that was last read, and how long to wait before the next one.
    last: usize,
    breath: Duration,
    /// Told in the log, until it works again.
    failing: bool,
    /// When the cursor was written down, and whether it has moved since.
    kept_at: Instant,
    lags: bool,
}

/// Whether this process may read what is stored.
enum Claim {
    /// As all may.
    Needless,
    Held {
        _claim: ReadingClaim,
    },
    /// Not before this instant is it asked for.
    Wanted(Instant),
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Taken, or given up and counted.
    Done,
    /// The same, and there is more.
    Full,
    /// The process ends; nothing is known.
    Stopped,
}

impl Fate {
    fn with(self, more: bool) -> Self {
        if self == Self::Done && more { Self::Full } else { self }
    }
}

impl<C: Consumer> Delivery<C> {
    /// Finds the consumer's cursor. Blocks.
    pub(super) fn new(
        consumer: C,
        waiting: Arc<Waiting>,
        store: Arc<dyn SpanLog>,
        orders: watch::Receiver<Orders>,
    ) -> Self {
        let limits = consumer.limits();
        let claim = if consumer.reads_alone() { Claim::Wanted(Instant::now()) } else { Claim::Needless };
        let cursor = match begin(&*store, waiting.name) {
            Ok(cursor) => Some(cursor),
            Err(error) => {
                let consumer = waiting.name;
                tracing::warn!(consumer, error, "the consumer's position cannot be read from the store; will retry");
                None
            }
        };
        let (adrift, until, in_hand, failing) = (false, None, 0, false);
        let (kept_at, lags, last, breath) = (Instant::now(), false, 0, PAUSE);
        Self {
            consumer,
            limits,
            waiting,
            store,
            cursor,
            adrift,
            claim,
            until,
            in_hand,
            orders,
            last,
            breath,
            failing,
            kept_at,
            lags,
        }
    }

    /// Runs until it is stopped and has dealt with what there is, or may no longer try.
    pub(super) async fn run(mut self) {
        loop {
            let queued = self.bring_queued().await;
            let stored = if queued == Some(Fate::Stopped) { queued } else { self.bring_stored().await };
            match (queued, stored) {
                (Some(Fate::Stopped), _) | (_, Some(Fate::Stopped)) => break,
                (None, None) if self.is_stopping() => break,
                (None, None) => {
                    let idle = self.idle_time();
                    let Self { waiting, orders, .. } = &mut self;
                    tokio::select! {
                        () = waiting.news() => {}
                        () = tokio::time::sleep(idle) => {}
                        _ = orders.changed() => {}
                    }
                }
                (Some(Fate::Full), _) | (_, Some(Fate::Full)) => {}
                _ => {
                    self.breath = next_breath(self.breath, self.last, self.consumer.patience());
                    self.pause(self.breath).await;
                }
            }
        }
        if !self.adrift {
            self.catch_up(Duration::ZERO).await;
        }
    }

    fn is_stopping(&self) -> bool {
        // Nobody left to say so is an end, too.
        self.orders.borrow().stopping || self.orders.has_changed().is_err()
    }

    /// Whether what is stored is this process's to read: where another one has it, only what that has left at the end.
    fn may_read(&mut self) -> bool {
        let Orders { held, handed_over, .. } = *self.orders.borrow();
        let others = held || (handed_over && !self.is_stopping());
        self.adrift |= others;
        if others {
            self.give_up_claim();
        }
        let is_over =
            |until: Cursor| self.cursor.is_some_and(|at| at.file() == until.file() && at.place() >= until.place());
        !others && !self.until.is_some_and(is_over)
    }

    /// Lets another process read.
    fn give_up_claim(&mut self) {
        if let Claim::Held { .. } = self.claim {
            self.claim = Claim::Wanted(Instant::now());
        }
    }

    /// Whether this process is the one that reads.
    async fn has_claim(&mut self) -> Result<bool, String> {
        let due = match self.claim {
            Claim::Needless | Claim::Held { .. } => return Ok(true),
            Claim::Wanted(due) => due,
        };
        let now = Instant::now();
        if now < due {
            return Ok(false);
        }
        self.claim = Claim::Wanted(now + CLAIM_EVERY);
        let (store, name) = (Arc::clone(&self.store), self.waiting.name);
        let claimed = tokio::task::spawn_blocking(move || store.claim_reading(name)).await;
        let claimed = claimed.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        // Whoever read until now has moved the cursor.
        self.adrift = true;
        let Some(claim) = claimed else { return Ok(false) };
        self.claim = Claim::Held { _claim: claim };
        Ok(true)
    }

    /// How long to wait without word of anything.
    fn idle_time(&self) -> Duration {
        if let Claim::Wanted(_) = self.claim { CLAIM_EVERY } else { LOOK_EVERY }
    }

    /// Brings what waits in memory; `None` when nothing does.
    async fn bring_queued(&mut self) -> Option<Fate> {
        let spans = self.waiting.take(BATCH_SPANS);
        if spans.is_empty() {
            return None;
        }
        let batch: Vec<&SpanRecord> = spans.iter().map(|span| &**span).collect();
        self.in_hand = batch.len();
        let fate = self.bring(Batch { spans: &batch, end: None }).await;
        if fate == Fate::Done {
            self.in_hand = 0;
        }
        Some(fate.with(batch.len() >= BATCH_SPANS))
    }

    /// Brings what has been stored behind the cursor; `None` when there is nothing, or it cannot be read now.
    async fn bring_stored(&mut self) -> Option<Fate> {
        if !self.may_read() {
            return None;
        }
        let read = match self.has_claim().await {
            Ok(false) => return None,
            Ok(true) => self.read().await,
            Err(error) => Err(error),
        };
        let batch = match read {
            Ok(batch) => batch,
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    let consumer = self.waiting.name;
                    tracing::warn!(consumer, error, "stored spans cannot be read for the consumer; will retry");
                }
                self.pause(BACKOFF_MIN).await;
                return None;
            }
        };
        if Some(batch.next) == self.cursor {
            self.catch_up(KEEP_EVERY).await;
            return None;
        }
        self.waiting.tally.removed.add(usize::try_from(batch.lost).unwrap_or(usize::MAX));
        let spans: Vec<&SpanRecord> = batch.spans.iter().collect();
        self.last = spans.len();
        let end = Some(batch.next);
        if !spans.is_empty() && self.bring(Batch { spans: &spans, end }).await == Fate::Stopped {
            return Some(Fate::Stopped);
        }
        self.waiting.tally.delivered.add(usize::try_from(batch.clean).unwrap_or(usize::MAX));
        self.cursor = Some(batch.next);
        self.lags = true;
        let concerns = self.waiting.heeds_clean_calls || spans.iter().any(|span| !span.security_findings.is_empty());
        self.catch_up(if concerns { Duration::ZERO } else { KEEP_EVERY }).await;
        // Calls that do not concern the consumer are no reason to look for more of them in a moment: that would go on for as long as
        // such calls come.
        let is_idle = spans.is_empty() && batch.lost == 0 && !batch.more;
        (!is_idle).then(|| Fate::Done.with(batch.more))
    }

    async fn read(&mut self) -> Result<SpanBatch, String> {
        let (store, name, cursor, adrift) = (Arc::clone(&self.store), self.waiting.name, self.cursor, self.adrift);
        let end_is_due = self.is_stopping() && self.until.is_none();
        let (heeds_clean_calls, texts) = (self.waiting.heeds_clean_calls, self.consumer.texts());
        let read = tokio::task::spawn_blocking(move || {
            let saved = if adrift { store.cursor(name).map_err(|error| error.to_string())? } else { None };
            let is_further =
                |saved: &Cursor| cursor.is_none_or(|own| saved.file() != own.file() || saved.place() > own.place());
            let cursor = saved.filter(is_further).or(cursor).map_or_else(|| begin(&*store, name), Ok)?;
            let until = end_is_due.then(|| store.end()).transpose().map_err(|error| error.to_string())?;
            let limit = u32::try_from(BATCH_SPANS).unwrap_or(u32::MAX);
            let read = match texts {
                _ if !heeds_clean_calls => store.read_found_after(cursor, limit, BATCH_BYTES),
                Texts::OfAll => store.read_after(cursor, limit, BATCH_BYTES),
                Texts::OfNone => store.read_without_texts_after(cursor, limit, BATCH_BYTES),
                Texts::Of(is_wanted) => match store.read_without_texts_after(cursor, limit, BATCH_BYTES) {
                    Ok(batch) if batch.spans.iter().any(is_wanted) => store.read_after(cursor, limit, BATCH_BYTES),
                    read => read,
                },
            };
            let batch = read.map_err(|error| error.to_string())?;
            Ok((cursor, until, batch))
        });
        let (cursor, until, batch) = read.await.unwrap_or_else(|error| Err(error.to_string()))?;
        (self.cursor, self.until, self.adrift) = (Some(cursor), self.until.or(until), false);
        Ok(batch)
    }

    /// Writes the cursor down where it lags, and has done so for `least`.
    async fn catch_up(&mut self, least: Duration) {
        if let Some(cursor) = self.cursor.filter(|_| self.lags && self.kept_at.elapsed() >= least) {
            self.keep(cursor).await;
            (self.kept_at, self.lags) = (Instant::now(), false);
        }
    }

    /// Writes down how far the consumer has come. Where that fails, a crash repeats more.
    async fn keep(&mut self, cursor: Cursor) {
        let (store, name) = (Arc::clone(&self.store), self.waiting.name);
        let kept = tokio::task::spawn_blocking(move || store.save_cursor(name, cursor)).await;
        match kept.map_err(|error| error.to_string()).and_then(|kept| kept.map_err(|error| error.to_string())) {
            Ok(()) => self.failing = false,
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(
                        consumer = name,
                        error,
                        "the consumer's position could not be stored; spans may be delivered twice after a restart"
                    );
                }
            }
        }
    }

    /// Has the consumer take `batch`, as often as it needs, or what is left of it.
    async fn bring(&mut self, batch: Batch<'_>) -> Fate {
        let (waiting, end) = (Arc::clone(&self.waiting), Instant::now() + self.limits.batch);
        let (mut backoff, mut spans) = (BACKOFF_MIN, batch.spans.to_vec());
        loop {
            let batch = Batch { spans: &spans, ..batch };
            let taken = AssertUnwindSafe(async { self.consumer.take(batch).await }).catch_unwind();
            let outcome = match tokio::time::timeout(self.limits.attempt, taken).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => Err(Failure::Later { reason: "it panicked".to_owned(), after: None }),
                Err(_) => Err(Failure::Later { reason: format!("not within {:?}", self.limits.attempt), after: None }),
            };
            let failure = match outcome {
                Ok(()) => {
                    waiting.tally.delivered.add(batch.spans.len());
                    return Fate::Done;
                }
                Err(failure) => failure,
            };
            waiting.tally.failures.add(1);
            let (consumer, count) = (waiting.name, spans.len());
            let after = match &failure {
                Failure::Never { .. } => {
                    waiting.tally.refused.add(count);
                    tracing::warn!(consumer, spans = count, %failure, "the consumer refused finished spans; they are skipped");
                    return Fate::Done;
                }
                Failure::Later { after, .. } => after.unwrap_or_default(),
            };
            let wait = after.max(jittered(backoff));
            // A receiver may name any time.
            if wait > end.saturating_duration_since(Instant::now()) {
                waiting.tally.given_up.add(count);
                tracing::warn!(consumer, spans = count, %failure, "finished spans could not be delivered in time; they are skipped");
                return Fate::Done;
            }
            if backoff == BACKOFF_MIN {
                tracing::warn!(consumer, spans = count, %failure, "finished spans could not be delivered; will retry");
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
            self.pause(wait).await;
            if self.is_stopping() {
                return Fate::Stopped;
            }
            // What comes from memory was never stored.
            if batch.end.is_some() {
                self.leave_out_deleted(&mut spans).await;
            }
            if spans.is_empty() {
                return Fate::Done;
            }
        }
    }

    /// Leaves out spans that have been deleted since they were read: nobody is told of them any more.
    async fn leave_out_deleted(&mut self, spans: &mut Vec<&SpanRecord>) {
        let (store, before) = (Arc::clone(&self.store), spans.len());
        let ids: Vec<_> = spans.iter().map(|span| (span.tenant_id, span.span_id)).collect();
        let looked = tokio::task::spawn_blocking(move || {
            ids.into_iter().map(|(tenant, id)| !matches!(store.span(tenant, id), Ok(None))).collect::<Vec<_>>()
        });
        // Where the store cannot say, it is asked before the next attempt.
        let Ok(there) = looked.await else { return };
        let mut there = there.into_iter();
        spans.retain(|_| there.next().unwrap_or(true));
        self.waiting.tally.removed.add(before - spans.len());
    }

    /// Waits, unless the process is to end.
    async fn pause(&mut self, time: Duration) {
        if !self.is_stopping() {
            let _waited = tokio::time::timeout(time, self.orders.changed()).await;
        }
    }
}

/// The wait behind a batch that was not full: twice the last one while batches have more than a few spans, as far as the consumer's patience
/// goes.
pub(super) fn next_breath(last: Duration, spans: usize, patience: Duration) -> Duration {
    if spans > FEW { (last * 2).min(patience).max(PAUSE) } else { PAUSE }
}

/// However the task ends, also when it is not waited for any longer: what only lies in memory is lost with it.
impl<C: Consumer> Drop for Delivery<C> {
    fn drop(&mut self) {
        let lost = self.in_hand + self.waiting.take(usize::MAX).len();
        self.waiting.tally.shutdown.add(lost);
        if lost > 0 {
            tracing::warn!(consumer = self.waiting.name, lost, "spans that were not stored were not delivered either");
        }
    }
}

/// The consumer's cursor; one that has none begins behind everything that is stored, and that is written down at once.
fn begin(store: &dyn SpanLog, name: &str) -> Result<Cursor, String> {
    if let Some(cursor) = store.cursor(name).map_err(|error| error.to_string())? {
        return Ok(cursor);
    }
    let end = store.end().map_err(|error| error.to_string())?;
    store.save_cursor(name, end).map_err(|error| error.to_string())?;
    Ok(end)
}

/// Anything up to `wait` (full jitter), so that consumers of several gateways do not come back together.
pub fn jittered(wait: Duration) -> Duration {
    let share = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
    wait.mul_f64(share)
}
