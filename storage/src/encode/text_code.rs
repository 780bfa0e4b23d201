//! A fixed Huffman code for the texts of calls, in which what a byte takes depends on the two bytes before it.
//!
//! Why not only a general compressor: it learns each text anew, and a text of one or eight kilobytes is too short for that to pay.
//! Measured on prompts in pieces of 8 KB: zstd level 1 takes 41 us and leaves 48 %, this code takes less than half of that and leaves
//! 45 %. Source code, where much comes again, zstd packs better (30 % against 42 %).
//!
//! The table (`text_code.bin`) was fitted by `storage/train/text_code.py` to 10 MB of prompts and 4 MB of source code and documents. It
//! is part of the file format: it may never change, only get a successor. Per context it gives all 256 byte values a code of at
//! most [`LEN_MAX`] bits, and these codes are complete, so any input encodes and any bit string decodes; a damaged body gives
//! wrong bytes or an error, never a panic.

use std::sync::LazyLock;

use super::Damaged;

/// Longest code in bits: four codes and seven left-over bits fit a 64-bit accumulator.
pub(super) const LEN_MAX: usize = 12;
/// Pairs of bytes with a code of their own; after all others the class of the last byte counts.
const PAIRS: usize = 1000;
/// Classes of a last byte: each of ASCII, and eight of sixteen other values each.
pub(super) const CLASSES: usize = 136;
const CONTEXTS: usize = PAIRS + CLASSES;
/// What counts as standing before the first byte.
pub(super) const START: [u8; 2] = *b"\n\n";

/// The pairs, and per context the lengths of the codes in the order of the byte values, two to a byte.
static FITTED: &[u8; 2 * PAIRS + CONTEXTS * 128] = include_bytes!("text_code.bin");

/// The context after each pair of bytes, the earlier one in the lower half of the index, moved up by 8 - [`CONTEXT_SHIFT`] bits.
static CONTEXT: LazyLock<Box<[u16; 1 << 16]>> = LazyLock::new(contexts);
/// Per context and byte: the bits, to be sent lowest first, and below them their number in four bits. What is beyond the contexts is
/// never asked for; it spares a comparison.
static CODES: LazyLock<Box<[u16; CODES_LEN]>> = LazyLock::new(codes);
const CODES_LEN: usize = 1 << (16 + CONTEXT_SHIFT);
/// What is missing in a context's number before that of a byte is added. Kept so, the highest place is that of the last code.
const CONTEXT_SHIFT: u32 = 3;
/// What decoding needs; made when something is first read.
static DECODER: LazyLock<Vec<Decoding>> = LazyLock::new(|| decoder(fitted()));

/// The class of a last byte.
pub(super) fn class(byte: usize) -> usize {
    if byte < 128 { byte } else { 128 + (byte >> 4 & 7) }
}

fn contexts() -> Box<[u16; 1 << 16]> {
    let mut contexts = Box::new([0; 1 << 16]);
    for (pair, context) in contexts.iter_mut().enumerate() {
        *context = ((PAIRS + class(pair >> 8)) << (8 - CONTEXT_SHIFT)) as u16;
    }
    let (pairs, _) = FITTED.as_chunks::<2>();
    for (context, pair) in pairs.iter().take(PAIRS).enumerate() {
        contexts[usize::from(u16::from_le_bytes(*pair))] = (context << (8 - CONTEXT_SHIFT)) as u16;
    }
    contexts
}

/// The lengths of the codes of each context.
fn fitted() -> &'static [[u8; 128]] {
    FITTED[2 * PAIRS..].as_chunks().0
}

/// Bytes by length of their codes; equal ones in order.
fn by_length(lengths: &[u8; 128]) -> [(u8, u8); 256] {
    let lengths = || lengths.iter().flat_map(|two| [two & 15, two >> 4]);
    // Counted and placed: the writer waits for its tables, which a sort for each context would make three times as long.
    let mut places = [0usize; 17];
    for len in lengths() {
        places[usize::from(len) + 1] += 1;
    }
    for len in 1..places.len() {
        places[len] += places[len - 1];
    }
    let mut bytes = [(0, 0); 256];
    for (len, byte) in lengths().zip(0..=255) {
        let place = &mut places[usize::from(len)];
        bytes[*place] = (len, byte);
        *place += 1;
    }
    bytes
}

/// Each byte of a context and its code: the bits, to be sent lowest first, and below them their number in four bits. Canonical codes in
/// order of length, then byte; bit-reversed, because bits are sent lowest first.
pub(super) fn codes_of(lengths: &[u8; 128]) -> impl Iterator<Item = (u8, u16)> {
    let (mut next, mut before) = (0u16, 0u8);
    by_length(lengths).into_iter().map(move |(len, byte)| {
        next <<= len - before;
        before = len;
        let bits = next.reverse_bits() >> (16 - len);
        next += 1;
        (byte, bits << 4 | u16::from(len))
    })
}

