//! The last step of an exchange: its cost to the budgets, its numbers to the meter, its record to the store. The one place
//! where a reservation is settled with what a call really cost. Runs on a core or on the pool.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Instant;

use weir_config::prices::Price;
use weir_config::settings::TokenCap;
use weir_config::vocab::{Finding, Severity, Unread, score};
use weir_inference::Ran;
use weir_storage::record::{COST_BREAKDOWN, SpanRecord};
use weir_storage::{Dropped, Taken};

use super::charge::{Counter, UNPRICED, UNPRICED_UNITS, charge, is_answered, uncharge};
use super::complete::{Finished, Outcome};
use super::masking::{MASKING_LIMIT, Masking, Means, SMALL_BYTES};
use super::prompt_cache;
use crate::anomalies::{Anomalies, Anomaly, Call};
use crate::meter::{CoreMeter, Counted, Direction, Model};
use crate::money::{DEFAULT_AGENT, Holder, Reservation, Warning, dollars, excess_used};
use crate::ops::breaker::State;
use crate::process::Process;
use crate::process::background::Open;
use crate::process::charges::{Books, results_id};
use crate::process::log_entry::Ended;
use crate::receipts::NOTES;
use crate::router::{ACTIONS, Follow, NOT_APPLIED, SOURCE, follow};

/// The operation of a call that asks no model.
const PROXY: &str = "proxy";

/// What the last step needs beside the completed record.
pub(crate) struct Publish {
    pub(crate) provider_label: &'static str,
    pub(crate) store: bool,
    /// What the record's texts do not keep.
    pub(crate) masking: Masking,
    /// Whether the record says what the call cost.
    pub(crate) show_cost: bool,
    /// What the request has reserved. Lost on the way (a job that never ran), it settles with its estimate.
    pub(crate) reservation: Option<Box<Reservation>>,
    /// The cap its usage is held to.
    pub(crate) token_cap: Option<TokenCap>,
    /// From which address the call came, where its record is to say so.
    pub(crate) source: Option<IpAddr>,
    /// What the access log is owed.
    pub(crate) access: Option<Box<Ended>>,
    /// The request fetches an answer that another one began: what it used is that one's.
    pub(crate) retrieval: bool,
    /// See [`super::journal::Opening::results`].
    pub(crate) results: Option<Box<str>>,
    /// The store may be waited for.
    pub(crate) may_wait: bool,
    /// The breaker has been told of this exchange before it was forwarded: it fails once.
    pub(crate) reported: bool,
}

/// What masking the record may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MaskedWithin {
    /// Until when it goes on.
    pub(crate) deadline: Option<Instant>,
    /// The longest text of which pieces are taken out, in bytes.
    pub(crate) longest: usize,
}

impl MaskedWithin {
    /// On the pool.
    pub(crate) fn time() -> Self {
        Self { deadline: Some(Instant::now() + MASKING_LIMIT), longest: usize::MAX }
    }

    /// On a core, which must not be held up.
    pub(crate) const SHORT: Self = Self { deadline: None, longest: SMALL_BYTES };
}

/// Shows how long each detector took.
pub(crate) fn observe_detectors(process: &Process, meter: &CoreMeter, ran: &Ran) {
    for (detector, micros) in process.parts.inspection.analyser.latencies_us(ran) {
        meter.detector(detector, micros);
    }
    for reason in ran.second_stage_skipped.names() {
        meter.dropped("second_stage", reason);
    }
}

