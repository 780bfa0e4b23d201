//! Every write and sync of the database's files fails once, as an I/O error and as a full disk: nothing acknowledged is
//! lost or written twice, and the store recovers by itself.
//!
//! A library of a few lines stands between the test and libc (`shim.c`, compiled on the spot). The test runs itself as
//! a child under it: once to count the calls, then once per call that shall fail. `STORAGE_FAULT_STEP` sets how many
//! calls are passed over between two that fail; 1 takes every one.

use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use tempfile::TempDir;
use weir_config::vocab::{SpanId, TenantId, Timestamp};
use weir_storage::query::SpanFilter;
use weir_storage::reports::ReportType;
use weir_storage::{AuditLog as _, ReportBook as _, SpanLog as _};
use weir_storage::{Store, StoreOptions};

use crate::ledger::{action, event};
use crate::support::{PATIENCE, file, open, options, page, put, span, tenant, total, wait_for};
use crate::texts::{assert_whole, how_many_stand, marked};
use crate::texts_crash::{HOUR_US, pieces_of, retention};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// Spans the child writes, in as many commits.
const SPANS: i64 = 12;

/// The library made of this file.
pub(crate) fn compile(folder: &Path, source: &str) -> PathBuf {
    let library = folder.join(source).with_extension("so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(source);
    // What builds SQLite builds this.
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl").output();
    let compiled = compiled.expect("a C compiler named `cc`");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    library
}

/// Runs the child with call number `at` failing; gives how many calls there were and how many failed.
fn run(library: &Path, folder: &Path, at: i64, errno: i32, times: i64) -> (i64, i64) {
    let log = folder.join("calls");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shim::child_under_the_shim", "--ignored", "--nocapture"])
        .env("LD_PRELOAD", library)
        .env("FAULT_DATABASE", folder.join("service.db"))
        .env("FAULT_LOG", &log)
        .env("FAULT_AT", at.to_string())
        .env("FAULT_ERRNO", errno.to_string())
        .env("FAULT_TIMES", times.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "call {at} failing with {errno}: {said}");
    let text = std::fs::read_to_string(log).unwrap();
    let (calls, fired) = text.trim().split_once(' ').unwrap();
    (calls.parse().unwrap(), fired.parse().unwrap())
}

#[test]
fn a_write_or_sync_that_fails_costs_nothing_that_was_acknowledged() {
    let tools = TempDir::new().unwrap();
    let library = compile(tools.path(), "shim.c");
    let clean = TempDir::new().unwrap();
    let (calls, _) = run(&library, clean.path(), -1, 0, 0);
    assert!(calls > 30, "the shim sees the database's calls: {calls}");
    let step = std::env::var("STORAGE_FAULT_STEP").ok().and_then(|text| text.parse().ok()).unwrap_or(29);
    let mut failed = 0;
    for (errno, times) in [(EIO, 1), (ENOSPC, 1), (EIO, 4), (ENOSPC, 4)] {
        for at in (0..calls).step_by(step) {
            let folder = TempDir::new().unwrap();
            failed += run(&library, folder.path(), at, errno, times).1;
        }
    }
    println!("{calls} calls, {failed} made to fail, nothing acknowledged lost or doubled");
    assert!(failed >= calls / step as i64, "{failed} calls failed");
}

/// Opening may meet the fault, too: then it says so and the next attempt succeeds.
fn open_in_the_end(path: &Path) -> Store {
    let attempt = || Store::open(StoreOptions { ..options(file(path)) });
    (0..6).find_map(|_| attempt().ok()).unwrap_or_else(|| open(path))
}

#[test]
#[ignore = "the child of `a_write_or_sync_that_fails_costs_nothing_that_was_acknowledged`"]
fn child_under_the_shim() {
    let Ok(path) = std::env::var("FAULT_DATABASE") else { return };
    let path = Path::new(&path);
    let store = open_in_the_end(path);
    let whose = TenantId::DEFAULT;
    let mut spans: Vec<SpanId> = Vec::new();
    let mut events = 0;
    let mut to_go = put_old(&store, path);
    store.set_retention(retention());
    let now = Timestamp::now().micros();
    for at in 0..SPANS {
        let one = span(now + at);
        spans.push(one.span_id);
        put(&store, [one.clone()]);
        store.audit(event(&format!("key.create{at}"), None)).unwrap();
        events += 2;
        store.add_action(whose, one.trace_id, None, action(&format!("a{at}"), true), vec![]).unwrap().unwrap();
        to_go.extend(share_and_delete(&store, path, at));
    }
    to_go.extend(delete_tenant(&store, path));
    let report =
        store.ask_report(true, whose, ReportType::Soc2, span(0).start_time, span(9).start_time).unwrap().unwrap();
    assert_sound(&store, &spans, events);
    wait_for("what is too old to go", || {
        let left = store.list_spans(tenant(2), &SpanFilter::default(), page(10, 0)).unwrap().data;
        left.len() == 1 && left[0].prompt.is_none()
    });
    wait_for("what was deleted to go", || {
        let sql = "SELECT (SELECT count(*) FROM erasures) + (SELECT count(*) FROM texts WHERE refs <= 0)";
        Connection::open(path).unwrap().query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() == 0
    });
    // The last copy of the log into the file may meet the fault; nothing may be lost by that.
    store.close(PATIENCE);
    drop(store);
    let store = open_in_the_end(path);
    assert_sound(&store, &spans, events);
    assert!(store.report(whose, report.id).unwrap().is_some());
    store.close(PATIENCE);
    drop(store);
    assert_whole(path);
    assert_eq!(how_many_stand(path.parent().unwrap(), &to_go), 0, "of {}", to_go.len());
    let conn = Connection::open(path).unwrap();
    let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}

/// Two conversations of a third tenant, of which the one is to lose its texts, the other to go; pieces of their bodies.
fn put_old(store: &Store, path: &Path) -> Vec<Vec<u8>> {
    let conn = Connection::open(path).unwrap();
    let now = Timestamp::now().micros();
    let old = [5_i64, 7].map(|halves| marked(2, 8, 2_000 + halves.unsigned_abs(), now - halves * HOUR_US / 2));
    let pieces = old.iter().flat_map(|one| {
        put(store, [one.clone()]);
        pieces_of(&conn, one)
    });
    pieces.collect()
}

/// Another tenant's conversations: shared texts come, are named once more, and go with a trace that is deleted. Pieces of the bodies
/// of that trace.
fn share_and_delete(store: &Store, path: &Path, at: i64) -> Vec<Vec<u8>> {
    let now = Timestamp::now().micros() + 50_000;
    let [kept, gone] = [0, 100].map(|own| marked(1, 7, 1_000 + own + 2 * at.unsigned_abs(), now));
    put(store, [kept.clone(), gone.clone()]);
    let pieces = pieces_of(&Connection::open(path).unwrap(), &gone);
    assert!(store.delete_trace(tenant(1), gone.trace_id, event("trace.delete", Some(tenant(1)))).unwrap());
    assert_eq!(store.span(tenant(1), gone.span_id).unwrap(), None);
    assert_eq!(store.span(tenant(1), kept.span_id).unwrap().unwrap().prompt, kept.prompt);
    pieces
}

/// A fourth tenant says the same, and is deleted; pieces of its bodies.
fn delete_tenant(store: &Store, path: &Path) -> Vec<Vec<u8>> {
    let said = [0, 2].map(|own| marked(3, 7, 3_000 + own, Timestamp::now().micros()));
    put(store, said.clone());
    let conn = Connection::open(path).unwrap();
    let pieces = said.iter().flat_map(|one| pieces_of(&conn, one)).collect();
    store.delete_tenant_data(tenant(3)).unwrap();
    pieces
}

fn assert_sound(store: &Store, spans: &[SpanId], events: u64) {
    let whose = TenantId::DEFAULT;
    assert_eq!(total(store, whose), spans.len() as u64);
    let listed = store.list_spans(whose, &SpanFilter::default(), page(1000, 0)).unwrap().data;
    for id in spans {
        let found = listed.iter().find(|span| span.span_id == *id);
        assert_eq!(found.map(|span| span.agent_actions.len()), Some(1), "{id}");
    }
    let check = store.check_audit().unwrap();
    assert_eq!((check.intact, check.entries), (true, events));
    assert_eq!(store.counters().dropped_failed, 0);
}
