//! What stands before the subsystems run, in the order in which it is made: the ground, the readers of finished calls, the record, and
//! what calls are looked at and let in with.
//!
//! In each of them what was made last stands first, so that it is dropped first where a later step of the start fails.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use weir_config::settings::RouterAction;
use weir_config::vocab::Timestamp;
use weir_config::{Loaded, Settings};
use weir_inference::{Analyser, Detector, WorkerPool};
use weir_models::Models;
use weir_storage::{SpanLog, Store};

use super::StartError;
use super::certificate::Certificate;
use super::extensions::AddConsumer;
use super::keep;
use super::listeners::ListenSockets;
use super::models;
use super::network::Consumers;
use super::own_rules;
use super::parts::{
    Exports, Outside, allow_descriptors, make_feed, make_judging, model_threads, open_store, prepare_patterns,
    share_token_key, start_inference, token_key_file, warn_when_nobody_can_administer,
};
use super::sharing::Sharing;
use super::starting::Starting;
use super::unasked;
use crate::alerts::Channels;
use crate::feed::{Feed, Inlet};
use crate::identity::Identities;
use crate::judging::Judging;
use crate::meter::Registry;
use crate::money::{Prices, Spend};
use crate::ops::analysis::DefenceShadow;
use crate::ops::breaker::{BreakerGauges, Breakers};
use crate::ops::clock::Clock;
use crate::ops::health::{Facts, Health, Io};
use crate::ops::live::LiveSettings;
use crate::ops::memory::{self, MemoryLimit};
use crate::ops::reload::Reloaders;
use crate::ops::store::breaker_advice;
use crate::replay::{ReplayMeans, Replays};
use crate::reports::ReportBuilder;
use crate::router::Offenders;
use crate::rt::{self, DriverMode, TlsAcceptor};
use crate::upstreams::{Figures, SharedUpstreams};

/// The settings in effect, the sockets, and what answers probes before anything else is there.
pub(super) struct Ground {
    /// Answers on sockets of our own that the start goes on.
    pub(super) starting: (Starting, Starting),
    pub(super) health: Arc<Health>,
    pub(super) breakers: Arc<Breakers>,
    pub(super) for_grpc: Option<TcpListener>,
    pub(super) metrics: Option<TcpListener>,
    pub(super) sockets: ListenSockets,
    pub(super) tls: Option<Arc<TlsAcceptor>>,
    pub(super) cores: usize,
    pub(super) cpus: Vec<usize>,
    pub(super) mode: DriverMode,
    pub(super) reloaders: Reloaders,
    pub(super) registry: Arc<Registry>,
    /// Those of the start.
    pub(super) settings: Arc<Settings>,
    pub(super) live: Arc<LiveSettings>,
}

/// Who reads finished calls, and what they cost; the record is not open yet.
pub(super) struct Readers {
    pub(super) judging: Option<Judging>,
    pub(super) models: Arc<Models>,
    pub(super) inlet: Option<Arc<Inlet>>,
    feed: Option<Feed>,
    pub(super) exports: Exports,
    pub(super) channels: Option<Channels>,
    pub(super) offenders: Option<Arc<Offenders>>,
    pub(super) prices: Arc<Prices>,
}

/// The record, who else uses it, and what has been spent.
pub(super) struct Kept {
    pub(super) spend: Arc<Spend>,
    pub(super) consumers: Option<Consumers>,
    pub(super) store: Store,
    /// Says that this process uses the database, and who else does.
    pub(super) sharing: Option<Arc<Sharing>>,
}

/// What calls are looked at with, who may make them, and where they go.
pub(super) struct Means {
    pub(super) upstreams: Arc<SharedUpstreams>,
    pub(super) identities: Arc<Identities>,
    pub(super) reports: Arc<ReportBuilder>,
    pub(super) replays: Arc<Replays>,
    pub(super) inference: WorkerPool,
    pub(super) analyser: Arc<Analyser>,
}

// === impl Ground ===

impl Ground {
    /// Takes the addresses and has probes answered.
    ///
    /// # Errors
    /// An address that is taken, a certificate that cannot be read, a kernel that lacks what the settings ask for.
    pub(super) fn lay(loaded: Loaded, registry: Arc<Registry>, take_over: bool) -> Result<Self, StartError> {
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
        let (metrics, unanswered) = listen_for_metrics(&mut sockets, settings.server.metrics_addr)?;
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
        Ok(Self {
            starting,
            health,
            breakers,
            for_grpc,
            metrics,
            sockets,
            tls,
            cores,
            cpus,
            mode,
            reloaders,
            registry,
            settings,
            live,
        })
    }

    /// Bytes that bodies may take in memory, on all cores together.
    pub(super) fn body_bytes(&self) -> usize {
        usize::try_from(memory::body_bytes(&self.settings, MemoryLimit::allowed())).unwrap_or(usize::MAX)
    }
}

/// The listener for metrics, and again where nobody else answers on it meanwhile.
fn listen_for_metrics(
    sockets: &mut ListenSockets,
    addr: Option<SocketAddr>,
) -> Result<(Option<TcpListener>, Vec<TcpListener>), StartError> {
    let Some(addr) = addr else { return Ok((None, Vec::new())) };
    let (listener, is_new) = sockets.metrics(addr)?;
    let own = listener.try_clone().ok().filter(|_| is_new);
    Ok((Some(listener), own.into_iter().collect()))
}

// === impl Readers ===

