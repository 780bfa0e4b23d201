//! Where the system prompt of a request begins, so that a reminder can be put in front of it.
//!
//! One walk over the top level of the body and the first message. A key that stands there more than once is served at each of
//! its places: which one a provider believes nobody here knows.

use bytes::Bytes;
use serde_json::json;

use crate::json::{Event, JsonError, Walker};

/// How a request names its messages and its system prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Chat completions, and the chats of local servers: the system prompt is a message.
    Chat,
    /// Messages: the system prompt is a field of the body.
    Messages,
}

/// A place for the reminder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// Offset in the body.
    pub(super) at: usize,
    form: Form,
}

/// What has to be written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The beginning of a string.
    Words,
    /// A message of its own; `true` when others follow.
    Message(bool),
    /// A field of the body; `true` when others follow.
    Field(bool),
    /// A block of text; `true` when others follow.
    Block(bool),
}

impl Place {
    /// The reminder as it is spelled there.
    pub(super) fn spelled(&self, reminder: &str) -> Bytes {
        let (text, more) = match self.form {
            Form::Words => (escaped(&format!("{reminder}\n\n")), false),
            Form::Message(more) => (json!({"role": "system", "content": reminder}).to_string(), more),
            Form::Field(more) => (format!("\"system\":{}", json!(reminder)), more),
            Form::Block(more) => (json!({"type": "text", "text": reminder}).to_string(), more),
        };
        Bytes::from(if more { text + "," } else { text })
    }
}

/// A text as it stands between the quotes of a JSON string.
fn escaped(text: &str) -> String {
    let quoted = json!(text).to_string();
    quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
}

/// The places for a reminder in `body`.
///
/// # Errors
/// The body is no JSON.
pub(super) fn places(body: &[u8], shape: Shape) -> Result<Vec<Place>, JsonError> {
    let mut walker = Walker::new(body)?;
    let mut places = Vec::new();
    let Some(Event::ObjectStart) = walker.next_event()? else { return Ok(places) };
    let (begin, mut is_empty) = (walker.span().end, true);
    while let Some(Event::Key(key)) = walker.next_event()? {
        is_empty = false;
        let key = key.decode();
        let wanted = if shape == Shape::Messages { "system" } else { "messages" };
        let ahead = (key == wanted).then(|| walker.clone());
        walker.next_raw()?;
        match ahead {
            Some(mut ahead) if shape == Shape::Messages => text_at(&mut ahead, true, &mut places)?,
            Some(mut ahead) => first_message(&mut ahead, &mut places)?,
            None => {}
        }
    }
    if places.is_empty() && shape == Shape::Messages {
        places.push(Place { at: begin, form: Form::Field(!is_empty) });
    }
    Ok(places)
}

/// Of a value that is a string its beginning; of an array of blocks that of the first block's text, or a block of its own where
/// `may_add` allows.
fn text_at(walker: &mut Walker<'_>, may_add: bool, places: &mut Vec<Place>) -> Result<(), JsonError> {
    match walker.next_event()? {
        Some(Event::Str(text)) => places.push(Place { at: text.start(), form: Form::Words }),
        Some(Event::ArrayStart) => {
            let (at, before) = (walker.span().end, places.len());
            let first = walker.next_event()?;
            if first == Some(Event::ObjectStart) {
                while let Some(Event::Key(key)) = walker.next_event()? {
                    let is_text = key.decode() == "text";
                    let value = walker.next_raw()?;
                    if let Some(text) = value.filter(|_| is_text).and_then(|value| walker.string_of(value)) {
                        places.push(Place { at: text.start(), form: Form::Words });
                    }
                }
            }
            if places.len() == before && may_add {
                places.push(Place { at, form: Form::Block(first != Some(Event::ArrayEnd)) });
            }
        }
        _ => {}
    }
    Ok(())
}

