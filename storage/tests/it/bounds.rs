//! What one absurd or hostile record can do to the store: nothing to the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use weir_config::vocab::{SpanId, TenantId, Timestamp};
use weir_storage::SpanLog as _;
use weir_storage::query::{Page, SpanFilter, TraceFilter};
use weir_storage::record::{AgentAction, SpanRecord};
use weir_storage::{Backend, ReadError, Retention, Store};

use crate::ledger::action;
use crate::support::{ROOMY, on_both, open, options, page, put, span, tenant, total, wait_for};

#[test]
fn absurd_usage_of_one_answer_does_not_stop_the_recording_of_the_next() {
    on_both(|store| {
        let absurd =
            |start| SpanRecord { total_tokens: Some(u64::MAX), estimated_cost_usd: Some(f64::MAX), ..span(start) };
        // Each in a batch of its own: the sums meet in the table.
        for start in 0..3 {
            put(store, [absurd(start)]);
            put(store, [span(start + 10)]);
        }
        assert_eq!(total(store, TenantId::DEFAULT), 6);
        assert_eq!(store.counters().dropped_poison, 0);
        let stats = store.stats(TenantId::DEFAULT).unwrap();
        assert_eq!(stats.total_tokens, 3 * (1 << 40) + 3 * 13);
    });
}

#[test]
fn a_sum_that_an_absurd_figure_has_filled_already_takes_further_spans() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    put(&store, [span(1)]);
    let full = format!("UPDATE tallies SET tokens = {0}, cost_nano_usd = {0}", i64::MAX);
    Connection::open(&path).unwrap().execute_batch(&full).unwrap();
    put(&store, [span(2)]);
    put(&store, [span(3)]);
    assert_eq!(total(&store, TenantId::DEFAULT), 3);
    assert_eq!(store.counters().dropped_poison, 0);
}

/// Text that hardly compresses.
fn noise(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[(state >> 58) as usize])
    };
    (0..bytes).map(letter).collect()
}

#[test]
fn the_log_stays_bounded_while_readers_always_overlap() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    put(&store, [span(0)]);
    let texts: Vec<String> = (0..8).map(|seed| noise(seed, 1 << 20)).collect();
    let ended = AtomicBool::new(false);
    let (to_a, from_b) = channel();
    let (to_b, from_a) = channel();
    to_a.send(()).unwrap();
    let written = std::thread::scope(|scope| {
        for (other_began, begun) in [(from_b, to_b), (from_a, to_a)] {
            let (path, ended) = (&path, &ended);
            scope.spawn(move || {
                // A snapshot is given up only when the other reader has its next one.
                let mut held = None;
                while other_began.recv().is_ok() && !ended.load(Ordering::Relaxed) {
                    drop(held.take());
                    let conn = Connection::open(path).unwrap();
                    conn.execute_batch("BEGIN; SELECT count(*) FROM migrations").unwrap();
                    held = Some(conn);
                    std::thread::sleep(Duration::from_millis(20));
                    if begun.send(()).is_err() {
                        break;
                    }
                }
            });
        }
        let mut written = 0;
        for at in 0..240 {
            let prompt = Some(texts[at % texts.len()].clone());
            written += prompt.as_ref().map_or(0, String::len);
            put(&store, [SpanRecord { prompt, ..span(at as i64) }]);
        }
        ended.store(true, Ordering::Relaxed);
        written as u64
    });
    // The log's file keeps the size it once had.
    let log = std::fs::metadata(folder.path().join("service.db-wal")).unwrap().len();
    assert!(log < 100 << 20, "the log grew to {log} bytes of {written} written");
}

#[test]
fn a_span_with_more_actions_than_an_answer_holds_is_refused_before_all_are_read() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let target = span(1);
    put(&store, [target.clone()]);
    let huge = AgentAction { arguments: Some("a".repeat(1 << 20)), ..action("x", true) };
    store.add_action(TenantId::DEFAULT, target.trace_id, None, huge, vec![]).unwrap().unwrap();
    // As an earlier version took them; the last one cannot be read.
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
             INSERT INTO actions (tenant, span, action_id, kind, name, success, findings, body)
                SELECT tenant, span, action_id, kind, name, success, findings, body FROM actions, n;
             UPDATE actions SET body = x'ff' WHERE id = (SELECT max(id) FROM actions)",
        )
        .unwrap();
    let too_large = ReadError::RecordTooLarge { limit_bytes: 64 << 20 };
    assert_eq!(store.span(TenantId::DEFAULT, target.span_id), Err(too_large));
    let listed = store.list_spans(TenantId::DEFAULT, &SpanFilter::default(), page(1, 0));
    assert_eq!(listed, Err(ReadError::TooLarge { limit_bytes: 64 << 20, fit: 0 }));
    assert!(listed.unwrap_err().to_string().contains("`offset`"));
}

