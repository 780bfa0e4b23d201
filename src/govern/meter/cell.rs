//! The memory a metric lives in: counters, gauges and histograms as plain 64-bit atomics.
//!
//! Invariant: a cell is written either by one thread only (`add`, `observe`: a relaxed load and a relaxed store, no
//! locked instruction) or by any thread (`add_shared`, `observe_shared`: an atomic addition), never in both ways.
//! Reading is always allowed and never tears. Knows no names, no labels and no exposition format.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// A count that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`; for the one thread that writes this cell.
    #[inline]
    pub(super) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds `n`; for a cell that several threads write.
    #[inline]
    pub(super) fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The count so far.
    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A level that rises and falls; one writer.
#[derive(Debug, Default)]
pub(super) struct Gauge(AtomicI64);

impl Gauge {
    /// Moves the level by `delta`; for the one thread that writes this cell.
    #[inline]
    pub(super) fn add(&self, delta: i64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(delta), Relaxed);
    }

    /// Puts the level back to zero, when the thread that kept it is gone.
    pub(super) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// The level now.
    pub(super) fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// Counts of values by size class: class `i` takes values of at most `bounds[i]`, a last one takes the rest.
#[derive(Debug)]
pub(super) struct Histogram<const N: usize> {
    bounds: &'static [u64; N],
    classes: [Counter; N],
    over: Counter,
    sum: Counter,
}

impl<const N: usize> Histogram<N> {
    /// An empty histogram; `bounds` ascend and share the unit of the observed values.
    pub(super) fn new(bounds: &'static [u64; N]) -> Self {
        Self {
            bounds,
            classes: std::array::from_fn(|_| Counter::default()),
            over: Counter::default(),
            sum: Counter::default(),
        }
    }

    /// Counts one value; for the one thread that writes this cell.
    #[inline]
    pub(super) fn observe(&self, value: u64) {
        self.class(value).add(1);
        self.sum.add(value);
    }

    /// Counts one value; for a cell that several threads write.
    #[inline]
    pub(super) fn observe_shared(&self, value: u64) {
        self.class(value).add_shared(1);
        self.sum.add_shared(value);
    }

    #[inline]
    fn class(&self, value: u64) -> &Counter {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.classes.get(at).unwrap_or(&self.over)
    }
}

/// The sum of several histograms with the same bounds, as of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramSum {
    /// Upper bounds, inclusive.
    pub bounds: &'static [u64],
    /// Values per class; one more entry than `bounds`.
    pub classes: Vec<u64>,
    /// Sum of all values.
    pub sum: u64,
}

impl HistogramSum {
    /// Nothing counted yet.
    pub fn empty(bounds: &'static [u64]) -> Self {
        Self { bounds, classes: vec![0; bounds.len() + 1], sum: 0 }
    }

    /// Adds what `cells` has counted so far. Bounds must be those this sum was made with.
    pub(super) fn add<const N: usize>(&mut self, cells: &Histogram<N>) {
        debug_assert_eq!(self.bounds, cells.bounds, "only histograms of the same metric are summed");
        let counts = cells.classes.iter().chain(std::iter::once(&cells.over));
        for (total, count) in self.classes.iter_mut().zip(counts) {
            *total = total.wrapping_add(count.get());
        }
        self.sum = self.sum.wrapping_add(cells.sum.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static BOUNDS: [u64; 3] = [10, 100, 1_000];

    #[test]
    fn a_bound_belongs_to_the_class_it_closes() {
        let cells = Histogram::new(&BOUNDS);
        for value in [0, 10, 11, 100, 1_000, 1_001, 9_999] {
            cells.observe(value);
        }
        let mut sum = HistogramSum::empty(&BOUNDS);
        sum.add(&cells);
        assert_eq!(sum.classes, [2, 2, 1, 2]);
        assert_eq!(sum.sum, 12_121);
    }

    #[test]
    fn no_addition_of_four_threads_is_lost() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| counter.add_shared(1)));
            }
        });
        assert_eq!(counter.get(), 40_000);
    }
}
