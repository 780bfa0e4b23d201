//! Promise: a start that cannot succeed ends at once with a message that names the setting or path and what to do.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{Answer, Call, ClosedPort, Driver, Setup, call, chat_call, eventually, weir};

/// Runs `weir` with this configuration and returns its exit code and standard error.
fn start(folder: &Path, config: &str) -> (i32, String) {
    let path = folder.join("service.yaml");
    std::fs::write(&path, config).unwrap();
    run(&["--config", path.to_str().unwrap()], &[])
}

fn run(args: &[&str], env: &[(&str, &str)]) -> (i32, String) {
    let output = weir(args).envs(env.iter().copied()).output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Asserts that the start failed and that the message contains all `parts`.
fn assert_refused(outcome: (i32, String), parts: &[&str]) {
    let (code, message) = outcome;
    assert!(code > 0, "exit code {code}: {message}");
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
    assert!(!message.contains("panicked"), "{message}");
}

#[test]
fn a_file_that_is_no_yaml_is_named_with_its_line() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("service.yaml");
    let place = format!("{}:3:", config.display());
    assert_refused(
        start(folder.path(), "listen_addr: 127.0.0.1:0\nstorage:\n  profile: [lite\n: x"),
        &[&format!("{}:4:1", config.display()), "YAML"],
    );
    assert_refused(
        start(folder.path(), "listen_addr: 127.0.0.1:0\nstorage:\n  profile: paper\n"),
        &[&place, "`storage.profile`", "`lite`", "`memory`"],
    );
}

#[test]
fn an_unknown_key_gets_a_suggestion() {
    let folder = TempDir::new().unwrap();
    assert_refused(start(folder.path(), "listen_adr: 127.0.0.1:0\n"), &["`listen_adr`", "did you mean `listen_addr`"]);
    assert_refused(start(folder.path(), "enforcement:\n  min_severty: High\n"), &["min_severty", "min_severity"]);
}

#[test]
fn every_mistake_is_told_at_once() {
    let folder = TempDir::new().unwrap();
    let config = "timeout_ms: soon\nupstream_url: ftp://x\nenforcement: {min_confidence: 1.5}\n";
    assert_refused(
        start(folder.path(), config),
        &["`timeout_ms`", "`upstream_url`", "http://", "`enforcement.min_confidence`"],
    );
}

#[test]
fn a_missing_file_is_named() {
    assert_refused(run(&["--config", "/nowhere/service.yaml"], &[]), &["/nowhere/service.yaml"]);
}

#[test]
fn a_bad_variable_is_named() {
    assert_refused(run(&[], &[("SERVICE_LISTEN_ADDR", "nonsense")]), &["SERVICE_LISTEN_ADDR", "nonsense"]);
}

#[test]
fn a_port_in_use_is_named_with_the_process_that_holds_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let folder = TempDir::new().unwrap();
    let config = format!("listen_addr: {addr}\nstorage: {{profile: memory}}\n");
    let (code, message) = start(folder.path(), &config);
    assert_eq!(code, 75, "{message}");
    let holder = format!("in use by process {}", std::process::id());
    assert_refused((code, message), &["listen_addr", &addr, &holder]);
    for other in ["server: {metrics_addr: '", "grpc: {enabled: true, listen_addr: '"] {
        let config = format!("listen_addr: 127.0.0.1:0\nstorage: {{profile: memory}}\n{other}{addr}'}}\n");
        let (code, message) = start(folder.path(), &config);
        assert_eq!(code, 75, "{message}");
        assert_refused((code, message), &[&addr, &holder]);
    }
}

