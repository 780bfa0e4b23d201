//! Which paths are answered by the gateway itself; everything else is proxied.
//!
//! Invariant: exact route families, so that no upstream path is swallowed and no mistyped API path is sent upstream with
//! a caller's credentials. Knows paths only; whoever asks has already refused dot segments.

/// Where calls are reported.
pub const REPORTS: &str = "/v1/traces";

/// Where exporters of OpenTelemetry send what is taken in nowhere. They are given one address for all signals, so that these come
/// to the gateway together with [`REPORTS`].
const UNTAKEN_REPORTS: [&str; 4] = ["/v1/metrics", "/v1/logs", "/v1development/profiles", "/v1/profiles"];

/// True for a path of an OpenTelemetry exporter whose signal is not taken in.
pub fn is_untaken_report(path: &str) -> bool {
    UNTAKEN_REPORTS.contains(&path.strip_suffix('/').unwrap_or(path)) || path == "/v1/traces/"
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
}
