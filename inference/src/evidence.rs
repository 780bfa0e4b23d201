//! Evidence: the matched words, short and safe to store.
//!
//! Invariants: at most [`EVIDENCE_CHARS_MAX`] characters, no line breaks, and no secret or personal value in the clear.

/// Most characters of evidence kept with a finding.
pub(crate) const EVIDENCE_CHARS_MAX: usize = 160;
/// What replaces hidden characters.
const MASK: &str = "***";

/// Puts ranges in order and joins those that meet, as [`excerpt`] takes them.
pub(crate) fn join(ranges: &mut Vec<(usize, usize)>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, former| {
        let meets = next.0 <= former.1;
        if meets {
            former.1 = former.1.max(next.1);
        }
        meets
    });
}

/// The words of a match on one line, with every hidden range inside masked: those ranges are in order and do not overlap ([`join`]), so
/// that any number of them elsewhere in the text costs nothing.
pub(crate) fn excerpt(text: &str, start: usize, end: usize, hidden: &[(usize, usize)]) -> String {
    let Some(words) = text.get(start..end) else { return String::new() };
    let inside = hidden.get(hidden.partition_point(|(_, to)| *to <= start)..).unwrap_or_default();
    let mut inside = inside.iter().peekable();
    let mut out = String::with_capacity(words.len().min(EVIDENCE_CHARS_MAX * 4));
    let mut chars = 0;
    let mut masked = false;
    for (at, c) in words.char_indices() {
        let at = start + at;
        while inside.next_if(|(_, to)| *to <= at).is_some() {}
        if inside.peek().is_some_and(|(from, _)| *from <= at) {
            if !masked {
                out.push_str(MASK);
                chars += MASK.len();
            }
            masked = true;
            continue;
        }
        masked = false;
        if chars + 1 >= EVIDENCE_CHARS_MAX {
            out.push('…');
            break;
        }
        out.push(if c.is_whitespace() || c.is_control() { ' ' } else { c });
        chars += 1;
    }
    if out.chars().count() > EVIDENCE_CHARS_MAX {
        out = out.chars().take(EVIDENCE_CHARS_MAX).collect();
    }
    out
}

/// A secret as it may be shown: its first four characters at most, and never more than a quarter of it.
pub(crate) fn mask_secret(value: &str) -> String {
    let shown = (value.chars().count() / 4).min(4);
    let mut out: String = value.chars().take(shown).filter(|c| !c.is_control()).collect();
    out.push_str(MASK);
    out
}

/// Personal data as it may be shown: the last two characters, and never more than a quarter of it.
pub(crate) fn mask_pii(value: &str) -> String {
    let count = value.chars().count();
    let shown = (count / 4).min(2);
    let mut out = String::from(MASK);
    out.extend(value.chars().skip(count - shown));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_short_line() {
        let text = format!("a\nb\t{}", "x".repeat(500));
        let shown = excerpt(&text, 0, text.len(), &[]);
        assert_eq!(shown.chars().count(), EVIDENCE_CHARS_MAX);
        assert!(shown.starts_with("a b x") && shown.ends_with('…'));
    }

    #[test]
    fn hides_what_must_not_be_seen() {
        assert_eq!(excerpt("send sk-123456 to me", 0, 20, &[(5, 14)]), "send *** to me");
        let mut ranges = vec![(16, 20), (9, 14), (0, 4), (5, 11), (16, 18)];
        join(&mut ranges);
        assert_eq!(ranges, [(0, 4), (5, 14), (16, 20)]);
        assert_eq!(excerpt("send sk-123456 to me", 2, 17, &ranges), "*** *** t***");
        assert_eq!(mask_secret("AKIAIOSFODNN7EXAMPLE"), "AKIA***");
        assert_eq!(mask_secret("hunter2"), "h***");
        assert_eq!(mask_pii("4111 1111 1111 1111"), "***11");
        assert_eq!(mask_pii("a@b"), "***");
    }
}
