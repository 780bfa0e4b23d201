//! How a bounded number of places is shared out among tenants.
//!
//! A tenant may hold as many places as are left for others: alone half of them, two greedy ones a third each. Invariant: while
//! any place is free, a tenant that holds none gets one, whatever the others do. Knows nothing of what the places are.

use std::collections::HashMap;
use std::hash::Hash;

/// Places and who (`T`) holds them.
#[derive(Debug)]
pub struct Shares<T> {
    capacity: usize,
    taken: usize,
    held: HashMap<T, usize>,
}

impl<T: Copy + Eq + Hash> Shares<T> {
    /// So many places, none of them taken.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, taken: 0, held: HashMap::new() }
    }

    /// Takes a place for `tenant`. False where it holds as many as are left for others, or none is left.
    #[must_use]
    pub fn enter(&mut self, tenant: T) -> bool {
        let held = self.held.entry(tenant).or_default();
        let granted = *held < self.capacity - self.taken;
        if granted {
            *held += 1;
            self.taken += 1;
        } else if *held == 0 {
            self.held.remove(&tenant);
        }
        granted
    }

    /// Gives back a place that [`Self::enter`] granted.
    pub fn leave(&mut self, tenant: T) {
        if let Some(held) = self.held.get_mut(&tenant) {
            *held -= 1;
            self.taken -= 1;
            if *held == 0 {
                self.held.remove(&tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(shares: &mut Shares<u32>, number: u32) -> usize {
        (0..1_000).take_while(|_| shares.enter(number)).count()
    }

    #[test]
    fn one_greedy_tenant_gets_half_and_the_next_ones_what_is_left() {
        let mut shares = Shares::new(64);
        assert_eq!([0, 1, 2].map(|number| fill(&mut shares, number)), [32, 16, 8]);
        assert!(shares.enter(9), "who holds nothing gets in");
        shares.leave(0);
        assert!(!shares.enter(0), "what comes back is for those who hold less");
        assert!(shares.enter(9));
    }

    #[test]
    fn greed_of_many_leaves_room_for_whoever_comes_next() {
        let mut shares = Shares::new(64);
        for number in 0..6 {
            fill(&mut shares, number);
        }
        assert!(shares.enter(200));
    }

    #[test]
    fn what_is_given_back_leaves_nothing_behind() {
        let mut shares = Shares::new(8);
        for number in 0..100 {
            assert!(shares.enter(number));
            shares.leave(number);
        }
        shares.leave(1);
        assert_eq!((shares.taken, shares.held.len()), (0, 0));
        assert_eq!(fill(&mut shares, 1), 4);
    }
}
