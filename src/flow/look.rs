//! The stage that reads a request: its body where something has to be known before forwarding, and its text where
//! somebody waits for what the detectors say. Invariant: a body nothing waits for is left in the socket. Decides nothing.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_channel::oneshot;
use weir_config::Settings;
use weir_config::settings::AnalysisDepth;
use weir_config::vocab::{Dialect, Finding, TenantId, Unread};
use weir_inference::{Call, Job, Lane, Plan, Ran, Scratch, Turn, Work};

use super::admit_request::Admitted;
use super::changing::{Again, Asked, misses_names, wants_names};
use super::exchange::{Exchange, Needs, Stop, Stopped, raw_body, raw_text, zone_ask};
use super::steer;
use crate::client::body::{BodyCap, Whole, is_at_hand, out_of_room, read_whole};
use crate::client::session::Session;
use crate::enforce;
use crate::exchange::{Analysis, Payload, Refusal, Skip};
use crate::inspect::RequestView;
use crate::limits::{INLINE_TEXT_BYTES_MAX, kept_bytes_max};
use crate::ops::breaker::State;
use crate::process::{Core, Process};
use crate::record::Permit;
use crate::rewrite::Changes;
use crate::rt;
use crate::settle::closing::with_pool_meter;
use crate::settle::inspection::{self, How, Inspection, Rest, Texts, survive};
use crate::settle::models::{Missed, ask_models_then};
use crate::settle::publish::observe_detectors;
use crate::settle::text::{self, RawBody, RequestText};
use crate::wire::RequestBody;

/// A request whose body has been read as far as something had to read it; what is known of its text stands in its journal.
pub(super) struct Inspected {
    exchange: Box<Exchange>,
    payload: Payload,
}

impl Inspected {
    pub(super) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    pub(super) fn exchange_mut(&mut self) -> &mut Exchange {
        &mut self.exchange
    }

    pub(super) fn into_parts(self) -> (Box<Exchange>, Payload) {
        (self.exchange, self.payload)
    }
}

/// Reads the body where something has to read it first, and looks for attacks where somebody waits for the result.
pub(super) async fn inspect(session: &mut Session, admitted: Admitted) -> Result<Inspected, Stopped> {
    let mut exchange = admitted.into_exchange();
    let payload = read(session, &mut exchange).await;
    if exchange.chosen.waits_for_model {
        steer::with_model(&mut exchange);
    }
    exchange.then(payload, |exchange, payload| Inspected { exchange, payload })
}

async fn read(session: &mut Session, exchange: &mut Exchange) -> Result<Payload, Stop> {
    let settings = Rc::clone(&exchange.journal.settings);
    let asks = !session.core.process.parts.outside.is_empty() || wants_names(&session.core, exchange);
    let needs = exchange.needs(asks);
    let (must_read, waits) = (needs >= Needs::Text, needs == Needs::Findings);
    let body = exchange.head.body;
    if body == RequestBody::Empty {
        return Ok(Payload::Empty);
    }
    if !must_read && !is_at_hand(session, body) {
        return Ok(Payload::Streamed);
    }
    let costs_nothing = matches!(body, RequestBody::Length(_)) && is_at_hand(session, body);
    let bodies = session.core.process.bodies.of(exchange.journal.ids.tenant_id);
    let permit = (!costs_nothing).then(|| if must_read { bodies.permit_with_text() } else { bodies.permit() });
    let waiting = Instant::now();
    let whole = read_whole(session, &exchange.head, BodyCap::of(&settings), permit).await;
    exchange.journal.moments.awaiting_client += waiting.elapsed();
    let Whole { body, mut permit } = whole?;
    if must_read {
        read_and_find(&session.core, exchange, &body, waits).await?;
        if let RequestText::Read(view) = &exchange.journal.inspection.text
            && view.text.len() > body.len().max(INLINE_TEXT_BYTES_MAX)
        {
            // A compressed body is kept as the many times more that it is.
            let permit = permit.get_or_insert_with(|| bodies.permit());
            if !permit.grow(view.text.len() - body.len()) {
                // What there is no room for is not kept for the record either.
                exchange.journal.inspection.text = RequestText::None;
                return Err(out_of_room().into());
            }
        }
    } else if exchange.journal.wants_text() {
        exchange.journal.inspection.text = raw_text(&exchange.head, &exchange.route, &settings, body.clone(), false);
    }
    let chunked = exchange.head.body == RequestBody::Chunked;
    Ok(Payload::Held { body, chunked, permit })
}

