//! Takes pieces out of the frames of one answer, or of a document as its only frame.
//!
//! Invariants: frames go in the order in which they came; a frame goes when nothing can be taken out of it any more, or with what is
//! known by then; a frame without a change is handed on as it is, not copied.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use smallvec::SmallVec;
use weir_inference::{PartKind, Taken, Taker, Taking};

use super::window::{Settled, Window};
use crate::json::{spelled, unescaped};
use crate::observe::{Place, Places, Role};
use crate::rewrite::{Content, Framed, Redaction};

/// Bytes of a text that is looked at on its own when it is taken for what it is: bare text.
const TEXT_ROLE: PartKind = PartKind::Output;
/// Strings between two looks at the clock.
const PLACES_STEP: usize = 64;
/// Bytes that spell one of a text at most: `\u0061`.
const ESCAPE_BYTES_MAX: usize = 6;

/// A frame that waits.
struct Frame {
    content: Option<Content>,
    strings: Vec<Text>,
    changes: Vec<(Range<usize>, Bytes)>,
    /// Strings of it in which something may still be taken out.
    open: usize,
}

/// A string of a frame.
struct Text {
    raw: Range<usize>,
    /// How far changes have come: in what stands between the quotes, and in the string itself.
    done: (usize, usize),
    /// Its bytes are its text: nothing is escaped.
    bare: bool,
}

/// Takes pieces out of one answer.
pub(crate) struct Redactor {
    framed: Framed,
    taker: Taker,
    places: Places,
    /// The texts that grow, by number; those that go on as they are, too.
    windows: Vec<Option<(Window, Role)>>,
    frames: VecDeque<Frame>,
    /// Number of the first of them.
    first: u64,
    redaction: Redaction,
    deadline: Option<Instant>,
    is_late: bool,
}

impl Redactor {
    pub(crate) fn new(framed: Framed, taking: Taking) -> Self {
        Self::until(framed, taking, None)
    }

