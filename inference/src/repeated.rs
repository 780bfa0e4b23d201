//! Whether a text repeats another one word for word: an answer the system prompt it was given.
//!
//! Both are read as words, whatever stands between them and however they are written (letter case, Markdown, line breaks); runs
//! of [`RUN_WORDS`] words of the original are kept as hashes, and the text is rolled past them. Invariants: linear in both texts;
//! at most [`WORDS_MAX`] words of the original are kept. A translation, a summary or an encoded copy is not found.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

/// Words in a row that count as a repetition. Fewer meet by chance.
const RUN_WORDS: usize = 8;
/// Shorter originals are nobody's secret, in words.
const ORIGINAL_WORDS_MIN: usize = 12;
/// Words of an original that are kept, from its beginning.
const WORDS_MAX: usize = 32_768;
/// Repeated words that are noted before those that were noted twice go.
const SEEN_MAX: usize = 2 * WORDS_MAX;
/// From so many repeated words on it is no longer a phrase the text was asked to use.
const REPEATED_WORDS_MIN: usize = 24;
/// The same for a part of a short original.
const REPEATED_SHARE_MIN: f64 = 0.5;
/// Bytes between two looks at the clock.
const CLOCK_STEP: usize = 64 << 10;
/// Base of the rolling hash; odd, so that it can be divided out.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// A text that must not be repeated.
#[derive(Debug)]
pub struct Original {
    /// Where each run of words begins, by its hash; the first of equal ones.
    runs: HashMap<u64, u32>,
    words: usize,
}

/// What was repeated of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Repeated {
    /// The longest repetition, in bytes of the text that repeats.
    pub range: Range<usize>,
    /// Words of the original that come again, each counted once.
    pub words: usize,
    /// The part of the original that they are, 0.0 to 1.0.
    pub share: f64,
}

/// Hashes of runs of words, rolled along.
struct Rolling {
    last: [(u64, usize); RUN_WORDS],
    count: usize,
    hash: u64,
    /// `BASE` to the power of [`RUN_WORDS`].
    out: u64,
}

impl Rolling {
    fn new() -> Self {
        let out = (0..RUN_WORDS).fold(1_u64, |power, _| power.wrapping_mul(BASE));
        Self { last: [(0, 0); RUN_WORDS], count: 0, hash: 0, out }
    }

    /// Takes the next word, which begins at `start`. The hash of the run that ends with it, and where that begins.
    fn push(&mut self, word: u64, start: usize) -> Option<(u64, usize)> {
        let at = self.count % RUN_WORDS;
        let gone = self.last.get(at).map_or(0, |(word, _)| *word);
        self.hash = self.hash.wrapping_mul(BASE).wrapping_add(word).wrapping_sub(gone.wrapping_mul(self.out));
        if let Some(slot) = self.last.get_mut(at) {
            *slot = (word, start);
        }
        self.count += 1;
        let first = self.last.get(self.count % RUN_WORDS).map(|(_, start)| *start)?;
        (self.count >= RUN_WORDS).then_some((self.hash, first))
    }
}

/// Calls `each` with the hash and the place of every word until it says that it is enough. A letter of a script without spaces is
/// a word.
fn words(text: &str, mut each: impl FnMut(u64, Range<usize>) -> bool) {
    let (mut hash, mut start) = (0_u64, None);
    for (at, letter) in text.char_indices().chain([(text.len(), ' ')]) {
        let alone = is_ideograph(letter);
        if let Some(from) = start.filter(|_| alone || !letter.is_alphanumeric()) {
            start = None;
            if !each(hash, from..at) {
                return;
            }
        }
        if alone {
            if !each(mixed(0, letter), at..at + letter.len_utf8()) {
                return;
            }
        } else if letter.is_alphanumeric() {
            if start.is_none() {
                (hash, start) = (0, Some(at));
            }
            hash = letter.to_lowercase().fold(hash, mixed);
        }
    }
}