#[test]
fn a_page_without_a_limit_ends_where_an_answer_is_full_and_the_next_one_goes_on() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder.path().join("service.db"));
    let text = Some(noise(7, 7 << 20));
    let ids: Vec<SpanId> = (0..10)
        .map(|at| {
            let large = SpanRecord { prompt: text.clone(), ..span(at) };
            let id = large.span_id;
            put(&store, [large]);
            id
        })
        .collect();
    let (any, every) = (SpanFilter::default(), TraceFilter::default());
    let next = |offset| Page { limit: 50, offset, or_fewer: true, ..Page::default() };
    let (mut spans, mut traces) = (Vec::new(), Vec::new());
    for (offset, limit) in [(0, 9), (9, 50)] {
        let listed = store.list_spans(TenantId::DEFAULT, &any, next(offset)).unwrap();
        assert_eq!((listed.total, listed.limit), (10, limit));
        spans.extend(listed.data.iter().map(|span| span.span_id));
        let listed = store.list_traces(TenantId::DEFAULT, &every, next(offset)).unwrap();
        assert_eq!((listed.total, listed.limit), (10, limit));
        traces.extend(listed.data.iter().map(|trace| trace.spans[0].span_id));
    }
    let newest_first: Vec<SpanId> = ids.into_iter().rev().collect();
    assert_eq!((&spans, &traces), (&newest_first, &newest_first));
    // Who names a number gets it, or an error that says which one fits.
    let refused = store.list_spans(TenantId::DEFAULT, &any, page(10, 0)).unwrap_err();
    assert_eq!(refused, ReadError::TooLarge { limit_bytes: 64 << 20, fit: 9 });
    assert!(refused.to_string().contains("`limit=9` fits"), "{refused}");
    assert_eq!(store.list_spans(TenantId::DEFAULT, &any, page(9, 0)).unwrap().data.len(), 9);
}

#[test]
fn a_span_takes_a_thousand_actions() {
    let store = Store::open(options(Backend::Memory { max_bytes: ROOMY })).unwrap();
    let target = span(1);
    put(&store, [target.clone()]);
    let add = || store.add_action(TenantId::DEFAULT, target.trace_id, None, action("x", true), vec![]);
    for _ in 0..1_000 {
        assert_eq!(add(), Ok(Some(target.span_id)));
    }
    let refused = add().unwrap_err().to_string();
    assert!(refused.contains("at most 1000") && refused.contains("`span_id`"), "{refused}");
    assert_eq!(store.span(TenantId::DEFAULT, target.span_id).unwrap().unwrap().agent_actions.len(), 1_000);
}

#[test]
fn a_span_with_very_many_actions_is_taken_out_in_pieces_and_the_sums_agree_all_along() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let (target, other) = (span(1), SpanRecord { tenant_id: tenant(2), ..span(2) });
    put(&store, [target.clone(), other.clone()]);
    for one in [&target, &other] {
        store.add_action(one.tenant_id, one.trace_id, None, action("x", false), vec![]).unwrap().unwrap();
    }
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
         INSERT INTO actions (tenant, span, action_id, kind, name, success, findings, body)
            SELECT tenant, span, action_id, kind, name, success, findings, body FROM actions, n;
         UPDATE action_sums SET actions = 9001, failures = 9001 WHERE kind > 0;
         UPDATE tallies SET bytes = bytes + 9000 * (SELECT max(length(body)) + 2 + 512 FROM actions);
         CREATE TABLE pieces (actions INTEGER);
         CREATE TRIGGER watch AFTER UPDATE ON action_sums
            BEGIN INSERT INTO pieces VALUES (old.actions - new.actions); END",
    )
    .unwrap();
    let day = Duration::from_secs(86_400);
    store.set_retention(Retention { max_age: Some(day), ..Retention::default() });
    store.sink().push(Box::new(span(Timestamp::now().micros()))).unwrap();
    wait_for("the removal", || total(&store, TenantId::DEFAULT) == 1 && total(&store, tenant(2)) == 0);
    let largest: i64 = conn.query_row("SELECT max(actions) FROM pieces", [], |row| row.get(0)).unwrap();
    assert_eq!(largest, 1_000);
    let left = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(left("SELECT count(*) FROM actions"), 0);
    assert_eq!(left("SELECT count(*) FROM action_sums"), 0);
    let agree = "SELECT sum(bytes) - (SELECT sum(length(body)) FROM spans) FROM tallies";
    assert_eq!(left(agree), 0);
}
