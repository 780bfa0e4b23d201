//! The storage thread: gathers spans into groups, has them committed, replays what fails, and answers flushes.
//!
//! Order of events is the queue's. A group is at most [`ROWS_MAX`] spans; a round starts at most every [`ROUND`], so a
//! span waits one round and one commit. A group that cannot be written is kept in memory and replayed until the batch
//! timeout, then given up and counted; a single bad row is found by halving the group and dropped alone. This module
//! does not know what an engine is made of.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::cursor::{Fate, Inserted};
use crate::engine::Engine;
use crate::error::{NotWritten, WriteError};
use crate::observer::{BatchOutcome, StoreObserver};
use crate::order::{ORDER_WAIT, Order};
use crate::pause;
use crate::queue::{Queue, Queued};

/// A round gathers for this long.
const ROUND: Duration = Duration::from_millis(5);
/// Rows of one commit.
const ROWS_MAX: usize = 512;
/// With so many rows queued, or bytes for more than one commit, the writer lets nobody go first any more: that is what a busy core brings
/// within some ten milliseconds.
const BEHIND_ROWS: usize = ROWS_MAX / 2;
/// Bytes of one commit, so that a few huge answers do not hold up the rest.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Empty rounds before the writer sleeps until it is woken.
const QUIET_ROUNDS: u32 = 20;
/// Busy rounds between pieces of housekeeping.
const KEEP_EVERY: u32 = 32;
/// How often a sleeping writer looks after a store that failed.
const REST: Duration = Duration::from_secs(1);
/// Waits between attempts to write.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_millis(250);

/// What became of spans, counted by the writer.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) written: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) poison: AtomicU64,
    pub(crate) left_out: AtomicU64,
    pub(crate) batches_committed: AtomicU64,
    pub(crate) batches_failed: AtomicU64,
    /// Set while the store refuses writes.
    pub(crate) failing: AtomicBool,
    pub(crate) last_failure: Mutex<String>,
}

impl Tally {
    /// Spans went in by an order.
    pub(crate) fn inserted(&self, inserted: &Inserted) {
        self.written.fetch_add(inserted.count(Fate::Stored) as u64, Ordering::Relaxed);
        self.left_out.fetch_add(inserted.count(Fate::TenantDeleted) as u64, Ordering::Relaxed);
    }
}

/// What became of one batch.
#[derive(Default)]
struct Outcome {
    written: usize,
    poison: usize,
    left_out: usize,
    failed: usize,
}

pub(crate) struct Writer {
    pub(crate) queue: Arc<Queue>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) observer: Arc<dyn StoreObserver>,
    pub(crate) batch_timeout: Duration,
    /// When a stop was asked for, no replay goes on past this.
    pub(crate) give_up_at: Arc<Mutex<Option<Instant>>>,
    /// Housekeeping has written since the log was last looked after.
    pub(crate) kept: bool,
    /// Lets others go first; called at every place of [`pause`] while the writer keeps up.
    pub(crate) pause: fn(),
}

