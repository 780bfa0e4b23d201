//! Promise: with the operator's provider key a tenant infers, embeds, counts and lists models, and uses the objects that it has made
//! itself; everything else of the account is another tenant's, and refused before it leaves. A provider's key of one's own, and
//! authentication that is off, are held to nothing that is not listed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::{AUTH, Answer, Call, Driver, Gateway, Setup, Upstream, call, on_both_drivers_in_full};

const LENT: &str = "upstream_api_key: sk-of-the-operator";

/// A provider that gives every object that is made an id of its own, and answers everything.
fn provider() -> Upstream {
    let made = Arc::new(AtomicUsize::new(0));
    Upstream::play(move |peer| {
        while let Some(request) = peer.request() {
            let number = made.fetch_add(1, Ordering::SeqCst);
            let last = request.path.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default().to_owned();
            let is_stream = String::from_utf8_lossy(&request.body).contains("\"stream\":true");
            let (media, body) = if is_stream {
                let event =
                    json!({"type": "response.created", "response": {"id": format!("resp-{number}"), "output": []}});
                let end =
                    json!({"type": "response.completed", "response": {"id": format!("resp-{number}"), "output": []}});
                (
                    "text/event-stream",
                    format!("event: response.created\ndata: {event}\n\nevent: response.completed\ndata: {end}\n\n"),
                )
            } else {
                let made = match last.as_str() {
                    // Gemini's objects have names.
                    "cachedContents" => json!({"name": format!("cachedContents/cc-{number}"), "model": "models/g"}),
                    "files" if request.path.starts_with("/upload/") => {
                        json!({"file": {"name": format!("files/up-{number}"), "display_name": "a/b"}})
                    }
                    _ => json!({
                        "metadata": {"id": "not-this"},
                        "id": format!("{last}-{number}"),
                        "thread_id": format!("thread-{number}"),
                        "output_file_id": format!("out-{number}"),
                    }),
                };
                ("application/json", made.to_string())
            };
            let length = body.len();
            peer.say(format!("HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nContent-Length: {length}\r\n\r\n{body}"));
        }
    })
}

fn start(driver: Driver, provider: &Upstream, more: &str) -> Gateway {
    Setup::new(driver).unlimited().upstream(provider.url()).with(AUTH).with(more).start()
}

fn ask(gateway: &Gateway, key: &str, (method, path, body): (&'static str, &str, &str)) -> Answer {
    call(gateway.addr, Call::with_method(method, path, body).key(key).bytes())
}

/// Method, path and body of each use of an object.
type Uses = &'static [(&'static str, &'static str, &'static str)];

