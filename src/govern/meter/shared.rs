//! The meter of everybody who is not a core thread: storage, inference, control, logging.
//!
//! Invariant: writers never wait; a label set is claimed once in a fixed row of slots and then only added to. All label
//! values are named by our own code, so the rows are short. Knows nothing of cores or exposition.

use std::sync::OnceLock;

use super::cell::{Counter, Histogram};
use super::core::DETECTOR_BOUNDS_US;

/// Label sets per metric; our own code names far fewer.
const SLOTS: usize = 64;

/// An append-only row of keyed cells: found by scanning, claimed by whoever comes first.
#[derive(Debug)]
pub(super) struct Slots<K, V>([OnceLock<(K, V)>; SLOTS]);

impl<K: PartialEq + Copy, V> Slots<K, V> {
    fn new() -> Self {
        Self([const { OnceLock::new() }; SLOTS])
    }

    /// The cell of `key`; `None` when the row is full.
    fn cell(&self, key: K, make: impl Fn() -> V) -> Option<&V> {
        self.0
            .iter()
            .map(|slot| slot.get_or_init(|| (key, make())))
            .find(|(taken, _)| *taken == key)
            .map(|(_, cell)| cell)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.0.iter().map_while(OnceLock::get)
    }
}

/// Cells any thread may write.
#[derive(Debug)]
pub struct Shared {
    pub(super) storage: Slots<(&'static str, bool), Counter>,
    pub(super) detectors: Slots<&'static str, Histogram<15>>,
    pub(super) drops: Slots<(&'static str, &'static str), Counter>,
    pub(super) rpcs: Slots<(&'static str, &'static str), Counter>,
    pub(super) panics: Counter,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            storage: Slots::new(),
            detectors: Slots::new(),
            drops: Slots::new(),
            rpcs: Slots::new(),
            panics: Counter::default(),
        }
    }

    /// Counts `n` storage operations named verb_noun (`write_trace`, `read_traces`) that succeeded or failed.
    pub fn storage(&self, operation: &'static str, ok: bool, n: u64) {
        if let Some(count) = self.storage.cell((operation, ok), Counter::default) {
            count.add_shared(n);
        }
    }

    /// Counts one run of `detector` that took `micros` microseconds.
    pub fn detector(&self, detector: &'static str, micros: u64) {
        if let Some(latency) = self.detectors.cell(detector, || Histogram::new(&DETECTOR_BOUNDS_US)) {
            latency.observe_shared(micros);
        }
    }

    /// Counts `n` items that `queue` turned away or gave up for `reason`.
    pub fn dropped(&self, queue: &'static str, reason: &'static str, n: u64) {
        if let Some(count) = self.drops.cell((queue, reason), Counter::default) {
            count.add_shared(n);
        }
    }

    /// Counts one gRPC call of `method` that ended with `code`.
    pub fn rpc(&self, method: &'static str, code: &'static str) {
        if let Some(count) = self.rpcs.cell((method, code), Counter::default) {
            count.add_shared(1);
        }
    }

    /// Counts one caught panic.
    pub fn panic(&self) {
        self.panics.add_shared(1);
    }

    /// Panics caught outside the core threads.
    pub fn panics(&self) -> u64 {
        self.panics.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_meet_at_a_new_key_share_one_cell() {
        static NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let shared = Shared::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..1_000 {
                        shared.dropped(NAMES[round % 8], "full", 1);
                    }
                });
            }
        });
        let mut counts: Vec<_> = shared.drops.iter().map(|(key, count)| (key.0, count.get())).collect();
        counts.sort_unstable();
        assert_eq!(counts, NAMES.map(|name| (name, 500)));
    }

    #[test]
    fn a_full_row_turns_new_keys_away_and_keeps_the_old() {
        let slots = Slots::<usize, Counter>::new();
        for key in 0..SLOTS {
            slots.cell(key, Counter::default).unwrap().add_shared(1);
        }
        assert!(slots.cell(SLOTS, Counter::default).is_none());
        assert_eq!(slots.cell(0, Counter::default).unwrap().get(), 1);
    }
}
