//! Promise: tenants, keys and tokens are made, shown once, kept over a restart, and gone everywhere the moment their end
//! is answered.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::{
    AUTH, BOOTSTRAP, Call, Client, Gateway, Setup, Upstream, call, chat_call, eventually, on_both_drivers_in_full,
    provider, text,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
const NOBODY: &str = "6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10";

fn text_of(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

on_both_drivers_in_full! {
    fn a_key_lives_from_its_creation_to_its_revocation(driver) {
        let gateway = Setup::new(driver).with(AUTH).start();
        let tenant = gateway.tenant("Acme");
        let body = json!({ "tenant_id": tenant, "name": " ci ", "role": "viewer" });
        let made = gateway.admin(Call::post("/api/v1/auth/keys", body.to_string()));
        assert_eq!((made.status, made.header("cache-control").as_deref()), (201, Some("no-store")));
        let key = text(&made, "key");
        assert!(key.len() == 68 && key.starts_with("svc_") && key[4..].bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(text(&made, "key_prefix"), key[..12]);
        let names: Vec<String> = made.json().as_object().unwrap().keys().cloned().collect();
        assert_eq!(names, ["created_at", "id", "key", "key_prefix", "name", "role", "tenant_id"]);
        let traces = || call(gateway.addr, Call::get("/api/v1/traces").key(&key).bytes());
        assert_eq!(traces().status, 200);
        let list = || gateway.admin(Call::get("/api/v1/auth/keys").field("X-Service-Tenant-ID", &tenant)).json();
        let listed = list();
        assert_eq!((&listed["total"], &listed["data"][0]["name"]), (&json!(1), &json!("ci")));
        assert!(listed["data"][0].get("key").is_none() && !listed.to_string().contains(&key[12..]));
        let path = format!("/api/v1/auth/keys/{}", text(&made, "id"));
        let revoked = gateway.admin(Call::delete(&path));
        assert_eq!((revoked.status, revoked.body.len()), (204, 0));
        assert_eq!(traces().status, 401);
        assert_eq!(gateway.admin(Call::delete(&path)).status, 404);
        assert_eq!(gateway.admin(Call::delete(&format!("/api/v1/auth/keys/{NOBODY}"))).status, 404);
        assert_eq!(gateway.admin(Call::delete("/api/v1/auth/keys/1")).status, 400);
        assert!(list()["data"][0]["revoked_at"].is_string());
    }

    fn revoking_is_effective_on_live_connections_of_every_core_when_it_is_answered(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).with(AUTH).unlimited().start();
        let tenant = gateway.tenant("Acme");
        for round in 0..3 {
            let (id, key) = gateway.key(&tenant, "operator");
            let request = chat_call("hello").key(&key).bytes();
            let ask = |client: &mut Client| {
                client.say(&request);
                client.answer().status
            };
            // Connections that have been let in before, on whichever core they landed; two of them never stop asking.
            let mut clients: Vec<Client> = (0..16).map(|_| Client::connect(gateway.addr)).collect();
            assert!(clients.iter_mut().all(|client| ask(client) == 200));
            let mut busy = clients.split_off(14);
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let asking: Vec<_> = busy
                    .iter_mut()
                    .map(|client| {
                        scope.spawn(|| {
                            while !over.load(Ordering::SeqCst) {
                                let status = ask(client);
                                assert!(status == 200 || status == 401, "{status}");
                            }
                            ask(client)
                        })
                    })
                    .collect();
                assert_eq!(gateway.admin(Call::delete(&format!("/api/v1/auth/keys/{id}"))).status, 204);
                assert!(clients.iter_mut().all(|client| ask(client) == 401), "round {round}");
                over.store(true, Ordering::SeqCst);
                assert!(asking.into_iter().all(|thread| thread.join().unwrap() == 401), "round {round}");
            });
        }
    }

    fn who_is_revoked_while_its_request_is_on_its_way_changes_nothing(driver) {
        let gateway = Setup::new(driver).with(AUTH).start();
        let tenant = gateway.tenant("Acme");
        let (id, key) = gateway.key(&tenant, "admin");
        let body = json!({ "tenant_id": tenant, "name": "late", "role": "admin" }).to_string();
        let mut client = Client::connect(gateway.addr);
        client.say(format!(
            "POST /api/v1/auth/keys HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nExpect: 100-continue\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ));
        assert_eq!(client.answer().status, 100, "it has been let in");
        assert_eq!(gateway.admin(Call::delete(&format!("/api/v1/auth/keys/{id}"))).status, 204);
        client.say(body);
        assert_eq!(client.answer().status, 401);
        let listed = gateway.admin(Call::get("/api/v1/auth/keys").field("X-Service-Tenant-ID", &tenant)).json();
        assert_eq!(listed["total"], 1, "no key was made: {listed}");
    }

    fn a_token_sends_traffic_until_it_is_reset_and_leaves_the_provider_s_key_alone(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).with(AUTH).start();
        let tenant = gateway.tenant("Acme");
        let token = gateway.token(&tenant);
        assert!(token.len() == 68 && token.starts_with("svt_"));
        assert_eq!(gateway.token(&tenant), token, "asking again gives the same");
        let send = |token: &str| {
            let sent = chat_call("hello").field("X-Service-Token", token).field("Authorization", "Bearer sk-provider");
            call(gateway.addr, sent.bytes())
        };
        assert_eq!(send(&token).status, 200);
        let head = String::from_utf8_lossy(upstream.wait_for_requests(1)[0].raw_head()).into_owned();
        assert!(head.contains("\r\nAuthorization: Bearer sk-provider\r\n") && !head.contains(&token), "{head}");
        let own = call(gateway.addr, Call::get("/api/v1/tenants/current/token").field("X-Service-Token", &token).bytes());
        assert_eq!((own.status, text(&own, "token"), text(&own, "tenant_id")), (200, token.clone(), tenant.clone()));
        let reset = gateway.admin(Call::post(&format!("/api/v1/tenants/{tenant}/token/reset"), ""));
        let fresh = text(&reset, "token");
        assert_ne!(fresh, token);
        assert_eq!((send(&token).status, send(&fresh).status), (401, 200));
        let nobody = format!("/api/v1/tenants/{NOBODY}/token");
        assert_eq!(gateway.admin(Call::get(&nobody)).status, 404);
        assert_eq!(gateway.admin(Call::post(&format!("{nobody}/reset"), "")).status, 404);
    }

    fn a_tenant_is_changed_and_deleted_with_everything_it_has(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).with(AUTH).start();
        let (tenant, other) = (gateway.tenant("Acme"), gateway.tenant("Other"));
        let path = format!("/api/v1/tenants/{tenant}");
        let changed = gateway.admin(Call::put(&path, &json!({ "plan": "pro", "config": { "a": 1 } }))).json();
        assert_eq!((&changed["name"], &changed["plan"], &changed["config"]["a"]), (&json!("Acme"), &json!("pro"), &json!(1)));
        let cleared = gateway.admin(Call::put(&path, &json!({ "name": "New", "plan": null }))).json();
        assert_eq!((&cleared["name"], &cleared["plan"]), (&json!("New"), &json!(null)));
        for bad in [json!({ "name": " " }), json!({ "nam": "x" }), json!({ "name": 1 }), json!({ "config": [] }), json!(["x", null])] {
            assert_eq!(gateway.admin(Call::put(&path, &bad)).status, 400, "{bad}");
        }
        let (_, key) = gateway.key(&tenant, "operator");
        let (_, others) = gateway.key(&other, "operator");
        let token = gateway.token(&tenant);
        for key in [&key, &others] {
            assert_eq!(call(gateway.addr, chat_call("hello").key(key).bytes()).status, 200);
            let traces = Call::get("/api/v1/traces").key(key).bytes();
            eventually("the trace is there", || (call(gateway.addr, &traces).json()["total"] == 1).then_some(()));
        }
        assert_eq!(gateway.admin(Call::delete(&path)).status, 204);
        assert_eq!(gateway.admin(Call::delete(&path)).status, 404);
        assert_eq!(gateway.admin(Call::get(&path)).status, 404);
        assert_eq!(call(gateway.addr, Call::get("/api/v1/traces").key(&key).bytes()).status, 401);
        assert_eq!(call(gateway.addr, chat_call("hello").field("X-Service-Token", &token).bytes()).status, 401);
        let as_bootstrap = |id: &str, path| gateway.admin(Call::get(path).field("X-Service-Tenant-ID", id)).json();
        assert_eq!(as_bootstrap(&tenant, "/api/v1/traces")["total"], 0);
        assert_eq!(as_bootstrap(&tenant, "/api/v1/auth/keys")["total"], 0);
        assert_eq!(as_bootstrap(&other, "/api/v1/traces")["total"], 1);
        let tenants = gateway.admin(Call::get("/api/v1/tenants")).json();
        assert!(!tenants.to_string().contains(&tenant), "{tenants}");
    }

    fn deleting_a_tenant_erases_its_spend_and_its_records(driver) {
        let body = r#"{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
        let upstream = Upstream::always(answer);
        // Each call costs a cent, and two are allowed.
        let mut gateway = Setup::new(driver)
            .upstream(upstream.url())
            .with(AUTH)
            .with("cost_estimation: {custom_models: {cent: {input_per_million: 0, output_per_million: 10000}}}")
            .with("cost_caps: {enabled: true, default_budget_caps: [{window: monthly, hard_limit_usd: 0.02}]}")
            .start();
        let tenant = gateway.tenant("Acme");
        let acting = |request: Call| request.field("X-Service-Tenant-ID", &tenant);
        let ask = json!({ "model": "cent", "max_tokens": 1, "messages": [{ "role": "user", "content": "hi" }] }).to_string();
        let spend = |gateway: &Gateway| -> Vec<u16> {
            (0..3).map(|_| gateway.admin(acting(Call::post("/v1/chat/completions", ask.clone()))).status).collect()
        };
        let read = |gateway: &Gateway, path: &str| gateway.admin(acting(Call::get(path))).json();
        let spent = |gateway: &Gateway| read(gateway, "/api/v1/costs/current")["windows"][0]["current_spend_usd"].clone();
        let settled = |gateway: &Gateway| {
            eventually("both have settled", || (spent(gateway) == 0.02).then_some(()));
        };
        assert_eq!(spend(&gateway), [200, 200, 429]);
        settled(&gateway);
        let recorded = |gateway: &Gateway| {
            eventually("the calls are recorded", || (read(gateway, "/api/v1/stats")["total_spans"] == 3).then_some(()));
        };
        recorded(&gateway);
        let trace = text_of(&read(&gateway, "/api/v1/traces")["data"][0]["trace_id"]);
        let action = json!({ "action_type": "command_execution", "name": "rm -rf /" }).to_string();
        assert_eq!(gateway.admin(acting(Call::post(&format!("/api/v1/traces/{trace}/actions"), action))).status, 201);
        let report = json!({ "report_type": "gdpr", "period_start": "2026-01-01T00:00:00Z", "period_end": "2100-01-01T00:00:00Z" });
        assert_eq!(gateway.admin(acting(Call::post("/api/v1/reports/generate", report.to_string()))).status, 202);

        assert_eq!(gateway.admin(Call::delete(&format!("/api/v1/tenants/{tenant}"))).status, 204);
        assert_eq!(spent(&gateway), json!(0.0));
        for list in ["traces", "spans", "security/findings", "reports"] {
            assert_eq!(read(&gateway, &format!("/api/v1/{list}"))["total"], 0, "{list}");
        }
        assert_eq!(gateway.admin(acting(Call::get(&format!("/api/v1/traces/{trace}")))).status, 404);
        let stats = read(&gateway, "/api/v1/stats");
        assert_eq!((&stats["total_spans"], &stats["total_findings"], &stats["storage_bytes"]), (&json!(0), &json!(0), &json!(0)));
        assert_eq!(read(&gateway, "/api/v1/actions/summary")["total_actions"], 0);

        // Whoever begins anew under the same id has the whole budget, and keeps what it spends of it.
        assert_eq!(spend(&gateway), [200, 200, 429]);
        settled(&gateway);
        recorded(&gateway);
        gateway.terminate();
        assert!(gateway.wait().success());
        gateway.restart();
        assert_eq!(spent(&gateway), json!(0.02));
        assert_eq!(read(&gateway, "/api/v1/traces")["total"], 3);
    }

    fn everything_acknowledged_is_in_force_after_a_kill(driver) {
        let mut gateway = Setup::new(driver).with(AUTH).start();
        let tenant = gateway.tenant("Acme");
        let (kept, (gone_id, gone), token) = (gateway.key(&tenant, "viewer").1, gateway.key(&tenant, "viewer"), gateway.token(&tenant));
        assert_eq!(gateway.admin(Call::delete(&format!("/api/v1/auth/keys/{gone_id}"))).status, 204);
        gateway.restart();
        let status = |request: Call| call(gateway.addr, request.bytes()).status;
        assert_eq!(status(Call::get("/api/v1/traces").key(&kept)), 200);
        assert_eq!(status(Call::get("/api/v1/traces").key(&gone)), 401);
        assert_eq!(status(Call::get("/api/v1/traces").field("X-Service-Token", &token)), 200);
        assert_eq!(gateway.token(&tenant), token);
    }

    fn the_last_use_of_a_key_is_written_down(driver) {
        let mut gateway = Setup::new(driver).with(AUTH).start();
        let tenant = gateway.tenant("Acme");
        let (_, key) = gateway.key(&tenant, "viewer");
        assert_eq!(call(gateway.addr, Call::get("/api/v1/traces").key(&key).bytes()).status, 200);
        gateway.terminate();
        assert!(gateway.wait().success());
        gateway.restart();
        let listed = gateway.admin(Call::get("/api/v1/auth/keys").field("X-Service-Tenant-ID", &tenant)).json();
        assert!(listed["data"][0]["last_used_at"].is_string(), "{listed}");
    }

    fn names_and_references_that_make_no_sense_are_refused(driver) {
        let gateway = Setup::new(driver).with(AUTH).start();
        let tenant = gateway.tenant("Acme");
        let long = "x".repeat(201);
        for bad in [json!({}), json!({ "name": "" }), json!({ "name": " \t" }), json!({ "name": long }), json!({ "name": "a\nb" })] {
            let answer = gateway.admin(Call::post("/api/v1/tenants", bad.to_string()));
            assert_eq!(answer.status, 400, "{bad}");
            assert!(answer.text().contains("name"), "{}", answer.text());
        }
        for (status, bad) in [
            (400, json!({ "tenant_id": tenant, "name": "", "role": "viewer" })),
            (400, json!({ "tenant_id": tenant, "name": "x", "role": "root" })),
            (400, json!({ "tenant_id": "x", "name": "x", "role": "viewer" })),
            (400, json!({ "tenant_id": tenant, "name": "x" })),
            (404, json!({ "tenant_id": NOBODY, "name": "x", "role": "viewer" })),
        ] {
            assert_eq!(gateway.admin(Call::post("/api/v1/auth/keys", bad.to_string())).status, status, "{bad}");
        }
    }

    fn the_metrics_listener_needs_no_key_and_knows_nothing_else(driver) {
        let gateway = Setup::new(driver).with(AUTH).server("metrics_addr: '127.0.0.1:0'").start();
        let line = gateway.log().into_iter().find(|line| line.contains("metrics are served")).unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let addr = line["metrics"].as_str().unwrap().parse().unwrap();
        let status = |target: &str| call(addr, Call::get(target).bytes()).status;
        let metrics = call(addr, Call::get("/metrics?x=1").bytes());
        assert_eq!(metrics.status, 200);
        assert!(metrics.text().contains("\nservice_active_connections "), "{}", metrics.text());
        assert_eq!(["/health", "/", "/api/v1/traces", "/v1/models"].map(status), [404; 4]);
        assert_eq!(call(addr, Call::post("/metrics", "").bytes()).status, 405);
        assert_eq!(call(gateway.addr, Call::get("/metrics").bytes()).status, 401);
        for (host, marks, status) in [
            ("evil.example:9090", "", 403),
            ("127.0.0.1:9090", "Sec-Fetch-Site: cross-site\r\n", 403),
            ("127.0.0.1:9090", "Origin: http://evil.example\r\n", 403),
            ("10.0.0.1:9090", "", 200),
            ("weir:9090", "User-Agent: Prometheus/3\r\n", 200),
        ] {
            let answer = call(addr, format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n{marks}\r\n"));
            assert_eq!(answer.status, status, "{host} {marks}: {}", answer.text());
            assert_eq!(answer.text().contains("service_active_connections"), status == 200, "{host} {marks}");
        }
        // On the main listener it shows what every tenant spends.
        let tenant = gateway.tenant("Acme");
        for (role, status) in [("viewer", 403), ("operator", 403), ("admin", 200)] {
            let (_, key) = gateway.key(&tenant, role);
            assert_eq!(call(gateway.addr, Call::get("/metrics").key(&key).bytes()).status, status, "{role}");
        }
    }

    fn whoever_is_shown_a_token_stands_in_the_audit_log(driver) {
        let gateway = Setup::new(driver).with(AUTH).start();
        let tenant = gateway.tenant("Acme");
        let (admin_id, admin) = gateway.key(&tenant, "admin");
        let token = gateway.token(&tenant);
        let path = format!("/api/v1/tenants/{tenant}/token");
        assert_eq!(call(gateway.addr, Call::get(&path).key(&admin).bytes()).status, 200);
        let own = |call: Call| call.field("X-Service-Token", &token).bytes();
        assert_eq!(call(gateway.addr, own(Call::get("/api/v1/tenants/current/token"))).status, 200);
        let audit = gateway.admin(Call::get(&format!("/api/v1/audit?tenant_id={tenant}&limit=2"))).json();
        let line = |at: usize| ["action", "actor", "target", "tenant_id"].map(|field| text_of(&audit["data"][at][field]));
        assert_eq!(line(0), ["token.show", admin_id.as_str(), tenant.as_str(), tenant.as_str()]);
        assert_eq!(line(1), ["token.issue", "bootstrap", tenant.as_str(), tenant.as_str()]);
        // However often it is asked for: nothing takes a line out again.
        for _ in 0..20 {
            assert_eq!(call(gateway.addr, Call::get(&path).key(&admin).bytes()).status, 200);
        }
        let again = gateway.admin(Call::get(&format!("/api/v1/audit?tenant_id={tenant}&limit=2"))).json();
        assert_eq!(again["total"], audit["total"]);
    }

    fn keys_of_any_tenant_are_listed_by_its_id(driver) {
        let gateway = Setup::new(driver).with(AUTH).start();
        let tenant = gateway.tenant("Acme");
        let (id, _) = gateway.key(&tenant, "viewer");
        assert_eq!(gateway.admin(Call::get("/api/v1/auth/keys")).json()["total"], 0, "the default tenant has none");
        let listed = gateway.admin(Call::get(&format!("/api/v1/auth/keys?tenant_id={tenant}"))).json();
        assert_eq!((&listed["total"], &listed["data"][0]["id"]), (&json!(1), &json!(id)));
        assert_eq!(gateway.admin(Call::get("/api/v1/auth/keys?tenant_id=x")).status, 400);
    }

    fn whoever_tries_admin_keys_is_slowed_and_nobody_with_a_key_is(driver) {
        let gateway = Setup::new(driver).with(AUTH).start();
        let tenant = gateway.tenant("Acme");
        let (_, key) = gateway.key(&tenant, "viewer");
        let wrong = "x".repeat(BOOTSTRAP.len());
        let guess = Call::get("/api/v1/tenants").key(&wrong).bytes();
        let mut client = Client::connect(gateway.addr);
        let start = std::time::Instant::now();
        for _ in 0..25 {
            client.say(&guess);
            assert_eq!(client.answer().status, 401);
        }
        // Twenty-one at once and four a second from there on, counted from the first: how long the others took does not matter.
        assert!(start.elapsed() >= std::time::Duration::from_millis(990), "{:?}", start.elapsed());
        let refused = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    let answer = call(gateway.addr, &guess);
                    if answer.status == 429 {
                        assert!(answer.header("retry-after").is_some() && answer.text().contains("use an API key"));
                        refused.store(true, Ordering::SeqCst);
                    }
                });
            }
            eventually("not all of them can wait", || refused.load(Ordering::SeqCst).then_some(()));
            let start = std::time::Instant::now();
            let traces = Call::get("/api/v1/traces").key(&key);
            assert_eq!(call(gateway.addr, traces.bytes()).status, 200);
            assert!(start.elapsed() < std::time::Duration::from_secs(2), "a key waits for nobody: {:?}", start.elapsed());
        });
        // The right one is looked at like all others, in its turn.
        let right = Call::get("/api/v1/tenants").key(BOOTSTRAP).bytes();
        eventually("the admin key works", || (call(gateway.addr, &right).status == 200).then_some(()));
    }

    fn keys_made_while_authentication_was_off_are_listed_when_it_is_on(driver) {
        let mut gateway = Setup::new(driver).start();
        let made = call(gateway.addr, Call::post("/api/v1/tenants", r#"{"name":"Open"}"#).bytes());
        let tenant = text(&made, "id");
        let body = json!({ "tenant_id": tenant, "name": "planted", "role": "admin" }).to_string();
        let made = call(gateway.addr, Call::post("/api/v1/auth/keys", body).bytes());
        let (planted, key) = (text(&made, "id"), text(&made, "key"));
        let token = call(gateway.addr, Call::get(&format!("/api/v1/tenants/{tenant}/token")).bytes());
        assert_eq!(token.status, 200);
        gateway.reconfigure(AUTH);
        let line = gateway.logged("the planted key", |line| line.contains("made while authentication was off"));
        assert!(line.contains(&planted) && line.contains(&key[..12]) && !line.contains(&key), "{line}");
        let line = gateway.logged("the token", |line| line.contains("token was shown while authentication was off"));
        assert!(line.contains(&tenant), "{line}");
        let path = format!("/api/v1/auth/keys/{planted}");
        assert_eq!(gateway.admin(Call::delete(&path)).status, 204);
        assert_eq!(gateway.admin(Call::post(&format!("/api/v1/tenants/{tenant}/token/reset"), "")).status, 200);
        let (known, _) = gateway.key(&tenant, "viewer");
        gateway.restart();
        // The list comes after what is logged at the start; a second start has nothing to list.
        assert_eq!(gateway.admin(Call::delete(&format!("/api/v1/auth/keys/{known}"))).status, 204);
        let log = gateway.log();
        assert!(!log.iter().any(|line| line.contains("while authentication was off")), "{log:?}");
    }

    fn what_administrators_do_is_in_the_audit_log_by_key_id(driver) {
        let gateway = Setup::new(driver).with(AUTH).start();
        let tenant = gateway.tenant("Acme");
        let (id, admin) = gateway.key(&tenant, "admin");
        let made = call(gateway.addr, Call::post("/api/v1/tenants", r#"{"name":"By key"}"#).key(&admin).bytes());
        assert_eq!(made.status, 201);
        let audit = gateway.admin(Call::get("/api/v1/audit"));
        assert_eq!(audit.status, 200, "{}", audit.text());
        let lines: Vec<(String, String)> = audit.json()["data"].as_array().unwrap().iter()
            .map(|line| (line["action"].as_str().unwrap().to_owned(), line["actor"].as_str().unwrap().to_owned()))
            .collect();
        let expected = [("tenant.create", id.as_str()), ("key.create", "bootstrap"), ("tenant.create", "bootstrap")];
        assert_eq!(lines, expected.map(|(action, actor)| (action.to_owned(), actor.to_owned())));
        assert!(!audit.text().contains(&admin) && !audit.text().contains(BOOTSTRAP));
    }
}

/// What a page shows beside its calls is what they bring, as far as it is shown: ids, keys and tokens are others each time.
#[test]
fn the_readme_shows_what_making_a_tenant_and_a_key_brings() {
    let pages = crate::support::pages();
    let masked = |text: &str| {
        let mut parts: Vec<String> = text.split('"').map(str::to_owned).collect();
        for at in 3..parts.len() {
            if ["id", "key", "key_prefix", "token", "tenant_id"].contains(&parts[at - 2].as_str())
                && parts[at - 1] == ":"
            {
                parts[at] = String::from("-");
            }
        }
        parts.join("\"")
    };
    let shown = |call: &str| {
        let (_, behind) = pages.split_once(call).unwrap_or_else(|| panic!("no page shows {call}"));
        let (_, line) = behind.split_once("#   ").unwrap();
        let line = line.split(['\n']).next().unwrap();
        masked(&line[..=line.rfind('}').unwrap()])
    };
    let gateway = Setup::new(crate::support::Driver::Auto).with(AUTH).start();
    let tenant = gateway.admin(Call::post("/api/v1/tenants", r#"{"name":"Acme"}"#));
    let id = text(&tenant, "id");
    let asked = json!({"tenant_id": id, "name": "ci", "role": "operator"}).to_string();
    let key = gateway.admin(Call::post("/api/v1/auth/keys", asked));
    let token = gateway.admin(Call::get(&format!("/api/v1/tenants/{id}/token")));
    for (call, answer) in [
        ("/api/v1/tenants -d '{\"name\":\"Acme\"}'", tenant),
        (r#"/api/v1/auth/keys -d "{\"tenant_id\":\"$TENANT\",\"name\":\"ci\",\"role\":\"operator\"}""#, key),
        ("/api/v1/tenants/$TENANT/token", token),
    ] {
        let (shown, said) = (shown(call), masked(answer.text().trim()));
        match shown.strip_suffix(",…}") {
            Some(beginning) => assert!(said.starts_with(beginning), "{shown} on the page, and {said}"),
            None => assert_eq!(shown, said),
        }
    }
}
