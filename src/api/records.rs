//! What the API asks of the store, as a trait: the real store implements it, tests put a small one in its place.
//!
//! Invariant: every question names its tenant first, and a foreign record looks exactly like one that does not exist.
//! All methods block and are called on blocking threads only.

use weir_config::vocab::{SpanId, TenantId, TraceId};
use weir_storage::query::{Page, Paged, SpanFilter, TraceFilter};
use weir_storage::record::{SpanRecord, TraceRecord};
use weir_storage::{ReadError, Store};

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
            ReadError::TooLarge { .. } => Self::TooLarge(message),
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
}
