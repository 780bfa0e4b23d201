//! A digest of an answer's body, by which a client sees whether the bytes that reached it are those that were sent.
//!
//! Invariant: the digest does not depend on how the bytes are cut. It finds accidents, not forgeries.

/// Multiplies well: an odd number with mixed bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A digest under way.
#[derive(Debug, Clone, Default)]
pub struct Digest {
    state: u64,
    /// Bytes that make no whole word yet.
    rest: [u8; 8],
    length: u64,
}

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut digest = Self::default();
        digest.push(bytes);
        digest.value()
    }

    /// Takes more bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        let held = (self.length % 8) as usize;
        self.length += bytes.len() as u64;
        if held > 0 {
            let (first, behind) = bytes.split_at(bytes.len().min(8 - held));
            for (place, byte) in self.rest.iter_mut().skip(held).zip(first) {
                *place = *byte;
            }
            if held + first.len() < 8 {
                return;
            }
            self.mix(u64::from_le_bytes(self.rest));
            bytes = behind;
        }
        let mut words = bytes.chunks_exact(8);
        for word in words.by_ref() {
            self.mix(word.try_into().map_or(0, u64::from_le_bytes));
        }
        for (place, byte) in self.rest.iter_mut().zip(words.remainder()) {
            *place = *byte;
        }
    }

    /// The digest of all bytes up to here.
    pub fn value(&self) -> u64 {
        let mut last = self.clone();
        let held = (self.length % 8) as usize;
        last.rest.iter_mut().skip(held).for_each(|byte| *byte = 0);
        last.mix(u64::from_le_bytes(last.rest));
        last.mix(self.length);
        last.state
    }

    fn mix(&mut self, word: u64) {
        self.state = (self.state ^ word).wrapping_mul(FACTOR).rotate_left(29);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cuts_do_not_matter_and_changes_do(
            bytes in prop::collection::vec(any::<u8>(), 1..200),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            at in any::<prop::sample::Index>(),
        ) {
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).chain([0, bytes.len()]).collect();
            places.sort_unstable();
            let mut digest = Digest::default();
            places.windows(2).for_each(|pair| digest.push(&bytes[pair[0]..pair[1]]));
            prop_assert_eq!(digest.value(), Digest::of(&bytes));
            let mut other = bytes.clone();
            other[at.index(bytes.len())] ^= 1;
            prop_assert_ne!(Digest::of(&other), Digest::of(&bytes));
            prop_assert_ne!(Digest::of(&bytes[..bytes.len() - 1]), Digest::of(&bytes));
        }
    }
}
