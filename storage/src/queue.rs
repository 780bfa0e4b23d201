//! The one way in: a lock-free queue bounded in items and in bytes, from the core threads to the writer.
//!
//! A push never blocks and makes no system call while traffic flows: the writer then looks by itself every few
//! milliseconds. Bytes count from the push until the batch is committed or given up, so the bound covers the batch being
//! written too. Nothing here knows what the writer does with a span.
//!
//! What gives way when the writer falls behind, in this order: the texts of a span, which are nearly all of its bytes and
//! may take all of the bound but an eighth; then the span itself, once that eighth, or the number of items, is used up too.
//! A span that goes in without its texts says so (`texts_removed: queue_full`), and both are counted.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};
use weir_config::vocab::Finding;
use weir_config::vocab::part::PartRecord;

use crate::error::{Dropped, NotTaken, NotWritten};
use crate::order::Order;
use crate::record::{AgentAction, SpanRecord};

/// A span on its way, with what it counts for.
pub(crate) struct Queued {
    pub(crate) span: Box<SpanRecord>,
    pub(crate) bytes: usize,
}

/// How much of a span was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// All of it.
    Whole,
    /// All but its texts: there was no room for them.
    WithoutTexts,
}

/// Where accepted spans go in. Cheap to clone; any thread may push.
#[derive(Clone)]
pub struct SpanSink {
    queue: Arc<Queue>,
}

impl SpanSink {
    pub(crate) fn new(queue: Arc<Queue>) -> Self {
        Self { queue }
    }

    /// Hands a span to the writer, without its texts where there is no room for them. Lock-free, never blocks.
    ///
    /// # Errors
    /// The span is counted and given back when the queue is full or the store is closed.
    pub fn push(&self, span: Box<SpanRecord>) -> Result<Taken, NotTaken> {
        self.queue.push(span)
    }
}

/// What pushers, the writer and `flush` share.
pub(crate) struct Queue {
    spans: ArrayQueue<Queued>,
    bytes_max: usize,
    /// Bound for spans that bring their texts.
    texts_max: usize,
    bytes: CachePadded<AtomicUsize>,
    /// The writer sleeps until somebody wakes it.
    asleep: CachePadded<AtomicBool>,
    closing: AtomicBool,
    /// The writer has gone: what is pushed now would stay here for ever.
    gone: AtomicBool,
    writer: OnceLock<Thread>,
    flush: Mutex<Tickets>,
    flushed: Condvar,
    pub(crate) dropped_full: AtomicU64,
    pub(crate) dropped_closed: AtomicU64,
    pub(crate) without_texts: AtomicU64,
}

/// The part of the bytes that is kept for spans without their texts.
const RESERVE_PART: usize = 8;

/// Orders that wait at most; each has a thread that waits for it.
const ORDERS_MAX: usize = 4_096;

/// Numbered requests to commit what is queued, and orders to carry out after what was queued before them.
#[derive(Default)]
struct Tickets {
    asked: u64,
    done: u64,
    orders: Vec<Order>,
}

/// What somebody waits for.
#[derive(Default)]
pub(crate) struct Asked {
    /// The newest flush request that has not been answered.
    pub(crate) ticket: Option<u64>,
    /// Orders to carry out.
    pub(crate) orders: Vec<Order>,
}

impl Asked {
    pub(crate) fn is_nothing(&self) -> bool {
        self.ticket.is_none() && self.orders.is_empty()
    }
}

impl Queue {
    pub(crate) fn new(items_max: usize, bytes_max: usize) -> Self {
        Self {
            spans: ArrayQueue::new(items_max.max(1)),
            bytes_max,
            texts_max: bytes_max - bytes_max / RESERVE_PART,
            bytes: CachePadded::new(AtomicUsize::new(0)),
            asleep: CachePadded::new(AtomicBool::new(false)),
            closing: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            writer: OnceLock::new(),
            flush: Mutex::new(Tickets::default()),
            flushed: Condvar::new(),
            dropped_full: AtomicU64::new(0),
            dropped_closed: AtomicU64::new(0),
            without_texts: AtomicU64::new(0),
        }
    }

