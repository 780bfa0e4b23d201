//! How much of a prompt is equal to the one before it, from the beginning, and what came there instead.

use std::collections::HashMap;

use super::outline::{Draft, MARKED_BYTES, Outline, Segment};
use super::place::place;
use crate::prompt_cache::{BrokeAt, Change, SegmentKind, Stands};

/// How two prompts go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// Bytes that are equal from the beginning.
    pub equal_bytes: u64,
    /// Whether they are turns of one conversation. What is not has only its tools and system prompt in common, or less.
    pub is_one_conversation: bool,
    /// Where they part; `None` where one is the beginning of the other.
    pub divergence: Option<Divergence>,
}

/// Where two prompts part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Divergence {
    /// The first segment that differs; the later prompt may end before it.
    at: usize,
    /// What became of it.
    pub change: Change,
    /// Bytes of it that are equal.
    offset: usize,
}

/// Compares a prompt with the one before it. Linear in their segments.
pub fn compare(former: &Outline, now: &Outline) -> Comparison {
    let mut at = 0;
    let mut equal_bytes = 0;
    let mut pairs = former.segments.iter().zip(&now.segments);
    while let Some((old, new)) = pairs.next().filter(|(old, new)| same(old, new)) {
        at += 1;
        equal_bytes += u64::from(new.bytes.min(old.bytes));
    }
    let (old, new) = (former.segments.get(at), now.segments.get(at));
    let is_one_conversation = is_one_conversation(former, now);
    let divergence = match (old, new) {
        (None, _) => None,
        // The later prompt is the beginning of the former, unless something is gone before the messages.
        (Some(old), None) if old.kind == SegmentKind::Message => None,
        (Some(_), None) => Some(Divergence { at, change: Change::Removed, offset: 0 }),
        (Some(old), Some(new)) => {
            let change = change(former, now, at, old, new);
            let offset = if change == Change::Changed { equal_marks(old, new) } else { 0 };
            Some(Divergence { at, change, offset })
        }
    };
    equal_bytes += divergence.map_or(0, |divergence| divergence.offset as u64);
    Comparison { equal_bytes, is_one_conversation, divergence }
}

fn same(old: &Segment, new: &Segment) -> bool {
    old.kind == new.kind && old.hash == new.hash && old.bytes == new.bytes
}

/// Bytes in front that are equal, by their marks.
fn equal_marks(old: &Segment, new: &Segment) -> usize {
    let marks = old.marks.iter().zip(&new.marks).take_while(|(old, new)| old == new).count();
    (marks * MARKED_BYTES).min(old.bytes.min(new.bytes) as usize)
}

/// What became of the segment at `at`: by whether the old one comes later, and whether the new one was there later.
fn change(former: &Outline, now: &Outline, at: usize, old: &Segment, new: &Segment) -> Change {
    if old.kind != new.kind {
        // The kinds are in one order: the smaller one has one more here.
        return if old.kind < new.kind { Change::Removed } else { Change::Inserted };
    }
    let later =
        |outline: &Outline, wanted: &Segment| outline.segments.iter().skip(at + 1).any(|segment| same(segment, wanted));
    match (later(now, old), later(former, new)) {
        (true, true) => Change::Moved,
        (true, false) => Change::Inserted,
        (false, true) => Change::Removed,
        (false, false) => Change::Changed,
    }
}

/// Whether half of the messages of the former prompt, or of their bytes, are in the later one, wherever; a prompt of one message may have
/// had that changed where tools and system prompt are the same and more came behind it.
fn is_one_conversation(former: &Outline, now: &Outline) -> bool {
    let messages = |outline: &'_ Outline| -> Vec<(u64, u32)> {
        let own = outline.segments.iter().filter(|segment| segment.kind == SegmentKind::Message);
        own.map(|segment| (segment.hash, segment.bytes)).collect()
    };
    let (old, new) = (messages(former), messages(now));
    if old.is_empty() || new.is_empty() {
        return old.is_empty() == new.is_empty();
    }
    let mut known: HashMap<(u64, u32), usize> = HashMap::with_capacity(new.len());
    for message in new {
        *known.entry(message).or_default() += 1;
    }
    let (mut count, mut bytes, mut all) = (0, 0, 0);
    let total = old.len();
    for message in old {
        all += u64::from(message.1);
        if let Some(left) = known.get_mut(&message).filter(|left| **left > 0) {
            *left -= 1;
            count += 1;
            bytes += u64::from(message.1);
        }
    }
    2 * count >= total || 2 * bytes >= all
}

