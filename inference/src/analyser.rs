//! The analyser: runs the detectors of a plan over every part and turns what they saw into findings.
//!
//! Shared by all threads; whatever changes lives in [`Scratch`], one per thread, but for what is known of texts
//! (`clean`). Detectors of [`crate::CostClass::Core`] run at once; what the others are to look at is handed back as
//! [`Ran::later`]. Invariants: work is linear in the text and stops at the deadline; nothing is allocated for a text without
//! matches once the scratch has grown; a text is reported on as if it were the first one; spans are byte offsets into the
//! text that was given, at character boundaries.

mod changed;
mod gated;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_utils::CachePadded;
use weir_config::vocab::{ByteSpan, Finding, Severity};

use crate::builtin::{self, Compiled, JAILBREAK, RULES, SECRETS};
use crate::candidate::{Candidate, ORDER_TYPES, Source};
use crate::change::Changes;
use crate::clean::{Clean, Count, KnownTexts, Name, TextBytes};
use crate::decode::{DEPTH_MAX, Run, Runs};
use crate::detector::{Detector, Found, Text, Words as _};
use crate::detector_set::{DETECTORS_MAX, DetectorSet};
use crate::evidence;
use crate::fold::{Folded, TEXT_MAX};
use crate::fusion::Fusion;
use crate::later::{Before, Later};
use crate::learned::Learned;
use crate::operator::OperatorRules;
use crate::part::{HITS_MAX, Hit, Part, PartKind};
use crate::pins::{Offered, Pins};
use crate::plan::{Call, Plan, PlanSettings, ToolChanges};
use crate::ran::Ran;
use crate::rule_matcher::{Limits, MatcherScratch, Outcome};
use crate::rules::{DISGUISED, LoadError};
use crate::shared_look::{DecodedTexts, OperatorScratch, Score, SharedLook};
use crate::signals::Signals;
use crate::stopwatch::{Shares, Stopwatch};
use crate::strictness::Strictness;
use crate::suppressor;
use crate::toxic::{TOXICITY, Toxic};
use changed::Met;

/// All detectors, compiled once.
#[derive(Debug)]
pub struct Analyser {
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) detectors: Vec<Arc<dyn Detector>>,
    pub(crate) clean: Clean,
    pins: Pins,
    changes: Changes,
    /// Those of the operator: which findings they allow.
    operator: Option<Arc<OperatorRules>>,
    /// The embedded classifier, for who asks it by itself, and its number among the detectors.
    pub(crate) classifier: Option<(usize, Arc<Learned>)>,
    /// What weighs together what the others say, and its number among the detectors.
    pub(crate) fusion: Option<(usize, Arc<Fusion>)>,
}

/// Memory one thread works in; grows to the largest text it has seen.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) folded: Folded,
    pub(crate) memory: MatcherScratch,
    pub(crate) inner: MatcherScratch,
    candidates: Vec<Candidate>,
    said: Vec<(Range<usize>, Finding)>,
    /// What the classifier said of the text.
    score: Option<Score>,
    pub(crate) plain: Vec<Vec<u8>>,
    decoded: DecodedTexts,
    hidden: Vec<(usize, usize)>,
    pub(crate) runs: Vec<Run>,
    operator: OperatorScratch,
    asked: Vec<Asked>,
    shares: Shares,
    count: Arc<CachePadded<Count>>,
}

/// What is known of a part by its bytes alone.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// The tool it defines.
    tool: Option<Offered>,
    /// What it would be remembered by.
    name: Option<Name>,
}

/// Parts that are asked for at once ([`Clean::fetch`]), and about how many bytes: those behind the first ones may not be looked at at all.
const AHEAD: usize = 16;
const AHEAD_BYTES: usize = 64 << 10;

/// Texts that keep their buffers; larger ones are given back after use, in bytes.
const BUFFER_KEEP_MAX: usize = 1 << 20;

// === impl Analyser ===

