//! What one rule has done in a text: what it has cost, and what is known of places that the next window holds, too.
//!
//! Windows of one rule overlap where its literals stand close together; each byte is looked at about once all the same.
//! Invariant: what is left out is known to hold no match that the same window would show by itself.

use std::ops::Range;

use memchr::memchr;
use regex_automata::meta::{Cache, Regex};
use regex_automata::{Anchored, Input};

use super::credits::{Credits, Tally};
use crate::rules::{CACHE_KEEP_MAX, Rule, Seen};

/// How far behind a window is looked for what a rule waits for, once a window held no match: where literals stand close together the
/// next ones are settled by that.
const AHEAD_BYTES: usize = 384;
/// After how many such windows.
const MISSES_MIN: u32 = 4;

/// Bytes on either side of what is searched by which a pattern tells the edges of words and lines.
const AROUND_BYTES: usize = 2;

/// What a pattern is searched in.
pub(super) struct Haystack<'a> {
    bytes: &'a [u8],
    /// Where in the text it begins.
    at: usize,
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
    /// Where in the text it ends.
    const fn end(&self) -> usize {
        self.at + self.bytes.len()
    }

    /// A search in a part of the text.
    fn input(&self, range: Range<usize>) -> Input<'a> {
        Input::new(self.bytes).range(range.start - self.at..range.end - self.at)
    }

    /// Where in the text a pattern matches, in a part of it.
    fn find(
        &self,
        pattern: &Regex,
        cache: &mut Cache,
        (range, anchored): (Range<usize>, Anchored),
    ) -> Option<Range<usize>> {
        let found = pattern.search_with(cache, &self.input(range).anchored(anchored))?.range();
        Some(self.at + found.start..self.at + found.end)
    }

    /// Where in the text the first group of a pattern lies, within a match; the match where it has none.
    pub(super) fn group(&self, pattern: &Regex, cache: &mut Cache, range: Range<usize>) -> Range<usize> {
        if pattern.captures_len() < 2 {
            return range;
        }
        let mut captures = pattern.create_captures();
        // Groups are dear to find: only within what is a match already.
        let within = self.input(range.clone()).anchored(Anchored::Yes);
        pattern.search_captures_with(cache, &within, &mut captures);
        captures.get_group(1).map_or(range, |group| self.at + group.start..self.at + group.end)
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

    /// Where the pattern matches in a window that it has not matched in before.
    pub(super) fn search(
        &mut self,
        rule: &Rule,
        pattern: &Regex,
        cache: &mut Cache,
        (haystack, (from, to)): (&Haystack<'_>, (usize, usize)),
        credits: &mut Credits,
    ) -> Option<Range<usize>> {
        self.tally.runs += 1;
        let before = cache.memory_usage();
        if self.tally.runs == 1 {
            self.tally.size = before;
        }
        let anchored = if rule.before == 0 { Anchored::Yes } else { Anchored::No };
        let end = self.look_ahead(to, haystack.end());
        let may_match = rule.before == 0 || end == to || {
            // Whichever match ends first: no other one is whole before that.
            let ahead = haystack.input(from..end).anchored(anchored).earliest(true);
            let first = pattern.search_half_with(cache, &ahead).map_or(end + 1, |half| haystack.at + half.offset());
            credits.charge_ahead(&mut self.tally, rule, first.min(end).saturating_sub(to));
            if first > to {
                self.miss(from..first - 1);
            }
            first <= to
        };
        let found = if may_match { haystack.find(pattern, cache, (from..to, anchored)) } else { None };
        let after = cache.memory_usage();
        credits.charge_growth(&mut self.tally, rule, after.saturating_sub(before));
        if after > CACHE_KEEP_MAX {
            // One that is full for the fourth time gives up for good, and each search after that is a hundred times as dear.
            cache.reset(pattern);
        }
        match found {
            // One that may begin at its literal only says nothing of the next literal.
            None if may_match && rule.before > 0 => self.miss(from..to),
            None => {}
            Some(range) if range == self.last => return None,
            Some(ref range) => self.last = range.clone(),
        }
        found
    }

    /// What is searched for a window: with small letters only where the pattern wants them, which are written to `small`.
    pub(super) fn haystack<'a>(
        &self,
        rule: &Rule,
        text: &'a [u8],
        (from, to): (usize, usize),
        small: &'a mut Vec<u8>,
    ) -> Haystack<'a> {
        if !rule.pattern.wants_small_letters() {
            return Haystack { bytes: text, at: 0 };
        }
        let (at, end) = (from.saturating_sub(AROUND_BYTES), self.look_ahead(to, text.len()) + AROUND_BYTES);
        small.clear();
        small.extend_from_slice(text.get(at..end.min(text.len())).unwrap_or_default());
        small.make_ascii_lowercase();
        Haystack { bytes: small, at }
    }

    /// Up to where is looked for the sake of the next windows, too.
    fn look_ahead(&self, to: usize, len: usize) -> usize {
        // An automaton that grows would grow by what no window holds.
        if self.missed < MISSES_MIN || self.tally.grows() { to } else { (to + AHEAD_BYTES).min(len) }
    }

    fn miss(&mut self, clear: Range<usize>) {
        self.missed += 1;
        self.clear = clear;
    }
}
