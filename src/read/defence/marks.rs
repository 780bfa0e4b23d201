//! Datamarking: white space in data becomes a marker, so that a model can tell every word of it from an order.

use std::ops::Range;

use bytes::Bytes;
use weir_config::settings::{Datamarking, MARKERS, MarkerKind};

/// Code points a marker is chosen from.
const MARKER_COUNT: u32 = 0xf8ff - 0xe000 + 1;
/// Choices that are tried before one is taken that stands in the text already.
const TRIES: u32 = 8;

/// The marker of one request: the fixed one, or one that `seed` chooses and `text` does not hold.
pub(super) fn marker(settings: &Datamarking, seed: u32, text: &str) -> char {
    let at =
        |number: u32| char::from_u32(u32::from(*MARKERS.start()) + number % MARKER_COUNT).unwrap_or(*MARKERS.start());
    if let (MarkerKind::Fixed, Some(fixed)) = (settings.kind, settings.value) {
        return fixed;
    }
    // The step has no divisor in common with the count, so that no choice comes twice.
    let mut choices = (0..TRIES).map(|step| at(seed.wrapping_add(step.wrapping_mul(1009))));
    choices.find(|choice| !text.contains(*choice)).unwrap_or_else(|| at(seed))
}

/// White space in a text.
pub(super) fn count(text: &str) -> usize {
    text.chars().filter(|c| c.is_whitespace()).count()
}

/// `raw`, which stands at `at` in the body and is spelled for a JSON string, with a marker for each white space. What stands in
/// `cuts` is replaced as they say, and not marked. Gives back how many marks were made.
pub(super) fn marked(raw: &str, at: usize, cuts: &[(Range<usize>, Bytes)], marker: char, out: &mut Vec<u8>) -> usize {
    let (mut marks, mut done) = (0, 0);
    for (range, with) in cuts {
        let (start, end) = (range.start.saturating_sub(at), range.end.saturating_sub(at));
        marks += mark(raw.get(done..start).unwrap_or_default(), marker, out);
        out.extend_from_slice(with);
        done = end;
    }
    marks + mark(raw.get(done..).unwrap_or_default(), marker, out)
}

fn mark(raw: &str, marker: char, out: &mut Vec<u8>) -> usize {
    let mut spelled = [0; 4];
    let spelled = marker.encode_utf8(&mut spelled).as_bytes();
    let (mut marks, mut rest) = (0, raw);
    while let Some(first) = rest.chars().next() {
        let (is_white, length) = match first {
            '\\' => escape(rest),
            c => (c.is_whitespace(), c.len_utf8()),
        };
        let (here, next) = rest.split_at_checked(length).unwrap_or((rest, ""));
        if is_white {
            marks += 1;
            out.extend_from_slice(spelled);
        } else {
            out.extend_from_slice(here.as_bytes());
        }
        rest = next;
    }
    marks
}

/// Whether the escape at the beginning of `rest` spells white space, and how long it is (RFC 8259 section 7).
fn escape(rest: &str) -> (bool, usize) {
    match rest.as_bytes().get(1) {
        Some(b'n' | b't' | b'r' | b'f') => (true, 2),
        Some(b'u') => {
            let unit = rest.get(2..6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
            // Halves of a pair are no white space.
            (unit.and_then(char::from_u32).is_some_and(char::is_whitespace), 6)
        }
        _ => (false, 2),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_config::settings::BoundaryDefense;

    use super::*;

    #[test]
    fn a_random_marker_is_one_that_the_text_does_not_hold() {
        let settings = BoundaryDefense::default().datamarking;
        let chosen = marker(&settings, 5, "plain");
        assert!(MARKERS.contains(&chosen));
        let other = marker(&settings, 5, &format!("a{chosen}b"));
        assert!(MARKERS.contains(&other) && other != chosen);
        let fixed = Datamarking { kind: MarkerKind::Fixed, value: Some('\u{e0f0}'), ..settings };
        assert_eq!(marker(&fixed, 5, "\u{e0f0}"), '\u{e0f0}');
    }

    #[test]
    fn what_is_cut_is_not_marked() {
        let cuts = [(12..15, Bytes::from_static(b"[X Y]"))];
        let mut out = Vec::new();
        // The cut takes ` b ` out, whose blanks are not counted.
        assert_eq!(marked("a b c\\n\\u00a0d e", 11, &cuts, '.', &mut out), 3);
        assert_eq!(String::from_utf8(out).unwrap(), "a[X Y]c..d.e");
    }

    proptest! {
        /// The same as marking the text itself, however it is spelled; a second time nothing is left to mark.
        #[test]
        fn a_marked_string_says_the_marked_text(text in "[a\"\\\\ \n\t\r\u{a0}\u{2028}\u{3000}\u{e9}\u{1f600}]{0,24}", ascii in any::<bool>()) {
            let mut raw = serde_json::to_string(&text).unwrap();
            if ascii {
                raw = raw.chars().map(|c| match c {
                    c if c.is_ascii() => c.to_string(),
                    c => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
                }).collect();
            }
            let mut out = vec![b'"'];
            let marks = marked(&raw[1..raw.len() - 1], 0, &[], '\u{e0f0}', &mut out);
            out.push(b'"');
            let said: String = serde_json::from_slice(&out).unwrap();
            let expected: String = text.chars().map(|c| if c.is_whitespace() { '\u{e0f0}' } else { c }).collect();
            prop_assert_eq!(&said, &expected);
            prop_assert_eq!(marks, count(&text));
            prop_assert_eq!(count(&said), 0);
        }
    }
}