impl Analyser {
    /// The detectors that are part of the binary.
    ///
    /// # Errors
    /// When a rule file is unreadable or a rule is not as it must be; a test keeps that from being released.
    pub fn builtin() -> Result<Self, LoadError> {
        Self::with(Vec::new())
    }

    /// Those, the embedded classifier, the embedded model of toxicity unless `others` hold one, and `others`.
    ///
    /// # Errors
    /// As [`Self::with`], and when the classifier does not say what it said when it was trained.
    pub fn whole(others: Vec<Arc<dyn Detector>>) -> Result<Self, LoadError> {
        Self::fusing(others, Fusion::embedded().map_err(LoadError::Model)?)
    }

    /// The same with another [`Fusion`] than the one in the binary.
    ///
    /// # Errors
    /// As [`Self::whole`].
    pub fn fusing(others: Vec<Arc<dyn Detector>>, fusion: Arc<Fusion>) -> Result<Self, LoadError> {
        let compiled = Arc::new(Compiled::new()?);
        let learned =
            Learned::embedded(&compiled).map(Arc::new).map_err(|error| LoadError::Model(error.to_string()))?;
        let mut own: Vec<Arc<dyn Detector>> = vec![Arc::clone(&learned) as _];
        let classifier = (builtin::detectors(&compiled).len(), learned);
        if !others.iter().any(|other| other.name() == TOXICITY) {
            own.push(Toxic::embedded().map(Arc::new).map_err(|error| LoadError::Model(error.to_string()))?);
        }
        own.extend(others);
        let number = builtin::detectors(&compiled).len() + own.len();
        own.push(Arc::clone(&fusion) as _);
        Ok(Self {
            classifier: Some(classifier),
            fusion: Some((number, fusion)),
            ..Self::of(compiled, own.into_iter())?
        })
    }

    /// The detectors of [`Self::builtin`] and `others`.
    ///
    /// # Errors
    /// As above, and when two detectors have one name or there are more than [`DETECTORS_MAX`].
    pub fn with(others: Vec<Arc<dyn Detector>>) -> Result<Self, LoadError> {
        Self::of(Arc::new(Compiled::new()?), others.into_iter())
    }

    fn of(compiled: Arc<Compiled>, others: impl Iterator<Item = Arc<dyn Detector>>) -> Result<Self, LoadError> {
        Self::made_of(Arc::clone(&compiled), builtin::detectors(&compiled).into_iter().chain(others).collect())
    }

    fn made_of(compiled: Arc<Compiled>, detectors: Vec<Arc<dyn Detector>>) -> Result<Self, LoadError> {
        if detectors.len() > DETECTORS_MAX {
            return Err(LoadError::TooManyDetectors(detectors.len(), DETECTORS_MAX));
        }
        for (at, detector) in detectors.iter().enumerate() {
            if detectors.iter().take(at).any(|other| other.name() == detector.name()) {
                return Err(LoadError::DetectorTwice(detector.name()));
            }
        }
        Ok(Self {
            compiled,
            detectors,
            clean: Clean::new(),
            pins: Pins::new(),
            changes: Changes::default(),
            operator: None,
            classifier: None,
            fusion: None,
        })
    }

    /// The same with an operator's rules.
    ///
    /// # Errors
    /// As [`Self::with`].
    pub fn with_operator(mut self, operator: Arc<OperatorRules>) -> Result<Self, LoadError> {
        let detector: Arc<dyn Detector> = Arc::clone(&operator) as _;
        self.detectors.push(detector);
        let (classifier, fusion) = (self.classifier, self.fusion);
        Ok(Self { operator: Some(operator), classifier, fusion, ..Self::made_of(self.compiled, self.detectors)? })
    }

    /// An analyser with the detectors of this one, a memory of its own, and other rules of the operator.
    ///
    /// # Errors
    /// As [`Self::with`].
    pub fn beside(&self, operator: Option<Arc<OperatorRules>>) -> Result<Self, LoadError> {
        let own = self.detectors.iter().filter(|detector| detector.name() != crate::OPERATOR_RULES);
        let made = Self::made_of(Arc::clone(&self.compiled), own.cloned().collect())?;
        let made = Self { classifier: self.classifier.clone(), fusion: self.fusion.clone(), ..made };
        match operator {
            Some(operator) => made.with_operator(operator),
            None => Ok(made),
        }
    }