    pub(crate) fn push(&self, mut span: Box<SpanRecord>) -> Result<Taken, NotTaken> {
        if self.closing.load(Ordering::Relaxed) {
            self.dropped_closed.fetch_add(1, Ordering::Relaxed);
            return Err(NotTaken { reason: Dropped::Closed, span: Some(span) });
        }
        let mut bytes = weigh(&span);
        let mut held = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut taken = Taken::Whole;
        if held.saturating_add(bytes) > self.texts_max && has_texts(&span) {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            span.leave_out_texts();
            bytes = weigh(&span);
            held = self.bytes.fetch_add(bytes, Ordering::Relaxed);
            taken = Taken::WithoutTexts;
        }
        let queued = Queued { span, bytes };
        let pushed = if held.saturating_add(bytes) > self.bytes_max { Err(queued) } else { self.spans.push(queued) };
        if let Err(Queued { span, .. }) = pushed {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped_full.fetch_add(1, Ordering::Relaxed);
            return Err(NotTaken { reason: Dropped::QueueFull, span: Some(span) });
        }
        // Pairs with the fence in `sleep`: either the writer sees this span, or we see that it sleeps.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
        if self.gone.load(Ordering::Relaxed) && self.abandon() {
            return Err(NotTaken { reason: Dropped::Closed, span: None });
        }
        if taken == Taken::WithoutTexts {
            self.without_texts.fetch_add(1, Ordering::Relaxed);
        }
        Ok(taken)
    }

    /// Drops what came after the writer had left; true when there was something.
    pub(crate) fn abandon(&self) -> bool {
        let mut any = false;
        while let Some(queued) = self.pop() {
            self.release(queued.bytes);
            self.dropped_closed.fetch_add(1, Ordering::Relaxed);
            any = true;
        }
        any
    }

    pub(crate) fn items(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// No more pushes; the writer empties the queue and leaves.
    pub(crate) fn close(&self) {
        {
            // Under the lock, so that an order is either seen by the writer before it leaves, or refused.
            let _tickets = self.flush.lock();
            self.closing.store(true, Ordering::SeqCst);
        }
        self.wake();
    }

    /// Waits until the writer has dealt with everything pushed before; false when that took longer than `within`.
    pub(crate) fn flush(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut tickets = self.flush.lock();
        tickets.asked += 1;
        let mine = tickets.asked;
        self.wake();
        while tickets.done < mine {
            if self.gone.load(Ordering::Acquire) || self.flushed.wait_until(&mut tickets, deadline).timed_out() {
                return tickets.done >= mine;
            }
        }
        true
    }

    /// Holds room for spans that go in by an order; `None` when there is not so much.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let held = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let room = Held { queue: Arc::clone(self), bytes };
        (held.saturating_add(bytes) <= self.bytes_max).then_some(room)
    }

    /// Hands an order to the writer.
    pub(crate) fn order(&self, order: Order) -> Result<(), NotWritten> {
        let mut tickets = self.flush.lock();
        if self.is_closing() || self.is_gone() {
            return Err(NotWritten::Closed);
        }
        let waiting = tickets.orders.len();
        if waiting >= ORDERS_MAX {
            return Err(NotWritten::Busy { waiting });
        }
        tickets.orders.push(order);
        self.wake();
        Ok(())
    }

