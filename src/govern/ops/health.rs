//! What `/health`, `/livez` and `/readyz` answer.
//!
//! ```text
//!   starting --ready()--> ready --drain()--> draining      (one way; drain() works from starting too)
//! ```
//!
//! | phase    | /livez | /readyz | /health                                   |
//! |----------|--------|---------|-------------------------------------------|
//! | starting | 200    | 503     | 503 `starting`                            |
//! | ready    | 200    | 200     | 200 `healthy`, or `degraded` with reasons |
//! | draining | 200    | 503     | 503 `draining`                            |
//!
//! Degraded: the storage probe has missed `retries` times in a row, a circuit breaker is open, the store has not
//! taken who is denied, or a receiver of spans takes none; `reasons` says which. Invariant: a phase never goes back. Knows neither HTTP nor the store; the
//! probe tells it what it found.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use schemars::JsonSchema;
use serde::Serialize;
use weir_config::settings::StorageProfile;

use super::breaker::{Breakers, State};
use crate::meter::Registry;

/// Where the process is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    /// Not all parts run yet.
    Starting,
    /// Serving.
    Ready,
    /// Finishing what is in flight; new work should go elsewhere.
    Draining,
}

/// What is known once and stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Version of this build.
    pub version: &'static str,
    /// `storage.profile`.
    pub storage_profile: StorageProfile,
    /// `judge.enabled` as configured at start.
    pub judge_enabled_at_startup: bool,
    /// `health_check.retries`: probe misses in a row that make the service degraded, at least 1.
    pub retries: u32,
}

/// How the cores do their I/O; known when the first core runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Io {
    /// `io_uring` or `epoll`.
    pub driver: &'static str,
    /// Ring flags found by probing, or the epoll fallback's name.
    pub ring_mode: String,
}

/// The health of the process; shared by everybody who knows something about it.
pub struct Health {
    facts: Facts,
    started: Instant,
    phase: AtomicU8,
    misses: AtomicU32,
    /// How many denials are in force and not stored.
    unwritten: OnceLock<Box<dyn Fn() -> usize + Send + Sync>>,
    io: OnceLock<Io>,
    /// What is wrong with shared stores.
    stores: OnceLock<Box<dyn Fn() -> Vec<String> + Send + Sync>>,
    /// What is wrong with receivers of spans.
    receivers: OnceLock<Box<dyn Fn() -> Vec<String> + Send + Sync>>,
    space: OnceLock<Box<dyn Fn() -> SpaceReport + Send + Sync>>,
    models: OnceLock<Box<dyn Fn() -> ModelsReport + Send + Sync>>,
    sharing: OnceLock<Box<dyn Fn() -> Option<SharedFile> + Send + Sync>>,
    /// Requests are served, whatever is still being loaded.
    serves: AtomicBool,
    grpc: OnceLock<SocketAddr>,
    judge_spawned: AtomicBool,
    breakers: Arc<Breakers>,
    registry: Arc<Registry>,
}

/// The health report, in the shape the interface shows.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "HealthReport")]
pub struct Report {
    /// `starting`, `healthy`, `degraded` or `draining`.
    pub status: &'static str,
    /// Why it is degraded, one sentence each; empty while it is not.
    pub reasons: Vec<String>,
    /// Storage connectivity.
    pub storage: StorageReport,
    /// The worse of the two breakers: `closed`, `half_open` or `open`.
    pub circuit_breaker: &'static str,
    /// Model loading.
    pub ml_models: ModelsReport,
    /// Whole seconds since the start.
    pub uptime: u64,
    /// The judge.
    pub judge: JudgeReport,
    /// Version of this build.
    pub version: &'static str,
    /// `io_uring` or `epoll`; null until the first core runs.
    pub io_driver: Option<&'static str>,
    /// Ring flags in use; null until the first core runs.
    pub ring_mode: Option<String>,
    /// Where spans are taken in by gRPC; null where they are not.
    pub grpc_addr: Option<String>,
    /// Each breaker by its subsystem.
    pub subsystems: BTreeMap<&'static str, SubsystemReport>,
    /// Each bounded queue by its name.
    pub queues: BTreeMap<&'static str, QueueReport>,
}