/// What is made, and how it is used afterwards: `{}` is its id.
const MADE: [(&str, &str, Uses); 9] = [
    (
        "/v1/files",
        "{}",
        &[("GET", "/v1/files/{}", ""), ("GET", "/v1/files/{}/content", ""), ("DELETE", "/v1/files/{}", "")],
    ),
    (
        "/v1/batches",
        r#"{"endpoint":"/v1/chat/completions"}"#,
        &[("GET", "/v1/batches/{}", ""), ("POST", "/v1/batches/{}/cancel", "")],
    ),
    (
        "/v1/messages/batches",
        r#"{"requests":[]}"#,
        &[("GET", "/v1/messages/batches/{}/results", ""), ("DELETE", "/v1/messages/batches/{}", "")],
    ),
    (
        "/v1/responses",
        r#"{"model":"m","input":"hi"}"#,
        &[
            ("GET", "/v1/responses/{}", ""),
            ("GET", "/v1/responses/{}/input_items", ""),
            ("POST", "/v1/responses/{}/cancel", ""),
            ("POST", "/v1/responses", r#"{"model":"m","input":"hi","previous_response_id":"{}"}"#),
            ("DELETE", "/v1/responses/{}", ""),
        ],
    ),
    (
        "/v1/conversations",
        "{}",
        &[
            ("GET", "/v1/conversations/{}/items", ""),
            ("POST", "/v1/responses", r#"{"model":"m","input":"hi","conversation":"{}"}"#),
            ("POST", "/v1/responses", r#"{"model":"m","input":"hi","conversation":{"id":"{}"}}"#),
        ],
    ),
    ("/v1/assistants", r#"{"model":"m"}"#, &[("GET", "/v1/assistants/{}", ""), ("DELETE", "/v1/assistants/{}", "")]),
    (
        "/v1/threads",
        "{}",
        &[("GET", "/v1/threads/{}/messages", ""), ("POST", "/v1/threads/{}/messages", r#"{"content":"a"}"#)],
    ),
    (
        "/v1/vector_stores",
        "{}",
        &[
            ("GET", "/v1/vector_stores/{}/files", ""),
            (
                "POST",
                "/v1/responses",
                r#"{"model":"m","input":"a","tools":[{"type":"file_search","vector_store_ids":["{}"]}]}"#,
            ),
        ],
    ),
    (
        "/v1/uploads",
        "{}",
        &[
            ("POST", "/v1/uploads/{}/cancel", ""),
            (
                "POST",
                "/v1/chat/completions",
                r#"{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"{}"}}]}]}"#,
            ),
            (
                "POST",
                "/v1/messages",
                r#"{"model":"m","messages":[{"content":[{"type":"document","source":{"type":"file","file_id":"{}"}}],"role":"user"}]}"#,
            ),
            ("POST", "/v1/batches", r#"{"input_file_id":"{}"}"#),
            ("POST", "/v1/threads", r#"{"messages":[{"role":"user","content":"a","attachments":[{"file_id":"{}"}]}]}"#),
        ],
    ),
];

/// What is the account's.
const OF_THE_ACCOUNT: [(&str, &str, &str, &str); 18] = [
    ("GET", "/v1/files", "", "files"),
    ("GET", "/v1/files?limit=1", "", "files"),
    ("GET", "/v1/batches", "", "batches"),
    ("GET", "/v1/messages/batches", "", "batches"),
    ("GET", "/v1/chat/completions", "", "responses"),
    ("GET", "/v1/assistants", "", "assistants"),
    ("GET", "/v1/vector_stores", "", "assistants"),
    ("GET", "/v1beta/cachedContents", "", "cached_contents"),
    ("POST", "/v1/fine_tuning/jobs", r#"{"model":"m","training_file":"f"}"#, "fine_tuning"),
    ("DELETE", "/v1/models/m", "", "model_files"),
    ("GET", "/v1/organization/api_keys", "", "other"),
    ("POST", "/v1/organization/admin_api_keys", "{}", "other"),
    ("GET", "/v1/organization/usage/completions", "", "other"),
    ("GET", "/v1/%66iles/file-1", "", "other"),
    ("GET", "/v1//files/file-1", "", "other"),
    ("GET", "/v1/files/../files/file-1", "", "other"),
    ("GET", "/v1/x;/../files", "", "other"),
    ("POST", "/api/delete", "{}", "model_files"),
];

fn filled(text: &str, id: &str) -> String {
    text.replace("{}", id)
}

fn grant(gateway: &Gateway, tenant: &str, operations: &Value) {
    let config = json!({"config": {"access": {"allowed_operations": operations}}});
    let answer = gateway.admin(Call::put(&format!("/api/v1/tenants/{tenant}"), &config));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

on_both_drivers_in_full! {
    fn a_tenant_s_objects_are_its_own_and_the_account_is_nobody_s(driver) {
        let provider = provider();
        let mut gateway = start(driver, &provider, LENT);
        let (acme, other) = (gateway.tenant("acme"), gateway.tenant("other"));
        let ((_, mine), (_, theirs)) = (gateway.key(&acme, "operator"), gateway.key(&other, "operator"));
        let mut ids = Vec::new();
        for (path, body, uses) in MADE {
            let made = ask(&gateway, &mine, ("POST", path, body));
            assert_eq!(made.status, 200, "{path}: {}", made.text());
            ids.push((made.json()["id"].as_str().unwrap().to_owned(), uses));
        }
        let try_all = |gateway: &Gateway, ids: &[(String, Uses)]| {
            for (id, uses) in ids {
                for (method, path, body) in *uses {
                    let (path, body) = (filled(path, id), filled(body, id));
                    let refused = ask(gateway, &theirs, (method, &path, &body));
                    assert_eq!((refused.status, &path), (403, &path), "{body}: {}", refused.text());
                    assert!(refused.text().contains("operation_not_allowed") && refused.text().contains("access.allowed_operations"));
                    let allowed = ask(gateway, &mine, (method, &path, &body));
                    assert_eq!((allowed.status, &path), (200, &path), "{body}: {}", allowed.text());
                }
            }
        };
        try_all(&gateway, &ids);
        for (method, path, body, family) in OF_THE_ACCOUNT {
            let refused = ask(&gateway, &mine, (method, path, body));
            assert!(matches!(refused.status, 400 | 403), "{path}: {}", refused.status);
            if refused.status == 403 {
                assert!(refused.text().contains(&format!("it counts as `{family}`")), "{path}: {}", refused.text());
            }
        }
        for (method, path, body) in [
            ("POST", "/v1/embeddings", r#"{"model":"m","input":"hi"}"#),
            ("POST", "/v1/messages/count_tokens", r#"{"model":"m","messages":[]}"#),
            ("GET", "/v1/models", ""),
            ("GET", "/v1/models/m", ""),
        ] {
            assert_eq!(ask(&gateway, &theirs, (method, path, body)).status, 200, "{path}");
        }
        // A batch's own files, a run's own thread, and a stream's answer.
        let batch = ask(&gateway, &mine, ("POST", "/v1/batches", "{}")).json();
        let run = ask(&gateway, &mine, ("POST", "/v1/threads/runs", r#"{"model":"m"}"#)).json();
        let stream = ask(&gateway, &mine, ("POST", "/v1/responses", r#"{"model":"m","input":"a","stream":true}"#)).text();
        let answer = stream.split("\"id\":\"").nth(1).unwrap().split('"').next().unwrap();
        let made_by_others = [
            format!("/v1/files/{}", batch["output_file_id"].as_str().unwrap()),
            format!("/v1/threads/{}/runs", run["thread_id"].as_str().unwrap()),
            format!("/v1/responses/{answer}"),
        ];
        for path in &made_by_others {
            assert_eq!([&mine, &theirs].map(|key| ask(&gateway, key, ("GET", path, "")).status), [200, 403], "{path}");
        }
        // What an answer repeats is nobody's.
        assert_eq!(ask(&gateway, &mine, ("GET", "/v1/files/not-this", "")).status, 403);

        // What was noted is stored soon after: a stop in order leaves time for it.
        gateway.terminate();
        gateway.wait();
        gateway.restart();
        try_all(&gateway, &ids);
        for path in &made_by_others {
            assert_eq!([&mine, &theirs].map(|key| ask(&gateway, key, ("GET", path, "")).status), [200, 403], "{path}");
        }
    }

    fn what_gemini_names_and_what_lines_of_a_file_name_is_its_tenant_s(driver) {
        let provider = provider();
        let gateway = start(driver, &provider, LENT);
        let [(_, mine), (_, theirs)] = ["acme", "other"].map(|name| gateway.key(&gateway.tenant(name), "operator"));
        let cached = ask(&gateway, &mine, ("POST", "/v1beta/cachedContents", r#"{"model":"models/g","contents":[]}"#));
        assert_eq!(cached.status, 200, "{}", cached.text());
        let cached = cached.json()["name"].as_str().unwrap().to_owned();
        let file = ask(&gateway, &mine, ("POST", "/upload/v1beta/files", "some words"));
        assert_eq!(file.status, 200, "{}", file.text());
        let file = file.json()["file"]["name"].as_str().unwrap().to_owned();
        let says = |part: Value| json!({"contents": [{"role": "user", "parts": [part]}]});
        let uri = format!("https://generativelanguage.googleapis.com/v1beta/{file}");
        let with_file = says(json!({"fileData": {"fileUri": uri, "mimeType": "text/plain"}}));
        let with_cached = json!({"cachedContent": cached, "contents": [{"role": "user", "parts": [{"text": "a"}]}]});
        let line = json!({"key": "1", "request": with_file}).to_string();
        let lines = format!("{}\n{line}\n", json!({"custom_id": "0", "body": {"model": "m", "input": "a"}}));
        let form = format!(
            "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: form-data; \
             name=\"file\"; filename=\"calls.jsonl\"\r\n\r\n{lines}\r\n--b--\r\n"
        );
        let uses = [
            ("GET", format!("/v1beta/{file}"), String::new(), ""),
            ("GET", format!("/v1beta/{cached}"), String::new(), ""),
            ("POST", "/v1beta/models/g:generateContent".to_owned(), with_file.to_string(), "application/json"),
            ("POST", "/v1beta/models/g:streamGenerateContent?alt=sse".to_owned(), with_cached.to_string(), "application/json"),
            ("POST", "/v1/files".to_owned(), form, "multipart/form-data; boundary=b"),
            ("POST", "/upload/v1beta/files".to_owned(), lines, "application/jsonl"),
        ];
        for (method, path, body, media) in &uses {
            let of = |key: &str| {
                let asked = Call::with_method(method, path, body.as_str()).key(key);
                let asked = if media.is_empty() { asked } else { asked.content_type(media) };
                call(gateway.addr, asked.bytes()).status
            };
            assert_eq!([of(&mine), of(&theirs)], [200, 403], "{method} {path} {body}");
        }
        // Public addresses and other stores are no objects of the account.
        for uri in ["https://www.youtube.com/watch?v=x", "gs://bucket/files.pdf"] {
            let body = says(json!({"fileData": {"fileUri": uri}})).to_string();
            assert_eq!(ask(&gateway, &theirs, ("POST", "/v1beta/models/g:generateContent", &body)).status, 200, "{uri}");
        }
    }

    fn a_list_allows_what_it_names_by_tenant_and_by_key(driver) {
        let provider = provider();
        let gateway = start(driver, &provider, LENT);
        let tenant = gateway.tenant("acme");
        let (id, key) = gateway.key(&tenant, "operator");
        let asked = |key: &str| {
            [("GET", "/v1/files", ""), ("GET", "/v1/organization/projects", ""), ("POST", "/v1/chat/completions", r#"{"model":"m"}"#)]
                .map(|asked| ask(&gateway, key, asked).status)
        };
        assert_eq!(asked(&key), [403, 403, 200]);
        grant(&gateway, &tenant, &json!(["files"]));
        assert_eq!(asked(&key), [200, 403, 403]);
        grant(&gateway, &tenant, &json!(["all"]));
        assert_eq!(asked(&key), [200, 200, 200]);
        let of_key = json!({"access": {"allowed_operations": ["inference", "files"]}});
        assert_eq!(gateway.admin(Call::put(&format!("/api/v1/auth/keys/{id}"), &of_key)).status, 200);
        assert_eq!(asked(&key), [200, 403, 200], "a key has what its tenant has and its own list names");
        let wrong = json!({"config": {"access": {"allowed_operations": ["everything"]}}});
        let refused = gateway.admin(Call::put(&format!("/api/v1/tenants/{tenant}"), &wrong));
        assert!(refused.status == 400 && refused.text().contains("own_objects"), "{}", refused.text());
    }

    fn a_key_among_the_protocols_of_a_websocket_goes_alone(driver) {
        let provider = provider();
        let gateway = start(driver, &provider, LENT);
        let (_, key) = gateway.key(&gateway.tenant("acme"), "operator");
        let handshake = |protocols: &str| {
            Call::get("/v1/realtime?model=m")
                .key(&key)
                .field("Connection", "Upgrade")
                .field("Upgrade", "websocket")
                .field("Sec-WebSocket-Version", "13")
                .field("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
                .field("Sec-WebSocket-Protocol", protocols)
        };
        for (protocols, expected) in [
            ("realtime", Some("Bearer sk-of-the-operator")),
            ("realtime, openai-insecure-api-key.sk-of-the-client", None),
        ] {
            let before = provider.requests().len();
            call(gateway.addr, handshake(protocols).bytes());
            let seen = provider.wait_for_requests(before + 1);
            assert_eq!(seen.last().unwrap().header("authorization"), expected, "{protocols}");
        }
    }

    fn who_pays_a_provider_alone_is_held_to_nothing_that_is_not_listed(driver) {
        let provider = provider();
        let gateway = start(driver, &provider, LENT);
        let (tenant, own) = (gateway.tenant("acme"), gateway.tenant("own"));
        let ((_, key), (_, paying)) = (gateway.key(&tenant, "operator"), gateway.key(&own, "operator"));
        let set = Call::put(&format!("/api/v1/tenants/{own}/provider-keys/default"), &json!({"api_key": "sk-of-the-tenant"}));
        assert_eq!(gateway.admin(set).status, 200);
        let brings = |key: &str| {
            let asked = Call::get("/v1/files").key(key).field("X-Service-Upstream-Authorization", "Bearer sk-of-the-client");
            call(gateway.addr, asked.bytes()).status
        };
        assert_eq!((brings(&key), ask(&gateway, &paying, ("GET", "/v1/files", "")).status), (200, 200));
        grant(&gateway, &own, &json!(["inference"]));
        assert_eq!(ask(&gateway, &paying, ("GET", "/v1/files", "")).status, 403, "it is listed");
        let open = Setup::new(driver).unlimited().upstream(provider.url()).with(LENT).start();
        assert_eq!(call(open.addr, Call::get("/v1/files").bytes()).status, 200, "authentication is off");
    }
}
