//! The checked settings. A value of these types has passed every start-up rule; nobody else validates again.
//!
//! Field names follow the configuration paths; the built-in defaults stand in the `Default` impls.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

pub use crate::address::{Scheme, Upstream};
use crate::egress::Egress;
use crate::vocab::{Severity, SharedSecret, TenantId};

mod alerts;
mod defence;
mod email;
mod judge;
mod money;
mod otel;
mod output;
mod receipts;
mod router;
mod siem;
mod upstreams;

pub use alerts::{AlertChannel, AlertKind, Alerts, CHANNELS_MAX};
pub use defence::{BoundaryDefense, Datamarking, MARKERS, MarkerKind, ZoneDetection, ZoneMode};
pub use email::MailUrl;
pub use judge::{
    Cascade, Judge, JudgeBackend, JudgeClassifier, JudgeModel, JudgeRetry, JudgeTier, JudgeWorker, Promotion,
};
pub use money::{
    AgentCaps, Budget, Budgets, CapStatus, CostCaps, CostEstimation, ReserveTokens, TokenCap, Tokenizer, Window,
};
pub use otel::{OTEL_RECEIVERS_MAX, OtelCompression, OtelContent, OtelExport, OtelReceiver, OtelSemconv};
pub use output::{HALLUCINATION_THRESHOLD, Hallucination, OutputSafety, StreamingAnalysis};
pub use receipts::Receipts;
pub use router::{ActionRouter, ActionRule, ActionSet, ActionWebhook, IpBlock, RouterAction};
pub use siem::{SIEM_RECEIVERS_MAX, SIEM_TOKEN, SiemBatch, SiemExport, SiemFormat, SiemReceiver};
pub use upstreams::{
    Balance, DEFAULT_UPSTREAM, NamedUpstream, Pattern, RouteRule, UpstreamGroup, UpstreamHealth, Upstreams,
};

