//! What stands where prompts part, by examples.

use super::place::stands;
use super::*;

#[test]
fn what_stands_where_prompts_part_is_told() {
    let told = |text: &str, byte| stands(text, byte);
    assert_eq!(told("Today's date: 2026-11-28. Work in small steps.", 16), Some(Stands::Date));
    assert_eq!(told("It is Saturday, November 28, 2026 where you are.", 16), Some(Stands::Date));
    assert_eq!(told("The time is 14:03:22 for the user.", 0), Some(Stands::Time));
    assert_eq!(told("Session 7d1f0c1e-4a2b-4000-8000-00000000002a, do as told.", 0), Some(Stands::Id));
    assert_eq!(told("You have 17 calls left.", 0), Some(Stands::Number));
    assert_eq!(told("You are a careful assistant who writes tests.", 16), None);
    assert_eq!(told("", 0), None);
    assert_eq!(told("ü", 1), None);
}
