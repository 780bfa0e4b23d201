//! Which spans report one and the same call. A call that passed the gateway may be reported by the application, by the client library
//! itself and by an instrumentation of it, around one another or side by side; it is counted once.
//!
//! Invariant: the work is linear in the spans; what may be compared with many is compared with the last few.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use weir_config::vocab::{SpanId, Timestamp, TraceId};
use weir_storage::record::SpanRecord;

use super::check;
use super::span::{ReportedSpan, SCOPE_NAME};
use crate::record::RESPONSE_ID;

/// Steps from a span to the root of its trace that are followed.
const DEPTH_MAX: usize = 64;
/// Calls of one likeness that a span is compared with, the last ones first.
const ALIKE_MAX: usize = 16;
/// How far apart two clocks may be that time the same call.
const SLACK_US: i64 = 1_000_000;

/// Of one span, what says which call it reports.
pub(super) struct Brief {
    pub(super) trace: TraceId,
    span: SpanId,
    parent: Option<SpanId>,
    start_us: i64,
    end_us: i64,
    /// Whether it stands for a call of a model and says what that used.
    counts: bool,
    has_text: bool,
    /// The provider's id of the answer.
    answer: Option<Box<str>>,
    /// Who reports; nobody of a call that passed the gateway.
    scope: Option<Box<str>>,
    /// Of the prompt and of the answer.
    tokens: Option<(u64, u64)>,
}

impl Brief {
    pub(super) fn reported(span: &ReportedSpan) -> Self {
        let named = |wanted: &str| {
            let (_, value) = span.attributes.iter().chain(&*span.shared[1]).find(|(name, _)| name == wanted)?;
            value.as_str().map(Box::from)
        };
        Self {
            trace: span.trace_id,
            span: span.span_id,
            parent: span.parent_span_id,
            start_us: span.start_time.micros(),
            end_us: span.end_time.micros(),
            counts: check::operation(span).1 && !span.usage.is_empty(),
            has_text: !span.input.is_empty() || !span.output.is_empty(),
            answer: named(RESPONSE_ID),
            scope: named(SCOPE_NAME),
            tokens: span.usage.prompt.zip(span.usage.completion),
        }
    }

    /// A span of the record; its counters are those it counts for.
    pub(super) fn stored(span: &SpanRecord) -> Self {
        let named = |wanted: &str| span.attributes.get(wanted).and_then(Value::as_str).map(Box::from);
        let micros = Timestamp::micros;
        Self {
            trace: span.trace_id,
            span: span.span_id,
            parent: span.parent_span_id,
            start_us: micros(span.start_time),
            end_us: micros(span.end_time),
            counts: span.prompt_tokens.is_some() || span.completion_tokens.is_some(),
            has_text: true,
            answer: named(RESPONSE_ID),
            scope: named(SCOPE_NAME),
            tokens: span.prompt_tokens.zip(span.completion_tokens),
        }
    }

    /// What it has in common with other reports of its call.
    fn likenesses(&self) -> impl Iterator<Item = Likeness> {
        let answer = self.answer.clone().map(Likeness::Answer);
        let counters = self.tokens.map(|(prompt, answer)| Likeness::Counters { parent: self.parent, prompt, answer });
        answer.into_iter().chain(counters)
    }
}

/// What reports of one call have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Likeness {
    /// The provider's id of the answer.
    Answer(Box<str>),
    /// The span around them and what was used; they come from different reporters.
    Counters { parent: Option<SpanId>, prompt: u64, answer: u64 },
}

/// A report by its likeness, and the span that counts for it.
#[derive(Clone)]
struct Report {
    start_us: i64,
    end_us: i64,
    scope: Option<Box<str>>,
    answer: Option<Box<str>>,
    by: Counter,
}

/// A span that has counted its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counter {
    /// Which.
    pub(super) span: SpanId,
    /// Whether what was said stands in it, so that it was inspected there.
    pub(super) has_text: bool,
}

/// What a span is to its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is kept already, or stands in the batch before.
    Repeated,
    /// It is new; another span has counted its call, if one is named.
    New(Option<Counter>),
}

/// The spans of one trace.
#[derive(Default)]
pub(super) struct Kin {
    /// Those that are kept, and the spans around them.
    spans: HashMap<SpanId, Option<SpanId>>,
    /// Spans whose call is counted by another one.
    covered: HashMap<SpanId, Counter>,
    reports: HashMap<Likeness, Vec<Report>>,
    /// Reporters that have told of a call by its counters.
    told: HashSet<(SpanId, Option<Box<str>>)>,
}

impl Kin {
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(super) fn has(&self, span: SpanId) -> bool {
        self.spans.contains_key(&span)
    }

    /// A span is kept, and counts for itself where nobody counts for it.
    pub(super) fn keep(&mut self, brief: &Brief, counted_by: Option<Counter>) {
        self.spans.insert(brief.span, brief.parent);
        let (base, own) = (Self::default(), std::mem::take(self));
        let mut view = View { base: &base, own };
        match counted_by.or_else(|| view.covered(brief.span)) {
            Some(by) => view.cover(brief, by),
            None if brief.counts => view.count(brief),
            None => {}
        }
        *self = view.own;
    }

