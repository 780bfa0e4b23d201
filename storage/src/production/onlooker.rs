//! The stores read by somebody who has no journal: the command line. What a gateway has not shipped yet is not seen.

use std::collections::HashMap;

use uuid::Uuid;
use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};

use super::analytics::Analytics;
use super::lists::Scope;
use super::relational::{Fail, Relational, col, p, tenant_of};
use super::{Stores, await_stores, check_version, connect, migrate};
use crate::audit::AuditCheck;
use crate::error::{OpenError, ReadError};
use crate::query::{Page, Paged, SpanFilter, TraceFilter};
use crate::record::{SpanRecord, TraceRecord};

/// Reads the stores.
pub(crate) struct Onlooker {
    relational: Relational,
    analytics: Analytics,
    /// Deleted tenants, each with the moment.
    burials: HashMap<TenantId, i64>,
    /// What began earlier is past its age.
    kept_from_us: i64,
}

impl Onlooker {
    pub(crate) fn open(stores: &Stores, max_age_us: Option<i64>) -> Result<Self, OpenError> {
        let (relational, analytics, cache) = connect(stores, Uuid::nil())?;
        await_stores(stores, (&relational, &analytics, &cache))?;
        check_version(&analytics)?;
        migrate::run(&relational, &analytics, false)?;
        let burials = relational.read(|tx| {
            let rows = tx.rows("SELECT tenant, at_us FROM burials", p![])?;
            rows.iter().map(|row| Ok((tenant_of(row, 0)?, col(row, 1)?))).collect::<Result<HashMap<_, i64>, Fail>>()
        });
        let burials = burials.map_err(|error| OpenError::Stores { reason: error.to_string(), is_lasting: false })?;
        let kept_from_us = max_age_us.map_or(i64::MIN, |age| Timestamp::now().micros().saturating_sub(age));
        Ok(Self { relational, analytics, burials, kept_from_us })
    }

    fn scope(&self, tenant: TenantId) -> Scope {
        let buried = self.burials.get(&tenant).map_or(i64::MIN, |at_us| at_us + 1);
        Scope { tenant, from_us: self.kept_from_us.max(buried) }
    }

    pub(crate) fn list_traces(
        &self,
        tenant: TenantId,
        filter: &TraceFilter,
        page: Page,
    ) -> Result<Paged<TraceRecord>, ReadError> {
        self.analytics.list_traces(self.scope(tenant), filter, page)
    }

    pub(crate) fn list_spans(
        &self,
        tenant: TenantId,
        filter: &SpanFilter,
        page: Page,
    ) -> Result<Paged<SpanRecord>, ReadError> {
        self.analytics.list_spans(self.scope(tenant), filter, page)
    }

    pub(crate) fn trace(&self, tenant: TenantId, id: TraceId) -> Result<Option<TraceRecord>, ReadError> {
        let spans = self.analytics.spans_of_trace(self.scope(tenant), id)?;
        Ok(TraceRecord::of(spans.into_iter().map(|(span, _)| span).collect()))
    }

    pub(crate) fn span(&self, tenant: TenantId, id: SpanId) -> Result<Option<SpanRecord>, ReadError> {
        Ok(self.analytics.span(self.scope(tenant), id)?.map(|(span, _)| span))
    }

    pub(crate) fn span_by_w3c(&self, tenant: TenantId, id: [u8; 8]) -> Result<Option<SpanRecord>, ReadError> {
        Ok(self.analytics.span_by_w3c(self.scope(tenant), id)?.map(|(span, _)| span))
    }

    pub(crate) fn list_tenants(&self, page: Page) -> Result<Paged<crate::tenants::TenantRecord>, ReadError> {
        self.relational.list_tenants(page)
    }

    pub(crate) fn check_audit(&self) -> Result<AuditCheck, ReadError> {
        self.relational.check_audit()
    }
}
