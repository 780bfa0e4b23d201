//! A prompt as segments in the order in which providers read it: settings, tools, system prompt, messages.

use std::borrow::Cow;
use std::ops::Range;

use weir_config::vocab::frame::{Frame, TEXT};
use weir_config::vocab::part::{PartForm, PartKind, PartRecord, PartSide};

use super::skeleton::{Cursor, Piece, Skeleton, Stretch, asks_for_cache};
use crate::prompt_cache::SegmentKind;
use crate::record::SpanRecord;

/// Bytes of a segment that one mark stands for.
pub(super) const MARKED_BYTES: usize = 16;
/// Segments of one prompt; what is behind them is not compared.
const SEGMENTS_MAX: usize = 16_384;
/// Bytes kept of the name of a tool.
const NAME_BYTES_MAX: usize = 96;
/// Messages at the beginning that may be the system prompt.
const SYSTEM_MESSAGES_MAX: usize = 4;

/// Top-level members that stand before the tools.
const FRONT: [&str; 4] = ["prompt_cache_key", "response_format", "text", "output_config"];
/// Those that change how messages are read.
const OF_MESSAGES: [&str; 4] = ["tool_choice", "thinking", "reasoning", "reasoning_effort"];
const TOOLS: [&str; 2] = ["tools", "functions"];
const SYSTEM: [&str; 4] = ["system", "instructions", "systemInstruction", "system_instruction"];
const MESSAGES: [&str; 4] = ["messages", "input", "contents", "prompt"];
const DECLARATIONS: [&str; 2] = ["functionDeclarations", "function_declarations"];

/// One thing that a prompt is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// What it is.
    pub kind: SegmentKind,
    /// Its place among its kind, from 0.
    pub index: u32,
    /// The name of a tool or setting.
    pub name: Option<Box<str>>,
    /// Of all its bytes.
    pub(super) hash: u64,
    /// How many they are.
    pub bytes: u32,
    /// One for each 16 bytes.
    pub(super) marks: Box<[u16]>,
}

impl Segment {
    /// One that takes about so many bytes in memory, for tests of what keeps outlines.
    pub fn filler(bytes: usize) -> Self {
        let marks = vec![0; bytes / size_of::<u16>()].into_boxed_slice();
        Self { kind: SegmentKind::Message, index: 0, name: None, hash: 0, bytes: 0, marks }
    }
}

/// What a prompt is made of, without its texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outline {
    /// In the order in which providers read them.
    pub segments: Vec<Segment>,
    /// Bytes of all.
    pub bytes: u64,
    /// Whether it was made of a body with its structure; what was not cannot be compared with what was.
    pub is_framed: bool,
    /// Whether the request says what to cache.
    pub asks_for_cache: bool,
}

impl Outline {
    /// What it takes in memory, about.
    pub fn weight(&self) -> usize {
        let of = |it: &Segment| size_of::<Segment>() + 2 * it.marks.len() + it.name.as_deref().map_or(0, str::len);
        size_of::<Self>() + self.segments.iter().map(of).sum::<usize>()
    }
}

/// A prompt whose outline is made: it knows the texts, too.
pub struct Draft<'a> {
    prompt: &'a str,
    frame: Cow<'a, Frame>,
    is_framed: bool,
    places: Vec<Placed<'a>>,
}

/// Where a segment stands.
pub(super) struct Placed<'a> {
    pub(super) kind: SegmentKind,
    pub(super) index: u32,
    /// How its path begins.
    pub(super) path: Cow<'a, str>,
    name: Option<Box<str>>,
    stretch: Stretch,
}

impl<'a> Draft<'a> {
    /// Of a span that holds its texts; `None` where it has none.
    pub fn of(span: &'a SpanRecord) -> Option<Self> {
        let prompt = span.prompt.as_deref()?;
        let (frame, is_framed) = match &span.frame {
            Some(frame) => (Cow::Borrowed(&**frame), true),
            None => (Cow::Owned(frame_of_parts(&span.parts)), false),
        };
        let mut draft = Draft { prompt, frame, is_framed, places: Vec::new() };
        draft.places = draft.find();
        if let Some(model) = &span.model {
            // It stands in the path of some requests: this way it is one thing.
            let nothing = Stretch { json: 0..0, texts: 0..0 };
            draft.places.insert(
                0,
                Placed {
                    kind: SegmentKind::Model,
                    index: 0,
                    path: Cow::Borrowed("model"),
                    name: Some(short(model)),
                    stretch: nothing,
                },
            );
        }
        (draft.places.len() > usize::from(span.model.is_some())).then_some(draft)
    }

    fn find(&self) -> Vec<Placed<'a>> {
        let json = &*self.frame.json;
        let whole = Stretch { json: 0..json.len(), texts: 0..self.frame.texts.len() };
        let mut all = Vec::new();
        for (key, value) in Cursor::at(json, &whole).members() {
            let key = json.get(key.json).unwrap_or_default().trim_matches('"');
            self.add_member(&mut all, key, value);
        }
        // Members come in any order; what a kind has stays in its own.
        all.sort_by_key(|placed: &Placed<'_>| placed.kind);
        all.truncate(SEGMENTS_MAX);
        let mut before = None;
        let mut next = 0;
        for placed in &mut all {
            next = if before == Some(placed.kind) { next + 1 } else { 0 };
            before = Some(placed.kind);
            placed.index = next;
        }
        all
    }

