//! Denials that are in force but not stored yet: the store could not take them, and will be asked again until it can.
//!
//! Invariants: the list is bounded and keeps its order; whoever lets somebody in looks here first, so that what the store does
//! not know yet is not undone by it. Knows no directory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use weir_config::vocab::{KeyId, TenantId};
use weir_storage::audit::AuditEvent;
use weir_storage::{NotWritten, Registry};

/// Denials that wait at most; further ones hold in memory and are lost with the process.
const PENDING_MAX: usize = 10_000;

/// Somebody is let in no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denial {
    /// A key is revoked.
    Key(KeyId),
    /// A tenant's token is replaced by the one derived from this number.
    Token(TenantId, i64),
    /// A tenant is deleted with everything it has.
    Tenant(TenantId),
}

/// The queue of denials that wait for the store.
#[derive(Default)]
pub(super) struct Pending {
    waiting: Mutex<VecDeque<(Denial, AuditEvent)>>,
    count: AtomicUsize,
}

impl Denial {
    /// Asks the store to keep it; false when it knows nobody of that name.
    pub(super) fn write(self, store: &dyn Registry, by: AuditEvent) -> Result<bool, NotWritten> {
        match self {
            Self::Key(id) => store.revoke_key(id, by),
            Self::Token(tenant, number) => store.reset_token(tenant, number, by),
            Self::Tenant(tenant) => store.delete_tenant(tenant, by),
        }
    }

    /// What it is about, for a person.
    fn describe(self) -> String {
        match self {
            Self::Key(id) => format!("the revocation of key {id}"),
            Self::Token(tenant, _) => format!("the new token of tenant {tenant}"),
            Self::Tenant(tenant) => format!("the deletion of tenant {tenant}"),
        }
    }
}

impl Pending {
    /// Denials that wait.
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether this very denial waits.
    pub(super) fn holds(&self, denial: Denial) -> bool {
        self.len() > 0 && self.waiting.lock().iter().any(|(waiting, _)| *waiting == denial)
    }

    /// The number of a tenant's token that the store does not know yet.
    pub(super) fn number_of(&self, tenant: TenantId) -> Option<i64> {
        if self.len() == 0 {
            return None;
        }
        let newest_first = |(waiting, _): &(Denial, AuditEvent)| match waiting {
            Denial::Token(of, number) if *of == tenant => Some(*number),
            _ => None,
        };
        self.waiting.lock().iter().rev().find_map(newest_first)
    }

    /// Keeps a denial that the store could not take.
    pub(super) fn push(&self, denial: Denial, by: AuditEvent, error: Option<&NotWritten>) {
        let (what, error) = (denial.describe(), error.map(ToString::to_string).unwrap_or_default());
        let mut waiting = self.waiting.lock();
        if waiting.len() >= PENDING_MAX {
            tracing::error!(
                what,
                error,
                waiting = PENDING_MAX,
                "in force but not stored, and too many changes wait already: it will not be retried, so repeat the call when \
                 the store works; a restart before that undoes it"
            );
            return;
        }
        waiting.push_back((denial, by));
        self.count.store(waiting.len(), Ordering::Release);
        tracing::error!(
            what,
            error,
            waiting = waiting.len(),
            "in force but not stored: the store could not take it. Will retry every second; a restart before that undoes it"
        );
    }

    /// Asks the store again, oldest first, until it refuses. `done` is called with each denial it has kept.
    pub(super) fn retry(&self, store: &dyn Registry, done: impl Fn(Denial)) {
        loop {
            let Some((denial, by)) = self.waiting.lock().front().cloned() else { return };
            if denial.write(store, by).is_err() {
                return;
            }
            done(denial);
            let mut waiting = self.waiting.lock();
            waiting.pop_front();
            self.count.store(waiting.len(), Ordering::Release);
            tracing::info!(what = denial.describe(), waiting = waiting.len(), "stored now");
        }
    }
}