    /// What each of these spans is to the trace; nothing of it is kept here.
    pub(super) fn decide(&self, briefs: &[&Brief]) -> Vec<Standing> {
        let mut view = View { base: self, own: Self::default() };
        let new = |brief: &&Brief| !self.has(brief.span) && view.own.spans.insert(brief.span, brief.parent).is_none();
        let is_new: Vec<bool> = briefs.iter().map(new).collect();
        let calls: Vec<&Brief> = briefs.iter().zip(&is_new).filter(|(_, new)| **new).map(|(brief, _)| *brief).collect();
        // What is counted already reaches what stands around it, and what is like it.
        for brief in &calls {
            if let Some(by) = view.covered(brief.span) {
                view.cover(brief, by);
            }
        }
        // Of reports of one call the one that has the words counts.
        let (with, without): (Vec<&Brief>, Vec<&Brief>) =
            calls.iter().copied().filter(|brief| brief.counts).partition(|brief| brief.has_text);
        for brief in with.into_iter().chain(without) {
            match view.covered(brief.span).or_else(|| view.alike(brief)) {
                Some(by) => view.cover(brief, by),
                None => view.count(brief),
            }
        }
        let standing = |(brief, new): (&&Brief, bool)| {
            if new { Standing::New(view.covered(brief.span)) } else { Standing::Repeated }
        };
        briefs.iter().zip(is_new).map(standing).collect()
    }
}

/// What is kept of a trace, and what a batch adds to it.
struct View<'a> {
    base: &'a Kin,
    own: Kin,
}

impl View<'_> {
    fn covered(&self, span: SpanId) -> Option<Counter> {
        self.own.covered.get(&span).or_else(|| self.base.covered.get(&span)).copied()
    }

    fn parent(&self, span: SpanId) -> Option<SpanId> {
        self.own.spans.get(&span).or_else(|| self.base.spans.get(&span)).copied().flatten()
    }

    /// This span counts its call, and those around it repeat it.
    fn count(&mut self, brief: &Brief) {
        let by = Counter { span: brief.span, has_text: brief.has_text };
        self.cover_around(brief.span, by);
        self.report(brief, by);
    }

    /// Another one counts this span's call.
    fn cover(&mut self, brief: &Brief, by: Counter) {
        if self.covered(brief.span).is_none() {
            self.own.covered.insert(brief.span, by);
        }
        self.cover_around(brief.span, by);
        if brief.counts {
            self.own.told.insert((by.span, brief.scope.clone()));
            self.report(brief, by);
        }
    }

    fn cover_around(&mut self, span: SpanId, by: Counter) {
        let mut at = span;
        for _ in 0..DEPTH_MAX {
            let Some(parent) = self.parent(at) else { return };
            if parent == by.span || self.covered(parent).is_some() {
                return;
            }
            self.own.covered.insert(parent, by);
            at = parent;
        }
    }

    fn report(&mut self, brief: &Brief, by: Counter) {
        for likeness in brief.likenesses() {
            let (start_us, end_us) = (brief.start_us, brief.end_us);
            let (scope, answer) = (brief.scope.clone(), brief.answer.clone());
            let reports = self.own.reports.entry(likeness).or_default();
            if reports.len() == 2 * ALIKE_MAX {
                reports.drain(..ALIKE_MAX);
            }
            reports.push(Report { start_us, end_us, scope, answer, by });
        }
    }

    /// The span that counts the call of which this one is another report.
    fn alike(&self, brief: &Brief) -> Option<Counter> {
        for likeness in brief.likenesses() {
            let slack = if matches!(likeness, Likeness::Answer(_)) { 0 } else { SLACK_US };
            let fits = |report: &&Report| {
                let overlap = report.start_us <= brief.end_us.saturating_add(slack)
                    && brief.start_us <= report.end_us.saturating_add(slack);
                overlap && (slack == 0 || self.is_another_reporter(brief, report))
            };
            let of = |kin: &Kin| -> Option<Counter> {
                let reports = kin.reports.get(&likeness)?;
                reports.iter().rev().take(ALIKE_MAX).find(fits).map(|report| report.by)
            };
            if let Some(by) = of(&self.own).or_else(|| of(self.base)) {
                return Some(by);
            }
        }
        None
    }

    /// Nobody reports a call twice, and no call has two answers: of two calls that used the same, as parallel ones do, one is not
    /// taken for the other.
    fn is_another_reporter(&self, brief: &Brief, report: &Report) -> bool {
        let told = (report.by.span, brief.scope.clone());
        let other_answer = brief.answer.is_some() && report.answer.is_some() && brief.answer != report.answer;
        brief.scope != report.scope
            && !other_answer
            && !self.own.told.contains(&told)
            && !self.base.told.contains(&told)
    }
}
