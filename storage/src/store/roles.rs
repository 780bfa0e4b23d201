//! The store in each of its roles: a write is a change handed to the writer, a read a question to the readers.

use std::time::Duration;

use uuid::Uuid;
use weir_config::vocab::{Finding, KeyId, SpanId, TenantId, Timestamp, TraceId};

use super::Store;
use crate::actions::ActionsSummary;
use crate::alerts::{Accepted, AlertFilter, AlertKey, AlertRecord, Claim, Claimant, Heard, Sighting, Step, StepDone};
use crate::audit::{AuditCheck, AuditEntry, AuditEvent};
use crate::change::{AlertChange, Answer, Change, ReportedAction, TokenWanted};
use crate::charges::{BatchCharge, BatchId, Booked};
use crate::claim::ReadingClaim;
use crate::cursor::{Cursor, Inserted, SpanBatch, TracePlace, TraceRest};
use crate::error::{NotTaken, NotWritten, ReadError};
use crate::objects::MadeObject;
use crate::offences::{BlockedAddress, Offence};
use crate::order::{ORDER_WAIT, Order};
use crate::query::{PAGE_MAX, Page, Paged, SpanFilter, TraceFilter};
use crate::queue::weigh;
use crate::record::{AgentAction, SpanRecord, TraceRecord};
use crate::reports::{EventsOfPeriod, PENDING_MAX, ReportRecord, ReportType, SpanPlace};
use crate::roles::{
    AlertBook, AuditLog, ObjectBook, OffenceBook, Registry, ReportBook, SpanLog, SpendBook, VerdictBook,
};
use crate::spend::SpendRow;
use crate::sqlite::{Reads, Texts};
use crate::stats::Stats;
use crate::tenants::{
    CredentialChanges, Credentials, KeyRecord, NewTenant, Provenance, SealedKey, TenantChange, TenantRecord,
    TenantUpdate,
};
use crate::usage::{Series, SeriesQuery, SessionFilter, SessionRecord};
use crate::verdicts::{JudgeVerdict, LateFinding};

impl Store {
    /// Has the writer make a change and waits until it is durable.
    pub(super) fn write<T: TryFrom<Answer, Error = NotWritten>>(&self, change: Change) -> Result<T, NotWritten> {
        let (order, receipt) = Order::new(change);
        self.inner.queue.order(order)?;
        receipt.wait(ORDER_WAIT)?.try_into()
    }

    pub(super) fn reads(&self) -> Reads<'_> {
        let inner = &*self.inner;
        Reads { readers: &inner.readers, observer: &*inner.observer, auditor: &inner.auditor }
    }
}

impl SpanLog for Store {
    fn append(&self, span: Box<SpanRecord>) -> Result<(), NotTaken> {
        self.inner.queue.push(span).map(|_taken| ())
    }

    fn flush(&self, within: Duration) -> bool {
        let lost = self.inner.lost();
        self.inner.queue.flush(within) && self.inner.lost() == lost
    }

    fn insert(&self, spans: Vec<SpanRecord>) -> Result<Inserted, NotWritten> {
        let queue = &self.inner.queue;
        let room = queue.hold(spans.iter().map(weigh).sum());
        let room = room.ok_or(NotWritten::Full { bytes_max: queue.bytes_max() })?;
        let inserted = Inserted { fates: self.write(Change::InsertSpans { spans, room })? };
        self.inner.tally.inserted(&inserted);
        Ok(inserted)
    }

    fn read_after(&self, after: Cursor, limit: u32, bytes_max: usize) -> Result<SpanBatch, ReadError> {
        self.reads().read_after(after, limit.clamp(1, PAGE_MAX), bytes_max, Texts::Read)
    }

    fn read_without_texts_after(&self, after: Cursor, limit: u32, bytes_max: usize) -> Result<SpanBatch, ReadError> {
        self.reads().read_after(after, limit.clamp(1, PAGE_MAX), bytes_max, Texts::LeftOut)
    }

