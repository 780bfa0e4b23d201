//! Promise: `weir doctor` finds what would go wrong, one line each, and says what to do; `weir check` finds what a start
//! would refuse. Each test breaks one thing and sees that line fail. (Kernel, ring, locked memory and mount types cannot
//! be broken from here: `cli::doctor` has tests of what is made of them.)

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::support::{ClosedPort, Driver, Setup, Upstream, weir};

/// A folder with a configuration that has nothing wrong with it, and what stands in it.
struct Patient {
    folder: TempDir,
    provider: Upstream,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    level: String,
    topic: String,
    text: String,
}

struct Report {
    code: i32,
    lines: Vec<Line>,
}

impl Report {
    #[track_caller]
    fn assert(&self, level: &str, topic: &str, parts: &[&str]) {
        let line = self.lines.iter().find(|line| line.topic == topic);
        let line = line.unwrap_or_else(|| panic!("no line `{topic}`: {:?}", self.lines));
        assert_eq!(line.level, level, "{line:?}");
        for part in parts {
            assert!(line.text.contains(part), "`{part}` is not in {line:?}");
        }
        assert_eq!(self.code, i32::from(self.lines.iter().any(|line| line.level == "FAIL")));
    }
}

impl Patient {
    fn new() -> Self {
        let provider = Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        Self { folder: TempDir::new().unwrap(), provider }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The configuration, with `more` lines at the end.
    fn config(&self, more: &str) -> String {
        let path = self.path("service.yaml");
        let mut text = String::new();
        for (key, line) in [
            ("listen_addr", "listen_addr: 127.0.0.1:0".to_owned()),
            ("upstream_url", format!("upstream_url: {}", self.provider.url())),
            ("storage", format!("storage: {{database_path: '{}'}}", self.path("weir.db"))),
        ] {
            if !more.contains(&format!("{key}:")) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        std::fs::write(&path, text + more).unwrap();
        path
    }

    fn examine(&self, more: &str) -> Report {
        report(weir(&["doctor", "--config", &self.config(more)]))
    }
}

fn report(mut command: Command) -> Report {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let (level, rest) = line.split_once("  ")?;
        let (topic, text) = rest.trim_start().split_once("  ")?;
        Some(Line { level: level.trim().to_owned(), topic: topic.to_owned(), text: text.trim_start().to_owned() })
    };
    Report { code: output.status.code().unwrap_or(-1), lines: text.lines().filter_map(line).collect() }
}

#[test]
fn a_machine_without_faults_has_no_line_that_fails() {
    let patient = Patient::new();
    let report = patient.examine("");
    assert_eq!(report.code, 0, "{:?}", report.lines);
    let topics: Vec<&str> = report.lines.iter().map(|line| line.topic.as_str()).collect();
    assert_eq!(
        topics,
        [
            "settings",
            "kernel",
            "io driver",
            "memlock",
            "descriptors",
            "memory",
            "clock",
            "database",
            "file system",
            "overlay",
            "listen",
            "exposure",
            "timeout",
            "upstream dns",
            "upstream tcp",
        ]
    );
    let left: Vec<_> =
        std::fs::read_dir(patient.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["service.yaml"], "the examination leaves nothing behind");
    assert_eq!(patient.provider.requests().len(), 0, "the provider is asked nothing");
}

#[test]
fn settings_that_do_not_load() {
    let report = Patient::new().examine("timeout_ms: soon\n");
    report.assert("FAIL", "settings", &["service.yaml:4:13", "`timeout_ms`", "\"soon\""]);
}

#[test]
fn too_few_descriptors() {
    let patient = Patient::new();
    let config = patient.config("");
    let mut limited = Command::new("sh");
    limited.env_clear().args([
        "-c",
        "ulimit -n 256; exec \"$0\" doctor --config \"$1\"",
        env!("CARGO_BIN_EXE_weir"),
        &config,
    ]);
    report(limited).assert("FAIL", "descriptors", &["256", "max_connections", "ulimit -n"]);
}

#[test]
fn a_clock_that_went_back() {
    let patient = Patient::new();
    let database = std::fs::File::create(patient.path("weir.db")).unwrap();
    database.set_modified(SystemTime::now() + Duration::from_secs(7_200)).unwrap();
    patient.examine("").assert("FAIL", "clock", &["went back", "NTP"]);
}

#[test]
fn a_database_that_cannot_be_written_or_is_none() {
    let patient = Patient::new();
    for (path, part) in [
        (patient.path("no/such/folder/weir.db"), "cannot be written"),
        ("/proc/weir.db".to_owned(), "cannot be written"),
        (patient.folder.path().display().to_string(), "is no file"),
        (patient.path("service.yaml"), "not a SQLite database"),
    ] {
        let report = patient.examine(&format!("storage: {{database_path: '{path}'}}\n"));
        report.assert("FAIL", "database", &["storage.database_path", &path, part]);
    }
    patient.examine("storage: {profile: memory}\n").assert("warn", "database", &["lost on restart"]);
}

#[test]
fn a_ca_file_that_is_missing_or_holds_nothing() {
    let patient = Patient::new();
    let empty = patient.path("empty.pem");
    std::fs::write(&empty, "no certificate\n").unwrap();
    for path in ["/nowhere/ca.pem", &empty] {
        patient.examine(&format!("upstream_ca_file: {path}\n")).assert("FAIL", "ca file", &["upstream_ca_file", path]);
    }
}

#[test]
fn a_pair_of_tls_files_that_is_none() {
    let patient = Patient::new();
    let more = "enable_tls: true\ntls_cert_file: /nowhere/cert.pem\ntls_key_file: /nowhere/key.pem\n";
    patient.examine(more).assert("FAIL", "tls files", &["tls_cert_file", "/nowhere/cert.pem"]);
}

#[test]
fn an_overlay_that_cannot_be_written() {
    let patient = Patient::new();
    let config = patient.config("");
    let command = weir(&["doctor", "--config", &config, "--runtime-config", "/proc/weir/config.runtime.yaml"]);
    report(command).assert("warn", "overlay", &["--runtime-config", "until the next restart"]);
}

#[test]
fn a_port_in_use_unless_by_a_weir() {
    let patient = Patient::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    patient.examine(&format!("listen_addr: {addr}\n")).assert("FAIL", "listen", &["listen_addr", &addr]);
    let running = Setup::new(Driver::Auto).start();
    let report = patient.examine(&format!("listen_addr: {}\n", running.addr));
    report.assert("ok", "listen", &["running weir"]);
}

#[test]
fn no_authentication_on_a_public_address() {
    let report = Patient::new().examine("listen_addr: 0.0.0.0:0\n");
    report.assert("FAIL", "exposure", &["authentication is off", "auth.enabled: true", "127.0.0.1"]);
}

#[test]
fn a_provider_whose_name_port_or_certificate_is_wrong() {
    let patient = Patient::new();
    let report = patient.examine("upstream_url: http://no-such-host.invalid\n");
    report.assert("FAIL", "upstream dns", &["no-such-host.invalid", "upstream_url"]);
    let nobody = ClosedPort::new();
    let report = patient.examine(&format!("upstream_url: http://{}\n", nobody.addr));
    report.assert("FAIL", "upstream tcp", &[&nobody.addr.to_string(), "firewall"]);
    let plain = patient.provider.url().replace("http://", "https://");
    let report = patient.examine(&format!("upstream_url: {plain}\n"));
    report.assert("FAIL", "upstream tls", &["upstream_ca_file"]);
}

#[test]
fn check_looks_at_the_files_too() {
    let patient = Patient::new();
    let check = |more: &str| {
        let output = weir(&["check", "--config", &patient.config(more)]).output().unwrap();
        (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = check("");
    assert!(code == 0 && text.contains("service.yaml: ok\nok    database "), "{text}");
    let (code, text) = check("upstream_ca_file: /nowhere/ca.pem\n");
    assert!(code == 1 && text.contains("FAIL  ca file "), "{text}");
}

/// What stands in the README is what the commands say, but for numbers, addresses and paths.
#[test]
fn the_readme_shows_what_doctor_and_check_really_say() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let shown = |command: &str| -> Vec<String> {
        let block = readme.split(&format!("$ {command}\n")).nth(1).unwrap_or_else(|| panic!("no `{command}`"));
        let lines = block.lines().take_while(|line| *line != "```" && !line.starts_with("$ "));
        lines.map(|line| line.get(..20).unwrap_or(line).trim_end().to_owned()).collect()
    };
    let patient = Patient::new();
    let config = patient.config("");
    for command in ["doctor", "check"] {
        let output = weir(&[command, "--config", &config]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap().replace(&patient.path("service.yaml"), "service.yaml");
        // Whether this machine has a ring, and how its folders are mounted, is not the README's matter.
        let cut = |line: &str| line.get(..20).unwrap_or(line).trim_end().to_owned();
        let topics = |lines: Vec<String>| -> Vec<String> {
            lines.iter().map(|line| line.get(6..).unwrap_or(line).to_owned()).collect()
        };
        let said: Vec<String> = said.lines().map(cut).collect();
        assert_eq!(topics(shown(&format!("weir {command} --config service.yaml"))), topics(said), "{command}");
    }
}
