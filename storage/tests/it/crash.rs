//! kill -9 while writing: nothing acknowledged is lost and the file is sound.
//!
//! The test runs itself again as a child that writes spans, audit lines, actions and reports, reads the spans by a cursor of its
//! own, waits for each to be acknowledged, and only then says its id on its standard output; the parent kills it at a random moment and looks for
//! everything it has read. `STORAGE_CRASH_CYCLES` sets the cycles.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;
use uuid::Uuid;
use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};
use weir_storage::query::TraceFilter;
use weir_storage::record::SpanRecord;
use weir_storage::reports::ReportType;
use weir_storage::{AuditLog as _, ReportBook as _, SpanLog as _};
use weir_storage::{Cursor, Store};

use crate::ledger::{action, event};
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
    let mut changes_in_all = 0;
    for first in (0..cycles).step_by(CYCLES as usize) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("service.db");
        let mut acknowledged = Acknowledged::default();
        for cycle in first..cycles.min(first + CYCLES) {
            acknowledged.take(write_and_kill(&path, Duration::from_millis(30 + dice(&mut seed) % 150)));
            let started = Instant::now();
            let store = open(&path);
            slowest = slowest.max(started.elapsed());
            assert_sound(&store, &acknowledged, cycle);
        }
        let conn = Connection::open(&path).unwrap();
        let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok", "after cycle {first} and the next");
        acknowledged_in_all += acknowledged.spans.len();
        changes_in_all += acknowledged.changes();
    }
    assert!(acknowledged_in_all as u64 > cycles, "the child got to write: {acknowledged_in_all} acknowledged");
    assert!(changes_in_all as u64 > cycles, "and to change: {changes_in_all} acknowledged");
    assert!(slowest < RESTART_MAX, "a restart took {slowest:?}");
    println!(
        "{cycles} kills, {acknowledged_in_all} spans and {changes_in_all} audit lines, actions and reports acknowledged, \
         0 lost, slowest restart {slowest:?}"
    );
}

/// What the children said was written.
#[derive(Default)]
struct Acknowledged {
    spans: HashSet<SpanId>,
    events: HashSet<u64>,
    actions: HashSet<Uuid>,
    reports: HashSet<Uuid>,
    /// Spans that a consumer said it had read, before it kept how far.
    consumed: HashSet<SpanId>,
}

impl Acknowledged {
    fn take(&mut self, lines: Vec<String>) {
        for line in lines {
            match line.split_once(' ') {
                Some(("ack", id)) => self.spans.extend(id.parse::<SpanId>().ok()),
                Some(("audit", seq)) => self.events.extend(seq.parse::<u64>().ok()),
                Some(("action", id)) => self.actions.extend(id.parse::<Uuid>().ok()),
                Some(("read", id)) => self.consumed.extend(id.parse::<SpanId>().ok()),
                Some(("report", id)) => self.reports.extend(id.parse::<Uuid>().ok()),
                _ => {}
            }
        }
    }

    fn changes(&self) -> usize {
        self.events.len() + self.actions.len() + self.reports.len()
    }
}

/// Lets a child write for a while, kills it, and gives what it had acknowledged.
fn write_and_kill(path: &Path, after: Duration) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_writer", "--ignored", "--nocapture"])
        .env("CRASH_DATABASE", path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        // A last line without its end may be half an id.
        let whole = |line: &String| line.ends_with('.');
        let lines = output.lines().map_while(Result::ok).filter(whole);
        lines.map(|line| line.trim_end_matches('.').to_owned()).collect()
    });
    // The moment of the kill is the experiment, not a wait for something.
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

fn assert_sound(store: &Store, acknowledged: &Acknowledged, cycle: u64) {
    let mut found = HashSet::new();
    let mut actions = HashSet::new();
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
            for action in &span.agent_actions {
                assert!(actions.insert(action.id), "no action is there twice");
            }
        }
    }
    assert_eq!(spans, found.len(), "no span is there twice");
    assert_eq!(total(store, TenantId::DEFAULT), found.len() as u64);
    let lost = acknowledged.spans.difference(&found).count();
    assert_eq!(lost, 0, "cycle {cycle}: of {} acknowledged spans", acknowledged.spans.len());
    assert_eq!(acknowledged.actions.difference(&actions).count(), 0, "cycle {cycle}: acknowledged actions lost");
    let mut consumed = acknowledged.consumed.clone();
    read_on(store, |span| consumed.extend([span]));
    let skipped = acknowledged.spans.difference(&consumed).count();
    assert_eq!(skipped, 0, "cycle {cycle}: neither read before the kill nor behind the cursor");
    let check = store.check_audit().unwrap();
    assert!(check.intact, "cycle {cycle}: {check:?}");
    assert!(
        acknowledged.events.iter().all(|seq| *seq <= check.entries),
        "cycle {cycle}: acknowledged audit lines lost"
    );
    for id in &acknowledged.reports {
        assert!(store.report(TenantId::DEFAULT, *id).unwrap().is_some(), "cycle {cycle}: report {id} lost");
    }
}

/// What a consumer reads from where it ended; gives where it would go on.
fn read_on(store: &Store, mut read: impl FnMut(SpanId)) -> Cursor {
    let mut after = store.cursor("crash").unwrap().unwrap_or(Cursor::START);
    loop {
        let batch = store.read_after(after, 64, 1 << 20).unwrap();
        assert_eq!(batch.lost, 0);
        batch.spans.iter().for_each(|span| read(span.span_id));
        if batch.next == after {
            return after;
        }
        after = batch.next;
    }
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
        let mut lines = String::new();
        let mut together = Vec::new();
        for start in 0..1 + dice(&mut seed) % 40 {
            // Some spans continue the trace of the one before.
            if !dice(&mut seed).is_multiple_of(3) {
                trace_id = TraceId::fresh();
            }
            let span = SpanRecord { trace_id, ..span(1_000 - start.cast_signed()) };
            ids.push(span.span_id);
            together.push(span);
        }
        if dice(&mut seed).is_multiple_of(2) {
            for span in together {
                sink.push(Box::new(span)).unwrap();
            }
            assert!(store.flush(PATIENCE));
        } else {
            store.insert(together).unwrap();
        }
        lines.extend(ids.iter().map(|id| format!("ack {id}.\n")));
        let seq = store.audit(event("key.create", None)).unwrap();
        lines.push_str(&format!("audit {seq}.\n"));
        let reported = action("ls", true);
        let id = reported.id;
        store.add_action(TenantId::DEFAULT, trace_id, None, reported, vec![]).unwrap().unwrap();
        lines.push_str(&format!("action {id}.\n"));
        if dice(&mut seed).is_multiple_of(8) {
            let [start, end] = [1, 2].map(Timestamp::from_micros);
            let report = store.ask_report(true, TenantId::DEFAULT, ReportType::Soc2, start, end).unwrap().unwrap();
            lines.push_str(&format!("report {}.\n", report.id));
        }
        let next = read_on(&store, |id| lines.push_str(&format!("read {id}.\n")));
        out.write_all(lines.as_bytes()).unwrap();
        out.flush().unwrap();
        store.save_cursor("crash", next).unwrap();
    }
}
