//! Other processes on the same database file: gateways that `storage.shared_file` allows, and the one that this one takes over from or
//! that takes over from this one.
//!
//! Invariants: where the setting does not allow it, of two processes on a file one takes no new calls; how many take some is known to
//! each of them within a look, and each grants one part of as many of every rate limit. Knows neither SQL nor HTTP.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weir_config::Settings;
use weir_config::settings::{Storage, StorageProfile};
use weir_storage::{Joined, Neighbour, UseClaim, UsePhase};

use super::StartError;
use crate::ops::health::SharedFile;
use crate::ops::live::LiveSettings;
use crate::process::Process;

/// How long a start waits for a process that uses the file: it may be about to end.
const LIVING_LIMIT: Duration = Duration::from_secs(1);
/// How long for one that is gone, of which the kernel has not taken down everything yet.
const GONE_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks at who else uses the file.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What several gateways on one database file have in common.
const SHARED: &str = "Shared between them are records, tenants, keys, tokens, provider keys and what they may use (a change holds \
     everywhere within a second), the audit log, alerts, blocked addresses and budgets, each of which may be exceeded by two calls of \
     each other gateway";

/// What each of them has for itself.
const NOT_SHARED: [&str; 4] = [
    "rate limits (each gateway grants an equal part of each)",
    "circuit breakers",
    "flags changed by PUT /api/v1/config/features, unless the gateways have the same runtime overlay (--runtime-config)",
    "what earlier calls were like (anomaly_detection)",
];

/// Who else uses the file.
#[derive(Debug)]
pub(super) struct Sharing {
    claim: UseClaim,
    /// The process that this one takes over from.
    former: Option<u32>,
    /// Gateways that take new calls, this one included.
    gateways: AtomicU32,
    /// All processes, this one included.
    processes: AtomicU32,
    /// Whether what others have spent may not be counted in yet.
    may_owe: AtomicBool,
}

impl Sharing {
    /// Says that this process uses the file. `None` where there is none, or nothing can be told by it.
    ///
    /// # Errors
    /// [`StartError::DatabaseInUse`].
    pub(super) fn join(
        settings: &Settings,
        addr: SocketAddr,
        takes_over: bool,
    ) -> Result<Option<Arc<Self>>, StartError> {
        let storage = &settings.storage;
        if storage.profile == StorageProfile::Memory {
            return Ok(None);
        }
        let database = storage.database_path.display();
        let is_former = |other: &Neighbour| takes_over && other.addr == Some(addr);
        let is_tolerated =
            |other: &Neighbour| may_share(storage) || other.phase == UsePhase::Draining || is_former(other);
        let (claim, others) = match UseClaim::join(&storage.database_path, addr, patience, is_tolerated) {
            Ok(Joined::Beside(claim, others)) => (claim, others),
            Ok(Joined::Refused(by)) => {
                return Err(StartError::DatabaseInUse { database: database.to_string(), by: by.to_string() });
            }
            Err(error) => {
                tracing::warn!(
                    %error,
                    %database,
                    "cannot tell whether another process uses this database: the file for the lock beside it cannot be used"
                );
                return Ok(None);
            }
        };
        for other in &others {
            if other.phase == UsePhase::Draining || is_former(other) {
                tracing::info!(%database, %other, "another process uses this database until it has drained");
            } else {
                tracing::warn!(%database, %other, "another process uses this database. {}", shared_and_not());
            }
        }
        let this = Self {
            claim,
            former: others.iter().find(|other| is_former(other)).and_then(|other| other.process),
            gateways: AtomicU32::new(1),
            processes: AtomicU32::new(1),
            may_owe: AtomicBool::new(true),
        };
        this.count(&others);
        Ok(Some(Arc::new(this)))
    }

