//! `jailbreak`: orders that are hidden by an encoding or a cipher. What its patterns match in plain text is judged together
//! with the other rules (`rules`).

use std::ops::Range;
use std::sync::Arc;

use weir_config::vocab::Severity;

use super::compiled::{Compiled, Listener};
use crate::candidate::{Candidate, Source};
use crate::decode::{Cipher, Ciphers, Span, first_anchor};
use crate::detector::{CostClass, Detector, Found, Kinds, Text};
use crate::part::PartKind;
use crate::rule_matcher::{Limits, MatcherScratch, Outcome};
use crate::rules::DISGUISED;
use crate::shared_look::{DecodedTexts, SharedLook};
use crate::strictness::Strictness;
use crate::tuning::Tuning;

#[derive(Debug)]
pub(super) struct Jailbreak(pub(super) Arc<Compiled>);

impl Detector for Jailbreak {
    fn name(&self) -> &'static str {
        "jailbreak"
    }

    fn cost(&self) -> CostClass {
        CostClass::Core
    }

    fn look(&self, text: &Text<'_>, tuning: &Tuning, found: &mut Found<'_>) {
        let Some(shared) = &mut found.shared else { return };
        if decodes(text.kind) && !shared.outcome.cut {
            self.decode(text, Strictness::of(tuning), shared);
        }
        if text.kind == PartKind::ToolDefinition {
            shared.candidates.iter_mut().for_each(Candidate::hides);
        }
    }
}

/// The search for orders in what is decoded from a text.
struct Scan<'a> {
    jailbreak: &'a Jailbreak,
    folded: &'a [u8],
    strictness: Strictness,
    limits: Limits,
    outcome: &'a mut Outcome,
    candidates: &'a mut Vec<Candidate>,
    inner: &'a mut MatcherScratch,
    decoded: &'a mut DecodedTexts,
}

impl Listener for Scan<'_> {
    fn hear(&mut self, words: &[u8], span: Span, encoding: &'static str) -> Option<Ciphers> {
        if encoding == Cipher::Parted.name() && self.is_quoted(span) {
            return Some(Ciphers::default());
        }
        self.decoded.keep(words, span, encoding);
        let changed = changed(self.folded.get(span.0..span.1).unwrap_or_default(), words);
        let scanned = self.jailbreak.0.matcher.scan_next(words, changed, self.limits, self.inner);
        self.candidates.extend(self.jailbreak.evasion(words, span, (encoding, self.strictness), self.inner));
        self.outcome.join(&scanned);
        (!self.outcome.cut).then_some(scanned.ciphers)
    }

    fn said(&self) -> usize {
        self.candidates.len()
    }

    fn say_again(&mut self, said: Range<usize>, (start, end): Span) {
        let from = self.candidates.len();
        self.candidates.extend_from_within(said);
        self.candidates.iter_mut().skip(from).for_each(|said| (said.start, said.end) = (start, end));
    }
}

impl Scan<'_> {
    /// Whether the first word of an order in a part of the text is quoted where the text asks about it.
    fn is_quoted(&self, (start, end): Span) -> bool {
        let part = self.folded.get(start..end).unwrap_or_default();
        let place = first_anchor(part).map(|at| (start + at.start, start + at.end));
        place.is_some_and(|(from, to)| self.jailbreak.0.frame.of(self.folded).is_mention(from, to))
    }
}

/// Whether words in a text of this role may be orders, so that hidden ones count.
fn decodes(kind: PartKind) -> bool {
    Kinds::of(&[PartKind::User, PartKind::Tool, PartKind::ToolDefinition]).contains(kind)
}

/// What of a decoded text is neither the beginning nor the end of what it was decoded from: many codes stand in the midst of plain words.
fn changed(text: &[u8], decoded: &[u8]) -> Range<usize> {
    let same = |a: &mut dyn Iterator<Item = (&u8, &u8)>| a.take_while(|(a, b)| a == b).count();
    let start = same(&mut text.iter().zip(decoded));
    let rest = (text.get(start..).unwrap_or_default(), decoded.get(start..).unwrap_or_default());
    let end = same(&mut rest.0.iter().rev().zip(rest.1.iter().rev()));
    start..decoded.len() - end
}

impl Jailbreak {
    /// Decodes what is encoded and scans what comes out.
    fn decode(&self, text: &Text<'_>, strictness: Strictness, shared: &mut SharedLook<'_>) {
        let SharedLook { limits, runs, outcome, candidates, memory, inner, plain, decoded, .. } = shared;
        // An order that had to be hidden is a stranger's, whatever it was hidden in. Only orders count there.
        let scope = if text.kind == PartKind::ToolDefinition { PartKind::Tool.bit() } else { limits.scope };
        let limits = Limits { scope: scope | DISGUISED, credentials: false, ..*limits };
        let seen = outcome.ciphers.clone();
        // Decoding is cheap for a stranger: all that comes of it shares one part of what the text may cost.
        inner.begin_decoded(memory);
        let folded = text.folded;
        let mut scan = Scan { jailbreak: self, folded, strictness, limits, outcome, candidates, inner, decoded };
        let whole = self.0.decode(folded, runs, &seen, plain, &mut scan);
        outcome.cap_reached |= !whole;
        decoded.end();
    }

    /// An order in deciphered text is an evasion, harmless text is nothing.
    fn evasion(
        &self,
        plain: &[u8],
        span: (usize, usize),
        (encoding, strictness): (&'static str, Strictness),
        memory: &MatcherScratch,
    ) -> Option<Candidate> {
        if memory.matches.is_empty() {
            return None;
        }
        let mut found = Vec::new();
        self.0.judge(plain, (PartKind::User, false, strictness), memory, &mut found);
        let matcher = &self.0.matcher;
        let worst = found
            .iter()
            .filter(|candidate| candidate.severity >= Severity::Medium && candidate.source.is_order(matcher))
            .max_by_key(|candidate| candidate.severity)?;
        let rule = match worst.source {
            Source::Rule(index) => Some(index),
            _ => None,
        };
        Some(Candidate::evasion(span.0, span.1, worst.severity, encoding, rule))
    }
}
