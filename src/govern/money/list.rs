//! The built-in price list: sorted text in the binary, searched by bisection.
//!
//! Nothing is parsed or allocated at start, and a search is made once per model and thread (see `book`). Invariant: rows
//! are sorted by the bytes of their names, which the script that makes the file and a test see to.

use weir_config::prices::Price;

/// Made by `config/prices/build.py`, which says where the figures come from.
const TEXT: &str = include_str!("../../../config/prices/builtin.tsv");
/// Rows looked at to find the newest dated name of a model.
const DATED_MAX: usize = 64;

/// The rows: everything behind the comment lines.
fn rows() -> &'static str {
    let mut rest = TEXT;
    while rest.starts_with('#') {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest
}

/// The price of exactly this name (lower case).
pub(super) fn find(name: &str) -> Option<Price> {
    let row = from(name).next()?;
    (name_of(row) == name).then(|| price_of(row)).flatten()
}

/// The price of the newest dated form of this name: `m-20250929` or `m-2025-09-29` for `m`.
pub(super) fn find_dated(name: &str) -> Option<Price> {
    let dated =
        |row: &&str| name_of(row).strip_prefix(name).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_date);
    let begins = |row: &&str| name_of(row).starts_with(name);
    from(name).take_while(begins).take(DATED_MAX).filter(dated).last().and_then(price_of)
}

/// `20250929` or `2025-09-29`.
pub(super) fn is_date(text: &str) -> bool {
    let shape = |pattern: &str| {
        text.len() == pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(byte, form)| match form {
                b'0' => byte.is_ascii_digit(),
                _ => byte == form,
            })
    };
    (shape("00000000") || shape("0000-00-00")) && (text.starts_with("20") || text.starts_with("19"))
}

/// The rows from the first whose name is not below `name`.
fn from(name: &str) -> impl Iterator<Item = &'static str> {
    let text = rows();
    let (mut low, mut high) = (0, text.len());
    // `low` and `high` always stand at the beginning of a row.
    while low < high {
        let middle = low + (high - low) / 2;
        let start = text.as_bytes().get(..middle).and_then(|head| memchr::memrchr(b'\n', head)).map_or(0, |at| at + 1);
        let start = start.max(low);
        let row = text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        if name_of(row).as_bytes() < name.as_bytes() {
            low = start + row.len() + 1;
        } else {
            high = start;
        }
    }
    text.get(low..).unwrap_or_default().lines()
}

fn name_of(row: &str) -> &str {
    row.split('\t').next().unwrap_or_default()
}

fn price_of(row: &'static str) -> Option<Price> {
    Price::from_columns(row.splitn(3, '\t').nth(2)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_is_sorted_and_has_a_price() {
        let names: Vec<&str> = rows().lines().map(name_of).collect();
        assert!(names.windows(2).all(|pair| pair[0].as_bytes() < pair[1].as_bytes()));
        for row in rows().lines() {
            let price = price_of(row).unwrap_or_else(|| panic!("{row}"));
            let by_else = price.tokens_unpriced && price.media != weir_config::prices::MediaRates::default();
            assert!(price.input > 0 || price.output > 0 || by_else, "{row}");
            assert_eq!(find(name_of(row)), Some(price), "{row}");
            assert_eq!(name_of(row).to_lowercase(), name_of(row));
        }
    }

    #[test]
    fn covers_the_public_models_of_the_known_providers() {
        let mut by_provider = std::collections::BTreeMap::new();
        for row in rows().lines() {
            *by_provider.entry(row.split('\t').nth(1).unwrap_or_default()).or_insert(0) += 1;
        }
        let known: BTreeSet<_> = by_provider.iter().filter(|(_, rows)| **rows >= 5).map(|(name, _)| *name).collect();
        for provider in ["anthropic", "azure", "bedrock", "cohere", "deepseek", "google", "mistral", "openai", "xai"] {
            assert!(known.contains(provider), "{provider}: {by_provider:?}");
        }
        assert!(rows().lines().count() >= 1_000);
        let with_cache = rows().lines().filter(|row| price_of(row).is_some_and(|price| price.cache_read.is_some()));
        assert!(with_cache.count() >= 300);
    }

    #[test]
    fn the_file_says_where_and_when_its_figures_are_from() {
        let comment = TEXT.lines().next().unwrap_or_default();
        assert!(comment.contains("Source: ") && comment.contains("2026-11-21"), "{comment}");
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        for name in ["", "gpt", "gpt-4o-", "zzzz", "~", "gpt-4o-mini-9"] {
            assert_eq!(find(name), None, "{name}");
        }
    }

    #[test]
    fn dates_are_told_from_versions() {
        for date in ["20250929", "2025-09-29"] {
            assert!(is_date(date), "{date}");
        }
        for other in ["0613", "2025-9-29", "202509291", "mini", "30250929", "2025_09_29", ""] {
            assert!(!is_date(other), "{other}");
        }
    }
}