impl Writer {
    /// Runs until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        self.queue.adopt();
        let (queue, pause) = (Arc::clone(&self.queue), self.pause);
        // Once spans pile up, every stop is one more record that may find the queue full.
        pause::set(move || {
            if queue.items() < BEHIND_ROWS && queue.bytes() < BATCH_BYTES_MAX {
                pause();
            }
        });
        // Runs also when an engine panics, so that nobody waits for a thread that has gone.
        let _leave = Leave(Arc::clone(&self.queue));
        let mut batch = Vec::with_capacity(ROWS_MAX);
        let mut quiet = 0u32;
        let mut busy = 0u32;
        loop {
            let round = Instant::now();
            let closing = self.queue.is_closing();
            let mut asked = self.queue.asked();
            let mut wrote = self.drain(&mut batch, closing || !asked.is_nothing());
            while !asked.orders.is_empty() {
                self.carry_out(&mut first_together(&mut asked.orders));
                wrote = true;
            }
            if let Some(ticket) = asked.ticket {
                self.queue.answer(ticket);
            }
            if closing && self.queue.items() == 0 {
                break;
            }
            quiet = if wrote { 0 } else { quiet.saturating_add(1) };
            busy += u32::from(wrote);
            if busy >= KEEP_EVERY {
                // One piece per round while there is more to do, so that removing keeps up with arriving.
                busy = if self.engine.keep() { KEEP_EVERY } else { 0 };
            }
            if quiet < QUIET_ROUNDS {
                std::thread::park_timeout(ROUND.saturating_sub(round.elapsed()));
            } else {
                self.rest(quiet);
            }
        }
        self.engine.close();
    }

    /// Commits what is queued: everything that is there now when `all`, else until less than a full group is left.
    fn drain(&mut self, batch: &mut Vec<Queued>, all: bool) -> bool {
        let mut due = if all { self.queue.items() } else { 1 };
        let mut wrote = false;
        while due > 0 {
            let mut bytes = 0;
            while batch.len() < ROWS_MAX && bytes < BATCH_BYTES_MAX {
                let Some(queued) = self.queue.pop() else { break };
                bytes += queued.bytes;
                batch.push(queued);
            }
            if batch.is_empty() {
                break;
            }
            wrote = true;
            due = due.saturating_sub(batch.len()).max(usize::from(self.queue.items() >= ROWS_MAX));
            self.commit(batch);
            for row in batch.drain(..) {
                drop(row);
                pause::here();
            }
            self.queue.release(bytes);
            self.engine.tend(false);
        }
        wrote
    }

    /// Nothing to write: housekeeping once, then sleep; a store that failed is tried again meanwhile.
    fn rest(&mut self, quiet: u32) {
        if quiet == QUIET_ROUNDS {
            self.engine.tend(true);
        }
        if !self.tally.failing.load(Ordering::Relaxed) && self.engine.keep() {
            // Spans that arrive meanwhile wait no longer than in any round.
            self.kept = true;
            return;
        }
        if std::mem::take(&mut self.kept) {
            self.engine.tend(true);
        }
        let failing = self.tally.failing.load(Ordering::Relaxed);
        if failing && self.engine.has_room() && self.engine.recover().is_ok() {
            self.recovered();
        }
        self.queue.sleep(REST);
    }

    fn commit(&mut self, batch: &[Queued]) {
        let started = Instant::now();
        let mut of = Outcome::default();
        self.write(batch, started + self.batch_timeout, &mut of);
        let tally = &self.tally;
        tally.written.fetch_add(of.written as u64, Ordering::Relaxed);
        tally.poison.fetch_add(of.poison as u64, Ordering::Relaxed);
        tally.left_out.fetch_add(of.left_out as u64, Ordering::Relaxed);
        tally.failed.fetch_add(of.failed as u64, Ordering::Relaxed);
        let (outcome, batches, rows) = if of.failed > 0 {
            (BatchOutcome::Failed, &tally.batches_failed, of.failed)
        } else {
            (BatchOutcome::Committed, &tally.batches_committed, of.written)
        };
        batches.fetch_add(1, Ordering::Relaxed);
        self.observer.batch(rows, started.elapsed(), outcome);
        if batch.iter().any(|row| !row.span.security_findings.is_empty()) {
            self.observer.found();
        }
    }

    /// Writes rows as one transaction; halves the group to find a bad row, replays it while the store fails.
    fn write(&mut self, rows: &[Queued], deadline: Instant, of: &mut Outcome) {
        let mut wait = BACKOFF_MIN;
        let mut result = self.attempt(rows);
        loop {
            match result {
                Ok(left_out) => {
                    of.written += rows.len() - left_out;
                    of.left_out += left_out;
                    return self.recovered();
                }
                Err(WriteError::Row(reason)) => return self.isolate(rows, &reason, deadline, of),
                Err(WriteError::Store(reason) | WriteError::Full(reason) | WriteError::Damage(reason)) => {
                    self.failing(reason);
                }
            }
            if !self.pause(wait, deadline) {
                of.failed += rows.len();
                return rows.iter().for_each(|row| self.observer.given_up(&row.span));
            }
            wait = (wait * 2).min(BACKOFF_MAX);
            result = self.engine.recover().and_then(|()| self.attempt(rows));
        }
    }

    /// A panic while writing counts as the row's fault: halving the group finds the row, and the thread lives on.
    fn attempt(&mut self, rows: &[Queued]) -> Result<usize, WriteError> {
        let engine = &mut self.engine;
        catch_unwind(AssertUnwindSafe(|| engine.write(rows))).unwrap_or_else(|_| {
            // What the engine held in its hands is not trusted: it starts afresh.
            self.engine.recover()?;
            Err(WriteError::Row("writing it panicked".to_owned()))
        })
    }

    fn isolate(&mut self, rows: &[Queued], reason: &str, deadline: Instant, of: &mut Outcome) {
        if let [row] = rows {
            of.poison += 1;
            self.observer.given_up(&row.span);
            tracing::warn!(span_id = %row.span.span_id, reason, "a span cannot be stored and was dropped");
            return;
        }
        let (left, right) = rows.split_at(rows.len() / 2);
        self.write(left, deadline, of);
        self.write(right, deadline, of);
    }

    /// Makes the changes somebody waits for and answers, whatever becomes of them.
    fn carry_out(&mut self, orders: &mut Vec<Order>) {
        orders.retain_mut(Order::begin);
        let started = Instant::now();
        if !self.engine.has_room() {
            self.refuse_records(orders);
        }
        let deadline = started + self.batch_timeout.min(ORDER_WAIT);
        let mut wait = BACKOFF_MIN;
        let stamp = fresh_stamp();
        let mut result = self.attempt_orders(orders, stamp);
        while let Some(reason) = result.as_ref().err().and_then(WriteError::of_store) {
            self.failing(reason.to_owned());
            if !self.pause(wait, deadline) {
                break;
            }
            wait = (wait * 2).min(BACKOFF_MAX);
            result = self.engine.recover().and_then(|()| self.attempt_orders(orders, stamp));
        }
        let outcome = match result {
            Ok(()) => {
                self.recovered();
                Ok(())
            }
            Err(error) => Err(NotWritten::Unavailable { reason: error.reason() }),
        };
        for order in orders.iter_mut() {
            order.finish(outcome.clone());
            self.observer.write(order.change().operation(), started.elapsed(), outcome.is_ok());
        }
        self.engine.tend(false);
    }

    /// With hardly any room left, what agents report and reports about it wait, so that keys and audit lines need not.
    fn refuse_records(&self, orders: &mut Vec<Order>) {
        let reason = "the disk is nearly full; what is left is kept for keys and the audit log";
        orders.retain_mut(|order| {
            let record = order.change().brings_records();
            if record {
                order.finish(Err(NotWritten::Unavailable { reason: reason.to_owned() }));
                self.observer.write(order.change().operation(), Duration::ZERO, false);
            }
            !record
        });
    }

    /// A change that panics costs itself only: then each is made, and answered, alone.
    fn attempt_orders(&mut self, orders: &mut Vec<Order>, stamp: i32) -> Result<(), WriteError> {
        let engine = &mut self.engine;
        if let Ok(result) = catch_unwind(AssertUnwindSafe(|| engine.carry_out(orders, stamp))) {
            return result;
        }
        self.engine.recover()?;
        while let Some(one) = orders.get_mut(..1) {
            let engine = &mut self.engine;
            let outcome = match catch_unwind(AssertUnwindSafe(|| engine.carry_out(one, fresh_stamp()))) {
                Ok(result) => result.map(Ok)?,
                Err(_) => {
                    tracing::error!("an acknowledged write panicked");
                    self.engine.recover()?;
                    Err(NotWritten::Refused { reason: "making the change panicked".to_owned() })
                }
            };
            // Answered and gone: a later failure must not repeat it.
            orders.remove(0).finish(outcome);
        }
        Ok(())
    }

    /// Waits before the next attempt; false when the batch's time, or the stop's, is over.
    fn pause(&self, wait: Duration, deadline: Instant) -> bool {
        let until = Instant::now() + wait;
        loop {
            let deadline = self.give_up_at.lock().map_or(deadline, |stop| stop.min(deadline));
            let now = Instant::now();
            if now >= deadline {
                return false;
            }
            if now >= until {
                return true;
            }
            // A flush or a stop may wake us early; the loop looks at the clock again.
            std::thread::park_timeout(until.min(deadline) - now);
        }
    }

    fn failing(&self, reason: String) {
        if !self.tally.failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(reason, "the store cannot be written; spans are kept in memory and retried");
        }
        *self.tally.last_failure.lock() = reason;
    }

    fn recovered(&self) {
        if self.tally.failing.load(Ordering::Relaxed) {
            self.tally.failing.store(false, Ordering::Relaxed);
            tracing::info!("the store can be written again");
        }
    }
}

/// Takes the first of these orders, as many as are to be made in one transaction.
fn first_together(orders: &mut Vec<Order>) -> Vec<Order> {
    let mut bytes = 0;
    let beyond = orders.iter().position(|order| {
        bytes += order.change().bytes();
        bytes > BATCH_BYTES_MAX
    });
    // One at least, however large.
    orders.drain(..beyond.unwrap_or(orders.len()).max(1)).collect()
}

/// Tells one group of changes from the one before.
fn fresh_stamp() -> i32 {
    let [a, b, c, d, ..] = *uuid::Uuid::new_v4().as_bytes();
    i32::from_be_bytes([a, b, c, d])
}

/// Tells the queue that the writer has gone, however it went.
struct Leave(Arc<Queue>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.leave();
        self.0.abandon();
    }
}

#[cfg(test)]
mod tests;
