//! Rows of the gateway itself: addresses, limits, storage, logs.
//!
//! Order matters in two places: `environment.*` rows come after the rows they override.

use serde_json::Value;

use super::value::{
    flag, int, listen_addr, one_of, optional_int, optional_path, optional_secret, optional_text, owned_text, parsed,
    path, text,
};
use super::{Kind, Literal, Setting, Unfit, set};
use crate::address;
use crate::settings::{AccessFormat, LogFormat, StorageErase, StorageProfile, Upstream};

const LEVELS: Kind = Kind::Choice(&["trace", "debug", "info", "warn", "error"]);

pub(super) static SETTINGS: &[Setting] = &[
    // --- top level ---
    Setting::built(
        "listen_addr",
        Kind::ListenAddr,
        Literal::Text("0.0.0.0:8080"),
        "Address and port of proxy, API, /metrics and /health.",
        set!(listen_addr, listen_addr),
    )
    .env("SERVICE_LISTEN_ADDR"),
    Setting::built(
        "upstream_url",
        Kind::UpstreamUrl,
        Literal::Text("https://api.openai.com"),
        "Provider that requests are forwarded to; a path is put in front of the request's path.",
        set!(upstream, upstream),
    )
    .env("SERVICE_UPSTREAM_URL"),
    Setting::built(
        "upstream_ca_file",
        Kind::File,
        Literal::Null,
        "PEM bundle of certificate authorities trusted for https upstreams beside the system's.",
        set!(upstream_ca_file, optional_path),
    )
    .env("SERVICE_UPSTREAM_CA_FILE"),
    Setting::built(
        "upstream_api_key",
        Kind::Credential { min: 8 },
        Literal::Null,
        "Provider credential for requests that bring none of their own; sent as x-api-key to messages-style paths, as \
         bearer to all others.",
        set!(upstream_api_key, optional_secret),
    )
    .env("SERVICE_UPSTREAM_API_KEY")
    .secret(),
    Setting::built(
        "enable_tls",
        Kind::Bool,
        Literal::Bool(false),
        "Serve HTTPS (TLS 1.2 and 1.3) on listen_addr; needs tls_cert_file and tls_key_file.",
        set!(enable_tls, flag),
    ),
    Setting::built(
        "tls_cert_file",
        Kind::File,
        Literal::Null,
        "PEM file with the listener's certificate and its chain; read again on SIGHUP.",
        set!(tls_cert_file, optional_path),
    ),
    Setting::built(
        "tls_key_file",
        Kind::File,
        Literal::Null,
        "PEM file with the certificate's private key; read again on SIGHUP.",
        set!(tls_key_file, optional_path),
    ),
    Setting::built(
        "enable_security_analysis",
        Kind::Bool,
        Literal::Bool(true),
        "false bypasses every analyser; traces then have no score and no findings.",
        set!(enable_security_analysis, flag),
    ),
    Setting::built(
        "enable_trace_storage",
        Kind::Bool,
        Literal::Bool(true),
        "false keeps finished spans out of the store; analysis and forwarding go on.",
        set!(enable_trace_storage, flag),
    ),
    Setting::built(
        "enable_streaming",
        Kind::Bool,
        Literal::Bool(true),
        "false refuses calls that ask for a stream with 400 `streaming_disabled`, before anything is sent to the provider; others are \
         unaffected.",
        set!(enable_streaming, flag),
    ),
    Setting::built(
        "llm_advisory_injection_enabled",
        Kind::Bool,
        Literal::Bool(true),
        "Tell the model, in a system message, what was detected in a non-streaming chat completion.",
        set!(llm_advisory_injection_enabled, flag),
    )
    .wire("llm_advisory_injection_enabled"),
    Setting::built(
        "llm_advisory_shadow_mode",
        Kind::Bool,
        Literal::Bool(false),
        "Compute that message, count it (`service_advisory_total`), and forward the request as it came. Ours.",
        set!(llm_advisory_shadow_mode, flag),
    ),
    Setting::built(
        "llm_advisory_min_severity",
        Kind::SEVERITY,
        Literal::Text("Medium"),
        "Least severity that message speaks for; a call with lesser findings only is left as it is.",
        set!(llm_advisory_min_severity, parsed),
    ),
    // --- limits ---
    Setting::built(
        "max_request_size_bytes",
        Kind::at_least(1),
        Literal::Int(52_428_800),
        "Largest request body that is proxied; more is refused with 413.",
        set!(limits.max_request_size_bytes, int),
    ),
    Setting::built(
        "max_response_size_bytes",
        Kind::at_least(1),
        Literal::Int(52_428_800),
        "Response bytes kept in the trace; the client always gets all of them.",
        set!(limits.max_response_size_bytes, int),
    ),
    Setting::built(
        "timeout_ms",
        Kind::millis(1),
        Literal::Int(30_000),
        "How long to wait for the head of the upstream's answer before answering 504. An answer that is not streamed \
         begins when the model has finished: 600000 suits models that think.",
        set!(limits.timeout_ms, int),
    ),
    Setting::built(
        "stream_idle_timeout_ms",
        Kind::millis(1),
        Literal::Int(300_000),
        "How long a response body may stay silent once its head has arrived.",
        set!(limits.stream_idle_timeout_ms, int),
    ),
    Setting::built(
        "connection_timeout_ms",
        Kind::millis(1),
        Literal::Int(5_000),
        "How long connecting to the upstream may take, TLS handshake included.",
        set!(limits.connection_timeout_ms, int),
    ),
    Setting::built(
        "max_connections",
        Kind::u32_at_least(1),
        Literal::Int(1_000),
        "Upstream connections of the whole process; requests beyond them wait.",
        set!(limits.max_connections, int),
    ),
    Setting::built(
        "security_analysis_timeout_ms",
        Kind::millis(1),
        Literal::Int(5_000),
        "How long background analysis of one exchange may take; then it is stored without a score.",
        set!(limits.security_analysis_timeout_ms, int),
    ),
    Setting::built(
        "trace_storage_timeout_ms",
        Kind::millis(1),
        Literal::Int(10_000),
        "How long one write to the store may take; then it is abandoned and counts as a failure.",
        set!(limits.trace_storage_timeout_ms, int),
    ),
    Setting::built(
        "environment.SERVICE_MAX_REQUEST_BYTES",
        Kind::at_least(1),
        Literal::Int(1_048_576),
        "Largest body sent to our own API; when set, it caps proxied bodies too and the smaller cap wins. A larger one is 413 \
         `request_too_large`, which names the cap.",
        |s, v| {
            let cap = int(v)?;
            s.limits.max_api_request_bytes = cap;
            if cap < s.limits.max_request_size_bytes {
                s.limits.max_request_size_bytes = cap;
                s.limits.max_request_size_source = "SERVICE_MAX_REQUEST_BYTES";
            }
            Ok(())
        },
    )
    .env("SERVICE_MAX_REQUEST_BYTES"),
    // --- storage ---
    Setting::built(
        "storage.profile",
        Kind::Choice(&["lite", "memory", "production"]),
        Literal::Text("lite"),
        "lite: one SQLite file. memory: in the process, lost on restart. production: for several gateways; an analytics store, a \
         relational store and a cache, whose addresses are set below, and a SQLite file on its way there.",
        set!(storage.profile, |v| {
            let profiles = [
                ("lite", StorageProfile::Lite),
                ("memory", StorageProfile::Memory),
                ("production", StorageProfile::Production),
            ];
            one_of(v, &profiles)
        }),
    )
    .aliases(&[("sqlite", "lite")])
    .env("SERVICE_STORAGE_PROFILE"),
    Setting::built(
        "storage.database_path",
        Kind::DatabaseFile,
        Literal::Text("service.db"),
        "The SQLite file of the lite profile; in the production profile, where spans lie until the analytics store has them.",
        set!(storage.database_path, path),
    )
    .env("SERVICE_STORAGE_DATABASE_PATH"),
    Setting::built(
        "storage.analytics_url",
        Kind::Text,
        Literal::Null,
        "The analytics store of the production profile, which keeps traces: an http:// or https:// address of a ClickHouse-compatible \
         server, with user and password where it asks for them.",
        set!(storage.analytics_url, optional_secret),
    )
    .env("SERVICE_ANALYTICS_URL")
    .secret(),
    Setting::built(
        "storage.analytics_database",
        Kind::Text,
        Literal::Null,
        "Its database; null is `default`.",
        set!(storage.analytics_database, optional_text),
    )
    .env("SERVICE_ANALYTICS_DATABASE"),
    Setting::built(
        "storage.relational_url",
        Kind::Text,
        Literal::Null,
        "The relational store of the production profile, which keeps tenants, keys, reports, alerts, the audit log and what was \
         spent: a postgres:// address; `?sslmode=require` encrypts, `verify-full` checks the certificate, too.",
        set!(storage.relational_url, optional_secret),
    )
    .env("SERVICE_RELATIONAL_URL")
    .secret(),
    Setting::built(
        "storage.cache_url",
        Kind::Text,
        Literal::Null,
        "The cache of the production profile, by which gateways share rate limits: a redis:// or rediss:// address. It has to answer at \
         the start; while it is away each gateway grants its part of them.",
        set!(storage.cache_url, optional_secret),
    )
    .env("SERVICE_CACHE_URL")
    .secret(),
    Setting::built(
        "storage.ca_file",
        Kind::File,
        Literal::Null,
        "PEM file with the certificates that the stores of the production profile are checked against; null is the system's. Ours.",
        set!(storage.ca_file, optional_path),
    ),
    Setting::built(
        "storage.startup_timeout_ms",
        Kind::Int { min: 0, max: 3_600_000 },
        Literal::Int(60_000),
        "How long a start of the production profile waits for its stores before it ends with exit code 75. Ours.",
        set!(storage.startup_timeout_ms, int),
    ),
    Setting::built(
        "storage.shared_file",
        Kind::Bool,
        Literal::Bool(false),
        "Let several gateways use this database file at once. They have one record, the same keys and budgets; of each rate limit \
         each grants its part. Without it a second start is refused (exit code 75), but for one that takes over. Ours.",
        set!(storage.shared_file, flag),
    ),
    Setting::built(
        "storage.auto_migrate",
        Kind::Bool,
        Literal::Bool(true),
        "Run pending migrations at start.",
        set!(storage.auto_migrate, flag),
    ),
    Setting::built(
        "storage.migration_copy",
        Kind::Bool,
        Literal::Bool(true),
        "Copy the database beside itself (`<database_path>.schema-<version>`) before it is migrated; the copy of the last migration stays. Ours.",
        set!(storage.migration_copy, flag),
    ),
    Setting::built(
        "storage.retention_days",
        Kind::Int { min: 0, max: 36_500 },
        Literal::Int(0),
        "Days a trace is kept after its start; 0 keeps traces for ever. Ours.",
        set!(storage.retention_days, int),
    ),
    Setting::built(
        "storage.text_retention_days",
        Kind::Int { min: 0, max: 36_500 },
        Literal::Int(0),
        "Days the texts of a trace are kept after its start: what was said, asked of tools and quoted in findings. The rest of the \
         trace stays as long as the other bounds let it; 0 keeps texts as long as their traces. Ours.",
        set!(storage.text_retention_days, int),
    ),
    Setting::built(
        "storage.max_bytes",
        Kind::at_least(0),
        Literal::Null,
        "Bytes the database may hold before the oldest traces are removed, those of the tenant that holds most first; 0 is \
         no bound, null is what the file holds at the start and four fifths of the free space beside it. Ours.",
        set!(storage.max_bytes, optional_int),
    ),
    Setting::built(
        "storage.tenant_max_bytes",
        Kind::at_least(0),
        Literal::Int(0),
        "Bytes of records of one tenant before its own oldest traces are removed; 0 is no bound. Ours.",
        set!(storage.tenant_max_bytes, int),
    ),
    Setting::built(
        "storage.mask_secrets",
        Kind::Bool,
        Literal::Bool(true),
        "Keep a tag such as [SECRET:OPENAI_KEY] instead of what a detector calls a credential in the texts of a trace; what is \
         forwarded does not change. Ours.",
        set!(storage.mask_secrets, flag),
    ),
    Setting::built(
        "storage.erase",
        Kind::Choice(&["rows", "pages"]),
        Literal::Text("rows"),
        "rows: what is deleted is overwritten where it lies, as SQLite's secure_delete does. pages: so are copies that SQLite left in \
         the unused part of a page when it moved rows; the gateway then writes zeros there while SQLite writes pages into the \
         file. Ours.",
        set!(storage.erase, |v| one_of(v, &[("rows", StorageErase::Rows), ("pages", StorageErase::Pages)])),
    ),
    // --- logging; RUST_LOG overrides the filter and so comes after the level ---
    Setting::built(
        "logging.level",
        LEVELS,
        Literal::Text("info"),
        "Least severe level that is logged; RUST_LOG wins over it.",
        set!(logging.filter, owned_text),
    )
    .env("SERVICE_LOG_LEVEL"),
    Setting::built(
        "environment.RUST_LOG",
        Kind::Text,
        Literal::Null,
        "Log filter with per-module directives; wins over every other log level.",
        set!(logging.filter, owned_text),
    )
    .env("RUST_LOG"),
    Setting::built(
        "logging.format",
        Kind::Choice(&["text", "json"]),
        Literal::Text("text"),
        "text for people, json for one object per line.",
        set!(logging.format, |v| one_of(v, &[("text", LogFormat::Text), ("json", LogFormat::Json)])),
    )
    .env("SERVICE_LOG_FORMAT"),
    Setting::built(
        "logging.access",
        Kind::Choice(&["off", "text", "json"]),
        Literal::Text("off"),
        "One line per exchange on standard output: method, path without query, status, bytes, durations, tenant, trace, model. Ours.",
        set!(logging.access, |v| one_of(v, ACCESS_FORMATS)),
    )
    .env("SERVICE_LOG_ACCESS"),
];

const ACCESS_FORMATS: &[(&str, AccessFormat)] =
    &[("off", AccessFormat::Off), ("text", AccessFormat::Text), ("json", AccessFormat::Json)];

fn upstream(value: &Value) -> Result<Upstream, Unfit> {
    address::upstream(text(value)?).map_err(|_| Unfit)
}
