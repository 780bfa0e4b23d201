//! How long records are kept, and how much room they may take.
//!
//! The bounds are off unless set, may change while the store runs, and are kept by the writer a few hundred rows at a
//! time, between batches. What is removed for want of room is counted here, and said in the log now and then.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use weir_config::vocab::Timestamp;

/// Bounds of what is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Spans that started longer ago are removed (`storage.retention_days`).
    pub max_age: Option<Duration>,
    /// Texts of spans that started longer ago are removed, and their spans stay (`storage.text_retention_days`).
    pub text_max_age: Option<Duration>,
    /// The oldest arrivals are removed while the database's pages in use hold more (`storage.max_bytes`).
    pub max_bytes: Option<u64>,
    /// A tenant's oldest spans are removed while its records take more (`storage.tenant_max_bytes`).
    pub tenant_max_bytes: Option<u64>,
}

/// How thoroughly what is deleted is overwritten in a database file (`storage.erase`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Erase {
    /// Rows, and pages that become free, are overwritten where they lie: what SQLite's `secure_delete` promises.
    #[default]
    Rows,
    /// So are copies of rows that SQLite leaves behind in the unused part of a page when it moves rows between pages.
    Pages,
}

/// Which bound spans were removed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// That of the whole database.
    Database,
    /// That of one tenant.
    Tenant,
}

/// The bounds in bytes, and what was removed for them since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes the database may hold.
    pub max_bytes: Option<u64>,
    /// Bytes the records of one tenant may take.
    pub tenant_max_bytes: Option<u64>,
    /// Spans removed because the database held more.
    pub removed_for_database: u64,
    /// Spans removed because their tenant held more.
    pub removed_for_tenant: u64,
    /// Spans have been removed within the last minute.
    pub removing: bool,
}

/// What holds now; 0 stands for no bound.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    max_age_us: AtomicU64,
    text_max_age_us: AtomicU64,
    max_bytes: AtomicU64,
    tenant_max_bytes: AtomicU64,
    removed_for_database: AtomicU64,
    removed_for_tenant: AtomicU64,
    /// Second since 1970 in which spans were removed for want of room, the last time.
    removed_s: AtomicI64,
    /// The same for the last time the log said so.
    told_s: AtomicI64,
    /// Rows up to this one lie in the analytics store and need not lie here any longer.
    shipped_upto: AtomicI64,
}

/// How long removing counts as going on.
const REMOVING_S: i64 = 60;
/// Between words about it in the log.
const TOLD_EVERY_S: i64 = 600;
const MICROS_PER_SECOND: i64 = 1_000_000;

impl Policy {
    pub(crate) fn set(&self, retention: Retention) {
        let micros =
            |age: Option<Duration>| age.map_or(0, |age| u64::try_from(age.as_micros()).unwrap_or(u64::MAX).max(1));
        self.max_age_us.store(micros(retention.max_age), Ordering::Relaxed);
        self.text_max_age_us.store(micros(retention.text_max_age), Ordering::Relaxed);
        self.max_bytes.store(retention.max_bytes.map_or(0, |bytes| bytes.max(1)), Ordering::Relaxed);
        self.tenant_max_bytes.store(retention.tenant_max_bytes.map_or(0, |bytes| bytes.max(1)), Ordering::Relaxed);
    }

    pub(crate) fn tenant_max_bytes(&self) -> Option<i64> {
        let bytes = self.tenant_max_bytes.load(Ordering::Relaxed);
        (bytes > 0).then(|| i64::try_from(bytes).unwrap_or(i64::MAX))
    }

    pub(crate) fn space(&self) -> Space {
        let bytes = |bound: &AtomicU64| Some(bound.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0);
        let now_s = Timestamp::now().micros() / MICROS_PER_SECOND;
        Space {
            max_bytes: bytes(&self.max_bytes),
            tenant_max_bytes: bytes(&self.tenant_max_bytes),
            removed_for_database: self.removed_for_database.load(Ordering::Relaxed),
            removed_for_tenant: self.removed_for_tenant.load(Ordering::Relaxed),
            removing: now_s.saturating_sub(self.removed_s.load(Ordering::Relaxed)) < REMOVING_S,
        }
    }

    /// Spans were removed for want of room.
    pub(crate) fn removed(&self, bound: Bound, spans: u64, bytes: i64) {
        let (count, what) = match bound {
            Bound::Database => (
                &self.removed_for_database,
                "the database holds as much as `storage.max_bytes` allows: the oldest traces of the tenants that hold most \
                 are removed; raise it, or set `storage.retention_days` or `storage.tenant_max_bytes`",
            ),
            Bound::Tenant => (
                &self.removed_for_tenant,
                "a tenant's records take as much as `storage.tenant_max_bytes` allows: its oldest traces are removed",
            ),
        };
        count.fetch_add(spans, Ordering::Relaxed);
        let now_s = Timestamp::now().micros() / MICROS_PER_SECOND;
        self.removed_s.store(now_s, Ordering::Relaxed);
        // The writer alone calls this.
        if now_s.saturating_sub(self.told_s.load(Ordering::Relaxed)) >= TOLD_EVERY_S {
            self.told_s.store(now_s, Ordering::Relaxed);
            tracing::warn!(spans, bytes, "{what}");
        }
    }

    /// Oldest start that is kept.
    pub(crate) fn keep_from_us(&self, now_us: i64) -> Option<i64> {
        let age = self.max_age_us.load(Ordering::Relaxed);
        (age > 0).then(|| now_us.saturating_sub_unsigned(age))
    }

    /// Oldest start of a span that keeps its texts.
    pub(crate) fn texts_from_us(&self, now_us: i64) -> Option<i64> {
        let age = self.text_max_age_us.load(Ordering::Relaxed);
        (age > 0).then(|| now_us.saturating_sub_unsigned(age))
    }

    pub(crate) fn set_shipped_upto(&self, row: i64) {
        self.shipped_upto.fetch_max(row, Ordering::Relaxed);
    }

    /// The last row that need not be kept here.
    pub(crate) fn shipped_upto(&self) -> Option<i64> {
        Some(self.shipped_upto.load(Ordering::Relaxed)).filter(|row| *row > 0)
    }

    pub(crate) fn max_bytes(&self) -> Option<i64> {
        let bytes = self.max_bytes.load(Ordering::Relaxed);
        (bytes > 0).then(|| i64::try_from(bytes).unwrap_or(i64::MAX))
    }
}
