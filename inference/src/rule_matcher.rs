//! The rule matcher: one pass for all literals, then the few patterns whose literal was seen, each in its own small
//! window.
//!
//! Invariants: one pass over the text; what the patterns cost grows with the length of the text and never faster
//! ([`Credits`]), no rule's trigger words take what another rule needs; the deadline is looked at every [`SLICE_BYTES`]. Sees folded bytes only and knows nothing of roles
//! beyond the scope bits.

mod credits;
mod tried;

use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

use credits::Credits;
use regex_automata::meta::Cache;
use tried::{Haystack, SearchTools, Tried};

use crate::decode::{Cipher, Ciphers, stands_apart};
use crate::literals::{Found, Literals};
use crate::part::PartKind;
use crate::rules::{Group, LoadError, Rule, SearchScratch};

/// Bytes between two looks at the clock.
pub(crate) const SLICE_BYTES: usize = 8 * 1024;
/// A pattern that matched; offsets into the folded text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Match {
    pub(crate) rule: u16,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// What one scan may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bit of the part's kind.
    pub(crate) scope: u8,
    /// Whether rules of the jailbreak detector and cipher markers count.
    pub(crate) jailbreak: bool,
    /// Whether rules about credentials count.
    pub(crate) credentials: bool,
    /// When to stop.
    pub(crate) deadline: Option<Instant>,
}

/// How a scan ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) cut: bool,
    /// There was no room for more hits.
    pub(crate) full: bool,
    pub(crate) cap_reached: bool,
    /// A detector could not judge the text.
    pub(crate) failed: bool,
    /// The most that was spent of what the patterns may cost, in thousandths.
    pub(crate) effort: u32,
    pub(crate) ciphers: Ciphers,
}

impl Outcome {
    /// Takes over what kept a scan of decoded text from being whole.
    pub(crate) fn join(&mut self, inner: &Self) {
        self.cut |= inner.cut;
        self.full |= inner.full;
        self.cap_reached |= inner.cap_reached;
        self.effort = self.effort.max(inner.effort);
    }
}

/// A literal and the rules that wait for it.
#[derive(Debug, Default)]
struct Owners {
    rules: Vec<u16>,
    ciphers: u32,
    scope: u8,
    starts_word: bool,
    /// It is several words in one.
    is_stem: bool,
    /// The literal as a rule writes it for which case counts, if it has upper-case letters.
    written: Option<Box<[u8]>>,
}

/// Literals while they are brought together, each once.
#[derive(Default)]
struct Collected<'a> {
    all: Vec<(&'a str, Owners)>,
    places: HashMap<&'a str, usize>,
}

/// The literals of some of the rules.
#[derive(Debug)]
struct Index {
    literals: Literals,
    /// The rules that wait for each literal, in the order of `literals`.
    owners: Vec<Owners>,
}

/// All rules, ready to scan.
#[derive(Debug)]
pub(crate) struct RuleMatcher {
    rules: Vec<Rule>,
    /// For texts of every kind but the definitions of tools.
    index: Index,
    /// For those: their rules wait for words that are frequent in any prose, which would have to be looked at there for
    /// nothing.
    of_definitions: Index,
}

impl RuleMatcher {
    /// Compiles the patterns that no text has asked for yet.
    pub(crate) fn prepare(&self) {
        self.rules.iter().for_each(|rule| rule.pattern.prepare());
    }
}

/// Per-thread scratch memory of the matcher.
#[derive(Debug, Default)]
pub(crate) struct MatcherScratch {
    /// The states of the automata of rules that need one.
    states: Vec<Option<Box<Cache>>>,
    done: Vec<u64>,
    /// What each rule has done in this text.
    tried: Vec<Tried>,
    /// Texts scanned until now, and the same with those decoded from one counted as one; says which of `tried` is of this one.
    texts: u64,
    scans: u64,
    credits: Credits,
    /// What of this text stands in no other one.
    changed: Range<usize>,
    /// What is searched.
    copy: Vec<u8>,
    /// What programs note while they are searched.
    noted: SearchScratch,
    pub(crate) matches: Vec<Match>,
}

// === impl MatcherScratch ===

impl MatcherScratch {
    /// The next scans are of what is decoded from the text that was scanned last with `outer`.
    pub(crate) fn begin_decoded(&mut self, outer: &Self) {
        self.begin(outer.credits.left());
    }

    fn begin(&mut self, credits: Credits) {
        self.scans += 1;
        self.credits = credits;
    }
}

