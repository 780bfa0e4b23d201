//! Every row of the table through every layer that can carry it.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::Value;
use weir_config::catalogue::{self, Build, Literal, OnReload, Setting};
use weir_config::prices::Price;
use weir_config::settings::*;
use weir_config::vocab::{Provider, Severity, SharedSecret};
use weir_config::{Change, Changes, Origin, Settings, Sources, effective, load};

use crate::{Bench, HEARD_WHERE_WRITTEN, only};

/// A value other than the default for a built setting, as YAML, and what it changes.
struct Sample {
    path: &'static str,
    yaml: &'static str,
    change: fn(&mut Settings),
}

const TENANT: &str = "6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10";

fn sample(path: &'static str, yaml: &'static str, change: fn(&mut Settings)) -> Sample {
    Sample { path, yaml, change }
}

fn samples() -> Vec<Sample> {
    vec![
        sample("listen_addr", "'127.0.0.1:9000'", |s| s.listen_addr = SocketAddr::from(([127, 0, 0, 1], 9000))),
        sample("upstream_url", "http://10.0.0.1:11434/v1", |s| {
            s.upstream = Upstream {
                scheme: Scheme::Http,
                host: "10.0.0.1".into(),
                port: 11434,
                authority: "10.0.0.1:11434".into(),
                path_prefix: "/v1".into(),
            };
        }),
        sample("upstream_ca_file", "/etc/ca.pem", |s| s.upstream_ca_file = Some("/etc/ca.pem".into())),
        sample("upstream_api_key", "sk-upstream", |s| s.upstream_api_key = Some(SharedSecret::new("sk-upstream"))),
        sample("upstreams", "{a: {url: 'http://10.0.0.1:1', providers: [vllm], api_key: sk-of-a-1, weight: 2}}", |s| {
            s.upstreams.members = vec![NamedUpstream {
                name: "a".into(),
                endpoint: Upstream {
                    scheme: Scheme::Http,
                    host: "10.0.0.1".into(),
                    port: 1,
                    authority: "10.0.0.1:1".into(),
                    path_prefix: String::new(),
                },
                egress: Default::default(),
                providers: vec![Provider::named("vllm")],
                api_key: Some(SharedSecret::new("sk-of-a-1")),
                ca_file: None,
                timeout_ms: None,
                connection_timeout_ms: None,
                max_connections: None,
                weight: 2,
            }];
        }),
        sample("upstream_groups", "{g: {upstreams: [default], balance: weights, sticky: true}}", |s| {
            s.upstreams.groups = vec![UpstreamGroup {
                name: "g".into(),
                members: vec!["default".into()],
                providers: Vec::new(),
                balance: Balance::Weights,
                sticky: true,
                retry_refused: false,
            }];
        }),
        sample("routes", "[{model: 'gpt-*', upstream: default}]", |s| {
            let model = Some(Pattern::new("gpt-*"));
            s.upstreams.routes = vec![RouteRule { model, path: None, upstream: "default".into() }];
        }),
        sample("upstream_health.eject_after", "7", |s| s.upstreams.health.eject_after = 7),
        sample("upstream_health.eject_ms", "8", |s| s.upstreams.health.eject_ms = 8),
        sample("upstream_health.panic_percent", "9", |s| s.upstreams.health.panic_percent = 9),
        sample("upstream_health.left_after_ms", "10", |s| s.upstreams.health.left_after_ms = 10),
        sample("enable_tls", "true\ntls_cert_file: c.pem\ntls_key_file: k.pem", |s| {
            (s.enable_tls, s.tls_cert_file, s.tls_key_file) = (true, Some("c.pem".into()), Some("k.pem".into()));
        }),
        sample("tls_cert_file", "/etc/weir/cert.pem", |s| s.tls_cert_file = Some("/etc/weir/cert.pem".into())),
        sample("tls_key_file", "/etc/weir/key.pem", |s| s.tls_key_file = Some("/etc/weir/key.pem".into())),
        sample("enable_security_analysis", "false", |s| s.enable_security_analysis = false),
        sample("enable_trace_storage", "false", |s| s.enable_trace_storage = false),
        sample("enable_streaming", "false", |s| s.enable_streaming = false),
        sample("llm_advisory_injection_enabled", "false", |s| s.llm_advisory_injection_enabled = false),
        sample("llm_advisory_shadow_mode", "true", |s| s.llm_advisory_shadow_mode = true),
        sample("llm_advisory_min_severity", "High", |s| s.llm_advisory_min_severity = Severity::High),
        sample("max_request_size_bytes", "1", |s| s.limits.max_request_size_bytes = 1),
        sample("max_response_size_bytes", "2", |s| s.limits.max_response_size_bytes = 2),
        sample("timeout_ms", "3", |s| s.limits.timeout_ms = 3),
        sample("stream_idle_timeout_ms", "4", |s| s.limits.stream_idle_timeout_ms = 4),
        sample("connection_timeout_ms", "5", |s| s.limits.connection_timeout_ms = 5),
        sample("max_connections", "6", |s| s.limits.max_connections = 6),
        sample("security_analysis_timeout_ms", "7", |s| s.limits.security_analysis_timeout_ms = 7),
        sample("trace_storage_timeout_ms", "8", |s| s.limits.trace_storage_timeout_ms = 8),
        sample("storage.profile", "memory", |s| s.storage.profile = StorageProfile::Memory),
        sample("storage.database_path", "/var/lib/x.db", |s| s.storage.database_path = "/var/lib/x.db".into()),
        sample("storage.shared_file", "true", |s| s.storage.shared_file = true),
        sample("storage.analytics_url", "http://a:8123", |s| {
            s.storage.analytics_url = Some(SharedSecret::new("http://a:8123"));
        }),
        sample("storage.analytics_database", "weir", |s| s.storage.analytics_database = Some("weir".to_owned())),
        sample("storage.relational_url", "postgres://b/weir", |s| {
            s.storage.relational_url = Some(SharedSecret::new("postgres://b/weir"));
        }),
        sample("storage.cache_url", "redis://c", |s| s.storage.cache_url = Some(SharedSecret::new("redis://c"))),
        sample("storage.ca_file", "/etc/stores.pem", |s| s.storage.ca_file = Some("/etc/stores.pem".into())),
        sample("storage.startup_timeout_ms", "5", |s| s.storage.startup_timeout_ms = 5),
        sample("storage.auto_migrate", "false", |s| s.storage.auto_migrate = false),
        sample("storage.migration_copy", "false", |s| s.storage.migration_copy = false),
        sample("storage.retention_days", "30", |s| s.storage.retention_days = 30),
        sample("storage.text_retention_days", "7", |s| s.storage.text_retention_days = 7),
        sample("storage.max_bytes", "1073741824", |s| s.storage.max_bytes = Some(1_073_741_824)),
        sample("storage.tenant_max_bytes", "1048576", |s| s.storage.tenant_max_bytes = 1_048_576),
        sample("logging.level", "debug", |s| s.logging.filter = "debug".into()),
        sample("logging.format", "json", |s| s.logging.format = LogFormat::Json),
        sample("logging.access", "json", |s| s.logging.access = AccessFormat::Json),
        sample("circuit_breaker.enabled", "false", |s| s.circuit_breaker.enabled = false),
        sample("circuit_breaker.failure_threshold", "0", |s| s.circuit_breaker.failure_threshold = 0),
        sample("circuit_breaker.recovery_timeout_ms", "0", |s| s.circuit_breaker.recovery_timeout_ms = 0),
        sample("circuit_breaker.half_open_max_calls", "9", |s| s.circuit_breaker.half_open_max_calls = 9),
        sample("circuit_breaker.scope", "subsystem", |s| s.circuit_breaker.scope = BreakerScope::Subsystem),
        sample("health_check.path", "/status/live", |s| s.health_check.path = "/status/live".into()),
        sample("health_check.enabled", "false", |s| s.health_check.enabled = false),
        sample("health_check.interval_seconds", "7", |s| s.health_check.interval_seconds = 7),
        sample("health_check.timeout_ms", "70", |s| s.health_check.timeout_ms = 70),
        sample("health_check.retries", "5", |s| s.health_check.retries = 5),
        sample("rate_limiting.enabled", "false", |s| s.rate_limiting.enabled = false),
        sample("rate_limiting.requests_per_second", "10", |s| s.rate_limiting.default.requests_per_second = 10),
        sample("rate_limiting.burst_size", "11", |s| s.rate_limiting.default.burst_size = 11),
        sample("rate_limiting.window_seconds", "12", |s| s.rate_limiting.window_seconds = 12),
        sample(
            "rate_limiting.tenant_overrides",
            "{6F1C2B1E-0d5a-4c6f-9e7b-0d9a4c3b2a10: {requests_per_second: 1, burst_size: 2}}",
            |s| {
                let limit = RateLimit { requests_per_second: 1, burst_size: 2 };
                s.rate_limiting.tenant_overrides.insert(TENANT.parse().unwrap(), limit);
            },
        ),
        sample("cost_estimation.enabled", "false", |s| s.cost_estimation.enabled = false),
        sample("cost_estimation.pricing_file", "/etc/prices.json", |s| {
            s.cost_estimation.pricing_file = Some("/etc/prices.json".into());
        }),
        sample(
            "cost_estimation.custom_models",
            "{own-model: {input_per_million: 0.15, output_per_million: 2, cache_read_per_million: 0.075}}",
            |s| {
                let price = Price { input: 150_000, output: 2_000_000, cache_read: Some(75_000), ..Price::default() };
                s.cost_estimation.custom_models.insert("own-model".into(), price);
            },
        ),
        sample("cost_estimation.tokenizer", "estimate", |s| s.cost_estimation.tokenizer = Tokenizer::Estimate),
        sample("cost_estimation.trust_provider_header", "true", |s| s.cost_estimation.trust_provider_header = true),
        sample("cost_caps.enabled", "true", |s| s.cost_caps.enabled = true),
        sample(
            "cost_caps.default_budget_caps",
            "[{window: daily, hard_limit_usd: 0.1, soft_limit_usd: 0.05}, {window: daily, hard_limit_usd: 2}]",
            |s| {
                let budget = Budget { hard_nano_usd: 100_000_000, soft_nano_usd: Some(50_000_000) };
                s.cost_caps.default_budgets = [None, Some(budget), None, None];
            },
        ),
        sample("cost_caps.tenant_budget_caps", "[{window: hourly, hard_limit_usd: 0.5}]", |s| {
            let budget = Budget { hard_nano_usd: 500_000_000, soft_nano_usd: None };
            s.cost_caps.tenant_budgets = [Some(budget), None, None, None];
        }),
        sample("cost_caps.default_token_cap", "{max_total_tokens: 4096}", |s| {
            s.cost_caps.default_tokens = Some(TokenCap { max_total_tokens: Some(4_096), ..TokenCap::default() });
        }),
        sample(
            "cost_caps.agents",
            "[{agent_id: a, budget_caps: [{window: monthly, hard_limit_usd: 1e9}]}, {agent_id: b, token_cap: {}}]",
            |s| {
                let budget = Budget { hard_nano_usd: 1_000_000_000_000_000_000, soft_nano_usd: None };
                let a = AgentCaps { budgets: Some([None, None, None, Some(budget)]), tokens: None };
                let b = AgentCaps { budgets: None, tokens: Some(TokenCap::default()) };
                s.cost_caps.agents.extend([("a".to_owned(), a), ("b".to_owned(), b)]);
            },
        ),
        sample("cost_caps.reserve_completion_tokens", "0", |s| {
            s.cost_caps.reserve_completion_tokens = ReserveTokens(0);
        }),
        sample("cost_caps.status", "402", |s| s.cost_caps.status = CapStatus(402)),
        sample("enforcement.mode", "block", |s| s.enforcement.mode = EnforcementMode::Block),
        sample("enforcement.analysis_depth", "fast", |s| s.enforcement_analysis_depth = AnalysisDepth::Fast),
        sample("enforcement.min_severity", "Critical", |s| s.enforcement.min_severity = Severity::Critical),
        sample("enforcement.min_confidence", "1", |s| s.enforcement.min_confidence = 1.0),
        sample("enforcement.timeout_ms", "13", |s| s.enforcement.timeout_ms = 13),
        sample("enforcement.scope", "new", |s| s.enforcement.scope = EnforcementScope::New),
        sample("enforcement.retrying_clients", "[another]", |s| {
            s.enforcement.retrying_clients = vec!["another".to_owned()]
        }),
        sample(
            "enforcement.categories",
            "[{finding_type: pii_detected, action: flag}, {finding_type: jailbreak, action: block}]",
            |s| {
                s.enforcement.categories = vec![
                    ("pii_detected".into(), EnforcementAction::Flag),
                    ("jailbreak".into(), EnforcementAction::Block),
                ];
            },
        ),
        sample("pii.action", "redact_silent", |s| s.pii_action = PiiAction::RedactSilent),
        sample("pii.shadow_mode", "true", |s| s.pii_shadow_mode = true),
        sample("pii.redact_answers", "secrets", |s| s.pii_redact_answers = RedactAnswers::Secrets),
        sample("pii.redact_answers_shadow_mode", "true", |s| s.pii_redact_answers_shadow_mode = true),
        sample("output_safety.enabled", "true", |s| s.output_safety.enabled = true),
        sample("output_safety.block_on_critical", "true", |s| s.output_safety.block_on_critical = true),
        sample("anomaly_detection.enabled", "true", |s| s.anomaly_detection.enabled = true),
        sample("anomaly_detection.window_size", "40", |s| s.anomaly_detection.window_size = 40),
        sample("anomaly_detection.sigma_threshold", "4.5", |s| s.anomaly_detection.sigma_threshold = 4.5),
        sample("anomaly_detection.method", "robust", |s| s.anomaly_detection.method = AnomalyMethod::Robust),
        sample("anomaly_detection.check_cost", "false", |s| s.anomaly_detection.check_cost = false),
        sample("anomaly_detection.check_tokens", "false", |s| s.anomaly_detection.check_tokens = false),
        sample("anomaly_detection.check_velocity", "false", |s| s.anomaly_detection.check_velocity = false),
        sample("anomaly_detection.check_latency", "false", |s| s.anomaly_detection.check_latency = false),
        sample("streaming_analysis.enabled", "true", |s| s.streaming_analysis.enabled = true),
        sample("streaming_analysis.token_interval", "20", |s| s.streaming_analysis.token_interval = 20),
        sample("streaming_analysis.output_enabled", "true", |s| s.streaming_analysis.output_enabled = true),
        sample("streaming_analysis.early_stop_on_critical", "true", |s| {
            s.streaming_analysis.early_stop_on_critical = true;
        }),
        sample("streaming_analysis.hold_back", "true", |s| s.streaming_analysis.hold_back = true),
        sample("storage.mask_secrets", "false", |s| s.storage.mask_secrets = false),
        sample("storage.erase", "pages", |s| s.storage.erase = StorageErase::Pages),
        sample("security_analysis.ml_enabled", "false", |s| s.security_analysis.ml_enabled = false),
        sample("security_analysis.second_stage_cpu_share", "0.25", |s| {
            s.security_analysis.second_stage_cpu_share = 0.25
        }),
        sample("security_analysis.finding_threshold", "0.25", |s| s.security_analysis.finding_threshold = Some(0.25)),
        sample("security_analysis.flag_threshold", "0.5", |s| s.security_analysis.flag_threshold = Some(0.5)),
        sample("security_analysis.block_threshold", "0.75", |s| s.security_analysis.block_threshold = Some(0.75)),
        sample("security_analysis.ml_threshold", "0.65", |s| s.security_analysis.ml_threshold = Some(0.65)),
        sample("security_analysis.ml_model", "/srv/models/m", |s| {
            s.security_analysis.ml_model = "/srv/models/m".into()
        }),
        sample("security_analysis.ml_cache_dir", "/srv/models", |s| {
            s.security_analysis.ml_cache_dir = Some("/srv/models".into());
        }),
        sample("security_analysis.ml_runtime_path", "/opt/ort", |s| {
            s.security_analysis.ml_runtime_path = Some("/opt/ort".into());
        }),
        sample("security_analysis.ml_hub_url", "http://127.0.0.1:9", |s| {
            s.security_analysis.ml_hub_url = Some("http://127.0.0.1:9".into());
        }),
        sample("security_analysis.ml_download_timeout_seconds", "9", |s| {
            s.security_analysis.ml_download_timeout_seconds = 9;
        }),
        sample("security_analysis.ml_preload", "false", |s| s.security_analysis.ml_preload = false),
        sample("security_analysis.guard_a_enabled", "true", |s| s.security_analysis.guard_a.enabled = true),
        sample("security_analysis.guard_a_model", "o/a", |s| s.security_analysis.guard_a.model = Some("o/a".into())),
        sample("security_analysis.guard_a_threshold", "0.6", |s| s.security_analysis.guard_a.threshold = Some(0.6)),
        sample("security_analysis.guard_b_enabled", "true", |s| s.security_analysis.guard_b.enabled = true),
        sample("security_analysis.guard_b_model", "o/b", |s| s.security_analysis.guard_b.model = Some("o/b".into())),
        sample("security_analysis.guard_b_threshold", "0.7", |s| s.security_analysis.guard_b.threshold = Some(0.7)),
        sample("security_analysis.ner_enabled", "true", |s| s.security_analysis.ner.enabled = true),
        sample("security_analysis.ner_model", "o/n", |s| s.security_analysis.ner.model = Some("o/n".into())),
        sample("security_analysis.jailbreak_threshold", "0.9", |s| s.security_analysis.jailbreak_threshold = Some(0.9)),
        sample("output_safety.toxicity_enabled", "true", |s| s.toxicity.enabled = true),
        sample("output_safety.toxicity_model", "o/t", |s| s.toxicity.model = Some("o/t".into())),
        sample("output_safety.toxicity_threshold", "0.6", |s| s.toxicity.threshold = Some(0.6)),
        sample("output_safety.hallucination_enabled", "true", |s| s.hallucination.enabled = true),
        sample("output_safety.hallucination_model", "o/h", |s| s.hallucination.model = Some("o/h".into())),
        sample("output_safety.hallucination_threshold", "0.4", |s| s.hallucination.threshold = Some(0.4)),
        sample("output_safety.hallucination_min_response_length", "9", |s| s.hallucination.min_response_length = 9),
        sample("ml_pipeline.max_concurrent_requests", "3", |s| s.ml_max_concurrent = 3),
        sample("security_analysis.operating_point", "high_recall", |s| {
            s.security_analysis.operating_point = OperatingPoint::HighRecall;
        }),
        sample("security_analysis.jailbreak_enabled", "false", |s| s.security_analysis.jailbreak_enabled = false),
        sample("security_analysis.fusion_enabled", "true", |s| s.security_analysis.fusion_enabled = true),
        sample("security_analysis.fusion_model_path", "/etc/weir/fusion.json", |s| {
            s.security_analysis.fusion_model_path = Some("/etc/weir/fusion.json".into());
        }),
        sample("security_analysis.over_defence", "true", |s| s.security_analysis.over_defence = true),
        sample("security_analysis.action_from_data", "refuse", |s| {
            s.security_analysis.action_from_data = ActionFromData::Refuse;
        }),
        sample("security_analysis.tool_changes", "refuse", |s| {
            s.security_analysis.tool_changes = ToolChanges::Refuse;
        }),
        sample("security_analysis.rules_dir", "/etc/weir/rules", |s| {
            s.security_analysis.rules_dir = Some("/etc/weir/rules".into());
        }),
        sample("security_analysis.max_analysis_text_bytes", "14", |s| s.security_analysis.max_analysis_text_bytes = 14),
        sample("security_analysis.zone_detection.enabled", "true", |s| s.security_analysis.zones.enabled = true),
        sample("security_analysis.zone_detection.mode", "operator", |s| {
            s.security_analysis.zones.mode = ZoneMode::Operator;
        }),
        sample("security_analysis.zone_detection.scan_instruction_zones", "true", |s| {
            s.security_analysis.zones.scan_instruction_zones = true;
        }),
        sample("boundary_defense.enabled", "true", |s| s.boundary_defense.enabled = true),
        sample("boundary_defense.shadow_mode", "true", |s| s.boundary_defense.shadow_mode = true),
        sample("boundary_defense.wrap_roles", "[tool, user]", |s| {
            s.boundary_defense.wrap_roles = vec!["tool".into(), "user".into()];
        }),
        sample("boundary_defense.delimiter", "untrusted", |s| s.boundary_defense.delimiter = "untrusted".into()),
        sample("boundary_defense.randomize_nonce", "true", |s| s.boundary_defense.randomize_nonce = true),
        sample("boundary_defense.inject_system_reminder", "false", |s| {
            s.boundary_defense.inject_system_reminder = false;
        }),
        sample("boundary_defense.system_reminder_text", "'Data.'", |s| {
            s.boundary_defense.system_reminder_text = "Data.".into();
        }),
        sample("boundary_defense.datamarking.enabled", "true", |s| {
            s.boundary_defense.datamarking.enabled = true;
        }),
        sample("boundary_defense.datamarking.shadow_mode", "false", |s| {
            s.boundary_defense.datamarking.shadow_mode = false;
        }),
        sample("boundary_defense.datamarking.marker_strategy.kind", "fixed\n      value: U+E0F0", |s| {
            let marking = &mut s.boundary_defense.datamarking;
            (marking.kind, marking.value) = (MarkerKind::Fixed, Some('\u{e0f0}'));
        }),
        sample("boundary_defense.datamarking.marker_strategy.value", "U+E0F0", |s| {
            s.boundary_defense.datamarking.value = Some('\u{e0f0}');
        }),
        sample("server.max_client_connections", "16", |s| s.server.max_client_connections = 16),
        sample("server.max_body_memory_bytes", "2000000", |s| s.server.max_body_memory_bytes = Some(2_000_000)),
        sample("server.max_client_connections_per_address", "17", |s| {
            s.server.max_client_connections_per_address = Some(17);
        }),
        sample("server.core_threads", "15", |s| s.server.core_threads = 15),
        sample("server.io_driver", "epoll", |s| s.server.io_driver = IoDriver::Epoll),
        sample("server.timing_header", "true", |s| s.server.timing_header = true),
        sample("server.debug_endpoints", "true", |s| s.server.debug_endpoints = true),
        sample("server.ui", "false", |s| s.server.ui = false),
        sample("server.metrics_addr", "'127.0.0.1:9100'", |s| {
            s.server.metrics_addr = Some(SocketAddr::from(([127, 0, 0, 1], 9100)));
        }),
        sample("server.allowed_hosts", "[llm.example.com, .internal.example]", |s| {
            s.web.allowed_hosts = vec!["llm.example.com".into(), ".internal.example".into()];
        }),
        sample("server.cors_allowed_origins", "['https://app.example.com:8443', 'null']", |s| {
            s.web.allowed_origins = vec!["https://app.example.com:8443".into(), "null".into()];
        }),
        sample("server.websocket", "deny", |s| s.websocket = Some(WebSocket::Deny)),
        sample("otel_ingest.enabled", "true", |s| s.otel_ingest.enabled = true),
        sample("otel_export.enabled", "true", |s| s.otel_export.enabled = true),
        sample("otel_export.service_name", "gateway", |s| s.otel_export.service_name = "gateway".into()),
        sample("otel_export.resource_attributes", "[deployment.environment.name=test]", |s| {
            s.otel_export.resource_attributes = vec!["deployment.environment.name=test".into()];
        }),
        sample(
            "otel_export.receivers",
            "[{name: a, endpoint: 'http://h:4318', headers: ['x=y'], timeout_ms: 7, compression: gzip, content: masked, semconv: '1.36', \
             tenants: [6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10], clean_sample_rate: 0.5, reported: true, tries: true, \
             metrics_endpoint: 'http://m:4318/m', protocol: http/protobuf}]",
            |s| {
                s.otel_export.receivers = vec![OtelReceiver {
                    name: Some("a".into()),
                    endpoint: Some(SharedSecret::new("http://h:4318")),
                    traces_endpoint: None,
                    headers: vec![SharedSecret::new("x=y")],
                    timeout_ms: Some(7),
                    compression: Some(OtelCompression::Gzip),
                    content: OtelContent::Masked,
                    semconv: OtelSemconv::V1_36,
                    tenants: vec![TENANT.parse().unwrap()],
                    clean_sample_rate: 0.5,
                    reported: true,
                    metrics: false,
                    metrics_endpoint: Some(SharedSecret::new("http://m:4318/m")),
                    tries: true,
                }];
            },
        ),
        sample("otel_export.metrics_interval_seconds", "7", |s| s.otel_export.metrics_interval_seconds = 7),
        sample("receipts.enabled", "true", |s| s.receipts.enabled = true),
        sample("receipts.key_file", "/k", |s| s.receipts.key_file = Some("/k".into())),
        sample("receipts.directory", "/r", |s| s.receipts.directory = Some("/r".into())),
        sample("receipts.retention_days", "7", |s| s.receipts.retention_days = 7),
        sample("siem_export.enabled", "true", |s| s.siem_export.enabled = true),
        sample(
            "siem_export.receivers",
            "[{name: a, url: 'tls://h:6514', format: ocsf, min_severity: High, refusals: false, evidence: true, \
             tenants: [6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10], max_per_second: 7}, {url: 'https://h/x', batch: splunk, \
             headers: ['Authorization=Splunk 7'], timeout_ms: 7, compression: gzip}]",
            |s| {
                s.siem_export.receivers = vec![SiemReceiver {
                    name: Some("a".into()),
                    url: SharedSecret::new("tls://h:6514"),
                    format: SiemFormat::Ocsf,
                    min_severity: Severity::High,
                    refusals: false,
                    evidence: true,
                    tenants: vec![TENANT.parse().unwrap()],
                    max_per_second: Some(7),
                    batch: SiemBatch::Ndjson,
                    headers: Vec::new(),
                    token: None,
                    token_file: None,
                    timeout_ms: None,
                    compression: OtelCompression::None,
                }];
                s.siem_export.receivers.push(SiemReceiver {
                    name: None,
                    url: SharedSecret::new("https://h/x"),
                    min_severity: Severity::Low,
                    refusals: true,
                    evidence: false,
                    tenants: Vec::new(),
                    max_per_second: None,
                    batch: SiemBatch::Splunk,
                    headers: vec![SharedSecret::new("Authorization=Splunk 7")],
                    timeout_ms: Some(7),
                    compression: OtelCompression::Gzip,
                    ..s.siem_export.receivers[0].clone()
                });
            },
        ),
        sample("alerts.enabled", "true", |s| s.alerts.enabled = true),
        sample("alerts.console_url", "https://weir.example", |s| {
            s.alerts.console_url = Some("https://weir.example".into());
        }),
        sample("alerts.webhook_url", "https://h/hook", |s| {
            s.alerts.webhook_url = Some(SharedSecret::new("https://h/hook"));
        }),
        sample("alerts.min_severity", "Medium", |s| s.alerts.min_severity = Severity::Medium),
        sample("alerts.min_security_score", "7", |s| s.alerts.min_security_score = 7),
        sample("alerts.cooldown_seconds", "7", |s| s.alerts.cooldown_seconds = 7),
        sample("alerts.channels", "[{type: slack, webhook_url: 'https://h/hook', min_severity: Low}]", |s| {
            s.alerts.channels = vec![AlertChannel {
                kind: AlertKind::Slack,
                url: Some(SharedSecret::new("https://h/hook")),
                routing_key: None,
                secret: None,
                min_severity: Severity::Low,
                min_security_score: 70,
            }];
        }),
        sample("alerts.escalation", "{escalate_after_seconds: 7}", |s| s.alerts.escalate_after_seconds = Some(7)),
        sample("action_router.enabled", "true", |s| s.action_router.enabled = true),
        sample("action_router.default_actions", "[alert, log]", |s| {
            s.action_router.default_actions = [RouterAction::Log, RouterAction::Alert].into_iter().collect();
        }),
        sample("action_router.rules", "[{finding_type: jailbreak, min_confidence: 0.5, actions: [block_ip]}]", |s| {
            s.action_router.rules = vec![ActionRule {
                finding_type: Some("jailbreak".into()),
                min_severity: Severity::Info,
                min_confidence: 0.5,
                actions: RouterAction::BlockIp.into(),
            }];
        }),
        sample("action_router.ip_block.ttl_seconds", "7", |s| s.action_router.ip_block.ttl_seconds = 7),
        sample("action_router.ip_block.max_offenses", "8", |s| s.action_router.ip_block.max_offenses = 8),
        sample("action_router.ip_block.allow_shared", "true", |s| s.action_router.ip_block.allow_shared = true),
        sample("action_router.webhook.url", "https://h/hook", |s| {
            s.action_router.webhook.url = Some(SharedSecret::new("https://h/hook"));
        }),
        sample("action_router.webhook.timeout_ms", "9", |s| s.action_router.webhook.timeout_ms = 9),
        sample("action_router.webhook.secret", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", |s| {
            s.action_router.webhook.secret = Some(SharedSecret::new("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"));
        }),
        sample("grpc.enabled", "true", |s| s.grpc.enabled = true),
        sample("grpc.listen_addr", "'127.0.0.1:50052'", |s| {
            s.grpc.listen_addr = SocketAddr::from(([127, 0, 0, 1], 50_052));
        }),
        sample("auth.enabled", "true", |s| s.auth.enabled = true),
        sample("auth.admin_key", "bootstrap-0123456789", |s| {
            s.auth.admin_key = Some(SharedSecret::new("bootstrap-0123456789"));
        }),
        sample("auth.max_stale_seconds", "60", |s| s.auth.max_stale_seconds = 60),
        sample("auth.token_key_file", "/var/lib/x.key", |s| s.auth.token_key_file = Some("/var/lib/x.key".into())),
        sample("judge.selfhosted.base_url", "'https://judge.example/selfhosted'", |s| {
            s.judge.selfhosted.base_url = "https://judge.example/selfhosted".into();
        }),
        sample("judge.selfhosted.model", "m-selfhosted", |s| s.judge.selfhosted.model = "m-selfhosted".into()),
        sample("judge.selfhosted.max_tokens", "77", |s| s.judge.selfhosted.max_tokens = 77),
        sample("judge.selfhosted.temperature", "0.7", |s| s.judge.selfhosted.temperature = 0.7),
        sample("judge.hostedcompat.base_url", "'https://judge.example/hostedcompat'", |s| {
            s.judge.hostedcompat.base_url = "https://judge.example/hostedcompat".into();
        }),
        sample("judge.hostedcompat.model", "m-hostedcompat", |s| s.judge.hostedcompat.model = "m-hostedcompat".into()),
        sample("judge.hostedcompat.max_tokens", "77", |s| s.judge.hostedcompat.max_tokens = 77),
        sample("judge.hostedcompat.temperature", "0.7", |s| s.judge.hostedcompat.temperature = 0.7),
        sample("judge.hostedmessages.base_url", "'https://judge.example/hostedmessages'", |s| {
            s.judge.hostedmessages.base_url = "https://judge.example/hostedmessages".into();
        }),
        sample("judge.hostedmessages.model", "m-hostedmessages", |s| {
            s.judge.hostedmessages.model = "m-hostedmessages".into()
        }),
        sample("judge.hostedmessages.max_tokens", "77", |s| s.judge.hostedmessages.max_tokens = 77),
        sample("judge.hostedmessages.temperature", "0.7", |s| s.judge.hostedmessages.temperature = 0.7),
        sample("judge.enabled", "true", |s| s.judge.enabled = true),
        sample("judge.min_score_threshold", "31", |s| s.judge.min_score = 31),
        sample("judge.persist_verdicts", "false", |s| s.judge.persist = false),
        sample("judge.promotion.min_confidence", "0.8", |s| s.judge.promotion.min_confidence = 0.8),
        sample("judge.promotion.min_security_score", "61", |s| s.judge.promotion.min_security_score = 61),
        sample("judge.promotion.require_ensemble_support", "false", |s| {
            s.judge.promotion.require_ensemble_support = false;
        }),
        sample("judge.promotion.shadow", "true", |s| s.judge.promotion.shadow = true),
        sample("judge.worker.channel_buffer", "12", |s| s.judge.worker.queue = 12),
        sample("judge.worker.max_concurrency", "5", |s| s.judge.worker.at_once = 5),
        sample("action_router.judge_route.inline_await", "true", |s| s.action_router.inline_await = true),
        sample("action_router.judge_route.inline_timeout_ms", "13", |s| s.action_router.inline_timeout_ms = 13),
        sample("judge.backend", "cascade", |s| s.judge.backend = JudgeBackend::Cascade),
        sample("judge.system_prompt", "Judge.", |s| s.judge.system_prompt = Some("Judge.".into())),
        sample("judge.selfhosted.allow_plaintext", "true", |s| s.judge.allow_plaintext = true),
        sample("judge.classifier.model_id", "owner/orders", |s| s.judge.classifier.model = "owner/orders".to_owned()),
        sample("judge.classifier.threshold", "0.6", |s| s.judge.classifier.threshold = 0.6),
        sample("judge.classifier.cache_dir", "/srv/judges", |s| {
            s.judge.classifier.cache_dir = Some("/srv/judges".into());
        }),
        sample("judge.cascade.fast_backend", "selfhosted", |s| s.judge.cascade.fast = JudgeTier::SelfHosted),
        sample("judge.cascade.slow_backend", "hostedcompat", |s| {
            s.judge.cascade.slow = Some(JudgeTier::HostedCompat);
        }),
        sample("judge.cascade.ambiguous_low", "0.2", |s| s.judge.cascade.low = 0.2),
        sample("judge.cascade.ambiguous_high", "0.8", |s| s.judge.cascade.high = 0.8),
        sample("judge.retry.max_retries", "5", |s| s.judge.retry.max = 5),
        sample("judge.retry.backoff_base_ms", "6", |s| s.judge.retry.backoff_base_ms = 6),
        sample("judge.worker.timeout_ms", "7", |s| s.judge.worker.timeout_ms = 7),
        sample("judge.worker.max_analysis_text_bytes", "8", |s| s.judge.worker.max_text_bytes = 8),
        sample("judge.worker.total_deadline_ms", "9", |s| s.judge.worker.total_deadline_ms = 9),
        sample("shutdown.timeout_seconds", "0", |s| s.shutdown_timeout_seconds = 0),
    ]
}

