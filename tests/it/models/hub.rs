//! Promise: a model that is named by an id comes from the hub, whole and with checksums, within its time, or it is missing and
//! everything else goes on; `weir models` shows, fetches and verifies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::made::{self, ORDERS};
use super::{PLATYPUS, ready, send};
use crate::support::{Driver, Setup, Upstream, eventually, provider, weir};

/// A hub with one model, `owner/orders`. Its graph lies elsewhere, to where it redirects with the checksum.
struct Hub {
    upstream: Upstream,
    /// Files by the path they are asked for by.
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    /// Whole answers in their place, after which the connection ends.
    instead: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    folder: TempDir,
}

const GRAPH: &str = "/owner/orders/resolve/main/onnx/model.onnx";

impl Hub {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let made = ORDERS.write(&folder.path().join("made"));
        let read = |name: &str| std::fs::read(made.join(name)).unwrap();
        let files = BTreeMap::from([
            ("/owner/orders/resolve/main/config.json".to_owned(), read("config.json")),
            ("/owner/orders/resolve/main/tokenizer.json".to_owned(), read("tokenizer.json")),
            ("/elsewhere".to_owned(), read("onnx/model.onnx")),
        ]);
        let sha256 = weir_models::sha256_of(&made.join("onnx/model.onnx")).unwrap();
        let files = Arc::new(Mutex::new(files));
        let instead = Arc::new(Mutex::new(BTreeMap::<String, Vec<u8>>::new()));
        let (known, raw) = (Arc::clone(&files), Arc::clone(&instead));
        let upstream = Upstream::play(move |peer| {
            while let Some(request) = peer.request() {
                assert_eq!(request.header("authorization"), None);
                let raw = raw.lock().unwrap().get(&request.path).cloned();
                if let Some(answer) = raw {
                    peer.say(answer);
                    return;
                }
                let found = known.lock().unwrap().get(&request.path).cloned();
                if request.path == GRAPH {
                    let head = format!("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nX-Linked-ETag: \"{sha256}\"");
                    peer.say(format!("{head}\r\nContent-Length: 0\r\n\r\n"));
                } else if let Some(body) = found {
                    peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
                    peer.say(body);
                } else {
                    peer.say("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone");
                }
            }
        });
        Self { upstream, files, instead, folder }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// Settings with this hub, `more` of `security_analysis` among them.
    fn settings(&self, more: &str) -> String {
        let (cache, library, hub) = (self.cache(), made::library(), self.upstream.url());
        let (cache, library) = (cache.display(), library.display());
        format!(
            "security_analysis: {{ml_cache_dir: '{cache}', ml_runtime_path: '{library}', ml_hub_url: '{hub}', {more}}}\n"
        )
    }

    fn write_settings(&self, more: &str) -> PathBuf {
        let config = self.folder.path().join("service.yaml");
        let database = self.folder.path().join("weir.db");
        let text = format!("storage: {{database_path: '{}'}}\n{}", database.display(), self.settings(more));
        std::fs::write(&config, text).unwrap();
        config
    }

