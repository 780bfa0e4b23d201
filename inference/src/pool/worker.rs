//! What the workers of a pool do: take the next job, or several for models, and give each its turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::mpsc::Sender;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};

use super::lane::{Lane, Room, Waiting};
use super::{Counters, Job, PoolOptions, Turn};
use crate::analyser::{Analyser, Scratch};
use crate::later::Later;
use crate::pool_thread;

#[derive(Debug)]
pub(super) struct Shared {
    /// What has come in and no worker has put in order yet; `room` bounds it.
    inbox: SegQueue<Job>,
    /// Locked by workers alone, and for moments.
    waiting: Mutex<Waiting>,
    room: Room,
    /// Workers with a job, and with one for models.
    busy: AtomicUsize,
    modelling: AtomicUsize,
    batch_jobs: usize,
    batch_wait: Duration,
    workers: Box<[Worker]>,
    /// The pool takes no more work and its workers end when the queue is empty.
    pub(super) stopping: AtomicBool,
    /// What still waits is expired at once.
    pub(super) hurrying: AtomicBool,
    run: CachePadded<AtomicU64>,
    expired: AtomicU64,
    rejected: AtomicU64,
    panicked: AtomicU64,
}

#[derive(Debug, Default)]
struct Worker {
    /// One of [`AWAKE`], [`RESTING`] and [`ASLEEP`]: the latter two from just before the worker parks until somebody takes it upon
    /// themselves to wake it.
    state: CachePadded<AtomicU8>,
    thread: OnceLock<Thread>,
}

const AWAKE: u8 = 0;
/// Wakes by itself within [`REST`]: jobs that can wait so long need wake nobody.
const RESTING: u8 = 1;
const ASLEEP: u8 = 2;

/// How long a worker rests where many jobs come. To wake it for each costs more than most of them take, and drives what the core needs
/// out of its caches.
const REST: Duration = Duration::from_millis(1);

/// How often jobs have come of late.
#[derive(Debug)]
struct Pace {
    since: Instant,
    jobs: u32,
}

impl Pace {
    /// Jobs are counted over so long.
    const WINDOW: Duration = Duration::from_millis(2);
    /// So many in it are often. Where fewer come, a rest would be one more waking for each.
    const OFTEN: u32 = 4;

    fn count(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.since) > Self::WINDOW {
            *self = Self { since: now, jobs: 0 };
        }
        self.jobs = self.jobs.saturating_add(1);
    }

    fn is_quick(&self) -> bool {
        self.jobs >= Self::OFTEN && self.since.elapsed() <= Self::WINDOW
    }
}

/// Jobs a worker has taken: one, or several for models.
struct Batch {
    first: Job,
    more: Vec<Job>,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(options: &PoolOptions) -> Self {
        Self {
            inbox: SegQueue::new(),
            waiting: Mutex::default(),
            room: Room::new(options),
            busy: AtomicUsize::new(0),
            modelling: AtomicUsize::new(0),
            batch_jobs: options.batch_jobs.max(1),
            batch_wait: options.batch_wait,
            workers: (0..options.threads.max(1)).map(|_| Worker::default()).collect(),
            stopping: AtomicBool::new(false),
            hurrying: AtomicBool::new(false),
            run: CachePadded::default(),
            expired: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
        }
    }

    /// Takes a job, and wakes a worker for it; one that is `patient` is left to whoever wakes within [`REST`].
    pub(super) fn submit(&self, job: Job, patient: bool) -> Result<(), Job> {
        if self.stopping.load(Ordering::SeqCst) {
            return Err(job);
        }
        if !self.room.take(&job) {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return Err(job);
        }
        self.inbox.push(job);
        self.wake_one(patient);
        Ok(())
    }

    pub(super) fn counters(&self) -> Counters {
        Counters {
            queued_jobs: self.room.jobs(),
            queued_bytes: self.room.bytes(),
            run: self.run.load(Ordering::Relaxed),
            expired: self.expired.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            panicked: self.panicked.load(Ordering::Relaxed),
        }
    }

    pub(super) fn work(&self, index: usize, analyser: &Analyser, _alive: Sender<()>) {
        let Some(worker) = self.workers.get(index) else { return };
        let _first = worker.thread.set(thread::current()).is_ok();
        pool_thread::begins();
        let mut scratch = analyser.scratch();
        let mut pace = Pace { since: Instant::now(), jobs: 0 };
        loop {
            if let Some(batch) = self.take(false) {
                pace.count();
                self.take_turn(batch, analyser, &mut scratch);
                continue;
            }
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            let rests = pace.is_quick();
            worker.state.store(if rests { RESTING } else { ASLEEP }, Ordering::SeqCst);
            // Pairs with the fence in `wake_one`: either we see the job, or the submitter sees us asleep. Another worker may have put it in
            // order meanwhile, so an empty inbox says nothing.
            fence(Ordering::SeqCst);
            let late = self.take(false);
            if late.is_none() && !self.stopping.load(Ordering::SeqCst) {
                if rests { thread::park_timeout(REST) } else { thread::park() }
            }
            worker.state.store(AWAKE, Ordering::SeqCst);
            if let Some(batch) = late {
                pace.count();
                self.take_turn(batch, analyser, &mut scratch);
            }
        }
    }

