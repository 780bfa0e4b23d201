//! Order-0 Huffman code with a fixed table for prompts and answers.
//!
//! Why not only a general compressor: a span's text is about a kilobyte, where zstd level 1 takes 6 to 15 microseconds and
//! spends much of it on tables. A fixed table takes about one, and gives up some 15 % of size. The table was fitted to
//! 24 MB of prompts, prose and source code and is part of the file format: it may never change, only get a successor.
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

/// Per byte value: the bits, to be sent lowest first, and their number.
static CODES: [(u16, u8); 256] = codes();

/// Per next [`LEN_MAX`] bits: the byte they begin with, and how many bits it takes.
static SYMBOLS: [(u8, u8); 1 << LEN_MAX] = symbols();

/// Canonical codes in order of length, then value; bit-reversed, because bits are sent lowest first.
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

/// Appends the code of `text` to `out`.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    // The longest possible code, and room for the last 8-byte store.
    out.resize(from + text.len() * LEN_MAX / 8 + 16, 0);
    let mut at = from;
    let mut bits = 0u64;
    let mut held = 0u32;
    let mut put = |bits: u64, at: usize| {
        if let Some(room) = out.get_mut(at..at + 8) {
            room.copy_from_slice(&bits.to_le_bytes());
        }
    };
    let (quads, rest) = text.as_chunks::<4>();
    for quad in quads {
        for &byte in quad {
            let (code, len) = CODES[byte as usize];
            bits |= u64::from(code) << held;
            held += u32::from(len);
        }
        put(bits, at);
        at += (held >> 3) as usize;
        bits >>= held & !7;
        held &= 7;
    }
    for &byte in rest {
        let (code, len) = CODES[byte as usize];
        bits |= u64::from(code) << held;
        held += u32::from(len);
    }
    put(bits, at);
    out.truncate(at + held.div_ceil(8) as usize);
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

    #[test]
    fn english_takes_under_five_bits_a_letter() {
        let text = "Please summarise the meeting notes below and list every open question with its owner.";
        let mut code = Vec::new();
        encode(text.as_bytes(), &mut code);
        assert!(code.len() * 8 < text.len() * 5, "{} bytes for {}", code.len(), text.len());
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(text in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut code = vec![7];
            encode(&text, &mut code);
            prop_assert_eq!(code[0], 7);
            prop_assert_eq!(decode(&code[1..], text.len()).unwrap(), text);
        }

        #[test]
        fn damage_never_panics(code in proptest::collection::vec(any::<u8>(), 0..80), count in 0usize..700) {
            if let Ok(text) = decode(&code, count) {
                prop_assert_eq!(text.len(), count);
            }
        }
    }
}
