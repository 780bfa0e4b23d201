//! Several gateways on the stores of the `production` profile, and what they do when one of the stores is away.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Map;
use tempfile::TempDir;
use weir_config::settings::Window;
use weir_config::vocab::{KeyId, Role, Timestamp};
use weir_storage::audit::AuditEvent;
use weir_storage::query::{Page, Place, SpanFilter, TraceFilter};
use weir_storage::record::SpanRecord;
use weir_storage::reports::SpanPlace;
use weir_storage::tenants::{KeyRecord, NewTenant};
use weir_storage::usage::{SeriesPoint, SeriesQuery, Split};
use weir_storage::{
    AuditLog as _, OpenError, Registry as _, ReportBook as _, SpanLog as _, SpendBook as _, SpendRow, Store,
};

use crate::journals::gateway;
use crate::ledger::{action, event};
use crate::stores::{Three, name, shared};
use crate::support::{PATIENCE, page, put, span, tenant, total, wait_for};

fn of(who: u8, start: i64) -> SpanRecord {
    SpanRecord { tenant_id: tenant(who), ..span(start) }
}

/// Gateways on the same databases, each with a journal of its own.
struct Gateways {
    stores: Vec<Store>,
    _folders: Vec<TempDir>,
}

impl Gateways {
    fn on(three: &Three, name: &str, many: usize) -> Self {
        let open = |_| {
            let folder = TempDir::new().unwrap();
            let options = gateway(&folder.path().join("journal.db"), three.named(name));
            (Store::open(options).unwrap(), folder)
        };
        let (stores, folders) = (0..many).map(open).unzip();
        Self { stores, _folders: folders }
    }
}

fn create(store: &Store, who: u8) {
    let new = NewTenant { id: tenant(who), name: format!("T{who}"), plan: None, config: Map::new() };
    store.create_tenant(new, event("tenant.create", Some(tenant(who)))).unwrap();
}

fn key(id: KeyId, who: u8) -> KeyRecord {
    KeyRecord {
        id,
        tenant_id: tenant(who),
        name: "k".to_owned(),
        key_prefix: "svc_01234567".to_owned(),
        role: Role::Viewer,
        created_at: Timestamp::from_micros(5),
        revoked_at: None,
        last_used_at: None,
    }
}

/// The smoke test of the gate: two gateways, one record, all three stores.
#[test]
fn two_gateways_have_one_record() {
    let gateways = Gateways::on(shared(), &name(), 2);
    let [a, b] = &gateways.stores[..] else { panic!("two") };
    create(a, 1);
    let id = KeyId::fresh();
    assert!(a.create_key(key(id, 1), [7; 32], event("key.create", Some(tenant(1)))).unwrap());
    let seen = b.identity_changes(0).unwrap();
    assert_eq!(seen.tenants, [tenant(1)], "polling alone tells the other one");
    assert_eq!(b.load_credentials(None).unwrap().keys.len(), 1);
    assert!(b.revoke_key(id, event("key.revoke", None)).unwrap());
    assert_eq!(a.identity_changes(seen.upto).unwrap().tenants, [tenant(1)]);
    assert_eq!(a.load_credentials(None).unwrap().keys, []);

    let (one, other, theirs) = (of(1, 5), of(1, 6), of(2, 7));
    put(a, [one.clone()]);
    put(b, [other.clone(), theirs]);
    wait_for("both have both", || total(a, tenant(1)) == 2 && total(b, tenant(1)) == 2);
    let listed = a.list_spans(tenant(1), &SpanFilter::default(), page(9, 0)).unwrap();
    assert_eq!((listed.data, listed.total_is_exact), (vec![other.clone(), one.clone()], true));
    assert_eq!(b.span(tenant(1), one.span_id).unwrap(), Some(one.clone()));
    assert_eq!(b.span(tenant(2), one.span_id).unwrap(), None, "nobody else's");
    // Both learn something of one span, and neither undoes the other's.
    a.add_action(tenant(1), one.trace_id, None, action("ls", true), vec![]).unwrap().unwrap();
    b.add_action(tenant(1), one.trace_id, None, action("rm", true), vec![]).unwrap().unwrap();
    assert_eq!(a.span(tenant(1), one.span_id).unwrap().unwrap().agent_actions.len(), 2);
    assert_eq!(total(a, tenant(1)), 2, "a version is no further span");
    assert!(b.delete_trace(tenant(1), one.trace_id, event("trace.delete", Some(tenant(1)))).unwrap());
    assert_eq!((a.span(tenant(1), one.span_id).unwrap(), total(a, tenant(1))), (None, 1));

    let check = a.check_audit().unwrap();
    assert_eq!((check.intact, check.entries), (true, 4), "two chains, verified together");
    for store in &gateways.stores {
        assert!(store.store_states().iter().all(|state| state.problem.is_none()));
        assert!(store.close(PATIENCE));
    }
}