    /// The same; what is not looked at by the deadline is not looked at ([`Redactor::is_late`]).
    pub(super) fn until(framed: Framed, taking: Taking, deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            is_late: false,
            framed,
            taker: Taker::new(taking),
            places: Places::default(),
            windows: Vec::new(),
            frames: VecDeque::new(),
            first: 0,
            redaction: Redaction::default(),
        }
    }

    /// What has been done, and what could not be.
    pub(crate) const fn redaction(&self) -> Redaction {
        self.redaction
    }

    /// Whether the deadline passed before all had been looked at: what it says then is not to be used.
    pub(super) const fn is_late(&self) -> bool {
        self.is_late
    }

    /// What is taken out of a text; nothing where there is no time any more.
    fn pieces(&mut self, text: &str, kind: PartKind) -> Vec<Taken> {
        let found = if self.is_late { None } else { self.taker.pieces_by(text, kind, self.deadline) };
        self.is_late |= found.is_none();
        found.unwrap_or_default()
    }

    /// Something was to be redacted and is not.
    pub(super) fn left(&mut self, reason: &'static str) {
        self.redaction.left.get_or_insert(reason);
    }

    /// Reads the next frame.
    pub(crate) fn read(&mut self, frame: &Bytes) {
        let content = Content::of(self.framed, frame);
        self.frames.push_back(Frame { content: None, strings: Vec::new(), changes: Vec::new(), open: 0 });
        let Some(content) = content else { return };
        let Ok(places) = self.places.read(content.event(), content.message()) else { return self.left("not_read") };
        let message = content.message().clone();
        self.put(content);
        let mut grown = SmallVec::<[usize; 4]>::new();
        for (number, place) in places.into_iter().enumerate() {
            let looks = number % PLACES_STEP == PLACES_STEP - 1;
            self.is_late |= looks && self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if self.is_late {
                break;
            }
            self.take(&message, &place);
            grown.extend(place.text);
        }
        grown.sort_unstable();
        grown.dedup();
        if self.places.is_over() {
            return self.end();
        }
        for text in grown {
            self.settle(text, false);
        }
    }

    /// Reads a document that is bare text.
    pub(super) fn read_text(&mut self, text: &Bytes) {
        self.frames.push_back(Frame { content: None, strings: Vec::new(), changes: Vec::new(), open: 0 });
        let Some(content) = Content::of(Framed::Whole, text) else { return };
        let Ok(words) = std::str::from_utf8(text) else { return self.left("not_read") };
        self.put(content);
        self.alone(words, &(0..text.len()), TEXT_ROLE, true);
    }

    fn put(&mut self, content: Content) {
        if let Some(frame) = self.frames.back_mut() {
            frame.content = Some(content);
        }
    }

    /// Takes a string of the last frame.
    fn take(&mut self, message: &Bytes, place: &Place) {
        let raw = message.get(place.raw.clone()).and_then(|raw| std::str::from_utf8(raw).ok()).unwrap_or_default();
        if raw.is_empty() {
            return;
        }
        let text: Cow<'_, str> = unescaped(raw);
        let (Some(number), Some(last)) = (place.text, self.frames.len().checked_sub(1)) else {
            return match place.role {
                Role::Words(kind) => self.alone(&text, &place.raw, kind, false),
                Role::Fixed(kind) if !self.pieces(&text, kind).is_empty() => self.left_fixed(kind),
                Role::Fixed(_) => {}
            };
        };
        if self.windows.len() <= number {
            self.windows.resize_with(number + 1, || None);
        }
        let Some(slot) = self.windows.get_mut(number) else { return };
        let kind = match place.role {
            Role::Words(kind) | Role::Fixed(kind) => kind,
        };
        let (window, _) = slot.get_or_insert_with(|| (Window::new(kind), place.role));
        let Some(frame) = self.frames.back_mut() else { return };
        window.grow((self.first + last as u64, frame.strings.len()), &text);
        frame.strings.push(Text { raw: place.raw.clone(), done: (0, 0), bare: false });
        frame.open += usize::from(matches!(place.role, Role::Words(_)));
    }

    /// Takes a string of the last frame that is a text of its own.
    fn alone(&mut self, text: &str, raw: &Range<usize>, kind: PartKind, bare: bool) {
        let found = self.pieces(text, kind);
        let Some(frame) = self.frames.back_mut().filter(|_| !found.is_empty()) else { return };
        frame.strings.push(Text { raw: raw.clone(), done: (0, 0), bare });
        let string = frame.strings.len() - 1;
        for one in found {
            self.redaction.taken += 1;
            frame.cut(string, one.range, one.tag);
        }
    }

    /// Settles what can be settled of a text, or `all` of it.
    fn settle(&mut self, at: usize, all: bool) {
        let Some(Some((window, role))) = self.windows.get_mut(at) else { return };
        let Some(Settled { cuts, done, taken }) = window.settle(&mut self.taker, all, self.deadline) else {
            self.is_late = true;
            return;
        };
        if let Role::Fixed(kind) = *role {
            if taken > 0 {
                self.left_fixed(kind);
            }
            return;
        }
        self.redaction.taken += taken;
        let first = self.first;
        let index = |number: u64| number.checked_sub(first).and_then(|index| usize::try_from(index).ok());
        for cut in cuts {
            let frame = index(cut.string.0).and_then(|index| self.frames.get_mut(index));
            if let Some(frame) = frame {
                frame.cut(cut.string.1, cut.range, cut.with);
            }
        }
        for (number, _) in done {
            if let Some(frame) = index(number).and_then(|index| self.frames.get_mut(index)) {
                frame.open = frame.open.saturating_sub(1);
            }
        }
    }

    /// Arguments of tool calls are acted on, and signed reasoning is not taken back when it has been changed.
    fn left_fixed(&mut self, kind: PartKind) {
        self.left(if kind == PartKind::ToolCall { "tool_call" } else { "signed_reasoning" });
    }

    /// Nothing more comes.
    pub(crate) fn end(&mut self) {
        for at in 0..self.windows.len() {
            self.settle(at, true);
        }
    }

    /// How many frames wait.
    pub(super) fn waiting(&self) -> usize {
        let open = self.frames.iter().position(|frame| frame.open > 0);
        open.map_or(0, |at| self.frames.len() - at)
    }

    /// The first frame in the form in which it goes on.
    pub(crate) fn pass(&mut self, bytes: Bytes) -> Bytes {
        if self.frames.front().is_some_and(|frame| frame.open > 0) {
            self.left("held_too_much");
            self.end();
        }
        let Some(frame) = self.frames.pop_front() else { return bytes };
        self.first += 1;
        match &frame.content {
            Some(content) if !frame.changes.is_empty() => {
                if self.places.has_tokens() {
                    self.left("logprobs");
                }
                content.put(&bytes, &frame.changes)
            }
            _ => bytes,
        }
    }
}

impl Frame {
    /// Notes a change of a string, whose former changes stand before it.
    fn cut(&mut self, string: usize, range: Range<usize>, with: &'static str) {
        let (Some(text), Some(content)) = (self.strings.get_mut(string), &self.content) else { return };
        let Some(whole) = content.message().get(text.raw.clone()) else { return };
        let (done, read) = text.done;
        let wanted = range.start.saturating_sub(read)..range.end.saturating_sub(read);
        let found = if text.bare { wanted } else { spelled(beginning(whole, done, wanted.end), wanted).0 };
        text.done = (done + found.end, range.end);
        let begin = text.raw.start + done;
        self.changes.push((begin + found.start..begin + found.end, Bytes::from_static(with.as_bytes())));
    }
}

/// What is spelled from `done` on, as far as it may spell `len` bytes; no further, because it is asked for each piece of a string.
fn beginning(raw: &[u8], done: usize, len: usize) -> &str {
    let rest = raw.get(done..).unwrap_or_default();
    let rest = rest.get(..len.saturating_mul(ESCAPE_BYTES_MAX)).unwrap_or(rest);
    // The last character may be cut.
    rest.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

#[cfg(test)]
mod tests;