    fn read_found_after(&self, after: Cursor, limit: u32, bytes_max: usize) -> Result<SpanBatch, ReadError> {
        self.reads().read_found_after(after, limit.clamp(1, PAGE_MAX), bytes_max)
    }

    fn end(&self) -> Result<Cursor, ReadError> {
        self.reads().end()
    }

    fn cursor(&self, consumer: &str) -> Result<Option<Cursor>, ReadError> {
        self.reads().cursor(consumer)
    }

    fn save_cursor(&self, consumer: &str, at: Cursor) -> Result<(), NotWritten> {
        self.write(Change::SaveCursor { consumer: consumer.to_owned(), at })
    }

    fn claim_reading(&self, consumer: &str) -> Result<Option<ReadingClaim>, ReadError> {
        let Some(file) = &self.inner.file else { return Ok(Some(ReadingClaim::sole())) };
        ReadingClaim::beside(file, consumer).map_err(|error| ReadError::Unavailable { reason: error.to_string() })
    }

    fn list_traces(&self, tenant: TenantId, filter: &TraceFilter, page: Page) -> Result<Paged<TraceRecord>, ReadError> {
        if let Some(production) = self.production() {
            return production.list_traces(self, tenant, filter, page.within_bounds());
        }
        self.reads().list_traces(tenant, filter, page.within_bounds())
    }

    fn trace(&self, tenant: TenantId, id: TraceId) -> Result<Option<TraceRecord>, ReadError> {
        if let Some(production) = self.production() {
            return production.trace(self, tenant, id);
        }
        self.reads().trace(tenant, id)
    }

    fn traces_after(
        &self,
        tenant: TenantId,
        asked: &[(TraceId, TracePlace)],
        known: &dyn Fn(TraceId, SpanId) -> bool,
    ) -> Result<Vec<TraceRest>, ReadError> {
        if let Some(production) = self.production() {
            return asked.iter().map(|(id, next)| production.trace_after(self, tenant, *id, *next, known)).collect();
        }
        self.reads().traces_after(tenant, asked, known)
    }

    fn list_spans(&self, tenant: TenantId, filter: &SpanFilter, page: Page) -> Result<Paged<SpanRecord>, ReadError> {
        if let Some(production) = self.production() {
            return production.list_spans(self, tenant, filter, page.within_bounds());
        }
        self.reads().list_spans(tenant, filter, page.within_bounds())
    }

    fn span(&self, tenant: TenantId, id: SpanId) -> Result<Option<SpanRecord>, ReadError> {
        if let Some(production) = self.production() {
            return production.span(self, tenant, id);
        }
        self.reads().span(tenant, id)
    }

    fn span_by_w3c(&self, tenant: TenantId, id: [u8; 8]) -> Result<Option<SpanRecord>, ReadError> {
        if let Some(production) = self.production() {
            return production.span_by_w3c(self, tenant, id);
        }
        self.reads().span_by_w3c(tenant, id)
    }

    fn list_findings(&self, tenant: TenantId, page: Page) -> Result<Paged<SpanRecord>, ReadError> {
        if let Some(production) = self.production() {
            return production.list_findings(self, tenant, page.within_bounds());
        }
        self.reads().list_findings(tenant, page.within_bounds())
    }

    fn list_sessions(
        &self,
        tenant: TenantId,
        filter: &SessionFilter,
        page: Page,
    ) -> Result<Paged<SessionRecord>, ReadError> {
        if let Some(production) = self.production() {
            return production.list_sessions(self, tenant, filter, page.within_bounds());
        }
        self.reads().list_sessions(tenant, filter, page.within_bounds())
    }

    fn series(&self, tenant: TenantId, asked: &SeriesQuery) -> Result<Series, ReadError> {
        if let Some(production) = self.production() {
            return production.series(self, tenant, asked);
        }
        self.reads().series(tenant, asked)
    }