fn spend(nano_usd: u64) -> SpendRow {
    let (tenant, agent) = (tenant(1), "agent".to_owned());
    SpendRow { tenant, agent, window: Window::Daily, period_start_s: 86_400, since_s: 86_400, spent_nano_usd: nano_usd }
}

#[test]
#[ignore = "starts three stores: .ci/full"]
fn what_gateways_spend_adds_up_once() {
    let gateways = Gateways::on(shared(), &name(), 2);
    let [a, b] = &gateways.stores[..] else { panic!("two") };
    let sum = |store: &Store| store.load_spend(86_500).unwrap().iter().map(|row| row.spent_nano_usd).sum::<u64>();
    assert_eq!((sum(a), sum(b)), (0, 0));
    a.save_spend(vec![spend(5)]).unwrap();
    a.save_spend(vec![spend(5)]).unwrap();
    let heard: Vec<u64> = b.spent_elsewhere(86_500).unwrap().iter().map(|row| row.spent_nano_usd).collect();
    assert_eq!(heard, [5]);
    assert_eq!(b.spent_elsewhere(86_500).unwrap(), [], "what was counted in is not again");
    // It has spent 3 itself, and counts 8.
    b.save_spend(vec![spend(8)]).unwrap();
    assert_eq!((sum(a), sum(b)), (8, 8));
    let heard: Vec<u64> = a.spent_elsewhere(86_500).unwrap().iter().map(|row| row.spent_nano_usd).collect();
    assert_eq!(heard, [] as [u64; 0], "`load_spend` has counted it in");
}

fn psql(name: &str, sql: &str) -> String {
    let port = shared().relational.port.to_string();
    let args = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-d", name, "-Atc", sql];
    String::from_utf8(Command::new("psql").args(args).output().unwrap().stdout).unwrap().trim().to_owned()
}

#[test]
#[ignore = "starts three stores: .ci/full"]
fn old_operations_of_the_ledger_are_drawn_together_and_the_sum_stays() {
    let (name, folder) = (name(), TempDir::new().unwrap());
    let open = || Store::open(gateway(&folder.path().join("journal.db"), shared().named(&name))).unwrap();
    let store = open();
    let now_s = Timestamp::now().micros() / 1_000_000;
    let row = |nano_usd| SpendRow { period_start_s: now_s, since_s: now_s, ..spend(nano_usd) };
    store.save_spend(vec![spend(3)]).unwrap();
    for more in 1..=5 {
        store.save_spend(vec![row(more * 10)]).unwrap();
    }
    assert!(store.close(PATIENCE));
    drop(store);
    let sums = "SELECT count(*), sum(nano_usd) FROM spend_ledger WHERE period_start_s > 86400";
    assert_eq!(psql(&name, sums), "5|50");
    psql(&name, "UPDATE spend_ledger SET at_us = at_us - 7200000000 WHERE nano_usd <> 0");
    let store = open();
    wait_for("they are drawn together", || psql(&name, sums) == "1|50");
    assert_eq!(psql(&name, "SELECT count(*) FROM spend_ledger"), "1", "a period that is over has none");
    store.save_spend(vec![row(57)]).unwrap();
    assert_eq!(psql(&name, sums), "2|57");
    assert!(store.close(PATIENCE));
}

#[test]
#[ignore = "starts three stores: .ci/full"]
fn a_migration_that_may_not_run_is_named() {
    let folder = TempDir::new().unwrap();
    let mut stores = shared().named(&name());
    stores.auto_migrate = false;
    let journal = folder.path().join("journal.db");
    let opened = |stores: &weir_storage::Stores| {
        // The journal is there: its own migrations are not what is asked about.
        Store::open(crate::support::options(crate::support::file(&journal))).unwrap().close(PATIENCE);
        Store::open(gateway(&journal, stores.clone()))
    };
    let error = opened(&stores).err().unwrap();
    assert!(error.is_lasting() && error.to_string().contains("weir migrate --config"), "{error}");
    let done = Store::migrate_stores(&stores).unwrap();
    assert_eq!((done.relational, done.analytics), (3, 1));
    assert_eq!(Store::migrate_stores(&stores).unwrap(), weir_storage::Migrated::default());
    assert!(opened(&stores).is_ok());
}

