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
        (text, (from, to)): (&[u8], (usize, usize)),
        credits: &mut Credits,
    ) -> Option<Range<usize>> {
        self.tally.runs += 1;
        let before = cache.memory_usage();
        if self.tally.runs == 1 {
            self.tally.size = before;
        }
        let anchored = if rule.before == 0 { Anchored::Yes } else { Anchored::No };
        let input = Input::new(text).range(from..to).anchored(anchored);
        let end = self.look_ahead(to, text.len());
        let may_match = rule.before == 0 || end == to || {
            // Whichever match ends first: no other one is whole before that.
            let ahead = input.clone().range(from..end).earliest(true);
            let first = pattern.search_half_with(cache, &ahead).map_or(end + 1, |half| half.offset());
            credits.charge_ahead(&mut self.tally, rule, first.min(end).saturating_sub(to));
            if first > to {
                self.miss(from..first - 1);
            }
            first <= to
        };
        let found = if may_match { pattern.search_with(cache, &input).map(|found| found.range()) } else { None };
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