/// A supervisor tells by the exit code whether another try may help.
#[test]
fn exit_codes_tell_settings_from_what_may_be_over_soon() {
    let folder = TempDir::new().unwrap();
    let (settings, _) = start(folder.path(), "listen_addr: nonsense\n");
    let database = folder.path().join("no/such/folder/weir.db");
    let config = format!("listen_addr: 127.0.0.1:0\nstorage: {{database_path: '{}'}}\n", database.display());
    let (store, _) = start(folder.path(), &config);
    std::fs::write(folder.path().join("notes.db"), "these are notes ".repeat(500)).unwrap();
    let notes = folder.path().join("notes.db");
    let config = format!("listen_addr: 127.0.0.1:0\nstorage: {{database_path: '{}'}}\n", notes.display());
    let (foreign, _) = start(folder.path(), &config);
    assert_eq!((settings, store, foreign), (78, 75, 78));
    let (_, help) = {
        let output = weir(&["--help"]).output().unwrap();
        (0, String::from_utf8(output.stdout).unwrap())
    };
    assert!(["78", "75", "70", "SIGHUP reads upstreams"].iter().all(|part| help.contains(part)), "{help}");
}

/// Starts that follow kills; `.ci/full` asks for more of them.
const KILLS: usize = 20;

/// The kernel lets go of a killed process's sockets a little after the process: a start at once waits for them.
#[test]
fn a_gateway_that_is_killed_under_load_starts_again_at_once_on_its_port() {
    let rounds = std::env::var("WEIR_KILLS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(KILLS);
    let upstream = crate::support::Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut gateway = Setup::new(Driver::Auto).upstream(upstream.url()).unlimited().start();
    let config = gateway.folder().join("service.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    let addr = gateway.addr;
    std::fs::write(&config, text.replace("listen_addr: 127.0.0.1:0", &format!("listen_addr: {addr}"))).unwrap();
    gateway.restart();
    assert_eq!(gateway.addr, addr);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| load(addr, &over));
        }
        let _over = crate::startup::Over(&over);
        let mut waited = 0;
        for _ in 0..rounds {
            // A start that fails is a panic.
            gateway.restart();
            waited += usize::from(gateway.log().iter().any(|line| line.contains("waiting for the port")));
            assert!(!gateway.json("/livez").is_null());
        }
        println!("{rounds} starts after kills, {waited} of which waited for the port");
    });
}

/// Ends the load, however the test ends.
struct Over<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Calls on fresh connections, whatever becomes of them.
fn load(addr: SocketAddr, over: &std::sync::atomic::AtomicBool) {
    use std::io::{Read as _, Write as _};
    while !over.load(std::sync::atomic::Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect(addr) else {
            std::thread::yield_now();
            continue;
        };
        drop(stream.set_read_timeout(Some(std::time::Duration::from_secs(1))));
        if stream.write_all(&chat_call("hello").bytes()).is_ok() {
            drop(stream.read(&mut [0; 4096]));
        }
    }
}

#[test]
fn the_port_of_another_weir_is_in_use_too() {
    let gateway = crate::support::Setup::new(crate::support::Driver::Auto).start();
    let folder = TempDir::new().unwrap();
    let config = format!("listen_addr: {}\nstorage: {{profile: memory}}\n", gateway.addr);
    assert_refused(start(folder.path(), &config), &["listen_addr", "in use"]);
    assert_eq!(gateway.json("/health")["status"], "healthy");
}

#[test]
fn a_database_that_cannot_be_written_is_named() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    // Paths that even root cannot create a file at.
    for path in
        [folder.path().join("no/such/folder/weir.db"), file.join("weir.db"), Path::new("/proc/weir.db").to_owned()]
    {
        let config = format!("listen_addr: 127.0.0.1:0\nstorage: {{database_path: '{}'}}\n", path.display());
        assert_refused(
            start(folder.path(), &config),
            &["storage.database_path", &path.display().to_string(), "written"],
        );
    }
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("notes.db");
    let notes = "these are my notes, and they have nothing to do with a database ".repeat(100);
    std::fs::write(&path, &notes).unwrap();
    let config = format!("listen_addr: 127.0.0.1:0\nstorage: {{database_path: '{}'}}\n", path.display());
    assert_refused(start(folder.path(), &config), &[&path.display().to_string(), "not a SQLite database"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), notes);
}

