//! Promise: a web page that happens to be open where the gateway can be reached cannot use it.

use serde_json::json;

use crate::support::{AUTH, Answer, Call, Client, Gateway, Setup, Upstream, call, on_both_drivers};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nAccess-Control-Allow-Origin: *\r\n\
    Content-Length: 2\r\n\r\n{}";
const CHAT: &str = r#"{"model":"m","messages":[]}"#;

/// A request by these names, with these fields.
fn ask(gateway: &Gateway, method: &str, path: &str, host: &str, fields: &str, body: &str) -> Answer {
    let length = if method == "GET" { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let mut client = Client::connect(gateway.addr);
    client.say(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{fields}{length}\r\n{body}"));
    client.answer_to(method).unwrap()
}

fn refused(answer: &Answer, setting: &str) {
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert!(answer.text().contains(setting), "{}", answer.text());
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

on_both_drivers! {
    fn a_name_that_points_here_is_no_name_of_ours(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).server("allowed_hosts: [llm.corp.example, .lab.example]").start();
        let json = "Content-Type: application/json\r\n";
        for (method, path, body) in [
            ("GET", "/api/v1/traces", ""),
            ("GET", "/api/v1/config/live", ""),
            ("PUT", "/api/v1/config/features", r#"{"enforcement_mode":"log"}"#),
            ("POST", "/api/v1/auth/keys", "{}"),
            ("GET", "/metrics", ""),
            ("GET", "/swagger-ui", ""),
            ("GET", "/nothing-of-ours/../x", ""),
        ] {
            let answer = ask(&gateway, method, path, "rebind.example:19080", json, body);
            if path.contains("..") {
                assert_eq!(answer.status, 400);
            } else {
                refused(&answer, "`server.allowed_hosts`");
            }
        }
        for path in ["/health", "/livez", "/readyz"] {
            assert_eq!(ask(&gateway, "GET", path, "balancer.example", "", "").status, 200, "{path}");
        }
        for host in ["127.0.0.1:8080", "[::1]", "localhost", "weir", "LLM.corp.example", "a.lab.example:80"] {
            assert_eq!(ask(&gateway, "GET", "/api/v1/traces", host, "", "").status, 200, "{host}");
        }
        // Programs reach the provider by whatever name; a page that has pointed its own here does not.
        let post = |fields: &str| ask(&gateway, "POST", "/v1/chat/completions", "rebind.example", fields, CHAT);
        assert_eq!(post(json).status, 200);
        refused(&post(&format!("{json}Origin: http://rebind.example\r\n")), "`server.allowed_hosts`");
        assert_eq!(upstream.requests().len(), 1);
    }

    fn a_page_of_another_site_reaches_nobody(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).with("upstream_api_key: sk-operator").start();
        for marks in [
            "Origin: https://evil.example\r\n",
            "Sec-Fetch-Site: cross-site\r\n",
            "Origin: http://localhost:3000\r\nSec-Fetch-Site: same-site\r\n",
            "Origin: null\r\n",
        ] {
            let simple = format!("{marks}Content-Type: text/plain\r\n");
            for (method, path, body) in [
                ("POST", "/v1/chat/completions", CHAT),
                ("GET", "/v1/models", ""),
                ("POST", "/api/v1/tenants", r#"{"name":"x"}"#),
                ("POST", "/api/v1/tenants/00000000-0000-0000-0000-000000000000/token/reset", ""),
                ("GET", "/api/v1/traces", ""),
                ("OPTIONS", "/v1/chat/completions", ""),
            ] {
                refused(&ask(&gateway, method, path, "localhost:8080", &simple, body), "`server.cors_allowed_origins`");
            }
            let socket = format!(
                "{marks}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            );
            refused(&ask(&gateway, "GET", "/v1/realtime", "localhost:8080", &socket, ""), "`server.cors_allowed_origins`");
        }
        assert_eq!(upstream.requests().len(), 0, "nothing was sent, least of all the operator's key");
        assert_eq!(gateway.json("/api/v1/traces")["total"], 0, "whom a page visits fills no record");
        // A program, a page of the gateway's own, and a link to it.
        for marks in ["", "Origin: http://localhost:8080\r\nSec-Fetch-Site: same-origin\r\n", "Sec-Fetch-Site: none\r\n"] {
            assert_eq!(ask(&gateway, "POST", "/v1/chat/completions", "localhost:8080", marks, CHAT).status, 200, "{marks}");
        }
        let link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
        assert_eq!(ask(&gateway, "GET", "/swagger-ui", "localhost:8080", link, "").status, 200);
    }

    fn the_operators_key_is_lent_by_names_of_ours_only(driver) {
        let upstream = Upstream::always(OK);
        let setup = Setup::new(driver).upstream(upstream.url()).with("upstream_api_key: sk-operator");
        let gateway = setup.server("allowed_hosts: [llm.corp.example]").start();
        let browser = "User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n";
        let own = "Authorization: Bearer sk-own\r\n";
        for (host, fields, lent) in [
            ("evil.example", "", None),
            ("evil.example", browser, None),
            ("evil.example", &format!("{own}{browser}"), None),
            ("evil.example", &format!("{own}Referer: http://evil.example/\r\n"), None),
            ("evil.example", own, Some("Bearer sk-own")),
            ("llm.corp.example", "", Some("Bearer sk-operator")),
            ("llm.corp.example", browser, Some("Bearer sk-operator")),
            ("127.0.0.1:8080", browser, Some("Bearer sk-operator")),
            ("weir", "", Some("Bearer sk-operator")),
        ] {
            let before = upstream.requests().len();
            let answer = ask(&gateway, "GET", "/v1/files", host, fields, "");
            match lent {
                None => refused(&answer, "`server.allowed_hosts`"),
                Some(_) => assert_eq!(answer.status, 200, "{}", answer.text()),
            }
            let seen = upstream.requests();
            let seen = seen.get(before).map(|seen| seen.header("authorization").map(str::to_owned));
            assert_eq!(seen, lent.map(|lent| Some(lent.to_owned())), "{host} {fields}");
        }
    }

    fn a_listed_origin_may_ask_and_read(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver)
            .upstream(upstream.url())
            .server("cors_allowed_origins: ['https://app.example']")
            .with("upstream_api_key: sk-operator")
            .start();
        let from = "Origin: https://app.example\r\nSec-Fetch-Site: cross-site\r\n";
        for path in ["/v1/chat/completions", "/api/v1/traces"] {
            let wanted = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,content-type\r\n";
            let preflight = ask(&gateway, "OPTIONS", path, "localhost", &format!("{from}{wanted}"), "");
            assert_eq!(preflight.status, 200, "{}", preflight.text());
            for (name, value) in [
                ("access-control-allow-origin", "https://app.example"),
                ("access-control-allow-headers", "authorization,content-type"),
                ("vary", "Origin"),
            ] {
                assert_eq!(preflight.header(name).as_deref(), Some(value), "{name}");
            }
            assert!(preflight.header("access-control-allow-methods").unwrap().contains("POST"));
        }
        assert_eq!(upstream.requests().len(), 0, "answered here");
        let answer = ask(&gateway, "POST", "/v1/chat/completions", "localhost", from, CHAT);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.all("access-control-allow-origin"), ["https://app.example"], "one, and not the provider's");
        let seen = upstream.wait_for_requests(1).remove(0);
        assert_eq!(seen.header("authorization"), Some("Bearer sk-operator"), "the operator has listed whom it is for");
        for path in ["/api/v1/traces", "/api/v1/traces/x"] {
            let answer = ask(&gateway, "GET", path, "localhost", from, "");
            assert_eq!(answer.header("access-control-allow-origin").as_deref(), Some("https://app.example"), "{path}");
        }
        refused(&ask(&gateway, "GET", "/api/v1/traces", "localhost", "Origin: https://app.example.evil\r\n", ""), "cors");
        // What the next request on a connection may is its own matter.
        let mut client = Client::connect(gateway.addr);
        client.say(format!("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n{from}\r\n"));
        assert_eq!(client.answer().all("access-control-allow-origin"), ["https://app.example"]);
        client.say("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.answer().all("access-control-allow-origin"), ["*"], "a program sees the provider's own answer");
    }

    fn with_authentication_on_a_key_counts_and_no_name(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).with(AUTH).start();
        let tenant = gateway.tenant("Acme");
        let (_, key) = gateway.key(&tenant, "admin");
        let with = |marks: &str| format!("Authorization: Bearer {key}\r\nContent-Type: application/json\r\n{marks}");
        let foreign = with("Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n");
        assert_eq!(ask(&gateway, "GET", "/api/v1/traces", "gateway.example", &with(""), "").status, 200);
        assert_eq!(ask(&gateway, "POST", "/v1/chat/completions", "gateway.example", &foreign, CHAT).status, 200);
        refused(&ask(&gateway, "POST", "/api/v1/tenants", "gateway.example", &foreign, r#"{"name":"x"}"#), "cors_allowed_origins");
        let tenants = gateway.admin(Call::get("/api/v1/tenants")).json();
        assert_eq!(tenants["total"], 1, "{tenants}");
    }

    fn websockets_are_refused_where_the_settings_say_so_or_something_is_blocked(driver) {
        let upstream = Upstream::always("HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\n\r\n");
        let handshake = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        for (server, enforcement, status) in [
            ("timing_header: false", "log", 501),
            ("websocket: deny", "log", 426),
            ("timing_header: false", "block", 426),
            ("websocket: allow", "block", 501),
            ("timing_header: false", "flag", 501),
            ("timing_header: false", "log, categories: [{finding_type: jailbreak, action: block}]", 426),
        ] {
            let setup = Setup::new(driver).upstream(upstream.url()).server(server);
            let gateway = setup.with(&format!("enforcement: {{mode: {enforcement}}}")).start();
            // Whatever the client: one that is told 400 in place of 403 falls back to requests as all others do.
            let handshake = format!("{handshake}User-Agent: codex_exec/0.1\r\n");
            let answer = ask(&gateway, "GET", "/v1/other", "localhost", &handshake, "");
            assert_eq!(answer.status, status, "{server}, {enforcement}: {}", answer.text());
            if status == 426 {
                assert!(answer.text().contains("`server.websocket"), "{}", answer.text());
                assert_eq!(answer.header("upgrade"), Some("HTTP/1.1".to_owned()));
                let span = gateway.newest_span_of(1);
                assert_eq!((&span["status_code"], &span["error_type"]), (&json!(426), &json!("permission_denied")));
            }
            // What is read here is held to enforcement message by message.
            let read = ask(&gateway, "GET", "/v1/responses", "localhost", &handshake, "");
            assert_eq!(read.status, if server.ends_with("deny") { 426 } else { 501 }, "{server}, {enforcement}");
        }
    }
}

/// Reads as a whole what the tests above take apart: the refusal says what to do.
#[test]
fn the_refusal_names_the_host_and_what_to_do() {
    let gateway = Setup::new(crate::support::Driver::Auto).start();
    let answer = call(gateway.addr, "GET /api/v1/stats HTTP/1.1\r\nHost: gateway.example.com:8080\r\n\r\n");
    assert_eq!(
        answer.json()["error"]["message"],
        "authentication is off, and `Host: gateway.example.com:8080` is not a name this gateway is known by: a web page could \
         have pointed it here. Call it by its IP address or localhost, list the name in `server.allowed_hosts`, or set \
         `auth.enabled: true`"
    );
}
