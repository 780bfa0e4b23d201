//! Promise: a tenant's own key for a provider goes to that upstream with that tenant's calls and nowhere else, from the moment a
//! change is answered; it is encrypted where it is kept, shown to nobody, and never quietly replaced by the operator's.

use serde_json::json;

use crate::exports::lines;
use crate::support::{AUTH, Answer, Call, Driver, Gateway, Setup, Upstream, call, eventually, on_both_drivers_in_full};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
const OPERATORS: &str = "sk-canary-of-the-operator";

fn gateway(driver: Driver, one: &Upstream, two: &Upstream, more: &str) -> Gateway {
    let upstreams = format!(
        "upstreams:\n  one: {{url: '{}', providers: [openai], api_key: {OPERATORS}-one}}\n  two: {{url: '{}', providers: [anthropic]}}",
        one.url(),
        two.url()
    );
    Setup::new(driver).unlimited().log_level("trace").with(&upstreams).with(more).start()
}

fn path(tenant: &str, upstream: &str) -> String {
    format!("/api/v1/tenants/{tenant}/provider-keys/{upstream}")
}

fn put(gateway: &Gateway, tenant: &str, upstream: &str, key: &str) -> Answer {
    gateway.admin(Call::put(&path(tenant, upstream), &json!({ "api_key": key })))
}

fn chat(gateway: &Gateway, key: &str) -> Answer {
    call(gateway.addr, Call::post("/v1/chat/completions", "{}").key(key).bytes())
}

/// The head of the last request that a provider has seen.
fn last(upstream: &Upstream) -> String {
    String::from_utf8_lossy(upstream.requests().last().expect("a request").raw_head()).into_owned()
}

