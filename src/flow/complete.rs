//! The end of an exchange, off the client's way: read what has not been read, analyse what has not been analysed, fill
//! in the record. Runs on the core for short texts and on the inference pool for long ones; it does no I/O.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use weir_config::vocab::{Dialect, Finding, Provider, Severity, Timestamp, Unread, UnreadSet, score};
use weir_inference::action::{self, Action, ActionKind};
use weir_inference::{Analyser, HITS_MAX, Hit, Options, Part, PartKind, Ran, Scratch};
use weir_storage::record::{SpanEvent, SpanRecord};

use super::charge::{Bill, Counter, charge};
use super::{Process, text};
use crate::exchange::RequestText;
use crate::inspect::RequestView;
use crate::money::Prices;
use crate::observe::{Answer, AnswerReader};

/// Everything needed to complete a record.
pub(crate) struct Finish {
    pub(crate) span: Box<SpanRecord>,
    pub(crate) dialect: Dialect,
    pub(crate) text: RequestText,
    /// Whether `span.security_findings` already covers the request's text.
    pub(crate) request_analysed: bool,
    pub(crate) answer: Option<AnswerReader>,
    /// Bytes of text the answer holds, about.
    pub(crate) answer_bytes: usize,
    /// Bytes of it that were relayed.
    pub(crate) answer_wire_bytes: u64,
    /// Reading it has failed.
    pub(crate) answer_lost: bool,
    /// How to analyse; `None` leaves the score unset.
    pub(crate) analyse: Option<Options>,
    /// Bound on what a compressed body may be decoded to.
    pub(crate) decoded_bytes_max: usize,
    /// `security_analysis.max_analysis_text_bytes`.
    pub(crate) analysis_text_max: usize,
    /// What is known already not to be read of the request.
    pub(crate) unread: UnreadSet,
    /// The model the request's path named.
    pub(crate) path_model: Option<String>,
    /// Whose prices hold, where that is not the span's provider.
    pub(crate) priced_as: Option<Provider>,
    /// Whether the call is to be priced.
    pub(crate) priced: bool,
}

/// A completed record.
pub(crate) struct Finished {
    /// The record.
    pub(crate) span: Box<SpanRecord>,
    /// What the call cost, in nanodollars; `None` when nobody knows, or nothing was used.
    pub(crate) cost_nano_usd: Option<u64>,
    /// What the answer said beside its text.
    pub(crate) bill: Bill,
    /// Whether the call is priced.
    pub(crate) priced: bool,
    /// What was forwarded of the request without having been read.
    pub(crate) unread_request: UnreadSet,
    /// What was relayed of the answer without having been read.
    pub(crate) unread_answer: UnreadSet,
    /// What became of the analysis that was still to be done.
    pub(crate) outcome: Outcome,
    /// What the detectors did.
    pub(crate) ran: Option<Ran>,
}

/// What became of an analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There was nothing to analyse.
    Nothing,
    /// All of it was looked at.
    Whole,
    /// The record has no score.
    Dropped {
        /// The value of the tag `reason`.
        reason: &'static str,
        /// The text itself was the cause, and not the state of the service: it proves nothing against the analysers.
        by_content: bool,
    },
}

impl Finished {
    /// Counts and charges once more with the family's vocabulary. Not for a core thread.
    pub(crate) fn recount(&mut self, prices: &Prices) {
        let prices = self.priced.then_some(prices);
        self.cost_nano_usd = charge(&mut self.span, &self.bill, prices, Counter::Vocabulary);
    }
}

impl Finish {
    /// Leaves out what is long and has not been read yet: there is no time to read it now.
    pub(crate) fn without_unread_text(mut self) -> Self {
        if let RequestText::Raw(_) = self.text {
            self.text = RequestText::None;
            self.span.tags.insert(Cow::Borrowed("prompt_truncated"), "true".to_owned());
        }
        if !self.span.streaming && self.answer_bytes > super::INLINE_TEXT_BYTES_MAX {
            // What it cost stands at its end.
            self.answer.iter_mut().for_each(AnswerReader::keep_end);
        }
        self
    }

    /// Bytes of text that are still to be looked at, about.
    pub(crate) fn text_bytes(&self) -> usize {
        let request = match &self.text {
            RequestText::None => 0,
            RequestText::Read(view) => view.text.len(),
            RequestText::Raw(raw) => raw.body.len(),
        };
        request + self.answer_bytes
    }

