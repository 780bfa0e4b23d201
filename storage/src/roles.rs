//! What a store is asked for, by role. One value may play all of them, as [`Store`](crate::Store) does; whoever asks names the
//! role it needs.
//!
//! Invariants: every question about records names its tenant, and a foreign record looks exactly like one that does not
//! exist. A write that has returned is durable, one that failed was not made. All of it blocks and is called off the core
//! threads, except [`SpanLog::append`].
//! `tests/it/contract` says in tests what each role has to keep; every implementation runs it.

use std::time::Duration;

use uuid::Uuid;
use weir_config::vocab::{Finding, KeyId, SpanId, TenantId, Timestamp, TraceId};

use crate::actions::ActionsSummary;
use crate::alerts::{Accepted, AlertFilter, AlertKey, AlertRecord, Claim, Claimant, Heard, Sighting, Step, StepDone};
use crate::audit::{AuditCheck, AuditEntry, AuditEvent};
use crate::charges::{BatchCharge, BatchId, Booked};
use crate::claim::ReadingClaim;
use crate::cursor::{Cursor, Inserted, SpanBatch, TracePlace, TraceRest};
use crate::error::{NotTaken, NotWritten, ReadError};
use crate::objects::MadeObject;
use crate::offences::{BlockedAddress, Offence};
use crate::query::{Page, Paged, SpanFilter, TraceFilter};
use crate::record::{AgentAction, SpanRecord, TraceRecord};
use crate::reports::{EventsOfPeriod, ReportRecord, ReportType, SpanPlace};
use crate::spend::SpendRow;
use crate::stats::Stats;
use crate::tenants::{
    CredentialChanges, Credentials, KeyRecord, NewTenant, Provenance, SealedKey, TenantChange, TenantRecord,
    TenantUpdate,
};
use crate::usage::{Series, SeriesQuery, SessionFilter, SessionRecord};
use crate::verdicts::{JudgeVerdict, LateFinding};