/// Everything the gateway runs on. Immutable: a hot swap publishes a new value.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `listen_addr`: where proxy, API, `/metrics` and `/health` are served.
    pub listen_addr: SocketAddr,
    /// `upstream_url`, taken apart.
    pub upstream: Upstream,
    /// `upstream_ca_file` (ours): PEM bundle trusted beside the system roots.
    pub upstream_ca_file: Option<PathBuf>,
    /// `upstream_api_key` (ours): credential for requests that bring none of their own.
    pub upstream_api_key: Option<SharedSecret>,
    /// The proxy and the certificates the environment names.
    pub egress: Egress,
    /// `upstreams` (ours) and what belongs to them: providers beside `upstream_url`.
    pub upstreams: Upstreams,
    /// `alerts.*`: who is told of findings.
    pub alerts: Alerts,
    /// `action_router.*`: what is done about findings.
    pub action_router: ActionRouter,
    /// `enable_tls`: the listener speaks HTTPS; both files below are set then.
    pub enable_tls: bool,
    /// `tls_cert_file`: PEM, certificate and chain.
    pub tls_cert_file: Option<PathBuf>,
    /// `tls_key_file`: PEM, the certificate's private key.
    pub tls_key_file: Option<PathBuf>,
    /// `enable_security_analysis`: false bypasses every analyser.
    pub enable_security_analysis: bool,
    /// `enable_trace_storage`: false keeps spans out of the store.
    pub enable_trace_storage: bool,
    /// `enable_streaming`: false refuses streaming calls.
    pub enable_streaming: bool,
    /// `llm_advisory_injection_enabled`: tell the model about detections on non-streaming chat completions.
    pub llm_advisory_injection_enabled: bool,
    /// `llm_advisory_shadow_mode`: the message is only computed and counted.
    pub llm_advisory_shadow_mode: bool,
    /// `llm_advisory_min_severity`: the least severity the advisory speaks for.
    pub llm_advisory_min_severity: Severity,
    /// `SERVICE_GOLDEN_SET_PATH`: folder of the golden set.
    pub golden_set_path: Option<PathBuf>,
    /// Sizes and times.
    pub limits: Limits,
    /// `storage.*`.
    pub storage: Storage,
    /// `logging.*`.
    pub logging: Logging,
    /// `security_analysis.*`.
    pub security_analysis: SecurityAnalysis,
    /// `pii.action`: what becomes of personal data.
    pub pii_action: PiiAction,
    /// `pii.shadow_mode`: what would be taken out of requests is only counted.
    pub pii_shadow_mode: bool,
    /// `pii.redact_answers`: what is taken out of answers on their way to their clients.
    pub pii_redact_answers: RedactAnswers,
    /// `pii.redact_answers_shadow_mode`: what would be taken out of answers is only counted.
    pub pii_redact_answers_shadow_mode: bool,
    /// `boundary_defense.*`.
    pub boundary_defense: BoundaryDefense,
    /// `output_safety.*`.
    pub output_safety: OutputSafety,
    /// `output_safety.toxicity_*`.
    pub toxicity: Toxicity,
    /// `output_safety.hallucination_*`.
    pub hallucination: Hallucination,
    /// `streaming_analysis.*`.
    pub streaming_analysis: StreamingAnalysis,
    /// `anomaly_detection.*`.
    pub anomaly_detection: AnomalyDetection,
    /// `enforcement.*`.
    pub enforcement: Enforcement,
    /// `enforcement.analysis_depth`.
    pub enforcement_analysis_depth: AnalysisDepth,
    /// `ml_pipeline.max_concurrent_requests`: how many may wait for what models say.
    pub ml_max_concurrent: usize,
    /// `rate_limiting.*`.
    pub rate_limiting: RateLimiting,
    /// `cost_estimation.*`.
    pub cost_estimation: CostEstimation,
    /// `cost_caps.*`.
    pub cost_caps: CostCaps,
    /// `judge.*`.
    pub judge: Judge,
    /// `circuit_breaker.*`.
    pub circuit_breaker: CircuitBreaker,
    /// `health_check.*`.
    pub health_check: HealthCheck,
    /// `otel_export.*` (ours): who is sent finished calls as spans.
    pub otel_export: OtelExport,
    /// `siem_export.*` (ours): who is sent security events.
    pub siem_export: SiemExport,
    /// `receipts.*` (ours): signed receipts of recorded calls.
    pub receipts: Receipts,
    /// `otel_ingest.*`.
    pub otel_ingest: OtelIngest,
    /// `auth.*`.
    pub auth: Auth,
    /// `grpc.*`.
    pub grpc: Grpc,
    /// `server.*`.
    pub server: Server,
    /// What web pages may do.
    pub web: Web,
    /// `server.websocket` (ours); `None` means allowed unless something is blocked.
    pub websocket: Option<WebSocket>,
    /// `shutdown.timeout_seconds`.
    pub shutdown_timeout_seconds: u64,
}

/// Sizes and times of the data path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// `max_request_size_bytes`, lowered by `SERVICE_MAX_REQUEST_BYTES` when that is set: cap of a proxied body.
    pub max_request_size_bytes: u64,
    /// Which setting the cap above came from; named in the 413.
    pub max_request_size_source: &'static str,
    /// Cap of a body sent to our own API (`SERVICE_MAX_REQUEST_BYTES`, default 1 MiB).
    pub max_api_request_bytes: u64,
    /// `max_response_size_bytes`: more is truncated in the stored trace only.
    pub max_response_size_bytes: u64,
    /// `timeout_ms`: until the upstream's response head has arrived.
    pub timeout_ms: u64,
    /// `stream_idle_timeout_ms` (ours): between two reads of a response body.
    pub stream_idle_timeout_ms: u64,
    /// `connection_timeout_ms`: TCP connect and TLS handshake.
    pub connection_timeout_ms: u64,
    /// `max_connections`: upstream connections of the whole process.
    pub max_connections: u32,
    /// `security_analysis_timeout_ms`: background analysis of one exchange.
    pub security_analysis_timeout_ms: u64,
    /// `trace_storage_timeout_ms`: one batch of the store.
    pub trace_storage_timeout_ms: u64,
}

