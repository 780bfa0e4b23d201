//! Health, metrics, unknown paths and methods.

use std::sync::Arc;

use serde_json::json;

use super::fake::{Fake, World, json_of, refusal};
use crate::meter::Counted;

fn world() -> World {
    World::over(Arc::new(Fake::holding(Vec::new())))
}

#[test]
fn health_is_503_until_ready_and_200_when_degraded() {
    let world = world();
    let (status, body) = world.get("/health");
    assert_eq!((status, &body["status"]), (503, &json!("starting")));
    world.health.ready();
    let (status, body) = world.get("/health");
    assert_eq!(
        (status, &body["status"], &body["storage"]),
        (200, &json!("healthy"), &json!({"status": "connected", "profile": "memory", "space": null, "shared": null}))
    );
    (0..11).for_each(|_| world.breakers.storage.failure());
    let (status, body) = world.get("/health");
    assert_eq!((status, &body["status"], &body["circuit_breaker"]), (200, &json!("degraded"), &json!("open")));
    world.health.drain();
    assert_eq!(world.get("/health").0, 503);
}

#[test]
fn readiness_follows_the_phase_and_liveness_does_not() {
    let world = world();
    assert_eq!(world.get("/readyz"), (503, json!({"status": "starting"})));
    assert_eq!(world.get("/livez"), (200, json!({"status": "alive"})));
    world.health.ready();
    assert_eq!(world.get("/readyz"), (200, json!({"status": "ready"})));
    world.health.drain();
    assert_eq!(world.get("/readyz"), (503, json!({"status": "draining"})));
    assert_eq!(world.get("/livez"), (200, json!({"status": "alive"})));
}

#[test]
fn metrics_are_prometheus_text() {
    let world = world();
    let counted = Counted { model: Some("gpt-4o").into(), ..Counted::refused("openai", 200, 1_500) };
    world.registry.core().request(&counted);
    let response = world.ask("GET", "/metrics", &[]);
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = std::str::from_utf8(response.body()).unwrap();
    assert!(
        text.contains("\nservice_requests_total{provider=\"openai\",model=\"gpt-4o\",status_code=\"200\"} 1\n"),
        "{text}"
    );
    assert!(text.contains("\nservice_build_info{version=\"0.1.0\",io_driver=\"epoll\"} 1\n"), "{text}");
    assert!(text.ends_with('\n'));
}

#[test]
fn unknown_own_paths_are_404() {
    for path in [
        "/api/v1",
        "/api/v1/",
        "/api/v1/nothing",
        "/api/v1/traces/",
        "/api/v1/traces/1/spans",
        "/v1/traces",
        "/debug/judge/verdicts",
        "/admin/feature-flags/nothing",
        "/swagger-ui/nothing.js/x",
    ] {
        let message = format!("the gateway has no route GET {path}");
        assert_eq!(world().get(path), (404, refusal("not_found", &message)), "{path}");
    }
}

#[test]
fn other_methods_are_405_and_name_the_right_ones() {
    for (method, path, allowed) in [
        ("POST", "/api/v1/traces", "GET, HEAD"),
        ("DELETE", "/api/v1/spans/1", "GET, HEAD"),
        ("PUT", "/health", "GET, HEAD"),
        ("OPTIONS", "/metrics", "GET, HEAD"),
        ("GET", "/api/v1/traces/1/actions", "POST"),
        ("HEAD", "/api/v1/traces/1/actions", "POST"),
    ] {
        let response = world().ask(method, path, &[]);
        let message = format!("this path answers {allowed} only");
        assert_eq!(json_of(&response), (405, refusal("method_not_allowed", &message)), "{method} {path}");
        assert_eq!(response.headers().get_all("allow").iter().collect::<Vec<_>>(), [allowed]);
    }
}

#[test]
fn head_is_answered_like_get() {
    for path in ["/livez", "/api/v1/traces", "/api/v1/nothing"] {
        let (head, get) = (world().ask("HEAD", path, &[]), world().ask("GET", path, &[]));
        assert_eq!((head.status(), head.headers(), head.body()), (get.status(), get.headers(), get.body()), "{path}");
    }
}
