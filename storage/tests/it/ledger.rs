//! Acknowledged writes on both profiles: the audit log and its chain, agent actions, reports, statistics, deletion.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use uuid::Uuid;
use weir_config::vocab::{Finding, Severity, SpanId, TenantId, Timestamp, TraceId};
use weir_storage::actions::{ActionsSummary, TOP_ACTIONS_MAX, TopAction};
use weir_storage::audit::AuditEvent;
use weir_storage::query::{SpanFilter, TraceFilter};
use weir_storage::record::{AgentAction, SpanRecord};
use weir_storage::reports::{ReportStatus, ReportType};
use weir_storage::{AuditLog as _, ReportBook as _, SpanLog as _};
use weir_storage::{NotWritten, Retention, Store};

use crate::support::{PATIENCE, file, on_both, open, options, page, put, span, tenant, total, wait_for};

pub(crate) fn event(action: &str, tenant: Option<TenantId>) -> AuditEvent {
    AuditEvent {
        tenant,
        actor: "bootstrap".to_owned(),
        action: action.to_owned(),
        target: Some("k1".to_owned()),
        detail: BTreeMap::from([("role".to_owned(), "viewer".to_owned())]),
    }
}

pub(crate) fn action(name: &str, success: bool) -> AgentAction {
    AgentAction {
        id: Uuid::new_v4(),
        action_type: "tool_call".to_owned(),
        name: name.to_owned(),
        arguments: Some(r#"{"path":"/tmp/a"}"#.to_owned()),
        result: Some("done".to_owned()),
        duration_ms: Some(12.5),
        success,
        exit_code: Some(-1),
        http_method: None,
        http_status: None,
        file_operation: None,
        metadata: BTreeMap::new(),
        timestamp: Timestamp::from_micros(77),
    }
}

fn dangerous() -> Finding {
    Finding::new("dangerous_command", Severity::High, 0.9, "rules", "deletes everything")
}

#[test]
fn audit_lines_are_listed_newest_first_per_tenant_and_for_all() {
    on_both(|store| {
        let (a, b) = (Some(tenant(1)), Some(tenant(2)));
        for (at, whose) in [a, b, None, a].into_iter().enumerate() {
            assert_eq!(store.audit(event(&format!("key.create{at}"), whose)).unwrap(), at as u64 + 1);
        }
        let all = store.list_audit(None, page(2, 1)).unwrap();
        assert_eq!((all.total, all.limit, all.offset), (4, 2, 1));
        assert_eq!(all.data.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [3, 2]);
        let ours = store.list_audit(a, page(10, 0)).unwrap();
        assert_eq!((ours.total, ours.data.iter().map(|entry| entry.seq).collect()), (2, vec![4, 1]));
        let entry = &ours.data[1];
        assert_eq!((entry.action.as_str(), entry.actor.as_str()), ("key.create0", "bootstrap"));
        assert_eq!((entry.target.as_deref(), entry.detail["role"].as_str()), (Some("k1"), "viewer"));
        assert_eq!(store.list_audit(Some(tenant(9)), page(10, 0)).unwrap().total, 0);
        let check = store.check_audit().unwrap();
        assert!(check.intact);
        assert_eq!((check.entries, check.first_bad_seq), (4, None));
        assert_eq!(check.head, ours.data[0].hash);
    });
}

#[test]
fn an_empty_audit_log_is_intact() {
    on_both(|store| {
        let check = store.check_audit().unwrap();
        assert_eq!((check.intact, check.entries, check.head), (true, 0, "0".repeat(64)));
    });
}

#[test]
fn a_line_that_is_altered_removed_or_moved_shows() {
    let tamper = |sql: &str| {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("service.db");
        let store = open(&path);
        for at in 0..6 {
            store.audit(event(&format!("key.create{at}"), Some(tenant(1)))).unwrap();
        }
        assert!(store.check_audit().unwrap().intact);
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let check = store.check_audit().unwrap();
        assert_eq!(check.intact, check.first_bad_seq.is_none());
        check.first_bad_seq
    };
    assert_eq!(tamper("DELETE FROM audit WHERE seq = 3"), Some(3), "from the middle");
    assert_eq!(tamper("DELETE FROM audit WHERE seq = 1"), Some(1), "from the beginning");
    assert_eq!(tamper("DELETE FROM audit WHERE seq = 6"), Some(6), "from the end");
    assert_eq!(tamper("DELETE FROM audit"), Some(1), "all of it");
    assert_eq!(tamper("UPDATE audit SET actor = 'somebody' WHERE seq = 2"), Some(2));
    assert_eq!(tamper("UPDATE audit SET detail = '{\"role\":\"admin\"}' WHERE seq = 5"), Some(5));
    assert_eq!(tamper("UPDATE audit SET at_us = at_us + 1 WHERE seq = 4"), Some(4));
    assert_eq!(tamper("UPDATE audit SET tenant = NULL WHERE seq = 4"), Some(4));
    assert_eq!(tamper("UPDATE audit SET target = NULL WHERE seq = 6"), Some(6));
    assert_eq!(
        tamper("DELETE FROM audit WHERE seq = 2; UPDATE audit SET seq = seq - 1 WHERE seq > 2"),
        Some(2),
        "renumbering does not help"
    );
    assert_eq!(
        tamper(
            "INSERT INTO audit SELECT 7, at_us, tenant, actor, action, target, detail, hash, 7 FROM audit WHERE seq = 6"
        ),
        Some(7)
    );
    assert_eq!(tamper("SELECT 1"), None);
}

#[test]
fn a_check_that_relies_on_a_former_one_sees_what_is_new_what_is_shown_and_the_end() {
    let tampered = |sql: &str| {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("service.db");
        let store = open(&path);
        let add = |at: usize| store.audit(event(&format!("key.create{at}"), Some(tenant((at % 2) as u8)))).unwrap();
        (0..6).for_each(|at| assert!(add(at) > 0));
        let whole = store.check_audit_since(&[]).unwrap();
        assert!(whole.intact && whole.entries == 6, "the first one looks at every line");
        (6..9).for_each(|at| assert!(add(at) > 0));
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let newest = store.list_audit(None, page(2, 0)).unwrap().data;
        let since = store.check_audit_since(&newest).unwrap();
        let old = store.list_audit(None, page(2, 6)).unwrap().data;
        let shown = store.check_audit_since(&old).unwrap();
        let every = store.check_audit().unwrap();
        assert_eq!(since.intact, since.verified_at == whole.verified_at);
        [since, shown, every].map(|check| check.first_bad_seq)
    };
    assert_eq!(tampered("SELECT 1"), [None; 3]);
    assert_eq!(tampered("UPDATE audit SET actor = 'x' WHERE seq = 8"), [Some(8); 3], "new and shown");
    assert_eq!(tampered("UPDATE audit SET actor = 'x' WHERE seq = 7"), [Some(7); 3], "new");
    assert_eq!(tampered("DELETE FROM audit WHERE seq = 9"), [Some(9); 3], "the end");
    assert_eq!(tampered("DELETE FROM audit WHERE seq >= 6"), [Some(6); 3], "the end, and what it was relied on");
    assert_eq!(tampered("UPDATE audit SET actor = 'x' WHERE seq = 2"), [None, Some(2), Some(2)], "old and shown");
    assert_eq!(
        tampered("UPDATE audit SET actor = 'x' WHERE seq = 5"),
        [None, Some(5), Some(5)],
        "beside what is shown"
    );
    assert_eq!(tampered("DELETE FROM audit WHERE seq = 2"), [Some(2); 3], "a line that lacks shows whichever it is");
    for moved in [-2, 12] {
        let sql = format!("UPDATE audit SET seq = {moved} WHERE seq = 2");
        assert_eq!(tampered(&sql), [Some(2); 3], "as many lines, and one in another place");
    }
    let before =
        "INSERT INTO audit SELECT -1, at_us, NULL, actor, action, target, detail, hash, 0 FROM audit WHERE seq = 1";
    assert_eq!(tampered(before), [Some(1); 3], "one line more");
    assert_eq!(tampered("UPDATE audit SET nth = 90 WHERE seq = 5"), [Some(5); 3], "hidden from its tenant");
}

#[test]
fn places_in_a_tenant_s_lists_are_counted_anew_when_an_older_file_is_opened() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let (ours, theirs) = (tenant(1), tenant(2));
    let store = open(&path);
    for whose in [ours, theirs, ours, theirs, theirs] {
        store.audit(event("key.create", Some(whose))).unwrap();
        store.audit(event("config.reload", None)).unwrap();
        let (start, end) = (Timestamp::from_micros(0), Timestamp::from_micros(1));
        let id = store.ask_report(true, whose, ReportType::Soc2, start, end).unwrap().unwrap().id;
        store.complete_report(whose, id, Ok("{}".to_owned())).unwrap();
    }
    let listed = |store: &Store| {
        let pages = [(ours, 1), (theirs, 0), (theirs, 2), (theirs, 3)];
        pages.map(|(whose, offset)| {
            let audit = store.list_audit(Some(whose), page(1, offset)).unwrap();
            let reports = store.list_reports(whose, page(1, offset)).unwrap();
            let seqs: Vec<u64> = audit.data.iter().map(|line| line.seq).collect();
            (audit.total, seqs, reports.total, reports.data.iter().map(|report| report.id).collect::<Vec<_>>())
        })
    };
    let before = listed(&store);
    let of = |at: usize| (before[at].0, before[at].1.clone());
    assert_eq!([of(0), of(1), of(2), of(3)], [(2, vec![1]), (3, vec![9]), (3, vec![3]), (3, vec![])]);
    drop(store);
    // As the version before left it.
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(
        "DROP INDEX audit_by_tenant; ALTER TABLE audit DROP COLUMN nth; CREATE INDEX audit_by_tenant ON audit (tenant, seq);
         DROP INDEX reports_by_place; ALTER TABLE reports DROP COLUMN nth;
         DROP INDEX api_keys_by_place; ALTER TABLE api_keys DROP COLUMN nth;
         CREATE INDEX api_keys_by_tenant ON api_keys (tenant, created_us, id);
         DROP TABLE span_order; DROP TABLE consumers; DROP TABLE action_sums; CREATE INDEX actions_by_name ON actions (tenant, kind, name, success, span);
         DROP TABLE usage; DROP TABLE labels; DROP TABLE sessions; DROP TABLE finding_types;
         DROP TRIGGER tally_begins; DROP TRIGGER tally_ends; DROP TABLE name_sweeps;
         DROP INDEX names_idle; ALTER TABLE names DROP COLUMN refs;
         DROP TABLE burials; DROP TABLE tenant_blocks; DROP TRIGGER tenant_begins; DROP TRIGGER tenant_ends;
         DROP INDEX tenants_there; DROP INDEX audit_counted; CREATE INDEX tenants_by_age ON tenants (created_us, id) WHERE length(uuid) = 16;
         DROP INDEX spans_failed; DROP INDEX spans_found; DROP INDEX spans_by_session; DROP INDEX spans_unfilled;
         DROP INDEX spans_by_start; DROP INDEX spans_scored;
         ALTER TABLE spans DROP COLUMN status; ALTER TABLE spans DROP COLUMN streaming; ALTER TABLE spans DROP COLUMN error;
         ALTER TABLE spans DROP COLUMN agent; ALTER TABLE spans DROP COLUMN session; ALTER TABLE spans DROP COLUMN client;
         ALTER TABLE spans DROP COLUMN cost_nano_usd; ALTER TABLE spans DROP COLUMN duration_us;
         ALTER TABLE spans DROP COLUMN found; ALTER TABLE spans DROP COLUMN upstream;
         CREATE INDEX spans_by_start ON spans (tenant, start_us, id, ord, provider, model, operation, score);
         CREATE INDEX spans_scored ON spans (tenant, start_us, id, score, operation, model) WHERE score > 0;
         DROP TABLE texts; DROP TABLE text_bodies; DROP TABLE text_sums; DROP TABLE text_ages;
         ALTER TABLE tenants DROP COLUMN text_key;
         DROP TABLE alerts; DROP TABLE alert_claims; DROP TABLE alert_holders; DROP TABLE trace_erasures; DROP TABLE provider_keys; DROP TABLE made_objects; DROP TABLE batch_charges; DROP TABLE offences; DROP TABLE blocked_addresses; DROP TABLE span_findings; DROP TABLE judge_verdicts;
         DELETE FROM migrations WHERE version >= 5",
    )
    .unwrap();
    drop(conn);
    let store = open(&path);
    assert_eq!(listed(&store), before);
    assert!(store.check_audit().unwrap().intact);
}