// === impl Collected ===

impl<'a> Collected<'a> {
    /// Who waits for a literal.
    fn owners(&mut self, literal: &'a str) -> &mut Owners {
        let at = *self.places.entry(literal).or_insert_with(|| {
            let starts_word = literal.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
            self.all.push((literal, Owners { starts_word, ..Owners::default() }));
            self.all.len() - 1
        });
        &mut self.all[at].1
    }
}

// === impl Index ===

impl Index {
    /// The literals of the rules that apply to a kind of `scope`, and marker words of ciphers.
    fn new(rules: &[Rule], scope: u8, markers: &[(String, Cipher)]) -> Result<Self, LoadError> {
        let mut literals = Collected::default();
        for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.scope & scope != 0) {
            let index = u16::try_from(index).map_err(|_| LoadError::Literals("more than 65535 rules".to_owned()))?;
            for literal in &rule.literals {
                let owners = literals.owners(literal);
                owners.rules.push(index);
                owners.scope |= rule.scope;
                if rule.exact_case && literal.bytes().any(|byte| byte.is_ascii_uppercase()) {
                    owners.written = Some(literal.as_bytes().into());
                }
            }
        }
        for (marker, cipher) in markers {
            let owners = literals.owners(marker);
            owners.ciphers |= cipher.bit();
            owners.is_stem |= Cipher::is_stem(marker);
            owners.scope = u8::MAX;
        }
        let literals = literals.all;
        if literals.len() > usize::from(u16::MAX) {
            return Err(LoadError::Literals("more than 65535 literals".to_owned()));
        }
        let index = Literals::new(literals.iter().map(|(literal, _)| *literal));
        let owners = literals.into_iter().map(|(_, owners)| owners).collect();
        Ok(Self { literals: index, owners })
    }
}

// === impl RuleMatcher ===

impl RuleMatcher {
    /// Of the rules of the binary, and the ciphers.
    pub(crate) fn new(rules: Vec<Rule>) -> Result<Self, LoadError> {
        Self::with(rules, &Cipher::markers())
    }

    /// Of an operator's rules.
    pub(crate) fn of_operator(rules: Vec<Rule>) -> Result<Self, LoadError> {
        Self::with(rules, &[])
    }

    fn with(rules: Vec<Rule>, markers: &[(String, Cipher)]) -> Result<Self, LoadError> {
        let definitions = PartKind::ToolDefinition.bit();
        let index = Index::new(&rules, !definitions, markers)?;
        let of_definitions = Index::new(&rules, definitions, markers)?;
        Ok(Self { rules, index, of_definitions })
    }

    pub(crate) fn rule(&self, index: u16) -> Option<&Rule> {
        self.rules.get(usize::from(index))
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Finds the matches of all rules in `text`; they land in `memory.matches` in the order they were seen.
    pub(crate) fn scan(&self, text: &[u8], limits: Limits, memory: &mut MatcherScratch) -> Outcome {
        memory.begin(Credits::of_text());
        self.scan_next(text, 0..text.len(), limits, memory)
    }

    /// The same for one of several decoded texts, which share one sum ([`MatcherScratch::begin_decoded`]). What lies outside of `changed`
    /// stands in the text that was decoded, too: only signs, which are added up, are looked for there again.
    pub(crate) fn scan_next(
        &self,
        text: &[u8],
        changed: Range<usize>,
        limits: Limits,
        memory: &mut MatcherScratch,
    ) -> Outcome {
        memory.changed = changed;
        memory.matches.clear();
        memory.states.resize_with(self.rules.len(), || None);
        memory.done.clear();
        memory.done.resize(self.rules.len().div_ceil(64), 0);
        memory.tried.resize_with(self.rules.len(), Tried::default);
        memory.texts += 1;
        let mut outcome = Outcome::default();
        let mut credits = memory.credits.next_text(text.len());
        let mut from = 0;
        let is_definition = limits.scope == PartKind::ToolDefinition.bit();
        let index = if is_definition { &self.of_definitions } else { &self.index };
        while from < text.len() {
            let to = (from + SLICE_BYTES).min(text.len());
            index.literals.scan(text, from, to, |found| {
                let Some(owners) = index.owners.get(found.literal) else { return };
                if owners.scope & limits.scope == 0 {
                    return;
                }
                if limits.jailbreak && owners.ciphers != 0 {
                    // A word of an order is no sign of anything where it stands as words do.
                    let parted = Cipher::Parted.bit();
                    let is_word =
                        owners.ciphers & parted != 0 && !owners.is_stem && !stands_apart(text, found.start, found.end);
                    outcome.note_ciphers(owners.ciphers & if is_word { !parted } else { u32::MAX }, found.start);
                }
                self.try_rules(owners, text, found, limits, &mut credits, memory);
            });
            from = to;
            if from < text.len() && limits.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                outcome.cut = true;
                break;
            }
        }
        outcome.cap_reached |= credits.refused;
        outcome.effort = u32::try_from(credits.effort).unwrap_or(u32::MAX);
        memory.credits = credits.after(text.len());
        outcome
    }

