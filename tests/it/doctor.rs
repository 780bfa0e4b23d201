//! Promise: `weir doctor` finds what would go wrong, one line each, and says what to do; `weir check` finds what a start
//! would refuse. Each test breaks one thing and sees that line fail. (Kernel, ring, locked memory and mount types cannot
//! be broken from here: `cli::doctor` has tests of what is made of them.)

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use weir_config::catalogue::{self, Build, Kind};

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
            "cores",
            "numa",
            "huge pages",
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
fn authentication_that_was_meant_and_is_off() {
    let patient = Patient::new();
    for (name, value, part) in [
        ("SERVICE_AUTH_ENABLED", "on", "the value is none of 1, true, yes, 0, false, no, off"),
        (
            "SERVICE_AUTH_ADMIN_KEY",
            "a-key-of-twenty-four-characters",
            "`auth.admin_key` is set and `auth.enabled` is false",
        ),
    ] {
        for command in ["doctor", "check"] {
            let mut asked = weir(&[command, "--config", &patient.config("")]);
            asked.env(name, value);
            report(asked).assert("FAIL", "identity", &[part]);
        }
        let gateway = Setup::new(Driver::Auto).storage("{profile: memory}").env(name, value).start();
        let line = gateway.logged("the warning", |line| line.contains(part));
        assert!(line.contains(r#""level":"WARN""#) && !line.contains("a-key-of"), "{line}");
    }
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

/// It is asked beside a running gateway, before a reload: what that holds is no fault of the file.
#[test]
fn check_warns_of_addresses_that_are_taken_and_fails_for_those_that_cannot_be_had() {
    let patient = Patient::new();
    let running = Setup::new(Driver::Auto).start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = taken.local_addr().unwrap();
    for (topic, setting, own) in [
        ("listen", "listen_addr", format!("listen_addr: {other}\n")),
        ("grpc", "grpc.listen_addr", format!("grpc: {{enabled: true, listen_addr: '{other}'}}\n")),
        ("metrics", "server.metrics_addr", format!("server: {{metrics_addr: '{other}'}}\n")),
    ] {
        let config = patient.config(&own);
        let check = || report(weir(&["check", "--config", &config]));
        check().assert("warn", topic, &[setting, &other.to_string(), "another process", "a start fails"]);
        report(weir(&["doctor", "--config", &config])).assert("FAIL", topic, &[setting, &other.to_string()]);
        let nowhere = own.replace(&other.to_string(), "192.0.2.1:9999");
        let check = report(weir(&["check", "--config", &patient.config(&nowhere)]));
        check.assert("FAIL", topic, &[setting, "192.0.2.1:9999", "this machine has no such address"]);
    }
    let beside = patient.config(&format!("listen_addr: {}\n", running.addr));
    let beside = report(weir(&["check", "--config", &beside]));
    beside.assert("warn", "listen", &["listen_addr", "a running weir", "a reload", "--take-over"]);
    let free = report(weir(&["check", "--config", &patient.config("server: {metrics_addr: '127.0.0.1:0'}\n")]));
    assert!(free.lines.iter().all(|line| !["listen", "grpc", "metrics"].contains(&&*line.topic)), "{:?}", free.lines);
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
    assert!(code == 1 && text.contains("FAIL  ca file ") && !text.contains(": ok"), "{text}");
    let (code, text) = check("enforcement: {mode: block}\n");
    assert!(code == 0 && text.contains("warning: ") && text.contains("circuit_breaker.scope"), "{text}");
}

// Version and checksums of the schema: `weir_storage`'s `opening::refusal`.
#[test]
fn check_looks_into_the_database_as_a_start_does() {
    let patient = Patient::new();
    std::fs::write(patient.path("weir.db"), [b"SQLite format 3\0".as_slice(), &[7; 500]].concat()).unwrap();
    let config = patient.config("");
    let (checked, seen) = said(&["check", "--config", &config]);
    let (started, refused) = said(&["--config", &config]);
    assert_eq!((checked, started), (1, 78), "{seen}\n{refused}");
    let fault = "the file is not a SQLite database";
    assert!(seen.contains("FAIL  database ") && seen.contains(fault) && refused.contains(fault), "{seen}\n{refused}");
}

/// What `weir` says with these arguments, both outputs together, and its exit code.
fn said(args: &[&str]) -> (i32, String) {
    let output = weir(args).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8(text).unwrap())
}

/// Goes over the table of settings: whatever names a file is looked at, and as a start does.
/// Of the profile that checks certificates of its stores.
const STORES: &str = "profile: production, analytics_url: 'https://127.0.0.1:1', relational_url: 'postgres://weir@127.0.0.1:1/weir', \
    cache_url: 'rediss://127.0.0.1:1'";

#[test]
fn check_refuses_every_file_that_a_start_refuses() {
    let patient = Patient::new();
    let broken = patient.path("broken");
    std::fs::write(&broken, "this is: [neither, a certificate\n").unwrap();
    let mut seen = 0;
    for setting in catalogue::settings().filter(|setting| matches!(setting.build, Build::Built { .. })) {
        // The golden set, which the environment names, is read when somebody asks for its replay.
        if !matches!(setting.kind, Kind::File | Kind::DatabaseFile) || setting.path.starts_with("environment.") {
            continue;
        }
        // A model or a library that is not at hand stops no start.
        let of_models = ["ml_cache_dir", "ml_runtime_path", "judge.classifier.cache_dir"];
        if of_models.iter().any(|name| setting.path.ends_with(name)) {
            continue;
        }
        seen += 1;
        let (section, name) = setting.path.split_once('.').unwrap_or(("", setting.path));
        let more = match section {
            "" => format!("{name}: '{broken}'\n"),
            section => format!("{section}: {{{name}: '{broken}'}}\n"),
        };
        let more = match name {
            "tls_cert_file" => format!("enable_tls: true\ntls_key_file: '{broken}'\n{more}"),
            "tls_key_file" => format!("enable_tls: true\ntls_cert_file: '{broken}'\n{more}"),
            "upstream_ca_file" => format!("upstream_url: https://127.0.0.1:1\n{more}"),
            "key_file" if section == "receipts" => format!("receipts: {{enabled: true, key_file: '{broken}'}}\n"),
            "directory" if section == "receipts" => {
                let key = patient.path("receipts.key");
                assert_eq!(said(&["receipts", "init", "--key", &key]).0, 0);
                format!("receipts: {{enabled: true, key_file: '{key}', directory: '{broken}'}}\n")
            }
            "ca_file" if section == "storage" => format!("storage: {{{STORES}, ca_file: '{broken}'}}\n"),
            _ => more,
        };
        let config = patient.config(&more);
        let (code, text) = said(&["check", "--config", &config]);
        assert!(code != 0 && text.contains("FAIL") && text.contains(&broken), "{}: {code} {text}", setting.path);
        let (code, text) = said(&["--config", &config]);
        assert!(code == 78 && text.contains(&broken), "{}: {code} {text}", setting.path);
    }
    assert!(seen >= 6, "{seen} settings name a file");
}

#[test]
fn a_pricing_file_that_is_missing_or_broken() {
    let patient = Patient::new();
    let good = patient.path("good.yaml");
    std::fs::write(&good, "models: {m: {input_per_million: 1, output_per_million: 2}}\n").unwrap();
    let examine = |path: &str| patient.examine(&format!("cost_estimation: {{pricing_file: '{path}'}}\n"));
    examine(&good).assert("ok", "pricing file", &[&good]);
    examine("/nowhere/prices.yaml").assert(
        "FAIL",
        "pricing file",
        &["cost_estimation.pricing_file", "/nowhere/prices.yaml"],
    );
}

#[test]
fn what_beats_the_file_or_has_no_effect_is_named_by_start_check_and_doctor() {
    let patient = Patient::new();
    std::fs::write(patient.path("config.runtime.yaml"), "enforcement_mode: log\n").unwrap();
    let more = "enforcement: {mode: block}\noutput_safety: {hallucination_enabled: true}\n";
    let beats = format!("`enforcement.mode` is \"log\": the runtime overlay {}", patient.path("config.runtime.yaml"));
    let idle = "`output_safety.hallucination_enabled` has no effect while `output_safety.enabled` is false; set that to true, too";
    let config = patient.config(more);
    let (code, text) = said(&["check", "--config", &config]);
    assert!(
        code == 0 && text.contains(&format!("warning: {beats}")) && text.contains(&format!("warning: {idle}")),
        "{text}"
    );
    let report = patient.examine(more);
    for what in [beats.as_str(), idle] {
        let line = report.lines.iter().find(|line| line.text.starts_with(what)).unwrap_or_else(|| panic!("{what}"));
        assert_eq!((line.level.as_str(), line.topic.as_str()), ("warn", "settings"));
    }
    let gateway = Setup::new(Driver::Auto).with("output_safety: {hallucination_enabled: true}").start();
    let warning = gateway.logged("what has no effect", |line| line.contains(idle));
    assert!(warning.contains("\"WARN\""), "{warning}");
}

#[test]
fn a_log_filter_nobody_understands() {
    let patient = Patient::new();
    let config = patient.config("");
    let with = |filter: &str, command: &str| {
        let mut asked = weir(&[command, "--config", &config]);
        asked.env("RUST_LOG", filter);
        asked
    };
    let output = with("weir=loud", "check").output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stderr).contains("log filter `weir=loud`"));
    report(with("weir=loud", "doctor")).assert("FAIL", "settings", &["log filter `weir=loud`"]);
    report(with("verbose", "doctor")).assert("warn", "settings", &["RUST_LOG: `verbose` is no level"]);
}

