//! The control thread: the ordinary tokio ecosystem for everything that is not the hot path.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use weir_config::Settings;
use weir_config::settings::{HealthCheck, StorageProfile};

use super::keep;
use super::sharing::Sharing;
use crate::api::{self, Api, Costs, Roles};
use crate::control::Calls;
use crate::forward::Peer;
use crate::golden::GoldenSet;
use crate::identity::Identities;
use crate::ingest::Intake;
use crate::meter::Registry;
use crate::money::Spend;
use crate::ops::health::Health;
use crate::ops::live::LiveSettings;
use crate::ops::memory::GivingBack;
use crate::ops::probe::{self, Schedule};
use crate::process::charges::ResultCharges;
use crate::receipts::PublicKey;
use crate::redaction::Redaction;
use crate::replay::Replays;
use crate::reports::ReportBuilder;
use crate::rt;
use crate::upstreams::SharedUpstreams;

/// How often the last uses of keys are written down.
const USES_INTERVAL: Duration = Duration::from_secs(10);

/// How often memory is looked at.
const MEMORY_INTERVAL: Duration = Duration::from_secs(5);
/// Blocking threads at most, made as they are needed. More than all lanes of the API and the standing tasks have work for, so
/// that what ends a credential never waits for one.
const BLOCKING_THREADS_MAX: usize = 32;

/// How often the store is asked to keep denials that it could not take.
const DENIALS_INTERVAL: Duration = Duration::from_secs(1);
/// How often the changes of other processes are looked for: what one of them revokes is refused here within a second.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(250);

/// What the control thread works with.
pub(super) struct Control {
    pub(super) store: weir_storage::Store,
    pub(super) reports: Arc<ReportBuilder>,
    pub(super) replays: Arc<Replays>,
    /// In memory, writing and reading exclude one another.
    pub(super) store_waits_for_readers: bool,
    pub(super) identities: Arc<Identities>,
    pub(super) redaction: Arc<Redaction>,
    pub(super) health: Arc<Health>,
    pub(super) live: Arc<LiveSettings>,
    pub(super) registry: Arc<Registry>,
    pub(super) upstreams: Arc<SharedUpstreams>,
    pub(super) spend: Arc<Spend>,
    pub(super) charges: Arc<ResultCharges>,
    pub(super) settings: Arc<ArcSwap<Settings>>,
    pub(super) golden: Option<Arc<GoldenSet>>,
    pub(super) receipt_key: Option<PublicKey>,
    pub(super) calls: Calls,
    pub(super) ingest: Option<Intake>,
    pub(super) probing: HealthCheck,
    pub(super) sharing: Option<Arc<Sharing>>,
}

/// The running control thread.
pub(super) struct ControlThread {
    handle: JoinHandle<()>,
    runtime: Handle,
    stop: oneshot::Sender<()>,
}

impl ControlThread {
    /// Starts the thread.
    pub(super) fn start(control: Control) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name("weir-blocking")
            // Calls on their way to the provider go first.
            .on_thread_start(rt::give_way_often)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let readers = readers(control.store_waits_for_readers)?;
        let spawner = runtime.handle().clone();
        let handle = std::thread::Builder::new().name("weir-control".to_owned()).spawn(move || {
            runtime.block_on(control.run(stopped, readers.handle().clone()));
            // A lookup or read that hangs must not hold up the exit.
            runtime.shutdown_background();
            readers.shutdown_background();
        })?;
        Ok(Self { handle, runtime: spawner, stop })
    }

    /// Where tasks of the thread are spawned.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Ends the thread once the calls it has accepted are answered.
    pub(super) fn stop(self) {
        // The thread may have ended already.
        let _gone = self.stop.send(()).is_err();
        if self.handle.join().is_err() {
            tracing::error!("the control thread panicked");
        }
    }
}

/// Threads that read and serialise what the API lists. Pages can be large, and nobody's call to the provider may notice.
fn readers(store_waits_for_readers: bool) -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(api::READERS_MAX)
        .thread_name("weir-reader")
        .on_thread_start(move || {
            if store_waits_for_readers {
                // A reader that never got a CPU would hold up the record of everything.
                crate::rt::give_way();
            } else {
                crate::rt::stand_back();
                rt::yielding::yield_often();
            }
        })
        .build()
}