/// What looking at a request brings.
struct Looked {
    view: RequestView,
    /// `None` where nothing was to be analysed.
    inspection: Option<Inspection>,
    /// What the text took from the body budget.
    room: Option<Permit>,
    /// There was no room for all of it at this moment.
    out_of_room: bool,
    /// What is to be changed in the body, where that is asked for.
    changes: Option<Box<Changes>>,
    /// Finds it once more, where names are waited for.
    again: Option<Box<Again>>,
}

async fn read_and_find(core: &Core, exchange: &mut Exchange, body: &Bytes, analyse: bool) -> Result<(), Refusal> {
    let settings = Rc::clone(&exchange.journal.settings);
    let zones = zone_ask(&exchange.head, &settings);
    let raw = RawBody { zones, ..raw_body(&exchange.head, &exchange.route, body.clone(), false) };
    let text_max = settings.security_analysis.max_analysis_text_bytes;
    let deadline = Instant::now() + Duration::from_millis(settings.enforcement.timeout_ms);
    let look = Look {
        dialect: exchange.route.dialect,
        raw,
        decoded_bytes_max: kept_bytes_max(&settings),
        text_max,
        asked: Asked::of(&settings, exchange, analyse, deadline),
        wants_names: analyse && wants_names(core, exchange),
        plan: analyse.then(|| Arc::clone(&settings.plan)),
        tenant: exchange.journal.ids.tenant_id,
        agent: exchange.journal.ids.agent_id.clone(),
        deadline,
    };
    let breaker = &core.process.parts.breakers.security;
    let spared = breaker.state() == State::Open;
    let looked = if inspection::fits_core(body.len(), look.raw.content_encoding.is_some()) {
        let looked = survive(|| look.run(&core.process, &mut core.scratch.borrow_mut(), &Progress::default()));
        let looked = looked.flatten().ok_or(Missed { skip: Skip::Error, by_content: true });
        if let Some(inspection) = looked.as_ref().ok().and_then(|looked| looked.inspection.as_ref()) {
            observe_detectors(&core.process, &core.meter, &inspection.ran);
        }
        looked
    } else {
        look_on_pool(core, look).await
    };
    let mut unredacted = match &looked {
        Ok(looked) => looked.changes.as_ref().is_some_and(|changes| changes.is_late).then_some(true),
        Err(missed) => Some(missed.by_content),
    };
    let missed = match looked {
        // The body may be read whole a second later: it is not its sender who has to change something.
        Ok(looked) if looked.out_of_room && analyse && enforce::can_block(&settings.enforcement) => {
            return Err(out_of_room());
        }
        Ok(Looked { mut view, inspection: inspected, room, mut changes, again, .. }) => {
            let mut unnamed = misses_names(core, exchange).then_some(false);
            for _ in 0..view.zones.as_ref().map_or(0, |zones| zones.bad_entries) {
                core.meter.dropped("zones", "bad_entry");
            }
            // The caller takes room for the text together with its body.
            drop(room);
            let (mut findings, mut missed) = (Vec::new(), None);
            if let Some(Inspection { findings: found, mut ran, rest, left_out, .. }) = inspected {
                findings = found;
                if ran.cut && again.is_some() {
                    unnamed = Some(true);
                }
                let left = rest.filter(|_| !ran.cut);
                let mut leaves_models = left.is_some();
                if let Some(rest) = left.filter(|_| waits_for_models(&settings) || again.is_some()) {
                    let heard = hear_models(core, &settings, rest, again, deadline).await?;
                    changes = heard.redone.or(changes);
                    (unnamed, missed) = (unnamed.or(heard.unnamed), heard.missed);
                    if let Some((found, later)) = heard.said {
                        findings.extend(found);
                        ran.join(&later);
                        leaves_models = false;
                    }
                }
                if ran.full || ran.verify_cap_reached {
                    view.passed_by.insert(Unread::Truncated);
                }
                if left_out.request > 0 {
                    view.passed_by.insert(Unread::TruncatedForModels);
                }
                // Findings of an analysis that was cut count for the decision; for the record it is made once more.
                if ran.cut {
                    missed = Some(Missed { skip: Skip::Timeout, by_content: view.text.len() > text_max });
                } else if ran.failed {
                    missed = Some(Missed { skip: Skip::Error, by_content: true });
                }
                if missed.is_none() {
                    let inspection = &mut exchange.journal.inspection;
                    let analysis = if leaves_models { Analysis::Rules } else { Analysis::Ran };
                    (inspection.analysis, inspection.detectors) = (analysis, ran.detectors);
                    // A text looked at although the breaker is open tries nothing out.
                    if !ran.detectors.is_empty() && !spared {
                        breaker.success();
                    }
                }
            }
            if let Some(changes) = &mut changes {
                changes.is_late |= unnamed.is_some();
                unredacted = unredacted.or(unnamed);
            }
            let inspection = &mut exchange.journal.inspection;
            inspection.changes = changes;
            (inspection.findings, inspection.text) = (findings, RequestText::Read(Box::new(view)));
            missed
        }
        Err(missed) => {
            exchange.journal.inspection.text =
                raw_text(&exchange.head, &exchange.route, &settings, body.clone(), false);
            Some(missed)
        }
    };
    if let Some(Missed { skip, by_content }) = missed.filter(|_| analyse) {
        // Fail-open, and never silently: a counter and a header say so, and the record is analysed later.
        core.meter.dropped("inference", skip.reason());
        if !by_content {
            breaker.failure();
        }
        exchange.journal.inspection.analysis = Analysis::Skipped(skip);
    }
    let redacts = exchange.redacts() && !settings.pii_shadow_mode;
    match unredacted.filter(|_| redacts && enforce::can_block(&settings.enforcement)) {
        Some(by_content) => Err(enforce::refuse_unredacted(by_content)),
        None => Ok(()),
    }
}

