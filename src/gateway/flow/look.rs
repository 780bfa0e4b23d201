//! The stage that reads a request: its body where something has to be known before forwarding, and its text where
//! somebody waits for what the detectors say. Invariants: a body nothing waits for is left in the socket; no model is waited for here,
//! but in `outside`. What is found is judged in `decide`; refused here is only what there is no room for, or what would go on with
//! personal data that nobody could take out.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_channel::oneshot;
use weir_config::Settings;
use weir_config::settings::AnalysisDepth;
use weir_config::vocab::{Dialect, TenantId, Unread};
use weir_inference::{Call, Job, Lane, Plan, Ran, Scratch, Skips, Turn, Work};

use super::admit_request::Admitted;
use super::changing::{Again, Asked, misses_names, wants_names};
use super::credentials;
use super::exchange::{Exchange, Needs, Stop, Stopped, raw_body, raw_text, zone_ask};
use super::steer;
use crate::client::body::{BodyCap, Whole, is_at_hand, out_of_room, read_whole};
use crate::client::session::Session;
use crate::enforce;
use crate::exchange::{Analysis, Payload, Refusal, Skip};
use crate::inspect::{Replaced, RequestView};
use crate::limits::{INLINE_TEXT_BYTES_MAX, kept_bytes_max};
use crate::ops::breaker::State;
use crate::process::{Core, Process};
use crate::record::Permit;
use crate::rewrite::Changes;
use crate::rt;
use crate::settle::inspection::{self, How, Inspection, Rest, Texts, survive};
use crate::settle::models::Missed;
use crate::settle::pool_meter::with_pool_meter;
use crate::settle::publish::observe_detectors;
use crate::settle::text::{self, Goes, RawBody, RequestText};
use crate::wire::RequestBody;

/// A request whose body has been read as far as something had to read it; what is known of its text stands in its journal.
pub(super) struct Inspected {
    exchange: Box<Exchange>,
    payload: Payload,
    pending: Option<Box<Pending>>,
}

impl Inspected {
    pub(super) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    pub(super) fn exchange_mut(&mut self) -> &mut Exchange {
        &mut self.exchange
    }

    /// The request, its body, and what models are still to say of it where that is waited for.
    pub(super) fn into_parts(self) -> (Box<Exchange>, Payload, Option<Box<Pending>>) {
        (self.exchange, self.payload, self.pending)
    }
}

/// What models are still to look at before anything is decided.
pub(super) struct Pending {
    pub(super) rest: Rest,
    /// Finds the changes of the body once more, where names are waited for.
    pub(super) again: Option<Box<Again>>,
    /// What models say has a say in the decision.
    pub(super) decides: bool,
    pub(super) deadline: Instant,
    pub(super) so_far: SoFar,
}

/// Why something was not looked for in time: a refusal tells senders what they can change, and the breaker counts load alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The text is too long, or takes too much work.
    Text,
    /// The gateway had too much else to do.
    Load,
}

impl Cause {
    pub(super) const fn of(by_content: bool) -> Self {
        if by_content { Self::Text } else { Self::Load }
    }
}

/// What the inspection of a request has come to so far.
pub(super) struct SoFar {
    /// What ran; `None` where nothing was analysed.
    pub(super) ran: Option<Ran>,
    /// Nobody looked at it in time.
    pub(super) missed: Option<Missed>,
    /// Models have not looked at all they were to look at.
    pub(super) leaves_models: bool,
    /// Why names were not looked for; `None` where they were, or need not be.
    pub(super) unnamed: Option<Cause>,
    /// Why not all that is to be taken out was found; `None` where it was.
    unredacted: Option<Cause>,
    /// It was to be analysed.
    analyse: bool,
    /// The breaker is open: this tries nothing out.
    spared: bool,
}

// === impl SoFar ===

impl SoFar {
    /// The second stage has not looked at the texts it was to look at, as there was no time for it.
    pub(super) fn skip_second_stage(&mut self) {
        if let Some(ran) = &mut self.ran {
            ran.second_stage_skipped.add(Skips::TIME);
        }
    }
}

/// Reads the body where something has to read it first, and looks for attacks where somebody waits for the result.
pub(super) async fn inspect(session: &mut Session, admitted: Admitted) -> Result<Inspected, Stopped> {
    let mut exchange = admitted.into_exchange();
    let read = read(session, &mut exchange).await;
    if exchange.chosen.waits_for_model {
        steer::with_model(&mut exchange);
        exchange.is_lent = credentials::is_lent(&session.core, &exchange);
    }
    exchange.then(read, |exchange, (payload, pending)| Inspected { exchange, payload, pending })
}

