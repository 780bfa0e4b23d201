//! What is left to detectors that run on the pool alone, models first of all: texts of their own, so that they can cross
//! to another thread and wait there, and what comes of them.
//!
//! Invariant: these detectors run on threads of the pool, which is the only caller.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use weir_config::vocab::TenantId;

use crate::analyser::{Analyser, Scratch, is_order, place};
use crate::builtin::Listener;
use crate::clean::Name;
use crate::decode::{Ciphers, Runs, Span};
use crate::detector::{Decoded, Detector, Found, Text, Words};
use crate::detector_set::{DETECTORS_MAX, DetectorSet};
use crate::fold::Folded;
use crate::gate::{FirstLook, Skips};
use crate::part::{HITS_MAX, Hit, Part, PartKind};
use crate::plan::{Call, Plan};
use crate::ran::Ran;
use crate::rule_matcher::{Limits, MatcherScratch, RuleMatcher};
use crate::signals::Signals;

/// The rest of an analysis.
#[derive(Debug, PartialEq)]
pub struct Later {
    plan: Arc<Plan>,
    tenant: TenantId,
    /// Stop looking when this instant has passed.
    pub deadline: Option<Instant>,
    texts: Vec<Kept>,
    bytes: usize,
    /// Bytes that are over the bound on all texts together, by the number of the part.
    left_out: Vec<(usize, usize)>,
    /// What the texts are held against.
    context: Box<str>,
}

/// One of its texts.
#[derive(Debug, PartialEq)]
struct Kept {
    part: usize,
    kind: PartKind,
    text: Box<str>,
    /// What must not be shown of it.
    hidden: Vec<(usize, usize)>,
    /// Its name, where nothing has been found in it until now.
    clean: Option<Name>,
    before: Before,
    /// Who looks at it.
    wanted: DetectorSet,
}

/// What the detectors of class core said of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Before {
    /// An order to the model has been found in it.
    pub(crate) suspect: bool,
    /// What fusion has heard of it.
    pub(crate) signals: Signals,
    /// What a gate was asked with.
    pub(crate) first: Option<FirstLook>,
}

/// What the detectors on the pool said.
#[derive(Debug, Default, PartialEq)]
pub struct Seen {
    /// What they found; parts are numbered as those of the analysis.
    pub hits: Vec<Hit>,
    /// What they did.
    pub ran: Ran,
}

// === impl Later ===

impl Later {
    pub(crate) fn new(call: &Call<'_>) -> Self {
        let Call { plan, tenant, deadline, .. } = *call;
        Self {
            plan: Arc::clone(plan),
            tenant,
            deadline,
            texts: Vec::new(),
            bytes: 0,
            left_out: Vec::new(),
            context: Box::default(),
        }
    }

    pub(crate) fn add(
        &mut self,
        part: usize,
        Part { text, kind }: &Part<'_>,
        hidden: Vec<(usize, usize)>,
        clean: Option<Name>,
        before: Before,
        wanted: DetectorSet,
    ) -> Skips {
        let room = self.plan.model_text_max.saturating_sub(self.bytes);
        let shown = text.get(..text.floor_char_boundary(room)).unwrap_or_default();
        let mut skips = Skips::default();
        if shown.len() < text.len() && self.plan.is_gated(wanted) {
            skips.add(Skips::LENGTH);
        } else if shown.len() < text.len() {
            self.left_out.push((part, text.len() - shown.len()));
        }
        if shown.is_empty() {
            return skips;
        }
        self.bytes += shown.len();
        // How much of a text is seen depends on the others, so only a whole one is known afterwards.
        let clean = clean.filter(|_| shown.len() == text.len());
        self.texts.push(Kept { part, kind: *kind, text: shown.into(), hidden, clean, before, wanted });
        skips
    }

    /// Bytes of text to be looked at.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Parts that are not looked at to their end, and how many bytes of each are left out: all texts of an analysis together are
    /// looked at up to [`crate::PlanSettings::model_text_max`].
    pub fn left_out(&self) -> &[(usize, usize)] {
        &self.left_out
    }

    /// Whether some of the texts are to be held against what the request brought.
    pub fn wants_context(&self) -> bool {
        self.texts.iter().any(|kept| self.plan.wants_context(kept.wanted))
    }

    /// Gives what the request brought.
    pub fn give_context(&mut self, context: Box<str>) {
        self.bytes += context.len();
        self.context = context;
    }

    /// Whose texts these are.
    pub fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Whether a model is to look at some of it.
    pub fn needs_model(&self) -> bool {
        self.texts.iter().any(|kept| kept.wanted.indices().any(|index| self.plan.is_model(index)))
    }

    /// Whether the analysis is whole without it.
    pub fn is_optional(&self) -> bool {
        self.texts.iter().all(|kept| self.plan.is_gated(kept.wanted))
    }

