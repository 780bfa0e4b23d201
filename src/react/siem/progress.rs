//! How far one who sends events has come with those that are under way, and what is to be done with an event that a receiver refuses.

use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How often a receiver that answers with an error of its own is sent the same before events are sent to it one by one.
const TRIES: u32 = 6;
/// How long an event is sent again that the receiver refuses while it takes no other one: somebody may correct the receiver meanwhile.
const DOUBT_FOR: Duration = Duration::from_secs(6 * 3_600);

/// What is known of the events under way until all are dealt with.
#[derive(Default)]
pub(super) struct Progress {
    /// The ids of those that were taken, or given up.
    done: HashSet<String>,
    /// Whether one was taken: then the receiver works, and one that it refuses is at fault itself.
    worked: bool,
    /// Since when and how often it took none.
    doubts: Option<(Instant, u32)>,
}

impl Progress {
    pub(super) fn is_done(&self, id: &str) -> bool {
        self.done.contains(id)
    }

    pub(super) fn taken(&mut self, id: &str) {
        self.worked = true;
        self.given_up(id);
    }

    pub(super) fn given_up(&mut self, id: &str) {
        self.done.insert(id.to_owned());
    }

    /// All are dealt with.
    pub(super) fn ends(&mut self) {
        *self = Self::default();
    }

    /// The receiver took none.
    pub(super) fn doubt(&mut self, now: Instant) {
        let (_, tries) = self.doubts.get_or_insert((now, 0));
        *tries = tries.saturating_add(1);
    }

    fn tries(&self) -> u32 {
        self.doubts.map_or(0, |(_, tries)| tries)
    }

    /// Whether it is time to look for the event that is at fault.
    pub(super) fn is_to_part(&self) -> bool {
        self.tries() >= TRIES
    }

    /// Which half is sent first: each in its turn, so that faulty events at one end do not hide the others.
    pub(super) fn is_back_first(&self) -> bool {
        self.tries() % 2 == 1
    }

    /// Whether an event that was refused by itself will never be taken.
    pub(super) fn is_hopeless(&self, now: Instant) -> bool {
        let is_over = |(since, _): (Instant, u32)| now.saturating_duration_since(since) >= DOUBT_FOR;
        self.worked || self.doubts.is_some_and(is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_given_up_when_others_are_taken_or_after_hours() {
        let (mut progress, now) = (Progress::default(), Instant::now());
        for _ in 0..TRIES {
            assert!(!progress.is_to_part());
            progress.doubt(now);
        }
        assert!(progress.is_to_part() && !progress.is_hopeless(now + DOUBT_FOR / 2));
        assert!(progress.is_hopeless(now + DOUBT_FOR));
        progress.taken("a");
        assert!(progress.is_hopeless(now) && progress.is_done("a") && !progress.is_done("b"));
        progress.ends();
        assert!(!progress.is_hopeless(now + DOUBT_FOR) && !progress.is_done("a"));
    }
}
