//! The replays that were asked for: one at a time, on a thread that lives while there are any, off the cores.
//!
//! Invariants: of each tenant one waits or runs, of all together no more than [`WAITING_MAX`]; of those that are over a bounded number
//! is kept, in memory: they end with the process. Each is its tenant's alone. No lock is held while a call is looked at or the record
//! is read. Whoever deletes a tenant has its replays forgotten.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use uuid::Uuid;
use weir_config::vocab::TenantId;

use super::runs::{ReplayMeans, ReplayState, Run};
use super::trial::{ReplayRequest, Trial};

/// Replays that wait or run, of all tenants.
const WAITING_MAX: usize = 8;
/// Replays that are over and still shown: of one tenant, and of all.
const KEPT_OF_TENANT_MAX: usize = 5;
const KEPT_MAX: usize = 32;

/// Replays that were asked for.
pub struct Replays {
    means: ReplayMeans,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The newest first.
    runs: VecDeque<Arc<Run>>,
    is_running: bool,
    /// No further one is begun.
    is_closing: bool,
}

/// Why a replay is not begun.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It says something that cannot be done.
    Invalid(String),
    /// One of the tenant's, or as many as may be of all tenants, are under way.
    Busy(&'static str),
    /// The process ends.
    Closing,
}

impl Replays {
    /// Over this record, with these detectors, rules and settings.
    pub fn new(means: ReplayMeans) -> Arc<Self> {
        Arc::new(Self { means, state: Mutex::default() })
    }

    /// Has a replay begun as soon as it is its turn. What it asks for is tried first, so that whoever asks is told what is wrong.
    pub(crate) fn begin(self: &Arc<Self>, tenant: TenantId, request: ReplayRequest) -> Result<Arc<Run>, Refused> {
        self.room(&self.state.lock(), tenant)?;
        let settings = self.means.settings.load_full();
        Trial::new(&request, &settings, &self.means.analyser).map_err(Refused::Invalid)?;
        let run = Arc::new(Run::new(tenant, request));
        let mut state = self.state.lock();
        // Another one may have come meanwhile.
        self.room(&state, tenant)?;
        state.runs.push_front(Arc::clone(&run));
        state.forget_the_oldest(tenant);
        if !state.is_running {
            state.is_running = self.start_thread();
        }
        Ok(run)
    }

    fn room(&self, state: &State, tenant: TenantId) -> Result<(), Refused> {
        let under_way = || state.runs.iter().filter(|run| !run.is_over());
        if state.is_closing {
            return Err(Refused::Closing);
        }
        if under_way().any(|run| run.tenant == tenant) {
            return Err(Refused::Busy("a replay of this tenant is under way; wait for it, or cancel it"));
        }
        if under_way().count() >= WAITING_MAX {
            return Err(Refused::Busy("as many replays of other tenants are under way as may be; try again later"));
        }
        Ok(())
    }

    fn start_thread(self: &Arc<Self>) -> bool {
        let (replays, on_thread) = (Arc::downgrade(self), self.means.on_thread);
        let started = std::thread::Builder::new().name("weir-replay".to_owned()).spawn(move || {
            on_thread();
            run_all(&replays);
        });
        if let Err(error) = &started {
            tracing::error!(%error, "no thread could be started for a replay; the next one asked for tries again");
        }
        started.is_ok()
    }

    /// A tenant's replays, the newest first.
    pub(crate) fn of(&self, tenant: TenantId) -> Vec<Arc<Run>> {
        self.state.lock().runs.iter().filter(|run| run.tenant == tenant).cloned().collect()
    }

    /// One of a tenant's.
    pub(crate) fn one(&self, tenant: TenantId, id: Uuid) -> Option<Arc<Run>> {
        self.state.lock().runs.iter().find(|run| run.tenant == tenant && run.id == id).cloned()
    }

    /// Ends one that waits or runs, which stays to be read; forgets one that is over. False where the tenant has no such replay.
    pub(crate) fn delete(&self, tenant: TenantId, id: Uuid) -> bool {
        let Some(run) = self.one(tenant, id) else { return false };
        if !run.cancel() {
            self.state.lock().runs.retain(|other| other.id != id);
        }
        true
    }

    /// Ends and forgets all of a tenant that is deleted.
    pub fn forget(&self, tenant: TenantId) {
        self.state.lock().runs.retain(|run| {
            let is_theirs = run.tenant == tenant;
            if is_theirs {
                run.cancel();
            }
            !is_theirs
        });
    }

    /// Begins none from here on, and ends the one that runs.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closing = true;
        state.runs.iter().for_each(|run| {
            run.cancel();
        });
    }

    /// The next one whose turn it is; where there is none, the next one asked for gets a thread of its own.
    fn next(&self) -> Option<Arc<Run>> {
        let mut state = self.state.lock();
        let next = state.runs.iter().rev().find(|run| run.state() == ReplayState::Waiting && run.begin()).cloned();
        state.is_running = next.is_some();
        next
    }
}

impl State {
    /// Drops those that have been over for longest, as far as there are too many.
    fn forget_the_oldest(&mut self, tenant: TenantId) {
        let (mut of_tenant, mut of_all) = (0, 0);
        self.runs.retain(|run| {
            if !run.is_over() {
                return true;
            }
            of_all += 1;
            of_tenant += usize::from(run.tenant == tenant);
            of_all <= KEPT_MAX && (run.tenant != tenant || of_tenant <= KEPT_OF_TENANT_MAX)
        });
    }
}

/// Carries out what waits, one after the other.
fn run_all(replays: &Weak<Replays>) {
    loop {
        let Some(replays) = replays.upgrade() else { return };
        let Some(run) = replays.next() else { return };
        let outcome = catch_unwind(AssertUnwindSafe(|| run.carry_out(&replays.means)));
        run.end(outcome.unwrap_or_else(|_| {
            tracing::error!(replay = %run.id, "a replay panicked; it has failed");
            Err("a bug in Weir ended the replay; see the log".to_owned())
        }));
    }
}
