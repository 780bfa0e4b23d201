//! Start order and its reverse.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use weir_config::settings::{RouterAction, StorageProfile};
use weir_config::vocab::Timestamp;
use weir_config::{Changes, Loaded, Settings};
use weir_models::{Loader, Models};
use weir_storage::audit::AuditEvent;
use weir_storage::{AuditLog as _, SpanLog, Store};

use super::StartError;
use super::certificate::Certificate;
use super::control::{Control, ControlThread, keep_resolved};
use super::extensions::Extensions;
use super::keep;
use super::limits;
use super::listeners::ListenSockets;
use super::models;
use super::network::Consumers;
use super::own_rules;
use super::parts::{
    CorePlacement, Exports, Outside, allow_descriptors, complaints, golden_set, make_feed, make_judging, model_threads,
    open_intake, open_store, prepare_patterns, remember_objects, share_token_key, start_access_log, start_inference,
    start_models, token_key_file, warn_when_nobody_can_administer, watch_calls,
};
use super::sharing::{self, Sharing};
use super::starting::Starting;
use super::subsystems::{Context, Made, Running, TimeLeft};
use super::takeover::{self, HandOver};
use super::unasked;
use crate::admit::Guard;
use crate::admit::web::Pages;
use crate::api;
use crate::control::{CALLS_PER_CORE, channel};
use crate::feed::Feed;
use crate::identity::Identities;
use crate::judging::Judging;
use crate::meter::Registry;
use crate::money::{Prices, Spend};
use crate::ops::analysis::DefenceShadow;
use crate::ops::breaker::{BreakerGauges, Breakers};
use crate::ops::clock::Clock;
use crate::ops::cores::CorePulses;
use crate::ops::health::{Facts, Health, Io};
use crate::ops::live::LiveSettings;
use crate::ops::memory::{self, MemoryLimit};
use crate::ops::reload::{self, Reloaders};
use crate::ops::store::{breaker_advice, space};
use crate::process::{Edge, Inspection, Policy, Process, ProcessParts, Recording};
use crate::receipts::Receipts;
use crate::redaction::Redaction;
use crate::replay::{ReplayMeans, Replays};
use crate::reports::ReportBuilder;
use crate::router::Offenders;
use crate::rt::{self, DriverMode, Heartbeats};
use crate::upstreams::{Figures, SharedUpstreams};

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
    let live = Arc::new(LiveSettings::new(loaded));
    let settings = live.snapshot().load_full();
    let reloaders = Reloaders::default();
    let mode = rt::probe(settings.server.io_driver)?;
    allow_descriptors(&settings);
    rt::forbid_core_dumps();
    let cpus = rt::allowed_cpus();
    let cores = if settings.server.core_threads == 0 { cpus.len().max(1) } else { settings.server.core_threads };
    let certificate = Certificate::open(&settings)?;
    let tls = certificate.as_ref().map(Certificate::acceptor);
    if let Some(certificate) = certificate {
        reloaders.add("certificate", move || certificate.reload());
    }
    let mut sockets = ListenSockets::acquire(&settings, cores, mode, take_over)?;
    let addr = sockets.addr;
    let (metrics, unanswered) = match settings.server.metrics_addr {
        None => (None, Vec::new()),
        Some(addr) => {
            let (listener, is_new) = sockets.metrics(addr)?;
            let own = listener.try_clone().ok().filter(|_| is_new);
            (Some(listener), own.into_iter().collect())
        }
    };
    let for_grpc =
        Some(settings.grpc).filter(|grpc| grpc.enabled).map(|grpc| sockets.grpc(grpc.listen_addr)).transpose()?;
    let breakers = Arc::new(Breakers::new(settings.circuit_breaker, &Clock::monotonic()));
    registry.add_source(Box::new(BreakerGauges(Arc::clone(&breakers))));
    registry.add_source(Box::new(DefenceShadow(Arc::clone(live.snapshot()))));
    let facts = Facts {
        version: env!("CARGO_PKG_VERSION"),
        storage_profile: settings.storage.profile,
        judge_enabled_at_startup: settings.judge.enabled,
        retries: settings.health_check.retries,
    };
    let health = Arc::new(Health::new(facts, Arc::clone(&breakers), Arc::clone(&registry)));
    health.set_io(Io { driver: mode.driver(), ring_mode: mode.ring().to_owned() });
    let say_starting = |listeners, tls| {
        Starting::answer(listeners, Arc::clone(&settings), Arc::clone(&health), tls)
            .map_err(|source| StartError::Thread { what: "the thread that answers during the start", source })
    };
    let starting = (say_starting(sockets.bound(), tls.clone())?, say_starting(unanswered, None)?);
    let prices = open_prices(&settings, &reloaders)?;
    let offenders = settings.action_router.may(RouterAction::BlockIp);
    let offenders = offenders.then(|| Arc::new(Offenders::new(settings.action_router.ip_block)));
    let mut outside = Outside::default();
    let mut feed = make_feed(&live, &registry, offenders.clone(), extensions.consumers, &mut outside)?;
    let Outside { channels, exports } = outside;
    let models = models::open(&settings, model_threads(cores))?;
    let mut judging = make_judging(&live, feed.as_mut(), &prices, &models, &registry)?;
    let feed = feed.map(|(feed, _)| feed);
    let inlet = feed.as_ref().map(Feed::inlet);
    let sharing = Sharing::join(&settings, addr, sockets.is_inherited())?;
    let store = open_store(&settings, &registry, &breakers, inlet.clone())?;
    if let Some(offenders) = &offenders {
        offenders.open(Arc::new(store.clone()))?;
    }
    if let Some(channels) = &channels {
        channels.open(Arc::new(store.clone()));
    }
    let consumers = feed.map(|feed| {
        let log: Arc<dyn SpanLog> = Arc::new(store.clone());
        Consumers::start(feed, &log, &registry)
    });
    let consumers =
        consumers.transpose().map_err(|source| StartError::Thread { what: "the network runtime", source })?;
    if let Some((judging, consumers)) = judging.as_mut().zip(consumers.as_ref()) {
        judging.start(consumers.runtime(), Arc::new(store.clone()));
        health.judge_spawned();
    }
    watch_health(&health, &store, &exports, (&models, live.snapshot()));
    if let Some(sharing) = &sharing {
        // Weak: the file is free when the gateway has gone, whoever still has its health.
        let sharing = Arc::downgrade(sharing);
        health.watch_sharing(move || sharing.upgrade()?.report());
    }
    let spend = Arc::new(Spend::new());
    keep::restore(&spend, &store)?;
    let (analyser, own) =
        own_rules::analyser(&settings, models.detectors().into_iter().chain(extensions.detectors).collect())?;
    let analyser = Arc::new(analyser.with_memory(memory::known_text_bytes(MemoryLimit::allowed())));
    crate::output::prepare(&settings);
    if let Some(own) = own {
        let live = Arc::clone(&live);
        reloaders.add("rules", move || own.reload().inspect(|_| live.renew()));
    }
    let inference = start_inference(cores, settings.auth.enabled, &analyser, &registry)?;
    prepare_patterns(&inference, &settings);
    let replays = Replays::new(ReplayMeans {
        spans: Arc::new(store.clone()),
        analyser: Arc::clone(&analyser),
        settings: Arc::clone(live.snapshot()),
        unasked: |settings| unasked::all(settings).unwrap_or_default(),
        on_thread: rt::give_way,
    });
    let reports = ReportBuilder::new(Arc::new(store.clone()), rt::give_way);
    reports.resume();
    share_token_key(&settings, &store)?;
    let identities = Identities::load(Arc::new(store.clone()), token_key_file(&settings))?.forgetting({
        let (spend, replays) = (Arc::clone(&spend), Arc::clone(&replays));
        move |tenant| {
            replays.forget(tenant);
            spend.erase(tenant, Timestamp::now().micros() / 1_000_000);
        }
    });
    let identities = Arc::new(identities);
    let guard = Arc::new(Guard::new(&settings.auth, Arc::clone(identities.directory())));
    let redaction = Arc::new(Redaction::new(&settings.auth));
    warn_when_nobody_can_administer(&settings, identities.directory());
    if let Some(advice) = breaker_advice(&settings) {
        tracing::warn!("{advice}");
    }
    let upstreams = Arc::new(SharedUpstreams::open(&settings, cores)?);
    registry.add_source(Box::new(Figures(Arc::clone(&upstreams))));
    let (handle, calls) = channel(cores * CALLS_PER_CORE);
    registry.watch_queue(handle.watch());
    let shutdown_limit = Duration::from_secs(settings.shutdown_timeout_seconds);
    let (exchanges, access_log) = start_access_log(settings.logging.access, &registry)?;
    let watched = watch_calls(&settings, &registry);
    let process = Process::new(ProcessParts {
        settings: Arc::clone(live.snapshot()),
        registry,
        policy: Policy {
            guard,
            access: Arc::clone(identities.access()),
            provider_keys: Arc::clone(identities.provider_keys()),
            redaction,
            blocked: offenders.as_ref().map(|offenders| offenders.blocked()),
            objects: remember_objects(&store)?,
            prices,
            spend: Arc::clone(&spend),
            spend_book: Arc::new(store.clone()),
            breakers,
            upstreams: Arc::clone(&upstreams),
        },
        inspection: Inspection {
            analyser,
            inference: inference.handle(),
            outside: extensions.outside.into_iter().chain(judging.as_ref().and_then(Judging::inline)).collect(),
            taps: extensions.taps,
            anomalies: watched,
        },
        recording: Recording {
            sink: store.sink(),
            feed: inlet,
            body_bytes: usize::try_from(memory::body_bytes(&settings, MemoryLimit::allowed())).unwrap_or(usize::MAX),
        },
        edge: Edge {
            api: handle,
            terms: api::terms,
            pages: Pages::new(&settings.web, settings.auth.enabled),
            exchanges,
            health: Arc::clone(&health),
            mode,
            instance: format!("1.1 weir-{}", &uuid::Uuid::new_v4().simple().to_string()[..12]),
            listen: addr,
            cores,
        },
    });
    limits::share(&process, &store)?;
    if let Some(sharing) = &sharing {
        process.divide_rates(sharing.gateways());
        spend.divide(store.gateways().unwrap_or(sharing.gateways()), true);
    }
    let intake = open_intake(&settings, &process, &store)?;
    let control = ControlThread::start(Control {
        store: store.clone(),
        reports: Arc::clone(&reports),
        replays: Arc::clone(&replays),
        store_waits_for_readers: settings.storage.profile == StorageProfile::Memory,
        identities: Arc::clone(&identities),
        redaction: Arc::clone(&process.parts.policy.redaction),
        health: Arc::clone(&health),
        live: Arc::clone(&live),
        registry: Arc::clone(&process.parts.registry),
        upstreams: Arc::clone(&upstreams),
        spend: Arc::clone(&spend),
        charges: Arc::clone(&process.results),
        settings: Arc::clone(live.snapshot()),
        receipt_key: exports.receipts.as_ref().map(Receipts::public),
        golden: golden_set(&live, &process.parts.inspection.analyser, &inference, &process.parts.registry),
        calls,
        ingest: intake.clone().filter(|_| settings.otel_ingest.enabled),
        probing: settings.health_check.clone(),
        sharing: sharing.clone(),
    })
    .map_err(|source| StartError::Thread { what: "the control thread", source })?;
    let changes = Arc::new(Mutex::new(Changes::default()));
    reloaders.add("settings", {
        let (live, upstreams, prices) =
            (Arc::clone(&live), Arc::clone(&upstreams), Arc::clone(&process.parts.policy.prices));
        let (runtime, changes) = (control.runtime().clone(), Arc::clone(&changes));
        move || {
            let (said, found) = reread(&live, &upstreams, &prices, &runtime)?;
            *changes.lock() = found;
            Ok(said)
        }
    });
    let runtime = control.runtime().clone();
    let heartbeats = Arc::new(Heartbeats::new(cores));
    process.parts.registry.add_source(Box::new(CorePulses(Arc::clone(&heartbeats))));
    let hand_over = Arc::new(HandOver::new(sockets.is_lent()));
    drop(starting);
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
            judging,
            offenders,
            exports,
            channels,
            reports,
            replays,
            identities,
            inference: Some(inference),
            grpc: for_grpc.zip(intake).map(|(listener, intake)| (listener, intake, extensions.grpc_times)),
            cores: Some((listeners, CorePlacement { cpus, heartbeats: Arc::clone(&heartbeats) })),
        },
    })?;
    if let Some(sharing) = &sharing {
        sharing.serves(&process);
        runtime.spawn(sharing::keep_looking(Arc::clone(sharing), Arc::downgrade(&process), Arc::clone(&live)));
    }
    health.serving();
    let models = start_models(&models, &settings, &health, &live)?;
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

/// What calls cost, read again on SIGHUP where a file says it.
fn open_prices(settings: &Settings, reloaders: &Reloaders) -> Result<Arc<Prices>, StartError> {
    let prices = Arc::new(Prices::open(&settings.cost_estimation, priced_host(settings))?);
    if settings.cost_estimation.pricing_file.is_some() {
        let prices = Arc::clone(&prices);
        reloaders.add("prices", move || prices.reload().map_err(|error| error.to_string()));
    }
    Ok(prices)
}

/// The host by which models are priced: with several upstreams each of them says so for itself.
fn priced_host(settings: &Settings) -> &str {
    if settings.upstreams.is_empty() { &settings.upstream.host } else { "" }
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
