//! What lists are filtered by beside the sums: pages behind cursors, rows of a version before, and sums that follow what goes.

use std::time::Duration;

use proptest::prelude::*;
use rusqlite::Connection;
use tempfile::TempDir;
use weir_config::vocab::{Finding, Severity, TenantId, TraceId};
use weir_storage::SpanLog as _;
use weir_storage::query::{Facets, Page, SpanFilter, TraceFilter};
use weir_storage::record::SpanRecord;
use weir_storage::usage::SessionFilter;
use weir_storage::{Cursor, Retention, Store};

use crate::ledger::action;
use crate::support::{on_both, open, page, put, span, tenant, wait_for};

/// A span that differs from others in every respect that is filtered by.
fn varied(at: i64) -> SpanRecord {
    let pick = |count: i64| (at * 7 + at / 5) % count;
    let name = |kind: &str, number: i64| (number > 0).then(|| format!("{kind}-{number}"));
    let findings = (pick(4) == 0).then(|| Finding::new("jailbreak", Severity::Low, 0.9, "rules", "made up"));
    SpanRecord {
        agent_id: name("agent", pick(3)),
        session_id: name("session", pick(5)),
        client: name("client", pick(2)),
        status_code: Some([200, 429, 500, 200][pick(4) as usize]),
        error_type: (pick(4) == 2).then(|| "upstream_timeout".to_owned()),
        streaming: pick(2) == 0,
        duration_ms: pick(50) as f64,
        estimated_cost_usd: (pick(3) > 0).then(|| pick(10) as f64 / 1_000.0),
        security_score: Some(if findings.is_some() { 30 } else { 0 }),
        security_findings: findings.into_iter().collect(),
        model: Some(format!("model-{}", pick(2))),
        trace_id: TraceId::from_bytes([(at / 2) as u8; 16]),
        tags: name("upstream", pick(4)).map(|name| ("upstream".into(), name)).into_iter().collect(),
        ..span(at / 3)
    }
}

fn some_filters() -> Vec<Facets> {
    let text = |text: &str| Some(text.to_owned());
    let any = Facets::default;
    vec![
        any(),
        Facets { status: Some((400, 599)), ..any() },
        Facets { agent_id: text("agent-1"), streaming: Some(true), ..any() },
        Facets { session_id: text("session-3"), ..any() },
        Facets { finding_type: text("jailbreak"), duration_min_us: Some(20_000), ..any() },
        Facets { error_type: text("upstream_timeout"), ..any() },
        Facets { client: text("client-1"), cost_min_nano_usd: Some(3_000_000), ..any() },
        Facets { upstream: text("upstream-2"), ..any() },
        Facets { upstream: text("upstream-3"), status: Some((400, 499)), session_id: text("session-1"), ..any() },
        Facets { upstream: text("upstream-9"), ..any() },
    ]
}

/// Every page of a list, with the cursors between them.
fn through<T>(first: Page, mut list: impl FnMut(Page) -> weir_storage::query::Paged<T>) -> Vec<T> {
    let (mut all, mut asked) = (Vec::new(), first);
    for _ in 0..10_000 {
        let listed = list(asked);
        assert!(listed.data.len() <= asked.limit as usize);
        all.extend(listed.data);
        let Some(next) = listed.next else { return all };
        asked.after = Some(next);
    }
    panic!("the pages do not end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn pages_behind_cursors_are_the_list_however_little_is_looked_at(
        limit in 1u32..20, offset in 0u64..40, looks in 1u32..60,
    ) {
        on_both(|store| {
            put(store, (0..150).map(varied));
            for facets in some_filters() {
                let filter = SpanFilter { facets: facets.clone(), ..SpanFilter::default() };
                let all = store.list_spans(TenantId::DEFAULT, &filter, page(1_000, 0)).unwrap();
                assert!(all.total_is_exact && all.total == all.data.len() as u64 && all.next.is_none());
                let asked = Page { limit, offset, looks, ..Page::default() };
                let paged = through(asked, |page| store.list_spans(TenantId::DEFAULT, &filter, page).unwrap());
                let expected: Vec<_> = all.data.into_iter().skip(offset as usize).collect();
                assert_eq!(paged, expected, "{facets:?}");
                let filter = TraceFilter { facets, ..TraceFilter::default() };
                let list = |page| store.list_traces(TenantId::DEFAULT, &filter, page).unwrap();
                let all = list(page(1_000, 0)).data;
                let expected: Vec<_> = all.into_iter().skip(offset as usize).collect();
                assert_eq!(through(asked, list), expected);
            }
        });
    }
}

