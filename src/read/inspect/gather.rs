//! Collects the texts of a request while its body is read, each with its place and its kind.
//!
//! Invariants: at most [`PARTS_MAX`] parts and `text_max` bytes of text are kept, whatever comes; what is over the bound of
//! parts is looked at in the last one, which no kind makes milder.

use std::borrow::Cow;
use std::ops::Range;

use weir_config::vocab::part::PartForm;
use weir_config::vocab::{Unread, UnreadSet};
use weir_inference::PartKind;

use super::binary::Payload;
use super::expect;
use super::frame::Framing;
use super::part::{BareCall, FileNote, Label, Labels, TextPart};
use super::place::{Places, Spelling};
use super::request::RequestView;
use crate::exchange::Family;
use crate::json::{Location, Text};

/// Texts beyond this many share one last part, so that a body of tiny strings stays cheap.
pub(super) const PARTS_MAX: usize = 16 * 1024;

/// A text as the body spells it.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// A JSON string.
    Json(Text<'a>),
    /// Bytes of the body as they stand there, from this one on.
    Plain(&'a str, usize),
    /// In another spelling, at this place of the body.
    Coded(&'a str, &'a Range<usize>, Spelling),
    /// What was made of this JSON string.
    Made(&'a str, Text<'a>),
    /// A file in base64, and where in this JSON string that stands.
    File(&'a str, Text<'a>, &'a Payload),
    /// The description of a file that stands in this JSON string.
    Described(&'a str, Text<'a>),
    /// What stands nowhere in the body as it is.
    Put(&'a str),
    /// All of a body that could not be read.
    Unreadable(&'a [u8]),
}

impl Source<'_> {
    /// Where it stands in the body.
    fn raw(self) -> Option<Range<u32>> {
        let raw = match self {
            Self::Json(text) | Self::Made(_, text) | Self::Described(_, text) | Self::File(_, text, _) => {
                text.start()..text.end()
            }
            Self::Coded(_, raw, _) => raw.clone(),
            Self::Plain(text, at) => at..at + text.len(),
            Self::Put(_) | Self::Unreadable(_) => return None,
        };
        Some(u32::try_from(raw.start).ok()?..u32::try_from(raw.end).ok()?)
    }
}

/// What is known of a text when it is read.
#[derive(Clone, Copy)]
pub(super) struct About {
    pub(super) kind: PartKind,
    /// False while its kind waits for a `role` or `type` further on.
    pub(super) settled: bool,
    /// Position of its message.
    pub(super) message: Option<u32>,
}

impl About {
    /// Words of the user, of no message.
    pub(super) const USER: Self = Self { kind: PartKind::User, settled: true, message: None };
}

/// Calls without a word that are kept.
const BARE_MAX: usize = 1024;

/// Objects named in one body that are kept.
pub(super) const REFERENCES_MAX: usize = 256;

/// Models listed beside the one that is asked for; no provider takes as many.
const OTHER_MODELS_MAX: usize = 32;

/// Texts that a body of so many bytes has as a rule: to move them as they grow in number costs more than a little room. Bounded, as a
/// body of one long text has one.
fn expected_parts(bytes: usize) -> usize {
    4 + (bytes / 1024).min(28)
}

/// Collects texts and their places.
pub(super) struct Gather {
    /// In a block of its own from the beginning: it is handed on from stage to stage until it is recorded.
    pub(super) view: Box<RequestView>,
    framing: Framing,
    text_max: usize,
}

impl Gather {
    pub(super) fn new(text_max: usize, expected: usize) -> Self {
        let view = Box::new(RequestView {
            model: None,
            models_differ: false,
            model_fields: 0,
            models_named: 0,
            is_cut: false,
            other_models: Vec::new(),
            references: Vec::new(),
            too_many_references: false,
            session_id: None,
            previous_answer: None,
            conversation: None,
            former_turn: None,
            stream: None,
            max_tokens: None,
            text: String::with_capacity(expected.min(text_max)),
            parts: Vec::with_capacity(expected_parts(expected)),
            messages_open: None,
            messages_empty: false,
            unreadable: None,
            token_ids: 0,
            truncated: false,
            crowded: false,
            unrecorded: Vec::new(),
            files: Vec::new(),
            bare: Vec::new(),
            passed_by: UnreadSet::default(),
            zones: None,
            replaced: Vec::new(),
            frame: None,
            rpc: None,
            places: Places::of(expected_parts(expected)),
            labels: Labels::default(),
        });
        Self { view, framing: Framing::default(), text_max }
    }

    /// Takes a model's name; a key at an unusual spelling yields to one at the usual.
    pub(super) fn model(&mut self, name: String, exact: bool) {
        let view = &mut self.view;
        view.models_named = view.models_named.saturating_add(1);
        view.models_differ |= view.model.as_ref().is_some_and(|former| *former != name);
        if exact || view.model.is_none() {
            view.model = Some(name);
        }
    }

    /// Notes that a key or a field names a model, whatever it holds.
    pub(super) const fn model_field(&mut self) {
        self.view.model_fields = self.view.model_fields.saturating_add(1);
    }

    /// Takes the name of a model that may answer instead, or beside it.
    pub(super) fn other_model(&mut self, name: String) {
        if self.view.other_models.len() < OTHER_MODELS_MAX {
            self.view.other_models.push(name);
        } else {
            self.view.models_differ = true;
        }
    }

    /// Takes the id of an object that the provider keeps.
    pub(super) fn reference(&mut self, family: Family, id: String) {
        self.view.refers_to(family, id);
    }

    /// Takes what a JSON-RPC message asks for; `at` is its position in a batch.
    pub(super) fn rpc(&mut self, method: Option<Cow<'_, str>>, call: Option<(Cow<'_, str>, &str)>, at: Option<u32>) {
        let room = self.text_max;
        let known = self.view.rpc.get_or_insert_default();
        known.take(method, call, at, room);
    }

    /// Number of parts so far.
    pub(super) fn len(&self) -> usize {
        self.view.parts.len()
    }

    /// Adds one part.
    pub(super) fn part(&mut self, about: About, location: impl FnOnce() -> Location, source: Source<'_>) {
        if self.len() >= PARTS_MAX {
            self.view.crowded = true;
            return self.extend(self.len() - 1, source);
        }
        let Some(range) = self.append(source) else { return };
        // The last part takes all that follows, so nothing may exempt it from scanning.
        let last = self.len() + 1 == PARTS_MAX;
        let about = if last { About::USER } else { about };
        self.view.parts.push(TextPart {
            range,
            raw: source.raw(),
            kind: about.kind,
            form: PartForm::Text,
            message: about.message,
            role: Label::default(),
            tool_name: Label::default(),
            tool_id: Label::default(),
            location: if last { Location::root("request") } else { location() },
            settled: about.settled,
        });
    }

    /// Adds to the part `at`, on a new line, when it is the last one.
    pub(super) fn extend(&mut self, at: usize, source: Source<'_>) {
        if let Some(range) = self.append(source)
            && let Some(part) = self.view.parts.get_mut(at)
        {
            part.range.end = range.end;
            part.raw = match (part.raw.take(), source.raw()) {
                (Some(first), Some(last)) => Some(first.start.min(last.start)..first.end.max(last.end)),
                (known, None) | (None, known) => known,
            };
        }
    }

    /// Adds the content of a file that is text.
    pub(super) fn file(&mut self, location: impl FnOnce() -> Location, source: Source<'_>) {
        self.unrecorded(PartForm::File, About::USER, location, source);
    }

    /// Adds what goes to the provider, or to a server of its tools, as a credential.
    pub(super) fn credential(&mut self, about: About, location: impl FnOnce() -> Location, source: Source<'_>) {
        self.unrecorded(PartForm::Credential, about, location, source);
    }

    fn unrecorded(&mut self, form: PartForm, about: About, location: impl FnOnce() -> Location, source: Source<'_>) {
        let (before, parts) = (self.view.text.len(), self.len());
        self.part(about, location, source);
        if let Some(part) = self.view.parts.get_mut(parts) {
            part.form = form;
        }
        let end = self.view.text.len();
        let start = before + usize::from(before > 0);
        if end > start {
            match self.view.unrecorded.last_mut().filter(|last| last.end + 1 == start) {
                Some(last) => last.end = end,
                None => self.view.unrecorded.push(start..end),
            }
        }
    }

    /// Says that something was not read.
    pub(super) const fn pass_by(&mut self, reason: Unread) {
        self.view.passed_by.insert(reason);
    }

    /// Adds the description of a file, which is stored and not analysed.
    pub(super) fn note(&mut self, message: Option<u32>, description: Source<'_>) {
        if let Some(range) = self.append(description)
            && self.view.files.len() < PARTS_MAX
        {
            self.view.files.push(FileNote { range, message });
        }
    }

    /// Keeps a short name the body gives.
    pub(super) fn label(&mut self, name: &str) -> Label {
        self.view.labels.keep(name)
    }

    /// Notes that the texts from `start` on are what a model thought.
    pub(super) fn reasoned(&mut self, start: usize) {
        let parts = self.view.parts.get_mut(start..).unwrap_or_default();
        for part in parts.iter_mut().filter(|part| part.form == PartForm::Text) {
            part.form = PartForm::Reasoning;
        }
    }

    /// Gives `kind` to the parts from `start` on that still wait for theirs.
    pub(super) fn settle(&mut self, start: usize, kind: PartKind) {
        // A slice, because skipping would walk all parts for every object of a body.
        for part in self.view.parts.get_mut(start..).unwrap_or_default() {
            if !part.settled {
                part.settled = true;
                part.kind = kind;
            }
        }
        for call in self.bare_from(start).filter(|call| !call.settled) {
            (call.settled, call.kind) = (true, kind);
        }
    }

    /// Notes whose message the parts from `start` on belong to.
    pub(super) fn spoken_by(&mut self, start: usize, role: Label) {
        for part in self.view.parts.get_mut(start..).unwrap_or_default() {
            part.role = role;
        }
        self.bare_from(start).for_each(|call| call.role = role);
    }

    /// Notes which tool the parts from `start` on are about, those that are about one and do not say so themselves.
    pub(super) fn about_tool(&mut self, start: usize, name: Label, id: Label) {
        for part in self.view.parts.get_mut(start..).unwrap_or_default() {
            if matches!(part.kind, PartKind::Tool | PartKind::ToolCall | PartKind::ToolDefinition) {
                part.tool_name = if part.tool_name.is_empty() { name } else { part.tool_name };
                part.tool_id = if part.tool_id.is_empty() { id } else { part.tool_id };
            }
        }
        for call in self.bare_from(start) {
            call.tool_name = if call.tool_name.is_empty() { name } else { call.tool_name };
            call.tool_id = if call.tool_id.is_empty() { id } else { call.tool_id };
        }
    }

    /// Takes back the milder kind `from` in the parts from `start` on.
    pub(super) fn demote(&mut self, start: usize, from: PartKind, to: PartKind) {
        let parts = self.view.parts.get_mut(start..).unwrap_or_default();
        for part in parts.iter_mut().filter(|part| part.kind == from) {
            part.kind = to;
        }
        for call in self.bare_from(start).filter(|call| call.kind == from) {
            call.kind = to;
        }
    }

    fn append(&mut self, source: Source<'_>) -> Option<Range<usize>> {
        let text = &mut self.view.text;
        let before = text.len();
        if self.view.truncated || before >= self.text_max {
            self.view.truncated = true;
            return None;
        }
        if before > 0 {
            text.push('\n');
        }
        let start = text.len();
        match source {
            Source::Json(string) => string.decode_into(text),
            Source::Plain(words, _)
            | Source::Coded(words, ..)
            | Source::Made(words, _)
            | Source::File(words, ..)
            | Source::Described(words, _)
            | Source::Put(words) => text.push_str(words),
            Source::Unreadable(body) => raw_text(body, self.text_max, text),
        }
        if text.len() > self.text_max {
            let mut end = self.text_max;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            self.view.truncated = true;
        }
        if text.len() <= start {
            text.truncate(before);
            return None;
        }
        let end = text.len();
        if !matches!(source, Source::Json(_)) {
            self.framing.made(start, source);
        }
        match source {
            Source::Json(string) => self.view.places.json(start, &string),
            Source::Plain(words, at) => self.view.places.plain(start, at..at + words.len()),
            Source::Coded(_, raw, spelling) => self.view.places.coded(start, raw.clone(), spelling),
            Source::File(words, string, payload) if end - start == words.len() => {
                self.view.places.file(start..end, payload.in_body(&string), payload.coding);
            }
            Source::File(..) | Source::Made(..) | Source::Described(..) | Source::Put(_) | Source::Unreadable(_) => {}
        }
        Some(start..end)
    }

    /// A call of a tool whose arguments hold no text.
    pub(super) fn bare_call(&mut self, about: About) {
        if self.view.bare.len() < BARE_MAX {
            let (role, tool_name, tool_id) = (Label::default(), Label::default(), Label::default());
            let About { kind, settled, message } = about;
            let (at, ended) = (self.len(), false);
            self.view.bare.push(BareCall { at, ended, kind, settled, message, role, tool_name, tool_id });
        }
    }

    /// Those of them that were met from the part `start` on.
    fn bare_from(&mut self, start: usize) -> impl Iterator<Item = &mut BareCall> {
        self.view.bare.iter_mut().rev().take_while(move |call| !call.ended && call.at >= start)
    }

    /// Whose calls were made is known.
    pub(super) fn turn_ended(&mut self) {
        self.bare_from(0).for_each(|call| call.ended = true);
    }

    /// A string of which no text is kept.
    pub(super) fn withhold(&mut self, string: &Text<'_>) {
        self.framing.withhold(string);
    }

    /// A value whose strings are one part stands at `raw`.
    pub(super) fn value(&mut self, raw: Range<usize>) {
        self.framing.value(raw);
    }

    /// Keeps what the body, which has been read whole as JSON, is beside its texts.
    pub(super) fn frame(&mut self, body: &[u8]) {
        self.view.frame = self.framing.cut(&self.view, body);
    }

    /// Forgets the texts found so far and takes the whole body as one.
    pub(super) fn raw(&mut self, body: &[u8], reason: Option<&'static str>) {
        self.view.text.clear();
        self.view.parts.clear();
        self.view.unrecorded.clear();
        self.view.files.clear();
        self.view.bare.clear();
        self.view.token_ids = 0;
        self.view.places.clear();
        self.framing = Framing::default();
        self.view.truncated = false;
        self.view.passed_by = UnreadSet::default();
        self.view.messages_open = None;
        self.view.messages_empty = false;
        self.view.unreadable = reason;
        let words = match reason {
            Some(_) => Cow::Borrowed(""),
            None => expect::words(body).unwrap_or_else(|| String::from_utf8_lossy(body)),
        };
        let source = match &words {
            _ if reason.is_some() => Source::Unreadable(body),
            Cow::Borrowed(text) => Source::Plain(text, 0),
            Cow::Owned(text) => Source::Put(text),
        };
        self.part(About::USER, || Location::root("request"), source);
    }
}

/// The bytes of an unreadable body as text, for scanning: UTF-16 is recognised, other bytes are read as UTF-8 with replacement
/// characters, and JSON escapes are undone so that they hide nothing.
fn raw_text(body: &[u8], text_max: usize, out: &mut String) {
    let body = body.get(..body.len().min(text_max.saturating_mul(6).saturating_add(6))).unwrap_or(body);
    let wide = |big: bool| {
        let units = body.chunks_exact(2).map(move |pair| match pair {
            [a, b] if big => u16::from_be_bytes([*a, *b]),
            [a, b] => u16::from_le_bytes([*a, *b]),
            _ => 0,
        });
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect::<String>()
    };
    let text = match body {
        [0xfe, 0xff, ..] | [0, 1..=u8::MAX, ..] => wide(true).into(),
        [0xff, 0xfe, ..] | [1..=u8::MAX, 0, ..] => wide(false).into(),
        _ => String::from_utf8_lossy(body),
    };
    let mut rest: &str = &text;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        let digits = tail.strip_prefix("\\u").and_then(|rest| rest.get(..4));
        let unit = digits.filter(|four| four.bytes().all(|b| b.is_ascii_hexdigit()));
        let decoded = unit.and_then(|four| u32::from_str_radix(four, 16).ok()).and_then(char::from_u32);
        let (c, used) = match decoded {
            Some(c) => (c, 6),
            None if tail.starts_with("\\n") => ('\n', 2),
            None if tail.starts_with("\\t") => ('\t', 2),
            None if tail.starts_with("\\\"") => ('"', 2),
            None if tail.starts_with("\\/") => ('/', 2),
            None => ('\\', 1),
        };
        out.push(c);
        rest = tail.get(used..).unwrap_or_default();
    }
    out.push_str(rest);
}
