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
    /// Workers with a job, with one for models, and with one for the record: none of them counts the last one.
    busy: AtomicUsize,
    modelling: AtomicUsize,
    recording: AtomicUsize,
    batch_jobs: usize,
    batch_wait: Duration,
    /// The last one does work for the record alone.
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

/// Whose jobs are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Those of every lane, as far as there are places.
    Any,
    /// Those for the record.
    Record,
    /// All that is left.
    All,
}

impl Worker {
    fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    /// Wakes it if it is not awake, unless another thread is about to.
    fn wake(&self) -> bool {
        let is_mine = self.state() != AWAKE && self.state.swap(AWAKE, Ordering::SeqCst) != AWAKE;
        if let Some(thread) = self.thread.get().filter(|_| is_mine) {
            thread.unpark();
        }
        is_mine
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
            recording: AtomicUsize::new(0),
            batch_jobs: options.batch_jobs.max(1),
            batch_wait: options.batch_wait,
            workers: (0..=options.threads.max(1)).map(|_| Worker::default()).collect(),
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
        let is_record = job.lane == Lane::Record;
        self.inbox.push(job);
        if is_record {
            self.wake_for_record(patient)
        } else {
            self.wake_one(patient)
        }
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
        let whose = if index < self.general() { Whose::Any } else { Whose::Record };
        loop {
            if let Some(batch) = self.take(whose) {
                pace.count();
                self.take_turn(whose, batch, analyser, &mut scratch);
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
            let late = self.take(whose);
            if late.is_none() && !self.stopping.load(Ordering::SeqCst) {
                if rests { thread::park_timeout(REST) } else { thread::park() }
            }
            worker.state.store(AWAKE, Ordering::SeqCst);
            if let Some(batch) = late {
                pace.count();
                self.take_turn(whose, batch, analyser, &mut scratch);
            }
        }
    }

    /// Workers that take any job.
    fn general(&self) -> usize {
        self.workers.len() - 1
    }

    fn take_turn(&self, whose: Whose, batch: Batch, analyser: &Analyser, scratch: &mut Scratch) {
        if whose == Whose::Record {
            return self.turn(batch, analyser, scratch);
        }
        let lane = batch.first.lane;
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.turn(batch, analyser, scratch);
        self.busy.fetch_sub(1, Ordering::Relaxed);
        match lane {
            Lane::Model => {
                self.modelling.fetch_sub(1, Ordering::AcqRel);
                // Jobs for models may have been left because all places were taken, and this worker may get another kind next.
                if self.room.is_waited_for() {
                    self.wake_one(false);
                }
            }
            Lane::Record => {
                self.recording.fetch_sub(1, Ordering::AcqRel);
            }
            Lane::Cheap | Lane::Heavy => {}
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        let general = || self.workers.iter().take(self.general());
        let rests = || general().any(|worker| worker.state.load(Ordering::Relaxed) == RESTING);
        (self.room.is_waited_for() && !rests()) || self.busy.load(Ordering::Relaxed) >= self.general()
    }

    /// The next job, or several for models. A worker that gets one for models, or for the record, counts among those that run
    /// them; for [`Whose::All`] there are no shares of the workers.
    fn take(&self, whose: Whose) -> Option<Batch> {
        let all = whose == Whose::All;
        let models_max = if all { usize::MAX } else { self.general().saturating_sub(1).max(1) };
        let records_max = if all { usize::MAX } else { self.general().saturating_sub(1) };
        let mut waiting = self.drain();
        if whose == Whose::Record {
            let first = waiting.next_record()?;
            self.room.give(&first);
            return Some(Batch { first, more: Vec::new() });
        }
        // Counted under the lock: two workers cannot both take the last place.
        let models = self.modelling.load(Ordering::Acquire) < models_max;
        let first = waiting.next(models, self.recording.load(Ordering::Acquire) < records_max)?;
        let mut batch = Batch { first, more: Vec::new() };
        match batch.first.lane {
            Lane::Model => {
                self.modelling.fetch_add(1, Ordering::AcqRel);
                waiting.fill(&batch.first, &mut batch.more, self.batch_jobs);
                drop(waiting);
                if !all && batch.more.len() + 1 < self.batch_jobs && !self.batch_wait.is_zero() {
                    thread::park_timeout(self.batch_wait);
                    self.drain().fill(&batch.first, &mut batch.more, self.batch_jobs);
                }
            }
            Lane::Record => {
                self.recording.fetch_add(1, Ordering::AcqRel);
            }
            Lane::Cheap | Lane::Heavy => {}
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
        while let Some(Batch { first, more }) = self.take(Whose::All) {
            std::iter::once(first).chain(more).for_each(|job| {
                self.end(job, Turn::Expired);
            });
        }
    }

    /// Wakes a worker that takes any job.
    fn wake_one(&self, patient: bool) {
        fence(Ordering::SeqCst);
        let general = || self.workers.iter().take(self.general());
        if patient && general().any(|worker| worker.state() == RESTING) {
            return;
        }
        let _none_slept = !general().any(Worker::wake);
    }

    /// Wakes the worker for the record; one of the others where that is awake already, because it looks again before it sleeps.
    fn wake_for_record(&self, patient: bool) {
        fence(Ordering::SeqCst);
        match self.workers.last().map(Worker::state) {
            Some(RESTING) if patient => {}
            Some(AWAKE) if self.general() > 1 => self.wake_one(patient),
            _ => {
                let _awake = self.workers.last().is_some_and(Worker::wake);
            }
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
