//! Where every exchange ends: once, whatever happened. The journal is opened when a request head has been read and
//! settles when it is dropped, so a refusal, a vanished client, an upstream failure and even a panic are recorded,
//! counted and released like an answer.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_config::settings::{TokenCap, Tokenizer};
use weir_config::vocab::{Dialect, Finding, Provider, Severity, Timestamp, TraceId, Unread, UnreadSet, score};
use weir_inference::{DetectorSet, Plan, Skips};
use weir_storage::record::{ANSWERED_BY, SpanEvent, SpanRecord, WEIR};

use super::answer_copy::AnswerCopy;
use super::body_copies::BodyCopies;
use super::closing::{Closing, File, How, Step, close};
use super::complete::{Finish, complete, drop_tags, tag_second_stage};
use super::inspection::Rest;
use super::made::Maker;
use super::masking::Masking;
use super::publish::Publish;
use super::text::RequestText;
use crate::enforce::ActingTexts;
use crate::exchange::{Analysis, Moments, Refusal, Skip};
use crate::limits::kept_bytes_max;
use crate::meter::Counted;
use crate::money::Reservation;
use crate::observe::AnswerReader;
use crate::process::log_entry::LogEntry;
use crate::process::{Core, InEffect};
use crate::record::{CallIds, Permit, blank, name_of};
use crate::rewrite::Changes;
use crate::wire::RequestLine;

/// Detectors that look at a call as a rule: room for them is made at once.
const DETECTORS_USUAL: usize = 8;

/// What is known of a call when its journal is opened.
pub(crate) struct Opening {
    /// Whose it is, and under which ids.
    pub(crate) ids: CallIds,
    /// From which address it came.
    pub(crate) source: IpAddr,
    pub(crate) dialect: Dialect,
    pub(crate) moments: Moments,
    pub(crate) line: RequestLine,
    /// Whether the provider charges for requests like this one.
    pub(crate) billable: bool,
    /// The request fetches an answer that another one began.
    pub(crate) retrieval: bool,
    /// What their provider calls the results of a batch, where those may be what it fetches.
    pub(crate) results: Option<Box<str>>,
    /// Why analysis will not take place, if so.
    pub(crate) skip: Option<Skip>,
    /// Whether the breakers let the record be stored.
    pub(crate) storable: bool,
}

