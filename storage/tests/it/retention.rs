//! What is kept and for how long, on both profiles, and two stores on one file.

use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use weir_config::vocab::{TenantId, Timestamp, TraceId};
use weir_storage::Retention;
use weir_storage::query::{SpanFilter, TraceFilter};
use weir_storage::record::{AgentAction, SpanRecord};
use weir_storage::reports::ReportType;
use weir_storage::tenants::NewTenant;
use weir_storage::{AuditLog as _, Registry as _, ReportBook as _, SpanLog as _};

use crate::ledger::{action, event};
use crate::support::{PATIENCE, on_both, open, page, put, span, tenant, total, wait_for};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn spans_past_their_age_are_removed_and_the_rest_is_untouched() {
    on_both(|store| {
        let now = Timestamp::now().micros();
        let day = DAY.as_micros() as i64;
        let trace_id = TraceId::fresh();
        let (old, new) = (now - 3 * day, now - day);
        // A trace that loses its first span goes on with the next one.
        let parts = [old, new, new + 5].map(|start| SpanRecord { trace_id, ..span(start) });
        put(store, (0..700).map(|at| span(old + at)));
        put(store, parts.clone());
        put(store, (0..20).map(|at| SpanRecord { tenant_id: tenant(2), ..span(new + at) }));
        store.add_action(TenantId::DEFAULT, trace_id, Some(parts[0].span_id), action("ls", true), vec![]).unwrap();
        assert_eq!(total(store, TenantId::DEFAULT), 703);

        store.set_retention(Retention { max_age: Some(2 * DAY), ..Retention::default() });
        store.sink().push(Box::new(span(now))).unwrap();
        wait_for("the removal", || total(store, TenantId::DEFAULT) == 3);
        let traces = store.list_traces(TenantId::DEFAULT, &TraceFilter::default(), page(10, 0)).unwrap();
        assert_eq!((traces.total, traces.data[1].trace_id), (2, trace_id));
        assert_eq!(traces.data[1].spans, [parts[1].clone(), parts[2].clone()]);
        let stats = store.stats(TenantId::DEFAULT).unwrap();
        assert_eq!((stats.total_spans, stats.total_traces, stats.total_tokens), (3, 2, 39));
        assert_eq!(stats.oldest_trace, Some(Timestamp::from_micros(new)));
        assert_eq!(store.actions_summary(TenantId::DEFAULT, &SpanFilter::default()).unwrap().total_actions, 0);
        assert_eq!(total(store, tenant(2)), 20, "nothing else is touched");
    });
}

#[test]
fn a_bound_in_bytes_removes_the_oldest_and_gives_the_room_back() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let text = |at: i64| Some((0..400).map(|word| format!("{:x} ", at * 7_919 + word * 104_729)).collect());
    put(&store, (0..20_000).map(|at| SpanRecord { prompt: text(at), ..span(at * 1_000) }));
    let conn = Connection::open(&path).unwrap();
    let bytes = || -> i64 {
        conn.query_row("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size", [], |row| row.get(0))
            .unwrap()
    };
    let before = bytes();
    let bound = before / 2;
    store.set_retention(Retention { max_bytes: Some(bound.unsigned_abs()), ..Retention::default() });
    // Free pages that stay for the next rows are on top of the bound.
    let spare = 1_024 * 8_192;
    store.sink().push(Box::new(span(1 << 40))).unwrap();
    wait_for("the file to shrink", || bytes() <= bound + spare);
    let kept = store.list_spans(TenantId::DEFAULT, &SpanFilter::default(), page(1, 0)).unwrap();
    assert!(kept.total < 12_000, "{} spans left of 20,000", kept.total);
    assert_eq!(kept.data[0].start_time.micros(), 1 << 40, "the newest stay");
    let oldest = store.list_spans(TenantId::DEFAULT, &SpanFilter::default(), page(1, kept.total - 1)).unwrap();
    let first = oldest.data[0].start_time.micros() / 1_000;
    assert_eq!(first, 20_000 - (kept.total as i64 - 1), "what went is what came first");
    assert!(store.close(PATIENCE));
    let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let sums: (i64, i64) = conn
        .query_row("SELECT sum(spans), (SELECT count(*) FROM spans) FROM tallies", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!(sums.0, sums.1);
}

