//! Which paths are answered by the gateway itself; everything else is proxied.
//!
//! Invariant: exact route families, so that no upstream path is swallowed and no mistyped API path is sent upstream with
//! a caller's credentials. Knows paths only; whoever asks has already refused dot segments.

/// Where calls are reported.
pub const REPORTS: &str = "/v1/traces";

/// What is answered where nothing is taken in.
pub const NOT_TAKEN: &str = "the gateway takes no traces: `otel_ingest.enabled` is false";

/// The last segments of the paths of OpenTelemetry's exporters, and what stands before them. They are given one address for all signals,
/// so that all of these come to where [`REPORTS`] is taken in.
const SIGNALS: [&str; 4] = ["traces", "metrics", "logs", "profiles"];
const VERSIONS: [&str; 3] = ["v1", "v1development", "v1experimental"];

/// How the field `User-Agent` of an exporter begins (OTLP exporter specification, section "User Agent"), and that of a collector.
const EXPORTERS: [&str; 4] = ["otel-otlp-exporter", "otel otlp exporter", "opentelemetry collector", "otelcol"];

/// True for a path that an exporter of OpenTelemetry sends to, whatever stands before it and however often it is parted, and that is
/// none of the gateway's: nothing is taken in there.
pub fn is_untaken_report(path: &str) -> bool {
    let mut from_end = path.rsplit('/').filter(|segment| !segment.is_empty());
    let is = |segment: Option<&str>, names: &[&str]| {
        segment.is_some_and(|segment| names.iter().any(|name| segment.eq_ignore_ascii_case(name)))
    };
    is(from_end.next(), &SIGNALS) && is(from_end.next(), &VERSIONS) && !is_own_path(path)
}

/// True for the `User-Agent` of an exporter: one that is given no path sends to `/`.
pub fn is_exporter(user_agent: &[u8]) -> bool {
    let begins =
        |name: &&str| user_agent.get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name.as_bytes()));
    EXPORTERS.iter().any(begins)
}

/// Paths answered by the gateway and nothing below them.
const EXACT: [&str; 10] = [
    "/health",
    "/livez",
    "/readyz",
    "/metrics",
    "/swagger-ui",
    "/ui",
    "/api-doc/openapi.json",
    "/admin/feature-flags",
    REPORTS,
    "/api/v1",
];

/// Everything below these is the gateway's.
const BELOW: [&str; 5] = ["/api/v1/", "/swagger-ui/", "/ui/", "/admin/feature-flags/", "/debug/judge/"];

/// True when `path` (without query, as written in the request target) is answered by the gateway, be it with 404.
pub fn is_own_path(path: &str) -> bool {
    EXACT.contains(&path) || BELOW.iter().any(|family| path.starts_with(family))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_own_family_stays_here() {
        for path in [
            "/health",
            "/livez",
            "/readyz",
            "/metrics",
            "/swagger-ui",
            "/swagger-ui/index.html",
            "/ui",
            "/ui/live",
            "/ui/app.js",
            "/api-doc/openapi.json",
            "/api/v1",
            "/api/v1/",
            "/api/v1/traces",
            "/api/v1/nothing/here",
            "/admin/feature-flags",
            "/admin/feature-flags/llm_judge_enabled",
            "/debug/judge/verdicts",
            "/debug/judge/golden_set/replay",
            "/v1/traces",
        ] {
            assert!(is_own_path(path), "{path}");
        }
    }

    #[test]
    fn everything_else_is_proxied() {
        for path in [
            "/",
            "/v1/chat/completions",
            "/v1/messages",
            "/v1/traces/1",
            "/v1/tracesx",
            "/api/generate",
            "/api/chat",
            "/api/tags",
            "/api/v1x",
            "/api/v10/traces",
            "/api",
            "/healthz",
            "/health/",
            "/Health",
            "/metrics2",
            "/admin",
            "/admin/feature-flagsx",
            "/debug",
            "/debug/judge",
            "/debug/judgex/verdicts",
            "/swagger-uix",
            "/uix",
            "/v1/ui",
            "/openapi.json",
            "",
        ] {
            assert!(!is_own_path(path), "{path}");
        }
    }
    #[test]
    fn exporters_are_known_by_their_paths_and_names() {
        for path in [
            "/v1/metrics",
            "/v1/logs/",
            "/v1/traces/",
            "//v1/traces",
            "/v1/v1/traces",
            "/V1/Metrics",
            "/v1development/profiles",
            "/api/public/otel/v1/traces",
            "/otlp//v1//logs",
        ] {
            assert!(is_untaken_report(path), "{path}");
        }
        for path in [
            "/v1/traces",
            "/api/v1/traces",
            "/api/v1/logs",
            "/v1/metricsx",
            "/v1/traces/1",
            "/logs",
            "/v2/logs",
            "/",
            "",
        ] {
            assert!(!is_untaken_report(path), "{path}");
        }
        for name in
            ["OTel-OTLP-Exporter-Python/1.45.2", "OTel OTLP Exporter Go/1.38", "OpenTelemetry Collector Contrib/0.9"]
        {
            assert!(is_exporter(name.as_bytes()), "{name}");
        }
        assert!(!is_exporter(b"OpenAI/Python 2.1") && !is_exporter(b"OTel") && !is_exporter(b""));
    }
}