/// The beginning of the first message where that is the system prompt, else the place before it.
fn first_message(walker: &mut Walker<'_>, places: &mut Vec<Place>) -> Result<(), JsonError> {
    let Some(Event::ArrayStart) = walker.next_event()? else { return Ok(()) };
    let at = walker.span().end;
    let first = walker.next_event()?;
    let (mut is_system, mut found) = (false, Vec::new());
    if first == Some(Event::ObjectStart) {
        while let Some(Event::Key(key)) = walker.next_event()? {
            let key = key.decode();
            let mut ahead = walker.clone();
            let value = walker.next_raw()?;
            match &*key {
                "role" => {
                    let role = value.and_then(|value| walker.string_of(value)).map(|role| role.decode());
                    is_system = role.is_some_and(|role| role == "system" || role == "developer");
                }
                "content" => text_at(&mut ahead, false, &mut found)?,
                _ => {}
            }
        }
    }
    if is_system && !found.is_empty() {
        places.append(&mut found);
    } else {
        places.push(Place { at, form: Form::Message(first != Some(Event::ArrayEnd)) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::rewrite::Edits;

    fn reminded(body: &str, shape: Shape) -> String {
        let body = Bytes::from(body.to_owned());
        let mut edits = Edits::of(&body);
        for place in places(&body, shape).unwrap() {
            edits.insert(place.at, place.spelled("Mind \"it\".")).unwrap();
        }
        String::from_utf8(edits.apply().to_vec()).unwrap()
    }

    #[test]
    fn a_system_prompt_begins_with_the_reminder() {
        for (shape, before, after) in [
            (
                Shape::Chat,
                r#"{"messages":[{"role":"system","content":"Be kind."}]}"#,
                r#""content":"Mind \"it\".\n\nBe kind.""#,
            ),
            (
                Shape::Chat,
                r#"{"messages":[{"content":"x","role":"developer"},{}]}"#,
                r#"{"content":"Mind \"it\".\n\nx""#,
            ),
            (
                Shape::Chat,
                r#"{"messages":[{"role":"system","content":[{"type":"text","text":"x"}]}]}"#,
                r#""text":"Mind \"it\".\n\nx""#,
            ),
            (
                Shape::Chat,
                r#"{"messages" : [ {"role":"user"}]}"#,
                r#"[{"content":"Mind \"it\".","role":"system"}, {"role""#,
            ),
            (Shape::Chat, r#"{"messages":[]}"#, r#"[{"content":"Mind \"it\".","role":"system"}]"#),
            (Shape::Messages, r#"{"messages":[]}"#, r#"{"system":"Mind \"it\".","messages":[]}"#),
            (Shape::Messages, r#"{"system":"x"}"#, r#"{"system":"Mind \"it\".\n\nx"}"#),
            (Shape::Messages, r#"{"system":""}"#, r#"{"system":"Mind \"it\".\n\n"}"#),
            (
                Shape::Messages,
                r#"{"system":[{"type":"text","text":"x"},{}]}"#,
                r#"[{"type":"text","text":"Mind \"it\".\n\nx"}"#,
            ),
            (Shape::Messages, r#"{"system":[]}"#, r#"[{"text":"Mind \"it\".","type":"text"}]"#),
            (Shape::Messages, r#"{}"#, r#"{"system":"Mind \"it\"."}"#),
        ] {
            let found = reminded(before, shape);
            assert!(found.contains(after), "{before}: {found}");
            assert!(serde_json::from_str::<Value>(&found).is_ok(), "{found}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_served_twice() {
        let twice = r#"{"system":"a","system":"b","messages":[]}"#;
        assert_eq!(reminded(twice, Shape::Messages).matches("Mind").count(), 2);
        let twice = r#"{"messages":[{"role":"system","content":"a","content":"b"}],"messages":[{}]}"#;
        assert_eq!(reminded(twice, Shape::Chat).matches("Mind").count(), 3);
    }
}
