//! How much CPU time the second stage may take: a bucket that fills with its share of one core.
//!
//! Invariants: in any time `t` no more than `share * t` and one filling ([`Budget::new`]) is given out, but for what single texts took
//! beyond their estimate, which is owed and paid before anything else is given. What was reserved for a text that is then never looked
//! at is lost: that errs on the side of less.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The bucket holds what flows in in so many nanoseconds. What it holds is taken at once when calls come after a pause, and they wait
/// for that core: three tenths of a second at the default share are some ten texts of a page.
const HOLDS: f64 = 3e9;

/// The bucket. It is told the time and the share.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Nanoseconds that it holds at any share but none: with less, the largest text would never be looked at.
    holds_at_least: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Nanoseconds of CPU time that are there; below zero, owed. Full at first, however much that is.
    there: f64,
    at: Instant,
}

// === impl Budget ===

impl Budget {
    /// A full one. It holds what flows in in three seconds, and `largest`, what one text may take, where that is more.
    pub(crate) fn new(largest: Duration, now: Instant) -> Self {
        Self { holds_at_least: nanos(largest), state: Mutex::new(State { there: f64::INFINITY, at: now }) }
    }

    fn holds(&self, share: f64) -> f64 {
        if share > 0.0 { (HOLDS * share).max(self.holds_at_least) } else { 0.0 }
    }

    /// Takes `cost` out, if as much is there. Without a finite share there always is.
    pub(crate) fn reserve(&self, share: f64, cost: Duration, now: Instant) -> bool {
        if !share.is_finite() {
            return true;
        }
        let mut state = self.state.lock();
        state.fill(share, self.holds(share), now);
        let cost = nanos(cost);
        let is_there = state.there >= cost;
        if is_there {
            state.there -= cost;
        }
        is_there
    }

    /// Whether half of what it holds is there, and `cost`: below that the gate rises, and what comes for the first time goes before.
    pub(crate) fn is_at_ease(&self, share: f64, cost: Duration, now: Instant) -> bool {
        if !share.is_finite() {
            return true;
        }
        let mut state = self.state.lock();
        let holds = self.holds(share);
        state.fill(share, holds, now);
        share > 0.0 && state.there >= nanos(cost).max(holds / 2.0)
    }

    /// How much of what it holds is there, 1.0 at most; below zero, owed.
    pub(crate) fn left(&self, share: f64, now: Instant) -> f64 {
        if !share.is_finite() {
            return 1.0;
        }
        let mut state = self.state.lock();
        state.fill(share, self.holds(share), now);
        if share > 0.0 { state.there / self.holds(share) } else { 0.0 }
    }

    /// Puts back what was reserved and takes what was used.
    pub(crate) fn settle(&self, share: f64, reserved: Duration, used: Duration, now: Instant) {
        if !share.is_finite() {
            return;
        }
        let mut state = self.state.lock();
        state.fill(share, self.holds(share), now);
        state.there = (state.there + nanos(reserved) - nanos(used)).min(self.holds(share));
    }
}

// === impl State ===

impl State {
    fn fill(&mut self, share: f64, holds: f64, now: Instant) {
        let passed = nanos(now.saturating_duration_since(self.at));
        self.at = self.at.max(now);
        self.there = (self.there + passed * share.max(0.0)).min(holds);
    }
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LARGEST: Duration = Duration::from_millis(160);

    #[test]
    fn what_flows_in_is_the_share_of_the_time_that_passed() {
        let begun = Instant::now();
        let budget = Budget::new(LARGEST, begun);
        // Three tenths of a second are there at first, at a tenth of a core.
        assert!((0..30).all(|_| budget.reserve(0.1, 10 * MS, begun)));
        assert!(!budget.reserve(0.1, 10 * MS, begun));
        assert_eq!(budget.left(0.1, begun), 0.0);
        assert!(!budget.reserve(0.1, 10 * MS, begun + 90 * MS));
        assert!(budget.reserve(0.1, 10 * MS, begun + 101 * MS));
        assert!(!budget.reserve(0.1, 10 * MS, begun + 102 * MS));
        // It never holds more than three seconds bring.
        let later = begun + 1_000_000 * MS;
        assert_eq!((0..200).filter(|_| budget.reserve(0.1, 10 * MS, later)).count(), 30);
        // A clock that goes back brings nothing.
        assert!(!budget.reserve(0.1, 10 * MS, begun));
        assert!(!budget.reserve(0.1, 10 * MS, later));
    }

    #[test]
    fn what_was_not_used_comes_back_and_what_was_used_beyond_is_owed() {
        let begun = Instant::now();
        let budget = Budget::new(LARGEST, begun);
        assert!(budget.reserve(0.1, 300 * MS, begun));
        budget.settle(0.1, 300 * MS, 100 * MS, begun);
        assert!(budget.reserve(0.1, 200 * MS, begun));
        budget.settle(0.1, 200 * MS, 700 * MS, begun);
        assert!(!budget.reserve(0.1, MS, begun + 4_900 * MS));
        assert!(budget.reserve(0.1, MS, begun + 5_100 * MS));
    }

    #[test]
    fn the_largest_text_fits_however_small_the_share_is() {
        let begun = Instant::now();
        let budget = Budget::new(LARGEST, begun);
        assert!(budget.reserve(0.01, LARGEST, begun));
        // A hundredth of a core brings as much in sixteen seconds.
        assert!(!budget.reserve(0.01, LARGEST, begun + 15_900 * MS));
        assert!(budget.reserve(0.01, LARGEST, begun + 16_100 * MS));
        assert_eq!(budget.left(0.01, begun + 1_000_000 * MS), 1.0);
    }

    #[test]
    fn it_is_at_ease_with_half_of_what_it_holds_and_what_a_text_takes() {
        let begun = Instant::now();
        let budget = Budget::new(LARGEST, begun);
        assert!(budget.is_at_ease(0.1, 300 * MS, begun) && !budget.is_at_ease(0.1, 301 * MS, begun));
        assert!(budget.reserve(0.1, 145 * MS, begun));
        assert!(budget.is_at_ease(0.1, LARGEST.min(155 * MS), begun) && !budget.is_at_ease(0.1, LARGEST, begun));
        assert!(budget.reserve(0.1, 10 * MS, begun));
        assert!(!budget.is_at_ease(0.1, MS, begun) && budget.is_at_ease(0.1, MS, begun + 100 * MS));
        assert!(budget.is_at_ease(f64::INFINITY, 1_000 * MS, begun) && !budget.is_at_ease(0.0, Duration::ZERO, begun));
    }

    #[test]
    fn no_share_gives_nothing_and_no_limit_everything() {
        let begun = Instant::now();
        let budget = Budget::new(LARGEST, begun);
        assert!(!budget.reserve(0.0, MS, begun));
        assert!(!budget.reserve(0.0, MS, begun + 1_000_000 * MS));
        assert!((0..10_000).all(|_| budget.reserve(f64::INFINITY, 1_000 * MS, begun)));
        // A share that is raised holds from then on.
        assert!(budget.reserve(0.5, 1_000 * MS, begun + 1_010_000 * MS));
    }
}
