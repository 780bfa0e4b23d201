//! What is said of each byte of a text, as bits: whoever looks for few bytes asks for sixty-four at once.

use std::ops::Range;

/// Bytes of a block: a bit each.
pub(crate) const BLOCK: usize = u64::BITS as usize;

/// Which bytes of the block that begins at `at` are `wanted`, the first one in the lowest bit. Where the text ends, zeros stand for
/// its bytes.
pub(crate) fn block(text: &[u8], at: usize, wanted: impl Fn(u8) -> bool) -> u64 {
    match text.get(at..).and_then(<[u8]>::first_chunk::<BLOCK>) {
        Some(bytes) => of(bytes, wanted),
        None => {
            let mut bytes = [0; BLOCK];
            bytes.iter_mut().zip(text.get(at..).unwrap_or_default()).for_each(|(slot, byte)| *slot = *byte);
            of(&bytes, wanted)
        }
    }
}

/// How many bytes of a text are `wanted`. Zeros are not.
pub(crate) fn count(text: &[u8], wanted: impl Fn(u8) -> bool + Copy) -> usize {
    (0..text.len()).step_by(BLOCK).map(|at| block(text, at, wanted).count_ones() as usize).sum()
}

/// Where the `wanted` bytes of a text are.
pub(crate) fn positions(text: &[u8], wanted: impl Fn(u8) -> bool + Copy) -> impl Iterator<Item = usize> {
    (0..text.len()).step_by(BLOCK).flat_map(move |at| ones(block(text, at, wanted)).map(move |bit| at + bit))
}

/// The stretches of a text of which each byte is `wanted`, as long as they go.
pub(crate) const fn stretches<F: Fn(u8) -> bool + Copy>(text: &[u8], wanted: F) -> Stretches<'_, F> {
    Stretches { text, wanted, next: 0, edges: 0, last: 0 }
}

/// Iterator over the stretches of a text.
#[derive(Debug)]
pub(crate) struct Stretches<'a, F> {
    text: &'a [u8],
    wanted: F,
    /// Where the next block begins.
    next: usize,
    /// Where in the block before it bytes differ from those before them, and what its last byte is.
    edges: u64,
    last: u64,
}

impl<F: Fn(u8) -> bool + Copy> Stretches<'_, F> {
    /// The next place where a stretch begins or ends.
    fn edge(&mut self) -> Option<usize> {
        while self.edges == 0 {
            if self.next >= self.text.len() {
                return None;
            }
            let rest = self.text.len() - self.next;
            let within = if rest < BLOCK { !from(rest) } else { u64::MAX };
            let bits = block(self.text, self.next, self.wanted) & within;
            self.edges = bits ^ (bits << 1 | self.last);
            self.last = bits >> (BLOCK - 1);
            self.next += BLOCK;
        }
        let bit = self.edges.trailing_zeros() as usize;
        self.edges &= self.edges - 1;
        Some(self.next - BLOCK + bit)
    }
}

impl<F: Fn(u8) -> bool + Copy> Iterator for Stretches<'_, F> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.edge()?;
        Some(start..self.edge().unwrap_or(self.text.len()))
    }
}

/// The bits that are set, from the lowest one on.
pub(crate) fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (bit < BLOCK).then_some(bit)
    })
}

/// Without a branch, so that the compiler makes vector instructions of it.
fn of(bytes: &[u8; BLOCK], wanted: impl Fn(u8) -> bool) -> u64 {
    /// Brings the lowest bits of eight bytes together in the uppermost one.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let mut flags = [0; BLOCK];
    flags.iter_mut().zip(bytes).for_each(|(flag, byte)| *flag = u8::from(wanted(*byte)));
    let (eights, _) = flags.as_chunks::<8>();
    eights
        .iter()
        .rev()
        .fold(0, |bits, eight| bits << 8 | u64::from_le_bytes(*eight).wrapping_mul(GATHER) >> (u64::BITS - 8))
}

/// Bits from this one on.
pub(crate) const fn from(bit: usize) -> u64 {
    u64::MAX << (bit % BLOCK)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_byte_has_its_bit(text in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..220) {
            let wanted = |byte: u8| byte.is_ascii_digit() || byte == 0;
            for bit in 0..BLOCK {
                let expected = text.get(at + bit).is_none_or(|byte| wanted(*byte));
                prop_assert_eq!(block(&text, at, wanted) >> bit & 1 != 0, expected, "bit {}", bit);
            }
        }

        #[test]
        fn stretches_are_those_of_a_walk(text in "a{0,70}b{0,70}[ab]{0,70}b{0,70}", ends in "[ab]") {
            // Zeros stand behind the text where it is looked at, and are wanted, too.
            let text = [text.as_bytes(), ends.as_bytes()].concat();
            let mut expected = Vec::new();
            let mut at = 0;
            for piece in text.chunk_by(|a, b| a == b) {
                expected.extend((piece[0] == b'b').then_some(at..at + piece.len()));
                at += piece.len();
            }
            prop_assert_eq!(stretches(&text, |byte| byte != b'a').collect::<Vec<_>>(), expected);
        }

        #[test]
        fn positions_are_those_of_a_walk(text in "[ab]{0,200}") {
            let expected: Vec<usize> = text.match_indices('b').map(|(at, _)| at).collect();
            prop_assert_eq!(positions(text.as_bytes(), |byte| byte == b'b').collect::<Vec<_>>(), expected);
        }
    }
}