#[test]
fn an_unusable_ca_file_is_named() {
    let folder = TempDir::new().unwrap();
    let config = "listen_addr: 127.0.0.1:0\nstorage: {profile: memory}\n\
        upstream_url: https://127.0.0.1\nupstream_ca_file: /nowhere/ca.pem\n";
    assert_refused(start(folder.path(), config), &["upstream_ca_file", "/nowhere/ca.pem"]);
}

#[test]
fn an_unreachable_provider_does_not_stop_the_start() {
    let nobody = ClosedPort::new();
    let setup = crate::support::Setup::new(crate::support::Driver::Auto);
    let gateway = setup.upstream(format!("http://{}", nobody.addr)).start();
    assert_eq!(gateway.json("/health")["status"], "healthy");
}

#[test]
fn all_descriptors_the_process_may_have_are_taken_and_too_few_are_said() {
    let setup = crate::support::Setup::new(crate::support::Driver::Auto).storage("{profile: memory}");
    let gateway = setup.server("max_client_connections: 2000000000").start();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.id())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let numbers: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(numbers[0], numbers[1], "the soft limit is the hard one: {line}");
    let warning = gateway.logged("too few descriptors", |line| line.contains("max_client_connections"));
    assert!(warning.contains("WARN") && warning.contains("2000001064") && warning.contains(numbers[1]), "{warning}");
}

#[test]
fn check_says_ok_or_what_a_start_would_say() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.yaml");
    std::fs::write(&path, "listen_addr: 127.0.0.1:0\n").unwrap();
    let args = ["check", "--config", path.to_str().unwrap()];
    assert_eq!(run(&args, &[]).0, 0);
    std::fs::write(&path, "listen_addr: 127.0.0.1\n").unwrap();
    assert_refused(run(&args, &[]), &["`listen_addr`", "host:port"]);
    assert_eq!(run(&["version"], &[]).0, 0);
}

/// Another process that holds the database, until it is told to let go; ended with its handle.
struct Holder(Child);

impl Holder {
    fn lock(database: &Path) -> Self {
        let script = "import sqlite3, sys\n\
                      held = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
                      held.execute('BEGIN EXCLUSIVE')\n\
                      print('held', flush=True)\n\
                      sys.stdin.read()\n";
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(database).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Self(command.spawn().expect("python3 with sqlite3"));
        let mut said = String::new();
        BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        holder
    }

