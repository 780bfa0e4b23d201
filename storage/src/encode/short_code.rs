//! A fixed Huffman code for short texts, in which what a byte takes depends on the byte before it.
//!
//! Why not that over two bytes, which leaves a fifth less: it looks two things up for each byte instead of one, and takes nearly twice
//! as long (1.4 and 0.8 us per KB). One that depends on nothing, which older versions wrote, took 0.6 us and left a fifth more
//! (`huffman`).
//!
//! The table (`short_code.bin`) was fitted by `storage/train/text_code.py --short` to 10 MB of prompts and 4 MB of source code and
//! documents. It is part of the file format: it may never change, only get a successor. Codes, bounds and what damage does are as in
//! `text_code`, whose parts this is made of.

use std::sync::LazyLock;

use super::Damaged;
use super::text_code::{Bits, CLASSES, Decoding, LEN_MAX, START, class, codes_of, decode_by, decoder, pairs};

/// Per class of the byte before, the lengths of the codes in the order of the byte values, two to a byte.
static FITTED: &[u8; CLASSES * 128] = include_bytes!("short_code.bin");

/// Per byte, in the upper half of the index, and byte before: its bits, to be sent lowest first, and their number in the lowest byte. In
/// two bytes, as `text_code` has them, a code takes an instruction more to take apart.
static CODES: LazyLock<Box<[u32; 1 << 16]>> = LazyLock::new(codes);
/// What decoding needs; made when something is first read.
static DECODER: LazyLock<Vec<Decoding>> = LazyLock::new(|| decoder(fitted()));

fn fitted() -> &'static [[u8; 128]] {
    FITTED.as_chunks().0
}

fn codes() -> Box<[u32; 1 << 16]> {
    let mut by_class = [[0; 256]; CLASSES];
    for (codes, lengths) in by_class.iter_mut().zip(fitted()) {
        for (byte, code) in codes_of(lengths) {
            codes[usize::from(byte)] = u32::from(code >> 4) << 8 | u32::from(code & 15);
        }
    }
    let mut codes = Box::new([0; 1 << 16]);
    for (at, code) in codes.iter_mut().enumerate() {
        *code = by_class[class(at & 0xff)][at >> 8];
    }
    codes
}

/// Appends the code of `text` to `out`. `room` is a buffer that is kept between calls, whatever it holds.
pub(super) fn encode(text: &[u8], room: &mut Vec<u8>, out: &mut Vec<u8>) {
    let Some((first, behind)) = text.split_first() else { return };
    let codes = &**CODES;
    let mut bits = Bits::begin(room, text.len() * LEN_MAX);
    let add = |bits: &mut Bits<'_>, pair: u16| {
        let code = codes[usize::from(pair)];
        bits.add_split(u64::from(code >> 8), code);
    };
    add(&mut bits, u16::from_le_bytes([START[1], *first]));
    // Four bytes to a store, each with the one before it.
    let (evens, odds) = (text.as_chunks::<4>().0, behind.as_chunks::<4>().0);
    for (even, odd) in evens.iter().zip(odds) {
        for pair in pairs(*even, *odd) {
            add(&mut bits, pair);
        }
        bits.flush();
    }
    for two in text[odds.len() * 4..].windows(2) {
        add(&mut bits, u16::from_le_bytes([two[0], two[1]]));
    }
    let used = bits.end();
    out.extend_from_slice(&room[..used]);
}

/// Decodes exactly `count` bytes.
///
/// # Errors
/// When `code` holds fewer bits than they take, or more bytes than that.
pub(super) fn decode(code: &[u8], count: usize) -> Result<Vec<u8>, Damaged> {
    decode_by(&DECODER, code, count, |[_, before]| class(usize::from(before)))
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
            let kraft: u32 = codes_of(lengths).map(|(_, code)| 1 << (LEN_MAX - usize::from(code & 15))).sum();
            assert_eq!(kraft, 1 << LEN_MAX, "{context}");
        }
    }

    /// Files hold this: no change of the table or of the code may alter it.
    #[test]
    fn the_form_in_files_never_changes() {
        let code = encoded("Please check: ünïcode, \u{1f980} & {\"a\": [1, 2]}\n".as_bytes());
        let hex: String = code.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "23524a18a9b5f56a493df378dec5ce3fec058bd66c1573974e506c1e17");
    }

    #[test]
    fn english_takes_under_four_and_a_quarter_bits_a_letter() {
        let text = "Please summarise the meeting notes below and list every open question with its owner.";
        let code = encoded(text.as_bytes());
        assert!(code.len() * 8 < text.len() * 17 / 4, "{} bytes for {}", code.len(), text.len());
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