/// `storage` of the report.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StorageReport {
    /// `connected` or `unavailable`.
    pub status: &'static str,
    /// `lite`, `memory` or `production`.
    pub profile: &'static str,
    /// The bounds in bytes, and what was removed for them; null until the store is open.
    pub space: Option<SpaceReport>,
    /// Other processes on the same database file; null while there are none.
    pub shared: Option<SharedFile>,
}

/// `storage.shared` of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SharedFile {
    /// Processes that use the file, this one included.
    pub processes: u32,
    /// Those of them that take new calls: the others start or drain.
    pub gateways: u32,
    /// What each of them has for itself.
    pub not_shared: Vec<&'static str>,
}

/// `storage.space` of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SpaceReport {
    /// Bytes the database may hold; null is no bound.
    pub max_bytes: Option<u64>,
    /// Bytes the records of one tenant may take; null is no bound.
    pub tenant_max_bytes: Option<u64>,
    /// Spans removed for want of room since the start.
    pub removed_spans: u64,
    /// Whether any were within the last minute.
    pub removing: bool,
}

/// `ml_models` of the report.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ModelsReport {
    /// `disabled`: the rules run alone; `loading`; `loaded`; `fallback_regex`: a model is missing or has failed, and texts
    /// are looked at without it.
    pub status: &'static str,
    /// One entry per model that is switched on.
    pub models: Vec<ModelReport>,
}

/// One model of the report.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ModelReport {
    /// `embedded`, or the detector it belongs to.
    pub name: &'static str,
    /// `waiting` (for its first use), `loading`, `loaded`, `missing` or `failed`.
    pub status: &'static str,
    /// Whether its self-test passed.
    pub self_test: bool,
    /// Its folder or id; null for the one in the binary.
    pub model: Option<String>,
    /// Why it is missing or failed.
    pub reason: Option<String>,
}

impl Default for ModelsReport {
    fn default() -> Self {
        Self { status: "disabled", models: Vec::new() }
    }
}

impl ModelsReport {
    /// What there is to say of models that cannot be used, one sentence each.
    fn complaints(&self) -> impl Iterator<Item = String> + '_ {
        self.models.iter().filter(|model| matches!(model.status, "missing" | "failed")).map(|model| {
            let why = model.reason.as_deref().unwrap_or_default();
            format!("the model of {} is {}: {why}", model.name, model.status)
        })
    }
}

/// `judge` of the report.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct JudgeReport {
    /// Whether a judge worker runs.
    pub worker_spawned: bool,
    /// `judge.enabled` as configured at start.
    pub enabled_at_startup: bool,
}

/// One entry of `subsystems`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SubsystemReport {
    /// `closed`, `half_open` or `open`.
    pub circuit_breaker: &'static str,
}

/// One entry of `queues`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct QueueReport {
    /// Items waiting.
    pub depth: u64,
    /// Items it holds at most.
    pub capacity: u64,
}

impl Health {
    /// The health of a process that is starting.
    pub fn new(facts: Facts, breakers: Arc<Breakers>, registry: Arc<Registry>) -> Self {
        Self {
            facts,
            started: Instant::now(),
            phase: AtomicU8::new(Phase::Starting as u8),
            misses: AtomicU32::new(0),
            unwritten: OnceLock::new(),
            io: OnceLock::new(),
            stores: OnceLock::new(),
            receivers: OnceLock::new(),
            space: OnceLock::new(),
            models: OnceLock::new(),
            sharing: OnceLock::new(),
            serves: AtomicBool::new(false),
            grpc: OnceLock::new(),
            judge_spawned: AtomicBool::new(false),
            breakers,
            registry,
        }
    }

    /// Everything runs. Does nothing once draining.
    pub fn ready(&self) {
        self.serving();
        self.phase.fetch_max(Phase::Ready as u8, Ordering::AcqRel);
    }