    fn let_go(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

/// A gateway that may not get ready; ended with its handle.
struct Starting(Child);

impl Drop for Starting {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A port that was free a moment ago.
fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn the_listener_says_starting_from_the_first_moment_on() {
    for driver in ["auto", "epoll"] {
        let folder = TempDir::new().unwrap();
        let database = folder.path().join("weir.db");
        let holder = Holder::lock(&database);
        let addr = free_port();
        let config = folder.path().join("service.yaml");
        let settings = format!(
            "listen_addr: {addr}\nstorage: {{database_path: '{}'}}\nserver: {{io_driver: {driver}}}\n\
             upstream_url: 'http://127.0.0.1:1'\n",
            database.display()
        );
        std::fs::write(&config, settings).unwrap();
        let _gateway = Starting(weir(&["--config", config.to_str().unwrap()]).stderr(Stdio::null()).spawn().unwrap());
        eventually("it listens", || TcpStream::connect(addr).ok());

        let ask = |path: &str| -> Answer { call(addr, Call::get(path).bytes()) };
        let health = ask("/health");
        assert_eq!((health.status, health.json()["status"].as_str()), (503, Some("starting")));
        assert_eq!(health.json()["storage"]["status"], "unavailable");
        assert_eq!((ask("/livez").status, ask("/readyz").status), (200, 503));
        assert_eq!(ask("/readyz").json()["status"], "starting");
        let refused = call(addr, chat_call("hello").bytes());
        assert_eq!((refused.status, refused.header("retry-after").as_deref()), (503, Some("1")));
        assert_eq!(refused.json()["error"]["type"], "service_starting");
        assert_eq!(ask("/api/v1/traces").json()["error"]["type"], "service_starting");

        holder.let_go();
        eventually("it is ready", || (ask("/readyz").status == 200).then_some(()));
        let health = ask("/health");
        assert_eq!((health.status, health.json()["status"].as_str()), (200, Some("healthy")));
        assert_eq!(health.json()["storage"]["status"], "connected");
        assert_eq!(call(addr, chat_call("hello").bytes()).status, 502, "the provider is asked now");
    }
}

#[test]
fn the_listener_for_metrics_says_starting_meanwhile() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("weir.db");
    let holder = Holder::lock(&database);
    let addr = free_port();
    let config = folder.path().join("service.yaml");
    let settings = format!(
        "listen_addr: {}\nstorage: {{database_path: '{}'}}\nserver: {{metrics_addr: '{addr}'}}\n\
         upstream_url: 'http://127.0.0.1:1'\n",
        free_port(),
        database.display()
    );
    std::fs::write(&config, settings).unwrap();
    let _gateway = Starting(weir(&["--config", config.to_str().unwrap()]).stderr(Stdio::null()).spawn().unwrap());
    eventually("it listens", || TcpStream::connect(addr).ok());
    let ask = |path: &str| -> Answer { call(addr, Call::get(path).bytes()) };
    assert_eq!((ask("/livez").status, ask("/readyz").status), (200, 503));
    let refused = ask("/metrics");
    assert_eq!((refused.status, refused.header("retry-after").as_deref()), (503, Some("1")));
    assert_eq!(refused.json()["error"]["type"], "service_starting");
    holder.let_go();
    eventually("metrics are served", || (ask("/metrics").status == 200).then_some(()));
    assert_eq!(ask("/livez").status, 404, "and nothing else");
}

/// Prompts and keys lie in its memory. One byte, and not none: with a limit of 0 the kernel still hands a core to a collector.
#[test]
fn no_core_of_the_process_is_kept() {
    let limits = |process: &str| {
        let text = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
        line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let gateway = Setup::new(Driver::Auto).start();
    let cannot_raise = limits("self")[1] == "0";
    let expected = if cannot_raise { "0" } else { "1" };
    assert_eq!(limits(&gateway.id().to_string()), [expected, expected]);
}

#[test]
fn migrations_are_applied_by_hand_where_the_start_must_not() {
    let folder = TempDir::new().unwrap();
    let (database, addr) = (folder.path().join("weir.db"), free_port());
    let config = folder.path().join("service.yaml");
    let settings = |storage: &str| {
        let settings = format!(
            "listen_addr: {addr}\nupstream_url: 'http://127.0.0.1:1'\nstorage: {{auto_migrate: false, {storage}}}\n"
        );
        std::fs::write(&config, settings).unwrap();
    };
    let migrate = || {
        let output = weir(&["migrate", "--config", config.to_str().unwrap()]).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(said).unwrap())
    };
    let file = database.display().to_string();
    settings(&format!("database_path: '{file}'"));
    let started = run(&["--config", config.to_str().unwrap()], &[]);
    assert_refused(started, &["storage.database_path", &file, "pending", "`weir migrate`", "storage.auto_migrate"]);

    let (code, said) = migrate();
    let version: u32 = said.split("schema version 0 to ").nth(1).unwrap().split(':').next().unwrap().parse().unwrap();
    assert!(code == 0 && said.starts_with(&format!("{file}: ")) && said.contains(": records, ledger, "), "{said}");
    assert_eq!(migrate(), (0, format!("{file}: up to date at schema version {version}\n")));
    let _gateway = Starting(weir(&["--config", config.to_str().unwrap()]).stderr(Stdio::null()).spawn().unwrap());
    eventually("it is ready", || {
        TcpStream::connect(addr).ok()?;
        (call(addr, Call::get("/readyz").bytes()).status == 200).then_some(())
    });

    settings("profile: memory");
    assert_eq!(migrate(), (0, "storage.profile is `memory`: nothing to migrate\n".to_owned()));
    std::fs::write(folder.path().join("other.db"), "no database").unwrap();
    settings(&format!("database_path: '{}'", folder.path().join("other.db").display()));
    let (code, said) = migrate();
    assert!(code != 0 && said.contains("storage.database_path") && said.contains("other.db"), "{code}: {said}");
}
