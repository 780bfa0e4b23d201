//! Two worlds: what tenant A sees is the same whether tenant B exists or not. Random sequences of what both do, over the
//! guard, the route table, the router and the real store in memory; B's part is left out the second time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::{Map, Value, json};
use tower::ServiceExt;
use weir_config::settings::Auth;
use weir_config::vocab::{KeyId, Role, SharedSecret, SpanId, TenantId, Timestamp, TraceId};
use weir_storage::record::SpanRecord;
use weir_storage::tenants::NewTenant;
use weir_storage::{Backend, SpanLog as _, Store, StoreOptions};

use super::fake::{World, runtime, span};
use crate::admit::directory::Digest;
use crate::admit::{CallerCache, Guard, Presented};
use crate::api::{router, terms};
use crate::control::Access;
use crate::exchange::{Caller, Proof};
use crate::identity::{Identities, IdentityError, Kept};
use crate::meter::Registry;
use crate::ops::breaker::Breakers;
use crate::ops::clock::Clock;
use crate::ops::store::StoreHealth;
use crate::reports::ReportBuilder;

/// Sequences compared.
const SEQUENCES: usize = 2_000;
/// Most of a step is waiting for a commit.
const THREADS: usize = 24;
const BOOTSTRAP: &str = "bootstrap-0123456789";

/// Who does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    A,
    B,
}

/// What they do. Numbers choose among what there is; the same number means the same thing for both tenants.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A call is recorded: of this trace and span number, with this score.
    Call { trace: u8, span: u8, score: u8 },
    /// The administrator makes a key.
    MakeKey(Role),
    /// The administrator revokes the newest key.
    RevokeKey,
    /// The administrator resets the token.
    ResetToken,
    /// Reports a dangerous command in a trace.
    Report(u8),
    /// Has a compliance report built.
    Compliance,
    /// The administrator deletes the tenant.
    Delete,
    /// Reads one of the lists.
    List(u8),
    /// Reads one trace or span, by number.
    One { is_trace: bool, number: u8 },
    /// Reads with the other tenant's id in the header.
    Reach,
}

fn steps() -> impl Strategy<Value = Vec<(Who, Step)>> {
    let who = prop_oneof![Just(Who::A), Just(Who::B)];
    let role = prop_oneof![Just(Role::Viewer), Just(Role::Operator), Just(Role::Admin)];
    let step = prop_oneof![
        4 => (0u8..3, 0u8..6, 0u8..=100).prop_map(|(trace, span, score)| Step::Call { trace, span, score }),
        2 => role.prop_map(Step::MakeKey),
        1 => Just(Step::RevokeKey),
        1 => Just(Step::ResetToken),
        2 => (0u8..3).prop_map(Step::Report),
        1 => Just(Step::Compliance),
        1 => Just(Step::Delete),
        4 => (0u8..7).prop_map(Step::List),
        3 => (any::<bool>(), 0u8..6).prop_map(|(is_trace, number)| Step::One { is_trace, number }),
        1 => Just(Step::Reach),
    ];
    proptest::collection::vec((who, step), 2..14)
}

/// One gateway without sockets.
struct Side {
    store: Store,
    identities: Arc<Identities>,
    guard: Guard,
    router: axum::Router,
}

impl Side {
    fn new() -> Self {
        let breakers = Breakers::new(weir_config::Settings::default().circuit_breaker, &Clock::monotonic());
        let observer = StoreHealth { shared: Registry::new().shared().clone(), breakers: Arc::new(breakers) };
        let store = Store::open(StoreOptions {
            erase: weir_storage::Erase::Rows,
            backend: Backend::Memory { max_bytes: 1 << 30 },
            on_writer_start: || {},
            pause: || {},
            batch_timeout: Duration::from_secs(10),
            queue_items: 65_536,
            queue_bytes: 1 << 26,
            observer: Arc::new(observer),
        })
        .unwrap();
        let identities = Arc::new(Identities::load(Arc::new(store.clone()), None).unwrap());
        let auth = Auth {
            enabled: true,
            admin_key: Some(SharedSecret::new(BOOTSTRAP)),
            token_key_file: None,
            ..Auth::default()
        };
        let guard = Guard::new(&auth, Arc::clone(identities.directory()));
        let api = World::over(Arc::new(store.clone())).api().with_identities(Arc::clone(&identities));
        let api = api.with_builder(ReportBuilder::new(Arc::new(store.clone()), || {}));
        Self { store, identities, guard, router: router(api) }
    }

