//! Sets of an analyser's detectors, by their numbers.

use std::ops::{BitAnd, BitOr, BitOrAssign};

/// Most detectors an analyser has room for.
pub const DETECTORS_MAX: usize = 16;

/// A set of an analyser's detectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DetectorSet(u16);

// === impl DetectorSet ===

impl DetectorSet {
    pub(crate) const fn only(index: usize) -> Self {
        Self(if index < DETECTORS_MAX { 1 << index } else { 0 })
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those of it that are not in `others`.
    pub(crate) const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    pub(crate) const fn has(self, index: usize) -> bool {
        self.0 & Self::only(index).0 != 0
    }

    /// The numbers of those in it, in ascending order.
    pub(crate) fn indices(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let index = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (index < DETECTORS_MAX).then_some(index)
        })
    }
}

impl BitOr for DetectorSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for DetectorSet {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOrAssign for DetectorSet {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