on_both_drivers_in_full! {
    fn a_tenant_s_own_key_goes_with_its_calls_to_its_upstream(driver) {
        let (one, two) = (Upstream::always(OK), Upstream::always(OK));
        let gateway = gateway(driver, &one, &two, AUTH);
        let (acme, other) = (gateway.tenant("acme"), gateway.tenant("other"));
        let ((_, key), (_, others)) = (gateway.key(&acme, "operator"), gateway.key(&other, "operator"));
        for (tenant, upstream, text) in [
            (&acme, "one", "sk-canary-acme-one"),
            (&acme, "two", "sk-canary-acme-two"),
            (&other, "two", "sk-canary-other-two"),
        ] {
            let answer = put(&gateway, tenant, upstream, text);
            assert_eq!((answer.status, &answer.json()["upstream"]), (200, &json!(upstream)), "{}", answer.text());
        }
        let by_token = gateway.token(&acme);
        let messages = |key: &str| call(gateway.addr, Call::post("/v1/messages", "{}").key(key).bytes());
        assert_eq!((chat(&gateway, &key).status, messages(&key).status), (200, 200));
        assert!(last(&one).contains("\r\nAuthorization: Bearer sk-canary-acme-one\r\n"), "{}", last(&one));
        assert!(last(&two).contains("\r\nx-api-key: sk-canary-acme-two\r\n"), "{}", last(&two));
        let answer = call(gateway.addr, Call::post("/v1/chat/completions", "{}").field("X-Service-Token", &by_token).bytes());
        assert!(answer.status == 200 && last(&one).contains("sk-canary-acme-one"), "{}", last(&one));
        assert_eq!(gateway.span_of_tenant(&answer, &acme)["tags"]["provider_key"], "tenant");
        // Another tenant: its own where it has one, else the operator's.
        assert_eq!((chat(&gateway, &others).status, messages(&others).status), (200, 200));
        assert!(last(&one).contains(&format!("Bearer {OPERATORS}-one\r\n")), "{}", last(&one));
        assert!(last(&two).contains("x-api-key: sk-canary-other-two\r\n"), "{}", last(&two));
        // What the client brings itself comes first.
        for field in ["X-Service-Upstream-Authorization", "x-api-key"] {
            let own = Call::post("/v1/chat/completions", "{}").key(&key).field(field, "Bearer of-the-client");
            let answer = call(gateway.addr, own.bytes());
            assert!(last(&one).contains("of-the-client") && !last(&one).contains("canary"), "{}", last(&one));
            assert!(gateway.span_of_tenant(&answer, &acme)["tags"].get("provider_key").is_none());
        }
    }

    fn a_change_holds_with_the_next_call_on_every_core(driver) {
        let (one, two) = (Upstream::always(OK), Upstream::always(OK));
        let gateway = gateway(driver, &one, &two, AUTH);
        let acme = gateway.tenant("acme");
        let (_, key) = gateway.key(&acme, "operator");
        for round in 0..15 {
            let text = format!("sk-canary-number-{round}");
            assert_eq!(put(&gateway, &acme, "one", &text).status, 200);
            // On fresh connections, which any core may accept.
            for _ in 0..2 {
                assert_eq!(chat(&gateway, &key).status, 200);
                assert!(last(&one).contains(&format!("Bearer {text}\r\n")), "{}", last(&one));
            }
        }
        assert_eq!(gateway.admin(Call::delete(&path(&acme, "one"))).status, 204);
        assert_eq!(chat(&gateway, &key).status, 200);
        assert!(last(&one).contains(&format!("Bearer {OPERATORS}-one\r\n")), "{}", last(&one));
        assert_eq!(gateway.admin(Call::delete(&path(&acme, "one"))).status, 404);
        let listed = gateway.admin(Call::get(&format!("/api/v1/tenants/{acme}/provider-keys")));
        assert_eq!((listed.status, listed.json()), (200, json!({ "data": [] })));
    }

    fn without_the_key_file_calls_are_refused_and_nobody_else_pays(driver) {
        let (one, two) = (Upstream::always(OK), Upstream::always(OK));
        let mut gateway = gateway(driver, &one, &two, AUTH);
        let (acme, other) = (gateway.tenant("acme"), gateway.tenant("other"));
        let ((_, key), (_, others)) = (gateway.key(&acme, "operator"), gateway.key(&other, "operator"));
        assert_eq!(put(&gateway, &acme, "one", "sk-canary-acme-one").status, 200);
        let (file, aside) = (gateway.folder().join("weir.db.key"), gateway.folder().join("aside"));
        let usable = |gateway: &Gateway| {
            let list = format!("/api/v1/tenants/{acme}/provider-keys");
            let listed = gateway.admin(Call::get(&list)).json();
            let exported = gateway.admin(Call::get(&format!("{list}?format=jsonl")));
            assert_eq!(json!(lines(&exported)), listed["data"]);
            listed["data"][0]["usable"].clone()
        };
        gateway.restart();
        assert_eq!((chat(&gateway, &key).status, usable(&gateway)), (200, json!(true)));
        assert!(last(&one).contains("sk-canary-acme-one"), "kept over a restart: {}", last(&one));

        std::fs::rename(&file, &aside).unwrap();
        for (what, text) in [("is missing", None), ("is not the one", Some("ab".repeat(32)))] {
            if let Some(text) = text {
                std::fs::write(&file, text).unwrap();
            }
            gateway.restart();
            let line = gateway.logged("the log says which file", |line| line.contains("cannot be decrypted") && line.contains(what));
            assert!(line.contains(&file.display().to_string()), "{line}");
            let seen = one.requests().len();
            let refused = chat(&gateway, &key);
            assert_eq!((refused.status, &refused.json()["error"]["type"]), (503, &json!("provider_key_unavailable")));
            assert!(refused.text().contains("auth.token_key_file") && refused.text().contains("`one`"), "{}", refused.text());
            assert_eq!((one.requests().len(), usable(&gateway)), (seen, json!(false)), "not with the operator's key");
            assert_eq!(chat(&gateway, &others).status, 200, "another tenant is not concerned");
            let own = Call::post("/v1/chat/completions", "{}").key(&key).field("x-api-key", "of-the-client");
            assert_eq!(call(gateway.addr, own.bytes()).status, 200, "who brings a key needs none");
        }
        std::fs::rename(&aside, &file).unwrap();
        gateway.restart();
        assert_eq!((chat(&gateway, &key).status, usable(&gateway)), (200, json!(true)), "the file is restored");
    }
}

#[test]
fn what_is_handed_in_is_shown_nowhere() {
    let (one, two) = (Upstream::always(OK), Upstream::always(OK));
    let gateway = gateway(Driver::Auto, &one, &two, AUTH);
    let acme = gateway.tenant("acme");
    let (_, key) = gateway.key(&acme, "operator");
    let canaries = ["sk-canary-first-0123", "sk-canary-second-4567"];
    let mut said = Vec::new();
    for canary in canaries {
        said.push(put(&gateway, &acme, "one", canary).text());
        assert_eq!(chat(&gateway, &key).status, 200);
    }
    for page in ["/provider-keys", "", "/token"] {
        said.push(gateway.admin(Call::get(&format!("/api/v1/tenants/{acme}{page}"))).text());
    }
    for page in ["/api/v1/tenants", "/api/v1/audit", "/api/v1/config/live", "/metrics"] {
        said.push(gateway.admin(Call::get(page)).text());
    }
    said.push(gateway.admin(Call::get("/api/v1/spans").field("X-Service-Tenant-ID", &acme)).text());
    said.push(gateway.log().join("\n"));
    for canary in canaries {
        assert!(said.iter().all(|text| !text.contains(canary)), "{canary} is shown");
        let kept = std::fs::read_dir(gateway.folder()).unwrap().map(|file| file.unwrap().path());
        let files: Vec<_> = kept.filter(|path| path.is_file()).collect();
        assert!(files.iter().any(|path| path.ends_with("weir.db")));
        for path in files {
            let bytes = std::fs::read(path).unwrap();
            assert!(memchr::memmem::find(&bytes, canary.as_bytes()).is_none(), "{canary} lies in a file");
        }
    }
    assert_eq!(gateway.admin(Call::delete(&path(&acme, "one"))).status, 204);
    let audit = gateway.admin(Call::get(&format!("/api/v1/audit?tenant_id={acme}"))).json();
    let lines = audit["data"].as_array().unwrap().iter();
    let changes = lines.filter(|line| line["action"].as_str().unwrap().starts_with("provider_key."));
    let said: Vec<_> = changes.map(|line| (line["action"].clone(), line["detail"]["upstream"].clone())).collect();
    let expected = ["provider_key.remove", "provider_key.rotate", "provider_key.set"];
    assert_eq!(said, expected.map(|action| (json!(action), json!("one"))));
}