/// The spans: in by pushing or with an answer, out in the order of commits or by questions.
pub trait SpanLog: Send + Sync + 'static {
    /// Takes a span to be written soon. Lock-free, never blocks.
    ///
    /// # Errors
    /// The span is counted and given back when there is no room or the store is closed.
    fn append(&self, span: Box<SpanRecord>) -> Result<(), NotTaken>;

    /// Waits until everything appended before is durable; false when that takes longer, or spans were lost meanwhile.
    fn flush(&self, within: Duration) -> bool;

    /// Puts spans in, all or none, and waits until they are durable. One that is there already, by its tenant and id, stays
    /// as it is. Says of each what became of it.
    ///
    /// # Errors
    /// [`NotWritten`]; none of them was put in.
    fn insert(&self, spans: Vec<SpanRecord>) -> Result<Inserted, NotWritten>;

    /// Spans of all tenants in the order of their commits, from behind `after` on: at most `limit` (1 to 1000), and no more
    /// once they take `bytes_max` bytes. A span that is committed later never stands before one that was read.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn read_after(&self, after: Cursor, limit: u32, bytes_max: usize) -> Result<SpanBatch, ReadError>;

    /// The same of spans in which something was found; how many others lie between the cursors is counted. A batch without
    /// spans may still go on. Some stores can tell without reading what a span holds; a few of those they give may be clean.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn read_found_after(&self, after: Cursor, limit: u32, bytes_max: usize) -> Result<SpanBatch, ReadError> {
        let mut batch = self.read_after(after, limit, bytes_max)?;
        let all = batch.spans.len();
        batch.spans.retain(|span| !span.security_findings.is_empty());
        batch.clean += (all - batch.spans.len()) as u64;
        Ok(batch)
    }

    /// As [`SpanLog::read_after`] says, without prompts and answers: for a consumer that does not read them, which take most of the time.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn read_without_texts_after(&self, after: Cursor, limit: u32, bytes_max: usize) -> Result<SpanBatch, ReadError> {
        let mut batch = self.read_after(after, limit, bytes_max)?;
        for span in &mut batch.spans {
            (span.prompt, span.response) = (None, None);
        }
        Ok(batch)
    }

    /// Behind everything that is committed now: for a consumer that begins here.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn end(&self) -> Result<Cursor, ReadError>;

    /// How far a consumer has read; `None` when it never said.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn cursor(&self, consumer: &str) -> Result<Option<Cursor>, ReadError>;

    /// Keeps how far a consumer has read; never goes back.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn save_cursor(&self, consumer: &str, at: Cursor) -> Result<(), NotWritten>;

    /// Claims to read for a consumer what is stored, alone of all processes that have the store, until the claim is dropped or its
    /// process ends; `None` while another one holds it. A store that one process alone has grants it always.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn claim_reading(&self, consumer: &str) -> Result<Option<ReadingClaim>, ReadError> {
        let _everybody = consumer;
        Ok(Some(ReadingClaim::sole()))
    }

    /// Traces, newest first, each with its spans.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn list_traces(&self, tenant: TenantId, filter: &TraceFilter, page: Page) -> Result<Paged<TraceRecord>, ReadError>;

    /// One trace with all its spans; `None` when the tenant has none of that id.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn trace(&self, tenant: TenantId, id: TraceId) -> Result<Option<TraceRecord>, ReadError>;

    /// What each of these traces has behind its place, but for the spans that are known; one answer for each, in their order. Texts
    /// may be left out. Whoever keeps no places reads all of a trace.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn traces_after(
        &self,
        tenant: TenantId,
        asked: &[(TraceId, TracePlace)],
        known: &dyn Fn(TraceId, SpanId) -> bool,
    ) -> Result<Vec<TraceRest>, ReadError> {
        let rest = |(id, next): &(TraceId, TracePlace)| {
            let mut spans = self.trace(tenant, *id)?.map(|trace| trace.spans).unwrap_or_default();
            let rows = spans.len();
            spans.retain(|span| !known(*id, span.span_id));
            Ok(TraceRest { spans, rows, next: *next, ..TraceRest::default() })
        };
        asked.iter().map(rest).collect()
    }

    /// Spans, newest first.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn list_spans(&self, tenant: TenantId, filter: &SpanFilter, page: Page) -> Result<Paged<SpanRecord>, ReadError>;

    /// One span; `None` when the tenant has none of that id.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn span(&self, tenant: TenantId, id: SpanId) -> Result<Option<SpanRecord>, ReadError>;

    /// One span by the 8 bytes that other systems know it by ([`SpanId::to_w3c`]); of several the newest. Looks through the ids of the
    /// tenant's spans, newest first, where it is none of another system's.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn span_by_w3c(&self, tenant: TenantId, id: [u8; 8]) -> Result<Option<SpanRecord>, ReadError>;

    /// Spans with a score above 0, newest first.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn list_findings(&self, tenant: TenantId, page: Page) -> Result<Paged<SpanRecord>, ReadError>;

    /// Sessions, in the order in which they were first seen, newest first.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn list_sessions(
        &self,
        tenant: TenantId,
        filter: &SessionFilter,
        page: Page,
    ) -> Result<Paged<SessionRecord>, ReadError>;

    /// Usage in buckets of time.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn series(&self, tenant: TenantId, asked: &SeriesQuery) -> Result<Series, ReadError>;

    /// The tenant's records in sum; all zero when it has none.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn stats(&self, tenant: TenantId) -> Result<Stats, ReadError>;

    /// Stores an action a client reported, with what was found in it, in a span of the trace: the named one, or the
    /// latest. `None` when the tenant has no such trace or span.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn add_action(
        &self,
        tenant: TenantId,
        trace: TraceId,
        span: Option<SpanId>,
        action: AgentAction,
        findings: Vec<Finding>,
    ) -> Result<Option<SpanId>, NotWritten>;

    /// Reported actions of the spans that match, in sum.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn actions_summary(&self, tenant: TenantId, filter: &SpanFilter) -> Result<ActionsSummary, ReadError>;

    /// Deletes a trace with its spans, actions and the texts that nothing else names; false when the tenant has none of that id.
    /// None of it can be found when this returns; what lies in the log of the database leaves it soon after. A long trace goes in
    /// pieces: where this fails, some of it may be gone. `by` is in the audit log by the commit of the first.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn delete_trace(&self, tenant: TenantId, trace: TraceId, by: AuditEvent) -> Result<bool, NotWritten>;

    /// Deletes a tenant's traces, actions, reports and spend. None of it can be found when this returns; what takes time to remove
    /// is removed soon after. The audit log stays.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn delete_tenant_data(&self, tenant: TenantId) -> Result<(), NotWritten>;
}

