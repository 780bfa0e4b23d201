//! The thread that deals with batches: checks each span, has it completed as a proxied call is, and answers once all are committed.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::Cache;
use serde_json::json;
use weir_config::Settings;
use weir_config::vocab::{Dialect, Finding, TenantId, Timestamp, TraceId, UnreadSet, score};
use weir_inference::{Call, Scratch};
use weir_storage::record::SpanRecord;
use weir_storage::{Fate, NotWritten, SpanLog};

use super::beside::Beside;
use super::calls::{Brief, Counter, Standing};
use super::elsewhere::{self, Elsewhere};
use super::intake::{Busy, Job, SPANS_MAX, Taken};
use super::known::{Decided, Traces};
use super::span::{ReportedMessage, ReportedSpan, ReportedUsage};
use super::{body, check};
use crate::inspect::Takes;
use crate::meter::{CoreMeter, Model};
use crate::observe::{AnswerKind, AnswerReader};
use crate::process::Process;
use crate::record::{CallIds, blank};
use crate::rt;
use crate::settle::charge::uncharge;
use crate::settle::complete::{Finish, Finished, complete, complete_unanalysed};
use crate::settle::inspection::{self, How, Inspection, Rest, survive};
use crate::settle::masking::{MASKING_LIMIT, Masking, Means};
use crate::settle::models;
use crate::settle::publish::observe_detectors;
use crate::settle::text::{RawBody, RequestText};

/// Spans that are committed together.
const TOGETHER: usize = 256;
/// How long what was recorded a moment ago is waited for, so that a report of the same call finds it.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);
/// The tag of a span that was reported, and did not pass the gateway.
pub(super) const REPORTED: (&str, &str) = ("reported", "true");

/// One of the threads.
pub(super) struct Worker {
    process: Arc<Process>,
    log: Arc<dyn SpanLog>,
    traces: Arc<Traces>,
    settings: Cache<Arc<arc_swap::ArcSwap<Settings>>, Arc<Settings>>,
    beside: Option<(Arc<Settings>, Beside)>,
    scratch: Scratch,
    meter: CoreMeter,
}

impl Worker {
    pub(super) fn new(process: Arc<Process>, log: Arc<dyn SpanLog>, traces: Arc<Traces>) -> Self {
        let parts = &process.parts;
        let settings = Cache::new(Arc::clone(&parts.settings));
        let (scratch, meter) = (parts.inspection.analyser.scratch(), parts.registry.core());
        Self { process, log, traces, settings, beside: None, scratch, meter }
    }

    pub(super) fn answer(&mut self, mut job: Job) {
        let (tenant, spans) = (job.tenant, std::mem::take(&mut job.spans));
        let Some(taken) = survive(|| self.take(tenant, spans)) else {
            self.process.parts.registry.shared().panic();
            return job.reply(Err(Busy::because("the batch could not be dealt with; the gateway's log says why")));
        };
        if taken.is_err() {
            self.process.parts.registry.shared().dropped("ingest", "not_taken", 1);
        }
        job.reply(taken);
    }

    fn take(&mut self, tenant: TenantId, spans: Vec<ReportedSpan>) -> Result<Taken, Busy> {
        let mut taken = Taken::default();
        let now = Timestamp::now();
        if !self.settings.load().enable_trace_storage {
            let reason = "the gateway keeps no traces: `enable_trace_storage` is false";
            taken.rejected = (0..spans.len()).map(|at| (at, reason.to_owned())).collect();
            return Ok(taken);
        }
        let mut sound = Vec::with_capacity(spans.len());
        for (at, mut span) in spans.into_iter().enumerate() {
            rt::yielding::pause();
            let refused = if at < SPANS_MAX {
                check::refuse(&span, tenant, now)
            } else {
                Err(format!("a batch has room for {SPANS_MAX} spans; send it in parts"))
            };
            match refused {
                Ok(()) => {
                    check::trim(&mut span);
                    sound.push((at, span));
                }
                Err(reason) => taken.rejected.push((at, reason)),
            }
        }
        if sound.is_empty() {
            return Ok(taken);
        }
        // Until all of it is kept, nobody else decides about these traces.
        let traces = Arc::clone(&self.traces);
        let entered = traces.enter(tenant, sound.iter().map(|(_, span)| span.trace_id));
        self.await_records(entered.traces());
        let decided = self.decide(tenant, sound.iter().map(|(_, span)| brief(span)).collect())?;
        let new = decided.standings.iter().filter(|standing| matches!(standing, Standing::New(_))).count();
        let mut together = Vec::with_capacity(TOGETHER.min(sound.len()));
        for ((at, span), standing) in sound.into_iter().zip(&decided.standings) {
            let Standing::New(counted_by) = *standing else {
                taken.duplicates += 1;
                continue;
            };
            rt::yielding::pause();
            together.push((at, self.complete(tenant, span, counted_by)));
            if together.len() == TOGETHER {
                self.keep(&mut together, &mut taken)?;
            }
        }
        self.keep(&mut together, &mut taken)?;
        if taken.accepted == new {
            self.traces.learn(&*self.log, tenant, &decided);
        }
        Ok(taken)
    }

