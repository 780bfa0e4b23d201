//! The reply text: deterministic, dependent on the prompt, and cut into tokens the same way for whole and streamed
//! answers.
//!
//! Invariant: the frames of a stream joined are the text of the whole answer. A token here is a word with the blank
//! before it; the counts are plausible, not any real tokenizer's.

use super::ask::{Ask, Tool};
use super::steer::Steering;

/// Bytes of prompt text counted as one token.
const BYTES_PER_TOKEN: usize = 4;

const SENTENCES: [&str; 12] = [
    "The short answer is that it depends on how often the data changes.",
    "Start with the smallest version that can be measured, then grow it.",
    "A queue in front of the slow part keeps the fast part honest.",
    "Most of the time is spent waiting, so look at the waits first.",
    "You can keep the old behaviour behind a setting while people move over.",
    "Write the expected result down before you run the experiment.",
    "If two services disagree, compare their clocks before their code.",
    "The table lists every case, and the last row is the one that surprises.",
    "Retries help only when the failure is brief and the call can be repeated.",
    "A cache without an expiry is a second database that nobody backs up.",
    "Name the owner of each alert, or it will be muted within a month.",
    "In the end the simple plan was also the cheaper one.",
];

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish {
    Stop,
    Length,
    ToolCall,
}

/// A reply, before any dialect shapes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) text: String,
    pub(super) tool: Option<Tool>,
    pub(super) finish: Finish,
    pub(super) prompt_tokens: usize,
    pub(super) completion_tokens: usize,
    /// Hash of model and prompt as 16 hex digits; every id in the answer is made from it.
    pub(super) key: String,
    /// Content frames wanted in a stream.
    frames: Option<usize>,
}

impl Reply {
    /// The reply to a request.
    pub(super) fn to(ask: &Ask, steering: &Steering) -> Self {
        let hash = fnv1a(&[ask.model.as_bytes(), b"\0", ask.prompt.as_bytes()]);
        let prompt_tokens = steering.prompt.unwrap_or_else(|| ask.text_bytes.div_ceil(BYTES_PER_TOKEN).max(1));
        let mut text = match &steering.reply {
            Some(text) => text.clone(),
            None if ask.tool.is_some() => String::new(),
            None => composed(hash, steering.frames.unwrap_or(0)),
        };
        let mut finish = if ask.tool.is_some() { Finish::ToolCall } else { Finish::Stop };
        if let Some(cap) = ask.max_tokens.filter(|cap| words(&text).count() > *cap) {
            text = words(&text).take(cap).collect();
            finish = Finish::Length;
        }
        let tool_tokens = ask.tool.as_ref().map_or(0, |tool| tool.arguments.len().div_ceil(BYTES_PER_TOKEN) + 4);
        let completion_tokens = words(&text).count() + tool_tokens;
        let key = format!("{hash:016x}");
        Self { text, tool: ask.tool.clone(), finish, prompt_tokens, completion_tokens, key, frames: steering.frames }
    }

    /// The text cut for a stream: into as many frames as were asked for, or one per token.
    pub(super) fn frames(&self) -> Vec<String> {
        let words: Vec<&str> = words(&self.text).collect();
        let count = self.frames.unwrap_or(words.len()).min(words.len());
        (0..count).map(|i| words[i * words.len() / count..(i + 1) * words.len() / count].concat()).collect()
    }

    /// Grows or shrinks the text until `rendered_bytes` of it is `target`, as far as the envelope allows.
    pub(super) fn fit(&mut self, target: usize, rendered_bytes: impl Fn(&Self) -> usize) {
        // The length of the token count changes with the text; a few rounds settle it.
        for _ in 0..6 {
            let bytes = rendered_bytes(self);
            if bytes == target {
                break;
            }
            if bytes < target {
                let missing = target - bytes;
                let filler = SENTENCES.iter().cycle().flat_map(|sentence| [" ", sentence]);
                let grown = self.text.len() + missing;
                filler.flat_map(str::chars).take(missing).for_each(|letter| self.text.push(letter));
                debug_assert_eq!(self.text.len(), grown, "the filler is ASCII");
            } else {
                let keep = self.text.len().saturating_sub(bytes - target);
                let keep = (0..=keep).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0);
                self.text.truncate(keep);
            }
            self.completion_tokens = words(&self.text).count();
        }
    }
}

/// Words, each with the whitespace before it; joined they are the text again.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let word = rest.find(|c: char| !c.is_whitespace())?;
        let end = rest[word..].find(char::is_whitespace).map_or(rest.len(), |at| word + at);
        // Whitespace at the very end belongs to the last word.
        let end = if rest[end..].trim_start().is_empty() { rest.len() } else { end };
        let (head, tail) = rest.split_at(end);
        rest = tail;
        Some(head)
    })
}

fn composed(hash: u64, words_min: usize) -> String {
    let mut text = format!("Reply {:08x}.", hash >> 32);
    let (mut state, mut count) = (hash, 2);
    while count < words_min.max(48) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let sentence = SENTENCES[(state >> 33) as usize % SENTENCES.len()];
        count += words(sentence).count();
        text.extend([" ", sentence]);
    }
    text
}

/// FNV-1a over several slices.
pub(super) fn fnv1a(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask(prompt: &str) -> Ask {
        Ask { model: "m".into(), prompt: prompt.into(), text_bytes: prompt.len(), ..Ask::default() }
    }

    #[test]
    fn same_prompt_same_reply_other_prompt_other_reply() {
        let reply = |prompt: &str| Reply::to(&ask(prompt), &Steering::default());
        assert_eq!(reply("a"), reply("a"));
        assert_ne!(reply("a").text, reply("b").text);
    }

    #[test]
    fn asked_frames_are_given_exactly() {
        for frames in [1, 3, 48, 500] {
            let steering = Steering { frames: Some(frames), ..Steering::default() };
            assert_eq!(Reply::to(&ask("x"), &steering).frames().len(), frames);
        }
    }

    #[test]
    fn a_token_cap_cuts_and_says_so() {
        let reply = Reply::to(&Ask { max_tokens: Some(5), ..ask("x") }, &Steering::default());
        assert_eq!((reply.completion_tokens, reply.finish), (5, Finish::Length));
    }

    proptest! {
        #[test]
        fn frames_joined_are_the_text(text in "[ a-z\u{e9}\n]{0,80}", frames in 1usize..20) {
            let steering = Steering { reply: Some(text.clone()), frames: Some(frames), ..Steering::default() };
            let joined = Reply::to(&ask("x"), &steering).frames().concat();
            if !text.trim().is_empty() {
                prop_assert_eq!(joined, text);
            }
        }
    }
}