    fn take_turn(&self, batch: Batch, analyser: &Analyser, scratch: &mut Scratch) {
        let is_model = batch.first.lane == Lane::Model;
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.turn(batch, analyser, scratch);
        self.busy.fetch_sub(1, Ordering::Relaxed);
        if is_model {
            self.modelling.fetch_sub(1, Ordering::AcqRel);
            // Jobs for models may have been left because all places were taken, and this worker may get another kind next.
            if self.room.jobs() > 0 {
                self.wake_one(false);
            }
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        let rests = || self.workers.iter().any(|worker| worker.state.load(Ordering::Relaxed) == RESTING);
        (self.room.jobs() > 0 && !rests()) || self.busy.load(Ordering::Relaxed) >= self.workers.len()
    }

    /// The next job, or several for models. A worker that gets one for models counts among those that run them; `all` asks
    /// for no share of the workers.
    fn take(&self, all: bool) -> Option<Batch> {
        let models_max = if all { usize::MAX } else { self.workers.len().saturating_sub(1).max(1) };
        let mut waiting = self.drain();
        // Counted under the lock: two workers cannot both take the last place.
        let first = waiting.next(self.modelling.load(Ordering::Acquire) < models_max)?;
        let mut batch = Batch { first, more: Vec::new() };
        if batch.first.lane == Lane::Model {
            self.modelling.fetch_add(1, Ordering::AcqRel);
            waiting.fill(&batch.first, &mut batch.more, self.batch_jobs);
            drop(waiting);
            if !all && batch.more.len() + 1 < self.batch_jobs && !self.batch_wait.is_zero() {
                thread::park_timeout(self.batch_wait);
                self.drain().fill(&batch.first, &mut batch.more, self.batch_jobs);
            }
        }
        self.room.give(&batch.first);
        batch.more.iter().for_each(|job| self.room.give(job));
        Some(batch)
    }

    /// What waits, with everything that has come in.
    fn drain(&self) -> MutexGuard<'_, Waiting> {
        let mut waiting = self.waiting.lock();
        while let Some(job) = self.inbox.pop() {
            waiting.put(job);
        }
        waiting
    }

    fn turn(&self, Batch { first, more }: Batch, analyser: &Analyser, scratch: &mut Scratch) {
        if first.work.rest().is_some() {
            return self.turn_of_models(std::iter::once(first).chain(more).collect(), analyser, scratch);
        }
        if self.is_late(&first) {
            self.end(first, Turn::Expired);
            return;
        }
        if !self.end(first, Turn::Run(analyser, scratch)) {
            analyser.renew(scratch);
        }
    }

    /// Looks at the texts of several jobs together, and where that panics at each alone.
    fn turn_of_models(&self, batch: Vec<Job>, analyser: &Analyser, scratch: &mut Scratch) {
        let (late, batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(|job| self.is_late(job));
        late.into_iter().for_each(|job| {
            self.end(job, Turn::Expired);
        });
        let mut look = |jobs: &[Job]| {
            let rests: Vec<&Later> = jobs.iter().filter_map(|job| job.work.rest()).collect();
            let seen = catch_unwind(AssertUnwindSafe(|| analyser.analyse_later(scratch, &rests)));
            if seen.is_err() {
                analyser.renew(scratch);
            }
            seen.ok()
        };
        if let Some(seen) = look(&batch) {
            batch.into_iter().zip(seen).for_each(|(job, seen)| {
                self.end(job, Turn::Seen(seen));
            });
            return;
        }
        for job in batch {
            match look(std::slice::from_ref(&job)).and_then(|mut seen| seen.pop()) {
                Some(seen) => self.end(job, Turn::Seen(seen)),
                None => {
                    self.panicked.fetch_add(1, Ordering::Relaxed);
                    self.end(job, Turn::Failed)
                }
            };
        }
    }

    fn is_late(&self, job: &Job) -> bool {
        self.hurrying.load(Ordering::Relaxed) || Instant::now() >= job.deadline
    }

    /// Gives a job its turn. False when it panicked.
    fn end(&self, job: Job, turn: Turn<'_>) -> bool {
        let count = if matches!(turn, Turn::Expired) { &self.expired } else { &*self.run };
        let ran = catch_unwind(AssertUnwindSafe(|| job.work.run(turn)));
        count.fetch_add(1, Ordering::Relaxed);
        if ran.is_err() {
            self.panicked.fetch_add(1, Ordering::Relaxed);
        }
        ran.is_ok()
    }

    /// Expires all that waits.
    pub(super) fn expire_all(&self) {
        while let Some(Batch { first, more }) = self.take(true) {
            std::iter::once(first).chain(more).for_each(|job| {
                self.end(job, Turn::Expired);
            });
        }
    }

    fn wake_one(&self, patient: bool) {
        fence(Ordering::SeqCst);
        let state = |worker: &Worker| worker.state.load(Ordering::Relaxed);
        if patient && self.workers.iter().any(|worker| state(worker) == RESTING) {
            return;
        }
        let is_mine = |worker: &&Worker| state(worker) != AWAKE && worker.state.swap(AWAKE, Ordering::SeqCst) != AWAKE;
        let sleeper = self.workers.iter().find(is_mine);
        if let Some(thread) = sleeper.and_then(|worker| worker.thread.get()) {
            thread.unpark();
        }
    }

    pub(super) fn wake_all(&self) {
        for worker in &self.workers {
            worker.state.store(AWAKE, Ordering::SeqCst);
            if let Some(thread) = worker.thread.get() {
                thread.unpark();
            }
        }
    }
}