    /// Tries the patterns that wait for a literal.
    fn try_rules(
        &self,
        owners: &Owners,
        text: &[u8],
        found: Found,
        limits: Limits,
        credits: &mut Credits,
        memory: &mut MatcherScratch,
    ) {
        let at_word = !owners.starts_word || !is_word(text, found.start.wrapping_sub(1));
        let as_written =
            owners.written.as_deref().is_none_or(|written| text.get(found.start..found.end) == Some(written));
        for index in &owners.rules {
            let Some(rule) = self.rule(*index) else { continue };
            if rule.scope & limits.scope == 0
                || (rule.before == 0 && !at_word)
                || (rule.exact_case && !as_written)
                || (rule.group == Group::Jailbreak && !limits.jailbreak)
                || (rule.group == Group::Secrets && !limits.credentials)
                || is_set(&memory.done, *index)
            {
                continue;
            }
            let window =
                (found.start.saturating_sub(rule.before), (found.start + rule.after).max(found.end).min(text.len()));
            let is_known = window.1 <= memory.changed.start || memory.changed.end <= window.0;
            if rule.signal > 0 || !is_known {
                self.verify(rule, *index, text, (window, found.end), credits, memory);
            }
        }
    }

    fn verify(
        &self,
        rule: &Rule,
        index: u16,
        text: &[u8],
        (window, end): ((usize, usize), usize),
        credits: &mut Credits,
        memory: &mut MatcherScratch,
    ) {
        let MatcherScratch { states, done, tried, scans, texts, matches, copy, noted, .. } = memory;
        let (Some(tried), Some(states)) = (tried.get_mut(usize::from(index)), states.get_mut(usize::from(index)))
        else {
            return;
        };
        tried.begin(*scans, *texts);
        if tried.is_clear(window) {
            return;
        }
        let cost = tried.tally.look_cost();
        if !credits.spend(&mut tried.tally, rule, end, cost) || !tried.may_match(rule, text, window, credits) {
            return;
        }
        let cost = tried.tally.run_cost(rule, window.1 - window.0);
        if !credits.spend(&mut tried.tally, rule, end, cost) {
            return;
        }
        let haystack = Haystack::of(rule, text, (window.0, tried.look_ahead(window.1, text.len())), copy);
        let mut tools = SearchTools { noted, states };
        let Some(mut span) = tried.search(rule, (&haystack, window), credits, &mut tools) else { return };
        if rule.pattern.has_group() {
            let Some((pattern, cache)) = tools.cache(&rule.pattern) else { return };
            span = haystack.group(pattern, cache, span);
        }
        // Secrets and rules that look at quoting may match again further on; all others once per text.
        if rule.group != Group::Secrets && !rule.frame {
            set(done, index);
        }
        let repeated = matches.iter().rev().take(8).any(|seen| seen.rule == index && seen.end >= span.end);
        if !repeated {
            // What stands there already is judged, whatever is left.
            credits.charge_match(&mut tried.tally, rule);
            matches.push(Match { rule: index, start: span.start, end: span.end });
        }
    }
}

impl Outcome {
    fn note_ciphers(&mut self, ciphers: u32, at: usize) {
        let mut left = ciphers;
        while left != 0 {
            self.ciphers.note(left.trailing_zeros() as usize, at);
            left &= left - 1;
        }
    }
}

fn is_word(text: &[u8], at: usize) -> bool {
    text.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

fn is_set(bits: &[u64], index: u16) -> bool {
    bits.get(usize::from(index / 64)).is_some_and(|word| word & (1 << (index % 64)) != 0)
}

fn set(bits: &mut [u64], index: u16) {
    if let Some(word) = bits.get_mut(usize::from(index / 64)) {
        *word |= 1 << (index % 64);
    }
}

#[cfg(test)]
mod tests;
