//! Promise: after kill -9 under load the database opens, no trace that was seen through the API is lost, and a call
//! that has no trace was answered within the commit window before the kill.

use std::collections::{HashSet, VecDeque};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Call, Client, Driver, Gateway, Setup, call, chat_call, eventually, provider};

/// Longest time between an answer and its commit, as documented.
const COMMIT_WINDOW: Duration = Duration::from_millis(50);

/// Sends until the gateway is gone; returns the trace ids of complete answers and when they were complete.
fn load(addr: std::net::SocketAddr) -> Vec<(String, Instant)> {
    let mut answered = Vec::new();
    let mut client = Client::connect(addr);
    let request = chat_call("What is the capital of France?").bytes();
    while client.try_say(&request) {
        let Ok(answer) = client.answer_to("POST") else { break };
        assert_eq!(answer.status, 200);
        answered.push((answer.trace_id(), Instant::now()));
    }
    answered
}

/// Reads the newest traces until the gateway is gone; returns every id that was shown. `shows` says that there are some.
fn watch(addr: std::net::SocketAddr, stop: &AtomicBool, shows: &AtomicBool) -> HashSet<String> {
    let mut seen = HashSet::new();
    let mut client = Client::connect(addr);
    while !stop.load(Ordering::SeqCst) && client.try_say(Call::get("/api/v1/traces?limit=20").bytes()) {
        let Ok(answer) = client.answer_to("GET") else { break };
        let page = answer.json();
        let traces = page["data"].as_array().into_iter().flatten();
        seen.extend(traces.filter_map(|trace| trace["trace_id"].as_str().map(str::to_owned)));
        shows.store(!seen.is_empty(), Ordering::SeqCst);
    }
    seen
}

/// What the commit window may be late by without the gateway's doing: the longest this machine takes for one small synced
/// write beside the gateway's, and the longest that the threads a record passes through (a core, then the writing one), ready to
/// run, waited for a CPU within 100 ms.
fn delays(folder: &Path, threads: &Threads, stop: &AtomicBool) -> (Duration, Duration) {
    const LATELY: usize = 20;
    let mut file = std::fs::File::create(folder.join("witness")).unwrap();
    let mut slowest = Duration::ZERO;
    let Threads { cores, writer } = threads;
    let mut waits: Vec<Waits> = cores.iter().chain([writer]).map(|thread| Waits::of(thread, LATELY)).collect();
    while !stop.load(Ordering::SeqCst) {
        let start = Instant::now();
        file.write_all(&[0; 512]).unwrap();
        file.sync_data().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        slowest = slowest.max(start.elapsed());
        waits.iter_mut().for_each(Waits::look);
    }
    let writer = waits.pop().map(|waits| waits.longest).unwrap_or_default();
    let core = waits.iter().map(|waits| waits.longest).max().unwrap_or_default();
    (slowest, core + writer)
}

/// The longest one thread has waited for a CPU within some looks.
struct Waits {
    thread: PathBuf,
    looks: usize,
    lately: VecDeque<Duration>,
    longest: Duration,
}

impl Waits {
    fn of(thread: &Path, looks: usize) -> Self {
        Self { thread: thread.to_owned(), looks, lately: VecDeque::new(), longest: Duration::ZERO }
    }

    fn look(&mut self) {
        let now = waited_for_cpu(&self.thread);
        self.lately.push_back(now);
        if self.lately.len() > self.looks {
            self.lately.pop_front();
        }
        self.longest = self.longest.max(now.saturating_sub(self.lately[0]));
    }
}

/// How long a thread has been ready to run without a CPU (proc_pid_schedstat: the second field, nanoseconds).
fn waited_for_cpu(thread: &Path) -> Duration {
    let text = std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    let waited = text.split_whitespace().nth(1).and_then(|field| field.parse().ok());
    Duration::from_nanos(waited.unwrap_or_default())
}

/// The threads of a process that a record passes through, in `/proc`.
struct Threads {
    cores: Vec<PathBuf>,
    writer: PathBuf,
}