fn codes() -> Box<[u16; CODES_LEN]> {
    let Ok(mut codes) = <Box<[u16; CODES_LEN]>>::try_from(vec![0; CODES_LEN]) else {
        unreachable!("it has that length")
    };
    for (context, lengths) in fitted().iter().enumerate() {
        for (byte, code) in codes_of(lengths) {
            codes[context << 8 | usize::from(byte)] = code;
        }
    }
    codes
}

/// Appends the code of `text` to `out`. `room` is a buffer that is kept between calls, whatever it holds.
pub(super) fn encode(text: &[u8], room: &mut Vec<u8>, out: &mut Vec<u8>) {
    let (contexts, codes) = (&**CONTEXT, &**CODES);
    let mut bits = Bits::begin(room, text.len() * LEN_MAX);
    let code = |before: u16, byte: u8| {
        let context = usize::from(contexts[usize::from(before)]);
        codes[context << CONTEXT_SHIFT | usize::from(byte)]
    };
    let mut before = START;
    for &byte in text.iter().take(2) {
        bits.add(code(u16::from_le_bytes(before), byte));
        before = [before[1], byte];
    }
    bits.flush();
    // Four bytes to a store, each with the two before it.
    let behind = |at: usize| text.get(at..).unwrap_or_default();
    let [evens, odds, quads] = [0, 1, 2].map(|at| behind(at).as_chunks::<4>().0);
    for ((even, odd), quad) in evens.iter().zip(odds).zip(quads) {
        for (pair, byte) in pairs(*even, *odd).into_iter().zip(quad) {
            bits.add(code(pair, *byte));
        }
        bits.flush();
    }
    for three in behind(quads.len() * 4).windows(3) {
        bits.add(code(u16::from_le_bytes([three[0], three[1]]), three[2]));
        bits.flush();
    }
    let used = bits.end();
    out.extend_from_slice(&room[..used]);
}

/// The four pairs of bytes that begin in four bytes, given these and the four from the second of them on: taken out of two words, because
/// one read for each byte takes longer.
#[inline(always)]
pub(super) fn pairs(even: [u8; 4], odd: [u8; 4]) -> [u16; 4] {
    let (even, odd) = (u32::from_le_bytes(even), u32::from_le_bytes(odd));
    [even as u16, odd as u16, (even >> 16) as u16, (odd >> 16) as u16]
}

/// Bits on their way out. They lie in a buffer that is kept from text to text, because making a fresh one ready would cost as much
/// as a short text does.
pub(super) struct Bits<'r> {
    /// What is not filled yet.
    room: &'r mut [u8],
    all: usize,
    bits: u64,
    /// How many bits are held: its lowest byte.
    held: u32,
}

impl<'r> Bits<'r> {
    /// For at most `most` bits. What `room` holds does not matter.
    pub(super) fn begin(room: &'r mut Vec<u8>, most: usize) -> Self {
        // Each store takes eight bytes.
        let bytes = most / 8 + 16;
        if room.len() < bytes {
            room.resize(bytes, 0);
        }
        Self { all: room.len(), room, bits: 0, held: 0 }
    }

    /// Adds a code; at most five of them between two calls of `flush`, before which seven bits may be left over from the one before.
    #[inline(always)]
    pub(super) fn add(&mut self, code: u16) {
        self.add_split(u64::from(code >> 4), u32::from(code & 15));
    }

    /// The same, given its bits and their number, of which only the lowest byte counts.
    #[inline(always)]
    pub(super) fn add_split(&mut self, bits: u64, len: u32) {
        self.bits |= bits.wrapping_shl(self.held);
        self.held = self.held.wrapping_add(len);
    }

    #[inline(always)]
    pub(super) fn flush(&mut self) {
        let whole = self.held & 0x38;
        let room = std::mem::take(&mut self.room);
        // There is room for all; with a panic in its place this takes a tenth longer.
        self.room = match room.first_chunk_mut() {
            Some(first) => {
                *first = self.bits.to_le_bytes();
                &mut room[(whole >> 3) as usize..]
            }
            None => room,
        };
        self.bits >>= whole;
        self.held &= 7;
    }

    /// Puts down the rest, the last byte filled up with zeros; how many bytes of the buffer hold all that was added.
    #[inline(always)]
    pub(super) fn end(mut self) -> usize {
        // It puts down more than it counts.
        self.flush();
        self.all - self.room.len() + usize::from(self.held > 0)
    }
}

/// Bits looked at together first.
const SHORT: u32 = 8;

/// The codes of one context, for reading.
pub(super) struct Decoding {
    /// Per next [`SHORT`] bits: the byte they begin with and the length of its code, or length 0 where it is longer.
    short: [(u8, u8); 1 << SHORT],
    /// Per length, the end of the codes that are no longer, as the first of [`LEN_MAX`] bits read highest first.
    limits: [u16; LEN_MAX + 1],
    /// Per length, what is to be added to a code's number to find its place in `bytes`.
    offsets: [i16; LEN_MAX + 1],
    /// The byte values by length of their codes.
    bytes: [u8; 256],
}

