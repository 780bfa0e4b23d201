//! Rules of an operator that tell small letters from capital ones in one part, and those that do not.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use weir_inference::RuleBook;

fn matched(pattern: &str, text: &str) -> Vec<String> {
    let rule = format!(
        "rules:\n  - id: of-ours\n    type: prompt_injection\n    severity: Low\n    about: Ours\n    literals: [badge]\n    \
         pattern: '{pattern}'\n    hits: ['badge A7 of ours']\n    misses: ['a badge']\n"
    );
    let book = RuleBook::operator(&[("ours.yaml".to_owned(), rule)]).unwrap();
    book.matches(text, None).into_iter().map(|found| text[found.start..found.end].to_owned()).collect()
}

#[test]
fn case_counts_where_a_pattern_says_so() {
    assert_eq!(matched("badge (?-i:[A-Z]\\d) of ours", "the BADGE A7 of Ours"), ["BADGE A7 of Ours"]);
    assert!(matched("badge (?-i:[A-Z]\\d) of ours", "the BADGE a7 of Ours").is_empty());
    assert_eq!(matched("badge [A-Z]\\d of ours", "the BADGE a7 of Ours"), ["BADGE a7 of Ours"]);
    assert_eq!(matched("\\bbadge (?:A7|A7B?) of ours$", "the BADGE a7b of Ours"), ["BADGE a7b of Ours"]);
    assert!(matched("\\bbadge A7 of ours$", "XBADGE A7 of ours and more").is_empty());
}
