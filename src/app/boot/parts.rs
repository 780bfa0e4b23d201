//! The parts of a gateway, started one by one; in which order is `run`'s business.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use weir_config::Settings;
use weir_config::settings::{AccessFormat, StorageErase, StorageProfile, Web};
use weir_config::store_url::StoreUrl;
use weir_config::vocab::{Role, Severity, SharedSecret, TenantId};
use weir_inference::{Analyser, Job, Lane, PoolOptions, Turn, Work, WorkerPool};
use weir_models::{Loader, Models};
use weir_storage::{Backend, Erase, SpanLog, Store, StoreObserver, StoreOptions, StoreState, Stores};

use super::StartError;
use super::core::{self, CoreSetup, DrainOrder};
use super::extensions::AddConsumer;
use super::metrics;
use super::models;
use super::takeover::HandOver;
use crate::admit::directory::Directory;
use crate::admit::web::Pages;
use crate::alerts::{self, Channels, Condition, Conditions};
use crate::anomalies::{self, Anomalies};
use crate::feed::{self, Feed, Inlet};
use crate::golden::{GoldenGauges, GoldenSet};
use crate::grpc;
use crate::ingest::Intake;
use crate::judge::Judge;
use crate::judging::{self, Judging};
use crate::meter::{QueueGauge, Registry};
use crate::money::Prices;
use crate::ops::analysis::AnalysedBytes;
use crate::ops::breaker::Breakers;
use crate::ops::descriptors::DescriptorNeed;
use crate::ops::exchanges::ExchangeLog;
use crate::ops::health::{Health, SubsystemReport};
use crate::ops::live::LiveSettings;
use crate::ops::log::{self, LogGuard};
use crate::ops::memory::{self, MemoryLimit};
use crate::ops::store::{self, PoisonedSpans, StoreHealth};
use crate::otel;
use crate::outbound::Client;
use crate::process::Process;
use crate::process::objects::MadeObjects;
use crate::receipts::{self, Receipts};
use crate::record::Budget;
use crate::router::{self, Offenders, Tally};
use crate::rt::{self, CoreStart, CoreThread, Heartbeats, TlsAcceptor};
use crate::settle::masking::{MASKING_LIMIT, Masking, Means};
use crate::siem;

/// Spans that wait for the storage thread: some seconds of full load while a disk does not answer. How many bytes they may have goes by
/// the memory there is.
const STORAGE_QUEUE_ITEMS: usize = 65_536;
/// What the `memory` profile keeps at most; its oldest records go first.
const MEMORY_PROFILE_BYTES: usize = 256 * 1024 * 1024;
/// Memory for masking what receivers of spans are sent, all of them together, and the longest text that is masked for them: of a longer
/// one nothing is said.
const MASKED_BYTES: usize = 128 * 1024 * 1024;
const MASKED_TEXT_BYTES: usize = 16 * 1024 * 1024;
/// Jobs that wait in each lane of the inference pool, and bytes of their texts: a bound on memory, and on how late a job may be.
const INFERENCE_QUEUE_JOBS: usize = 4_096;
const INFERENCE_QUEUE_BYTES: usize = 256 * 1024 * 1024;
/// Jobs for models that are looked at together when they wait together. No job waits for others to come: on a CPU a batch
/// is no faster per text but for the shortest ones.
const MODEL_BATCH_JOBS: usize = 8;

/// Where the key of tenant tokens is kept: beside the database, unless the settings say otherwise.
pub(crate) fn token_key_file(settings: &Settings) -> Option<PathBuf> {
    let beside = || {
        let mut path = settings.storage.database_path.clone().into_os_string();
        path.push(".key");
        PathBuf::from(path)
    };
    let kept = settings.storage.profile != StorageProfile::Memory;
    settings.auth.token_key_file.clone().or_else(|| kept.then(beside))
}

/// Takes as many descriptors as the process may have, and says so where they are too few for the settings.
pub(super) fn allow_descriptors(settings: &Settings) {
    let need = DescriptorNeed::of(settings);
    match rt::raise_descriptor_limit() {
        Ok(have) if have < need.full() => tracing::warn!("{}", need.advice(have)),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the limit on descriptors cannot be raised or read (RLIMIT_NOFILE)"),
    }
}