async fn read(session: &mut Session, exchange: &mut Exchange) -> Result<(Payload, Option<Box<Pending>>), Stop> {
    let settings = Rc::clone(&exchange.journal.settings);
    let asks = !session.core.process.parts.inspection.outside.is_empty() || wants_names(&session.core, exchange);
    let needs = exchange.needs(asks);
    let (must_read, waits) = (needs >= Needs::Text, needs == Needs::Findings);
    let body = exchange.head.body;
    if body == RequestBody::Empty {
        return Ok((Payload::Empty, None));
    }
    if !must_read && !is_at_hand(session, body) {
        return Ok((Payload::Streamed, None));
    }
    let costs_nothing = matches!(body, RequestBody::Length(_)) && is_at_hand(session, body);
    let bodies = session.core.process.bodies.of(exchange.journal.ids.tenant_id);
    let permit = (!costs_nothing).then(|| if must_read { bodies.permit_with_text() } else { bodies.permit() });
    let waiting = Instant::now();
    let whole = read_whole(session, &exchange.head, BodyCap::of(&settings), permit).await;
    exchange.journal.moments.awaiting_client += waiting.elapsed();
    let Whole { body, mut permit } = whole?;
    let mut pending = None;
    if must_read {
        pending = read_and_find(&session.core, exchange, &body, waits).await?;
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
    Ok((Payload::Held { body, chunked, permit }, pending))
}

/// Reads a message of a WebSocket, and looks for attacks in it where somebody waits for that. What models would say of it is not waited
/// for: they look at its record.
pub(super) async fn inspect_turn(core: &Core, exchange: &mut Exchange, body: &Bytes) -> Result<(), Refusal> {
    let needs = exchange.needs(false);
    if needs == Needs::Nothing {
        return Ok(());
    }
    match read_and_find(core, exchange, body, needs == Needs::Findings).await? {
        Some(pending) => conclude(core, exchange, pending.so_far),
        None => Ok(()),
    }
}

/// What looking at a request brings.
struct Looked {
    view: Box<RequestView>,
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

/// Reads the text and looks for attacks in it; gives what models are to look at before anything is decided.
async fn read_and_find(
    core: &Core,
    exchange: &mut Exchange,
    body: &Bytes,
    analyse: bool,
) -> Result<Option<Box<Pending>>, Refusal> {
    let settings = Rc::clone(&exchange.journal.settings);
    let zones = zone_ask(&exchange.head, &settings);
    let raw = RawBody { zones, ..raw_body(&exchange.head, &exchange.route, body.clone(), false) };
    let deadline = Instant::now() + Duration::from_millis(settings.enforcement.timeout_ms);
    let look = Look {
        dialect: exchange.route.dialect,
        raw,
        decoded_bytes_max: kept_bytes_max(&settings),
        text_max: settings.security_analysis.max_analysis_text_bytes,
        asked: Asked::of(&settings, exchange, analyse, deadline),
        wants_names: analyse && wants_names(core, exchange),
        plan: analyse.then(|| Arc::clone(&settings.plan)),
        tenant: exchange.journal.ids.tenant_id,
        agent: exchange.journal.ids.agent_id.clone().filter(|_| !exchange.journal.doubts_agent),
        deadline,
    };
    let spared = core.process.parts.policy.breakers.security.state() == State::Open;
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
    let unredacted = match &looked {
        Ok(looked) => looked.changes.as_ref().is_some_and(|changes| changes.is_late).then_some(Cause::Text),
        Err(missed) => Some(Cause::of(missed.by_content)),
    };
    let mut so_far =
        SoFar { ran: None, missed: None, leaves_models: false, unnamed: None, unredacted, analyse, spared };
    let left = match looked {
        // The body may be read whole a second later: it is not its sender who has to change something.
        Ok(looked) if looked.out_of_room && analyse && enforce::can_block(&settings.enforcement) => {
            return Err(out_of_room());
        }
        Ok(looked) => take(core, exchange, looked, &mut so_far),
        Err(missed) => {
            exchange.journal.inspection.text =
                raw_text(&exchange.head, &exchange.route, &settings, body.clone(), false);
            so_far.missed = Some(missed);
            None
        }
    };
    let decides = waits_for_models(&settings);
    match left {
        Some((rest, again)) if decides || again.is_some() => {
            return Ok(Some(Box::new(Pending { rest, again, decides, deadline, so_far })));
        }
        // The analysis is whole without it, and it is asked once, behind the call.
        Some((rest, _)) if rest.later().is_optional() => {
            exchange.journal.inspection.rest = Some(Box::new(rest));
            so_far.leaves_models = false;
        }
        // Models are asked when the record is put together, about all of it.
        Some(_) | None => {}
    }
    conclude(core, exchange, so_far).map(|()| None)
}

/// Takes what looking has brought into the journal, and gives what is left to models.
fn take(
    core: &Core,
    exchange: &mut Exchange,
    looked: Looked,
    so_far: &mut SoFar,
) -> Option<(Rest, Option<Box<Again>>)> {
    // The caller takes room for the text together with its body.
    let Looked { mut view, inspection, room, changes, again, .. } = looked;
    drop(room);
    so_far.unnamed = misses_names(core, exchange).then_some(Cause::Load);
    for _ in 0..view.zones.as_ref().map_or(0, |zones| zones.bad_entries) {
        core.meter.dropped("zones", "bad_entry");
    }
    let (mut findings, mut left) = (Vec::new(), None);
    if let Some(Inspection { findings: found, ran, rest, left_out, .. }) = inspection {
        findings = found;
        if ran.cut && again.is_some() {
            so_far.unnamed = Some(Cause::Text);
        }
        if left_out.request > 0 {
            view.passed_by.insert(Unread::TruncatedForModels);
        }
        left = rest.filter(|_| !ran.cut);
        so_far.leaves_models = left.is_some();
        so_far.ran = Some(ran);
    }
    let inspection = &mut exchange.journal.inspection;
    inspection.changes = changes;
    (inspection.findings, inspection.text) = (findings, RequestText::Read(view));
    left.map(|rest| (rest, again))
}

/// Notes what the inspection has come to, once nothing is waited for any more.
pub(super) fn conclude(core: &Core, exchange: &mut Exchange, so_far: SoFar) -> Result<(), Refusal> {
    let SoFar { ran, mut missed, leaves_models, unnamed, mut unredacted, analyse, spared } = so_far;
    let settings = Rc::clone(&exchange.journal.settings);
    let breaker = &core.process.parts.policy.breakers.security;
    if let Some(ran) = &ran {
        exchange.journal.skip_second_stage(ran.second_stage_skipped);
    }
    let inspection = &mut exchange.journal.inspection;
    if let Some(ran) = ran {
        let mut text_bytes = 0;
        if let RequestText::Read(view) = &mut inspection.text {
            text_bytes = view.text.len();
            if ran.full || ran.verify_cap_reached {
                view.passed_by.insert(Unread::Truncated);
            }
            if ran.skipped {
                view.passed_by.insert(Unread::TruncatedForModels);
            }
        }
        // Findings of an analysis that was cut count for the decision; for the record it is made once more.
        if ran.cut {
            let by_content = text_bytes > settings.security_analysis.max_analysis_text_bytes;
            missed = Some(Missed { skip: Skip::Timeout, by_content });
        } else if ran.failed {
            missed = Some(Missed { skip: Skip::Error, by_content: true });
        }
        if missed.is_none() {
            let analysis = if leaves_models { Analysis::Rules } else { Analysis::Ran };
            (inspection.analysis, inspection.detectors) = (analysis, ran.detectors);
            // A text looked at although the breaker is open tries nothing out.
            if !ran.detectors.is_empty() && !spared {
                breaker.success();
            }
        }
    }
    if let Some(changes) = &mut inspection.changes {
        changes.is_late |= unnamed.is_some();
        unredacted = unredacted.or(unnamed);
    }
    if let Some(Missed { skip, by_content }) = missed.filter(|_| analyse) {
        // Fail-open, and never silently: a counter and a header say so, and the record is analysed later.
        core.meter.dropped("inference", skip.reason());
        if !by_content {
            breaker.failure();
        }
        inspection.analysis = Analysis::Skipped(skip);
    }
    let redacts = exchange.redacts() && !settings.pii_shadow_mode;
    match unredacted.filter(|_| redacts && enforce::can_block(&settings.enforcement)) {
        Some(cause) => Err(enforce::refuse_unredacted(cause == Cause::Text)),
        None => Ok(()),
    }
}

/// Whether what models say is waited for: only where it may decide something.
fn waits_for_models(settings: &Settings) -> bool {
    enforce::can_act(&settings.enforcement) && settings.enforcement_analysis_depth == AnalysisDepth::Full
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
        let (bodies, until) = (process.bodies.of(self.tenant), Some(self.deadline));
        let text::ReadRaw { mut view, room, out_of_room, decoded, is_late } =
            text::read_raw(self.dialect, &self.raw, Goes::Changed, self.decoded_bytes_max, (&bodies, until));
        if is_late && self.raw.body.len() > INLINE_TEXT_BYTES_MAX {
            // Who waited for it has gone on.
            return None;
        }
        text::recall(&process.turns, self.tenant, &mut view);
        progress.begun(view.text.len());
        let Self { asked, raw, plan, text_max, wants_names, .. } = self;
        let mut changes = asked.changes(&view, &raw, decoded.clone(), &[]);
        let replaced = changes.as_mut().map(|changes| std::mem::take(&mut changes.replaced)).unwrap_or_default();
        view.replaced = replaced.into_iter().map(|(part, range, with)| Replaced { part, range, with }).collect();
        let Some(plan) = plan else {
            return Some(Looked { view, inspection: None, room, out_of_room, changes, again: None });
        };
        let call =
            Call { plan: &plan, tenant: self.tenant, agent: self.agent.as_deref(), deadline: Some(self.deadline) };
        let texts = Texts { request: Some(&view), answer: None, before: 0, context: None };
        let inspection = inspection::run(&process.parts.inspection.analyser, scratch, &texts, &How { call, text_max })?;
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
    let pool = &core.process.parts.inspection.inference;
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