#[test]
fn what_goes_with_its_tenant_does_not_come_back() {
    let (one, two) = (Upstream::always(OK), Upstream::always(OK));
    let mut gateway = gateway(Driver::Auto, &one, &two, AUTH);
    let acme = gateway.tenant("acme");
    assert_eq!(put(&gateway, &acme, "one", "sk-canary-acme-one").status, 200);
    assert_eq!(gateway.admin(Call::delete(&format!("/api/v1/tenants/{acme}"))).status, 204);
    // Whoever has the administrator's key may name a tenant that begins with the call.
    let ask =
        Call::post("/v1/chat/completions", "{}").key(crate::support::BOOTSTRAP).field("X-Service-Tenant-ID", &acme);
    for _ in 0..2 {
        assert_eq!(call(gateway.addr, ask.bytes()).status, 200);
        assert!(last(&one).contains(OPERATORS), "{}", last(&one));
        gateway.restart();
    }
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_can() {
    let (one, two) = (Upstream::always(OK), Upstream::always(OK));
    let with_groups = format!("{AUTH}\nupstream_groups: {{both: {{upstreams: [one, two]}}}}");
    let with_auth = gateway(Driver::Auto, &one, &two, &with_groups);
    let acme = with_auth.tenant("acme");
    let long = "x".repeat(4_097);
    for (upstream, body, status, said) in [
        ("one", json!({"api_key": "short"}), 400, "8 to 4096 visible ASCII characters"),
        ("one", json!({"api_key": "with a blank"}), 400, "visible ASCII"),
        ("one", json!({"api_key": "sk-\u{e4}\u{f6}\u{fc}-0123"}), 400, "visible ASCII"),
        ("one", json!({"api_key": long}), 400, "visible ASCII"),
        ("one", json!({"api_key": "svc_0123456789"}), 400, "a credential of this gateway"),
        ("one", json!({"api_key": "sk-0123456789", "name": "x"}), 400, "unknown field"),
        ("one", json!({}), 400, "`api_key` is missing"),
        ("nobody", json!({"api_key": "sk-0123456789"}), 404, "there are default, one, two"),
        ("both", json!({"api_key": "sk-0123456789"}), 404, "a group has no key of its own"),
    ] {
        let answer = with_auth.admin(Call::put(&path(&acme, upstream), &body));
        assert_eq!(answer.status, status, "{body}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(said), "{body}: {message}");
        let key = body["api_key"].as_str().unwrap_or("-");
        assert!(key.len() < 6 || !message.contains(key), "{message}");
    }
    assert_eq!(put(&with_auth, "6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10", "one", "sk-0123456789").status, 404);
    let open = gateway(Driver::Auto, &one, &two, "");
    let made = call(open.addr, Call::post("/api/v1/tenants", r#"{"name":"acme"}"#).bytes());
    let acme = made.json()["id"].as_str().unwrap().to_owned();
    let refused = call(open.addr, Call::put(&path(&acme, "one"), &json!({"api_key": "sk-0123456789"})).bytes());
    assert_eq!((refused.status, refused.text().contains("`auth.enabled` is off")), (409, true), "{}", refused.text());
}

impl Gateway {
    /// The one span of a call of this tenant's.
    fn span_of_tenant(&self, answer: &Answer, tenant: &str) -> serde_json::Value {
        let path = format!("/api/v1/traces/{}", answer.trace_id());
        eventually("the call is recorded", || {
            let read = self.admin(Call::get(&path).field("X-Service-Tenant-ID", tenant));
            (read.status == 200).then(|| read.json()["spans"][0].clone())
        })
    }
}