/// What exchanges are told to, and what keeps the access log's writer running.
pub(super) fn start_access_log(
    format: AccessFormat,
    registry: &Registry,
) -> Result<(ExchangeLog, Option<LogGuard>), StartError> {
    if format == AccessFormat::Off {
        return Ok((ExchangeLog::new(None), None));
    }
    let (queue, guard) = log::access(Arc::clone(registry.shared()))?;
    Ok((ExchangeLog::new(Some((format, queue))), Some(guard)))
}

/// The consumers of finished spans, and what the action router counts in, where there is one.
pub(super) type FeedAndTally = (Feed, Option<Arc<Tally>>);

/// Who outside is told of calls.
#[derive(Default)]
pub(super) struct Outside {
    /// Where alerts are on.
    pub(super) channels: Option<Channels>,
    /// Where spans, and security events, are sent to others, and calls get receipts.
    pub(super) exports: Exports,
}

/// Who is sent spans, and who security events, and what signs receipts.
#[derive(Clone, Default)]
pub(super) struct Exports {
    pub(super) spans: Option<otel::Receivers>,
    pub(super) events: Option<siem::Receivers>,
    /// Where recorded calls get them.
    pub(super) receipts: Option<Receipts>,
}

impl Exports {
    /// What is to be said of receivers that have taken nothing for long, and of receipts that cannot be written.
    pub(super) fn complaints(&self) -> Vec<String> {
        let receipts = self.receipts.as_ref().map(Receipts::complaints);
        self.of_receivers().into_iter().chain(receipts.into_iter().flatten()).collect()
    }

    fn of_receivers(&self) -> Vec<String> {
        let spans = self.spans.as_ref().map(otel::Receivers::complaints);
        spans.into_iter().chain(self.events.as_ref().map(siem::Receivers::complaints)).flatten().collect()
    }
}

/// The consumers of finished spans, if there are any.
pub(super) fn make_feed(
    live: &Arc<LiveSettings>,
    registry: &Registry,
    offenders: Option<Arc<Offenders>>,
    consumers: Vec<AddConsumer>,
    outside: &mut Outside,
) -> Result<Option<FeedAndTally>, StartError> {
    let settings = live.snapshot().load_full();
    let spans = settings.otel_export.enabled && !settings.otel_export.receivers.is_empty();
    let events = settings.siem_export.enabled && !settings.siem_export.receivers.is_empty();
    let exports = spans || events;
    if consumers.is_empty()
        && !settings.alerts.enabled
        && !settings.action_router.enabled
        && !exports
        && !settings.receipts.enabled
    {
        return Ok(None);
    }
    let connect_limit = Duration::from_millis(settings.limits.connection_timeout_ms);
    let client = Client::new(&settings.egress, settings.upstream_ca_file.as_deref(), connect_limit)?;
    let mut feed = Feed::new(client);
    if settings.alerts.enabled {
        outside.channels = Some(alerts::add(&mut feed, &settings.alerts, &settings.action_router, registry));
    }
    let router = &settings.action_router;
    let tally = router.enabled.then(|| router::add(&mut feed, router, offenders, registry));
    if spans {
        outside.exports.spans = Some(otel::add(&mut feed, &settings.otel_export, &masker(), registry));
    }
    if events {
        outside.exports.events = Some(siem::add(&mut feed, &settings.siem_export, registry));
    }
    if settings.receipts.enabled {
        outside.exports.receipts = Some(receipts::add(&mut feed, &settings, fingerprint(live), registry)?);
    }
    for add in consumers {
        add(&mut feed);
    }
    Ok(Some((feed, tally)))
}

/// The SHA-256 of the settings in effect as `weir config print --format json` shows them, without blanks.
fn fingerprint(live: &Arc<LiveSettings>) -> receipts::Fingerprint {
    let live = Arc::clone(live);
    Arc::new(move || receipts::sha256(&weir_config::effective(&live.loaded()).to_string()))
}

/// Masks records for receivers of spans that are to see no personal data and no credential.
fn masker() -> otel::Masker {
    let bodies = Budget::new(MASKED_BYTES, false);
    Arc::new(move |span| {
        let deadline = Some(Instant::now() + MASKING_LIMIT);
        Masking::whole().apply(span, &Means { deadline, bodies: &bodies, longest: MASKED_TEXT_BYTES });
    })
}

