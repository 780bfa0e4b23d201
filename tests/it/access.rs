//! Promise: a list of models cannot be talked around, in any dialect, at any place where a model can stand, by any trick of spelling;
//! a key that is limited gets hold of nothing that is not; and its limits are not lifted by accident.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::support::{AUTH, Call, Gateway, Setup, Upstream, call, on_both_drivers_in_full};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// What it is called, and what it makes of a body.
type JsonTrick = (&'static str, fn(&str) -> Vec<u8>);
/// What it is called, and what it makes of a path and a body.
type HeadTrick = (&'static str, fn(&str, &str) -> Call);

/// A new key that may use `mini` alone: its id, and the key.
fn limited(gateway: &Gateway, tenant: &str, role: &str) -> (String, String) {
    let body = json!({"tenant_id": tenant, "name": "k", "role": role, "access": {"allowed_models": ["mini"]}});
    let made = gateway.admin(Call::post("/api/v1/auth/keys", body.to_string())).json();
    (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
}

/// A call of each dialect that names `mini` where that dialect names its model.
fn plain_calls() -> Vec<(&'static str, Value)> {
    let turns = || json!([{"role": "user", "content": "hi"}]);
    vec![
        ("/v1/chat/completions", json!({"model": "mini", "messages": turns()})),
        ("/v1/completions", json!({"model": "mini", "prompt": "hi"})),
        ("/v1/responses", json!({"model": "mini", "input": "hi"})),
        ("/v1/messages", json!({"model": "mini", "max_tokens": 1, "messages": turns()})),
        ("/v1/messages/count_tokens", json!({"model": "mini", "messages": turns()})),
        ("/v1/embeddings", json!({"model": "mini", "input": "hi"})),
        ("/v1/images/generations", json!({"model": "mini", "prompt": "hi"})),
        ("/v1/audio/speech", json!({"model": "mini", "input": "hi", "voice": "a"})),
        ("/v1/moderations", json!({"model": "mini", "input": "hi"})),
        ("/v2/rerank", json!({"model": "mini", "query": "hi", "documents": ["a"]})),
        ("/v1/threads/t1/runs", json!({"model": "mini", "assistant_id": "a"})),
        ("/api/chat", json!({"model": "mini", "messages": turns()})),
        ("/api/generate", json!({"model": "mini", "prompt": "hi"})),
        ("/api/embed", json!({"model": "mini", "input": "hi"})),
        ("/openai/deployments/mini/chat/completions", json!({"messages": turns()})),
        ("/openai/deployments/mini/embeddings", json!({"input": "hi"})),
        ("/v1beta/models/mini:generateContent", json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]})),
        ("/v1beta/models/mini:countTokens", json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]})),
        ("/v1beta/models/mini:batchEmbedContents", json!({"requests": [{"model": "models/mini"}]})),
        ("/model/mini/converse", json!({"messages": [{"role": "user", "content": [{"text": "hi"}]}]})),
        ("/model/mini/invoke", json!({"max_tokens": 1, "messages": turns()})),
        ("/v1/realtime/client_secrets", json!({"session": {"type": "realtime", "model": "mini"}})),
        (
            "/v1/messages/batches",
            json!({"requests": [{"custom_id": "a", "params": {"model": "mini", "messages": turns()}}]}),
        ),
    ]
}