/// `storage.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// `storage.profile`.
    pub profile: StorageProfile,
    /// `storage.database_path`.
    pub database_path: PathBuf,
    /// `storage.shared_file` (ours): several gateways may use the file at once.
    pub shared_file: bool,
    /// `storage.analytics_url`: the `production` profile's store of spans.
    pub analytics_url: Option<SharedSecret>,
    /// `storage.analytics_database`.
    pub analytics_database: Option<String>,
    /// `storage.relational_url`: the `production` profile's store of everything else.
    pub relational_url: Option<SharedSecret>,
    /// `storage.cache_url`: what the `production` profile's gateways share limits by.
    pub cache_url: Option<SharedSecret>,
    /// `storage.ca_file` (ours): what the stores' certificates are checked against; `None` is the system's.
    pub ca_file: Option<PathBuf>,
    /// `storage.startup_timeout_ms` (ours): how long a start waits for its stores.
    pub startup_timeout_ms: u64,
    /// `storage.auto_migrate`: run pending migrations at start.
    pub auto_migrate: bool,
    /// `storage.migration_copy` (ours): the file is copied before it is migrated.
    pub migration_copy: bool,
    /// `storage.retention_days` (ours): spans that started longer ago are removed; 0 keeps them.
    pub retention_days: u32,
    /// `storage.text_retention_days` (ours): texts of spans that started longer ago are removed; 0 keeps them with their spans.
    pub text_retention_days: u32,
    /// `storage.max_bytes` (ours): the oldest spans are removed while the database holds more; 0 is no bound, `None` is a
    /// bound taken from the free space at the start.
    pub max_bytes: Option<u64>,
    /// `storage.tenant_max_bytes` (ours): the same for the records of one tenant; 0 is no bound.
    pub tenant_max_bytes: u64,
    /// `storage.mask_secrets` (ours): what a detector called a credential is not kept in stored texts.
    pub mask_secrets: bool,
    /// `storage.erase` (ours): how thoroughly what is deleted is overwritten in the database file.
    pub erase: StorageErase,
}

/// `storage.erase` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageErase {
    /// Rows are overwritten where they lie.
    Rows,
    /// So are their copies in the unused parts of pages.
    Pages,
}

/// `storage.profile` values this build serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageProfile {
    /// One SQLite file.
    Lite,
    /// In the process; lost on restart.
    Memory,
    /// An analytics store, a relational store and a cache, which several gateways share.
    Production,
}

impl StorageProfile {
    /// The name as the settings spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lite => "lite",
            Self::Memory => "memory",
            Self::Production => "production",
        }
    }
}

/// `logging.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logging {
    /// A `tracing` filter: a level, or the directives of `RUST_LOG`.
    pub filter: String,
    /// `logging.format`.
    pub format: LogFormat,
    /// `logging.access`.
    pub access: AccessFormat,
}

/// `logging.access` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessFormat {
    /// No access log.
    Off,
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// `logging.format` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// `anomaly_detection.*`: calls far above what a tenant's calls are like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnomalyDetection {
    /// Whether calls are watched.
    pub enabled: bool,
    /// Calls, and slots of ten seconds, that are remembered of a tenant.
    pub window_size: u32,
    /// Spreads above the expected from which on a value is too far.
    pub sigma_threshold: f64,
    /// What is expected, and how it spreads.
    pub method: AnomalyMethod,
    /// Whether costs are watched.
    pub check_cost: bool,
    /// Whether tokens are watched.
    pub check_tokens: bool,
    /// Whether it is watched how many calls there are.
    pub check_velocity: bool,
    /// Whether the time providers take is watched.
    pub check_latency: bool,
}

impl Default for AnomalyDetection {
    fn default() -> Self {
        Self {
            enabled: false,
            window_size: 100,
            sigma_threshold: 3.0,
            method: AnomalyMethod::Sigma,
            check_cost: true,
            check_tokens: true,
            check_velocity: true,
            check_latency: true,
        }
    }
}

