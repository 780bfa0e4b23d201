//! Start order and its reverse.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use weir_config::settings::StorageProfile;
use weir_config::{Changes, Loaded, Settings};
use weir_models::{Loader, Models};
use weir_storage::audit::AuditEvent;
use weir_storage::{AuditLog as _, Store};

use super::StartError;
use super::control::{Control, ControlThread, keep_resolved};
use super::extensions::Extensions;
use super::limits;
use super::models;
use super::parts::{
    CorePlacement, Exports, complaints, golden_set, open_intake, remember_objects, start_access_log, start_models,
    watch_calls,
};
use super::phases::{Ground, Kept, Means, Readers, priced_host};
use super::sharing::{self, Sharing};
use super::subsystems::{Context, Made, Running, TimeLeft};
use super::takeover::{self, HandOver};
use crate::admit::Guard;
use crate::admit::web::Pages;
use crate::control::{ApiHandle, CALLS_PER_CORE, Calls, channel};
use crate::ingest::Intake;
use crate::judging::Judging;
use crate::meter::Registry;
use crate::money::Prices;
use crate::ops::cores::CorePulses;
use crate::ops::exchanges::ExchangeLog;
use crate::ops::health::Health;
use crate::ops::live::LiveSettings;
use crate::ops::log::LogGuard;
use crate::ops::reload::{self, Reloaders};
use crate::ops::store::space;
use crate::process::{Edge, Inspection, Policy, Process, ProcessParts, Recording};
use crate::receipts::Receipts;
use crate::redaction::Redaction;
use crate::rt::{DriverMode, Heartbeats};
use crate::upstreams::SharedUpstreams;
use crate::{api, grpc};

/// A running gateway.
pub struct Gateway {
    addr: SocketAddr,
    mode: DriverMode,
    process: Arc<Process>,
    health: Arc<Health>,
    store: Store,
    /// Says that this process uses the database, and who else does.
    sharing: Option<Arc<Sharing>>,
    /// Has another process read for consumers of finished spans.
    hand_over_feed: Option<Box<dyn Fn() + Send>>,
    /// The thread that loads models.
    _models: Loader,
    cores: usize,
    running: Running,
    shutdown_limit: Duration,
    heartbeats: Arc<Heartbeats>,
    /// For a process that takes over.
    sockets: Vec<std::net::TcpListener>,
    hand_over: Arc<HandOver>,
    reloaders: Reloaders,
    /// What the last reload found changed.
    changes: Arc<Mutex<Changes>>,
    live: Arc<LiveSettings>,
}

/// Starts everything and returns when requests are served.
///
/// # Errors
/// [`StartError`]; what had been started is taken down again when it is dropped.
pub fn start(loaded: Loaded, registry: Arc<Registry>) -> Result<Gateway, StartError> {
    start_with(loaded, registry, false, Extensions::default())
}

/// As [`start`], with `extensions`. To `take_over` is to start in the place of the process that serves the address now, if
/// there is one: it hands its sockets over and drains.
///
/// # Errors
/// As [`start`].
pub fn start_with(
    loaded: Loaded,
    registry: Arc<Registry>,
    take_over: bool,
    extensions: Extensions,
) -> Result<Gateway, StartError> {
    let Extensions { consumers, detectors, outside, taps, grpc_times } = extensions;
    let ground = Ground::lay(loaded, registry, take_over)?;
    let mut readers = Readers::make(&ground, consumers)?;
    let kept = Kept::open(&ground, &mut readers)?;
    watch_health(&ground.health, &kept.store, &readers.exports, (&readers.models, ground.live.snapshot()));
    let means = Means::make(&ground, &readers, &kept, detectors)?;
    let (exchanges, access_log) = start_access_log(ground.settings.logging.access, &ground.registry)?;
    let (api, calls) = channel(ground.cores * CALLS_PER_CORE);
    ground.registry.watch_queue(api.watch());
    let parts = ProcessParts {
        settings: Arc::clone(ground.live.snapshot()),
        policy: policy(&ground, &readers, &kept, &means)?,
        inspection: Inspection {
            analyser: Arc::clone(&means.analyser),
            inference: means.inference.handle(),
            outside: outside.into_iter().chain(readers.judging.as_ref().and_then(Judging::inline)).collect(),
            taps,
            anomalies: watch_calls(&ground.settings, &ground.registry),
        },
        recording: Recording { sink: kept.store.sink(), feed: readers.inlet.clone(), body_bytes: ground.body_bytes() },
        edge: edge(&ground, api, exchanges),
        registry: Arc::clone(&ground.registry),
    };
    let process = Process::new(parts);
    limits::share(&process, &kept.store)?;
    if let Some(sharing) = &kept.sharing {
        process.divide_rates(sharing.gateways());
        kept.spend.divide(kept.store.gateways().unwrap_or(sharing.gateways()), true);
    }
    let intake = open_intake(&ground.settings, &process, &kept.store)?;
    let control = control_thread(&ground, &readers, &kept, &means, (&process, &intake, calls))?;
    serve((ground, readers, kept, means), (process, control, access_log), intake.map(|intake| (intake, grpc_times)))
}