/// The log of administrative events, whose lines are chained.
pub trait AuditLog: Send + Sync + 'static {
    /// Writes an event down; gives its position in the log.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn audit(&self, event: AuditEvent) -> Result<u64, NotWritten>;

    /// Lines of the log, newest first: those of one tenant, or all.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn list_audit(&self, tenant: Option<TenantId>, page: Page) -> Result<Paged<AuditEntry>, ReadError>;

    /// Goes through the whole log and says whether a line was altered, removed or put in.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn check_audit(&self) -> Result<AuditCheck, ReadError>;

    /// The same, relying on the last check of the whole log where that is no older than ten minutes: what is younger than
    /// it is checked, that it still ends where it ended, that no line was taken out, and the lines of `shown`, which somebody
    /// is about to see, with those around them.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn check_audit_since(&self, shown: &[AuditEntry]) -> Result<AuditCheck, ReadError>;

    /// The same, for a reader that is in no hurry: nobody waits for this check.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn check_audit_aside(&self, shown: &[AuditEntry]) -> Result<AuditCheck, ReadError>;
}

/// Tenants, their tokens and keys. Every change is in the audit log by the same commit, as `by` says it.
pub trait Registry: AuditLog {
    /// Puts a tenant in.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn create_tenant(&self, new: NewTenant, by: AuditEvent) -> Result<TenantRecord, NotWritten>;

    /// Tenants, newest first.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn list_tenants(&self, page: Page) -> Result<Paged<TenantRecord>, ReadError>;

    /// One tenant.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn tenant(&self, id: TenantId) -> Result<Option<TenantRecord>, ReadError>;

    /// Changes a tenant; `None` when there is none of this id.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn update_tenant(&self, id: TenantId, change: TenantChange, by: AuditEvent) -> Result<TenantUpdate, NotWritten>;

    /// Deletes a tenant with everything it has; false when there is none of this id. None of it can be found when this
    /// returns, what takes time to remove is removed soon after. The audit log stays.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn delete_tenant(&self, id: TenantId, by: AuditEvent) -> Result<bool, NotWritten>;

    /// The number a tenant's token is derived from, `fresh` if none has been issued before; `None` when there is no
    /// such tenant and `create` is false. `issued` is written down where it is the first, `shown` where it is not: of one
    /// actor once an hour, and again when the token is another one.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn issue_token(
        &self,
        id: TenantId,
        fresh: i64,
        create: bool,
        issued: AuditEvent,
        shown: Option<AuditEvent>,
    ) -> Result<Option<i64>, NotWritten>;

    /// The number a tenant's token is derived from; `Some(None)` when none has been issued, `None` when there is no such
    /// tenant.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn token_nonce(&self, id: TenantId) -> Result<Option<Option<i64>>, ReadError>;

    /// From now on a tenant's token is derived from `fresh`; false when there is no such tenant.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn reset_token(&self, id: TenantId, fresh: i64, by: AuditEvent) -> Result<bool, NotWritten>;

    /// Writes down which key file tokens are derived with.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn note_token_key(&self, sha256: [u8; 32]) -> Result<(), NotWritten>;

    /// Puts a key in; false when there is no such tenant.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn create_key(&self, key: KeyRecord, sha256: [u8; 32], by: AuditEvent) -> Result<bool, NotWritten>;

    /// A tenant's keys, newest first, revoked ones among them.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn list_keys(&self, tenant: TenantId, page: Page) -> Result<Paged<KeyRecord>, ReadError>;

    /// Revokes a key; false when there is none of this id, or it is revoked already. `by` gets the key's tenant.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn revoke_key(&self, id: KeyId, by: AuditEvent) -> Result<bool, NotWritten>;

    /// Puts a tenant's own credential for an upstream in, in the place of its former one; false when there is no such tenant.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn set_provider_key(&self, key: SealedKey, by: AuditEvent) -> Result<bool, NotWritten>;

    /// Takes such a credential out; false when there is none.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn remove_provider_key(&self, tenant: TenantId, upstream: &str, by: AuditEvent) -> Result<bool, NotWritten>;

    /// Such credentials: of all tenants, or of one.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn provider_keys(&self, of: Option<TenantId>) -> Result<Vec<SealedKey>, ReadError>;

    /// Writes down when keys were last used.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn touch_keys(&self, used: Vec<(KeyId, Timestamp)>) -> Result<(), NotWritten>;

    /// Everything that lets somebody in: of all tenants, or of one.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn load_credentials(&self, of: Option<TenantId>) -> Result<Credentials, ReadError>;

    /// Whose tenants, keys, tokens and provider keys were changed by lines of the audit log behind `after`, by whichever process,
    /// and where the log ends now. Cheap where nothing was, or where `after` is behind the end.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn identity_changes(&self, after: u64) -> Result<CredentialChanges, ReadError>;

    /// The keys that still hold and were made by `actor`, and the tenants whose token has been shown to it and not been replaced
    /// by anybody else since. Reads the whole audit log.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn credentials_known_to(&self, actor: &str) -> Result<Provenance, ReadError>;
}