    /// One request as a core thread would treat it: status and body, or the refusal at authentication.
    fn ask(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &Value) -> (u16, Value) {
        let as_bytes = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let caller = match terms(method, path).access {
            Access::Open => None,
            Access::Role(needed) => {
                match self.guard.caller(&mut CallerCache::default(), &Presented::read(as_bytes), needed, 1) {
                    Ok(caller) => Some(caller),
                    Err(denied) => {
                        return (if denied.caller().is_some() { 403 } else { 401 }, Value::Null);
                    }
                }
            }
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut request = Request::builder().method(method).uri(path).body(axum::body::Body::from(body)).unwrap();
        request.extensions_mut().extend([caller].into_iter().flatten().fold(
            http::Extensions::new(),
            |mut all, one| {
                all.insert(one);
                all
            },
        ));
        let answer = runtime().block_on(async {
            let answer = self.router.clone().oneshot(request).await.unwrap();
            let status = answer.status().as_u16();
            let bytes: Bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            (status, bytes)
        });
        (answer.0, serde_json::from_slice(&answer.1).unwrap_or(Value::Null))
    }
}

/// One tenant in one world.
struct Tenant {
    id: TenantId,
    other: TenantId,
    /// Makes the ids of its records, the same in both worlds.
    seed: u8,
    /// A key that is never revoked, to look with.
    looking: String,
    keys: Vec<String>,
}

fn id_bytes(sequence: usize, seed: u8, number: u8) -> [u8; 16] {
    let mut bytes = [0x40; 16];
    bytes[..8].copy_from_slice(&(sequence as u64).to_be_bytes());
    bytes[14] = seed;
    bytes[15] = number;
    bytes
}

/// Plays a sequence and gives what A saw. Both tenants use the same numbers for traces and spans, so that a lookup that
/// forgot the tenant would find the other's.
fn play(side: &Side, sequence: usize, steps: &[(Who, Step)], with_b: bool) -> Vec<(u16, Value)> {
    let ids = [b'a', b'b'].map(|seed| TenantId::from_bytes(id_bytes(sequence, seed, 0)));
    let mut tenants: Vec<Tenant> = Vec::new();
    for (at, seed) in [b'a', b'b'].into_iter().enumerate() {
        if seed == b'b' && !with_b {
            continue;
        }
        let id = ids[at];
        let new = weir_storage::tenants::NewTenant {
            id,
            name: "one of two".to_owned(),
            plan: None,
            config: serde_json::Map::new(),
        };
        let by = crate::exchange::Caller { tenant_id: id, role: Role::Admin, proof: crate::exchange::Proof::Bootstrap };
        side.identities.create_tenant(&by, new).unwrap();
        let made = side.identities.create_key(&by, id, "looking".to_owned(), Role::Operator).unwrap().unwrap();
        let looking = String::from_utf8(made.plaintext.expose().to_vec()).unwrap();
        tenants.push(Tenant { id, other: ids[1 - at], seed, looking, keys: Vec::new() });
    }
    let mut seen = Vec::new();
    for (who, step) in steps {
        let Some(tenant) = tenants.iter_mut().find(|tenant| (tenant.seed == b'a') == (*who == Who::A)) else {
            continue;
        };
        let answer = act(side, sequence, tenant, *step);
        if *who == Who::A {
            seen.push((answer.0, without_chance(answer.1)));
        }
    }
    seen
}

/// Leaves out what differs from one run to the next: ids and times that are made when an action is reported.
fn without_chance(mut value: Value) -> Value {
    match &mut value {
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_chance(item.take())),
        Value::Object(fields) => {
            if fields.contains_key("action_type") || fields.contains_key("finding_type") {
                for name in ["id", "timestamp", "detected_at"] {
                    fields.remove(name);
                }
            }
            // A reported action is stored packed, ids and times included.
            fields.remove("storage_bytes");
            fields.values_mut().for_each(|field| *field = without_chance(field.take()));
        }
        _ => {}
    }
    value
}

