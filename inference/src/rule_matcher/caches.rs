//! The states that a thread's automata have made so far.
//!
//! Texts that are made of few rules' words need many states, the same ones each time. Invariant: a thread keeps large automata for
//! [`LARGE_COUNT`] patterns at most, those that ran last; whatever texts come, all others stay small.

use regex_automata::meta::{Cache, Regex};

use crate::rules::CACHE_LARGE_MIN;

/// Large automata that a thread keeps.
const LARGE_COUNT: usize = 16;

/// An automaton per rule, made when its pattern first runs.
#[derive(Debug, Default)]
pub(super) struct Caches {
    all: Vec<Option<Box<Cache>>>,
    /// Rules whose automata are large, the one that ran last at the end.
    large: Vec<u16>,
}

impl Caches {
    /// Makes room for so many rules.
    pub(super) fn resize(&mut self, rules: usize) {
        self.all.resize_with(rules, || None);
    }

    /// That of a rule.
    pub(super) fn of(&mut self, rule: u16, pattern: &Regex) -> Option<&mut Cache> {
        let cache = self.all.get_mut(usize::from(rule))?;
        Some(cache.get_or_insert_with(|| Box::new(pattern.create_cache())))
    }

    /// Notes that a rule's pattern ran. Where its automaton is large, that of another rule may have to go.
    pub(super) fn note_run(&mut self, rule: u16) {
        let size = self.all.get(usize::from(rule)).and_then(Option::as_deref).map_or(0, Cache::memory_usage);
        if size <= CACHE_LARGE_MIN {
            return;
        }
        self.large.retain(|other| *other != rule);
        self.large.push(rule);
        if self.large.len() > LARGE_COUNT {
            let idle = self.large.remove(0);
            // An emptied one would keep its room.
            if let Some(cache) = self.all.get_mut(usize::from(idle)) {
                *cache = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_large_automata_are_kept_those_that_ran_last() {
        // Its automaton tells the last sixteen letters apart.
        let pattern = Regex::new("a[ab]{16}c").unwrap();
        let mut caches = Caches::default();
        caches.resize(LARGE_COUNT + 5);
        let mut run = |rule: u16, text: &str| {
            let cache = caches.of(rule, &pattern).unwrap();
            pattern.search_with(cache, &text.into());
            caches.note_run(rule);
            let sizes = caches.all.iter().map(|cache| cache.as_deref().map_or(0, Cache::memory_usage));
            sizes.map(|size| size > CACHE_LARGE_MIN).collect::<Vec<_>>()
        };
        let small = LARGE_COUNT + 4;
        run(small as u16, "abc");
        let mut random = 1u32;
        let mut letter = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if random >> 31 == 0 { 'a' } else { 'b' }
        };
        let many: String = (0..20_000).map(|_| letter()).collect();
        for rule in 0..LARGE_COUNT {
            assert!(run(rule as u16, &many)[rule]);
        }
        assert_eq!(run(0, "abc")[..=LARGE_COUNT], [[true; LARGE_COUNT].as_slice(), &[false]].concat());
        let large = run(LARGE_COUNT as u16, &many);
        assert_eq!((large[0], large[1], large[LARGE_COUNT]), (true, false, true));
        assert!(caches.all[small].is_some());
    }
}