/// `anomaly_detection.method`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnomalyMethod {
    /// Mean and standard deviation.
    Sigma,
    /// Median and median absolute deviation of logarithms.
    Robust,
}

/// `pii.action`: what becomes of personal data in requests and in stored texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PiiAction {
    /// It is reported.
    AlertOnly,
    /// It is reported, and replaced by tags.
    AlertAndRedact,
    /// It is replaced by tags and not reported.
    RedactSilent,
}

/// `pii.redact_answers`: what is taken out of the texts of answers on their way to their clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedactAnswers {
    /// Nothing.
    Off,
    /// Personal data.
    Personal,
    /// Credentials.
    Secrets,
    /// Both.
    All,
}

impl RedactAnswers {
    /// Whether personal data is.
    pub const fn personal(self) -> bool {
        matches!(self, Self::Personal | Self::All)
    }

    /// Whether credentials are.
    pub const fn secrets(self) -> bool {
        matches!(self, Self::Secrets | Self::All)
    }
}

/// The default of `security_analysis.second_stage_cpu_share`.
pub const SECOND_STAGE_CPU_SHARE: f64 = 0.1;
/// The default of `security_analysis.ml_threshold`.
pub const ML_THRESHOLD: f64 = 0.8;
/// The default of `security_analysis.guard_a_threshold` and `guard_b_threshold`.
pub const GUARD_THRESHOLD: f64 = 0.85;
/// The default of `security_analysis.jailbreak_threshold`.
pub const JAILBREAK_THRESHOLD: f64 = 0.7;
/// The default of `output_safety.toxicity_threshold`.
pub const TOXICITY_THRESHOLD: f64 = 0.7;
/// The value of `security_analysis.ml_model` that means the classifier in the binary.
pub const EMBEDDED_MODEL: &str = "embedded";

/// `security_analysis.operating_point`: how the classifier weighs what it misses against what it reports in error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatingPoint {
    /// `balanced`.
    Balanced,
    /// `high_recall`: few misses.
    HighRecall,
    /// `high_precision`: few false alarms.
    HighPrecision,
}

/// `security_analysis.tool_changes`: what is done about a definition of a tool that comes back changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolChanges {
    /// `ignore`: nothing, and no definition is remembered.
    Ignore,
    /// `record`: what is new is judged by itself.
    Record,
    /// `refuse`: whatever is new is a finding of High.
    Refuse,
}

/// `security_analysis.action_from_data`: what is done about a call that does what only tools' results ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionFromData {
    /// `ignore`: nothing is compared.
    Ignore,
    /// `record`: it is reported.
    Record,
    /// `refuse`: it stops an answer that may be stopped.
    Refuse,
}