/// What models said of a request that waited for them.
#[derive(Default)]
struct Heard {
    /// What they found, where it is part of the analysis that decides.
    said: Option<(Vec<Finding>, Ran)>,
    missed: Option<Missed>,
    /// What is to be changed now that names are known.
    redone: Option<Box<Changes>>,
    /// Names have not been found in time, and whether the text was the cause.
    unnamed: Option<bool>,
}

/// Has models look at the rest of a request, for the decision or for the names that are taken out.
async fn hear_models(
    core: &Core,
    settings: &Settings,
    rest: Rest,
    again: Option<Box<Again>>,
    deadline: Instant,
) -> Result<Heard, Refusal> {
    let (waits, names) = (waits_for_models(settings), again.is_some());
    let Some(place) = core.process.models.enter(settings.ml_max_concurrent) else {
        return if waits { Err(models_saturated()) } else { Ok(Heard { unnamed: Some(false), ..Heard::default() }) };
    };
    let then = move |found: &[Finding]| again.and_then(|again| again.changes(found));
    let said = ask_models_then(&core.process, rest, deadline, then).await;
    drop(place);
    let is_whole = said.as_ref().is_ok_and(|(_, ran, _)| !ran.cut && !ran.failed);
    let by_content = said.as_ref().err().is_none_or(|missed| missed.by_content);
    let mut heard = Heard { unnamed: (names && !is_whole).then_some(by_content), ..Heard::default() };
    match said {
        Ok((found, ran, redone)) => {
            heard.redone = redone;
            // Where something is decided, what the settings do not wait for has no say; models are asked once more after the answer.
            if waits || (is_whole && !enforce::can_act(&settings.enforcement)) {
                heard.said = Some((found, ran));
            }
        }
        Err(why) if waits => heard.missed = Some(why),
        Err(_) => {}
    }
    Ok(heard)
}

/// Whether what models say is waited for: only where it may decide something.
fn waits_for_models(settings: &Settings) -> bool {
    enforce::can_act(&settings.enforcement) && settings.enforcement_analysis_depth == AnalysisDepth::Full
}

fn models_saturated() -> Refusal {
    let message = "as many requests as may (`ml_pipeline.max_concurrent_requests`) wait for what models say of them; retry \
                   after a second";
    Refusal::new(503, "ml_pipeline_saturated", message).header("Retry-After", 1)
}

/// How far a job of the pool has come: 0 while it waits, then one more than the bytes of text it has to look at.
#[derive(Default)]
struct Progress(AtomicUsize);

impl Progress {
    fn begun(&self, text_bytes: usize) {
        self.0.store(text_bytes.saturating_add(1), Ordering::Relaxed);
    }

