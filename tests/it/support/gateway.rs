//! The gateway as its users run it: a process with a configuration file, a log on standard error and signals.
//!
//! Invariant: a process started here is killed by its own id when its handle goes, whatever the test did.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::{PATIENCE, call, do_without, eventually};
use crate::{gateways, stores};

/// `server.io_driver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    Ring,
    Epoll,
    Auto,
}

impl Driver {
    fn setting(self) -> &'static str {
        match self {
            Self::Ring => ring_setting(),
            Self::Epoll => "epoll",
            Self::Auto => "auto",
        }
    }

    /// The ring, if this kernel has it. Asked once, of a gateway that chooses for itself.
    pub(crate) fn ring() -> Option<Self> {
        static CHOSEN: OnceLock<String> = OnceLock::new();
        let chosen = CHOSEN.get_or_init(|| {
            let gateway = Setup::new(Self::Auto).storage("{profile: memory}").start();
            gateway.json("/health")["io_driver"].as_str().unwrap_or_default().to_owned()
        });
        match chosen.as_str() {
            "io_uring" => Some(Self::Ring),
            "epoll" => {
                do_without("io_uring", "this kernel gives none: /health of an `auto` gateway says epoll");
                None
            }
            other => panic!("/health names no known driver: `{other}`"),
        }
    }
}

/// What `Ring` stands for: `WEIR_TEST_RING=io_uring_coop` runs the suite in the mode of an older kernel.
fn ring_setting() -> &'static str {
    static SETTING: OnceLock<String> = OnceLock::new();
    SETTING.get_or_init(|| std::env::var("WEIR_TEST_RING").unwrap_or_else(|_| "io_uring".to_owned()))
}

/// What the process says on standard output, beside its configuration.
const STDOUT: &str = "stdout";

/// The binary under test, in an environment without settings. `WEIR_TEST_BINARY` names another build of it, for what measures.
pub(crate) fn weir(args: &[&str]) -> Command {
    let other = std::env::var_os("WEIR_TEST_BINARY");
    let mut command = Command::new(other.unwrap_or_else(|| env!("CARGO_BIN_EXE_weir").into()));
    // What a transformer says in the time that two cores leave it is no part of what most tests expect.
    command.env_clear().env(SECOND_STAGE, "0").args(args).stdin(Stdio::null());
    command
}

/// Variables of a gateway with a guest: its name, and the command line.
pub(crate) const GUEST: &str = "WEIR_TEST_GUEST";
pub(crate) const GUEST_ARGS: &str = "WEIR_TEST_GUEST_ARGS";

/// This test binary as a gateway with a part that only tests have (see `guests`).
fn with_guest(guest: &str, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("our own binary"));
    command
        .env_clear()
        .env(SECOND_STAGE, "0")
        .args(["--exact", "guests::gateway", "--ignored", "--nocapture"])
        .stdin(Stdio::null());
    command.env(GUEST, guest).env(GUEST_ARGS, serde_json::to_string(args).expect("texts"));
    command
}

/// What the second stage may take of a core; nothing where a test does not say so.
pub(crate) const SECOND_STAGE: &str = "SERVICE_SECOND_STAGE_CPU_SHARE";

/// The `storage` block of a gateway that is told nothing else: a database in its folder. `WEIR_TEST_PROFILE=production` makes it databases
/// of its own in three stores that all tests of the process share, and the file their journal.
fn own_storage(folder: &Path) -> String {
    let file = folder.join("weir.db");
    match std::env::var("WEIR_TEST_PROFILE").as_deref() {
        Ok("production") => gateways::storage(stores::shared(), &stores::name(), &file.display().to_string()),
        Ok(other) => panic!("WEIR_TEST_PROFILE: `{other}` is no profile that tests are run on"),
        Err(_) => format!("{{database_path: '{}'}}", file.display()),
    }
}

/// A configuration in the making.
#[derive(Clone)]
pub(crate) struct Setup {
    driver: Driver,
    upstream: String,
    storage: Option<String>,
    server: String,
    more: String,
    log_level: &'static str,
    env: Vec<(String, String)>,
    guest: Option<&'static str>,
    off_disk: bool,
}

impl Setup {
    pub(crate) fn new(driver: Driver) -> Self {
        Self {
            driver,
            upstream: "http://127.0.0.1:1".to_owned(),
            storage: None,
            server: String::new(),
            more: String::new(),
            log_level: "info",
            env: Vec::new(),
            guest: None,
            off_disk: false,
        }
    }

    /// `upstream_url`.
    pub(crate) fn upstream(mut self, url: impl Into<String>) -> Self {
        self.upstream = url.into();
        self
    }

    /// The `storage` block instead of a database in the temporary folder.
    pub(crate) fn storage(mut self, yaml: &str) -> Self {
        self.storage = Some(yaml.to_owned());
        self
    }

    /// Further entries of the `server` block.
    pub(crate) fn server(mut self, yaml: &str) -> Self {
        self.server = format!(", {yaml}");
        self
    }

    /// Further lines of configuration, whole top-level keys.
    pub(crate) fn with(mut self, yaml: &str) -> Self {
        self.more.push_str(yaml);
        self.more.push('\n');
        self
    }