/// `a.b` and a value as a nested document.
fn nested(path: &str, yaml: &str) -> String {
    let parts: Vec<&str> = path.split('.').collect();
    let mut text = String::new();
    for (depth, part) in parts.iter().enumerate() {
        text.push_str(&format!("{}{part}:", "  ".repeat(depth)));
        text.push_str(if depth + 1 == parts.len() { " " } else { "\n" });
    }
    text + yaml + "\n"
}

fn at<'a>(document: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(document, |value, part| value.get(part).unwrap_or_else(|| panic!("{path} is not shown")))
}

fn changed(change: fn(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

#[test]
fn without_any_source_everything_is_the_built_in_default() {
    let loaded = load(&Sources::default()).unwrap();
    assert_eq!(loaded.settings, Settings::default());
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert_eq!((loaded.config_file.clone(), loaded.overlay_path.clone()), (None, None));
    let shown = effective(&loaded);
    for setting in catalogue::settings() {
        assert_eq!(loaded.origins[setting.path], Origin::Default, "{}", setting.path);
        assert_eq!(at(&shown, setting.path), &setting.default.to_value(), "{}", setting.path);
    }
}

#[test]
fn every_built_setting_has_a_sample() {
    let built: BTreeSet<&str> = catalogue::settings()
        .filter(|setting| setting.in_file() && matches!(setting.build, Build::Built { .. }))
        .map(|setting| setting.path)
        .collect();
    let sampled: BTreeSet<&str> = samples().iter().map(|sample| sample.path).collect();
    assert_eq!(sampled, built);
}

#[test]
fn the_file_sets_every_built_setting() {
    for Sample { path, yaml, change } in samples() {
        let loaded = Bench::with_file(nested(path, yaml)).loaded();
        assert_eq!(loaded.settings, changed(change), "{path}");
        assert_ne!(loaded.settings, Settings::default(), "{path}: the sample is the default");
        assert_eq!(loaded.origins[path], Origin::File, "{path}");
    }
}

#[test]
fn every_setting_that_is_changed_in_the_file_is_in_force_or_named() {
    for Sample { path, yaml, change } in samples() {
        let setting = catalogue::by_path(path).unwrap();
        let bench = Bench::with_file("{}");
        let former = bench.loaded();
        assert_eq!(former.reread().unwrap().1, Changes::default());
        // What a flag needs may be written with it and wait for the next start; the test below has those.
        let is_taken = setting.on_reload() == OnReload::InForce;
        let changed = bench.write("service.yaml", nested(path, yaml));
        let (next, changes) = former.reread().unwrap();
        let [named, others] =
            if is_taken { [&changes.in_force, &changes.next_start] } else { [&changes.next_start, &changes.in_force] };
        // Some cannot be written alone.
        let Some(told) = named.iter().find(|change| change.path == path) else { panic!("{path}: {changes:?}") };
        assert!(others.iter().all(|change| change.path != path) && changes.overruled.is_empty(), "{changes:?}");
        assert!(told.from.ends_with("(default)") && told.to.ends_with("(file)"), "{told:?}");
        assert!(told.from != told.to && (!setting.secret || told.to == "(a secret) (file)"), "{told:?}");
        let expected = if is_taken { self::changed(change) } else { Settings::default() };
        assert_eq!(next.settings, expected, "{path}");
        assert_eq!(at(&effective(&next), path) != at(&effective(&former), path), is_taken, "{path}");
        // Named again by every reload until then, in either direction.
        let again = next.reread().unwrap().1;
        assert_eq!((again.in_force, again.next_start), (Vec::new(), changes.next_start.clone()), "{path}");
        let restarted = bench.loaded();
        assert_eq!(restarted.reread().unwrap().1, Changes::default(), "{path}");
        std::fs::write(changed, "{}").unwrap();
        let (back, changes) = restarted.reread().unwrap();
        let named = if is_taken { &changes.in_force } else { &changes.next_start };
        assert!(named.iter().any(|change| change.path == path), "{path} left out again: {changes:?}");
        assert_eq!(back.settings == Settings::default(), is_taken, "{path}");
    }
}

#[test]
fn a_reload_waits_for_what_a_flag_needs_keeps_what_was_changed_at_run_time_and_says_what_is_overruled() {
    let paths = |changes: &[Change]| changes.iter().map(|change| change.path).collect::<Vec<_>>();
    // The role waits for the next start, so the flag does.
    let bench = Bench::with_file("boundary_defense: {wrap_roles: []}");
    let former = bench.loaded();
    bench.write("service.yaml", "boundary_defense: {enabled: true, wrap_roles: [tool]}");
    let (next, changes) = former.reread().unwrap();
    assert_eq!(paths(&changes.next_start), ["boundary_defense.enabled", "boundary_defense.wrap_roles"]);
    assert!(!next.settings.boundary_defense.enabled && changes.in_force.is_empty());

    // A flag that was changed at run time and could not be written down holds until the next start.
    let bench = Bench::with_file("{}");
    let mode = |mode: &str| serde_json::Map::from_iter([("enforcement_mode".to_owned(), Value::from(mode))]);
    let former = bench.loaded().with_flags(&mode("block")).unwrap();
    let (next, changes) = former.reread().unwrap();
    assert_eq!((paths(&changes.next_start), next.settings), (vec!["enforcement.mode"], former.settings));

    // One that was written down wins over the file, and the reload says so, as it does of a variable.
    let bench = Bench::with_file("{}").overlay("enforcement_mode: flag").env(&[("SERVICE_LOG_LEVEL", "warn")]);
    let former = bench.loaded();
    bench.write("service.yaml", "enforcement: {mode: block}\nlogging: {level: error}");
    let (next, changes) = former.reread().unwrap();
    let overruled: Vec<_> = changes.overruled.iter().map(|(change, wins)| (change.path, &*change.to, *wins)).collect();
    let expected =
        [("logging.level", "error (file)", Origin::Env), ("enforcement.mode", "block (file)", Origin::Overlay)];
    assert_eq!(overruled.iter().collect::<BTreeSet<_>>(), expected.iter().collect::<BTreeSet<_>>());
    assert_eq!(next.settings, former.settings);
    // Its line taken out of the overlay, it holds until the next start; set back over the API, the file's holds.
    assert_eq!(next.with_flags(&mode("block")).unwrap().origins["enforcement.mode"], Origin::File);

    // Of a file that would not start nothing is obeyed.
    bench.write("service.yaml", "over_defence: true\nsecurity_analysis: {over_defence: true}");
    assert!(former.reread().is_err());
}

#[test]
fn writing_down_the_default_changes_nothing_but_where_it_matters_that_somebody_wrote_it() {
    for setting in catalogue::settings().filter(|setting| setting.in_file()) {
        let yaml = setting.default.to_value().to_string();
        let loaded = Bench::with_file(nested(setting.path, &yaml)).loaded();
        let is_heard = HEARD_WHERE_WRITTEN.contains(&setting.path);
        assert_eq!(loaded.settings != Settings::default(), is_heard, "{}", setting.path);
        assert_eq!(loaded.origins[setting.path], Origin::File, "{}", setting.path);
    }
}

/// Variable, its text, what it changes, and a YAML value that it has to beat.
type EnvSample = (&'static str, &'static str, fn(&mut Settings), &'static str);

fn env_samples() -> Vec<EnvSample> {
    vec![
        ("SERVICE_LISTEN_ADDR", ":1", |s| s.listen_addr = SocketAddr::from(([0, 0, 0, 0], 1)), "'[::]:2'"),
        (
            "SERVICE_UPSTREAM_URL",
            "https://h",
            |s| {
                s.upstream.host = "h".into();
                s.upstream.authority = "h".into();
            },
            "http://x",
        ),
        ("SERVICE_UPSTREAM_CA_FILE", "a.pem", |s| s.upstream_ca_file = Some("a.pem".into()), "b.pem"),
        (
            "SERVICE_UPSTREAM_API_KEY",
            "sk-upstream",
            |s| s.upstream_api_key = Some(SharedSecret::new("sk-upstream")),
            "sk-other-one",
        ),
        ("SERVICE_AUTH_ENABLED", "1", |s| s.auth.enabled = true, "false"),
        (
            "SERVICE_AUTH_ADMIN_KEY",
            "bootstrap-0123456789-01234",
            |s| s.auth.admin_key = Some(SharedSecret::new("bootstrap-0123456789-01234")),
            "bootstrap-9876543210-98765",
        ),
        ("SERVICE_STORAGE_PROFILE", "memory", |s| s.storage.profile = StorageProfile::Memory, "sqlite"),
        ("SERVICE_STORAGE_DATABASE_PATH", "a.db", |s| s.storage.database_path = "a.db".into(), "b.db"),
        (
            "SERVICE_ANALYTICS_URL",
            "https://a",
            |s| s.storage.analytics_url = Some(SharedSecret::new("https://a")),
            "https://b",
        ),
        ("SERVICE_ANALYTICS_DATABASE", "a", |s| s.storage.analytics_database = Some("a".to_owned()), "b"),
        (
            "SERVICE_RELATIONAL_URL",
            "postgres://a",
            |s| s.storage.relational_url = Some(SharedSecret::new("postgres://a")),
            "postgres://b",
        ),
        ("SERVICE_CACHE_URL", "redis://a", |s| s.storage.cache_url = Some(SharedSecret::new("redis://a")), "redis://b"),
        ("SERVICE_LOG_LEVEL", "warn", |s| s.logging.filter = "warn".into(), "error"),
        ("SERVICE_LOG_FORMAT", " json\n", |s| s.logging.format = LogFormat::Json, "text"),
        ("SERVICE_LOG_ACCESS", "json", |s| s.logging.access = AccessFormat::Json, "text"),
        ("SERVICE_RATE_LIMIT_RPS", "5", |s| s.rate_limiting.default.requests_per_second = 5, "6"),
        ("SERVICE_RATE_LIMIT_BURST", "7", |s| s.rate_limiting.default.burst_size = 7, "8"),
        ("SERVICE_SECOND_STAGE_CPU_SHARE", "0.75", |s| s.security_analysis.second_stage_cpu_share = 0.75, "0.5"),
        ("SERVICE_ML_ENABLED", "false", |s| s.security_analysis.ml_enabled = false, "true"),
        ("SERVICE_ML_PRELOAD", "no", |s| s.security_analysis.ml_preload = false, "true"),
        ("SERVICE_ML_CACHE_DIR", "m", |s| s.security_analysis.ml_cache_dir = Some("m".into()), "n"),
        ("SERVICE_ML_MAX_CONCURRENT", "2", |s| s.ml_max_concurrent = 2, "3"),
        ("SERVICE_OTEL_EXPORT_ENABLED", "yes", |s| s.otel_export.enabled = true, "false"),
        ("OTEL_SERVICE_NAME", "a", |s| s.otel_export.service_name = "a".into(), "b"),
        ("SERVICE_IO_DRIVER", "io_uring", |s| s.server.io_driver = IoDriver::IoUring, "epoll"),
    ]
}

#[test]
fn every_variable_of_a_built_setting_beats_the_file() {
    let mut left: BTreeSet<&str> = catalogue::settings()
        .filter(|setting| setting.in_file() && matches!(setting.build, Build::Built { .. }))
        .filter_map(|setting| setting.env.map(|(name, _)| name))
        .collect();
    for (name, text, change, beaten) in env_samples() {
        let setting = catalogue::settings().find(|setting| setting.env.is_some_and(|(env, _)| env == name)).unwrap();
        let loaded = Bench::with_file(nested(setting.path, beaten)).env(&[(name, text)]).loaded();
        assert_eq!(loaded.settings, changed(change), "{name}");
        assert_eq!(loaded.origins[setting.path], Origin::Env, "{name}");
        assert!(left.remove(name), "{name} is not in the table");
    }
    assert_eq!(left, BTreeSet::new(), "variables without a sample");
}

#[test]
fn an_empty_variable_counts_as_unset() {
    for setting in catalogue::settings() {
        let Some((name, _)) = setting.env else { continue };
        let loaded = load(&Sources { env: only(name, " "), ..Sources::default() }).unwrap();
        assert_eq!(loaded.origins[setting.path], Origin::Default, "{name}");
    }
}

#[test]
fn log_options_beat_environment_and_file_and_rust_log_beats_all() {
    let bench = Bench::with_file("logging: {level: error, format: text}")
        .env(&[("SERVICE_LOG_LEVEL", "warn"), ("SERVICE_LOG_FORMAT", "text")])
        .cli(Some("debug"), Some("json"));
    let loaded = bench.loaded();
    assert_eq!(
        loaded.settings.logging,
        Logging { filter: "debug".into(), format: LogFormat::Json, access: AccessFormat::Off }
    );
    assert_eq!(loaded.origins["logging.level"], Origin::Cli);
    assert_eq!(loaded.origins["logging.format"], Origin::Cli);

    let loaded = bench.env(&[("RUST_LOG", "info,weir::flow=trace")]).loaded();
    assert_eq!(loaded.settings.logging.filter, "info,weir::flow=trace");
    assert_eq!(at(&effective(&loaded), "logging.level"), "debug");
    assert_eq!(at(&effective(&loaded), "environment.RUST_LOG"), "info,weir::flow=trace");
    assert_eq!(loaded.origins["environment.RUST_LOG"], Origin::Env);
}

#[test]
fn the_request_cap_variable_lowers_the_proxied_cap_and_never_raises_it() {
    let limits = |file: &str, cap: &str| {
        let loaded = Bench::with_file(file).env(&[("SERVICE_MAX_REQUEST_BYTES", cap)]).loaded();
        let limits = loaded.settings.limits;
        (limits.max_request_size_bytes, limits.max_request_size_source, limits.max_api_request_bytes)
    };
    assert_eq!(limits("", ""), (52_428_800, "max_request_size_bytes", 1_048_576));
    assert_eq!(limits("", "2000"), (2_000, "SERVICE_MAX_REQUEST_BYTES", 2_000));
    assert_eq!(limits("max_request_size_bytes: 1000", "2000"), (1_000, "max_request_size_bytes", 2_000));
    assert_eq!(limits("max_request_size_bytes: 1000", "1000"), (1_000, "max_request_size_bytes", 1_000));
    assert_eq!(limits("max_request_size_bytes: 1000", ""), (1_000, "max_request_size_bytes", 1_048_576));
}

#[test]
fn config_and_overlay_paths_come_from_variables_too_and_options_win() {
    let mut bench = Bench::new();
    let a = bench.write("a.yaml", "timeout_ms: 1");
    let b = bench.write("b.yaml", "timeout_ms: 2");
    let flags = bench.write("flags.yaml", "enforcement_mode: flag");
    let variables = [("SERVICE_CONFIG", a.to_str().unwrap()), ("SERVICE_RUNTIME_CONFIG", flags.to_str().unwrap())];
    bench = bench.env(&variables);
    let loaded = bench.loaded();
    assert_eq!(loaded.settings.limits.timeout_ms, 1);
    assert_eq!(loaded.settings.enforcement.mode, EnforcementMode::Flag);
    assert_eq!((loaded.config_file, loaded.overlay_path), (Some(a), Some(flags)));

    bench.sources.config = Some(b.clone());
    bench.sources.runtime_config = Some(bench.dir.path().join("absent.yaml"));
    let loaded = bench.loaded();
    assert_eq!(loaded.settings.limits.timeout_ms, 2);
    assert_eq!(loaded.settings.enforcement.mode, EnforcementMode::Log);
    assert_eq!((loaded.config_file, loaded.warnings), (Some(b), Vec::new()));
}

#[test]
fn sources_in_a_log_show_no_value_of_the_environment() {
    let sources = Sources { env: only("OPENAI_API_KEY", "sk-canary"), ..Sources::default() };
    let shown = format!("{sources:?}");
    assert!(shown.contains("OPENAI_API_KEY") && !shown.contains("canary"), "{shown}");
}

// === what is not built ===

fn feature(setting: &Setting) -> Option<&'static str> {
    if let Build::NotBuilt { feature, .. } = setting.build { Some(feature) } else { None }
}

/// A value that is not the default.
fn other(setting: &Setting) -> &'static str {
    match setting.default {
        Literal::Bool(false) => "true",
        Literal::Bool(true) => "false",
        _ => "'something else'",
    }
}

#[test]
fn every_setting_that_is_not_built_is_refused_by_name() {
    for setting in catalogue::settings().filter(|setting| setting.in_file()) {
        let Some(feature) = feature(setting) else { continue };
        let errors = Bench::with_file(nested(setting.path, other(setting))).errors();
        let expected = format!("`{}`: {feature} is not built into this version; remove the setting", setting.path);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].ends_with(&expected), "{errors:?}");
    }
}

