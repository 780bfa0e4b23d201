//! What is said of each byte of a text, as bits: whoever looks for few bytes asks for sixty-four at once.

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
        fn positions_are_those_of_a_walk(text in "[ab]{0,200}") {
            let expected: Vec<usize> = text.match_indices('b').map(|(at, _)| at).collect();
            prop_assert_eq!(positions(text.as_bytes(), |byte| byte == b'b').collect::<Vec<_>>(), expected);
        }
    }
}
