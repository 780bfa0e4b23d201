//! Which label values may appear in the exposition: bounded in alphabet, length and number.
//!
//! Invariant: whatever clients send, a label takes at most [`MODELS_MAX`] (or [`FINDING_TYPES_MAX`]) different values,
//! [`NO_MODEL`], and [`OTHER`], into which everything else folds. One tenant can use up at most half of what the others have
//! left of it. Knows neither cells nor exposition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_config::vocab::TenantId;

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
    /// How many of the values each tenant brought.
    brought: BTreeMap<TenantId, usize>,
    other: Arc<str>,
}

impl Admitted {
    pub(super) fn new(max: usize) -> Self {
        let values = RESERVED.into_iter().map(Arc::from).collect();
        Self { max, values, brought: BTreeMap::new(), other: Arc::from(OTHER) }
    }

    pub(super) fn knows(&self, value: &str) -> bool {
        self.values.contains(value)
    }

    /// The same for a value that a tenant brings, who has to leave room for the values of others.
    pub(super) fn admit_from(&mut self, tenant: TenantId, value: &str) -> (Arc<str>, bool) {
        if !self.knows(value) {
            let own = self.brought.get(&tenant).copied().unwrap_or(0);
            let of_others = self.values.len() - RESERVED.len() - own;
            if own >= self.max.saturating_sub(of_others).div_ceil(2) {
                return (self.other.clone(), true);
            }
            self.brought.insert(tenant, own + 1);
        }
        self.admit(value)
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

    #[test]
    fn a_tenant_takes_half_of_what_the_others_have_left() {
        let mut admitted = Admitted::new(200);
        let mut shown = |tenant: &str| {
            let tenant = TenantId::from_credential(tenant.as_bytes());
            (0..300).filter(|n| !admitted.admit_from(tenant, &format!("{tenant}-{n}")).1).count()
        };
        let firsts: Vec<usize> = ["a", "b", "c", "d"].map(&mut shown).to_vec();
        assert_eq!(firsts, [100, 50, 25, 13]);
        assert_eq!(shown("a"), 100, "what was shown stays shown, and nothing is added");
        let rest: usize = (0..300).map(|n| shown(&format!("late-{n}"))).sum();
        assert_eq!(rest, 200 - 188, "all of them are used in the end");
    }
}