#[test]
fn an_action_is_seen_in_its_span_and_trace() {
    on_both(|store| {
        let whose = TenantId::DEFAULT;
        let trace_id = TraceId::fresh();
        let spans = [20, 50, 30].map(|start| SpanRecord { trace_id, ..span(start) });
        put(store, spans.clone());
        let (first, second, third) = (action("ls", true), action("rm", false), action("cat", true));
        // Without a span named, the latest one.
        assert_eq!(store.add_action(whose, trace_id, None, first.clone(), vec![]), Ok(Some(spans[1].span_id)));
        assert_eq!(store.add_action(whose, trace_id, None, second.clone(), vec![]), Ok(Some(spans[1].span_id)));
        let named = Some(spans[0].span_id);
        assert_eq!(store.add_action(whose, trace_id, named, third.clone(), vec![]), Ok(named));

        let latest = SpanRecord { agent_actions: vec![first, second], ..spans[1].clone() };
        let named = SpanRecord { agent_actions: vec![third], ..spans[0].clone() };
        assert_eq!(store.span(whose, latest.span_id), Ok(Some(latest.clone())));
        let trace = store.trace(whose, trace_id).unwrap().unwrap();
        assert_eq!(trace.spans, [named.clone(), spans[2].clone(), latest.clone()]);
        let listed = store.list_traces(whose, &TraceFilter::default(), page(10, 0)).unwrap();
        assert_eq!(listed.data, [trace]);
        let listed = store.list_spans(whose, &SpanFilter::default(), page(10, 0)).unwrap();
        assert_eq!(listed.data, [latest, spans[2].clone(), named]);
    });
}

