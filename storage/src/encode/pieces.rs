//! The texts of one side of a call as pieces in wire order: each part with its own text, and what stands between the parts.
//!
//! The pieces of a side, joined by line breaks, are its text (`prompt` or `response`), so neither text nor ranges are stored
//! twice. A side whose parts do not divide its text like that is one bare piece, and its parts name their ranges.

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;
use weir_config::vocab::part::{PartForm, PartKind, PartRecord, PartSide, PartTool};

use super::Damaged;
use super::bytes::{Packer, Unpacker};
use crate::record::SpanRecord;

/// The lowest bits of a piece's first byte: the kind of its part, in the order of [`KINDS`], or that it is none.
const KIND_BITS: u8 = 0b111;
const BARE: u8 = 7;
const FORM_SHIFT: u32 = 3;
const HAS_TOOL: u8 = 0x40;
const HAS_TEXT: u8 = 0x80;
/// The lowest bits of its second byte: the role, counted from 1 in [`ROLES`].
const ROLE_BITS: u8 = 0b1111;
const OTHER_ROLE: u8 = 15;
const MESSAGE_SHIFT: u32 = 4;
const HAS_RANGE: u8 = 0x40;

// Positions in these lists are part of the file format.
const KINDS: [PartKind; 7] = [
    PartKind::System,
    PartKind::User,
    PartKind::Assistant,
    PartKind::Tool,
    PartKind::ToolDefinition,
    PartKind::ToolCall,
    PartKind::Output,
];
const FORMS: [PartForm; 5] =
    [PartForm::Text, PartForm::Reasoning, PartForm::Refusal, PartForm::File, PartForm::Credential];
const ROLES: [&str; 7] = ["user", "assistant", "system", "tool", "developer", "model", "function"];

/// A piece of a text on its way into the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    /// `None` for what belongs to no part.
    pub(crate) part: Option<&'a PartRecord>,
    /// Its own text.
    text: Option<&'a str>,
    /// The part names its range, because its text stands in a bare piece.
    named: bool,
}

/// A piece that was read.
#[derive(Debug, PartialEq)]
pub(crate) struct Read {
    part: Option<(PartRecord, Message)>,
    text: Option<String>,
}

/// Which message a part belongs to, as seen from the part before it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Message {
    None,
    Same,
    Next,
    Further(i64),
}

/// One side's pieces, and its parts in wire order: where each stands, and its index in the span's list.
pub(crate) struct Side<'a> {
    pub(crate) pieces: Pieces<'a>,
    pub(crate) order: SmallVec<[(u32, usize); 2]>,
}

/// Most calls have one or two, which need no memory of their own.
pub(crate) type Pieces<'a> = SmallVec<[Piece<'a>; 2]>;

// === writing ===

impl Piece<'_> {
    /// Its own text.
    pub(crate) fn text(&self) -> Option<&str> {
        self.text
    }

    /// Bytes of its text.
    pub(crate) fn bytes(&self) -> usize {
        self.text.map_or(0, str::len)
    }

    /// Whether it is what only a conversation has that goes on: something said before, tools, what they brought.
    pub(crate) fn is_of_conversation(&self) -> bool {
        use PartKind::{Assistant, Tool, ToolCall, ToolDefinition};
        self.part.is_some_and(|part| matches!(part.kind, Assistant | Tool | ToolCall | ToolDefinition))
    }
}

/// The message of the last part that has one, after these pieces.
pub(crate) fn last_message(pieces: &[Piece<'_>], last: i64) -> i64 {
    let messages = pieces.iter().rev().filter_map(|piece| piece.part?.message);
    messages.map(i64::from).next().unwrap_or(last)
}

/// Divides one side of a call.
pub(crate) fn divide(span: &SpanRecord, side: PartSide) -> Side<'_> {
    let text = match side {
        PartSide::Request => span.prompt.as_deref(),
        PartSide::Response => span.response.as_deref(),
    };
    // What has no text stands where the part before it does.
    let mut place = 0;
    let mut order: SmallVec<[(u32, usize); 2]> = SmallVec::new();
    for (at, part) in span.parts.iter().enumerate().filter(|(_, part)| part.side == side) {
        place = part.text.as_ref().map_or(place, |text| text.start);
        order.push((place, at));
    }
    order.sort_by_key(|(place, _)| *place);
    let parts = || order.iter().filter_map(|(_, at)| span.parts.get(*at));
    let pieces = joined(text, parts(), order.len()).unwrap_or_else(|| {
        let bare = text.map(|text| Piece { part: None, text: Some(text), named: false });
        let named = parts().map(|part| Piece { part: Some(part), text: None, named: part.text.is_some() });
        bare.into_iter().chain(named).collect()
    });
    Side { pieces, order }
}