    fn stats(&self, tenant: TenantId) -> Result<Stats, ReadError> {
        if let Some(production) = self.production() {
            return production.stats(self, tenant);
        }
        self.reads().stats(tenant)
    }

    fn add_action(
        &self,
        tenant: TenantId,
        trace: TraceId,
        span: Option<SpanId>,
        action: AgentAction,
        findings: Vec<Finding>,
    ) -> Result<Option<SpanId>, NotWritten> {
        if let Some(production) = self.production() {
            return production.add_action(self, tenant, trace, span, &action, &findings);
        }
        let reported = ReportedAction { tenant, trace, span, action, findings };
        self.write(Change::AddAction(Box::new(reported)))
    }

    fn actions_summary(&self, tenant: TenantId, filter: &SpanFilter) -> Result<ActionsSummary, ReadError> {
        if let Some(production) = self.production() {
            return production.actions_summary(self, tenant, filter);
        }
        self.reads().actions_summary(tenant, filter)
    }

    fn delete_trace(&self, tenant: TenantId, trace: TraceId, by: AuditEvent) -> Result<bool, NotWritten> {
        if let Some(production) = self.production() {
            return production.delete_trace(self, tenant, trace, &by);
        }
        let mut by = Some(by);
        let mut any = false;
        while self.write(Change::EraseTrace { tenant, trace, by: by.take() })? {
            any = true;
        }
        Ok(any)
    }

    fn delete_tenant_data(&self, tenant: TenantId) -> Result<(), NotWritten> {
        if let Some(production) = self.production() {
            return production.delete_tenant_data(self, tenant);
        }
        let mut ledger = self.inner.ledger.lock();
        self.write::<()>(Change::EraseTenant(tenant))?;
        ledger.forget(tenant);
        Ok(())
    }
}

impl AuditLog for Store {
    fn audit(&self, event: AuditEvent) -> Result<u64, NotWritten> {
        if let Some(production) = self.production() {
            return production.books().write_audit(&event);
        }
        self.write(Change::Audit(event))
    }

    fn list_audit(&self, tenant: Option<TenantId>, page: Page) -> Result<Paged<AuditEntry>, ReadError> {
        if let Some(production) = self.production() {
            return production.books().list_audit(tenant, page.within_bounds());
        }
        self.reads().list_audit(tenant, page.within_bounds())
    }

    fn check_audit(&self) -> Result<AuditCheck, ReadError> {
        if let Some(production) = self.production() {
            return production.books().check_audit();
        }
        self.reads().check_audit()
    }

    fn check_audit_since(&self, shown: &[AuditEntry]) -> Result<AuditCheck, ReadError> {
        if let Some(production) = self.production() {
            return production.books().check_audit();
        }
        self.reads().check_audit_since(shown)
    }

    fn check_audit_aside(&self, shown: &[AuditEntry]) -> Result<AuditCheck, ReadError> {
        if let Some(production) = self.production() {
            return production.books().check_audit();
        }
        self.reads().check_audit_aside(shown)
    }
}

impl Registry for Store {
    fn create_tenant(&self, new: NewTenant, by: AuditEvent) -> Result<TenantRecord, NotWritten> {
        if let Some(production) = self.production() {
            return production.registry(self).create_tenant(&new, &by);
        }
        let created: Option<TenantRecord> = self.write(Change::CreateTenant { new, by })?;
        created.ok_or_else(|| NotWritten::Refused { reason: "the tenant vanished".to_owned() })
    }

    fn list_tenants(&self, page: Page) -> Result<Paged<TenantRecord>, ReadError> {
        if let Some(production) = self.production() {
            return production.registry(self).list_tenants(page.within_bounds());
        }
        self.reads().list_tenants(page.within_bounds())
    }

    fn tenant(&self, id: TenantId) -> Result<Option<TenantRecord>, ReadError> {
        if let Some(production) = self.production() {
            return production.registry(self).tenant(id);
        }
        self.reads().tenant(id)
    }