    /// Adds the rest of another analysis under the same plan, whose parts are numbered from `from` on.
    pub fn join(&mut self, other: Self, from: usize) {
        debug_assert!(self.goes_with(&other), "one generation of the settings has one plan");
        let Self { texts, bytes, left_out, context, .. } = other;
        self.texts.extend(texts.into_iter().map(|kept| Kept { part: kept.part + from, ..kept }));
        self.left_out.extend(left_out.into_iter().map(|(part, bytes)| (part + from, bytes)));
        self.bytes += bytes;
        if self.context.is_empty() {
            self.context = context;
        }
    }

    /// Whether both may be looked at together.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        self.plan.fingerprint() == other.plan.fingerprint()
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// A text in the forms that somebody wants.
struct Prepared<'a> {
    /// Which analysis it belongs to.
    at: usize,
    kept: &'a Kept,
    folded: Folded,
    decoded: Vec<Decoded>,
}

impl Analyser {
    /// Looks at the texts of one analysis on this thread, which nothing else waits for: no core, and nobody's pool.
    pub fn look_here(&self, scratch: &mut Scratch, rest: &Later) -> Seen {
        crate::pool_thread::begins();
        self.analyse_later(scratch, &[rest]).pop().unwrap_or_default()
    }

    /// Looks at the texts of several analyses under one plan with the detectors that run on the pool alone.
    pub(crate) fn analyse_later(&self, scratch: &mut Scratch, rests: &[&Later]) -> Vec<Seen> {
        debug_assert!(crate::pool_thread::is_one(), "a model must never run on a core");
        let mut seen: Vec<Seen> = rests.iter().map(|_| Seen::default()).collect();
        let Some(plan) = rests.first().map(|rest| Arc::clone(&rest.plan)) else { return seen };
        let texts = self.prepare(scratch, rests);
        let mut founds: Vec<Found<'_>> = texts.iter().map(|_| Found::default()).collect();
        let wanted = texts.iter().fold(DetectorSet::default(), |set, text| set | text.kept.wanted);
        for (index, detector) in wanted.indices().filter_map(|index| Some((index, self.detectors.get(index)?))) {
            let members: Vec<usize> = (0..texts.len()).filter(|at| texts[*at].kept.wanted.has(index)).collect();
            for batch in members.chunks(detector.batch().max(1)) {
                self.run_batch((index, &**detector), &plan, rests, &texts, batch, &mut founds, &mut seen);
            }
        }
        for (Prepared { at, kept, .. }, mut found) in texts.iter().zip(founds) {
            self.fuse_later(kept, &plan, &mut found);
            let Seen { hits, ran } = &mut seen[*at];
            ran.failed |= found.failed;
            ran.skipped |= found.skipped;
            ran.second_stage_skipped.add(found.second_stage_skipped);
            ran.full |= found.full || hits.len() + found.said.len() > HITS_MAX;
            let whole = !found.skipped && !ran.failed && !ran.cut && found.second_stage_skipped.is_empty();
            if let Some(name) = kept.clean.filter(|_| found.said.is_empty() && whole) {
                self.clean.add(name);
            }
            let room = HITS_MAX.saturating_sub(hits.len());
            let said = found.said.into_iter().take(room);
            hits.extend(said.map(|(range, finding)| place(kept.part, &kept.text, range, finding, &kept.hidden)));
        }
        seen
    }

    /// Weighs together what was said of a text before and what models say now, unless it was enough before.
    fn fuse_later(&self, kept: &Kept, plan: &Plan, found: &mut Found<'_>) {
        let Some((number, fusion)) = &self.fusion else { return };
        if !plan.now(kept.kind).has(*number) || kept.before.signals.reported || !found.heard.is_heard() {
            return;
        }
        let signals = kept.before.signals.with(&found.heard);
        if let Some(finding) = fusion.fuse(&signals, &plan.tuning(*number)) {
            let orders = found.said.iter().filter(|(_, finding)| is_order(finding));
            let surest = orders.max_by(|(_, a), (_, b)| a.confidence.total_cmp(&b.confidence));
            let range = surest.map_or(0..kept.text.len(), |(range, _)| range.clone());
            found.report(range, finding);
        }
    }

