//! Documents made to cost a lot end early.

use std::time::{Duration, Instant};

use crate::Bench;

/// Far above what refusing costs, far below what the unbounded work would.
const SOON: Duration = Duration::from_secs(20);

fn refusal(text: String) -> String {
    let begun = Instant::now();
    let errors = Bench::with_file(text).errors();
    assert!(begun.elapsed() < SOON, "took {:?}", begun.elapsed());
    errors.last().unwrap().clone()
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let one = format!("*a{}, ", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", one.repeat(10)));
    }
    let error = refusal(text);
    let limits = ["it unfolds to more than 100000 values", "repetition limit exceeded"];
    assert!(limits.iter().any(|limit| error.contains(limit)), "{error}");
}

#[test]
fn a_huge_file_is_refused() {
    assert_eq!(
        refusal("#".repeat((1 << 20) + 1)),
        "service.yaml: the configuration file cannot be read: larger than 1048576 bytes; correct the path given by \
         --config, or leave it out for the built-in defaults"
    );
}

#[test]
fn deep_nesting_is_refused() {
    assert!(refusal("[".repeat(1 << 20)).contains("more than 1000 brackets are open at once"));
    assert!(refusal(format!("a: {}x", "- ".repeat(500_000))).contains("cannot be read as YAML"));
    assert!(refusal(format!("a: {}1{}", "[".repeat(900), "]".repeat(900))).contains("recursion limit exceeded"));
}

#[test]
fn a_file_of_nothing_but_mistakes_is_refused_in_short() {
    let text: String = (0..40_000).map(|index| format!("key{index}: 1\n")).collect();
    assert_eq!(refusal(text), "and 39950 more");
}