#[test]
fn a_cursor_keeps_its_place_while_spans_come_in() {
    on_both(|store| {
        put(store, (0..10).map(span));
        let list = |page| store.list_spans(TenantId::DEFAULT, &SpanFilter::default(), page).unwrap();
        let first = list(page(4, 0));
        put(store, (100..120).map(span));
        let second = list(Page { limit: 4, after: first.next, ..Page::default() });
        let starts: Vec<_> = second.data.iter().map(|span| span.start_time.micros()).collect();
        assert_eq!((starts, second.offset), (vec![5, 4, 3, 2], 4));
        let third = list(Page { limit: 4, after: second.next, ..Page::default() });
        assert_eq!((third.data.len(), third.next), (2, None));
    });
}

#[test]
fn a_page_without_texts_has_none_and_ends_where_enough_was_read() {
    on_both(|store| {
        put(store, (0..20).map(|at| SpanRecord { prompt: Some("x".repeat(10_000)), ..span(at) }));
        let list = |page| store.list_spans(TenantId::DEFAULT, &SpanFilter::default(), page).unwrap();
        let light = list(Page { texts: false, ..page(20, 0) }).data;
        assert!(light.len() == 20 && light.iter().all(|span| span.prompt.is_none() && span.response.is_none()));
        let enough = list(Page { enough_bytes: 35_000, ..page(20, 0) });
        assert_eq!((enough.data.len(), enough.next.map(|next| next.passed)), (4, Some(4)));
        let all = through(Page { enough_bytes: 35_000, limit: 20, ..Page::default() }, list);
        assert_eq!(all.len(), 20);
    });
}

#[test]
fn a_finding_that_an_action_brings_can_be_filtered_by() {
    on_both(|store| {
        let span = SpanRecord { session_id: Some("s".to_owned()), ..span(5) };
        put(store, [span.clone()]);
        let found = Finding::new("dangerous_command", Severity::High, 0.9, "actions", "made up");
        store.add_action(span.tenant_id, span.trace_id, None, action("rm", true), vec![found]).unwrap();
        let facets = Facets { finding_type: Some("dangerous_command".to_owned()), ..Facets::default() };
        let listed =
            store.list_spans(span.tenant_id, &SpanFilter { facets, ..SpanFilter::default() }, page(9, 0)).unwrap();
        assert_eq!(listed.data[0].span_id, span.span_id);
        let sessions = store.list_sessions(span.tenant_id, &SessionFilter::default(), page(9, 0)).unwrap();
        assert_eq!(sessions.data[0].security_score, Some(80));
    });
}

fn rows(path: &std::path::Path, sql: &str) -> i64 {
    Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn what_retention_and_deletion_take_leaves_no_sum_session_or_label() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    put(&store, (0..300).map(varied));
    put(&store, (0..50).map(|at| SpanRecord { tenant_id: tenant(2), ..varied(at) }));
    assert_eq!(rows(&path, "SELECT sum(calls) FROM usage"), 350);
    assert_eq!(
        rows(&path, "SELECT sum(calls) FROM sessions"),
        rows(&path, "SELECT count(*) FROM spans WHERE session > 0")
    );
    store.delete_tenant_data(tenant(2)).unwrap();
    wait_for("the erasure", || rows(&path, "SELECT count(*) FROM erasures") == 0);
    assert_eq!(rows(&path, "SELECT sum(calls) FROM usage"), 300);
    store.set_retention(Retention { max_age: Some(Duration::from_secs(1)), ..Retention::default() });
    wait_for("the retention", || rows(&path, "SELECT count(*) FROM spans") == 0);
    for table in ["usage", "sessions", "labels", "tallies", "slices"] {
        assert_eq!(rows(&path, &format!("SELECT count(*) FROM {table}")), 0, "{table}");
    }
    wait_for("the names", || rows(&path, "SELECT count(*) FROM names") == 0);
}

