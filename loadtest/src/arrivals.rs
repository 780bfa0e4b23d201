//! When requests are due.
//!
//! In open mode due times come from the schedule alone, so a slow answer delays nobody's clock: latency counted from
//! the due time is free of coordinated omission.

use std::time::Duration;

use super::settings::Arrivals;

/// A small generator of even pseudo-random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An even number below `bound`, which is not zero.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next_u64() % bound.max(1) as u64) as usize
    }

    /// An even number from 0 on and below 1.
    pub(super) fn share(&mut self) -> f64 {
        1.0 - self.unit()
    }

    /// An even number above 0 and up to 1.
    fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

/// The due times of one phase, handed out one by one.
#[derive(Debug)]
pub(super) struct Schedule {
    rate_per_s: f64,
    arrivals: Arrivals,
    length_s: f64,
    random: Random,
    issued: u64,
    elapsed_s: f64,
}

impl Schedule {
    pub(super) fn new(rate_per_s: f64, arrivals: Arrivals, length: Duration, seed: u64) -> Self {
        let random = Random::new(seed);
        Self { rate_per_s, arrivals, length_s: length.as_secs_f64(), random, issued: 0, elapsed_s: 0.0 }
    }

    /// The next due time, counted from the start of the phase; `None` when the phase is over.
    pub(super) fn next_due(&mut self) -> Option<Duration> {
        self.elapsed_s = match self.arrivals {
            Arrivals::Constant => self.issued as f64 / self.rate_per_s,
            Arrivals::Poisson => self.elapsed_s - self.random.unit().ln() / self.rate_per_s,
        };
        self.issued += 1;
        (self.elapsed_s < self.length_s).then(|| Duration::from_secs_f64(self.elapsed_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(arrivals: Arrivals, rate_per_s: f64, seconds: u64) -> Vec<Duration> {
        let mut schedule = Schedule::new(rate_per_s, arrivals, Duration::from_secs(seconds), 7);
        std::iter::from_fn(|| schedule.next_due()).collect()
    }

    #[test]
    fn constant_arrivals_are_evenly_spaced_and_do_not_drift() {
        let dues = all(Arrivals::Constant, 8000.0, 3);
        assert_eq!(dues.len(), 24_000);
        assert_eq!(dues[16_000], Duration::from_secs(2));
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_spread_of_an_exponential() {
        let dues = all(Arrivals::Poisson, 1000.0, 20);
        let gaps: Vec<f64> = dues.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1000.0).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.03 && (variance.sqrt() - 1.0).abs() < 0.05, "{mean} {variance}");
    }
}
