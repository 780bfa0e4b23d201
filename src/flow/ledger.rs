//! Where every exchange ends: once, whatever happened. The ledger is opened when a request head has been read and
//! settles when it is dropped, so a refusal, a vanished client, an upstream failure and even a panic are recorded,
//! counted and released like an answer.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weir_config::Settings;
use weir_config::settings::{TokenCap, Tokenizer};
use weir_config::vocab::{Dialect, Finding, Provider, Timestamp, TraceId, Unread, UnreadSet, score};
use weir_inference::{Job, Options, Turn};
use weir_storage::record::{ANSWERED_BY, SpanEvent, SpanRecord, WEIR};

use super::charge::better_counter;
use super::complete::{Finish, Finished, complete, complete_unanalysed, drop_tags, survive};
use super::publish::Publish;
use super::told::Told;
use super::{Core, Process};
use crate::enforce::Decision;
use crate::exchange::{Analysis, Moments, Refusal, RequestText, Skip};
use crate::meter::CoreMeter;
use crate::money::Reservation;
use crate::observe::AnswerReader;
use crate::record::{Identity, Permit, blank};

/// The account of one exchange.
pub(crate) struct Ledger {
    core: Rc<Core>,
    settings: Rc<Settings>,
    pub(crate) moments: Moments,
    provider_label: &'static str,
    dialect: Dialect,
    pub(crate) trace_id: TraceId,
    /// `None` when neither storage nor analysis nor cost estimation wants a record, and after settling.
    span: Option<Box<SpanRecord>>,
    store: bool,
    pub(crate) text: RequestText,
    pub(crate) answer: Option<AnswerReader>,
    /// Bytes of text the answer holds, about.
    pub(crate) answer_bytes: usize,
    /// Reading it has failed.
    pub(crate) answer_lost: bool,
    pub(crate) analysis: Analysis,
    /// What is known already not to be read of the request.
    pub(crate) unread: UnreadSet,
    /// What kept bodies took from the budget.
    permit: Option<Permit>,
    /// What the kept answer took from it.
    answer_permit: Permit,
    /// The model the request's path named.
    path_model: Option<String>,
    /// Whose prices hold, where that is not the span's provider.
    priced_as: Option<Provider>,
    /// Whether the provider charges for requests like this one.
    pub(crate) billable: bool,
    /// The request fetches an answer that another one began.
    pub(crate) retrieval: bool,
    reservation: Option<Reservation>,
    token_cap: Option<TokenCap>,
    status: Option<u16>,
    /// For the log.
    pub(crate) told: Told,
    settled: bool,
}

