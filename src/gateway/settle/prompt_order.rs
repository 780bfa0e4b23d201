//! The order of a recorded prompt: what a body says to the model before the conversation (`system`, `instructions`) stands in front of
//! it, wherever the body has it. Most clients write it behind the messages.
//!
//! Invariants: each part keeps its words and its number, which findings know; a text that its parts do not divide by lines stays as it
//! is. In time linear in the text and the parts.

use std::ops::Range;

use weir_config::vocab::frame::Frame;
use weir_config::vocab::part::{PartForm, PartKind, PartRecord};

/// Puts instructions that stand in no message first.
pub(super) fn instructions_first(text: &mut String, parts: &mut [PartRecord], frame: Option<&mut Frame>) {
    let Some(moved) = moved(text, parts) else { return };
    let front: usize = moved.iter().map(|range| range.len() + 1).sum();
    let mut ordered = String::with_capacity(text.len());
    for range in &moved {
        ordered.push_str(text.get(range.clone()).unwrap_or_default());
        ordered.push('\n');
    }
    let mut from = 0;
    for range in &moved {
        ordered.push_str(text.get(from..range.start).unwrap_or_default());
        from = text.len().min(range.end + 1);
    }
    ordered.push_str(text.get(from..).unwrap_or_default());
    // The line break in front of what was the last line.
    ordered.truncate(text.len());
    let places = Places { moved, front };
    for range in parts.iter_mut().filter_map(|part| part.text.as_mut()) {
        places.shift(range);
    }
    if let Some(frame) = frame {
        frame.texts.iter_mut().for_each(|range| places.shift(range));
    }
    *text = ordered;
}

/// What is to stand first, in order; `None` where all of it does, or where it cannot be taken out by whole lines.
fn moved(text: &str, parts: &[PartRecord]) -> Option<Vec<Range<usize>>> {
    let stands = |part: &PartRecord| part.text.as_ref().map(|range| range.start as usize..range.end as usize);
    let leads =
        |part: &PartRecord| part.kind == PartKind::System && part.message.is_none() && part.form != PartForm::File;
    let first = parts.iter().filter(|part| !leads(part)).filter_map(stands).map(|range| range.start).min()?;
    let mut moved: Vec<Range<usize>> = parts.iter().filter(|part| leads(part)).filter_map(stands).collect();
    moved.sort_by_key(|range| range.start);
    let is_line = |range: &Range<usize>| {
        let begins = range.start == 0 || text.as_bytes().get(range.start - 1) == Some(&b'\n');
        begins && (range.end == text.len() || text.as_bytes().get(range.end) == Some(&b'\n'))
    };
    let apart = moved.windows(2).all(|pair| matches!(pair, [before, after] if before.end < after.start));
    // What overlaps with them would be torn.
    let whole = parts.iter().filter(|part| !leads(part)).filter_map(stands).all(|other| {
        let at = moved.partition_point(|range| range.end <= other.start);
        moved.get(at).is_none_or(|range| other.end <= range.start || other.is_empty())
    });
    let due = moved.last().is_some_and(|last| last.start > first);
    (due && apart && whole && moved.iter().all(is_line)).then_some(moved)
}

/// Where everything stands afterwards.
struct Places {
    moved: Vec<Range<usize>>,
    /// Bytes that stand in front now, with their line breaks.
    front: usize,
}

impl Places {
    fn shift(&self, range: &mut Range<u32>) {
        let (start, length) = (range.start as usize, range.end - range.start);
        let before = |range: &&Range<usize>| range.end <= start && !(range.start == start && length > 0);
        let passed: usize = self.moved.iter().take_while(before).map(|range| range.len() + 1).sum();
        let inside = self.moved.iter().find(|moved| moved.start <= start && start + length as usize <= moved.end);
        let at = match inside {
            Some(moved) => passed + (start - moved.start),
            None => self.front + start - passed,
        };
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        *range = at..at.saturating_add(length);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_config::vocab::part::PartSide;

    use super::*;

    fn part(kind: PartKind, message: Option<u32>, text: Range<usize>) -> PartRecord {
        PartRecord {
            side: PartSide::Request,
            kind,
            form: PartForm::Text,
            role: None,
            message,
            text: Some(text.start as u32..text.end as u32),
            raw: None,
            tool: None,
        }
    }

    /// A text of these lines, each a part: instructions where it says so, else a message.
    fn call(lines: &[(String, bool)]) -> (String, Vec<PartRecord>, Frame) {
        let (mut text, mut parts) = (String::new(), Vec::new());
        for (at, (line, leads)) in lines.iter().enumerate() {
            if at > 0 {
                text.push('\n');
            }
            let start = text.len();
            text.push_str(line);
            let (kind, message) = if *leads { (PartKind::System, None) } else { (PartKind::User, Some(at as u32)) };
            parts.push(part(kind, message, start..text.len()));
        }
        let texts = parts.iter().filter_map(|part| part.text.clone()).collect();
        (text, parts, Frame { json: String::new(), texts })
    }

    fn words(text: &str, range: &Range<u32>) -> String {
        text[range.start as usize..range.end as usize].to_owned()
    }

    #[test]
    fn instructions_behind_the_conversation_come_first() {
        let lines = [("hi", false), ("be kind", true), ("there", false), ("be short", true)];
        let lines = lines.map(|(line, leads)| (line.to_owned(), leads));
        let (mut text, mut parts, mut frame) = call(&lines);
        instructions_first(&mut text, &mut parts, Some(&mut frame));
        assert_eq!(text, "be kind\nbe short\nhi\nthere");
        let said: Vec<String> = parts.iter().map(|part| words(&text, part.text.as_ref().unwrap())).collect();
        assert_eq!(said, ["hi", "be kind", "there", "be short"], "each keeps its number and its words");
    }

    proptest! {
        #[test]
        fn every_part_keeps_its_words(lines in prop::collection::vec(("[a-zé]{0,4}", any::<bool>()), 0..8)) {
            let (before, parts, frame) = call(&lines);
            let (mut text, mut moved, mut of_frame) = (before.clone(), parts.clone(), frame.clone());
            instructions_first(&mut text, &mut moved, Some(&mut of_frame));
            prop_assert_eq!(text.len(), before.len());
            for ((one, other), framed) in parts.iter().zip(&moved).zip(&of_frame.texts) {
                let (one, other) = (one.text.as_ref().unwrap(), other.text.as_ref().unwrap());
                prop_assert_eq!(words(&before, one), words(&text, other));
                prop_assert_eq!(other, framed);
            }
            let first = moved.iter().filter(|part| part.kind != PartKind::System).map(|part| part.text.as_ref().unwrap().start).min();
            let last = moved.iter().filter(|part| part.kind == PartKind::System).map(|part| part.text.as_ref().unwrap().start).max();
            if let (Some(first), Some(last)) = (first, last) {
                prop_assert!(last <= first, "{text:?}");
            }
        }
    }
}
