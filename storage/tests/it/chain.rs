//! The chain of the audit log against somebody who writes the file while the service runs: what was found whole once is
//! remembered.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tempfile::TempDir;
use weir_storage::AuditLog as _;
use weir_storage::Store;

use crate::ledger::event;
use crate::support::{PATIENCE, open, page};

/// A store with `before` lines and then `after` lines, found whole, and another history that has the first ones in common.
fn two_histories(folder: &Path, before: usize, after: usize) -> (Store, Connection) {
    let (path, other): (PathBuf, PathBuf) = (folder.join("service.db"), folder.join("other.db"));
    let add = |store: &Store, action: &str, lines: usize| {
        for at in 0..lines {
            store.audit(event(&format!("{action}{at}"), None)).unwrap();
        }
    };
    let store = open(&path);
    add(&store, "common", before);
    assert!(store.close(PATIENCE));
    std::fs::copy(&path, &other).unwrap();
    let forged = open(&other);
    add(&forged, "forged", after);
    assert!(forged.close(PATIENCE));
    let store = open(&path);
    add(&store, "true", after);
    assert!(store.check_audit_since(&[]).unwrap().intact);
    let conn = Connection::open(&path).unwrap();
    conn.execute("ATTACH ?1 AS other", [other.to_str().unwrap()]).unwrap();
    (store, conn)
}

#[test]
fn a_shown_line_whose_own_hash_was_made_anew_does_not_fit_among_its_neighbours() {
    let folder = TempDir::new().unwrap();
    let (store, conn) = two_histories(folder.path(), 99, 60);
    let forge = "UPDATE audit SET (at_us, action, hash) = (SELECT at_us, action, hash FROM other.audit WHERE seq = 100) \
        WHERE seq = 100";
    conn.execute_batch(forge).unwrap();
    let shown = |seq: u64| store.list_audit(None, page(1, 159 - seq)).unwrap().data;
    assert_eq!((shown(100)[0].seq, shown(100)[0].action.as_str()), (100, "forged0"));
    assert!(store.check_audit_since(&shown(40)).unwrap().intact, "another stretch");
    let check = store.check_audit_since(&shown(100)).unwrap();
    assert_eq!((check.intact, check.first_bad_seq), (false, Some(101)), "the next line has another one before it");
    assert!(!store.check_audit_since(&shown(40)).unwrap().intact, "what was found is not forgotten");
}

#[test]
fn an_end_that_was_cut_off_shows_also_when_the_chain_s_end_was_written_anew() {
    let folder = TempDir::new().unwrap();
    let (store, conn) = two_histories(folder.path(), 90, 10);
    conn.execute_batch(
        "DELETE FROM audit WHERE seq > 95;
         UPDATE audit_head SET (seq, hash) = (SELECT seq, hash FROM audit WHERE seq = 95)",
    )
    .unwrap();
    assert_eq!(store.check_audit_since(&[]).unwrap().first_bad_seq, Some(96));
    assert_eq!(store.check_audit().unwrap().first_bad_seq, Some(96));
    assert!(store.audit(event("further", None)).is_ok());
    assert_eq!(store.check_audit().unwrap().first_bad_seq, Some(97), "what is added does not heal it");
}

#[test]
fn another_history_that_is_whole_in_itself_is_not_the_one_that_was_found() {
    for after in [10, 100] {
        let folder = TempDir::new().unwrap();
        let (store, conn) = two_histories(folder.path(), 50, after);
        conn.execute_batch(
            "DELETE FROM audit; INSERT INTO audit SELECT * FROM other.audit;
             UPDATE audit_head SET (seq, hash) = (SELECT seq, hash FROM other.audit_head)",
        )
        .unwrap();
        let bad = if after == 10 { 60 } else { 64 };
        assert_eq!(store.check_audit_since(&[]).unwrap().first_bad_seq, Some(bad));
        assert_eq!(store.check_audit().unwrap().first_bad_seq, Some(bad));
    }
}
