//! Texts as a model reads them: cut into pieces, tokenised with the model's own tokenizer, in windows that overlap.
//!
//! Invariants: every byte of a text stands in a window; a tokenizer is handed pieces of bounded length, whatever it does with
//! them; windows have at most as many tokens as the model takes.

use std::ops::{ControlFlow, Range};

use tokenizers::{Encoding, PostProcessor as _, Tokenizer, TruncationDirection};

use crate::folder::{ModelConfig, ModelError};

/// Most tokens in a window.
const WINDOW_TOKENS: usize = 512;
/// Fewest tokens a model has to take.
const WINDOW_TOKENS_MIN: usize = 16;
/// Longest piece a tokenizer is handed, in bytes: what it takes for longer words than people write is not always linear.
const PIECE_BYTES: usize = 8 << 10;
/// How much of a piece the next one begins with, in bytes.
const PIECE_OVERLAP_BYTES: usize = 512;

/// A model's tokenizer.
#[derive(Debug)]
pub(crate) struct Tokens {
    tokenizer: Tokenizer,
    /// Most tokens of a text in a window, without those the tokenizer adds.
    most: usize,
    /// The same of two texts together.
    most_of_two: usize,
}

/// A part of a text that sentences are held against.
#[derive(Debug)]
pub(crate) struct Passage {
    tokens: Encoding,
    /// Where it stands in the text.
    pub(crate) range: Range<usize>,
}

/// Tokens that go through the model together.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) ids: Vec<i64>,
    pub(crate) mask: Vec<i64>,
    pub(crate) types: Vec<i64>,
    /// Where each token stands in the text; nothing for those the tokenizer adds.
    pub(crate) places: Vec<Option<Range<usize>>>,
}

// === impl Tokens ===

