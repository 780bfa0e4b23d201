//! What operators' rules may be and cost, beyond what the format asks of every rule.

use std::collections::BTreeSet;

use super::{Allow, LoadError, Rule};
use crate::literals::is_frequent;

/// Most rules in all files together.
const RULES_MAX: usize = 500;
/// Most allow rules in all files together.
const ALLOW_MAX: usize = 500;
/// Most literals of one rule.
const LITERALS_MAX: usize = 128;
/// Longest name of a rule, in bytes.
const ID_BYTES_MAX: usize = 64;
/// What all compiled patterns together may take, in bytes.
const PATTERNS_BYTES_MAX: usize = 32 << 20;

/// The bounds of one rule.
pub(crate) struct Bounds {
    /// Names that rules of the binary have.
    taken: BTreeSet<String>,
    is_frequent: Box<dyn Fn(&str) -> bool>,
}

impl Bounds {
    pub(crate) fn new(taken: BTreeSet<String>) -> Self {
        Self { taken, is_frequent: Box::new(is_frequent()) }
    }

    /// Says what is wrong with a rule.
    pub(crate) fn check(&self, rule: &Rule) -> Result<(), String> {
        check_id(&rule.id)?;
        if self.taken.contains(&rule.id) {
            return Err("`id` is that of a rule of this build (`weir rules list`); choose another one".to_owned());
        }
        if rule.literals.len() > LITERALS_MAX {
            let count = rule.literals.len();
            return Err(format!("`literals`: {count} are more than {LITERALS_MAX}; leave some out, or make two rules"));
        }
        match rule.literals.iter().find(|literal| (self.is_frequent)(literal)) {
            Some(common) => Err(format!(
                "`literals`: `{common}` stands in nearly every text, so that the pattern would be tried everywhere; name a \
                 rarer word, of four bytes or more, that every match holds"
            )),
            None => Ok(()),
        }
    }

    /// Says what is wrong with all of them together.
    pub(crate) fn check_all(rules: &[Rule], allow: &[Allow]) -> Result<(), LoadError> {
        let too_many = |what: &str, count: usize, max: usize| {
            let said = format!("{count} {what} are more than there may be ({max}); leave some out");
            if count > max { Err(LoadError::TooMuch(said)) } else { Ok(()) }
        };
        too_many("rules", rules.len(), RULES_MAX)?;
        too_many("allow rules", allow.len(), ALLOW_MAX)?;
        let bytes: usize = rules.iter().map(|rule| rule.pattern.memory_usage()).sum();
        too_many("bytes of compiled patterns", bytes, PATTERNS_BYTES_MAX)
    }
}

/// Checks a rule's name: it stands in findings, in labels and on command lines.
pub(super) fn check_id(id: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(fits) {
        return Ok(());
    }
    Err(format!("`id`: use 1 to {ID_BYTES_MAX} of a-z, 0-9, `-` and `_`"))
}