/// The summary, from the spans themselves.
fn summed_up(store: &Store, filter: &SpanFilter) -> ActionsSummary {
    let spans = store.list_spans(TenantId::DEFAULT, filter, page(1000, 0)).unwrap();
    let mut names: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    for action in spans.data.iter().flat_map(|span| &span.agent_actions) {
        let sums = names.entry((action.name.clone(), action.action_type.clone())).or_default();
        *sums = (sums.0 + 1, sums.1 + u64::from(!action.success));
    }
    let (total, failures) = names.values().fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
    let mut action_counts = BTreeMap::new();
    for ((_, kind), (count, _)) in &names {
        *action_counts.entry(kind.clone()).or_default() += count;
    }
    let top = |((name, action_type), (count, failures))| TopAction { name, action_type, count, failures };
    let mut top_actions: Vec<TopAction> = names.into_iter().map(top).collect();
    top_actions.sort_by_key(|action| std::cmp::Reverse(action.count));
    top_actions.truncate(TOP_ACTIONS_MAX);
    ActionsSummary {
        total_spans: spans.total,
        spans_with_actions: spans.data.iter().filter(|span| !span.agent_actions.is_empty()).count() as u64,
        total_actions: total,
        success_rate: (total > 0).then(|| (total - failures) as f64 / total as f64),
        action_counts,
        top_actions,
    }
}