/// `security_analysis.*`, as far as this build implements it.
#[derive(Debug, Clone, PartialEq)]
pub struct SecurityAnalysis {
    /// `ml_enabled`: a classifier.
    pub ml_enabled: bool,
    /// `ml_model`: which one; [`EMBEDDED_MODEL`], a folder or an id.
    pub ml_model: String,
    /// `ml_threshold`, 0.0 to 1.0: the confidence from which on the classifier reports something, where somebody wrote it; else the
    /// operating point's.
    pub ml_threshold: Option<f64>,
    /// `second_stage_cpu_share`: what the second stage may take of one core, 0.0 to 1.0.
    pub second_stage_cpu_share: f64,
    /// `finding_threshold`, 0.0 to 1.0: from which probability on what the second stage sees is Low; the operating point's where nobody
    /// wrote one.
    pub finding_threshold: Option<f64>,
    /// `flag_threshold`, likewise: Medium.
    pub flag_threshold: Option<f64>,
    /// `block_threshold`, likewise: High.
    pub block_threshold: Option<f64>,
    /// `ml_cache_dir`: where models lie that are named by an id.
    pub ml_cache_dir: Option<PathBuf>,
    /// `ml_runtime_path`: libonnxruntime, as a file or a folder.
    pub ml_runtime_path: Option<PathBuf>,
    /// `ml_hub_url`: where models are fetched from; nowhere.
    pub ml_hub_url: Option<String>,
    /// `ml_download_timeout_seconds`.
    pub ml_download_timeout_seconds: u64,
    /// `ml_preload`: models are loaded before the gateway is ready.
    pub ml_preload: bool,
    /// `guard_a_*`.
    pub guard_a: Guard,
    /// `guard_b_*`.
    pub guard_b: Guard,
    /// `ner_*`.
    pub ner: Ner,
    /// `operating_point`.
    pub operating_point: OperatingPoint,
    /// `jailbreak_enabled`: the dedicated jailbreak detector and the decoding of encoded text.
    pub jailbreak_enabled: bool,
    /// `jailbreak_threshold`, 0.0 to 1.0, where somebody wrote it.
    pub jailbreak_threshold: Option<f64>,
    /// `max_analysis_text_bytes`.
    pub max_analysis_text_bytes: usize,
    /// `fusion_enabled`: what all detectors say of a text is weighed together.
    pub fusion_enabled: bool,
    /// `fusion_model_path`: the weights for that, in the place of those in the binary.
    pub fusion_model_path: Option<PathBuf>,
    /// `over_defence`: what the rules say of harmless texts with trigger words is lowered.
    pub over_defence: bool,
    /// `tool_changes`.
    pub tool_changes: ToolChanges,
    /// `action_from_data`.
    pub action_from_data: ActionFromData,
    /// `rules_dir`: rules of the operator's own.
    pub rules_dir: Option<PathBuf>,
    /// `zone_detection.*`.
    pub zones: ZoneDetection,
}

/// `security_analysis.guard_a_*` or `guard_b_*`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Guard {
    /// `guard_*_enabled`.
    pub enabled: bool,
    /// `guard_*_model`: a folder or an id.
    pub model: Option<String>,
    /// `guard_*_threshold`, 0.0 to 1.0, where somebody wrote it.
    pub threshold: Option<f64>,
}

/// `output_safety.toxicity_*`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Toxicity {
    /// `toxicity_enabled`: in force while `output_safety.enabled` is true.
    pub enabled: bool,
    /// `toxicity_model`: a folder or an id.
    pub model: Option<String>,
    /// `toxicity_threshold`, 0.0 to 1.0, where somebody wrote it.
    pub threshold: Option<f64>,
}

/// `security_analysis.ner_*`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ner {
    /// `ner_enabled`.
    pub enabled: bool,
    /// `ner_model`: a folder or an id.
    pub model: Option<String>,
}

/// `enforcement.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct Enforcement {
    /// `mode`.
    pub mode: EnforcementMode,
    /// `min_severity`.
    pub min_severity: Severity,
    /// `min_confidence`, 0.0 to 1.0.
    pub min_confidence: f64,
    /// `timeout_ms`.
    pub timeout_ms: u64,
    /// `categories[]`: finding type to action; wins over `mode`.
    pub categories: Vec<(String, EnforcementAction)>,
    /// `scope`.
    pub scope: EnforcementScope,
    /// `retrying_clients`: how their `User-Agent` begins.
    pub retrying_clients: Vec<String>,
    /// Rules of the action router that act on requests; `None` where there are none.
    pub router: Option<Arc<ActionRouter>>,
}

impl Enforcement {
    /// Whether any finding can block a request.
    pub fn can_block(&self) -> bool {
        let routed = self.router.as_ref().filter(|_| self.mode != EnforcementMode::Log);
        self.mode == EnforcementMode::Block
            || self.categories.iter().any(|(_, action)| *action == EnforcementAction::Block)
            || routed.is_some_and(|router| router.may(RouterAction::Block))
    }