#[test]
fn a_store_that_does_not_answer_ends_the_start() {
    let folder = TempDir::new().unwrap();
    let url = |text: &str| weir_config::store_url::StoreUrl::parse(text).unwrap();
    let stores = weir_storage::Stores {
        analytics_url: url("http://127.0.0.1:1"),
        analytics_database: None,
        relational_url: url("postgres://someone:hunter2@127.0.0.1:1/weir"),
        cache_url: url("redis://127.0.0.1:1"),
        ca_file: None,
        auto_migrate: true,
        wait: Duration::from_millis(10),
    };
    let error = Store::open(gateway(&folder.path().join("journal.db"), stores)).err().unwrap();
    let text = error.to_string();
    assert!(matches!(error, OpenError::Stores { is_lasting: false, .. }), "{text}");
    assert!(text.contains("relational") && !text.contains("hunter2"), "{text}");
}

#[test]
#[ignore = "starts three stores: .ci/full"]
fn spans_wait_in_the_journal_while_the_analytics_store_is_away() {
    let three = Three::new();
    let gateways = Gateways::on(&three, &name(), 1);
    let store = &gateways.stores[0];
    put(store, (0..50).map(|at| of(1, at)));
    assert_eq!(total(store, tenant(1)), 50);
    three.analytics.kill();
    put(store, (50..120).map(|at| of(1, at)));
    let listed = store.list_spans(tenant(1), &SpanFilter::default(), page(5, 0)).unwrap();
    assert_eq!((listed.data[0].start_time.micros(), listed.total_is_exact), (119, false), "the journal answers");
    wait_for("it says so", || {
        store.store_states().iter().any(|state| state.name == "analytics" && state.problem.is_some())
    });
    let by: fn(&str) -> AuditEvent = |action| event(action, Some(tenant(1)));
    assert!(store.delete_trace(tenant(1), of(1, 1).trace_id, by("trace.delete")).is_err(), "refused with a reason");
    three.analytics.start();
    let started = Instant::now();
    wait_for("all are shipped", || store.backlog() == 0);
    eprintln!("drained in {:?}", started.elapsed());
    wait_for("the sums are whole", || {
        let stats = store.stats(tenant(1)).unwrap();
        (stats.total_spans, total(store, tenant(1))) == (120, 120)
    });
}

#[test]
#[ignore = "starts three stores: .ci/full"]
fn changes_are_refused_while_the_relational_store_is_away_and_spans_are_not() {
    let three = Three::new();
    let gateways = Gateways::on(&three, &name(), 1);
    let store = &gateways.stores[0];
    create(store, 1);
    three.relational.kill();
    let error = store.revoke_key(KeyId::fresh(), event("key.revoke", None)).err().unwrap();
    assert!(error.to_string().contains("relational"), "{error}");
    put(store, [of(1, 5)]);
    assert_eq!(total(store, tenant(1)), 1);
    three.relational.start();
    wait_for("it answers again", || store.tenant(tenant(1)).is_ok_and(|found| found.is_some()));
}