#[test]
fn the_summary_of_actions_is_that_of_the_spans_whatever_is_added_raised_and_taken_out() {
    on_both(|store| {
        let now = Timestamp::now().micros();
        let old = now - 100 * 24 * 3_600 * 1_000_000;
        let model = |at: i64| Some(["a", "b", "c"][at as usize % 3].to_owned());
        let begun = |at: i64| if at % 2 == 0 { now + at } else { old + at };
        let spans: Vec<SpanRecord> = (0..60).map(|at| SpanRecord { model: model(at), ..span(begun(at)) }).collect();
        put(store, spans.clone());
        let (any, named) = (SpanFilter::default(), |name: &str| Some(name.to_owned()));
        let filters = [
            any.clone(),
            SpanFilter { model: named("b"), ..any.clone() },
            SpanFilter { security_score_min: Some(80), ..any.clone() },
            SpanFilter { security_score_max: Some(79), model: named("a"), ..any.clone() },
            SpanFilter { operation_name: named("nothing"), ..any },
        ];
        let agree = |what: &str| {
            for filter in &filters {
                let sums = store.actions_summary(TenantId::DEFAULT, filter).unwrap();
                assert_eq!(sums, summed_up(store, filter), "{what}: {filter:?}");
            }
        };
        agree("without any");
        for at in 0..200 {
            let target = &spans[at * at % 60];
            // Names of one character more or less, so that many counts are equal.
            let told = AgentAction {
                action_type: ["tool_call", "web_access"][at % 2].to_owned(),
                ..action(&format!("name {}", at % 37), at % 5 != 0)
            };
            let found = if at % 11 == 0 { vec![dangerous()] } else { vec![] };
            store.add_action(TenantId::DEFAULT, target.trace_id, None, told, found).unwrap().unwrap();
        }
        agree("added and raised");
        store.set_retention(Retention { max_age: Some(Duration::from_secs(24 * 3_600)), ..Retention::default() });
        store.sink().push(Box::new(span(now))).unwrap();
        wait_for("the old ones to go", || total(store, TenantId::DEFAULT) == 31);
        agree("the old ones taken out");
        store.delete_tenant_data(TenantId::DEFAULT).unwrap();
        agree("the tenant deleted");
    });
}

