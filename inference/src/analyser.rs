//! The analyser: runs every detector over every part and turns what they saw into findings.
//!
//! Shared by all threads; whatever changes lives in [`Scratch`], one per thread, but for what is known of texts
//! (`clean`). Invariants: work is linear in the text and stops at the deadline; nothing is allocated for a text without
//! matches once the scratch has grown; a text is reported on as if it were the first one; spans are byte offsets into the text that was given, at character boundaries.

use std::sync::Arc;
use std::time::Instant;

use crossbeam_utils::CachePadded;
use weir_config::vocab::{ByteSpan, Severity};

use crate::candidate::{Candidate, Source};
use crate::clean::{Clean, Count, TextBytes};
use crate::decode::{Cipher, DEPTH_MAX, Run, Runs, Vocabulary, WINDOW_AFTER, WINDOW_BEFORE, decode_run};
use crate::definition::{self, Guards, Sign};
use crate::engine::{Engine, Limits, Match, Memory, Outcome, SLICE_BYTES};
use crate::fold::{Folded, TEXT_MAX};
use crate::frame::{self, Frame};
use crate::part::{DETECTORS, HITS_MAX, Hit, Options, Part, PartKind, Ran};
use crate::rules::{self, Detector, LoadError, Rule};
use crate::stopwatch::{Lap, Shares, Stopwatch};
use crate::{evidence, pii, secret, shape};

/// Detectors that ran, with and without the jailbreak detector.
const ALL: &[&str] = &DETECTORS;
const WITHOUT_JAILBREAK: &[&str] = &["rules", "pii", "secrets"];

/// Points of one type that make a combined finding.
const SIGNAL_MEDIUM: u32 = 100;
/// Points of one type that make it High.
const SIGNAL_HIGH: u32 = 170;

/// All detectors, compiled once.
#[derive(Debug)]
pub struct Analyser {
    engine: Engine,
    frame: Frame,
    guards: Guards,
    vocabulary: Vocabulary,
    clean: Clean,
}

/// Memory one thread works in; grows to the largest text it has seen.
#[derive(Debug, Default)]
pub struct Scratch {
    folded: Folded,
    memory: Memory,
    inner: Memory,
    candidates: Vec<Candidate>,
    plain: Vec<Vec<u8>>,
    hidden: Vec<(usize, usize)>,
    runs: Vec<Run>,
    shares: Shares,
    count: Arc<CachePadded<Count>>,
}

/// Texts that keep their buffers; larger ones are given back after use, in bytes.
const BUFFER_KEEP_MAX: usize = 1 << 20;

// === impl Analyser ===

impl Analyser {
    /// Compiles the rule files that are part of the binary.
    ///
    /// # Errors
    /// When a rule file is unreadable or a rule breaks the rules for rules; a test keeps that from being released.
    pub fn builtin() -> Result<Self, LoadError> {
        let loaded = rules::builtin()?;
        Ok(Self {
            engine: Engine::new(loaded.rules)?,
            frame: Frame::new()?,
            guards: Guards::new()?,
            vocabulary: loaded.vocabulary,
            clean: Clean::new(),
        })
    }

    /// The same, but every text is looked at, however often it comes: for measurements.
    #[must_use]
    pub fn without_memory(self) -> Self {
        Self { clean: Clean::without_memory(), ..self }
    }

    /// Bytes of text met until now, by all threads.
    pub fn text_bytes(&self) -> TextBytes {
        self.clean.met()
    }

    /// Memory for one thread. What a rule's pattern needs is built when its literal is first seen: microseconds then, and
    /// 12 MB per thread that an idle process does not have.
    pub fn scratch(&self) -> Scratch {
        Scratch { count: self.clean.counter(), ..Self::fresh_scratch() }
    }

