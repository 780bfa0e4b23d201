//! Trouble with the file: the store waits, replays, counts, and recovers without a restart.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;
use weir_config::vocab::TenantId;
use weir_storage::record::SpanRecord;
use weir_storage::{AuditLog as _, SpanLog as _};
use weir_storage::{Dropped, ReadError, Store, Taken};

use crate::ledger::event;
use crate::support::{PATIENCE, Watch, do_without, file, open, options, put, span, total, wait_for, watched};

#[test]
fn a_locked_database_delays_spans_but_loses_none() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    put(&store, [span(1)]);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let sink = store.sink();
    for start in 2..=50 {
        sink.push(Box::new(span(start))).unwrap();
    }
    wait_for("the failure", || matches!(store.probe(), Err(ReadError::NotWritable { .. })));
    assert_eq!(total(&store, TenantId::DEFAULT), 1, "reads go on");
    other.execute_batch("ROLLBACK").unwrap();
    assert!(store.flush(PATIENCE));
    assert_eq!(total(&store, TenantId::DEFAULT), 50);
    store.probe().unwrap();
    assert_eq!(store.counters().dropped_failed, 0);
}

#[test]
fn a_batch_is_given_up_when_the_trouble_lasts_and_the_next_one_is_stored() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let watch = Arc::new(Watch::default());
    let mut options = watched(file(&path), Arc::clone(&watch));
    options.batch_timeout = Duration::from_millis(100);
    let store = Store::open(options).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.sink().push(Box::new(span(1))).unwrap();
    assert!(!store.flush(PATIENCE), "a flush does not call a lost span written");
    assert_eq!(watch.failed.load(Ordering::Relaxed), 1);
    assert_eq!((store.counters().dropped_failed, store.counters().batches_failed), (1, 1));
    other.execute_batch("ROLLBACK").unwrap();
    put(&store, [span(2)]);
    assert_eq!(watch.committed.load(Ordering::Relaxed), 1);
    assert_eq!(total(&store, TenantId::DEFAULT), 1);
}

#[test]
fn a_store_without_traffic_notices_that_the_trouble_is_over() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let mut options = options(file(&path));
    options.batch_timeout = Duration::from_millis(50);
    let store = Store::open(options).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.sink().push(Box::new(span(1))).unwrap();
    assert!(!store.flush(PATIENCE));
    assert!(store.probe().is_err());
    other.execute_batch("ROLLBACK").unwrap();
    wait_for("the recovery", || store.probe().is_ok());
}

#[test]
fn a_full_queue_drops_the_newest_and_counts() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let mut options = options(file(&path));
    options.queue_items = 10;
    let store = Store::open(options).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let sink = store.sink();
    sink.push(Box::new(span(0))).unwrap();
    wait_for("the failure", || store.probe().is_err());
    let outcomes: Vec<_> =
        (1..=25).map(|start| sink.push(Box::new(span(start))).map_err(|refused| refused.reason)).collect();
    assert_eq!(outcomes, [vec![Ok(Taken::Whole); 10], vec![Err(Dropped::QueueFull); 15]].concat());
    assert_eq!((store.counters().queue_items, store.counters().dropped_queue_full), (10, 15));
    other.execute_batch("ROLLBACK").unwrap();
    assert!(store.flush(PATIENCE));
    assert_eq!(total(&store, TenantId::DEFAULT), 11);
    assert_eq!((store.counters().queue_items, store.counters().queue_bytes), (0, 0));
}

#[test]
fn a_store_that_falls_behind_loses_texts_before_spans() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let mut options = options(file(&path));
    options.queue_bytes = 2_000_000;
    let store = Store::open(options).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let sink = store.sink();
    sink.push(Box::new(span(0))).unwrap();
    wait_for("the failure", || store.probe().is_err());
    let long = |start| SpanRecord { prompt: Some("a prompt ".repeat(30_000)), ..span(start) };
    let spans: Vec<SpanRecord> = (1..=60).map(long).collect();
    let taken: Vec<Taken> = spans.iter().map(|span| sink.push(Box::new(span.clone())).unwrap()).collect();
    let whole = taken.iter().filter(|taken| **taken == Taken::Whole).count();
    assert!((5..=7).contains(&whole), "{taken:?}");
    assert_eq!((store.counters().without_texts, store.counters().dropped_queue_full), (60 - whole as u64, 0));
    other.execute_batch("ROLLBACK").unwrap();
    assert!(store.flush(PATIENCE));
    assert_eq!(total(&store, TenantId::DEFAULT), 61, "each span is there");
    for (span, taken) in spans.iter().zip(taken) {
        let stored = store.span(TenantId::DEFAULT, span.span_id).unwrap().unwrap();
        let why = stored.tags.get("texts_removed").map(String::as_str);
        assert_eq!((stored.prompt.is_some(), why.is_none()), (taken == Taken::Whole, taken == Taken::Whole));
        assert!(why.is_none_or(|why| why == "queue_full"));
    }
    // With the room back, texts are kept again.
    let after = long(100);
    put(&store, [after.clone()]);
    assert_eq!(store.span(TenantId::DEFAULT, after.span_id).unwrap().unwrap().prompt, after.prompt);
}

