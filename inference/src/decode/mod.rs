//! Undoing encodings, so that an order hidden in base64 or written backwards is read like any other.
//!
//! Two ways in: long unbroken runs (base64, base32, hex) and marker words, which are the enciphered forms of words that
//! orders are made of ("vafgehpgvba" is "instruction" in ROT13). Invariants: every decoder is linear in its input, its
//! output is at most as long as its input plus a constant, and nothing is decoded more than [`DEPTH_MAX`] deep.

mod cipher;
mod run;

pub(crate) use cipher::{Cipher, Vocabulary};
pub(crate) use run::{Run, Runs, decode as decode_run};

/// Encodings inside encodings that are followed.
pub(crate) const DEPTH_MAX: usize = 2;
/// Bytes before a marker word that are decoded with it.
pub(crate) const WINDOW_BEFORE: usize = 512;
/// Bytes after a marker word that are decoded with it.
pub(crate) const WINDOW_AFTER: usize = 2048;

/// Whether decoded bytes look like text a model would read: few control characters, some spaces or letters.
pub(crate) fn is_readable(bytes: &[u8]) -> bool {
    if bytes.len() < 8 {
        return false;
    }
    let odd = bytes.iter().filter(|byte| !(b' '..=b'~').contains(*byte) && !matches!(**byte, b'\n' | b'\r' | b'\t'));
    let letters = bytes.iter().filter(|byte| byte.is_ascii_alphabetic() || **byte == b' ').count();
    let foreign = std::str::from_utf8(bytes).is_ok_and(|text| !text.is_ascii());
    (odd.count() * 10 <= bytes.len() && letters * 3 >= bytes.len() * 2) || foreign
}