    /// Runs one detector over some of the texts; their analyses share its time by their bytes.
    #[allow(clippy::too_many_arguments)] // A struct of borrows would only rename them.
    fn run_batch<'a>(
        &self,
        (index, detector): (usize, &dyn Detector),
        plan: &Plan,
        rests: &[&Later],
        texts: &'a [Prepared<'_>],
        batch: &[usize],
        founds: &mut [Found<'a>],
        seen: &mut [Seen],
    ) {
        let (late, batch): (Vec<usize>, Vec<usize>) = batch.iter().partition(|at| rests[texts[**at].at].is_late());
        for at in late {
            if detector.is_gated() {
                founds[at].skip_second_stage(Skips::TIME);
            } else {
                seen[texts[at].at].ran.cut = true;
            }
        }
        let suspect = |at: usize| founds[at].said.iter().any(|(_, finding)| is_order(finding));
        let words = self.classifier.as_ref().map(|(_, classifier)| &**classifier as &dyn Words);
        let views: Vec<Text<'_>> = batch.iter().map(|at| texts[*at].view(rests, suspect(*at), words)).collect();
        let mut out: Vec<Found<'_>> = batch.iter().map(|at| std::mem::take(&mut founds[*at])).collect();
        let bytes: usize = views.iter().map(|text| text.raw.len()).sum();
        let begun = Instant::now();
        if !views.is_empty() {
            detector.look_together(&views, &plan.tuning(index), &mut out);
        }
        let took = begun.elapsed().as_nanos();
        for ((at, view), found) in batch.iter().zip(&views).zip(out) {
            let ran = &mut seen[texts[*at].at].ran;
            // A detector may have stopped at the deadline: then nobody knows whether the rest is clean.
            ran.cut |= !detector.is_gated() && rests[texts[*at].at].is_late();
            ran.detectors |= DetectorSet::only(index);
            ran.timed |= DetectorSet::only(index);
            let share = took * view.raw.len() as u128 / bytes.max(1) as u128;
            ran.took_ns[index % DETECTORS_MAX] += u64::try_from(share.max(1)).unwrap_or(u64::MAX);
            founds[*at] = found;
        }
    }

    fn prepare<'a>(&self, scratch: &mut Scratch, rests: &[&'a Later]) -> Vec<Prepared<'a>> {
        let texts = rests.iter().enumerate().flat_map(|(at, rest)| rest.texts.iter().map(move |kept| (at, kept)));
        let mut prepared = Vec::new();
        for (at, kept) in texts {
            let mut text = Prepared { at, kept, folded: Folded::default(), decoded: Vec::new() };
            let needs = kept.wanted.indices().filter_map(|index| self.detectors.get(index));
            let (folded, decoded) =
                needs.map(|detector| detector.needs()).fold((false, false), |(folded, decoded), needs| {
                    (folded || needs.folded || needs.decoded, decoded || needs.decoded)
                });
            if folded {
                text.folded.fold(&kept.text);
            }
            if decoded {
                text.decoded = self.decoded(scratch, &text);
            }
            prepared.push(text);
        }
        prepared
    }

    /// What encoded words of a text say.
    fn decoded(&self, scratch: &mut Scratch, text: &Prepared<'_>) -> Vec<Decoded> {
        let Scratch { memory, inner, plain, runs, .. } = scratch;
        let bytes = text.folded.bytes(&text.kept.text);
        let limits = Limits { scope: text.kept.kind.bit(), jailbreak: true, credentials: true, deadline: None };
        let outcome = self.compiled.matcher.scan(bytes, limits, memory);
        runs.clear();
        runs.extend(Runs::new(bytes));
        let mut heard = Heard { text, limits, inner, matcher: &self.compiled.matcher, out: Vec::new() };
        self.compiled.decode(bytes, runs, &outcome.ciphers, plain, &mut heard);
        heard.out
    }
}

/// What encoded words of a text say, as they are decoded.
struct Heard<'a> {
    text: &'a Prepared<'a>,
    limits: Limits,
    inner: &'a mut MatcherScratch,
    matcher: &'a RuleMatcher,
    out: Vec<Decoded>,
}

impl Heard<'_> {
    fn range(&self, (start, end): Span) -> Range<usize> {
        let (start, end) = self.text.folded.original(&self.text.kept.text, start, end);
        start..end
    }
}

impl Listener for Heard<'_> {
    fn hear(&mut self, words: &[u8], span: Span, encoding: &'static str) -> Option<Ciphers> {
        self.out.push(Decoded { text: words.to_vec(), encoding, range: self.range(span) });
        (self.out.len() < HITS_MAX).then(|| self.matcher.scan(words, self.limits, self.inner).ciphers)
    }

    fn said(&self) -> usize {
        self.out.len()
    }

    fn say_again(&mut self, said: Range<usize>, span: Span) {
        let range = self.range(span);
        let again = said.filter_map(|at| self.out.get(at)).map(|said| Decoded { range: range.clone(), ..said.clone() });
        let again: Vec<Decoded> = again.take(HITS_MAX - self.out.len().min(HITS_MAX)).collect();
        self.out.extend(again);
    }
}

impl Prepared<'_> {
    fn view<'a>(&'a self, rests: &[&'a Later], suspect: bool, words: Option<&'a dyn Words>) -> Text<'a> {
        let deadline = rests.get(self.at).and_then(|rest| rest.deadline);
        let raw: &str = &self.kept.text;
        let folded = self.folded.bytes(raw);
        Text {
            raw,
            kind: self.kept.kind,
            folded,
            decoded: &self.decoded,
            suspect: suspect || self.kept.before.suspect,
            context: rests.get(self.at).map_or("", |rest| &rest.context),
            deadline,
            folding: Some(&self.folded),
            words,
            tenant: rests.get(self.at).map_or(TenantId::DEFAULT, |rest| rest.tenant),
            first: self.kept.before.first,
        }
    }
}