/// Who may do what, and at which price.
fn policy(ground: &Ground, readers: &Readers, kept: &Kept, means: &Means) -> Result<Policy, StartError> {
    Ok(Policy {
        guard: Arc::new(Guard::new(&ground.settings.auth, Arc::clone(means.identities.directory()))),
        access: Arc::clone(means.identities.access()),
        provider_keys: Arc::clone(means.identities.provider_keys()),
        redaction: Arc::new(Redaction::new(&ground.settings.auth)),
        blocked: readers.offenders.as_ref().map(|offenders| offenders.blocked()),
        objects: remember_objects(&kept.store)?,
        prices: Arc::clone(&readers.prices),
        spend: Arc::clone(&kept.spend),
        spend_book: Arc::new(kept.store.clone()),
        breakers: Arc::clone(&ground.breakers),
        upstreams: Arc::clone(&means.upstreams),
    })
}

/// Where clients come in.
fn edge(ground: &Ground, api: ApiHandle, exchanges: ExchangeLog) -> Edge {
    Edge {
        api,
        terms: api::terms,
        pages: Pages::new(&ground.settings.web, ground.settings.auth.enabled),
        exchanges,
        health: Arc::clone(&ground.health),
        mode: ground.mode,
        instance: format!("1.1 weir-{}", &uuid::Uuid::new_v4().simple().to_string()[..12]),
        listen: ground.sockets.addr,
        cores: ground.cores,
    }
}

/// The thread of our own interfaces.
fn control_thread(
    ground: &Ground,
    readers: &Readers,
    kept: &Kept,
    means: &Means,
    (process, intake, calls): (&Arc<Process>, &Option<Intake>, Calls),
) -> Result<ControlThread, StartError> {
    let (settings, live) = (&ground.settings, &ground.live);
    ControlThread::start(Control {
        store: kept.store.clone(),
        reports: Arc::clone(&means.reports),
        replays: Arc::clone(&means.replays),
        store_waits_for_readers: settings.storage.profile == StorageProfile::Memory,
        identities: Arc::clone(&means.identities),
        redaction: Arc::clone(&process.parts.policy.redaction),
        health: Arc::clone(&ground.health),
        live: Arc::clone(live),
        registry: Arc::clone(&ground.registry),
        upstreams: Arc::clone(&means.upstreams),
        spend: Arc::clone(&kept.spend),
        charges: Arc::clone(&process.results),
        settings: Arc::clone(live.snapshot()),
        receipt_key: readers.exports.receipts.as_ref().map(Receipts::public),
        golden: golden_set(live, &means.analyser, &means.inference, &ground.registry),
        calls,
        ingest: intake.clone().filter(|_| settings.otel_ingest.enabled),
        probing: settings.health_check.clone(),
        sharing: kept.sharing.clone(),
    })
    .map_err(|source| StartError::Thread { what: "the control thread", source })
}

