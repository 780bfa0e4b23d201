//! How long each detector takes, without asking the clock all the time.
//!
//! An analysis reads the clock at its beginning and at its end. Between detectors it is read for long texts, where that
//! costs nothing beside the work, and for one in some of the others; what was not measured is shared out as what was.

use std::time::Instant;

use crate::detector_set::DETECTORS_MAX;

/// Texts from this length on are always measured.
const MEASURED_BYTES_MIN: usize = 2 * 1024;
/// Of analyses of shorter texts one in so many is measured.
const MEASURED_ONE_IN: u32 = 16;
/// Shares are halved at this sum, so that they follow what comes.
const SHARES_NS_MAX: u64 = 1 << 30;

/// What one thread knows of how time is shared.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    ns: [u64; DETECTORS_MAX],
    /// All of them together.
    sum: u64,
    /// Behind the last detector that has a share.
    used: usize,
    turn: u32,
}

/// The clock of one analysis.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    begun: Option<Instant>,
    /// The last reading; `None` while the present text is not measured.
    last: Option<Instant>,
    measured: [u64; DETECTORS_MAX],
    /// There is something in `measured`.
    lapped: bool,
}

impl Shares {
    fn add(&mut self, measured: &[u64; DETECTORS_MAX]) {
        for (share, measured) in self.ns.iter_mut().zip(measured) {
            *share = share.saturating_add(*measured);
        }
        let sum = |shares: &[u64]| shares.iter().copied().fold(0, u64::saturating_add);
        if sum(&self.ns) > SHARES_NS_MAX {
            self.ns.iter_mut().for_each(|share| *share /= 2);
        }
        self.sum = sum(&self.ns);
        self.used = self.ns.iter().rposition(|share| *share > 0).map_or(0, |last| last + 1);
    }
}

impl Stopwatch {
    /// A text of so many bytes is looked at next.
    pub(crate) fn next(&mut self, text_bytes: usize, shares: &mut Shares) {
        self.next_by(Instant::now, text_bytes, shares);
    }

    fn next_by(&mut self, clock: impl FnOnce() -> Instant, text_bytes: usize, shares: &mut Shares) {
        let first = self.begun.is_none();
        if first {
            shares.turn = shares.turn.wrapping_add(1);
        }
        let measured = text_bytes >= MEASURED_BYTES_MIN || (first && shares.turn % MEASURED_ONE_IN == 1);
        let now = (first || measured).then(clock);
        self.begun = self.begun.or(now);
        self.last = now.filter(|_| measured);
    }

    /// The detector of this number has ended.
    pub(crate) fn lap(&mut self, detector: usize) {
        self.lap_by(Instant::now, detector);
    }

    fn lap_by(&mut self, clock: impl FnOnce() -> Instant, detector: usize) {
        if let Some(last) = self.last {
            let now = clock();
            if let Some(ns) = self.measured.get_mut(detector) {
                self.lapped = true;
                *ns = ns.saturating_add(u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX));
            }
            self.last = Some(now);
        }
    }

    /// What each detector took, all together what the analysis took.
    pub(crate) fn stop(self, shares: &mut Shares) -> [u64; DETECTORS_MAX] {
        self.stop_by(Instant::now, shares)
    }

    fn stop_by(self, clock: impl FnOnce() -> Instant, shares: &mut Shares) -> [u64; DETECTORS_MAX] {
        let Some(begun) = self.begun else { return [0; DETECTORS_MAX] };
        let total = u64::try_from((clock() - begun).as_nanos()).unwrap_or(u64::MAX).max(1);
        let mut rest = total;
        if self.lapped {
            shares.add(&self.measured);
            rest = total.saturating_sub(self.measured.iter().sum());
        }
        let sum = shares.sum.max(1);
        let (mut took, mut shared) = (self.measured, 0);
        for (ns, share) in took.iter_mut().zip(&shares.ns).take(shares.used) {
            if *share > 0 {
                *ns += match rest.checked_mul(*share) {
                    Some(product) => product / sum,
                    None => (u128::from(rest) * u128::from(*share) / u128::from(sum)) as u64,
                };
            }
            shared += *ns;
        }
        // What rounding left over, and a thread's first moments.
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

    const RULES: usize = 0;
    const PII: usize = 2;
    const SECRETS: usize = 3;

    #[test]
    fn what_is_measured_counts_and_the_rest_is_shared_as_it() {
        let begun = Instant::now();
        let after = |ms| move || begun + Duration::from_millis(ms);
        let mut shares = Shares::default();
        let mut watch = Stopwatch::default();
        watch.next_by(after(0), MEASURED_BYTES_MIN, &mut shares);
        watch.lap_by(after(1), RULES);
        watch.lap_by(after(1), SECRETS);
        watch.lap_by(after(4), PII);
        let took = watch.stop_by(after(4), &mut shares);
        assert_eq!((took[RULES], took[SECRETS], took[PII]), (1_000_000, 0, 3_000_000));

        let mut watch = Stopwatch::default();
        watch.next_by(after(10), MEASURED_BYTES_MIN - 1, &mut shares);
        watch.lap_by(|| unreachable!("a short text is measured for one analysis in some"), RULES);
        let took = watch.stop_by(after(18), &mut shares);
        assert_eq!((took[RULES], took[SECRETS], took[PII]), (2_000_000, 0, 6_000_000));
    }

    #[test]
    fn a_short_text_is_measured_in_its_turn() {
        let begun = Instant::now();
        let mut shares = Shares::default();
        let mut measured = 0;
        for _ in 0..2 * MEASURED_ONE_IN {
            let mut watch = Stopwatch::default();
            watch.next_by(|| begun, 10, &mut shares);
            watch.lap_by(
                || {
                    measured += 1;
                    begun
                },
                RULES,
            );
            watch.stop_by(|| begun, &mut shares);
        }
        assert_eq!(measured, 2);
    }

    #[test]
    fn an_analysis_of_nothing_took_no_time() {
        assert_eq!(Stopwatch::default().stop(&mut Shares::default()), [0; DETECTORS_MAX]);
    }
}
