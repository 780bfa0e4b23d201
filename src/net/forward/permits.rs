//! `max_connections` is one number for the whole process. A permit stands for one connection to the provider from the
//! moment it is dialled until it is closed; kept connections keep theirs, so that using one again costs nothing here.
//!
//! Invariant: a core that waits is found by a core that closes a connection, and by one that keeps an idle connection it could do
//! without. Everything in here is atomic: no lock, and only a connection's beginning, its end and a wait touch it.
//! Knows no connection and no request.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;

use super::shares::Shares;

/// Nobody waits, or nobody whose turn could come.
pub(super) const NEVER_MS: u64 = u64::MAX;
/// What a tenant that has half of the places waits behind: a moment later than all that will ever be.
pub(super) const BEHIND_MS: u64 = 1 << 48;
/// A core serves its own waiters first, unless another core's has waited longer by this much: handing a connection over
/// means closing it and dialling again.
const GRACE_MS: u64 = 20;

/// The permits of one provider, shared by all cores.
pub struct Permits {
    free: AtomicU32,
    waiting: AtomicU32,
    joined: AtomicUsize,
    wakes: Box<[CoreWake]>,
    /// How many of them each tenant has.
    pub(super) shares: Shares,
}

/// How a core that has waiting requests, or idle connections, is woken.
#[repr(align(128))] // A cache line pair of its own.
struct CoreWake {
    /// Since when the first request in this core's queue has waited; see [`BEHIND_MS`].
    oldest_ms: AtomicU64,
    called: AtomicBool,
    waker: AtomicWaker,
}

impl Permits {
    /// `total` permits for `cores` cores.
    pub fn new(total: u32, cores: usize) -> Self {
        let wake = || CoreWake {
            oldest_ms: AtomicU64::new(NEVER_MS),
            called: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        };
        Self {
            free: AtomicU32::new(total.max(1)),
            waiting: AtomicU32::new(0),
            joined: AtomicUsize::new(0),
            wakes: (0..cores.max(1)).map(|_| wake()).collect(),
            shares: Shares::new(total.max(1), cores.max(1)),
        }
    }

    /// The index of a core that joins.
    pub(super) fn join(&self) -> usize {
        self.joined.fetch_add(1, Ordering::Relaxed) % self.wakes.len()
    }

    /// Takes a permit, if one is free.
    pub(super) fn take(&self) -> bool {
        self.free.try_update(Ordering::SeqCst, Ordering::SeqCst, |free| free.checked_sub(1)).is_ok()
    }

    /// Gives one back and wakes the core whose request has waited longest.
    pub(super) fn put_back(&self) {
        self.free.fetch_add(1, Ordering::SeqCst);
        self.call_oldest();
    }

    /// Permits nobody holds.
    pub(super) fn free(&self) -> u32 {
        self.free.load(Ordering::SeqCst)
    }

    /// Requests that wait, on all cores.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// One more request waits, or one less.
    pub(super) fn count_waiting(&self, more: bool) {
        if more {
            self.waiting.fetch_add(1, Ordering::SeqCst);
        } else {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Since when the first request in the queue of `core` has waited.
    pub(super) fn show_oldest(&self, core: usize, since_ms: Option<u64>) {
        if let Some(core) = self.wakes.get(core) {
            core.oldest_ms.store(since_ms.unwrap_or(NEVER_MS), Ordering::SeqCst);
        }
    }

    /// Whether another core's turn comes before that of a request waiting here since `since_ms` (`None`: nobody waits).
    pub(super) fn is_others_turn(&self, core: usize, since_ms: Option<u64>) -> bool {
        let own = since_ms.unwrap_or(NEVER_MS);
        let others = self.wakes.iter().enumerate().filter(|(index, _)| *index != core);
        others.map(|(_, other)| other.oldest_ms.load(Ordering::SeqCst)).any(|at| at.saturating_add(GRACE_MS) < own)
    }

    /// Calls the core whose request has waited longest, if any waits.
    pub(super) fn call_oldest(&self) {
        if self.waiting() == 0 {
            return;
        }
        let wakes = self.wakes.iter().map(|core| (core.oldest_ms.load(Ordering::SeqCst), core));
        if let Some((_, core)) = wakes.filter(|(oldest_ms, _)| *oldest_ms != NEVER_MS).min_by_key(|(at, _)| *at) {
            core.call();
        }
    }

    /// Calls `core` itself, to lend what its own requests no longer wait for.
    pub(super) fn call(&self, core: usize) {
        if self.waiting() > 0
            && let Some(core) = self.wakes.get(core)
        {
            core.call();
        }
    }

    /// Wakes the lending of a core whose pool has gone.
    pub(super) fn end(&self, core: usize) {
        if let Some(core) = self.wakes.get(core) {
            core.call();
        }
    }

    /// Calls every core but this one: somebody waits, and they may keep connections they do not use.
    pub(super) fn call_others(&self, core: usize) {
        for (index, other) in self.wakes.iter().enumerate() {
            if index != core {
                other.call();
            }
        }
    }

    /// Returns when `core` has been called.
    pub(super) async fn called(&self, core: usize) {
        let Some(core) = self.wakes.get(core) else { return std::future::pending().await };
        poll_fn(|context| {
            core.waker.register(context.waker());
            if core.called.swap(false, Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl CoreWake {
    fn call(&self) {
        self.called.store(true, Ordering::SeqCst);
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_are_taken_than_there_are() {
        let permits = Permits::new(3, 2);
        let taken: Vec<bool> = (0..5).map(|_| permits.take()).collect();
        assert_eq!(taken, [true, true, true, false, false]);
        permits.put_back();
        assert!(permits.take() && !permits.take());
    }

    #[test]
    fn the_longest_wait_decides_whose_turn_it_is() {
        let permits = Permits::new(1, 2);
        assert!(!permits.is_others_turn(0, None), "nobody waits");
        permits.show_oldest(1, Some(1_000));
        assert!(permits.is_others_turn(0, None));
        assert!(permits.is_others_turn(0, Some(1_000 + GRACE_MS + 1)));
        assert!(!permits.is_others_turn(0, Some(1_000 + GRACE_MS)), "a connection at hand is worth a short injustice");
        assert!(!permits.is_others_turn(1, None), "one's own wait is nobody else's turn");
    }
}
