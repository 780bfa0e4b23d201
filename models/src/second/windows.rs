//! A text as the second stage reads it: in windows of tokens that overlap, the most suspicious first.
//!
//! Invariants: a window has at most [`INSIDE`] tokens and the two marks around them; texts up to [`WHOLE_BYTES`] are cut as the texts were
//! that it was fitted on; of longer ones pieces are picked by what `rank` says of them, so that what is tokenised is bounded. Linear.

use std::ops::Range;

use tokenizers::Tokenizer;

/// Most tokens of a text in a window.
const INSIDE: usize = 126;
/// How many tokens later the next window begins.
const STRIDE: usize = 96;
/// Longest text that is tokenised whole, in bytes.
const WHOLE_BYTES: usize = 16 << 10;
/// Of longer ones, how long a piece is, and how much of one the next begins with, in bytes.
const PIECE_BYTES: usize = 2 << 10;
const PIECE_OVERLAP_BYTES: usize = 256;

/// A tokenizer that cuts windows.
#[derive(Debug)]
pub(crate) struct Cutter {
    tokenizer: Tokenizer,
    begin: u32,
    end: u32,
}

/// Tokens that go through the model together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    /// With the marks around them.
    pub(crate) ids: Vec<u32>,
    /// Where they stand in the text.
    pub(crate) range: Range<usize>,
}

/// The windows of a text, the most suspicious first.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    pub(crate) windows: Vec<Window>,
    /// There are more of which the words say enough.
    pub(crate) is_part: bool,
}

// === impl Cutter ===

impl Cutter {
    /// Reads a tokenizer.json.
    ///
    /// # Errors
    /// What does not fit.
    pub(crate) fn read(json: &[u8]) -> Result<Self, String> {
        let mut tokenizer = Tokenizer::from_bytes(json).map_err(|error| format!("tokenizer.json: {error}"))?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| format!("tokenizer.json: {error}"))?;
        let mark = |name: &str| tokenizer.token_to_id(name).ok_or_else(|| format!("tokenizer.json: has no `{name}`"));
        let (begin, end) = (mark("[CLS]")?, mark("[SEP]")?);
        Ok(Self { tokenizer, begin, end })
    }

    /// At most `most` windows of a text, those first of which `rank` says the most. Others are missed only if it says `least` of them.
    ///
    /// # Errors
    /// What the tokenizer says.
    pub(crate) fn windows(
        &self,
        text: &str,
        (most, least): (usize, f64),
        rank: impl Fn(&str) -> f64,
    ) -> Result<Windows, String> {
        let ranked = |range: &Range<usize>| rank(text.get(range.clone()).unwrap_or_default());
        let (pieces, mut is_part) = pieces(text, (most, least), &ranked);
        let mut found = Vec::new();
        for piece in pieces {
            self.cut(text, piece, &mut found)?;
        }
        if found.len() > 1 {
            let mut keyed: Vec<(f64, Window)> =
                found.into_iter().map(|window| (ranked(&window.range), window)).collect();
            // Stable: of equals, the first.
            keyed.sort_by(|(a, _), (b, _)| b.total_cmp(a));
            is_part |= keyed.get(most).is_some_and(|(rank, _)| *rank >= least);
            keyed.truncate(most);
            found = keyed.into_iter().map(|(_, window)| window).collect();
        }
        Ok(Windows { windows: found, is_part })
    }

    /// All windows of a piece. The last one ends with it.
    fn cut(&self, text: &str, piece: Range<usize>, out: &mut Vec<Window>) -> Result<(), String> {
        let words = text.get(piece.clone()).unwrap_or_default();
        let tokens = self.tokenizer.encode(words, false).map_err(|error| error.to_string())?;
        let (ids, places) = (tokens.get_ids(), tokens.get_offsets());
        let last = ids.len().saturating_sub(INSIDE);
        let starts = (0..last).step_by(STRIDE).chain((!ids.is_empty()).then_some(last));
        out.extend(starts.map(|start| {
            let inside = start..ids.len().min(start + INSIDE);
            let places = places.get(inside.clone()).unwrap_or_default();
            let (from, to) =
                places.iter().fold((usize::MAX, 0), |(from, to), place| (from.min(place.0), to.max(place.1)));
            let ids = ids.get(inside).unwrap_or_default();
            Window {
                ids: [&[self.begin], ids, &[self.end]].concat(),
                range: piece.start + from.min(to)..piece.start + to,
            }
        }));
        Ok(())
    }
}

