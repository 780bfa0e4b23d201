//! The stores of the `production` profile, started by the tests themselves and ended with them: PostgreSQL and Redis as Debian has them,
//! and chdb behind the HTTP shim in `tests/production/analytics.py`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;
use weir_config::store_url::StoreUrl;
use weir_storage::Stores;

use crate::support::do_without;

/// What a store may take to start on a loaded machine.
const START: Duration = Duration::from_secs(60);
/// Runs a program until the test's process ends, however it does: its end closes the pipe that `cat` reads.
const UNTIL_WE_END: &str = "\"$@\" & pid=$!; cat > /dev/null; kill -9 $pid; rm -rf \"$WEIR_TEST_FOLDER\"";

/// Starts a store in a folder, on a port.
type Start = Box<dyn Fn(&Path, u16) -> Child + Send + Sync>;

/// A store that runs.
pub(crate) struct Running {
    pub(crate) port: u16,
    folder: PathBuf,
    child: Mutex<Option<Child>>,
    start: Start,
}

impl Running {
    fn new(name: &str, start: impl Fn(&Path, u16) -> Child + Send + Sync + 'static) -> Self {
        let folder = TempDir::with_prefix(format!("weir-{name}-")).unwrap().keep();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let this = Self { port, folder, child: Mutex::new(None), start: Box::new(start) };
        this.start();
        this
    }

