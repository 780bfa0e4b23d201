//! Places for what is under way: shared out among tenants or addresses, and all free when everything has ended.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::control::Shares;

/// So many places, shared out by [`Shares`].
#[derive(Clone)]
pub(super) struct Places<T> {
    shares: Arc<Mutex<Shares<T>>>,
    all: Arc<Semaphore>,
    capacity: usize,
}

/// A place that is taken; dropping it gives it back.
pub(super) struct Place<T: Copy + Eq + Hash> {
    shares: Arc<Mutex<Shares<T>>>,
    holder: T,
    _one: OwnedSemaphorePermit,
}

impl<T: Copy + Eq + Hash> Places<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let shares = Arc::new(Mutex::new(Shares::new(capacity)));
        Self { shares, all: Arc::new(Semaphore::new(capacity)), capacity }
    }

    /// A place for `holder`, unless it holds as many as are left for others.
    pub(super) fn enter(&self, holder: T) -> Option<Place<T>> {
        let one = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let entered = self.shares.lock().enter(holder);
        entered.then(|| Place { shares: Arc::clone(&self.shares), holder, _one: one })
    }

    /// Waits until nobody has a place. False where that takes longer than `limit`.
    pub(super) async fn emptied(&self, limit: Duration) -> bool {
        let all = u32::try_from(self.capacity).unwrap_or(u32::MAX);
        tokio::time::timeout(limit, self.all.acquire_many(all)).await.is_ok()
    }
}

impl<T: Copy + Eq + Hash> Drop for Place<T> {
    fn drop(&mut self) {
        self.shares.lock().leave(self.holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What runs on a runtime that ends with it.
    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn a_holder_has_what_it_leaves_to_others_and_gives_it_back() {
        let places = Places::new(4);
        let held: Vec<_> = std::iter::from_fn(|| places.enter("one")).collect();
        assert_eq!(held.len(), 2);
        let other = places.enter("two").unwrap();
        assert!(places.enter("two").is_none());
        let third = places.enter("three").unwrap();
        assert!(places.enter("four").is_none(), "all are taken");
        drop((other, third));
        assert!(places.enter("one").is_none(), "what others gave back is theirs to have");
        drop(held);
        assert_eq!(std::iter::from_fn(|| places.enter("three")).collect::<Vec<_>>().len(), 2);
    }

    #[test]
    fn whoever_waits_for_the_last_to_leave_waits_no_longer_than_it_may() {
        run(async {
            let places = Places::new(3);
            assert!(places.emptied(Duration::ZERO).await, "nobody has come");
            let (first, second) = (places.enter(1).unwrap(), places.enter(2).unwrap());
            assert!(!places.emptied(Duration::from_millis(5)).await);
            drop(first);
            assert!(!places.emptied(Duration::from_millis(5)).await, "one is left");
            let waiting = places.emptied(Duration::from_secs(60));
            let (emptied, ()) = tokio::join!(waiting, async { drop(second) });
            assert!(emptied);
        });
    }
}
