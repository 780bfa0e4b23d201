//! Rows that decide what happens to a request: breaker, health check, rate limits, enforcement; and the server's own.

use std::collections::HashMap;

use serde_json::Value;

use super::kind::YEAR_MS;
use super::value::{flag, float, int, one_of, optional_addr, optional_int, owned_text, parsed, text, texts};
use super::{EnvRule, Field, Keys, Kind, Literal, Setting, Unfit, set};
use crate::settings::{
    AnalysisDepth, BreakerScope, EnforcementAction, EnforcementMode, EnforcementScope, IoDriver, RateLimit, WebSocket,
};
use crate::vocab::TenantId;

const MODES: [(&str, EnforcementMode); 3] =
    [("log", EnforcementMode::Log), ("block", EnforcementMode::Block), ("flag", EnforcementMode::Flag)];
const ACTIONS: [(&str, EnforcementAction); 2] =
    [("block", EnforcementAction::Block), ("flag", EnforcementAction::Flag)];
const DRIVERS: [(&str, IoDriver); 5] = [
    ("auto", IoDriver::Auto),
    ("io_uring", IoDriver::IoUring),
    ("io_uring_coop", IoDriver::IoUringCoop),
    ("io_uring_plain", IoDriver::IoUringPlain),
    ("epoll", IoDriver::Epoll),
];
const SCOPES: [(&str, BreakerScope); 2] = [("service", BreakerScope::Service), ("subsystem", BreakerScope::Subsystem)];
const WEBSOCKET: [(&str, WebSocket); 2] = [("allow", WebSocket::Allow), ("deny", WebSocket::Deny)];
const CATEGORY: &[Field] =
    &[Field::required("finding_type", Kind::Name), Field::required("action", Kind::Choice(&["block", "flag"]))];
const LIMIT: &[Field] = &[
    Field::required("requests_per_second", Kind::u32_at_least(1)),
    Field::required("burst_size", Kind::u32_at_least(1)),
];

