//! The roles of a store as this profile plays them: spans where the journal and the analytics store meet, and what is learned of a span
//! after it was recorded.

use std::time::{Duration, Instant};

use weir_config::vocab::{Finding, SpanId, TenantId, Timestamp, TraceId, score};

use super::lists::Marked;
use super::relational::{Fail, Relational, p};
use super::wide::Mark;
use super::{CATCH_UP, Production};
use crate::actions::ActionsSummary;
use crate::audit::AuditEvent;
use crate::charges::{BatchCharge, Booked};
use crate::cursor::{TracePlace, TraceRest};
use crate::error::{NotWritten, ReadError};
use crate::query::{Page, Paged, SpanFilter, TraceFilter};
use crate::record::{AgentAction, SpanRecord, TraceRecord};
use crate::reports::SpanPlace;
use crate::spend::SpendRow;
use crate::stats::Stats;
use crate::store::Store;
use crate::usage::{Series, SeriesQuery, SessionFilter, SessionRecord};
use crate::verdicts::LateFinding;

/// Late findings a span takes.
const SPAN_FINDINGS_MAX: usize = 1_000;
/// Spans of a report that are read at a time.
const PERIOD_SPANS: u32 = 200;
/// The locks on traces whose spans get a new version, by a hash of their ids.
const LOCKS: i64 = 0x7765_6972_1000_0000;

fn unavailable(error: &ReadError) -> NotWritten {
    NotWritten::Unavailable { reason: error.to_string() }
}