    /// The process is on its way out.
    pub fn drain(&self) {
        self.phase.fetch_max(Phase::Draining as u8, Ordering::AcqRel);
    }

    /// Where the process is in its life.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Draining,
        }
    }

    /// Whether new work is welcome (`/readyz`).
    pub fn is_ready(&self) -> bool {
        self.phase() == Phase::Ready
    }

    /// Says how the cores do their I/O; the first core's word counts. Also labels `service_build_info`.
    pub fn set_io(&self, io: Io) {
        self.registry.set_build(self.facts.version, io.driver);
        self.io.get_or_init(|| io);
    }

    /// Says whom to ask how many denials (revocations, new tokens, deletions) are in force and not stored; once.
    pub fn watch_denials(&self, unwritten: impl Fn() -> usize + Send + Sync + 'static) {
        // A second one would ask the same.
        drop(self.unwritten.set(Box::new(unwritten)));
    }

    /// Says who knows what room the store has; the first word counts.
    pub fn watch_space(&self, space: impl Fn() -> SpaceReport + Send + Sync + 'static) {
        self.space.get_or_init(|| Box::new(space));
    }

    /// Says who knows which other processes use the database file; the first word counts.
    pub fn watch_sharing(&self, sharing: impl Fn() -> Option<SharedFile> + Send + Sync + 'static) {
        self.sharing.get_or_init(|| Box::new(sharing));
    }

    /// Says who knows what is wrong with the stores that several gateways share; the first word counts.
    pub fn watch_stores(&self, complaints: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        self.stores.get_or_init(|| Box::new(complaints));
    }

    /// Says who knows which receivers of spans take none; the first word counts.
    pub fn watch_receivers(&self, complaints: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        self.receivers.get_or_init(|| Box::new(complaints));
    }

    /// Says who knows how the models are doing; the first word counts.
    pub fn watch_models(&self, models: impl Fn() -> ModelsReport + Send + Sync + 'static) {
        self.models.get_or_init(|| Box::new(models));
    }

    /// Requests are served from now on, though not everything may be ready.
    pub fn serving(&self) {
        self.serves.store(true, Ordering::Release);
    }

    /// A worker of the judge runs.
    pub fn judge_spawned(&self) {
        self.judge_spawned.store(true, Ordering::Relaxed);
    }

    /// Says where the gRPC listener is.
    pub fn serves_grpc(&self, addr: SocketAddr) {
        self.grpc.get_or_init(|| addr);
    }

    /// Takes in the outcome of one storage probe; returns how many have missed in a row.
    pub fn probed(&self, ok: bool) -> u32 {
        // One prober writes; readers need no more than the latest value.
        let misses = if ok { 0 } else { self.misses.load(Ordering::Relaxed).saturating_add(1) };
        self.misses.store(misses, Ordering::Relaxed);
        misses
    }

    /// Whether `misses` in a row mean that storage is unavailable.
    pub fn is_too_many(&self, misses: u32) -> bool {
        misses >= self.facts.retries.max(1)
    }

    /// The report of this moment, and whether `/health` answers 200 (else 503).
    pub fn report(&self) -> (bool, Report) {
        let phase = self.phase();
        // Nobody has asked the store before requests are served; it may be the very thing that is waited for.
        let is_connected =
            self.serves.load(Ordering::Acquire) && !self.is_too_many(self.misses.load(Ordering::Relaxed));
        let breaker = self.breakers.worst();
        let mut reasons = Vec::new();
        if !is_connected {
            reasons.push("the store does not answer".to_owned());
        }
        // A probe of a subsystem that failed is no sign yet that it works.
        reasons.extend(self.breakers.by_subsystem().into_iter().filter_map(|(name, breaker)| match breaker.state() {
            State::Closed => None,
            State::Open => Some(format!("the circuit breaker of {name} is open")),
            State::HalfOpen => {
                Some(format!("the circuit breaker of {name} is half open: it tries whether {name} works again"))
            }
        }));
        let unwritten = self.unwritten.get().map_or(0, |unwritten| unwritten());
        if unwritten > 0 {
            reasons.push(format!(
                "{unwritten} revocations, new tokens or deletions are in force and not stored yet; a restart would undo them"
            ));
        }
        reasons.extend(self.stores.get().map(|stores| stores()).unwrap_or_default());
        reasons.extend(self.receivers.get().map(|receivers| receivers()).unwrap_or_default());
        let ml_models = self.models.get().map(|models| models()).unwrap_or_default();
        reasons.extend(ml_models.complaints());
        let status = match phase {
            Phase::Starting => "starting",
            Phase::Draining => "draining",
            Phase::Ready if reasons.is_empty() => "healthy",
            Phase::Ready => "degraded",
        };
        let subsystem = |(name, breaker): (&'static str, &super::breaker::Breaker)| {
            (name, SubsystemReport { circuit_breaker: breaker.state().as_str() })
        };
        let queues = self.registry.queues();
        let report = Report {
            status,
            reasons,
            storage: StorageReport {
                status: if is_connected { "connected" } else { "unavailable" },
                profile: self.facts.storage_profile.as_str(),
                space: self.space.get().map(|space| space()),
                shared: self.sharing.get().and_then(|sharing| sharing()),
            },
            circuit_breaker: breaker.as_str(),
            ml_models,
            uptime: self.started.elapsed().as_secs(),
            judge: JudgeReport {
                worker_spawned: self.judge_spawned.load(Ordering::Relaxed),
                enabled_at_startup: self.facts.judge_enabled_at_startup,
            },
            version: self.facts.version,
            io_driver: self.io.get().map(|io| io.driver),
            ring_mode: self.io.get().map(|io| io.ring_mode.clone()),
            grpc_addr: self.grpc.get().map(SocketAddr::to_string),
            subsystems: self.breakers.by_subsystem().into_iter().map(subsystem).collect(),
            queues: queues
                .into_iter()
                .map(|queue| (queue.name, QueueReport { depth: queue.depth, capacity: queue.capacity }))
                .collect(),
        };
        (phase == Phase::Ready, report)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_config::settings::CircuitBreaker;

    use super::*;
    use crate::meter::QueueGauge;
    use crate::ops::clock::{Clock, ManualClock};

    fn health() -> Health {
        health_and_clock(10).0
    }

    fn health_and_clock(failure_threshold: u32) -> (Health, ManualClock) {
        let settings = CircuitBreaker {
            enabled: true,
            failure_threshold,
            recovery_timeout_ms: 30_000,
            half_open_max_calls: 3,
            scope: weir_config::settings::BreakerScope::Service,
        };
        let facts = Facts {
            version: "0.1.0",
            storage_profile: StorageProfile::Lite,
            judge_enabled_at_startup: false,
            retries: 3,
        };
        let (clock, hand) = Clock::manual();
        (Health::new(facts, Arc::new(Breakers::new(settings, &clock)), Arc::new(Registry::new())), hand)
    }

    #[test]
    fn the_report_has_exactly_the_documented_fields() {
        let health = health();
        health.set_io(Io { driver: "io_uring", ring_mode: "SINGLE_ISSUER|DEFER_TASKRUN".to_owned() });
        health.registry.watch_queue(QueueGauge { name: "storage", capacity: 65_536, depth: Box::new(|| 7) });
        assert_eq!(health.report().1.storage.space, None);
        health.watch_space(|| SpaceReport {
            max_bytes: Some(9),
            tenant_max_bytes: None,
            removed_spans: 5,
            removing: true,
        });
        assert_eq!(health.report().1.storage.shared, None);
        health.watch_sharing(|| Some(SharedFile { processes: 3, gateways: 2, not_shared: vec!["circuit breakers"] }));
        health.serves_grpc(SocketAddr::from(([127, 0, 0, 1], 50_051)));
        health.ready();
        let (is_up, report) = health.report();
        assert!(is_up);
        assert_eq!(
            serde_json::to_value(report).unwrap(),
            json!({
                "status": "healthy",
                "reasons": [],
                "storage": {"status": "connected", "profile": "lite", "space": {
                    "max_bytes": 9, "tenant_max_bytes": null, "removed_spans": 5, "removing": true,
                }, "shared": {"processes": 3, "gateways": 2, "not_shared": ["circuit breakers"]}},
                "circuit_breaker": "closed",
                "ml_models": {"status": "disabled", "models": []},
                "uptime": 0,
                "judge": {"worker_spawned": false, "enabled_at_startup": false},
                "version": "0.1.0",
                "io_driver": "io_uring",
                "ring_mode": "SINGLE_ISSUER|DEFER_TASKRUN",
                "grpc_addr": "127.0.0.1:50051",
                "subsystems": {"storage": {"circuit_breaker": "closed"}, "security": {"circuit_breaker": "closed"}},
                "queues": {"storage": {"depth": 7, "capacity": 65_536}},
            })
        );
    }

    #[test]
    fn half_open_is_no_health() {
        let (health, hand) = health_and_clock(0);
        health.ready();
        health.breakers.storage.failure();
        assert_eq!((health.report().1.circuit_breaker, health.report().1.status), ("open", "degraded"));
        hand.advance(30_000);
        let (is_up, report) = health.report();
        assert_eq!((is_up, report.circuit_breaker, report.status), (true, "half_open", "degraded"));
        assert!(report.reasons[0].contains("half open"), "{:?}", report.reasons);
    }

    #[test]
    fn a_phase_never_goes_back() {
        let health = health();
        assert_eq!((health.report().0, health.report().1.status), (false, "starting"));
        assert_eq!(health.report().1.storage.status, "unavailable");
        health.ready();
        assert_eq!((health.report().0, health.report().1.status), (true, "healthy"));
        health.drain();
        health.ready();
        assert_eq!((health.report().0, health.report().1.status), (false, "draining"));
        assert!(!health.is_ready());
    }

    #[test]
    fn the_third_miss_in_a_row_degrades_and_one_answer_heals() {
        let health = health();
        health.ready();
        health.probed(false);
        health.probed(false);
        assert_eq!(health.report().1.status, "healthy");
        health.probed(true);
        health.probed(false);
        health.probed(false);
        assert_eq!(health.report().1.storage.status, "connected");
        health.probed(false);
        let (is_up, report) = health.report();
        assert_eq!((is_up, report.status, report.storage.status), (true, "degraded", "unavailable"));
        assert_eq!(report.reasons, ["the store does not answer"]);
        health.probed(true);
        assert_eq!(health.report().1.status, "healthy");
    }

    #[test]
    fn an_open_breaker_degrades_and_is_named() {
        let health = health();
        health.ready();
        (0..11).for_each(|_| health.breakers.security.failure());
        let (is_up, report) = health.report();
        assert_eq!((is_up, report.status, report.circuit_breaker), (true, "degraded", "open"));
        assert_eq!(report.reasons, ["the circuit breaker of security is open"]);
        assert_eq!(report.subsystems["security"].circuit_breaker, "open");
        assert_eq!(report.subsystems["storage"].circuit_breaker, "closed");
    }

    #[test]
    fn a_model_that_cannot_be_used_degrades_and_one_that_is_loading_does_not() {
        let health = health();
        let model = |name, status, reason: Option<&str>| ModelReport {
            name,
            status,
            self_test: false,
            model: Some("owner/name".to_owned()),
            reason: reason.map(str::to_owned),
        };
        let models = vec![model("guard_a", "loading", None), model("ner", "failed", Some("no graph"))];
        health.watch_models(move || ModelsReport { status: "fallback_regex", models: models.clone() });
        health.serving();
        let (is_up, report) = health.report();
        assert_eq!((is_up, report.status, report.storage.status), (false, "starting", "connected"));
        health.ready();
        let (is_up, report) = health.report();
        assert_eq!((is_up, report.status), (true, "degraded"));
        assert_eq!(report.reasons, ["the model of ner is failed: no graph"]);
    }
}
