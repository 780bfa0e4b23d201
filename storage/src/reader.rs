//! The records of a database file, read beside whoever writes it, or where nobody does; and those of the stores that several gateways
//! share.
//!
//! Nothing is written: no migration, no log, no lock that keeps anybody from anything for longer than a page is read.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_config::vocab::{SpanId, TenantId, TraceId};

use crate::audit::AuditCheck;
use crate::cursor::{Cursor, SpanBatch};
use crate::error::{OpenError, ReadError};
use crate::observer::{BatchOutcome, StoreObserver};
use crate::production::{Onlooker, Stores, shipped_upto};
use crate::query::{Page, Paged, SpanFilter, TraceFilter};
use crate::record::{SpanRecord, TraceRecord};
use crate::sqlite::{self, Auditor, Home, Readers, Reads, Texts};

/// Tenants that are read at a time.
const TENANTS_PIECE: u32 = 1_000;
/// How often a journal is looked at whose spans are awaited.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Reads one database file, or the stores that several gateways share.
pub struct RecordReader(Place);

enum Place {
    File { readers: Readers, auditor: Auditor },
    Stores { onlooker: Box<Onlooker>, journal: PathBuf },
}

/// Whether a gateway's journal has all of its spans in the stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shipped {
    /// All that it held when it was asked.
    All,
    /// All but so many of those in this file.
    AllBut(u64, PathBuf),
    /// There is no journal of this name to ask.
    Unknown(PathBuf),
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
        sqlite::examine(path, false).map_err(OpenError::while_reading)?;
        let readers = Readers::looking_on(Home::file(path));
        Ok(Self(Place::File { readers, auditor: Auditor::default() }))
    }

    /// Looks at the stores of the `production` profile. What gateways have not shipped yet is not seen, nor what is older than
    /// `max_age_us`. `journal` is the file of this machine's gateway, if there is one ([`Self::await_shipped`]).
    ///
    /// # Errors
    /// See [`OpenError`]; pending migrations are one.
    pub fn of_stores(stores: &Stores, max_age_us: Option<i64>, journal: PathBuf) -> Result<Self, OpenError> {
        let onlooker = Box::new(Onlooker::open(stores, max_age_us)?);
        Ok(Self(Place::Stores { onlooker, journal }))
    }

    /// Waits until this machine's gateway has shipped what its journal holds of a tenant, or of all, for so long; a record that is a file
    /// holds all. Of a gateway that does not run, nothing moves, and its spans are counted.
    ///
    /// # Errors
    /// See [`ReadError`]; a journal of another version's schema is unavailable.
    pub fn await_shipped(&self, tenant: Option<TenantId>, within: Duration) -> Result<Shipped, ReadError> {
        let Place::Stores { journal, .. } = &self.0 else { return Ok(Shipped::All) };
        if !journal.exists() {
            return Ok(Shipped::Unknown(journal.clone()));
        }
        let unavailable = |error: OpenError| ReadError::Unavailable { reason: error.to_string() };
        sqlite::examine(journal, false).map_err(|error| unavailable(error.while_reading()))?;
        let readers = Readers::looking_on(Home::file(journal));
        let reads = Reads { readers: &readers, observer: &Unobserved, auditor: &Auditor::default() };
        let (end, until) = (reads.end()?, Instant::now() + within);
        loop {
            let from = shipped_upto(&reads)?;
            match reads.count_between(tenant, from, end.place())? {
                0 => return Ok(Shipped::All),
                left if Instant::now() >= until => return Ok(Shipped::AllBut(left, journal.clone())),
                _ => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// The stores, or else the file.
    fn either(&self) -> Result<&Onlooker, Reads<'_>> {
        match &self.0 {
            Place::Stores { onlooker, .. } => Ok(onlooker),
            Place::File { readers, auditor } => Err(Reads { readers, observer: &Unobserved, auditor }),
        }
    }

    /// Whether spans can be followed in the order of their commits.
    pub fn has_order(&self) -> bool {
        self.either().is_err()
    }

    /// The file's own order, which the stores do not have.
    fn file(&self) -> Result<Reads<'_>, ReadError> {
        let reason = "the stores of several gateways have no one order of arrival to follow";
        self.either().err().ok_or_else(|| ReadError::Unavailable { reason: reason.to_owned() })
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
        match self.either() {
            Ok(stores) => stores.list_traces(tenant, filter, page.within_bounds()),
            Err(file) => file.list_traces(tenant, filter, page.within_bounds()),
        }
    }

    /// All tenants with their names, newest first.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn tenants(&self) -> Result<Vec<(TenantId, String)>, ReadError> {
        let mut found = Vec::new();
        let mut page = Page { limit: TENANTS_PIECE, ..Page::default() };
        loop {
            let tenants = match self.either() {
                Ok(stores) => stores.list_tenants(page.within_bounds())?,
                Err(file) => file.list_tenants(page.within_bounds())?,
            };
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
        match self.either() {
            Ok(stores) => stores.list_spans(tenant, filter, page.within_bounds()),
            Err(file) => file.list_spans(tenant, filter, page.within_bounds()),
        }
    }

    /// One trace with all its spans; `None` when the tenant has none of that id.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn trace(&self, tenant: TenantId, id: TraceId) -> Result<Option<TraceRecord>, ReadError> {
        match self.either() {
            Ok(stores) => stores.trace(tenant, id),
            Err(file) => file.trace(tenant, id),
        }
    }

    /// One span by the 8 bytes that other systems know it by; see [`crate::SpanLog::span_by_w3c`].
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn span_by_w3c(&self, tenant: TenantId, id: [u8; 8]) -> Result<Option<SpanRecord>, ReadError> {
        match self.either() {
            Ok(stores) => stores.span_by_w3c(tenant, id),
            Err(file) => file.span_by_w3c(tenant, id),
        }
    }

    /// One span; `None` when the tenant has none of that id.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn span(&self, tenant: TenantId, id: SpanId) -> Result<Option<SpanRecord>, ReadError> {
        match self.either() {
            Ok(stores) => stores.span(tenant, id),
            Err(file) => file.span(tenant, id),
        }
    }

    /// Spans of all tenants in the order of their commits, from behind `after` on: at most `limit`, and no more once they take
    /// `bytes_max` bytes.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read_after(&self, after: Cursor, limit: u32, bytes_max: usize) -> Result<SpanBatch, ReadError> {
        self.file()?.read_after(after, limit, bytes_max, Texts::Read)
    }

    /// Goes through the whole audit log and says whether a line was altered, removed or put in.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn check_audit(&self) -> Result<AuditCheck, ReadError> {
        match self.either() {
            Ok(stores) => stores.check_audit(),
            Err(file) => file.check_audit(),
        }
    }

    /// Behind everything that is committed now.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn end(&self) -> Result<Cursor, ReadError> {
        self.file()?.end()
    }
}