fn act(side: &Side, sequence: usize, tenant: &mut Tenant, step: Step) -> (u16, Value) {
    let own = tenant.id.to_string();
    let looking = format!("Bearer {}", tenant.looking);
    let admin = format!("Bearer {BOOTSTRAP}");
    let look = |path: &str| side.ask("GET", path, &[("authorization", &looking)], &Value::Null);
    match step {
        Step::Call { trace, span: number, score } => {
            let record = SpanRecord {
                trace_id: TraceId::from_bytes(id_bytes(sequence, b't', trace)),
                span_id: SpanId::from_bytes(id_bytes(sequence, b's', number)),
                start_time: Timestamp::from_micros(1_800_000_000_000_000 + i64::from(number)),
                security_score: Some(score),
                ..span(tenant.id)
            };
            side.store.sink().push(Box::new(record)).unwrap();
            assert!(side.store.flush(Duration::from_secs(60)));
            (0, Value::Null)
        }
        Step::MakeKey(role) => {
            let body = json!({ "tenant_id": own, "name": "a key", "role": role });
            let (status, made) = side.ask("POST", "/api/v1/auth/keys", &[("authorization", &admin)], &body);
            // A deleted tenant gets none.
            tenant.keys.extend(made["id"].as_str().map(str::to_owned));
            (status, json!([made["role"], made["tenant_id"]]))
        }
        Step::RevokeKey => {
            let id = tenant.keys.pop().unwrap_or_else(|| own.clone());
            side.ask("DELETE", &format!("/api/v1/auth/keys/{id}"), &[("authorization", &admin)], &Value::Null)
        }
        Step::ResetToken => {
            let path = format!("/api/v1/tenants/{own}/token/reset");
            let (status, made) = side.ask("POST", &path, &[("authorization", &admin)], &Value::Null);
            let by_token = [("x-service-token", made["token"].as_str().unwrap_or_default())];
            (status, side.ask("GET", "/api/v1/traces", &by_token, &Value::Null).1)
        }
        Step::Report(trace) => {
            let path = format!("/api/v1/traces/{}/actions", TraceId::from_bytes(id_bytes(sequence, b't', trace)));
            let body = json!({ "action_type": "command_execution", "name": "bash", "arguments": "rm -rf /" });
            let (status, made) = side.ask("POST", &path, &[("authorization", &looking)], &body);
            (status, json!([made["trace_id"], made["span_id"], made["findings"][0]["finding_type"]]))
        }
        Step::Compliance => {
            let period = ("2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z");
            let body = json!({ "report_type": "gdpr", "period_start": period.0, "period_end": period.1 });
            let (status, made) = side.ask("POST", "/api/v1/reports/generate", &[("authorization", &looking)], &body);
            (status, made["status"].clone())
        }
        Step::Delete => {
            side.ask("DELETE", &format!("/api/v1/tenants/{own}"), &[("authorization", &admin)], &Value::Null)
        }
        Step::List(which) => match which {
            0 => look("/api/v1/traces"),
            1 => look("/api/v1/spans"),
            2 => look("/api/v1/security/findings"),
            3 => look("/api/v1/stats"),
            4 => look("/api/v1/actions/summary"),
            5 => {
                let (status, listed) = look("/api/v1/reports");
                (status, listed["total"].clone())
            }
            _ => {
                let fields = [("authorization", admin.as_str()), ("x-service-tenant-id", own.as_str())];
                let (status, listed) = side.ask("GET", "/api/v1/auth/keys", &fields, &Value::Null);
                let names: Vec<_> =
                    listed["data"].as_array().into_iter().flatten().map(|key| key["role"].clone()).collect();
                (status, json!([listed["total"], names]))
            }
        },
        Step::One { is_trace: true, number } => {
            look(&format!("/api/v1/traces/{}", TraceId::from_bytes(id_bytes(sequence, b't', number))))
        }
        Step::One { is_trace: false, number } => {
            look(&format!("/api/v1/spans/{}", SpanId::from_bytes(id_bytes(sequence, b's', number))))
        }
        Step::Reach => {
            let other = tenant.other.to_string();
            let fields = [("authorization", looking.as_str()), ("x-service-tenant-id", other.as_str())];
            side.ask("GET", "/api/v1/spans", &fields, &Value::Null)
        }
    }
}