/// What channels of alerts hear of the gateway itself.
pub(super) fn conditions(health: &Arc<Health>, exports: Exports, stores: Store) -> Conditions {
    let health = Arc::clone(health);
    Arc::new(move || {
        let (is_ready, report) = health.report();
        if !is_ready {
            return Vec::new();
        }
        let store = Condition {
            finding_type: "storage_degraded".to_owned(),
            severity: Severity::Critical,
            description: "The store does not answer: what is recorded meanwhile may be lost.".to_owned(),
            holds: report.storage.status != "connected",
        };
        let breaker = |(name, subsystem): (&'static str, SubsystemReport)| Condition {
            finding_type: format!("breaker_open_{name}"),
            severity: Severity::High,
            description: format!("The circuit breaker of {name} is open."),
            holds: subsystem.circuit_breaker != "closed",
        };
        let failing = exports.of_receivers();
        let away = (exports.spans.is_some() || exports.events.is_some()).then(|| Condition {
            finding_type: "export_failing".to_owned(),
            severity: Severity::Medium,
            holds: !failing.is_empty(),
            description: failing.join("; "),
        });
        let unsigned = exports.receipts.as_ref().map(Receipts::complaints).map(|failing| Condition {
            finding_type: "receipts_failing".to_owned(),
            severity: Severity::High,
            holds: !failing.is_empty(),
            description: failing.join("; "),
        });
        let apart = stores.gateways().map(|_| complaints(&stores)).map(|away| Condition {
            finding_type: "shared_store_away".to_owned(),
            severity: Severity::High,
            holds: !away.is_empty(),
            description: away.join("; "),
        });
        let breakers = report.subsystems.into_iter().map(breaker);
        std::iter::once(store).chain(breakers).chain(away).chain(unsigned).chain(apart).collect()
    })
}

/// What tenants' calls are held against, where they are.
pub(super) fn watch_calls(settings: &Settings, registry: &Registry) -> Option<Arc<Anomalies>> {
    let anomalies = Arc::new(Anomalies::new(settings.anomaly_detection)?);
    registry.add_source(Box::new(anomalies::Figures(Arc::clone(&anomalies))));
    Some(anomalies)
}

/// The judge's worker, where calls come to it.
pub(super) fn make_judging(
    live: &LiveSettings,
    feed: Option<&mut FeedAndTally>,
    prices: &Arc<Prices>,
    models: &Arc<Models>,
    registry: &Registry,
) -> Result<Option<Judging>, StartError> {
    let settings = live.snapshot().load_full();
    let Some((feed, Some(tally))) = feed.filter(|_| judging::is_needed(&settings)) else { return Ok(None) };
    let judge = Judge::new(&settings.judge, &feed.client(), Arc::clone(prices), models::judging(&settings, models))?;
    Ok(Some(Judging::new(judge, live.snapshot(), feed, Arc::clone(tally), registry)))
}

pub(super) fn start_metrics(
    runtime: &Handle,
    listener: std::net::TcpListener,
    process: &Process,
    web: &Web,
    hand_over: &Arc<HandOver>,
) -> Result<JoinHandle<()>, StartError> {
    let fail = |source| StartError::Thread { what: "the listener for metrics", source };
    let addr = listener.local_addr().map_err(fail)?;
    let pages = Pages::of_open_listener(web);
    let registry = Arc::clone(&process.parts.registry);
    let scraping = metrics::start(runtime, listener, registry, pages, Arc::clone(hand_over)).map_err(fail)?;
    tracing::info!(metrics = %addr, "metrics are served without a key");
    Ok(scraping)
}

