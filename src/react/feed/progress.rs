//! How far a consumer that sends what it is brought to a receiver has come, and what is to be done with an item that the receiver refuses,
//! or that may be why it answers with an error of its own.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How often a receiver that answers with an error of its own is sent the same before items are sent to it one by one.
const TRIES: u32 = 3;
/// How long an item is sent again that the receiver refuses while it takes no other one: somebody may correct the receiver meanwhile.
const DOUBT_FOR: Duration = Duration::from_secs(6 * 3_600);

/// What is known of a batch under way, by the ids of what it holds, until all is dealt with.
pub struct Progress<K> {
    /// What was taken, or given up.
    done: HashSet<K>,
    /// Whether anything was taken: then the receiver works, and what it refuses is at fault itself.
    worked: bool,
    /// Since when and how often it took nothing.
    doubts: Option<(Instant, u32)>,
}

impl<K> Default for Progress<K> {
    fn default() -> Self {
        Self { done: HashSet::new(), worked: false, doubts: None }
    }
}

impl<K: Eq + Hash> Progress<K> {
    /// Items that are sent by themselves, and not taken, before the others wait, too.
    pub const ALONE: usize = 8;

    /// Whether it was taken or given up.
    pub fn is_done(&self, id: &K) -> bool {
        self.done.contains(id)
    }

    /// The receiver has it.
    pub fn taken(&mut self, id: K) {
        self.worked = true;
        self.given_up(id);
    }

    /// It is not sent again.
    pub fn given_up(&mut self, id: K) {
        self.done.insert(id);
    }

    /// All are dealt with.
    pub fn ends(&mut self) {
        *self = Self::default();
    }

    /// The receiver took nothing.
    pub fn doubt(&mut self, now: Instant) {
        let (_, tries) = self.doubts.get_or_insert((now, 0));
        *tries = tries.saturating_add(1);
    }

    fn tries(&self) -> u32 {
        self.doubts.map_or(0, |(_, tries)| tries)
    }

    /// Whether it is time to look for the item that is at fault.
    pub fn is_to_part(&self) -> bool {
        self.tries() >= TRIES
    }

    /// Which half is sent first: each in its turn, so that faulty items at one end do not hide the others.
    pub fn is_back_first(&self) -> bool {
        self.tries() % 2 == 1
    }

    /// Whether an item that was refused by itself will never be taken.
    pub fn is_hopeless(&self, now: Instant) -> bool {
        let is_over = |(since, _): (Instant, u32)| now.saturating_duration_since(since) >= DOUBT_FOR;
        self.worked || self.doubts.is_some_and(is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_given_up_when_others_are_taken_or_after_hours() {
        let (mut progress, now) = (Progress::default(), Instant::now());
        for _ in 0..TRIES {
            assert!(!progress.is_to_part());
            progress.doubt(now);
        }
        assert!(progress.is_to_part() && !progress.is_hopeless(now + DOUBT_FOR / 2));
        assert!(progress.is_hopeless(now + DOUBT_FOR));
        progress.taken("a");
        assert!(progress.is_hopeless(now) && progress.is_done(&"a") && !progress.is_done(&"b"));
        progress.ends();
        assert!(!progress.is_hopeless(now + DOUBT_FOR) && !progress.is_done(&"a"));
    }
}