/// One of a million locks.
fn lock_of(tenant: TenantId, trace: TraceId) -> i64 {
    let mix = |bytes: &[u8; 16]| {
        bytes.iter().fold(0u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    };
    LOCKS + ((mix(tenant.as_bytes()) ^ mix(trace.as_bytes()).rotate_left(21)) % 1_000_003).cast_signed()
}

impl Production {
    /// Has the analytics store answer, once it has what the journal held; the journal, where that store is away.
    fn answer<T>(
        &self,
        store: &Store,
        shipped: impl FnOnce() -> Result<T, ReadError>,
        journal: impl FnOnce() -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.answer_whole(store, shipped, journal).map(|(answer, _)| answer)
    }

    /// The same, with whether the answer has all that the journal held when it was asked for.
    fn answer_whole<T>(
        &self,
        store: &Store,
        shipped: impl FnOnce() -> Result<T, ReadError>,
        journal: impl FnOnce() -> Result<T, ReadError>,
    ) -> Result<(T, bool), ReadError> {
        let whole = self.catch_up(store, CATCH_UP)?;
        if !whole && self.shipping.failing().is_some() {
            return Ok((journal()?, false));
        }
        match shipped() {
            Err(ReadError::Unavailable { .. }) => Ok((journal()?, false)),
            answer => Ok((answer?, whole)),
        }
    }

    /// A page. What is not shipped within the time that a question waits is not in it, which it says.
    fn answer_page<T>(
        &self,
        store: &Store,
        (tenant, asked): (TenantId, Page),
        shipped: impl FnOnce() -> Result<Paged<T>, ReadError>,
        journal: impl FnOnce() -> Result<Paged<T>, ReadError>,
    ) -> Result<Paged<T>, ReadError> {
        if asked.whole {
            return self.answer_piece(store, (tenant, asked), shipped);
        }
        let (page, whole) = self.answer_whole(store, shipped, journal)?;
        Ok(Paged { total_is_exact: page.total_is_exact && whole, ..page })
    }

    /// A piece of a whole list: from the analytics store or not at all, as nobody takes what one journal holds for the whole. The first
    /// one says how many of the tenant's spans wait in this gateway's journal and are not in it.
    fn answer_piece<T>(
        &self,
        store: &Store,
        (tenant, asked): (TenantId, Page),
        shipped: impl FnOnce() -> Result<Paged<T>, ReadError>,
    ) -> Result<Paged<T>, ReadError> {
        if asked.after.is_some() {
            return shipped();
        }
        let reads = store.local_reads();
        let end = reads.end()?.place();
        let unshipped = if self.shipping.wait_for(end, CATCH_UP) {
            0
        } else {
            // What is shipped between this and the list is counted, and may be in it.
            reads.count_between(Some(tenant), self.shipping.watermark(), end)?
        };
        Ok(Paged { unshipped, ..shipped()? })
    }

    pub(crate) fn span(&self, store: &Store, tenant: TenantId, id: SpanId) -> Result<Option<SpanRecord>, ReadError> {
        let floor = self.shipping.watermark();
        if let Some(span) = store.local_reads().span_behind(tenant, id, floor)? {
            return Ok(Some(span));
        }
        match self.analytics.span(self.scope(tenant), id) {
            Ok(found) => Ok(found.map(|(span, _)| span)),
            Err(ReadError::Unavailable { reason }) => match store.local_reads().span_behind(tenant, id, 0)? {
                Some(span) => Ok(Some(span)),
                None => Err(ReadError::Unavailable { reason }),
            },
            Err(error) => Err(error),
        }
    }

    pub(crate) fn span_by_w3c(
        &self,
        store: &Store,
        tenant: TenantId,
        id: [u8; 8],
    ) -> Result<Option<SpanRecord>, ReadError> {
        match store.local_reads().id_by_w3c(tenant, id)? {
            Some(known) => self.span(store, tenant, known),
            None => Ok(self.analytics.span_by_w3c(self.scope(tenant), id)?.map(|(span, _)| span)),
        }
    }

    /// The spans of a trace wherever they are.
    fn spans_of(&self, store: &Store, tenant: TenantId, id: TraceId) -> Result<Vec<SpanRecord>, ReadError> {
        let floor = self.shipping.watermark();
        let fresh = store.local_reads().trace_behind(tenant, id, floor)?;
        let mut spans: Vec<SpanRecord> = match self.analytics.spans_of_trace(self.scope(tenant), id) {
            Ok(shipped) => shipped.into_iter().map(|(span, _)| span).collect(),
            Err(ReadError::Unavailable { reason }) => {
                let kept = store.local_reads().trace_behind(tenant, id, 0)?;
                return if kept.is_empty() { Err(ReadError::Unavailable { reason }) } else { Ok(kept) };
            }
            Err(error) => return Err(error),
        };
        // What was shipped meanwhile is there already.
        let fresh: Vec<_> =
            fresh.into_iter().filter(|span| spans.iter().all(|known| known.span_id != span.span_id)).collect();
        spans.extend(fresh);
        Ok(spans)
    }

    pub(crate) fn trace(&self, store: &Store, tenant: TenantId, id: TraceId) -> Result<Option<TraceRecord>, ReadError> {
        Ok(TraceRecord::of(self.spans_of(store, tenant, id)?))
    }

    /// All of a trace that is not known: the stores keep no places in it.
    pub(crate) fn trace_after(
        &self,
        store: &Store,
        tenant: TenantId,
        id: TraceId,
        next: TracePlace,
        known: &dyn Fn(TraceId, SpanId) -> bool,
    ) -> Result<TraceRest, ReadError> {
        let mut spans = self.spans_of(store, tenant, id)?;
        let rows = spans.len();
        spans.retain(|span| !known(id, span.span_id));
        for span in &mut spans {
            (span.prompt, span.response) = (None, None);
        }
        Ok(TraceRest { spans, rows, next, ..TraceRest::default() })
    }

    pub(crate) fn list_spans(
        &self,
        store: &Store,
        tenant: TenantId,
        asked: &SpanFilter,
        page: Page,
    ) -> Result<Paged<SpanRecord>, ReadError> {
        let journal = || store.local_reads().list_spans(tenant, asked, page);
        self.answer_page(store, (tenant, page), || self.analytics.list_spans(self.scope(tenant), asked, page), journal)
    }

    pub(crate) fn list_findings(
        &self,
        store: &Store,
        tenant: TenantId,
        page: Page,
    ) -> Result<Paged<SpanRecord>, ReadError> {
        let journal = || store.local_reads().list_findings(tenant, page);
        self.answer_page(store, (tenant, page), || self.analytics.list_findings(self.scope(tenant), page), journal)
    }

    pub(crate) fn list_traces(
        &self,
        store: &Store,
        tenant: TenantId,
        asked: &TraceFilter,
        page: Page,
    ) -> Result<Paged<TraceRecord>, ReadError> {
        let journal = || store.local_reads().list_traces(tenant, asked, page);
        self.answer_page(store, (tenant, page), || self.analytics.list_traces(self.scope(tenant), asked, page), journal)
    }

    pub(crate) fn list_sessions(
        &self,
        store: &Store,
        tenant: TenantId,
        asked: &SessionFilter,
        page: Page,
    ) -> Result<Paged<SessionRecord>, ReadError> {
        let journal = || store.local_reads().list_sessions(tenant, asked, page);
        self.answer_page(
            store,
            (tenant, page),
            || self.analytics.list_sessions(self.scope(tenant), asked, page),
            journal,
        )
    }

    pub(crate) fn series(&self, store: &Store, tenant: TenantId, asked: &SeriesQuery) -> Result<Series, ReadError> {
        let journal = || store.local_reads().series(tenant, asked);
        let (series, whole) = self.answer_whole(store, || self.analytics.series(self.scope(tenant), asked), journal)?;
        // What only the analytics store or only the journal has is in no figure then.
        Ok(Series { partial: series.partial || !whole, truncated: series.truncated || !whole, ..series })
    }

    pub(crate) fn stats(&self, store: &Store, tenant: TenantId) -> Result<Stats, ReadError> {
        let journal = || store.local_reads().stats(tenant);
        self.answer(store, || self.analytics.stats(self.scope(tenant)), journal)
    }

    pub(crate) fn actions_summary(
        &self,
        store: &Store,
        tenant: TenantId,
        asked: &SpanFilter,
    ) -> Result<ActionsSummary, ReadError> {
        let journal = || store.local_reads().actions_summary(tenant, asked);
        self.answer(store, || self.analytics.actions_summary(self.scope(tenant), asked), journal)
    }

    /// For a report: nothing is left out because a store is away.
    pub(crate) fn read_period(
        &self,
        store: &Store,
        tenant: TenantId,
        place: &mut SpanPlace,
        end: Timestamp,
        slice: Duration,
        take: &mut dyn FnMut(SpanRecord),
    ) -> Result<bool, ReadError> {
        let until = Instant::now() + slice;
        if !self.catch_up(store, CATCH_UP)?
            && let Some(reason) = self.shipping.failing()
        {
            return Err(ReadError::Unavailable { reason });
        }
        loop {
            let (spans, more) = self.analytics.period(self.scope(tenant), place, end.micros(), PERIOD_SPANS)?;
            spans.into_iter().for_each(|(span, _)| take(span));
            if !more {
                return Ok(false);
            }
            if Instant::now() >= until {
                return Ok(true);
            }
        }
    }

    /// Makes a new version of a span that the analytics store has, alone of all gateways. `change` says whether there is anything to
    /// write; `None` where there is no such span.
    fn change_span(
        &self,
        tenant: TenantId,
        trace: TraceId,
        find: impl Fn(&[Marked]) -> Option<usize>,
        change: impl Fn(&mut SpanRecord, &mut Mark) -> Result<bool, NotWritten>,
    ) -> Result<Option<SpanId>, NotWritten> {
        let failed = |error: ReadError| Fail::Write(unavailable(&error));
        self.relational.write(|tx| {
            tx.lock(lock_of(tenant, trace))?;
            let mut spans = self.analytics.spans_of_trace(self.scope(tenant), trace).map_err(failed)?;
            let Some(at) = find(&spans) else { return Ok(None) };
            let (mut span, mut mark) = spans.swap_remove(at);
            if change(&mut span, &mut mark).map_err(Fail::Write)? {
                mark.version += 1;
                self.send_version(&mut span, mark).map_err(failed)?;
            }
            Ok(Some(span.span_id))
        })
    }

    /// Whether a change can be made in the analytics store now; else the journal has to take it, or nobody.
    fn is_shipped(&self, store: &Store) -> Result<bool, NotWritten> {
        self.catch_up(store, CATCH_UP).map_err(|error| unavailable(&error))
    }

    fn away(&self) -> NotWritten {
        let reason = self.shipping.failing().unwrap_or_else(|| "it has not taken all spans yet".to_owned());
        NotWritten::Unavailable { reason: format!("the analytics store: {reason}") }
    }

    pub(crate) fn add_action(
        &self,
        store: &Store,
        tenant: TenantId,
        trace: TraceId,
        span: Option<SpanId>,
        action: &AgentAction,
        findings: &[Finding],
    ) -> Result<Option<SpanId>, NotWritten> {
        if !self.is_shipped(store)? {
            // Of a span that is in no batch yet, the journal's record is the one that will be shipped.
            let _in_no_batch = self.shipping.cutting.lock();
            let floor = self.shipping.cut();
            let fresh = store.local_reads().trace_behind(tenant, trace, floor).map_err(|error| unavailable(&error))?;
            let latest =
                fresh.iter().filter(|it| span.is_none_or(|span| it.span_id == span)).max_by_key(|it| it.start_time);
            let Some(owner) = latest.map(|it| it.span_id) else { return Err(self.away()) };
            return store.local_add_action(tenant, trace, owner, action.clone(), findings.to_vec());
        }
        let find = |spans: &[Marked]| {
            let theirs = spans.iter().enumerate().filter(|(_, (it, _))| span.is_none_or(|span| it.span_id == span));
            theirs.max_by_key(|(at, (it, _))| (it.start_time, *at)).map(|(at, _)| at)
        };
        self.change_span(tenant, trace, find, |span, mark| {
            if span.agent_actions.iter().any(|known| known.id == action.id) {
                return Ok(false);
            }
            span.agent_actions.push(action.clone());
            mark.reported += 1;
            take_findings(span, findings);
            Ok(true)
        })
    }

    pub(crate) fn add_late(&self, store: &Store, late: &LateFinding) -> Result<bool, NotWritten> {
        if !self.is_shipped(store)? {
            let _in_no_batch = self.shipping.cutting.lock();
            let floor = self.shipping.cut();
            let fresh = store.local_reads().span_behind(late.tenant, late.span, floor);
            return match fresh.map_err(|error| unavailable(&error))? {
                Some(_) => {
                    let bare = LateFinding { verdict: None, ..late.clone() };
                    let known = store.local_add_late(bare)?;
                    late.verdict
                        .as_ref()
                        .map_or(Ok(()), |verdict| self.relational.add_verdict(late.tenant, verdict))?;
                    Ok(known)
                }
                None => Err(self.away()),
            };
        }
        let found = self.analytics.span(self.scope(late.tenant), late.span).map_err(|error| unavailable(&error))?;
        let Some((span, _)) = found else { return Ok(false) };
        if let Some(finding) = &late.finding {
            let find = |spans: &[Marked]| spans.iter().position(|(it, _)| it.span_id == late.span);
            let changed = self.change_span(late.tenant, span.trace_id, find, |span, _| {
                if span.security_findings.iter().any(|known| known.id == finding.id) {
                    return Ok(false);
                }
                if span.security_findings.len() >= SPAN_FINDINGS_MAX {
                    let reason = format!("span {} has {SPAN_FINDINGS_MAX} findings and takes no more", span.span_id);
                    return Err(NotWritten::Refused { reason });
                }
                take_findings(span, std::slice::from_ref(finding));
                Ok(true)
            })?;
            if changed.is_none() {
                return Ok(false);
            }
        }
        late.verdict.as_ref().map_or(Ok(()), |verdict| self.relational.add_verdict(late.tenant, verdict))?;
        Ok(true)
    }

    pub(crate) fn delete_trace(
        &self,
        store: &Store,
        tenant: TenantId,
        trace: TraceId,
        by: &AuditEvent,
    ) -> Result<bool, NotWritten> {
        if !self.is_shipped(store)? {
            return Err(self.away());
        }
        let failed = |error: ReadError| Fail::Write(unavailable(&error));
        let was_there = self.relational.write(|tx| {
            tx.lock(lock_of(tenant, trace))?;
            if self.analytics.spans_of_trace(self.scope(tenant), trace).map_err(failed)?.is_empty() {
                return Ok(false);
            }
            tx.audit(by)?;
            let sql = "INSERT INTO erasures (tenant, trace_id, at_us) VALUES ($1, $2, $3)";
            tx.run(sql, p![tenant, trace, Timestamp::now().micros()])?;
            Ok(true)
        })?;
        if was_there {
            self.analytics.delete_trace(tenant, trace).map_err(|error| unavailable(&error))?;
            self.relational.forget_trace(tenant, trace, None)?;
            store.local_erase_trace(tenant, trace);
        }
        Ok(was_there)
    }

    /// What a deleted tenant had is hidden at once, and taken out now or, where the analytics store is away, when it is back.
    fn erase_tenant(&self, store: &Store, tenant: TenantId) {
        self.forget_tenant(tenant);
        store.local_erase_tenant(tenant);
        let at_us = Timestamp::now().micros();
        let buried =
            self.relational.read(|tx| tx.value::<i64>("SELECT at_us FROM burials WHERE tenant = $1", p![tenant]));
        let at_us = buried.unwrap_or(at_us);
        self.note_burials(&std::collections::HashMap::from([(tenant, at_us)]));
        if let Err(error) = self.analytics.delete_tenant(tenant, at_us) {
            tracing::warn!(%error, "a deleted tenant's spans are hidden and will be taken out of the analytics store later");
        }
    }

    pub(crate) fn delete_tenant(&self, store: &Store, tenant: TenantId, by: &AuditEvent) -> Result<bool, NotWritten> {
        let was_there = self.relational.delete_tenant(tenant, by)?;
        if was_there {
            self.erase_tenant(store, tenant);
        }
        Ok(was_there)
    }

    pub(crate) fn delete_tenant_data(&self, store: &Store, tenant: TenantId) -> Result<(), NotWritten> {
        self.relational.write(|tx| tx.bury(tenant).map(|_| ()))?;
        self.erase_tenant(store, tenant);
        Ok(())
    }

    /// The relational store, once it knows the tenants whose spans the journal has.
    pub(crate) fn registry(&self, store: &Store) -> &Relational {
        // Where that is not to be had, the answer lacks tenants that were only just seen.
        let _best = self.catch_up(store, CATCH_UP).unwrap_or(false);
        &self.relational
    }

    /// The same, for what no span has to do with.
    pub(crate) fn books(&self) -> &Relational {
        &self.relational
    }

    pub(crate) fn save_spend(&self, rows: &[SpendRow]) -> Result<Vec<(TenantId, i64)>, NotWritten> {
        self.relational.save_spend(&self.others, rows)
    }

    pub(crate) fn charge_batch(&self, rows: &[SpendRow], charge: &BatchCharge) -> Result<Booked, NotWritten> {
        self.relational.charge_batch(&self.others, rows, charge)
    }

    pub(crate) fn load_spend(&self, now_s: i64) -> Result<Vec<SpendRow>, ReadError> {
        self.relational.load_spend(&self.others, now_s)
    }

    pub(crate) fn spent_elsewhere(&self, now_s: i64) -> Result<Vec<SpendRow>, ReadError> {
        self.relational.spent_elsewhere(&self.others, now_s)
    }

    pub(crate) fn share_secret(&self, name: &str, own: Option<&[u8]>) -> Result<Option<Vec<u8>>, NotWritten> {
        self.relational.share_secret(name, own)
    }
}

/// Findings join a span and may raise its score.
fn take_findings(span: &mut SpanRecord, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    span.security_findings.extend(findings.iter().cloned());
    span.security_score = span.security_score.max(Some(score(findings)));
}
