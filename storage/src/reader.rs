//! The records of a database file, read beside whoever writes it, or where nobody does.
//!
//! Nothing is written: no migration, no log, no lock that keeps anybody from anything for longer than a page is read.

use std::path::Path;
use std::time::Duration;

use weir_config::vocab::{TenantId, TraceId};

use crate::audit::AuditCheck;
use crate::cursor::{Cursor, SpanBatch};
use crate::error::{OpenError, ReadError};
use crate::observer::{BatchOutcome, StoreObserver};
use crate::query::{Page, Paged, SpanFilter, TraceFilter};
use crate::record::{SpanRecord, TraceRecord};
use crate::sqlite::{self, Auditor, Home, Readers, Reads};

/// Tenants that are read at a time.
const TENANTS_PIECE: u32 = 1_000;

/// Reads one database file.
pub struct RecordReader {
    readers: Readers,
    auditor: Auditor,
}

/// Nobody is told of reads.
struct Unobserved;

impl StoreObserver for Unobserved {
    fn batch(&self, _rows: usize, _took: Duration, _outcome: BatchOutcome) {}
    fn read(&self, _operation: &'static str, _took: Duration, _ok: bool) {}
}

impl RecordReader {
    /// Looks at an existing file, which stays as it is.
    ///
    /// # Errors
    /// See [`OpenError`]; a file of another version's schema is refused, whether migrations are pending or are not known.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        sqlite::examine(path, false)?;
        let readers = Readers::looking_on(Home::file(path));
        Ok(Self { readers, auditor: Auditor::default() })
    }

    fn reads(&self) -> Reads<'_> {
        Reads { readers: &self.readers, observer: &Unobserved, auditor: &self.auditor }
    }

    /// Traces, newest first, each with its spans.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn list_traces(
        &self,
        tenant: TenantId,
        filter: &TraceFilter,
        page: Page,
    ) -> Result<Paged<TraceRecord>, ReadError> {
        self.reads().list_traces(tenant, filter, page.within_bounds())
    }

    /// All tenants with their names, newest first.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn tenants(&self) -> Result<Vec<(TenantId, String)>, ReadError> {
        let mut found = Vec::new();
        let mut page = Page { limit: TENANTS_PIECE, ..Page::default() };
        loop {
            let tenants = self.reads().list_tenants(page.within_bounds())?;
            page.offset += tenants.data.len() as u64;
            let is_all = tenants.data.is_empty() || page.offset >= tenants.total;
            found.extend(tenants.data.into_iter().map(|tenant| (tenant.id, tenant.name)));
            if is_all {
                return Ok(found);
            }
        }
    }

    /// Spans, newest first.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn list_spans(
        &self,
        tenant: TenantId,
        filter: &SpanFilter,
        page: Page,
    ) -> Result<Paged<SpanRecord>, ReadError> {
        self.reads().list_spans(tenant, filter, page.within_bounds())
    }

    /// One trace with all its spans; `None` when the tenant has none of that id.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn trace(&self, tenant: TenantId, id: TraceId) -> Result<Option<TraceRecord>, ReadError> {
        self.reads().trace(tenant, id)
    }

    /// Spans of all tenants in the order of their commits, from behind `after` on: at most `limit`, and no more once they take
    /// `bytes_max` bytes.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_after(&self, after: Cursor, limit: u32, bytes_max: usize) -> Result<SpanBatch, ReadError> {
        self.reads().read_after(after, limit, bytes_max)
    }

    /// Goes through the whole audit log and says whether a line was altered, removed or put in.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn check_audit(&self) -> Result<AuditCheck, ReadError> {
        self.reads().check_audit()
    }

    /// Behind everything that is committed now.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn end(&self) -> Result<Cursor, ReadError> {
        self.reads().end()
    }
}
