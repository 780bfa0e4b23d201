//! Where the texts of an answer stand in its messages, for whoever takes something out of them.
//!
//! What continues a text from message to message is known to the dialects ([`super::dialect`]); every other string that may be read
//! by somebody stands for itself, so that a text told once more at a stream's end, or by a member nobody has heard of, is found,
//! too. Invariant: each string of a message is at most one place; ids, labels and encoded bytes are none.

use std::ops::Range;

use weir_inference::PartKind;

use super::absorb;
use super::answer::{Collector, Said};
use super::dialect;
use super::items::{NAMES, is_left_out, is_probability};
use crate::json::{Event, JsonError, Walker};

/// Keys of what a model asks a tool for.
const ASKED: [&str; 12] = [
    "arguments",
    "args",
    "input",
    "partial_json",
    "action",
    "operation",
    "code",
    "queries",
    "query",
    "commands",
    "command",
    "function_call",
];

/// What a string is to whoever wants to change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Somebody reads it.
    Words(PartKind),
    /// It must go on as it is: a program acts on it, or its provider has signed it.
    Fixed(PartKind),
}

/// A string of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The text it continues, by number; `None` where it stands for itself.
    pub text: Option<usize>,
    /// What it is.
    pub role: Role,
    /// What stands between its quotes.
    pub raw: Range<usize>,
}

/// Reads the messages of one answer, one after the other.
pub struct Places {
    collector: Collector,
    choices: bool,
    /// The tokens of its texts are listed once more, with how likely they were.
    has_tokens: bool,
    over: bool,
}

impl Default for Places {
    fn default() -> Self {
        let mut collector = Collector::new(0);
        collector.said = Some(Vec::new());
        Self { collector, choices: false, has_tokens: false, over: false }
    }
}

impl Places {
    /// The places of a message; `event` is its name, where its framing names it.
    ///
    /// # Errors
    /// The first [`JsonError`]: what is no JSON has no places.
    pub fn read(&mut self, event: Option<&str>, message: &[u8]) -> Result<Vec<Place>, JsonError> {
        if message == b"[DONE]" {
            self.over = true;
            return Ok(Vec::new());
        }
        match event {
            Some(event) => dialect::amazon_message(&mut self.collector, event, message)?,
            None => absorb::message(&mut self.collector, message)?,
        }
        let mut said = self.collector.said.replace(Vec::new()).unwrap_or_default();
        self.choices |= said.iter().any(|said| said.choice > 0);
        self.over |= self.collector.answer.complete && !self.choices;
        said.sort_unstable_by_key(|said| said.raw.start);
        let own = |said: &Said| said.raw.clone();
        let mut all: Vec<Place> = said
            .iter()
            .map(|said| {
                let fixed = said.signed || said.kind == PartKind::ToolCall;
                let role = if fixed { Role::Fixed(said.kind) } else { Role::Words(said.kind) };
                Place { text: Some(said.text), role, raw: own(said) }
            })
            .collect();
        self.others(message, &said, &mut all)?;
        Ok(all)
    }

    /// Whether the answer has sent its last message.
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// Whether some of its texts are told once more, token by token.
    pub const fn has_tokens(&self) -> bool {
        self.has_tokens
    }

    /// The strings that continue nothing.
    fn others(&mut self, message: &[u8], said: &[Said], all: &mut Vec<Place>) -> Result<(), JsonError> {
        let mut walker = Walker::new(message)?;
        // What the containers around are, and the key they stand under.
        let mut around: Vec<(Role, &str)> = Vec::new();
        let mut key: Option<&str> = None;
        while let Some(event) = walker.next_event()? {
            let outer = around.last().map_or(Role::Words(PartKind::Output), |(role, _)| *role);
            match event {
                Event::Key(name) if is_probability(name.raw()) => {
                    self.has_tokens |= walker.next_raw()?.is_some_and(|raw| raw != "null");
                }
                Event::Key(name) => {
                    key = Some(name.raw());
                    continue;
                }
                Event::ObjectStart | Event::ArrayStart => {
                    // In an array the values stand under the array's key.
                    let name = key.or(around.last().map(|(_, name)| *name));
                    let name = name.unwrap_or_default();
                    around.push((within(outer, name), name));
                }
                Event::ObjectEnd | Event::ArrayEnd => drop(around.pop()),
                Event::Str(text) => {
                    let name = key.or(around.last().map(|(_, name)| *name)).unwrap_or_default();
                    let known = said.binary_search_by_key(&text.start(), |said| said.raw.start).is_ok();
                    if !known && !NAMES.contains(&name) && !is_left_out(name, text) {
                        let role = within(outer, name);
                        all.push(Place { text: None, role, raw: text.start()..text.end() });
                    }
                }
                _ => {}
            }
            key = None;
        }
        Ok(())
    }
}

