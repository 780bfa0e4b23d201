//! What one rule has done in a text: what it has cost, and what is known of places that the next window holds, too.
//!
//! Windows of one rule overlap where its literals stand close together; each byte is looked at about once all the same.
//! Invariant: what is left out is known to hold no match that the same window would show by itself.

use std::ops::Range;

use memchr::memchr;
use regex_automata::meta::{Cache, Regex};
use regex_automata::{Anchored, Input};

use super::credits::{Credits, Tally};
use crate::rules::{CACHE_KEEP_MAX, PADDING, Pattern, Program, Rule, SearchScratch, Seen};

/// How far behind a window is looked for what a rule waits for, once a window held no match: where literals stand close together the
/// next ones are settled by that.
const AHEAD_BYTES: usize = 384;
/// After how many such windows.
const MISSES_MIN: u32 = 4;

/// Bytes on either side of what is searched by which a pattern tells the edges of words and lines.
const AROUND_BYTES: usize = 2;

/// What a pattern is searched in: a copy of a part of the text, with [`PADDING`] behind it.
pub(super) struct Haystack<'a> {
    bytes: &'a [u8],
    /// Where in the text it begins, and ends.
    at: usize,
    end: usize,
}

/// What searches write to.
pub(super) struct SearchTools<'a> {
    pub(super) noted: &'a mut SearchScratch,
    /// The states of the rule's automaton.
    pub(super) states: &'a mut Option<Box<Cache>>,
}

/// What one rule has done in a text.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// The text that all this is of, and the texts that share one sum of credits.
    text: u64,
    scan: u64,
    pub(super) tally: Tally,
    seen: Seen,
    /// No match lies within.
    clear: Range<usize>,
    /// Windows that held no match.
    missed: u32,
    /// What matched last.
    last: Range<usize>,
}

// === impl Haystack ===

impl<'a> Haystack<'a> {
    /// What is searched for a window, which goes on up to `end`: with small letters only where the pattern wants them. It is written to
    /// `copy`.
    pub(super) fn of(rule: &Rule, text: &[u8], (from, end): (usize, usize), copy: &'a mut Vec<u8>) -> Self {
        let (at, end) = (from.saturating_sub(AROUND_BYTES), (end + AROUND_BYTES).min(text.len()));
        copy.clear();
        copy.extend_from_slice(text.get(at..end).unwrap_or_default());
        if rule.pattern.wants_small_letters() {
            copy.make_ascii_lowercase();
        }
        copy.extend_from_slice(&PADDING);
        Self { bytes: copy, at, end }
    }

    /// A search by an automaton in a part of the text.
    fn input(&self, part: Range<usize>, anchored: Anchored) -> Input<'a> {
        let bytes = self.bytes.get(..self.end - self.at).unwrap_or_default();
        Input::new(bytes).range(self.here(&part)).anchored(anchored)
    }

    /// A part of the text in the copy.
    const fn here(&self, part: &Range<usize>) -> Range<usize> {
        part.start - self.at..part.end - self.at
    }

    const fn in_text(&self, part: &Range<usize>) -> Range<usize> {
        self.at + part.start..self.at + part.end
    }

    /// Where in the text the first group of a pattern lies, within a match; the match where it has none.
    pub(super) fn group(&self, pattern: &Regex, cache: &mut Cache, range: Range<usize>) -> Range<usize> {
        let mut captures = pattern.create_captures();
        // Groups are dear to find: only within what is a match already.
        pattern.search_captures_with(cache, &self.input(range.clone(), Anchored::Yes), &mut captures);
        captures.get_group(1).map_or(range, |group| self.in_text(&group.range()))
    }
}

// === impl SearchTools ===

impl SearchTools<'_> {
    /// A pattern's automaton, and its states.
    pub(super) fn cache<'b>(&mut self, pattern: &'b Pattern) -> Option<(&'b Regex, &mut Cache)> {
        let automaton = pattern.automaton()?;
        Some((automaton, self.states.get_or_insert_with(|| Box::new(automaton.create_cache()))))
    }
}

// === impl Tried ===

impl Tried {
    /// Forgets what it knows of other texts.
    pub(super) fn begin(&mut self, scan: u64, text: u64) {
        if self.scan != scan {
            (self.scan, self.tally) = (scan, Tally::default());
        }
        if self.text != text {
            self.seen.clear();
            (self.text, self.clear, self.missed, self.last) = (text, 0..0, 0, 0..0);
        }
    }