    /// Whether this client, as its `User-Agent` names it, is one of `retrying_clients`.
    pub fn is_retrying(&self, client: Option<&str>) -> bool {
        let begins = |name: &str, with: &str| {
            name.as_bytes().get(..with.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(with.as_bytes()))
        };
        client.is_some_and(|name| self.retrying_clients.iter().any(|with| !with.is_empty() && begins(name, with)))
    }
}

/// `enforcement.mode` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnforcementMode {
    /// Always forward.
    Log,
    /// Refuse with 403.
    Block,
    /// Forward and add response headers.
    Flag,
}

impl EnforcementMode {
    /// As the configuration writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Block => "block",
            Self::Flag => "flag",
        }
    }
}

/// `enforcement.scope` values (ours).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnforcementScope {
    /// All texts of a request act.
    All,
    /// A text that stood in an earlier call of the tenant does not act again, unless it is the request's last one.
    New,
}

/// `enforcement.analysis_depth` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnalysisDepth {
    /// Rules only.
    Fast,
    /// Every detector this build has.
    Full,
}

/// Action of an `enforcement.categories[]` entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnforcementAction {
    /// Refuse with 403.
    Block,
    /// Forward and add response headers.
    Flag,
}

/// `rate_limiting.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimiting {
    /// `enabled`.
    pub enabled: bool,
    /// What a tenant without an override gets.
    pub default: RateLimit,
    /// `window_seconds`: how long an idle bucket is remembered.
    pub window_seconds: u32,
    /// `tenant_overrides`.
    pub tenant_overrides: HashMap<TenantId, RateLimit>,
}

/// One token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Steady refill in requests per second, at least 1.
    pub requests_per_second: u32,
    /// Bucket size in requests, at least 1.
    pub burst_size: u32,
}

/// `circuit_breaker.*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitBreaker {
    /// `enabled`.
    pub enabled: bool,
    /// `failure_threshold`: opens when consecutive failures exceed it.
    pub failure_threshold: u32,
    /// `recovery_timeout_ms`.
    pub recovery_timeout_ms: u64,
    /// `half_open_max_calls`.
    pub half_open_max_calls: u32,
    /// `scope` (ours).
    pub scope: BreakerScope,
}

/// `circuit_breaker.scope` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerScope {
    /// An open breaker makes the gateway a plain proxy.
    Service,
    /// Each breaker switches off its own part.
    Subsystem,
}

/// `health_check.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// `enabled`: false stops the storage probe.
    pub enabled: bool,
    /// `path`: where the health report is served.
    pub path: String,
    /// `interval_seconds`, at least 1.
    pub interval_seconds: u32,
    /// `timeout_ms` of one probe, at least 1.
    pub timeout_ms: u64,
    /// `retries`: misses in a row that make the service degraded, at least 1.
    pub retries: u32,
}

/// `auth.*`. Fixed while the process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// `enabled`: every caller needs a credential.
    pub enabled: bool,
    /// `admin_key`: the bootstrap key.
    pub admin_key: Option<SharedSecret>,
    /// `token_key_file` (ours): what tenant tokens are derived from; `None` means beside the database.
    pub token_key_file: Option<PathBuf>,
    /// `max_stale_seconds` (ours): how long keys and tokens are taken as they were last read where they cannot be read.
    pub max_stale_seconds: u64,
}

impl Default for Auth {
    fn default() -> Self {
        Self { enabled: false, admin_key: None, token_key_file: None, max_stale_seconds: 3_600 }
    }
}

/// `server.*` (ours unless spec.md names it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    /// `server.core_threads`: data-path threads; 0 means one per available core.
    pub core_threads: usize,
    /// `server.io_driver`.
    pub io_driver: IoDriver,
    /// `server.max_client_connections`: of the whole process, at least 1.
    pub max_client_connections: u32,
    /// `server.max_client_connections_per_address`: `None` means half of them.
    pub max_client_connections_per_address: Option<u32>,
    /// `server.max_body_memory_bytes` (ours): `None` means a part of the memory there is.
    pub max_body_memory_bytes: Option<u64>,
    /// `server.timing_header`: add `Server-Timing: weir;dur=<ms>` to proxied answers.
    pub timing_header: bool,
    /// `server.debug_endpoints`: serve `/debug/judge/`, without a key.
    pub debug_endpoints: bool,
    /// `server.ui` (ours): serve the console at `/ui`.
    pub ui: bool,
    /// `server.metrics_addr`: second listener for `/metrics` alone.
    pub metrics_addr: Option<SocketAddr>,
}

