//! The lanes of the pool: what may wait in them, and in which order it gets its turn.
//!
//! | lane | holds | shed once so much of the bytes waits |
//! |---|---|---|
//! | model | texts for models | a half |
//! | heavy | jobs over 64 KiB | three quarters |
//! | cheap | the rest | all |
//! | record | jobs that nobody waits for | a half, counted apart from the others |
//!
//! What is done for the record takes nothing from what is waited for: it has its own room, a worker of its own, and the others
//! only while nothing else waits and one of them is left.
//!
//! Each lane has its own number of jobs. With several tenants none has more waiting in a lane than it leaves to the others,
//! in jobs and in bytes, and they take turns by the bytes of their jobs: who floods a lane waits for its own. Tenants are
//! told apart by a few bits where they are counted; two that share them share a share.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use weir_config::vocab::TenantId;

use super::{Job, PoolOptions};

/// Where a job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Short jobs.
    Cheap,
    /// Long ones.
    Heavy,
    /// Texts for models, several at a time.
    Model,
    /// Work for the record of a call that has ended: nobody waits for it.
    Record,
}

/// Jobs up to this are cheap, in bytes.
pub(super) const CHEAP_BYTES: usize = 64 * 1024;
const LANES: usize = 4;
/// Bits that tell tenants apart.
const BITS: u32 = 9;
/// Lanes by who goes first, turn by turn, so that each of them gets its turn.
const TURNS: [[Lane; 3]; 4] = [
    [Lane::Heavy, Lane::Cheap, Lane::Model],
    [Lane::Cheap, Lane::Model, Lane::Heavy],
    [Lane::Model, Lane::Cheap, Lane::Heavy],
    [Lane::Cheap, Lane::Model, Lane::Heavy],
];

// === impl Lane ===

impl Lane {
    /// The lane for a job of so many bytes.
    pub const fn of(bytes: usize) -> Self {
        if bytes <= CHEAP_BYTES { Self::Cheap } else { Self::Heavy }
    }

    /// The part of the bytes that may wait while this lane takes one more.
    const fn bytes_max(self, all: usize) -> usize {
        match self {
            Self::Cheap => all,
            Self::Heavy => all - all / 4,
            Self::Model | Self::Record => all / 2,
        }
    }

    /// What a tenant may have done in its turn while others wait.
    const fn quantum(self) -> usize {
        match self {
            Self::Cheap => CHEAP_BYTES,
            Self::Heavy | Self::Record => 16 * CHEAP_BYTES,
            Self::Model => CHEAP_BYTES / 4,
        }
    }
}

// === room ===

/// How much waits, in jobs and bytes.
#[derive(Debug, Default)]
struct Held {
    jobs: AtomicUsize,
    bytes: AtomicUsize,
}

/// Bounds what waits. Counts only: no lock, no wait.
#[derive(Debug)]
pub(super) struct Room {
    jobs_max: usize,
    bytes_max: usize,
    /// What waits of the lanes that are waited for, and of records.
    bytes: [CachePadded<AtomicUsize>; 2],
    lanes: [CachePadded<Held>; LANES],
    /// By lane and tenant; empty where there is one tenant only.
    tenants: [Box<[Held]>; LANES],
}

impl Room {
    pub(super) fn new(options: &PoolOptions) -> Self {
        let slots = if options.several { 1 << BITS } else { 0 };
        let tenants = || (0..slots).map(|_| Held::default()).collect();
        Self {
            jobs_max: options.queue_jobs.max(1),
            bytes_max: options.queue_bytes,
            bytes: Default::default(),
            lanes: Default::default(),
            tenants: [tenants(), tenants(), tenants(), tenants()],
        }
    }

    /// Takes room for a job. An empty queue has room for one of any size.
    pub(super) fn take(&self, job: &Job) -> bool {
        let before = self.all(job.lane).fetch_add(job.bytes, Ordering::AcqRel);
        let (lane, share) = self.held(job);
        let (jobs, _) = lane.add(job.bytes);
        let held = share.map(|share| share.add(job.bytes));
        let after = before.saturating_add(job.bytes);
        let bytes_max = job.lane.bytes_max(self.bytes_max);
        let fits = jobs <= self.jobs_max && (before == 0 || after <= bytes_max);
        let fair = held.is_none_or(|(own_jobs, own_bytes)| {
            own_jobs == 1
                || (own_jobs <= self.jobs_max.saturating_sub(jobs) && own_bytes <= bytes_max.saturating_sub(after))
        });
        if !(fits && fair) {
            self.give(job);
        }
        fits && fair
    }

    /// Gives the room of a job back.
    pub(super) fn give(&self, job: &Job) {
        let (lane, share) = self.held(job);
        lane.sub(job.bytes);
        if let Some(share) = share {
            share.sub(job.bytes);
        }
        self.all(job.lane).fetch_sub(job.bytes, Ordering::AcqRel);
    }