    fn update_tenant(&self, id: TenantId, change: TenantChange, by: AuditEvent) -> Result<TenantUpdate, NotWritten> {
        if let Some(production) = self.production() {
            return production.registry(self).update_tenant(id, &change, &by);
        }
        self.write(Change::UpdateTenant { id, change, by })
    }

    fn delete_tenant(&self, id: TenantId, by: AuditEvent) -> Result<bool, NotWritten> {
        if let Some(production) = self.production() {
            return production.delete_tenant(self, id, &by);
        }
        let mut ledger = self.inner.ledger.lock();
        let is_deleted = self.write(Change::DeleteTenant { id, by })?;
        if is_deleted {
            ledger.forget(id);
        }
        Ok(is_deleted)
    }

    fn issue_token(
        &self,
        id: TenantId,
        fresh: i64,
        create: bool,
        issued: AuditEvent,
        shown: Option<AuditEvent>,
    ) -> Result<Option<i64>, NotWritten> {
        if let Some(production) = self.production() {
            return production.registry(self).issue_token(id, fresh, create, &issued, shown.as_ref());
        }
        self.write(Change::IssueToken(Box::new(TokenWanted { id, fresh, create, issued, shown })))
    }

    fn token_nonce(&self, id: TenantId) -> Result<Option<Option<i64>>, ReadError> {
        if let Some(production) = self.production() {
            return production.books().token_nonce(id);
        }
        self.reads().token_nonce(id)
    }

    fn reset_token(&self, id: TenantId, fresh: i64, by: AuditEvent) -> Result<bool, NotWritten> {
        if let Some(production) = self.production() {
            return production.registry(self).reset_token(id, fresh, &by);
        }
        self.write(Change::ResetToken { id, fresh, by })
    }

    fn note_token_key(&self, sha256: [u8; 32]) -> Result<(), NotWritten> {
        if let Some(production) = self.production() {
            return production.books().note_token_key(&sha256);
        }
        self.write(Change::NoteTokenKey(sha256))
    }

    fn create_key(&self, key: KeyRecord, sha256: [u8; 32], by: AuditEvent) -> Result<bool, NotWritten> {
        if let Some(production) = self.production() {
            return production.registry(self).create_key(&key, &sha256, &by);
        }
        self.write(Change::CreateKey { key, sha256, by })
    }

    fn list_keys(&self, tenant: TenantId, page: Page) -> Result<Paged<KeyRecord>, ReadError> {
        if let Some(production) = self.production() {
            return production.books().list_keys(tenant, page.within_bounds());
        }
        self.reads().list_keys(tenant, page.within_bounds())
    }

    fn revoke_key(&self, id: KeyId, by: AuditEvent) -> Result<bool, NotWritten> {
        if let Some(production) = self.production() {
            return production.books().revoke_key(id, &by);
        }
        self.write(Change::RevokeKey { id, by })
    }

    fn set_provider_key(&self, key: SealedKey, by: AuditEvent) -> Result<bool, NotWritten> {
        if let Some(production) = self.production() {
            return production.registry(self).set_provider_key(&key, &by);
        }
        self.write(Change::SetProviderKey { key, by })
    }

    fn remove_provider_key(&self, tenant: TenantId, upstream: &str, by: AuditEvent) -> Result<bool, NotWritten> {
        if let Some(production) = self.production() {
            return production.books().remove_provider_key(tenant, upstream, &by);
        }
        self.write(Change::RemoveProviderKey { tenant, upstream: upstream.to_owned(), by })
    }

    fn provider_keys(&self, of: Option<TenantId>) -> Result<Vec<SealedKey>, ReadError> {
        if let Some(production) = self.production() {
            return production.books().provider_keys(of);
        }
        self.reads().provider_keys(of)
    }