#[test]
fn every_variable_of_a_setting_that_is_not_built_is_refused_by_name() {
    for setting in catalogue::settings() {
        let (Some(feature), Some((name, _))) = (feature(setting), setting.env) else { continue };
        let text = match setting.default {
            Literal::Bool(true) => continue,
            Literal::Bool(false) => "yes",
            _ => "sk-canary-0000",
        };
        let errors = Bench::new().env(&[(name, text)]).errors();
        let path = setting.path.trim_start_matches("environment.");
        let expected = format!("{name}: `{path}`: {feature} is not built into this version; unset the variable");
        assert_eq!(errors, [expected]);
    }
}

#[test]
fn the_environment_switches_the_classifier_on_and_off() {
    assert!(Bench::new().loaded().settings.security_analysis.ml_enabled);
    let preload = "security_analysis: {ml_enabled: false, ml_preload: false}\n";
    assert!(!Bench::with_file(preload).loaded().settings.security_analysis.ml_enabled);
    let with = |value: &str| {
        let file = "security_analysis: {ml_enabled: true}\n";
        let loaded =
            Bench::with_file(file).env(&[("SERVICE_ML_ENABLED", value), ("SERVICE_ML_PRELOAD", "no")]).loaded();
        assert_eq!(at(&effective(&loaded), "security_analysis.ml_enabled"), &loaded.flags()["analyzer_ml_enabled"]);
        loaded.settings.security_analysis.ml_enabled
    };
    for off in ["0", "false", "No"] {
        assert!(!with(off), "{off}");
    }
    for on in ["1", "anything"] {
        assert!(with(on), "{on}");
    }
}

