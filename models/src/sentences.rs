//! The sentences of an answer that can be held against something: questions, code and words too short to say anything are
//! left out.
//!
//! Invariants: linear in the text; ranges are in order, do not overlap and lie at character boundaries.

use std::ops::Range;

/// Fewest letters and digits of a sentence that says something.
const LETTERS_MIN: usize = 8;
/// What fenced code begins and ends with.
const FENCE: &str = "```";

/// The places of its statements, in order.
pub(crate) fn statements(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut is_code = false;
    let lines = text.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        Some((start, line))
    });
    let prose = lines.filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with(FENCE);
        is_code ^= is_fence;
        !is_fence && !is_code
    });
    prose.flat_map(|(start, line)| in_line(line).map(move |range| start + range.start..start + range.end))
}

fn in_line(line: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut next = 0;
    let ends = std::iter::from_fn(move || {
        let start = next;
        let rest = line.get(start..).filter(|rest| !rest.is_empty())?;
        let mut chars = rest.char_indices().peekable();
        let mut end = rest.len();
        while let Some((at, c)) = chars.next() {
            let after = chars.peek().map(|(_, c)| *c);
            let is_end = match c {
                '。' | '！' | '？' | '।' => true,
                // Not inside of a number or a name such as `example.com`.
                '.' | '!' | '?' => after.is_none_or(|after| after.is_whitespace() || "\"'”’)*".contains(after)),
                _ => false,
            };
            if is_end {
                end = at + c.len_utf8();
                break;
            }
        }
        next = start + end;
        Some(start..next)
    });
    ends.filter_map(move |range| trimmed(line, range))
}

/// Without blanks and the marks of lists and headings; nothing where it states nothing.
fn trimmed(line: &str, range: Range<usize>) -> Option<Range<usize>> {
    let words = line.get(range.clone())?;
    let bare = words.trim_start_matches(|c: char| c.is_whitespace() || "-*#>•\"'”’)".contains(c));
    let start = range.end - bare.len();
    let bare = bare.trim_end();
    let states = bare.chars().filter(|c| c.is_alphanumeric()).take(LETTERS_MIN).count() == LETTERS_MIN;
    // A character of these scripts says more than a letter.
    let states = states || bare.chars().filter(|c| *c as u32 >= 0x2E80).take(4).count() == 4;
    (states && !bare.ends_with(['?', '？', ':'])).then(|| start..start + bare.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hostile::{assert_linear, assert_linear_in};

    fn of(text: &str) -> Vec<&str> {
        statements(text).map(|range| &text[range]).collect()
    }

    #[test]
    fn statements_are_told_from_questions_code_and_short_words() {
        let text = "Sure! Anna was born in Hamburg. She pays 3.50 at example.com now. Is that so?\n\
                    - The train leaves at noon\n```sh\nrm -rf everything in here.\n```\n## Results of the test\nNote the following:\n";
        let expected = [
            "Anna was born in Hamburg.",
            "She pays 3.50 at example.com now.",
            "The train leaves at noon",
            "Results of the test",
        ];
        assert_eq!(of(text), expected);
        assert_eq!(of("汉堡是一座城市。火车今天取消了吗？"), ["汉堡是一座城市。"]);
        assert!(of("").is_empty() && of("OK. Yes.\n\n").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_has_ranges_in_order_at_characters(text in "\\PC{0,60}[.!?\n`]{0,4}\\PC{0,60}") {
            let mut reach = 0;
            for range in statements(&text) {
                prop_assert!(range.start >= reach && range.end > range.start);
                prop_assert!(text.get(range.clone()).is_some());
                reach = range.end;
            }
        }
    }

    #[test]
    fn any_answer_is_cut_in_time_in_proportion_to_its_length() {
        assert_linear("sentences", |text| {
            statements(text).count();
        });
        assert_linear_in(
            "sentences",
            ("", ""),
            |number| format!("> - {number} said so and no more. "),
            |text| {
                statements(text).count();
            },
        );
    }
}
