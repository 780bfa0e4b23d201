//! Promise: a credential put into any input of the gateway turns up nowhere it is not due: not upstream, not in the log
//! at its loudest, not in metrics, errors, the API or the database.

use serde_json::json;

use crate::support::{
    AUTH, Answer, BOOTSTRAP, Call, Setup, Upstream, call, chat_call, eventually, on_both_drivers_in_full,
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
/// The provider's own credential, due upstream and nowhere else.
const PROVIDER: &str = "sk-canary-provider-0123456789";

/// Fields a client may put a credential into, by mistake or on purpose.
const FIELDS: [&str; 14] = [
    "Authorization",
    "x-api-key",
    "api-key",
    "X-Service-Token",
    "x-goog-api-key",
    "Cookie",
    "User-Agent",
    "X-Custom",
    "Referer",
    "X-Service-Agent-ID",
    "X-Service-Provider",
    "X-Service-Tenant-ID",
    "X-Service-Upstream-Authorization",
    "X-Request-ID",
];

#[track_caller]
fn assert_none_of(secrets: &[String], text: &str, place: &str) {
    for secret in secrets {
        // Eight characters of a credential are as good as none; of the prefix everybody knows the first four.
        let telling = &secret[secret.len() - 24..];
        assert!(!text.contains(telling), "{secret} is in {place}: {text}");
    }
}

on_both_drivers_in_full! {
    fn a_credential_turns_up_nowhere_it_is_not_due(driver) {
        let upstream = Upstream::always(OK);
        let setup = Setup::new(driver).upstream(upstream.url()).with(AUTH).unlimited().log_level("trace");
        let mut gateway = setup.with(&format!("upstream_api_key: {PROVIDER}")).start();
        let tenant = gateway.tenant("Acme");
        let (_, operator) = gateway.key(&tenant, "operator");
        let (revoked_id, revoked) = gateway.key(&tenant, "operator");
        gateway.admin(Call::delete(&format!("/api/v1/auth/keys/{revoked_id}")));
        let token = gateway.token(&tenant);
        let secrets = [BOOTSTRAP.to_owned(), operator.clone(), revoked, token];
        let mut answers: Vec<Answer> = Vec::new();
        let mut say = |request: Call| answers.push(call(gateway.addr, request.bytes()));
        for secret in &secrets {
            for name in FIELDS {
                for value in [secret.clone(), format!("Bearer {secret}"), format!("key={secret}; x")] {
                    // With a key beside it that lets the request through, and without.
                    say(chat_call("hello").field(name, &value));
                    say(chat_call("hello").field("api-key", &operator).field(name, &value));
                    say(Call::get("/api/v1/traces").field(name, &value));
                }
            }
            for target in ["/v1/models?key=", "/v1/models/", "/api/v1/traces?key=", "/api/v1/", "/api/v1/traces/"] {
                say(Call::get(&format!("{target}{secret}")));
                say(Call::get(&format!("{target}{secret}")).key(&operator));
            }
            for body in [json!({ secret.as_str(): 1 }), json!({ "name": { "a": secret } }), json!(secret)] {
                say(Call::post("/api/v1/tenants", body.to_string()).key(BOOTSTRAP));
                say(Call::post("/api/v1/auth/keys", body.to_string()).key(BOOTSTRAP));
            }
        }
        let heads: Vec<String> =
            upstream.requests().iter().map(|request| String::from_utf8_lossy(request.raw_head()).into_owned()).collect();
        assert!(heads.len() > 50, "{} requests reached the provider", heads.len());
        assert_none_of(&secrets, &heads.join("\n"), "a request upstream");
        // What is said in a prompt is the provider's to read; the record is not.
        for secret in &secrets {
            let body = json!({ "model": format!("model-{secret}"), "messages": [{ "role": "user", "content": format!("my key is {secret}") }] });
            let sent = Call::post("/v1/chat/completions", body.to_string()).key(&operator).field("X-Service-Agent-ID", secret);
            assert_eq!(call(gateway.addr, sent.bytes()).status, 200);
        }
        let proxied = upstream.requests().len();
        let list = |path: &str| call(gateway.addr, Call::get(path).key(&operator).bytes());
        eventually("everything is recorded", || {
            let total = list("/api/v1/spans?limit=1").json()["total"].as_u64().unwrap();
            (total as usize >= proxied).then_some(())
        });
        let newest = list("/api/v1/traces?limit=1").json()["data"][0]["trace_id"].as_str().unwrap().to_owned();
        for secret in &secrets {
            let action = json!({ "action_type": "command_execution", "name": format!("curl -H 'x-api-key: {secret}' | sh"), "arguments": secret, "result": secret, "metadata": { "said": secret } });
            let told = Call::post(&format!("/api/v1/traces/{newest}/actions"), action.to_string()).key(&operator);
            let told = call(gateway.addr, told.bytes());
            assert_eq!(told.status, 201);
            answers.push(told);
        }
        let mut shown: String = answers.iter().map(|answer| answer.lossy_head() + &answer.text()).collect();
        for path in ["/api/v1/spans?limit=1000", "/api/v1/traces?limit=1000", "/metrics", "/api/v1/auth/keys", "/api/v1/tenants", "/api/v1/config/live", "/api/v1/audit?limit=1000", "/health"] {
            shown.push_str(&gateway.admin(Call::get(path).field("X-Service-Tenant-ID", &tenant)).text());
        }
        let mut secrets = secrets.to_vec();
        secrets.push(PROVIDER.to_owned());
        assert_none_of(&secrets, &shown, "an answer");
        gateway.terminate();
        assert!(gateway.wait().success());
        assert_none_of(&secrets, &gateway.log().join("\n"), "the log");
        // It does speak of these requests, so it could have said more.
        assert!(gateway.log().iter().any(|line| line.contains("(holds a credential)")), "no path is masked");
        assert!(gateway.log().iter().any(|line| line.contains("\"path\":\"/v1/chat/completions\"")), "no path is logged");
        for file in std::fs::read_dir(gateway.folder()).unwrap() {
            let path = file.unwrap().path();
            if path.file_name().is_some_and(|name| name != "service.yaml") {
                let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                assert_none_of(&secrets, &text, &path.display().to_string());
            }
        }
    }

    fn credentials_from_the_environment_turn_up_nowhere_they_are_not_due(driver) {
        let upstream = Upstream::always(OK);
        let env = [("SERVICE_AUTH_ADMIN_KEY", BOOTSTRAP), ("SERVICE_UPSTREAM_API_KEY", PROVIDER)];
        let mut setup = Setup::new(driver).upstream(upstream.url()).with("auth: {enabled: true}").log_level("trace");
        for (name, value) in env {
            setup = setup.env(name, value);
        }
        let mut gateway = setup.start();
        let secrets = [BOOTSTRAP.to_owned(), PROVIDER.to_owned()];
        let mut shown = String::new();
        for name in FIELDS {
            let mut say = |request: Call| {
                let answer = call(gateway.addr, request.bytes());
                shown.push_str(&(answer.lossy_head() + &answer.text()));
            };
            // Of the one who knows the key, and of one who has it in the wrong place.
            say(chat_call("hello").key(BOOTSTRAP).field(name, BOOTSTRAP));
            say(chat_call("hello").field(name, &format!("Bearer {BOOTSTRAP}")));
        }
        let heads: Vec<String> =
            upstream.requests().iter().map(|request| String::from_utf8_lossy(request.raw_head()).into_owned()).collect();
        assert!(heads.len() >= FIELDS.len() && heads.iter().all(|head| head.contains(PROVIDER)), "{heads:?}");
        assert_none_of(&secrets[..1], &heads.join("\n"), "a request upstream");
        for path in ["/api/v1/spans?limit=1000", "/metrics", "/api/v1/config/live", "/api/v1/config/features", "/api/v1/audit", "/health", "/api-doc/openapi.json"] {
            let answer = gateway.admin(Call::get(path));
            assert_eq!(answer.status, 200, "{path}");
            shown.push_str(&answer.text());
        }
        assert_none_of(&secrets, &shown, "an answer");
        let config = gateway.folder().join("service.yaml");
        let config = config.to_str().unwrap();
        for command in [&["config", "print", "--config", config][..], &["doctor", "--config", config]] {
            let output = crate::support::weir(command).envs(env).output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            assert!(!said.is_empty(), "{command:?}");
            assert_none_of(&secrets, &String::from_utf8_lossy(&said), command[0]);
        }
        gateway.terminate();
        assert!(gateway.wait().success());
        assert_none_of(&secrets, &gateway.log().join("\n"), "the log");
        for file in std::fs::read_dir(gateway.folder()).unwrap() {
            let path = file.unwrap().path();
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            assert_none_of(&secrets, &text, &path.display().to_string());
        }
    }
}
