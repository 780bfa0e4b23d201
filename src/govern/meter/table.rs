//! An index that finds a series by a borrowed key: no allocation and no owned key on a lookup.
//!
//! Invariant: entries are never removed, so an entry's position is stable. The hash is seeded per table: label values
//! come from clients, who must not be able to choose colliding ones. Knows nothing of metrics.

use std::hash::{BuildHasher, Hasher, RandomState};

use hashbrown::HashTable;

/// Entries in order of insertion, and an index over their hashes.
#[derive(Debug)]
pub(super) struct Table<T> {
    seed: u64,
    /// Positions in `entries`.
    index: HashTable<usize>,
    entries: Vec<(u64, T)>,
}

impl<T> Table<T> {
    pub(super) fn new() -> Self {
        Self { seed: RandomState::new().build_hasher().finish(), index: HashTable::new(), entries: Vec::new() }
    }

    /// The seeded hash of a text and a small discriminator, folding eight bytes a step.
    #[inline]
    pub(super) fn hash(&self, text: &str, discriminator: u64) -> u64 {
        let mut state = self.seed ^ discriminator.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut chunks = text.as_bytes().chunks_exact(8);
        for chunk in &mut chunks {
            state = fold(state ^ chunk.try_into().map_or(0, u64::from_le_bytes));
        }
        let mut tail = [0; 8];
        for (to, from) in tail.iter_mut().zip(chunks.remainder()) {
            *to = *from;
        }
        fold(fold(state ^ u64::from_le_bytes(tail)) ^ text.len() as u64)
    }

    /// The position of the entry with this hash for which `is_it` holds.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(&T) -> bool) -> Option<usize> {
        let is_there = |at: &usize| self.entries.get(*at).is_some_and(|(known, entry)| *known == hash && is_it(entry));
        self.index.find(hash, is_there).copied()
    }

    /// Adds an entry that `find` did not find and returns its position.
    pub(super) fn insert(&mut self, hash: u64, entry: T) -> usize {
        let at = self.entries.len();
        self.entries.push((hash, entry));
        self.index.insert_unique(hash, at, |at| self.entries[*at].0);
        at
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.entries.get_mut(at).map(|(_, entry)| entry)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| entry)
    }
}

/// Multiplies to 128 bits and folds the halves: every input bit reaches every output bit.
#[inline]
fn fold(word: u64) -> u64 {
    let product = u128::from(word ^ 0x2d35_8dcc_aa6c_78a5) * 0x8bb8_4b93_962e_acc9_u128;
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_map(keys in prop::collection::vec("[a-d]{0,12}", 0..300)) {
            let mut table = Table::new();
            let mut model = std::collections::HashMap::new();
            for (value, key) in keys.iter().enumerate() {
                let hash = table.hash(key, 0);
                let found = table.find(hash, |(known, _): &(String, usize)| known == key);
                prop_assert_eq!(found.map(|at| table.get_mut(at).unwrap().1), model.get(key).copied());
                if found.is_none() {
                    table.insert(hash, (key.clone(), value));
                    model.insert(key.clone(), value);
                }
            }
            prop_assert_eq!(table.iter().count(), model.len());
        }
    }

    #[test]
    fn tells_texts_apart_that_differ_only_in_padding_or_discriminator() {
        let table = Table::<()>::new();
        let hashes = [table.hash("a", 0), table.hash("a\0", 0), table.hash("a", 1), table.hash("", 0)];
        for (at, hash) in hashes.iter().enumerate() {
            assert!(!hashes[at + 1..].contains(hash));
        }
    }
}
