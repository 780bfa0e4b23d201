//! How long each detector takes, without asking the clock all the time.
//!
//! An analysis reads the clock at its beginning and at its end. Between detectors it is read for long texts, where that
//! costs nothing beside the work, and for one in some of the others; what was not measured is shared out as what was.

use std::time::Instant;

use crate::part::DETECTORS;

/// Texts from this length on are always measured.
const MEASURED_BYTES_MIN: usize = 2 * 1024;
/// Of analyses of shorter texts one in so many is measured.
const MEASURED_ONE_IN: u32 = 16;
/// Shares are halved at this sum, so that they follow what comes.
const SHARES_NS_MAX: u64 = 1 << 30;

/// A detector's place among the others.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lap {
    Rules,
    Jailbreak,
    Pii,
    Secrets,
}

/// What one thread knows of how time is shared.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    ns: [u64; DETECTORS.len()],
    turn: u32,
}

/// The clock of one analysis.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    begun: Option<Instant>,
    /// The last reading; `None` while the present text is not measured.
    last: Option<Instant>,
    measured: [u64; DETECTORS.len()],
}

impl Stopwatch {
    /// A text of so many bytes is looked at next.
    pub(crate) fn next(&mut self, text_bytes: usize, shares: &mut Shares) {
        let first = self.begun.is_none();
        if first {
            shares.turn = shares.turn.wrapping_add(1);
        }
        let measured = text_bytes >= MEASURED_BYTES_MIN || (first && shares.turn % MEASURED_ONE_IN == 1);
        let now = (first || measured).then(Instant::now);
        self.begun = self.begun.or(now);
        self.last = now.filter(|_| measured);
    }

    /// A detector has ended.
    pub(crate) fn lap(&mut self, lap: Lap) {
        if let Some(last) = self.last {
            let now = Instant::now();
            if let Some(ns) = self.measured.get_mut(lap as usize) {
                *ns = ns.saturating_add(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
            }
            self.last = Some(now);
        }
    }

    /// What each detector took, all together what the analysis took.
    pub(crate) fn stop(self, shares: &mut Shares) -> [u64; DETECTORS.len()] {
        let Some(begun) = self.begun else { return [0; DETECTORS.len()] };
        let total = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        for (share, measured) in shares.ns.iter_mut().zip(self.measured) {
            *share = share.saturating_add(measured);
        }
        if shares.ns.iter().copied().fold(0, u64::saturating_add) > SHARES_NS_MAX {
            shares.ns.iter_mut().for_each(|share| *share /= 2);
        }
        let rest = total.saturating_sub(self.measured.iter().sum());
        let sum = shares.ns.iter().sum::<u64>().max(1);
        let mut took = self.measured;
        for (ns, share) in took.iter_mut().zip(shares.ns) {
            *ns += (u128::from(rest) * u128::from(share) / u128::from(sum)) as u64;
        }
        // What rounding left over, and a thread's first moments.
        let shared: u64 = took.iter().sum();
        if let Some(rules) = took.first_mut() {
            *rules += total.saturating_sub(shared);
        }
        took
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Spends a while.
    fn work(micros: u64) {
        let end = Instant::now() + Duration::from_micros(micros);
        while Instant::now() < end {}
    }

    #[test]
    fn what_is_measured_counts_and_the_rest_is_shared_as_it() {
        let mut shares = Shares::default();
        let mut watch = Stopwatch::default();
        watch.next(MEASURED_BYTES_MIN, &mut shares);
        work(1_000);
        watch.lap(Lap::Rules);
        watch.lap(Lap::Secrets);
        work(3_000);
        watch.lap(Lap::Pii);
        let took = watch.stop(&mut shares);
        assert!(took[Lap::Rules as usize] >= 1_000_000 && took[Lap::Pii as usize] >= 3_000_000, "{took:?}");
        let mut watch = Stopwatch::default();
        watch.next(10, &mut shares);
        work(4_000);
        watch.lap(Lap::Rules);
        let took = watch.stop(&mut shares);
        assert!(took.iter().sum::<u64>() >= 4_000_000, "{took:?}");
        assert!(took[Lap::Pii as usize] > took[Lap::Rules as usize], "{took:?}");
    }

    #[test]
    fn an_analysis_of_nothing_took_no_time() {
        assert_eq!(Stopwatch::default().stop(&mut Shares::default()), [0; DETECTORS.len()]);
    }
}