    /// Waits for the records of calls that passed the gateway a moment ago, so that their reports find them.
    fn await_records(&mut self, traces: impl Iterator<Item = TraceId>) {
        // Each of at most three steps of a record may take so long.
        let limit = Duration::from_millis(self.settings.load().limits.security_analysis_timeout_ms);
        if !self.process.await_settled(traces, limit * 3) {
            tracing::warn!(
                "reports were taken before the records of calls of their traces were made; such a call may count twice"
            );
        }
        let _late = self.log.flush(FLUSH_LIMIT);
    }

    fn decide(&self, tenant: TenantId, briefs: Vec<Brief>) -> Result<Decided, Busy> {
        self.traces.decide(&*self.log, tenant, briefs).map_err(|error| {
            tracing::warn!(%error, "reported spans were not taken: the store cannot be read");
            Busy::because("the store cannot be read at the moment")
        })
    }

    /// Commits what has gathered.
    fn keep(&self, together: &mut Vec<(usize, Kept)>, taken: &mut Taken) -> Result<(), Busy> {
        if together.is_empty() {
            return Ok(());
        }
        let (places, kept): (Vec<usize>, Vec<Kept>) = std::mem::take(together).into_iter().unzip();
        let (numbers, spans): (Vec<Numbers>, Vec<SpanRecord>) =
            kept.into_iter().map(|kept| (kept.numbers, *kept.span)).unzip();
        match self.log.insert(spans) {
            Ok(inserted) => {
                for ((at, numbers), fate) in places.into_iter().zip(&numbers).zip(inserted.fates) {
                    match fate {
                        Fate::Stored => {
                            taken.accepted += 1;
                            self.count(numbers);
                        }
                        // In another trace: only the store knows all of a tenant's ids.
                        Fate::Known => taken.duplicates += 1,
                        Fate::TenantDeleted => {
                            taken.rejected.push((at, "its tenant was deleted after it began".to_owned()));
                        }
                    }
                }
                Ok(())
            }
            Err(NotWritten::Refused { reason }) => {
                taken.rejected.extend(places.iter().map(|at| (*at, reason.clone())));
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "reported spans were not taken");
                Err(Busy::because("the store takes nothing at the moment"))
            }
        }
    }

    /// Adds to the metrics what the kept span brings.
    fn count(&self, numbers: &Numbers) {
        if let Some(nano_usd) = numbers.cost_nano_usd {
            self.meter.cost(numbers.tenant, numbers.model.as_deref(), nano_usd);
        } else if numbers.unpriced {
            let model = Model { name: numbers.model.as_deref(), tenant: numbers.tenant, vouched: false };
            self.meter.unpriced(numbers.provider_label, model);
        }
        for (severity, finding_type) in &numbers.findings {
            self.meter.finding(*severity, finding_type);
        }
        for (what, count) in numbers.left_out.iter().filter(|(_, count)| *count > 0) {
            self.process.parts.registry.shared().dropped("ingest", what, *count as u64);
        }
    }
}

/// What a span's own trace asks of it.
fn brief(span: &ReportedSpan) -> Brief {
    rt::yielding::pause();
    Brief::reported(span)
}

/// A completed span, and what it adds to the metrics.
struct Kept {
    span: Box<SpanRecord>,
    numbers: Numbers,
}