    /// Whether completing this takes longer than a core should be held up. A compressed body may be many times as long
    /// as it looks.
    pub(crate) fn is_long(&self) -> bool {
        let compressed = matches!(&self.text, RequestText::Raw(raw) if raw.content_encoding.is_some());
        compressed || self.text_bytes() > super::INLINE_TEXT_BYTES_MAX
    }
}

/// Completes the record with analysis.
pub(crate) fn complete(process: &Process, analyser: &Analyser, scratch: &mut Scratch, finish: Finish) -> Finished {
    fill(process, finish, |parts, options, hits| survive(|| analyser.analyse(scratch, parts, options, hits)))
}

/// Runs a reader or detector over somebody else's bytes. A bug in it costs this one result, never the record, the
/// connection or the thread.
pub(crate) fn survive<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Completes the record without analysis, for `reason`.
pub(crate) fn complete_unanalysed(
    process: &Process,
    mut finish: Finish,
    reason: &'static str,
    loaded: bool,
) -> Finished {
    let dropped = finish.analyse.take().is_some();
    if dropped {
        finish.span.security_score = None;
        drop_tags(&mut finish.span, reason);
    }
    let mut finished = fill(process, finish, |_, _, _| None);
    if dropped {
        finished.outcome = Outcome::Dropped { reason, by_content: loaded };
    }
    finished
}

/// Marks a record whose analysis was left out.
pub(crate) fn drop_tags(span: &mut SpanRecord, reason: &str) {
    span.tags.insert(Cow::Borrowed("pipeline_dropped"), "true".to_owned());
    span.tags.insert(Cow::Borrowed("reason"), reason.to_owned());
}

