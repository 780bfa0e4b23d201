//! The rules as people look them up: what each says, and where its pattern matches a text.
//!
//! A match is not yet a finding: who wrote the text, what it says around the match and what else was found decide that.

use weir_config::vocab::Severity;

use crate::evidence;
use crate::fold::Folded;
use crate::part::PartKind;
use crate::rule_matcher::{Limits, MatcherScratch, RuleMatcher};
use crate::rules::{self, DISGUISED, Group, LoadError, Loaded, Rule, RuleText};
use crate::secret;

/// Rules with their texts.
#[derive(Debug)]
pub struct RuleBook {
    matcher: RuleMatcher,
    texts: Vec<RuleText>,
}

/// One rule.
#[derive(Debug, Clone, Copy)]
pub struct RuleView<'a> {
    rule: &'a Rule,
    /// Its name, source and examples.
    pub text: &'a RuleText,
}

/// A place where a rule's pattern matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleMatch {
    /// The rule's id.
    pub rule: String,
    /// Byte offsets into the text.
    pub start: usize,
    /// The end of the match.
    pub end: usize,
    /// The words of the match on one line; a credential is masked.
    pub evidence: String,
}

// === impl RuleBook ===

impl RuleBook {
    /// Reads the rules that are part of the binary.
    ///
    /// # Errors
    /// When a rule file is unreadable or a rule is not as it must be; a test keeps that from being released.
    pub fn builtin() -> Result<Self, LoadError> {
        Self::of(rules::builtin()?, RuleMatcher::new)
    }

    /// Reads an operator's rule files, given by name and text.
    ///
    /// # Errors
    /// When a file is not in the form or a rule is not as it must be. Whether it matches its examples is not asked.
    pub fn operator(files: &[(String, String)]) -> Result<Self, LoadError> {
        let views: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        Self::of(rules::of_operator(&views)?, RuleMatcher::of_operator)
    }

    pub(crate) fn of(
        loaded: Loaded,
        make: impl Fn(Vec<Rule>) -> Result<RuleMatcher, LoadError>,
    ) -> Result<Self, LoadError> {
        Ok(Self { matcher: make(loaded.rules)?, texts: loaded.texts })
    }

    pub(crate) const fn matcher(&self) -> &RuleMatcher {
        &self.matcher
    }

    /// Tries each rule on its examples; says the first that is not as it must be.
    pub(crate) fn try_examples(&self) -> Result<(), LoadError> {
        for text in &self.texts {
            let matches = |example: &str| self.matches(example, None).iter().any(|found| found.rule == text.id);
            let missed = text.hits.iter().find(|hit| !matches(hit)).map(|hit| ("hits", hit, "is not matched"));
            let hit = text.misses.iter().find(|miss| matches(miss)).map(|miss| ("misses", miss, "is matched"));
            if let Some((field, example, what)) = missed.or(hit) {
                let reason = format!(
                    "`{field}`: `{example}` {what}; mend the pattern, its literals or the example (a match begins at its \
                     literal, or up to `before` bytes ahead of it)"
                );
                return Err(LoadError::Rule { file: text.file.clone(), rule: text.id.clone(), reason });
            }
        }
        Ok(())
    }

    /// The rules in the order of their files.
    pub fn rules(&self) -> impl Iterator<Item = RuleView<'_>> {
        self.matcher.rules().iter().zip(&self.texts).map(|(rule, text)| RuleView { rule, text })
    }

    /// Where patterns match in `text`, in the order of the text. Without a role every rule is tried, whatever it reads.
    pub fn matches(&self, text: &str, kind: Option<PartKind>) -> Vec<RuleMatch> {
        let scopes = match kind {
            Some(kind) => vec![kind.bit()],
            // The definitions of tools have literals of their own.
            None => vec![u8::MAX, PartKind::ToolDefinition.bit()],
        };
        let (mut folded, mut memory) = (Folded::default(), MatcherScratch::default());
        folded.fold(text);
        let bytes = folded.bytes(text);
        let mut found = Vec::new();
        for scope in scopes {
            self.matcher.scan(bytes, Limits { scope, jailbreak: true, credentials: true, deadline: None }, &mut memory);
            for hit in &memory.matches {
                let Some(rule) = self.matcher.rule(hit.rule) else { continue };
                let value = bytes.get(hit.start..hit.end).unwrap_or_default();
                let is_secret = rule.group == Group::Secrets;
                if is_secret && !secret::is_genuine(value, rule.entropy, rule.digit) {
                    continue;
                }
                let (start, end) = folded.original(text, hit.start, hit.end);
                let evidence = match is_secret {
                    true => evidence::mask_secret(text.get(start..end).unwrap_or_default()),
                    false => evidence::excerpt(text, start, end, &[]),
                };
                found.push(RuleMatch { rule: rule.id.clone(), start, end, evidence });
            }
        }
        found.sort_by(|a, b| (a.start, &a.rule, a.end).cmp(&(b.start, &b.rule, b.end)));
        found.dedup();
        found
    }
}

// === impl RuleView ===

impl<'a> RuleView<'a> {
    /// What it reports.
    pub fn finding_type(&self) -> &'static str {
        self.rule.finding_type
    }

    /// How bad that is; `None` where it only adds to [`RuleView::signal`].
    pub fn severity(&self) -> Option<Severity> {
        self.rule.severity
    }

    /// How sure it is, 0.0 to 1.0.
    pub fn confidence(&self) -> f64 {
        self.rule.confidence
    }

    /// Points towards a combined finding of the same type; 100 make one.
    pub fn signal(&self) -> u16 {
        self.rule.signal
    }

    /// The detector it belongs to.
    pub fn detector(&self) -> &'static str {
        self.rule.group.name()
    }

    /// What it looks for, in words.
    pub fn about(&self) -> &'a str {
        &self.rule.about
    }

    /// Words of which one is in every match, lower case.
    pub fn literals(&self) -> &'a [String] {
        &self.rule.literals
    }

    /// Whether it reads nothing but what was encoded or written in look-alike letters.
    pub const fn reads_disguised_only(&self) -> bool {
        self.rule.scope == DISGUISED
    }

    /// Whether it reads texts of this role.
    pub fn reads(&self, kind: PartKind) -> bool {
        self.rule.scope & kind.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_in_the_book_and_its_examples_are_found_there() {
        let book = RuleBook::builtin().unwrap();
        for rule in book.rules() {
            let has = |text: &str| book.matches(text, None).iter().any(|found| found.rule == rule.text.id);
            assert!(rule.text.hits.iter().all(|hit| has(hit)), "{}", rule.text.id);
            assert!(!rule.text.misses.iter().any(|miss| has(miss)), "{}", rule.text.id);
        }
    }
}