pub(super) static SETTINGS: &[Setting] = &[
    // --- circuit breaker ---
    Setting::built(
        "circuit_breaker.enabled",
        Kind::Bool,
        Literal::Bool(true),
        "Degrade to pure pass-through after repeated storage or analysis failures.",
        set!(circuit_breaker.enabled, flag),
    ),
    Setting::built(
        "circuit_breaker.failure_threshold",
        Kind::u32_at_least(0),
        Literal::Int(10),
        "Consecutive failures that are still tolerated; the next one opens the breaker.",
        set!(circuit_breaker.failure_threshold, int),
    ),
    Setting::built(
        "circuit_breaker.recovery_timeout_ms",
        Kind::millis(0),
        Literal::Int(30_000),
        "How long the breaker stays open before it lets probes through.",
        set!(circuit_breaker.recovery_timeout_ms, int),
    ),
    Setting::built(
        "circuit_breaker.half_open_max_calls",
        Kind::u32_at_least(1),
        Literal::Int(3),
        "Probes at a time while the breaker is half open.",
        set!(circuit_breaker.half_open_max_calls, int),
    ),
    Setting::built(
        "circuit_breaker.scope",
        Kind::Choice(&["service", "subsystem"]),
        Literal::Text("service"),
        "service: an open breaker stops analysis and storage; subsystem: each breaker stops its own part only.",
        set!(circuit_breaker.scope, |v| one_of(v, &SCOPES)),
    ),
    // --- health check ---
    Setting::built(
        "health_check.enabled",
        Kind::Bool,
        Literal::Bool(true),
        "Ask the store at an interval whether it works; false stops the asking, the route stays.",
        set!(health_check.enabled, flag),
    ),
    Setting::built(
        "health_check.path",
        Kind::HealthPath,
        Literal::Text("/health"),
        "Where the health report is served; /health is then the provider's.",
        set!(health_check.path, owned_text),
    ),
    Setting::built(
        "health_check.interval_seconds",
        Kind::u32_at_least(1),
        Literal::Int(10),
        "Seconds between two questions to the store.",
        set!(health_check.interval_seconds, int),
    ),
    Setting::built(
        "health_check.timeout_ms",
        Kind::millis(1),
        Literal::Int(5_000),
        "How long the store may take to answer.",
        set!(health_check.timeout_ms, int),
    ),
    Setting::built(
        "health_check.retries",
        Kind::u32_at_least(1),
        Literal::Int(3),
        "Unanswered questions in a row that make the service degraded.",
        set!(health_check.retries, int),
    ),
    // --- rate limiting ---
    Setting::built(
        "rate_limiting.enabled",
        Kind::Bool,
        Literal::Bool(true),
        "Limit each tenant's request rate; over the limit is 429.",
        set!(rate_limiting.enabled, flag),
    )
    .wire("rate_limiting_enabled"),
    Setting::built(
        "rate_limiting.requests_per_second",
        Kind::u32_at_least(1),
        Literal::Int(100),
        "Steady rate of one tenant.",
        set!(rate_limiting.default.requests_per_second, int),
    )
    .env_rule("SERVICE_RATE_LIMIT_RPS", EnvRule::Lenient),
    Setting::built(
        "rate_limiting.burst_size",
        Kind::u32_at_least(1),
        Literal::Int(200),
        "Requests a tenant may send at once after a pause.",
        set!(rate_limiting.default.burst_size, int),
    )
    .env_rule("SERVICE_RATE_LIMIT_BURST", EnvRule::Lenient),
    Setting::built(
        "rate_limiting.window_seconds",
        Kind::u32_at_least(1),
        Literal::Int(60),
        "How long the bucket of an idle tenant is remembered once it is full. It changes no limit: those are per second, with a burst.",
        set!(rate_limiting.window_seconds, int),
    ),
    Setting::built(
        "rate_limiting.tenant_overrides",
        Kind::RecordMap(Keys::Uuid, LIMIT),
        Literal::EmptyMap,
        "Other limits for single tenants: tenant UUID to requests_per_second and burst_size.",
        set!(rate_limiting.tenant_overrides, tenant_overrides),
    ),
    // --- enforcement ---
    Setting::built(
        "enforcement.mode",
        Kind::Choice(&["log", "block", "flag"]),
        Literal::Text("log"),
        "log: always forward. block: refuse with 403. flag: forward and add response headers.",
        set!(enforcement.mode, |v| one_of(v, &MODES)),
    )
    .wire("enforcement_mode"),
    Setting::built(
        "enforcement.analysis_depth",
        Kind::Choice(&["fast", "full"]),
        Literal::Text("full"),
        "What decides about a request before it is forwarded. fast: rules only; what classifiers and models say of it is recorded. full: every \
         detector of this build.",
        set!(enforcement_analysis_depth, |v| one_of(
            v,
            &[("fast", AnalysisDepth::Fast), ("full", AnalysisDepth::Full)]
        )),
    ),
    Setting::built(
        "enforcement.min_severity",
        Kind::SEVERITY,
        Literal::Text("High"),
        "Least severity that is enforced.",
        set!(enforcement.min_severity, parsed),
    ),
    Setting::built(
        "enforcement.min_confidence",
        Kind::UNIT,
        Literal::Float(0.8),
        "Least confidence that is enforced; a finding has to meet both.",
        set!(enforcement.min_confidence, float),
    ),
    Setting::built(
        "enforcement.timeout_ms",
        Kind::millis(1),
        Literal::Int(5_000),
        "How long a request waits for its analysis; then it is forwarded unenforced.",
        set!(enforcement.timeout_ms, int),
    ),
    Setting::built(
        "enforcement.categories",
        Kind::Records(CATEGORY),
        Literal::EmptyList,
        "Actions for single finding types, which win over the mode but not over min_severity and min_confidence: finding_type and action (block or flag).",
        set!(enforcement.categories, categories),
    ),
    Setting::built(
        "enforcement.scope",
        Kind::Choice(&["all", "new"]),
        Literal::Text("all"),
        "all: every text of a request acts. new: one that stood in an earlier call of the tenant that was forwarded is recorded \
         and does not act again, unless it is the request's last one; agents send their whole history with every turn.",
        set!(enforcement.scope, |v| one_of(
            v,
            &[("all", EnforcementScope::All), ("new", EnforcementScope::New)]
        )),
    ),
    Setting::built(
        "enforcement.retrying_clients",
        Kind::TextList,
        Literal::Texts(&["codex", "claude-cli"]),
        "Clients that ask again after a 403 and after response.incomplete, or show a 403 as a failed login, by how their User-Agent \
         begins: they get 400 instead, and response.failed with the code invalid_prompt, which they take as final. Ours.",
        set!(enforcement.retrying_clients, texts),
    ),
    // --- server, shutdown ---
    Setting::built(
        "server.core_threads",
        Kind::Int { min: 0, max: 1_024 },
        Literal::Int(0),
        "Data-path threads; 0 means one per available core.",
        set!(server.core_threads, int),
    ),
    Setting::built(
        "server.io_driver",
        Kind::Choice(&["auto", "io_uring", "io_uring_coop", "io_uring_plain", "epoll"]),
        Literal::Text("auto"),
        "auto: io_uring where the kernel allows it, else epoll. `_coop` and `_plain`: as on kernels before 6.1 and 5.19, to compare.",
        set!(server.io_driver, |v| one_of(v, &DRIVERS)),
    )
    .env("SERVICE_IO_DRIVER"),
    Setting::built(
        "server.max_client_connections",
        Kind::u32_at_least(1),
        Literal::Int(10_000),
        "Client connections of the whole process; at the limit the longest idle one is closed for a new one, or the new one gets 503.",
        set!(server.max_client_connections, int),
    ),
    Setting::built(
        "server.max_client_connections_per_address",
        Kind::u32_at_least(1),
        Literal::Null,
        "Client connections of one IPv4 address or IPv6 /64; null means half of max_client_connections.",
        set!(server.max_client_connections_per_address, optional_int),
    ),
    Setting::built(
        "server.max_body_memory_bytes",
        Kind::at_least(1_048_576),
        Literal::Null,
        "Memory for request bodies and kept answers, with the text read from them; null means a quarter of what the \
         container or the machine has, at most 512 MiB. Over it requests whose body has to be held get 503. Ours.",
        set!(server.max_body_memory_bytes, optional_int),
    ),
    Setting::built(
        "server.timing_header",
        Kind::Bool,
        Literal::Bool(false),
        "Add Server-Timing: weir;dur=<ms> to proxied answers.",
        set!(server.timing_header, flag),
    ),
    Setting::built(
        "server.debug_endpoints",
        Kind::Bool,
        Literal::Bool(false),
        "Serve /debug/judge/, to everybody and without a key: never in production.",
        set!(server.debug_endpoints, flag),
    ),
    Setting::built(
        "server.ui",
        Kind::Bool,
        Literal::Bool(true),
        "Serve the console at /ui. The page holds no data; what it shows it asks of the API, with the API's access rules. Ours.",
        set!(server.ui, flag),
    ),
    Setting::built(
        "server.metrics_addr",
        Kind::ListenAddr,
        Literal::Null,
        "Address of a second listener that answers GET /metrics and nothing else, without a key.",
        set!(server.metrics_addr, optional_addr),
    ),
    Setting::built(
        "server.allowed_hosts",
        Kind::Hosts,
        Literal::EmptyList,
        "Names the gateway is reached by besides IP addresses, localhost, names without a dot and listen_addr: while \
         authentication is off its own paths answer to no other `Host`.",
        set!(web.allowed_hosts, texts),
    ),
    Setting::built(
        "server.cors_allowed_origins",
        Kind::Origins,
        Literal::EmptyList,
        "Web pages of other origins that may use the gateway and read its answers; while authentication is off requests \
         of all others are refused.",
        set!(web.allowed_origins, texts),
    ),
    Setting::built(
        "server.websocket",
        Kind::Choice(&["allow", "deny"]),
        Literal::Null,
        "allow: pass WebSockets. Those of /responses and /realtime are read, recorded and charged turn by turn; \
         others are neither read nor charged. deny: answer them 426, so that clients go on by requests. null: \
         allow, and deny what is not read while `enforcement` blocks anything.",
        set!(websocket, |v: &Value| if v.is_null() { Ok(None) } else { one_of(v, &WEBSOCKET).map(Some) }),
    ),
    Setting::built(
        "shutdown.timeout_seconds",
        Kind::Int { min: 0, max: YEAR_MS / 1_000 },
        Literal::Int(30),
        "How long work in flight may take to finish after SIGTERM or SIGINT.",
        set!(shutdown_timeout_seconds, int),
    ),
];

fn tenant_overrides(value: &Value) -> Result<HashMap<TenantId, RateLimit>, Unfit> {
    let entries = value.as_object().ok_or(Unfit)?;
    entries
        .iter()
        .map(|(tenant, limit)| {
            let field = |name: &str| limit.get(name).ok_or(Unfit).and_then(int);
            let limit =
                RateLimit { requests_per_second: field("requests_per_second")?, burst_size: field("burst_size")? };
            Ok((tenant.parse().map_err(|_| Unfit)?, limit))
        })
        .collect()
}

fn categories(value: &Value) -> Result<Vec<(String, EnforcementAction)>, Unfit> {
    let entries = value.as_array().ok_or(Unfit)?;
    entries
        .iter()
        .map(|entry| {
            let finding_type = text(entry.get("finding_type").ok_or(Unfit)?)?;
            Ok((finding_type.to_owned(), one_of(entry.get("action").ok_or(Unfit)?, &ACTIONS)?))
        })
        .collect()
}
