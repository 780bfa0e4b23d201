//! How fast an upload comes, as far as others have to care: the time it may pause, earned by what has come.

use std::time::Duration;

use crate::limits::{CROWDED_BYTES_PER_S_MIN, CROWDED_GRACE};

/// An upload that holds a place at the provider.
pub(crate) struct Pace {
    /// How long it may pause before it is too slow. A fast beginning earns no more than the grace, and a long pause costs no
    /// more beyond it.
    left_us: i64,
}

/// [`CROWDED_GRACE`] in microseconds.
const GRACE_US: i64 = CROWDED_GRACE.as_micros() as i64;

impl Pace {
    pub(crate) fn new() -> Self {
        Self { left_us: GRACE_US }
    }

    /// `bytes` have come.
    pub(crate) fn came(&mut self, bytes: usize) {
        let earned = i64::try_from(bytes as u64 * 1_000_000 / CROWDED_BYTES_PER_S_MIN).unwrap_or(i64::MAX);
        self.left_us = self.left_us.saturating_add(earned).min(GRACE_US);
    }

    /// The client was waited for.
    pub(crate) fn waited(&mut self, waited: Duration) {
        let waited = i64::try_from(waited.as_micros()).unwrap_or(i64::MAX);
        self.left_us = self.left_us.saturating_sub(waited).max(-GRACE_US);
    }

    /// Whether it is too slow, with `waiting` of a wait that has not ended.
    pub(crate) fn is_used_up(&self, waiting: Duration) -> bool {
        self.left_us < i64::try_from(waiting.as_micros()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_beginning_buys_no_slow_end() {
        let mut pace = Pace::new();
        pace.came(50_000_000);
        pace.waited(CROWDED_GRACE);
        assert!(!pace.is_used_up(Duration::ZERO) && pace.is_used_up(Duration::from_micros(1)));
    }

    #[test]
    fn an_upload_at_the_least_pace_goes_on_and_one_below_it_does_not() {
        let (mut enough, mut less) = (Pace::new(), Pace::new());
        for _ in 0..10_000 {
            enough.waited(Duration::from_millis(100));
            enough.came(1_639);
            less.waited(Duration::from_millis(100));
            less.came(1_600);
        }
        assert!(!enough.is_used_up(Duration::ZERO) && less.is_used_up(Duration::ZERO));
    }
}