/// What of a text is tokenised, in its order, and whether more should be.
fn pieces(text: &str, (most, least): (usize, f64), rank: &impl Fn(&Range<usize>) -> f64) -> (Vec<Range<usize>>, bool) {
    if text.len() <= WHOLE_BYTES {
        return (Vec::from_iter(std::iter::once(0..text.len())), false);
    }
    let mut all: Vec<(f64, Range<usize>)> = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let end = text.floor_char_boundary(start + PIECE_BYTES);
        let piece = start..end;
        all.push((rank(&piece), piece));
        start = if end < text.len() { text.floor_char_boundary(end - PIECE_OVERLAP_BYTES) } else { end };
    }
    all.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let is_part = all.get(most).is_some_and(|(rank, _)| *rank >= least);
    all.truncate(most);
    let mut picked: Vec<Range<usize>> = all.into_iter().map(|(_, piece)| piece).collect();
    picked.sort_by_key(|piece| piece.start);
    (picked, is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::assert_linear;

    fn cutter() -> Cutter {
        Cutter::read(include_bytes!("../../model/tokenizer.json")).unwrap()
    }

    fn cut(text: &str, most: usize, rank: impl Fn(&str) -> f64) -> Windows {
        let found = cutter().windows(text, (most, 0.5), rank).unwrap();
        for window in &found.windows {
            assert!((3..=INSIDE + 2).contains(&window.ids.len()), "{window:?}");
            assert_eq!((window.ids[0], *window.ids.last().unwrap()), (101, 102));
            assert!(text.is_char_boundary(window.range.start) && text.is_char_boundary(window.range.end));
        }
        found
    }

    #[test]
    fn a_short_text_is_one_window_and_an_empty_one_none() {
        let one = cut("Read the attached file.", 8, |_| 0.0);
        assert_eq!((one.windows.len(), one.is_part), (1, false));
        assert_eq!(one.windows[0].ids, [101, 3191, 1996, 4987, 5371, 1012, 102]);
        assert_eq!(one.windows[0].range, 0..23);
        for empty in ["", "   \n "] {
            assert!(cut(empty, 8, |_| 0.0).windows.is_empty());
        }
    }

    #[test]
    fn windows_overlap_and_the_last_one_ends_with_the_text() {
        // One token each; of 300, the windows begin at 0, 96 and 174.
        let text = "wörd ".repeat(300);
        let found = cut(&text, 8, |_| 0.0);
        let begin: Vec<usize> = found.windows.iter().map(|window| window.range.start / 6).collect();
        assert_eq!(begin, [0, 96, 174]);
        assert_eq!(found.windows[2].range.end, text.trim_end().len());
        let exact = cut(&"word ".repeat(INSIDE), 8, |_| 0.0);
        assert_eq!(exact.windows.len(), 1);
        assert_eq!(cut(&"word ".repeat(INSIDE + 1), 8, |_| 0.0).windows.len(), 2);
    }

    #[test]
    fn of_a_long_text_the_most_suspicious_windows_come_first() {
        let rank = |words: &str| f64::from(u8::from(words.contains("keys")));
        for (before, after) in [(300, 300), (9_000, 200), (40, 60_000)] {
            let text = format!("{}send the keys {}", "word ".repeat(before), "word ".repeat(after));
            let at = text.find("keys").unwrap();
            let found = cut(&text, 2, rank);
            // What is left out says nothing.
            assert!(!found.is_part && found.windows.len() == 2);
            assert!(found.windows[0].range.contains(&at), "{before} {after}: {:?}", found.windows[0].range);
        }
        for times in [500, 5_000] {
            let found = cut(&"send the keys ".repeat(times), 2, rank);
            assert!(found.is_part && found.windows.len() == 2, "{times}");
        }
    }

    #[test]
    fn any_text_is_cut_in_time_in_proportion_to_its_length() {
        let cutter = cutter();
        assert_linear("second stage's windows", |text| {
            cutter.windows(text, (8, 0.5), |words| words.len() as f64).unwrap();
        });
    }
}
