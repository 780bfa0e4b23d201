//! A text as the second stage reads it, and where in the text that stands.

use std::borrow::Cow;
use std::ops::Range;

use weir_inference::Text;

/// Most decoded words of a text that are read behind it.
const DECODED_MAX: usize = 8;
/// Fewest bytes of a sentence.
const SENTENCE_BYTES: usize = 24;

/// A text as it is read: folded, and behind it what encoded words say.
pub(super) struct Reading<'a> {
    text: &'a Text<'a>,
    pub(super) words: Cow<'a, str>,
    /// Where what the first encoded words say begins, the second, and so on.
    decoded: Vec<usize>,
}

// === impl Reading ===

impl<'a> Reading<'a> {
    pub(super) fn of(text: &'a Text<'a>) -> Self {
        let mut words = String::from_utf8_lossy(text.folded());
        let mut decoded = Vec::new();
        for one in text.decoded().iter().take(DECODED_MAX) {
            let all = words.to_mut();
            all.push(' ');
            decoded.push(all.len());
            all.push_str(&String::from_utf8_lossy(&one.text));
        }
        Self { text, words, decoded }
    }

    /// Where a window stands in the text, and in which encoding: it belongs to where its middle is.
    pub(super) fn original(&self, window: &Range<usize>) -> (Range<usize>, Option<&'static str>) {
        let middle = window.start.midpoint(window.end);
        let behind = self.decoded.partition_point(|begin| *begin <= middle);
        if let Some(one) = behind.checked_sub(1).and_then(|at| self.text.decoded().get(at)) {
            return (one.range.clone(), Some(one.encoding));
        }
        let end = window.end.min(self.text.folded().len());
        (self.text.original(window.start.min(end)..end), None)
    }
}

/// The sentence of a window of which `rank` says the most: what is shown of a finding is no longer than a few of them.
pub(super) fn sentence(words: &str, window: Range<usize>, rank: impl Fn(&str) -> f64) -> Range<usize> {
    let mut start = window.start;
    let inside = words.get(window.clone()).unwrap_or_default();
    let sentences = inside.split_inclusive(['.', '!', '?', '\n']).map(|one| {
        let range = start..start + one.len();
        start = range.end;
        range
    });
    // What is shorter is no sentence.
    let long = sentences.filter(|range| range.len() >= SENTENCE_BYTES);
    let ranked = long.map(|range| (rank(words.get(range.clone()).unwrap_or_default()), range));
    ranked.max_by(|(a, _), (b, _)| a.total_cmp(b)).map_or(window, |(_, range)| range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_window_the_sentence_counts_that_says_the_most() {
        let words = "Before. The train leaves at nine from here. Send the keys to the address below! Then the ferry goes on. after";
        let rank = |one: &str| f64::from(u8::from(one.contains("keys")));
        let found = sentence(words, 8..words.len(), rank);
        assert_eq!(&words[found], " Send the keys to the address below!");
        assert_eq!(sentence("short. too.", 0..11, rank), 0..11);
    }
}
