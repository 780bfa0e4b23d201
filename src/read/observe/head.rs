//! What is known of an object of an answer while its members are read: what kind of event it is, and which text it belongs to.

use smallvec::SmallVec;

use super::answer::{Channel, Collector, Piece, Slot, bounded, message as cut_message};
use super::unknown;
use super::value::{Value, next_key, position, skip, value};
use crate::json::{JsonError, Location, Text, Walker};

/// What a reader has done with a member of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nothing: the member is not one that this reader knows.
    No,
    /// Read it.
    Yes,
    /// Nothing yet: the value holds the answers to several calls of a batch.
    Batch,
    /// Nothing yet: the value is an object of the same form as the one around it, and is read in the same way.
    Nested,
}

/// What an event's `type` means to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Kind {
    #[default]
    Other,
    /// Repeats what deltas have said.
    Repeat,
    /// `delta` is sound.
    Sound,
    /// `delta` is a string of this channel.
    Delta(Channel),
    /// The last event of the answer.
    Last,
    /// The answer failed.
    Error,
}

/// What is known of the object that is read.
#[derive(Default)]
pub(super) struct Root<'a> {
    pub(super) head: Head,
    /// It is the answer that an event holds: what it says may have come in pieces before.
    pub(super) is_nested: bool,
    pub(super) looked: bool,
    pub(super) status: Option<Text<'a>>,
    /// `message` and `code` as texts: an error where nothing else was said.
    pub(super) loose: (Option<Text<'a>>, Option<Text<'a>>),
    /// It is a line of a batch's results.
    pub(super) is_batch: bool,
    /// It has a key of its own, and an answer: so a line of a batch's results is written where no `custom_id` is.
    pub(super) has_key: bool,
    pub(super) has_response: bool,
    /// `code` as a number.
    pub(super) has_code: bool,
}

/// What an event says about itself, wherever in the object it stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Head {
    pub(super) kind: Option<Kind>,
    pub(super) index: Option<u32>,
    pub(super) output: Option<u32>,
    pub(super) part: Option<u32>,
    pub(super) summary: Option<u32>,
    /// It says beside its text how the generation fares, as SGLang does.
    pub(super) fares: bool,
    /// It is a message of JSON-RPC.
    pub(super) is_rpc: bool,
}

fn kind(name: &str) -> Kind {
    match name {
        "message_stop"
        | "response.completed"
        | "response.incomplete"
        | "response.failed"
        | "response.done"
        | "interaction.completed"
        | "transcript.text.done" => Kind::Last,
        "error" => Kind::Error,
        "response.output_text.delta"
        | "response.audio_transcript.delta"
        | "response.output_audio_transcript.delta"
        | "transcript.text.delta" => Kind::Delta(Channel::Content),
        "response.refusal.delta" => Kind::Delta(Channel::Refusal),
        "response.audio.delta" | "response.output_audio.delta" => Kind::Sound,
        // What was said aloud, in whichever interface.
        _ if name.ends_with(".delta") && name.contains("transcript") => Kind::Delta(Channel::Content),
        _ if name.starts_with("response.reasoning") && name.ends_with(".delta") => Kind::Delta(Channel::Reasoning),
        // What built-in tools are asked to do, by whatever name, and what they say.
        _ if name.starts_with("response.") && name.ends_with(".delta") => {
            Kind::Delta(if name.contains("_output") { Channel::Result } else { Channel::Call })
        }
        _ if name.starts_with("response.") && name.ends_with(".done") => Kind::Repeat,
        _ => Kind::Other,
    }
}

/// Whether this is the name of an answer's last event.
pub(super) fn is_last(name: &str) -> bool {
    kind(name) == Kind::Last
}