/// Compliance reports as records, and what whoever builds them reads.
pub trait ReportBook: Send + Sync + 'static {
    /// Asks for a report over `start..end`, which is `pending` from now on. A tenant nobody has heard of begins with it if
    /// `begin`; else `None`.
    ///
    /// # Errors
    /// [`NotWritten`]; `TooMany` while ten reports of the tenant wait.
    fn ask_report(
        &self,
        begin: bool,
        tenant: TenantId,
        report_type: ReportType,
        start: Timestamp,
        end: Timestamp,
    ) -> Result<Option<ReportRecord>, NotWritten>;

    /// Reports, newest first.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn list_reports(&self, tenant: TenantId, page: Page) -> Result<Paged<ReportRecord>, ReadError>;

    /// One report; `None` when the tenant has none of that id.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn report(&self, tenant: TenantId, id: Uuid) -> Result<Option<ReportRecord>, ReadError>;

    /// The report that has waited longest.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn pending_report(&self) -> Result<Option<(TenantId, Uuid)>, ReadError>;

    /// Writes down a report's JSON text, or why it failed. It may have gone with its tenant.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn complete_report(&self, tenant: TenantId, id: Uuid, built: Result<String, String>) -> Result<(), NotWritten>;

    /// Gives `take` the tenant's spans from behind `place`, which moves on with them, to before `end`, in order of start and
    /// arrival, for about so long; false when there is none left.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn read_period(
        &self,
        tenant: TenantId,
        place: &mut SpanPlace,
        end: Timestamp,
        slice: Duration,
        take: &mut dyn FnMut(SpanRecord),
    ) -> Result<bool, ReadError>;

    /// Reads further administrative events of a period, for about so long; false when there is none left.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn read_events(&self, events: &mut EventsOfPeriod, slice: Duration) -> Result<bool, ReadError>;
}

/// Spend per agent and calendar window, kept so that a restart does not hand out budgets again.
pub trait SpendBook: Send + Sync + 'static {
    /// Keeps these rows, which say how much this process counts in all: what is new in them is added to what others have spent. Those
    /// that count since before their tenant's deletion are left out: who counts may not have heard of it
    /// yet. Gives these tenants, each with the second of its deletion.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn save_spend(&self, rows: Vec<SpendRow>) -> Result<Vec<(TenantId, i64)>, NotWritten>;

    /// The rows of periods that may still run at `now_s`, by whichever process. From now on this one counts all of it in.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn load_spend(&self, now_s: i64) -> Result<Vec<SpendRow>, ReadError>;

    /// How much has been charged of the results of a batch, in nanodollars; `None` where nothing is known of them.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn charged(&self, id: &BatchId) -> Result<Option<u64>, ReadError>;

    /// Keeps these rows as [`save_spend`](Self::save_spend) does and, in the same transaction, how much has been charged of the results of
    /// a batch; neither where something else had been charged of them than the charge says.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn charge_batch(&self, rows: Vec<SpendRow>, charge: BatchCharge) -> Result<Booked, NotWritten>;
}

/// Offences of addresses, and which of them are turned away. They are the gateway's, of all tenants together.
pub trait OffenceBook: Send + Sync + 'static {
    /// Notes an offence; one that is noted already changes nothing. Gives the block where this is one too many; then the address's
    /// offences are counted anew.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn note_offence(&self, offence: Offence) -> Result<Option<BlockedAddress>, NotWritten>;

    /// The addresses that are turned away at `now`.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn blocked_addresses(&self, now: Timestamp) -> Result<Vec<BlockedAddress>, ReadError>;
}

