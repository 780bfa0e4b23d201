//! Promise: the files of `deploy/compose/production` are accepted by what reads them, and three gateways with those settings behind that
//! balancer are one, also while one of them is taken out.
//!
//! No container runtime is needed: the programs are Debian's, and addresses and folders are replaced, nothing else.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use super::starts::{Starting, answer};
use super::{ask, free_addr, provider};
use crate::stores::{Three, name};
use crate::support::{BOOTSTRAP, Call, Client, call, do_without, eventually, weir};

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/compose/production").join(name)).unwrap()
}

/// The text with every one of these replaced, which all stand in it.
fn replaced(mut text: String, by: &[(&str, &str)]) -> String {
    for (what, with) in by {
        assert!(text.contains(what), "no `{what}` in\n{text}");
        text = text.replace(what, with);
    }
    text
}

#[test]
#[ignore = "starts three stores and a balancer: .ci/full"]
fn the_composition_works_as_its_files_say() {
    let nginx = ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|path| Path::new(path).exists());
    let Some(nginx) = nginx else { return do_without("nginx", "it is the balancer: Debian's package `nginx-light`") };
    let (three, database, provider, folder) = (Three::new(), name(), provider(), TempDir::new().unwrap());
    three.named(&database);
    let [analytics, relational, cache] = three.urls(&database);
    // The stores' addresses and the administrator's key come from the environment, as in compose.yaml.
    let variables = [
        ("SERVICE_ANALYTICS_URL", analytics.as_str()),
        ("SERVICE_RELATIONAL_URL", &relational),
        ("SERVICE_CACHE_URL", &cache),
        ("SERVICE_AUTH_ADMIN_KEY", BOOTSTRAP),
    ];
    let compose = file("compose.yaml");
    assert!(variables.iter().all(|(name, _)| compose.contains(&format!("{name}:"))), "{compose}");
    let gateways: Vec<(SocketAddr, Starting)> = (1..=3)
        .map(|number| {
            let (addr, metrics, own) = (free_addr(), free_addr(), folder.path().join(format!("weir-{number}")));
            std::fs::create_dir(&own).unwrap();
            let settings = replaced(
                file("weir.yaml"),
                &[
                    ("0.0.0.0:8080", &addr.to_string()),
                    ("0.0.0.0:9090", &metrics.to_string()),
                    ("https://api.openai.com", &provider.url()),
                    ("analytics_database: weir", &format!("analytics_database: {database}")),
                    ("/var/lib/weir/", &format!("{}/", own.display())),
                    // More than a tenant may are asked for below.
                    ("requests_per_second: 100", "requests_per_second: 100000"),
                    ("burst_size: 200", "burst_size: 100000"),
                ],
            );
            let config = own.join("weir.yaml");
            std::fs::write(&config, settings).unwrap();
            let config = config.to_str().unwrap();
            let checked = weir(&["check", "--config", config]).envs(variables).output().unwrap();
            assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
            let log = std::fs::File::create(own.join("log")).unwrap();
            let process =
                weir(&["--config", config]).envs(variables).stdout(Stdio::null()).stderr(log).spawn().unwrap();
            (addr, Starting(process))
        })
        .collect();
    let ready = Call::get("/readyz").bytes();
    for (number, (addr, _)) in gateways.iter().enumerate() {
        eventually("it is ready", || {
            answer(*addr, &ready).filter(|(status, _)| *status == 200).or_else(|| {
                let log = std::fs::read_to_string(folder.path().join(format!("weir-{}/log", number + 1))).unwrap();
                assert!(!log.contains("could not start"), "{log}");
                None
            })
        });
    }

    let balancer = free_addr();
    let conf = replaced(
        file("nginx.conf"),
        &[
            ("listen 8080;", &format!("listen {balancer};")),
            ("weir-1:8080", &gateways[0].0.to_string()),
            ("weir-2:8080", &gateways[1].0.to_string()),
            ("weir-3:8080", &gateways[2].0.to_string()),
        ],
    );
    let conf_file = folder.path().join("nginx.conf");
    std::fs::write(&conf_file, conf).unwrap();
    let globals = format!("daemon off; pid {0}/nginx.pid; error_log {0}/nginx.log;", folder.path().display());
    let mut command = Command::new(nginx);
    command.args(["-p", folder.path().to_str().unwrap(), "-c", conf_file.to_str().unwrap(), "-g", &globals]);
    let tested = Command::new(nginx).args(command.get_args()).arg("-t").output().unwrap();
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
    let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _balancer = Starting(process);
    eventually("the balancer answers", || answer(balancer, &ready).filter(|(status, _)| *status == 200));

    let admin = |request: Call| call(balancer, request.key(BOOTSTRAP).bytes());
    let tenant = admin(Call::post("/api/v1/tenants", r#"{"name":"acme"}"#));
    let tenant = tenant.json()["id"].as_str().unwrap().to_owned();
    let body = serde_json::json!({"tenant_id": tenant, "name": "k", "role": "operator"});
    let key = admin(Call::post("/api/v1/auth/keys", body.to_string())).json()["key"].as_str().unwrap().to_owned();
    for (addr, _) in &gateways {
        eventually("the key is known", || (answer(*addr, &ask(&key))?.0 == 200).then_some(()));
    }
    // One gateway is taken out while calls come: it finishes what is under way, and nobody hears of it.
    let (sent, before) = (AtomicUsize::new(0), provider.requests().len());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(balancer).patient();
                for _ in 0..100 {
                    client.say(ask(&key));
                    assert_eq!(client.answer().status, 200);
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            eventually("calls flow", || (sent.load(Ordering::Relaxed) > 100).then_some(()));
            let id = gateways[1].1.0.id().to_string();
            assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        });
    });
    assert_eq!(provider.requests().len() - before, 400, "none of them twice");
    let stats = Call::get("/api/v1/stats").field("X-Service-Tenant-ID", &tenant);
    eventually("all are in the record, once", || (admin(stats.clone()).json()["total_spans"] == 403).then_some(()));
}
