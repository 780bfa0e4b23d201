//! Promise: a key takes no more than its tenant's `config` gives it, in requests and in money, from the moment a change is answered;
//! and a tenant whose `config` cannot be read takes nothing.

use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{AUTH, Call, Driver, Gateway, Setup, Upstream, call, on_both_drivers_in_full};

/// Each call of `cent` costs one cent: one output token at 10,000 dollars per million, nothing for the input.
const PRICES: &str = "cost_estimation: {custom_models: {cent: {input_per_million: 0, output_per_million: 10000}}}";

fn provider() -> Upstream {
    Upstream::always(answered())
}

fn answered() -> String {
    let body = r#"{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// A gateway with a tenant.
fn gateway(driver: Driver, provider: &Upstream, more: &str) -> (Gateway, String) {
    let gateway = Setup::new(driver).upstream(provider.url()).with(AUTH).with(PRICES).with(more).start();
    let tenant = gateway.tenant("acme");
    (gateway, tenant)
}

/// Gives the tenant's keys these limits; the status of the answer.
fn grant(gateway: &Gateway, tenant: &str, keys: &Value) -> u16 {
    let config = json!({"config": {"access": {"keys": keys}}});
    gateway.admin(Call::put(&format!("/api/v1/tenants/{tenant}"), &config)).status
}

fn ask(key: &str) -> Call {
    let body = json!({"model": "cent", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]});
    Call::post("/v1/chat/completions", body.to_string()).key(key)
}

/// One call that has settled, which is when it is recorded: its status, and its error where it was refused.
fn settled(gateway: &Gateway, tenant: &str, key: &str) -> (u16, Value) {
    let answer = call(gateway.addr, ask(key).bytes());
    let trace = format!("/api/v1/traces/{}", answer.trace_id());
    crate::support::eventually("the call is recorded", || {
        let read = Call::get(&trace).field("X-Service-Tenant-ID", tenant);
        (gateway.admin(read).status == 200).then_some(())
    });
    (answer.status, answer.json()["error"].clone())
}