    /// The rules of the operator, where there are some.
    pub fn operator(&self) -> Option<&Arc<OperatorRules>> {
        self.operator.as_ref()
    }

    /// The same, but every text is looked at, however often it comes: for measurements.
    #[must_use]
    pub fn without_memory(self) -> Self {
        Self { clean: Clean::without_memory(), ..self }
    }

    /// The same with so many bytes of memory for texts that were clean.
    #[must_use]
    pub fn with_memory(self, bytes: usize) -> Self {
        Self { clean: Clean::of_bytes(bytes), ..self }
    }

    /// What analyses do under these settings.
    pub fn plan(&self, settings: &PlanSettings<'_>) -> Plan {
        Plan::new(&self.detectors, settings)
    }

    /// Whether the detector of this name is there and ready.
    pub fn is_ready(&self, name: &str) -> bool {
        self.detectors.iter().any(|detector| detector.name() == name && detector.is_ready())
    }

    /// The names of some detectors, in the order in which they run.
    pub fn names(&self, set: DetectorSet) -> impl Iterator<Item = &'static str> + '_ {
        set.indices().filter_map(|index| self.detectors.get(index)).map(|detector| detector.label())
    }

    /// How long each detector took, in microseconds; nothing where all was known already. The detectors share a pass over
    /// the text; its time is that of `rules`.
    pub fn latencies_us<'a>(&'a self, ran: &'a Ran) -> impl Iterator<Item = (&'static str, u64)> + use<'a> {
        ran.timed.indices().filter_map(|index| {
            Some((self.detectors.get(index)?.label(), ran.took_ns.get(index).copied().unwrap_or_default() / 1_000))
        })
    }

    /// Bytes of text met until now, by all threads.
    pub fn text_bytes(&self) -> TextBytes {
        self.clean.met()
    }

    /// How often texts were known, and what remembering them takes.
    pub fn known_texts(&self) -> KnownTexts {
        self.clean.known_texts()
    }

    /// Makes what is otherwise made when a text first needs it: compiled patterns, above all. Takes some ten milliseconds, so it is for a
    /// thread that no call waits for, soon after the start.
    pub fn prepare_all(&self) {
        self.compiled.matcher.prepare();
        self.changes.prepare();
        crate::decode::prepare();
        if let Some(operator) = &self.operator {
            operator.prepare();
        }
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
        Scratch { plain: vec![Vec::new(); DEPTH_MAX], ..Scratch::default() }
    }

    /// Looks at every part with the detectors that may run on any thread, and appends what they find to `out`, part by part
    /// in the order of the text. What others are to look at stands in [`Ran::later`].
    pub fn analyse(&self, scratch: &mut Scratch, parts: &[Part<'_>], call: &Call<'_>, out: &mut Vec<Hit>) -> Ran {
        self.analyse_tools(scratch, parts, &|_| None, call, out)
    }

    /// The same where it is known which tool a part defines: what is new in a definition that changed is judged by itself.
    pub fn analyse_tools<'a>(
        &self,
        scratch: &mut Scratch,
        parts: &[Part<'_>],
        tools: &dyn Fn(usize) -> Option<&'a str>,
        call: &Call<'_>,
        out: &mut Vec<Hit>,
    ) -> Ran {
        self.analyse_counted(scratch, (parts, tools), call, out, true)
    }

    /// The same for a text that is made of others, so that its bytes are none of those that were met ([`Self::text_bytes`]). Only detectors that
    /// may run on any thread look at it: the others are asked about the texts it is made of, and no time is reserved for it.
    pub fn analyse_again(&self, scratch: &mut Scratch, part: Part<'_>, call: &Call<'_>, out: &mut Vec<Hit>) -> Ran {
        self.analyse_counted(scratch, (&[part], &|_| None), call, out, false)
    }

    fn analyse_counted<'a>(
        &self,
        scratch: &mut Scratch,
        (parts, tools): (&[Part<'_>], &dyn Fn(usize) -> Option<&'a str>),
        call: &Call<'_>,
        out: &mut Vec<Hit>,
        counted: bool,
    ) -> Ran {
        let mut ran = Ran { absent: call.plan.absent(), ..Ran::default() };
        if counted {
            ran.absent.indices().filter_map(|index| self.detectors.get(index)).for_each(|detector| detector.missed());
        }
        let mut watch = Stopwatch::default();
        let mut met = Met::default();
        let mut asked_from = 0;
        scratch.asked.clear();
        for (index, part) in parts.iter().enumerate().filter(|(_, part)| !part.text.is_empty()) {
            ran.full |= out.len() >= HITS_MAX;
            let is_asked = index < asked_from + scratch.asked.len();
            // Those that are known take next to no time, less than the clock does.
            ran.cut |= !is_asked && index > 0 && call.is_late();
            if ran.cut || ran.full {
                break;
            }
            let now = call.plan.now(part.kind);
            let later = if counted { call.plan.later(part.kind) } else { DetectorSet::default() };
            if !is_asked {
                asked_from = index;
                self.ask_ahead(&mut scratch.asked, index, (parts, tools), call);
            }
            let asked = scratch.asked.get(index - asked_from).copied();
            let Asked { tool, name } = asked.unwrap_or_else(|| self.ask(index, part, tools, call));
            let name = if counted { name } else { name.map(Name::of_joined) };
            let gated = later & call.plan.gated();
            if let Some(known) = name.and_then(|name| self.known(name, part.text.len(), gated, call)) {
                if let Some(tool) = tool {
                    self.pins.touch(tool.key());
                }
                if counted {
                    scratch.count.known(part);
                }
                ran.detectors |= now;
                // Whether those that are asked about some texts alone were asked about a clean one is not known.
                ran.detectors |= later.without(gated) | known.looked;
                ran.second_stage_skipped.add(known.skips);
                continue;
            }
            ran.cut |= call.is_late();
            if ran.cut {
                break;
            }
            ran.detectors |= now;
            ran.timed |= now;
            if counted {
                scratch.count.scanned(part);
            }
            watch.next(part.text.len(), &mut scratch.shares);
            let outcome = self.analyse_part(scratch, part, call, now, &mut watch);
            ran.cut |= outcome.cut;
            ran.failed |= outcome.failed;
            ran.full |= outcome.full;
            ran.verify_cap_reached |= outcome.cap_reached;
            ran.effort = ran.effort.max(outcome.effort);
            let whole = !outcome.cut && !outcome.failed && !outcome.full && !outcome.cap_reached && !call.is_late();
            let clean = name.filter(|_| whole && scratch.candidates.is_empty() && scratch.said.is_empty());
            let before = out.len();
            let doubtful = self.report(scratch, index, part, call, out);
            let note = |tool| self.note_change(scratch, (index, part, tool), call, &mut met, (out, doubtful));
            let clean = if tool.is_some_and(note) { None } else { clean };
            if let Some(operator) = &self.operator {
                operator.allow(part.text, call, out.get_mut(before..).unwrap_or_default());
            }
            let reported = out.get(before..out.len() - doubtful).unwrap_or_default();
            let suspect = reported.iter().any(|hit| is_order(&hit.finding));
            let gated = self.pass_gate(scratch, (index, part), (call, later), (before, doubtful), out);
            let later = later.without(gated.kept_out);
            ran.detectors |= gated.known;
            ran.second_stage_skipped.add(gated.skips);
            let signals = self.fuse(scratch, (index, part), call.plan, (before, doubtful), gated.heard, out);
            if let Some((number, _)) = &self.fusion {
                watch.lap(*number);
            }
            let nothing = clean.filter(|_| !signals.reported && !gated.reported);
            let clean = nothing.filter(|_| gated.skips.is_empty());
            if !later.is_empty() {
                let rest = ran.later.get_or_insert_with(|| Box::new(Later::new(call)));
                let hidden = std::mem::take(&mut scratch.hidden);
                let left = rest.add(index, part, hidden, clean, Before { suspect, signals, first: gated.first }, later);
                ran.second_stage_skipped.add(left);
            } else if let Some(name) = nothing {
                self.clean.add(gated.name(name));
            }
        }
        ran.took_ns = watch.stop(&mut scratch.shares);
        ran
    }

    fn ask_ahead<'a>(
        &self,
        asked: &mut Vec<Asked>,
        from: usize,
        (parts, tools): (&[Part<'_>], &dyn Fn(usize) -> Option<&'a str>),
        call: &Call<'_>,
    ) {
        asked.clear();
        let mut bytes = 0;
        for (index, part) in parts.iter().enumerate().skip(from).take(AHEAD) {
            asked.push(self.ask(index, part, tools, call));
            bytes += part.text.len();
            if bytes >= AHEAD_BYTES {
                break;
            }
        }
        self.clean.fetch(asked.iter().filter_map(|asked| asked.name));
    }

    fn ask<'a>(
        &self,
        index: usize,
        part: &Part<'_>,
        tools: &dyn Fn(usize) -> Option<&'a str>,
        call: &Call<'_>,
    ) -> Asked {
        let tool = self.defined(index, part, tools, call);
        Asked { tool, name: self.clean.name(part, tool.map(Offered::key), call) }
    }

    /// The tool that a part defines, where definitions are remembered.
    fn defined<'a>(
        &self,
        index: usize,
        part: &Part<'_>,
        tools: &dyn Fn(usize) -> Option<&'a str>,
        call: &Call<'_>,
    ) -> Option<Offered> {
        let is_asked = part.kind == PartKind::ToolDefinition && call.plan.tool_changes != ToolChanges::Off;
        let shared = self.pins.tool(call.tenant, is_asked.then(|| tools(index)).flatten()?);
        // Where changes are refused, what another agent's server says of itself must not refuse this one's.
        let agent = call.agent.filter(|_| call.plan.tool_changes == ToolChanges::Refuse);
        Some(Offered { shared, own: agent.map(|agent| self.pins.own(shared, agent)) })
    }

    fn analyse_part(
        &self,
        scratch: &mut Scratch,
        part: &Part<'_>,
        call: &Call<'_>,
        now: DetectorSet,
        watch: &mut Stopwatch,
    ) -> Outcome {
        let Scratch { folded, memory, inner, candidates, said, score, plain, decoded, runs, operator, .. } = scratch;
        candidates.clear();
        decoded.clear();
        let raw = part.text.get(..part.text.floor_char_boundary(TEXT_MAX)).unwrap_or_default();
        folded.fold(raw);
        let bytes = folded.bytes(raw);
        let jailbreak = call.plan.runs(JAILBREAK);
        let disguised = folded.is_disguised() && matches!(part.kind, PartKind::User | PartKind::Tool);
        let scope = part.kind.bit() | if disguised { DISGUISED } else { 0 };
        let limits = Limits { scope, jailbreak, credentials: true, deadline: call.deadline };
        let mut outcome = self.compiled.matcher.scan(bytes, limits, memory);
        outcome.cut |= raw.len() < part.text.len();
        watch.lap(RULES);
        runs.clear();
        runs.extend(Runs::new(bytes));
        watch.lap(SECRETS);
        let over_defence = call.plan.over_defence;
        let asks_classifier = self.fuses(call.plan, part.kind);
        let keeps_score = asks_classifier || call.plan.is_gated_for(part.kind);
        let shared = SharedLook {
            folded,
            limits,
            memory,
            runs,
            outcome: &mut outcome,
            candidates,
            inner,
            plain,
            decoded,
            over_defence,
            asks_classifier,
            keeps_score,
            score: None,
            operator,
        };
        let mut found = Found { said: std::mem::take(said), shared: Some(shared), ..Found::default() };
        let text = Text {
            raw,
            kind: part.kind,
            folded: bytes,
            decoded: &[],
            suspect: false,
            context: "",
            deadline: call.deadline,
            folding: Some(folded),
            words: None,
            tenant: call.tenant,
            first: None,
        };
        for index in now.indices() {
            let Some(detector) = self.detectors.get(index) else { continue };
            detector.look(&text, &call.plan.tuning(index), &mut found);
            watch.lap(index);
        }
        let (failed, full) = (found.failed, found.full);
        *score = found.shared.as_ref().and_then(|shared| shared.score);
        *said = found.said;
        outcome.failed |= failed;
        outcome.full |= full;
        outcome
    }

    /// Whether what is said of a text of this role is weighed together.
    fn fuses(&self, plan: &Plan, kind: PartKind) -> bool {
        self.fusion.as_ref().is_some_and(|(number, _)| plan.now(kind).has(*number))
    }

    /// Weighs together what was found from `before` on; adds a finding if that is enough for one. The last `doubtful` of them, which
    /// are heard here for the last time, go.
    fn fuse(
        &self,
        scratch: &Scratch,
        (index, part): (usize, &Part<'_>),
        plan: &Plan,
        (before, doubtful): (usize, usize),
        heard: Signals,
        out: &mut Vec<Hit>,
    ) -> Signals {
        let reported = out.len() - doubtful;
        let Some((number, fusion)) = self.fusion.as_ref().filter(|_| self.fuses(plan, part.kind)) else {
            out.truncate(reported);
            return Signals::default();
        };
        let hits = out.get(before..).unwrap_or_default();
        let mut signals = Signals::of(hits, part.kind, scratch.score.map(|score| score.logits)).with(&heard);
        // What is quoted in a text that asks about it makes nothing surer.
        let is_quoted =
            hits.iter().any(|hit| is_mention(&hit.finding)) && !hits.iter().any(|hit| is_order(&hit.finding));
        let finding = fusion.fuse(&signals, &plan.tuning(*number)).filter(|_| reported < HITS_MAX && !is_quoted);
        // Where the rules are surest, or else where the classifier is.
        let surest = hits.iter().max_by(|a, b| a.finding.confidence.total_cmp(&b.finding.confidence));
        let surest = surest.and_then(|hit| hit.finding.span).map(|span| span.start..span.end);
        out.truncate(reported);
        let Some(finding) = finding else { return signals };
        signals.reported = true;
        let range = surest.or(scratch.score.map(|score| score.start..score.end)).unwrap_or(0..part.text.len());
        out.push(place(index, part.text, range, finding, &scratch.hidden));
        signals
    }

    /// Turns candidates into findings, keeping the worst of those of one type that overlap. Leaves the places of what must
    /// not be shown in the scratch. Behind all others stand those of which the rules are not sure enough to report them: how many.
    fn report(
        &self,
        scratch: &mut Scratch,
        index: usize,
        part: &Part<'_>,
        call: &Call<'_>,
        out: &mut Vec<Hit>,
    ) -> usize {
        let plan = call.plan;
        let Scratch { folded, candidates, said, hidden, plain, .. } = scratch;
        hidden.clear();
        if candidates.is_empty() && said.is_empty() {
            return 0;
        }
        let matcher = &self.compiled.matcher;
        Candidate::keep_worst(candidates, matcher);
        if plan.over_defence {
            let raw = part.text;
            let ask = || self.classifier.as_ref().map_or(0.0, |(_, classifier)| classifier.logits(folded.bytes(raw)));
            suppressor::lower_trigger_words(candidates, matcher, part, ask);
        }
        if let Some((_, classifier)) = self.classifier.as_ref().filter(|(number, _)| plan.may_doubt(*number, part.kind))
        {
            let raw = part.text.get(..part.text.floor_char_boundary(TEXT_MAX)).unwrap_or_default();
            let doubts = || classifier.doubts(folded.bytes(raw), part.kind, call.deadline);
            suppressor::lower_a_lone_sign(candidates, matcher, part.kind, doubts);
        }
        Candidate::add_up(candidates, matcher);
        for candidate in candidates.iter_mut() {
            (candidate.start, candidate.end) = folded.original(part.text, candidate.start, candidate.end);
            if candidate.source.is_confidential(matcher) {
                hidden.push((candidate.start, candidate.end));
            }
        }
        // What others report as a credential is masked, too.
        hidden.extend(
            said.iter().filter(|(_, finding)| is_credential(finding)).map(|(range, _)| (range.start, range.end)),
        );
        evidence::join(hidden);
        if plan.silent_pii {
            candidates.retain(|candidate| !matches!(candidate.source, Source::Pii(_)));
        }
        // Here and not before, as signs make one another surer.
        let jailbreaks = Strictness::of(&plan.tuning(JAILBREAK)).jailbreaks;
        let strictness = Strictness { jailbreaks, ..Strictness::of(&plan.tuning(RULES)) };
        let is_doubtful = |candidate: &Candidate| candidate.is_doubtful(matcher, strictness);
        candidates.sort_unstable_by_key(|candidate| (is_doubtful(candidate), candidate.start));
        let sure = candidates.partition_point(|candidate| !is_doubtful(candidate));
        let write = |candidate: Candidate, out: &mut Vec<Hit>| {
            if out.len() >= HITS_MAX {
                return;
            }
            let mut finding = candidate.finding(matcher, part.kind);
            finding.span = Some(ByteSpan { start: candidate.start, end: candidate.end });
            let words = part.text.get(candidate.start..candidate.end).unwrap_or_default();
            finding.evidence = match candidate.source {
                Source::Pii(_) => evidence::mask_pii(words),
                _ if candidate.source.is_confidential(matcher) => evidence::mask_secret(words),
                _ => evidence::excerpt(part.text, candidate.start, candidate.end, hidden),
            };
            out.push(Hit { part: index, finding });
        };
        candidates.drain(..sure).for_each(|candidate| write(candidate, out));
        for (range, finding) in said.drain(..).take(HITS_MAX - out.len().min(HITS_MAX)) {
            out.push(place(index, part.text, range, finding, hidden));
        }
        let reported = out.len();
        candidates.drain(..).for_each(|candidate| write(candidate, out));
        for buffer in plain {
            if buffer.capacity() > BUFFER_KEEP_MAX {
                *buffer = Vec::new();
            }
        }
        out.len() - reported
    }
}

