//! Opening: clear refusals, permissions, migrations.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;
use tempfile::TempDir;
use weir_config::vocab::TenantId;
use weir_storage::{Backend, OpenError, Store};

use crate::support::{PATIENCE, file, open, options, put, span, total};

fn refusal(path: &Path) -> OpenError {
    match Store::open(options(file(path))) {
        Ok(_) => panic!("{} opened", path.display()),
        Err(error) => {
            assert!(error.to_string().contains(&path.display().to_string()), "names the path: {error}");
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
    Connection::open(&path)
        .unwrap()
        .execute("INSERT INTO migrations VALUES (9, 'from the future', x'00', 0)", [])
        .unwrap();
    assert_eq!(refusal(&path), OpenError::NewerSchema { path: path.clone(), found: 9, known: 1 });
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
fn without_auto_migrate_a_new_file_waits_for_the_migrate_command() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let backend = Backend::Sqlite { path: path.clone(), auto_migrate: false };
    let error = Store::open(options(backend.clone())).err().unwrap();
    assert_eq!(error, OpenError::PendingMigrations { path: path.clone(), pending: 1 });
    assert!(error.to_string().contains("weir migrate"), "{error}");

    let report = Store::migrate(&path).unwrap();
    assert_eq!((report.from, report.to, report.applied), (0, 1, vec!["records"]));
    let report = Store::migrate(&path).unwrap();
    assert_eq!((report.from, report.to, report.applied), (1, 1, vec![]));
    assert!(Store::open(options(backend)).unwrap().close(PATIENCE));
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
