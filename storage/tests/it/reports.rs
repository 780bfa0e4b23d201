//! Reports as records: how many wait, how many are kept, and what whoever builds one reads.

use std::time::Duration;

use tempfile::TempDir;
use weir_config::vocab::{TenantId, Timestamp};
use weir_storage::audit::AuditEvent;
use weir_storage::query::Page;
use weir_storage::record::SpanRecord;
use weir_storage::reports::{EventsOfPeriod, ReportRecord, ReportStatus, ReportType, SpanPlace};
use weir_storage::{AuditLog as _, ReportBook as _};
use weir_storage::{NotWritten, ReadError, Retention, Store};

use crate::ledger::event;
use crate::support::{on_both, open, page, put, span, tenant, total, wait_for};

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// Has the next report that waits be there; it must be this one.
fn complete(store: &Store, report: &ReportRecord) -> ReportRecord {
    assert_eq!(store.pending_report().unwrap(), Some((report.tenant_id, report.id)));
    store.complete_report(report.tenant_id, report.id, Ok("{}".to_owned())).unwrap();
    store.report(report.tenant_id, report.id).unwrap().unwrap()
}

fn stored(store: &Store, path: &std::path::Path, many: i64, bytes: usize) {
    put(store, [SpanRecord { tenant_id: tenant(1), ..span(5) }]);
    let content = format!("{{\"a\":\"{}\"}}", "x".repeat(bytes));
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
        INSERT INTO reports (tenant, report_id, report_type, status, period_start_us, period_end_us, created_us,
            completed_us, content, nth)
        SELECT (SELECT id FROM tenants WHERE uuid = ?1), randomblob(16), 'soc2', 'complete', 0, 9, i, i, ?3, i FROM n";
    rusqlite::Connection::open(path).unwrap().execute(sql, (tenant(1).as_bytes(), many, content)).unwrap();
}

#[test]
fn a_page_of_reports_is_bounded_in_bytes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    stored(&store, &path, 50, 2 << 20);
    assert_eq!(store.list_reports(tenant(1), page(31, 0)).unwrap().data.len(), 31);
    let limit_bytes = 64 << 20;
    assert_eq!(store.list_reports(tenant(1), page(50, 0)), Err(ReadError::TooLarge { limit_bytes, fit: 31 }));
    // Who names no number gets as many as there is room for, and goes on behind them.
    let next =
        |offset| store.list_reports(tenant(1), Page { limit: 50, offset, or_fewer: true, ..Page::default() }).unwrap();
    let (first, second) = (next(0), next(31));
    assert_eq!((first.total, first.limit, first.data.len()), (50, 31, 31));
    assert_eq!((second.total, second.limit, second.data.len()), (50, 50, 19));
    assert_eq!(first.data[30].created_at.micros() - 1, second.data[0].created_at.micros());
}

#[test]
fn a_tenant_has_ten_reports_waiting_at_most() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    stored(&store, &path, 10, 1);
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch("UPDATE reports SET status = 'pending'").unwrap();
    let ask = |whose| store.ask_report(true, whose, ReportType::Soc2, at(0), at(10)).map(Option::unwrap);
    assert_eq!(ask(tenant(1)), Err(NotWritten::TooMany { waiting: 10 }));
    assert_eq!(store.list_reports(tenant(1), page(1, 0)).unwrap().total, 10, "nothing was kept");
    ask(tenant(2)).unwrap();
    let (first, id) = store.pending_report().unwrap().unwrap();
    let first = store.report(first, id).unwrap().unwrap();
    assert_eq!(complete(&store, &first).status, ReportStatus::Complete);
    ask(tenant(1)).unwrap();
}