/// A finding a detector reported by range, with its place and evidence.
pub(crate) fn place(
    part: usize,
    text: &str,
    range: Range<usize>,
    mut finding: Finding,
    hidden: &[(usize, usize)],
) -> Hit {
    let start = text.floor_char_boundary(range.start);
    let end = text.ceil_char_boundary(range.end.max(start).min(text.len()));
    finding.span = Some(ByteSpan { start, end });
    let words = text.get(start..end).unwrap_or_default();
    finding.evidence = match &*finding.finding_type {
        _ if is_credential(&finding) => evidence::mask_secret(words),
        "person_name" | "organization" | "location" => evidence::mask_pii(words),
        _ => evidence::excerpt(text, start, end, hidden),
    };
    Hit { part, finding }
}

/// Whether it says that somebody gives orders, and with some certainty.
pub(crate) fn is_order(finding: &Finding) -> bool {
    let is_order = ORDER_TYPES.contains(&&*finding.finding_type) || finding.finding_type.ends_with("_injection");
    is_order && finding.severity >= Severity::Medium
}

fn is_mention(finding: &Finding) -> bool {
    finding.metadata.get("frame").is_some_and(|frame| frame == "mention")
}

fn is_credential(finding: &Finding) -> bool {
    finding.finding_type == "secret_leakage"
}

impl Call<'_> {
    /// Whether the time for looking is over.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

#[cfg(test)]
mod tests;
