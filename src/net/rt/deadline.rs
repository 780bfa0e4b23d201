//! Deadlines of a core thread.
//!
//! A deadline does not race an operation: it *ends* it. When the time has come the socket is shut down in the needed
//! direction, the kernel completes the pending operation, and whoever awaits it sees its result and
//! [`Deadline::fired`]. So no operation is ever dropped in flight, on either driver, and arming costs two stores.
//!
//! All deadlines of a core stand in one flat table that one task sweeps no later than the earliest of them; the table is
//! scanned, not sorted, because a scan over 10,000 instants is microseconds and re-arming happens per request.

use std::cell::{Cell, RefCell};
use std::future::{Future as _, poll_fn};
use std::os::fd::RawFd;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::now_ms;

/// What happens when a deadline passes.
#[derive(Debug, Clone)]
pub enum On {
    /// Stop reading from the socket: a pending read ends with 0 bytes, writing still works.
    StopReading(RawFd),
    /// Stop both directions: pending reads and writes end.
    Stop(RawFd),
    /// Wake a task.
    Wake(Waker),
}

const OFF: u64 = u64::MAX;
/// Longest sleep of the sweeper.
const SWEEP_MS_MAX: u64 = 1_000;
/// Shortest pause between two sweeps: the resolution of deadlines.
const SWEEP_MS_MIN: u64 = 5;

#[derive(Default)]
struct Table {
    at_ms: RefCell<Vec<u64>>,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    next_sweep_ms: Cell<u64>,
    sweeper: RefCell<Option<Waker>>,
}

#[derive(Default)]
struct Slot {
    on: Option<On>,
    fired: bool,
}

thread_local! {
    static TABLE: Table = Table::default();
}

/// One entry of this core's deadline table, reusable for one wait after the other.
pub struct Deadline {
    index: usize,
}

impl Deadline {
    /// A free entry, not armed.
    pub fn new() -> Self {
        let index = TABLE.with(|table| {
            table.free.borrow_mut().pop().unwrap_or_else(|| {
                table.at_ms.borrow_mut().push(OFF);
                table.slots.borrow_mut().push(Slot::default());
                table.slots.borrow().len() - 1
            })
        });
        Self { index }
    }

    /// Does `on` after `limit`, unless disarmed or armed again before.
    pub fn arm(&self, limit: Duration, on: On) {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(OFF);
        let at = now_ms().saturating_add(limit_ms.max(1)).min(OFF - 1);
        TABLE.with(|table| {
            if let Some(slot) = table.slots.borrow_mut().get_mut(self.index) {
                *slot = Slot { on: Some(on), fired: false };
            }
            table.set(self.index, at);
            if at < table.next_sweep_ms.get()
                && let Some(waker) = table.sweeper.borrow_mut().take()
            {
                waker.wake();
            }
        });
    }

    /// Takes the deadline back. Returns whether it had fired.
    pub fn disarm(&self) -> bool {
        TABLE.with(|table| {
            table.set(self.index, OFF);
            table.slots.borrow_mut().get_mut(self.index).is_some_and(|slot| {
                slot.on = None;
                std::mem::take(&mut slot.fired)
            })
        })
    }

    /// Whether the deadline has passed since it was armed.
    pub fn fired(&self) -> bool {
        TABLE.with(|table| table.slots.borrow().get(self.index).is_some_and(|slot| slot.fired))
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.disarm();
        TABLE.with(|table| table.free.borrow_mut().push(self.index));
    }
}

impl Table {
    fn set(&self, index: usize, at: u64) {
        if let Some(entry) = self.at_ms.borrow_mut().get_mut(index) {
            *entry = at;
        }
    }

    /// Fires what is due and returns when to look again.
    fn fire_due(&self, now: u64) -> u64 {
        let mut due = Vec::new();
        let mut next = now.saturating_add(SWEEP_MS_MAX);
        for (index, at) in self.at_ms.borrow_mut().iter_mut().enumerate() {
            if *at <= now {
                *at = OFF;
                due.push(index);
            } else {
                next = next.min(*at);
            }
        }
        for index in due {
            let on = self.slots.borrow_mut().get_mut(index).and_then(|slot| {
                slot.fired = true;
                slot.on.take()
            });
            match on {
                Some(On::StopReading(fd)) => super::conn::shutdown_fd(fd, libc::SHUT_RD),
                Some(On::Stop(fd)) => super::conn::shutdown_fd(fd, libc::SHUT_RDWR),
                Some(On::Wake(waker)) => waker.wake(),
                None => {}
            }
        }
        next.max(now.saturating_add(SWEEP_MS_MIN))
    }
}

/// The sweeper of this core; runs for the core's life. Each turn is reported to `beat` with how late the timer came.
pub(super) async fn sweep(beat: impl Fn(Duration)) {
    let mut lag = Duration::ZERO;
    loop {
        beat(lag);
        let now = now_ms();
        let next = TABLE.with(|table| {
            let next = table.fire_due(now);
            table.next_sweep_ms.set(next);
            next
        });
        let due = Instant::now() + Duration::from_millis(next.saturating_sub(now));
        let timer = monoio::time::sleep_until(due.into());
        let mut timer = std::pin::pin!(timer);
        let mut nudged = false;
        poll_fn(|context| {
            if nudged {
                return Poll::Ready(());
            }
            nudged = true;
            TABLE.with(|table| *table.sweeper.borrow_mut() = Some(context.waker().clone()));
            let polled = timer.as_mut().poll(context);
            if polled.is_pending() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        // Nothing when somebody armed an earlier deadline and nudged.
        lag = Instant::now().saturating_duration_since(due);
    }
}
