//! Texts made to be dear, for whatever reads what strangers write: each is given to a reader in two lengths, the second four times the
//! first ([`super::effort`]).

use super::effort::{superlinear, superlinear_from};
use super::texts::{families, hostile};

/// What stands before a list, what behind it, and its items by their numbers.
pub(crate) type Listed = (&'static str, &'static str, fn(usize) -> String);

/// Does `work` with every hostile text.
#[track_caller]
pub(crate) fn assert_linear(name: &str, mut work: impl FnMut(&str)) {
    let seen = families().filter_map(|(family, shown)| {
        let found = superlinear(|length| hostile(family, length), |text| work(text))?;
        Some(format!("{name}, {shown:?}: {found}"))
    });
    let seen: Vec<String> = seen.collect();
    assert!(seen.is_empty(), "{}", seen.join("\n"));
}

/// Does `work` with what `unit` says for each number, one after the other between `before` and `after`.
#[track_caller]
pub(crate) fn assert_linear_in(
    name: &str,
    (before, after): (&str, &str),
    unit: impl Fn(usize) -> String,
    mut work: impl FnMut(&str),
) {
    let text = |length: usize| {
        let mut text = before.to_owned();
        for number in 0.. {
            if text.len() >= length {
                break;
            }
            text.push_str(&unit(number));
        }
        text.push_str(after);
        text
    };
    // An answer's calls and texts stand in tables of 512 entries.
    let found = superlinear_from(64 << 10, text, |text| work(text));
    assert_eq!(found, None, "{name}, {:?}", unit(7));
}