#[test]
fn a_stop_does_not_wait_for_a_store_that_cannot_be_written() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.sink().push(Box::new(span(1))).unwrap();
    let started = Instant::now();
    assert!(!store.close(Duration::from_millis(300)));
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// Sets or clears the attribute that makes a file read-only even for the superuser.
fn immutable(path: &Path, on: bool) -> bool {
    let flag = if on { "+i" } else { "-i" };
    Command::new("chattr").arg(flag).arg(path).output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_read_only_database_recovers_without_a_restart() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let log = folder.path().join("service.db-wal");
    let store = open(&path);
    put(&store, [span(1)]);
    if !immutable(&log, true) {
        return do_without("chattr", "this user or file system cannot make a file immutable");
    }
    let pushed = store.sink().push(Box::new(span(2)));
    let deadline = Instant::now() + PATIENCE;
    while store.probe().is_ok() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let (failure, seen) = (store.probe(), total(&store, TenantId::DEFAULT));
    // Before any assertion, so that a failing test can still be cleaned up.
    assert!(immutable(&log, false));
    pushed.unwrap();
    assert!(matches!(failure, Err(ReadError::NotWritable { .. })), "{failure:?}");
    assert_eq!(seen, 1, "what is not durable is not shown");
    assert!(store.flush(PATIENCE));
    assert_eq!(total(&store, TenantId::DEFAULT), 2);
}

#[test]
fn a_full_disk_is_survived_and_recovered_from_alone() {
    // A file system of 8 MiB of our own needs a namespace of our own: the test runs again inside one.
    let script = "mount -t tmpfs -o size=8m tmpfs \"$FULL_DISK_FOLDER\" && exec \"$0\" --exact \
        faults::inside_a_small_file_system --ignored --nocapture";
    let folder = TempDir::new().unwrap();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .env("FULL_DISK_FOLDER", folder.path())
        .output();
    let Ok(output) = output else { return do_without("unshare", "there is no such command") };
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !said.contains("running 1 test") {
        return do_without("unshare", &format!("no namespace of our own here: {said}"));
    }
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "needs the small file system that `a_full_disk_is_survived_and_recovered_from_alone` makes"]
fn inside_a_small_file_system() {
    let folder = std::path::PathBuf::from(std::env::var("FULL_DISK_FOLDER").unwrap());
    let store = open(&folder.join("service.db"));
    put(&store, [span(0)]);
    let mut stored = 1;
    for round in 0..50i64 {
        std::fs::write(folder.join("ballast"), vec![7u8; 16 << 20]).unwrap_err();
        // As much as fits what is left: where the log had to be cut short for it, that is more than one lot.
        let (mut pushed, mut full) = (0, false);
        while !full {
            for at in pushed..pushed + 40 {
                let prompt = format!("{round} {at} ").repeat(40);
                let span = SpanRecord { prompt: Some(prompt), ..span(round * 10_000 + at) };
                store.sink().push(Box::new(span)).unwrap();
            }
            pushed += 40;
            wait_for("the failure or room", || store.probe().is_err() || store.counters().queue_items == 0);
            full = store.probe().is_err();
            assert!(pushed < 10_000, "the disk does not fill");
        }
        let pushed = pushed as u64;
        let seen = total(&store, TenantId::DEFAULT);
        assert!(
            (stored..stored + pushed).contains(&seen),
            "{seen}: committed rows stay readable, others are not shown"
        );
        std::fs::remove_file(folder.join("ballast")).unwrap();
        let freed = Instant::now();
        assert!(store.flush(PATIENCE));
        assert!(freed.elapsed() < Duration::from_secs(10), "recovery took {:?}", freed.elapsed());
        stored += pushed;
        assert_eq!(store.audit(event("key.create", None)), Ok(round as u64 + 1));
        assert_eq!(total(&store, TenantId::DEFAULT), stored);
    }
    assert_eq!(store.counters().dropped_failed, 0);
    assert!(store.close(PATIENCE));
    let conn = Connection::open(folder.join("service.db")).unwrap();
    let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}
