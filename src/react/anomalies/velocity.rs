//! How many calls there are, in slots of ten seconds. A slot is too full once, however many calls it goes on to hold.

use super::norm::Kind;
use super::window::{Above, Rule, Window};

/// Length of a slot.
pub(super) const SLOT_US: i64 = 10_000_000;
/// Calls without which a slot is never too full: two a second.
const LEAST_CALLS: u32 = 20;

/// The slots of one tenant.
#[derive(Debug)]
pub(super) struct Velocity {
    slot: i64,
    calls: u32,
    /// What the running slot has broken.
    broken: Option<Above>,
    past: Window,
    size: usize,
}

impl Velocity {
    /// Remembers `size` slots.
    pub(super) fn new(size: usize) -> Self {
        Self { slot: i64::MIN, calls: 0, broken: None, past: Window::new(size), size }
    }

    pub(super) fn clear(&mut self) {
        (self.slot, self.calls, self.broken) = (i64::MIN, 0, None);
        self.past.clear();
    }

    /// Counts a call at this time; the first one too many of a slot is told, with how many there are by then.
    pub(super) fn look(&mut self, at_us: i64, rule: Rule) -> Option<(f64, Above)> {
        let rule = Rule { kind: Kind::Count, ..rule };
        // Calls end out of order: a late one counts where the others are now.
        let slot = at_us.div_euclid(SLOT_US).max(self.slot);
        if slot > self.slot {
            self.turn(slot, rule);
        }
        self.calls = self.calls.saturating_add(1);
        if self.broken.is_some() || self.calls < LEAST_CALLS {
            return None;
        }
        self.broken = self.past.judge(f64::from(self.calls), rule);
        self.broken.map(|above| (f64::from(self.calls), above))
    }

    /// Ends the running slot, and those without a call since.
    fn turn(&mut self, slot: i64, rule: Rule) {
        let first = self.slot == i64::MIN;
        let former = std::mem::replace(&mut self.slot, slot);
        let calls = f64::from(std::mem::take(&mut self.calls));
        let broken = self.broken.take();
        if first {
            return;
        }
        self.past.keep(broken.map_or(calls, |above| above.limit), rule);
        let idle = usize::try_from(slot.saturating_sub(former) - 1).unwrap_or(usize::MAX);
        for _ in 0..idle.min(self.size) {
            self.past.keep(0.0, rule);
        }
    }
}