impl Divergence {
    /// The kind of the segment that differs, as the later prompt has it, else as the former had.
    pub fn kind(&self, former: &Outline, now: &Outline) -> SegmentKind {
        self.segment(former, now).map_or(SegmentKind::Message, |segment| segment.kind)
    }

    fn segment<'a>(&self, former: &'a Outline, now: &'a Outline) -> Option<&'a Segment> {
        let (old, new) = (former.segments.get(self.at), now.segments.get(self.at));
        if self.change == Change::Removed { old } else { new.or(old) }
    }

    /// Where this is and what stands there, by the draft of the later prompt.
    pub fn broke_at(&self, former: &Outline, now: &Outline, draft: &Draft<'_>) -> Option<BrokeAt> {
        let segment = self.segment(former, now)?;
        let placed = draft.placed(self.at);
        let mut broke = BrokeAt {
            part: segment.kind,
            index: segment.index,
            name: segment.name.as_deref().map(str::to_owned),
            change: self.change,
            path: placed.map(|placed| placed.path.to_string()).unwrap_or_default(),
            byte: None,
            stands: None,
            says: String::new(),
        };
        if let Some(placed) = placed.filter(|_| self.change != Change::Removed) {
            broke.name = broke.name.or_else(|| draft.name(placed));
            if self.change == Change::Changed && placed.kind != SegmentKind::Model {
                let found = place(&draft.skeleton(placed), draft.prompt(), self.offset);
                broke.path.push_str(&found.path);
                (broke.byte, broke.stands) = (found.byte, found.stands);
            }
        }
        broke.says = says(&broke);
        Some(broke)
    }
}

fn says(broke: &BrokeAt) -> String {
    let number = broke.index + 1;
    let name = broke.name.as_deref().map(|name| format!(" (`{name}`)")).unwrap_or_default();
    let what = match broke.part {
        SegmentKind::Model => {
            return format!(
                "the model is another one{}",
                broke.name.as_deref().map(|name| format!(", `{name}`")).unwrap_or_default()
            );
        }
        SegmentKind::Setting | SegmentKind::MessageSetting => format!("the setting{name}"),
        SegmentKind::Tool => format!("tool {number}{name}"),
        SegmentKind::System if broke.index == 0 => "the system prompt".to_owned(),
        SegmentKind::System => format!("piece {number} of the system prompt"),
        SegmentKind::Message => format!("message {number}{name}"),
    };
    let mut said = match broke.change {
        Change::Changed => format!("{what} has changed"),
        Change::Inserted => format!("{what} is new here"),
        Change::Removed => format!("{what} is no longer here"),
        Change::Moved => format!("{what} stood elsewhere"),
    };
    let field = broke.path.rsplit('.').next().filter(|field| {
        // Those are where one expects texts.
        broke.path.contains('.') && !field.contains('[') && !matches!(*field, "text" | "content" | "parts")
    });
    if let (Change::Changed, Some(field)) = (broke.change, field) {
        said.push_str(&format!(" in its `{field}`"));
    }
    if let Some(byte) = broke.byte {
        said.push_str(&format!(" at byte {byte}"));
    }
    let stands = broke.stands.map(|stands| match stands {
        Stands::Date => "a date",
        Stands::Time => "a time of day",
        Stands::Id => "an id",
        Stands::Number => "a number",
    });
    if let Some(stands) = stands {
        said.push_str(&format!(", where {stands} stands"));
    }
    said
}