    /// Starts it on its folder.
    pub(crate) fn start(&self) {
        let started = Instant::now();
        // After a kill it may refuse to start until what it had started itself has noticed.
        loop {
            let child = (self.start)(&self.folder, self.port);
            let tried = Instant::now();
            while tried.elapsed() < START / 10 {
                if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                    *self.child.lock() = Some(child);
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            assert!(started.elapsed() < START, "a store did not start");
            end(child);
        }
    }

    /// Ends it as a kill does; its folder stays.
    pub(crate) fn kill(&self) {
        let Some(child) = self.child.lock().take() else { return };
        end(child);
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            assert!(started.elapsed() < START, "a store did not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Kills what a shell runs, and the shell, so that it does not remove the folder.
fn end(mut shell: Child) {
    let listed = Command::new("pgrep").args(["-P", &shell.id().to_string()]).output().unwrap();
    for pid in String::from_utf8_lossy(&listed.stdout).lines() {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim() != "cat" {
            Command::new("kill").args(["-9", pid]).status().unwrap();
        }
    }
    shell.kill().unwrap();
    shell.wait().unwrap();
}

fn until_we_end(folder: &Path, program: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", UNTIL_WE_END, "sh"]).args(program).env("WEIR_TEST_FOLDER", folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn as_postgres() -> Vec<&'static str> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|of| std::os::unix::fs::MetadataExt::uid(&of) == 0);
    if is_root { vec!["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] } else { Vec::new() }
}

fn postgres_folder() -> Option<PathBuf> {
    let mut versions: Vec<_> =
        fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(Result::ok).map(|it| it.path()).collect();
    versions.sort();
    versions.pop().map(|version| version.join("bin"))
}

fn start_postgres(folder: &Path, port: u16) -> Child {
    let bin = postgres_folder().unwrap();
    let data = folder.join("data");
    let data_text = data.to_str().unwrap();
    let run = |program: &[&str]| {
        let all: Vec<&str> = as_postgres().into_iter().chain(program.iter().copied()).collect();
        let done = Command::new(all[0]).args(&all[1..]).current_dir("/").output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    if !data.exists() {
        Command::new("chmod").args(["777", folder.to_str().unwrap()]).status().unwrap();
        let initdb = bin.join("initdb");
        run(&[initdb.to_str().unwrap(), "-D", data_text, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]);
    }
    let postgres = bin.join("postgres");
    let (port, folder_text) = (port.to_string(), folder.to_str().unwrap());
    let mut program = as_postgres();
    program.extend([postgres.to_str().unwrap(), "-D", data_text, "-p", &port, "-k", folder_text, "-h", "127.0.0.1"]);
    program.extend(["-c", "fsync=off", "-c", "max_connections=300"]);
    until_we_end(folder, &program).current_dir("/").spawn().unwrap()
}

fn start_redis(folder: &Path, port: u16) -> Child {
    let (port, folder_text) = (port.to_string(), folder.to_str().unwrap());
    let program = ["redis-server", "--port", &port, "--dir", folder_text, "--save", "", "--appendonly", "no"];
    until_we_end(folder, &program).spawn().unwrap()
}

/// A Python that has chdb: made once, as its engine is large.
fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("WEIR_CHDB_PYTHON") {
        return python.into();
    }
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("chdb-venv");
    let python = venv.join("bin/python");
    let has_it = || Command::new(&python).args(["-c", "import chdb"]).output().is_ok_and(|done| done.status.success());
    if !has_it() {
        let lock = fs::File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("chdb-venv.lock")).unwrap();
        lock.lock().unwrap();
        if !has_it() {
            assert!(Command::new("python3").args(["-m", "venv"]).arg(&venv).status().unwrap().success());
            let install =
                ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "chdb-core==26.9.0"];
            assert!(Command::new(&python).args(install).status().unwrap().success(), "chdb-core cannot be installed");
        }
    }
    python
}

fn start_analytics(folder: &Path, port: u16) -> Child {
    // The store's tests have it, and the black-box tests, whose crate is a folder above.
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shims = ["tests/production/analytics.py", "../tests/production/analytics.py"].map(|path| root.join(path));
    let shim = shims.into_iter().find(|path| path.exists()).unwrap();
    let (python, port) = (python(), port.to_string());
    let program = [python.to_str().unwrap(), shim.to_str().unwrap(), folder.to_str().unwrap(), &port];
    let mut child = until_we_end(folder, &program).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("ready"), "{said}");
    child
}

/// The three stores.
pub(crate) struct Three {
    pub(crate) analytics: Running,
    pub(crate) relational: Running,
    pub(crate) cache: Running,
}

impl Three {
    pub(crate) fn new() -> Self {
        if postgres_folder().is_none() {
            do_without("postgres", "it starts a PostgreSQL of its own: Debian's package `postgresql`");
        }
        if Command::new("redis-server").arg("--version").output().is_err() {
            do_without("redis-server", "it starts a Redis of its own: Debian's package `redis-server`");
        }
        Self {
            relational: Running::new("postgres", start_postgres),
            cache: Running::new("redis", start_redis),
            analytics: Running::new("analytics", start_analytics),
        }
    }

    /// Where they are, in the order of the settings.
    pub(crate) fn urls(&self, name: &str) -> [String; 3] {
        // A cache has sixteen databases: gateways of tests that run at a time are not to count one another.
        let number = name.rsplit('_').next().and_then(|number| number.parse::<u32>().ok()).unwrap_or(0) % 16;
        [
            format!("http://127.0.0.1:{}", self.analytics.port),
            format!("postgres://postgres@127.0.0.1:{}/{name}?sslmode=disable", self.relational.port),
            format!("redis://127.0.0.1:{}/{number}", self.cache.port),
        ]
    }

    /// Databases of this name, made where they are not there.
    pub(crate) fn named(&self, name: &str) -> Stores {
        let url = |text: String| StoreUrl::parse(&text).unwrap();
        let sql = format!("CREATE DATABASE {name}");
        let port = self.relational.port.to_string();
        let psql = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-d", "postgres", "-c", &sql];
        let started = Instant::now();
        loop {
            let made = Command::new("psql").args(psql).output().unwrap();
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            if made.status.success() || said.contains("already exists") {
                break;
            }
            assert!(started.elapsed() < START, "{said}");
            std::thread::sleep(Duration::from_millis(100));
        }
        let [analytics, relational, cache] = self.urls(name);
        Stores {
            analytics_url: url(analytics),
            analytics_database: Some(name.to_owned()),
            relational_url: url(relational),
            cache_url: url(cache),
            ca_file: None,
            auto_migrate: true,
            wait: START,
        }
    }
}

/// The stores that all tests of the process share which do not end them.
pub(crate) fn shared() -> &'static Three {
    static SHARED: OnceLock<Three> = OnceLock::new();
    SHARED.get_or_init(Three::new)
}

/// A name that no other test uses.
pub(crate) fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("weir_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
