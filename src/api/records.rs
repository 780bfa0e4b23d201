//! What the API asks of the store, as a trait: the real store implements it, tests put a small one in its place.
//!
//! Invariant: every question names its tenant first, and a foreign record looks exactly like one that does not exist.
//! All methods block and are called on blocking threads only.

use uuid::Uuid;
use weir_config::vocab::{Finding, SpanId, TenantId, Timestamp, TraceId};
use weir_storage::actions::ActionsSummary;
use weir_storage::audit::{AuditCheck, AuditEntry, AuditEvent};
use weir_storage::query::{Page, Paged, SpanFilter, TraceFilter};
use weir_storage::record::{AgentAction, SpanRecord, TraceRecord};
use weir_storage::reports::{ReportRecord, ReportType};
use weir_storage::stats::Stats;
use weir_storage::{NotWritten, ReadError, Store};

use super::error::Fault;

/// Why a question has no answer. The texts are for the caller of the API, save the last one's, which is for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFault {
    /// The page holds more bytes than one answer may.
    TooLarge(String),
    /// All readers are busy.
    Busy(String),
    /// The query ran into its time limit.
    TimedOut(String),
    /// The store does not work.
    Unavailable(String),
}

/// The questions.
pub trait Records: Send + Sync + 'static {
    /// Traces, newest first, each with its spans.
    fn list_traces(&self, tenant: TenantId, filter: &TraceFilter, page: Page) -> Result<Paged<TraceRecord>, ReadFault>;
    /// One trace with its spans.
    fn trace(&self, tenant: TenantId, trace: TraceId) -> Result<Option<TraceRecord>, ReadFault>;
    /// Spans, newest first.
    fn list_spans(&self, tenant: TenantId, filter: &SpanFilter, page: Page) -> Result<Paged<SpanRecord>, ReadFault>;
    /// One span.
    fn span(&self, tenant: TenantId, span: SpanId) -> Result<Option<SpanRecord>, ReadFault>;
    /// Spans with a score above 0, newest first.
    fn list_findings(&self, tenant: TenantId, page: Page) -> Result<Paged<SpanRecord>, ReadFault>;
    /// The records in sum.
    fn stats(&self, tenant: TenantId) -> Result<Stats, ReadFault>;
    /// Reported actions in sum.
    fn actions_summary(&self, tenant: TenantId, filter: &SpanFilter) -> Result<ActionsSummary, ReadFault>;
    /// Stores an action in the named span of the trace, or in its latest; `None` when there is none.
    fn add_action(
        &self,
        tenant: TenantId,
        trace: TraceId,
        span: Option<SpanId>,
        action: AgentAction,
        findings: Vec<Finding>,
    ) -> Result<Option<SpanId>, NotWritten>;
    /// Asks for a report. A tenant nobody has heard of begins with it if `begin`; else `None`.
    fn create_report(
        &self,
        begin: bool,
        tenant: TenantId,
        report_type: ReportType,
        period_start: Timestamp,
        period_end: Timestamp,
    ) -> Result<Option<ReportRecord>, NotWritten>;
    /// Reports, newest first.
    fn list_reports(&self, tenant: TenantId, page: Page) -> Result<Paged<ReportRecord>, ReadFault>;
    /// One report.
    fn report(&self, tenant: TenantId, id: Uuid) -> Result<Option<ReportRecord>, ReadFault>;
    /// Administrative events, newest first: those that concern one tenant, or all.
    fn list_audit(&self, tenant: Option<TenantId>, page: Page) -> Result<Paged<AuditEntry>, ReadFault>;
    /// Writes down an administrative event.
    fn audit(&self, event: AuditEvent) -> Result<(), NotWritten>;
    /// Whether the log of those events is whole, every line looked at.
    fn check_audit(&self) -> Result<AuditCheck, ReadFault>;
    /// The same, relying on a former check for what is neither new nor among `shown`.
    fn check_audit_since(&self, shown: &[AuditEntry]) -> Result<AuditCheck, ReadFault>;
}

impl From<NotWritten> for Fault {
    fn from(error: NotWritten) -> Self {
        match error {
            NotWritten::Busy { .. } => Self::saturated(error.to_string()),
            NotWritten::TimedOut { .. } => Self::storage_timeout(error.to_string()),
            NotWritten::Closed => Self::shutting_down(),
            NotWritten::Refused { .. } => Self::invalid(error.to_string()),
            NotWritten::TooMany { .. } => Self::too_many(error.to_string()),
            NotWritten::Unavailable { reason } => {
                tracing::error!(reason, "the store could not be written");
                Self::storage_unwritable()
            }
        }
    }
}