#[test]
fn the_classifier_is_as_strict_as_it_is_told() {
    let file = "security_analysis: {ml_threshold: 0.65, operating_point: high_recall}\n";
    let analysis = Bench::with_file(file).loaded().settings.security_analysis;
    assert_eq!((analysis.ml_threshold, analysis.operating_point), (Some(0.65), OperatingPoint::HighRecall));
    let defaults = Bench::new().loaded().settings.security_analysis;
    assert_eq!((defaults.ml_threshold, defaults.operating_point), (None, OperatingPoint::Balanced));
    // Written at its default it is written all the same: it wins over the operating point.
    let written = Bench::with_file("security_analysis: {ml_threshold: 0.8}\n").loaded().settings.security_analysis;
    assert_eq!(written.ml_threshold, Some(ML_THRESHOLD));
    let precise = Bench::with_file("security_analysis: {operating_point: high_precision}\n").loaded().settings;
    assert_eq!(precise.security_analysis.operating_point, OperatingPoint::HighPrecision);
    for (wrong, said) in [
        ("{ml_threshold: 1.5}", "`security_analysis.ml_threshold`: got 1.5"),
        ("{operating_point: strict}", "accepted: `balanced`, `high_recall` or `high_precision`"),
        ("{ml_model: ''}", "`security_analysis.ml_model`: got \"\""),
    ] {
        let errors = Bench::with_file(format!("security_analysis: {wrong}\n")).errors();
        assert!(errors.len() == 1 && errors[0].contains(said), "{wrong}: {errors:?}");
    }
}