/// Opens the listeners and starts the subsystems: from here on requests are served.
fn serve(
    (ground, readers, kept, means): (Ground, Readers, Kept, Means),
    (process, control, access_log): (Arc<Process>, ControlThread, Option<LogGuard>),
    intake: Option<(Intake, grpc::Times)>,
) -> Result<Gateway, StartError> {
    let Ground { live, settings, health, reloaders, mode, cores, cpus, tls, sockets, metrics, for_grpc, .. } = ground;
    let Kept { store, sharing, consumers, .. } = kept;
    let runtime = control.runtime().clone();
    let changes = reread_with(&reloaders, (&live, &means.upstreams, &readers.prices), &runtime);
    let shutdown_limit = Duration::from_secs(settings.shutdown_timeout_seconds);
    let heartbeats = Arc::new(Heartbeats::new(cores));
    process.parts.registry.add_source(Box::new(CorePulses(Arc::clone(&heartbeats))));
    let hand_over = Arc::new(HandOver::new(sockets.is_lent()));
    drop(ground.starting);
    let addr = sockets.addr;
    let listeners = sockets.open(cores, mode)?;
    let given =
        listeners.iter().flatten().chain(&metrics).chain(&for_grpc).filter_map(|socket| socket.try_clone().ok());
    let sockets = given.collect();
    let hand_over_feed = consumers.as_ref().map(|consumers| Box::new(consumers.hand_over()) as Box<dyn Fn() + Send>);
    let running = Running::start(Context {
        settings: Arc::clone(&settings),
        process: Arc::clone(&process),
        health: Arc::clone(&health),
        store: store.clone(),
        hand_over: Arc::clone(&hand_over),
        tls,
        control: runtime.clone(),
        network: consumers.as_ref().map(|consumers| consumers.runtime().clone()),
        shutdown_limit,
        made: Made {
            access_log,
            control: Some(control),
            metrics,
            consumers,
            judging: readers.judging,
            offenders: readers.offenders,
            exports: readers.exports,
            channels: readers.channels,
            reports: means.reports,
            replays: means.replays,
            identities: means.identities,
            inference: Some(means.inference),
            grpc: for_grpc.zip(intake).map(|(listener, (intake, times))| (listener, intake, times)),
            cores: Some((listeners, CorePlacement { cpus, heartbeats: Arc::clone(&heartbeats) })),
        },
    })?;
    if let Some(sharing) = &sharing {
        sharing.serves(&process);
        runtime.spawn(sharing::keep_looking(Arc::clone(sharing), Arc::downgrade(&process), Arc::clone(&live)));
    }
    health.serving();
    let models = start_models(&readers.models, &settings, &health, &live)?;
    Ok(Gateway {
        addr,
        mode,
        process,
        health,
        store,
        sharing,
        hand_over_feed,
        _models: models,
        cores,
        running,
        shutdown_limit,
        heartbeats,
        sockets,
        hand_over,
        reloaders,
        changes,
        live,
    })
}

/// Has settings read again on SIGHUP; what the last time found changed.
fn reread_with(
    reloaders: &Reloaders,
    (live, upstreams, prices): (&Arc<LiveSettings>, &Arc<SharedUpstreams>, &Arc<Prices>),
    runtime: &Handle,
) -> Arc<Mutex<Changes>> {
    let changes = Arc::new(Mutex::new(Changes::default()));
    reloaders.add("settings", {
        let (live, upstreams, prices) = (Arc::clone(live), Arc::clone(upstreams), Arc::clone(prices));
        let (runtime, changes) = (runtime.clone(), Arc::clone(&changes));
        move || {
            let (said, found) = reread(&live, &upstreams, &prices, &runtime)?;
            *changes.lock() = found;
            Ok(said)
        }
    });
    changes
}