fn fill(
    process: &Process,
    finish: Finish,
    mut analyse: impl FnMut(&[Part<'_>], &Options, &mut Vec<Hit>) -> Option<Ran>,
) -> Finished {
    let Finish {
        mut span,
        dialect,
        text: request_text,
        request_analysed,
        answer,
        analyse: options,
        decoded_bytes_max,
        analysis_text_max,
        unread: mut unread_request,
        path_model,
        priced_as,
        priced,
        answer_wire_bytes,
        answer_lost,
        ..
    } = finish;
    let mut unread_answer = UnreadSet::default();
    // What a compressed body grew to counts as a body in memory until the record has been put together.
    let mut _room = None;
    let view = match request_text {
        RequestText::None => None,
        RequestText::Read(view) => Some(view),
        RequestText::Raw(raw) => {
            match survive(|| text::read_raw(dialect, &raw, decoded_bytes_max, &process.bodies.of(span.tenant_id))) {
                Some(text::ReadRaw { view, room, .. }) => {
                    _room = room;
                    Some(Box::new(view))
                }
                None => {
                    unread_request.insert(Unread::UnreadableBody);
                    None
                }
            }
        }
    };
    let answered = answer.is_some() || answer_lost;
    let answer = answer.and_then(|reader| survive(|| reader.finish()));
    match &answer {
        Some(answer) => unread_answer.join(answer.unread),
        None if answered => unread_answer.insert(Unread::UnreadableBody),
        None => {}
    }
    if let Some(view) = &view {
        unread_request.join(view.unread());
    }
    let (mut outcome, mut ran) = (Outcome::Nothing, None);
    if let Some(options) = options {
        let request = view.as_deref().filter(|_| !request_analysed);
        (outcome, ran) = find(&mut span, request, answer.as_ref(), &options, analysis_text_max, &mut analyse);
        if ran.is_some_and(|ran| ran.full || ran.verify_cap_reached) {
            if request.is_some() { &mut unread_request } else { &mut unread_answer }.insert(Unread::Truncated);
        }
        // Nobody has looked at anything of it: that is no clean bill.
        if span.detectors.is_empty() && !(unread_request.is_empty() && unread_answer.is_empty()) {
            span.security_score = None;
        }
    }
    for (tag, unread) in [("unscanned", unread_request), ("unscanned_response", unread_answer)] {
        if !unread.is_empty() {
            span.tags.insert(Cow::Borrowed(tag), unread.to_string());
        }
    }
    let token_ids = view.as_ref().map_or(0, |view| view.token_ids);
    // What a path names is what the provider runs, whatever stands in the body.
    span.model = path_model.or_else(|| span.model.take());
    if let Some(view) = view {
        take_request(&mut span, *view);
    }
    let mut bill = answer.map(|answer| take_answer(&mut span, answer)).unwrap_or_default();
    bill.priced_as = priced_as;
    bill.prompt_token_ids = token_ids;
    bill.see_unread(unread_answer, answer_wire_bytes, span.streaming);
    let prices = priced.then_some(&*process.parts.prices);
    let cost_nano_usd = charge(&mut span, &bill, prices, Counter::Estimate);
    Finished { span, cost_nano_usd, bill, priced, unread_request, unread_answer, outcome, ran }
}

/// Runs the detectors over what has not been looked at and sets the score; an analysis that did not see all in time has
/// none, whatever it found until then.
fn find(
    span: &mut SpanRecord,
    request: Option<&RequestView>,
    answer: Option<&Answer>,
    options: &Options,
    analysis_text_max: usize,
    analyse: &mut impl FnMut(&[Part<'_>], &Options, &mut Vec<Hit>) -> Option<Ran>,
) -> (Outcome, Option<Ran>) {
    let mut parts: Vec<Part<'_>> = Vec::with_capacity(8);
    if let Some(view) = request {
        parts.extend(text::request_parts(view));
    }
    let of_request = parts.len();
    if let Some(answer) = answer {
        parts.extend(text::answer_parts(answer));
    }
    let mut hits = Vec::new();
    let Some(ran) = analyse(&parts, options, &mut hits) else {
        return (dropped(span, "analyzer_error", true), None);
    };
    for hit in hits {
        let found = match hit.part.checked_sub(of_request) {
            None => request.and_then(|view| text::request_finding(view, hit)),
            Some(at) => {
                let mut finding = hit.finding;
                finding.location = answer.map(|answer| text::answer_location(answer, at)).unwrap_or_default();
                Some(finding)
            }
        };
        span.security_findings.extend(found);
    }
    if span.detectors.is_empty() {
        span.detectors.extend(ran.detectors.iter().map(|name| Cow::Borrowed(*name)));
    }
    if let Some(view) = request {
        span.security_findings.extend(reading_findings(view, analysis_text_max));
    }
    span.security_findings.extend(answer.and_then(|answer| long_text("response", &answer.text, analysis_text_max)));
    span.security_findings.extend(limit_findings(&ran));
    if let Some(answer) = answer {
        span.security_findings.extend(survive(|| tool_call_findings(answer, options.deadline)).unwrap_or_default());
    }
    if ran.cut {
        // A text over the bound that models are given may take longer than the limit by itself.
        let by_content = parts.iter().map(|part| part.text.len()).sum::<usize>() > analysis_text_max;
        return (dropped(span, "analyzer_timeout", by_content), Some(ran));
    }
    span.security_score = Some(score(&span.security_findings));
    (if ran.detectors.is_empty() { Outcome::Nothing } else { Outcome::Whole }, Some(ran))
}

fn dropped(span: &mut SpanRecord, reason: &'static str, by_content: bool) -> Outcome {
    span.security_score = None;
    drop_tags(span, reason);
    Outcome::Dropped { reason, by_content }
}

/// What is to be said about the commands, addresses and files of the tool calls the model asked for. Whoever runs the tools
/// may not report having done so; the call is seen here in any case.
fn tool_call_findings(answer: &Answer, deadline: Option<Instant>) -> Vec<Finding> {
    let arguments = answer.parts.iter().filter(|part| part.kind == PartKind::ToolCall);
    let located: Vec<String> = arguments.map(|part| part.location.to_string()).collect();
    let mut found = Vec::new();
    for (at, call) in answer.tool_calls.iter().enumerate() {
        let action =
            Action { kind: ActionKind::Tool, name: &call.name, arguments: Some(&call.arguments), writes: call.writes };
        // The last of them says that the time was over, or this one that the rest was left out.
        if found.last().is_some_and(|last: &Finding| last.finding_type == "analysis_timeout") {
            break;
        }
        if found.len() >= HITS_MAX {
            found.push(calls_left_out());
            break;
        }
        for mut finding in action::check(&action, deadline) {
            // Each call has its arguments as a part, unless the answer was cut.
            finding.location = match located.get(at).filter(|_| located.len() == answer.tool_calls.len()) {
                Some(location) => location.clone(),
                None => format!("response.tool_calls[{at}]"),
            };
            found.push(finding);
        }
    }
    found
}

fn calls_left_out() -> Finding {
    let said = "so much was found in the tool calls of this answer that the rest of them was not looked at";
    Finding::new("analysis_truncated", Severity::Low, 1.0, "actions", said)
}

/// Findings about the body as such: unreadable, longer than is kept, or longer than models are given.
pub(crate) fn reading_findings(view: &RequestView, text_max: usize) -> impl Iterator<Item = Finding> + use<> {
    let unreadable = view.unreadable.map(|reason| {
        let mut finding = Finding::new(
            "unreadable_body",
            Severity::Low,
            1.0,
            "rules",
            "the request body could not be read as its content type says; its raw bytes were analysed",
        );
        finding.metadata.insert("reason".to_owned(), reason.to_owned());
        finding.location.push_str("request");
        finding
    });
    let truncated = view
        .truncated
        .then(|| truncated("request", "the text was longer than is kept for analysis; its end was not looked at"));
    unreadable.into_iter().chain(truncated.or_else(|| long_text("request", &view.text, text_max)))
}

/// The finding about a text over `security_analysis.max_analysis_text_bytes`.
fn long_text(location: &str, text: &str, text_max: usize) -> Option<Finding> {
    (text.len() > text_max).then(|| {
        let description = "the text is longer than `security_analysis.max_analysis_text_bytes`: the rules looked at all \
                           of it, models are given its beginning only";
        truncated(location, description)
    })
}

fn truncated(location: &str, description: &'static str) -> Finding {
    let mut finding = Finding::new("analysis_truncated", Severity::Low, 1.0, "rules", description);
    finding.location.push_str(location);
    finding
}

/// Findings about an analysis that met one of its own limits.
pub(crate) fn limit_findings(ran: &Ran) -> impl Iterator<Item = Finding> + use<> {
    let about = |finding_type, severity, description| Finding::new(finding_type, severity, 1.0, "rules", description);
    let cut = ran
        .cut
        .then(|| about("analysis_timeout", Severity::Info, "analysis met its limit before it had seen the whole text"));
    let dense = ran.verify_cap_reached.then(|| {
        let description = "so many trigger words stand so close together that not every rule was tried on each";
        about("analysis_truncated", Severity::Low, description)
    });
    let full = ran.full.then(|| {
        let description = "so much was found that the rest of the text was not looked at";
        about("analysis_truncated", Severity::Low, description)
    });
    cut.into_iter().chain(dense).chain(full)
}

fn take_request(span: &mut SpanRecord, mut view: RequestView) {
    if span.model.is_none() {
        span.model = view.model.take();
    }
    span.streaming |= view.stream == Some(true);
    let text = view.into_recorded();
    if !text.is_empty() {
        span.prompt = Some(text);
    }
}

fn take_answer(span: &mut SpanRecord, answer: Answer) -> Bill {
    let mut bill = Bill {
        usage: answer.usage.unwrap_or_default(),
        model: answer.model,
        complete: answer.complete,
        response_id: answer.response_id.filter(|_| answer.pending || answer.ended),
        pending: answer.pending,
        ended: answer.ended,
        unseen_bytes: answer.left_out_bytes,
        ..Bill::default()
    };
    if span.model.is_none() {
        span.model = bill.model.take();
    }
    span.finish_reason = answer.finish_reason;
    if span.error_type.is_none() {
        span.error_type = answer.error_type;
        span.error_message = answer.error_message;
    }
    if !answer.text.is_empty() {
        span.response = Some(answer.text);
    }
    if answer.truncated {
        span.tags.insert(Cow::Borrowed("response_truncated"), "true".to_owned());
    }
    if span.streaming && !answer.complete && span.error_type.is_none() {
        span.tags.insert(Cow::Borrowed("response_incomplete"), "true".to_owned());
    }
    for call in answer.tool_calls {
        let mut data = BTreeMap::new();
        if let Some(id) = call.id {
            data.insert("id".to_owned(), id);
        }
        data.insert("arguments".to_owned(), call.arguments);
        span.events.push(SpanEvent {
            timestamp: Timestamp::now(),
            event_type: Cow::Borrowed("tool_call"),
            description: format!("the model asked for tool `{}`", call.name),
            data,
        });
    }
    bill
}
