//! Reports are built in the background over the records of their period, on both profiles and across restarts.

use std::sync::Mutex;

use tempfile::TempDir;
use uuid::Uuid;
use weir_config::vocab::{Finding, Severity, TenantId, Timestamp};
use weir_storage::audit::AuditEvent;
use weir_storage::query::Page;
use weir_storage::record::SpanRecord;
use weir_storage::reports::{ReportRecord, ReportStatus, ReportType};
use weir_storage::{Backend, NotWritten, ReadError, Retention, Store, StoreOptions};

use crate::ledger::event;
use crate::support::{ROOMY, on_both, open, options, page, put, span, tenant, total, wait_for};

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn content(report: &ReportRecord) -> serde_json::Value {
    serde_json::from_str(report.content.as_ref().unwrap().as_str()).unwrap()
}

fn built(store: &Store, tenant: TenantId, id: Uuid) -> ReportRecord {
    wait_for("the report", || store.report(tenant, id).unwrap().unwrap().status != ReportStatus::Pending);
    store.report(tenant, id).unwrap().unwrap()
}

fn with_attack(tenant_id: TenantId, start: i64) -> SpanRecord {
    let finding = Finding {
        location: "request.messages[0].content".to_owned(),
        ..Finding::new("prompt_injection", Severity::High, 0.9, "rules", "made up")
    };
    SpanRecord { tenant_id, security_score: Some(80), security_findings: vec![finding], ..span(start) }
}

#[test]
fn a_report_counts_the_records_of_its_period_and_tenant() {
    on_both(|store| {
        let ours = tenant(1);
        put(store, (0..3_000).map(|start| SpanRecord { tenant_id: ours, ..span(start) }));
        put(store, [with_attack(ours, 1_500), with_attack(ours, 3_500), with_attack(tenant(2), 1_500)]);
        for whose in [Some(ours), Some(tenant(2)), None, Some(ours)] {
            store.audit(event("key.create", whose)).unwrap();
        }
        let end = Timestamp::from_micros(Timestamp::now().micros() + 1_000_000_000);
        let asked = store.create_report(ours, ReportType::Soc2, at(1_000), at(2_000)).unwrap();
        let report = built(store, ours, asked.id);
        assert_eq!((report.status, report.error.as_ref()), (ReportStatus::Complete, None));
        assert!(report.completed_at >= Some(report.created_at));
        let part = content(&report);
        assert_eq!(part["records"]["spans"], 1_001, "the start counts, the end does not");
        assert_eq!(part["records"]["findings_by_type"]["prompt_injection"], 1);
        assert_eq!(part["controls"][0]["audit_event_count"], 0, "the events came later than the period");

        let asked = store.create_report(ours, ReportType::Soc2, at(0), end).unwrap();
        let whole = content(&built(store, ours, asked.id));
        assert_eq!(whole["records"]["spans"], 3_002);
        assert_eq!(whole["controls"][0]["audit_event_count"], 3, "another tenant's event is not ours");
        let events = whole["controls"][0]["audit_events"].as_array().unwrap();
        let places: Vec<Option<u64>> = events.iter().map(|event| event["place"].as_u64()).collect();
        assert_eq!(places, [Some(1), None, Some(2)], "how many lines others have does not show");
        assert_eq!(events[2].get("seq"), None);
        assert_eq!(whole["audit_log"]["intact"], true);
        assert_ne!(whole["controls"], part["controls"], "two histories, two reports");
    });
}

#[test]
fn a_report_that_was_pending_at_the_end_is_built_after_the_next_start() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    put(&store, [SpanRecord { tenant_id: tenant(1), ..span(5) }]);
    let asked = store.create_report(tenant(1), ReportType::Gdpr, at(0), at(10)).unwrap();
    built(&store, tenant(1), asked.id);
    drop(store);
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("UPDATE reports SET status = 'pending', content = NULL, completed_us = NULL")
        .unwrap();
    let store = open(&path);
    let report = built(&store, tenant(1), asked.id);
    assert_eq!(content(&report)["records"]["spans"], 1);
}

static STARTED: Mutex<Vec<(Option<String>, bool)>> = Mutex::new(Vec::new());

fn note_thread(starved: bool) {
    STARTED.lock().unwrap().push((std::thread::current().name().map(str::to_owned), starved));
}

#[test]
fn the_thread_that_builds_reports_is_told_how_to_give_way_before_it_begins() {
    let memory = options(Backend::Memory { max_bytes: ROOMY });
    let store = Store::open(StoreOptions { on_report_thread: note_thread, ..memory }).unwrap();
    assert_eq!(STARTED.lock().unwrap().len(), 0, "there is none without a report");
    let asked = store.create_report(tenant(1), ReportType::Gdpr, at(0), at(10)).unwrap();
    built(&store, tenant(1), asked.id);
    assert_eq!(*STARTED.lock().unwrap(), [(Some("weir-reports".to_owned()), false)]);
}

#[test]
fn several_reports_asked_for_at_once_are_all_built() {
    on_both(|store| {
        let kinds = [ReportType::Soc2, ReportType::Gdpr, ReportType::Hipaa];
        let asked: Vec<_> = (0..12)
            .map(|number| {
                store.create_report(tenant(number % 4), kinds[usize::from(number % 3)], at(0), at(9)).unwrap()
            })
            .collect();
        for report in asked {
            assert_eq!(built(store, report.tenant_id, report.id).status, ReportStatus::Complete);
        }
    });
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
    let next = |offset| store.list_reports(tenant(1), Page { limit: 50, offset, or_fewer: true }).unwrap();
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
    let ask = |whose| store.create_report(whose, ReportType::Soc2, at(0), at(10));
    assert_eq!(ask(tenant(1)), Err(NotWritten::TooMany { waiting: 10 }));
    assert_eq!(store.list_reports(tenant(1), page(1, 0)).unwrap().total, 10, "nothing was kept");
    let other = ask(tenant(2)).unwrap();
    built(&store, tenant(2), other.id);
    let freed = ask(tenant(1)).unwrap();
    assert_eq!(built(&store, tenant(1), freed.id).status, ReportStatus::Complete);
}

#[test]
fn a_thousand_reports_are_kept_and_the_newest_stay_in_their_places() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    stored(&store, &path, 1_000, 1);
    let before = store.list_reports(tenant(1), page(3, 0)).unwrap();
    let asked = store.create_report(tenant(1), ReportType::Soc2, at(0), at(10)).unwrap();
    built(&store, tenant(1), asked.id);
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
fn a_report_over_more_events_than_it_reads_says_so() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    put(&store, [SpanRecord { tenant_id: tenant(1), ..span(5) }]);
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000)
        INSERT INTO audit (seq, at_us, tenant, actor, action, target, detail, hash, nth)
        SELECT i, i, iif(i % 2, ?1, NULL), 'x', 'key.create', NULL, '{}', x'00', iif(i % 2, (i + 1) / 2, 0) FROM n";
    rusqlite::Connection::open(&path).unwrap().execute(sql, [tenant(1).as_bytes()]).unwrap();
    let events = |end| {
        let asked = store.create_report(tenant(1), ReportType::Soc2, at(0), at(end)).unwrap();
        let content = content(&built(&store, tenant(1), asked.id));
        (content["audit_events_read"].as_u64().unwrap(), content["audit_events_truncated"].as_bool().unwrap())
    };
    assert_eq!(events(10_001), (10_000, false), "of the tenant and of the service");
    assert_eq!(events(10_002), (10_000, true));
}
