//! The search of a program: depth first, each step at each place once at most.

use std::ops::Range;

use regex_syntax::hir::Look;

use super::steps::{Filter, PREFIX_BYTES, Place, Program, Step};

/// Places looked at one by one that count as a step.
const PLACES_PER_STEP: usize = 8;
/// Places at which a match might begin that do.
const BEGINNINGS_PER_STEP: usize = 4;

/// What a thread's searches use again and again. Nothing of one is left for the next.
#[derive(Debug, Default)]
pub(crate) struct SearchScratch {
    /// What is still to be tried, what is preferred last.
    open: Vec<Open>,
    /// A bit for each step and place where nothing is to be found any more, `row` numbers of 64 of them for each step.
    tried: Vec<u64>,
    row: usize,
    /// Those numbers that are not zero.
    written: Vec<u32>,
    /// For each gap the bytes of its set that were found last.
    runs: Vec<Range<usize>>,
    /// Steps that may still be taken.
    left: usize,
}

/// What is still to be tried.
#[derive(Debug, Clone, Copy)]
enum Open {
    /// A step at a place in the text.
    Step(Place, usize),
    /// What follows a gap, at the first place first.
    Near(Ends),
    /// The same, at the last place first.
    Far(Ends),
}

/// A search did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfSteps;

/// What is searched: a part of some bytes with [`super::steps::PADDING`] behind them.
#[derive(Debug, Clone, Copy)]
struct Text<'a> {
    bytes: &'a [u8],
    /// Where the bytes end that are not padding.
    len: usize,
    from: usize,
    to: usize,
}

/// Where a gap may end.
#[derive(Debug, Clone, Copy)]
struct Ends {
    gap: Place,
    first: usize,
    last: usize,
}

impl Program {
    /// The leftmost match in a part of `bytes`, which end with [`super::steps::PADDING`]; of those that begin there the one that the pattern
    /// prefers. Bytes around the part count for the edges of words and lines. `steps` says how many may be taken, and then how many
    /// are left.
    pub(crate) fn find(
        &self,
        bytes: &[u8],
        part: Range<usize>,
        is_anchored: bool,
        steps: &mut usize,
        scratch: &mut SearchScratch,
    ) -> Result<Option<Range<usize>>, OutOfSteps> {
        let len = bytes.len().saturating_sub(PREFIX_BYTES);
        let text = Text { bytes, len, from: part.start, to: part.end.min(len) };
        if text.from > text.to {
            return Ok(None);
        }
        scratch.begin(self, text.to - text.from, *steps);
        let found = self.leftmost(text, is_anchored, scratch);
        *steps = scratch.left;
        scratch.end();
        found
    }

    fn leftmost(
        &self,
        text: Text<'_>,
        is_anchored: bool,
        scratch: &mut SearchScratch,
    ) -> Result<Option<Range<usize>>, OutOfSteps> {
        let last = if is_anchored { text.from } else { text.to };
        scratch.take((last - text.from) / PLACES_PER_STEP)?;
        let mut asked = 0;
        for start in text.from..=last {
            if !self.first.passes(text.prefix(start)) {
                continue;
            }
            asked += 1;
            if asked % BEGINNINGS_PER_STEP == 0 {
                scratch.take(1)?;
            }
            let (bytes, before) = (text.prefix(start), text.before(start));
            for begin in self.begins.iter().rev().filter(|begin| begin.way.filter.passes(bytes)) {
                // Whatever it leads to from here on was tried from the byte before.
                if !begin
                    .run
                    .is_some_and(|run| before.is_some_and(|before| run.holds(before) && run.holds(bytes as u8)))
                {
                    scratch.open.push(Open::Step(begin.way.place, start));
                }
            }
            if let Some(end) = self.follow(text, scratch)? {
                return Ok(Some(start..end));
            }
        }
        Ok(None)
    }

    /// Tries all that is open until something matches; where that ends.
    fn follow(&self, text: Text<'_>, scratch: &mut SearchScratch) -> Result<Option<usize>, OutOfSteps> {
        while let Some(open) = scratch.open.pop() {
            // Each takes a step at least, and says so.
            scratch.take(0)?;
            let end = match open {
                Open::Step(place, at) => self.step(text, (place, at), false, scratch),
                Open::Near(ends) => self.go_on(text, ends, false, scratch),
                Open::Far(ends) => self.go_on(text, ends, true, scratch),
            };
            if end.is_some() {
                return Ok(end);
            }
        }
        Ok(None)
    }

