//! Counting tokens the way a model family does, for answers whose provider did not count.
//!
//! Vocabularies are public for OpenAI's models only; other families are estimated (`observe::estimate_tokens`). Invariants:
//! nothing is loaded before the first text of a family has to be counted; loading takes some tenths of a second and counting
//! runs at some megabytes per second, so both happen off the core threads; while one thread loads, others do without.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tiktoken_rs::CoreBPE;

/// Text that is counted; a longer one is counted so far, and the rest taken to be like it.
const COUNTED_BYTES_MAX: usize = 64 * 1024;

/// Models that share a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// gpt-4o and later, the o series.
    O200k,
    /// gpt-4, gpt-3.5, the embedding models.
    Cl100k,
}

struct Vocabulary {
    loaded: OnceLock<Option<CoreBPE>>,
    loading: AtomicBool,
}

static O200K: Vocabulary = Vocabulary::new();
static CL100K: Vocabulary = Vocabulary::new();

const O200K_NAMES: [&str; 9] = ["gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "gpt-oss", "chatgpt-4o", "o1", "o3", "o4"];
const CL100K_NAMES: [&str; 5] = ["gpt-4", "gpt-3.5", "gpt-35", "text-embedding-3", "text-embedding-ada-002"];

impl Family {
    /// The family of a model, as far as its vocabulary is public.
    pub fn of(model: &str) -> Option<Self> {
        let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
        let name = name.strip_prefix("ft:").unwrap_or(&name);
        // A name goes on with its release or size, not with further letters.
        let is = |known: &&str| {
            let rest = name.strip_prefix(known);
            rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()))
        };
        if O200K_NAMES.iter().any(&is) {
            Some(Self::O200k)
        } else {
            CL100K_NAMES.iter().any(&is).then_some(Self::Cl100k)
        }
    }

    /// Its vocabulary's name.
    pub const fn vocabulary(self) -> &'static str {
        match self {
            Self::O200k => "o200k_base",
            Self::Cl100k => "cl100k_base",
        }
    }

    /// The number of tokens of a text; `None` while another thread loads the vocabulary. Blocks for loading and counting:
    /// not for a core thread.
    pub fn count(self, text: &str) -> Option<u64> {
        let vocabulary = match self {
            Self::O200k => O200K.get(|| tiktoken_rs::o200k_base().ok()),
            Self::Cl100k => CL100K.get(|| tiktoken_rs::cl100k_base().ok()),
        }?;
        let mut end = text.len().min(COUNTED_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let counted = text.get(..end).unwrap_or_default();
        let tokens = vocabulary.encode_ordinary(counted).len() as u64;
        Some(tokens.saturating_mul(text.len() as u64) / counted.len().max(1) as u64)
    }
}

impl Vocabulary {
    const fn new() -> Self {
        Self { loaded: OnceLock::new(), loading: AtomicBool::new(false) }
    }

    fn get(&'static self, load: impl FnOnce() -> Option<CoreBPE>) -> Option<&'static CoreBPE> {
        if let Some(loaded) = self.loaded.get() {
            return loaded.as_ref();
        }
        if self.loading.swap(true, Ordering::AcqRel) {
            return None;
        }
        self.loaded.get_or_init(load).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_belongs_to_the_family_whose_vocabulary_it_uses() {
        for (model, family) in [
            ("gpt-4o-mini", Some(Family::O200k)),
            ("openai/gpt-4.1-nano", Some(Family::O200k)),
            ("GPT-5.2", Some(Family::O200k)),
            ("o3", Some(Family::O200k)),
            ("o1-mini", Some(Family::O200k)),
            ("ft:gpt-4o-mini-2024-07-18:acme::1", Some(Family::O200k)),
            ("gpt-4", Some(Family::Cl100k)),
            ("gpt-4-turbo", Some(Family::Cl100k)),
            ("gpt-3.5-turbo", Some(Family::Cl100k)),
            ("gpt-35-turbo", Some(Family::Cl100k)),
            ("text-embedding-3-small", Some(Family::Cl100k)),
            ("claude-sonnet-4-5", None),
            ("gemini-2.5-pro", None),
            ("o1x", None),
            ("gpt-40", None),
            ("unit-gpt", None),
            ("", None),
        ] {
            assert_eq!(Family::of(model), family, "{model}");
        }
    }

    #[test]
    fn counts_what_the_family_counts() {
        // Counts as OpenAI's own tokenizer gives them.
        for (family, text, tokens) in [
            (Family::Cl100k, "tiktoken is great!", 6),
            (Family::Cl100k, "hello world", 2),
            (Family::O200k, "hello world", 2),
            (Family::O200k, "", 0),
        ] {
            assert_eq!(family.count(text), Some(tokens), "{family:?} {text:?}");
        }
        let long = "hello world ".repeat(50_000);
        let counted = Family::O200k.count(&long).unwrap();
        assert!((100_000..=150_100).contains(&counted), "{counted}");
    }
}