/// What is kept comes close to the bound, however small that is beside the free room of the disk.
#[test]
fn no_more_is_removed_than_the_bound_asks_for() {
    const BOUND: i64 = 6_000_000;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    store.set_retention(Retention { max_bytes: Some(BOUND.unsigned_abs()), ..Retention::default() });
    let conn = Connection::open(&path).unwrap();
    let used = || -> i64 {
        let sql = "SELECT (page_count - freelist_count) * page_size \
            FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
        conn.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let (mut was_full, mut least) = (false, BOUND);
    for at in 0..1_500 {
        let text = (0..12).filter_map(|part| long_text(at * 12 + part)).collect();
        put(&store, [SpanRecord { prompt: Some(text), ..span(at * 1_000) }]);
        was_full |= store.space().removed_for_database > 0;
        if was_full {
            least = least.min(used());
        }
    }
    assert!(was_full, "{} bytes", used());
    assert!(least > BOUND / 10 * 8, "{least} of {BOUND} bytes are kept at the worst moment");
}

/// A prompt of a few kilobytes that does not compress much, different each time.
fn long_text(at: i64) -> Option<String> {
    Some((0..400).map(|word| format!("{:x} ", at * 7_919 + word * 104_729)).collect())
}

#[test]
fn the_tenant_that_holds_most_gives_first_and_the_audit_log_stays() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let of = |who: u8, at: i64| SpanRecord { tenant_id: tenant(who), prompt: long_text(at), ..span(at) };
    store.audit(event("key.create", Some(tenant(1)))).unwrap();
    // The modest one came first: by age alone it would lose all it has.
    put(&store, (0..50).map(|at| of(1, at)));
    let (half, full) = (4 << 20, 8 << 20);
    store.set_retention(Retention { max_bytes: Some(full), ..Retention::default() });
    put(&store, (100..8_000).map(|at| of(2, at)));
    assert_eq!(total(&store, tenant(1)), 50, "what filled the database was taken from who filled it");
    let first = total(&store, tenant(2));
    assert!((100..7_900).contains(&first), "{first} left");
    let space = store.space();
    assert_eq!((space.max_bytes, space.removed_for_database, space.removing), (Some(full), 7_900 - first, true));
    // What agents report counts, and goes with its span.
    let trace = store.list_traces(tenant(2), &TraceFilter::default(), page(1, 0)).unwrap().data.remove(0).trace_id;
    for at in 0..200 {
        let reported = AgentAction { arguments: long_text(at).map(|text| text.repeat(20)), ..action("ls", true) };
        store.add_action(tenant(2), trace, None, reported, vec![]).unwrap();
    }
    store.set_retention(Retention { max_bytes: Some(half), ..Retention::default() });
    put(&store, [of(2, 9_000)]);
    let used = || -> i64 {
        let sql = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, \
            pragma_page_size";
        Connection::open(&path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    };
    wait_for("the database to come within its bound", || used() <= half.cast_signed());
    assert_eq!(total(&store, tenant(1)), 50);
    assert_eq!(store.list_audit(None, page(10, 0)).unwrap().total, 1);
    assert!(store.close(PATIENCE));
    let conn = Connection::open(&path).unwrap();
    let sums: (i64, i64) = conn
        .query_row("SELECT sum(spans), (SELECT count(*) FROM spans) FROM tallies", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!(sums.0, sums.1);
}

/// A store whose first tenant has 50 spans, and that has room for them many times over.
fn with_a_modest_one(folder: &TempDir) -> weir_storage::Store {
    let store = open(&folder.path().join("service.db"));
    put(&store, (0..50).map(|at| SpanRecord { tenant_id: tenant(1), prompt: long_text(at), ..span(at) }));
    store.set_retention(Retention { max_bytes: Some(4 << 20), ..Retention::default() });
    store
}

#[test]
fn names_of_actions_count_for_who_reports_them() {
    let folder = TempDir::new().unwrap();
    let store = with_a_modest_one(&folder);
    let own = SpanRecord { tenant_id: tenant(2), ..span(1_000) };
    put(&store, [own.clone()]);
    let kept = || store.actions_summary(tenant(2), &SpanFilter::default()).unwrap().total_actions;
    for at in 0..900 {
        let name = format!("{at} {}", "z".repeat(4_000));
        if store.add_action(tenant(2), own.trace_id, None, action(&name, true), vec![]).unwrap().is_none() {
            break;
        }
    }
    wait_for("reports to go", || kept() < 900);
    assert_eq!(total(&store, tenant(1)), 50);
}

#[test]
fn audit_lines_of_one_tenant_cost_the_others_nothing() {
    let folder = TempDir::new().unwrap();
    let store = with_a_modest_one(&folder);
    put(&store, (0..100).map(|at| SpanRecord { tenant_id: tenant(2), ..span(at) }));
    let detail = std::collections::BTreeMap::from([("why".to_owned(), "w".repeat(100_000))]);
    for _ in 0..60 {
        let line = event("key.create", Some(tenant(2)));
        store.audit(weir_storage::audit::AuditEvent { detail: detail.clone(), ..line }).unwrap();
    }
    put(&store, (0..100).map(|at| SpanRecord { tenant_id: tenant(1), ..span(at) }));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(total(&store, tenant(1)), 150, "it holds less than half of its equal share");
}

#[test]
fn a_tenant_names_a_thousand_models_and_the_further_ones_stand_in_its_spans() {
    on_both(|store| {
        let of =
            |who: u8, at: i64| SpanRecord { tenant_id: tenant(who), model: Some(format!("model-{at}")), ..span(at) };
        let last = of(1, 1_199);
        put(store, (0..1_199).map(|at| of(1, at)).chain([last.clone(), of(2, 1_199)]));
        let by = |who: u8, model: &str| {
            let filter = SpanFilter { model: Some(model.to_owned()), ..SpanFilter::default() };
            store.list_spans(tenant(who), &filter, page(1, 0)).unwrap().total
        };
        assert_eq!([by(1, "model-0"), by(1, "model-999"), by(1, "model-1000"), by(1, "(other)")], [1, 1, 0, 200]);
        assert_eq!(by(2, "model-1199"), 1, "another tenant has its own thousand");
        assert_eq!(store.span(tenant(1), last.span_id).unwrap(), Some(last));
    });
}

#[test]
fn a_tenant_s_own_bound_takes_its_own_oldest() {
    on_both(|store| {
        let of = |who: u8, at: i64| SpanRecord { tenant_id: tenant(who), prompt: long_text(at), ..span(at) };
        put(store, (0..300).map(|at| of(1, at)));
        put(store, (0..30).map(|at| of(2, at)));
        store.set_retention(Retention { tenant_max_bytes: Some(200_000), ..Retention::default() });
        wait_for("the removal", || total(store, tenant(1)) < 200);
        wait_for("an end of it", || {
            let before = store.space().removed_for_tenant;
            std::thread::sleep(Duration::from_millis(600));
            store.space().removed_for_tenant == before
        });
        let kept = store.list_spans(tenant(1), &SpanFilter::default(), page(1_000, 0)).unwrap();
        assert!(kept.total > 20 && kept.data.iter().all(|span| span.start_time.micros() >= 300 - kept.total as i64));
        assert!(store.stats(tenant(1)).unwrap().storage_bytes <= 200_000);
        assert_eq!(total(store, tenant(2)), 30, "a tenant within its bound is left alone");
        assert_eq!(store.space().removed_for_tenant, 300 - kept.total);
    });
}

#[test]
fn what_a_deleted_tenant_said_stands_in_no_file_any_more() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let (agent, model) = ("agent-of-the-deleted", "model-of-the-deleted");
    let of = |who: u8, at: i64| SpanRecord {
        tenant_id: tenant(who),
        agent_id: (who == 1).then(|| agent.to_owned()),
        model: Some(if who == 1 { model } else { "gpt-4o" }.to_owned()),
        prompt: long_text(at * 1_000 + i64::from(who)),
        ..span(at)
    };
    // Between the rows of another tenant, some of them longer than a page.
    put(&store, (0..400).flat_map(|at| [of(1, at), of(2, at)]));
    let trace = store.list_traces(tenant(1), &TraceFilter::default(), page(1, 0)).unwrap().data.remove(0).trace_id;
    let reported = AgentAction { arguments: long_text(7).map(|text| text.repeat(20)), ..action(agent, true) };
    store.add_action(tenant(1), trace, None, reported, vec![]).unwrap();
    let conn = Connection::open(&path).unwrap();
    let bodies = |table: &str| -> Vec<Vec<u8>> {
        let sql = format!("SELECT body FROM {table} WHERE tenant = (SELECT id FROM tenants WHERE uuid = ?1)");
        let mut statement = conn.prepare(&sql).unwrap();
        let rows = statement.query_map([tenant(1).as_bytes().as_slice()], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let mut said: Vec<Vec<u8>> = bodies("spans").into_iter().chain(bodies("actions")).collect();
    assert_eq!(said.len(), 401);
    drop(conn);
    // A piece from the middle of each, short enough to lie within a page.
    said = said.into_iter().map(|body| body[body.len() / 2..][..24.min(body.len() / 2)].to_vec()).collect();
    said.extend([agent, model].map(|name| name.as_bytes().to_vec()));
    let found = || {
        let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let bytes: Vec<Vec<u8>> = files.map(|file| std::fs::read(file).unwrap()).collect();
        let stands = |piece: &&Vec<u8>| bytes.iter().any(|file| memchr::memmem::find(file, piece).is_some());
        said.iter().filter(stands).count()
    };
    assert!(found() > 300, "the pieces are found while they are there: {}", found());
    store.delete_tenant_data(tenant(1)).unwrap();
    wait_for("the last piece to go", || found() == 0);
    assert_eq!(total(&store, tenant(2)), 400);
    assert!(store.close(PATIENCE));
    assert_eq!(found(), 0);
}

#[test]
fn two_stores_on_one_file_do_not_harm_each_other() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let (a, b) = (open(&path), open(&path));
    std::thread::scope(|scope| {
        for (store, name) in [(&a, "a"), (&b, "b")] {
            scope.spawn(move || {
                for round in 0..40i64 {
                    let model = Some(format!("{name}-{}", round % 5));
                    put(store, (0..10).map(|at| SpanRecord { model: model.clone(), ..span(round * 100 + at) }));
                    store.audit(event(name, Some(tenant(round as u8 % 3)))).unwrap();
                }
            });
        }
    });
    assert_eq!((total(&a, TenantId::DEFAULT), total(&b, TenantId::DEFAULT)), (800, 800));
    for model in ["a-3", "b-3"] {
        let filter = SpanFilter { model: Some(model.to_owned()), ..SpanFilter::default() };
        assert_eq!(b.list_spans(TenantId::DEFAULT, &filter, page(100, 0)).unwrap().data.len(), 80);
    }
    let check = a.check_audit().unwrap();
    assert_eq!((check.intact, check.entries), (true, 80));
    assert!(a.close(PATIENCE));
    assert!(b.close(PATIENCE));
    let conn = Connection::open(&path).unwrap();
    let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}

#[test]
fn what_another_process_still_writes_of_a_deleted_tenant_stays_out() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let (old, new) = (open(&path), open(&path));
    let whose = tenant(1);
    let began = Timestamp::now();
    let of = |start_time| SpanRecord { tenant_id: whose, start_time, ..span(0) };
    // The old process has the tenant at hand when the new one deletes it.
    put(&old, [of(began), of(began)]);
    put(&new, [of(began), span(1)]);
    assert!(new.delete_tenant(whose, event("tenant.delete", Some(whose))).unwrap());
    put(&old, [of(began)]);
    assert_eq!(old.counters().dropped_tenant_deleted, 1);
    assert_eq!(old.tenant(whose).unwrap(), None, "it is not brought back");

    // The same UUID begins anew, with what came later alone, in the same place for both.
    put(&old, [of(Timestamp::now()), of(began)]);
    let asked = old.ask_report(true, whose, ReportType::Soc2, Timestamp::from_micros(0), began).unwrap().unwrap();
    assert_eq!((total(&old, whose), total(&new, whose)), (1, 1));
    assert_eq!(new.report(whose, asked.id).unwrap().map(|report| report.id), Some(asked.id));
    assert!(new.delete_tenant(whose, event("tenant.delete", Some(whose))).unwrap());
    let fresh = NewTenant { id: whose, name: "Anew".to_owned(), plan: None, config: serde_json::Map::new() };
    new.create_tenant(fresh, event("tenant.create", Some(whose))).unwrap();
    put(&old, [of(began)]);
    assert_eq!((old.counters().dropped_tenant_deleted, total(&new, whose)), (3, 0));
    assert!(old.close(PATIENCE) && new.close(PATIENCE));

    // Nor does a restart forget it.
    let again = open(&path);
    put(&again, [of(began), of(Timestamp::now())]);
    assert_eq!((again.counters().dropped_tenant_deleted, total(&again, whose)), (1, 1));
    let conn = Connection::open(&path).unwrap();
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    wait_for("the end of the erasure", || count("SELECT count(*) FROM erasures") == 0);
    assert_eq!(
        (count("SELECT count(*) FROM spans"), count("SELECT sum(spans) FROM tallies")),
        (2, 2),
        "none stays behind"
    );
}

#[test]
fn a_deletion_written_while_the_clock_was_ahead_keeps_nothing_out_that_begins_later() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    let now = || Timestamp::now().micros();
    let began = |start| SpanRecord { tenant_id: tenant(1), ..span(start) };
    let deleted_in = |seconds: i64| {
        store.delete_tenant_data(tenant(1)).unwrap();
        let sql = "UPDATE burials SET at_us = at_us + ?1";
        assert_eq!(Connection::open(&path).unwrap().execute(sql, [seconds * 1_000_000]).unwrap(), 1);
    };
    deleted_in(3_600);
    put(&store, [began(now())]);
    put(&store, [began(now()), began(now())]);
    assert_eq!(total(&store, tenant(1)), 2, "the first one began before the deletion was looked at");
    deleted_in(50);
    put(&store, [began(now())]);
    assert_eq!(total(&store, tenant(1)), 0, "a clock may be set by that much");
}
