//! Where a text stands in the body: from offsets in the text to ranges of bytes of the body.
//!
//! While a body is read only the beginning of each string is noted, because most texts are never edited; which bytes
//! spell which characters is found when somebody asks. Invariants: a range that is given back holds whole escapes, and
//! never a quote or a byte outside of the strings the text was read from; of a file in base64 only the whole has a range
//! ([`RequestView::recoded`]); what cannot be put back (text that is none in its coding, an address without its password) has none.

use std::ops::Range;

use smallvec::SmallVec;

use super::RequestView;
use super::coded::{Base64, percent_spelled, quoted_spelled};
use crate::json::{Text, spelled};

/// One string of the body whose text stands in [`RequestView::text`] unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// Where its text begins.
    text: u32,
    /// Where its first byte stands in the body.
    raw: u32,
    /// Its bytes in the body.
    len: u32,
    spelling: Spelling,
}

/// How a string is spelled in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// Inside of a JSON string; what replaces it has to be escaped.
    Json {
        /// Whether it contains escapes.
        escaped: bool,
    },
    /// As it is: the body, or a field of it, is plain text.
    Plain,
    /// Percent-encoded; what replaces it has to be, too.
    Percent,
    /// Between quotes, in which a backslash makes the next byte itself.
    Quoted,
}

/// Bytes of the body that spell a stretch of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// The bytes.
    pub raw: Range<usize>,
    /// How they spell it.
    pub spelling: Spelling,
}

/// A file in base64 whose text stands in [`RequestView::text`] unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    text: Range<usize>,
    /// Its base64 in the body.
    raw: Range<usize>,
    coding: Base64,
}

/// Where the strings of a body stand, in the order of their texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Places {
    pieces: Vec<Piece>,
    files: Vec<File>,
}

/// Strings whose place is noted, 1 MiB of memory; a large agent turn has some thousands.
const PIECES_MAX: usize = 1 << 16;

impl Places {
    /// With room for about so many strings.
    pub(super) fn of(strings: usize) -> Self {
        Self { pieces: Vec::with_capacity(strings), files: Vec::new() }
    }

    /// Notes that the text from `text` on is that of `string`.
    pub(super) fn json(&mut self, text: usize, string: &Text<'_>) {
        self.note(text, string.start()..string.end(), Spelling::Json { escaped: string.is_escaped() });
    }

    /// Notes that the text from `text` on stands at `raw` as it is.
    pub(super) fn plain(&mut self, text: usize, raw: Range<usize>) {
        self.note(text, raw, Spelling::Plain);
    }

    /// Notes that the text from `text` on stands at `raw` in this spelling.
    pub(super) fn coded(&mut self, text: usize, raw: Range<usize>, spelling: Spelling) {
        self.note(text, raw, spelling);
    }

    /// Notes that this text is a file that stands at `raw`.
    pub(super) fn file(&mut self, text: Range<usize>, raw: Range<usize>, coding: Base64) {
        if self.files.len() < PIECES_MAX {
            self.files.push(File { text, raw, coding });
        }
    }

    fn note(&mut self, text: usize, raw: Range<usize>, spelling: Spelling) {
        if self.pieces.len() < PIECES_MAX
            && let (Ok(text), Ok(len), Ok(raw)) =
                (u32::try_from(text), u32::try_from(raw.len()), u32::try_from(raw.start))
        {
            self.pieces.push(Piece { text, raw, len, spelling });
        }
    }

    /// Where the text of each JSON string begins, and where the string stands in the body; `None` where that is not known of
    /// all of them.
    pub(super) fn strings(&self) -> Option<impl Iterator<Item = (u32, Range<u32>)>> {
        let is_json = |piece: &Piece| matches!(piece.spelling, Spelling::Json { .. });
        let known = self.pieces.len() < PIECES_MAX && self.files.len() < PIECES_MAX && self.pieces.iter().all(is_json);
        known.then(|| self.pieces.iter().map(|piece| (piece.text, piece.raw..piece.raw.saturating_add(piece.len))))
    }

    /// Takes stretches out of the text: `lost`, which `cuts` spell in the same order, each within one string. What is left of a
    /// string are strings of their own. `at` tells where a place of the text stands afterwards.
    pub(super) fn split(&mut self, lost: &[Range<usize>], cuts: &[Range<usize>], at: impl Fn(usize) -> usize) {
        let mut losses = lost.iter().zip(cuts).peekable();
        let mut pieces = Vec::with_capacity(self.pieces.len() + lost.len());
        for (number, piece) in self.pieces.iter().enumerate() {
            let next = self.pieces.get(number + 1).map_or(usize::MAX, |next| next.text as usize);
            let (mut text, mut raw) = (piece.text as usize, piece.raw as usize);
            let end = raw + piece.len as usize;
            let mut add = |text: usize, raw: Range<usize>| {
                if let (Ok(text), Ok(start), Ok(len)) =
                    (u32::try_from(at(text)), u32::try_from(raw.start), u32::try_from(raw.len()))
                    && (len > 0 || piece.len == 0)
                {
                    pieces.push(Piece { text, raw: start, len, spelling: piece.spelling });
                }
            };
            while let Some((lost, cut)) = losses.next_if(|(lost, _)| lost.start < next) {
                add(text, raw..cut.start);
                (text, raw) = (lost.end, cut.end);
            }
            add(text, raw..end);
        }
        self.pieces = pieces;
        for file in &mut self.files {
            file.text = at(file.text.start)..at(file.text.end);
        }
    }

