//! Where reported spans come in: a bounded queue to threads of its own, and an answer once they are committed.
//!
//! Invariant: at most so many batches work or wait, and of them a tenant has no more than its share ([`Shares`]); whoever finds no
//! room is told at once, and nothing of its batch was taken.

use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use weir_config::vocab::TenantId;
use weir_storage::SpanLog;

use super::known::Traces;
use super::span::ReportedSpan;
use super::work::Worker;
use crate::control::Shares;
use crate::exchange::Caller;
use crate::process::Process;
use crate::record::Permit;
use crate::rt;

/// Batches that work or wait, of all tenants. One tenant has half of them.
const BATCHES_MAX: usize = 64;
/// Threads: a batch waits for its commit, and those that wait together are committed together.
const THREADS: usize = 4;
/// Spans one batch may have.
pub(crate) const SPANS_MAX: usize = 100_000;
const FULL: &str = "as many batches of this tenant are under way as may be while others send";
const NO_MEMORY: &str = "no memory is free for this request at the moment; try again in a second";

/// Takes batches of reported spans. Cheap to clone; its threads end with the last of the clones.
#[derive(Clone)]
pub struct Intake {
    jobs: SyncSender<Job>,
    shares: Arc<Mutex<Shares<TenantId>>>,
    process: Arc<Process>,
}

/// What became of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Spans that are kept now.
    pub accepted: usize,
    /// Spans that were kept before, or stand twice in the batch.
    pub duplicates: usize,
    /// Spans that were not taken, by their places in the batch, and why.
    pub rejected: Vec<(usize, String)>,
}

/// Nothing was taken; worth trying again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// When.
    pub retry_after: Duration,
    /// Why.
    pub reason: &'static str,
    /// What the intake lacked, in the word of the counter.
    lack: Option<&'static str>,
}

/// A batch on its way.
pub(super) struct Job {
    pub(super) tenant: TenantId,
    pub(super) spans: Vec<ReportedSpan>,
    reply: oneshot::Sender<Result<Taken, Busy>>,
    _entered: Entered,
}

/// A place among the batches; given back when it goes.
struct Entered {
    shares: Arc<Mutex<Shares<TenantId>>>,
    tenant: TenantId,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.shares.lock().leave(self.tenant);
    }
}

impl Busy {
    pub(super) const fn because(reason: &'static str) -> Self {
        Self { retry_after: Duration::from_secs(1), reason, lack: None }
    }

    /// There is no memory.
    pub(crate) const fn no_memory() -> Self {
        Self::at_door("no_memory", NO_MEMORY)
    }

    const fn at_door(lack: &'static str, reason: &'static str) -> Self {
        Self { lack: Some(lack), ..Self::because(reason) }
    }
}

impl Intake {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn open(process: &Arc<Process>, log: &Arc<dyn SpanLog>) -> std::io::Result<Self> {
        let (jobs, waiting) = mpsc::sync_channel::<Job>(BATCHES_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        let traces = Arc::new(Traces::default());
        for _ in 0..THREADS {
            let (process, log, waiting) = (Arc::clone(process), Arc::clone(log), Arc::clone(&waiting));
            let traces = Arc::clone(&traces);
            std::thread::Builder::new().name("weir-ingest".to_owned()).spawn(move || {
                // Calls on their way to the provider go first.
                rt::give_way_often();
                let mut worker = Worker::new(process, log, traces);
                loop {
                    // Whoever is first waits for a job, the others for its place.
                    let next = waiting.lock().recv();
                    let Ok(job) = next else { break };
                    worker.answer(job);
                }
            })?;
        }
        Ok(Self { jobs, shares: Arc::new(Mutex::new(Shares::new(BATCHES_MAX))), process: Arc::clone(process) })
    }

    /// Room in memory for what a tenant's batch is decoded to; the bodies of proxied calls share it.
    ///
    /// # Errors
    /// [`Busy`] where so many bytes are not free for this tenant.
    pub fn room(&self, tenant: TenantId, bytes: usize) -> Result<Permit, Busy> {
        let mut room = self.process.bodies.own(Some(tenant)).permit();
        if room.grow(bytes) { Ok(room) } else { Err(Busy::no_memory()) }
    }

    /// Takes a batch in the caller's name, and waits until it is committed.
    ///
    /// # Errors
    /// [`Busy`] where there is no room, or the store takes nothing; nothing of the batch was kept then, or all that was can be sent
    /// again. Whoever tells its sender so [counts](Self::count) it.
    pub async fn take(&self, caller: &Caller, spans: Vec<ReportedSpan>) -> Result<Taken, Busy> {
        let tenant = caller.tenant_id;
        if !self.shares.lock().enter(tenant) {
            return Err(Busy::at_door("full", FULL));
        }
        let entered = Entered { shares: Arc::clone(&self.shares), tenant };
        let (reply, taken) = oneshot::channel();
        let job = Job { tenant, spans, reply, _entered: entered };
        // There are as many places in the queue.
        self.jobs.try_send(job).map_err(|_| Busy::at_door("full", FULL))?;
        // Without an answer only where its thread panicked.
        taken.await.unwrap_or(Err(Busy::because("the batch could not be dealt with")))
    }

    /// Counts a batch whose sender is told that there was no room. What a worker could not keep has been counted there.
    pub fn count(&self, busy: &Busy) {
        if let Some(lack) = busy.lack {
            self.process.parts.registry.shared().dropped("ingest", lack, 1);
        }
    }
}

impl Job {
    pub(super) fn reply(self, taken: Result<Taken, Busy>) {
        // Whoever left meanwhile will send it again.
        let _left = self.reply.send(taken).is_err();
    }
}