/// Who has made which objects at providers with the operator's credential. It holds for every process that shares the store.
pub trait ObjectBook: Send + Sync + 'static {
    /// Notes who made objects. One that is noted already stays whose it is; of a tenant that is not there nothing is kept, and of each
    /// tenant the latest [`OBJECTS_MAX`](crate::OBJECTS_MAX). They go with their tenant.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn note_objects(&self, objects: Vec<MadeObject>) -> Result<(), NotWritten>;

    /// Which of these objects at an upstream a tenant has made, in their order.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn own_objects(&self, tenant: TenantId, upstream: &str, objects: &[String]) -> Result<Vec<bool>, ReadError>;
}

/// What a judge says of spans after they were stored.
pub trait VerdictBook: Send + Sync + 'static {
    /// Adds a finding to a span, whose score it may raise, and keeps a verdict about its trace; what is there already, by its id,
    /// stays as it is. False when the tenant has no such span.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn add_late(&self, late: LateFinding) -> Result<bool, NotWritten>;

    /// The verdicts about a trace, in order of arrival; none when the tenant has none of that id.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn list_verdicts(&self, tenant: TenantId, trace: TraceId) -> Result<Vec<JudgeVerdict>, ReadError>;
}

/// What channels of alerts were told, and what they are still to be told. It holds for every process that shares the store.
pub trait AlertBook: Send + Sync + 'static {
    /// What a tenant is called; `None` where nobody has named it.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn tenant_name(&self, tenant: TenantId) -> Result<Option<String>, ReadError>;

    /// Counts what is within the cooldown of its channel, and says what is not; one answer for each, in their order. A finding that
    /// was counted before is not counted again.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn count_alerts(&self, sightings: Vec<Sighting>, now: Timestamp) -> Result<Vec<Heard>, NotWritten>;

    /// Asks to send what is due. A claim ends with its time, with [`Self::accept_alert`] and with [`Self::hold_alert`].
    ///
    /// # Errors
    /// [`NotWritten`].
    fn claim_alert(&self, sighting: Sighting, by: Claimant) -> Result<Claim, NotWritten>;

    /// Notes that the channel has accepted a message: its cooldown begins. Gives the alert; `None` where the tenant is unknown.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn accept_alert(&self, accepted: Accepted) -> Result<Option<AlertRecord>, NotWritten>;

    /// Ends a claim of `owner`, or puts its end off: nobody sends before `until`.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn hold_alert(&self, key: AlertKey, owner: Uuid, until: Timestamp) -> Result<(), NotWritten>;

    /// Claims messages about a channel's alerts that are due, the longest due first, at most `limit`. What somebody has claimed is
    /// left out.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn claim_due(&self, channel: &str, by: Claimant, limit: u32) -> Result<Vec<(AlertRecord, Step)>, NotWritten>;

    /// When the next message about a channel's alerts is due; one that is claimed counts as due when its claim ends.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn next_due(&self, channel: &str) -> Result<Option<Timestamp>, ReadError>;

    /// Notes that such a message was accepted, or never will be, and ends its claim.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn finish_step(&self, alert: AlertRecord, done: StepDone) -> Result<(), NotWritten>;

    /// Notes that what the channel was told of goes on as far as `by` knows, and does so until `by.until` unless they say more. It
    /// is over when nobody says any longer that it goes on. False where the channel has no alert about it that is not resolved.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn sustain_alert(&self, key: AlertKey, by: Claimant) -> Result<bool, NotWritten>;

    /// Notes that it is over at `at` as far as `owner` knows: the channel is to be told when that is so for all. True where somebody
    /// else says that it goes on.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn release_alert(&self, key: AlertKey, owner: Uuid, at: Timestamp) -> Result<bool, NotWritten>;

    /// Notes that somebody knows of an alert, and with it of all open ones of its type in the tenant: none of them escalates. `by` is
    /// in the audit log by the same commit, where that changed anything. `None` when the tenant has no such alert.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn acknowledge_alert(&self, tenant: TenantId, id: Uuid, by: AuditEvent) -> Result<Option<AlertRecord>, NotWritten>;

    /// Has the channel of an alert told of it once more, now: of the findings it has not heard of, of the last one where there are none.
    /// `by` is in the audit log by the same commit. `None` when the tenant has no such alert; what is over is not told again.
    ///
    /// # Errors
    /// [`NotWritten`].
    fn redeliver_alert(&self, tenant: TenantId, id: Uuid, by: AuditEvent) -> Result<Option<AlertRecord>, NotWritten>;

    /// Alerts, newest first.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn list_alerts(&self, tenant: TenantId, filter: &AlertFilter, page: Page) -> Result<Paged<AlertRecord>, ReadError>;
}