impl Readers {
    /// Those that the settings ask for, and `consumers`.
    ///
    /// # Errors
    /// Prices, models or receivers that cannot be used.
    pub(super) fn make(ground: &Ground, consumers: Vec<AddConsumer>) -> Result<Self, StartError> {
        let Ground { live, settings, registry, cores, .. } = ground;
        let prices = open_prices(settings, &ground.reloaders)?;
        let offenders = settings.action_router.may(RouterAction::BlockIp);
        let offenders = offenders.then(|| Arc::new(Offenders::new(settings.action_router.ip_block)));
        let mut outside = Outside::default();
        let mut feed = make_feed(live, registry, offenders.clone(), consumers, &mut outside)?;
        let Outside { channels, exports } = outside;
        let models = models::open(settings, model_threads(*cores))?;
        let judging = make_judging(live, feed.as_mut(), &prices, &models, registry)?;
        let feed = feed.map(|(feed, _)| feed);
        let inlet = feed.as_ref().map(Feed::inlet);
        Ok(Self { judging, models, inlet, feed, exports, channels, offenders, prices })
    }
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
pub(super) fn priced_host(settings: &Settings) -> &str {
    if settings.upstreams.is_empty() { &settings.upstream.host } else { "" }
}

// === impl Kept ===

impl Kept {
    /// Opens the record and has the readers begin.
    ///
    /// # Errors
    /// A database that cannot be used, or that another process has.
    pub(super) fn open(ground: &Ground, readers: &mut Readers) -> Result<Self, StartError> {
        let Ground { settings, registry, health, sockets, .. } = ground;
        let sharing = Sharing::join(settings, sockets.addr, sockets.is_inherited())?;
        let store = open_store(settings, registry, &ground.breakers, readers.inlet.clone())?;
        if let Some(offenders) = &readers.offenders {
            offenders.open(Arc::new(store.clone()))?;
        }
        if let Some(channels) = &readers.channels {
            channels.open(Arc::new(store.clone()));
        }
        let consumers = readers.feed.take().map(|feed| {
            let log: Arc<dyn SpanLog> = Arc::new(store.clone());
            Consumers::start(feed, &log, registry)
        });
        let consumers =
            consumers.transpose().map_err(|source| StartError::Thread { what: "the network runtime", source })?;
        if let Some((judging, consumers)) = readers.judging.as_mut().zip(consumers.as_ref()) {
            judging.start(consumers.runtime(), Arc::new(store.clone()));
            health.judge_spawned();
        }
        if let Some(sharing) = &sharing {
            // Weak: the file is free when the gateway has gone, whoever still has its health.
            let sharing = Arc::downgrade(sharing);
            health.watch_sharing(move || sharing.upgrade()?.report());
        }
        let spend = Arc::new(Spend::new());
        keep::restore(&spend, &store)?;
        Ok(Self { spend, consumers, store, sharing })
    }
}

// === impl Means ===

impl Means {
    /// From the record and the settings, and `detectors`.
    ///
    /// # Errors
    /// Rules, keys or upstreams that cannot be used.
    pub(super) fn make(
        ground: &Ground,
        readers: &Readers,
        kept: &Kept,
        detectors: Vec<Arc<dyn Detector>>,
    ) -> Result<Self, StartError> {
        let Ground { live, settings, registry, cores, .. } = ground;
        let detectors = readers.models.detectors().into_iter().chain(detectors).collect();
        let (analyser, own) = own_rules::analyser(settings, detectors)?;
        let analyser = Arc::new(analyser.with_memory(memory::known_text_bytes(MemoryLimit::allowed())));
        crate::output::prepare(settings);
        if let Some(own) = own {
            let live = Arc::clone(live);
            ground.reloaders.add("rules", move || own.reload().inspect(|_| live.renew()));
        }
        let inference = start_inference(*cores, settings.auth.enabled, &analyser, registry)?;
        prepare_patterns(&inference, settings);
        let replays = Replays::new(ReplayMeans {
            spans: Arc::new(kept.store.clone()),
            analyser: Arc::clone(&analyser),
            settings: Arc::clone(live.snapshot()),
            unasked: |settings| unasked::all(settings).unwrap_or_default(),
            on_thread: rt::give_way,
        });
        let reports = ReportBuilder::new(Arc::new(kept.store.clone()), rt::give_way);
        reports.resume();
        let identities = identities(settings, kept, &replays)?;
        if let Some(advice) = breaker_advice(settings) {
            tracing::warn!("{advice}");
        }
        let upstreams = Arc::new(SharedUpstreams::open(settings, *cores)?);
        registry.add_source(Box::new(Figures(Arc::clone(&upstreams))));
        Ok(Self { upstreams, identities, reports, replays, inference, analyser })
    }
}

/// Tenants and their credentials; with a tenant goes what is remembered of it.
fn identities(settings: &Settings, kept: &Kept, replays: &Arc<Replays>) -> Result<Arc<Identities>, StartError> {
    share_token_key(settings, &kept.store)?;
    let identities = Identities::load(Arc::new(kept.store.clone()), token_key_file(settings))?.forgetting({
        let (spend, replays) = (Arc::clone(&kept.spend), Arc::clone(replays));
        move |tenant| {
            replays.forget(tenant);
            spend.erase(tenant, Timestamp::now().micros() / 1_000_000);
        }
    });
    warn_when_nobody_can_administer(settings, identities.directory());
    Ok(Arc::new(identities))
}