#[test]
fn only_the_truthy_words_switch_authentication_on() {
    for off in ["false", "0", "on", "enabled", "2", "y", "truee"] {
        assert!(!Bench::new().env(&[("SERVICE_AUTH_ENABLED", off)]).loaded().settings.auth.enabled, "{off}");
    }
    for on in ["1", "true", "TRUE", "yes", "Yes"] {
        assert!(Bench::new().env(&[("SERVICE_AUTH_ENABLED", on)]).loaded().settings.auth.enabled, "{on}");
    }
    // The variable wins over the file, in both directions.
    let file = || Bench::with_file("auth: {enabled: true}\n");
    assert!(!file().env(&[("SERVICE_AUTH_ENABLED", "off")]).loaded().settings.auth.enabled);
    assert!(file().loaded().settings.auth.enabled);
}

#[test]
fn authentication_that_was_meant_is_never_off_in_silence() {
    let alarms =
        |file: &str, value: &str| Bench::with_file(file).env(&[("SERVICE_AUTH_ENABLED", value)]).loaded().alarms;
    for doubtful in ["on", "On", "enabled", "maybe", "tru", "2"] {
        let found = alarms("", doubtful);
        assert_eq!(found.len(), 1, "{doubtful}: {found:?}");
        assert!(found[0].starts_with("SERVICE_AUTH_ENABLED: the value is none of 1, true, yes, 0, false, no, off"));
    }
    for clear in ["1", "TRUE", "yes", "0", "False", "no", "off", "", " "] {
        assert_eq!(alarms("", clear), Vec::<String>::new(), "{clear}");
    }
    let key = "auth: {admin_key: a-key-of-twenty-four-characters}\n";
    assert!(alarms(key, "").concat().contains("`auth.admin_key` is set and `auth.enabled` is false"));
    assert_eq!(alarms(key, "maybe").len(), 2);
    assert_eq!(alarms(key, "true"), Vec::<String>::new());
}

