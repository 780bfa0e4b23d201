//! Promise: every route lets in exactly those who may, written down here once more and independently of the table in the
//! code: a route that is added there and not here fails this test.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::support::{AUTH, Answer, BOOTSTRAP, Call, Gateway, Setup, Upstream, call, on_both_drivers_in_full};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
/// No record, tenant or key has this id.
const NOBODY: &str = "6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10";

/// Who may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    Nothing,
    Viewer,
    Operator,
    Admin,
}
use Needs::{Admin, Nothing, Operator, Viewer};

/// Method, path (`{}` stands for an id nobody has), body, who may, and the status those get.
type Row = (&'static str, &'static str, &'static str, Needs, u16);

const ROWS: &[Row] = &[
    ("GET", "/health", "", Nothing, 200),
    ("GET", "/livez", "", Nothing, 200),
    ("GET", "/readyz", "", Nothing, 200),
    ("GET", "/api-doc/openapi.json", "", Nothing, 200),
    // Not there unless it is switched on; then for everybody, too (`golden::*`).
    ("GET", "/debug/judge/golden_set/replay", "", Nothing, 404),
    ("GET", "/debug/judge/verdicts", "", Nothing, 404),
    ("GET", "/api/v1/receipts/key", "", Nothing, 404),
    // Not there unless traces are taken (`ingest::*`).
    ("POST", "/v1/traces", "{}", Operator, 404),
    ("GET", "/metrics", "", Admin, 200),
    ("GET", "/api/v1/traces", "", Viewer, 200),
    ("GET", "/api/v1/sessions", "", Viewer, 200),
    ("GET", "/api/v1/traces/{}", "", Viewer, 404),
    ("DELETE", "/api/v1/traces/{}", "", Admin, 404),
    ("GET", "/api/v1/spans", "", Viewer, 200),
    ("GET", "/api/v1/spans/{}", "", Viewer, 404),
    ("GET", "/api/v1/security/findings", "", Viewer, 200),
    ("GET", "/api/v1/alerts", "", Viewer, 200),
    ("POST", "/api/v1/alerts/{}/ack", "", Operator, 404),
    ("POST", "/api/v1/alerts/{}/redeliver", "", Operator, 404),
    ("GET", "/api/v1/config/features", "", Admin, 200),
    ("PUT", "/api/v1/config/features", "{}", Admin, 200),
    ("GET", "/api/v1/config/live", "", Admin, 200),
    ("GET", "/admin/feature-flags", "", Admin, 200),
    ("PUT", "/admin/feature-flags/llm_judge_enabled", r#"{"enabled":false}"#, Admin, 200),
    ("GET", "/api/v1/stats", "", Viewer, 200),
    ("POST", "/api/v1/traces/{}/actions", r#"{"action_type":"tool_call","name":"x"}"#, Operator, 404),
    ("GET", "/api/v1/actions/summary", "", Viewer, 200),
    (
        "POST",
        "/api/v1/reports/generate",
        r#"{"report_type":"soc2","period_start":"2026-01-01T00:00:00Z","period_end":"2026-01-02T00:00:00Z"}"#,
        Operator,
        202,
    ),
    ("GET", "/api/v1/reports", "", Viewer, 200),
    ("GET", "/api/v1/reports/{}", "", Viewer, 404),
    ("POST", "/api/v1/replays", r#"{"settings":{"ml_threshold":7}}"#, Operator, 400),
    ("GET", "/api/v1/replays", "", Operator, 200),
    ("GET", "/api/v1/replays/{}", "", Operator, 404),
    ("DELETE", "/api/v1/replays/{}", "", Operator, 404),
    ("GET", "/api/v1/audit", "", Admin, 200),
    ("GET", "/api/v1/costs/current", "", Viewer, 404),
    ("GET", "/api/v1/costs/series", "", Viewer, 200),
    ("POST", "/api/v1/tenants", r#"{"name":"x"}"#, Admin, 201),
    ("GET", "/api/v1/tenants", "", Admin, 200),
    ("GET", "/api/v1/tenants/{}", "", Admin, 404),
    ("PUT", "/api/v1/tenants/{}", r#"{"name":"x"}"#, Admin, 404),
    ("DELETE", "/api/v1/tenants/{}", "", Admin, 404),
    ("GET", "/api/v1/tenants/current/token", "", Operator, 200),
    ("GET", "/api/v1/tenants/{}/token", "", Admin, 404),
    ("POST", "/api/v1/tenants/{}/token/reset", "", Admin, 404),
    ("GET", "/api/v1/tenants/{}/provider-keys", "", Admin, 404),
    ("PUT", "/api/v1/tenants/{}/provider-keys/{}", r#"{"api_key":"sk-0123456789"}"#, Admin, 404),
    ("DELETE", "/api/v1/tenants/{}/provider-keys/{}", "", Admin, 404),
    (
        "POST",
        "/api/v1/auth/keys",
        r#"{"tenant_id":"6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10","name":"x","role":"viewer"}"#,
        Admin,
        404,
    ),
    ("GET", "/api/v1/auth/current", "", Viewer, 200),
    ("GET", "/api/v1/auth/keys", "", Admin, 200),
    ("PUT", "/api/v1/auth/keys/{}", r#"{"access":null}"#, Admin, 404),
    ("DELETE", "/api/v1/auth/keys/{}", "", Admin, 404),
];

/// Paths that are no route of ours: what the provider answers, or 404 for what looks like ours.
const OTHERS: &[Row] = &[
    ("GET", "/v1/models", "", Operator, 200),
    ("POST", "/v1/chat/completions", r#"{"model":"m","messages":[]}"#, Operator, 200),
    ("POST", "/v1/messages", r#"{"model":"m","messages":[]}"#, Operator, 200),
    ("POST", "/api/chat", r#"{"model":"m","messages":[]}"#, Operator, 200),
    ("GET", "/swagger-ui", "", Nothing, 200),
    ("GET", "/swagger-ui/nothing.js", "", Nothing, 404),
    ("GET", "/swagger-ui/a/b", "", Viewer, 404),
    ("GET", "/ui", "", Nothing, 200),
    ("GET", "/ui/findings", "", Nothing, 200),
    ("GET", "/ui/app.js", "", Nothing, 200),
    ("GET", "/ui/nothing.js", "", Nothing, 404),
    ("GET", "/health/", "", Operator, 200),
    ("GET", "/api/v1/nothing", "", Viewer, 404),
    ("DELETE", "/api/v1/traces", "", Viewer, 405),
    ("POST", "/health", "{}", Nothing, 405),
];

/// A credential: its name, the fields it comes in, and what it may, if it is one.
struct Credential {
    name: &'static str,
    fields: Vec<(&'static str, String)>,
    role: Option<Needs>,
    /// Names a tenant it does not belong to.
    is_foreign: bool,
}

fn credentials(gateway: &Gateway) -> Vec<Credential> {
    let (own, other) = (gateway.tenant("own"), gateway.tenant("other"));
    let bearer = |key: &str| vec![("Authorization", format!("Bearer {key}"))];
    let key = |tenant: &str, role| gateway.key(tenant, role).1;
    let (revoked_id, revoked) = gateway.key(&own, "admin");
    assert_eq!(gateway.admin(Call::delete(&format!("/api/v1/auth/keys/{revoked_id}"))).status, 204);
    let credential = |name, fields, role| Credential { name, fields, role, is_foreign: false };
    let foreign = |name, key: &str, role| Credential {
        name,
        fields: [bearer(key), vec![("X-Service-Tenant-ID", own.clone())]].concat(),
        role: Some(role),
        is_foreign: true,
    };
    vec![
        credential("no key", Vec::new(), None),
        credential("garbage", bearer("garbage"), None),
        credential("a key nobody has", bearer(&format!("svc_{}", "5".repeat(64))), None),
        credential("a revoked key", bearer(&revoked), None),
        credential("a viewer", bearer(&key(&own, "viewer")), Some(Viewer)),
        credential("an operator", bearer(&key(&own, "operator")), Some(Operator)),
        credential("an administrator", bearer(&key(&own, "admin")), Some(Admin)),
        credential("the bootstrap key", bearer(BOOTSTRAP), Some(Admin)),
        credential("a tenant token", vec![("X-Service-Token", gateway.token(&own))], Some(Operator)),
        foreign("another tenant's viewer", &key(&other, "viewer"), Viewer),
        foreign("another tenant's operator", &key(&other, "operator"), Operator),
        foreign("another tenant's administrator", &key(&other, "admin"), Admin),
    ]
}

/// What a row answers to a credential. Roles first, then tenants; administration reaches all tenants.
fn expected(row: &Row, credential: &Credential) -> u16 {
    let (_, _, _, needs, allowed) = *row;
    match credential.role {
        _ if needs == Nothing => allowed,
        None => 401,
        Some(role) if role < needs => 403,
        Some(_) if credential.is_foreign && needs < Admin => 403,
        Some(_) => allowed,
    }
}

fn ask(gateway: &Gateway, row: &Row, credential: &Credential) -> Answer {
    let (method, path, body, ..) = *row;
    let path = path.replace("{}", NOBODY);
    let request = match method {
        "GET" => Call::get(&path),
        method => Call::with_method(method, &path, body),
    };
    let request = credential.fields.iter().fold(request, |request, (name, value)| request.field(name, value));
    call(gateway.addr, request.bytes())
}

on_both_drivers_in_full! {
    fn every_route_lets_in_exactly_those_who_may(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).with(AUTH).unlimited().start();
        let mut wrong = Vec::new();
        let credentials = credentials(&gateway);
        for row in ROWS.iter().chain(OTHERS) {
            for credential in &credentials {
                let (expected, answer) = (expected(row, credential), ask(&gateway, row, credential));
                let kind = match expected {
                    401 => "authentication_error",
                    403 => "permission_denied",
                    _ => "",
                };
                if answer.status != expected || !answer.text().contains(kind) {
                    wrong.push(format!("{} {} as {}: {} instead of {expected}", row.0, row.1, credential.name, answer.status));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn the_matrix_names_every_route(driver) {
        let gateway = Setup::new(driver).start();
        let document = gateway.json("/api-doc/openapi.json");
        let mut documented = BTreeMap::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            let mut end = path.as_str();
            let mut shape = String::new();
            while let Some((before, behind)) = end.split_once('{') {
                shape.push_str(before);
                shape.push_str("{}");
                end = behind.split_once('}').unwrap().1;
            }
            shape.push_str(end);
            for (method, operation) in item.as_object().unwrap() {
                let role = operation["x-required-role"].clone();
                documented.insert((method.to_ascii_uppercase(), shape.clone()), role);
            }
        }
        let listed: BTreeMap<_, _> = ROWS.iter().map(|(method, path, _, needs, _)| {
            let role = match needs { Nothing => "none", Viewer => "viewer", Operator => "operator", Admin => "admin" };
            (((*method).to_owned(), (*path).to_owned()), json!(role))
        }).collect();
        let missing: BTreeSet<_> = documented.keys().filter(|route| !listed.contains_key(*route)).collect();
        assert!(missing.is_empty(), "routes without a row in this test: {missing:?}");
        assert_eq!(documented, listed);
    }
}
