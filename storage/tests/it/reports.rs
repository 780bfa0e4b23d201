//! Reports are built in the background over the records of their period, on both profiles and across restarts.

use tempfile::TempDir;
use uuid::Uuid;
use weir_config::vocab::{Finding, Severity, TenantId, Timestamp};
use weir_storage::Store;
use weir_storage::record::SpanRecord;
use weir_storage::reports::{ReportRecord, ReportStatus, ReportType};

use crate::ledger::event;
use crate::support::{on_both, open, put, span, tenant, wait_for};

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
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
        store.audit(event("key.create", Some(ours))).unwrap();
        store.audit(event("key.create", Some(tenant(2)))).unwrap();
        let end = Timestamp::from_micros(Timestamp::now().micros() + 1_000_000_000);
        let asked = store.create_report(ours, ReportType::Soc2, at(1_000), at(2_000)).unwrap();
        let report = built(store, ours, asked.id);
        assert_eq!((report.status, report.error), (ReportStatus::Complete, None));
        assert!(report.completed_at >= Some(report.created_at));
        let content = report.content.unwrap();
        assert_eq!(content["records"]["spans"], 1_001, "the start counts, the end does not");
        assert_eq!(content["records"]["findings_by_type"]["prompt_injection"], 1);
        assert_eq!(content["controls"][0]["audit_event_count"], 0, "the events came later than the period");

        let asked = store.create_report(ours, ReportType::Soc2, at(0), end).unwrap();
        let whole = built(store, ours, asked.id).content.unwrap();
        assert_eq!(whole["records"]["spans"], 3_002);
        assert_eq!(whole["controls"][0]["audit_event_count"], 1, "another tenant's event is not ours");
        assert_eq!(whole["controls"][0]["audit_events"][0]["seq"], 1);
        assert_eq!(whole["audit_log"]["intact"], true);
        assert_ne!(whole["controls"], content["controls"], "two histories, two reports");
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
    assert_eq!(report.content.unwrap()["records"]["spans"], 1);
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