/// Answers that have no room for all there is are the same in both profiles: what is shown, what the rest comes to, and to which hour
/// a period is rounded.
#[test]
#[ignore = "starts three stores: .ci/full"]
fn a_series_is_cut_as_in_the_other_profile() {
    const HOUR: i64 = 3_600_000_000;
    let folder = TempDir::new().unwrap();
    let lite = Store::open(crate::support::options(crate::support::file(&folder.path().join("lite.db")))).unwrap();
    let gateways = Gateways::on(shared(), &name(), 1);
    let production = &gateways.stores[0];
    // Over five hours, in no order, of names and costs that are all different.
    let calls = (0..400_i64).map(|at| {
        let (hour, agent) = (at * at % 5, at % (3 + 40 * (at % 2)));
        let cost = (at * 7_919 % 1_000_003) as f64 * 1e-6;
        SpanRecord {
            agent_id: (agent > 0).then(|| format!("agent-{agent}")),
            session_id: Some(format!("session-{at}")),
            model: Some(format!("model-{}", at % 7)),
            estimated_cost_usd: Some(cost),
            status_code: Some(if at % 9 == 0 { 500 } else { 200 }),
            ..of(1, hour * HOUR + at)
        }
    });
    let calls: Vec<SpanRecord> = calls.collect();
    put(&lite, calls.clone());
    put(production, calls);
    for split in [Split::Tenant, Split::Agent, Split::Model, Split::Session, Split::Client] {
        for (bucket_hours, points_max) in [(1, 3), (1, 7), (1, 16), (1, 100), (1, 10_000), (24, 1), (24, 20)] {
            let asked = SeriesQuery {
                start: Timestamp::from_micros(HOUR / 2),
                // Within an hour, all of which counts.
                end: Timestamp::from_micros(3 * HOUR + HOUR / 2),
                bucket_hours,
                split,
                agent_id: None,
                session_id: None,
                model: None,
                points_max,
            };
            let (ours, theirs) =
                (production.series(tenant(1), &asked).unwrap(), lite.series(tenant(1), &asked).unwrap());
            let shape = |points: &[SeriesPoint]| {
                let of = |point: &SeriesPoint| {
                    let nano_usd = (point.total_cost_usd * 1e9).round() as i64;
                    let start = point.start_time.micros();
                    (start, point.name.clone(), point.calls, point.failed_calls, point.total_tokens, nano_usd)
                };
                points.iter().map(of).collect::<Vec<_>>()
            };
            let what = format!("{split:?} {bucket_hours} {points_max}");
            assert_eq!(shape(&ours.points), shape(&theirs.points), "{what}");
            assert_eq!(shape(&ours.others), shape(&theirs.others), "{what}");
            assert_eq!((ours.truncated, ours.partial), (theirs.truncated, theirs.partial), "{what}");
            assert!(ours.points.len() <= points_max as usize);
        }
    }
    assert!(lite.close(PATIENCE) && production.close(PATIENCE));
}

/// Gateways count rows for themselves, so three spans of one microsecond may have one number: wherever a page ends, none is passed over.
#[test]
#[ignore = "starts three stores: .ci/full"]
fn pages_lose_no_span_where_gateways_share_a_microsecond_and_a_number() {
    const EACH: usize = 100;
    let gateways = Gateways::on(shared(), &name(), 3);
    let mut all = BTreeSet::new();
    for store in &gateways.stores {
        let spans: Vec<SpanRecord> = (0..EACH).map(|_| of(1, 5)).collect();
        all.extend(spans.iter().map(|span| span.span_id.uuid()));
        put(store, spans);
    }
    assert_eq!(all.len(), 3 * EACH);
    let [a, b, _] = &gateways.stores[..] else { panic!("three") };
    wait_for("all are shipped", || total(a, tenant(1)) == 3 * EACH as u64);
    // None of these divides three: pages end between spans of one number. The other gateway goes on from any place.
    for (limit, whole) in [(1, false), (7, false), (100, true)] {
        let (mut spans, mut traces) = (Vec::new(), Vec::new());
        let mut asked = Page { whole, ..page(limit, 0) };
        for turn in 0.. {
            let store = [a, b][turn % 2];
            let found = store.list_spans(tenant(1), &SpanFilter::default(), asked).unwrap();
            spans.extend(found.data.iter().map(|span| span.span_id.uuid()));
            asked.after = found.next;
            if asked.after.is_none() {
                break;
            }
        }
        loop {
            let found = a.list_traces(tenant(1), &TraceFilter::default(), asked).unwrap();
            traces.extend(found.data.iter().flat_map(|trace| trace.spans.iter().map(|span| span.span_id.uuid())));
            asked.after = found.next;
            if asked.after.is_none() {
                break;
            }
        }
        assert_eq!((spans.len(), traces.len()), (3 * EACH, 3 * EACH), "{limit} at a time");
        assert_eq!((BTreeSet::from_iter(spans), BTreeSet::from_iter(traces)), (all.clone(), all.clone()));
    }
    // A report's slices of 200 end between two of one number, too.
    let (mut place, mut read) = (SpanPlace::before(Timestamp::from_micros(0)), Vec::new());
    let mut take = |span: SpanRecord| read.push(span.span_id.uuid());
    while a.read_period(tenant(1), &mut place, Timestamp::from_micros(100), Duration::ZERO, &mut take).unwrap() {}
    assert_eq!((read.len(), BTreeSet::from_iter(read)), (3 * EACH, all));
    // A cursor of the version before has no span in it; it goes on, as it did.
    let first = a.list_spans(tenant(1), &SpanFilter::default(), page(3, 0)).unwrap();
    let old = Page { after: first.next.map(|place| Place { span: None, ..place }), ..page(300, 0) };
    let rest = a.list_spans(tenant(1), &SpanFilter::default(), old).unwrap();
    assert_eq!(rest.data.len(), 3 * EACH - 3);
    for store in &gateways.stores {
        assert!(store.close(PATIENCE));
    }
}