    /// Puts the memory of a thread whose analysis panicked in order; what it counted stays.
    pub fn renew(&self, scratch: &mut Scratch) {
        let count = std::mem::take(&mut scratch.count);
        *scratch = Scratch { count, ..Self::fresh_scratch() };
    }

    fn fresh_scratch() -> Scratch {
        Scratch { plain: vec![Vec::new(); DEPTH_MAX + 1], ..Scratch::default() }
    }

    /// Looks at every part and appends what it finds to `out`, part by part in the order of the text.
    pub fn analyse(&self, scratch: &mut Scratch, parts: &[Part<'_>], options: &Options, out: &mut Vec<Hit>) -> Ran {
        let detectors = if options.jailbreak { ALL } else { WITHOUT_JAILBREAK };
        let mut ran = Ran { detectors: &[], cut: false, full: false, verify_cap_reached: false, took_ns: [0; 4] };
        let mut watch = Stopwatch::default();
        for (index, part) in parts.iter().enumerate().filter(|(_, part)| !part.text.is_empty()) {
            ran.cut |= options.is_late();
            ran.full |= out.len() >= HITS_MAX;
            if ran.cut || ran.full {
                break;
            }
            ran.detectors = detectors;
            let name = self.clean.name(part, options);
            if name.is_some_and(|name| self.clean.has(name)) {
                scratch.count.known(part);
                continue;
            }
            scratch.count.scanned(part);
            watch.next(part.text.len(), &mut scratch.shares);
            let outcome = self.analyse_part(scratch, part, options, &mut watch);
            ran.cut |= outcome.cut;
            ran.full |= outcome.full;
            ran.verify_cap_reached |= outcome.cap_reached;
            let whole = !outcome.cut && !outcome.full && !outcome.cap_reached && !options.is_late();
            if let Some(name) = name.filter(|_| whole && scratch.candidates.is_empty()) {
                self.clean.add(name);
            }
            self.report(scratch, index, part, out);
        }
        ran.took_ns = watch.stop(&mut scratch.shares);
        ran
    }

    fn analyse_part(
        &self,
        scratch: &mut Scratch,
        part: &Part<'_>,
        options: &Options,
        watch: &mut Stopwatch,
    ) -> Outcome {
        let Scratch { folded, memory, inner, candidates, plain, runs, .. } = scratch;
        candidates.clear();
        let text = part.text.get(..part.text.floor_char_boundary(TEXT_MAX)).unwrap_or_default();
        let too_long = text.len() < part.text.len();
        folded.fold(text);
        let bytes = folded.bytes(text);
        let limits = Limits { scope: part.kind.bit(), jailbreak: options.jailbreak, deadline: options.deadline };
        let mut outcome = self.engine.scan(bytes, limits, memory);
        outcome.cut |= too_long;
        self.judge_matches(bytes, part.kind, folded.is_disguised(), memory, candidates);
        let hears_orders = matches!(part.kind, PartKind::User | PartKind::Tool);
        let is_definition = part.kind == PartKind::ToolDefinition;
        if hears_orders {
            shapes(bytes, candidates);
        }
        watch.lap(Lap::Rules);
        let decodes = options.jailbreak && (hears_orders || is_definition);
        // An order that had to be hidden is a stranger's, whatever it was hidden in.
        let limits = if is_definition { Limits { scope: PartKind::Tool.bit(), ..limits } } else { limits };
        runs.clear();
        for run in Runs::new(bytes) {
            if let Some(bare) = secret::bare(bytes, run.start, run.end) {
                candidates.push(Candidate::bare(bare));
            }
            if decodes {
                runs.push(run);
            }
        }
        watch.lap(Lap::Secrets);
        for run in &*runs {
            if outcome.cut {
                break;
            }
            let window = bytes.get(run.start..run.end).unwrap_or_default();
            outcome.join(&self.decode_run(window, (run.start, run.end), limits, 0, plain, inner, candidates));
        }
        if decodes && outcome.ciphers.iter().any(Option::is_some) {
            outcome.join(&self.decipher(bytes, &outcome, limits, plain, inner, candidates));
        }
        if is_definition {
            candidates.iter_mut().for_each(Candidate::hides);
            definition::hidden(text, folded, candidates);
        }
        watch.lap(Lap::Jailbreak);
        find_pii(bytes, options.deadline, candidates, &mut outcome);
        watch.lap(Lap::Pii);
        outcome
    }

    /// Candidates from matches: severity by rule, role and frame; signals are added up.
    fn judge_matches(&self, text: &[u8], kind: PartKind, disguised: bool, memory: &Memory, out: &mut Vec<Candidate>) {
        if kind == PartKind::ToolDefinition {
            return self.judge_definition(text, disguised, memory, out);
        }
        let mut sums = Signals::default();
        for found in &memory.matches {
            let Some(rule) = self.engine.rule(found.rule) else { continue };
            if rule.detector == Detector::Secrets {
                judge_secret(text, *found, rule, out);
                continue;
            }
            if rule.frame && frame::is_negated(text, found.start) {
                continue;
            }
            let mentioned = rule.frame && self.frame.is_mention(text, found.start, found.end);
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
        sums.report(kind, out);
    }

    /// The same for the definition of a tool: what the sentence forbids is no order, and signs count where they stand
    /// together.
    fn judge_definition(&self, text: &[u8], disguised: bool, memory: &Memory, out: &mut Vec<Candidate>) {
        let mut signs = Vec::new();
        for found in &memory.matches {
            let Some(rule) = self.engine.rule(found.rule) else { continue };
            if rule.detector == Detector::Secrets {
                judge_secret(text, *found, rule, out);
            } else if !self.guards.forbid(text, found.start, found.end) {
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
        }
        definition::weigh(&mut signs, out);
    }

    /// Decodes one run and scans what comes out; follows encodings inside it. Gives how those scans ended.
    #[allow(clippy::too_many_arguments)]
    fn decode_run(
        &self,
        run: &[u8],
        span: (usize, usize),
        limits: Limits,
        depth: usize,
        plain: &mut [Vec<u8>],
        memory: &mut Memory,
        out: &mut Vec<Candidate>,
    ) -> Outcome {
        let Some((buffer, deeper)) = plain.split_first_mut() else { return Outcome::default() };
        let Some(encoding) = decode_run(run, buffer) else { return Outcome::default() };
        let mut outcome = self.scan_plain(buffer, span, encoding, limits, memory, out);
        if depth + 1 < DEPTH_MAX {
            for run in Runs::new(buffer) {
                if outcome.cut {
                    break;
                }
                let window = buffer.get(run.start..run.end).unwrap_or_default();
                outcome.join(&self.decode_run(window, span, limits, depth + 1, deeper, memory, out));
            }
        }
        outcome
    }

    fn decipher(
        &self,
        text: &[u8],
        outcome: &Outcome,
        limits: Limits,
        plain: &mut [Vec<u8>],
        memory: &mut Memory,
        out: &mut Vec<Candidate>,
    ) -> Outcome {
        let mut inner = Outcome::default();
        let Some(buffer) = plain.first_mut() else { return inner };
        for (cipher, seen) in Cipher::ALL.into_iter().zip(outcome.ciphers) {
            let Some(at) = seen else { continue };
            let from = at.saturating_sub(WINDOW_BEFORE);
            let to = (at + WINDOW_AFTER).min(text.len());
            cipher.decipher(text.get(from..to).unwrap_or_default(), &self.vocabulary, buffer);
            inner.join(&self.scan_plain(buffer, (from, to), cipher.name(), limits, memory, out));
        }
        inner
    }

    /// Scans deciphered text; an order in it is an evasion, harmless text is nothing.
    fn scan_plain(
        &self,
        plain: &[u8],
        span: (usize, usize),
        encoding: &'static str,
        limits: Limits,
        memory: &mut Memory,
        out: &mut Vec<Candidate>,
    ) -> Outcome {
        let outcome = self.engine.scan(plain, limits, memory);
        let mut found = Vec::new();
        self.judge_matches(plain, PartKind::User, false, memory, &mut found);
        let worst = found
            .iter()
            .filter(|candidate| candidate.severity >= Severity::Medium && candidate.source.is_order(&self.engine))
            .max_by_key(|candidate| candidate.severity);
        if let Some(worst) = worst {
            let rule = match worst.source {
                Source::Rule(index) => Some(index),
                _ => None,
            };
            out.push(Candidate::evasion(span.0, span.1, worst.severity, encoding, rule));
        }
        outcome
    }

    /// Turns candidates into findings, keeping the worst of those of one type that overlap.
    fn report(&self, scratch: &mut Scratch, index: usize, part: &Part<'_>, out: &mut Vec<Hit>) {
        let Scratch { folded, candidates, hidden, plain, .. } = scratch;
        if candidates.is_empty() {
            return;
        }
        Candidate::keep_worst(candidates, &self.engine);
        hidden.clear();
        for candidate in candidates.iter_mut() {
            (candidate.start, candidate.end) = folded.original(part.text, candidate.start, candidate.end);
            if candidate.source.is_confidential(&self.engine) {
                hidden.push((candidate.start, candidate.end));
            }
        }
        candidates.sort_unstable_by_key(|candidate| candidate.start);
        for candidate in candidates.drain(..).take(HITS_MAX - out.len().min(HITS_MAX)) {
            let mut finding = candidate.finding(&self.engine, part.kind);
            finding.span = Some(ByteSpan { start: candidate.start, end: candidate.end });
            let words = part.text.get(candidate.start..candidate.end).unwrap_or_default();
            finding.evidence = match candidate.source {
                Source::Pii(_) => evidence::mask_pii(words),
                _ if candidate.source.is_confidential(&self.engine) => evidence::mask_secret(words),
                _ => evidence::excerpt(part.text, candidate.start, candidate.end, hidden),
            };
            out.push(Hit { part: index, finding });
        }
        for buffer in plain {
            if buffer.capacity() > BUFFER_KEEP_MAX {
                *buffer = Vec::new();
            }
        }
    }
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

    fn report(&self, kind: PartKind, out: &mut Vec<Candidate>) {
        for sum in self.sums.iter().flatten().filter(|sum| sum.points >= SIGNAL_MEDIUM && sum.count >= 2) {
            let severity = if sum.points >= SIGNAL_HIGH { Severity::High } else { Severity::Medium };
            let mut candidate = Candidate::combined(sum.start, sum.end, severity, sum.finding_type, sum.count);
            if kind == PartKind::Tool {
                candidate.make_indirect();
            }
            out.push(candidate);
        }
    }
}

fn judge_secret(text: &[u8], found: Match, rule: &Rule, out: &mut Vec<Candidate>) {
    let value = text.get(found.start..found.end).unwrap_or_default();
    if secret::is_genuine(value, rule.entropy, rule.digit) {
        out.push(Candidate::rule(found, rule));
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

/// Runs the PII scanner in slices, until the deadline has passed or there is no room for more.
fn find_pii(text: &[u8], deadline: Option<Instant>, out: &mut Vec<Candidate>, outcome: &mut Outcome) {
    let mut scanner = pii::Scanner::new(text);
    let mut limit = SLICE_BYTES;
    loop {
        while let Some(pii) = scanner.next_before(limit) {
            out.push(Candidate::pii(pii));
            if out.len() >= HITS_MAX {
                outcome.full = true;
                return;
            }
        }
        if scanner.position() >= text.len() {
            return;
        }
        limit = scanner.position() + SLICE_BYTES;
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            outcome.cut = true;
            return;
        }
    }
}

#[cfg(test)]
mod tests;
