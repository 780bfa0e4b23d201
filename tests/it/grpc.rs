//! Promise: spans come in by gRPC from a client generated of `proto/`; what is acknowledged is kept, whatever becomes of the gateway;
//! and a gateway without it has none of it. The cases with a client are in `tests/clients`.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::clients::python_with;
use crate::support::{AUTH, BOOTSTRAP, Driver, Gateway, Setup, weir};

pub(crate) const GRPC: &str = "grpc: {enabled: true, listen_addr: '127.0.0.1:0'}";
const CERT: &str = include_str!("data/server.pem");
const KEY: &str = include_str!("data/server.key.pem");

fn setup() -> Setup {
    Setup::new(Driver::Epoll).unlimited().with(GRPC)
}

/// Where the gateway takes spans by gRPC.
pub(crate) fn grpc_addr(gateway: &Gateway) -> String {
    let line = gateway.logged("the gRPC listener", |line| line.contains("spans are taken in by gRPC"));
    let line: Value = serde_json::from_str(&line).unwrap();
    line["grpc"].as_str().unwrap().to_owned()
}

/// A Python script of `tests/clients` that talks to this gateway.
pub(crate) fn script(gateway: &Gateway, file: &str) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(python_with("grpc_pins.txt"));
    command
        .arg("-B")
        .arg(root.join("tests/clients").join(file))
        .env("PROTO_FOLDER", root.join("proto"))
        .env("WORK_FOLDER", gateway.folder())
        .env("WEIR_URL", gateway.url())
        .env("GRPC_ADDR", grpc_addr(gateway));
    for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "grpc_proxy"] {
        command.env_remove(proxy);
    }
    command
}