impl Control {
    async fn run(self, stopped: oneshot::Receiver<()>, readers: tokio::runtime::Handle) {
        let Self {
            store,
            reports,
            replays,
            identities,
            redaction,
            health,
            live,
            registry,
            upstreams,
            spend,
            charges,
            settings,
            golden,
            receipt_key,
            calls,
            ingest,
            probing,
            sharing,
            ..
        } = self;
        let shared = Arc::clone(registry.shared());
        let access = Arc::clone(identities.access());
        let costs = Costs { settings: Arc::clone(&settings), spend: Arc::clone(&spend), access };
        let api = Api::new(Roles::of(&Arc::new(store.clone())), Arc::clone(&health), live, registry);
        let api = api.with_costs(costs).reading_on(readers).with_builder(reports).with_replays(replays);
        let api = api
            .with_golden(golden)
            .with_receipt_key(receipt_key)
            .with_ingest(ingest)
            .with_verdicts(Arc::new(store.clone()));
        let api = api.with_alerts(Arc::new(store.clone()));
        let router = api::router(api.with_identities(Arc::clone(&identities)).with_redaction(redaction));
        let reported = Arc::clone(&identities);
        health.watch_denials(move || reported.unwritten());
        if settings.load().auth.enabled {
            let listed = Arc::clone(&identities);
            // Nobody waits for it, and its panic is logged by the runtime's hook.
            drop(tokio::task::spawn_blocking(move || listed.warn_of_open_credentials()));
        }
        tokio::spawn(keep_denials_written(Arc::clone(&identities)));
        if store.is_a_file() {
            // A file that cannot be read is this gateway's own, and what it knows of it is no older than its last change.
            let shared = settings.load().storage.profile == StorageProfile::Production;
            let max_stale = shared.then(|| Duration::from_secs(settings.load().auth.max_stale_seconds));
            let followed = Arc::downgrade(&identities);
            let follows = move || follow_identities(&followed, max_stale);
            if let Err(error) = std::thread::Builder::new().name("weir-follow".to_owned()).spawn(follows) {
                tracing::error!(%error, "no thread that follows what other gateways revoke; what they revoke goes on working here");
            }
        }
        tokio::spawn(keep_uses_written(identities));
        tokio::spawn(keep_memory_small());
        tokio::spawn(keep::keep((spend, charges), store.clone(), sharing));
        if probing.enabled {
            let schedule = Schedule {
                interval: Duration::from_secs(u64::from(probing.interval_seconds)),
                timeout: Duration::from_millis(probing.timeout_ms),
            };
            let question: probe::Probe = Arc::new(move || store.probe().map_err(|error| error.to_string()));
            tokio::spawn(probe::watch(schedule, health, question));
        }
        for member in &upstreams.table().members {
            tokio::spawn(keep_resolved(Arc::downgrade(&member.link.peer)));
        }
        // A dropped sender is an order to stop, too: a start that failed half way.
        api::serve_until(router, calls, shared, async { drop(stopped.await) }).await;
    }
}

/// Has the store keep what it could not take when it came into force.
async fn keep_denials_written(identities: Arc<Identities>) {
    loop {
        tokio::time::sleep(DENIALS_INTERVAL).await;
        if identities.unwritten() == 0 {
            continue;
        }
        let writing = Arc::clone(&identities);
        if tokio::task::spawn_blocking(move || writing.persist_pending()).await.is_err() {
            tracing::error!("storing revocations panicked");
        }
    }
}

/// Takes over, several times a second, what other processes on the same file or stores have changed. Where that cannot be read for longer
/// than `max_stale`, nobody is let in by what was read before. Blocks until the identities are gone; a thread of its own, which gives way to
/// nobody: whoever is shut out elsewhere is to be shut out here within a second, however busy the machine is.
fn follow_identities(identities: &Weak<Identities>, max_stale: Option<Duration>) {
    let (mut failing, mut read) = (false, Instant::now());
    loop {
        std::thread::sleep(FOLLOW_INTERVAL);
        let Some(identities) = identities.upgrade() else { return };
        match std::panic::catch_unwind(AssertUnwindSafe(|| identities.follow())) {
            Ok(Ok(())) => {
                (failing, read) = (false, Instant::now());
                if identities.directory().set_stale(false) {
                    tracing::info!("keys and tokens can be read again and are taken again");
                }
            }
            Ok(Err(error)) => {
                if max_stale.is_some_and(|most| read.elapsed() > most) && identities.directory().set_stale(true) {
                    tracing::error!(
                        "keys and tokens could not be read for longer than auth.max_stale_seconds; they are refused until they can be"
                    );
                }
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(
                        %error,
                        "cannot read which keys and tenants other processes on this database have changed; what they revoke goes \
                         on working here until that can be read"
                    );
                }
            }
            Err(_) => tracing::error!("reading what other processes have changed panicked"),
        }
    }
}

/// Writes down, every few seconds, which keys were used.
async fn keep_uses_written(identities: Arc<Identities>) {
    loop {
        tokio::time::sleep(USES_INTERVAL).await;
        let writing = Arc::clone(&identities);
        match tokio::task::spawn_blocking(move || writing.write_uses()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last uses of keys could not be stored; will retry"),
            Err(_) => return,
        }
    }
}

/// Gives memory back that large bodies and pages have left behind: the allocator keeps it otherwise.
async fn keep_memory_small() {
    let mut giving = GivingBack::default();
    loop {
        tokio::time::sleep(MEMORY_INTERVAL).await;
        let Some(before) = rt::resident_bytes() else { return };
        if giving.is_due(before, Instant::now()) {
            if tokio::task::spawn_blocking(rt::give_back_memory).await.is_err() {
                return;
            }
            giving.tried(before, rt::resident_bytes().unwrap_or(before), Instant::now());
        }
    }
}

/// Looks the provider's name up, again and again: addresses change, and the first lookup may fail.
/// Ends with the peer.
pub(super) async fn keep_resolved(peer: Weak<Peer>) {
    let mut failing = false;
    while let Some(peer) = peer.upgrade() {
        let lookup = Arc::clone(&peer);
        let outcome = tokio::task::spawn_blocking(move || lookup.resolve()).await;
        let pause = match outcome {
            Ok(Ok(())) => {
                failing = false;
                Peer::RESOLVE_INTERVAL
            }
            Ok(Err(error)) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(upstream = %peer.describe(), %error, "the provider's host name cannot be resolved; will retry");
                }
                Duration::from_secs(1)
            }
            Err(_) => return,
        };
        drop(peer);
        tokio::time::sleep(pause).await;
    }
}
