//! Operators' own rules: in the form of the built-in ones, read while the gateway runs and swapped as a whole.
//!
//! They are a detector of their own with a matcher of its own, so that without them nothing is looked for. What they match is
//! judged as the built-in rules' matches are, but for decoded text, which only those see. Invariant: rules that were read
//! have been tried on their own examples.

use std::hash::Hasher as _;

use arc_swap::ArcSwap;
use siphasher::sip::SipHasher13;

use crate::builtin::judge;
use crate::candidate::Candidate;
use crate::detector::{CostClass, Detector, Found, Text};
use crate::frame::Frame;
use crate::part::Hit;
use crate::plan::Call;
use crate::rule_book::RuleBook;
use crate::rule_matcher::{MatcherScratch, RuleMatcher};
use crate::rules::{self, Allow, Group, LoadError, Loaded, bounds};
use crate::secret;
use crate::shared_look::{OperatorScratch, SharedLook};
use crate::strictness::Strictness;
use crate::tuning::Tuning;

/// The name of the detector.
pub const OPERATOR_RULES: &str = "operator_rules";
/// What a change that is tried is called where a rule file's name is said.
const CHANGE: &str = "the change";

/// The rules of one operator.
#[derive(Debug)]
pub struct OperatorRules {
    frame: Frame,
    current: ArcSwap<Set>,
}

/// The rules as they were read at one moment.
#[derive(Debug)]
struct Set {
    book: RuleBook,
    allow: Vec<Allow>,
    version: u64,
    /// What they were read from, to be read again with a change.
    files: Vec<(String, String)>,
}

// === impl OperatorRules ===

impl OperatorRules {
    /// Reads rule files, given by name and text, and tries each rule on its examples.
    ///
    /// # Errors
    /// When a file is not in the form, a rule is not as it must be, or there are too many.
    pub fn read(files: &[(String, String)]) -> Result<Self, LoadError> {
        Ok(Self { frame: Frame::new()?, current: ArcSwap::from_pointee(Set::read(files)?) })
    }

    /// Reads them again; when that fails the former ones stay.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn replace(&self, files: &[(String, String)]) -> Result<(), LoadError> {
        self.current.store(Set::read(files)?.into());
        Ok(())
    }

    /// The rules as they would be with a change, which these stay without: a rule or allow rule of `change`, a text in the form of a
    /// rule file, takes the place of the one of its id, and those in `without` are left out.
    ///
    /// # Errors
    /// As [`Self::read`], and when there is no rule of a name in `without`.
    pub fn changed(current: Option<&Self>, change: &str, without: &[String]) -> Result<Self, LoadError> {
        let set = current.map(|rules| rules.current.load_full());
        let files = set.as_ref().map_or(&[][..], |set| &set.files);
        let views: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let loaded = rules::of_operator_changed(&views, (CHANGE, change), without)?;
        Ok(Self { frame: Frame::new()?, current: ArcSwap::from_pointee(Set::of(loaded, Vec::new(), 1)?) })
    }

    /// Compiles their patterns, which a text would else wait for.
    pub(crate) fn prepare(&self) {
        self.current.load().book.matcher().prepare();
    }

    /// How many rules and how many allow rules there are.
    pub fn count(&self) -> (usize, usize) {
        let set = self.current.load();
        (set.book.rules().count(), set.allow.len())
    }

    /// Takes the weight from the findings about words of `text` that an allow rule is about.
    pub(crate) fn allow(&self, text: &str, call: &Call<'_>, hits: &mut [Hit]) {
        if hits.is_empty() {
            return;
        }
        for allow in self.current.load().allow.iter().filter(|allow| allow.is_for(call.tenant, call.agent)) {
            hits.iter_mut().for_each(|hit| allow.apply(text, &mut hit.finding));
        }
    }
}

impl Detector for OperatorRules {
    fn name(&self) -> &'static str {
        OPERATOR_RULES
    }

    fn cost(&self) -> CostClass {
        CostClass::Core
    }

    fn version(&self) -> u64 {
        self.current.load().version
    }

    fn look(&self, text: &Text<'_>, tuning: &Tuning, found: &mut Found<'_>) {
        let Found { said, shared: Some(SharedLook { folded, limits, operator, outcome, .. }), .. } = found else {
            return;
        };
        let set = self.current.load();
        if operator.version != set.version {
            **operator = OperatorScratch { version: set.version, ..OperatorScratch::default() };
        }
        let OperatorScratch { memory, candidates, .. } = &mut **operator;
        let matcher = set.book.matcher();
        let scanned = matcher.scan(text.folded, *limits, memory);
        outcome.join(&scanned);
        if memory.matches.is_empty() {
            return;
        }
        candidates.clear();
        let how = (text.kind, folded.is_disguised(), Strictness::of(tuning));
        judge(matcher, &self.frame, text.folded, how, memory, candidates);
        credentials(matcher, text.folded, memory, candidates);
        Candidate::keep_worst(candidates, matcher);
        for candidate in candidates.drain(..) {
            let (start, end) = folded.original(text.raw, candidate.start, candidate.end);
            let mut finding = candidate.finding(matcher, text.kind);
            finding.detector = OPERATOR_RULES.into();
            said.push((start..end, finding));
        }
    }
}

/// Candidates from the matches of rules about credentials.
fn credentials(matcher: &RuleMatcher, text: &[u8], memory: &MatcherScratch, out: &mut Vec<Candidate>) {
    for found in &memory.matches {
        let Some(rule) = matcher.rule(found.rule).filter(|rule| rule.group == Group::Secrets) else { continue };
        let value = text.get(found.start..found.end).unwrap_or_default();
        if secret::is_genuine(value, rule.entropy, rule.digit) {
            out.push(Candidate::rule(*found, rule));
        }
    }
}

// === impl Set ===

impl Set {
    fn read(files: &[(String, String)]) -> Result<Self, LoadError> {
        let views: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let mut hasher = SipHasher13::new();
        for (name, text) in &views {
            hasher.write(name.as_bytes());
            hasher.write_u8(0xFF);
            hasher.write(text.as_bytes());
            hasher.write_u8(0xFF);
        }
        let loaded = rules::of_operator(&views)?;
        // 0 is that of memory nobody has used.
        Self::of(loaded, files.to_vec(), hasher.finish().max(1))
    }

    /// Checks rules, and tries them on their examples.
    fn of(mut loaded: Loaded, files: Vec<(String, String)>, version: u64) -> Result<Self, LoadError> {
        bounds::check(&loaded)?;
        let allow = std::mem::take(&mut loaded.allow);
        let book = RuleBook::of(loaded, RuleMatcher::of_operator)?;
        book.try_examples()?;
        Ok(Self { book, allow, version, files })
    }
}

#[cfg(test)]
mod tests;
