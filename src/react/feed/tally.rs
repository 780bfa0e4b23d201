//! What became of the spans of each consumer, for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that rises.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The spans of one consumer.
#[derive(Default)]
pub(super) struct Tally {
    /// Taken; after a retry or a crash a span may count twice.
    pub(super) delivered: Count,
    /// Attempts that failed.
    pub(super) failures: Count,
    /// Lost: not stored, and no room in memory.
    pub(super) queue_full: Count,
    /// Lost: removed from the store before they were read, or before a consumer that had failed could take them.
    pub(super) removed: Count,
    /// Lost: the consumer will never take them.
    pub(super) refused: Count,
    /// Lost: not taken in time.
    pub(super) given_up: Count,
    /// Lost: in memory when the process ended.
    pub(super) shutdown: Count,
}

impl Tally {
    pub(super) fn losses(&self) -> [(&'static str, &Count); 5] {
        [
            ("given_up", &self.given_up),
            ("queue_full", &self.queue_full),
            ("refused", &self.refused),
            ("removed", &self.removed),
            ("shutdown", &self.shutdown),
        ]
    }
}