on_both_drivers_in_full! {
    fn a_key_sends_as_often_as_it_may_and_takes_nothing_from_the_others(driver) {
        let provider = provider();
        let (gateway, tenant) = gateway(driver, &provider, "rate_limiting: {enabled: false}");
        let ((slow_id, slow), (_, free)) = (gateway.key(&tenant, "operator"), gateway.key(&tenant, "operator"));
        let limit = json!({ slow_id.as_str(): {"rate_limit": {"requests_per_second": 1, "burst_size": 3}} });
        assert_eq!(grant(&gateway, &tenant, &limit), 200);
        let began = Instant::now();
        // On fresh connections, which any core may accept.
        let answers: Vec<_> = (0..40).map(|_| call(gateway.addr, ask(&slow).bytes())).collect();
        let most = 3 + usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
        let served = answers.iter().filter(|answer| answer.status == 200).count();
        assert!((3..=most).contains(&served), "{served} of 40, at most {most}");
        let refused = answers.iter().find(|answer| answer.status != 200).unwrap();
        let error = refused.json()["error"].clone();
        assert_eq!((refused.status, &error["type"]), (429, &json!("rate_limit_exceeded")));
        assert_eq!((&error["key_id"], &error["limit_requests_per_second"]), (&json!(slow_id), &json!(1)));
        assert!(refused.header("Retry-After").is_some() && error["message"].as_str().unwrap().contains("rate_limit"));
        assert!((0..20).all(|_| call(gateway.addr, ask(&free).bytes()).status == 200), "the other key");

        assert_eq!(grant(&gateway, &tenant, &json!({})), 200);
        assert!((0..20).all(|_| call(gateway.addr, ask(&slow).bytes()).status == 200), "the limit is taken away");
    }

    fn a_key_spends_what_it_may_and_no_more(driver) {
        let provider = provider();
        let (gateway, tenant) = gateway(driver, &provider, "rate_limiting: {enabled: false}");
        let ((poor_id, poor), (_, free)) = (gateway.key(&tenant, "operator"), gateway.key(&tenant, "operator"));
        let budget = |usd: f64| json!({ poor_id.as_str(): {"budgets": [{"window": "monthly", "hard_limit_usd": usd}]} });
        assert_eq!(grant(&gateway, &tenant, &budget(0.03)), 200);
        let calls: Vec<_> = (0..5).map(|_| settled(&gateway, &tenant, &poor)).collect();
        assert_eq!(calls.iter().map(|(status, _)| *status).collect::<Vec<_>>(), [200, 200, 200, 429, 429]);
        let error = &calls[3].1;
        assert_eq!((&error["type"], &error["budget_of"]), (&json!("cost_cap_exceeded"), &json!("key")));
        assert_eq!((&error["key_id"], error["current"].as_f64()), (&json!(poor_id), Some(0.03)));
        assert_eq!(settled(&gateway, &tenant, &free).0, 200, "the other key has no budget");
        assert_eq!(provider.requests().len(), 4, "what was refused did not reach the provider");

        assert_eq!(grant(&gateway, &tenant, &budget(0.04)), 200);
        assert_eq!([settled(&gateway, &tenant, &poor).0, settled(&gateway, &tenant, &poor).0], [200, 429]);
        for wrong in [json!({"budgets": [{"window": "yearly", "hard_limit_usd": 1}]}), json!({"rate_limit": {"burst_size": 1}})] {
            assert_eq!(grant(&gateway, &tenant, &json!({ poor_id.as_str(): wrong })), 400);
        }
        assert_eq!(settled(&gateway, &tenant, &poor).0, 429, "what was refused changed nothing");
    }

    fn what_a_key_has_spent_is_shown_though_all_other_caps_are_off(driver) {
        let (provider, gate) = Upstream::gated(|peer, gate| {
            while peer.request().is_some() && gate.pass() {
                peer.say(answered());
            }
        });
        // Nothing else asks for a price.
        let off = "rate_limiting: {enabled: false}\ncost_caps: {enabled: false}";
        let (mut gateway, tenant) = gateway(driver, &provider, off);
        let ((poor_id, poor), (free_id, free)) = (gateway.key(&tenant, "operator"), gateway.key(&tenant, "operator"));
        let budgets = json!([{"window": "daily", "hard_limit_usd": 1, "soft_limit_usd": 0.5}, {"window": "monthly", "hard_limit_usd": 4}]);
        assert_eq!(grant(&gateway, &tenant, &json!({ poor_id.as_str(): {"budgets": budgets} })), 200);
        let spent = |gateway: &Gateway, key: &str| {
            let path = format!("/api/v1/costs/current?key_id={key}");
            let answer = gateway.admin(Call::get(&path).field("X-Service-Tenant-ID", &tenant));
            (answer.status, answer.json())
        };
        let figures = |gateway: &Gateway| {
            let (status, shown) = spent(gateway, &poor_id);
            assert_eq!((status, &shown["key_id"], &shown["windows"], &shown["tenant_windows"]), (200, &json!(poor_id), &json!([]), &json!([])));
            let of = |at: usize, name: &str| shown["key_windows"][at][name].as_f64().unwrap();
            assert_eq!((&shown["key_windows"][0]["window"], &shown["key_windows"][1]["window"]), (&json!("daily"), &json!("monthly")));
            assert_eq!((of(0, "hard_limit_usd"), of(0, "soft_limit_usd"), of(1, "hard_limit_usd")), (1.0, 0.5, 4.0));
            assert_eq!(of(0, "current_spend_usd"), of(1, "current_spend_usd"));
            (of(0, "current_spend_usd"), of(0, "reserved_usd"))
        };
        assert_eq!(figures(&gateway), (0.0, 0.0));
        // Under way it is the estimate, behind its end what it has cost: two output tokens were allowed, one came.
        let body = json!({"model": "cent", "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]});
        let mut client = crate::support::Client::connect(gateway.addr);
        client.say(Call::post("/v1/chat/completions", body.to_string()).key(&poor).bytes());
        provider.wait_for_requests(1);
        assert_eq!(figures(&gateway), (0.0, 0.02));
        gate.open();
        assert_eq!(client.answer().status, 200);
        crate::support::eventually("the call settles", || (figures(&gateway) == (0.01, 0.0)).then_some(()));
        // Another key of the tenant spends nothing of it, and has nothing to show.
        gate.open();
        assert_eq!(settled(&gateway, &tenant, &free).0, 200);
        assert_eq!(figures(&gateway), (0.01, 0.0));
        assert_eq!(spent(&gateway, &free_id).0, 404);
        assert_eq!(spent(&gateway, "none").0, 400);
        let other = gateway.tenant("other");
        let foreign = gateway.admin(Call::get(&format!("/api/v1/costs/current?key_id={poor_id}")).field("X-Service-Tenant-ID", &other));
        assert_eq!(foreign.status, 404, "another tenant's key");
        gateway.terminate();
        gateway.wait();
        gateway.restart();
        assert_eq!(figures(&gateway), (0.01, 0.0), "kept over a restart");
    }
}

#[test]
fn a_tenant_whose_access_cannot_be_read_may_use_nothing() {
    let provider = provider();
    let (mut gateway, tenant) = gateway(Driver::Auto, &provider, "");
    let (_, key) = gateway.key(&tenant, "operator");
    let other = gateway.key(&gateway.tenant("other"), "operator").1;
    assert_eq!(call(gateway.addr, ask(&key).bytes()).status, 200);
    gateway.kill();
    // As a build before this one may have stored it: its API kept whatever it was given.
    let script = "import sqlite3, sys\n\
                  db = sqlite3.connect(sys.argv[1])\n\
                  done = db.execute('UPDATE tenants SET config = ? WHERE name = ?', (sys.argv[2], 'acme'))\n\
                  db.commit()\n\
                  assert done.rowcount == 1, done.rowcount\n";
    let mut edit = Command::new("python3");
    edit.args(["-c", script]).arg(gateway.folder().join("weir.db"));
    let output = edit.arg(r#"{"access": {"allowed_models": "gpt-4o"}}"#).output().expect("python3 with sqlite3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    gateway.restart();
    let refused = call(gateway.addr, ask(&key).bytes());
    assert_eq!((refused.status, &refused.json()["error"]["type"]), (403, &json!("upstream_not_allowed")));
    assert_eq!(call(gateway.addr, ask(&other).bytes()).status, 200, "another tenant is not concerned");
    gateway.logged("the log says why", |line| line.contains("may use nothing") && line.contains(&tenant));
    assert_eq!(grant(&gateway, &tenant, &json!({})), 200);
    assert_eq!(call(gateway.addr, ask(&key).bytes()).status, 200, "corrected");
}