    /// Whether a window is known to hold no match.
    pub(super) const fn is_clear(&self, (from, to): (usize, usize)) -> bool {
        self.clear.start <= from && to <= self.clear.end
    }

    /// Whether a window holds the words, or the rare byte, of every match.
    pub(super) fn may_match(
        &mut self,
        rule: &Rule,
        text: &[u8],
        (from, to): (usize, usize),
        credits: &mut Credits,
    ) -> bool {
        if let Some(words) = &rule.words {
            let looked = words.stand_next(text, (from, to), &mut self.seen);
            credits.charge(&mut self.tally, rule, Tally::words_cost(looked.bytes, looked.places));
            return looked.stand;
        }
        let Some(byte) = rule.rare_byte else { return true };
        let end = self.look_ahead(to, text.len());
        let at = memchr(byte, text.get(from..end).unwrap_or_default()).map_or(end, |at| from + at);
        credits.charge(&mut self.tally, rule, Tally::words_cost(at - from, 0));
        if at >= to {
            self.miss(from..at);
        }
        at < to
    }

    /// Where a pattern matches in a window that it has not matched in before.
    pub(super) fn search(
        &mut self,
        rule: &Rule,
        (haystack, window): (&Haystack<'_>, (usize, usize)),
        credits: &mut Credits,
        tools: &mut SearchTools<'_>,
    ) -> Option<Range<usize>> {
        self.tally.runs += 1;
        let found = match rule.pattern.program() {
            Some(program) => self.follow(rule, program, (haystack, window), credits, tools.noted)?,
            None => self.find(rule, (haystack, window), credits, tools.cache(&rule.pattern)?),
        };
        let found = found.filter(|range| *range != self.last)?;
        self.last = found.clone();
        Some(found)
    }

    /// Where a program matches. `None` where it did not come to an end.
    fn follow(
        &mut self,
        rule: &Rule,
        program: &Program,
        (haystack, (from, to)): (&Haystack<'_>, (usize, usize)),
        credits: &mut Credits,
        scratch: &mut SearchScratch,
    ) -> Option<Option<Range<usize>>> {
        let is_anchored = rule.before == 0;
        let mut find = |end: usize, tally: &mut Tally| {
            let may = credits.steps(rule, to);
            let mut left = may;
            let found = program.find(haystack.bytes, haystack.here(&(from..end)), is_anchored, &mut left, scratch);
            credits.charge_steps(tally, rule, may - left);
            credits.refused |= found.is_err();
            Some(found.ok()?.map(|range| haystack.in_text(&range)))
        };
        let ahead = if is_anchored { to } else { haystack.end.min(self.look_ahead(to, usize::MAX)) };
        let mut found = find(ahead, &mut self.tally)?;
        let mut clear = ahead;
        if found.as_ref().is_some_and(|range| range.end > to) {
            // What is preferred ends behind the window; another one may not.
            (found, clear) = (find(to, &mut self.tally)?, to);
        }
        if found.is_none() && !is_anchored {
            self.miss(from..clear);
        }
        Some(found)
    }

    /// Where an automaton matches.
    fn find(
        &mut self,
        rule: &Rule,
        (haystack, (from, to)): (&Haystack<'_>, (usize, usize)),
        credits: &mut Credits,
        (pattern, cache): (&Regex, &mut Cache),
    ) -> Option<Range<usize>> {
        let before = cache.memory_usage();
        let anchored = if rule.before == 0 { Anchored::Yes } else { Anchored::No };
        let found = pattern.search_with(cache, &haystack.input(from..to, anchored));
        let after = cache.memory_usage();
        credits.charge_growth(&mut self.tally, rule, after.saturating_sub(before));
        if after > CACHE_KEEP_MAX {
            // One that is full for the fourth time gives up for good, and each search after that is a hundred times as dear.
            cache.reset(pattern);
        }
        if found.is_none() && rule.before > 0 {
            self.miss(from..to);
        }
        found.map(|found| haystack.in_text(&found.range()))
    }

    /// Up to where is looked for the sake of the next windows, too.
    pub(super) fn look_ahead(&self, to: usize, len: usize) -> usize {
        if self.missed < MISSES_MIN { to } else { (to + AHEAD_BYTES).min(len) }
    }

    fn miss(&mut self, clear: Range<usize>) {
        self.missed += 1;
        self.clear = clear;
    }
}
