//! Copies that are made while the database is written, the copy before a migration, the way back, and what an examination finds.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use tempfile::TempDir;
use weir_config::vocab::TenantId;
use weir_storage::query::SpanFilter;
use weir_storage::{Backend, OpenError, SpanLog as _, Store, check, copy};

use crate::support::{PATIENCE, open, options, put, span, total};

fn schema_12(path: &Path) {
    std::fs::write(path, zstd::decode_all(&include_bytes!("data/schema12.db.zst")[..]).unwrap()).unwrap();
}

fn with_copy(path: &Path) -> Backend {
    Backend::Sqlite { path: path.to_owned(), auto_migrate: true, migration_copy: true }
}

/// Every copy is whole, has all that was committed before it began, and is made in the end however much is written.
#[test]
fn copies_of_a_database_that_is_written_are_whole() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("weir.db");
    let store = open(&path);
    put(&store, (0..300).map(|at| span(at * 1_000)));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut at = 1_000;
            while !stop.load(Ordering::SeqCst) {
                put(&store, (at..at + 20).map(|at| span(at * 1_000)));
                at += 20;
            }
        });
        for number in 0..8 {
            let least = total(&store, TenantId::DEFAULT);
            let to = folder.path().join(format!("copy-{number}"));
            let (mut told, mut of) = (0, 0);
            let copied = copy(&path, &to, &mut |done, all| (told, of) = (done, all)).unwrap();
            assert_eq!((told, of), (copied.bytes, copied.bytes));
            assert_eq!(std::fs::metadata(&to).unwrap().len(), copied.bytes, "one file, with the log in it");
            let examined = check(&to, &mut |_| {}).unwrap();
            assert_eq!((examined.faults, examined.schema), (Vec::new(), copied.schema));
            let other = open(&to);
            assert!(total(&other, TenantId::DEFAULT) >= least);
            assert!(other.close(PATIENCE));
        }
        stop.store(true, Ordering::SeqCst);
        writer.join().unwrap();
    });
    assert!(store.close(PATIENCE));
    assert!(matches!(copy(&path, &folder.path().join("copy-0"), &mut |_, _| {}), Err(OpenError::Copy { .. })));
}

#[test]
fn a_database_is_copied_before_it_is_migrated_and_the_copy_is_the_way_back() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("weir.db");
    schema_12(&path);
    std::fs::write(folder.path().join("weir.db.schema-12.partial"), "of a start that was killed").unwrap();
    std::fs::write(folder.path().join("weir.db.schema-9"), "of a former migration").unwrap();
    let store = Store::open(options(with_copy(&path))).unwrap();
    put(&store, [span(1)]);
    assert!(store.close(PATIENCE));
    let kept = folder.path().join("weir.db.schema-12");
    let examined = check(&kept, &mut |_| {}).unwrap();
    assert_eq!((examined.schema, examined.faults), (12, Vec::new()));
    assert!(examined.pending > 0);
    let mut names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.retain(|name| name.to_string_lossy().contains("schema"));
    assert_eq!(names, ["weir.db.schema-12"]);
    // What needs no migration is not copied, nor is a file that is new.
    let store = Store::open(options(with_copy(&path))).unwrap();
    assert!(store.close(PATIENCE));
    let fresh = folder.path().join("fresh.db");
    assert!(Store::open(options(with_copy(&fresh))).unwrap().close(PATIENCE));
    let copies = std::fs::read_dir(folder.path()).unwrap();
    assert_eq!(
        copies.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("schema")).count(),
        1
    );
}

#[test]
fn the_last_migration_is_taken_back_and_made_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("weir.db");
    let store = open(&path);
    put(&store, (0..10).map(|at| span(at * 1_000)));
    assert!(store.close(PATIENCE));
    let now = check(&path, &mut |_| {}).unwrap().schema;
    match Store::migrate_down(&path) {
        Ok(report) => {
            assert_eq!((report.from, report.to, report.applied.len()), (now, now - 1, 1));
            let back = check(&path, &mut |_| {}).unwrap();
            assert_eq!((back.schema, back.pending, back.faults), (now - 1, 1, Vec::new()));
        }
        // It says what to do instead, and leaves the file as it is.
        Err(error) => assert_eq!(error, OpenError::NoWayBack { path: path.clone(), version: now }),
    }
    let store = open(&path);
    assert_eq!(total(&store, TenantId::DEFAULT), 10);
    put(&store, [span(99_000)]);
    assert_eq!(store.stats(TenantId::DEFAULT).unwrap().total_spans, 11);
    assert!(store.close(PATIENCE));
    assert_eq!(check(&path, &mut |_| {}).unwrap().pending, 0);
}

#[test]
fn an_examination_finds_a_page_that_was_altered_and_a_row_that_an_index_lacks() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("weir.db");
    let store = open(&path);
    put(&store, (0..500).map(|at| span(at * 1_000)));
    assert!(store.close(PATIENCE));
    assert_eq!(check(&path, &mut |_| {}).unwrap().faults, Vec::<String>::new());
    let whole = std::fs::read(&path).unwrap();
    let mut found = 0;
    // The first page is the schema; a page that holds nothing any more may be altered unseen.
    let pages = whole.len() / 8_192;
    for page in 1..pages {
        let mut bytes = whole.clone();
        bytes[page * 8_192..page * 8_192 + 64].fill(0x5a);
        std::fs::write(&path, bytes).unwrap();
        found += usize::from(check(&path, &mut |_| {}).map_or(true, |examined| !examined.faults.is_empty()));
    }
    assert!(found * 10 >= pages * 8, "{found} of {pages}");
    std::fs::write(&path, &whole).unwrap();
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("PRAGMA writable_schema = ON; PRAGMA foreign_keys = OFF").unwrap();
    let roots =
        "SELECT name, rootpage FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'spans' AND sql IS NOT NULL";
    let two: Vec<(String, i64)> = conn
        .prepare(roots)
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let [(first, first_root), (second, second_root), ..] = two.as_slice() else { panic!("{two:?}") };
    for (name, root) in [(first, second_root), (second, first_root)] {
        conn.execute("UPDATE sqlite_schema SET rootpage = ?2 WHERE name = ?1", (name, root)).unwrap();
    }
    drop(conn);
    assert_ne!(check(&path, &mut |_| {}).unwrap().faults, Vec::<String>::new());
}

#[test]
fn a_record_whose_bytes_are_damaged_is_named_and_takes_no_other_with_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("weir.db");
    let store = open(&path);
    put(&store, (0..3).map(|at| span(at * 1_000)));
    assert!(store.close(PATIENCE));
    let conn = Connection::open(&path).unwrap();
    conn.execute("UPDATE spans SET body = substr(body, 1, 3) WHERE id = (SELECT min(id) FROM spans)", []).unwrap();
    drop(conn);
    let faults = check(&path, &mut |_| {}).unwrap().faults;
    assert!(faults.len() == 1 && faults[0].contains("of spans cannot be read"), "{faults:?}");
    let store = open(&path);
    let page = weir_storage::query::Page { limit: 10, ..Default::default() };
    let listed = store.list_spans(span(0).tenant_id, &SpanFilter::default(), page).unwrap();
    let damaged: Vec<bool> = listed.data.iter().map(|span| span.tags.contains_key("record_damaged")).collect();
    assert_eq!((listed.total, damaged), (3, vec![false, false, true]));
    assert_eq!(listed.data[2].start_time.micros(), 0, "its columns are whole");
    store.list_spans(span(0).tenant_id, &SpanFilter::default(), page).unwrap();
    assert_eq!(store.damaged_records(), 1, "one record, however often it is read");
}