impl Threads {
    fn of(pid: u32) -> Self {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let threads: Vec<PathBuf> = threads.filter_map(|thread| thread.ok().map(|thread| thread.path())).collect();
        let called = |name: &str| -> Vec<PathBuf> {
            let is = |thread: &&PathBuf| {
                std::fs::read_to_string(thread.join("comm")).is_ok_and(|own| own.trim_end().starts_with(name))
            };
            threads.iter().filter(is).cloned().collect()
        };
        let (cores, writer) = (called("weir-core"), called("weir-store").pop());
        assert!(!cores.is_empty(), "core threads have names");
        Self { cores, writer: writer.expect("the storage thread has a name") }
    }
}

fn has_trace(gateway: &Gateway, trace_id: &str) -> bool {
    call(gateway.addr, Call::get(&format!("/api/v1/traces/{trace_id}")).bytes()).status == 200
}

/// What lies in the folder, with lengths: whether a call without a trace was never committed or was lost with the log.
fn files(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| {
        let bytes = entry.metadata().map(|metadata| metadata.len()).unwrap_or_default();
        format!("{} {bytes}", entry.file_name().to_string_lossy())
    };
    entries.map(of).collect::<Vec<_>>().join(", ")
}

fn survives_kill_nine(driver: Driver, cycles: u32) {
    let provider = provider();
    let mut gateway = Setup::new(driver).upstream(provider.url()).unlimited().off_disk().start();
    for cycle in 0..cycles {
        let (stop, shows) = (AtomicBool::new(false), AtomicBool::new(false));
        let (addr, folder, threads) = (gateway.addr, gateway.folder().to_owned(), Threads::of(gateway.id()));
        let before = provider.requests_seen();
        let (answered, seen, killed_at, (slowest, waited)) = std::thread::scope(|scope| {
            let loaders: Vec<_> = (0..8).map(|_| scope.spawn(move || load(addr))).collect();
            let watcher = scope.spawn(|| watch(addr, &stop, &shows));
            eventually("a trace is shown", || shows.load(Ordering::SeqCst).then_some(()));
            let witness = scope.spawn(|| delays(&folder, &threads, &stop));
            let enough = 300 + u64::from(cycle) * 97;
            eventually("the load flows", || (provider.requests_seen() >= before + enough).then_some(()));
            let killed_at = Instant::now();
            gateway.kill();
            stop.store(true, Ordering::SeqCst);
            let answered: Vec<_> = loaders.into_iter().flat_map(|loader| loader.join().unwrap()).collect();
            (answered, watcher.join().unwrap(), killed_at, witness.join().unwrap())
        });
        let told = gateway.log().into_iter().filter(|line| line.contains("WARN") || line.contains("ERROR"));
        let left = format!("{}; {}", files(gateway.folder()), told.collect::<Vec<_>>().join("; "));
        gateway.restart();
        assert!(answered.len() >= 200 && !seen.is_empty(), "{} answered, {} seen", answered.len(), seen.len());
        for trace_id in &seen {
            assert!(has_trace(&gateway, trace_id), "trace {trace_id} was shown before the kill and is lost");
        }
        let lost: Vec<Instant> =
            answered.iter().filter(|(trace_id, _)| !has_trace(&gateway, trace_id)).map(|(_, at)| *at).collect();
        let oldest = lost.iter().map(|at| killed_at.saturating_duration_since(*at)).max().unwrap_or_default();
        println!(
            "{driver:?} cycle {cycle}: {} answered, {} without a trace, the oldest answered {oldest:?} before the kill \
             (slowest synced write {slowest:?}, wait for a CPU {waited:?})",
            answered.len(),
            lost.len()
        );
        assert!(
            oldest <= COMMIT_WINDOW + slowest + waited,
            "a call answered {oldest:?} before the kill has no trace; the kill left {left}"
        );
        assert_eq!(gateway.json("/health")["storage"]["status"], "connected");
    }
    // The last database is as sound as a new one.
    let answer = call(gateway.addr, chat_call("still there?").bytes());
    assert_eq!(gateway.span_of(&answer)["prompt"], "still there?");
    gateway.terminate();
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn kill_nine_under_load_loses_only_the_commit_window_on_the_ring() {
    if let Some(driver) = Driver::ring() {
        survives_kill_nine(driver, 4);
    }
}

#[test]
fn kill_nine_under_load_loses_only_the_commit_window_on_epoll() {
    survives_kill_nine(Driver::Epoll, 4);
}