#[test]
fn without_a_configuration_file_check_says_that_flags_are_not_kept() {
    let patient = Patient::new();
    let output = weir(&["check"]).env("SERVICE_STORAGE_DATABASE_PATH", patient.path("weir.db")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("ok    overlay       none, without a configuration file: flags changed"), "{text}");
}

#[test]
fn the_readme_names_the_flags_that_change_in_this_version() {
    let pages = crate::support::pages();
    let (built, others): (Vec<&catalogue::Setting>, Vec<&catalogue::Setting>) = catalogue::settings()
        .filter(|setting| setting.wire.is_some())
        .partition(|setting| matches!(setting.build, Build::Built { .. }));
    let mut names: Vec<String> = built.iter().map(|setting| format!("`{}`", setting.wire.unwrap())).collect();
    names.sort();
    let (last, first) = names.split_last().unwrap();
    let words = pages.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut said = vec![format!(
        "These flags change without a restart, all of a request or none: {} and {last}.",
        first.join(", ")
    )];
    if !others.is_empty() {
        let mut others: Vec<String> = others.iter().map(|setting| format!("`{}`", setting.wire.unwrap())).collect();
        others.sort();
        said.push(format!("shows those too whose features are not built into this version: {}", others.join(", ")));
    }
    for said in said {
        assert!(words.contains(&said), "no page says: {said}");
    }
}

