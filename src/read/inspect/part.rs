//! One text of a request: where it stands, whose words it is, and what the body says about it where it stands.

use std::borrow::Cow;
use std::ops::Range;

use weir_config::vocab::part::{PartForm, PartRecord, PartSide, PartTool};
use weir_inference::PartKind;

use super::RequestView;
use crate::json::Location;

/// One text of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct TextPart {
    /// Where it stands in [`RequestView::text`].
    pub range: Range<usize>,
    /// Where it stands in the body without its content coding: from the first byte of its first JSON string to the last
    /// of its last one, without their quotes. `None` where the body holds nothing that spells it.
    /// [`RequestView::spots`] tells which bytes spell which of its characters.
    pub raw: Option<Range<u32>>,
    /// Who speaks.
    pub kind: PartKind,
    /// What kind of content it is.
    pub form: PartForm,
    /// Position of its message in the conversation.
    pub message: Option<u32>,
    /// The role of its message as the body spells it; see [`RequestView::label`].
    pub role: Label,
    /// Name of the tool it is about.
    pub tool_name: Label,
    /// Id of the tool call it is about.
    pub tool_id: Label,
    /// Where it stands in the body, as a person writes it.
    pub location: Location,
    /// False while its kind waits for a `role` or `type` further on.
    pub(super) settled: bool,
}

impl TextPart {
    /// Whether it is a credential: a secret is what belongs there.
    pub fn is_credential(&self) -> bool {
        self.form == PartForm::Credential
    }
}

/// A short name that a body gives: a role, a tool, an id. Empty where it gives none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Label {
    start: u32,
    len: u8,
}

impl Label {
    pub(super) const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// The names of one body, one behind the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Labels(String);

/// Bytes of names that are kept; later ones are left out.
const LABEL_BYTES_MAX: usize = 256 * 1024;
/// Bytes that most bodies' names fit in.
const LABEL_BYTES_USUAL: usize = 64;

impl Labels {
    /// Keeps a name, at most 255 bytes of it.
    pub(super) fn keep(&mut self, name: &str) -> Label {
        let mut len = name.len().min(255);
        while !name.is_char_boundary(len) {
            len -= 1;
        }
        if self.0.len() + len > LABEL_BYTES_MAX {
            return Label::default();
        }
        if self.0.is_empty() {
            self.0.reserve(LABEL_BYTES_USUAL);
        }
        let start = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0.push_str(name.get(..len).unwrap_or_default());
        Label { start, len: u8::try_from(len).unwrap_or(u8::MAX) }
    }

    fn get(&self, label: Label) -> Option<&str> {
        let start = usize::try_from(label.start).ok()?;
        self.0.get(start..start + usize::from(label.len)).filter(|name| !name.is_empty())
    }
}

impl RequestView {
    /// What a label says; `None` where the body says nothing.
    pub fn label(&self, label: Label) -> Option<&str> {
        self.labels.get(label)
    }

    /// How many parts the record gets of it.
    pub fn records(&self) -> usize {
        self.parts.len() + self.files.len() + self.bare.len()
    }

    /// The text as it is recorded, and the parts in it: of files that are text only their descriptions are kept, of
    /// credentials nothing. The descriptions stand behind the parts that are analysed, whose numbers findings know.
    pub fn into_record(mut self) -> (String, Vec<PartRecord>) {
        // Those of the answer follow.
        let mut records = Vec::with_capacity(self.records() + 2);
        let mut kept = Kept::of(&self.unrecorded);
        for part in &self.parts {
            records.push(self.record(part, kept.place(&part.range)));
        }
        let mut kept = Kept::of(&self.unrecorded);
        records.extend(self.files.iter().map(|file| file.record(kept.place(&file.range))));
        records.extend(self.bare.iter().map(|call| self.bare_record(call)));
        (self.take_recorded(), records)
    }

    /// The tool of these labels.
    fn tool(&self, name: Label, id: Label) -> Option<Box<PartTool>> {
        let (name, id) = (self.label(name), self.label(id));
        let tool = PartTool { name: name.map(str::to_owned), id: id.map(str::to_owned) };
        (name.is_some() || id.is_some()).then(|| Box::new(tool))
    }

