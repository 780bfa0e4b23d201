//! Rows of what stands around the data path: alerts, identity, ingest, judge, action router.
//!
//! What is not built in this version has its row all the same: the rows keep the paths, types
//! and defaults of the interface in one place.

use super::value::{flag, listen_addr, optional_path, optional_secret};
use super::{EnvRule, Field, Kind, Literal, Setting, set};

const ALERTS: &str = "alerting";
const JUDGE: &str = "the LLM judge";
const ROUTER: &str = "the action router";

/// A shorter one could be found by trying.
const ADMIN_KEY_CHARACTERS_MIN: usize = 16;

const OFF: Literal = Literal::Bool(false);
const ON: Literal = Literal::Bool(true);
const TEMPERATURE: Kind = Kind::Float { min: 0.0, max: 2.0 };
const BACKEND: Kind = Kind::Choice(&["selfhosted", "hostedcompat", "hostedmessages", "classifier"]);

const CHANNEL: &[Field] = &[
    Field::required("type", Kind::Choice(&["webhook", "email", "slack", "pagerduty"])),
    Field::optional("url", Kind::Name).alias("webhook_url"),
    Field::optional("routing_key", Kind::Name),
    Field::optional("min_severity", Kind::SEVERITY),
    Field::optional("min_security_score", Kind::SCORE),
];
const ESCALATION: &[Field] = &[Field::optional("escalate_after_seconds", Kind::at_least(1))];
const RULE: &[Field] = &[
    Field::optional("finding_type", Kind::Name),
    Field::optional("min_severity", Kind::SEVERITY),
    Field::optional("min_confidence", Kind::UNIT),
    Field::required("actions", Kind::TextList),
];