/// `otel_ingest.*`. Fixed while the process runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OtelIngest {
    /// `otel_ingest.enabled`: `POST /v1/traces` is served.
    pub enabled: bool,
}

/// `grpc.*`. Fixed while the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grpc {
    /// `grpc.enabled`: spans are taken in by gRPC.
    pub enabled: bool,
    /// `grpc.listen_addr`: where.
    pub listen_addr: SocketAddr,
}

/// `server.allowed_hosts` and `server.cors_allowed_origins` (ours). Fixed while the process runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Web {
    /// `server.allowed_hosts`: names, or `.suffix` for all names below one.
    pub allowed_hosts: Vec<String>,
    /// `server.cors_allowed_origins`, as browsers send them.
    pub allowed_origins: Vec<String>,
}

/// `server.websocket` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebSocket {
    /// Tunnel them.
    Allow,
    /// Refuse them.
    Deny,
}

/// `server.io_driver` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoDriver {
    /// io_uring where the kernel allows it, else epoll.
    Auto,
    /// io_uring or refuse to start.
    IoUring,
    /// io_uring in the mode that kernels from 5.19 to 6.0 grant, or refuse to start.
    IoUringCoop,
    /// io_uring in the mode that kernels before 5.19 grant, or refuse to start.
    IoUringPlain,
    /// epoll.
    Epoll,
}

impl Settings {
    /// Whether calls that did not pass the gateway can be reported to it.
    pub const fn takes_reports(&self) -> bool {
        self.otel_ingest.enabled || self.grpc.enabled
    }

    /// Whether a Critical finding in an answer's stream ends it.
    pub const fn stops_streams(&self) -> bool {
        self.output_safety.enabled && (self.streaming_analysis.may_stop() || self.output_safety.block_on_critical)
    }

    /// Whether something is taken out of answers before their clients have them.
    pub fn redacts_answers(&self) -> bool {
        self.pii_redact_answers != RedactAnswers::Off && !self.pii_redact_answers_shadow_mode
    }