/// The golden set to replay, where there is one. Says so where everybody may ask for it.
pub(super) fn golden_set(
    live: &LiveSettings,
    analyser: &Arc<Analyser>,
    inference: &WorkerPool,
    registry: &Registry,
) -> Option<Arc<GoldenSet>> {
    let settings = live.snapshot().load_full();
    if settings.server.debug_endpoints && !settings.listen_addr.ip().is_loopback() {
        tracing::warn!(
            listen = %settings.listen_addr,
            "`server.debug_endpoints` is true on an address that others reach: whoever does needs no key for /debug/judge/; \
             switch it off in production"
        );
    }
    if settings.server.debug_endpoints && settings.auth.enabled {
        tracing::warn!(
            "`server.debug_endpoints` is true while authentication is on: /debug/judge/ shows every tenant's verdicts to everybody who \
             reaches it, without a key; switch it off in production"
        );
    }
    let root = settings.golden_set_path.clone()?;
    let golden = GoldenSet::new(root, Arc::clone(analyser), inference.handle(), Arc::clone(live.snapshot()));
    registry.add_source(Box::new(GoldenGauges(Arc::clone(&golden))));
    Some(golden)
}

/// The listener for spans by gRPC.
pub(super) fn start_grpc(
    listener: std::net::TcpListener,
    tls: Option<Arc<TlsAcceptor>>,
    process: &Arc<Process>,
    intake: Intake,
    times: grpc::Times,
) -> Result<grpc::Serving, StartError> {
    let fail = |source| StartError::Thread { what: "the gRPC listener", source };
    let serving = grpc::start(listener, tls, process, intake, times).map_err(fail)?;
    process.parts.edge.health.serves_grpc(serving.addr());
    tracing::info!(grpc = %serving.addr(), "spans are taken in by gRPC");
    Ok(serving)
}

pub(super) fn warn_when_nobody_can_administer(settings: &Settings, directory: &Directory) {
    if settings.auth.enabled && settings.auth.admin_key.is_none() && !directory.has_key_of(Role::Admin) {
        tracing::warn!(
            "authentication is on, `auth.admin_key` is not set and there is no admin key: nobody can create tenants or \
             keys; set `auth.admin_key` (SERVICE_AUTH_ADMIN_KEY) for the first steps"
        );
    }
}

/// The stores of the profile `production`; refuses settings that it does not serve yet, by name.
pub(crate) fn stores_of(settings: &Settings) -> Result<Stores, StartError> {
    let storage = &settings.storage;
    let lasting = |reason: String| StartError::Store(weir_storage::OpenError::Stores { reason, is_lasting: true });
    for (name, is_set) in [
        ("storage.text_retention_days", storage.text_retention_days > 0),
        ("storage.tenant_max_bytes", storage.tenant_max_bytes > 0),
    ] {
        if is_set {
            let advice = "leave it out, or choose the profile `lite`";
            return Err(lasting(format!("{name}: not built for the profile `production` yet; {advice}")));
        }
    }
    let url = |name: &str, url: &Option<SharedSecret>| {
        let text = url.as_ref().and_then(|url| std::str::from_utf8(url.expose()).ok());
        text.and_then(StoreUrl::parse).ok_or_else(|| lasting(format!("{name}: is not set")))
    };
    Ok(Stores {
        analytics_url: url("storage.analytics_url", &storage.analytics_url)?,
        analytics_database: storage.analytics_database.clone(),
        relational_url: url("storage.relational_url", &storage.relational_url)?,
        cache_url: url("storage.cache_url", &storage.cache_url)?,
        ca_file: storage.ca_file.clone(),
        auto_migrate: storage.auto_migrate,
        wait: Duration::from_millis(storage.startup_timeout_ms),
    })
}

/// What is wrong with what is stored, and with the stores that several gateways share, for `/health`.
pub(super) fn complaints(store: &Store) -> Vec<String> {
    let problem = |state: StoreState| {
        let name = state.name;
        state.problem.map(|problem| format!("the {name} store does not answer: {problem}"))
    };
    let damaged = store.damaged_records();
    let damage = (damaged > 0).then(|| {
        format!("{damaged} stored records that were asked for since the start are damaged; `weir db check` names all there are")
    });
    damage.into_iter().chain(store.store_states().into_iter().filter_map(problem)).collect()
}