    fn bare_record(&self, call: &BareCall) -> PartRecord {
        PartRecord {
            side: PartSide::Request,
            kind: call.kind,
            form: PartForm::Text,
            role: self.label(call.role).map(role_name),
            message: call.message,
            text: None,
            raw: None,
            tool: self.tool(call.tool_name, call.tool_id),
        }
    }

    fn record(&self, part: &TextPart, text: Option<Range<u32>>) -> PartRecord {
        PartRecord {
            side: PartSide::Request,
            kind: part.kind,
            form: part.form,
            role: self.label(part.role).map(role_name),
            message: part.message,
            text,
            raw: part.raw.clone(),
            tool: self.tool(part.tool_name, part.tool_id),
        }
    }

    fn take_recorded(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        if self.unrecorded.is_empty() {
            return text;
        }
        let mut kept = String::new();
        let mut from = 0;
        for range in &self.unrecorded {
            kept.push_str(text.get(from..range.start).unwrap_or_default());
            // The line break behind it goes with it.
            from = range.end + 1;
        }
        match text.get(from..) {
            Some(rest) => kept.push_str(rest),
            // It was the last: so does the one before it.
            None => drop(kept.pop()),
        }
        kept
    }
}

/// Where texts stand once the stretches that are not recorded have been taken out. To be asked in order.
pub(super) struct Kept<'a> {
    left_out: std::iter::Peekable<std::slice::Iter<'a, Range<usize>>>,
    /// Bytes left out before, with the line break behind each stretch.
    shift: usize,
}

impl<'a> Kept<'a> {
    pub(super) fn of(unrecorded: &'a [Range<usize>]) -> Self {
        Self { left_out: unrecorded.iter().peekable(), shift: 0 }
    }

    pub(super) fn place(&mut self, text: &Range<usize>) -> Option<Range<u32>> {
        while let Some(range) = self.left_out.next_if(|range| range.end <= text.start) {
            self.shift += range.len() + 1;
        }
        let is_kept = self.left_out.peek().is_none_or(|range| range.start > text.start);
        // Only the part that takes all that is over the bound has such stretches in it.
        let inside = self.left_out.clone().take_while(|range| range.end <= text.end);
        let end = text.end.saturating_sub(inside.map(|range| range.len() + 1).sum::<usize>() + self.shift);
        short(text.start.saturating_sub(self.shift)..end).filter(|_| is_kept)
    }
}

/// A call of a tool whose arguments hold no text: there is nothing to look at, and it was made all the same.
#[derive(Debug, Clone, PartialEq)]
pub struct BareCall {
    /// How many parts there were before it.
    pub(super) at: usize,
    /// Its message has ended.
    pub(super) ended: bool,
    /// Whose call.
    pub(super) kind: PartKind,
    /// False while its kind waits for a `role` or `type` further on.
    pub(super) settled: bool,
    /// Position of its message in the conversation.
    pub(super) message: Option<u32>,
    /// As those of a [`TextPart`].
    pub(super) role: Label,
    pub(super) tool_name: Label,
    pub(super) tool_id: Label,
}

/// A piece of a text, and what is forwarded in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// Index into [`RequestView::parts`].
    pub part: usize,
    /// Where it begins and ends in its part.
    pub range: Range<usize>,
    /// What takes its place.
    pub with: String,
}

/// The description of a file in a request's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileNote {
    /// Where it stands in [`RequestView::text`].
    pub range: Range<usize>,
    /// Position of its message in the conversation.
    pub message: Option<u32>,
}

impl FileNote {
    fn record(&self, text: Option<Range<u32>>) -> PartRecord {
        PartRecord {
            side: PartSide::Request,
            kind: PartKind::User,
            form: PartForm::File,
            role: None,
            message: self.message,
            text,
            raw: None,
            tool: None,
        }
    }
}

fn short(range: Range<usize>) -> Option<Range<u32>> {
    Some(u32::try_from(range.start).ok()?..u32::try_from(range.end).ok()?)
}

/// A role as it is recorded; the usual ones cost no memory.
fn role_name(role: &str) -> Cow<'static, str> {
    const USUAL: [&str; 7] = ["user", "assistant", "system", "tool", "developer", "model", "function"];
    match USUAL.into_iter().find(|usual| *usual == role) {
        Some(usual) => Cow::Borrowed(usual),
        None => Cow::Owned(role.to_owned()),
    }
}