    /// Takes a step, and those that follow it as long as there is one way only. Where the pattern has matched. `is_noted`: whether it
    /// is noted already that it was tried.
    fn step(
        &self,
        text: Text<'_>,
        (mut place, mut at): (Place, usize),
        mut is_noted: bool,
        scratch: &mut SearchScratch,
    ) -> Option<usize> {
        loop {
            scratch.left = scratch.left.saturating_sub(1);
            match self.steps.get(place as usize)? {
                Step::Words { filter, from, to } => {
                    let bytes = text.prefix(at);
                    if filter.passes(bytes) && (is_noted || scratch.note(place, at - text.from)) {
                        self.words(text, (bytes & filter.mask, *from, *to), at, scratch);
                    }
                    return None;
                }
                Step::Byte { set, next } => {
                    let set = self.sets.get(usize::from(*set))?;
                    if at >= text.to || !set.holds(*text.bytes.get(at)?) {
                        return None;
                    }
                    (place, at) = (*next, at + 1);
                }
                Step::Look { look, next } => {
                    if !text.looks(*look, at) {
                        return None;
                    }
                    place = *next;
                }
                Step::Gap { set, number, least, most, is_greedy, filter, next } => {
                    let end = self.run(text, (*number, *set), at, scratch);
                    let (first, last) = (at + *least as usize, end.min(at.saturating_add(*most as usize)));
                    let ends = Ends { gap: place, first, last };
                    at = scratch.end_of(text, ends, *is_greedy, (filter, *next))?;
                    (place, is_noted) = (*next, true);
                    continue;
                }
                Step::Fork { from, to } => {
                    if !is_noted && !scratch.note(place, at - text.from) {
                        return None;
                    }
                    let (bytes, ways) = (text.prefix(at), self.ways.get(*from as usize..*to as usize)?);
                    let mut open = ways.iter().filter(|way| way.filter.passes(bytes)).map(|way| way.place);
                    place = open.next()?;
                    // What is preferred is tried first, and all others later, the last one last.
                    scratch.open.extend(open.rev().map(|way| Open::Step(way, at)));
                }
                Step::Done => return Some(at),
            }
            is_noted = false;
        }
    }

    /// Goes on behind each of a step's words that stands at a place.
    fn words(&self, text: Text<'_>, (prefix, from, to): (u32, u32, u32), at: usize, scratch: &mut SearchScratch) {
        let words = self.words.get(from as usize..to as usize).unwrap_or_default();
        let alike = words.partition_point(|word| word.prefix < prefix);
        let words = words.get(alike..).unwrap_or_default();
        let count = words.iter().take_while(|word| word.prefix == prefix).count();
        for word in words.iter().take(count).rev() {
            let (from, len) = (word.at as usize, word.len as usize);
            let letters = self.letters.get(from..from + len);
            if at + len <= text.to && text.bytes.get(at..at + len) == letters {
                scratch.open.push(Open::Step(word.next, at + len));
            }
        }
    }

    /// How far the bytes of a gap's set go on from a place.
    fn run(&self, text: Text<'_>, (gap, set): (u16, u16), at: usize, scratch: &mut SearchScratch) -> usize {
        let (Some(set), Some(run)) = (self.sets.get(usize::from(set)), scratch.runs.get_mut(usize::from(gap))) else {
            return at;
        };
        if !run.contains(&at) {
            let rest = text.bytes.get(at..text.to).unwrap_or_default();
            let len = rest.iter().position(|byte| !set.holds(*byte)).unwrap_or(rest.len());
            *run = at..at + len;
        }
        run.end
    }

    /// Goes on with the next end of a gap.
    fn go_on(&self, text: Text<'_>, ends: Ends, is_greedy: bool, scratch: &mut SearchScratch) -> Option<usize> {
        let Some(Step::Gap { filter, next, .. }) = self.steps.get(ends.gap as usize) else { return None };
        let at = scratch.end_of(text, ends, is_greedy, (filter, *next))?;
        self.step(text, (*next, at), true, scratch)
    }
}

// === impl SearchScratch ===

impl SearchScratch {
    fn begin(&mut self, program: &Program, places: usize, steps: usize) {
        self.left = steps;
        self.row = places / 64 + 1;
        let needed = program.steps.len() * self.row;
        if self.tried.len() < needed {
            self.tried.resize(needed, 0);
        }
        self.runs.clear();
        self.runs.resize(program.gaps, 0..0);
    }

    fn end(&mut self) {
        self.open.clear();
        for at in self.written.drain(..) {
            if let Some(bits) = self.tried.get_mut(at as usize) {
                *bits = 0;
            }
        }
    }

    fn take(&mut self, steps: usize) -> Result<(), OutOfSteps> {
        self.left = self.left.saturating_sub(steps);
        if self.left == 0 { Err(OutOfSteps) } else { Ok(()) }
    }

    /// The same for places that were looked at one by one; what is short is noticed with the next step.
    fn take_some(&mut self, places: usize) {
        self.left = self.left.saturating_sub(places / PLACES_PER_STEP);
    }

    /// Where a gap ends, of the ends that are left the one that is preferred; all others are kept for later. Where the next step was
    /// tried already, or what it begins with does not stand, it does not end.
    fn end_of(&mut self, text: Text<'_>, ends: Ends, is_greedy: bool, next: (&Filter, Place)) -> Option<usize> {
        if is_greedy { self.last_end(text, ends, next) } else { self.first_end(text, ends, next) }
    }