/// All gateways on the same stores derive tokens with one key: the one that the relational store keeps. This gateway's own becomes it
/// where there is none.
pub(super) fn share_token_key(settings: &Settings, store: &Store) -> Result<(), StartError> {
    let Some(path) = token_key_file(settings).filter(|_| settings.storage.profile == StorageProfile::Production) else {
        return Ok(());
    };
    let fail = |reason: String| StartError::Store(weir_storage::OpenError::Stores { reason, is_lasting: false });
    let shown = path.display();
    let own = match std::fs::read(&path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(fail(format!("the key of tokens {shown} cannot be read: {error}"))),
    };
    let fresh = || format!("{}{}\n", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple()).into_bytes();
    let offered = own.clone().unwrap_or_else(fresh);
    let shared = store.share_secret("token_key", Some(&offered)).map_err(|error| fail(error.to_string()))?;
    match (own, shared) {
        (Some(own), Some(shared)) if own != shared => Err(StartError::Store(weir_storage::OpenError::Stores {
            reason: format!(
                "auth.token_key_file {shown}: it is not the key that the other gateways derive tokens with; move it away, and the start \
                 takes theirs from the relational store"
            ),
            is_lasting: true,
        })),
        (None, Some(shared)) => {
            use std::io::Write as _;
            use std::os::unix::fs::OpenOptionsExt as _;
            let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            let written = made.and_then(|mut file| file.write_all(&shared).and_then(|()| file.sync_all()));
            written.map_err(|error| fail(format!("the key of tokens {shown} cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

pub(super) fn open_store(
    settings: &Settings,
    registry: &Registry,
    breakers: &Arc<Breakers>,
    feed: Option<Arc<Inlet>>,
) -> Result<Store, StartError> {
    let backend = match settings.storage.profile {
        StorageProfile::Lite => Backend::Sqlite {
            path: settings.storage.database_path.clone(),
            auto_migrate: settings.storage.auto_migrate,
            migration_copy: settings.storage.migration_copy,
        },
        StorageProfile::Memory => Backend::Memory { max_bytes: MEMORY_PROFILE_BYTES },
        StorageProfile::Production => {
            Backend::Production { path: settings.storage.database_path.clone(), stores: Box::new(stores_of(settings)?) }
        }
    };
    let watch = StoreHealth { shared: Arc::clone(registry.shared()), breakers: Arc::clone(breakers) };
    let observer: Arc<dyn StoreObserver> = match feed {
        None => Arc::new(watch),
        Some(inlet) => Arc::new(feed::Told { inlet, also: watch }),
    };
    let store = Store::open(StoreOptions {
        backend,
        erase: match settings.storage.erase {
            StorageErase::Rows => Erase::Rows,
            StorageErase::Pages => Erase::Pages,
        },
        batch_timeout: Duration::from_millis(settings.limits.trace_storage_timeout_ms),
        queue_items: STORAGE_QUEUE_ITEMS,
        queue_bytes: memory::waiting_span_bytes(MemoryLimit::allowed()),
        on_writer_start: rt::let_others_in,
        pause: rt::yielding::pause,
        observer,
    })?;
    store.set_retention(store::retention(&settings.storage));
    registry.watch_queue(store::queue(store.clone(), STORAGE_QUEUE_ITEMS as u64));
    registry.add_source(Box::new(PoisonedSpans(store.clone())));
    Ok(store)
}

/// Which tenant has made what at providers.
pub(super) fn remember_objects(store: &Store) -> Result<Arc<MadeObjects>, StartError> {
    MadeObjects::start(Arc::new(store.clone()))
        .map_err(|source| StartError::Thread { what: "the thread for objects at providers", source })
}

/// The intake for reported spans, where anything brings some.
pub(super) fn open_intake(
    settings: &Settings,
    process: &Arc<Process>,
    store: &Store,
) -> Result<Option<Intake>, StartError> {
    if !settings.takes_reports() {
        return Ok(None);
    }
    let log: Arc<dyn SpanLog> = Arc::new(store.clone());
    let intake = Intake::open(process, &log)
        .map_err(|source| StartError::Thread { what: "a thread for reported spans", source })?;
    Ok(Some(intake))
}

pub(super) fn start_inference(
    cores: usize,
    several: bool,
    analyser: &Arc<Analyser>,
    registry: &Registry,
) -> Result<WorkerPool, StartError> {
    let options = PoolOptions {
        threads: cores,
        queue_jobs: INFERENCE_QUEUE_JOBS,
        queue_bytes: INFERENCE_QUEUE_BYTES,
        several,
        batch_jobs: MODEL_BATCH_JOBS,
        batch_wait: Duration::ZERO,
    };
    let pool = WorkerPool::start(options, Arc::clone(analyser))
        .map_err(|source| StartError::Thread { what: "the inference pool", source })?;
    let watched = pool.handle();
    registry.watch_queue(QueueGauge {
        name: "inference",
        capacity: INFERENCE_QUEUE_JOBS as u64,
        depth: Box::new(move || watched.counters().queued_jobs as u64),
    });
    registry.add_source(Box::new(AnalysedBytes(Arc::clone(analyser))));
    Ok(pool)
}

/// Has the pool compile what texts will need, where these settings have texts looked at.
pub(super) fn prepare_patterns(pool: &WorkerPool, settings: &Settings) {
    if settings.enable_security_analysis {
        let (work, deadline) = (Box::new(Preparing), Instant::now() + PREPARING_LIMIT);
        // Without room, which an empty queue has, the first texts would wait as they did before.
        drop(pool.submit(Job { lane: Lane::Record, tenant: TenantId::DEFAULT, bytes: 0, deadline, work }));
    }
}

/// Until when the pool may begin with [`Preparing`].
const PREPARING_LIMIT: Duration = Duration::from_secs(600);

/// Compiles patterns before a text needs them: the first attack after a start would hold its core up for as long.
struct Preparing;

impl Work for Preparing {
    fn run(self: Box<Self>, turn: Turn<'_>) {
        if let Turn::Run(analyser, _) = turn {
            analyser.prepare_all();
            // What compiling took beside what it made.
            rt::give_back_memory();
        }
    }
}

/// Threads of the inference pool that may run a model at a time: where there are several, one is left to everything else.
pub(super) const fn model_threads(cores: usize) -> usize {
    if cores > 2 { cores - 1 } else { 1 }
}

/// Starts the thread that loads models. The gateway is ready when those are there that are to be there at start; each that
/// can be used from then on is in force for the next request.
pub(super) fn start_models(
    models: &Arc<Models>,
    settings: &Settings,
    health: &Arc<Health>,
    live: &Arc<LiveSettings>,
) -> Result<Loader, StartError> {
    let preload = models::preloaded(settings);
    let (ready, live) = (Arc::clone(health), Arc::clone(live));
    if preload.is_empty() {
        health.ready();
    }
    models
        .start(&preload, move || ready.ready(), move || live.renew())
        .map_err(|source| StartError::Thread { what: "the thread that loads models", source })
}

/// What core threads have in common.
pub(super) struct CorePlacement {
    /// The CPUs there are, in ascending order.
    pub(super) cpus: Vec<usize>,
    pub(super) heartbeats: Arc<Heartbeats>,
}

pub(super) fn start_cores(
    process: &Arc<Process>,
    listeners: Vec<Vec<std::net::TcpListener>>,
    tls: Option<&Arc<TlsAcceptor>>,
    hand_over: &Arc<HandOver>,
    placement: &CorePlacement,
) -> Result<Vec<(CoreThread, oneshot::Sender<DrainOrder>)>, StartError> {
    let fail = |source: io::Error| StartError::Thread { what: "a core thread", source };
    let pin = listeners.len() <= placement.cpus.len();
    let mut cores = Vec::with_capacity(listeners.len());
    let mut listening = Vec::with_capacity(listeners.len());
    for (index, listeners) in listeners.into_iter().enumerate() {
        let (order, ordered) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        let process = Arc::clone(process);
        let cpu = placement.cpus.get(index).copied().filter(|_| pin);
        let start = CoreStart { index, cpu, pulse: Arc::clone(&placement.heartbeats) };
        let mode = process.parts.edge.mode;
        let (tls, hand_over) = (tls.cloned(), Arc::clone(hand_over));
        let setup = CoreSetup { process, index, listeners, tls, hand_over, order: ordered, listening: ready };
        let thread = rt::start_core(start, mode, move || Box::pin(core::run(setup))).map_err(fail)?;
        cores.push((thread, order));
        listening.push(is_ready);
    }
    for ready in listening {
        if ready.recv().is_err() {
            return Err(fail(io::Error::other("its event loop could not be set up")));
        }
    }
    Ok(cores)
}
