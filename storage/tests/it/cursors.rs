//! Reading all spans in the order of their commits, whatever is written and removed meanwhile, and putting spans in with an answer.

use std::collections::HashSet;
use std::time::Duration;

use tempfile::TempDir;
use weir_config::vocab::{SpanId, TenantId, Timestamp};
use weir_storage::record::SpanRecord;
use weir_storage::{Cursor, Fate, Retention, Store};
use weir_storage::{Registry as _, SpanLog as _};

use crate::ledger::{action, event};
use crate::support::{on_both, open, put, span, tenant, total, wait_for};

const ROOM: usize = 1 << 20;

fn ids(spans: &[SpanRecord]) -> Vec<SpanId> {
    spans.iter().map(|span| span.span_id).collect()
}

/// Everything behind `after`, in batches of `limit`: ids, the last cursor, and how many were lost.
fn rest(store: &Store, mut after: Cursor, limit: u32) -> (Vec<SpanId>, Cursor, u64) {
    let (mut found, mut lost) = (Vec::new(), 0);
    loop {
        let batch = store.read_after(after, limit, ROOM).unwrap();
        lost += batch.lost;
        found.extend(ids(&batch.spans));
        if batch.spans.is_empty() && batch.next == after {
            return (found, after, lost);
        }
        after = batch.next;
    }
}

#[test]
fn spans_are_read_once_each_in_the_order_they_were_committed() {
    on_both(|store| {
        assert_eq!(rest(store, Cursor::START, 10).0, []);
        // The order of commits is not that of their starts.
        let spans: Vec<_> =
            (0..25).map(|at| SpanRecord { tenant_id: tenant(at as u8 % 3), ..span(1_000 - at) }).collect();
        put(store, spans.clone());
        let first = store.read_after(Cursor::START, 10, ROOM).unwrap();
        assert_eq!((first.spans.as_slice(), first.lost), (&spans[..10], 0));
        let (others, end, lost) = rest(store, first.next, 10);
        assert_eq!((others, lost), (ids(&spans[10..]), 0));
        assert_eq!(store.end().unwrap(), end);
        put(store, [span(5)]);
        assert_eq!(rest(store, end, 10).0.len(), 1, "and later ones follow");
    });
}

#[test]
fn a_batch_ends_where_its_bytes_do_and_holds_one_span_at_least() {
    on_both(|store| {
        let large = |at| SpanRecord { prompt: Some("x".repeat(100_000)), ..span(at) };
        put(store, (0..6).map(large));
        let read = |bytes_max| store.read_after(Cursor::START, 1_000, bytes_max).unwrap().spans.len();
        assert_eq!([0, 150_000, 250_000, 10_000_000].map(read), [1, 1, 2, 6]);
        assert_eq!(rest(store, Cursor::START, 1_000).0.len(), 6);
    });
}

#[test]
fn what_a_span_holds_comes_with_it() {
    on_both(|store| {
        let written = span(7);
        put(store, [written.clone()]);
        let reported = action("ls", true);
        store.add_action(written.tenant_id, written.trace_id, None, reported.clone(), vec![]).unwrap().unwrap();
        let batch = store.read_after(Cursor::START, 1, ROOM).unwrap();
        assert_eq!(batch.spans, [SpanRecord { agent_actions: vec![reported], ..written }]);
    });
}

#[test]
fn a_consumer_goes_on_where_it_said_and_never_back() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    put(&store, (0..10).map(span));
    let early = store.read_after(Cursor::START, 3, ROOM).unwrap().next;
    let late = store.read_after(early, 4, ROOM).unwrap().next;
    assert_eq!(store.cursor("alerts").unwrap(), None);
    store.save_cursor("alerts", late).unwrap();
    store.save_cursor("export", early).unwrap();
    store.save_cursor("alerts", early).unwrap();
    drop(store);
    let store = open(&path);
    assert_eq!(store.cursor("alerts").unwrap(), Some(late), "another process of the same name was further");
    assert_eq!(store.cursor("export").unwrap(), Some(early));
    assert_eq!(rest(&store, late, 9).0.len(), 3);
}

#[test]
fn a_cursor_of_another_database_begins_with_the_first_span_there_is() {
    let folder = TempDir::new().unwrap();
    let former = open(&folder.path().join("former.db"));
    put(&former, (0..50).map(span));
    let cursor = former.end().unwrap();
    let store = open(&folder.path().join("service.db"));
    put(&store, (0..5).map(span));
    let (found, next, lost) = rest(&store, cursor, 2);
    assert_eq!((found.len(), lost), (5, 0));
    store.save_cursor("alerts", cursor).unwrap();
    store.save_cursor("alerts", next).unwrap();
    assert_eq!(store.cursor("alerts").unwrap(), Some(next));
}

#[test]
fn nothing_is_skipped_while_several_write_to_one_file() {
    const EACH: i64 = 1_500;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    // As many writers as stores: to SQLite they are processes of their own.
    let stores = [open(&path), open(&path), open(&path)];
    let reader = open(&path);
    let mut found = Vec::new();
    std::thread::scope(|scope| {
        let writers: Vec<_> = stores
            .iter()
            .enumerate()
            .map(|(number, store)| {
                scope.spawn(move || {
                    for group in 0..EACH / 10 {
                        let spans = (0..10).map(|at| span(group * 10 + at));
                        if number == 0 {
                            store.insert(spans.collect()).unwrap();
                        } else {
                            put(store, spans);
                        }
                    }
                })
            })
            .collect();
        let mut after = Cursor::START;
        let mut over = false;
        loop {
            let batch = reader.read_after(after, 100, ROOM).unwrap();
            assert_eq!(batch.lost, 0);
            found.extend(ids(&batch.spans));
            after = batch.next;
            if over && batch.spans.is_empty() {
                break;
            }
            // Looked at before the last reads, so that these see everything.
            over = writers.iter().all(std::thread::ScopedJoinHandle::is_finished);
        }
    });
    assert_eq!(found.len() as i64, 3 * EACH);
    assert_eq!(found.iter().collect::<HashSet<_>>().len() as i64, 3 * EACH, "each once");
}