#[test]
fn an_action_finds_a_trace_whose_spans_are_still_queued() {
    on_both(|store| {
        for _ in 0..20 {
            let spans = span(1);
            store.sink().push(Box::new(spans.clone())).unwrap();
            let found = store.add_action(TenantId::DEFAULT, spans.trace_id, None, action("ls", true), vec![]);
            assert_eq!(found, Ok(Some(spans.span_id)));
        }
    });
}

#[test]
fn an_action_for_an_unknown_or_foreign_trace_is_not_stored() {
    on_both(|store| {
        let (ours, theirs) = (span(1), span(2));
        put(store, [ours.clone(), theirs.clone()]);
        let add = |tenant, trace, span| store.add_action(tenant, trace, span, action("ls", true), vec![]);
        assert_eq!(add(TenantId::DEFAULT, TraceId::fresh(), None), Ok(None));
        assert_eq!(add(tenant(7), ours.trace_id, None), Ok(None));
        assert_eq!(
            add(TenantId::DEFAULT, ours.trace_id, Some(theirs.span_id)),
            Ok(None),
            "the span is of another trace"
        );
        assert_eq!(add(TenantId::DEFAULT, ours.trace_id, Some(SpanId::fresh())), Ok(None));
        let summary = store.actions_summary(TenantId::DEFAULT, &SpanFilter::default()).unwrap();
        assert_eq!((summary.total_spans, summary.total_actions, summary.success_rate), (2, 0, None));
    });
}

