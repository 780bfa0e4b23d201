//! The inference pool: a few plain threads that do analysis work for the cores, over two bounded
//! lock-free queues: small jobs go before large ones.
//!
//! Invariants: [`Pool::submit`] never blocks, never locks and never makes the queue longer than its bounds; the `run`
//! of an accepted job is called exactly once, with [`Turn::Expired`] when its deadline has passed or the pool stops; a
//! job that panics costs only itself. Knows nothing of what the jobs are about.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;

use crate::analyser::{Analyser, Scratch};

/// How large the pool is.
#[derive(Debug, Clone, Copy)]
pub struct PoolOptions {
    /// Worker threads; at least one is started.
    pub threads: usize,
    /// Most jobs waiting; at least one.
    pub queue_jobs: usize,
    /// Most bytes waiting, as the jobs declare them. An empty queue accepts a job of any size.
    pub queue_bytes: usize,
}

/// What a job is told when its turn comes.
#[derive(Debug)]
pub enum Turn<'a> {
    /// Do the work with these.
    Run(&'a Analyser, &'a mut Scratch),
    /// Too late, or the pool stops: give up, but do answer whoever waits.
    Expired,
}

/// A piece of work.
pub struct Job {
    /// Memory the job keeps alive while it waits, in bytes.
    pub bytes: usize,
    /// When nobody waits for the answer any more.
    pub deadline: Instant,
    /// The work; called exactly once if the job was accepted.
    pub run: Box<dyn FnOnce(Turn<'_>) + Send>,
}

/// What the pool has done and holds; a snapshot whose numbers may be a moment apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Jobs waiting now.
    pub queued_jobs: usize,
    /// Bytes waiting now.
    pub queued_bytes: usize,
    /// Jobs that got their turn in time, panicked ones included.
    pub run: u64,
    /// Jobs that were too late.
    pub expired: u64,
    /// Jobs given back because the queue was full.
    pub rejected: u64,
    /// Jobs that panicked.
    pub panicked: u64,
}

/// The pool; dropping it runs what waits as expired.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    /// Disconnects when the last worker has ended. The lock is never taken: only the owner of the pool looks.
    ended: Mutex<Receiver<()>>,
}

/// A way to give work to a [`Pool`], from any thread.
#[derive(Debug, Clone)]
pub struct PoolHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Jobs up to [`SMALL_BYTES`], and the larger ones.
    small: ArrayQueue<Job>,
    large: ArrayQueue<Job>,
    turns: AtomicUsize,
    /// Workers with a job.
    busy: AtomicUsize,
    bytes_max: usize,
    bytes: CachePadded<AtomicUsize>,
    workers: Box<[Worker]>,
    /// The pool takes no more work and its workers end when the queue is empty.
    stopping: AtomicBool,
    /// What still waits is expired at once.
    hurrying: AtomicBool,
    run: CachePadded<AtomicU64>,
    expired: AtomicU64,
    rejected: AtomicU64,
    panicked: AtomicU64,
}

#[derive(Debug, Default)]
struct Worker {
    /// True from just before the worker parks until somebody takes it upon themselves to wake it.
    asleep: CachePadded<AtomicBool>,
    thread: OnceLock<Thread>,
}

/// Jobs up to this go before larger ones, in bytes.
const SMALL_BYTES: usize = 64 * 1024;
/// One turn in so many goes to a larger job first, so that these come to their turn, too.
const LARGE_TURN: usize = 4;
/// The part of the bytes that waiting large jobs leave to small ones.
const SMALL_PART: usize = 4;
/// How long [`Pool::stop`] lets waiting jobs have their turn.
const DRAIN: Duration = Duration::from_secs(5);
/// How long a running job is waited for once the drain is over; a stuck one is left behind.
const LAST_JOB: Duration = Duration::from_secs(2);

// === impl Job ===

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("bytes", &self.bytes).field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

// === impl Pool ===

impl Pool {
    /// Starts the workers, named `weir-infer-0` and up.
    ///
    /// # Errors
    /// When the system gives no thread; the ones already started end again.
    pub fn start(options: PoolOptions, analyser: Arc<Analyser>) -> io::Result<Self> {
        let threads = options.threads.max(1);
        let shared = Arc::new(Shared {
            small: ArrayQueue::new(options.queue_jobs.max(1)),
            large: ArrayQueue::new(options.queue_jobs.max(1)),
            turns: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            bytes_max: options.queue_bytes,
            bytes: CachePadded::default(),
            workers: (0..threads).map(|_| Worker::default()).collect(),
            stopping: AtomicBool::new(false),
            hurrying: AtomicBool::new(false),
            run: CachePadded::default(),
            expired: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
        });
        let (alive, ended) = mpsc::channel();
        let pool = Self { shared, ended: Mutex::new(ended) };
        for index in 0..threads {
            let (shared, analyser, alive) = (Arc::clone(&pool.shared), Arc::clone(&analyser), alive.clone());
            thread::Builder::new()
                .name(format!("weir-infer-{index}"))
                .spawn(move || shared.work(index, &analyser, alive))?;
        }
        Ok(pool)
    }

    /// A way to give it work; after the pool has ended every job is given back.
    pub fn handle(&self) -> PoolHandle {
        PoolHandle { shared: Arc::clone(&self.shared) }
    }

    /// See [`PoolHandle::submit`].
    ///
    /// # Errors
    /// As there.
    pub fn submit(&self, job: Job) -> Result<(), Job> {
        self.shared.submit(job)
    }

