//! What a body is beside its texts, for the record of calls that have tools: names and numbers of arguments, schemas, signatures,
//! parameters.
//!
//! Where the strings of a body stand is noted anyway (`place`). What stands there in another form, and what is not to be kept, is
//! noted here, and the frame is cut once the body has been read. Invariant: a string that was read as a text, as a file or as a
//! credential is cut out of the frame, whatever became of it.

use std::ops::Range;

use weir_config::vocab::frame::{CODED, FILE, Frame, TEXT, VALUE, VALUE_END, WITHHELD};
use weir_config::vocab::part::PartForm;
use weir_inference::PartKind;

use super::gather::Source;
use super::part::Kept;
use super::request::RequestView;
use crate::json::Text;

/// What is noted while a body is read.
#[derive(Default)]
pub(super) struct Framing {
    /// Texts that are no string of the body as it stands there, in the order of the text.
    made: Vec<Made>,
    /// Strings of which no text is kept.
    withheld: Vec<Range<u32>>,
    /// Values whose strings are one part.
    values: Vec<Range<u32>>,
}

struct Made {
    /// Where its text begins.
    text: u32,
    /// What of the body it stands for; `None` where something else does.
    raw: Option<Range<u32>>,
    mark: char,
}

/// A stretch of the body that the frame does not have.
struct Cut {
    raw: Range<u32>,
    mark: char,
    text: Range<u32>,
}

/// A string with its quotes.
fn quoted(string: &Text<'_>) -> Option<Range<u32>> {
    short(string.start().checked_sub(1)?..string.end() + 1)
}

fn short(range: Range<usize>) -> Option<Range<u32>> {
    Some(u32::try_from(range.start).ok()?..u32::try_from(range.end).ok()?)
}

impl Framing {
    /// Notes a text that begins at `text` and was not read from a JSON string as it stands.
    pub(super) fn made(&mut self, text: usize, source: Source<'_>) {
        let (raw, mark) = match source {
            Source::Made(_, string) => (quoted(&string), TEXT),
            Source::File(_, string, payload) => (short(payload.in_body(&string)), CODED),
            Source::Described(_, string) => (quoted(&string), FILE),
            _ => (None, TEXT),
        };
        if let Ok(text) = u32::try_from(text) {
            self.made.push(Made { text, raw, mark });
        }
    }

    /// Notes a string of which no text is kept.
    pub(super) fn withhold(&mut self, string: &Text<'_>) {
        self.withheld.extend(quoted(string));
    }

    /// Notes a value whose strings are one part.
    pub(super) fn value(&mut self, raw: Range<usize>) {
        self.values.extend(short(raw));
    }

    /// The frame of a body that was read whole; `None` where its parts say all that anybody needs to ask the same again.
    pub(super) fn cut(&self, view: &RequestView, body: &[u8]) -> Option<Box<Frame>> {
        let tells_more = |form: PartForm, kind: PartKind| {
            form == PartForm::Reasoning
                || matches!(kind, PartKind::Tool | PartKind::ToolCall | PartKind::ToolDefinition)
        };
        let tells_more = !view.bare.is_empty() || view.parts.iter().any(|it| tells_more(it.form, it.kind));
        if view.truncated || !tells_more {
            return None;
        }
        let body = std::str::from_utf8(body).ok()?;
        let mut cuts = self.texts(view)?;
        let bare = |raw: &Range<u32>, mark| Cut { raw: raw.clone(), mark, text: 0..0 };
        cuts.extend(self.withheld.iter().map(|raw| bare(raw, WITHHELD)));
        cuts.extend(self.values.iter().map(|raw| bare(&(raw.start..raw.start), VALUE)));
        cuts.extend(self.values.iter().map(|raw| bare(&(raw.end..raw.end), VALUE_END)));
        cuts.sort_by_key(|cut| (cut.raw.start, cut.raw.end));
        let mut frame = Frame::default();
        let mut done = 0;
        for Cut { raw, mark, text } in cuts {
            let (start, end) = (usize::try_from(raw.start).ok()?, usize::try_from(raw.end).ok()?);
            // What stands there came as two texts.
            if start < done {
                continue;
            }
            frame.json.push_str(body.get(done..start)?);
            frame.json.push(mark);
            if weir_config::vocab::frame::has_text(mark) {
                frame.texts.push(text);
            }
            done = end;
        }
        frame.json.push_str(body.get(done..)?);
        Some(Box::new(frame))
    }

    /// Where the texts stand in the body, and in the text as it is recorded.
    fn texts(&self, view: &RequestView) -> Option<Vec<Cut>> {
        let mut strings = view.places.strings()?.peekable();
        let mut made = self.made.iter().peekable();
        let mut cuts: Vec<(u32, Option<Range<u32>>, char)> = Vec::with_capacity(view.parts.len() + 8);
        loop {
            let (string, other) = (strings.peek().map(|(text, _)| *text), made.peek().map(|made| made.text));
            if string.is_some_and(|string| other.is_none_or(|other| string < other)) {
                let (text, raw) = strings.next()?;
                cuts.push((text, Some(raw.start.checked_sub(1)?..raw.end + 1), TEXT));
            } else if let Some(Made { text, raw, mark }) = made.next() {
                cuts.push((*text, raw.clone(), *mark));
            } else {
                break;
            }
        }
        let ends: Vec<usize> = cuts.iter().skip(1).map(|(text, ..)| (*text as usize).saturating_sub(1)).collect();
        let mut kept = Kept::of(&view.unrecorded);
        let mut found = Vec::with_capacity(cuts.len());
        for ((text, raw, mark), end) in cuts.into_iter().zip(ends.into_iter().chain([view.text.len()])) {
            let place = kept.place(&(text as usize..end));
            let Some(raw) = raw else { continue };
            match place {
                Some(text) => found.push(Cut { raw, mark, text }),
                // Of a file in base64 nothing but its coding was kept.
                None if mark == CODED => found.push(Cut { raw: raw.start..raw.end, mark, text: 0..0 }),
                None => found.push(Cut { raw, mark: WITHHELD, text: 0..0 }),
            }
        }
        Some(found)
    }
}