#[test]
fn of_tokens_reset_at_the_same_time_the_stored_one_alone_lets_in() {
    let side = Side::new();
    let by = Caller { tenant_id: TenantId::DEFAULT, role: Role::Admin, proof: Proof::Bootstrap };
    let id = TenantId::fresh();
    side.identities.token(&by, id, true).unwrap().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..25).for_each(|_| drop(side.identities.reset_token(&by, id).unwrap().unwrap())));
        }
    });
    let directory = side.identities.directory();
    let token = side.identities.token(&by, id, false).unwrap().unwrap();
    assert!(directory.find(&Digest::of(token.expose())).is_some());
    assert_eq!(directory.len(), 1);
}

#[test]
fn who_was_let_in_before_its_tenant_was_deleted_does_not_bring_it_back() {
    let side = Side::new();
    let admin = Caller { tenant_id: TenantId::DEFAULT, role: Role::Admin, proof: Proof::Bootstrap };
    let id = TenantId::fresh();
    let new = || NewTenant { id, name: "Acme".to_owned(), plan: None, config: Map::new() };
    let is_there = || side.identities.tenant(id).unwrap().is_some();
    for by_token in [false, true] {
        side.identities.create_tenant(&admin, new()).unwrap();
        let key = side.identities.create_key(&admin, id, "ci".to_owned(), Role::Operator).unwrap().unwrap().record.id;
        let proof = if by_token { Proof::Token } else { Proof::Key(key) };
        let late = Caller { tenant_id: id, role: Role::Operator, proof };
        side.identities.token(&admin, id, false).unwrap().unwrap();
        assert!(side.identities.own_token(&late).unwrap().is_some());
        assert_eq!(side.identities.delete_tenant(&admin, id).unwrap(), Some(Kept::Durably));
        assert!(side.identities.own_token(&late).unwrap().is_none());
        assert!(!is_there() && side.identities.directory().is_empty(), "by token: {by_token}");
    }
    let late = Caller { tenant_id: TenantId::DEFAULT, role: Role::Admin, proof: Proof::Key(KeyId::fresh()) };
    let gone = |made: Result<(), IdentityError>| assert!(matches!(made, Err(IdentityError::CallerGone)));
    gone(side.identities.create_tenant(&late, new()).map(drop));
    gone(side.identities.create_key(&late, TenantId::DEFAULT, "late".to_owned(), Role::Admin).map(drop));
    gone(side.identities.token(&late, TenantId::DEFAULT, true).map(drop));
    gone(side.identities.reset_token(&late, TenantId::DEFAULT).map(drop));
    gone(side.identities.delete_tenant(&late, TenantId::DEFAULT).map(drop));
    gone(side.identities.revoke_key(&late, KeyId::fresh()).map(drop));
    let acting = Caller { tenant_id: id, ..admin };
    assert!(side.identities.own_token(&acting).unwrap().is_some() && is_there(), "an administrator may begin anew");
}

#[test]
fn what_one_tenant_sees_does_not_depend_on_another() {
    let (with_b, without_b) = (Side::new(), Side::new());
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(0x0005_eed0), ..Config::default() });
    let sequences: Vec<_> = (0..SEQUENCES).map(|_| steps().new_tree(&mut runner).unwrap().current()).collect();
    let (next, seen, reported) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(steps) = sequences.get(at) else { return };
                    let (both, alone) = (play(&with_b, at, steps, true), play(&without_b, at, steps, false));
                    assert_eq!(both, alone, "sequence {at}: {steps:?}");
                    seen.fetch_add(both.len(), Ordering::Relaxed);
                    let dangerous =
                        both.iter().filter(|(status, said)| *status == 201 && said[2] == "dangerous_command");
                    reported.fetch_add(dangerous.count(), Ordering::Relaxed);
                }
            });
        }
    });
    // The comparison is worth something only if much was seen, and found things.
    assert!(seen.load(Ordering::Relaxed) > 3 * SEQUENCES, "{seen:?}");
    assert!(reported.load(Ordering::Relaxed) > SEQUENCES / 40, "{reported:?}");
}