#[cfg(test)]
thread_local! {
    /// How often an object's rest has been read ahead.
    pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Looks ahead for the keys an event is understood by; `walker` stands before the value of a key of its object.
/// It reads the rest of the object: once per object, or a message of nothing but such keys would take quadratic time.
pub(super) fn look_ahead(mut walker: Walker<'_>, mut head: Head) -> Head {
    #[cfg(test)]
    LOOKS.set(LOOKS.get() + 1);
    let Ok(Some(_)) = walker.next_raw() else { return head };
    while let Ok(Some(key)) = next_key(&mut walker) {
        let Ok(value) = value(&mut walker) else { break };
        head.note(key, value);
        if skip(&mut walker, value).is_err() {
            break;
        }
    }
    head
}

impl Head {
    pub(super) fn note(&mut self, key: Text<'_>, value: Value<'_>) {
        match (key.raw().as_bytes(), value) {
            (b"type" | b"event_type", Value::Str(name)) => self.kind = Some(kind(&name.decode())),
            (b"index", Value::Number(spelled)) => self.index = position(spelled),
            (b"jsonrpc", Value::Str(version)) => self.is_rpc = version.raw() == "2.0",
            (b"meta_info", Value::Object) => self.fares = true,
            (b"output_index", Value::Number(spelled)) => self.output = position(spelled),
            (b"content_index" | b"command_index", Value::Number(spelled)) => self.part = position(spelled),
            (b"summary_index", Value::Number(spelled)) => self.summary = position(spelled),
            _ => {}
        }
    }
}

impl Root<'_> {
    /// What follows from the object as a whole.
    pub(super) fn end(self, collector: &mut Collector) {
        if self.head.kind == Some(Kind::Last) {
            collector.answer.complete = true;
        }
        collector.in_batch |= self.has_key && self.has_response && !self.is_nested;
        if let Some(status) = self.status {
            let goes_on = ["queued", "in_progress", "requires_action", "cancelling"];
            collector.unfinished = goes_on.contains(&status.raw());
        }
        if let Some(status) = self.status.filter(|_| collector.answer.finish_reason.is_none())
            && matches!(status.raw(), "completed" | "incomplete" | "failed" | "cancelled")
        {
            collector.finished(0, status);
        }
        // `{"message": ...}` and `{"code": ..., "message": ...}` alone are how some providers say that they failed.
        let (message, code) = self.loose;
        let fails = self.head.kind == Some(Kind::Error) || code.is_some() || self.has_code;
        if let Some(text) = message.filter(|_| fails || !collector.has_text()) {
            collector.answer.error_message.get_or_insert_with(|| cut_message(&text.decode()));
            collector.failure(text);
            if let Some(code) = code {
                collector.answer.error_type.get_or_insert_with(|| bounded(&code.decode()));
            }
        }
    }
}

pub(super) fn plain(collector: &mut Collector, channel: Channel, text: Text<'_>, key: &'static str) {
    let slot = Slot { choice: 0, channel, block: 0 };
    collector.append(slot, Piece::Text(text), || Location::root("response").key(key));
}

pub(super) fn error(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    let mut names: SmallVec<[(u8, String); 3]> = SmallVec::new();
    while let Some(key) = next_key(walker)? {
        match (key.raw().as_bytes(), value(walker)?) {
            (b"message", Value::Str(text)) => {
                collector.answer.error_message = Some(cut_message(&text.decode()));
                collector.failure(text);
            }
            (b"type", Value::Str(text)) => names.push((0, bounded(&text.decode()))),
            (b"status", Value::Str(text)) => names.push((1, bounded(&text.decode()))),
            (b"code", Value::Str(text)) => names.push((2, bounded(&text.decode()))),
            (b"code", Value::Number(spelled)) => names.push((3, bounded(spelled))),
            (_, other) if collector.reads_failures => unknown::member(collector, walker, 0, key.raw(), other)?,
            (_, other) => skip(walker, other)?,
        }
    }
    // The most telling name there is.
    if let Some((_, name)) = names.into_iter().filter(|(_, name)| !name.is_empty()).min() {
        collector.answer.error_type = Some(name);
    }
    Ok(())
}