    /// Whether a Critical finding in an answer that is no stream replaces it by an error.
    pub const fn blocks_answers(&self) -> bool {
        self.output_safety.enabled && self.output_safety.block_on_critical
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen_addr: SocketAddr::from(([0, 0, 0, 0], 8080)),
            upstream: Upstream::default(),
            upstream_ca_file: None,
            upstreams: Upstreams::default(),
            alerts: Alerts::default(),
            action_router: ActionRouter::default(),
            enable_tls: false,
            tls_cert_file: None,
            tls_key_file: None,
            upstream_api_key: None,
            egress: Egress::default(),
            enable_security_analysis: true,
            enable_trace_storage: true,
            enable_streaming: true,
            llm_advisory_injection_enabled: true,
            llm_advisory_shadow_mode: false,
            llm_advisory_min_severity: Severity::Medium,
            golden_set_path: None,
            limits: Limits::default(),
            storage: Storage {
                profile: StorageProfile::Lite,
                database_path: PathBuf::from("service.db"),
                shared_file: false,
                analytics_url: None,
                analytics_database: None,
                relational_url: None,
                cache_url: None,
                ca_file: None,
                startup_timeout_ms: 60_000,
                auto_migrate: true,
                migration_copy: true,
                retention_days: 0,
                text_retention_days: 0,
                max_bytes: None,
                tenant_max_bytes: 0,
                mask_secrets: true,
                erase: StorageErase::Rows,
            },
            logging: Logging { filter: "info".to_owned(), format: LogFormat::Text, access: AccessFormat::Off },
            security_analysis: SecurityAnalysis {
                ml_enabled: true,
                ml_model: EMBEDDED_MODEL.to_owned(),
                ml_threshold: None,
                second_stage_cpu_share: SECOND_STAGE_CPU_SHARE,
                finding_threshold: None,
                flag_threshold: None,
                block_threshold: None,
                ml_cache_dir: None,
                ml_runtime_path: None,
                ml_hub_url: Some("https://huggingface.co".to_owned()),
                ml_download_timeout_seconds: 300,
                ml_preload: true,
                guard_a: Guard::default(),
                guard_b: Guard::default(),
                ner: Ner::default(),
                operating_point: OperatingPoint::Balanced,
                jailbreak_enabled: true,
                jailbreak_threshold: None,
                max_analysis_text_bytes: 1_048_576,
                fusion_enabled: false,
                fusion_model_path: None,
                over_defence: false,
                tool_changes: ToolChanges::Record,
                action_from_data: ActionFromData::Record,
                rules_dir: None,
                zones: ZoneDetection::default(),
            },
            pii_action: PiiAction::AlertOnly,
            pii_shadow_mode: false,
            pii_redact_answers: RedactAnswers::Off,
            pii_redact_answers_shadow_mode: false,
            boundary_defense: BoundaryDefense::default(),
            output_safety: OutputSafety::default(),
            toxicity: Toxicity::default(),
            hallucination: Hallucination::default(),
            streaming_analysis: StreamingAnalysis::default(),
            anomaly_detection: AnomalyDetection::default(),
            enforcement: Enforcement {
                mode: EnforcementMode::Log,
                min_severity: Severity::High,
                min_confidence: 0.8,
                timeout_ms: 5_000,
                categories: Vec::new(),
                scope: EnforcementScope::All,
                retrying_clients: vec!["codex".to_owned(), "claude-cli".to_owned()],
                router: None,
            },
            enforcement_analysis_depth: AnalysisDepth::Full,
            ml_max_concurrent: 8,
            rate_limiting: RateLimiting {
                enabled: true,
                default: RateLimit { requests_per_second: 100, burst_size: 200 },
                window_seconds: 60,
                tenant_overrides: HashMap::new(),
            },
            cost_estimation: CostEstimation::default(),
            cost_caps: CostCaps::default(),
            judge: Judge::default(),
            circuit_breaker: CircuitBreaker {
                enabled: true,
                failure_threshold: 10,
                recovery_timeout_ms: 30_000,
                half_open_max_calls: 3,
                scope: BreakerScope::Service,
            },
            health_check: HealthCheck {
                enabled: true,
                path: "/health".to_owned(),
                interval_seconds: 10,
                timeout_ms: 5_000,
                retries: 3,
            },
            otel_export: OtelExport::default(),
            siem_export: SiemExport::default(),
            receipts: Receipts::default(),
            otel_ingest: OtelIngest::default(),
            auth: Auth::default(),
            grpc: Grpc { enabled: false, listen_addr: SocketAddr::from(([0, 0, 0, 0], 50_051)) },
            server: Server {
                core_threads: 0,
                io_driver: IoDriver::Auto,
                max_client_connections: 10_000,
                max_client_connections_per_address: None,
                max_body_memory_bytes: None,
                timing_header: false,
                debug_endpoints: false,
                ui: true,
                metrics_addr: None,
            },
            web: Web::default(),
            websocket: None,
            shutdown_timeout_seconds: 30,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_request_size_bytes: 52_428_800,
            max_request_size_source: "max_request_size_bytes",
            max_api_request_bytes: 1_048_576,
            max_response_size_bytes: 52_428_800,
            timeout_ms: 30_000,
            stream_idle_timeout_ms: 300_000,
            connection_timeout_ms: 5_000,
            max_connections: 1_000,
            security_analysis_timeout_ms: 5_000,
            trace_storage_timeout_ms: 10_000,
        }
    }
}
