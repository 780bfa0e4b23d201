//! Promise: what is addressed to the gateway ends at the gateway, and the provider gets its own credential from wherever
//! the client or the settings keep it.

use crate::support::{
    AUTH, Answer, BOOTSTRAP as ADMIN, Call, Setup, Upstream, call, chat_call, messages_body, on_both_drivers_in_full,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// The head the provider saw last.
fn seen(upstream: &Upstream, count: usize) -> String {
    let requests = upstream.wait_for_requests(count);
    String::from_utf8_lossy(requests[count - 1].raw_head()).into_owned()
}

fn bearing(call: Call) -> Call {
    call.field("Authorization", &format!("Bearer {ADMIN}"))
}

/// What a client may tell apart, without what differs between any two answers.
fn told(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let fields = answer.fields().into_iter().filter(|(name, _)| !name.eq_ignore_ascii_case("date")).collect();
    (answer.status, fields, answer.text())
}

on_both_drivers_in_full! {
    fn a_stranger_learns_nothing_and_the_provider_hears_nothing(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).with(AUTH).start();
        for target in ["/v1/chat/completions", "/api/v1/traces", "/metrics", "/admin/feature-flags", "/nowhere"] {
            let ask = |field: Option<(&str, &str)>| {
                let plain = Call::get(target);
                told(&call(gateway.addr, field.map_or(plain.clone(), |(name, value)| plain.field(name, value)).bytes()))
            };
            let missing = ask(None);
            assert_eq!(missing.0, 401, "{target}");
            assert!(missing.1.contains(&("WWW-Authenticate".to_owned(), "Bearer".to_owned())), "{:?}", missing.1);
            assert!(missing.2.contains("authentication_error"), "{}", missing.2);
            let unknown = format!("svc_{}", "0".repeat(64));
            for (name, value) in [
                ("Authorization", format!("Bearer {unknown}")),
                ("Authorization", "Bearer sk-provider".to_owned()),
                ("Authorization", format!("Bearer {}x", &ADMIN[1..])),
                ("Authorization", ADMIN.to_owned()),
                ("x-api-key", unknown.clone()),
                ("X-Service-Token", ADMIN.to_owned()),
                ("X-Service-Token", format!("svt_{}", "0".repeat(64))),
            ] {
                assert_eq!(ask(Some((name, &value))), missing, "{target} with {name}: {value}");
            }
        }
        assert_eq!(upstream.requests().len(), 0);
    }

    fn only_the_exempt_routes_are_open(driver) {
        let gateway = Setup::new(driver).with(AUTH).start();
        let status = |path: &str| call(gateway.addr, Call::get(path).bytes()).status;
        assert_eq!(["/health", "/livez", "/readyz"].map(status), [200; 3]);
        for path in ["/health/", "//health", "/%68ealth", "/Health", "/health;x", "/api/v1/nothing", "/v1/traces"] {
            assert_eq!(status(path), 401, "{path}");
        }
        assert_eq!(call(gateway.addr, bearing(Call::get("/api/v1/nothing")).bytes()).status, 404);
        assert_eq!(call(gateway.addr, bearing(Call::get("/metrics")).bytes()).status, 200);
    }

    fn the_gateway_s_credential_is_replaced_by_the_provider_s(driver) {
        let upstream = Upstream::always(OK);
        let keyless = Setup::new(driver).upstream(upstream.url()).with(AUTH);
        let gateway = keyless.clone().start();
        assert_eq!(call(gateway.addr, bearing(chat_call("hello")).bytes()).status, 200);
        let head = seen(&upstream, 1);
        assert!(!head.to_ascii_lowercase().contains("authorization"), "{head}");
        let named = bearing(chat_call("hello")).field("X-Service-Upstream-Authorization", "Bearer sk-of-the-client");
        call(gateway.addr, named.bytes());
        let head = seen(&upstream, 2);
        assert!(head.contains("\r\nAuthorization: Bearer sk-of-the-client\r\n") && !head.contains(ADMIN), "{head}");
        let own = chat_call("hello").field("x-api-key", ADMIN).field("Authorization", "Bearer sk-own");
        call(gateway.addr, own.bytes());
        let head = seen(&upstream, 3);
        assert!(head.contains("\r\nAuthorization: Bearer sk-own\r\n") && !head.contains("api-key"), "{head}");

        let gateway = keyless.with("upstream_api_key: sk-of-the-gateway").start();
        call(gateway.addr, bearing(chat_call("hello")).bytes());
        let head = seen(&upstream, 4);
        assert!(head.contains("\r\nAuthorization: Bearer sk-of-the-gateway\r\n"), "{head}");
        call(gateway.addr, bearing(Call::post("/v1/messages", messages_body("hello").to_string())).bytes());
        let head = seen(&upstream, 5);
        assert!(head.contains("\r\nx-api-key: sk-of-the-gateway\r\n") && !head.contains("Authorization"), "{head}");
        call(gateway.addr, bearing(chat_call("hello")).field("api-key", "sk-own").bytes());
        let head = seen(&upstream, 6);
        assert!(head.contains("\r\napi-key: sk-own\r\n") && !head.contains("sk-of-the-gateway"), "{head}");
    }

    fn credentials_pass_as_they_came_while_authentication_is_off(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).with("upstream_api_key: sk-of-the-gateway").start();
        let key = format!("svc_{}", "a".repeat(64));
        let sent = chat_call("hello").field("Authorization", &format!("Bearer {key}")).field("x-api-key", "sk-own");
        call(gateway.addr, sent.field("X-Service-Upstream-Authorization", "Bearer sk-odd").bytes());
        let head = seen(&upstream, 1);
        assert!(head.contains(&format!("\r\nAuthorization: Bearer {key}\r\nx-api-key: sk-own\r\n")), "{head}");
        assert!(!head.contains("sk-odd") && !head.contains("sk-of-the-gateway"), "{head}");
        call(gateway.addr, chat_call("hello").bytes());
        assert!(seen(&upstream, 2).contains("\r\nAuthorization: Bearer sk-of-the-gateway\r\n"));
    }

    // SDKs that bring no bearer token have a tenant of their own too, and read their traces with what they bring.
    fn every_makers_credential_names_a_tenant_while_authentication_is_off(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let signed = |signature: &str| {
            format!("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20261122/eu-west-1/bedrock/aws4_request, \
                     SignedHeaders=host, Signature={signature}")
        };
        let credentials = [
            ("Authorization", "Bearer sk-1".to_owned(), "Bearer sk-1".to_owned()),
            ("x-api-key", "sk-ant-1".to_owned(), "sk-ant-1".to_owned()),
            ("api-key", "azure-1".to_owned(), "azure-1".to_owned()),
            ("x-goog-api-key", "AIza-1".to_owned(), "AIza-1".to_owned()),
            ("Authorization", signed("aa"), signed("bb")),
        ];
        let mut tenants = std::collections::BTreeSet::new();
        for (name, sent, read_with) in credentials {
            let answer = call(gateway.addr, chat_call("hello").field(name, &sent).bytes());
            let trace = gateway.trace_for(&answer.trace_id(), &format!("{name}: {read_with}\r\n"));
            tenants.insert(trace["tenant_id"].as_str().unwrap().to_owned());
        }
        assert!(tenants.len() == 5 && !tenants.iter().any(|tenant| tenant.starts_with("00000000")), "{tenants:?}");
    }

    fn a_credential_in_the_target_is_refused_and_not_repeated(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).with(AUTH).start();
        let escaped: String = ADMIN.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for secret in [ADMIN, &escaped, &format!("svc_{}", "a".repeat(64)), &format!("svt_{}", "b".repeat(64))] {
            for path in ["/v1/models?key=", "/v1/models/", "/api/v1/traces?", "/api/v1/"] {
                let answer = call(gateway.addr, bearing(Call::get(&format!("{path}{secret}"))).bytes());
                assert_eq!(answer.status, 400, "{path}");
                assert!(!answer.text().contains(secret), "{}", answer.text());
            }
        }
        assert_eq!(upstream.requests().len(), 0);
    }
}
