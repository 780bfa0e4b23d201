//! `max_connections` is one number for the whole process. A permit stands for one connection to the provider from the
//! moment it is dialled until it is closed; kept connections keep theirs, so that using one again costs nothing here.
//!
//! Invariant: a core that waits is found by whoever closes a connection, and by whoever keeps an idle one it could do
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
/// means closing it and dialling anew.
const GRACE_MS: u64 = 20;

/// The permits of one provider, shared by all cores.
pub struct Permits {
    free: AtomicU32,
    waiting: AtomicU32,
    joined: AtomicUsize,
    desks: Box<[Desk]>,
    /// Who has them.
    pub(super) shares: Shares,
}

/// Where a core is called.
#[repr(align(128))] // A cache line pair of its own.
struct Desk {
    /// Since when the request waits that comes first here; see [`BEHIND_MS`].
    oldest_ms: AtomicU64,
    called: AtomicBool,
    waker: AtomicWaker,
}

impl Permits {
    /// `total` permits for `cores` cores.
    pub fn new(total: u32, cores: usize) -> Self {
        let desk =
            || Desk { oldest_ms: AtomicU64::new(NEVER_MS), called: AtomicBool::new(false), waker: AtomicWaker::new() };
        Self {
            free: AtomicU32::new(total.max(1)),
            waiting: AtomicU32::new(0),
            joined: AtomicUsize::new(0),
            desks: (0..cores.max(1)).map(|_| desk()).collect(),
            shares: Shares::new(total.max(1), cores.max(1)),
        }
    }

    /// A core's own desk.
    pub(super) fn join(&self) -> usize {
        self.joined.fetch_add(1, Ordering::Relaxed) % self.desks.len()
    }

    /// Takes a permit, if one is free.
    pub(super) fn take(&self) -> bool {
        self.free.try_update(Ordering::SeqCst, Ordering::SeqCst, |free| free.checked_sub(1)).is_ok()
    }

    /// Gives one back and calls who has waited longest.
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

    /// Since when the request waits that comes first at `desk`.
    pub(super) fn show_oldest(&self, desk: usize, since_ms: Option<u64>) {
        if let Some(desk) = self.desks.get(desk) {
            desk.oldest_ms.store(since_ms.unwrap_or(NEVER_MS), Ordering::SeqCst);
        }
    }

    /// Whether another core's turn comes before that of a request waiting here since `since_ms` (`None`: nobody waits).
    pub(super) fn is_others_turn(&self, desk: usize, since_ms: Option<u64>) -> bool {
        let own = since_ms.unwrap_or(NEVER_MS);
        let others = self.desks.iter().enumerate().filter(|(index, _)| *index != desk);
        others.map(|(_, other)| other.oldest_ms.load(Ordering::SeqCst)).any(|at| at.saturating_add(GRACE_MS) < own)
    }

    /// Calls the core whose request has waited longest, if any waits.
    pub(super) fn call_oldest(&self) {
        if self.waiting() == 0 {
            return;
        }
        let desks = self.desks.iter().map(|desk| (desk.oldest_ms.load(Ordering::SeqCst), desk));
        if let Some((_, desk)) = desks.filter(|(oldest_ms, _)| *oldest_ms != NEVER_MS).min_by_key(|(at, _)| *at) {
            desk.call();
        }
    }

    /// Calls `desk` itself, to lend what its own requests no longer wait for.
    pub(super) fn call(&self, desk: usize) {
        if self.waiting() > 0
            && let Some(desk) = self.desks.get(desk)
        {
            desk.call();
        }
    }

    /// Calls every core but this one: somebody waits, and they may keep connections they do not use.
    pub(super) fn call_others(&self, desk: usize) {
        for (index, other) in self.desks.iter().enumerate() {
            if index != desk {
                other.call();
            }
        }
    }

    /// Returns when `desk` has been called.
    pub(super) async fn called(&self, desk: usize) {
        let Some(desk) = self.desks.get(desk) else { return std::future::pending().await };
        poll_fn(|context| {
            desk.waker.register(context.waker());
            if desk.called.swap(false, Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Desk {
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