#[test]
fn findings_of_an_action_raise_the_score_of_its_span_everywhere() {
    on_both(|store| {
        let whose = TenantId::DEFAULT;
        let target = span(5);
        let other = span(6);
        put(store, [target.clone(), other.clone()]);
        let found = dangerous();
        store.add_action(whose, target.trace_id, None, action("rm", true), vec![found.clone()]).unwrap();
        let shown = store.span(whose, target.span_id).unwrap().unwrap();
        assert_eq!((shown.security_score, shown.security_findings), (Some(80), vec![found]));
        assert_eq!(store.trace(whose, target.trace_id).unwrap().unwrap().security_score, Some(80));
        let scored = SpanFilter { security_score_min: Some(80), ..SpanFilter::default() };
        let listed = store.list_spans(whose, &scored, page(10, 0)).unwrap();
        assert_eq!((listed.total, listed.data[0].span_id), (1, target.span_id));
        assert_eq!(store.list_findings(whose, page(10, 0)).unwrap().total, 1);
        let clean = SpanFilter { security_score_max: Some(0), ..SpanFilter::default() };
        assert_eq!(store.list_spans(whose, &clean, page(10, 0)).unwrap().total, 1, "it counts once");
        let harmless = Finding::new("suspicious_url", Severity::Low, 0.5, "rules", "a bare address");
        store.add_action(whose, target.trace_id, None, action("curl", true), vec![harmless]).unwrap();
        assert_eq!(store.span(whose, target.span_id).unwrap().unwrap().security_score, Some(80), "the worst stays");
        let stats = store.stats(whose).unwrap();
        assert_eq!((stats.total_spans, stats.total_traces, stats.total_findings), (2, 2, 2));
    });
}

#[test]
fn the_summary_of_actions_counts_and_filters_like_the_span_list() {
    on_both(|store| {
        let whose = TenantId::DEFAULT;
        let by_model = |start, model: &str| SpanRecord { model: Some(model.to_owned()), ..span(start) };
        let spans = [by_model(1, "a"), by_model(2, "a"), by_model(3, "b")];
        put(store, spans.clone());
        let add = |at: usize, one: AgentAction, findings| {
            store.add_action(whose, spans[at].trace_id, None, one, findings).unwrap().unwrap();
        };
        add(0, action("ls", true), vec![]);
        add(0, action("ls", false), vec![]);
        add(0, action("rm", false), vec![dangerous()]);
        add(2, AgentAction { action_type: "web_access".to_owned(), ..action("ls", true) }, vec![]);

        let all = store.actions_summary(whose, &SpanFilter::default()).unwrap();
        assert_eq!((all.total_spans, all.spans_with_actions, all.total_actions), (3, 2, 4));
        assert_eq!(all.success_rate, Some(0.5));
        assert_eq!(all.action_counts, BTreeMap::from([("tool_call".to_owned(), 3), ("web_access".to_owned(), 1)]));
        let top: Vec<_> = all
            .top_actions
            .iter()
            .map(|top| (top.name.as_str(), top.action_type.as_str(), top.count, top.failures))
            .collect();
        assert_eq!(top, [("ls", "tool_call", 2, 1), ("ls", "web_access", 1, 0), ("rm", "tool_call", 1, 1)]);

        let model = |name: &str| SpanFilter { model: Some(name.to_owned()), ..SpanFilter::default() };
        let b = store.actions_summary(whose, &model("b")).unwrap();
        assert_eq!((b.total_spans, b.spans_with_actions, b.total_actions), (1, 1, 1));
        let scored = SpanFilter { security_score_min: Some(1), ..SpanFilter::default() };
        let scored = store.actions_summary(whose, &scored).unwrap();
        assert_eq!((scored.total_spans, scored.spans_with_actions, scored.total_actions), (1, 1, 3));
        assert_eq!(store.actions_summary(whose, &model("none")).unwrap().total_spans, 0);
        assert_eq!(store.actions_summary(tenant(8), &SpanFilter::default()).unwrap().total_actions, 0);
    });
}

