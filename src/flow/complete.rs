//! The end of an exchange, off the client's way: read what has not been read, analyse what has not been analysed, fill
//! in the record. Runs on the core for short texts and on the inference pool for long ones; it does no I/O.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use weir_config::vocab::{Dialect, Finding, Provider, Severity, Timestamp, UnreadSet, score};
use weir_inference::action::{self, Action, ActionKind};
use weir_inference::{Analyser, HITS_MAX, Hit, Options, Part, PartKind, Ran, Scratch};
use weir_storage::record::{SpanEvent, SpanRecord};

use super::charge::{Bill, Counter, charge};
use super::text;
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
    /// How to analyse; `None` leaves the score unset.
    pub(crate) analyse: Option<Options>,
    /// Bound on what a compressed body may be decoded to.
    pub(crate) decoded_bytes_max: usize,
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
    /// What was relayed of the answer without having been read.
    pub(crate) unread_answer: UnreadSet,
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
        if let RequestText::Raw { .. } = self.text {
            self.text = RequestText::None;
            self.span.tags.insert(Cow::Borrowed("prompt_truncated"), "true".to_owned());
        }
        if !self.span.streaming && self.answer_bytes > super::INLINE_TEXT_BYTES_MAX {
            self.answer = None;
            self.span.tags.insert(Cow::Borrowed("response_truncated"), "true".to_owned());
        }
        self
    }

    /// Bytes of text that are still to be looked at, about.
    pub(crate) fn text_bytes(&self) -> usize {
        let request = match &self.text {
            RequestText::None => 0,
            RequestText::Read(view) => view.text.len(),
            RequestText::Raw { body, .. } => body.len(),
        };
        request + self.answer_bytes
    }

    /// Whether completing this takes longer than a core should be held up. A compressed body may be many times as long
    /// as it looks.
    pub(crate) fn is_long(&self) -> bool {
        let compressed = matches!(&self.text, RequestText::Raw { content_encoding: Some(_), .. });
        compressed || self.text_bytes() > super::INLINE_TEXT_BYTES_MAX
    }
}

/// Completes the record with analysis.
pub(crate) fn complete(analyser: &Analyser, scratch: &mut Scratch, prices: &Prices, finish: Finish) -> Finished {
    fill(finish, prices, |parts, options, hits| survive(|| analyser.analyse(scratch, parts, options, hits)))
}

/// Runs a reader or detector over somebody else's bytes. A bug in it costs this one result, never the record, the
/// connection or the thread.
pub(crate) fn survive<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Completes the record without analysis, for `reason`.
pub(crate) fn complete_unanalysed(mut finish: Finish, prices: &Prices, reason: &str) -> Finished {
    if finish.analyse.take().is_some() {
        drop_tags(&mut finish.span, reason);
    }
    fill(finish, prices, |_, _, _| None)
}

/// Marks a record whose analysis was left out.
pub(crate) fn drop_tags(span: &mut SpanRecord, reason: &str) {
    span.tags.insert(Cow::Borrowed("pipeline_dropped"), "true".to_owned());
    span.tags.insert(Cow::Borrowed("reason"), reason.to_owned());
}

fn fill(
    finish: Finish,
    prices: &Prices,
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
        path_model,
        priced_as,
        priced,
        ..
    } = finish;
    let view = match request_text {
        RequestText::None => None,
        RequestText::Read(view) => Some(view),
        RequestText::Raw { body, content_type, content_encoding, truncated } => {
            let (kind, coding) = (content_type.as_deref(), content_encoding.as_deref());
            survive(|| text::read_raw(dialect, kind, coding, &body, decoded_bytes_max)).map(|mut view| {
                view.truncated |= truncated;
                Box::new(view)
            })
        }
    };
    let answer = answer.and_then(|reader| survive(|| reader.finish()));
    if let Some(options) = options {
        let request = view.as_deref().filter(|_| !request_analysed);
        find(&mut span, request, answer.as_ref(), &options, &mut analyse);
    }
    if let Some(view) = view {
        take_request(&mut span, *view);
    }
    if span.model.is_none() {
        span.model = path_model;
    }
    let unread_answer = answer.as_ref().map(|answer| answer.unread).unwrap_or_default();
    if !unread_answer.is_empty() {
        span.tags.insert(Cow::Borrowed("unscanned_response"), unread_answer.to_string());
    }
    let mut bill = answer.map(|answer| take_answer(&mut span, answer)).unwrap_or_default();
    bill.priced_as = priced_as;
    let cost_nano_usd = charge(&mut span, &bill, priced.then_some(prices), Counter::Estimate);
    Finished { span, cost_nano_usd, bill, priced, unread_answer }
}

/// Runs the detectors over what has not been looked at and sets the score.
fn find(
    span: &mut SpanRecord,
    request: Option<&RequestView>,
    answer: Option<&Answer>,
    options: &Options,
    analyse: &mut impl FnMut(&[Part<'_>], &Options, &mut Vec<Hit>) -> Option<Ran>,
) {
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
        return drop_tags(span, "analyzer_error");
    };
    for Hit { part, mut finding } in hits {
        finding.location = match part.checked_sub(of_request) {
            None => request.map(|view| text::request_location(view, part)).unwrap_or_default(),
            Some(at) => answer.map(|answer| text::answer_location(answer, at)).unwrap_or_default(),
        };
        span.security_findings.push(finding);
    }
    if span.detectors.is_empty() {
        span.detectors.extend(ran.detectors.iter().map(|name| Cow::Borrowed(*name)));
    }
    if let Some(view) = request {
        span.security_findings.extend(reading_findings(view));
    }
    span.security_findings.extend(limit_findings(&ran));
    if let Some(answer) = answer {
        span.security_findings.extend(survive(|| tool_call_findings(answer, options.deadline)).unwrap_or_default());
    }
    span.security_score = Some(score(&span.security_findings));
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

/// Findings about the body as such: unreadable, or longer than is looked at.
pub(crate) fn reading_findings(view: &RequestView) -> impl Iterator<Item = Finding> + use<> {
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
    let truncated = view.truncated.then(|| {
        let mut finding = Finding::new(
            "analysis_truncated",
            Severity::Low,
            1.0,
            "rules",
            "the text was longer than is kept for analysis; its end was not looked at",
        );
        finding.location.push_str("request");
        finding
    });
    unreadable.into_iter().chain(truncated)
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
    cut.into_iter().chain(dense)
}

fn take_request(span: &mut SpanRecord, view: RequestView) {
    if span.model.is_none() {
        span.model = view.model;
    }
    span.streaming |= view.stream == Some(true);
    if !view.text.is_empty() {
        span.prompt = Some(view.text);
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
        priced_as: None,
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