impl Publish {
    /// The steps, in this order: what was masked is masked for everybody, and what settling adds (warnings, what was used) is
    /// counted and kept.
    /// `held` is given back once the record is what is kept: who finds the call recorded finds its memory given back.
    pub(crate) fn run<T>(
        mut self,
        process: &Process,
        meter: &CoreMeter,
        mut finished: Finished,
        masked: MaskedWithin,
        held: T,
    ) {
        if finished.bill.pending || self.retrieval {
            self.charge_elsewhere(process, &mut finished);
        }
        if let Some(name) = self.results.take() {
            self.charge_results(process, &mut finished, &name);
        }
        self.report(process, meter, &finished);
        if finished.span.status_code.is_some_and(|status| (200..300).contains(&status)) {
            meter.redacted(true, self.masking.counted(&finished.span, masked.deadline));
        }
        let means = Means { deadline: masked.deadline, bodies: &process.bodies, longest: masked.longest };
        self.masking.apply(&mut finished.span, &means);
        process.parts.policy.redaction.mask_record(&mut finished.span);
        if let Some(notes) = finished.receipt_notes.take() {
            // A receipt without them says what the record has.
            let _full = finished.span.attributes.insert(NOTES, notes).is_err();
        }
        drop(held);
        self.settle(&mut finished);
        if let Some(cache) = &finished.span.prompt_cache {
            process.prompts.count(self.provider_label, cache.state, cache.provider_use, cache.lost_tokens);
            prompt_cache::add_findings(&mut finished.span);
        }
        if let Some(anomalies) = &process.parts.inspection.anomalies {
            compare(anomalies, &mut finished);
        }
        if let Some(source) = self.source {
            set_source_address(&mut finished.span, source);
        }
        if !finished.span.security_findings.is_empty() {
            say_what_follows(process, &mut finished.span);
        }
        self.count(process, meter, &finished);
        self.observe(process, &finished.span);
        self.keep(process, meter, finished.span);
    }

    /// What the call cost, against what it has reserved and may use.
    fn settle(&mut self, finished: &mut Finished) {
        let unsaid = finished.bill.is_unsaid();
        let span = &mut *finished.span;
        if let Some(reservation) = self.reservation.take() {
            let agent = span.agent_id.clone();
            let least = if unsaid && is_answered(span) { reservation.estimate_nano_usd() } else { 0 };
            for warning in reservation.settle(finished.cost_nano_usd.unwrap_or(0).max(least)) {
                warn(span, soft_limit(agent.as_deref().unwrap_or(DEFAULT_AGENT), &warning));
            }
        }
        if let Some(cap) = self.token_cap {
            hold_to_tokens(span, &cap);
        }
        if !self.show_cost {
            span.estimated_cost_usd = None;
            span.tags.remove(UNPRICED);
            span.tags.remove(UNPRICED_UNITS);
            span.attributes.remove(COST_BREAKDOWN);
        }
    }

    /// Its numbers.
    fn count(&self, process: &Process, meter: &CoreMeter, finished: &Finished) {
        let span = &*finished.span;
        let model = model_of(process, span);
        if let Some(nano_usd) = finished.cost_nano_usd.filter(|_| self.show_cost) {
            meter.cost(span.tenant_id, span.model.as_deref(), nano_usd);
        } else if span.tags.contains_key(UNPRICED) {
            meter.unpriced(self.provider_label, model);
        }
        meter.request(&Counted {
            provider_label: self.provider_label,
            model,
            status: span.status_code.unwrap_or(0),
            duration_us: u64::try_from(span.end_time.micros() - span.start_time.micros()).unwrap_or(0),
            overhead_us: span.overhead_us.unwrap_or(0),
            prompt_tokens: span.prompt_tokens,
            completion_tokens: span.completion_tokens,
        });
        for finding in &span.security_findings {
            meter.finding(finding.severity, &finding.finding_type);
        }
    }

    /// Shows the span to the access log. Other consumers read it from the store, by the feed.
    fn observe(&self, process: &Process, span: &SpanRecord) {
        if let Some(access) = &self.access {
            access.write(process, span.model.as_deref());
        }
    }

    /// To the store, without its texts where that has fallen behind; what it does not take at all, to the feed's consumers, if there are any.
    fn keep(&self, process: &Process, meter: &CoreMeter, span: Box<SpanRecord>) {
        let not_stored = if self.store {
            let refused = match process.parts.recording.sink.push(span) {
                Ok(Taken::Whole) => return,
                Ok(Taken::WithoutTexts) => return meter.dropped("storage", "texts"),
                Err(refused) => refused,
            };
            let reason = match refused.reason {
                Dropped::QueueFull => "queue_full",
                Dropped::Closed => "closed",
            };
            meter.dropped("storage", reason);
            refused.span
        } else {
            Some(span)
        };
        if let (Some(feed), Some(span)) = (&process.parts.recording.feed, not_stored) {
            feed.offer(span);
        }
    }
}