#[test]
fn rows_of_a_version_before_are_filled_in() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let filters = || some_filters().into_iter().filter(|facets| facets.session_id.is_none() && facets.client.is_none());
    let lists = |store: &Store| -> Vec<_> {
        let spans = |facets| {
            let filter = SpanFilter { facets, ..SpanFilter::default() };
            store.list_spans(TenantId::DEFAULT, &filter, page(1_000, 0)).unwrap().data
        };
        filters().map(spans).collect()
    };
    let store = open(&path);
    let before = |at| SpanRecord { session_id: None, client: None, ..varied(at) };
    put(&store, (0..200).map(before));
    let expected = lists(&store);
    let series = "SELECT group_concat(hour || ':' || agent || ':' || calls || ':' || tokens || ':' || cost_nano_usd) FROM \
                  (SELECT * FROM usage ORDER BY hour, agent, model)";
    let text = |sql: &str| -> String { Connection::open(&path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap() };
    let used = text(series);
    assert!(store.close(crate::support::PATIENCE));
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "UPDATE spans SET status = 0, streaming = 0, error = 0, agent = 0, client = NULL, cost_nano_usd = NULL,
             duration_us = 0, found = 0; DELETE FROM usage;",
        )
        .unwrap();
    let store = open(&path);
    wait_for("the filling", || rows(&path, "SELECT count(*) FROM spans WHERE client IS NULL") == 0);
    assert_eq!(lists(&store), expected);
    assert_eq!(text(series), used);
}

/// Of rows of a version before it is not known whether anything was found until they are filled in: they are read all the same.
#[test]
fn what_was_found_before_rows_were_filled_in_is_read() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    put(&store, (0..60).map(varied));
    let read = |after| {
        let batch = store.read_found_after(after, 1_000, usize::MAX).unwrap();
        let found = batch.spans.iter().filter(|span| !span.security_findings.is_empty());
        (found.map(|span| span.span_id).collect::<Vec<_>>(), batch.spans.len(), batch.clean, batch.lost)
    };
    let (found, given, clean, lost) = read(Cursor::START);
    let with = |range: std::ops::Range<i64>| range.filter(|at| !varied(*at).security_findings.is_empty()).count();
    assert_eq!((found.len(), given, clean, lost), (with(0..60), with(0..60), 60 - with(0..60) as u64, 0));
    let file = Connection::open(&path).unwrap();
    file.execute_batch("UPDATE spans SET client = NULL, found = 0 WHERE id <= 40; BEGIN IMMEDIATE").unwrap();
    // As the migration leaves them; nobody can fill them in while somebody else writes.
    let later = with(40..60);
    assert_eq!(read(Cursor::START), (found.clone(), 40 + later, 20 - later as u64, 0));
    assert_eq!(rows(&path, "SELECT count(*) FROM spans WHERE client IS NULL"), 40);
    drop(file);
    assert!(store.close(crate::support::PATIENCE));
    let store = open(&path);
    wait_for("the filling", || rows(&path, "SELECT count(*) FROM spans WHERE client IS NULL") == 0);
    let batch = store.read_found_after(Cursor::START, 1_000, usize::MAX).unwrap();
    assert_eq!(batch.spans.iter().map(|span| span.span_id).collect::<Vec<_>>(), found);
}

#[test]
fn an_upstream_is_found_by_its_name_also_in_rows_of_a_version_before() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let found = |store: &Store, name: &str| {
        let facets = Facets { upstream: Some(name.to_owned()), ..Facets::default() };
        let filter = SpanFilter { facets: facets.clone(), ..SpanFilter::default() };
        let spans = store.list_spans(TenantId::DEFAULT, &filter, page(1_000, 0)).unwrap();
        let filter = TraceFilter { facets, ..TraceFilter::default() };
        let traces = store.list_traces(TenantId::DEFAULT, &filter, page(1_000, 0)).unwrap();
        (spans.total, spans.data.iter().filter(|span| span.tags["upstream"] == name).count(), traces.data.len())
    };
    let store = open(&path);
    put(&store, (0..200).map(varied));
    let of = |number: i64| (0..200).filter(|at| (at * 7 + at / 5) % 4 == number).count();
    let before: Vec<_> = (1..4).map(|number| found(&store, &format!("upstream-{number}"))).collect();
    for (number, (total, spans, traces)) in (1..4).zip(&before) {
        assert_eq!((*total, *spans), (of(number) as u64, of(number)), "upstream-{number}");
        assert!(*traces > 0 && *traces <= *spans);
    }
    assert_eq!(found(&store, "upstream-9"), (0, 0, 0));
    assert!(store.close(crate::support::PATIENCE));
    let used = "SELECT sum(calls) FROM usage";
    let calls = rows(&path, used);
    Connection::open(&path).unwrap().execute_batch("UPDATE spans SET upstream = NULL").unwrap();
    let store = open(&path);
    wait_for("the filling", || rows(&path, "SELECT count(*) FROM spans WHERE upstream IS NULL") == 0);
    assert_eq!((1..4).map(|number| found(&store, &format!("upstream-{number}"))).collect::<Vec<_>>(), before);
    assert_eq!(rows(&path, used), calls, "what was counted already is not counted again");
}
