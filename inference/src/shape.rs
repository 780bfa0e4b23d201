//! What the shape of a text says by itself: floods of repetition, and faked dialogues of many turns.
//!
//! Both are linear and sample or scan for rare bytes only. Sees folded bytes.

use memchr::memchr_iter;

/// Texts below this are never a flood, in bytes.
const FLOOD_BYTES_MIN: usize = 4096;
/// Distance between two samples, in bytes.
const SAMPLE_STEP: usize = 1024;
/// Length of a sample, in bytes.
const SAMPLE_BYTES: usize = 48;
/// How soon after itself a sample must come again, in bytes.
const PERIOD_MAX: usize = 160;

/// Turns of a faked dialogue that are a weak signal.
pub(crate) const TURNS_LOW: usize = 16;
/// Turns of a faked dialogue that are a probable attack.
pub(crate) const TURNS_MEDIUM: usize = 64;

/// Whether nearly the whole text repeats itself at short distance: filler that pushes instructions out of the window.
pub(crate) fn is_flood(text: &[u8]) -> bool {
    if text.len() < FLOOD_BYTES_MIN {
        return false;
    }
    let (mut samples, mut periodic) = (0usize, 0usize);
    let mut at = 0;
    while let Some(sample) = text.get(at..at + SAMPLE_BYTES) {
        samples += 1;
        let distinct = sample.iter().filter(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii()).count();
        let ahead = text.get(at + 1..(at + PERIOD_MAX + SAMPLE_BYTES).min(text.len())).unwrap_or_default();
        if distinct >= SAMPLE_BYTES / 3 && comes_again(ahead, sample) {
            periodic += 1;
        }
        at += SAMPLE_STEP;
    }
    samples >= 4 && periodic * 5 >= samples * 4
}

/// Whether `sample` stands somewhere in `ahead`; compares whole samples only where the first byte fits.
fn comes_again(ahead: &[u8], sample: &[u8]) -> bool {
    ahead.windows(SAMPLE_BYTES).any(|again| again.first() == sample.first() && again == sample)
}

/// Turns of a faked dialogue; 0 where there are too few colons for [`TURNS_LOW`] of them, as in most texts.
pub(crate) fn turns(text: &[u8]) -> usize {
    if memchr_iter(b':', text).count() < TURNS_LOW { 0 } else { count_turns(text) }
}

/// Counts lines that begin like a turn of the user or of the assistant (`User:`, `Assistant:`, `Q:` ...).
fn count_turns(text: &[u8]) -> usize {
    const SPEAKERS: [&[u8]; 8] = [b"user", b"human", b"assistant", b"ai", b"q", b"a", b"bot", b"model"];
    // What most colons of data stand behind is neither the end of such a name nor blank.
    let may_end = |byte: u8| byte.is_ascii_whitespace() || SPEAKERS.iter().any(|name| name.ends_with(&[byte | 0x20]));
    memchr_iter(b':', text)
        .filter(|colon| {
            let head = text.get(colon.saturating_sub(12)..*colon).unwrap_or_default();
            if !head.last().is_some_and(|byte| may_end(*byte)) {
                return false;
            }
            let line = head.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
            let opens = line.len() < head.len() || *colon < 12;
            let name = line.trim_ascii().strip_prefix(b"**").unwrap_or(line.trim_ascii());
            opens && SPEAKERS.iter().any(|speaker| name.eq_ignore_ascii_case(speaker))
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_repeats_and_prose_does_not() {
        assert!(is_flood("please wait for the next part ".repeat(300).as_bytes()));
        assert!(is_flood("A".repeat(9000).as_bytes()));
        assert!(!is_flood(&b" ".repeat(9000)), "indentation is no flood");
        let numbered: String = (0..700).map(|n| format!("line {n} of the report\n")).collect();
        assert!(!is_flood(numbered.as_bytes()));
    }

    #[test]
    fn counts_only_turns_at_line_starts() {
        let text = b"User: hi\nAssistant: hello\nthe user: none\nQ: x\n";
        assert_eq!((count_turns(text), turns(text)), (3, 0));
        assert_eq!(turns(&text.repeat(4)), 12);
    }
}