/// What `/health` looks at beside breakers and queues.
fn watch_health(
    health: &Health,
    store: &Store,
    exports: &Exports,
    (models, settings): (&Arc<Models>, &Arc<ArcSwap<Settings>>),
) {
    health.watch_stores({
        let store = store.clone();
        move || complaints(&store)
    });
    health.watch_receivers({
        let exports = exports.clone();
        move || exports.complaints()
    });
    health.watch_space({
        let store = store.clone();
        move || space(&store)
    });
    health.watch_models({
        let (models, settings) = (Arc::clone(models), Arc::clone(settings));
        move || models::report(&models, &settings.load())
    });
}

/// Reads flags, upstreams, routes and keys again: all or nothing.
fn reread(
    live: &LiveSettings,
    upstreams: &SharedUpstreams,
    prices: &Prices,
    runtime: &Handle,
) -> Result<(String, Changes), String> {
    let former = live.snapshot().load_full();
    live.reread(|settings| {
        prices.serve_host(priced_host(settings)).map_err(|error| error.to_string())?;
        let replaced = upstreams.replace(settings).map_err(|error| {
            // The file of prices was readable a moment ago; where it no longer is, SIGHUP says so.
            drop(prices.serve_host(priced_host(&former)));
            error.to_string()
        });
        for peer in replaced? {
            runtime.spawn(keep_resolved(Arc::downgrade(&peer)));
        }
        Ok(())
    })
}

impl Gateway {
    /// The address that is listened on; the port is the real one when 0 was asked for.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How the cores wait for the kernel.
    pub fn mode(&self) -> DriverMode {
        self.mode
    }

    /// The pulse of each core thread.
    pub fn heartbeats(&self) -> &Arc<Heartbeats> {
        &self.heartbeats
    }

    /// The store, for reading what has been recorded.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The settings in effect.
    pub fn live(&self) -> &LiveSettings {
        &self.live
    }

    /// Reads settings, certificates, prices and the like again (SIGHUP), and names every change that was found. What cannot be read
    /// keeps its former values.
    pub fn reload(&self) {
        let failed = self.reloaders.reload();
        let changes = std::mem::take(&mut *self.changes.lock());
        reload::tell(&changes);
        let mut detail = reload::detail(&changes);
        detail.insert("failed".to_owned(), failed.to_string());
        let event = AuditEvent {
            tenant: None,
            actor: "local".to_owned(),
            action: "config.reload".to_owned(),
            target: None,
            detail,
        };
        if let Err(error) = self.store.audit(event) {
            tracing::warn!(%error, "the reload could not be written to the audit log");
        }
    }

    /// Lets a process started with `--take-over` have the listening sockets; `stop` is called, on another thread, when it has
    /// them and this one is to drain. Without it the gateway works all the same, so a failure is only logged.
    pub fn offer_sockets(&mut self, stop: impl Fn() + Send + 'static) {
        let sockets = std::mem::take(&mut self.sockets);
        if self.hand_over.is_lent() {
            // A successor could not know that they are not ours to shut down; the service manager starts it with them.
            return;
        }
        let settings = self.live.snapshot().load();
        let folder = takeover::folder(&settings);
        // What lies in memory is nobody else's.
        let shared = settings.storage.profile != StorageProfile::Memory;
        let hand_over = self.hand_over_feed.take().filter(|_| shared);
        let offered = takeover::offer(
            (self.addr, folder.as_deref()),
            sockets,
            self.cores,
            Arc::clone(&self.hand_over),
            move || {
                if let Some(hand_over) = &hand_over {
                    hand_over();
                }
                stop();
            },
        );
        if let Err(error) = offered {
            tracing::warn!(%error, "no other process will be able to take over the port");
        }
    }

    /// Number of core threads.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// Stops accepting, lets what is in flight finish within `shutdown.timeout_seconds`, commits every record and ends
    /// all threads. True when nothing was cut and nothing lost.
    pub fn stop(self) -> bool {
        if let Some(sharing) = &self.sharing {
            sharing.drains();
        }
        self.hand_over.stop();
        let time = TimeLeft::of(self.shutdown_limit);
        self.health.drain();
        self.process.start_draining();
        self.running.stop(&time)
    }
}
