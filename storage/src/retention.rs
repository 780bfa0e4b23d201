//! How long records are kept, and how much room they may take.
//!
//! Both bounds are off unless set, may change while the store runs, and are kept by the writer a few hundred rows at a
//! time, between batches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bounds of what is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Spans that started longer ago are removed (`storage.retention_days`).
    pub max_age: Option<Duration>,
    /// The oldest arrivals are removed while the database's pages in use hold more (`storage.max_bytes`).
    pub max_bytes: Option<u64>,
}

/// What holds now; 0 stands for no bound.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    max_age_us: AtomicU64,
    max_bytes: AtomicU64,
}

impl Policy {
    pub(crate) fn set(&self, retention: Retention) {
        let micros = retention.max_age.map_or(0, |age| u64::try_from(age.as_micros()).unwrap_or(u64::MAX).max(1));
        self.max_age_us.store(micros, Ordering::Relaxed);
        self.max_bytes.store(retention.max_bytes.map_or(0, |bytes| bytes.max(1)), Ordering::Relaxed);
    }

    /// Oldest start that is kept.
    pub(crate) fn keep_from_us(&self, now_us: i64) -> Option<i64> {
        let age = self.max_age_us.load(Ordering::Relaxed);
        (age > 0).then(|| now_us.saturating_sub_unsigned(age))
    }

    pub(crate) fn max_bytes(&self) -> Option<i64> {
        let bytes = self.max_bytes.load(Ordering::Relaxed);
        (bytes > 0).then(|| i64::try_from(bytes).unwrap_or(i64::MAX))
    }
}
