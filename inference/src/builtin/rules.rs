//! `rules`: what the patterns matched, judged by role and frame, and the shape of the whole text. The matches of the
//! jailbreak detector's patterns are judged here, too: weak signs are added up over both.

use std::sync::Arc;

use weir_config::vocab::Severity;

use super::compiled::Compiled;
use crate::addressee::lower_what_others_are_told;
use crate::candidate::Candidate;
use crate::definition::{self, Sign};
use crate::detector::{CostClass, Detector, Found, Text};
use crate::frame::Frame;
use crate::part::PartKind;
use crate::rule_matcher::{MatcherScratch, RuleMatcher};
use crate::rules::Group;
use crate::shape;
use crate::shared_look::SharedLook;
use crate::strictness::Strictness;
use crate::suppressor;
use crate::tuning::Tuning;

/// Points of one type that make it High.
const SIGNAL_HIGH: u32 = 170;

#[derive(Debug)]
pub(super) struct Rules(pub(super) Arc<Compiled>);

impl Detector for Rules {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn cost(&self) -> CostClass {
        CostClass::Core
    }

    fn look(&self, text: &Text<'_>, tuning: &Tuning, found: &mut Found<'_>) {
        let strictness = Strictness::of(tuning);
        let Some(SharedLook { folded, memory, candidates, over_defence, .. }) = &mut found.shared else { return };
        if text.kind == PartKind::ToolDefinition {
            self.0.judge_definition(text.folded, folded.is_disguised(), strictness, memory, candidates);
            definition::hidden(text.raw, folded, candidates);
        } else {
            self.0.judge(text.folded, (text.kind, folded.is_disguised(), strictness), memory, candidates);
        }
        if matches!(text.kind, PartKind::User | PartKind::Tool) {
            shapes(text.folded, candidates);
            if *over_defence {
                suppressor::lower_what_is_forbidden(candidates, &self.0.matcher, text.folded);
            }
        }
    }
}

impl Compiled {
    /// What the built-in rules' matches come to.
    pub(super) fn judge(
        &self,
        text: &[u8],
        how: (PartKind, bool, Strictness),
        memory: &MatcherScratch,
        out: &mut Vec<Candidate>,
    ) {
        let from = out.len();
        judge(&self.matcher, &self.frame, text, how, memory, out);
        if matches!(how.0, PartKind::User | PartKind::Tool) {
            lower_what_others_are_told(out, (from, how.0), &self.matcher, text);
        }
    }

    /// The same for the definition of a tool: what the sentence forbids is no order, and signs count where they stand
    /// together.
    fn judge_definition(
        &self,
        text: &[u8],
        disguised: bool,
        strictness: Strictness,
        memory: &MatcherScratch,
        out: &mut Vec<Candidate>,
    ) {
        let mut signs = Vec::new();
        for found in &memory.matches {
            let Some(rule) = self.matcher.rule(found.rule).filter(|rule| rule.group != Group::Secrets) else {
                continue;
            };
            if self.guards.forbid(text, found.start, found.end) {
                continue;
            }
            if rule.signal > 0 {
                signs.push(Sign { rule: found.rule, points: rule.signal, start: found.start, end: found.end });
            }
            if rule.severity.is_some() {
                let mut candidate = Candidate::rule(*found, rule);
                candidate.make_indirect();
                candidate.disguised = disguised;
                out.push(candidate);
            }
        }
        definition::weigh(&mut signs, strictness.signs_of_definition, out);
    }
}

/// Candidates from matches: severity by rule, role and frame; signals are added up. Says how by the role of the text, whether it
/// was disguised, and how strict to be.
pub(crate) fn judge(
    matcher: &RuleMatcher,
    frame: &Frame,
    text: &[u8],
    (kind, disguised, strictness): (PartKind, bool, Strictness),
    memory: &MatcherScratch,
    out: &mut Vec<Candidate>,
) {
    let (mut sums, mut framed) = (Signals::default(), frame.of(text));
    for found in &memory.matches {
        let Some(rule) = matcher.rule(found.rule).filter(|rule| rule.group != Group::Secrets) else {
            continue;
        };
        if rule.frame && crate::frame::is_negated(text, found.start) {
            continue;
        }
        let mentioned = rule.frame && framed.is_mention(found.start, found.end);
        if rule.signal > 0 && !mentioned {
            sums.add(rule.finding_type, found.rule, rule.signal, found.start, found.end);
        }
        if rule.severity.is_some() {
            let mut candidate = Candidate::rule(*found, rule);
            candidate.mention(mentioned);
            if kind == PartKind::Tool {
                candidate.make_indirect();
            }
            candidate.disguised = disguised;
            out.push(candidate);
        }
    }
    sums.report(kind, strictness, out);
}

/// Sums of signal points per finding type; each rule counts once.
#[derive(Default)]
struct Signals {
    sums: [Option<Sum>; 4],
}

#[derive(Clone, Copy)]
struct Sum {
    finding_type: &'static str,
    points: u32,
    count: u32,
    /// Rules that have counted, by the low six bits of their number.
    seen: u64,
    start: usize,
    end: usize,
}

impl Signals {
    fn add(&mut self, finding_type: &'static str, rule: u16, points: u16, start: usize, end: usize) {
        let slot = self.sums.iter_mut().find(|slot| slot.is_none_or(|sum| sum.finding_type == finding_type));
        let Some(slot) = slot else { return };
        let fresh = Sum { finding_type, points: 0, count: 0, seen: 0, start, end };
        let sum = slot.get_or_insert(fresh);
        let bit = 1 << (rule % 64);
        if sum.seen & bit == 0 {
            sum.seen |= bit;
            sum.points += u32::from(points);
            sum.count += 1;
            sum.start = sum.start.min(start);
            sum.end = sum.end.max(end);
        }
    }

    fn report(&self, kind: PartKind, strictness: Strictness, out: &mut Vec<Candidate>) {
        let is_enough = |sum: &&Sum| sum.points >= strictness.signs && sum.count >= strictness.signs_least;
        for sum in self.sums.iter().flatten().filter(is_enough) {
            let severity = if sum.points >= SIGNAL_HIGH { Severity::High } else { Severity::Medium };
            let mut candidate = Candidate::combined(sum.start, sum.end, severity, sum.finding_type, sum.count);
            if kind == PartKind::Tool {
                candidate.make_indirect();
            }
            out.push(candidate);
        }
    }
}

fn shapes(text: &[u8], out: &mut Vec<Candidate>) {
    let turns = shape::turns(text);
    if turns >= shape::TURNS_LOW {
        let severity = if turns >= shape::TURNS_MEDIUM { Severity::Medium } else { Severity::Low };
        out.push(Candidate::shape(text.len(), severity, "many_shot"));
    }
    if shape::is_flood(text) {
        out.push(Candidate::shape(text.len(), Severity::Medium, "context_flooding"));
    }
}
