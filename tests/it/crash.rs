//! Promise: after kill -9 under load the database opens, no trace that was seen through the API is lost, and a call
//! that has no trace was answered within the commit window before the kill.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::Path;
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

/// Reads the newest traces until the gateway is gone; returns every id that was shown.
fn watch(addr: std::net::SocketAddr, stop: &AtomicBool) -> HashSet<String> {
    let mut seen = HashSet::new();
    let mut client = Client::connect(addr);
    while !stop.load(Ordering::SeqCst) && client.try_say(Call::get("/api/v1/traces?limit=20").bytes()) {
        let Ok(answer) = client.answer_to("GET") else { break };
        let page = answer.json();
        let traces = page["data"].as_array().into_iter().flatten();
        seen.extend(traces.filter_map(|trace| trace["trace_id"].as_str().map(str::to_owned)));
    }
    seen
}

/// The longest this machine takes for one small synced write beside the gateway's, until `stop`: what the commit window
/// may be late by without the gateway's doing.
fn slowest_sync(folder: &Path, stop: &AtomicBool) -> Duration {
    let mut file = std::fs::File::create(folder.join("witness")).unwrap();
    let mut slowest = Duration::ZERO;
    while !stop.load(Ordering::SeqCst) {
        let start = Instant::now();
        file.write_all(&[0; 512]).unwrap();
        file.sync_data().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        slowest = slowest.max(start.elapsed());
    }
    slowest
}

fn has_trace(gateway: &Gateway, trace_id: &str) -> bool {
    call(gateway.addr, Call::get(&format!("/api/v1/traces/{trace_id}")).bytes()).status == 200
}

fn survives_kill_nine(driver: Driver, cycles: u32) {
    let provider = provider();
    let mut gateway = Setup::new(driver).upstream(provider.url()).unlimited().start();
    for cycle in 0..cycles {
        let stop = AtomicBool::new(false);
        let (addr, folder) = (gateway.addr, gateway.folder().to_owned());
        let before = provider.requests_seen();
        let (answered, seen, killed_at, slowest) = std::thread::scope(|scope| {
            let loaders: Vec<_> = (0..8).map(|_| scope.spawn(move || load(addr))).collect();
            let watcher = scope.spawn(|| watch(addr, &stop));
            let shows = || call(addr, Call::get("/api/v1/traces?limit=1").bytes()).json()["total"].as_u64() > Some(0);
            eventually("a trace is shown", || shows().then_some(()));
            let witness = scope.spawn(|| slowest_sync(&folder, &stop));
            let enough = 300 + u64::from(cycle) * 97;
            eventually("the load flows", || (provider.requests_seen() >= before + enough).then_some(()));
            let killed_at = Instant::now();
            gateway.kill();
            stop.store(true, Ordering::SeqCst);
            let answered: Vec<_> = loaders.into_iter().flat_map(|loader| loader.join().unwrap()).collect();
            (answered, watcher.join().unwrap(), killed_at, witness.join().unwrap())
        });
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
             (slowest synced write {slowest:?})",
            answered.len(),
            lost.len()
        );
        assert!(oldest <= COMMIT_WINDOW + slowest, "a call answered {oldest:?} before the kill has no trace");
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
