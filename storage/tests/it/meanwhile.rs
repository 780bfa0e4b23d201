//! While the thread that builds reports reads, however long that takes, nobody waits for it: it stands still here, and what others
//! do is done in its place.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::Connection;
use tempfile::TempDir;
use weir_storage::AuditLog as _;
use weir_storage::{BatchOutcome, Store, StoreObserver, StoreOptions};

use crate::ledger::event;
use crate::support::{file, options};

type Deed = Box<dyn FnMut() + Send>;

/// Does something else on the builder's thread when it has read for the given operation.
struct Meanwhile {
    operation: &'static str,
    deed: Mutex<Option<Deed>>,
}

impl StoreObserver for Meanwhile {
    fn batch(&self, _rows: usize, _took: Duration, _outcome: BatchOutcome) {}

    fn read(&self, operation: &'static str, _took: Duration, _ok: bool) {
        if operation == self.operation && std::thread::current().name() == Some("weir-reports") {
            // Taken out while it is done: it may read, too.
            let deed = self.deed.lock().take();
            if let Some(mut deed) = deed {
                deed();
                *self.deed.lock() = Some(deed);
            }
        }
    }
}

fn watched(path: &Path, operation: &'static str) -> (Store, Arc<Meanwhile>) {
    let observer = Arc::new(Meanwhile { operation, deed: Mutex::new(None) });
    let store = Store::open(StoreOptions { observer: observer.clone(), ..options(file(path)) }).unwrap();
    (store, observer)
}

#[test]
fn the_audit_log_is_looked_at_while_a_report_checks_it_and_what_is_found_bad_is_not_covered_up() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let (store, observer) = watched(&path, "check_audit");
    for _ in 0..9 {
        store.audit(event("key.create", None)).unwrap();
    }
    let found: Arc<Mutex<Vec<bool>>> = Arc::default();
    let (seen, their_store) = (Arc::clone(&found), store.clone());
    let deed = move || {
        // The report has followed the chain to its end.
        if seen.lock().is_empty() {
            let before = their_store.check_audit_since(&[]).unwrap().intact;
            Connection::open(&path).unwrap().execute("UPDATE audit SET actor = 'else' WHERE seq = 4", []).unwrap();
            let after = their_store.check_audit().unwrap().intact;
            seen.lock().extend([before, after]);
        }
    };
    *observer.deed.lock() = Some(Box::new(deed));
    let builder = std::thread::Builder::new().name("weir-reports".to_owned());
    let checking = builder.spawn({
        let store = store.clone();
        move || drop(store.check_audit_aside(&[]).unwrap())
    });
    checking.unwrap().join().unwrap();
    assert_eq!(*found.lock(), [true, false]);
    assert!(!store.check_audit_since(&[]).unwrap().intact, "the report's check has not seen it, and is not relied on");
    *observer.deed.lock() = None;
}
