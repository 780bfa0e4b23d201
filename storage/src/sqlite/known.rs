//! Names of shared texts that the writer remembers with their integers. The tables know all; what is forgotten costs one look there.
//!
//! The younger half takes what comes and what is asked for again; when it is full it becomes the older one, and what was in that is
//! forgotten. So what each turn of a conversation names stays, however much comes once.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Names of one half: 4 MiB.
const NAMES_MAX: usize = 1 << 16;

type Names = HashMap<u128, i64, BuildHasherDefault<NameHasher>>;

/// The names remembered.
#[derive(Default)]
pub(super) struct Known {
    younger: Names,
    older: Names,
}

/// Names are pseudo-random already, under keys that nobody outside knows.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.first_chunk().map_or(0, |half| u64::from_le_bytes(*half));
    }
}

impl Known {
    pub(super) fn get(&mut self, name: u128) -> Option<i64> {
        if let Some(id) = self.younger.get(&name) {
            return Some(*id);
        }
        let id = self.older.remove(&name)?;
        self.insert(name, id);
        Some(id)
    }

    pub(super) fn insert(&mut self, name: u128, id: i64) {
        if self.younger.len() >= NAMES_MAX {
            // Its memory is taken again by what comes.
            std::mem::swap(&mut self.younger, &mut self.older);
            self.younger.clear();
        }
        self.younger.insert(name, id);
    }

    pub(super) fn remove(&mut self, name: u128) {
        self.younger.remove(&name);
        self.older.remove(&name);
    }

    pub(super) fn clear(&mut self) {
        self.younger.clear();
        self.older.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_again_stays_and_what_comes_once_goes() {
        let mut known = Known::default();
        let name = |n: i64| (n as u128).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        for n in 0..(8 * NAMES_MAX as i64) {
            known.insert(name(n), n);
            if n % 1_000 == 0 {
                assert_eq!(known.get(name(0)), Some(0), "at {n}");
            }
        }
        assert_eq!(known.get(name(NAMES_MAX as i64)), None);
        assert_eq!(known.get(name(8 * NAMES_MAX as i64 - 1)), Some(8 * NAMES_MAX as i64 - 1));
        assert!(known.younger.len() + known.older.len() <= 2 * NAMES_MAX);
        known.remove(name(0));
        assert_eq!(known.get(name(0)), None);
    }
}
