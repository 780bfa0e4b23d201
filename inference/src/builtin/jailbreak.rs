//! `jailbreak`: orders that are hidden by an encoding or a cipher. What its patterns match in plain text is judged together
//! with the other rules (`rules`).

use std::ops::Range;
use std::sync::Arc;

use weir_config::vocab::Severity;

use super::compiled::Compiled;
use crate::candidate::{Candidate, Source};
use crate::detector::{CostClass, Detector, Found, Kinds, Text};
use crate::part::PartKind;
use crate::rule_matcher::Limits;
use crate::rules::DISGUISED;
use crate::shared_look::SharedLook;
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
        let whole = self.0.decode(text.folded, runs, &seen, plain, &mut |plain, span, encoding| {
            decoded.keep(plain, span, encoding);
            let changed = changed(text.folded.get(span.0..span.1).unwrap_or_default(), plain);
            let scanned = self.0.matcher.scan_next(plain, changed, limits, inner);
            candidates.extend(self.evasion(plain, span, (encoding, strictness), inner));
            outcome.join(&scanned);
            (!outcome.cut).then_some(scanned.ciphers)
        });
        outcome.cap_reached |= !whole;
        decoded.end();
    }

    /// An order in deciphered text is an evasion, harmless text is nothing.
    fn evasion(
        &self,
        plain: &[u8],
        span: (usize, usize),
        (encoding, strictness): (&'static str, Strictness),
        memory: &crate::rule_matcher::MatcherScratch,
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