    /// Jobs that wait.
    pub(super) fn jobs(&self) -> usize {
        self.lanes.iter().map(|lane| lane.jobs.load(Ordering::Relaxed)).sum()
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Whether jobs wait that somebody waits for.
    pub(super) fn is_waited_for(&self) -> bool {
        self.lanes.iter().take(Lane::Record as usize).any(|lane| lane.jobs.load(Ordering::Relaxed) > 0)
    }

    fn all(&self, lane: Lane) -> &AtomicUsize {
        &self.bytes[usize::from(lane == Lane::Record)]
    }

    fn held(&self, job: &Job) -> (&Held, Option<&Held>) {
        let (high, low) = job.tenant.uuid().as_u64_pair();
        let slot = high.wrapping_add(low).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS);
        (&self.lanes[job.lane as usize], self.tenants[job.lane as usize].get(slot as usize))
    }
}

impl Held {
    /// What is held with this.
    fn add(&self, bytes: usize) -> (usize, usize) {
        let jobs = self.jobs.fetch_add(1, Ordering::AcqRel) + 1;
        (jobs, self.bytes.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes))
    }

    fn sub(&self, bytes: usize) {
        self.jobs.fetch_sub(1, Ordering::AcqRel);
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}

// === order ===

/// What waits, in the order of its turns. Workers alone look at it.
#[derive(Debug)]
pub(super) struct Waiting {
    lanes: [Queue; LANES],
    turn: usize,
}

#[derive(Debug)]
struct Queue {
    tenants: HashMap<TenantId, Line>,
    /// Tenants with jobs; the first has the turn.
    ring: VecDeque<TenantId>,
}

/// The jobs of one tenant.
#[derive(Debug)]
struct Line {
    jobs: VecDeque<Job>,
    /// Bytes that may still be done in this turn.
    credit: usize,
}

impl Default for Waiting {
    fn default() -> Self {
        let queue = || Queue { tenants: HashMap::new(), ring: VecDeque::new() };
        Self { lanes: [queue(), queue(), queue(), queue()], turn: 0 }
    }
}

impl Waiting {
    pub(super) fn put(&mut self, job: Job) {
        let lane = job.lane;
        self.lanes[lane as usize].put(job);
    }

    /// The next job; none for a model unless `models`, and none for the record, whose turn comes last, unless `records`.
    pub(super) fn next(&mut self, models: bool, records: bool) -> Option<Job> {
        let turn = self.turn % TURNS.len();
        self.turn = self.turn.wrapping_add(1);
        let lanes = TURNS[turn].into_iter().filter(|lane| models || *lane != Lane::Model);
        let mut lanes = lanes.chain(records.then_some(Lane::Record));
        lanes.find_map(|lane| self.lanes[lane as usize].pop(lane))
    }

    /// The next job for the record.
    pub(super) fn next_record(&mut self) -> Option<Job> {
        self.lanes[Lane::Record as usize].pop(Lane::Record)
    }

    /// Finds others that are looked at together with a job for models, so that they are `batch_max` at most.
    pub(super) fn fill(&mut self, first: &Job, more: &mut Vec<Job>, batch_max: usize) {
        let queue = &mut self.lanes[Lane::Model as usize];
        while more.len() + 1 < batch_max {
            let Some(job) = queue.pop(Lane::Model) else { return };
            let together = first.work.rest().zip(job.work.rest());
            if !together.is_some_and(|(first, rest)| first.goes_with(rest)) {
                return queue.put_back(job);
            }
            more.push(job);
        }
    }
}

impl Queue {
    fn put(&mut self, job: Job) {
        let ring = &mut self.ring;
        let tenant = job.tenant;
        let line = self.tenants.entry(tenant).or_insert_with(|| {
            ring.push_back(tenant);
            Line { jobs: VecDeque::new(), credit: 0 }
        });
        line.jobs.push_back(job);
    }

    /// Puts a job that was popped last where it was.
    fn put_back(&mut self, job: Job) {
        let tenant = job.tenant;
        if let Some(line) = self.tenants.get_mut(&tenant) {
            line.credit = line.credit.saturating_add(job.bytes.max(1));
            line.jobs.push_front(job);
        } else {
            self.ring.push_front(tenant);
            self.tenants.insert(tenant, Line { credit: job.bytes.max(1), jobs: VecDeque::from([job]) });
        }
    }

    fn pop(&mut self, lane: Lane) -> Option<Job> {
        loop {
            let alone = self.ring.len() == 1;
            let tenant = *self.ring.front()?;
            let line = self.tenants.get_mut(&tenant)?;
            let cost = line.jobs.front()?.bytes.max(1);
            if !alone && line.credit < cost {
                line.credit += lane.quantum();
                self.ring.rotate_left(1);
                continue;
            }
            line.credit = line.credit.saturating_sub(cost);
            let job = line.jobs.pop_front();
            if line.jobs.is_empty() {
                self.tenants.remove(&tenant);
                self.ring.pop_front();
            }
            return job;
        }
    }
}