#[test]
fn an_admin_key_that_may_be_guessed_is_doubted() {
    let warnings =
        |key: &str| Bench::with_file(format!("auth: {{enabled: true, admin_key: {key}}}\n")).loaded().warnings;
    let found = warnings("twenty-three-characters");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("`auth.admin_key` has 23 characters;"), "{found:?}");
    assert_eq!(warnings("twenty-four-characters-!"), Vec::<String>::new());
}

#[test]
fn a_credential_must_fit_a_header_field_and_resist_guessing() {
    let accepted = "accepted: visible ASCII text without blanks, at least 16 characters, or null";
    for bad in ["fifteen-letters", "two words that are long", "umlaut-\u{e4}\u{e4}\u{e4}\u{e4}", "tab\there-and-more"] {
        let errors = Bench::new().env(&[("SERVICE_AUTH_ADMIN_KEY", bad)]).errors();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(accepted) && !errors[0].contains(bad), "{errors:?}");
    }
}

/// At its default it asks for nothing, so nobody has to be told that it has no effect.
#[test]
fn what_is_not_built_is_off_by_default() {
    let off = |literal: &Literal| matches!(literal, Literal::Null | Literal::Bool(false));
    for setting in catalogue::settings().filter(|setting| feature(setting).is_some()) {
        assert!(off(&setting.default), "{}", setting.path);
        assert_eq!(weir_config::not_built().get(setting.path).copied(), feature(setting));
    }
    assert!(!weir_config::not_built().contains_key("enforcement.mode"));
}