#[test]
fn only_the_most_frequent_actions_are_named() {
    on_both(|store| {
        let target = span(1);
        put(store, [target.clone()]);
        for at in 0..60 {
            let name = format!("tool{}", at % 30);
            store.add_action(TenantId::DEFAULT, target.trace_id, None, action(&name, true), vec![]).unwrap();
        }
        store.add_action(TenantId::DEFAULT, target.trace_id, None, action("tool7", true), vec![]).unwrap();
        let summary = store.actions_summary(TenantId::DEFAULT, &SpanFilter::default()).unwrap();
        assert_eq!((summary.total_actions, summary.top_actions.len()), (61, 10));
        assert_eq!((summary.top_actions[0].name.as_str(), summary.top_actions[0].count), ("tool7", 3));
        assert_eq!(summary.top_actions[1].name, "tool0");
    });
}

#[test]
fn a_report_is_listed_as_asked_for() {
    on_both(|store| {
        let at = Timestamp::from_micros;
        let asked = store.ask_report(true, tenant(1), ReportType::Gdpr, at(5), at(9)).unwrap().unwrap();
        assert_eq!(asked.status, ReportStatus::Pending);
        assert_eq!((asked.period_start, asked.period_end), (at(5), at(9)));
        let found = store.report(tenant(1), asked.id).unwrap().unwrap();
        assert_eq!((found.id, found.report_type, found.created_at), (asked.id, ReportType::Gdpr, asked.created_at));
        let later = store.ask_report(true, tenant(1), ReportType::Soc2, at(5), at(9)).unwrap().unwrap();
        let listed = store.list_reports(tenant(1), page(10, 0)).unwrap();
        assert_eq!((listed.total, listed.data.iter().map(|report| report.id).collect()), (2, vec![later.id, asked.id]));
        assert_eq!(store.report(tenant(2), asked.id), Ok(None), "another tenant's report does not exist");
        assert_eq!(store.list_reports(tenant(2), page(10, 0)).unwrap().total, 0);
    });
}

#[test]
fn statistics_sum_up_one_tenant() {
    on_both(|store| {
        put(store, [span(10), span(30), SpanRecord { tenant_id: tenant(2), ..span(20) }]);
        let trace_id = TraceId::fresh();
        put(
            store,
            [
                SpanRecord { trace_id, ..span(20) },
                SpanRecord { trace_id, security_findings: vec![dangerous()], ..span(40) },
            ],
        );
        let stats = store.stats(TenantId::DEFAULT).unwrap();
        assert_eq!((stats.total_traces, stats.total_spans, stats.total_findings), (3, 4, 1));
        assert_eq!(stats.total_tokens, 52);
        assert!((stats.total_cost_usd - 0.000_48).abs() < 1e-9);
        assert_eq!(stats.oldest_trace, Some(Timestamp::from_micros(10)));
        assert_eq!(stats.newest_trace, Some(Timestamp::from_micros(30)), "a trace is as old as its first span");
        assert!((100..4_000).contains(&stats.storage_bytes), "{}", stats.storage_bytes);
        let none = store.stats(tenant(9)).unwrap();
        assert_eq!((none.total_spans, none.storage_bytes, none.oldest_trace), (0, 0, None));
    });
}

/// Everything the interface shows of a tenant.
fn shown(store: &Store, tenant: TenantId) -> (u64, u64, u64, u64, u64) {
    (
        total(store, tenant),
        store.list_traces(tenant, &TraceFilter::default(), page(1, 0)).unwrap().total,
        store.list_reports(tenant, page(1, 0)).unwrap().total,
        store.actions_summary(tenant, &SpanFilter::default()).unwrap().total_actions,
        store.stats(tenant).unwrap().total_spans,
    )
}