/// Han, kana and hangul: written without spaces, or with words of a letter or two.
fn is_ideograph(letter: char) -> bool {
    matches!(letter, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{20000}'..='\u{3ffff}')
}

fn mixed(hash: u64, letter: char) -> u64 {
    let mixed = (hash ^ u64::from(u32::from(letter)).wrapping_add(1)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 29)
}

impl Original {
    /// Of these texts, as if they were one. `None` where they are too short to be anybody's secret.
    pub fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Option<Self> {
        let (mut runs, mut total) = (HashMap::new(), 0);
        for text in texts {
            // A run does not go on from one text to the next.
            let mut rolling = Rolling::new();
            let first = total;
            words(text, |word, at| {
                if let Some((hash, _)) = rolling.push(word, at.start) {
                    let begins = first + rolling.count - RUN_WORDS;
                    runs.entry(hash).or_insert(u32::try_from(begins).unwrap_or(u32::MAX));
                }
                total += 1;
                total < WORDS_MAX
            });
        }
        (total >= ORIGINAL_WORDS_MIN && !runs.is_empty()).then_some(Self { runs, words: total })
    }

    /// What `text` repeats of it, where that is more than a phrase.
    pub fn repeated_in(&self, text: &str) -> Option<Repeated> {
        self.repeated_by(text, None)
    }

    /// The same of what can be read of `text` before the deadline.
    pub fn repeated_by(&self, text: &str, deadline: Option<Instant>) -> Option<Repeated> {
        let (mut seen, mut clock) = (Vec::new(), 0);
        let (mut rolling, mut run, mut longest) = (Rolling::new(), None, 0..0);
        words(text, |word, at| {
            let known = rolling.push(word, at.start).and_then(|(hash, from)| Some((self.runs.get(&hash)?, from)));
            match known {
                Some((begins, from)) => {
                    let from = *run.get_or_insert(from);
                    if at.end - from > longest.len() {
                        longest = from..at.end;
                    }
                    seen.push(*begins);
                    if seen.len() >= SEEN_MAX {
                        // Each is one of the words that are kept, so that half of them go.
                        seen.sort_unstable();
                        seen.dedup();
                    }
                }
                None => run = None,
            }
            if at.end < clock {
                return true;
            }
            clock = at.end + CLOCK_STEP;
            deadline.is_none_or(|deadline| Instant::now() < deadline)
        });
        // In proportion to this text, not to the original: an answer may have many texts.
        seen.sort_unstable();
        let words = covered(&seen, self.words);
        let share = words as f64 / self.words as f64;
        let enough = words >= REPEATED_WORDS_MIN || share >= REPEATED_SHARE_MIN;
        (words > 0 && enough).then_some(Repeated { range: longest, words, share })
    }
}

/// How many of `words` words stand in a run that was seen, by where runs begin, in order.
fn covered(begins: &[u32], words: usize) -> usize {
    let (mut count, mut until) = (0, 0);
    for begin in begins {
        let begin = *begin as usize;
        let end = (begin + RUN_WORDS).min(words);
        count += end.saturating_sub(until.max(begin));
        until = until.max(end);
    }
    count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PROMPT: &str = "You are Ada, the support assistant of Example Bank. Never discuss competitors. The discount code for \
                          loyal customers is SPRING and may be given only after three complaints. Answer in at most five sentences.";

    fn repeated(answer: &str) -> Option<Repeated> {
        Original::of([PROMPT].into_iter()).unwrap().repeated_in(answer)
    }

    #[test]
    fn finds_the_prompt_however_it_is_set() {
        let shouted = PROMPT.to_uppercase().replace(' ', "\n* ");
        for answer in
            [PROMPT.to_owned(), format!("Sure! My instructions are:\n\n> {PROMPT}\n\nAnything else?"), shouted]
        {
            let found = repeated(&answer).unwrap();
            assert!((found.share - 1.0).abs() < f64::EPSILON, "{found:?}");
            let words = &answer[found.range];
            assert!(words.to_lowercase().starts_with("you") && words.to_lowercase().ends_with("sentences"), "{words}");
        }
        let half = "It says: never discuss competitors; the discount code for loyal customers is SPRING and may be given only after \
                    three complaints.";
        let found = repeated(half).unwrap();
        assert!(found.words == 19 && found.share < 0.6, "{found:?}");
    }

    #[test]
    fn a_phrase_of_it_is_no_leak_nor_is_talk_about_it() {
        for answer in [
            "",
            "I am Ada, the support assistant of Example Bank. How can I help?",
            "The discount code for loyal customers is SPRING, and I hope you enjoy it.",
            "I cannot tell you how I was set up, but I may not talk about other banks.",
            // The same phrase again and again is one phrase.
            &"the discount code for loyal customers is SPRING. ".repeat(20),
        ] {
            assert_eq!(repeated(answer), None, "{answer}");
        }
        assert!(Original::of(["You are a helpful assistant."].into_iter()).is_none());
        assert!(Original::of(std::iter::empty()).is_none());
    }

    #[test]
    fn scripts_without_spaces_have_words_too() {
        let prompt = "你是银行的客服助手。不要谈论竞争对手。忠诚客户的折扣代码是春天，三次投诉之后才能提供。";
        let original = Original::of([prompt].into_iter()).unwrap();
        let answer = format!("我的指令是：{prompt}");
        let found = original.repeated_in(&answer).unwrap();
        assert!((found.share - 1.0).abs() < f64::EPSILON, "{found:?}");
        assert!(answer[found.range].starts_with('你'));
        assert_eq!(original.repeated_in("我不能告诉你我的指令。"), None);
    }

    #[test]
    fn a_long_original_costs_what_is_kept_of_it() {
        let prompt: String = (0..100_000).map(|number| format!("word{number} ")).collect();
        let original = Original::of([prompt.as_str()].into_iter()).unwrap();
        assert_eq!((original.words, original.runs.len()), (WORDS_MAX, WORDS_MAX - RUN_WORDS + 1));
        assert!(original.repeated_in(&prompt).is_some_and(|found| (found.share - 1.0).abs() < f64::EPSILON));
    }

    proptest! {
        /// The same as comparing all runs of words with each other.
        #[test]
        fn finds_what_comparing_all_finds(
            original in proptest::collection::vec(0_u8..6, 12..60), text in proptest::collection::vec(0_u8..6, 0..60),
        ) {
            let say = |words: &[u8]| words.iter().map(|word| format!("w{word}é ")).collect::<String>();
            let known = Original::of([&*say(&original)].into_iter()).unwrap();
            let runs = |words: &[u8]| words.windows(RUN_WORDS).map(<[u8]>::to_vec).collect::<Vec<_>>();
            let (ours, theirs) = (runs(&original), runs(&text));
            // Of equal runs the first stands for all.
            let first = |run: &Vec<u8>| ours.iter().position(|other| other == run).unwrap();
            let seen = (0..ours.len()).filter(|at| first(&ours[*at]) == *at && theirs.contains(&ours[*at]));
            let stands: std::collections::BTreeSet<usize> = seen.flat_map(|at| at..at + RUN_WORDS).collect();
            let words = stands.len();
            let share = words as f64 / original.len() as f64;
            let expected = (words > 0 && (words >= REPEATED_WORDS_MIN || share >= REPEATED_SHARE_MIN)).then_some(words);
            prop_assert_eq!(known.repeated_in(&say(&text)).map(|found| found.words), expected);
        }
    }
}
