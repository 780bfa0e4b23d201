//! Personal data in a request's body, and what is put in its place before the body is forwarded (`pii.action`).
//!
//! Invariants: the texts are those that are scanned and stored; a credential for the provider stays; the body stays valid JSON,
//! and so does JSON that is a string of it; the work is linear in the body, and ends with its deadline.

use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use weir_config::vocab::Finding;
use weir_inference::{PartKind, Personal, personal_data_by};

use super::marks::{Mark, is_name, joined, name_tag};
use super::seam::personal_across;
use crate::inspect::{RequestView, Spelling, TextPart, percent_encoded};
use crate::json::{Event, Walker};
use crate::rewrite::Changes;

/// What to put in the place of the personal data in `body`, which `view` was read from; `None` for `body` where the view was
/// read from something else than the bytes that are forwarded. Of `findings`, names are personal data, too.
pub(crate) fn redaction(
    view: &RequestView,
    body: Option<&[u8]>,
    findings: &[Finding],
    deadline: Option<Instant>,
) -> Changes {
    let mut changes = Changes::default();
    let mut spotter = body.map(|body| view.spotter(body));
    let mut files = Files { view, current: None };
    let text_of = |part: &TextPart| view.text.get(part.range.clone());
    let Some(across) = personal_across(&view.parts, text_of, deadline) else {
        return Changes { is_late: true, ..changes };
    };
    let mut across = across.into_iter().peekable();
    for (number, part) in view.parts.iter().enumerate().filter(|(_, part)| !part.is_credential()) {
        let text = view.text.get(part.range.clone()).unwrap_or_default();
        let is_json = is_json(part, text);
        let Some(all) = personal_data_by(text, part.kind, deadline) else {
            changes.is_late = true;
            break;
        };
        let cut = std::iter::from_fn(|| across.next_if(|(part, _)| *part <= number));
        let cut = cut.filter(|(part, _)| *part == number).map(|(_, mark)| mark).collect();
        for Mark { range, with } in with_others(all, text, number, findings, cut) {
            changes.personal += 1;
            let whole = part.range.start + range.start..part.range.start + range.end;
            let quoted = (is_json && is_bare_value(text, &range)).then(|| format!("\"{with}\""));
            let replaced = (number, range, quoted.clone().unwrap_or_else(|| with.to_owned()));
            if body.is_some() && files.take(&whole, &replaced.2, &mut changes) {
                changes.replaced.push(replaced);
                continue;
            }
            let spots = spotter.as_mut().and_then(|spotter| spotter.spots(whole)).filter(|spots| !spots.is_empty());
            let Some(spots) = spots else {
                changes.unplaced += 1;
                continue;
            };
            changes.replaced.push(replaced);
            let mut left = true;
            for spot in spots {
                // Of several strings that spell one piece the first gets the tag.
                let with = match (std::mem::take(&mut left), &quoted) {
                    (true, Some(quoted)) => in_spelling(quoted, spot.spelling),
                    (true, None) => plain_in_spelling(with, spot.spelling),
                    (false, _) => Bytes::new(),
                };
                changes.list.push((spot.raw, with));
            }
        }
    }
    files.put(&mut changes);
    if let Some(body) = body.filter(|_| view.unreadable.is_none() && !changes.is_late) {
        numbers(body, deadline, &mut changes);
    }
    changes
}

/// Numbers of a JSON body that are long enough for one.
const DIGITS_MIN: usize = 12;
/// Members whose numbers are the interface's own.
const PARAMETERS: [&str; 5] = ["seed", "created", "created_at", "timestamp", "expires_at"];

/// Adds the numbers of a JSON body that are personal data by themselves: they become strings.
fn numbers(body: &[u8], deadline: Option<Instant>, changes: &mut Changes) {
    if !matches!(body.trim_ascii_start().first(), Some(b'{' | b'[')) {
        return;
    }
    let Ok(mut walker) = Walker::new(body) else { return };
    let (mut key, mut found) = ("", false);
    while let Ok(Some(event)) = walker.next_event() {
        match event {
            Event::Key(name) => key = name.raw(),
            Event::Number(spelled) if spelled.len() >= DIGITS_MIN && !PARAMETERS.contains(&key) => {
                let Some(personal) = personal_data_by(spelled, PartKind::Tool, deadline) else {
                    changes.is_late = true;
                    return;
                };
                let Some(one) = personal.first() else { continue };
                let start = spelled.as_ptr().addr() - body.as_ptr().addr();
                changes.personal += 1;
                changes.list.push((start..start + spelled.len(), Bytes::from(format!("\"{}\"", one.tag()))));
                found = true;
            }
            _ => {}
        }
    }
    if found {
        changes.list.sort_by_key(|(range, _)| range.start);
    }
}