    fn touch_keys(&self, used: Vec<(KeyId, Timestamp)>) -> Result<(), NotWritten> {
        if let Some(production) = self.production() {
            return production.books().touch_keys(&used);
        }
        self.write(Change::TouchKeys(used))
    }

    fn load_credentials(&self, of: Option<TenantId>) -> Result<Credentials, ReadError> {
        if let Some(production) = self.production() {
            return production.books().load_credentials(of);
        }
        self.reads().load_credentials(of)
    }

    fn identity_changes(&self, after: u64) -> Result<CredentialChanges, ReadError> {
        if let Some(production) = self.production() {
            return production.books().identity_changes(after);
        }
        self.inner.readers.identity_changes(after)
    }

    fn credentials_known_to(&self, actor: &str) -> Result<Provenance, ReadError> {
        if let Some(production) = self.production() {
            return production.books().credentials_known_to(actor);
        }
        self.reads().credentials_known_to(actor)
    }
}

impl ReportBook for Store {
    fn ask_report(
        &self,
        begin: bool,
        tenant: TenantId,
        report_type: ReportType,
        start: Timestamp,
        end: Timestamp,
    ) -> Result<Option<ReportRecord>, NotWritten> {
        let report = ReportRecord::pending(tenant, report_type, start, end);
        let waiting: Option<u64> = match self.production() {
            Some(production) => production.registry(self).ask_report(&report, begin)?,
            None => self.write(Change::AskReport { report: Box::new(report.clone()), begin })?,
        };
        match waiting {
            Some(waiting) if waiting >= PENDING_MAX => Err(NotWritten::TooMany { waiting }),
            Some(_) => Ok(Some(report)),
            None => Ok(None),
        }
    }

    fn list_reports(&self, tenant: TenantId, page: Page) -> Result<Paged<ReportRecord>, ReadError> {
        if let Some(production) = self.production() {
            return production.books().list_reports(tenant, page.within_bounds());
        }
        self.reads().list_reports(tenant, page.within_bounds())
    }

    fn report(&self, tenant: TenantId, id: Uuid) -> Result<Option<ReportRecord>, ReadError> {
        if let Some(production) = self.production() {
            return production.books().report(tenant, id);
        }
        self.reads().report(tenant, id)
    }

    fn pending_report(&self) -> Result<Option<(TenantId, Uuid)>, ReadError> {
        if let Some(production) = self.production() {
            return production.books().pending_report();
        }
        self.reads().pending_report()
    }

    fn complete_report(&self, tenant: TenantId, id: Uuid, built: Result<String, String>) -> Result<(), NotWritten> {
        if let Some(production) = self.production() {
            return production.books().complete_report(tenant, id, &built);
        }
        self.write(Change::CompleteReport { tenant, id, built })
    }

    fn read_period(
        &self,
        tenant: TenantId,
        place: &mut SpanPlace,
        end: Timestamp,
        slice: Duration,
        take: &mut dyn FnMut(SpanRecord),
    ) -> Result<bool, ReadError> {
        if let Some(production) = self.production() {
            return production.read_period(self, tenant, place, end, slice, take);
        }
        self.reads().read_period(tenant, place, end, slice, take)
    }

    fn read_events(&self, events: &mut EventsOfPeriod, slice: Duration) -> Result<bool, ReadError> {
        if let Some(production) = self.production() {
            return production.books().read_events(events, slice);
        }
        self.reads().read_events(events, slice)
    }
}

impl SpendBook for Store {
    fn save_spend(&self, rows: Vec<SpendRow>) -> Result<Vec<(TenantId, i64)>, NotWritten> {
        if let Some(production) = self.production() {
            return production.save_spend(&rows);
        }
        // Held over the commit: what is read meanwhile may have these rows or not.
        let mut ledger = self.inner.ledger.lock();
        let left_out: Vec<(TenantId, i64)> = self.write(Change::SaveSpend(ledger.news(&rows)))?;
        ledger.written(&rows, &left_out, Timestamp::now().micros().div_euclid(1_000_000));
        Ok(left_out)
    }