impl Publish {
    /// An answer in the background is charged once, by whichever of its calls is seen to bring its end together with its
    /// beginning; the records of the others carry neither tokens nor cost.
    fn charge_elsewhere(&mut self, process: &Process, finished: &mut Finished) {
        let bill = std::mem::take(&mut finished.bill);
        let (tenant, background) = (finished.span.tenant_id, &process.background);
        let pending = bill.pending;
        let both = match bill.response_id.clone() {
            Some(id) if bill.pending && !self.retrieval => {
                let open = Open { reservation: self.reservation.take(), token_cap: self.token_cap.take() };
                background.begin(tenant, &id, open, Instant::now())
            }
            Some(id) if bill.ended && self.retrieval => background.end(tenant, &id, bill),
            _ if self.retrieval => None,
            // Without an id nobody will find it again.
            _ => return finished.bill = bill,
        };
        finished.cost_nano_usd = None;
        uncharge(&mut finished.span);
        if let Some((open, bill)) = both {
            (self.reservation, self.token_cap) = (open.reservation, open.token_cap);
            let prices = (self.show_cost || self.reservation.is_some()).then_some(&*process.parts.policy.prices);
            // The provider has brought the end and bills it, whatever the client was told instead.
            let told = finished.span.status_code.replace(200);
            finished.cost_nano_usd = charge(&mut finished.span, &bill, prices, Counter::Estimate);
            finished.span.status_code = told;
            finished.bill = bill;
        } else if pending {
            finished.span.tags.insert(Cow::Borrowed("background"), "pending".to_owned());
        }
    }
}

impl Publish {
    /// Whether the store has to be asked first how much has been charged of what the call fetched.
    pub(super) fn asks_store(&self, process: &Process, finished: &Finished) -> bool {
        let Some(name) = &self.results else { return false };
        let span = &finished.span;
        let id = || results_id(span.tenant_id, &span.provider, name);
        let cost = finished.cost_nano_usd.unwrap_or(0);
        !finished.bill.batch.is_empty() && is_answered(span) && !process.results.is_charged(&id(), cost)
    }

    /// The calls of a batch are charged by the first fetch of its results, and by later ones as far as those bring more of them than a
    /// fetch that was cut; other files are no calls.
    fn charge_results(&mut self, process: &Process, finished: &mut Finished, name: &str) {
        let span = &mut *finished.span;
        let is_batch = !finished.bill.batch.is_empty() && is_answered(span);
        let cost = finished.cost_nano_usd.unwrap_or(0);
        let beyond = is_batch
            .then(|| {
                let id = results_id(span.tenant_id, &span.provider, name);
                let at_us = span.start_time.micros();
                if !self.may_wait {
                    return process.results.charge_by_memory(&id, cost, at_us);
                }
                let books = Books { book: &*process.parts.policy.spend_book, spend: &process.parts.policy.spend };
                process.results.charge(books, (&id, cost, at_us), self.reservation.as_deref_mut())
            })
            .flatten();
        match beyond {
            Some(all) if all == cost => {}
            Some(more) => {
                finished.cost_nano_usd = Some(more);
                span.estimated_cost_usd = Some(dollars(more));
                span.attributes.remove(COST_BREAKDOWN);
                span.tags.insert(Cow::Borrowed("batch"), "charged_in_part_before".to_owned());
            }
            None => {
                finished.cost_nano_usd = None;
                uncharge(span);
                if is_batch {
                    span.tags.insert(Cow::Borrowed("batch"), "charged_before".to_owned());
                }
            }
        }
    }
}

/// Holds the call against its tenant's latest ones. What no model was asked for is none of them.
fn compare(anomalies: &Anomalies, finished: &mut Finished) {
    let span = &mut *finished.span;
    if span.operation_name == PROXY {
        return;
    }
    let answered = is_answered(span);
    let took_ms = (span.end_time.micros() - span.start_time.micros()) as f64 / 1e3;
    let call = Call {
        at_us: span.end_time.micros(),
        nano_usd: finished.cost_nano_usd.filter(|_| answered),
        tokens: span.total_tokens.filter(|_| answered),
        latency_ms: answered.then(|| span.time_to_first_token_ms.filter(|_| span.streaming).unwrap_or(took_ms)),
    };
    span.security_findings.extend(anomalies.look(span.tenant_id, &call).iter().map(Anomaly::finding));
}

/// Tags the record of a call with its source: the address of the connection, never one from a header.
fn set_source_address(span: &mut SpanRecord, source: IpAddr) {
    span.tags.insert(Cow::Borrowed(SOURCE), source.to_canonical().to_string());
}