pub(super) static SETTINGS: &[Setting] = &[
    // --- alerts ---
    Setting::not_built("alerts.enabled", Kind::Bool, OFF, ALERTS),
    Setting::not_built("alerts.webhook_url", Kind::Text, Literal::Text(""), ALERTS).secret(),
    Setting::not_built("alerts.min_severity", Kind::SEVERITY, Literal::Text("High"), ALERTS),
    Setting::not_built("alerts.min_security_score", Kind::SCORE, Literal::Int(70), ALERTS),
    Setting::not_built("alerts.cooldown_seconds", Kind::at_least(0), Literal::Int(300), ALERTS),
    Setting::not_built("alerts.channels", Kind::Records(CHANNEL), Literal::EmptyList, ALERTS).secret(),
    Setting::not_built("alerts.escalation", Kind::Record(ESCALATION), Literal::Null, ALERTS),
    // --- ml_pipeline ---
    Setting::not_built("ml_pipeline.max_concurrent_requests", Kind::at_least(1), Literal::Int(8), "the ML pipeline")
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
    // --- judge ---
    Setting::not_built("judge.enabled", Kind::Bool, OFF, JUDGE).wire("llm_judge_enabled"),
    Setting::not_built(
        "judge.backend",
        Kind::Choice(&["selfhosted", "hostedcompat", "hostedmessages", "classifier", "cascade"]),
        Literal::Text("selfhosted"),
        JUDGE,
    ),
    Setting::not_built("judge.min_score_threshold", Kind::SCORE, Literal::Int(30), JUDGE),
    Setting::not_built("judge.persist_verdicts", Kind::Bool, ON, JUDGE),
    Setting::not_built("judge.system_prompt", Kind::Text, Literal::Null, JUDGE),
    Setting::not_built("judge.selfhosted.base_url", Kind::UpstreamUrl, Literal::Text("http://localhost:8000"), JUDGE),
    Setting::not_built("judge.selfhosted.model", Kind::Name, Literal::Null, JUDGE),
    Setting::not_built("judge.selfhosted.max_tokens", Kind::u32_at_least(1), Literal::Int(512), JUDGE),
    Setting::not_built("judge.selfhosted.temperature", TEMPERATURE, Literal::Float(0.1), JUDGE),
    Setting::not_built("judge.selfhosted.allow_plaintext", Kind::Bool, OFF, JUDGE),
    Setting::not_built(
        "judge.hostedcompat.base_url",
        Kind::UpstreamUrl,
        Literal::Text("https://api.openai.com"),
        JUDGE,
    ),
    Setting::not_built("judge.hostedcompat.model", Kind::Name, Literal::Null, JUDGE),
    Setting::not_built("judge.hostedcompat.max_tokens", Kind::u32_at_least(1), Literal::Int(512), JUDGE),
    Setting::not_built("judge.hostedcompat.temperature", TEMPERATURE, Literal::Float(0.1), JUDGE),
    Setting::not_built(
        "judge.hostedmessages.base_url",
        Kind::UpstreamUrl,
        Literal::Text("https://api.anthropic.com"),
        JUDGE,
    ),
    Setting::not_built("judge.hostedmessages.model", Kind::Name, Literal::Null, JUDGE),
    Setting::not_built("judge.hostedmessages.max_tokens", Kind::u32_at_least(1), Literal::Int(512), JUDGE),
    Setting::not_built("judge.hostedmessages.temperature", TEMPERATURE, Literal::Float(0.1), JUDGE),
    Setting::not_built("judge.classifier.model_id", Kind::Name, Literal::Text("embedded"), JUDGE),
    Setting::not_built("judge.classifier.threshold", Kind::UNIT, Literal::Float(0.5), JUDGE),
    Setting::not_built("judge.classifier.cache_dir", Kind::File, Literal::Null, JUDGE),
    Setting::not_built("judge.cascade.fast_backend", BACKEND, Literal::Text("classifier"), JUDGE),
    Setting::not_built("judge.cascade.slow_backend", BACKEND, Literal::Null, JUDGE),
    Setting::not_built("judge.cascade.ambiguous_low", Kind::UNIT, Literal::Float(0.3), JUDGE),
    Setting::not_built("judge.cascade.ambiguous_high", Kind::UNIT, Literal::Float(0.7), JUDGE),
    Setting::not_built("judge.retry.max_retries", Kind::u32_at_least(0), Literal::Int(2), JUDGE),
    Setting::not_built("judge.retry.backoff_base_ms", Kind::millis(0), Literal::Int(1_000), JUDGE),
    Setting::not_built("judge.promotion.min_confidence", Kind::UNIT, Literal::Float(0.7), JUDGE),
    Setting::not_built("judge.promotion.min_security_score", Kind::SCORE, Literal::Int(60), JUDGE),
    Setting::not_built("judge.promotion.require_ensemble_support", Kind::Bool, ON, JUDGE),
    Setting::not_built("judge.promotion.shadow", Kind::Bool, OFF, JUDGE),
    Setting::not_built("judge.worker.channel_buffer", Kind::at_least(1), Literal::Int(1_000), JUDGE),
    Setting::not_built("judge.worker.max_concurrency", Kind::at_least(1), Literal::Int(4), JUDGE),
    Setting::not_built("judge.worker.timeout_ms", Kind::millis(1), Literal::Int(30_000), JUDGE),
    Setting::not_built("judge.worker.max_analysis_text_bytes", Kind::at_least(1), Literal::Int(65_536), JUDGE),
    Setting::not_built("judge.worker.total_deadline_ms", Kind::millis(0), Literal::Int(45_000), JUDGE),
    Setting::not_built("environment.SERVICE_JUDGE_HOSTEDCOMPAT_API_KEY", Kind::Name, Literal::Null, JUDGE)
        .env("SERVICE_JUDGE_HOSTEDCOMPAT_API_KEY")
        .secret(),
    Setting::not_built("environment.SERVICE_JUDGE_HOSTEDMESSAGES_API_KEY", Kind::Name, Literal::Null, JUDGE)
        .env("SERVICE_JUDGE_HOSTEDMESSAGES_API_KEY")
        .secret(),
    Setting::built(
        "environment.SERVICE_GOLDEN_SET_PATH",
        Kind::File,
        Literal::Null,
        "Folder of the golden set that /debug/judge/golden_set/replay looks at; one ships in config/golden_set.",
        set!(golden_set_path, optional_path),
    )
    .env("SERVICE_GOLDEN_SET_PATH"),
    // --- action_router ---
    Setting::not_built("action_router.enabled", Kind::Bool, OFF, ROUTER),
    Setting::not_built("action_router.default_actions", Kind::TextList, Literal::Texts(&["log"]), ROUTER),
    Setting::not_built("action_router.rules", Kind::Records(RULE), Literal::EmptyList, ROUTER),
    Setting::not_built("action_router.ip_block.ttl_seconds", Kind::at_least(1), Literal::Int(3_600), ROUTER),
    Setting::not_built("action_router.ip_block.max_offenses", Kind::u32_at_least(1), Literal::Int(3), ROUTER),
    Setting::not_built("action_router.webhook.url", Kind::Text, Literal::Text(""), ROUTER).secret(),
    Setting::not_built("action_router.webhook.timeout_ms", Kind::millis(1), Literal::Int(5_000), ROUTER),
    Setting::not_built("action_router.judge_route.inline_await", Kind::Bool, OFF, ROUTER),
    Setting::not_built("action_router.judge_route.inline_timeout_ms", Kind::millis(1), Literal::Int(10_000), ROUTER),
];
