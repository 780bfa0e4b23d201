//! Promise: what one key may use is set with the key or by a call of its own, holds from the first use on, is shown, and goes with
//! the key; nothing else of its tenant changes, and limits for a key that is not there are refused.

use serde_json::{Value, json};

use crate::support::{AUTH, Answer, Call, Gateway, Setup, Upstream, call, on_both_drivers_in_full};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

fn ask(gateway: &Gateway, key: &str, model: &str) -> u16 {
    let body = json!({"model": model, "max_tokens": 1, "messages": []}).to_string();
    call(gateway.addr, Call::post("/v1/chat/completions", body).key(key).bytes()).status
}

/// A new key with these limits: the answer.
fn make(gateway: &Gateway, tenant: &str, access: &Value) -> Answer {
    let body = json!({"tenant_id": tenant, "name": "k", "role": "operator", "access": access});
    gateway.admin(Call::post("/api/v1/auth/keys", body.to_string()))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Another `access` for a key: the status, and the answer.
fn put(gateway: &Gateway, id: &str, access: &Value) -> (u16, Value) {
    let answer = gateway.admin(Call::put(&format!("/api/v1/auth/keys/{id}"), &json!({ "access": access })));
    (answer.status, answer.json())
}

fn config(gateway: &Gateway, tenant: &str) -> Value {
    gateway.admin(Call::get(&format!("/api/v1/tenants/{tenant}"))).json()["config"].clone()
}

fn set_config(gateway: &Gateway, tenant: &str, config: &Value) -> Answer {
    gateway.admin(Call::put(&format!("/api/v1/tenants/{tenant}"), &json!({ "config": config })))
}

/// What the list of keys says of one.
fn listed(gateway: &Gateway, tenant: &str, id: &str) -> Value {
    let list = gateway.admin(Call::get(&format!("/api/v1/auth/keys?tenant_id={tenant}"))).json();
    list["data"].as_array().unwrap().iter().find(|key| key["id"] == id).unwrap().clone()
}

on_both_drivers_in_full! {
    fn a_key_is_made_with_its_limits_changed_by_itself_and_takes_them_along(driver) {
        let provider = Upstream::always(OK);
        let mut gateway = Setup::new(driver).upstream(provider.url()).with(AUTH).start();
        let tenant = gateway.tenant("acme");
        assert_eq!(set_config(&gateway, &tenant, &json!({"region": "eu"})).status, 200);
        let mini = json!({"allowed_models": ["mini"]});
        let made = make(&gateway, &tenant, &mini);
        assert_eq!((made.status, &made.json()["access"]), (201, &mini), "{}", made.text());
        let (id, key) = (text(&made.json()["id"]), text(&made.json()["key"]));
        assert_eq!([ask(&gateway, &key, "mini"), ask(&gateway, &key, "large")], [200, 403]);
        let other = make(&gateway, &tenant, &json!(null));
        assert_eq!((other.status, &other.json()["access"]), (201, &json!(null)));
        let (other_id, other) = (text(&other.json()["id"]), text(&other.json()["key"]));
        assert_eq!(ask(&gateway, &other, "large"), 200);
        assert_eq!(listed(&gateway, &tenant, &id)["access"], mini);
        assert_eq!(listed(&gateway, &tenant, &other_id)["access"], json!(null));
        assert_eq!(config(&gateway, &tenant), json!({"region": "eu", "access": {"keys": {id.as_str(): mini}}}));

        // In force when the change is answered, on every core.
        for round in 0..10 {
            let large = json!({"allowed_models": ["large"]});
            let answer = put(&gateway, &id, &large);
            assert_eq!(answer, (200, json!({"id": id, "tenant_id": tenant, "access": large})));
            assert_eq!([ask(&gateway, &key, "mini"), ask(&gateway, &key, "large")], [403, 200], "round {round}");
            assert_eq!(put(&gateway, &id, &json!(null)).0, 200);
            assert_eq!([ask(&gateway, &key, "mini"), ask(&gateway, &key, "large")], [200, 200], "round {round}");
        }
        assert_eq!(config(&gateway, &tenant), json!({"region": "eu"}));
        let rate = json!({"rate_limit": {"requests_per_second": 1, "burst_size": 1}});
        assert_eq!((put(&gateway, &id, &mini).0, put(&gateway, &other_id, &rate).0), (200, 200));
        assert_eq!(ask(&gateway, &other, "large"), 200);
        let second = ask(&gateway, &other, "large");
        assert!(second == 429 || ask(&gateway, &other, "large") == 429, "one a second");

        gateway.restart();
        assert_eq!([ask(&gateway, &key, "mini"), ask(&gateway, &key, "large")], [200, 403]);
        assert_eq!(gateway.admin(Call::delete(&format!("/api/v1/auth/keys/{id}"))).status, 204);
        assert_eq!(config(&gateway, &tenant), json!({"region": "eu", "access": {"keys": {other_id.as_str(): rate}}}));
        assert_eq!(put(&gateway, &id, &mini).0, 404, "it is revoked");
        let events = gateway.admin(Call::get("/api/v1/audit?limit=100").field("X-Service-Tenant-ID", &tenant)).json();
        let of_key = |event: &&Value| event["action"] == "key.update" && event["target"] == id.as_str();
        // Ten times there and back, and once more; what it was made with is its tenant's change.
        let lines = events["data"].as_array().unwrap();
        assert_eq!(lines.iter().filter(of_key).count(), 20 + 1);
        let place = |action: &str| {
            let fits = |event: &&Value| event["action"] == action && event["target"] == id.as_str();
            lines.iter().position(|event| fits(&event)).unwrap_or_else(|| panic!("{action}: {lines:?}"))
        };
        let (revoked, made) = (place("key.revoke"), place("key.create"));
        let outside = lines[..revoked].iter().chain(&lines[made + 1..]).find(|event| of_key(event));
        assert_eq!(outside, None, "a key is changed between its beginning and its end only");
        assert_eq!(lines[made + 1]["detail"]["changed"], format!("config.access.keys.{id}"));
        // What its end takes out of the tenant's `config` is a change of the tenant: nothing changes a key that is revoked.
        let (last, before) = (&lines[0], &lines[1]);
        assert_eq!((&before["action"], &before["target"]), (&json!("key.revoke"), &json!(id)), "{lines:?}");
        assert_eq!((&last["action"], &last["target"]), (&json!("tenant.update"), &json!(tenant)), "{lines:?}");
        assert_eq!(last["detail"]["changed"], format!("config.access.keys.{id}"));
    }

    fn no_spelling_of_a_path_hides_its_model_from_the_limits_of_a_key(driver) {
        let provider = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(provider.url()).with(AUTH).start();
        let tenant = gateway.tenant("acme");
        let key = text(&make(&gateway, &tenant, &json!({"allowed_models": ["mini"]})).json()["key"]);
        // What stands in the body is no matter to who runs what the path names.
        let body = json!({"model": "mini", "messages": []}).to_string();
        let status = |path: &str| call(gateway.addr, Call::post(path, body.clone()).key(&key).bytes()).status;
        for (path, expected) in [
            ("/openai/deployments/mini/chat/completions", 200),
            ("/openai/Deployments/mini/chat/completions", 200),
            ("/openai/deployments/large/chat/completions", 403),
            ("/openai/Deployments/large/chat/completions", 403),
            ("/openai/deploymen%74s/large/chat/completions", 403),
            ("/openai%2fdeployments/large/chat/completions", 403),
            ("/v1beta/%6dodels/large:generateContent", 403),
            ("/v1beta/models/large%3AgenerateContent", 403),
            ("/%6dodel/large/converse", 403),
        ] {
            assert_eq!(status(path), expected, "{path}");
        }
    }

    fn models_that_may_answer_instead_are_held_to_the_limits_of_a_key(driver) {
        let provider = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(provider.url()).with(AUTH).start();
        let tenant = gateway.tenant("acme");
        let key = text(&make(&gateway, &tenant, &json!({"allowed_models": ["mini", "77"]})).json()["key"]);
        let free = text(&make(&gateway, &tenant, &json!(null)).json()["key"]);
        let many = vec!["mini"; 33];
        for (more, expected) in [
            (json!({"models": ["mini"]}), 200),
            (json!({"models": ["mini", "large"]}), 403),
            (json!({"Models": ["large"]}), 403),
            (json!({"fallbacks": ["large"]}), 403),
            (json!({"fallbacks": [{"model": "large"}]}), 403),
            (json!({"fallbacks": [{"mini": ["large"]}]}), 403),
            (json!({"fallbacks": "large"}), 403),
            (json!({"models": many}), 403),
            (json!({"metadata": {"models": ["large"]}}), 200),
        ] {
            for (key, expected) in [(&key, expected), (&free, 200)] {
                let mut body = json!({"model": "mini", "messages": []});
                body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                let request = Call::post("/v1/chat/completions", body.to_string()).key(key);
                assert_eq!(call(gateway.addr, request.bytes()).status, expected, "{more}");
            }
        }
        let only = json!({"models": ["mini", "large"], "messages": []}).to_string();
        assert_eq!(call(gateway.addr, Call::post("/v1/chat/completions", only).key(&key).bytes()).status, 403);
    }

    fn a_deployed_model_is_held_to_them_by_its_number(driver) {
        let provider = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(provider.url()).with(AUTH).start();
        let tenant = gateway.tenant("acme");
        let key = text(&make(&gateway, &tenant, &json!({"allowed_models": ["mini", "77"]})).json()["key"]);
        let body = json!({"model": "mini", "messages": []}).to_string();
        for (path, expected) in [
            ("endpoints/77:rawPredict", 200),
            ("endpoints/78:rawPredict", 403),
            ("Endpoints/78%3AstreamRawPredict", 403),
            ("endpoints%2f78/chat/completions", 403),
            ("endpoints/78/chat/completions", 403),
            ("endpoints/openapi/chat/completions", 200),
        ] {
            let path = format!("/v1/projects/p/locations/l/{path}");
            let status = call(gateway.addr, Call::post(&path, body.clone()).key(&key).bytes()).status;
            assert_eq!(status, expected, "{path}");
        }
    }

    fn limits_of_a_key_that_is_not_there_are_refused(driver) {
        let provider = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(provider.url()).with(AUTH).start();
        let (tenant, other) = (gateway.tenant("acme"), gateway.tenant("other"));
        let ((id, key), (foreign, _)) = (gateway.key(&tenant, "operator"), gateway.key(&other, "operator"));
        let (revoked, _) = gateway.key(&tenant, "operator");
        assert_eq!(gateway.admin(Call::delete(&format!("/api/v1/auth/keys/{revoked}"))).status, 204);
        let mini = json!({"allowed_models": ["mini"]});
        let of = |id: &str| json!({"access": {"keys": {id: mini.clone()}}});
        assert_eq!(set_config(&gateway, &tenant, &of(&id)).status, 200);
        for unknown in [foreign.as_str(), &revoked, "6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10"] {
            let refused = set_config(&gateway, &tenant, &of(unknown));
            assert!(refused.status == 400 && refused.text().contains(unknown), "{}", refused.text());
            let body = json!({"name": "new", "config": of(unknown)}).to_string();
            assert_eq!(gateway.admin(Call::post("/api/v1/tenants", body)).status, 400);
        }
        // Nothing of that has changed anything, nor has what cannot be meant.
        let bad = json!({"allowed_model": []});
        assert_eq!((put(&gateway, &id, &bad).0, make(&gateway, &tenant, &bad).status), (400, 400));
        assert_eq!((put(&gateway, &id, &json!([])).0, put(&gateway, "1", &mini).0), (400, 400));
        let left_out = gateway.admin(Call::put(&format!("/api/v1/auth/keys/{id}"), &json!({})));
        assert_eq!(left_out.status, 400, "left out is not null: {}", left_out.text());
        assert_eq!([ask(&gateway, &key, "mini"), ask(&gateway, &key, "large")], [200, 403]);
        assert_eq!(config(&gateway, &tenant), of(&id));
    }
}
