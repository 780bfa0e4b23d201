//! Opening: clear refusals, permissions, migrations.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use weir_config::vocab::TenantId;
use weir_storage::SpanLog as _;
use weir_storage::record::SpanRecord;
use weir_storage::{Backend, OpenError, Store};

use crate::support::{PATIENCE, file, open, options, put, span, total};

/// Why the file cannot be opened; whoever only looks at a file of somebody else's schema is told the same, and leaves no trace.
fn refusal(path: &Path) -> OpenError {
    let around = || path.parent().and_then(|folder| std::fs::read_dir(folder).ok()).map(Iterator::count);
    let before = around();
    let seen = Store::examine(path, true);
    assert_eq!(around(), before);
    match Store::open(options(file(path))) {
        Ok(_) => panic!("{} opened", path.display()),
        Err(error) => {
            assert!(error.to_string().contains(&path.display().to_string()), "names the path: {error}");
            if !matches!(error, OpenError::Unwritable { .. }) {
                assert_eq!(seen, Err(error.clone()));
            }
            error
        }
    }
}

#[test]
fn refuses_a_folder_that_is_not_there() {
    let folder = TempDir::new().unwrap();
    let error = refusal(&folder.path().join("absent").join("service.db"));
    assert!(matches!(error, OpenError::Unwritable { .. }), "{error:?}");
    assert!(error.to_string().contains("the folder does not exist"), "{error}");
}

#[test]
fn refuses_places_that_cannot_be_written() {
    let folder = TempDir::new().unwrap();
    assert!(matches!(refusal(folder.path()), OpenError::Unwritable { .. }), "a folder is no file");
    assert!(matches!(refusal(Path::new("/proc/service.db")), OpenError::Unwritable { .. }));
    std::fs::write(folder.path().join("plain"), "text").unwrap();
    assert!(matches!(refusal(&folder.path().join("plain").join("service.db")), OpenError::Unwritable { .. }));
}

#[test]
fn refuses_a_file_that_is_not_a_database_and_leaves_it_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    for content in ["#!/bin/sh\necho hello, this is no database\n", "x"] {
        std::fs::write(&path, content).unwrap();
        assert_eq!(refusal(&path), OpenError::NotADatabase { path: path.clone() });
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
}

#[test]
fn refuses_another_programs_database() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE albums (title TEXT)").unwrap();
    assert_eq!(refusal(&path), OpenError::Foreign { path: path.clone(), application_id: 0 });
}

#[test]
fn refuses_a_newer_schema() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    assert!(open(&path).close(PATIENCE));
    let conn = Connection::open(&path).unwrap();
    let known: u32 = conn.query_row("SELECT max(version) FROM migrations", [], |row| row.get(0)).unwrap();
    conn.execute("INSERT INTO migrations VALUES (99, 'from the future', x'00', 0)", []).unwrap();
    assert_eq!(refusal(&path), OpenError::NewerSchema { path: path.clone(), found: 99, known });
}

#[test]
fn refuses_a_migration_that_was_altered() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    assert!(open(&path).close(PATIENCE));
    Connection::open(&path).unwrap().execute("UPDATE migrations SET sha256 = x'00'", []).unwrap();
    assert_eq!(refusal(&path), OpenError::ChangedMigration { path: path.clone(), version: 1 });
}

#[test]
fn a_start_waits_for_another_process_s_last_write() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    assert!(open(&path).close(PATIENCE));
    let other = Connection::open(&path).unwrap();
    // What keeps everybody else from the file, as closing and recovering a log do.
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; UPDATE migrations SET name = name").unwrap();
    let start = std::thread::spawn(move || Store::open(options(file(&path))).map(|store| store.close(PATIENCE)));
    // Longer than a statement waits later.
    std::thread::sleep(Duration::from_millis(1_300));
    assert!(!start.is_finished(), "{:?}", start.join());
    drop(other);
    assert!(start.join().unwrap().unwrap());
}

#[test]
fn without_auto_migrate_a_new_file_waits_for_the_migrate_command() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let backend = Backend::Sqlite { path: path.clone(), auto_migrate: false, migration_copy: false };
    let error = Store::open(options(backend.clone())).err().unwrap();
    assert!(error.to_string().contains("weir migrate"), "{error}");

    let report = Store::migrate(&path, false).unwrap();
    assert_eq!(error, OpenError::PendingMigrations { path: path.clone(), pending: report.applied.len() });
    assert_eq!((report.from, report.to as usize, report.applied[0]), (0, report.applied.len(), "records"));
    let latest = report.to;
    let report = Store::migrate(&path, false).unwrap();
    assert_eq!((report.from, report.to, report.applied), (latest, latest, vec![]));
    assert!(Store::open(options(backend)).unwrap().close(PATIENCE));
}