    pub(super) fn clear(&mut self) {
        self.pieces.clear();
        self.files.clear();
    }
}

impl RequestView {
    /// The bytes of `body`, which is the body this was read from (without its content coding), that spell the bytes
    /// `range` of [`RequestView::text`]. A range over several strings has several; the line breaks that join them in the
    /// text have none. `None` where any of it is not spelled in the body as it is.
    pub fn spots(&self, body: &[u8], range: Range<usize>) -> Option<SmallVec<[Spot; 1]>> {
        self.spotter(body).spots(range)
    }

    /// The text of the file in base64 that holds these bytes of [`RequestView::text`]: its place in the text, and its number for
    /// [`RequestView::recoded`].
    pub fn file_at(&self, range: &Range<usize>) -> Option<(usize, Range<usize>)> {
        let files = &self.places.files;
        let at = files.partition_point(|file| file.text.end <= range.start);
        let file = files.get(at).filter(|file| file.text.start <= range.start && range.end <= file.text.end)?;
        Some((at, file.text.clone()))
    }

    /// Where the file of this number stands in the body, and `text` in its spelling.
    pub fn recoded(&self, file: usize, text: &str) -> Option<(Range<usize>, String)> {
        let file = self.places.files.get(file)?;
        Some((file.raw.clone(), file.coding.encode(text)))
    }

    /// For many questions about one body, in the order of the text: all of them together take one walk.
    pub fn spotter<'a>(&'a self, body: &'a [u8]) -> Spotter<'a> {
        Spotter { view: self, body, piece: 0, reached: None }
    }
}

/// Answers where texts stand in a body, in ascending order.
#[derive(Debug)]
pub struct Spotter<'a> {
    view: &'a RequestView,
    body: &'a [u8],
    /// The piece that was asked about last.
    piece: usize,
    /// How far it has been read.
    reached: Option<Reached<'a>>,
}

/// The rest of a string, from where the last question ended.
#[derive(Debug, Clone, Copy)]
struct Reached<'a> {
    rest: &'a str,
    /// Where the rest begins in the text, and in the body.
    text: usize,
    raw: usize,
}

impl<'a> Spotter<'a> {
    /// As [`RequestView::spots`]; `range` must not begin before the end of the one asked for last.
    pub fn spots(&mut self, range: Range<usize>) -> Option<SmallVec<[Spot; 1]>> {
        let pieces = &self.view.places.pieces;
        let begins = |piece: &Piece| usize::try_from(piece.text).unwrap_or(usize::MAX);
        let first = pieces.partition_point(|piece| begins(piece) <= range.start).saturating_sub(1);
        let mut spots = SmallVec::new();
        let mut at = range.start;
        for (index, piece) in pieces.iter().enumerate().skip(first) {
            let text = begins(piece);
            if text >= range.end || at >= range.end {
                break;
            }
            // What joins two parts is no part's.
            if at < text && self.view.text.get(at..text) == Some("\n") {
                at = text;
            }
            let from = self.reached(index, piece, at)?;
            let wanted = at.checked_sub(from.text)?..range.end - from.text;
            let (bytes, read) = match piece.spelling {
                Spelling::Json { escaped: true } => spelled(from.rest, wanted.clone()),
                Spelling::Percent => percent_spelled(from.rest, wanted.clone()),
                Spelling::Quoted => quoted_spelled(from.rest, wanted.clone()),
                Spelling::Json { escaped: false } | Spelling::Plain => {
                    let end = wanted.end.min(from.rest.len());
                    (wanted.start.min(end)..end, end)
                }
            };
            if read <= wanted.start {
                // It ends before: what follows it is a line break, or nobody knows what.
                continue;
            }
            spots.push(Spot { raw: from.raw + bytes.start..from.raw + bytes.end, spelling: piece.spelling });
            at = from.text + read;
            self.reached = from.rest.get(bytes.end..).map(|rest| Reached { rest, text: at, raw: from.raw + bytes.end });
        }
        let rest = self.view.text.get(at.min(range.end)..range.end)?;
        (rest.is_empty() || rest == "\n").then_some(spots)
    }

    /// Where to read on in the piece `index` for what begins at `at`.
    fn reached(&mut self, index: usize, piece: &Piece, at: usize) -> Option<Reached<'a>> {
        if let Some(reached) = self.reached.filter(|reached| self.piece == index && reached.text <= at) {
            return Some(reached);
        }
        let raw = usize::try_from(piece.raw).ok()?;
        let string = self.body.get(raw..raw + usize::try_from(piece.len).ok()?)?;
        let fresh = Reached { rest: std::str::from_utf8(string).ok()?, text: usize::try_from(piece.text).ok()?, raw };
        (self.piece, self.reached) = (index, Some(fresh));
        Some(fresh)
    }
}