    /// What the pool has done and holds.
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// Ends the pool: waiting jobs get their turn for five seconds, then the rest expires.
    pub fn stop(self) {
        self.stop_within(DRAIN);
    }

    /// Ends the pool: waiting jobs get their turn for `drain`, then the rest expires.
    pub fn stop_within(mut self, drain: Duration) {
        self.end(drain);
    }

    fn end(&mut self, drain: Duration) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        if drain.is_zero() {
            self.shared.hurrying.store(true, Ordering::SeqCst);
        }
        self.shared.wake_all();
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(drain) == Err(RecvTimeoutError::Timeout) {
            self.shared.hurrying.store(true, Ordering::SeqCst);
            self.shared.wake_all();
            // A job that never ends is left behind: its thread cannot be taken from it.
            let _stuck = ended.recv_timeout(LAST_JOB).is_err_and(|error| error == RecvTimeoutError::Timeout);
        }
        // Only left when every worker is stuck: whoever waits for these jobs must still hear of it.
        while let Some(job) = self.shared.take() {
            self.shared.expire(job);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.shared.stopping.load(Ordering::SeqCst) {
            self.end(Duration::ZERO);
        }
    }
}

// === impl PoolHandle ===

impl PoolHandle {
    /// Puts a job into the queue and wakes a sleeping worker if there is one.
    ///
    /// # Errors
    /// Gives the job back when the queue is full in jobs or bytes, or the pool has ended.
    pub fn submit(&self, job: Job) -> Result<(), Job> {
        self.shared.submit(job)
    }

    /// Whether a job given now would have to wait for others.
    pub fn is_busy(&self) -> bool {
        self.shared.is_busy()
    }

    /// What the pool has done and holds.
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }
}

// === impl Shared ===

impl Shared {
    fn submit(&self, job: Job) -> Result<(), Job> {
        if self.stopping.load(Ordering::SeqCst) {
            return Err(job);
        }
        let bytes = job.bytes;
        let before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        let is_small = bytes <= SMALL_BYTES;
        let bytes_max = if is_small { self.bytes_max } else { self.bytes_max - self.bytes_max / SMALL_PART };
        let fits = before == 0 || before.saturating_add(bytes) <= bytes_max;
        let queue = if is_small { &self.small } else { &self.large };
        let pushed = if fits { queue.push(job) } else { Err(job) };
        if let Err(job) = pushed {
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return Err(job);
        }
        self.wake_one();
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters {
            queued_jobs: self.small.len() + self.large.len(),
            queued_bytes: self.bytes.load(Ordering::Relaxed),
            run: self.run.load(Ordering::Relaxed),
            expired: self.expired.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            panicked: self.panicked.load(Ordering::Relaxed),
        }
    }

    fn work(&self, index: usize, analyser: &Analyser, _alive: Sender<()>) {
        let Some(worker) = self.workers.get(index) else { return };
        let _first = worker.thread.set(thread::current()).is_ok();
        let mut scratch = analyser.scratch();
        loop {
            if let Some(job) = self.take() {
                self.busy.fetch_add(1, Ordering::Relaxed);
                self.turn(job, analyser, &mut scratch);
                self.busy.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            worker.asleep.store(true, Ordering::SeqCst);
            // Pairs with the fence in `wake_one`: either we see the job, or the submitter sees us asleep.
            fence(Ordering::SeqCst);
            if self.is_empty() && !self.stopping.load(Ordering::SeqCst) {
                thread::park();
            }
            worker.asleep.store(false, Ordering::SeqCst);
        }
    }

    fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    fn is_busy(&self) -> bool {
        !self.is_empty() || self.busy.load(Ordering::Relaxed) >= self.workers.len()
    }

    fn take(&self) -> Option<Job> {
        let large_first = self.turns.fetch_add(1, Ordering::Relaxed).is_multiple_of(LARGE_TURN);
        let (first, second) = if large_first { (&self.large, &self.small) } else { (&self.small, &self.large) };
        let job = first.pop().or_else(|| second.pop())?;
        self.bytes.fetch_sub(job.bytes, Ordering::AcqRel);
        Some(job)
    }

    fn turn(&self, job: Job, analyser: &Analyser, scratch: &mut Scratch) {
        if self.hurrying.load(Ordering::Relaxed) || Instant::now() >= job.deadline {
            self.expire(job);
            return;
        }
        let ran = catch_unwind(AssertUnwindSafe(|| (job.run)(Turn::Run(analyser, scratch))));
        self.run.fetch_add(1, Ordering::Relaxed);
        if ran.is_err() {
            self.panicked.fetch_add(1, Ordering::Relaxed);
            analyser.renew(scratch);
        }
    }

    fn expire(&self, job: Job) {
        let ran = catch_unwind(AssertUnwindSafe(|| (job.run)(Turn::Expired)));
        self.expired.fetch_add(1, Ordering::Relaxed);
        if ran.is_err() {
            self.panicked.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wake_one(&self) {
        fence(Ordering::SeqCst);
        let sleeper = self
            .workers
            .iter()
            .find(|worker| worker.asleep.load(Ordering::Relaxed) && worker.asleep.swap(false, Ordering::SeqCst));
        if let Some(thread) = sleeper.and_then(|worker| worker.thread.get()) {
            thread.unpark();
        }
    }

    fn wake_all(&self) {
        for worker in &self.workers {
            worker.asleep.store(false, Ordering::SeqCst);
            if let Some(thread) = worker.thread.get() {
                thread.unpark();
            }
        }
    }
}

#[cfg(test)]
mod tests;