#[test]
fn a_shadow_of_nothing_is_named() {
    for (settings, said) in [
        ("pii: {shadow_mode: true}", "`pii.shadow_mode` has no effect while `pii.action` is `alert_only`"),
        ("pii: {shadow_mode: true, action: redact_silent}", ""),
        (
            "pii: {redact_answers_shadow_mode: true}",
            "`pii.redact_answers_shadow_mode` has no effect while `pii.redact_answers` is `off`",
        ),
        ("pii: {redact_answers_shadow_mode: true, redact_answers: all}", ""),
        (
            "llm_advisory_shadow_mode: true\nllm_advisory_injection_enabled: false",
            "`llm_advisory_shadow_mode` has no effect while `llm_advisory_injection_enabled` is false",
        ),
        ("llm_advisory_shadow_mode: true", ""),
        (
            "cost_caps: {default_budget_caps: [{window: daily, hard_limit_usd: 5}]}",
            "the caps of `cost_caps` have no effect while `cost_caps.enabled` is false",
        ),
        (
            "cost_caps: {enabled: true, default_budget_caps: [{window: daily, hard_limit_usd: 5, soft_limit_usd: 5}]}",
            "",
        ),
        (
            "cost_caps: {enabled: true, agents: [{agent_id: a, budget_caps: [{window: daily, hard_limit_usd: 5, soft_limit_usd: 9}]}]}",
            "a `soft_limit_usd` of `cost_caps` is above the `hard_limit_usd` beside it",
        ),
    ] {
        let remarks = Bench::with_file(format!("{settings}\n")).loaded().remarks();
        assert_eq!(remarks.len(), usize::from(!said.is_empty()), "{remarks:?}");
        assert!(remarks.iter().all(|remark| remark.starts_with(said)), "{remarks:?}");
    }
}