#[test]
fn retention_that_overtakes_a_consumer_is_counted_and_integers_are_not_given_again() {
    on_both(|store| {
        let old = (0..900).map(span);
        put(store, old);
        let seen = store.read_after(Cursor::START, 100, ROOM).unwrap().next;
        let end = store.end().unwrap();
        store.set_retention(Retention { max_age: Some(Duration::from_secs(86_400)), ..Retention::default() });
        // Looked at every ten seconds at most.
        store.sink().push(Box::new(span(0))).unwrap();
        wait_for("the old spans to go", || total(store, TenantId::DEFAULT) == 0);
        store.set_retention(Retention::default());
        let now = Timestamp::now().micros();
        let new: Vec<_> = (0..20).map(|at| span(now + at)).collect();
        put(store, new.clone());
        let (found, _, lost) = rest(store, seen, 7);
        assert_eq!((found, lost), (ids(&new), 801));
        assert_eq!(
            (rest(store, end, 100).0, rest(store, end, 100).2),
            (ids(&new), 1),
            "of the one that came after the end"
        );
        assert_eq!(
            rest(store, Cursor::START, 100),
            (ids(&new), store.end().unwrap(), 0),
            "who begins has lost nothing"
        );
    });
}

#[test]
fn spans_of_a_deleted_tenant_are_given_to_nobody_and_counted() {
    on_both(|store| {
        let of = |who: u8, at| SpanRecord { tenant_id: tenant(who), ..span(at) };
        put(store, (0..300).map(|at| of(1 + at as u8 % 2, at)));
        let seen = store.read_after(Cursor::START, 50, ROOM).unwrap().next;
        store.delete_tenant_data(tenant(1)).unwrap();
        // Whether its rows are there still or not.
        for _ in 0..20 {
            let (found, next, lost) = rest(store, seen, 40);
            assert_eq!((found.len(), lost, next), (125, 125, store.end().unwrap()));
        }
        wait_for("its rows to go", || {
            put(store, [of(2, 900)]);
            let (found, _, lost) = rest(store, seen, 1_000);
            assert_eq!(lost, 125);
            found.len() > 127
        });
        store.delete_tenant_data(tenant(2)).unwrap();
        put(store, [of(3, 5)]);
        assert_eq!(rest(store, seen, 1_000).0.len(), 1);
    });
}

#[test]
fn what_is_put_in_with_an_answer_is_there_once_and_durably() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let spans: Vec<_> = (0..30).map(span).collect();
    put(&store, spans[..10].iter().cloned());
    let inserted = store.insert(spans.clone()).unwrap();
    let told = [vec![Fate::Known; 10], vec![Fate::Stored; 20]].concat();
    assert_eq!(inserted.fates, told);
    // Twice in one call, in another trace, and again in another call.
    let new = span(99);
    let elsewhere = SpanRecord { trace_id: span(98).trace_id, ..new.clone() };
    let inserted = store.insert(vec![spans[7].clone(), new.clone(), spans[7].clone(), new, elsewhere]).unwrap();
    assert_eq!(inserted.fates, [Fate::Known, Fate::Stored, Fate::Known, Fate::Known, Fate::Known]);
    assert_eq!(store.stats(TenantId::DEFAULT).unwrap().total_spans, 31);
    let other = open(&path);
    let (found, _, lost) = rest(&other, Cursor::START, 100);
    assert_eq!((found.len(), lost), (31, 0));
    assert_eq!(found[..30], ids(&spans));
    assert_eq!(store.counters().written, 31);
}

#[test]
fn what_began_before_its_tenants_deletion_is_left_out_of_what_is_put_in() {
    on_both(|store| {
        let now = Timestamp::now().micros();
        let of = |who: u8, at| SpanRecord { tenant_id: tenant(who), ..span(at) };
        put(store, [of(1, now)]);
        store.delete_tenant(tenant(1), event("tenant.delete", Some(tenant(1)))).unwrap();
        let inserted = store.insert(vec![of(1, now), of(2, now)]).unwrap();
        assert_eq!(inserted.fates, [Fate::TenantDeleted, Fate::Stored]);
        assert_eq!((total(store, tenant(1)), total(store, tenant(2))), (0, 1));
    });
}

#[test]
fn one_holder_at_a_time_reads_for_a_consumer() {
    on_both(|store| {
        let claim = store.claim_reading("router").unwrap().unwrap();
        drop(claim);
        assert!(store.claim_reading("router").unwrap().is_some(), "it was given up");
    });
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("weir.db");
    let (one, other) = (open(&path), open(&path));
    let claim = one.claim_reading("router").unwrap().unwrap();
    assert!(other.claim_reading("router").unwrap().is_none(), "another process reads");
    assert!(other.claim_reading("judge").unwrap().is_some(), "another consumer's is another one");
    drop(claim);
    let claim = other.claim_reading("router").unwrap();
    assert!(claim.is_some() && one.claim_reading("router").unwrap().is_none());
}
