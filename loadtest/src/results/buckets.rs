//! A distribution of times as a short list: how often which time, to a part in a thousand, as the histograms have it.
//!
//! Short enough to keep for every round of every cell, so that a comparison can draw rounds again and look at any percentile.

use serde::{Deserialize, Serialize};

use crate::tally::Times;

/// Buckets per factor of e.
const STEPS: f64 = 1000.0;

/// Times in microseconds and how often each came, in order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Buckets(pub(crate) Vec<(f64, u64)>);

impl Buckets {
    pub(crate) fn of(times: &Times) -> Self {
        let Some(histogram) = times.histogram() else { return Self::default() };
        let mut buckets: Vec<(f64, u64)> = Vec::new();
        for value in histogram.iter_recorded() {
            let rounded = rounded(value.value_iterated_to() as f64 / 1000.0);
            let count = value.count_since_last_iteration();
            match buckets.last_mut() {
                Some((last, held)) if *last == rounded => *held += count,
                _ => buckets.push((rounded, count)),
            }
        }
        Self(buckets)
    }

    /// All of these together.
    pub(crate) fn merged<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut together: Vec<(f64, u64)> = all.flat_map(|buckets| buckets.0.iter().copied()).collect();
        together.sort_by(|one, other| one.0.total_cmp(&other.0));
        together.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        Self(together)
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// The time that this share of all stay within.
    pub(crate) fn at(&self, share: f64) -> Option<f64> {
        let rank = rank(self.count(), share);
        let mut below = 0;
        self.0.iter().find_map(|(us, count)| {
            below += count;
            (below >= rank && rank > 0).then_some(*us)
        })
    }

    pub(crate) fn quantiles(&self) -> Option<Quantiles> {
        let count = self.count();
        let sum: f64 = self.0.iter().map(|(us, count)| us * *count as f64).sum();
        Some(Quantiles {
            count,
            p50_us: self.at(0.5)?,
            p90_us: self.at(0.9)?,
            p99_us: self.at(0.99)?,
            p99_9_us: self.at(0.999)?,
            max_us: self.0.last()?.0,
            mean_us: sum / count.max(1) as f64,
        })
    }
}

/// Some of a distribution's percentiles, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quantiles {
    pub(crate) count: u64,
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p99_9_us: f64,
    pub(crate) max_us: f64,
    pub(crate) mean_us: f64,
}

fn rank(count: u64, share: f64) -> u64 {
    (count as f64 * share).ceil() as u64
}

/// A time to the nearest bucket.
fn rounded(us: f64) -> f64 {
    let time = ((us.max(0.001).ln() * STEPS).round() / STEPS).exp();
    let digits = 10f64.powi(5 - time.log10().ceil() as i32);
    (time * digits).round() / digits
}

/// The distributions of several rounds over the same times, to look at many choices of rounds.
pub(crate) struct Grid {
    times: Vec<f64>,
    rounds: Vec<Vec<u64>>,
}

impl Grid {
    pub(crate) fn new<'a>(rounds: impl Iterator<Item = &'a Buckets> + Clone) -> Self {
        let times: Vec<f64> = Buckets::merged(rounds.clone()).0.into_iter().map(|(us, _)| us).collect();
        let counts = |buckets: &Buckets| {
            let mut counts = vec![0; times.len()];
            for (us, count) in &buckets.0 {
                if let Ok(at) = times.binary_search_by(|time| time.total_cmp(us)) {
                    counts[at] = *count;
                }
            }
            counts
        };
        Self { rounds: rounds.map(counts).collect(), times }
    }

    /// The percentile of these rounds together, each as often as it is named.
    pub(crate) fn at(&self, chosen: &[usize], share: f64) -> Option<f64> {
        let mut sums = vec![0u64; self.times.len()];
        for counts in chosen.iter().filter_map(|round| self.rounds.get(*round)) {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let rank = rank(sums.iter().sum(), share);
        let mut below = 0;
        let at = sums.iter().position(|count| {
            below += count;
            below >= rank && rank > 0
        })?;
        self.times.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn buckets(times: &[u64]) -> Buckets {
        let mut all = Times::new();
        times.iter().for_each(|us| all.add_ns(us * 1000));
        Buckets::of(&all)
    }

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_times_to_a_part_in_five_hundred(
            times in prop::collection::vec(10u64..2_000_000, 1..300),
            share in 0.01f64..1.0,
        ) {
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let exact = sorted[((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len()) - 1] as f64;
            let found = buckets(&times).at(share).unwrap();
            prop_assert!((found / exact - 1.0).abs() < 0.002, "{found} {exact}");
        }

        #[test]
        fn a_grid_says_what_merging_says(rounds in prop::collection::vec(prop::collection::vec(10u64..9_000, 1..60), 1..5)) {
            let rounds: Vec<Buckets> = rounds.iter().map(|times| buckets(times)).collect();
            let grid = Grid::new(rounds.iter());
            let all: Vec<usize> = (0..rounds.len()).collect();
            prop_assert_eq!(grid.at(&all, 0.9), Buckets::merged(rounds.iter()).at(0.9));
            prop_assert_eq!(grid.at(&[0, 0], 0.5), rounds[0].at(0.5));
        }
    }
}