impl Decoding {
    fn of(lengths: &[u8; 128]) -> Self {
        let mut it =
            Self { short: [(0, 0); 1 << SHORT], limits: [0; LEN_MAX + 1], offsets: [0; LEN_MAX + 1], bytes: [0; 256] };
        let (mut next, mut before) = (0u16, 0u8);
        for (place, (len, byte)) in by_length(lengths).into_iter().enumerate() {
            next <<= len - before;
            before = len;
            it.bytes[place] = byte;
            it.offsets[usize::from(len)] = place as i16 - next.cast_signed();
            if u32::from(len) <= SHORT {
                let mut at = usize::from(next.reverse_bits() >> (16 - len));
                while at < 1 << SHORT {
                    it.short[at] = (byte, len);
                    at += 1 << len;
                }
            }
            next += 1;
            it.limits[usize::from(len)] = next << (LEN_MAX as u8 - len);
        }
        it
    }

    /// The byte that these bits begin with, and how many it takes.
    #[inline]
    fn next(&self, bits: u64) -> (u8, u32) {
        let (byte, len) = self.short[(bits & ((1 << SHORT) - 1)) as usize];
        if len > 0 {
            return (byte, u32::from(len));
        }
        let first = (bits as u16).reverse_bits() >> (16 - LEN_MAX);
        for len in SHORT as usize + 1..=LEN_MAX {
            if first < self.limits[len] {
                let place = (first >> (LEN_MAX - len)).cast_signed() + self.offsets[len];
                return (self.bytes.get(place as usize).copied().unwrap_or(0), len as u32);
            }
        }
        (0, LEN_MAX as u32)
    }
}

/// What decoding with these codes needs.
pub(super) fn decoder(fitted: &[[u8; 128]]) -> Vec<Decoding> {
    fitted.iter().map(Decoding::of).collect()
}

/// Decodes exactly `count` bytes.
///
/// # Errors
/// When `code` holds fewer bits than they take, or more bytes than that.
pub(super) fn decode(code: &[u8], count: usize) -> Result<Vec<u8>, Damaged> {
    let contexts = &**CONTEXT;
    decode_by(&DECODER, code, count, |pair| {
        usize::from(contexts[usize::from(u16::from_le_bytes(pair))] >> (8 - CONTEXT_SHIFT))
    })
}

/// The same; `context` gives the place in `decoder` after two bytes.
pub(super) fn decode_by(
    decoder: &[Decoding],
    mut code: &[u8],
    count: usize,
    context: impl Fn([u8; 2]) -> usize,
) -> Result<Vec<u8>, Damaged> {
    // One bit per byte at the very least: a damaged count cannot allocate more than eight times the input.
    if count.div_ceil(8) > code.len() {
        return Err(Damaged);
    }
    let mut text = Vec::with_capacity(count);
    let mut before = START;
    let (mut bits, mut held) = (0u64, 0u32);
    while text.len() < count {
        while held <= 56 {
            let Some((&byte, rest)) = code.split_first() else { break };
            bits |= u64::from(byte) << held;
            held += 8;
            code = rest;
        }
        // Four codes of twelve bits fit the 57 bits held after a refill.
        for _ in 0..4.min(count - text.len()) {
            let (byte, len) = decoder.get(context(before)).ok_or(Damaged)?.next(bits);
            held = held.checked_sub(len).ok_or(Damaged)?;
            bits >>= len;
            text.push(byte);
            before = [before[1], byte];
        }
    }
    if code.is_empty() && held < 8 { Ok(text) } else { Err(Damaged) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut code = vec![7];
        encode(text, &mut vec![0xff; 3], &mut code);
        assert_eq!(code.remove(0), 7);
        code
    }

    #[test]
    fn every_code_is_complete() {
        for (context, lengths) in fitted().iter().enumerate() {
            let kraft: u32 = by_length(lengths).iter().map(|(len, _)| 1 << (LEN_MAX - usize::from(*len))).sum();
            assert_eq!(kraft, 1 << LEN_MAX, "{context}");
        }
    }

    /// Files hold this: no change of the table or of the code may alter it.
    #[test]
    fn the_form_in_files_never_changes() {
        let code = encoded("Please check: ünïcode, \u{1f980} & {\"a\": [1, 2]}\n".as_bytes());
        assert_eq!(hex(&code), "15acc2add7e447a5787e9aa038f8875ea9d063715a11213683730f");
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn english_takes_under_four_bits_a_letter() {
        let text = "Please summarise the meeting notes below and list every open question with its owner.";
        let code = encoded(text.as_bytes());
        assert!(code.len() * 8 < text.len() * 4, "{} bytes for {}", code.len(), text.len());
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(text in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert_eq!(decode(&encoded(&text), text.len()).unwrap(), text);
        }

        #[test]
        fn any_text_comes_back(text in "[ -~äé中\n]{0,300}") {
            prop_assert_eq!(decode(&encoded(text.as_bytes()), text.len()).unwrap(), text.into_bytes());
        }

        #[test]
        fn damage_never_panics(code in proptest::collection::vec(any::<u8>(), 0..80), count in 0usize..700) {
            if let Ok(text) = decode(&code, count) {
                prop_assert_eq!(text.len(), count);
            }
        }
    }
}
