//! Which label values may appear in the exposition: bounded in alphabet, length and number.
//!
//! Invariant: whatever clients send, a label takes at most [`MODELS_MAX`] (or [`FINDING_TYPES_MAX`]) different values,
//! [`NO_MODEL`], and [`OTHER`], into which everything else folds. Knows neither cells nor exposition.

use std::collections::BTreeSet;
use std::sync::Arc;

/// What a label value becomes that is malformed or one too many.
pub const OTHER: &str = "other";
/// The `model` label of a request that named no model.
pub const NO_MODEL: &str = "unknown";
/// Different `model` values shown before [`OTHER`].
pub const MODELS_MAX: usize = 200;
/// Different `finding_type` values shown before [`OTHER`].
pub const FINDING_TYPES_MAX: usize = 200;
/// Longest label value in bytes.
pub const LABEL_BYTES_MAX: usize = 64;

/// Values that are always shown and take no place from others.
const RESERVED: [&str; 2] = [OTHER, NO_MODEL];

/// True for 1 to 64 bytes of `[A-Za-z0-9._:/-]`.
pub fn is_legal(value: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    !value.is_empty() && value.len() <= LABEL_BYTES_MAX && value.bytes().all(legal)
}

/// The values of one label that have been admitted, first come first served. What was admitted once stays admitted and
/// what was folded once stays folded, so a series never changes its name.
#[derive(Debug)]
pub(super) struct Admitted {
    max: usize,
    values: BTreeSet<Arc<str>>,
    other: Arc<str>,
}

impl Admitted {
    pub(super) fn new(max: usize) -> Self {
        Self { max, values: RESERVED.into_iter().map(Arc::from).collect(), other: Arc::from(OTHER) }
    }

    /// The value to show for `value`, and whether it was folded.
    pub(super) fn admit(&mut self, value: &str) -> (Arc<str>, bool) {
        if let Some(known) = self.values.get(value) {
            return (known.clone(), false);
        }
        if self.values.len() >= self.max + RESERVED.len() {
            return (self.other.clone(), true);
        }
        let fresh: Arc<str> = Arc::from(value);
        self.values.insert(fresh.clone());
        (fresh, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_values_are_short_and_plain() {
        for legal in ["gpt-4o-mini", "meta-llama/Llama-3.1:8b", "prompt_injection", &"x".repeat(64)] {
            assert!(is_legal(legal), "{legal}");
        }
        for illegal in ["", "two words", "quote\"", "new\nline", "käse", "a,b", &"x".repeat(65)] {
            assert!(!is_legal(illegal), "{illegal}");
        }
    }

    #[test]
    fn the_first_values_stay_and_later_ones_fold_for_good() {
        let mut admitted = Admitted::new(2);
        assert_eq!(admitted.admit("a"), (Arc::from("a"), false));
        assert_eq!(admitted.admit("b"), (Arc::from("b"), false));
        assert_eq!(admitted.admit("c"), (Arc::from(OTHER), true));
        assert_eq!(admitted.admit("a"), (Arc::from("a"), false));
        assert_eq!(admitted.admit("c"), (Arc::from(OTHER), true));
        assert_eq!(admitted.admit(OTHER), (Arc::from(OTHER), false));
        assert_eq!(admitted.admit(NO_MODEL), (Arc::from(NO_MODEL), false));
    }
}