/// The personal data of a part, together with the names that were found in it and its pieces of what its message has cut.
fn with_others(personal: Vec<Personal>, text: &str, part: usize, findings: &[Finding], cut: Vec<Mark>) -> Vec<Mark> {
    let mut marks: Vec<Mark> =
        personal.into_iter().map(|found| Mark { range: found.range(), with: found.tag() }).collect();
    let is_cut = !cut.is_empty();
    marks.extend(cut);
    let own =
        |finding: &&Finding| is_name(finding) && finding.part.and_then(|at| usize::try_from(at).ok()) == Some(part);
    let mut names = findings.iter().filter(own).peekable();
    if names.peek().is_none() {
        return if is_cut { joined(marks) } else { marks };
    }
    marks.extend(names.filter_map(|finding| {
        let range = finding.span.map(|span| span.start..span.end)?;
        text.get(range.clone()).filter(|words| !words.is_empty())?;
        Some(Mark { range, with: name_tag(finding) })
    }));
    joined(marks)
}

/// A tag in quotes as it has to be written at a place.
fn in_spelling(tag: &str, spelling: Spelling) -> Bytes {
    Bytes::from(match spelling {
        Spelling::Json { .. } | Spelling::Quoted => tag.replace('"', "\\\""),
        Spelling::Percent => percent_encoded(tag),
        Spelling::Plain => tag.to_owned(),
    })
}

/// A tag as it has to be written at a place: of a text that is full of them most are no memory of their own.
fn plain_in_spelling(tag: &'static str, spelling: Spelling) -> Bytes {
    match spelling {
        Spelling::Percent => Bytes::from(percent_encoded(tag)),
        _ => Bytes::from_static(tag.as_bytes()),
    }
}

/// Files in base64, of which one is being put together without its personal data: a file is spelled anew as a whole.
struct Files<'a> {
    view: &'a RequestView,
    current: Option<File>,
}

struct File {
    number: usize,
    place: Range<usize>,
    /// Its text up to `done`.
    text: String,
    done: usize,
}

impl Files<'_> {
    /// Takes a piece out of the file it stands in; false where that is none. Pieces come in order.
    fn take(&mut self, piece: &Range<usize>, with: &str, changes: &mut Changes) -> bool {
        let found = self.view.file_at(piece);
        if self.current.as_ref().is_some_and(|file| found.as_ref().is_none_or(|(number, _)| *number != file.number)) {
            self.put(changes);
        }
        let Some((number, place)) = found else { return false };
        let fresh =
            |place: Range<usize>| File { number, done: place.start, text: String::with_capacity(place.len()), place };
        let file = self.current.get_or_insert_with(|| fresh(place));
        file.text.push_str(self.view.text.get(file.done..piece.start).unwrap_or_default());
        file.text.push_str(with);
        file.done = piece.end;
        true
    }

    /// Adds the change of the file that is being put together.
    fn put(&mut self, changes: &mut Changes) {
        let Some(mut file) = self.current.take() else { return };
        file.text.push_str(self.view.text.get(file.done..file.place.end).unwrap_or_default());
        if let Some((raw, coded)) = self.view.recoded(file.number, &file.text) {
            changes.list.push((raw, Bytes::from(coded)));
        }
    }
}

/// Whether the part is JSON that stands in a string, as the arguments of a tool call do. Asked once for a part: strangers may put
/// any number of blanks in front of it.
fn is_json(part: &TextPart, text: &str) -> bool {
    matches!(part.kind, PartKind::ToolCall | PartKind::Tool) && text.trim_start().starts_with(['{', '['])
}

/// Whether the piece is a bare number of that JSON: it becomes a string.
fn is_bare_value(text: &str, piece: &Range<usize>) -> bool {
    let before = text.get(..piece.start).unwrap_or_default().trim_end();
    let after = text.get(piece.end..).unwrap_or_default().trim_start();
    before.ends_with([':', ',', '[']) && after.starts_with([',', '}', ']'])
}