    /// Waits until the writer has gone; false when it is still there at `deadline`.
    pub(crate) fn wait_gone(&self, deadline: Instant) -> bool {
        let mut tickets = self.flush.lock();
        while !self.is_gone() {
            if self.flushed.wait_until(&mut tickets, deadline).timed_out() {
                return self.is_gone();
            }
        }
        true
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    fn wake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    #[cfg(test)]
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    // === the writer's side ===

    /// The calling thread is the writer.
    pub(crate) fn adopt(&self) {
        // A queue has one writer for life; a second call would be a bug and changes nothing.
        self.writer.get_or_init(std::thread::current);
    }

    pub(crate) fn pop(&self) -> Option<Queued> {
        self.spans.pop()
    }

    /// Gives back the bytes of spans that were committed or given up.
    pub(crate) fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Sleeps until woken or until `at_most` has passed.
    pub(crate) fn sleep(&self, at_most: Duration) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.spans.is_empty() && !self.is_closing() && !self.is_asked() {
            std::thread::park_timeout(at_most);
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Takes what somebody waits for.
    pub(crate) fn asked(&self) -> Asked {
        let mut tickets = self.flush.lock();
        let ticket = (tickets.asked > tickets.done).then_some(tickets.asked);
        Asked { ticket, orders: std::mem::take(&mut tickets.orders) }
    }

    fn is_asked(&self) -> bool {
        let tickets = self.flush.lock();
        tickets.asked > tickets.done || !tickets.orders.is_empty()
    }

    /// Answers every flush request up to `ticket`.
    pub(crate) fn answer(&self, ticket: u64) {
        self.flush.lock().done = ticket;
        self.flushed.notify_all();
    }

    /// The writer leaves: nobody will answer any more.
    pub(crate) fn leave(&self) {
        let mut tickets = self.flush.lock();
        self.gone.store(true, Ordering::SeqCst);
        // Dropping an order answers it.
        let orders = std::mem::take(&mut tickets.orders);
        self.flushed.notify_all();
        drop(tickets);
        drop(orders);
    }
}

/// Room in the queue, given back when it goes.
pub(crate) struct Held {
    queue: Arc<Queue>,
    bytes: usize,
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.queue.release(self.bytes);
    }
}

/// Whether leaving its texts out makes a span smaller by enough to be worth it.
fn has_texts(span: &SpanRecord) -> bool {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    text(&span.prompt) + text(&span.response) + span.frame.as_ref().map_or(0, |frame| frame.bytes()) >= TEXTS_BYTES_MIN
}

/// Shorter texts stay with their span.
const TEXTS_BYTES_MIN: usize = 1024;

/// What a span counts for: its own size and that of the texts it owns. Lists count with the size of their items.
pub fn weigh(span: &SpanRecord) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let mut bytes = size_of::<SpanRecord>()
        + text(&span.prompt)
        + text(&span.response)
        + text(&span.model)
        + text(&span.agent_id)
        + text(&span.session_id)
        + text(&span.client)
        + text(&span.error_type)
        + text(&span.error_message)
        + text(&span.finish_reason)
        + span.detectors.len() * size_of::<std::borrow::Cow<'_, str>>();
    for (key, value) in &span.tags {
        bytes += PAIR_BYTES + key.len() + value.len();
    }
    bytes += span.security_findings.iter().map(weigh_finding).sum::<usize>();
    for event in &span.events {
        bytes += size_of_val(event) + event.description.len() + pairs(&event.data);
    }
    bytes += span.agent_actions.iter().map(weigh_action).sum::<usize>();
    bytes += span.frame.as_ref().map_or(0, |frame| size_of_val(&**frame) + frame.bytes());
    bytes + span.parts.iter().map(weigh_part).sum::<usize>() + span.attributes.bytes()
}

fn weigh_part(part: &PartRecord) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    size_of_val(part) + part.tool.as_ref().map_or(0, |tool| size_of_val(&**tool) + text(&tool.name) + text(&tool.id))
}

/// What a reported action counts for.
pub(crate) fn weigh_action(action: &AgentAction) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let texts = action.name.len() + text(&action.arguments) + text(&action.result);
    size_of_val(action) + texts + pairs(&action.metadata)
}

/// What a finding counts for.
pub(crate) fn weigh_finding(finding: &Finding) -> usize {
    let texts = finding.description.len() + finding.location.len() + finding.evidence.len();
    size_of_val(finding) + texts + pairs(&finding.metadata)
}

/// Two strings in a map.
const PAIR_BYTES: usize = 2 * size_of::<String>();

fn pairs(map: &std::collections::BTreeMap<String, String>) -> usize {
    map.iter().map(|(key, value)| PAIR_BYTES + key.len() + value.len()).sum()
}

#[cfg(test)]
mod tests;
