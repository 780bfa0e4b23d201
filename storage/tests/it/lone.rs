//! Calls that name no trace are kept with one id; what comes to their traces before, with or after them finds them all the same.

use rusqlite::Connection;
use tempfile::TempDir;
use weir_config::vocab::{SpanId, TenantId, TraceId};
use weir_storage::SpanLog as _;
use weir_storage::Store;
use weir_storage::query::TraceFilter;
use weir_storage::record::SpanRecord;

use crate::ledger::event;
use crate::support::{PATIENCE, on_both, open, page, put, span, total};

/// A span of this trace that does not begin it.
fn further(trace_id: TraceId, start_us: i64) -> SpanRecord {
    SpanRecord { trace_id, span_id: SpanId::fresh(), ..span(start_us) }
}

fn sorted(mut spans: Vec<SpanRecord>) -> Vec<SpanRecord> {
    spans.sort_by_key(|span| span.span_id);
    spans
}

fn trace(store: &Store, id: TraceId) -> Vec<SpanRecord> {
    sorted(store.trace(TenantId::DEFAULT, id).unwrap().map(|trace| trace.spans).unwrap_or_default())
}

/// The spans of a trace and when its first one began, as the list of traces has it.
fn listed(store: &Store, id: TraceId) -> Option<(usize, i64)> {
    let traces = store.list_traces(TenantId::DEFAULT, &TraceFilter::default(), page(100, 0)).unwrap();
    assert_eq!(traces.total as usize, traces.data.len());
    let mut of_id = traces.data.iter().filter(|trace| trace.trace_id == id);
    let only = of_id.next()?;
    assert!(of_id.next().is_none(), "a trace is listed once");
    Some((only.spans.len(), only.spans.iter().map(|span| span.start_time.micros()).min()?))
}

fn folded(path: &std::path::Path) -> i64 {
    let conn = Connection::open(path).unwrap();
    conn.query_row("SELECT count(*) FROM spans WHERE trace_id = x''", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_call_that_is_alone_is_kept_with_one_id_and_found_by_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let alone: Vec<_> = (0..100).map(span).collect();
    put(&store, alone.clone());
    assert_eq!(folded(&path), 100);
    for span in &alone {
        assert_eq!(trace(&store, span.trace_id), std::slice::from_ref(span));
        assert_eq!(store.span(TenantId::DEFAULT, span.span_id).unwrap().as_ref(), Some(span));
        assert_eq!(listed(&store, span.trace_id), Some((1, span.start_time.micros())));
    }
    assert_eq!(store.trace(TenantId::from_bytes([9; 16]), alone[0].trace_id).unwrap(), None);
    // Not the gateway's own id, or not the trace's: such rows name their trace.
    let told = SpanRecord { trace_id: TraceId::from_bytes([4; 16]), span_id: SpanId::from_bytes([4; 16]), ..span(7) };
    put(&store, [told.clone(), further(TraceId::fresh(), 8)]);
    assert_eq!(folded(&path), 100);
    assert_eq!(trace(&store, told.trace_id), [told]);
    // What is written once more is known.
    put(&store, alone.clone());
    assert_eq!((total(&store, TenantId::DEFAULT), folded(&path)), (102, 100));
    assert!(store.close(PATIENCE));
}

#[test]
fn whatever_comes_to_its_trace_in_whatever_order_is_found_with_it() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    on_both(|store| {
        let mut all = 0;
        for (order, cuts) in orders.iter().flat_map(|order| (0..4).map(move |cuts| (order, cuts))) {
            let first = span(1_000 + all);
            let id = first.trace_id;
            let spans = [first, further(id, 500 + all), further(id, 1_500 + all)];
            let neighbours = [span(all), span(all)];
            let mut batch = vec![neighbours[0].clone()];
            for (at, which) in order.iter().enumerate() {
                batch.push(spans[*which].clone());
                if at < 2 && cuts & (1 << at) != 0 {
                    put(store, std::mem::take(&mut batch));
                }
            }
            batch.push(neighbours[1].clone());
            put(store, batch);
            assert_eq!(trace(store, id), sorted(spans.to_vec()), "{order:?} {cuts}");
            for alone in neighbours {
                assert_eq!(trace(store, alone.trace_id), [alone]);
            }
            // Again, as after a commit that was reported as failed.
            put(store, spans.clone());
            put(store, spans.iter().rev().cloned());
            assert_eq!(trace(store, id), sorted(spans.to_vec()), "{order:?} {cuts}");
            all += 5;
            let stats = store.stats(TenantId::DEFAULT).unwrap();
            assert_eq!((stats.total_spans as i64, stats.total_traces as i64), (all, all / 5 * 3));
            if all < 100 {
                assert_eq!(listed(store, id), Some((3, spans[1].start_time.micros())));
            }
        }
    });
}

#[test]
fn many_traces_of_others_between_those_of_a_batch_hide_none() {
    on_both(|store| {
        // Ids in the order of time: those of the ones that are alone lie around all the others.
        let early: Vec<_> = (0..40).map(span).collect();
        let callers: Vec<_> = (0..300).map(|at| span(1_000 + at)).collect();
        let late: Vec<_> = (0..40).map(|at| span(2_000 + at)).collect();
        put(store, callers.iter().map(|caller| further(caller.trace_id, caller.start_time.micros() + 1)));
        put(store, early.iter().chain(&callers).chain(&late).cloned());
        for caller in &callers {
            assert_eq!(trace(store, caller.trace_id).len(), 2);
        }
        for alone in early.iter().chain(&late) {
            assert_eq!(trace(store, alone.trace_id), std::slice::from_ref(alone));
        }
        let stats = store.stats(TenantId::DEFAULT).unwrap();
        assert_eq!((stats.total_spans, stats.total_traces), (680, 380));
    });
}

#[test]
fn it_is_deleted_by_its_id_and_what_is_recorded_of_it_later_stays() {
    on_both(|store| {
        let (gone, kept) = (span(1), span(2));
        put(store, [gone.clone(), kept.clone()]);
        assert!(store.delete_trace(TenantId::DEFAULT, gone.trace_id, event("trace.delete", None)).unwrap());
        assert_eq!(trace(store, gone.trace_id), []);
        assert_eq!(store.span(TenantId::DEFAULT, gone.span_id).unwrap(), None);
        assert!(!store.delete_trace(TenantId::DEFAULT, gone.trace_id, event("trace.delete", None)).unwrap());
        let later = further(gone.trace_id, 9);
        put(store, [later.clone()]);
        assert_eq!(trace(store, gone.trace_id), [later]);
        assert_eq!(trace(store, kept.trace_id), [kept]);
        assert_eq!(total(store, TenantId::DEFAULT), 2);
    });
}