#[cfg(test)]
mod fences;
#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use weir_config::vocab::Dialect;
    use weir_inference::personal_data;

    use super::*;
    use crate::effort::superlinear;
    use crate::inspect::{Declared, read_request};
    use crate::rewrite::Edits;

    fn redacted(body: &str) -> (String, usize) {
        let body = Bytes::from(body.to_owned());
        let view = read_request(Dialect::ChatCompletions, Declared::default(), &body, usize::MAX);
        let mut edits = Edits::of(&body);
        let left = redaction(&view, Some(&body), &[], None).put(&mut edits);
        (String::from_utf8(edits.apply().to_vec()).unwrap(), left)
    }

    #[test]
    fn every_other_byte_stays() {
        let body = "{ \"temperature\":1.0e0,\n\"messages\" :[{\"content\":\"\\u0061nna@example.com\\/\\u00e9 and \
                    bob@example.com\",\"role\":\"user\"} ] , \"seed\": 12.50 }";
        let expected = "{ \"temperature\":1.0e0,\n\"messages\" :[{\"content\":\"[PII:EMAIL]\\/\\u00e9 and \
                        [PII:EMAIL]\",\"role\":\"user\"} ] , \"seed\": 12.50 }";
        assert_eq!(redacted(body), (expected.to_owned(), 0));
    }

    #[test]
    fn the_arguments_of_a_tool_call_stay_json() {
        let arguments = "{\"card\": 4111111111111111, \"to\": \"anna@example.com\", \"cards\":[4111111111111111]}";
        let call = json!({"id": "c", "type": "function", "function": {"name": "pay", "arguments": arguments}});
        let body = json!({"messages": [{"role": "assistant", "tool_calls": [call]}]}).to_string();
        let after: Value = serde_json::from_str(&redacted(&body).0).unwrap();
        let after = after["messages"][0]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        let after: Value = serde_json::from_str(after).unwrap();
        let card = "[PII:CREDIT_CARD]";
        assert_eq!(after, json!({"card": card, "to": "[PII:EMAIL]", "cards": [card]}));
    }

    #[test]
    fn each_of_a_key_that_stands_twice_is_redacted() {
        let body = r#"{"messages":[{"content":"a@example.com","content":"b@example.com"}],"n":1,"messages":[{"content":"c@example.com"}]}"#;
        let expected = ["a", "b", "c"]
            .iter()
            .fold(body.to_owned(), |body, name| body.replace(&format!("{name}@example.com"), "[PII:EMAIL]"));
        assert_eq!(redacted(body), (expected, 0));
    }

    #[test]
    fn what_has_no_place_in_the_body_is_counted() {
        let view = read_request(Dialect::ChatCompletions, Declared::default(), b"{\"prompt\":\"a@example.com\"}", 99);
        assert_eq!(redaction(&view, None, &[], None), Changes { personal: 1, unplaced: 1, ..Changes::default() });
    }

    #[test]
    fn it_ends_with_its_deadline_and_says_so() {
        let body = Bytes::from(json!({"messages": [{"role": "user", "content": "a@example.com"}]}).to_string());
        let view = read_request(Dialect::ChatCompletions, Declared::default(), &body, usize::MAX);
        let changes = redaction(&view, Some(&body), &[], Some(Instant::now()));
        assert_eq!(changes, Changes { is_late: true, ..Changes::default() });
    }

    /// Whoever has it held up switches analysis off for everybody else.
    #[test]
    fn any_number_of_pieces_takes_time_in_proportion_to_the_text() {
        for (role, before, piece) in [
            ("user", "", "a@example.com\n"),
            // Escaped somewhere, and nowhere near the pieces.
            ("user", "\n", "a@example.com "),
            ("tool", " ", "a@example.com "),
            ("tool", "[ ", "4111111111111111, "),
        ] {
            let body = |length: usize| {
                let blanks = if role == "tool" { before.repeat(length) } else { before.to_owned() };
                let said = [blanks, piece.repeat(length / piece.len())].concat();
                json!({"messages": [{"role": role, "content": said}]}).to_string()
            };
            let pieces = |body: &str| redacted(body).0.matches("[PII:").count();
            assert_eq!(pieces(&body(1_400)), 1_400 / piece.len(), "{role}: {before:?}{piece:?}");
            let found = superlinear(body, |body| drop(redacted(body)));
            assert_eq!(found, None, "{role}: {before:?}{piece:?}");
        }
    }

    proptest! {
        /// The same as taking it out of the texts themselves; once more changes nothing.
        #[test]
        fn json_says_the_same_without_the_personal_data(texts in proptest::collection::vec(
            proptest::collection::vec(prop::sample::select(vec![
                "a@example.com", "4111 1111 1111 1111", "\"", "\\", "\n", "é", "\u{1f600}", " word ", "ssn 219-09-9999",
            ]), 0..8), 1..5),
        ) {
            let said = |texts: &[String]| {
                let turns: Vec<_> = texts.iter().map(|text| json!({"role": "user", "content": text})).collect();
                json!({"messages": turns, "n": 1})
            };
            let texts: Vec<String> = texts.iter().map(|words| words.concat()).collect();
            let without: Vec<String> = texts.iter().map(|text| {
                let mut out = text.clone();
                for found in personal_data(text, PartKind::User).iter().rev() {
                    out.replace_range(found.range(), found.tag());
                }
                out
            }).collect();
            let (once, left) = redacted(&said(&texts).to_string());
            prop_assert_eq!(left, 0);
            prop_assert_eq!(serde_json::from_str::<Value>(&once).unwrap(), said(&without));
            prop_assert_eq!(redacted(&once).0, once);
        }
    }
}
