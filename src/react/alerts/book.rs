//! The store's record of alerts, for tasks that must not block.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use uuid::Uuid;
use weir_config::vocab::{TenantId, Timestamp};
use weir_storage::AlertBook;
use weir_storage::alerts::Claimant;

/// For how long a message is this process's to send: longer than one may take.
const LEASE: Duration = Duration::from_secs(11);

/// For how long the name of a tenant is remembered: it is asked with each message, and changes seldom.
const NAME_KEPT: Duration = Duration::from_secs(60);
/// Names that are remembered.
const NAMES_MAX: usize = 1_024;

/// The record, once the store is open.
pub(super) struct Book {
    store: OnceLock<Arc<dyn AlertBook>>,
    owner: Uuid,
    /// What tenants are called, and since when that is known.
    names: Mutex<HashMap<TenantId, (Instant, Option<String>)>>,
}

impl Book {
    pub(super) fn new() -> Self {
        Self { store: OnceLock::new(), owner: Uuid::new_v4(), names: Mutex::default() }
    }

    /// Whoever comes second has the same store.
    pub(super) fn open(&self, store: Arc<dyn AlertBook>) {
        self.store.get_or_init(|| store);
    }

    pub(super) fn owner(&self) -> Uuid {
        self.owner
    }

    /// This process, about to send something.
    pub(super) fn claimant(&self) -> Claimant {
        self.claimant_for(LEASE)
    }

    /// This process, with something to say that holds for so long.
    pub(super) fn claimant_for(&self, time: Duration) -> Claimant {
        let now = Timestamp::now();
        Claimant { owner: self.owner, now, until: later(now, time) }
    }

    /// What a tenant is called, for a message: a store that does not answer holds no message up.
    pub(super) async fn name_of(&self, tenant: TenantId) -> Option<String> {
        if let Some((since, name)) = self.names.lock().get(&tenant)
            && since.elapsed() < NAME_KEPT
        {
            return name.clone();
        }
        let name = self.ask(move |book| book.tenant_name(tenant)).await.ok()?;
        let mut names = self.names.lock();
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(tenant, (Instant::now(), name.clone()));
        name
    }

    /// Asks the store on a thread that may block.
    pub(super) async fn ask<T, E>(
        &self,
        question: impl FnOnce(&dyn AlertBook) -> Result<T, E> + Send + 'static,
    ) -> Result<T, String>
    where
        T: Send + 'static,
        E: std::fmt::Display + Send + 'static,
    {
        let store = self.store.get().cloned().ok_or("the store is not open")?;
        let answer = tokio::task::spawn_blocking(move || question(&*store)).await;
        answer.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }
}

/// The moment `after` a moment.
pub(super) fn later(at: Timestamp, after: Duration) -> Timestamp {
    Timestamp::from_micros(at.micros().saturating_add(i64::try_from(after.as_micros()).unwrap_or(i64::MAX)))
}

/// How long it is until a moment.
pub(super) fn until(at: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(at.micros().saturating_sub(Timestamp::now().micros())).unwrap_or(0))
}