/// What the machine decides, not the configuration: what `doctor` may say of it where nothing fails. A star stands for any words.
const OF_THE_MACHINE: [(&str, &[&str]); 9] = [
    ("kernel", &["ok Linux #.#*", "warn Linux #.#*: works; the fastest ring mode needs Linux #.#"]),
    ("io driver", &["ok io_uring (*)", "ok epoll", "warn epoll: the kernel grants no io_uring; *"]),
    ("memlock", &["ok # bytes; this kernel does not charge rings to it", "ok # bytes", "ok unlimited"]),
    ("descriptors", &["ok #, of which # may be needed", "ok unlimited", "warn #*"]),
    (
        "memory",
        &[
            "ok # MiB on this machine, of which bodies may take # MiB",
            "ok # MiB in this container, of which bodies may take # MiB",
            "warn # MiB *, of which bodies may take # MiB: a request of # MiB *",
            "warn # MiB *, and bodies may take # MiB of it: *",
        ],
    ),
    (
        "cores",
        &[
            "ok # core thread(s) on cores *, one pinned to each",
            "ok # core thread(s) on cores *",
            "warn # core thread(s) on cores *",
        ],
    ),
    ("numa", &["ok all cores share one node of memory", "warn cores of several nodes (*"]),
    ("huge pages", &["ok *; Weir asks for none", "warn transparent huge pages are `always`*"]),
    ("file system", &["ok * is on *", "warn * is on *: traces are lost on reboot"]),
];

