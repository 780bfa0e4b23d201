//! Order-0 Huffman code with a fixed table for prompts and answers, as versions before schema 26 wrote short texts: it is read only.
//! `short_code` took its place, which leaves a sixth less.
//!
//! Every byte value has a code of at most [`LEN_MAX`] bits and the code is complete, so any input encodes and any bit
//! string decodes; a damaged body gives wrong bytes or an error, never a panic.

use super::Damaged;

/// Longest code in bits: four codes and seven left-over bits fit a 64-bit accumulator.
const LEN_MAX: usize = 12;

/// Code length per byte value.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 6, 12, 12, 12, 12, 12,
    12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12,
    3, 12, 7, 9, 12, 11, 11, 9, 9, 9, 10, 11, 7, 7, 6, 8,
    8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 7, 11, 9, 9, 9, 11,
    11, 9, 10, 9, 9, 9, 10, 10, 10, 8, 11, 11, 10, 10, 9, 9,
    9, 12, 9, 8, 8, 10, 11, 10, 12, 10, 12, 10, 11, 10, 12, 9,
    7, 4, 7, 6, 5, 4, 6, 6, 5, 4, 10, 8, 5, 6, 4, 4,
    6, 10, 5, 5, 4, 6, 7, 7, 8, 6, 10, 10, 11, 10, 12, 12,
    11, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12,
    12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12,
    12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12,
    12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12,
    12, 12, 12, 11, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12,
    12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12,
    12, 12, 11, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12,
    12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12,
];

/// Per next [`LEN_MAX`] bits: the byte they begin with, and how many bits it takes.
static SYMBOLS: [(u8, u8); 1 << LEN_MAX] = symbols();

/// Per byte value: the bits, to be sent lowest first, and their number. Canonical codes in order of length, then value; bit-reversed,
/// because bits are sent lowest first.
const fn codes() -> [(u16, u8); 256] {
    let mut codes = [(0u16, 0u8); 256];
    let mut next = 0u16;
    let mut len = 1;
    while len <= LEN_MAX {
        let mut value = 0;
        while value < 256 {
            if LENGTHS[value] as usize == len {
                codes[value] = (next.reverse_bits() >> (16 - len), len as u8);
                next += 1;
            }
            value += 1;
        }
        next <<= 1;
        len += 1;
    }
    codes
}

const fn symbols() -> [(u8, u8); 1 << LEN_MAX] {
    let codes = codes();
    let mut symbols = [(0u8, 0u8); 1 << LEN_MAX];
    let mut value = 0;
    while value < 256 {
        let (bits, len) = codes[value];
        let mut at = bits as usize;
        while at < 1 << LEN_MAX {
            symbols[at] = (value as u8, len);
            at += 1 << len;
        }
        value += 1;
    }
    symbols
}

/// Decodes exactly `count` bytes.
///
/// # Errors
/// When `code` holds fewer bits than they take, or more bytes than that.
pub(super) fn decode(mut code: &[u8], count: usize) -> Result<Vec<u8>, Damaged> {
    // One bit per byte at the very least: a damaged count cannot allocate more than eight times the input.
    if count.div_ceil(8) > code.len() {
        return Err(Damaged);
    }
    let mut text = Vec::with_capacity(count);
    let mut bits = 0u64;
    let mut held = 0u32;
    while text.len() < count {
        while held <= 56 {
            let Some((&byte, rest)) = code.split_first() else { break };
            bits |= u64::from(byte) << held;
            held += 8;
            code = rest;
        }
        // Four codes of twelve bits fit the 57 bits held after a refill.
        for _ in 0..4.min(count - text.len()) {
            let (value, len) = SYMBOLS[(bits & ((1 << LEN_MAX) - 1)) as usize];
            held = held.checked_sub(u32::from(len)).ok_or(Damaged)?;
            bits >>= len;
            text.push(value);
        }
    }
    if code.is_empty() && held < 8 { Ok(text) } else { Err(Damaged) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_code_is_complete() {
        let kraft: u32 = LENGTHS.iter().map(|&len| 1 << (LEN_MAX - len as usize)).sum();
        assert_eq!(kraft, 1 << LEN_MAX);
    }

    /// As it was written.
    fn encoded(text: &[u8]) -> Vec<u8> {
        let codes = codes();
        let bits: Vec<bool> = text
            .iter()
            .map(|byte| codes[usize::from(*byte)])
            .flat_map(|(code, len)| (0..len).map(move |at| code >> at & 1 == 1))
            .collect();
        let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        bits.chunks(8).map(byte).collect()
    }

    #[test]
    fn what_older_versions_wrote_is_read() {
        let code = [183, 19, 83, 97, 52, 145, 155, 227, 37, 94, 248, 228, 222, 28, 251, 79, 1];
        assert_eq!(decode(&code, 21).unwrap(), b"Please check: &[1, 2]");
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(text in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert_eq!(decode(&encoded(&text), text.len()).unwrap(), text);
        }

        #[test]
        fn damage_never_panics(code in proptest::collection::vec(any::<u8>(), 0..80), count in 0usize..700) {
            if let Ok(text) = decode(&code, count) {
                prop_assert_eq!(text.len(), count);
            }
        }
    }
}
