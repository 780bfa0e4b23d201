//! One text of an answer while it grows: what of it is settled, and in which strings of which frames the rest stands.
//!
//! Invariant: besides what waits, [`CONTEXT_BYTES`] of a text are kept, twice at most.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use weir_inference::{CONTEXT_BYTES, PartKind, Taker};

/// A string of a frame that is a piece of the text.
struct Piece {
    /// The frame, by number, and the place in it, by number.
    string: (u64, usize),
    /// Where it stands in the text that is kept.
    at: usize,
    len: usize,
}

/// What is taken out of one string.
pub(super) struct Cut {
    /// The frame, by number, and the place in it, by number.
    pub(super) string: (u64, usize),
    /// Bytes of the string itself.
    pub(super) range: Range<usize>,
    /// What stands there instead.
    pub(super) with: &'static str,
}

/// What has become of a text since something was last asked of it.
#[derive(Default)]
pub(super) struct Settled {
    /// What is taken out of its strings, in their order.
    pub(super) cuts: Vec<Cut>,
    /// Strings in which nothing can be taken out any more.
    pub(super) done: Vec<(u64, usize)>,
    /// Pieces that are taken out.
    pub(super) taken: usize,
}

/// The text.
pub(super) struct Window {
    kind: PartKind,
    text: String,
    settled: usize,
    /// How long the text was when it was last scanned.
    scanned: usize,
    pieces: VecDeque<Piece>,
}

/// With so much of a text waiting, it is not scanned for every string of it any more: a credential or a key that does not end would be
/// read from its beginning again and again.
const WAITING_BYTES_LONG: usize = 2 << 10;
/// The part of what waits by which the text has to grow then.
const GROWTH_PART: usize = 8;

impl Window {
    pub(super) const fn new(kind: PartKind) -> Self {
        Self { kind, text: String::new(), settled: 0, scanned: 0, pieces: VecDeque::new() }
    }

    /// The next string of the text.
    pub(super) fn grow(&mut self, string: (u64, usize), text: &str) {
        self.pieces.push_back(Piece { string, at: self.text.len(), len: text.len() });
        self.text.push_str(text);
    }

    /// Settles what can be settled, or all of it where nothing more comes or waits. `None` where the deadline passed.
    pub(super) fn settle(&mut self, taker: &mut Taker, all: bool, deadline: Option<Instant>) -> Option<Settled> {
        let mut out = Settled::default();
        if self.settled == self.text.len() && self.pieces.is_empty() {
            return Some(out);
        }
        let waiting = self.scanned.saturating_sub(self.settled);
        let grown = self.text.len() - self.scanned;
        if !all && waiting > WAITING_BYTES_LONG && grown < waiting / GROWTH_PART {
            return Some(out);
        }
        self.scanned = self.text.len();
        let found = taker.pieces_by(&self.text, self.kind, deadline)?;
        let to = if all { self.text.len() } else { taker.settled(&self.text, &found).max(self.settled) };
        let mut first = 0;
        for one in found.iter().filter(|one| one.range.end > self.settled && one.range.start < to) {
            out.taken += 1;
            let range = one.range.start.max(self.settled)..one.range.end.min(to);
            let mut with = one.tag;
            for (index, piece) in self.pieces.iter().enumerate().skip(first) {
                let (from, end) = (piece.at.max(range.start), (piece.at + piece.len).min(range.end));
                if piece.at >= range.end {
                    break;
                }
                if from < end {
                    // Of several strings that spell one piece the first gets the tag.
                    let with = std::mem::take(&mut with);
                    out.cuts.push(Cut { string: piece.string, range: from - piece.at..end - piece.at, with });
                    first = index;
                }
            }
        }
        self.settled = to;
        while let Some(piece) = self.pieces.pop_front_if(|piece| piece.at + piece.len <= to) {
            out.done.push(piece.string);
        }
        self.forget();
        Some(out)
    }

    /// Lets go what no scan needs again.
    fn forget(&mut self) {
        if self.settled <= 2 * CONTEXT_BYTES {
            return;
        }
        let begin = self.pieces.front().map_or(self.settled, |piece| piece.at);
        let cut = self.text.floor_char_boundary((self.settled - CONTEXT_BYTES).min(begin));
        self.text.drain(..cut);
        self.settled -= cut;
        self.scanned -= cut;
        for piece in &mut self.pieces {
            piece.at -= cut;
        }
    }
}