    /// The text that is being looked at; `None` while the job has not had its turn.
    fn text_bytes(&self) -> Option<usize> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Everything looking at a body needs, on whichever thread.
struct Look {
    dialect: Dialect,
    raw: RawBody,
    decoded_bytes_max: usize,
    text_max: usize,
    /// What is to be changed in the body.
    asked: Asked,
    /// Whether names that a model finds are to be taken out, too.
    wants_names: bool,
    /// How to analyse, if that is to be done.
    plan: Option<Arc<Plan>>,
    tenant: TenantId,
    agent: Option<String>,
    deadline: Instant,
}

impl Look {
    /// The bytes it may take to look at this: a compressed body may be many times as long as it looks.
    fn weight(&self) -> usize {
        let bytes = self.raw.body.len();
        match self.raw.content_encoding {
            Some(_) => bytes.saturating_mul(text::DECODE_RATIO_MAX as usize).min(self.decoded_bytes_max).max(bytes),
            None => bytes,
        }
    }

    /// `None` when a detector panicked.
    fn run(self, process: &Process, scratch: &mut Scratch, progress: &Progress) -> Option<Looked> {
        progress.begun(self.raw.body.len());
        let text::ReadRaw { view, room, out_of_room, decoded } =
            text::read_raw(self.dialect, &self.raw, self.decoded_bytes_max, &process.bodies);
        progress.begun(view.text.len());
        let Self { asked, raw, plan, text_max, wants_names, .. } = self;
        let mut changes = asked.changes(&view, &raw, decoded.clone(), &[]);
        let Some(plan) = plan else {
            return Some(Looked { view, inspection: None, room, out_of_room, changes, again: None });
        };
        let call =
            Call { plan: &plan, tenant: self.tenant, agent: self.agent.as_deref(), deadline: Some(self.deadline) };
        let texts = Texts { request: Some(&view), answer: None, before: 0, context: None };
        let inspection = inspection::run(&process.parts.analyser, scratch, &texts, &How { call, text_max })?;
        let waits = wants_names && inspection.rest.is_some();
        let is_partial = view.text.len() > text_max;
        if let Some(changes) = changes.as_mut().filter(|_| waits) {
            changes.is_partial = is_partial;
        }
        let again = waits.then(|| Box::new(Again { asked, view: view.clone(), raw, decoded, is_partial }));
        Some(Looked { view, inspection: Some(inspection), room, out_of_room, changes, again })
    }
}

/// A look on its way to the pool and back.
struct LookJob {
    look: Look,
    process: Arc<Process>,
    progress: Arc<Progress>,
    tell: oneshot::Sender<Looked>,
}

impl Work for LookJob {
    fn run(self: Box<Self>, turn: Turn<'_>) {
        let Self { look, process, progress, tell } = *self;
        let Turn::Run(_, scratch) = turn else { return };
        let Some(looked) = look.run(&process, scratch, &progress) else { return };
        if let Some(inspection) = &looked.inspection {
            with_pool_meter(&process, |meter| observe_detectors(&process, meter, &inspection.ran));
        }
        // The waiting core may have given up; then nobody needs the result.
        drop(tell.send(looked));
    }
}

async fn look_on_pool(core: &Core, look: Look) -> Result<Looked, Missed> {
    let (tell, told) = oneshot::channel();
    let (deadline, text_max, weight, tenant) = (look.deadline, look.text_max, look.weight(), look.tenant);
    let progress = Arc::new(Progress::default());
    let pool = &core.process.parts.inference;
    // A job that waits behind others waits for them: that says nothing about the detectors.
    let was_busy = pool.is_busy();
    let work = LookJob { look, process: Arc::clone(&core.process), progress: Arc::clone(&progress), tell };
    let job = Job { lane: Lane::of(weight), tenant, bytes: weight, deadline, work: Box::new(work) };
    if pool.submit(job).is_err() {
        return Err(Missed { skip: Skip::QueueFull, by_content: true });
    }
    match rt::within(deadline.saturating_duration_since(Instant::now()), told).await {
        Some(Ok(looked)) => Ok(looked),
        // The job went without an answer: it panicked, or its turn came too late.
        Some(Err(_)) if Instant::now() < deadline => Err(Missed { skip: Skip::Error, by_content: true }),
        Some(Err(_)) | None => {
            let by_content = progress.text_bytes().map_or(was_busy, |bytes| bytes.max(weight) > text_max);
            Err(Missed { skip: Skip::Timeout, by_content })
        }
    }
}