    fn first_end(&mut self, text: Text<'_>, ends: Ends, (filter, next): (&Filter, Place)) -> Option<usize> {
        let (mut at, end) = (ends.first, ends.last + 1);
        let (mut found, mut looked) = (None, 0);
        while at < end && found.is_none() {
            let (skip, run) = self.untried(next, at - text.from)?;
            (at, found) = (at + skip, text.first(at + skip, run.min(end.saturating_sub(at + skip)), filter));
            let until = found.map_or(at + run, |found| found + 1).min(end);
            self.note_all(next, at - text.from, until.saturating_sub(at));
            looked += until.saturating_sub(at);
            at = until.max(at);
        }
        self.take_some(looked);
        if found.is_some() && at < end {
            self.open.push(Open::Near(Ends { first: at, ..ends }));
        }
        found
    }

    fn last_end(&mut self, text: Text<'_>, ends: Ends, (filter, next): (&Filter, Place)) -> Option<usize> {
        let (mut end, mut looked) = (ends.last + 1, 0);
        let found = loop {
            let Some(place) = self.untried_back(next, ends.first - text.from, end - text.from) else { break None };
            end = text.from + place;
            looked += 1;
            self.note(next, place);
            if filter.passes(text.prefix(end)) {
                break Some(end);
            }
        };
        self.take_some(looked);
        if found.is_some() && end > ends.first {
            self.open.push(Open::Far(Ends { last: end - 1, ..ends }));
        }
        found
    }

    /// Notes that a step is tried at a place, if that is new.
    fn note(&mut self, step: Place, place: usize) -> bool {
        let (at, bit) = (step as usize * self.row + place / 64, 1 << (place % 64));
        let Some(bits) = self.tried.get_mut(at) else { return false };
        let is_new = *bits & bit == 0;
        if *bits == 0 {
            self.written.push(at as u32);
        }
        *bits |= bit;
        is_new
    }

    /// The same for some places that share a number of 64.
    fn note_all(&mut self, step: Place, place: usize, count: usize) {
        let at = step as usize * self.row + place / 64;
        let Some(bits) = self.tried.get_mut(at).filter(|_| count > 0) else { return };
        if *bits == 0 {
            self.written.push(at as u32);
        }
        *bits |= u64::MAX >> (64 - count.min(64)) << (place % 64);
    }

    /// How many places from one on a step was tried already, and at how many it was not, of those that share a number of 64 with it.
    fn untried(&self, step: Place, place: usize) -> Option<(usize, usize)> {
        let bits = *self.tried.get(step as usize * self.row + place / 64)?;
        let (left, free) = (64 - place % 64, !bits >> (place % 64));
        let skip = (free.trailing_zeros() as usize).min(left);
        let run = if skip == left { 0 } else { (!(free >> skip)).trailing_zeros() as usize };
        Some((skip, run.min(left - skip)))
    }

    /// The last place from one on and before another where a step was not tried yet.
    fn untried_back(&self, step: Place, from: usize, mut end: usize) -> Option<usize> {
        let row = step as usize * self.row;
        while end > from {
            let last = end - 1;
            let left = !self.tried.get(row + last / 64)? << (63 - last % 64);
            if left != 0 {
                return last.checked_sub(left.leading_zeros() as usize).filter(|at| *at >= from);
            }
            end = last / 64 * 64;
        }
        None
    }
}

// === impl Text ===

impl Text<'_> {
    /// The bytes at a place that are looked at first.
    fn prefix(self, at: usize) -> u32 {
        self.bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u32::from_le_bytes)
    }

    /// The byte before a place, if it is searched, too.
    fn before(self, at: usize) -> Option<u8> {
        if at > self.from { self.bytes.get(at - 1).copied() } else { None }
    }

    /// The first of some places at which a filter lets pass what stands there.
    fn first(self, at: usize, places: usize, filter: &Filter) -> Option<usize> {
        let bytes = self.bytes.get(at..at + places + PREFIX_BYTES - 1)?;
        let passes = |bytes: &[u8]| bytes.first_chunk().is_some_and(|bytes| filter.passes(u32::from_le_bytes(*bytes)));
        bytes.windows(PREFIX_BYTES).position(passes).map(|place| at + place)
    }

    fn looks(self, look: Look, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|at| self.bytes.get(at)).copied();
        let after = self.bytes.get(at).copied().filter(|_| at < self.len);
        let is_edge = || before.is_some_and(is_word) != after.is_some_and(is_word);
        match look {
            Look::Start => before.is_none(),
            Look::End => after.is_none(),
            Look::StartLF => before.is_none_or(|byte| byte == b'\n'),
            Look::EndLF => after.is_none_or(|byte| byte == b'\n'),
            Look::WordAscii => is_edge(),
            Look::WordAsciiNegate => !is_edge(),
            // No program asks for any other.
            _ => false,
        }
    }
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
