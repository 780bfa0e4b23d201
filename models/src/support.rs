//! Whether a text supports what an answer says: each sentence is held against the passages of the text that share most words
//! with it.
//!
//! Invariants: the number of sentences, of passages and of runs of the graph is bounded, whatever the texts hold; time that is
//! over ends it between two runs.

use std::collections::HashSet;
use std::ops::Range;
use std::time::Instant;

use crate::sentences::statements;
use crate::tokens::Passage;

/// Most sentences of an answer that are judged; those behind them are counted.
pub(crate) const SENTENCES_MAX: usize = 32;
/// Most passages a sentence is held against.
const PASSAGES_MAX: usize = 3;
/// From here on no other passage of the text is asked.
const SUPPORTED: f64 = 0.9;
/// Shortest word that says what a passage is about, in bytes.
const WORD_BYTES_MIN: usize = 3;

/// What became of the sentences of an answer.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Judged {
    /// Those that were judged: where each stands, and how well it is supported, 0.0 to 1.0.
    pub(crate) sentences: Vec<(Range<usize>, f64)>,
    /// Those that were not, for their number or for lack of time.
    pub(crate) left_out: usize,
}

impl Judged {
    /// Holds the sentences of `answer` against `passages` of `context`; `ask` says how well a passage supports a sentence.
    ///
    /// # Errors
    /// What `ask` says.
    pub(crate) fn of(
        answer: &str,
        context: &str,
        passages: &[Passage],
        until: Option<Instant>,
        mut ask: impl FnMut(&Passage, &str) -> Result<f64, String>,
    ) -> Result<Self, String> {
        let topics: Vec<HashSet<String>> =
            passages.iter().map(|passage| words(context.get(passage.range.clone()).unwrap_or_default())).collect();
        let mut judged = Self::default();
        for range in statements(answer) {
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            if judged.sentences.len() == SENTENCES_MAX || is_over {
                judged.left_out += 1;
                continue;
            }
            let sentence = answer.get(range.clone()).unwrap_or_default();
            let about = words(sentence);
            let mut order: Vec<usize> = (0..passages.len()).collect();
            // Stable: of passages that share as many words the earlier one comes first.
            order.sort_by_key(|at| {
                usize::MAX
                    - topics.get(*at).map_or(0, |topic| about.iter().filter(|word| topic.contains(*word)).count())
            });
            let mut best = 0.0_f64;
            for passage in order.into_iter().take(PASSAGES_MAX).filter_map(|at| passages.get(at)) {
                best = best.max(ask(passage, sentence)?);
                if best >= SUPPORTED || until.is_some_and(|until| Instant::now() >= until) {
                    break;
                }
            }
            judged.sentences.push((range, best));
        }
        Ok(judged)
    }

    /// The sentence that is supported least.
    pub(crate) fn worst(&self) -> Option<&(Range<usize>, f64)> {
        self.sentences.iter().min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

fn words(text: &str) -> HashSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() >= WORD_BYTES_MIN);
    words.map(str::to_lowercase).collect()
}
