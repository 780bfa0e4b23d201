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