    /// What `weir models` says with these settings: its exit code and both outputs.
    fn models(&self, more: &str, args: &[&str]) -> (i32, String, String) {
        let config = self.write_settings(more);
        let args: Vec<&str> =
            ["models"].iter().chain(args).copied().chain(["--config", config.to_str().unwrap()]).collect();
        let output = weir(&args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

const USED: &str = "ml_enabled: true, ml_model: owner/orders";

#[test]
fn a_model_that_is_not_there_is_fetched_at_the_start_and_only_once() {
    let (hub, provider) = (Hub::new(), provider());
    let setup =
        Setup::new(Driver::Auto).upstream(provider.url()).with(&hub.settings(USED)).with("enforcement: {mode: block}");
    let gateway = setup.clone().start();
    assert_eq!(ready(&gateway)["ml_models"]["status"], "loaded");
    assert_eq!(send(&gateway, PLATYPUS).status, 403);
    gateway.logged("the checksum", |line| line.contains("sha256") && line.contains("onnx/model.onnx"));
    let asked = hub.upstream.requests().len();
    let folder = hub.cache().join("owner/orders");
    let manifest: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("weir-manifest.json")).unwrap()).unwrap();
    let files: Vec<&String> = manifest["files"].as_object().unwrap().keys().collect();
    assert_eq!(files, ["config.json", "onnx/model.onnx", "tokenizer.json"]);
    let sha256 = weir_models::sha256_of(&folder.join("onnx/model.onnx")).unwrap();
    assert_eq!(manifest["files"]["onnx/model.onnx"]["sha256"], sha256);
    let again = setup.start();
    assert_eq!(ready(&again)["ml_models"]["status"], "loaded");
    assert_eq!(hub.upstream.requests().len(), asked, "it is there");
}

#[test]
fn a_hub_that_takes_too_long_leaves_the_model_missing() {
    let (provider, silent) = (provider(), Upstream::play(|peer| while peer.request().is_some() {}));
    let folder = TempDir::new().unwrap();
    let (cache, library, hub) = (folder.path().display(), made::library(), silent.url());
    let settings = format!(
        "security_analysis: {{ml_cache_dir: '{cache}', ml_runtime_path: '{}', ml_hub_url: '{hub}', \
         ml_download_timeout_seconds: 1, {USED}}}\n",
        library.display()
    );
    let gateway = Setup::new(Driver::Auto).upstream(provider.url()).with(&settings).start();
    let report = ready(&gateway);
    let reason = report["reasons"][0].as_str().unwrap();
    assert!(reason.contains("ml_download_timeout_seconds") && reason.contains(&hub), "{reason}");
    assert_eq!(report["ml_models"]["status"], "fallback_regex");
    gateway.logged("a warning", |line| line.contains("could not be fetched") && line.contains("WARN"));
    assert_eq!(entries(folder.path()), [] as [String; 0], "nothing is left of it");
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).map(|entries| entries.map(|entry| entry.unwrap())).into_iter().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn what_is_not_what_the_hub_says_is_not_kept() {
    let hub = Hub::new();
    hub.files.lock().unwrap().insert("/elsewhere".to_owned(), b"something else".to_vec());
    let (code, _, said) = hub.models(USED, &["fetch"]);
    assert!(code == 1 && said.contains("has the SHA-256") && said.contains("onnx/model.onnx"), "{said}");
    assert_eq!(entries(&hub.cache()), [] as [String; 0]);
}

#[test]
fn what_has_not_come_whole_is_not_kept() {
    let hub = Hub::new();
    let config = "/owner/orders/resolve/main/config.json";
    let too_long = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 65 << 20).into_bytes();
    let too_long = [too_long, vec![b' '; 65 << 20]].concat();
    let cases: [(&str, &[u8], &str); 4] = [
        (config, b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n{\"id2label\":", "broke off"),
        (config, b"HTTP/1.1 200 OK\r\n\r\n{}", "does not say how long config.json is"),
        (config, &too_long, "is larger than 67108864 bytes"),
        (GRAPH, b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", "is not followed"),
    ];
    for (path, answer, why) in cases {
        *hub.instead.lock().unwrap() = BTreeMap::from([(path.to_owned(), answer.to_vec())]);
        let (code, _, said) = hub.models(USED, &["fetch"]);
        assert!(code == 1 && said.contains(why), "{said}");
        assert_eq!(entries(&hub.cache()), [] as [String; 0], "{why}");
    }
}

#[test]
fn what_was_not_fetched_is_never_replaced() {
    let hub = Hub::new();
    let folder = hub.cache().join("owner/orders");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("notes"), "mine").unwrap();
    for id in ["owner/orders", "owner"] {
        let (code, _, said) = hub.models(USED, &["fetch", id]);
        assert!(code == 1 && said.contains("was not fetched by Weir"), "{said}");
    }
    assert_eq!(hub.upstream.requests().len(), 0);
    assert_eq!(entries(&folder), ["notes"]);
}

#[test]
fn a_hub_is_asked_through_the_proxy_that_provider_calls_go_through() {
    let hub = Hub::new();
    let proxy = Upstream::always("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
    let config = hub.write_settings(USED);
    let text = std::fs::read_to_string(&config).unwrap().replace(&hub.upstream.url(), "http://hub.test");
    std::fs::write(&config, text).unwrap();
    let mut command = weir(&["models", "fetch", "--config", config.to_str().unwrap()]);
    let output = command.env("http_proxy", proxy.url()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("407"), "{said}");
    assert_eq!((hub.upstream.requests().len(), proxy.requests().len()), (0, 1));
}

#[test]
fn models_are_listed_fetched_and_verified() {
    let hub = Hub::new();
    let list = || hub.models(USED, &["list", "--json"]).1;
    let line: Value = serde_json::from_str(&list()).unwrap();
    assert_eq!(
        (&line["model"], &line["used_by"], &line["on"]),
        (&json!("owner/orders"), &json!(["classifier"]), &json!(true))
    );
    assert!(line["missing"].as_str().unwrap().contains("there is no folder"), "{line}");
    let (code, said, _) = hub.models(USED, &["verify"]);
    assert!(code == 1 && said.starts_with("FAIL  owner/orders: there is no folder"), "{said}");

    let (code, said, progress) = hub.models(USED, &["fetch"]);
    assert!(code == 0 && said.contains("onnx/model.onnx"), "{said}{progress}");
    assert!(progress.lines().any(|line| line.starts_with("tokenizer.json: ")), "{progress}");
    let line: Value = serde_json::from_str(&list()).unwrap();
    assert_eq!((&line["missing"], &line["manifest"]["id"]), (&Value::Null, &json!("owner/orders")));
    let (code, said, _) = hub.models(USED, &["verify"]);
    assert!(code == 0 && said.contains("as it came at") && said.contains("has passed its self-test"), "{said}");

    // One byte more.
    let config = hub.cache().join("owner/orders/config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text} ")).unwrap();
    let (code, said, _) = hub.models(USED, &["verify"]);
    assert!(code == 1 && said.contains("FAIL  owner/orders: config.json has the SHA-256"), "{said}");
}

#[test]
fn what_cannot_be_fetched_says_why() {
    let hub = Hub::new();
    let (code, _, said) = hub.models(USED, &["fetch", "owner/other"]);
    assert!(code == 1 && said.contains("the hub has no config.json of `owner/other`"), "{said}");
    let (code, _, said) = hub.models(USED, &["fetch", "../x"]);
    assert!(code == 2 && said.contains("is not the id of a model"), "{said}");
    let never = "ml_enabled: false, ml_model: owner/orders";
    let before = hub.upstream.requests().len();
    let config = hub.settings(never).replace(&format!("'{}'", hub.upstream.url()), "null");
    let gateway = Setup::new(Driver::Auto).with(&config.replace("ml_enabled: false", "ml_enabled: true")).start();
    let report = eventually("it is missing", || Some(ready(&gateway)).filter(|report| report["status"] == "degraded"));
    assert!(report["reasons"][0].as_str().unwrap().contains("there is no folder"), "{report}");
    assert_eq!(hub.upstream.requests().len(), before, "null fetches nothing");
}