#[test]
fn what_only_a_model_could_do_is_named_where_there_is_none() {
    for (settings, setting) in [
        ("security_analysis: {guard_a_enabled: true}", "guard_a"),
        ("security_analysis: {guard_b_enabled: true}", "guard_b"),
        ("security_analysis: {ner_enabled: true}", "ner"),
        ("output_safety: {enabled: true, hallucination_enabled: true}", "hallucination"),
    ] {
        let remarks = Bench::with_file(format!("{settings}\n")).loaded().remarks();
        let named = remarks.iter().filter(|remark| remark.contains(&format!("{setting}_model` names none")));
        assert_eq!(named.count(), 1, "{settings}: {remarks:?}");
        let with = settings.replace('}', &format!(", {setting}_model: o/m}}"));
        let remarks = Bench::with_file(format!("{with}\n")).loaded().remarks();
        assert!(remarks.iter().all(|remark| !remark.contains("names none")), "{with}: {remarks:?}");
    }
}

#[test]
fn a_stop_of_toxic_answers_without_a_model_that_could_ask_for_it_is_said() {
    let remarks =
        |more: &str| Bench::with_file(format!("output_safety: {{enabled: true, {more}}}\n")).loaded().remarks();
    let said = remarks("block_on_critical: true");
    assert!(
        said.len() == 1 && said[0].contains("no toxic answer while `output_safety.toxicity_enabled` is false"),
        "{said:?}"
    );
    assert_eq!(remarks("block_on_critical: true, toxicity_enabled: true"), Vec::<String>::new());
    assert_eq!(remarks("block_on_critical: true, toxicity_enabled: true, toxicity_model: o/t"), Vec::<String>::new());
    assert_eq!(remarks("toxicity_enabled: true, toxicity_model: o/t"), Vec::<String>::new());
    let off = Bench::with_file("output_safety: {toxicity_enabled: true, toxicity_model: o/t}\n").loaded().remarks();
    assert_eq!(
        off,
        [
            "`output_safety.toxicity_enabled` has no effect while `output_safety.enabled` is false; set that to true, too"
        ]
    );
}
