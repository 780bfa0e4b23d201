//! Tests that need a tool, a right or a device which not every machine has. Shared by the black-box tests and the store's.

/// Passes a test over that needs `tool`, if `WEIR_TESTS_WITHOUT` (a list with commas) names it; fails the test otherwise.
#[track_caller]
pub(crate) fn do_without(tool: &str, because: &str) {
    let without = std::env::var("WEIR_TESTS_WITHOUT").unwrap_or_default();
    assert!(
        without.split(',').any(|name| name.trim() == tool),
        "this test needs `{tool}`: {because}. Where that cannot be had, set WEIR_TESTS_WITHOUT={tool} to leave such tests out"
    );
    eprintln!("left out, because WEIR_TESTS_WITHOUT names `{tool}`: {because}");
}