/// The pieces, if joining them by line breaks gives the text.
fn joined<'a>(text: Option<&'a str>, parts: impl Iterator<Item = &'a PartRecord>, count: usize) -> Option<Pieces<'a>> {
    let mut pieces = Pieces::with_capacity(count);
    // Where the next piece begins.
    let mut next = 0;
    for part in parts {
        let Some(range) = &part.text else {
            pieces.push(Piece { part: Some(part), text: None, named: false });
            continue;
        };
        let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
        let all = text?;
        let ends_line = |at: usize| at == 0 || all.as_bytes().get(at - 1) == Some(&b'\n');
        if start < next || !ends_line(start) || !ends_line(next) {
            return None;
        }
        if start > next {
            pieces.push(Piece { part: None, text: Some(all.get(next..start - 1)?), named: false });
        }
        pieces.push(Piece { part: Some(part), text: Some(all.get(start..end)?), named: false });
        next = end + 1;
    }
    let Some(all) = text else { return Some(pieces) };
    if next == 0 || next < all.len() + 1 {
        if next > 0 && all.as_bytes().get(next - 1) != Some(&b'\n') {
            return None;
        }
        pieces.push(Piece { part: None, text: Some(all.get(next..)?), named: false });
    }
    Some(pieces)
}

/// Packs pieces that follow those `last` has seen: the message of the last part that had one.
pub(super) fn pack(to: &mut Packer, pieces: &[Piece<'_>], last: &mut i64) {
    to.varint(pieces.len() as u64);
    for piece in pieces {
        pack_piece(to, piece, last);
    }
}

fn pack_piece(to: &mut Packer, piece: &Piece<'_>, last: &mut i64) {
    let text_flag = if piece.text.is_some() { HAS_TEXT } else { 0 };
    let Some(part) = piece.part else {
        to.byte(BARE | text_flag);
        if let Some(text) = piece.text {
            to.text(text);
        }
        return;
    };
    let place = |at: Option<usize>| at.map_or(0, |at| at as u8);
    let kind = place(KINDS.iter().position(|kind| *kind == part.kind));
    let form = place(FORMS.iter().position(|form| *form == part.form));
    to.byte(kind | form << FORM_SHIFT | if part.tool.is_some() { HAS_TOOL } else { 0 } | text_flag);
    let role = match part.role.as_deref() {
        None => 0,
        Some(role) => ROLES.iter().position(|usual| *usual == role).map_or(OTHER_ROLE, |at| at as u8 + 1),
    };
    let message = match part.message.map(i64::from) {
        None => Message::None,
        Some(at) => match at - std::mem::replace(last, at) {
            0 => Message::Same,
            1 => Message::Next,
            further => Message::Further(further),
        },
    };
    let code = match message {
        Message::None => 0,
        Message::Same => 1,
        Message::Next => 2,
        Message::Further(_) => 3,
    };
    to.byte(role | code << MESSAGE_SHIFT | if piece.named { HAS_RANGE } else { 0 });
    if let (OTHER_ROLE, Some(role)) = (role, &part.role) {
        to.text(role);
    }
    if let Message::Further(further) = message {
        to.zigzag(further);
    }
    if let (true, Some(range)) = (piece.named, &part.text) {
        to.varint(u64::from(range.start));
        to.varint(u64::from(range.end));
    }
    if let Some(tool) = &part.tool {
        to.optional_text(tool.name.as_deref());
        to.optional_text(tool.id.as_deref());
    }
    if let Some(text) = piece.text {
        to.text(text);
    }
}

// === reading ===

pub(super) fn unpack(from: &mut Unpacker<'_>) -> Result<Vec<Read>, Damaged> {
    from.list(unpack_piece)
}

fn unpack_piece(from: &mut Unpacker<'_>) -> Result<Read, Damaged> {
    let flags = from.byte()?;
    let has_text = flags & HAS_TEXT != 0;
    if flags & KIND_BITS == BARE {
        return Ok(Read { part: None, text: if has_text { Some(from.text()?) } else { None } });
    }
    let kind = *KINDS.get(usize::from(flags & KIND_BITS)).ok_or(Damaged)?;
    let form = *FORMS.get(usize::from(flags >> FORM_SHIFT & 0b111)).ok_or(Damaged)?;
    let second = from.byte()?;
    let role = match second & ROLE_BITS {
        0 => None,
        OTHER_ROLE => Some(Cow::Owned(from.text()?)),
        usual => Some(Cow::Borrowed(*ROLES.get(usize::from(usual) - 1).ok_or(Damaged)?)),
    };
    let message = match second >> MESSAGE_SHIFT & 0b11 {
        0 => Message::None,
        1 => Message::Same,
        2 => Message::Next,
        _ => Message::Further(from.zigzag()?),
    };
    let end = |from: &mut Unpacker<'_>| u32::try_from(from.varint()?).map_err(|_| Damaged);
    let range = if second & HAS_RANGE == 0 { None } else { Some(end(from)?..end(from)?) };
    let tool = match flags & HAS_TOOL {
        0 => None,
        _ => Some(Box::new(PartTool { name: from.optional_text()?, id: from.optional_text()? })),
    };
    let text = if has_text { Some(from.text()?) } else { None };
    let side = PartSide::Request;
    let part = PartRecord { side, kind, form, role, message: None, text: range, raw: None, tool };
    Ok(Read { part: Some((part, message)), text })
}

/// Puts one side together again from its pieces, given in order.
#[derive(Debug)]
pub(crate) struct Joining {
    side: PartSide,
    text: Option<String>,
    parts: Vec<PartRecord>,
    last: i64,
}

impl Joining {
    pub(crate) fn of(side: PartSide) -> Self {
        Self { side, text: None, parts: Vec::new(), last: -1 }
    }

    pub(crate) fn add(&mut self, read: Read) -> Result<(), Damaged> {
        let own: Option<Range<u32>> = match read.text {
            None => None,
            Some(text) => {
                let start = match &mut self.text {
                    None => {
                        self.text = Some(text);
                        0
                    }
                    Some(all) => {
                        all.push('\n');
                        let start = all.len();
                        all.push_str(&text);
                        start
                    }
                };
                let end = self.text.as_ref().map_or(0, String::len);
                Some(u32::try_from(start).map_err(|_| Damaged)?..u32::try_from(end).map_err(|_| Damaged)?)
            }
        };
        let Some((mut part, message)) = read.part else { return Ok(()) };
        let further = match message {
            Message::None => None,
            Message::Same => Some(0),
            Message::Next => Some(1),
            Message::Further(further) => Some(further),
        };
        if let Some(further) = further {
            self.last = self.last.checked_add(further).ok_or(Damaged)?;
            part.message = Some(u32::try_from(self.last).map_err(|_| Damaged)?);
        }
        part.side = self.side;
        part.text = own.or(part.text);
        self.parts.push(part);
        Ok(())
    }

    /// The text and the parts of the side.
    pub(crate) fn end(self) -> (Option<String>, Vec<PartRecord>) {
        (self.text, self.parts)
    }
}

impl Read {
    /// What it takes in a record.
    pub(crate) fn weight(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let tool = |tool: &PartTool| size_of::<PartTool>() + text(&tool.name) + text(&tool.id);
        let part = |part: &PartRecord| size_of_val(part) + part.tool.as_deref().map_or(0, tool);
        text(&self.text) + self.part.as_ref().map_or(0, |(it, _)| part(it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::sample_span;

    fn part(kind: PartKind, message: Option<u32>, text: Option<Range<u32>>) -> PartRecord {
        PartRecord {
            side: PartSide::Request,
            kind,
            form: PartForm::Text,
            role: Some("user".into()),
            message,
            text,
            raw: None,
            tool: None,
        }
    }

    fn there_and_back(prompt: Option<&str>, parts: Vec<PartRecord>) -> (usize, Option<String>, Vec<PartRecord>) {
        let span = SpanRecord { prompt: prompt.map(str::to_owned), parts, ..sample_span() };
        let side = divide(&span, PartSide::Request);
        let mut packer = Packer::default();
        pack(&mut packer, &side.pieces, &mut -1);
        let mut unpacker = Unpacker::new(&packer.head, &packer.text).unwrap();
        let mut joining = Joining::of(PartSide::Request);
        for read in unpack(&mut unpacker).unwrap() {
            joining.add(read).unwrap();
        }
        assert!(unpacker.finish().is_ok());
        let (text, parts) = joining.end();
        (packer.text.len(), text, parts)
    }

    #[test]
    fn what_parts_divide_is_stored_once_and_comes_back_with_its_ranges() {
        let parts = vec![
            part(PartKind::System, None, Some(0..3)),
            part(PartKind::User, Some(0), Some(9..12)),
            part(PartKind::User, Some(0), None),
            part(PartKind::Assistant, Some(5), Some(13..13)),
            // What is told of a file stands before, and is said behind.
            part(PartKind::User, Some(1), Some(4..8)),
        ];
        let (bytes, text, read) = there_and_back(Some("sys\nfile\nusr\n\ntail"), parts.clone());
        assert_eq!((bytes, text.as_deref()), ("sysfileusrtail".len(), Some("sys\nfile\nusr\n\ntail")));
        let order = [0, 4, 1, 2, 3].map(|at: usize| parts[at].clone());
        assert_eq!(read, order);
    }

    #[test]
    fn parts_that_divide_nothing_name_their_ranges() {
        for (prompt, ranges) in [
            (Some("abcdef"), vec![Some(0..4), Some(2..6)]),
            (Some("abc def"), vec![Some(0..3), Some(4..7)]),
            (Some("abc"), vec![Some(1..9)]),
            (None, vec![Some(0..9), None]),
        ] {
            let parts: Vec<_> = ranges.into_iter().map(|range| part(PartKind::Tool, Some(3), range)).collect();
            let (bytes, text, read) = there_and_back(prompt, parts.clone());
            assert_eq!((bytes, text.as_deref(), read), (prompt.map_or(0, str::len), prompt, parts));
        }
        for prompt in [None, Some(""), Some("\n"), Some("no parts")] {
            assert_eq!(there_and_back(prompt, Vec::new()).1.as_deref(), prompt);
        }
    }
}