/// What stands under `key` in something of this role.
fn within(outer: Role, key: &str) -> Role {
    match (outer, key) {
        (Role::Fixed(_), _) => outer,
        _ if ASKED.contains(&key) => Role::Fixed(PartKind::ToolCall),
        (_, "tools") => Role::Words(PartKind::ToolDefinition),
        _ => outer,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The text that a string continues, and the string.
    type Said = (Option<usize>, String);

    fn texts(places: &[Place], message: &str, fixed: bool) -> Vec<Said> {
        let wanted = places.iter().filter(|place| matches!(place.role, Role::Fixed(_)) == fixed);
        wanted.map(|place| (place.text, message[place.raw.clone()].to_owned())).collect()
    }

    fn read(places: &mut Places, message: &Value) -> (Vec<Said>, Vec<Said>) {
        let message = message.to_string();
        let found = places.read(None, message.as_bytes()).unwrap();
        (texts(&found, &message, false), texts(&found, &message, true))
    }

    fn own(texts: &[&str]) -> Vec<Said> {
        texts.iter().map(|text| (None, (*text).to_owned())).collect()
    }

    #[test]
    fn deltas_continue_a_text_and_repeats_stand_for_themselves() {
        let mut places = Places::default();
        let delta = |text: &str| json!({"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": text});
        assert_eq!(read(&mut places, &delta("jane@")).0, [(Some(0), "jane@".to_owned())]);
        assert_eq!(read(&mut places, &delta("b.com")).0, [(Some(0), "b.com".to_owned())]);
        let done = json!({"type": "response.output_text.done", "item_id": "i", "output_index": 0, "content_index": 0, "text": "jane@b.com"});
        assert_eq!(read(&mut places, &done).0, own(&["jane@b.com"]));
        let part = json!({"type": "output_text", "text": "jane@b.com"});
        let message = json!({"id": "m", "type": "message", "role": "assistant", "content": [part]});
        let item = json!({"type": "response.output_item.done", "output_index": 0, "item": message});
        assert_eq!(read(&mut places, &item).0, own(&["jane@b.com"]));
        assert!(!places.is_over());
        let last =
            json!({"type": "response.completed", "response": {"id": "r", "object": "response", "output": [message]}});
        assert_eq!(read(&mut places, &last).0, own(&["jane@b.com"]));
        assert!(places.is_over() && !places.has_tokens());
    }

    #[test]
    fn what_a_program_acts_on_is_fixed() {
        let mut places = Places::default();
        let call =
            json!({"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"to\""}});
        let message = json!({"choices": [{"index": 0, "delta": {"content": "hi", "tool_calls": [call]}, "logprobs": {"content": [{"token": "hi"}]}}]});
        let (words, fixed) = read(&mut places, &message);
        assert_eq!(words, [(Some(0), "hi".to_owned())]);
        assert_eq!(fixed, [(Some(1), "{\\\"to\\\"".to_owned())]);
        assert!(places.has_tokens());
        let block = json!({"type": "tool_use", "id": "t", "name": "f", "input": {"to": ["a b", {"x": "c d"}]}});
        let thought = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
        let (words, fixed) =
            read(&mut Places::default(), &json!({"content": [thought, block, {"type": "text", "text": "yes"}]}));
        assert_eq!(words, [(Some(2), "yes".to_owned())]);
        assert_eq!(fixed, [(Some(0), "hm".to_owned()), (None, "a b".to_owned()), (None, "c d".to_owned())]);
    }

    #[test]
    fn a_member_nobody_has_heard_of_is_found_and_a_label_is_not() {
        let message = json!({"id": "x-1", "model": "m 1", "created_at": "2026-01-01", "news": [{"type": "n", "said": "hello you"}, "there"]});
        // What stands under one key is one text, from message to message.
        let said = [(Some(0), "hello you".to_owned()), (Some(1), "there".to_owned())];
        assert_eq!(read(&mut Places::default(), &message), (said.to_vec(), own(&[])));
        assert!(Places::default().read(None, b"{\"a\":").is_err());
    }

    #[test]
    fn a_chat_of_cohere_is_one_text() {
        let mut places = Places::default();
        let delta = |text: &str| json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": text}}}});
        assert_eq!(read(&mut places, &delta("jane@")).0, [(Some(0), "jane@".to_owned())]);
        assert_eq!(read(&mut places, &delta("b.com")).0, [(Some(0), "b.com".to_owned())]);
    }
}