#[test]
fn a_thousand_reports_are_kept_and_the_newest_stay_in_their_places() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    stored(&store, &path, 1_000, 1);
    let before = store.list_reports(tenant(1), page(3, 0)).unwrap();
    let asked = store.ask_report(true, tenant(1), ReportType::Soc2, at(0), at(10)).unwrap().unwrap();
    complete(&store, &asked);
    let after = store.list_reports(tenant(1), page(4, 0)).unwrap();
    assert_eq!((before.total, after.total), (1_000, 1_000));
    assert_eq!(after.data[1..], before.data[..]);
    let end = store.list_reports(tenant(1), page(10, 998)).unwrap().data;
    assert_eq!(end.iter().map(|report| report.created_at.micros()).collect::<Vec<_>>(), [3, 2]);
    // The ages are those of 1970.
    store.set_retention(Retention { max_age: Some(std::time::Duration::from_secs(86_400)), ..Retention::default() });
    store.sink().push(Box::new(span(Timestamp::now().micros()))).unwrap();
    wait_for("the old reports to go", || store.list_reports(tenant(1), page(9, 0)).unwrap().total == 1);
    assert_eq!(store.list_reports(tenant(1), page(9, 0)).unwrap().data[0].id, asked.id);
}

#[test]
fn a_bound_in_bytes_takes_reports_before_it_takes_spans_in_vain() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let now = Timestamp::now().micros();
    put(&store, (0..300).map(|at| span(now + at)));
    let detail = std::collections::BTreeMap::from([("why".to_owned(), "w".repeat(100_000))]);
    for _ in 0..50 {
        store.audit(AuditEvent { detail: detail.clone(), ..event("config.reload", None) }).unwrap();
    }
    stored(&store, &path, 20, 100_000);
    store.set_retention(Retention { max_bytes: Some(4 << 20), ..Retention::default() });
    store.sink().push(Box::new(span(now))).unwrap();
    wait_for("the reports to go", || store.list_reports(tenant(1), page(1, 0)).unwrap().total == 0);
    // Pieces of housekeeping go on for as long as one finds something to take out.
    put(&store, (0..300).map(|at| span(now + 300 + at)));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(total(&store, TenantId::DEFAULT), 601, "the audit log alone is over the bound");
}

#[test]
fn of_a_period_with_many_events_the_first_are_read() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    put(&store, [SpanRecord { tenant_id: tenant(1), ..span(5) }]);
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000)
        INSERT INTO audit (seq, at_us, tenant, actor, action, target, detail, hash, nth)
        SELECT i, i, iif(i % 2, ?1, NULL), 'x', 'key.create', NULL, '{}', x'00', iif(i % 2, (i + 1) / 2, 0) FROM n";
    rusqlite::Connection::open(&path).unwrap().execute(sql, [tenant(1).as_bytes()]).unwrap();
    let events = |end| {
        let mut events = EventsOfPeriod::new(tenant(1), at(0), at(end));
        // Slices of no time: one line each.
        while store.read_events(&mut events, Duration::ZERO).unwrap() {}
        let read = events.hand_over();
        assert!(read.lines.is_sorted_by_key(|line| line.seq));
        assert!(read.lines.iter().zip(&read.places).all(|(line, place)| (*place > 0) == line.tenant_id.is_some()));
        (read.lines.len(), read.truncated)
    };
    assert_eq!(events(10_001), (10_000, false), "of the tenant and of the service");
    assert_eq!(events(10_002), (10_000, true));
}

#[test]
fn the_spans_of_a_period_are_read_slice_by_slice() {
    on_both(|store| {
        let of = |who: u8, start| SpanRecord { tenant_id: tenant(who), ..span(start) };
        put(store, (0..300).rev().map(|start| of(1, start / 2)));
        put(store, [of(2, 60)]);
        let mut place = SpanPlace::before(at(50));
        let mut starts = Vec::new();
        let mut take = |span: SpanRecord| starts.push(span.start_time.micros());
        while store.read_period(tenant(1), &mut place, at(100), Duration::ZERO, &mut take).unwrap() {}
        assert_eq!(starts, (100..200).map(|start| start / 2).collect::<Vec<_>>());
    });
}
