//! The compositions in `deploy/compose`: every file they mount is there, every setting and variable is one that Weir takes, and what one
//! service calls another is what it is called.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_yaml::Value;
use tempfile::TempDir;
use weir_config::catalogue;

use crate::support::weir;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/compose").join(name)
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap();
    let mut value: Value = serde_yaml::from_str(&text).unwrap();
    value.apply_merge().unwrap();
    value
}

fn services(composition: &Value) -> Vec<(String, Value)> {
    let services = composition["services"].as_mapping().unwrap();
    services.iter().map(|(name, service)| (name.as_str().unwrap().to_owned(), service.clone())).collect()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_sequence().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// What is wrong with the files that services mount, and with the volumes they name.
fn mounts(name: &str, composition: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for (service, of) in services(composition) {
        for mount in texts(&of["volumes"]) {
            let source = mount.split(':').next().unwrap();
            let there = if source.starts_with('.') {
                folder(name).join(source).exists()
            } else {
                composition["volumes"].as_mapping().unwrap().contains_key(source)
            };
            if !there {
                faults.push(format!("{service} mounts {source}"));
            }
        }
        let others =
            of["depends_on"].as_mapping().map(|of| of.keys().map(|key| key.as_str().unwrap().to_owned()).collect());
        for other in others.unwrap_or_else(|| texts(&of["depends_on"])) {
            if composition["services"].get(&other).is_none() {
                faults.push(format!("{service} depends on {other}"));
            }
        }
    }
    faults
}

/// The variables that a gateway of a composition is started with, their passwords filled in.
fn variables(service: &Value) -> Vec<(String, String)> {
    let filled = |text: &str| {
        let mut out = String::new();
        for (at, piece) in text.split("${").enumerate() {
            match piece.split_once('}') {
                Some((_, rest)) if at > 0 => out.extend(["0123456789abcdefghijklmnop", rest]),
                _ => out.push_str(piece),
            }
        }
        out
    };
    let of = service["environment"].as_mapping().cloned().unwrap_or_default();
    of.iter().map(|(name, value)| (name.as_str().unwrap().to_owned(), filled(value.as_str().unwrap()))).collect()
}

fn check(config: &Path, variables: &[(String, String)]) {
    let mut check = weir(&["check", "--config", config.to_str().unwrap()]);
    check.envs(variables.iter().map(|(name, value)| (name, value)));
    let output = check.output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    // The stores are where the composition runs; every other line is about the settings.
    let is_fault = |line: &&str| line.starts_with("FAIL") && !line.starts_with("FAIL  stores ");
    assert!(
        said.contains("ok    ") && !said.contains("warning") && !said.lines().any(|line| is_fault(&line)),
        "{said}"
    );
}

#[test]
fn what_compositions_mount_is_there_and_weir_takes_their_settings() {
    let known: BTreeSet<&str> = catalogue::settings().filter_map(|setting| setting.env.map(|(name, _)| name)).collect();
    for (name, gateways) in [("", 1), ("production", 3)] {
        let composition = read(&folder(name).join("compose.yaml"));
        assert_eq!(mounts(name, &composition), [] as [String; 0], "{name}");
        let of_weir: Vec<_> = services(&composition).into_iter().filter(|(name, _)| name.starts_with("weir")).collect();
        assert_eq!(of_weir.len(), gateways, "{name}");
        // The paths in it are those of the container.
        let temporary = TempDir::new().unwrap();
        let settings = std::fs::read_to_string(folder(name).join("weir.yaml")).unwrap();
        let config = temporary.path().join("weir.yaml");
        std::fs::write(&config, settings.replace("/var/lib/weir", temporary.path().to_str().unwrap())).unwrap();
        for (_, service) in &of_weir {
            let variables = variables(service);
            for (variable, _) in &variables {
                assert!(known.contains(variable.as_str()), "{name}: Weir has no variable {variable}");
            }
            check(&config, &variables);
        }
        // Prometheus asks each gateway at the port where it shows metrics.
        let metrics = read(&folder(name).join("weir.yaml"))["server"]["metrics_addr"].as_str().unwrap().to_owned();
        let port = metrics.rsplit(':').next().unwrap();
        let asked = read(&folder(name).join("prometheus.yaml"));
        let asked = texts(&asked["scrape_configs"][0]["static_configs"][0]["targets"]);
        let expected: Vec<String> = of_weir.iter().map(|(service, _)| format!("{service}:{port}")).collect();
        assert_eq!(asked, expected, "{name}");
    }
}

#[test]
fn the_balancer_knows_each_gateway_and_every_password_is_asked_for() {
    let composition = read(&folder("production").join("compose.yaml"));
    let balancer = std::fs::read_to_string(folder("production").join("nginx.conf")).unwrap();
    let port = read(&folder("production").join("weir.yaml"))["listen_addr"]
        .as_str()
        .unwrap()
        .rsplit(':')
        .next()
        .unwrap()
        .to_owned();
    for (service, _) in services(&composition).iter().filter(|(name, _)| name.starts_with("weir")) {
        assert!(balancer.contains(&format!("server {service}:{port} ")), "{service}");
    }
    let text = std::fs::read_to_string(folder("production").join("compose.yaml")).unwrap();
    let asked: BTreeSet<&str> = text.split("${").skip(1).map(|piece| piece.split([':', '}']).next().unwrap()).collect();
    let example = std::fs::read_to_string(folder("production").join("example.env")).unwrap();
    let given: BTreeSet<&str> = example.lines().filter_map(|line| line.strip_suffix('=')).collect();
    assert_eq!(asked, given);
    assert!(text.split("${").skip(1).all(|piece| piece.contains(":?")), "no password has a default");

    // The same as nginx reads it, where there is one; names of services mean something in the composition alone.
    let temporary = TempDir::new().unwrap();
    let config = temporary.path().join("nginx.conf");
    let local = (1..=3).fold(balancer, |text, at| text.replace(&format!("server weir-{at}:"), "server 127.0.0.1:"));
    std::fs::write(&config, format!("pid {}/pid;\n{local}", temporary.path().display())).unwrap();
    let Ok(tried) = Command::new("nginx").args(["-t", "-c"]).arg(&config).output() else { return };
    assert!(tried.status.success(), "{}", String::from_utf8_lossy(&tried.stderr));
}