    /// How many gateways take calls with `others` there, this one included, and how many processes there are.
    fn counted(&self, others: &[Neighbour]) -> (u32, u32) {
        let takes_calls = |other: &&Neighbour| {
            other.phase == UsePhase::Serving && (other.process.is_none() || other.process != self.former)
        };
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1);
        (number(others.iter().filter(takes_calls).count()), number(others.len()))
    }

    fn count(&self, others: &[Neighbour]) {
        let (gateways, processes) = self.counted(others);
        self.processes.store(processes, Ordering::Relaxed);
        if !others.is_empty() {
            self.may_owe.store(true, Ordering::Release);
        }
        self.gateways.store(gateways, Ordering::Relaxed);
    }

    /// How many gateways take calls, this one included.
    pub(super) fn gateways(&self) -> u32 {
        self.gateways.load(Ordering::Relaxed)
    }

    fn has_others(&self) -> bool {
        self.processes.load(Ordering::Relaxed) > 1
    }

    /// Whether others may have spent something since this was last asked: also once after the last of them has gone.
    pub(super) fn take_owing(&self) -> bool {
        let has_others = self.has_others();
        self.may_owe.swap(has_others, Ordering::AcqRel) || has_others
    }

    /// What others have spent could not be read, and is to be read again.
    pub(super) fn still_owing(&self) {
        self.may_owe.store(true, Ordering::Release);
    }

    /// This process takes calls from now on, and its part of each rate limit is the one that the others leave it.
    pub(super) fn serves(&self, process: &Process) {
        process.divide_rates(self.gateways());
        self.tell(UsePhase::Serving);
    }

    /// It only finishes what it has begun.
    pub(super) fn drains(&self) {
        self.tell(UsePhase::Draining);
    }

    fn tell(&self, phase: UsePhase) {
        if let Err(error) = self.claim.tell(phase) {
            tracing::warn!(%error, "other processes on this database cannot be told how far this one is");
        }
    }

    /// For `/health`: `None` while there is no other process.
    pub(super) fn report(&self) -> Option<SharedFile> {
        let processes = self.processes.load(Ordering::Relaxed);
        (processes > 1).then(|| SharedFile { processes, gateways: self.gateways(), not_shared: NOT_SHARED.to_vec() })
    }

    /// Looks who else is there, and sets this process's part of rate limits and budgets by it. `/health` says how many there are once
    /// each has its part.
    fn look(&self, process: &Process) -> std::io::Result<()> {
        let others = self.claim.others()?;
        let (gateways, _) = self.counted(&others);
        if gateways != self.gateways() {
            process.divide_rates(gateways);
            process.make_room_in_budgets(gateways);
            tracing::info!(
                gateways,
                "that many gateways use this database and take calls; each grants its part of rate limits"
            );
        }
        self.count(&others);
        Ok(())
    }
}

/// Keeps looking, for as long as the process is there.
pub(super) async fn keep_looking(sharing: Arc<Sharing>, process: Weak<Process>, live: Arc<LiveSettings>) {
    let mut failing = false;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(process) = process.upgrade() else { return };
        let (looking, live) = (Arc::clone(&sharing), Arc::clone(&live));
        let look = move || {
            looking.look(&process).map_err(|error| error.to_string())?;
            if looking.has_others() { live.follow() } else { Ok(()) }
        };
        match tokio::task::spawn_blocking(look).await {
            Ok(Ok(())) => failing = false,
            Ok(Err(error)) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(
                        error,
                        "cannot follow other processes on this database; what was last known of them holds"
                    );
                }
            }
            Err(_) => tracing::error!("looking for other processes on this database panicked"),
        }
    }
}

/// Whether the settings let several gateways use the file. In the profile `production` it is a journal, which has one owner.
fn may_share(storage: &Storage) -> bool {
    storage.shared_file && storage.profile == StorageProfile::Lite
}

/// How long a start waits for this process to end.
fn patience(other: &Neighbour) -> Duration {
    let Some(process) = other.process else { return LIVING_LIMIT };
    // `pid (name) state`, whatever the name is.
    let about = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = about.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    if matches!(state, None | Some('Z' | 'X')) { GONE_LIMIT } else { LIVING_LIMIT }
}

/// What gateways on one file share and what they do not, as one text.
pub(crate) fn shared_and_not() -> String {
    format!("{SHARED}. Not shared: {}", NOT_SHARED.join(", "))
}