impl Ledger {
    /// Opens the account. `admission` says why analysis will not take place, if so, and whether the breakers let the
    /// record be stored.
    pub(crate) fn open(
        core: &Rc<Core>,
        settings: &Rc<Settings>,
        moments: Moments,
        identity: &Identity,
        dialect: Dialect,
        (skip, storage): (Option<Skip>, bool),
    ) -> Self {
        let store = settings.enable_trace_storage && storage;
        if !storage && settings.enable_trace_storage {
            core.meter.dropped("storage", "circuit_breaker_open");
        }
        if skip == Some(Skip::BreakerOpen) {
            core.meter.dropped("inference", "circuit_breaker_open");
        }
        // What a call used and cost is counted whatever becomes of its text and its record.
        let counted = settings.cost_caps.enabled || settings.cost_estimation.enabled;
        let wanted = store || skip.is_none() || counted;
        let span = wanted.then(|| blank(identity));
        Self {
            settings: Rc::clone(settings),
            moments,
            provider_label: identity.provider.label(),
            dialect,
            trace_id: identity.trace_id,
            span,
            store,
            text: RequestText::None,
            answer: None,
            answer_bytes: 0,
            answer_lost: false,
            analysis: skip.map_or(Analysis::Due, Analysis::Skipped),
            unread: UnreadSet::default(),
            permit: None,
            answer_permit: core.process.bodies.of(identity.tenant_id).permit(),
            path_model: identity.path_model.clone(),
            priced_as: identity.priced_as.clone(),
            billable: false,
            retrieval: false,
            reservation: None,
            token_cap: None,
            status: None,
            told: Told::of_call(identity.tenant_id, identity.trace_id),
            settled: false,
            core: Rc::clone(core),
        }
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

    /// Makes room for `bytes` more of the answer. Without it the answer flows on, and of its record only the end is kept.
    pub(crate) fn make_room(&mut self, bytes: usize) -> bool {
        // Most bytes of a stream's frames are not text.
        let kept = if self.is_stream() { bytes / 8 } else { bytes };
        self.answer_bytes += kept;
        self.answer_permit.grow(kept)
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

    /// The connection has become a tunnel: what passes is neither read nor scored.
    pub(crate) fn tunnelled(&mut self) {
        self.unread.insert(Unread::WebSocket);
        self.streams();
        if self.analysis == Analysis::Due {
            self.analysis = Analysis::Skipped(Skip::WebSocket);
        }
    }

    /// Sets a tag.
    pub(crate) fn tag(&mut self, name: &'static str, value: String) {
        if let Some(span) = &mut self.span {
            span.tags.insert(Cow::Borrowed(name), value);
        }
    }

    /// Whether the answer is a stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.span.as_ref().is_some_and(|span| span.streaming)
    }

    /// Weir answers with an error itself.
    pub(crate) fn refused(&mut self, refusal: &Refusal) {
        self.status = Some(refusal.status);
        self.tag(ANSWERED_BY, WEIR.to_owned());
        self.failed(refusal.error_type, &refusal.message);
        self.told.refused(refusal);
    }

    /// Something went wrong after the head had been sent, or with nobody left to tell.
    pub(crate) fn failed(&mut self, error_type: &'static str, message: &str) {
        self.told.failed(error_type, message);
        if let Some(span) = &mut self.span {
            span.error_type = Some(error_type.to_owned());
            span.error_message = Some(message.to_owned());
        }
    }

    /// The client's connection ended before it had everything: it has left, or we have cut it because its credential was taken
    /// away.
    pub(crate) fn cut_off(&mut self, is_revoked: bool) {
        if !is_revoked {
            return self.client_left();
        }
        let message = "the credential that let this call in was revoked, replaced or deleted with its tenant, and the call ended \
                       with it";
        self.event("credential_revoked", message);
        self.failed("credential_revoked", message);
    }

    fn client_left(&mut self) {
        self.event("client_disconnected", "the client closed the connection before the answer was complete");
        self.failed("client_disconnected", "the client closed the connection before the answer was complete");
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

    /// The request has been analysed before forwarding.
    pub(crate) fn inspected(&mut self, findings: Vec<Finding>, detectors: &[&'static str]) {
        self.analysis = Analysis::Ran;
        if let Some(span) = &mut self.span {
            span.security_findings = findings;
            span.detectors.extend(detectors.iter().map(|name| Cow::Borrowed(*name)));
        }
    }

    /// Adds findings that belong to the request as a whole.
    pub(crate) fn add_finding(&mut self, finding: Finding) {
        if let Some(span) = &mut self.span {
            span.security_findings.push(finding);
        }
    }

    /// The request has reserved an estimate; settling replaces it by the real cost.
    pub(crate) fn reserved(&mut self, reservation: Reservation) {
        self.reservation = Some(reservation);
    }

    /// The provider has the whole request, and nobody will learn what it makes of it: it may bill it, so the estimate stands.
    pub(crate) fn left_unanswered(&mut self) {
        self.reservation = None;
    }

    /// The real usage is to be held to this cap, too.
    pub(crate) fn hold_to_tokens(&mut self, cap: TokenCap) {
        self.token_cap = Some(cap);
    }

    /// What enforcement decided.
    pub(crate) fn enforced(&mut self, decision: Decision) {
        if let Some(span) = &mut self.span {
            span.enforcement = Cow::Borrowed(decision.as_str());
        }
    }

    /// Ends the account; what is waited for after that is no part of the exchange. Once is enough.
    pub(crate) fn settle(&mut self) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        if std::thread::panicking() {
            self.status = self.status.or(Some(500));
            self.failed("internal_error", "a bug in Weir ended this exchange; see the log");
            // What it cost will never be known: the estimate stands.
            self.reservation = None;
        }
        let total = self.moments.started.elapsed();
        let overhead_us = micros(self.moments.overhead(total));
        let told = std::mem::take(&mut self.told);
        let answer_wire_bytes = told.bytes;
        let access = told.end(&self.core.process, self.status, total, self.moments.awaiting_upstream);
        let Some(mut span) = self.span.take() else {
            let status = self.status.unwrap_or(0);
            self.core.meter.request(self.provider_label, None, status, micros(total), overhead_us, None, None);
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
        let (analyse, request_analysed) = self.plan(&mut span);
        let finish = Finish {
            span,
            dialect: self.dialect,
            text: std::mem::replace(&mut self.text, RequestText::None),
            request_analysed,
            answer: self.answer.take(),
            answer_bytes: self.answer_bytes,
            answer_wire_bytes,
            answer_lost: self.answer_lost,
            analyse,
            decoded_bytes_max: super::kept_bytes_max(&self.settings),
            analysis_text_max: self.settings.security_analysis.max_analysis_text_bytes,
            unread: self.unread,
            path_model: self.path_model.take(),
            priced_as: self.priced_as.take(),
            priced: self.billable && (self.settings.cost_estimation.enabled || self.reservation.is_some()),
        };
        let publish = Publish {
            provider_label: self.provider_label,
            store: self.store,
            show_cost: self.settings.cost_estimation.enabled,
            reservation: self.reservation.take(),
            token_cap: self.token_cap,
            access,
            retrieval: self.retrieval,
            reported: matches!(self.analysis, Analysis::Skipped(Skip::Timeout | Skip::QueueFull | Skip::Error)),
        };
        if !finish.is_long()
            && let Ok(mut scratch) = self.core.scratch.try_borrow_mut()
        {
            let process = &self.core.process;
            let analysed = finish.analyse.is_some();
            let finished = complete(process, &process.parts.analyser, &mut scratch, finish);
            if analysed && finished.ran.is_none() {
                // A detector failed half way; its scratch memory is not to be trusted.
                process.parts.analyser.renew(&mut scratch);
            }
            if self.settings.cost_estimation.tokenizer == Tokenizer::Auto && better_counter(&finished.span).is_some() {
                self.count_on_pool(finished, publish);
            } else {
                publish.run(process, &self.core.meter, finished);
            }
        } else {
            self.hand_over(finish, publish);
        }
    }

    /// How the rest of the analysis is to be done, and whether the request's part is done already.
    fn plan(&self, span: &mut SpanRecord) -> (Option<Options>, bool) {
        let jailbreak = self.settings.security_analysis.jailbreak_enabled;
        let options = Options { jailbreak, tenant: span.tenant_id, deadline: None };
        match self.analysis {
            Analysis::Ran => {
                span.security_score = Some(score(&span.security_findings));
                (Some(options), true)
            }
            // What enforcement could not wait for is still looked at for the record.
            Analysis::Due | Analysis::Skipped(Skip::Timeout | Skip::QueueFull | Skip::Error) => (Some(options), false),
            Analysis::Skipped(Skip::WebSocket) => (None, false),
            Analysis::Skipped(skip @ (Skip::Disabled | Skip::BreakerOpen)) => {
                drop_tags(span, skip.reason());
                (None, false)
            }
        }
    }

    /// Long texts are read and analysed on the inference pool, and stored unanalysed when that is full or too slow.
    fn hand_over(&mut self, finish: Finish, publish: Publish) {
        let process = Arc::clone(&self.core.process);
        let queue_full = Arc::new(AtomicBool::new(false));
        let was_full = Arc::clone(&queue_full);
        let limit = Duration::from_millis(self.settings.limits.security_analysis_timeout_ms);
        let deadline = Instant::now() + limit;
        let bytes = finish.text_bytes();
        let was_busy = process.parts.inference.is_busy();
        let analysed = finish.analyse.is_some();
        let permit = (self.permit.take(), std::mem::replace(&mut self.answer_permit, process.bodies.permit()));
        let vocabulary = self.settings.cost_estimation.tokenizer == Tokenizer::Auto;
        let run = Box::new(move |turn: Turn<'_>| {
            let _held = permit;
            let lost = Lost(Arc::clone(&process));
            let on_pool = vocabulary && matches!(turn, Turn::Run(..));
            let finished = match turn {
                Turn::Run(analyser, scratch) => {
                    let mut finish = finish;
                    if let Some(options) = &mut finish.analyse {
                        options.deadline = Some(deadline);
                    }
                    let finished = complete(&process, analyser, scratch, finish);
                    if analysed && finished.ran.is_none() {
                        analyser.renew(scratch);
                    }
                    finished
                }
                // This runs on the core: what would have to be read first is left out.
                Turn::Expired if was_full.load(Ordering::Relaxed) => {
                    complete_unanalysed(&process, finish.without_unread_text(), "queue_full", true)
                }
                Turn::Expired => complete_unanalysed(&process, finish, "analyzer_timeout", was_busy),
            };
            let mut finished = finished;
            if on_pool && better_counter(&finished.span).is_some() {
                survive(|| finished.recount(&process.parts.prices));
            }
            with_pool_meter(&process, |meter| publish.run(&process, meter, finished));
            drop(lost);
        });
        if let Err(job) = self.core.process.parts.inference.submit(Job { bytes, deadline, run }) {
            queue_full.store(true, Ordering::Relaxed);
            (job.run)(Turn::Expired);
        }
    }
}

impl Ledger {
    /// Tokens that the provider did not count are counted on the pool, where loading a vocabulary and a long text hold
    /// nobody up; with the pool full the estimate stands.
    fn count_on_pool(&self, finished: Finished, publish: Publish) {
        let process = Arc::clone(&self.core.process);
        let limit = Duration::from_millis(self.settings.limits.security_analysis_timeout_ms);
        let texts = [&finished.span.prompt, &finished.span.response];
        let bytes = texts.into_iter().flatten().map(String::len).sum();
        let run = Box::new(move |turn: Turn<'_>| {
            let mut finished = finished;
            if matches!(turn, Turn::Run(..)) {
                survive(|| finished.recount(&process.parts.prices));
            }
            with_pool_meter(&process, |meter| publish.run(&process, meter, finished));
        });
        if let Err(job) = self.core.process.parts.inference.submit(Job { bytes, deadline: Instant::now() + limit, run })
        {
            (job.run)(Turn::Expired);
        }
    }
}

/// A record on its way through a job of the pool: one that a panic takes along is counted.
struct Lost(Arc<Process>);

impl Drop for Lost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.parts.registry.shared().dropped("inference", "panicked", 1);
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Pool threads have meters of their own: every cell has one writer.
pub(super) fn with_pool_meter(process: &Process, use_it: impl FnOnce(&CoreMeter)) {
    thread_local! {
        static METER: OnceCell<CoreMeter> = const { OnceCell::new() };
    }
    METER.with(|meter| use_it(meter.get_or_init(|| process.parts.registry.core())));
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds with microsecond resolution, as the record shows them.
fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1_000.0
}