struct Numbers {
    tenant: TenantId,
    model: Option<String>,
    provider_label: &'static str,
    cost_nano_usd: Option<u64>,
    unpriced: bool,
    findings: Vec<(weir_config::vocab::Severity, Cow<'static, str>)>,
    /// What there was no room for, and how much of it.
    left_out: [(&'static str, usize); 4],
}

impl Worker {
    /// The record of a span: read, inspected and priced as that of a proxied call.
    fn complete(&mut self, tenant: TenantId, mut span: ReportedSpan, counted_by: Option<Counter>) -> Kept {
        let settings = Arc::clone(self.settings.load());
        let beside = self.clean(&settings, &mut span);
        let (_, is_call) = check::operation(&span);
        let analysed = settings.enable_security_analysis;
        let (request, answer) = (body::request(&span), body::answer(&span));
        let limit = Duration::from_millis(settings.limits.security_analysis_timeout_ms);
        let finish = Finish {
            span: begin(&span, tenant),
            copies: None,
            dialect: Dialect::DEFAULT,
            text: request.map_or(RequestText::None, |body| RequestText::Raw(raw(body))),
            request_analysed: false,
            rest: None,
            answer_bytes: answer.as_ref().map_or(0, Vec::len),
            answer_wire_bytes: 0,
            answer: answer.map(read_answer),
            answer_lost: false,
            analyse: analysed.then(|| self.process.plans(&settings).all),
            deadline: Some(Instant::now() + limit),
            decoded_bytes_max: usize::MAX,
            analysis_text_max: settings.security_analysis.max_analysis_text_bytes,
            unread: UnreadSet::default(),
            path_model: None,
            doubts_agent: false,
            priced_as: None,
            priced: settings.cost_estimation.enabled && is_call && counted_by.is_none(),
            guarded: settings.output_safety.enabled,
            from_data: settings.security_analysis.action_from_data,
        };
        let mut finished = if analysed {
            complete(&self.process, &mut self.scratch, finish)
        } else {
            complete_unanalysed(&self.process, finish, "disabled", false)
        };
        if let Some(ran) = &finished.ran {
            observe_detectors(&self.process, &self.meter, ran);
        }
        if let Some(rest) = finished.rest.take() {
            self.ask_models(&mut finished, rest, limit);
        }
        if analysed && !span.elsewhere.is_empty() {
            self.look_elsewhere(&settings, &mut finished, &span.elsewhere, limit);
        }
        add_findings(&mut finished.span, beside, analysed);
        let means =
            Means { deadline: Some(Instant::now() + MASKING_LIMIT), bodies: &self.process.bodies, longest: usize::MAX };
        Masking::of(&settings).apply(&mut finished.span, &means);
        self.finish(span, finished, is_call, counted_by)
    }

    /// Takes out of what stands beside the messages what is not kept, and says which credentials stood there.
    fn clean(&mut self, settings: &Arc<Settings>, span: &mut ReportedSpan) -> Vec<Finding> {
        if self.beside.as_ref().is_none_or(|(of, _)| !Arc::ptr_eq(of, settings)) {
            self.beside = None;
        }
        let (_, beside) = self.beside.get_or_insert_with(|| (Arc::clone(settings), Beside::of(settings)));
        beside.clean(span)
    }

    /// Has models look at what is left to them, and waits for what they say.
    fn ask_models(&self, finished: &mut Finished, rest: Rest, limit: Duration) {
        match models::wait(&self.process.parts.inspection.inference, rest, Instant::now() + limit) {
            Ok((findings, ran)) => {
                observe_detectors(&self.process, &self.meter, &ran);
                finished.join(&self.process.parts.inspection.analyser, findings, &ran);
            }
            Err(missed) => finished.miss(missed.skip.reason(), true),
        }
    }

    /// Inspects what other attributes say than those that the messages were taken from.
    fn look_elsewhere(
        &mut self,
        settings: &Arc<Settings>,
        finished: &mut Finished,
        said: &[(String, ReportedMessage)],
        limit: Duration,
    ) {
        let plan = self.process.plans(settings).all;
        let agent = finished.span.agent_id.clone();
        let deadline = Some(Instant::now() + limit);
        let call = Call { plan: &plan, tenant: finished.span.tenant_id, agent: agent.as_deref(), deadline };
        let how = How { call, text_max: settings.security_analysis.max_analysis_text_bytes };
        let analyser = &self.process.parts.inspection.analyser;
        let seen = inspection::run(analyser, &mut self.scratch, &Elsewhere::of(said), &how);
        let Some(Inspection { mut findings, ran, rest, .. }) = seen else {
            return finished.miss("analyzer_error", true);
        };
        observe_detectors(&self.process, &self.meter, &ran);
        elsewhere::retain_new(&mut findings, &finished.span.security_findings);
        let whole = finished.span.security_score.is_some();
        finished.join(analyser, findings, &ran);
        if let Some(rest) = rest {
            self.ask_models(finished, rest, limit);
        }
        if !whole {
            finished.span.security_score = None;
        }
    }

    /// Puts in what was reported beside texts and counters, and takes out what must not be kept.
    fn finish(&self, said: ReportedSpan, finished: Finished, is_call: bool, counted_by: Option<Counter>) -> Kept {
        let mut span = finished.span;
        let usage = said.usage;
        span.status_code = said.status_code;
        span.parts.iter_mut().for_each(|part| part.raw = None);
        if counted_by.is_some() || !is_call {
            uncharge(&mut span);
        }
        let left_out = said.left_out;
        let attributes = add_attributes(&mut span, said, usage, is_call, counted_by);
        let left_out = [
            ("attributes", attributes),
            ("events", left_out.events),
            ("links", left_out.links),
            ("values", left_out.values),
        ];
        note_left_out(&mut span, left_out);
        self.process.parts.policy.redaction.mask_record(&mut span);
        // What was said has been inspected where the call is counted, if it stands there.
        let findings = if counted_by.is_some_and(|by| by.has_text) {
            Vec::new()
        } else {
            span.security_findings.iter().map(|found| (found.severity, found.finding_type.clone())).collect()
        };
        let provider_label = weir_config::vocab::Provider::named(&span.provider).label();
        let numbers = Numbers {
            tenant: span.tenant_id,
            model: span.model.clone(),
            provider_label,
            cost_nano_usd: finished.cost_nano_usd.filter(|_| span.estimated_cost_usd.is_some()),
            unpriced: span.tags.contains_key(crate::settle::charge::UNPRICED),
            findings,
            left_out,
        };
        Kept { span, numbers }
    }
}

/// Findings beside the messages count like those in them.
fn add_findings(span: &mut SpanRecord, found: Vec<Finding>, analysed: bool) {
    if !analysed {
        return;
    }
    if !span.detectors.iter().any(|name| name == "secrets") {
        span.detectors.push(Cow::Borrowed("secrets"));
    }
    span.security_findings.extend(found);
    span.security_score = span.security_score.map(|_| score(&span.security_findings));
}

/// The record before anything has been read.
fn begin(said: &ReportedSpan, tenant: TenantId) -> Box<SpanRecord> {
    let mut span = blank(&CallIds {
        tenant_id: tenant,
        trace_id: said.trace_id,
        span_id: said.span_id,
        parent_span_id: said.parent_span_id,
        agent_id: said.agent_id.clone(),
        session_id: said.session_id.clone(),
        client: said.client.clone(),
        provider: weir_config::vocab::Provider::OPENAI,
        priced_as: None,
        operation: weir_config::vocab::Operation::Proxy,
        path_model: None,
        start_time: said.start_time,
    });
    span.provider = check::provider(said);
    span.operation_name = check::operation_name(said);
    span.end_time = said.end_time;
    span.duration_ms = (said.end_time.micros() - said.start_time.micros()) as f64 / 1_000.0;
    span.streaming = said.streaming;
    span.time_to_first_token_ms = said.time_to_first_token_ms;
    // What was answered is counted; a span that names no error was.
    span.status_code = said.status_code.or_else(|| said.error_type.is_none().then_some(200));
    span.error_type.clone_from(&said.error_type);
    span.error_message.clone_from(&said.error_message);
    span.tags.insert(Cow::Borrowed(REPORTED.0), REPORTED.1.to_owned());
    span
}

fn raw(body: Vec<u8>) -> RawBody {
    RawBody {
        body: body.into(),
        takes: Takes::Json,
        content_type: None,
        content_encoding: None,
        repeated: None,
        truncated: false,
        zones: None,
    }
}

fn read_answer(body: Vec<u8>) -> Box<AnswerReader> {
    let mut reader = AnswerReader::new(AnswerKind::Json, None, usize::MAX);
    reader.feed(&body);
    Box::new(reader)
}

/// What no field has room for. Counters that are not this span's to count are kept here, too. Gives how many found no room.
fn add_attributes(
    span: &mut SpanRecord,
    said: ReportedSpan,
    usage: ReportedUsage,
    is_call: bool,
    counted_by: Option<Counter>,
) -> usize {
    let mut dropped = 0;
    let mut put = |name: String, value| dropped += usize::from(span.attributes.insert(name, value).is_err());
    if let Some(user) = said.user_id {
        put("user.id".to_owned(), json!(user));
    }
    if counted_by.is_some() || !is_call {
        for (name, count) in [
            ("gen_ai.usage.input_tokens", usage.prompt),
            ("gen_ai.usage.output_tokens", usage.completion),
            ("gen_ai.usage.cache_read.input_tokens", usage.cached),
            ("gen_ai.usage.reasoning.output_tokens", usage.reasoning),
        ] {
            if let Some(count) = count {
                put(name.to_owned(), json!(count));
            }
        }
    }
    if let Some(count) = usage.cache_write {
        put("gen_ai.usage.cache_write.input_tokens".to_owned(), json!(count));
    }
    for (name, value) in said.shared.iter().flat_map(|shared| &**shared) {
        put(name.clone(), value.clone());
    }
    for (name, value) in said.attributes {
        put(name, value);
    }
    span.events.extend(said.events);
    span.agent_actions.extend(said.agent_actions);
    if let Some(by) = counted_by {
        span.tags.insert(Cow::Borrowed("counted_by"), by.span.to_string());
    }
    dropped
}

/// Says on the span what of it is not kept.
fn note_left_out(span: &mut SpanRecord, left_out: [(&'static str, usize); 4]) {
    for (what, count) in left_out.into_iter().filter(|(_, count)| *count > 0) {
        span.tags.insert(Cow::Owned(format!("{what}_dropped")), count.to_string());
    }
}
