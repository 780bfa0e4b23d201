//! Strangers' words in what channels are told: cut to the receiver's limits, and written so that they hold no marks.

/// The first `characters` of `text`.
pub(super) fn cut(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// Without control characters and without marks that turn the direction of writing.
pub(super) fn visible(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
    };
    text.chars().map(|c| if hidden(c) { ' ' } else { c }).collect()
}

/// For the inside of a code span in Slack's marks: `&`, `<` and `>` escaped, so that no mention and no link begins, and no
/// backtick, which would end it. The result has at most 2,000 characters for 400.
pub(super) fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '`' => out.push('\''),
            c => out.push(c),
        }
    }
    out
}