/// Says in the record of a call with findings what the action router's rules ask for, and what of that came too late.
fn say_what_follows(process: &Process, span: &mut SpanRecord) {
    let Follow { asked, not_applied } = follow(span, &process.parts.settings.load().action_router);
    for (tag, actions) in [(ACTIONS, asked), (NOT_APPLIED, not_applied)] {
        if !actions.is_empty() {
            span.tags.insert(Cow::Borrowed(tag), actions.to_string());
        }
    }
}

/// The model as a label: a name that has answered, or has a price, may become one. Ollama's price of nothing is no sign that
/// a model exists.
fn model_of<'a>(process: &Process, span: &'a SpanRecord) -> Model<'a> {
    let name = span.model.as_deref();
    let answered = is_answered(span);
    let priced = || name.and_then(|name| process.parts.policy.prices.find(&span.provider, name));
    let vouched = answered || priced().is_some_and(|price| price != Price::default());
    Model { name, tenant: span.tenant_id, vouched }
}

impl Publish {
    /// What was read and analysed, and how that went. An analysis that its own text made fail is neither success nor failure to
    /// the security breaker: a client could otherwise switch analysis off for everybody.
    fn report(&self, process: &Process, meter: &CoreMeter, finished: &Finished) {
        let mut unread_answer = finished.unread_answer;
        if finished.unread_request.contains(Unread::WebSocket) {
            // A tunnel has two directions.
            unread_answer.insert(Unread::WebSocket);
        }
        meter.unread(Direction::Request, finished.unread_request);
        meter.unread(Direction::Response, unread_answer);
        if let Some(ran) = &finished.ran {
            observe_detectors(process, meter, ran);
        }
        let breaker = &process.parts.policy.breakers.security;
        match finished.outcome {
            // What is looked at although the breaker is open tries nothing out.
            Outcome::Whole if !self.reported && breaker.state() != State::Open => breaker.success(),
            Outcome::Nothing | Outcome::Whole => {}
            Outcome::Dropped { reason, by_content } => {
                meter.dropped("inference", reason);
                if !by_content && !self.reported {
                    breaker.failure();
                }
            }
        }
    }
}

/// Flags an answer that used more than its request was allowed to ask for.
fn hold_to_tokens(span: &mut SpanRecord, cap: &TokenCap) {
    let Some(excess) = excess_used(cap, span.prompt_tokens, span.completion_tokens) else { return };
    span.tags.insert(Cow::Borrowed("token_cap_exceeded"), excess.cap.to_owned());
    let mut finding = warning("the answer used more tokens than the cap on each request allows");
    finding.metadata.insert("scope".to_owned(), "tokens".to_owned());
    finding.metadata.insert("cap".to_owned(), excess.cap.to_owned());
    finding.metadata.insert("limit".to_owned(), excess.limit.to_string());
    finding.metadata.insert("current".to_owned(), excess.tokens.to_string());
    warn(span, finding);
}

fn soft_limit(agent: &str, reached: &Warning) -> Finding {
    let mut finding = warning(match reached.holder {
        Holder::Agent => "the agent's spend has reached the soft limit of its budget",
        Holder::Tenant => "the spend of all agents of the tenant has reached the soft limit of its budget",
        Holder::Key => "the spend of the caller's key has reached the soft limit of its budget",
    });
    finding.metadata.insert("scope".to_owned(), "budget".to_owned());
    finding.metadata.insert("budget_of".to_owned(), reached.holder.as_str().to_owned());
    finding.metadata.insert("agent_id".to_owned(), agent.to_owned());
    finding.metadata.insert("window".to_owned(), reached.window.as_str().to_owned());
    finding.metadata.insert("limit".to_owned(), dollars(reached.limit_nano_usd).to_string());
    finding.metadata.insert("current".to_owned(), dollars(reached.spent_nano_usd).to_string());
    finding
}

fn warning(description: &'static str) -> Finding {
    Finding::new("cost_cap_warning", Severity::Info, 1.0, "cost_caps", description)
}

/// Adds a finding that is no detector's; a record that was not analysed stays without a score.
fn warn(span: &mut SpanRecord, finding: Finding) {
    span.security_findings.push(finding);
    if span.security_score.is_some() {
        span.security_score = Some(score(&span.security_findings));
    }
}