impl From<ReadFault> for Fault {
    fn from(fault: ReadFault) -> Self {
        match fault {
            ReadFault::TooLarge(message) => Self::invalid(message),
            ReadFault::Busy(message) => Self::saturated(message),
            ReadFault::TimedOut(message) => Self::storage_timeout(message),
            ReadFault::Unavailable(reason) => {
                tracing::error!(reason, "the store could not be read");
                Self::storage_unavailable()
            }
        }
    }
}

impl From<ReadError> for ReadFault {
    fn from(error: ReadError) -> Self {
        let message = error.to_string();
        match error {
            ReadError::TooLarge { .. } | ReadError::RecordTooLarge { .. } => Self::TooLarge(message),
            ReadError::Busy { .. } => Self::Busy(message),
            ReadError::TimedOut { .. } => Self::TimedOut(message),
            ReadError::Damaged { .. } | ReadError::NotWritable { .. } | ReadError::Unavailable { .. } => {
                Self::Unavailable(message)
            }
        }
    }
}

impl Records for Store {
    fn list_traces(&self, tenant: TenantId, filter: &TraceFilter, page: Page) -> Result<Paged<TraceRecord>, ReadFault> {
        Ok(self.list_traces(tenant, filter, page)?)
    }

    fn trace(&self, tenant: TenantId, trace: TraceId) -> Result<Option<TraceRecord>, ReadFault> {
        Ok(self.trace(tenant, trace)?)
    }

    fn list_spans(&self, tenant: TenantId, filter: &SpanFilter, page: Page) -> Result<Paged<SpanRecord>, ReadFault> {
        Ok(self.list_spans(tenant, filter, page)?)
    }

    fn span(&self, tenant: TenantId, span: SpanId) -> Result<Option<SpanRecord>, ReadFault> {
        Ok(self.span(tenant, span)?)
    }

    fn list_findings(&self, tenant: TenantId, page: Page) -> Result<Paged<SpanRecord>, ReadFault> {
        Ok(self.list_findings(tenant, page)?)
    }

    fn stats(&self, tenant: TenantId) -> Result<Stats, ReadFault> {
        Ok(self.stats(tenant)?)
    }

    fn actions_summary(&self, tenant: TenantId, filter: &SpanFilter) -> Result<ActionsSummary, ReadFault> {
        Ok(self.actions_summary(tenant, filter)?)
    }

    fn add_action(
        &self,
        tenant: TenantId,
        trace: TraceId,
        span: Option<SpanId>,
        action: AgentAction,
        findings: Vec<Finding>,
    ) -> Result<Option<SpanId>, NotWritten> {
        self.add_action(tenant, trace, span, action, findings)
    }

    fn create_report(
        &self,
        begin: bool,
        tenant: TenantId,
        report_type: ReportType,
        period_start: Timestamp,
        period_end: Timestamp,
    ) -> Result<Option<ReportRecord>, NotWritten> {
        if begin {
            self.create_report(tenant, report_type, period_start, period_end).map(Some)
        } else {
            self.create_report_if_known(tenant, report_type, period_start, period_end)
        }
    }

    fn list_reports(&self, tenant: TenantId, page: Page) -> Result<Paged<ReportRecord>, ReadFault> {
        Ok(self.list_reports(tenant, page)?)
    }

    fn report(&self, tenant: TenantId, id: Uuid) -> Result<Option<ReportRecord>, ReadFault> {
        Ok(self.report(tenant, id)?)
    }

    fn list_audit(&self, tenant: Option<TenantId>, page: Page) -> Result<Paged<AuditEntry>, ReadFault> {
        Ok(self.list_audit(tenant, page)?)
    }

    fn audit(&self, event: AuditEvent) -> Result<(), NotWritten> {
        self.audit(event).map(|_| ())
    }

    fn check_audit(&self) -> Result<AuditCheck, ReadFault> {
        Ok(self.check_audit()?)
    }

    fn check_audit_since(&self, shown: &[AuditEntry]) -> Result<AuditCheck, ReadFault> {
        Ok(self.check_audit_since(shown)?)
    }
}
