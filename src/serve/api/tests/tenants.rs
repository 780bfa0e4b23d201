//! Two tenants never see each other, over the real in-memory store.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use weir_config::vocab::{Role, SpanId, TenantId, TraceId};
use weir_storage::{Backend, SpanLog as _, Store, StoreOptions};

use super::fake::{World, json_of, refusal, request, span};
use crate::api::router::authorise;
use crate::control::Access;
use crate::exchange::{Caller, Proof};
use crate::meter::Registry;
use crate::ops::breaker::Breakers;
use crate::ops::clock::Clock;
use crate::ops::store::StoreHealth;

struct Own {
    tenant: TenantId,
    trace: TraceId,
    span: SpanId,
}

fn two_tenants() -> (World, Own, Own) {
    let breakers = Breakers::new(weir_config::Settings::default().circuit_breaker, &Clock::monotonic());
    let observer = StoreHealth { shared: Registry::new().shared().clone(), breakers: Arc::new(breakers) };
    let store = Store::open(StoreOptions {
        erase: weir_storage::Erase::Rows,
        backend: Backend::Memory { max_bytes: 1 << 20 },
        on_writer_start: || {},
        pause: || {},
        batch_timeout: Duration::from_secs(1),
        queue_items: 16,
        queue_bytes: 1 << 20,
        observer: Arc::new(observer),
    })
    .unwrap();
    let own = |credential: &[u8]| {
        let own = Own { tenant: TenantId::from_credential(credential), trace: TraceId::fresh(), span: SpanId::fresh() };
        let record = weir_storage::record::SpanRecord { trace_id: own.trace, span_id: own.span, ..span(own.tenant) };
        store.sink().push(Box::new(record)).unwrap();
        own
    };
    let (one, two) = (own(b"sk-one"), own(b"sk-two"));
    assert!(store.flush(Duration::from_secs(20)));
    (World::over(Arc::new(store)), one, two)
}

fn span_ids(body: &Value) -> Vec<&str> {
    let spans = |item: &Value| item["span_id"].as_str().is_some();
    body["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| spans(item))
        .map(|item| item["span_id"].as_str().unwrap())
        .collect()
}

#[test]
fn lists_hold_the_callers_records_only() {
    let (world, one, two) = two_tenants();
    for own in [&one, &two] {
        for list in ["spans", "security/findings"] {
            let (status, body) = world.get_as(own.tenant, &format!("/api/v1/{list}"));
            assert_eq!((status, &body["total"]), (200, &1.into()), "{list}");
            assert_eq!(span_ids(&body), [own.span.to_string()], "{list}");
        }
        let (status, body) = world.get_as(own.tenant, "/api/v1/traces");
        assert_eq!((status, &body["total"]), (200, &1.into()));
        assert_eq!(body["data"][0]["trace_id"], own.trace.to_string());
    }
    for list in ["traces", "spans", "security/findings"] {
        assert_eq!(world.get(&format!("/api/v1/{list}")).1["total"], 0, "the default tenant has no {list}");
    }
}

#[test]
fn a_foreign_record_looks_like_one_that_never_was() {
    let (world, one, two) = two_tenants();
    for (kind, own, foreign, unknown) in [
        ("trace", one.trace.to_string(), two.trace.to_string(), TraceId::fresh().to_string()),
        ("span", one.span.to_string(), two.span.to_string(), SpanId::fresh().to_string()),
    ] {
        let target = |id: &str| format!("/api/v1/{kind}s/{id}");
        assert_eq!(world.get_as(one.tenant, &target(&own)).0, 200);
        let refused = (404, refusal("not_found", &format!("no {kind} with this id")));
        assert_eq!(world.get_as(one.tenant, &target(&foreign)), refused);
        assert_eq!(world.get_as(one.tenant, &target(&unknown)), refused);
    }
}

#[test]
fn a_request_without_a_caller_or_with_too_low_a_role_gets_nothing() {
    let (world, one, _) = two_tenants();
    let mut request = request("GET", "/api/v1/spans", &[]);
    request.extensions_mut().clear();
    let response = world.run(|handle| async move { handle.call(request).await.unwrap() });
    let message = "no valid credential came with the request";
    assert_eq!(json_of(&response), (401, refusal("authentication_error", message)));
    for (access, role, allowed) in [
        (Access::Role(Role::Operator), Role::Viewer, false),
        (Access::Role(Role::Operator), Role::Admin, true),
        (Access::Open, Role::Viewer, true),
    ] {
        let caller = Caller { tenant_id: one.tenant, role, proof: Proof::Open };
        assert_eq!(authorise(access, Some(caller)).is_ok(), allowed, "{access:?} {role}");
    }
}
