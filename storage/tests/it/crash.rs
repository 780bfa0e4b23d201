//! kill -9 while writing: nothing acknowledged is lost and the file is sound.
//!
//! The test runs itself again as a child that writes, flushes, and only then says the ids on its standard output; the
//! parent kills it at a random moment and looks for every id it has read. `STORAGE_CRASH_CYCLES` sets the cycles.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;
use weir_config::vocab::{SpanId, TenantId, TraceId};
use weir_storage::Store;
use weir_storage::query::TraceFilter;
use weir_storage::record::SpanRecord;

use crate::support::{PATIENCE, open, page, span, total};

/// Also the kills one file lives through.
const CYCLES: u64 = 30;
/// A restart after a kill takes no longer, on a loaded machine and with debug checks.
const RESTART_MAX: Duration = Duration::from_secs(2);

/// A fixed-seed generator: the moments of the kills are the same every time, as far as time is.
fn dice(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let cycles = std::env::var("STORAGE_CRASH_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(CYCLES);
    let mut seed = 0x5eed_cafe_f00d_u64;
    let mut slowest = Duration::ZERO;
    let mut acknowledged_in_all = 0;
    for first in (0..cycles).step_by(CYCLES as usize) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("service.db");
        let mut acknowledged: HashSet<SpanId> = HashSet::new();
        for cycle in first..cycles.min(first + CYCLES) {
            acknowledged.extend(write_and_kill(&path, Duration::from_millis(30 + dice(&mut seed) % 150)));
            let started = Instant::now();
            let store = open(&path);
            slowest = slowest.max(started.elapsed());
            assert_sound(&store, &acknowledged, cycle);
        }
        let conn = Connection::open(&path).unwrap();
        let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok", "after cycle {first} and the next");
        acknowledged_in_all += acknowledged.len();
    }
    assert!(acknowledged_in_all as u64 > cycles, "the child got to write: {acknowledged_in_all} acknowledged");
    assert!(slowest < RESTART_MAX, "a restart took {slowest:?}");
    println!("{cycles} kills, {acknowledged_in_all} spans acknowledged, 0 lost, slowest restart {slowest:?}");
}

/// Lets a child write for a while, kills it, and gives what it had acknowledged.
fn write_and_kill(path: &Path, after: Duration) -> Vec<SpanId> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_writer", "--ignored", "--nocapture"])
        .env("CRASH_DATABASE", path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        let lines = output.lines().map_while(Result::ok);
        lines.filter_map(|line| line.strip_prefix("ack ")?.parse().ok()).collect()
    });
    // The moment of the kill is the experiment, not a wait for something.
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

fn assert_sound(store: &Store, acknowledged: &HashSet<SpanId>, cycle: u64) {
    let mut found = HashSet::new();
    let mut spans = 0;
    let mut offset = 0;
    loop {
        let traces = store.list_traces(TenantId::DEFAULT, &TraceFilter::default(), page(1000, offset)).unwrap();
        if traces.data.is_empty() {
            assert_eq!(traces.total, offset, "the running sums agree with the rows");
            break;
        }
        offset += traces.data.len() as u64;
        for span in traces.data.into_iter().flat_map(|trace| trace.spans) {
            spans += 1;
            found.insert(span.span_id);
        }
    }
    assert_eq!(spans, found.len(), "no span is there twice");
    assert_eq!(total(store, TenantId::DEFAULT), found.len() as u64);
    let lost: Vec<_> = acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "cycle {cycle}: {} of {} acknowledged spans lost", lost.len(), acknowledged.len());
}

#[test]
#[ignore = "the child of `what_was_acknowledged_survives_kill_9`"]
fn child_writer() {
    let Ok(path) = std::env::var("CRASH_DATABASE") else { return };
    let store = open(path.as_ref());
    let sink = store.sink();
    let mut out = std::io::stdout().lock();
    let mut seed = u64::from(std::process::id()) | 1;
    let mut trace_id = TraceId::fresh();
    loop {
        let mut ids = Vec::new();
        for start in 0..1 + dice(&mut seed) % 40 {
            // Some spans continue the trace of the one before.
            if !dice(&mut seed).is_multiple_of(3) {
                trace_id = TraceId::fresh();
            }
            let span = SpanRecord { trace_id, ..span(1_000 - start.cast_signed()) };
            ids.push(span.span_id);
            sink.push(Box::new(span)).unwrap();
        }
        assert!(store.flush(PATIENCE));
        let lines: String = ids.iter().map(|id| format!("ack {id}\n")).collect();
        out.write_all(lines.as_bytes()).unwrap();
        out.flush().unwrap();
    }
}
