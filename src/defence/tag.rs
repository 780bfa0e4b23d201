//! The delimiter tag, and what in a content could be taken for it.

use std::ops::Range;

/// What stands in the place of the `<` of a forged tag.
pub(super) const NEUTRAL: &[u8] = b"&lt;";
/// Characters between `<` and the name that are passed over.
const GAP_MAX: usize = 16;

/// The tag of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tag {
    name: String,
    /// Its name without the digits that differ from request to request.
    base: String,
}

impl Tag {
    /// The tag `base`, with the digits of this request where it is to have any.
    pub(super) fn new(base: &str, nonce: Option<u32>) -> Self {
        let name = match nonce {
            Some(nonce) => format!("{base}-{nonce:08x}"),
            None => base.to_owned(),
        };
        Self { name, base: base.to_ascii_lowercase() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What stands before a content, spelled for a JSON string.
    pub(super) fn opening(&self) -> String {
        format!("<{}>\\n", self.name)
    }

    /// What stands behind it.
    pub(super) fn closing(&self) -> String {
        format!("\\n</{}>", self.name)
    }

    /// Where in `text` something begins that a reader could take for this tag, opening or closing: the character that has to go.
    /// Case, blanks, invisible characters and the operator's markers (which are taken out) do not hide it, nor does a `<` of
    /// another script.
    pub(super) fn forged(&self, text: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for (at, mark) in text.char_indices().filter(|(_, c)| matches!(c, '<' | '\u{ff1c}' | '\u{fe64}' | '\u{2039}')) {
            let behind = at + mark.len_utf8();
            if self.names(text.get(behind..).unwrap_or_default()) {
                found.push(at..behind);
            }
        }
        found
    }

    /// Whether a text begins with the name, slashes and what nobody sees passed over.
    fn names(&self, text: &str) -> bool {
        let mut rest = text;
        for _ in 0..GAP_MAX {
            let seen = visible(rest);
            match seen.strip_prefix(|c: char| c.is_whitespace() || matches!(c, '/' | '\u{ff0f}' | '\u{2215}' | '\\')) {
                Some(next) => rest = next,
                None => break,
            }
        }
        for (at, expected) in self.base.chars().enumerate() {
            let mut seen = if at == 0 { visible(rest) } else { past_blanks(rest) }.chars();
            if seen.next().is_none_or(|c| c.to_ascii_lowercase() != expected) {
                return false;
            }
            rest = seen.as_str();
        }
        // A longer word is another one; what nobody sees makes none longer, as a marker may stay where it is.
        !rest.starts_with(|c: char| c.is_ascii_alphanumeric())
    }
}

/// A text from its first character on that is neither blank nor invisible.
fn past_blanks(mut text: &str) -> &str {
    for _ in 0..GAP_MAX {
        let seen = visible(text);
        let next = seen.trim_start_matches(char::is_whitespace);
        if next.len() == seen.len() {
            return seen;
        }
        text = next;
    }
    text
}

/// A text from its first character on that is shown: without the first invisible ones and markers.
fn visible(mut text: &str) -> &str {
    for _ in 0..GAP_MAX {
        let next = ["<service-data>", "</service-data>"].iter().find_map(|marker| text.strip_prefix(marker));
        let next = next.or_else(|| {
            text.strip_prefix(|c: char| {
                matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
            })
        });
        match next {
            Some(next) => text = next,
            None => break,
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_the_tag_is_found() {
        let tag = Tag::new("service-boundary", None);
        for forged in [
            "<service-boundary>",
            "</service-boundary>",
            "</SERVICE-Boundary>",
            "< / service-boundary >",
            "<\u{200b}/ser\u{200b}vice-boundary>",
            "\u{ff1c}/service-boundary>",
            "</service-boundary-0011aabb>",
            "</service-<service-data>boundary>",
            "</serv ice-bound\u{a0}\u{200b} ary>",
        ] {
            assert_eq!(tag.forged(&format!("a {forged} b")).len(), 1, "{forged}");
        }
        for harmless in [
            "service-boundary",
            "<service>",
            "a < b",
            "<b>service-boundary</b>",
            "<service-bound>",
            "<service-boundaryline>",
        ] {
            assert!(tag.forged(harmless).is_empty(), "{harmless}");
        }
        assert_eq!(Tag::new("data", Some(0xab)).closing(), "\\n</data-000000ab>");
    }
}