    fn load_spend(&self, now_s: i64) -> Result<Vec<SpendRow>, ReadError> {
        if let Some(production) = self.production() {
            return production.load_spend(now_s);
        }
        let mut ledger = self.inner.ledger.lock();
        let rows = self.reads().load_spend(now_s)?;
        ledger.begin(&rows);
        Ok(rows)
    }

    fn charged(&self, id: &BatchId) -> Result<Option<u64>, ReadError> {
        if let Some(production) = self.production() {
            return production.books().charged(id);
        }
        self.reads().charged(id)
    }

    fn charge_batch(&self, rows: Vec<SpendRow>, charge: BatchCharge) -> Result<Booked, NotWritten> {
        if let Some(production) = self.production() {
            return production.charge_batch(&rows, &charge);
        }
        let mut ledger = self.inner.ledger.lock();
        let booked: Booked = self.write(Change::ChargeBatch { rows: ledger.news(&rows), charge })?;
        if let Booked::Kept(left_out) = &booked {
            ledger.written(&rows, left_out, Timestamp::now().micros().div_euclid(1_000_000));
        }
        Ok(booked)
    }
}

impl OffenceBook for Store {
    fn note_offence(&self, offence: Offence) -> Result<Option<BlockedAddress>, NotWritten> {
        if let Some(production) = self.production() {
            return production.books().note_offence(&offence);
        }
        self.write(Change::NoteOffence(offence))
    }

    fn blocked_addresses(&self, now: Timestamp) -> Result<Vec<BlockedAddress>, ReadError> {
        if let Some(production) = self.production() {
            return production.books().blocked_addresses(now);
        }
        self.reads().blocked_addresses(now)
    }
}

impl ObjectBook for Store {
    fn note_objects(&self, objects: Vec<MadeObject>) -> Result<(), NotWritten> {
        if let Some(production) = self.production() {
            return production.registry(self).note_objects(&objects);
        }
        self.write(Change::NoteObjects(objects))
    }

    fn own_objects(&self, tenant: TenantId, upstream: &str, objects: &[String]) -> Result<Vec<bool>, ReadError> {
        if let Some(production) = self.production() {
            return production.books().own_objects(tenant, upstream, objects);
        }
        self.reads().own_objects(tenant, upstream, objects)
    }
}

impl VerdictBook for Store {
    fn add_late(&self, late: LateFinding) -> Result<bool, NotWritten> {
        if let Some(production) = self.production() {
            return production.add_late(self, &late);
        }
        self.write(Change::AddLate(Box::new(late)))
    }

    fn list_verdicts(&self, tenant: TenantId, trace: TraceId) -> Result<Vec<JudgeVerdict>, ReadError> {
        if let Some(production) = self.production() {
            return production.books().list_verdicts(tenant, trace);
        }
        self.reads().list_verdicts(tenant, trace)
    }
}

impl Store {
    fn alert<T: TryFrom<Answer, Error = NotWritten>>(&self, change: AlertChange) -> Result<T, NotWritten> {
        self.write(Change::Alert(Box::new(change)))
    }
}

impl AlertBook for Store {
    fn tenant_name(&self, tenant: TenantId) -> Result<Option<String>, ReadError> {
        if self.production().is_some() {
            return Ok(Registry::tenant(self, tenant)?.map(|tenant| tenant.name));
        }
        if self.production().is_some() {
            return Ok(Registry::tenant(self, tenant)?.map(|tenant| tenant.name));
        }
        self.reads().tenant_name(tenant)
    }

    fn count_alerts(&self, sightings: Vec<Sighting>, now: Timestamp) -> Result<Vec<Heard>, NotWritten> {
        if let Some(production) = self.production() {
            return production.registry(self).count_alerts(&sightings, now);
        }
        if sightings.is_empty() { Ok(Vec::new()) } else { self.alert(AlertChange::Count { sightings, now }) }
    }

