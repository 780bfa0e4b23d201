//! The inference pool: a few plain threads that do analysis work for the cores. Jobs are data ([`Work`]) and wait in lanes
//! ([`Lane`]) until a worker has a turn for them; several tenants take turns, and none takes the room of the others.
//!
//! Invariants: [`WorkerPool::submit`] never blocks, never locks and never lets more wait than the bounds; the `run` of an
//! accepted job is called exactly once, with [`Turn::Expired`] when its deadline has passed or the pool stops; a job that
//! panics costs only itself, in a batch, too; one worker at least is left to jobs without models where there are several; jobs
//! for the record delay no others.
//! Knows nothing of what the jobs are about.

mod lane;
mod worker;

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weir_config::vocab::TenantId;

use self::worker::Shared;
use crate::analyser::{Analyser, Scratch};
use crate::later::{Later, Seen};

pub use self::lane::Lane;

/// How large the pool is.
#[derive(Debug, Clone, Copy)]
pub struct PoolOptions {
    /// Worker threads; at least one is started, and one more for the record.
    pub threads: usize,
    /// Most jobs waiting in each lane; at least one.
    pub queue_jobs: usize,
    /// Most bytes waiting, as the jobs declare them. An empty queue accepts a job of any size.
    pub queue_bytes: usize,
    /// Whether there are several tenants, each with a share of what may wait.
    pub several: bool,
    /// Most jobs for models that are looked at together; at least one.
    pub batch_jobs: usize,
    /// How long a batch waits for more of them.
    pub batch_wait: Duration,
}

/// What a job is told when its turn comes.
#[derive(Debug)]
pub enum Turn<'a> {
    /// Do the work with these.
    Run(&'a Analyser, &'a mut Scratch),
    /// What the detectors on the pool said of [`Work::rest`].
    Seen(Seen),
    /// They panicked over it.
    Failed,
    /// There is no room, or the pool has ended: told by whoever wanted to submit the job, on that thread.
    Refused,
    /// Too late, or the pool stops: give up, but do answer whoever waits.
    Expired,
}

/// What a job is about.
pub trait Work: Send {
    /// Does it; called exactly once if the job was accepted.
    fn run(self: Box<Self>, turn: Turn<'_>);

    /// The texts that detectors on the pool are to look at; then the turn is [`Turn::Seen`].
    fn rest(&self) -> Option<&Later> {
        None
    }
}

/// A piece of work.
pub struct Job {
    /// Where it waits.
    pub lane: Lane,
    /// In whose name.
    pub tenant: TenantId,
    /// Memory the job keeps alive while it waits, in bytes.
    pub bytes: usize,
    /// When nobody waits for the answer any more.
    pub deadline: Instant,
    /// What is to be done.
    pub work: Box<dyn Work>,
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
pub struct WorkerPool {
    shared: Arc<Shared>,
    /// Disconnects when the last worker has ended. The lock is never taken: only the owner of the pool looks.
    ended: Mutex<Receiver<()>>,
}

/// A way to give work to a [`WorkerPool`], from any thread.
#[derive(Debug, Clone)]
pub struct PoolHandle {
    shared: Arc<Shared>,
}

/// How long [`WorkerPool::stop`] lets waiting jobs have their turn.
const DRAIN: Duration = Duration::from_secs(5);
/// How long a running job is waited for once the drain is over; a stuck one is left behind.
const LAST_JOB: Duration = Duration::from_secs(2);

// === impl Job ===

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lane, tenant, bytes, deadline, .. } = self;
        write!(f, "Job {{ {lane:?}, {tenant:?}, {bytes} bytes, until {deadline:?} }}")
    }
}

// === impl Pool ===

impl WorkerPool {
    /// Starts the workers, named `weir-infer-0` and up, and `weir-record`.
    ///
    /// # Errors
    /// When the system gives no thread; the ones already started end again.
    pub fn start(options: PoolOptions, analyser: Arc<Analyser>) -> io::Result<Self> {
        let threads = options.threads.max(1) + 1;
        let shared = Arc::new(Shared::new(&options));
        let (alive, ended) = mpsc::channel();
        let pool = Self { shared, ended: Mutex::new(ended) };
        for index in 0..threads {
            let (shared, analyser, alive) = (Arc::clone(&pool.shared), Arc::clone(&analyser), alive.clone());
            thread::Builder::new()
                .name(if index + 1 < threads { format!("weir-infer-{index}") } else { "weir-record".to_owned() })
                .spawn(move || shared.work(index, &analyser, alive))?;
        }
        Ok(pool)
    }

    /// A way to give it work; after the pool has ended every job is given back.
    pub fn handle(&self) -> PoolHandle {
        PoolHandle { shared: Arc::clone(&self.shared) }
    }

    /// See [`WorkerPoolHandle::submit`].
    ///
    /// # Errors
    /// As there.
    pub fn submit(&self, job: Job) -> Result<(), Job> {
        self.shared.submit(job, false)
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
        self.shared.expire_all();
    }
}

impl Drop for WorkerPool {
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
        self.shared.submit(job, false)
    }

    /// The same for a job that nobody waits for: where many come, it may lie for a millisecond before a worker looks.
    ///
    /// # Errors
    /// As there.
    pub fn submit_patiently(&self, job: Job) -> Result<(), Job> {
        self.shared.submit(job, true)
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

#[cfg(test)]
mod tests;