/// Whether a star of the form stands for what the text has there.
fn fits(form: &str, text: &str) -> bool {
    match form.split_once('*') {
        None => form == text,
        Some((first, rest)) => text.strip_prefix(first).is_some_and(|left| {
            left.char_indices().map(|(at, _)| at).chain([left.len()]).any(|at| fits(rest, &left[at..]))
        }),
    }
}

/// A line of `check` or `doctor` as far as it is the same everywhere: numbers are `#`, of a path only the file's name is left. Of what
/// the machine decides only the topic is, once the line has one of its forms.
fn anywhere(line: &str) -> String {
    let topic = line.get(6..20).map_or("", str::trim);
    let name = |word: &str| match word.rsplit_once('/') {
        Some((folders, name)) if folders.is_empty() || folders.starts_with('/') => name.to_owned(),
        _ => word.to_owned(),
    };
    let words: Vec<String> = line.split_whitespace().map(name).collect();
    let mut said = String::new();
    for c in words.join(" ").chars() {
        match c {
            '0'..='9' if said.ends_with('#') => {}
            '0'..='9' => said.push('#'),
            c => said.push(c),
        }
    }
    let Some((_, forms)) = OF_THE_MACHINE.iter().find(|(known, _)| *known == topic) else { return said };
    let about = said.replacen(&format!(" {topic}"), "", 1);
    assert!(forms.iter().any(|form| fits(form, &about)), "`{line}` has none of the forms {forms:?}");
    topic.to_owned()
}

