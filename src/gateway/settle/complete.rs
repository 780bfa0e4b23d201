//! The end of an exchange, off the client's way: read what has not been read, analyse what has not been analysed, fill
//! in the record. Runs on the core for short texts and on the inference pool for long ones; it does no I/O.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use weir_config::settings::ActionFromData;
use weir_config::vocab::{Dialect, Finding, Provider, Timestamp, Unread, UnreadSet, score};
use weir_inference::{Analyser, Call, Plan, Ran, Scratch, Skips};
use weir_storage::record::{SpanEvent, SpanRecord};

use super::body_copies::BodyCopies;
use super::charge::{Counter, RPC_METHOD, charge};
use super::inspection::{self, CallsSeen, How, Inspection, LeftOut, Rest, Texts, survive};
use super::leak;
use super::masking::MASKING_LIMIT;
use super::prompt_cache;
use super::prompt_order;
use super::provenance;
use super::seam;
use super::text::{self, RequestText};
use crate::inspect::{RequestView, RpcCall, TextPart};
use crate::money::Prices;
use crate::observe::{Answer, AnswerReader};
use crate::process::Process;
use crate::process::bill::Bill;
use crate::record::RESPONSE_ID;

/// Everything needed to complete a record.
pub(crate) struct Finish {
    pub(crate) span: Box<SpanRecord>,
    /// Where the call gets a receipt.
    pub(crate) copies: Option<Box<BodyCopies>>,
    pub(crate) dialect: Dialect,
    pub(crate) text: RequestText,
    /// Whether `span.security_findings` already covers the request's text.
    pub(crate) request_analysed: bool,
    /// What of the request the second stage is still to look at, where it does.
    pub(crate) rest: Option<Box<Rest>>,
    pub(crate) answer: Option<Box<AnswerReader>>,
    /// Bytes of text the answer holds, about.
    pub(crate) answer_bytes: usize,
    /// Bytes of it that were relayed.
    pub(crate) answer_wire_bytes: u64,
    /// Reading it has failed.
    pub(crate) answer_lost: bool,
    /// How to analyse; `None` leaves the score unset.
    pub(crate) analyse: Option<Arc<Plan>>,
    /// When the analysis is to end.
    pub(crate) deadline: Option<Instant>,
    /// Bound on what a compressed body may be decoded to.
    pub(crate) decoded_bytes_max: usize,
    /// `security_analysis.max_analysis_text_bytes`.
    pub(crate) analysis_text_max: usize,
    /// What is known already not to be read of the request.
    pub(crate) unread: UnreadSet,
    /// The model the request's path named.
    pub(crate) path_model: Option<String>,
    /// Its agent is what a limited key says: no rule allows more for it.
    pub(crate) doubts_agent: bool,
    /// Whose prices hold, where that is not the span's provider.
    pub(crate) priced_as: Option<Provider>,
    /// Whether the call is to be priced.
    pub(crate) priced: bool,
    /// Whether the answer is compared with the system prompt.
    pub(crate) guarded: bool,
    /// `security_analysis.action_from_data`.
    pub(crate) from_data: ActionFromData,
}

/// The tag that says so of a text that the second stage was to look at and did not.
const SECOND_STAGE_SKIPPED: &str = "second_stage_skipped";

/// A completed record.
pub(crate) struct Finished {
    /// The record.
    pub(crate) span: Box<SpanRecord>,
    /// What the call's receipt is made of beside the record.
    pub(crate) receipt_notes: Option<Value>,
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
    /// What is left to models.
    pub(crate) rest: Option<Rest>,
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

impl Finished {
    /// Takes over what models said.
    pub(crate) fn join(&mut self, analyser: &Analyser, findings: Vec<Finding>, ran: &Ran) {
        if ran.full {
            self.note_full(&findings);
        }
        if ran.skipped {
            self.note_skipped(&findings);
        }
        self.span.security_findings.extend(findings);
        note_detectors(&mut self.span, analyser, ran);
        if ran.cut || ran.failed {
            return self.miss(if ran.cut { "analyzer_timeout" } else { "analyzer_error" }, true);
        }
        self.span.security_score = Some(score(&self.span.security_findings));
    }

