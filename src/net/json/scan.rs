//! Finds the end of a string's plain run: the loop that decides how fast bodies are read.
//!
//! Invariant: never skips a quote, a backslash or a control character. Must not know: what comes after.

use memchr::memchr2;

/// Length of the run of bytes at the start that need no look: no quote, no backslash, no control character.
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    // Keys and short values end within the first two words.
    for at in [0, 8] {
        let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) else { return at + tail_len(bytes, at) };
        let stops = stops_in(u64::from_le_bytes(*word));
        if stops != 0 {
            return at + stops.trailing_zeros() as usize / 8;
        }
    }
    let end = memchr2(b'"', b'\\', bytes.get(16..).unwrap_or_default()).map_or(bytes.len(), |more| 16 + more);
    let run = bytes.get(16..end).unwrap_or_default();
    if has_control(run) { 16 + run.iter().position(|&b| b < 0x20).unwrap_or(run.len()) } else { end }
}

/// The least of each lane first, so that the compiler makes vector instructions of it.
fn has_control(run: &[u8]) -> bool {
    let (chunks, rest) = run.as_chunks::<32>();
    let mut least = [u8::MAX; 32];
    for chunk in chunks {
        least.iter_mut().zip(chunk).for_each(|(least, &b)| *least = b.min(*least));
    }
    least.iter().chain(rest).fold(u8::MAX, |least, &b| least.min(b)) < 0x20
}

/// High bit set in each byte that is a quote, a backslash or a control character. Borrows can set it in a byte above
/// a true one, never below, so the lowest set bit is exact.
const fn stops_in(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let found = (quote.wrapping_sub(ONES) & !quote)
        | (backslash.wrapping_sub(ONES) & !backslash)
        | (word.wrapping_sub(ONES * 0x20) & !word);
    found & (ONES * 0x80)
}

fn tail_len(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.iter().position(|&b| b == b'"' || b == b'\\' || b < 0x20).unwrap_or(rest.len())
}