    /// Switches the rate limit off, for tests that send more than a tenant usually may.
    pub(crate) fn unlimited(self) -> Self {
        self.with("rate_limiting: {enabled: false}")
    }

    /// An environment variable; there are no others but [`SECOND_STAGE`], which an empty value leaves to the file.
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn log_level(mut self, level: &'static str) -> Self {
        self.log_level = level;
        self
    }

    /// The gateway has a part that only tests have, by its name in `guests`.
    pub(crate) fn guest(mut self, name: &'static str) -> Self {
        self.guest = Some(name);
        self
    }

    /// Files lie in memory where the machine has such a file system: for tests that ask when something is written, and not
    /// how busy the disk is.
    pub(crate) fn off_disk(mut self) -> Self {
        self.off_disk = true;
        self
    }

    pub(crate) fn start(self) -> Gateway {
        let in_memory = Path::new("/dev/shm");
        let place = if self.off_disk && in_memory.is_dir() { in_memory.to_owned() } else { std::env::temp_dir() };
        let folder = TempDir::new_in(place).expect("a temporary folder");
        let config = folder.path().join("service.yaml");
        let storage = self.storage.unwrap_or_else(|| own_storage(folder.path()));
        let text = format!(
            "listen_addr: 127.0.0.1:0\nupstream_url: {}\nstorage: {storage}\nserver: {{io_driver: {}{}}}\n{}",
            self.upstream,
            self.driver.setting(),
            self.server,
            self.more
        );
        std::fs::write(&config, text).expect("a writable temporary folder");
        let how = How { log_level: self.log_level, env: self.env, guest: self.guest };
        let (process, addr) = Process::start(&[], &config, &how);
        Gateway { process, addr, how, config, folder }
    }
}

/// How a gateway's process is started.
#[derive(Clone)]
struct How {
    log_level: &'static str,
    env: Vec<(String, String)>,
    guest: Option<&'static str>,
}

/// A running gateway.
pub(crate) struct Gateway {
    process: Process,
    pub(crate) addr: SocketAddr,
    how: How,
    config: PathBuf,
    folder: TempDir,
}

impl Gateway {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A GET of one of the gateway's own paths, which has to be 200 with a JSON body.
    pub(crate) fn json(&self, path: &str) -> Value {
        let answer = call(self.addr, format!("GET {path} HTTP/1.1\r\nHost: weir\r\n\r\n"));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    /// `/metrics`, as text.
    pub(crate) fn metrics(&self) -> String {
        let answer = call(self.addr, "GET /metrics HTTP/1.1\r\nHost: weir\r\n\r\n");
        assert_eq!(answer.status, 200);
        answer.text()
    }

    /// The sum of all samples of a metric whose labels contain `labels`.
    pub(crate) fn metric(&self, name: &str, labels: &str) -> f64 {
        let metrics = self.metrics();
        let samples = metrics.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let own = series.strip_prefix(name).filter(|rest| rest.is_empty() || rest.starts_with('{'))?;
            own.contains(labels).then(|| value.parse::<f64>().ok())?
        });
        samples.sum()
    }

    /// What the gateway has logged so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.process.log.lines()
    }

    /// What the gateway has written to standard output so far: the access log.
    pub(crate) fn access_log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.config.with_file_name(STDOUT)).expect("our own file");
        text.lines().map(str::to_owned).collect()
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// Descriptors the process holds.
    pub(crate) fn open_descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.child.id())).expect("our own child").count()
    }

    /// The largest number among them.
    pub(crate) fn highest_descriptor(&self) -> usize {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.process.child.id())).expect("our own child");
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers.max().expect("an open descriptor")
    }

    /// Lets the running process have no more than `count` descriptors.
    pub(crate) fn limit_descriptors(&self, count: usize) {
        let set = Command::new("prlimit")
            .args(["--pid", &self.process.child.id().to_string(), &format!("--nofile={count}:{count}")])
            .status();
        assert!(set.is_ok_and(|status| status.success()), "prlimit (util-linux) could not set the limit");
    }

    /// Processor time the process has used, in the kernel and out of it.
    pub(crate) fn cpu_time(&self) -> Duration {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.id())).expect("our own child");
        // By thread, in nanoseconds; /proc/PID/stat counts ticks of 10 ms, and bills a whole one to whom it finds running.
        let spent = |thread: std::io::Result<std::fs::DirEntry>| {
            let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        Duration::from_nanos(threads.filter_map(spent).sum())
    }

    /// Waits until a line of the log `matches`.
    pub(crate) fn logged(&self, what: &str, matches: impl Fn(&str) -> bool) -> String {
        let line = self.process.log.wait_for(matches);
        line.unwrap_or_else(|| panic!("not logged: {what}\n{}", self.process.log.lines().join("\n")))
    }

    /// Sends a signal by its name without `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.process.signal("TERM");
    }

    /// Sends SIGHUP.
    pub(crate) fn hang_up(&self) {
        self.process.signal("HUP");
    }

    /// Waits for the process to end by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// How the process has ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.child.try_wait().expect("our own child")
    }

    /// SIGKILL; returns when the process is gone.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts the same configuration on the same port, on `driver`, in this one's place (`--take-over`).
    pub(crate) fn successor(&self, driver: Driver) -> Self {
        let text = std::fs::read_to_string(&self.config).expect("our own file");
        let text = text.replace("listen_addr: 127.0.0.1:0", &format!("listen_addr: {}", self.addr));
        let at = text.find("io_driver: ").expect("a driver is named") + "io_driver: ".len();
        let end = at + text[at..].find([',', '}']).expect("the block ends");
        let folder = TempDir::new().expect("a temporary folder");
        let config = folder.path().join("service.yaml");
        std::fs::write(&config, format!("{}{}{}", &text[..at], driver.setting(), &text[end..]))
            .expect("a writable folder");
        let (process, addr) = Process::start(&["serve", "--take-over"], &config, &self.how);
        Self { process, addr, how: self.how.clone(), config, folder }
    }

    /// Starts again with `more` lines of configuration.
    pub(crate) fn reconfigure(&mut self, more: &str) {
        let text = std::fs::read_to_string(&self.config).expect("our own file");
        std::fs::write(&self.config, format!("{text}{more}\n")).expect("a writable folder");
        self.restart();
    }

    /// Starts the same configuration again after the process has ended; the port may be another.
    pub(crate) fn restart(&mut self) {
        self.process.kill();
        (self.process, self.addr) = Process::start(&[], &self.config, &self.how);
    }
}

