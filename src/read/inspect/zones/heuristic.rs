//! Data by the form of the text: fenced blocks and quotes here, the other shapes in `shapes`.
//!
//! Reads line by line and goes on behind each zone it finds, so that nothing is read twice but for bounded looks ahead. Behind a zone
//! that ends in the middle of its line, the rest of the line may be looked at as a line of its own; such looks are counted in bytes,
//! and once they have taken their part only what begins inside of lines is looked for behind other zones.

use std::cell::Cell;
use std::ops::Range;
use std::time::Instant;

use super::shapes;
use crate::inspect::zone::ZoneKind;

/// A zone and where to read on.
pub(super) struct Found {
    pub(super) zone: Range<usize>,
    pub(super) kind: ZoneKind,
    pub(super) next: usize,
}

/// A text that is read.
pub(super) struct Scan<'a> {
    pub(super) text: &'a str,
    /// Bytes that may still be read in vain where something looks like JSON and is none.
    pub(super) json_left: usize,
    /// Whether a triple quote may still be closed.
    quotes_close: bool,
    /// Bytes that may still be read of lines that were read before.
    again_left: Cell<usize>,
    /// Whether the rest of a line is looked at, and what is read is read again.
    is_rest: bool,
}

/// How often the bytes of a text may be read again, at most.
const AGAIN_TIMES: usize = 16;

/// Bytes between two looks at the clock.
const CLOCK_STEP: usize = 64 << 10;

/// The zones of one text, at most `most` of them; the last one then reaches to the end.
pub(super) fn zones(text: &str, most: usize, deadline: Option<Instant>) -> Vec<(Range<usize>, ZoneKind)> {
    let json_left = text.len().saturating_mul(2) + 4096;
    let again_left = Cell::new(text.len().saturating_mul(AGAIN_TIMES) + 4096);
    let mut scan = Scan { text, json_left, quotes_close: true, again_left, is_rest: false };
    let mut zones: Vec<(Range<usize>, ZoneKind)> = Vec::new();
    let (mut at, mut line) = (0, 0..0);
    let mut clock = 0;
    while at < text.len() {
        // What is read again counts, too.
        let read = at + (text.len().saturating_mul(AGAIN_TIMES) + 4096 - scan.again_left.get());
        if read >= clock {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
            clock = read + CLOCK_STEP;
        }
        scan.is_rest = at > 0 && at <= line.end;
        line = if scan.is_rest { at..line.end } else { scan.line(at) };
        let Some(Found { zone, kind, next }) = scan.zone_in(&line) else {
            at = line.end + 1;
            continue;
        };
        at = next.max(at + 1);
        if zone.is_empty() {
            continue;
        }
        match zones.last_mut() {
            Some((last, known)) if *known == kind && scan.is_blank(last.end..zone.start) => last.end = zone.end,
            _ => zones.push((zone, kind)),
        }
        if zones.len() >= most {
            zones.iter_mut().skip(most - 1).for_each(|(last, _)| last.end = text.len());
            break;
        }
    }
    zones
}

impl<'a> Scan<'a> {
    /// The line that begins at `at`, without its line break.
    pub(super) fn line(&self, at: usize) -> Range<usize> {
        let rest = self.text.as_bytes().get(at..).unwrap_or_default();
        let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        self.reads_again(length);
        at..at + length
    }

    pub(super) fn words(&self, range: Range<usize>) -> &'a str {
        self.text.get(range).unwrap_or_default()
    }

    fn is_blank(&self, range: Range<usize>) -> bool {
        self.words(range).bytes().all(|byte| byte.is_ascii_whitespace())
    }

    /// Counts what is read of a line as read again, where it is; false once no more may be.
    fn reads_again(&self, bytes: usize) -> bool {
        let left = self.again_left.get();
        self.again_left.set(left.saturating_sub(if self.is_rest { bytes } else { 0 }));
        !self.is_rest || left > 0
    }

    /// The first zone that begins in a line, or in the rest of one.
    fn zone_in(&mut self, line: &Range<usize>) -> Option<Found> {
        let words = self.words(line.clone());
        if !self.reads_again(line.len()) {
            return self.inside(line);
        }
        let trimmed = words.trim_start();
        let start = line.end - trimmed.len();
        match trimmed.as_bytes().first()? {
            b'`' | b'~' => self.fence(start, line),
            b'>' => Some(self.quote(line)),
            b'{' | b'[' => shapes::json(self, start),
            _ => None,
        }
        .or_else(|| shapes::mail(self, line))
        .or_else(|| shapes::passage(self, line))
        .or_else(|| shapes::table(self, line))
        .or_else(|| self.inside(line))
    }

    /// A block between fences (CommonMark, section 4.5); one that is not closed reaches to the end.
    fn fence(&self, start: usize, line: &Range<usize>) -> Option<Found> {
        let opening = self.words(start..line.end);
        let mark = opening.chars().next()?;
        let length = opening.chars().take_while(|c| *c == mark).count();
        if length < 3 || (mark == '`' && opening.get(length..)?.contains('`')) {
            return None;
        }
        let inside = (line.end + 1).min(self.text.len());
        let mut at = inside;
        while at < self.text.len() {
            let line = self.line(at);
            let words = self.words(line.clone()).trim();
            if words.len() >= length && words.chars().all(|c| c == mark) {
                return Some(Found { zone: inside..at, kind: ZoneKind::Fence, next: line.end + 1 });
            }
            at = line.end + 1;
        }
        Some(Found { zone: inside..self.text.len(), kind: ZoneKind::Fence, next: self.text.len() })
    }

    /// Lines that begin with `>`.
    fn quote(&self, line: &Range<usize>) -> Found {
        let mut end = line.end;
        while end < self.text.len() {
            let next = self.line(end + 1);
            if !self.words(next.clone()).trim_start().starts_with('>') {
                break;
            }
            end = next.end;
        }
        Found { zone: line.start..end, kind: ZoneKind::Quote, next: end + 1 }
    }

    /// What begins inside of a line: an element, a fence that ends in the same line, triple quotes.
    fn inside(&mut self, line: &Range<usize>) -> Option<Found> {
        let mut at = line.start;
        while let Some(step) = memchr::memchr3(b'<', b'`', b'"', self.text.as_bytes().get(at..line.end)?) {
            at += step;
            let rest = self.words(at..line.end);
            let found = if rest.starts_with('<') {
                shapes::element(self, at)
            } else if rest.starts_with("```") {
                let (inside, length) = (at + 3, memchr::memmem::find(rest.get(3..)?.as_bytes(), b"```"));
                length.map(|length| Found {
                    zone: inside..inside + length,
                    kind: ZoneKind::Fence,
                    next: inside + length + 3,
                })
            } else if rest.starts_with("\"\"\"") {
                self.triple_quotes(at + 3)
            } else {
                None
            };
            if found.is_some() {
                return found;
            }
            // Of a run of the same character only the first begins anything.
            let first = rest.as_bytes().first().copied();
            at += rest.bytes().take_while(|byte| Some(*byte) == first).count();
        }
        None
    }

    fn triple_quotes(&mut self, inside: usize) -> Option<Found> {
        let rest = self.words(inside..self.text.len());
        match memchr::memmem::find(rest.as_bytes(), b"\"\"\"").filter(|_| self.quotes_close) {
            Some(length) => {
                let end = inside + length;
                Some(Found { zone: inside..end, kind: ZoneKind::Fence, next: end + 3 })
            }
            None => {
                self.quotes_close = false;
                None
            }
        }
    }
}