    fn claim_alert(&self, sighting: Sighting, by: Claimant) -> Result<Claim, NotWritten> {
        if let Some(production) = self.production() {
            return production.registry(self).claim_alert(&sighting, &by);
        }
        self.alert(AlertChange::Claim { sighting, by })
    }

    fn accept_alert(&self, accepted: Accepted) -> Result<Option<AlertRecord>, NotWritten> {
        if let Some(production) = self.production() {
            return production.registry(self).accept_alert(&accepted);
        }
        let alert: Option<Box<AlertRecord>> = self.alert(AlertChange::Accept(accepted))?;
        Ok(alert.map(|alert| *alert))
    }

    fn hold_alert(&self, key: AlertKey, owner: Uuid, until: Timestamp) -> Result<(), NotWritten> {
        if let Some(production) = self.production() {
            return production.books().hold_alert(&key, owner, until);
        }
        self.alert(AlertChange::Hold { key, owner, until })
    }

    fn claim_due(&self, channel: &str, by: Claimant, limit: u32) -> Result<Vec<(AlertRecord, Step)>, NotWritten> {
        if let Some(production) = self.production() {
            return production.books().claim_due(channel, &by, limit.clamp(1, PAGE_MAX));
        }
        self.alert(AlertChange::ClaimDue { channel: channel.to_owned(), by, limit: limit.clamp(1, PAGE_MAX) })
    }

    fn next_due(&self, channel: &str) -> Result<Option<Timestamp>, ReadError> {
        if let Some(production) = self.production() {
            return production.books().next_due(channel);
        }
        self.reads().next_due(channel)
    }

    fn finish_step(&self, alert: AlertRecord, done: StepDone) -> Result<(), NotWritten> {
        if let Some(production) = self.production() {
            return production.books().finish_step(&alert, &done);
        }
        self.alert(AlertChange::Finish { alert, done })
    }

    fn sustain_alert(&self, key: AlertKey, by: Claimant) -> Result<bool, NotWritten> {
        if let Some(production) = self.production() {
            return production.registry(self).sustain_alert(&key, &by);
        }
        self.alert(AlertChange::Sustain { key, by })
    }

    fn release_alert(&self, key: AlertKey, owner: Uuid, at: Timestamp) -> Result<bool, NotWritten> {
        if let Some(production) = self.production() {
            return production.books().release_alert(&key, owner, at);
        }
        self.alert(AlertChange::Release { key, owner, at })
    }

    fn acknowledge_alert(&self, tenant: TenantId, id: Uuid, by: AuditEvent) -> Result<Option<AlertRecord>, NotWritten> {
        if let Some(production) = self.production() {
            return production.books().acknowledge_alert(tenant, id, &by);
        }
        let alert: Option<Box<AlertRecord>> = self.alert(AlertChange::Acknowledge { tenant, id, by })?;
        Ok(alert.map(|alert| *alert))
    }

    fn redeliver_alert(&self, tenant: TenantId, id: Uuid, by: AuditEvent) -> Result<Option<AlertRecord>, NotWritten> {
        if let Some(production) = self.production() {
            return production.books().redeliver_alert(tenant, id, &by);
        }
        if let Some(production) = self.production() {
            return production.books().redeliver_alert(tenant, id, &by);
        }
        let alert: Option<Box<AlertRecord>> = self.alert(AlertChange::Redeliver { tenant, id, by })?;
        Ok(alert.map(|alert| *alert))
    }

    fn list_alerts(&self, tenant: TenantId, filter: &AlertFilter, page: Page) -> Result<Paged<AlertRecord>, ReadError> {
        if let Some(production) = self.production() {
            return production.books().list_alerts(tenant, filter, page.within_bounds());
        }
        self.reads().list_alerts(tenant, filter, page.within_bounds())
    }
}