    fn add_member(&self, all: &mut Vec<Placed<'a>>, key: &str, value: Stretch) {
        let known = |names: &[&'static str]| names.iter().find(|name| **name == key).copied();
        let mut add = |kind, path: Cow<'a, str>, name: Option<Box<str>>, stretch| {
            all.push(Placed { kind, index: 0, path, name, stretch });
        };
        if let Some(name) = known(&FRONT) {
            add(SegmentKind::Setting, Cow::Borrowed(name), Some(name.into()), value);
        } else if let Some(name) = known(&OF_MESSAGES) {
            add(SegmentKind::MessageSetting, Cow::Borrowed(name), Some(name.into()), value);
        } else if let Some(name) = known(&TOOLS) {
            for (path, tool) in self.tools(name, &value) {
                let name = self.tool_name(&tool);
                add(SegmentKind::Tool, Cow::Owned(path), name, tool);
            }
        } else if let Some(name) = known(&SYSTEM).or_else(|| known(&MESSAGES)) {
            let of_system = known(&SYSTEM).is_some();
            match Cursor::at(&self.frame.json, &value).elements() {
                Some(elements) => {
                    for (at, element) in elements.into_iter().enumerate() {
                        let is_system = of_system || at < SYSTEM_MESSAGES_MAX && self.is_system(&element);
                        let kind = if is_system { SegmentKind::System } else { SegmentKind::Message };
                        add(kind, Cow::Owned(format!("{name}[{at}]")), None, element);
                    }
                }
                None => {
                    let kind = if of_system { SegmentKind::System } else { SegmentKind::Message };
                    add(kind, Cow::Borrowed(name), None, value);
                }
            }
        }
    }

    /// The definitions of tools; some providers group them.
    fn tools(&self, name: &str, value: &Stretch) -> Vec<(String, Stretch)> {
        let json = &*self.frame.json;
        let mut all = Vec::new();
        for (at, element) in Cursor::at(json, value).elements().unwrap_or_default().into_iter().enumerate() {
            let members = Cursor::at(json, &element).members();
            let key = |key: &Stretch| json.get(key.json.clone()).unwrap_or_default().trim_matches('"');
            let group = members.iter().find(|(name, _)| DECLARATIONS.contains(&key(name)));
            let inner = group.and_then(|(name, list)| Some((key(name), Cursor::at(json, list).elements()?)));
            match inner {
                Some((inner, elements)) => all.extend(
                    elements.into_iter().enumerate().map(|(n, tool)| (format!("{name}[{at}].{inner}[{n}]"), tool)),
                ),
                None => all.push((format!("{name}[{at}]"), element)),
            }
        }
        all
    }

    fn tool_name(&self, tool: &Stretch) -> Option<Box<str>> {
        let json = &*self.frame.json;
        let own = |of: &Stretch, wanted: &str| {
            let members = Cursor::at(json, of).members();
            members.into_iter().find(|(key, _)| json.get(key.json.clone()) == Some(wanted)).map(|(_, value)| value)
        };
        let name = own(tool, "\"name\"")
            .or_else(|| own(&own(tool, "\"function\"")?, "\"name\""))
            .or_else(|| own(tool, "\"type\""))?;
        self.string(&name).map(short)
    }

    /// The text of a string.
    fn string(&self, value: &Stretch) -> Option<&str> {
        if let Some(range) = self.frame.texts.get(value.texts.start).filter(|_| !value.texts.is_empty()) {
            return self.prompt.get(range.start as usize..range.end as usize);
        }
        Some(self.frame.json.get(value.json.clone())?.trim_matches('"'))
    }

    fn is_system(&self, message: &Stretch) -> bool {
        matches!(self.role(message), Some("system" | "developer"))
    }

    fn role(&self, message: &Stretch) -> Option<&str> {
        let members = Cursor::at(&self.frame.json, message).members();
        let named =
            |wanted: &str| members.iter().find(|(key, _)| self.frame.json.get(key.json.clone()) == Some(wanted));
        named("\"role\"").or_else(|| named("\"type\"")).and_then(|(_, value)| self.string(value))
    }