pub(crate) fn run(mut command: Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// A sender that goes on until the gateway is gone, and what it says.
pub(crate) struct Sender {
    child: Child,
    said: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Sender {
    pub(crate) fn start(gateway: &Gateway, how: &str, first: u64) -> Self {
        Self::start_with(gateway, how, first, &[])
    }

    /// The same with variables of its own.
    pub(crate) fn start_with(gateway: &Gateway, how: &str, first: u64, more: &[(&str, &str)]) -> Self {
        let mut command = script(gateway, "grpc_sender.py");
        command.arg(how).env("FIRST_SPAN", first.to_string()).envs(more.iter().copied());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a sender");
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, said }
    }

    pub(crate) fn next(&mut self) -> Option<Value> {
        self.said.next().map(|line| serde_json::from_str(&line.unwrap()).unwrap())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Spans that are kept.
pub(crate) fn kept(gateway: &Gateway) -> u64 {
    gateway.json("/api/v1/stats")["total_spans"].as_u64().unwrap()
}

fn has_grpc_thread(gateway: &Gateway) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", gateway.id())).unwrap();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.into_iter().any(|name| name.starts_with("weir-grpc"))
}

#[test]
fn a_generated_client_reports_spans_and_is_told_what_became_of_them() {
    let gateway = setup().start();
    run(script(&gateway, "test_grpc.py"));
    assert_eq!(gateway.json("/health")["grpc_addr"], grpc_addr(&gateway));
    let calls = |labels| gateway.metric("service_grpc_requests_total", labels);
    assert!(
        calls(r#"code="OK",method="Export""#) + calls(r#"method="Export",code="OK""#) > 0.0,
        "{}",
        gateway.metrics()
    );
    assert!(calls(r#"code="RESOURCE_EXHAUSTED""#) > 0.0);
    assert!(gateway.metric("service_dropped_total", r#"queue="grpc_calls""#) > 0.0);
}

#[test]
fn the_opentelemetry_sdk_reports_by_grpc_where_otlp_is_taken_in() {
    let gateway = setup().with("otel_ingest: {enabled: true}").start();
    run(script(&gateway, "test_grpc_otlp.py"));
    assert!(gateway.metric("service_grpc_requests_total", r#"method="OtlpExport""#) >= 4.0);
    // Whoever has not asked for OTLP has none of it by gRPC either.
    let without = setup().start();
    let output = script(&without, "test_grpc_otlp.py").output().unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("UNIMPLEMENTED"));
}

#[test]
fn credentials_in_metadata_decide_over_tls_as_they_do_over_http() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (cert, key) = (file("cert.pem", CERT), file("key.pem", KEY));
    // Tenants are made over plain HTTP; then the same database is served over TLS.
    let mut gateway = setup().with(AUTH).start();
    let (tenant, other) = (gateway.tenant("One"), gateway.tenant("Two"));
    let (_, operator) = gateway.key(&tenant, "operator");
    let (_, viewer) = gateway.key(&tenant, "viewer");
    let (_, elsewhere) = gateway.key(&other, "operator");
    let token = gateway.token(&tenant);
    gateway.reconfigure(&format!("enable_tls: true\ntls_cert_file: '{cert}'\ntls_key_file: '{key}'"));
    let mut command = script(&gateway, "test_grpc_auth.py");
    command.env("CA_FILE", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/data/ca.pem"));
    for (name, value) in [
        ("OPERATOR", &operator),
        ("VIEWER", &viewer),
        ("OTHER", &elsewhere),
        ("TOKEN", &token),
        ("TENANT", &tenant),
        ("OTHER_TENANT", &other),
        ("ADMIN", &BOOTSTRAP.to_owned()),
    ] {
        command.env(name, value);
    }
    run(command);
    let log = gateway.log().join("\n");
    assert!([&operator, &viewer, &elsewhere, &token].iter().all(|secret| !log.contains(secret.as_str())));
}

#[test]
fn a_stop_in_the_middle_of_a_stream_keeps_what_was_dealt_with_and_says_how_much() {
    let mut gateway = setup().start();
    let mut sender = Sender::start(&gateway, "stream", 1_000_000);
    assert_eq!(sender.next().unwrap()["under_way"], 20);
    gateway.terminate();
    let end = sender.next().unwrap();
    assert!(gateway.wait().success(), "{}", gateway.log().join("\n"));
    let batches = end["batches"].as_u64().unwrap_or_else(|| panic!("{end}"));
    assert!((1..=end["sent"].as_u64().unwrap()).contains(&batches), "{end}");
    assert_eq!((&end["complete"], end["accepted"].as_u64()), (&Value::Bool(false), Some(batches)), "{end}");
    assert!(end["because"].as_str().unwrap().contains("stopping"), "{end}");
    gateway.restart();
    assert_eq!(kept(&gateway), batches);
}

#[test]
fn the_successor_takes_the_listener_over() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    drop(taken);
    let setup = Setup::new(Driver::Epoll).unlimited().with(&format!("grpc: {{enabled: true, listen_addr: '{addr}'}}"));
    let mut gateway = setup.start();
    let successor = gateway.successor(Driver::Epoll);
    assert!(gateway.wait().success());
    let mut sender = Sender::start(&successor, "calls", 1);
    assert_eq!(sender.next().unwrap()["accepted"], 10);
}

#[test]
fn a_gateway_without_it_has_no_listener_and_no_thread_for_it() {
    let with = setup().start();
    assert!(has_grpc_thread(&with));
    assert!(TcpStream::connect(grpc_addr(&with)).is_ok());
    let without = Setup::new(Driver::Epoll).start();
    assert!(!has_grpc_thread(&without));
    assert_eq!(without.json("/health")["grpc_addr"], Value::Null);
    assert_eq!(without.metric("service_grpc_requests_total", ""), 0.0);
}

#[test]
fn an_address_that_is_taken_is_said_by_its_setting() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let config = folder.path().join("service.yaml");
    let addr = taken.local_addr().unwrap();
    let text = format!(
        "listen_addr: 127.0.0.1:0\nupstream_url: http://127.0.0.1:1\nstorage: {{profile: memory}}\ngrpc: {{enabled: true, \
         listen_addr: '{addr}'}}\n"
    );
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let output = weir(&["--config", config]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(&format!("grpc.listen_addr `{addr}`")), "{said}");
    let output = weir(&["doctor", "--config", config]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(&format!("grpc.listen_addr {addr}")), "{said}");
}
