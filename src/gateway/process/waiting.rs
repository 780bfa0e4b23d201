//! The requests that wait for what models say of them, on all cores together.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting(AtomicUsize);

/// One of them.
#[derive(Debug)]
pub(crate) struct Waiter<'a>(&'a Waiting);

impl Waiting {
    /// A place among `most`, given back when it is dropped; `None` when all are taken.
    pub(crate) fn enter(&self, most: usize) -> Option<Waiter<'_>> {
        // Counted before it is known whether there is room, so that two cannot take the last place.
        let waiter = Waiter(self);
        (self.0.fetch_add(1, Ordering::AcqRel) < most).then_some(waiter)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_of_so_many_and_is_given_back() {
        let waiting = Waiting::default();
        let (first, second) = (waiting.enter(2), waiting.enter(2));
        assert!(first.is_some() && second.is_some());
        assert!(waiting.enter(2).is_none() && waiting.enter(2).is_none(), "who is turned away takes no place");
        drop(first);
        assert!(waiting.enter(2).is_some());
    }
}