/// The process and its log.
struct Process {
    child: Child,
    log: Arc<Log>,
}

impl Process {
    fn start(args: &[&str], config: &Path, how: &How) -> (Self, SocketAddr) {
        let config = config.to_str().expect("a UTF-8 path");
        let options = ["--config", config, "--log-format", "json", "--log-level", how.log_level];
        let args = [args, &options].concat();
        let mut command = how.guest.map_or_else(|| weir(&args), |guest| with_guest(guest, &args));
        for (name, value) in &how.env {
            if value.is_empty() {
                command.env_remove(name)
            } else {
                command.env(name, value)
            };
        }
        let mut child = command
            .stdout(std::fs::File::create(Path::new(config).with_file_name(STDOUT)).expect("a writable folder"))
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary under test");
        let log = Arc::new(Log::default());
        let stderr = child.stderr.take().expect("a piped standard error");
        std::thread::spawn({
            let log = Arc::clone(&log);
            move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    log.add(line);
                }
                log.end();
            }
        });
        let process = Self { child, log };
        let ready = process.log.wait_for(|line| line.contains("weir is ready"));
        let Some(ready) = ready else { panic!("the gateway did not start:\n{}", process.log.lines().join("\n")) };
        let ready: Value = serde_json::from_str(&ready).expect("log lines are JSON");
        let addr = ready["listen"].as_str().and_then(|addr| addr.parse().ok());
        (process, addr.expect("the ready line names the address"))
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "SIG{name} could not be sent");
    }

    fn wait(&mut self) -> ExitStatus {
        eventually("the gateway ends", || self.child.try_wait().expect("our own child"))
    }

    fn kill(&mut self) {
        // Fails only when it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let ended = self.child.try_wait();
        self.kill();
        // No line is asked for: this returns when the last one has been read.
        drop(self.log.wait_for(|_| false));
        let lines = self.log.lines();
        if !std::thread::panicking() {
            // A caught panic costs one connection and could go unnoticed; not here, unless a test asked for it.
            let panicked = lines.iter().find(|line| line.contains("panicked") && !line.contains("toy_faults"));
            assert!(panicked.is_none(), "the gateway panicked: {panicked:?}");
        } else {
            let last = lines.len().saturating_sub(20);
            if let Ok(Some(status)) = ended {
                eprintln!("the gateway had ended before the test did: {status}");
            }
            eprintln!("the gateway's last log lines:\n{}", lines[last..].join("\n"));
        }
    }
}

/// Lines of standard error.
#[derive(Default)]
struct Log {
    lines: Mutex<(Vec<String>, bool)>,
    changed: Condvar,
}

impl Log {
    fn add(&self, line: String) {
        self.lines.lock().expect("no panic in here").0.push(line);
        self.changed.notify_all();
    }

    fn end(&self) {
        self.lines.lock().expect("no panic in here").1 = true;
        self.changed.notify_all();
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no panic in here").0.clone()
    }

    /// The first line that `matches`; `None` when standard error ends first or nothing comes in time.
    fn wait_for(&self, matches: impl Fn(&str) -> bool) -> Option<String> {
        let end = Instant::now() + PATIENCE;
        let mut lines = self.lines.lock().expect("no panic in here");
        loop {
            if let Some(line) = lines.0.iter().find(|line| matches(line)) {
                return Some(line.clone());
            }
            let left = end.saturating_duration_since(Instant::now());
            if lines.1 || left == Duration::ZERO {
                return None;
            }
            lines = self.changed.wait_timeout(lines, left).expect("no panic in here").0;
        }
    }
}