/// What is known of the request's text before it is forwarded. It is kept here and nowhere else: the stages decide by it, and the
/// record takes it over.
pub(crate) struct Inspection {
    /// The text itself.
    pub(crate) text: RequestText,
    /// Whether it was analysed.
    pub(crate) analysis: Analysis,
    /// What was found; of an analysis that was cut it counts for the decision and not for the record, which is analysed again.
    pub(crate) findings: Vec<Finding>,
    /// Names that were found where personal data is redacted without a word: they decide nothing, and tell the record what to take out.
    pub(crate) names: Vec<Finding>,
    /// What is to be changed in the body before it is forwarded; `None` where nobody has looked for it.
    pub(crate) changes: Option<Box<Changes>>,
    /// Texts that are known from now on when the request is forwarded (`enforcement.scope`).
    pub(crate) acting: Option<Box<ActingTexts>>,
    /// What the second stage is still to look at for the record, where nobody waits for it and all else has been looked at.
    pub(crate) rest: Option<Box<Rest>>,
    /// The detectors that looked at it.
    pub(crate) detectors: DetectorSet,
    /// What others said of it who were waited for: it is part of the record whatever became of the analysis.
    pub(crate) outside: Vec<(&'static str, Vec<Finding>)>,
    /// One of them did not say anything in time.
    pub(crate) misses_verdict: bool,
}

/// The journal of one exchange.
pub(crate) struct Journal {
    pub(crate) core: Rc<Core>,
    pub(crate) settings: Rc<InEffect>,
    /// Whose the exchange is, and under which ids.
    pub(crate) ids: CallIds,
    pub(crate) dialect: Dialect,
    pub(crate) moments: Moments,
    pub(crate) inspection: Inspection,
    /// `None` when neither storage nor analysis nor cost estimation wants a record, and after settling.
    span: Option<Box<SpanRecord>>,
    store: bool,
    answer: AnswerCopy,
    /// Where the call gets a receipt.
    copies: Option<Box<BodyCopies>>,
    /// What is known already not to be read of the request.
    unread: UnreadSet,
    /// What kept bodies took from the budget.
    permit: Option<Permit>,
    billable: bool,
    retrieval: bool,
    results: Option<Box<str>>,
    reservation: Option<Box<Reservation>>,
    token_cap: Option<TokenCap>,
    /// Whoever sends it may not say for which agent: its key is limited, and rules that allow more to some agents are none for it.
    pub(crate) doubts_agent: bool,
    /// Reads what the answer says was made.
    pub(crate) maker: Option<Box<Maker>>,
    status: Option<u16>,
    source: IpAddr,
    /// It ends without a record.
    forgotten: bool,
    /// For the log.
    log_entry: LogEntry,
}

impl Journal {
    /// Opens the journal.
    pub(crate) fn open(core: &Rc<Core>, settings: &Rc<InEffect>, opening: Opening) -> Self {
        let Opening { ids, source, dialect, moments, line, billable, retrieval, results, skip, storable } = opening;
        let store = settings.enable_trace_storage && storable;
        if !storable && settings.enable_trace_storage {
            core.meter.dropped("storage", "circuit_breaker_open");
        }
        if let Some(skip) = skip {
            core.meter.dropped("inference", skip.reason());
        }
        // What a call used and cost is counted whatever becomes of its text and its record.
        let counted = settings.cost_caps.enabled || settings.cost_estimation.enabled;
        let wanted = store || skip.is_none() || counted || core.process.parts.recording.feed.is_some();
        let copies = (wanted && settings.receipts.enabled).then(|| {
            let permit = core.process.bodies.of(ids.tenant_id).permit();
            Box::new(BodyCopies::new(permit, kept_bytes_max(settings), settings.plan.fingerprint()))
        });
        let mut entry = LogEntry::of_call(ids.tenant_id, ids.trace_id);
        entry.line = Some(line);
        Self {
            span: wanted.then(|| blank(&ids)),
            answer: AnswerCopy::new(core.process.bodies.of(ids.tenant_id).permit()),
            copies,
            core: Rc::clone(core),
            settings: Rc::clone(settings),
            ids,
            dialect,
            moments,
            inspection: Inspection {
                text: RequestText::None,
                analysis: skip.map_or(Analysis::Due, Analysis::Skipped),
                findings: Vec::new(),
                names: Vec::new(),
                changes: None,
                acting: None,
                rest: None,
                detectors: DetectorSet::default(),
                outside: Vec::new(),
                misses_verdict: false,
            },
            store,
            unread: UnreadSet::default(),
            permit: None,
            billable,
            retrieval,
            results,
            reservation: None,
            token_cap: None,
            doubts_agent: false,
            maker: None,
            status: None,
            source,
            forgotten: false,
            log_entry: entry,
        }
    }

    /// Under which trace the client finds the record.
    pub(crate) fn trace_id(&self) -> TraceId {
        self.ids.trace_id
    }

    /// Whether anybody wants to know what was said.
    pub(crate) fn wants_text(&self) -> bool {
        self.span.is_some()
    }

    /// Keeps a budget permit until the text it stands for has been dealt with.
    pub(crate) fn hold(&mut self, permit: Permit) {
        match &mut self.permit {
            Some(held) => held.join(permit),
            None => self.permit = Some(permit),
        }
    }

    /// A head with this status is going to the client.
    pub(crate) fn answered(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// The answer is a stream.
    pub(crate) fn streams(&mut self) {
        if let Some(span) = &mut self.span {
            span.streaming = true;
        }
    }

    /// From now on the answer is read.
    pub(crate) fn read_answer(&mut self, reader: Box<AnswerReader>) {
        self.answer.begin(reader);
    }

    /// Content of the answer is on its way to the client.
    pub(crate) fn relayed<'a>(&mut self, bytes: usize, pieces: impl Iterator<Item = &'a [u8]> + Clone) {
        self.log_entry.bytes += bytes as u64;
        if bytes > 0 {
            if let Some(copies) = &mut self.copies {
                copies.keep_answer(pieces.clone());
            }
            let streams = self.span.as_ref().is_some_and(|span| span.streaming);
            self.answer.feed(bytes, pieces, streams);
        }
    }

    /// The request's body has gone to the provider.
    pub(crate) fn note_sent(&mut self, body: &Bytes) {
        if let Some(copies) = &mut self.copies {
            copies.keep_request(body.clone(), true);
        }
    }

