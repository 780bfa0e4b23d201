//! What the `production` profile asks of its own journal, past the roles that it plays itself.

use std::sync::Arc;

use weir_config::vocab::{Finding, SpanId, TenantId, TraceId};

use super::Store;
use crate::change::{Change, ReportedAction};
use crate::cursor::Cursor;
use crate::error::NotWritten;
use crate::production::Production;
use crate::record::AgentAction;
use crate::sqlite::Reads;
use crate::verdicts::LateFinding;

impl Store {
    /// The stores that several gateways share.
    pub(super) fn production(&self) -> Option<&Arc<Production>> {
        self.inner.production.get()
    }

    pub(crate) fn local_reads(&self) -> Reads<'_> {
        self.reads()
    }

    pub(crate) fn local_save_cursor(&self, consumer: &str, at: Cursor) -> Result<(), NotWritten> {
        self.write(Change::SaveCursor { consumer: consumer.to_owned(), at })
    }

    /// Rows up to this one need not be kept here.
    pub(crate) fn local_shipped_upto(&self, row: i64) {
        self.inner.policy.set_shipped_upto(row);
    }

    pub(crate) fn local_add_action(
        &self,
        tenant: TenantId,
        trace: TraceId,
        span: SpanId,
        action: AgentAction,
        findings: Vec<Finding>,
    ) -> Result<Option<SpanId>, NotWritten> {
        let reported = ReportedAction { tenant, trace, span: Some(span), action, findings };
        self.write(Change::AddAction(Box::new(reported)))
    }

    pub(crate) fn local_add_late(&self, late: LateFinding) -> Result<bool, NotWritten> {
        self.write(Change::AddLate(Box::new(late)))
    }

    /// Takes a trace out of the journal, as far as it is there.
    pub(crate) fn local_erase_trace(&self, tenant: TenantId, trace: TraceId) {
        loop {
            let erased: Result<bool, NotWritten> = self.write(Change::EraseTrace { tenant, trace, by: None });
            match erased {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return tracing::warn!(%error, "a deleted trace may still be in the journal"),
            }
        }
    }

    /// Takes a tenant out of the journal. What began before is not recorded any more.
    pub(crate) fn local_erase_tenant(&self, tenant: TenantId) {
        let erased: Result<(), NotWritten> = self.write(Change::EraseTenant(tenant));
        if let Err(error) = erased {
            tracing::warn!(%error, "a deleted tenant may still be in the journal");
        }
    }
}