    /// Models found more than is kept: from the text on in which the last finding stands, not all of it is there.
    fn note_full(&mut self, findings: &[Finding]) {
        let last = findings.iter().rev().find(|finding| finding.span.is_some());
        self.note_unread(last.is_some_and(is_of_answer), Unread::Truncated);
    }

    /// Models were not shown all that encoded words say; whose words those are is in the findings about it.
    fn note_skipped(&mut self, findings: &[Finding]) {
        for finding in findings.iter().filter(|finding| finding.metadata.contains_key("left_out_encoded")) {
            self.note_unread(is_of_answer(finding), Unread::TruncatedForModels);
        }
    }

    fn note_unread(&mut self, is_answer: bool, what: Unread) {
        let (tag, unread) = if is_answer {
            ("unscanned_response", &mut self.unread_answer)
        } else {
            ("unscanned", &mut self.unread_request)
        };
        unread.insert(what);
        self.span.tags.insert(Cow::Borrowed(tag), unread.to_string());
    }

    /// Models have not said anything: the analysis is not whole.
    pub(crate) fn miss(&mut self, reason: &'static str, by_content: bool) {
        self.outcome = dropped(&mut self.span, reason, by_content);
    }
}

impl Finish {
    /// Leaves out what is long and has not been read yet: there is no time to read it now.
    pub(crate) fn without_unread_text(mut self) -> Self {
        if let RequestText::Raw(_) = self.text {
            self.text = RequestText::None;
            self.span.tags.insert(Cow::Borrowed("prompt_truncated"), "true".to_owned());
        }
        if !self.span.streaming && self.answer_bytes > crate::limits::INLINE_TEXT_BYTES_MAX {
            // What it cost stands at its end.
            self.answer.iter_mut().for_each(|answer| answer.keep_end());
        }
        self.copies.iter_mut().for_each(|copies| copies.give_up());
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
        !inspection::fits_core(self.text_bytes(), compressed)
            || self.copies.as_ref().is_some_and(|copies| copies.are_long())
    }
}

/// Completes the record with analysis.
pub(crate) fn complete(process: &Process, scratch: &mut Scratch, finish: Finish) -> Finished {
    fill(process, finish, Some(scratch))
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
    let mut finished = fill(process, finish, None);
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

fn fill(process: &Process, finish: Finish, scratch: Option<&mut Scratch>) -> Finished {
    let Finish {
        mut span,
        copies,
        dialect,
        text: request_text,
        request_analysed,
        rest: request_rest,
        answer,
        analyse: plan,
        deadline,
        decoded_bytes_max,
        analysis_text_max,
        unread: mut unread_request,
        path_model,
        doubts_agent,
        priced_as,
        priced,
        answer_wire_bytes,
        answer_lost,
        guarded,
        from_data,
        ..
    } = finish;
    let mut unread_answer = UnreadSet::default();
    // The record keeps what is read of it, however little time is left for looking at that.
    let read_by = deadline.map(|_| Instant::now() + MASKING_LIMIT);
    // What a compressed body grew to counts as a body in memory until the record has been put together.
    let mut _room = None;
    let view = match request_text {
        RequestText::None => None,
        RequestText::Read(view) => Some(view),
        RequestText::Raw(raw) => {
            match survive(|| {
                text::read_raw(
                    dialect,
                    &raw,
                    text::Goes::AsItCame,
                    decoded_bytes_max,
                    (&process.bodies.of(span.tenant_id), read_by),
                )
            }) {
                Some(text::ReadRaw { mut view, room, .. }) => {
                    _room = room;
                    text::recall(&process.turns, span.tenant_id, &mut view);
                    Some(view)
                }
                None => {
                    unread_request.insert(Unread::UnreadableBody);
                    None
                }
            }
        }
    };
    let answered = answer.is_some() || answer_lost;
    let answer = answer.and_then(|mut reader| survive(|| reader.finish_by(read_by)));
    match &answer {
        Some(answer) => unread_answer.join(answer.unread),
        None if answered => unread_answer.insert(Unread::UnreadableBody),
        None => {}
    }
    if let Some(view) = &view {
        unread_request.join(view.unread());
    }
    let (mut outcome, mut ran, mut rest) = (Outcome::Nothing, None, None);
    if let Some((plan, scratch)) = plan.zip(scratch) {
        let agent = span.agent_id.clone().filter(|_| !doubts_agent);
        let call = Call { plan: &plan, tenant: span.tenant_id, agent: agent.as_deref(), deadline };
        let how = How { call, text_max: analysis_text_max };
        let request = view.as_deref().filter(|_| !request_analysed);
        let before = view.as_ref().map_or(0, |view| view.records());
        let texts = Texts { request, answer: answer.as_ref(), before, context: view.as_deref() };
        let found = find(&process.parts.inspection.analyser, scratch, &mut span, &texts, &how);
        note_absent(&mut span, &process.parts.inspection.analyser, found.ran.as_ref());
        if found.ran.as_ref().is_some_and(|ran| ran.full || ran.verify_cap_reached) {
            if request.is_some() { &mut unread_request } else { &mut unread_answer }.insert(Unread::Truncated);
        }
        found.note_unread(&mut unread_request, &mut unread_answer);
        // Of a record that has no score nothing more is looked at.
        let left = request_rest.filter(|_| !matches!(found.outcome, Outcome::Dropped { .. }));
        (outcome, ran, rest) = (found.outcome, found.ran, Rest::joined(left, found.rest));
        if let (true, Some(view), Some(answer)) = (guarded, &view, &answer) {
            let leaked = survive(|| leak::findings(view, answer, view.records(), deadline)).unwrap_or_default();
            span.security_findings.extend(leaked);
            span.security_score = span.security_score.map(|_| score(&span.security_findings));
        }
        if let (true, Some(view), Some(answer)) = (from_data != ActionFromData::Ignore, &view, &answer) {
            let (tenant, keeps) = (span.tenant_id, is_kept_by_provider(dialect, view, answer));
            let found = survive(|| {
                let is_asked = !answer.tool_calls.is_empty();
                let origins = (keeps || is_asked).then(|| provenance::origins(view, &process.origins, tenant))?;
                if keeps {
                    let ids = [view.conversation.as_deref(), answer.response_id.as_deref()];
                    provenance::remember(&origins, &process.origins, tenant, ids);
                }
                let found = provenance::findings(&origins, answer, view.records(), from_data);
                Some((found, is_asked && origins.is_cut()))
            });
            let (found, is_cut) = found.flatten().unwrap_or_default();
            if is_cut {
                unread_request.insert(Unread::TruncatedForModels);
            }
            span.security_findings.extend(found);
            span.security_score = span.security_score.map(|_| score(&span.security_findings));
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
    let id = answer.as_ref().and_then(|answer| answer.response_id.as_deref());
    if let (Some(view), Some(answer), Some(id)) = (&view, &answer, id)
        && is_kept_by_provider(dialect, view, answer)
        && let Some(end) = seam::last_turn(view)
    {
        if let Some(conversation) = &view.conversation {
            process.turns.keep(span.tenant_id, conversation, end.clone());
        }
        process.turns.keep(span.tenant_id, id, end);
    }
    let token_ids = view.as_ref().map_or(0, |view| view.token_ids);
    // What a path names is what the provider runs, whatever stands in the body.
    span.model = path_model.or_else(|| span.model.take());
    let in_body = |view: &RequestView| view.model.is_some() && !view.models_are_plain();
    let doubts_model = span.model.is_none() && view.as_deref().is_some_and(in_body);
    // What was said before is with the provider: the body says only what comes now.
    let goes_on = view.as_ref().is_some_and(|view| view.previous_answer.is_some() || view.conversation.is_some());
    // What is spoken of a request for speech is its input, and nothing else of it.
    let is_spoken = |part: &&TextPart| part.location.to_string() == "request.input";
    let spoken_characters = view.as_deref().filter(|_| span.operation_name == "speech").map_or(0, |view| {
        let spoken = view.parts.iter().filter(is_spoken).filter_map(|part| view.text.get(part.range.clone()));
        spoken.map(|text| text.chars().count() as u64).sum()
    });
    if let Some(view) = view {
        take_request(&mut span, *view);
    }
    let receipt_notes = copies.map(|copies| copies.notes(answer.as_ref().and_then(|answer| answer.model.clone())));
    let mut bill = answer.map(|answer| take_answer(&mut span, answer)).unwrap_or_default();
    bill.doubts_model = doubts_model;
    bill.priced_as = priced_as;
    bill.prompt_token_ids = token_ids;
    bill.spoken_characters = spoken_characters;
    bill.see_unread(unread_answer, answer_wire_bytes, span.streaming);
    let prices = priced.then_some(&*process.parts.policy.prices);
    let cost_nano_usd = charge(&mut span, &bill, prices, Counter::Estimate);
    if span.session_id.is_some() && !goes_on && !bill.pending {
        survive(|| prompt_cache::look(&process.prompts, prices, dialect, &mut span));
    }
    Finished { span, receipt_notes, cost_nano_usd, bill, priced, unread_request, unread_answer, outcome, ran, rest }
}

/// Whether the next turn may come without this one. Whoever sends `messages` sends the whole conversation with every turn.
fn is_kept_by_provider(dialect: Dialect, view: &RequestView, answer: &Answer) -> bool {
    dialect.keeps_turns() && view.messages_open.is_none() && answer.response_id.is_some()
}

/// What [`find`] brings beside findings.
struct Looked {
    outcome: Outcome,
    ran: Option<Ran>,
    rest: Option<Rest>,
    left_out: LeftOut,
    calls: CallsSeen,
}

impl Looked {
    fn nothing(outcome: Outcome) -> Self {
        Self { outcome, ran: None, rest: None, left_out: LeftOut::default(), calls: CallsSeen::All }
    }

    /// Adds what the bounds on texts for models and on tool calls, which only answers hold, have left out.
    fn note_unread(&self, request: &mut UnreadSet, answer: &mut UnreadSet) {
        if self.left_out.request > 0 {
            request.insert(Unread::TruncatedForModels);
        }
        if self.left_out.answer > 0 {
            answer.insert(Unread::TruncatedForModels);
        }
        if self.calls == CallsSeen::Some {
            answer.insert(Unread::Truncated);
        }
    }
}

/// Inspects what has not been looked at and sets the score; an analysis that did not see all in time has none, whatever it
/// found until then.
fn find(analyser: &Analyser, scratch: &mut Scratch, span: &mut SpanRecord, texts: &Texts<'_>, how: &How<'_>) -> Looked {
    let inspected = inspection::run(analyser, scratch, texts, how);
    let Some(Inspection { findings, ran, rest, text_bytes, left_out, calls }) = inspected else {
        return Looked::nothing(dropped(span, "analyzer_error", true));
    };
    span.security_findings.extend(findings);
    note_detectors(span, analyser, &ran);
    if ran.cut {
        // A text over the bound that models are given may take longer than the limit by itself, and so may commands.
        let by_content = text_bytes > how.text_max || calls == CallsSeen::UntilDeadline;
        let outcome = dropped(span, "analyzer_timeout", by_content);
        return Looked { outcome, ran: Some(ran), rest: None, left_out, calls };
    }
    if ran.failed {
        let outcome = dropped(span, "analyzer_error", true);
        return Looked { outcome, ran: Some(ran), rest: None, left_out, calls };
    }
    span.security_score = Some(score(&span.security_findings));
    let outcome = if ran.detectors.is_empty() { Outcome::Nothing } else { Outcome::Whole };
    Looked { outcome, ran: Some(ran), rest, left_out, calls }
}

/// Says which detectors are switched on and were not ready.
fn note_absent(span: &mut SpanRecord, analyser: &Analyser, ran: Option<&Ran>) {
    let Some(absent) = ran.map(|ran| ran.absent).filter(|absent| !absent.is_empty()) else { return };
    let names: Vec<&str> = analyser.names(absent).collect();
    span.tags.insert(Cow::Borrowed("absent_models"), names.join(","));
}

/// Adds the detectors that ran to those the record names.
fn note_detectors(span: &mut SpanRecord, analyser: &Analyser, ran: &Ran) {
    for name in analyser.names(ran.detectors) {
        if !span.detectors.iter().any(|known| known == name) {
            span.detectors.push(Cow::Borrowed(name));
        }
    }
    tag_second_stage(span, ran.second_stage_skipped);
}

/// Says why the second stage was not asked about all it was to be asked about, beside what is said of that already.
pub(crate) fn tag_second_stage(span: &mut SpanRecord, why: Skips) {
    if why.is_empty() {
        return;
    }
    let mut all = span.tags.get(SECOND_STAGE_SKIPPED).map_or(Skips::default(), |tag| Skips::of_tag(tag));
    all.add(why);
    if let Some(tag) = all.tag() {
        span.tags.insert(Cow::Borrowed(SECOND_STAGE_SKIPPED), tag.into_owned());
    }
}

/// Whether what was found stands in the answer.
fn is_of_answer(finding: &Finding) -> bool {
    finding.location.starts_with("response")
}

fn dropped(span: &mut SpanRecord, reason: &'static str, by_content: bool) -> Outcome {
    span.security_score = None;
    drop_tags(span, reason);
    Outcome::Dropped { reason, by_content }
}

fn take_request(span: &mut SpanRecord, mut view: RequestView) {
    if span.model.is_none() {
        span.model = view.model.take();
    }
    span.streaming |= view.stream == Some(true);
    if span.session_id.is_none() {
        span.session_id = view.session_id.take();
    }
    span.frame = view.frame.take();
    if let Some(rpc) = view.rpc.take() {
        take_rpc(span, *rpc);
    }
    let (mut text, mut parts) = view.into_record();
    prompt_order::instructions_first(&mut text, &mut parts, span.frame.as_deref_mut());
    span.parts = parts;
    if !text.is_empty() {
        span.prompt = Some(text);
    }
}

/// What a request by JSON-RPC asks for: its method, and the tools it calls.
fn take_rpc(span: &mut SpanRecord, rpc: RpcCall) {
    // An answer to a server's own request has none.
    span.tags.insert(Cow::Borrowed(RPC_METHOD), rpc.method.unwrap_or_else(|| "response".to_owned()));
    for call in rpc.calls {
        span.events.push(SpanEvent {
            timestamp: Timestamp::now(),
            event_type: Cow::Borrowed("tool_call"),
            description: format!("the application called tool `{}`", call.name),
            data: BTreeMap::from([("arguments".to_owned(), call.arguments)]),
        });
    }
}

/// Keeps the provider's id of the answer, by which a report of the same call is known.
fn note_id(span: &mut SpanRecord, id: Option<String>) {
    if let Some(id) = id {
        // A record that is being made has room.
        let _full = span.attributes.insert(RESPONSE_ID, id.into()).is_err();
    }
}

fn take_answer(span: &mut SpanRecord, mut answer: Answer) -> Bill {
    span.parts.extend(answer.part_records());
    let of_a_later_report = if answer.pending || answer.ended { answer.response_id.clone() } else { None };
    if answer.first_text_seen || answer.usage.is_some() {
        note_id(span, answer.response_id.take());
    }
    let mut bill = Bill {
        usage: answer.usage.unwrap_or_default(),
        batch: answer.batch,
        model: answer.model,
        complete: answer.complete,
        response_id: of_a_later_report,
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
