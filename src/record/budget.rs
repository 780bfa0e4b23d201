//! One budget for all body bytes Weir holds at any time, held requests and captured answers alike.
//!
//! Capacity is taken before the bytes are kept and comes back when the permit is dropped, so memory stays bounded
//! whatever clients send. Who gets none goes on without keeping: the bytes still flow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The budget, shared by all cores.
#[derive(Clone)]
pub struct Budget {
    free: Arc<AtomicUsize>,
}

impl Budget {
    /// A budget of `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self { free: Arc::new(AtomicUsize::new(bytes)) }
    }

    /// An empty permit that can grow.
    pub fn permit(&self) -> Permit {
        Permit { free: Arc::clone(&self.free), held: 0, times: 1 }
    }

    /// The same for bytes whose text is read and kept beside them: each counts twice.
    pub fn permit_with_text(&self) -> Permit {
        Permit { free: Arc::clone(&self.free), held: 0, times: 2 }
    }

    /// Bytes nobody holds right now.
    pub fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }
}

/// Bytes taken from the budget; dropping it returns them.
pub struct Permit {
    free: Arc<AtomicUsize>,
    held: usize,
    /// What a byte counts.
    times: usize,
}

impl Permit {
    /// Takes `bytes` more. False, and nothing taken, when the budget does not have them.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let bytes = bytes.saturating_mul(self.times);
        let taken =
            self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(bytes)).is_ok();
        if taken {
            self.held += bytes;
        }
        taken
    }

    /// Takes over what another permit of the same budget holds.
    pub fn join(&mut self, mut other: Self) {
        self.held += std::mem::take(&mut other.held);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.held > 0 {
            self.free.fetch_add(self.held, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_exact_and_comes_back() {
        let budget = Budget::new(100);
        let mut first = budget.permit();
        let mut second = budget.permit();
        assert!(first.grow(60));
        assert!(!second.grow(41));
        assert!(second.grow(40));
        assert_eq!(budget.free(), 0);
        drop(first);
        assert_eq!(budget.free(), 60);
        let mut third = budget.permit();
        third.join(second);
        assert_eq!(budget.free(), 60);
        drop(third);
        assert_eq!(budget.free(), 100);
    }

    #[test]
    fn bytes_that_are_kept_as_text_too_count_twice() {
        let budget = Budget::new(100);
        let mut permit = budget.permit_with_text();
        assert!(permit.grow(30) && !permit.grow(21) && permit.grow(20));
        drop(permit);
        assert_eq!(budget.free(), 100);
    }
}
