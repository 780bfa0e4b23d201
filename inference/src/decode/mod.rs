//! Undoing encodings, so that an order hidden in base64 or written backwards is read like any other.
//!
//! Three ways in: long unbroken runs (base64, base58, base32, hex); markers, which are the enciphered forms of words that
//! orders are made of ("vafgehpgvba" is "instruction" in ROT13) and shapes that only codes have; and letters that make no
//! words, at the beginning of a text or where it says that something is to be decoded. Invariants: every decoder is linear in its input, its
//! output is at most as long as its input plus a constant, and nothing is decoded more than [`DEPTH_MAX`] deep.

use std::collections::HashSet;
use std::ops::RangeInclusive;

mod cipher;
mod codes;
mod letters;
mod parted;
mod run;
mod shown;
mod unscramble;

use crate::bits;

pub(crate) use cipher::{Cipher, Ciphers};
pub(crate) use parted::{first_anchor, prepare, stands_apart};
pub(crate) use run::{DECODE_MIN, Run, Runs, decode as decode_run, end_of_lines, join_blocks};
pub(crate) use shown::{NameKey, Next, Place, Shown, Span, Way};
pub(crate) use unscramble::{HEAD_BYTES, is_plain, unscramble};

/// Words that settle ambiguous letters: small letters only, and so many.
pub(crate) type Vocabulary = HashSet<String>;
pub(crate) const VOCABULARY_BYTES: RangeInclusive<usize> = 3..=16;

/// Encodings inside encodings that are followed, the outermost counted.
pub(crate) const DEPTH_MAX: usize = 3;
/// Bytes before a marker word that are decoded with it.
pub(crate) const WINDOW_BEFORE: usize = 512;
/// Bytes after a marker word that are decoded with it.
pub(crate) const WINDOW_AFTER: usize = 2048;

/// Bytes of which all are printable only where they are text: of ten million keys and checksums of this length not one is.
const PRINTABLE_MIN: usize = 18;

/// Whether decoded bytes look like text a model would read, or like what a further encoding makes of text: few control characters
/// and some spaces or letters, or nothing else but printable characters.
pub(crate) fn is_readable(bytes: &[u8]) -> bool {
    if bytes.len() < 8 {
        return false;
    }
    let is_printable =
        |byte: u8| (byte.wrapping_sub(b' ') <= b'~' - b' ') | (byte == b'\n') | (byte == b'\r') | (byte == b'\t');
    let is_letter_or_blank = |byte: u8| ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte == b' ');
    let odd = bytes.len() - bits::count(bytes, is_printable);
    let letters = bits::count(bytes, is_letter_or_blank);
    let is_foreign = || std::str::from_utf8(bytes).is_ok_and(|text| !text.is_ascii());
    (odd * 10 <= bytes.len() && letters * 3 >= bytes.len() * 2)
        || (odd == 0 && bytes.len() >= PRINTABLE_MIN)
        || is_foreign()
}

#[cfg(test)]
mod tests;