    /// So many pieces were taken out of what was sent on.
    pub(crate) fn note_redacted(&mut self, pieces: usize) {
        if let Some(copies) = &mut self.copies {
            copies.redacted(pieces);
        }
    }

    /// Content of an answer that makes something is about to go to the client.
    pub(crate) fn note_made<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) {
        if let Some(maker) = &mut self.maker
            && !maker.feed(pieces, &self.core.process.parts.policy.objects)
        {
            self.core.meter.dropped("objects", "queue_full");
        }
    }

    /// What has been read of the answer so far, where somebody reads it.
    pub(crate) fn answer_reader(&mut self) -> Option<&AnswerReader> {
        self.answer.reader()
    }

    /// Whether the last message of a stream has been relayed.
    pub(crate) fn answer_is_complete(&mut self) -> bool {
        self.answer.is_complete()
    }

    /// So many bytes were the whole answer.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.log_entry.bytes = bytes;
    }

    /// From which address the request came.
    pub(crate) const fn source(&self) -> IpAddr {
        self.source
    }

    /// Takes the record back: what it is of has a record elsewhere.
    pub(crate) fn forget(&mut self) {
        self.forgotten = true;
    }

    /// Something passes that nobody reads.
    pub(crate) const fn passes_unread(&mut self, what: Unread) {
        self.unread.insert(what);
    }

    /// The connection has become a tunnel. What is read of it has records of its own.
    pub(crate) fn tunnelled(&mut self) {
        self.streams();
        if self.inspection.analysis == Analysis::Due {
            self.inspection.analysis = Analysis::Skipped(Skip::WebSocket);
        }
    }

    /// Adds a finding about what the gateway did itself; nobody decides by it.
    pub(crate) fn note(&mut self, finding: Finding) {
        if let Some(span) = &mut self.span {
            span.security_findings.push(finding);
        }
    }

    /// Whether the client asks again after a refusal that is meant to be final.
    pub(crate) fn client_retries(&self) -> bool {
        self.settings.enforcement.is_retrying(self.ids.client.as_deref())
    }

    /// Sets a tag.
    pub(crate) fn tag(&mut self, name: impl Into<Cow<'static, str>>, value: String) {
        if let Some(span) = &mut self.span {
            span.tags.insert(name.into(), value);
        }
    }

    /// The same where the value has to be made first: not for nothing.
    pub(crate) fn tag_with(&mut self, name: &'static str, value: impl FnOnce() -> String) {
        if self.span.is_some() {
            self.tag(name, value());
        }
    }

    /// The second stage was not asked about all it was to be asked about.
    pub(crate) fn skip_second_stage(&mut self, why: Skips) {
        if let Some(span) = &mut self.span {
            tag_second_stage(span, why);
        }
    }

    /// Weir answers with an error itself, whose body has so many bytes.
    pub(crate) fn refused(&mut self, refusal: &Refusal, bytes: u64) {
        self.status = Some(refusal.status);
        self.tag(ANSWERED_BY, WEIR.to_owned());
        self.failed(refusal.error_type, &refusal.message);
        self.log_entry.refused(refusal);
        self.log_entry.bytes = bytes;
    }

    /// Something went wrong after the head had been sent, or with nobody left to tell.
    pub(crate) fn failed(&mut self, error_type: &'static str, message: &str) {
        self.log_entry.failed(error_type, message);
        if let Some(span) = &mut self.span {
            span.error_type = Some(error_type.to_owned());
            span.error_message = Some(message.to_owned());
        }
    }

    /// The client's connection ended before it had everything: it has left, or we have cut it because its credential was taken
    /// away.
    pub(crate) fn cut_off(&mut self, is_revoked: bool) {
        let (event, message) = if is_revoked {
            (
                "credential_revoked",
                "the credential that let this call in was revoked, replaced or deleted with its tenant, and the call ended \
                 with it",
            )
        } else {
            ("client_disconnected", "the client closed the connection before the answer was complete")
        };
        self.event(event, message);
        self.failed(event, message);
    }

    /// Notes something that happened.
    pub(crate) fn event(&mut self, event_type: &'static str, description: &str) {
        if let Some(span) = &mut self.span {
            span.events.push(SpanEvent {
                timestamp: Timestamp::now(),
                event_type: Cow::Borrowed(event_type),
                description: description.to_owned(),
                data: BTreeMap::new(),
            });
        }
    }

    /// The request has reserved an estimate, which settling replaces by the real cost, and its usage is held to `token_cap`, too.
    pub(crate) fn reserved(&mut self, reservation: Reservation, token_cap: Option<TokenCap>) {
        (self.reservation, self.token_cap) = (Some(Box::new(reservation)), token_cap);
    }

    /// Whether it may fetch the results of a batch, whose calls are charged then.
    pub(crate) const fn fetches_results(&self) -> bool {
        self.results.is_some()
    }

    /// Whether what it fetches counts in a budget: then all of it has to be seen.
    pub(crate) const fn counts_results(&self) -> bool {
        self.results.is_some() && self.reservation.is_some()
    }

    /// The provider has the whole request, and nobody will learn what it makes of it: it may bill it, so the estimate stands.
    pub(crate) fn left_unanswered(&mut self) {
        self.reservation = None;
    }

    /// It turns out to go to another provider than its head said.
    pub(crate) fn goes_to(&mut self, provider: Provider, priced_as: Option<Provider>) {
        if let Some(span) = &mut self.span {
            span.provider = name_of(&provider);
        }
        (self.ids.provider, self.ids.priced_as) = (provider, priced_as);
    }

    /// A try at one of several upstreams has ended; `outcome` is a status or what there was instead of one.
    pub(crate) fn tried(&mut self, upstream: &str, outcome: &str, took: Duration) {
        if let Some(span) = &mut self.span {
            let data = [("upstream", upstream.to_owned()), ("outcome", outcome.to_owned())];
            let took = ("duration_ms", format!("{:.3}", milliseconds(took)));
            span.events.push(SpanEvent {
                timestamp: Timestamp::now(),
                event_type: Cow::Borrowed("upstream_attempt"),
                description: format!("the request was sent to `{upstream}`: {outcome}"),
                data: data.into_iter().chain([took]).map(|(name, value)| (name.to_owned(), value)).collect(),
            });
        }
    }

    /// What enforcement decided.
    pub(crate) fn enforced(&mut self, decision: &'static str) {
        if let Some(span) = &mut self.span {
            span.enforcement = Cow::Borrowed(decision);
        }
    }

    /// Ends the account; what is waited for after that is no part of the exchange.
    fn settle(&mut self) {
        if std::thread::panicking() {
            self.status = self.status.or(Some(500));
            self.failed("internal_error", "a bug in Weir ended this exchange; see the log");
            // What it cost will never be known: the estimate stands.
            self.reservation = None;
        }
        let total = self.moments.started.elapsed();
        let overhead_us = micros(self.moments.overhead(total));
        let entry = std::mem::take(&mut self.log_entry);
        let answer_wire_bytes = entry.bytes;
        let access = entry.end(&self.core.process, self.status, total, self.moments.awaiting_upstream);
        let provider_label = self.ids.provider.label();
        let Some(mut span) = self.span.take() else {
            let status = self.status.unwrap_or(0);
            self.core
                .meter
                .request(&Counted { overhead_us, ..Counted::refused(provider_label, status, micros(total)) });
            drop(self.permit.take());
            if let Some(access) = access {
                access.write(&self.core.process, None);
            }
            return;
        };
        span.end_time = Timestamp::from_micros(span.start_time.micros().saturating_add_unsigned(micros(total)));
        span.duration_ms = milliseconds(total);
        span.overhead_us = Some(overhead_us);
        span.status_code = self.status;
        span.time_to_first_token_ms =
            self.moments.first_byte.map(|at| milliseconds(at.saturating_duration_since(self.moments.started)));
        let publish = Publish {
            provider_label,
            store: self.store,
            masking: Masking::of(&self.settings),
            show_cost: self.settings.cost_estimation.enabled,
            reservation: self.reservation.take(),
            token_cap: self.token_cap,
            // On every span it would cost a call 0.8 % of its instructions on the core, for whoever never asks.
            source: self.settings.action_router.enabled.then_some(self.source),
            access,
            retrieval: self.retrieval,
            results: self.results.take(),
            may_wait: false,
            reported: matches!(
                self.inspection.analysis,
                Analysis::Skipped(Skip::Timeout | Skip::QueueFull | Skip::Error)
            ),
        };
        let priced = (self.billable || publish.results.is_some())
            && (self.settings.cost_estimation.enabled || publish.reservation.is_some());
        let finish = self.finish(span, answer_wire_bytes, priced);
        let how = How {
            limit: Duration::from_millis(self.settings.limits.security_analysis_timeout_ms),
            vocabulary: self.settings.cost_estimation.tokenizer == Tokenizer::Auto,
        };
        if !finish.is_long()
            && let Ok(mut scratch) = self.core.scratch.try_borrow_mut()
        {
            let process = &self.core.process;
            let finished = complete(process, &mut scratch, finish);
            drop(scratch);
            // Whoever finds the call recorded or in the log finds its memory given back.
            drop((self.permit.take(), self.answer.take_permit(&process.bodies)));
            close(process, &self.core.meter, how, finished, publish);
        } else {
            let process = &self.core.process;
            let held = (self.permit.take(), self.answer.take_permit(&process.bodies));
            let noted = process.note_unsettled(finish.span.trace_id);
            let file = File { process: Arc::clone(process), publish, how, held: Some(held), noted };
            Closing::new(file, Step::Complete(Box::new(finish))).submit();
        }
    }

    /// What completing the record takes.
    fn finish(&mut self, mut span: Box<SpanRecord>, answer_wire_bytes: u64, priced: bool) -> Finish {
        let (analyse, request_analysed) = self.plan(&mut span);
        let mut copies = self.copies.take();
        if let (Some(copies), RequestText::Raw(raw)) = (&mut copies, &self.inspection.text)
            && !copies.has_request()
        {
            copies.keep_request(raw.body.clone(), !raw.truncated);
        }
        Finish {
            span,
            copies,
            dialect: self.dialect,
            text: std::mem::replace(&mut self.inspection.text, RequestText::None),
            request_analysed,
            rest: self.inspection.rest.take().filter(|_| request_analysed),
            answer: self.answer.reader.take(),
            answer_bytes: self.answer.bytes,
            answer_wire_bytes,
            answer_lost: self.answer.lost,
            analyse,
            deadline: None,
            decoded_bytes_max: kept_bytes_max(&self.settings),
            analysis_text_max: self.settings.security_analysis.max_analysis_text_bytes,
            unread: self.unread,
            doubts_agent: self.doubts_agent,
            path_model: self.ids.path_model.take(),
            priced_as: self.ids.priced_as.take(),
            priced,
            guarded: self.settings.output_safety.enabled,
            from_data: self.settings.security_analysis.action_from_data,
        }
    }

    /// How the rest of the analysis is to be done, and whether the request's part is done already.
    fn plan(&mut self, span: &mut SpanRecord) -> (Option<Arc<Plan>>, bool) {
        let plan = Some(Arc::clone(&self.settings.plan));
        for (name, findings) in self.inspection.outside.drain(..) {
            span.detectors.push(Cow::Borrowed(name));
            if self.inspection.analysis != Analysis::Ran {
                span.security_findings.extend(findings);
            }
        }
        match self.inspection.analysis {
            Analysis::Ran => {
                span.security_findings.append(&mut self.inspection.findings);
                span.security_findings.append(&mut self.inspection.names);
                let analyser = &self.core.process.parts.inspection.analyser;
                span.detectors.reserve(DETECTORS_USUAL);
                span.detectors.extend(analyser.names(self.inspection.detectors).map(Cow::Borrowed));
                span.security_score = Some(score(&span.security_findings));
                (plan, true)
            }
            // What enforcement could not wait for is still looked at for the record.
            Analysis::Rules | Analysis::Due => (plan, false),
            Analysis::Skipped(skip @ (Skip::QueueFull | Skip::Error)) => {
                undecided(span, skip);
                (plan, false)
            }
            Analysis::Skipped(skip @ Skip::Timeout) => {
                undecided(span, skip);
                let said =
                    "what becomes of the request was decided before its analysis had ended (`enforcement.timeout_ms`)";
                span.security_findings.push(Finding::new("analysis_timeout", Severity::Info, 1.0, "rules", said));
                (plan, false)
            }
            Analysis::Skipped(Skip::WebSocket) => (None, false),
            Analysis::Skipped(skip @ (Skip::Disabled | Skip::BreakerOpen)) => {
                drop_tags(span, skip.reason());
                (None, false)
            }
        }
    }
}

/// Says that nobody could wait for the analysis, whatever it brings for the record.
fn undecided(span: &mut SpanRecord, skip: Skip) {
    span.tags.insert(Cow::Borrowed("analysis_skipped"), skip.reason().to_owned());
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.forgotten && !std::thread::panicking() {
            return;
        }
        self.settle();
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds with microsecond resolution, as the record shows them.
fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1_000.0
}