/// What a page shows is what the commands say, line by line.
#[test]
fn the_readme_shows_what_doctor_and_check_really_say() {
    let pages = crate::support::pages();
    let patient = Patient::new();
    patient.config("");
    for command in ["doctor", "check"] {
        let shown = pages.split(&format!("$ weir {command} --config service.yaml\n")).nth(1).unwrap();
        let shown = shown.lines().take_while(|line| *line != "```" && !line.starts_with("$ "));
        let output = weir(&[command, "--config", "service.yaml"]).current_dir(patient.folder.path()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let (shown, said): (Vec<_>, Vec<_>) = (shown.map(anywhere).collect(), said.lines().map(anywhere).collect());
        assert_eq!(shown, said, "{command}");
        assert!(shown.iter().filter(|line| line.contains(' ')).count() >= 3, "{shown:?}");
    }
}

#[test]
fn every_configuration_in_the_readme_is_accepted() {
    let pages = crate::support::pages();
    let patient = Patient::new();
    std::fs::write(patient.path("key"), "sk-of-anthropic").unwrap();
    let blocks = pages.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```")).map(|(block, _)| block);
    // Rules are read by `weir rules`, and what is left out stands for what each operator has of his own.
    let blocks = blocks.filter(|block| !block.starts_with("rules:")).map(|block| {
        let files = ["/run/secrets/anthropic", "/run/secrets/elastic", "/run/weir/azure-token"];
        let block = files.iter().fold(block.to_owned(), |block, file| block.replace(file, &patient.path("key")));
        block.replace("whsec_…", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=").replace('…', "x")
    });
    let mut count = 0;
    for block in blocks {
        std::fs::write(patient.path("service.yaml"), &block).unwrap();
        let mut command = weir(&["config", "print", "--config", "service.yaml"]);
        let output = command
            .current_dir(patient.folder.path())
            .envs([("OPENAI_API_KEY", "sk-of-openai"), ("SIEM_TOKEN", "a"), ("SPLUNK_HEC_TOKEN", "b")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{block}\n{}", String::from_utf8_lossy(&output.stderr));
        count += 1;
    }
    assert!(count >= 7, "{count} blocks");
}

#[test]
fn behind_a_load_balancer_addresses_are_not_to_be_blocked() {
    let patient = Patient::new();
    let rules = |more: &str| format!("action_router: {{enabled: true, rules: [{{actions: [block_ip]}}]{more}}}\n");
    for (more, part) in [
        (rules(""), "`block_ip` never turns away"),
        (format!("listen_addr: 192.0.2.1:8080\n{}", rules("")), "behind a load balancer that is the load balancer's"),
        (rules(", ip_block: {allow_shared: true}"), "`action_router.ip_block.allow_shared` is true"),
    ] {
        patient.examine(&more).assert("warn", "block_ip", &[part]);
    }
    let report = patient.examine("action_router: {enabled: true}\n");
    assert!(report.lines.iter().all(|line| line.topic != "block_ip"), "{:?}", report.lines);
}

#[test]
fn channels_of_alerts_are_connected_to_and_told_nothing() {
    let (patient, good, closed) = (Patient::new(), Upstream::always("HTTP/1.1 200 OK\r\n\r\n"), ClosedPort::new());
    let alerts = format!(
        "alerts: {{enabled: true, channels: [{{type: webhook, url: '{}/canary'}}, {{type: slack, url: 'http://{1}/canary'}}, \
         {{type: email, url: 'smtps://ann:canary@{1}?from=a@example.org&to=b@example.org'}}]}}\n",
        good.url(),
        closed.addr
    );
    let report = patient.examine(&alerts);
    let lines: Vec<&Line> = report.lines.iter().filter(|line| line.topic == "alerts").collect();
    let levels: Vec<&str> = lines.iter().map(|line| line.level.as_str()).collect();
    assert_eq!((report.code, levels), (1, vec!["ok", "FAIL", "FAIL"]), "{lines:?}");
    let target = good.url().replace("http://", "");
    assert_eq!(
        lines[0].text,
        format!("webhook_1: {target} accepts connections; `weir alerts test webhook_1` sends it a message")
    );
    for (line, channel) in [(lines[1], "slack_2"), (lines[2], "email_3")] {
        assert!(line.text.starts_with(&format!("{channel}: {} cannot be connected to: ", closed.addr)), "{line:?}");
    }
    assert!(report.lines.iter().all(|line| !line.text.contains("canary")), "{lines:?}");
    assert_eq!(good.requests().len(), 0, "nobody is told anything");
    let report = patient.examine(&alerts.replace("enabled: true", "enabled: false"));
    assert!(report.lines.iter().all(|line| line.topic != "alerts"), "nobody is to be told");
}

#[test]
fn where_calls_go_and_which_upstream_cannot_be_reached() {
    let patient = Patient::new();
    let (nobody, provider) = (ClosedPort::new(), patient.provider.url());
    let report = patient.examine(&format!(
        "upstreams:\n  well: {{url: '{provider}', providers: [openai, anthropic], api_key: sk-of-the-operator}}\n  dead: {{url: \
         'http://{}'}}\n  unsafe: {{url: '{}'}}\nupstream_groups: {{own: {{upstreams: [well, dead], providers: [vllm]}}}}\nroutes: \
         [{{model: 'QWEN*', path: '/v1/chat/*', upstream: own}}, {{path: '/v1/files*', upstream: well}}]\n",
        nobody.addr,
        provider.replace("http://", "https://"),
    ));
    let of = |topic: &str| -> Vec<(String, String)> {
        let lines = report.lines.iter().filter(|line| line.topic == topic);
        lines.map(|line| (line.level.clone(), line.text.clone())).collect()
    };
    let ok = |text: &str| ("ok".to_owned(), text.to_owned());
    assert_eq!(
        of("provider"),
        [ok(
            "by X-Service-Provider, and by the dialect of a path: openai to `well`; anthropic to `well`; vllm to `own` (well, dead)"
        )]
    );
    assert_eq!(
        of("route"),
        [ok("1: model `qwen*` and path `/v1/chat/*` to `own` (well, dead)"), ok("2: path `/v1/files*` to `well`")]
    );
    assert_eq!(of("upstreams"), [ok("every other call goes to `default` (upstream_url)")]);
    assert_eq!(
        of("api_key"),
        [ok("without a key of the operator's: default, dead, unsafe; calls bring their own there")]
    );
    // Each is looked at, and a fault names whose it is and which setting mends it.
    let failing = |topic: &str| of(topic).into_iter().filter(|(level, _)| level == "FAIL").map(|(_, text)| text);
    let tcp: Vec<String> = failing("upstream tcp").collect();
    assert!(tcp.len() == 1 && tcp[0].starts_with("`dead`: ") && tcp[0].contains("(upstreams.dead.url)"), "{tcp:?}");
    let tls: Vec<String> = failing("upstream tls").collect();
    assert!(
        tls.len() == 1 && tls[0].starts_with("`unsafe`: ") && tls[0].ends_with("upstreams.unsafe.ca_file"),
        "{tls:?}"
    );
    assert_eq!((of("upstream tcp").len(), report.code), (4, 1));
    assert!(of("upstream tcp").iter().any(|(level, text)| level == "ok" && text.starts_with("`well`: ")));
    assert_eq!(
        patient.examine("").lines.iter().filter(|line| line.topic == "upstreams").count(),
        0,
        "only upstream_url"
    );
}

#[test]
fn a_route_that_takes_every_call_is_where_every_other_call_goes() {
    let patient = Patient::new();
    let provider = patient.provider.url();
    let said = |routes: &str| -> Vec<(String, String)> {
        let report = patient.examine(&format!(
            "upstreams: {{own: {{url: '{provider}', providers: [openai]}}, files: {{url: '{provider}'}}}}\nroutes: [{routes}]\n"
        ));
        let lines =
            report.lines.iter().filter(|line| ["provider", "route", "upstreams"].contains(&line.topic.as_str()));
        lines.map(|line| (line.level.clone(), line.text.clone())).collect()
    };
    let line = |level: &str, text: &str| (level.to_owned(), text.to_owned());
    for (route, what) in [
        ("upstream: own", "every call"),
        ("path: '*', upstream: own", "path `*`"),
        ("path: '/*', upstream: own", "path `/*`"),
    ] {
        assert_eq!(
            said(&format!("{{path: '/v1/files*', upstream: files}}, {{{route}}}, {{model: 'gpt*', upstream: files}}")),
            [
                line("ok", "by X-Service-Provider: openai to `own`"),
                line("ok", "1: path `/v1/files*` to `files`"),
                line("ok", &format!("2: {what} to `own`")),
                line("warn", "3: model `gpt*` to `files`, but route 2 takes every call"),
                line("ok", "every other call goes to `own` (route 2)"),
            ]
        );
    }
    // A call that names no model fits no pattern of models.
    assert_eq!(
        said("{model: '*', upstream: files}"),
        [
            line("ok", "by X-Service-Provider, and by the dialect of a path: openai to `own`"),
            line("ok", "1: model `*` to `files`"),
            line("ok", "every other call goes to `default` (upstream_url)"),
        ]
    );
}