impl Tokens {
    pub(crate) fn read(json: &[u8], config: &ModelConfig) -> Result<Self, ModelError> {
        let unusable = |why: String| ModelError::Unusable(format!("tokenizer.json: {why}"));
        let mut tokenizer = Tokenizer::from_bytes(json).map_err(|error| unusable(error.to_string()))?;
        let most = window_tokens(config);
        if most < WINDOW_TOKENS_MIN {
            return Err(unusable(format!("the model takes {most} tokens; at least {WINDOW_TOKENS_MIN} are needed")));
        }
        // What a text was cut to, or filled up to, when it was trained is not how it is cut here.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| unusable(error.to_string()))?;
        let added = tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        let added_to_two = tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(true));
        Ok(Self {
            tokenizer,
            most: most.saturating_sub(added).max(1),
            most_of_two: most.saturating_sub(added_to_two).max(2),
        })
    }

    /// Most tokens of a sentence: what stands behind them is not read.
    fn sentence_tokens(&self) -> usize {
        (self.most_of_two / 4).max(1)
    }

    /// A text in passages that leave room for a sentence, each with the end of the one before.
    ///
    /// # Errors
    /// What the tokenizer says.
    pub(crate) fn passages(&self, text: &str) -> Result<Vec<Passage>, String> {
        let most = self.most_of_two - self.sentence_tokens();
        let mut passages = Vec::new();
        for piece in pieces(text) {
            let words = text.get(piece.clone()).unwrap_or_default();
            let mut first = self.tokenizer.encode(words, false).map_err(|error| error.to_string())?;
            first.truncate(most, most / 4, TruncationDirection::Right);
            let others = first.take_overflowing();
            passages.extend(std::iter::once(first).chain(others).map(|tokens| {
                let (mut start, mut end) = (usize::MAX, 0);
                for (from, to) in tokens.get_offsets() {
                    (start, end) = (start.min(*from), end.max(*to));
                }
                Passage { range: piece.start + start.min(end)..piece.start + end, tokens }
            }));
        }
        Ok(passages)
    }

    /// A passage and a sentence as the model reads two texts.
    ///
    /// # Errors
    /// What the tokenizer says.
    pub(crate) fn pair(&self, passage: &Passage, sentence: &str) -> Result<Window, String> {
        let mut second = self.tokenizer.encode(sentence, false).map_err(|error| error.to_string())?;
        second.truncate(self.sentence_tokens(), 0, TruncationDirection::Right);
        let whole = self.tokenizer.post_process(passage.tokens.clone(), Some(second), true);
        Ok(Window::of(&whole.map_err(|error| error.to_string())?, 0))
    }

    /// Shows `each` the windows of a text in order, until it breaks.
    ///
    /// # Errors
    /// What the tokenizer says, or `each`.
    pub(crate) fn windows(
        &self,
        text: &str,
        each: &mut impl FnMut(&Window) -> Result<ControlFlow<()>, String>,
    ) -> Result<(), String> {
        for piece in pieces(text) {
            let words = text.get(piece.clone()).unwrap_or_default();
            let mut first = self.tokenizer.encode(words, false).map_err(|error| error.to_string())?;
            // Not by the tokenizer's own truncation, which drops what does not fit.
            first.truncate(self.most, self.most / 4, TruncationDirection::Right);
            let others = first.take_overflowing();
            for part in std::iter::once(first).chain(others) {
                let whole = self.tokenizer.post_process(part, None, true).map_err(|error| error.to_string())?;
                if each(&Window::of(&whole, piece.start))?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl Window {
    fn of(encoding: &Encoding, base: usize) -> Self {
        let wide = |values: &[u32]| values.iter().map(|value| i64::from(*value)).collect();
        let special = encoding.get_special_tokens_mask().iter();
        let places = encoding
            .get_offsets()
            .iter()
            .zip(special)
            .map(|((from, to), special)| (*special == 0 && from < to).then(|| base + from..base + to));
        Self {
            ids: wide(encoding.get_ids()),
            mask: wide(encoding.get_attention_mask()),
            types: wide(encoding.get_type_ids()),
            places: places.collect(),
        }
    }

    /// The part of the text it stands for.
    pub(crate) fn range(&self) -> Range<usize> {
        let places = self.places.iter().flatten();
        let (start, end) =
            places.fold((usize::MAX, 0), |(start, end), place| (start.min(place.start), end.max(place.end)));
        start.min(end)..end
    }
}

/// How many tokens the model takes, those added included.
fn window_tokens(config: &ModelConfig) -> usize {
    let positions = config.max_position_embeddings.unwrap_or(WINDOW_TOKENS);
    // The positions of this family begin after the one for padding.
    let before = match config.model_type.as_deref() {
        Some("roberta" | "xlm-roberta" | "camembert") => config.pad_token_id.unwrap_or(1).unsigned_abs() as usize + 1,
        _ => 0,
    };
    positions.saturating_sub(before).min(WINDOW_TOKENS)
}

/// A text in pieces, each beginning with the end of the one before.
fn pieces(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let start = next?;
        let end = text.floor_char_boundary(start + PIECE_BYTES);
        next = (end < text.len()).then(|| text.floor_char_boundary(end - PIECE_OVERLAP_BYTES));
        (start < end).then_some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::assert_linear;

    fn tokens(positions: usize) -> Tokens {
        let config = ModelConfig { max_position_embeddings: Some(positions), ..ModelConfig::default() };
        Tokens::read(TOKENIZER.as_bytes(), &config).unwrap()
    }

    /// Words at blanks; `[CLS]` and `[SEP]` around them.
    const TOKENIZER: &str = r#"{"version":"1.0","truncation":null,"padding":null,
        "added_tokens":[
            {"id":0,"content":"[PAD]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
            {"id":1,"content":"[UNK]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
            {"id":2,"content":"[CLS]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
            {"id":3,"content":"[SEP]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
        "normalizer":null,"pre_tokenizer":{"type":"WhitespaceSplit"},
        "post_processor":{"type":"BertProcessing","sep":["[SEP]",3],"cls":["[CLS]",2]},"decoder":null,
        "model":{"type":"WordLevel","vocab":{"[PAD]":0,"[UNK]":1,"[CLS]":2,"[SEP]":3,"word":4},"unk_token":"[UNK]"}}"#;

    fn all(tokens: &Tokens, text: &str) -> Vec<Range<usize>> {
        let mut seen = Vec::new();
        let mut each = |window: &Window| {
            assert!(window.ids.len() <= 16, "{window:?}");
            assert_eq!((window.ids[0], *window.ids.last().unwrap()), (2, 3));
            seen.push(window.range());
            Ok(ControlFlow::Continue(()))
        };
        tokens.windows(text, &mut each).unwrap();
        seen
    }

    #[test]
    fn every_word_of_a_long_text_stands_in_a_window_with_some_before_it() {
        let tokens = tokens(16);
        // Characters of several bytes, so that no piece ends where it would in ASCII.
        let text = "wörd ünd \u{1f980}x ".repeat(3_000);
        let windows = all(&tokens, &text);
        let mut reach = 0;
        for window in &windows {
            assert!(window.start <= reach, "{window:?} {reach}");
            assert!(text.is_char_boundary(window.start) && text.is_char_boundary(window.end));
            reach = reach.max(window.end);
        }
        assert_eq!(reach, text.trim_end().len());
        assert!(windows.windows(2).all(|two| two[1].start < two[0].end), "they overlap");
    }

    #[test]
    fn a_short_text_is_one_window_and_an_empty_one_none() {
        assert_eq!(all(&tokens(16), "two words"), Vec::from_iter(std::iter::once(0..9)));
        assert_eq!(all(&tokens(16), ""), [] as [Range<usize>; 0]);
    }

    #[test]
    fn the_model_says_how_many_tokens_it_takes() {
        let take = |positions, family: &str, pad| {
            window_tokens(&ModelConfig {
                max_position_embeddings: positions,
                model_type: Some(family.to_owned()),
                pad_token_id: pad,
                ..ModelConfig::default()
            })
        };
        assert_eq!(take(Some(512), "bert", Some(0)), 512);
        assert_eq!(take(Some(514), "xlm-roberta", Some(1)), 512);
        assert_eq!(take(Some(130), "roberta", Some(1)), 128);
        assert_eq!(take(Some(8_192), "modernbert", None), 512);
        assert_eq!(take(None, "deberta-v2", None), 512);
        let few = ModelConfig { max_position_embeddings: Some(8), ..ModelConfig::default() };
        assert!(Tokens::read(TOKENIZER.as_bytes(), &few).unwrap_err().to_string().contains("takes 8 tokens"));
    }

    #[test]
    fn any_text_is_cut_into_windows_in_time_in_proportion_to_its_length() {
        let tokens = tokens(64);
        let mut each = |window: &Window| {
            window.range();
            Ok(ControlFlow::Continue(()))
        };
        assert_linear("windows", |text| tokens.windows(text, &mut each).unwrap());
    }
}