#[test]
fn a_deleted_tenant_is_gone_at_once_and_can_begin_anew() {
    on_both(|store| {
        let (gone, stays) = (tenant(1), tenant(2));
        let at = Timestamp::from_micros;
        let trace_id = TraceId::fresh();
        for tenant_id in [gone, stays] {
            put(store, (0..700).map(|start| SpanRecord { tenant_id, trace_id, ..span(start) }));
            store.add_action(tenant_id, trace_id, None, action("ls", true), vec![dangerous()]).unwrap().unwrap();
            store.ask_report(true, tenant_id, ReportType::Soc2, at(1), at(2)).unwrap().unwrap();
        }
        store.audit(event("tenant.delete", Some(gone))).unwrap();
        let before = shown(store, stays);
        assert_eq!(before, (700, 1, 1, 1, 700));

        store.delete_tenant_data(gone).unwrap();
        assert_eq!(shown(store, gone), (0, 0, 0, 0, 0));
        assert_eq!(store.trace(gone, trace_id), Ok(None));
        assert_eq!(store.list_audit(Some(gone), page(1, 0)).unwrap().total, 1, "the audit log stays");
        // The same tenant may begin again while its old rows are still being taken out, and be deleted again.
        let later = SpanRecord { start_time: Timestamp::now(), tenant_id: gone, trace_id, ..span(9) };
        put(store, [SpanRecord { tenant_id: gone, trace_id, ..span(9) }, later]);
        assert_eq!(shown(store, gone), (1, 1, 0, 0, 1));
        store.delete_tenant_data(gone).unwrap();
        store.delete_tenant_data(gone).unwrap();
        assert_eq!(shown(store, gone), (0, 0, 0, 0, 0));
        assert_eq!(shown(store, stays), before, "nobody else is touched");
    });
}

#[test]
fn the_rows_of_a_deleted_tenant_leave_the_file_also_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    put(&store, (0..2_000).map(|start| SpanRecord { tenant_id: tenant(1), ..span(start * 1_000_000) }));
    put(&store, (0..3).map(span));
    store.delete_tenant_data(tenant(1)).unwrap();
    drop(store);
    let store = open(&path);
    let conn = Connection::open(&path).unwrap();
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    wait_for("the end of the erasure", || count("SELECT count(*) FROM erasures") == 0);
    assert_eq!(count("SELECT count(*) FROM spans"), 3);
    assert_eq!(count("SELECT sum(spans) FROM tallies"), 3);
    assert_eq!(count("SELECT sum(spans) FROM slices"), 9, "once per level");
    assert_eq!(total(&store, TenantId::DEFAULT), 3);
}

#[test]
fn a_write_is_refused_clearly_when_the_store_cannot_take_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let mut options = options(file(&path));
    options.batch_timeout = Duration::from_millis(100);
    let store = Store::open(options).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = store.audit(event("key.create", None)).unwrap_err();
    assert!(matches!(refused, NotWritten::Unavailable { .. }), "{refused:?}");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.audit(event("key.create", None)), Ok(1), "what was refused was not written");
    assert!(store.close(PATIENCE));
    assert_eq!(store.audit(event("key.create", None)), Err(NotWritten::Closed));
}

#[test]
fn many_threads_write_at_once_and_each_line_is_there_once() {
    on_both(|store| {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                scope.spawn(move || {
                    for at in 0..50 {
                        store.audit(event(&format!("{thread}.{at}"), None)).unwrap();
                    }
                });
            }
        });
        let all = store.list_audit(None, page(1000, 0)).unwrap();
        let names: std::collections::BTreeSet<_> = all.data.iter().map(|entry| entry.action.clone()).collect();
        assert_eq!((all.total, names.len()), (400, 400));
        assert!(store.check_audit().unwrap().intact);
    });
}
