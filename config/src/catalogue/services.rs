//! Rows of what stands around the data path: identity, ingest.
//!
//! What is not built in this version has its row all the same: the rows keep the paths, types
//! and defaults of the interface in one place.

use super::value::{flag, int, listen_addr, optional_path, optional_secret};
use super::{EnvRule, Kind, Literal, Setting, set};

/// A shorter one could be found by trying.
const ADMIN_KEY_CHARACTERS_MIN: usize = 16;

const OFF: Literal = Literal::Bool(false);

pub(super) static SETTINGS: &[Setting] = &[
    // --- ml_pipeline ---
    Setting::built(
        "ml_pipeline.max_concurrent_requests",
        Kind::at_least(1),
        Literal::Int(8),
        "Most requests that may wait at a time for what ONNX models say of them, in block and flag mode; more are refused with 503.",
        set!(ml_max_concurrent, int),
    )
    .env("SERVICE_ML_MAX_CONCURRENT"),
    // --- ingest, auth ---
    Setting::built(
        "otel_ingest.enabled",
        Kind::Bool,
        OFF,
        "Take traces that applications report by OTLP/HTTP: POST /v1/traces, JSON or protobuf.",
        set!(otel_ingest.enabled, flag),
    ),
    Setting::built(
        "auth.enabled",
        Kind::Bool,
        OFF,
        "Demand an API key or a tenant token of every caller; false lets anybody in as administrator of any tenant.",
        set!(auth.enabled, flag),
    )
    .env_rule("SERVICE_AUTH_ENABLED", EnvRule::TruthyOrFalse),
    Setting::built(
        "auth.admin_key",
        Kind::Credential { min: ADMIN_KEY_CHARACTERS_MIN },
        Literal::Null,
        "Bootstrap key with the admin role, for creating the first tenants and keys; make it with `openssl rand -hex 32`, \
         and remove it once an admin key exists.",
        set!(auth.admin_key, optional_secret),
    )
    .env("SERVICE_AUTH_ADMIN_KEY")
    .secret(),
    Setting::built(
        "auth.token_key_file",
        Kind::File,
        Literal::Null,
        "File with the secret that tenant tokens are derived from, created at first need; null keeps it beside the \
         database as <database_path>.key. Lose it and every tenant token changes.",
        set!(auth.token_key_file, optional_path),
    ),
    Setting::built(
        "auth.max_stale_seconds",
        Kind::Int { min: 1, max: 31_536_000 },
        Literal::Int(3_600),
        "Seconds for which keys and tokens are taken as they were last read while the relational store of the production profile \
         does not answer; afterwards they are refused with 503 until it does, but for the bootstrap key. Ours.",
        set!(auth.max_stale_seconds, int),
    ),
    Setting::built(
        "grpc.enabled",
        Kind::Bool,
        OFF,
        "Take spans that applications report by gRPC, in the format of proto/weir/traces/v1/traces.proto; over TLS where \
         enable_tls is true.",
        set!(grpc.enabled, flag),
    ),
    Setting::built(
        "grpc.listen_addr",
        Kind::ListenAddr,
        Literal::Text("0.0.0.0:50051"),
        "Address and port of the gRPC listener; not that of listen_addr.",
        set!(grpc.listen_addr, listen_addr),
    ),
    Setting::built(
        "environment.SERVICE_GOLDEN_SET_PATH",
        Kind::File,
        Literal::Null,
        "Folder of the golden set that /debug/judge/golden_set/replay looks at; one ships in config/golden_set.",
        set!(golden_set_path, optional_path),
    )
    .env("SERVICE_GOLDEN_SET_PATH"),
];