/// A file as the first version left it, with rows.
fn first_version(path: &Path) {
    let sql = include_str!("../../src/schema/0001_records.sql");
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(sql).unwrap();
    conn.execute_batch(
        "PRAGMA application_id = 0x57656972;
         CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 BLOB NOT NULL,
            applied_at INTEGER NOT NULL) STRICT;
         INSERT INTO tenants VALUES (1, zeroblob(16));
         INSERT INTO names VALUES (1, 'openai'), (2, 'gpt-4o'), (3, 'chat_completion');
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
         INSERT INTO spans SELECT i, 1, randomblob(16), randomblob(16), i * 1000000, 0, 1, 2, 3, i % 2 * 60, x'0000'
            FROM n;
         INSERT INTO tallies SELECT tenant, provider, model, operation, score, count(*), count(*), 0, 0, 0 FROM spans
            GROUP BY 1, 2, 3, 4, 5;",
    )
    .unwrap();
    let digest: [u8; 32] = Sha256::digest(sql.as_bytes()).into();
    conn.execute("INSERT INTO migrations VALUES (1, 'records', ?1, 0)", [digest.as_slice()]).unwrap();
}

#[test]
fn a_file_of_the_first_version_is_migrated_with_its_sums() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    first_version(&path);
    let pending = Store::examine(&path, true).unwrap();
    assert!(pending >= 10, "{pending}");
    assert_eq!(Store::examine(&path, false), Err(OpenError::PendingMigrations { path: path.clone(), pending }));
    let store = open(&path);
    let conn = Connection::open(&path).unwrap();
    for level in 0..3 {
        let sums: (i64, i64) = conn
            .query_row("SELECT sum(spans), sum(traces) FROM slices WHERE level = ?1", [level], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!(sums, (1_000, 1_000), "level {level}");
    }
    let stats = store.stats(TenantId::DEFAULT).unwrap();
    assert_eq!((stats.total_spans, stats.storage_bytes), (1_000, 2_000));
    let refs = "SELECT text, refs FROM names ORDER BY id";
    let refs: Vec<(String, i64)> = conn
        .prepare(refs)
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        refs,
        ["openai", "gpt-4o", "chat_completion"].map(|name| (name.to_owned(), 2)),
        "a row of sums per score"
    );
    put(&store, [span(1_500_000_000)]);
    assert_eq!(store.stats(TenantId::DEFAULT).unwrap().total_traces, 1_001);
}

/// The file that a build of 2026-11-22 (e8efa3d, schema 12) wrote, and what it read back of it: texts in one piece, without parts.
#[test]
fn rows_of_a_former_build_are_what_it_wrote() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    std::fs::write(&path, zstd::decode_all(&include_bytes!("data/schema12.db.zst")[..]).unwrap()).unwrap();
    let conn = Connection::open(&path).unwrap();
    let version = || -> u32 { conn.query_row("SELECT max(version) FROM migrations", [], |row| row.get(0)).unwrap() };
    assert_eq!(version(), 12);
    let pending = Store::examine(&path, true).unwrap();
    let store = open(&path);
    assert_eq!(version() as usize, 12 + pending);
    let written = zstd::decode_all(&include_bytes!("data/schema12.jsonl.zst")[..]).unwrap();
    let written = written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let written: Vec<SpanRecord> = written.map(|line| serde_json::from_slice(line).unwrap()).collect();
    assert_eq!(written.len(), 6);
    for then in &written {
        assert_eq!(store.span(then.tenant_id, then.span_id).unwrap().as_ref(), Some(then));
    }
    // Its rows and new ones of the same trace stand side by side.
    let further = SpanRecord { trace_id: written[0].trace_id, ..span(written[0].start_time.micros() + 1) };
    put(&store, [further.clone()]);
    let trace = store.trace(TenantId::DEFAULT, further.trace_id).unwrap().unwrap();
    assert_eq!(trace.spans.first(), written.first());
    assert!(trace.spans.contains(&further));
    assert!(store.close(PATIENCE));
}

#[test]
fn only_the_owner_may_read_the_files() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    put(&store, [span(1)]);
    for name in ["service.db", "service.db-wal", "service.db-shm"] {
        let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn the_file_is_durable_by_its_settings() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    assert!(open(&path).close(PATIENCE));
    let conn = Connection::open(&path).unwrap();
    let mode: String = conn.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    assert!(rusqlite::version_number() >= 3_051_003, "{}", rusqlite::version());
}

#[test]
fn a_clean_stop_leaves_everything_in_the_file_and_nothing_in_the_log() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let sink = store.sink();
    for start in 0..3_000 {
        sink.push(Box::new(span(start))).unwrap();
    }
    assert!(store.close(PATIENCE), "a stop commits what is queued");
    assert!(store.close(PATIENCE), "closing twice is closing once");
    assert!(sink.push(Box::new(span(1))).is_err());
    assert!(std::fs::metadata(folder.path().join("service.db-wal")).map_or(0, |log| log.len()) == 0);
    assert_eq!(store.counters().written, 3_000);
    drop(store);
    assert_eq!(total(&open(&path), TenantId::DEFAULT), 3_000);
}

#[test]
fn the_last_handle_closes_the_store() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let sink = store.sink();
    let other = store.clone();
    drop(store);
    sink.push(Box::new(span(1))).unwrap();
    drop(other);
    assert!(sink.push(Box::new(span(2))).is_err());
    assert_eq!(total(&open(&path), TenantId::DEFAULT), 1);
}