    pub(super) fn placed(&self, at: usize) -> Option<&Placed<'a>> {
        self.places.get(at)
    }

    /// The name of a tool or setting, the role of a message.
    pub(super) fn name(&self, placed: &Placed<'_>) -> Option<String> {
        match placed.kind {
            SegmentKind::Message => self.role(&placed.stretch).map(|role| short(role).into()),
            SegmentKind::System => None,
            _ => placed.name.as_deref().map(str::to_owned),
        }
    }

    pub(super) fn skeleton(&self, placed: &Placed<'_>) -> Skeleton<'_> {
        Skeleton::of(&self.frame.json, &self.frame.texts, &placed.stretch)
    }

    pub(super) const fn prompt(&self) -> &'a str {
        self.prompt
    }

    /// The outline.
    pub fn outline(&self) -> Outline {
        let mut outline = Outline {
            segments: Vec::with_capacity(self.places.len()),
            bytes: 0,
            is_framed: self.is_framed,
            asks_for_cache: asks_for_cache(&self.frame.json),
        };
        for placed in &self.places {
            let mut marks = Marks::default();
            if placed.kind == SegmentKind::Model {
                marks.push(placed.name.as_deref().unwrap_or_default().as_bytes());
            }
            let skeleton = self.skeleton(placed);
            for piece in skeleton.pieces(self.prompt) {
                match piece {
                    Piece::Json(json) => marks.push(json.as_bytes()),
                    Piece::Text(text) => {
                        marks.push(b"\"");
                        marks.push(text.as_bytes());
                        marks.push(b"\"");
                    }
                }
            }
            let (hash, bytes, marks) = marks.finish();
            outline.bytes += u64::from(bytes);
            let name = placed.name.clone();
            outline.segments.push(Segment { kind: placed.kind, index: placed.index, name, hash, bytes, marks });
        }
        outline
    }
}

fn short(name: &str) -> Box<str> {
    let end = name.floor_char_boundary(NAME_BYTES_MAX);
    name.get(..end).unwrap_or_default().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The frame of a body of which only parts are known: its messages in order, each with its role and its texts.
fn frame_of_parts(parts: &[PartRecord]) -> Frame {
    let mut lists: [(Vec<String>, Vec<Range<u32>>); 3] = Default::default();
    let mut former: Option<(usize, Option<u32>)> = None;
    let own = parts.iter().filter(|part| part.side == PartSide::Request && part.form != PartForm::Credential);
    for part in own {
        let Some(text) = &part.text else { continue };
        let list = match part.kind {
            PartKind::ToolDefinition => 0,
            PartKind::System if part.message.is_none() => 1,
            _ => 2,
        };
        let Some((items, texts)) = lists.get_mut(list) else { continue };
        texts.push(text.clone());
        let joins = part.message.is_some() && former == Some((list, part.message));
        match items.last_mut().filter(|_| joins) {
            Some(item) => item.push_str(&format!(",{TEXT}")),
            None => {
                let role = serde_json::Value::from(part.role.as_deref().unwrap_or_default());
                items.push(format!("{{\"role\":{role},\"content\":[{TEXT}"));
            }
        }
        former = Some((list, part.message));
    }
    let mut frame = Frame { json: "{".to_owned(), texts: Vec::new() };
    for ((items, texts), name) in lists.into_iter().zip(["tools", "system", "messages"]) {
        let items: Vec<String> = items.into_iter().map(|item| item + "]}").collect();
        let comma = if frame.json.len() > 1 { "," } else { "" };
        frame.json.push_str(&format!("{comma}\"{name}\":[{}]", items.join(",")));
        frame.texts.extend(texts);
    }
    frame.json.push('}');
    frame
}

/// Marks of the stretches of a segment, and a hash of all of it, in one pass. No secret is in them: who makes two texts collide has
/// deceived only the record of its own session.
#[derive(Default)]
struct Marks {
    all: Vec<u16>,
    hash: u64,
    bytes: u32,
    rest: Vec<u8>,
}

impl Marks {
    fn push(&mut self, mut bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        if !self.rest.is_empty() {
            let fill = (MARKED_BYTES - self.rest.len()).min(bytes.len());
            let (head, tail) = bytes.split_at(fill);
            self.rest.extend_from_slice(head);
            bytes = tail;
            if self.rest.len() < MARKED_BYTES {
                return;
            }
            let full = std::mem::take(&mut self.rest);
            self.mark(&full);
            self.rest = full;
            self.rest.clear();
        }
        let chunks = bytes.chunks_exact(MARKED_BYTES);
        self.rest.extend_from_slice(chunks.remainder());
        chunks.for_each(|chunk| self.mark(chunk));
    }

    fn mark(&mut self, chunk: &[u8]) {
        let word = |at: usize| {
            let bytes = chunk.get(at..at + 8).and_then(|word| word.try_into().ok()).unwrap_or_default();
            u64::from_le_bytes(bytes)
        };
        let mixed = mix(word(0) ^ 0x9e37_79b9_7f4a_7c15, word(8) ^ 0xd1b5_4a32_d192_ed03);
        self.all.push((mixed >> 48) as u16);
        self.hash = mix(self.hash ^ 0x2545_f491_4f6c_dd1d, mixed);
    }

    fn finish(mut self) -> (u64, u32, Box<[u16]>) {
        if !self.rest.is_empty() {
            let mut last = std::mem::take(&mut self.rest);
            last.resize(MARKED_BYTES, 0);
            self.mark(&last);
        }
        (mix(self.hash ^ u64::from(self.bytes), 0x9fb2_1c65_1e98_df25), self.bytes, self.all.into_boxed_slice())
    }
}

const fn mix(a: u64, b: u64) -> u64 {
    let product = (a as u128) * (b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}
