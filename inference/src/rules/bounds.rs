//! What operators' rules may be and cost, beyond what the format asks of every rule.

use std::collections::BTreeSet;

use super::allow::check_id;
use super::{DISGUISED, LoadError, Loaded, Rule, builtin_ids};
use crate::literals::is_frequent;

/// Most rules in all files together.
const RULES_MAX: usize = 500;
/// Most allow rules in all files together.
const ALLOW_MAX: usize = 500;
/// Most literals of one rule.
const LITERALS_MAX: usize = 128;
/// What all compiled patterns together may take, in bytes.
const PATTERNS_BYTES_MAX: usize = 32 << 20;

/// Says what is wrong with an operator's rules.
pub(crate) fn check(loaded: &Loaded) -> Result<(), LoadError> {
    let (taken, is_frequent) = (builtin_ids()?, is_frequent());
    for (rule, text) in loaded.rules.iter().zip(&loaded.texts) {
        let fail = |reason| LoadError::Rule { file: text.file.clone(), rule: rule.id.clone(), reason };
        check_rule(rule, &taken, &is_frequent).map_err(fail)?;
    }
    let too_many = |what: &str, count: usize, max: usize| {
        let said = format!("{count} {what} are more than there may be ({max}); leave some out");
        if count > max { Err(LoadError::TooMuch(said)) } else { Ok(()) }
    };
    too_many("rules", loaded.rules.len(), RULES_MAX)?;
    too_many("allow rules", loaded.allow.len(), ALLOW_MAX)?;
    too_many("bytes of compiled patterns", loaded.pattern_bytes, PATTERNS_BYTES_MAX)
}

fn check_rule(rule: &Rule, taken: &BTreeSet<String>, is_frequent: impl Fn(&str) -> bool) -> Result<(), String> {
    check_id(&rule.id)?;
    if taken.contains(&rule.id) {
        return Err("`id` is that of a rule of this build (`weir rules list`); choose another one".to_owned());
    }
    if rule.scope & DISGUISED != 0 && rule.scope != u8::MAX {
        return Err("`scope`: `disguised` is for the rules of this build; name roles".to_owned());
    }
    if rule.literals.len() > LITERALS_MAX {
        let count = rule.literals.len();
        return Err(format!("`literals`: {count} are more than {LITERALS_MAX}; leave some out, or make two rules"));
    }
    match rule.literals.iter().find(|literal| is_frequent(literal)) {
        Some(common) => Err(format!(
            "`literals`: `{common}` stands in nearly every text, so that the pattern would be tried everywhere; name a \
             rarer word, of four bytes or more, that every match holds"
        )),
        None => Ok(()),
    }
}