/// Ways to name `large` beside `mini` in a JSON body.
fn json_tricks() -> Vec<JsonTrick> {
    fn ended(body: &str, more: &str) -> Vec<u8> {
        let open = body.strip_suffix('}').unwrap();
        format!("{open},{more}}}").into()
    }
    fn gzipped(body: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }
    vec![
        ("a second key", |body| ended(body, r#""model":"large""#)),
        ("a first key", |body| body.replacen('{', r#"{"model":"large","#, 1).into()),
        ("another case", |body| ended(body, r#""Model":"large""#)),
        ("capitals", |body| ended(body, r#""MODEL":"large""#)),
        ("an escape in the key", |body| ended(body, r#""mod\u0065l":"large""#)),
        ("an escape in the value", |body| ended(body, r#""model":"l\u0061rge""#)),
        ("a list", |body| ended(body, r#""model":["large"]"#)),
        ("an object", |body| ended(body, r#""model":{"id":"large"}"#)),
        ("models", |body| ended(body, r#""models":["large"]"#)),
        ("fallbacks", |body| ended(body, r#""fallbacks":[{"model":"large"}]"#)),
        ("a tool's", |body| ended(body, r#""tools":[{"type":"image_generation","model":"large"}]"#)),
        ("beside the body", |body| ended(body, r#""extra_body":{"model":"large"}"#)),
        ("a session's", |body| ended(body, r#""session":{"audio":{"input":{"transcription":{"model":"large"}}}}"#)),
        ("a call of a batch", |body| ended(body, r#""requests":[{"params":{"model":"large"}}]"#)),
        ("behind NaN", |body| ended(body, r#""a":NaN,"model":"large""#)),
        ("behind half a pair", |body| ended(body, r#""a":"\ud800","model":"large""#)),
        ("behind depth", |body| ended(body, &format!(r#""a":{}{},"model":"large""#, "[".repeat(200), "]".repeat(200)))),
        ("behind a comment", |body| ended(body, r#"/* a */"model":"large""#)),
        ("behind 01", |body| ended(body, r#""a":01,"model":"large""#)),
        ("behind a raw tab", |body| ended(body, "\"a\":\"\t\",\"model\":\"large\"")),
        ("behind a comma too many", |body| ended(body, r#""a":[1,],"model":"large""#)),
        ("in single quotes", |body| ended(body, "'model':'large'")),
        ("in a second document", |body| format!(r#"{body}{{"model":"large"}}"#).into()),
        ("in a list of two", |body| format!(r#"[{body},{{"model":"large"}}]"#).into()),
        ("in UTF-16", |body| ended(body, r#""model":"large""#).iter().flat_map(|byte| [*byte, 0]).collect()),
        ("compressed, without saying so", |body| gzipped(&ended(body, r#""model":"large""#))),
    ]
}

/// Ways to spell a request's head around a body that names `mini`.
fn head_tricks() -> Vec<HeadTrick> {
    vec![
        ("a query", |path, body| Call::post(&format!("{path}?model=large"), body)),
        ("an escape in a query", |path, body| Call::post(&format!("{path}?a=b&mod%65l=large"), body)),
        ("two slashes", |path, body| Call::post(&path.replacen('/', "//", 1), body)),
        ("a dot", |path, body| Call::post(&format!("/.{path}"), body)),
        ("a parameter", |path, body| Call::post(&format!("{path};a=b"), body)),
        ("a backslash", |path, body| Call::post(&format!("/large%5c..{path}"), body)),
        ("an escape", |path, body| {
            let first = path.as_bytes()[1];
            Call::post(&format!("/%{first:02x}{}", &path[2..]), body)
        }),
        ("an escape within an escape", |path, body| Call::post(&path.replacen('/', "/%252f", 1), body)),
        ("a deployment in front", |path, body| Call::post(&format!("/openai/deployments/large{path}"), body)),
        ("a deployment behind a backslash", |path, body| {
            Call::post(&format!("/openai/deployments%5clarge{path}"), body)
        }),
        ("a model in front", |path, body| Call::post(&format!("/models/owner/large{path}"), body)),
        ("another method", |path, body| Call::with_method("PATCH", path, body)),
        ("a coding nobody knows", |path, body| Call::post(path, body).field("Content-Encoding", "x-large")),
        ("two content types", |path, body| {
            Call::post(path, body).field("Content-Type", "application/json").field("Content-Type", "text/plain")
        }),
    ]
}

/// Operations of which nobody here could say which model they run.
const OF_NO_LIST: [(&str, &str, &str); 22] = [
    ("POST", "/v1/batches", r#"{"model":"mini","input_file_id":"file-1","endpoint":"/v1/chat/completions"}"#),
    ("POST", "/v1/files", r#"{"model":"mini"}"#),
    ("POST", "/v1/fine_tuning/jobs", r#"{"model":"mini","training_file":"file-1"}"#),
    ("POST", "/async-invoke", r#"{"model":"mini","modelId":"large","modelInput":{}}"#),
    ("POST", "/models/owner/large", r#"{"model":"mini","inputs":"hi"}"#),
    ("POST", "/api/copy", r#"{"model":"mini","source":"large","destination":"mini"}"#),
    ("POST", "/api/create", r#"{"model":"mini","from":"large"}"#),
    ("POST", "/api/pull", r#"{"model":"mini"}"#),
    ("DELETE", "/api/delete", r#"{"model":"mini"}"#),
    ("POST", "/v1beta/dynamic/large:generateContent", r#"{"model":"mini","contents":[]}"#),
    ("POST", "/v1beta/models/owner/large:generateContent", r#"{"model":"mini","contents":[]}"#),
    ("POST", "/v1beta/models/mini%253Alarge:generateContent", r#"{"model":"mini","contents":[]}"#),
    ("POST", "/v1/engines/large/completions", r#"{"model":"mini","prompt":"hi"}"#),
    ("POST", "/openai/deployments/mini%255clarge/chat/completions", r#"{"model":"mini","messages":[]}"#),
    ("POST", "/model/mini%2flarge/converse", r#"{"model":"mini","messages":[]}"#),
    ("POST", "/accounts/a/ai/run/@cf/large", r#"{"model":"mini","prompt":"hi"}"#),
    ("POST", "/v1/realtime/calls", r#"{"model":"mini","session":{"model":"mini"}}"#),
    ("POST", "/v1/messages/batches", r#"{"model":"mini","requests":[]}"#),
    ("POST", "/v1/realtime/client_secrets", r#"{"model":"mini"}"#),
    ("POST", "/anything", r#"{"model":"mini"}"#),
    ("GET", "/v1/organization/api_keys", ""),
    ("PUT", "/v1/chat/completions", r#"{"model":"mini"}"#),
];

fn form(parts: &str) -> String {
    parts.replace('\n', "\r\n")
}

fn part(disposition: &str, value: &str) -> String {
    form(&format!("--b\nContent-Disposition: form-data; {disposition}\n\n{value}\n"))
}

on_both_drivers_in_full! {
    fn no_spelling_brings_a_model_past_a_list(driver) {
        let provider = Upstream::always(OK);
        let gateway = Setup::new(driver).unlimited().upstream(provider.url()).with(AUTH).start();
        let tenant = gateway.tenant("acme");
        let (_, key) = limited(&gateway, &tenant, "operator");
        let ask = |asked: Call| call(gateway.addr, asked.key(&key).bytes());
        let mut passed = 0;
        let mut cases = 0;
        for (path, body) in plain_calls() {
            let body = body.to_string();
            assert_eq!(ask(Call::post(path, body.clone())).status, 200, "{path}");
            passed += 1;
            for (trick, spelled) in json_tricks() {
                let refused = ask(Call::post(path, spelled(&body)));
                assert_eq!((refused.status, trick, path), (403, trick, path), "{}", refused.text());
                assert!(refused.text().contains("this tenant or key may not use"), "{path} {trick}: {}", refused.text());
                cases += 1;
            }
            for (trick, spelled) in head_tricks() {
                let refused = ask(spelled(path, &body));
                // What a head cannot be is refused before anybody is asked what it may.
                assert!(matches!(refused.status, 400 | 403 | 501), "{path} {trick}: {}", refused.status);
                cases += 1;
            }
        }
        for (method, path, body) in OF_NO_LIST {
            let refused = ask(Call::with_method(method, path, body));
            assert_eq!((refused.status, path), (403, path), "{}", refused.text());
        }
        for asks_for_none in ["/v1/models", "/v1/models/mini", "/api/tags", "/v1/responses/r1"] {
            assert_eq!(ask(Call::get(asks_for_none)).status, 200, "{asks_for_none}");
            passed += 1;
        }
        assert!(cases > 900, "{cases}");
        assert_eq!(provider.requests().len(), passed, "what was refused never left");
    }

    fn no_form_brings_a_model_past_a_list(driver) {
        let provider = Upstream::always(OK);
        let gateway = Setup::new(driver).unlimited().upstream(provider.url()).with(AUTH).start();
        let tenant = gateway.tenant("acme");
        let (_, key) = limited(&gateway, &tenant, "operator");
        let ask = |path: &str, parts: &str| {
            let body = format!("{parts}--b--\r\n");
            let asked = String::from_utf8(Call::post(path, body).key(&key).bytes()).unwrap();
            call(gateway.addr, asked.replacen("application/json", "multipart/form-data; boundary=b", 1)).status
        };
        let (mini, file) = (part(r#"name="model""#, "mini"), part(r#"name="file"; filename="a.wav""#, "RIFF"));
        let mut passed = 0;
        for path in ["/v1/audio/transcriptions", "/v1/audio/translations", "/v1/images/edits", "/v1/images/variations"] {
            assert_eq!(ask(path, &format!("{mini}{file}")), 200, "{path}");
            passed += 1;
            for large in [
                part(r#"name="model""#, "large"),
                part(r#"name="model""#, "l@rge"),
                part(r#"name="model""#, "a large one"),
                part(r#"name="model""#, " mini"),
                part(r#"name="model""#, "mini"),
                part(r#"name="Model""#, "large"),
                part(r#"name=" model ""#, "large"),
                part(r#"name="model[]""#, "large"),
                part("name*=UTF-8''model", "large"),
                part("name*=UTF-8''mod%65l", "large"),
                part(r#"name="x"; name*=UTF-8''model"#, "large"),
                part(r#"name="model"; filename="m""#, "large"),
                part(r#"name="model"; filename*=UTF-8''m"#, "large"),
                form("--b\nContent-Disposition: form-data; name=\"model\"\nContent-Transfer-Encoding: base64\n\nbGFyZ2U=\n"),
                form("--b\nContent-Disposition: form-data; name=\"model\"\nContent-Type: text/plain; charset=utf-16\n\nlarge\n"),
                form("--b\nContent-Disposition: form-data; name=\"x\"\nContent-Disposition: form-data; name=\"model\"\n\nlarge\n"),
            ] {
                assert_eq!(ask(path, &format!("{mini}{file}{large}")), 403, "{path}: {large}");
                assert_eq!(ask(path, &format!("{large}{mini}{file}")), 403, "{path}: {large} first");
            }
            assert_eq!(ask(path, &file), 403, "{path} without a model");
        }
        assert_eq!(provider.requests().len(), passed);
    }

    fn a_limited_key_reads_and_makes_nothing_that_is_not_limited(driver) {
        let provider = Upstream::always(OK);
        let gateway = Setup::new(driver).unlimited().upstream(provider.url()).with(AUTH).start();
        let (tenant, other) = (gateway.tenant("acme"), gateway.tenant("other"));
        let (id, operator) = limited(&gateway, &tenant, "operator");
        let (admin_id, admin) = limited(&gateway, &tenant, "admin");
        let (_, free_admin) = gateway.key(&tenant, "admin");
        let access = json!({"access": {"keys": {id.as_str(): {}}}});
        let routes = || [
            ("GET", "/api/v1/tenants/current/token".to_owned(), String::new()),
            ("GET", format!("/api/v1/tenants/{tenant}/token"), String::new()),
            ("GET", format!("/api/v1/tenants/{other}/token"), String::new()),
            ("POST", format!("/api/v1/tenants/{other}/token/reset"), String::new()),
            ("POST", "/api/v1/auth/keys".to_owned(), json!({"tenant_id": tenant, "name": "n", "role": "operator"}).to_string()),
            ("PUT", format!("/api/v1/auth/keys/{id}"), json!({"access": null}).to_string()),
            ("PUT", format!("/api/v1/auth/keys/{admin_id}"), json!({"access": null}).to_string()),
            ("POST", "/api/v1/tenants".to_owned(), json!({"name": "n"}).to_string()),
            ("PUT", format!("/api/v1/tenants/{tenant}"), json!({"config": access.clone()}).to_string()),
            ("PUT", format!("/api/v1/tenants/{tenant}/provider-keys/default"), json!({"api_key": "sk-of-acme-itself"}).to_string()),
            ("DELETE", format!("/api/v1/tenants/{tenant}/provider-keys/default"), String::new()),
        ];
        let ask = |key: &str, (method, path, body): &(&'static str, String, String)| {
            call(gateway.addr, Call::with_method(method, path, body.clone()).key(key).bytes())
        };
        for (name, key) in [("operator", &operator), ("admin", &admin)] {
            for route in routes() {
                let refused = ask(key, &route);
                assert_eq!((refused.status, &route.1), (403, &route.1), "{name}: {}", refused.text());
                let own_paths = name == "operator" && route.1 != "/api/v1/tenants/current/token";
                let expected = if own_paths { "permission_denied" } else { "key_limited" };
                assert_eq!(refused.json()["error"]["type"], expected, "{name} {route:?}");
                assert_eq!((&refused.json()["token"], &refused.json()["key"]), (&Value::Null, &Value::Null));
            }
        }
        // What they are limited to is what it was.
        for key in [&operator, &admin] {
            let chat = |model: &str| Call::post("/v1/chat/completions", json!({"model": model, "messages": []}).to_string());
            let asked = |model: &str| call(gateway.addr, chat(model).key(key).bytes()).status;
            assert_eq!([asked("mini"), asked("large")], [200, 403]);
        }
        // One without an entry does all of it.
        for route in routes().into_iter().filter(|(method, ..)| *method != "DELETE") {
            assert!(matches!(ask(&free_admin, &route).status, 200 | 201), "{route:?}: {}", ask(&free_admin, &route).text());
        }
    }

    fn limits_of_keys_outlive_a_config_that_does_not_speak_of_them(driver) {
        let provider = Upstream::always(OK);
        let gateway = Setup::new(driver).unlimited().upstream(provider.url()).with(AUTH).start();
        let tenant = gateway.tenant("acme");
        let (id, key) = limited(&gateway, &tenant, "operator");
        let chat = Call::post("/v1/chat/completions", json!({"model": "large", "messages": []}).to_string()).key(&key);
        let put = |config: Value| {
            let answer = gateway.admin(Call::put(&format!("/api/v1/tenants/{tenant}"), &json!({ "config": config })));
            assert_eq!(answer.status, 200, "{}", answer.text());
            answer.json()["config"].clone()
        };
        let keys = json!({ id.as_str(): {"allowed_models": ["mini"]} });
        assert_eq!(put(json!({"region": "eu"})), json!({"region": "eu", "access": {"keys": keys}}));
        assert_eq!(call(gateway.addr, chat.bytes()).status, 403, "nothing was said of its limits");
        let upstreams = json!({"allowed_upstreams": ["default"]});
        let both = json!({"allowed_upstreams": ["default"], "keys": keys});
        assert_eq!(put(json!({ "access": upstreams })), json!({ "access": both }));
        assert_eq!(call(gateway.addr, chat.bytes()).status, 403, "nor here");
        assert_eq!(put(json!({"access": null})), json!({}));
        assert_eq!(call(gateway.addr, chat.bytes()).status, 200, "they are taken away by name");

        let lines = gateway.admin(Call::get("/api/v1/audit?limit=20").field("X-Service-Tenant-ID", &tenant)).json();
        let updates: Vec<Value> = lines["data"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|line| line["action"] == "tenant.update")
            .map(|line| line["detail"].clone())
            .collect();
        assert_eq!(
            updates,
            [
                json!({
                    "changed": format!("config.access.allowed_upstreams, config.access.keys.{id}"),
                    "limits_lifted_of_keys": id,
                }),
                json!({"changed": "config.access.allowed_upstreams, config.region"}),
                json!({"changed": "config.region"}),
                json!({"changed": format!("config.access.keys.{id}"), "because": "a key is made"}),
            ]
        );
    }

    fn a_key_s_rate_holds_for_the_api_and_for_reports(driver) {
        let provider = Upstream::always(OK);
        let more = "otel_ingest: {enabled: true}\nrate_limiting: {enabled: false}";
        let gateway = Setup::new(driver).upstream(provider.url()).with(AUTH).with(more).start();
        let tenant = gateway.tenant("acme");
        let slow = |name: &str| {
            let rate = json!({"rate_limit": {"requests_per_second": 1, "burst_size": 3}});
            let body = json!({"tenant_id": tenant, "name": name, "role": "operator", "access": rate});
            gateway.admin(Call::post("/api/v1/auth/keys", body.to_string())).json()["key"].as_str().unwrap().to_owned()
        };
        let (_, free) = gateway.key(&tenant, "operator");
        for (name, asked) in [
            ("api", Call::get("/api/v1/stats")),
            ("reports", Call::post("/v1/traces", r#"{"resourceSpans":[]}"#)),
        ] {
            let key = slow(name);
            let began = std::time::Instant::now();
            let answers: Vec<_> = (0..20).map(|_| call(gateway.addr, asked.clone().key(&key).bytes())).collect();
            let most = 3 + usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
            let served = answers.iter().filter(|answer| answer.status == 200).count();
            assert!((3..=most).contains(&served), "{name}: {served} of 20, at most {most}: {}", answers[0].text());
            let refused = answers.iter().find(|answer| answer.status == 429).unwrap();
            assert!(refused.json()["error"]["key_id"].is_string() && refused.header("Retry-After").is_some(), "{name}");
            assert!((0..20).all(|_| call(gateway.addr, asked.clone().key(&free).bytes()).status == 200), "{name}");
        }
    }

    fn debug_endpoints_beside_authentication_are_said_at_the_start(driver) {
        let gateway = Setup::new(driver).upstream("http://127.0.0.1:9").with(AUTH).server("debug_endpoints: true").start();
        gateway.logged("who needs no key", |line| line.contains("every tenant's verdicts") && line.contains("WARN"));
    }

    fn a_model_that_cannot_be_read_for_sure_sets_no_price(driver) {
        let answer = r#"{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", answer.len());
        let provider = Upstream::always(head + answer);
        let prices = "cost_estimation: {custom_models: {cheap: {input_per_million: 0, output_per_million: 1000000}}}";
        let gateway = Setup::new(driver).unlimited().upstream(provider.url()).with(prices).start();
        for (body, cost) in [
            (r#"{"model":"cheap","messages":[]}"#, json!(1.0)),
            (r#"{"model":"cheap","messages":[],"a":NaN,"model":"dear"}"#, Value::Null),
            (r#"{"model":"dear","messages":[],"model":"cheap"}"#, Value::Null),
            (r#"{"model":"cheap","messages":[]}{"model":"dear"}"#, Value::Null),
        ] {
            let answer = call(gateway.addr, Call::post("/v1/chat/completions", body).bytes());
            let span = gateway.span_of(&answer);
            assert_eq!(span["estimated_cost_usd"], cost, "{body}");
            assert_eq!(span["tags"]["unpriced_model"] == "true", cost.is_null(), "{body}");
        }
    }
}
