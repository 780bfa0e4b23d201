//! Finds the end of a string's plain run: the loop that decides how fast bodies are read.
//!
//! Invariant: never skips a quote, a backslash or a control character. Must not know: what comes after.

/// Length of the run of bytes at the start that need no look: no quote, no backslash, no control character.
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    let mut at = 0;
    // Keys and short values end within the first two words; past that, 32 bytes at a time (the fold vectorises).
    while at < 16 {
        let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) else { return at + tail_len(bytes, at) };
        let stops = stops_in(u64::from_le_bytes(*word));
        if stops != 0 {
            return at + stops.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<32>) {
        let stop = chunk.iter().fold(false, |stop, &b| stop | (b == b'"') | (b == b'\\') | (b < 0x20));
        if stop {
            break;
        }
        at += 32;
    }
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let stops = stops_in(u64::from_le_bytes(*word));
        if stops != 0 {
            return at + stops.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + tail_len(bytes, at)
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
