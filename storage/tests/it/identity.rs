//! Tenants and keys on both profiles: what is acknowledged stays, what is deleted is gone, and no credential is in the
//! file.

use serde_json::{Map, json};
use tempfile::TempDir;
use weir_config::settings::Window;
use weir_config::vocab::{KeyId, Role, TenantId, Timestamp};
use weir_storage::audit::AuditEvent;
use weir_storage::query::{Page, Paged, SpanFilter, TraceFilter};
use weir_storage::record::SpanRecord;
use weir_storage::reports::ReportType;
use weir_storage::tenants::{ActiveKey, KeyRecord, NewTenant, Provenance, SealedKey, TenantChange, TenantUpdate};
use weir_storage::{AuditLog as _, Registry as _, ReportBook as _, SpanLog as _, SpendBook as _};
use weir_storage::{ReadError, SpendRow, Store};

use crate::ledger::event;
use crate::support::{on_both, open, page, put, span, tenant, wait_for};

fn create(store: &Store, id: TenantId, name: &str) {
    let config = Map::from_iter([("region".to_owned(), json!("eu"))]);
    let new = NewTenant { id, name: name.to_owned(), plan: Some("pro".to_owned()), config };
    let made = store.create_tenant(new, event("tenant.create", Some(id))).unwrap();
    assert_eq!((made.id, made.name.as_str(), made.plan.as_deref()), (id, name, Some("pro")));
}

fn span_of(tenant_id: TenantId, start_us: i64) -> SpanRecord {
    SpanRecord { tenant_id, ..span(start_us) }
}

fn key(tenant_id: TenantId, name: &str) -> (KeyRecord, [u8; 32]) {
    let id = KeyId::fresh();
    let key = KeyRecord {
        id,
        tenant_id,
        name: name.to_owned(),
        key_prefix: "svc_01234567".to_owned(),
        role: Role::Operator,
        created_at: Timestamp::now(),
        revoked_at: None,
        last_used_at: None,
    };
    let mut sha256 = [9; 32];
    sha256[..16].copy_from_slice(id.as_bytes());
    (key, sha256)
}

fn add(store: &Store, (key, sha256): (KeyRecord, [u8; 32])) -> bool {
    let by = event("key.create", Some(key.tenant_id));
    store.create_key(key, sha256, by).unwrap()
}

fn sealed(tenant_id: TenantId, upstream: &str, sealed: &[u8], at_us: i64) -> SealedKey {
    let (created_at, changed_at) = (Timestamp::from_micros(5), Timestamp::from_micros(at_us));
    let upstream = upstream.to_owned();
    SealedKey { tenant_id, upstream, sealed: sealed.to_vec(), key_sha256: [3; 32], created_at, changed_at }
}

#[test]
fn a_provider_key_is_kept_replaced_removed_and_goes_with_its_tenant() {
    on_both(|store| {
        create(store, tenant(1), "First");
        create(store, tenant(2), "Second");
        let by = || event("provider_key.set", Some(tenant(1)));
        let set = |key: SealedKey| store.set_provider_key(key, by()).unwrap();
        assert!(set(sealed(tenant(1), "a", b"one", 5)) && set(sealed(tenant(1), "b", b"two", 6)));
        assert!(set(sealed(tenant(2), "a", b"three", 7)) && !set(sealed(tenant(3), "a", b"four", 8)));
        // The first one's time stays.
        assert!(set(SealedKey { created_at: Timestamp::from_micros(9), ..sealed(tenant(1), "a", b"later", 9) }));
        let kept = || {
            let mut kept = store.provider_keys(None).unwrap();
            kept.sort_by(|a, b| (a.tenant_id, &a.upstream).cmp(&(b.tenant_id, &b.upstream)));
            kept
        };
        let (first, second) = (sealed(tenant(1), "a", b"later", 9), sealed(tenant(1), "b", b"two", 6));
        assert_eq!(kept(), [first, second.clone(), sealed(tenant(2), "a", b"three", 7)]);
        assert!(store.remove_provider_key(tenant(1), "a", by()).unwrap());
        assert!(!store.remove_provider_key(tenant(1), "a", by()).unwrap());
        assert!(!store.remove_provider_key(tenant(3), "a", by()).unwrap());
        assert!(store.delete_tenant(tenant(2), event("tenant.delete", Some(tenant(2)))).unwrap());
        assert_eq!(kept(), [second]);
        let lines = store.list_audit(Some(tenant(1)), page(10, 0)).unwrap();
        assert_eq!(lines.total, 6, "its creation, four that were set in its name, one that was removed");
    });
}

#[test]
fn a_tenant_is_created_listed_changed_and_found() {
    on_both(|store| {
        create(store, tenant(1), "First");
        create(store, tenant(2), "Second");
        let listed = store.list_tenants(page(10, 0)).unwrap();
        assert_eq!(listed.total, 2);
        assert_eq!(listed.data.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["Second", "First"]);
        assert_eq!(store.list_tenants(page(1, 1)).unwrap().data[0].name, "First");
        let change = TenantChange { name: Some("Renamed".to_owned()), plan: Some(None), ..TenantChange::default() };
        let TenantUpdate::Made(changed) = store.update_tenant(tenant(1), change, event("tenant.update", None)).unwrap()
        else {
            panic!("it is there")
        };
        assert_eq!((changed.name.as_str(), changed.plan.as_deref()), ("Renamed", None));
        assert_eq!(changed.config["region"], "eu");
        assert!(changed.updated_at >= changed.created_at);
        assert_eq!(store.tenant(tenant(1)).unwrap(), Some(changed));
        assert_eq!(store.tenant(tenant(3)).unwrap(), None);
        assert_eq!(
            store.update_tenant(tenant(3), TenantChange::default(), event("x", None)).unwrap(),
            TenantUpdate::Unknown
        );
        assert_eq!(store.list_audit(None, page(10, 0)).unwrap().total, 3, "what did nothing leaves no line");
    });
}

/// All tenants as pages of this size list them, and whether each page says how many there are.
fn paged(store: &Store, limit: u32) -> Vec<TenantId> {
    let mut listed = Vec::new();
    loop {
        let next = store.list_tenants(page(limit, listed.len() as u64)).unwrap();
        if next.data.is_empty() {
            assert_eq!(next.total, listed.len() as u64);
            return listed;
        }
        listed.extend(next.data.iter().map(|tenant| tenant.id));
    }
}

/// A whole list in pages that go on behind one another, something happening between each two.
fn walked<T>(list: impl Fn(Page) -> Paged<T>, mut between: impl FnMut()) -> Vec<T> {
    let (mut items, mut at) = (Vec::new(), page(7, 0));
    loop {
        let Paged { data, next, .. } = list(at);
        items.extend(data);
        let Some(next) = next else { return items };
        at = Page { after: Some(next), ..at };
        between();
    }
}

#[test]
fn the_ledger_s_lists_go_on_behind_a_page_whatever_comes_and_goes() {
    on_both(|store| {
        let whose = tenant(1);
        (0..20).for_each(|at| create(store, tenant(100 + at), &format!("tenant {at}")));
        create(store, whose, "the newest");
        assert!((0..20).all(|at| add(store, key(whose, &format!("key {at}")))));
        let report = || {
            let (start, end) = (Timestamp::from_micros(0), Timestamp::from_micros(1));
            let id = store.ask_report(true, whose, ReportType::Soc2, start, end).unwrap().unwrap().id;
            store.complete_report(whose, id, Ok("{}".to_owned())).unwrap();
            id
        };
        let mut reports: Vec<_> = (0..20).map(|_| report()).collect();
        reports.reverse();
        let listed = walked(|page| store.list_reports(whose, page).unwrap(), || assert!(!report().is_nil()));
        assert_eq!(listed.iter().map(|report| report.id).collect::<Vec<_>>(), reports);

        let keys = walked(|page| store.list_keys(whose, page).unwrap(), || assert!(add(store, key(whose, "late"))));
        let names: Vec<String> = (0..20).rev().map(|at| format!("key {at}")).collect();
        assert_eq!(keys.into_iter().map(|key| key.name).collect::<Vec<_>>(), names);

        for of in [None, Some(whose)] {
            let all = store.list_audit(of, page(1_000, 0)).unwrap().data;
            let late = || assert!(store.audit(event("late", of)).unwrap() > 0);
            let lines = walked(|page| store.list_audit(of, page).unwrap(), late);
            assert!(all.len() > 20 && lines == all, "{} of {} lines", lines.len(), all.len());
        }

        // One that was listed goes, one that was not, and one comes.
        let mut round = 0;
        let listed = walked(
            |page| store.list_tenants(page).unwrap(),
            || {
                for gone in [119 - round, 100 + round] {
                    assert!(store.delete_tenant(tenant(gone), event("tenant.delete", None)).unwrap());
                }
                create(store, tenant(200 + round), "late");
                round += 1;
            },
        );
        let names: Vec<String> = (0..20).rev().map(|at| format!("tenant {at}")).collect();
        let listed: Vec<String> = listed.into_iter().map(|tenant| tenant.name).collect();
        let gone = |name: &String| ["tenant 0", "tenant 1"].contains(&name.as_str());
        let expected: Vec<String> =
            std::iter::once("the newest".to_owned()).chain(names.into_iter().filter(|name| !gone(name))).collect();
        assert_eq!(listed, expected);
    });
}

#[test]
fn pages_of_tenants_have_each_once_whichever_were_deleted() {
    on_both(|store| {
        let mut there: Vec<TenantId> = (0..1_400).map(|_| TenantId::fresh()).collect();
        put(store, there.iter().map(|id| span_of(*id, 1)));
        there.reverse();
        let mut delete = |which: &dyn Fn(usize) -> bool| {
            let gone: Vec<TenantId> = (0..there.len()).filter(|at| which(*at)).map(|at| there[at]).collect();
            for id in &gone {
                assert!(store.delete_tenant(*id, event("tenant.delete", Some(*id))).unwrap());
            }
            there.retain(|id| !gone.contains(id));
            for limit in [1_000, 333, 97] {
                assert_eq!(paged(store, limit), there, "pages of {limit}");
            }
        };
        delete(&|_| false);
        delete(&|at| at % 31 == 7);
        delete(&|at| (100..160).contains(&at));
        // One that comes back is the newest.
        let back = there[900];
        assert!(store.delete_tenant(back, event("tenant.delete", Some(back))).unwrap());
        put(store, [SpanRecord { start_time: Timestamp::now(), ..span_of(back, 1) }]);
        there.retain(|id| *id != back);
        there.insert(0, back);
        assert_eq!(paged(store, 500), there);
        assert_eq!(store.list_tenants(page(10, u64::MAX)).unwrap().data, []);
    });
}

#[test]
fn a_page_of_tenants_is_bounded_in_bytes() {
    on_both(|store| {
        for at in 0..10 {
            let config = Map::from_iter([("text".to_owned(), json!("x".repeat(1 << 20)))]);
            let new = NewTenant { id: tenant(at), name: "large".to_owned(), plan: None, config };
            store.create_tenant(new, event("tenant.create", None)).unwrap();
        }
        let refused = store.list_tenants(page(8, 0)).unwrap_err();
        assert_eq!(refused, ReadError::TooLarge { limit_bytes: 64 << 20, fit: 7 });
        let listed = store.list_tenants(Page { or_fewer: true, ..page(50, 0) }).unwrap();
        assert_eq!((listed.data.len(), listed.limit, listed.total), (7, 7, 10));
    });
}

#[test]
fn a_tenant_seen_on_traffic_is_listed_under_its_id() {
    on_both(|store| {
        put(store, [span_of(tenant(5), 1)]);
        let seen = store.tenant(tenant(5)).unwrap().unwrap();
        assert_eq!(seen.name, format!("tenant {}", tenant(5)));
        assert!(seen.created_at.micros() > 1_700_000_000_000_000);
        assert_eq!(store.token_nonce(tenant(5)).unwrap(), Some(None));
        assert_eq!(store.token_nonce(tenant(6)).unwrap(), None);
        assert_eq!(store.issue_token(tenant(6), 41, false, event("token.issue", None), None).unwrap(), None);
        assert_eq!(store.issue_token(tenant(7), 40, true, event("token.issue", None), None).unwrap(), Some(40));
        assert_eq!(store.issue_token(tenant(5), 41, false, event("token.issue", None), None).unwrap(), Some(41));
        assert_eq!(store.issue_token(tenant(5), 42, true, event("token.issue", None), None).unwrap(), Some(41));
        assert!(store.reset_token(tenant(5), 43, event("token.reset", None)).unwrap());
        assert!(!store.reset_token(tenant(6), 43, event("token.reset", None)).unwrap());
        assert_eq!(store.load_credentials(None).unwrap().tokens, [(tenant(5), 43), (tenant(7), 40)]);
    });
}

#[test]
fn keys_are_listed_revoked_once_and_loaded_while_they_hold() {
    on_both(|store| {
        create(store, tenant(1), "First");
        let (one, two) = (key(tenant(1), "one"), key(tenant(1), "two"));
        assert!(add(store, one.clone()) && add(store, two.clone()));
        assert!(!add(store, key(tenant(9), "nowhere")), "no such tenant");
        let listed = store.list_keys(tenant(1), page(10, 0)).unwrap();
        assert_eq!(listed.data.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["two", "one"]);
        assert_eq!(store.list_keys(tenant(2), page(10, 0)).unwrap().total, 0);
        assert!(store.revoke_key(one.0.id, event("key.revoke", None)).unwrap());
        assert!(!store.revoke_key(one.0.id, event("key.revoke", None)).unwrap());
        assert!(!store.revoke_key(KeyId::fresh(), event("key.revoke", None)).unwrap());
        let at = Timestamp::from_micros(1_800_000_000_000_000);
        store.touch_keys(vec![(two.0.id, at), (two.0.id, Timestamp::from_micros(5))]).unwrap();
        let listed = store.list_keys(tenant(1), page(10, 0)).unwrap().data;
        assert_eq!((listed[0].last_used_at, listed[0].revoked_at), (Some(at), None));
        assert!(listed[1].revoked_at.is_some());
        let active = ActiveKey { id: two.0.id, tenant_id: tenant(1), role: Role::Operator, sha256: two.1 };
        assert_eq!(store.load_credentials(None).unwrap().keys, [active]);
        let audit = store.list_audit(Some(tenant(1)), page(10, 0)).unwrap();
        assert_eq!(audit.data[0].action, "key.revoke");
    });
}

#[test]
fn deleting_a_tenant_leaves_nothing_of_it_and_everything_of_the_others() {
    on_both(|store| {
        for id in [1, 2] {
            create(store, tenant(id), "Some");
            assert!(add(store, key(tenant(id), "key")));
            assert_eq!(store.issue_token(tenant(id), 7, false, event("token.issue", None), None).unwrap(), Some(7));
            put(store, [span_of(tenant(id), 1)]);
        }
        let before = span_of(tenant(1), 2);
        assert!(store.delete_tenant(tenant(1), event("tenant.delete", Some(tenant(1)))).unwrap());
        assert!(!store.delete_tenant(tenant(1), event("tenant.delete", None)).unwrap());
        // What was on its way when the tenant was deleted does not bring it back.
        let written = store.counters().written;
        put(store, [before]);
        assert_eq!((store.counters().written - written, store.counters().dropped_tenant_deleted), (0, 1));
        assert_eq!(store.tenant(tenant(1)).unwrap(), None);
        assert_eq!(store.list_tenants(page(10, 0)).unwrap().total, 1);
        assert_eq!(store.list_keys(tenant(1), page(10, 0)).unwrap().total, 0);
        assert_eq!(store.list_spans(tenant(1), &SpanFilter::default(), page(10, 0)).unwrap().total, 0);
        let left = store.load_credentials(None).unwrap();
        assert_eq!((left.keys.len(), left.tokens.as_slice()), (1, &[(tenant(2), 7)][..]));
        assert_eq!(store.list_traces(tenant(2), &TraceFilter::default(), page(10, 0)).unwrap().total, 1);
        // Traffic that begins later makes a new tenant of the same id, with nothing of the old one.
        put(store, [SpanRecord { start_time: Timestamp::now(), ..span_of(tenant(1), 3) }]);
        assert_eq!(store.list_spans(tenant(1), &SpanFilter::default(), page(10, 0)).unwrap().total, 1);
        assert_eq!(store.token_nonce(tenant(1)).unwrap(), Some(None));
    });
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    create(&store, tenant(1), "First");
    let one = key(tenant(1), "one");
    assert!(add(&store, one.clone()));
    store.issue_token(tenant(1), 7, false, event("token.issue", None), None).unwrap();
    store.note_token_key([3; 32]).unwrap();
    // Opened beside the living store, as after a kill: nothing was flushed or closed.
    let again = open(&path);
    let loaded = again.load_credentials(None).unwrap();
    assert_eq!(loaded.keys.iter().map(|key| key.id).collect::<Vec<_>>(), [one.0.id]);
    assert_eq!((loaded.tokens, loaded.token_key_sha256), (vec![(tenant(1), 7)], Some([3; 32])));
    assert_eq!(again.tenant(tenant(1)).unwrap(), store.tenant(tenant(1)).unwrap());
}

#[test]
fn a_deletion_that_was_not_made_keeps_no_span_out() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let store = open(&path);
    create(&store, tenant(1), "First");
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'not now'); END";
    rusqlite::Connection::open(&path).unwrap().execute_batch(refuse).unwrap();
    assert!(store.delete_tenant(tenant(1), event("tenant.delete", Some(tenant(1)))).is_err());
    put(&store, [span_of(tenant(1), 1)]);
    assert_eq!(store.list_spans(tenant(1), &SpanFilter::default(), page(1, 0)).unwrap().total, 1);
    assert_eq!(store.counters().dropped_tenant_deleted, 0);
}

/// What an idle store's log still holds of a key could be opened with the key file beside it.
#[test]
fn a_provider_key_that_was_replaced_or_removed_stands_in_no_file_any_more() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder.path().join("service.db"));
    let [first, second] = [b"sealed-under-the-key-file-1", b"sealed-under-the-key-file-2"];
    let found = |sealed: &[u8]| {
        let mut files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        files.any(|file| memchr::memmem::find(&std::fs::read(file).unwrap(), sealed).is_some())
    };
    let other_work = || put(&store, (0..400).map(span));
    let set = |key| assert!(store.set_provider_key(key, event("key", None)).unwrap());
    create(&store, tenant(1), "One");
    // It stands far behind the log's beginning, where the few pages of the next change do not cover it.
    other_work();
    set(sealed(tenant(1), "a", first, 1));
    other_work();
    assert!(found(first));
    set(sealed(tenant(1), "a", second, 2));
    wait_for("the first key to go", || !found(first));
    other_work();
    set(sealed(tenant(1), "b", first, 3));
    other_work();
    assert!(found(first) && found(second));
    assert!(store.remove_provider_key(tenant(1), "b", event("key", None)).unwrap());
    wait_for("the removed key to go", || !found(first));
    assert!(found(second), "the other one is kept");
}

#[test]
fn a_report_asked_for_too_late_does_not_bring_a_deleted_tenant_back() {
    on_both(|store| {
        let at = Timestamp::from_micros;
        create(store, tenant(1), "First");
        let late = || store.ask_report(false, tenant(1), ReportType::Soc2, at(0), at(1)).unwrap();
        assert!(late().is_some());
        assert!(store.delete_tenant(tenant(1), event("tenant.delete", Some(tenant(1)))).unwrap());
        assert_eq!(late(), None);
        assert_eq!(store.list_tenants(page(10, 0)).unwrap().total, 0);
    });
}

#[test]
fn what_a_tenant_has_spent_since_before_its_deletion_is_not_written_down_and_what_came_later_is() {
    on_both(|store| {
        let row = |tenant, since_s, spent_nano_usd| SpendRow {
            tenant,
            agent: "a".to_owned(),
            window: Window::Daily,
            period_start_s: 1_000_000,
            since_s,
            spent_nano_usd,
        };
        let kept = || {
            let rows = store.load_spend(1_000_000).unwrap();
            rows.into_iter().map(|row| (row.tenant, row.spent_nano_usd)).collect::<Vec<_>>()
        };
        let before_s = Timestamp::now().micros() / 1_000_000;
        let save =
            |since_s, spent| store.save_spend(vec![row(tenant(1), since_s, spent), row(tenant(2), 0, 5)]).unwrap();
        assert_eq!(save(before_s, 7), []);
        assert_eq!(kept(), [(tenant(1), 7), (tenant(2), 5)], "a budget needs no record");
        create(store, tenant(1), "First");
        assert!(store.delete_tenant(tenant(1), event("tenant.delete", Some(tenant(1)))).unwrap());
        let (after_s, left_out) = (Timestamp::now().micros() / 1_000_000 + 1, save(before_s, 8));
        assert_eq!(left_out.iter().map(|(tenant, _)| *tenant).collect::<Vec<_>>(), [tenant(1)]);
        assert!((before_s..after_s).contains(&left_out[0].1));
        assert_eq!(kept(), [(tenant(2), 5)]);
        assert_eq!(save(after_s, 2), [], "it has begun anew, with a budget and no record");
        assert_eq!(kept(), [(tenant(1), 2), (tenant(2), 5)]);
        // Whatever the clock says at a restart: what is there was written since the deletion.
        let restored = store.load_spend(1_000_000).unwrap();
        assert_eq!(store.save_spend(restored).unwrap(), []);
        create(store, tenant(1), "First");
        assert_eq!(save(before_s, 8).len(), 1, "who drains still counts what the former one has spent");
        assert_eq!(kept(), [(tenant(1), 2), (tenant(2), 5)]);
    });
}

#[test]
fn whoever_is_shown_a_token_again_and_again_is_written_down_once() {
    on_both(|store| {
        create(store, tenant(1), "First");
        let show = |actor: &str| {
            let by = |action| AuditEvent { actor: actor.to_owned(), ..event(action, Some(tenant(1))) };
            store.issue_token(tenant(1), 7, false, by("token.issue"), Some(by("token.show"))).unwrap();
        };
        let shown = || {
            let lines = store.list_audit(Some(tenant(1)), page(100, 0)).unwrap().data;
            lines.into_iter().filter(|line| line.action == "token.show").map(|line| line.actor).collect::<Vec<_>>()
        };
        show("a");
        assert_eq!(shown(), [""; 0], "the first time it is issued");
        for _ in 0..5 {
            ["a", "b"].into_iter().for_each(show);
        }
        assert_eq!(shown(), ["b", "a"]);
        store.reset_token(tenant(1), 9, event("token.reset", Some(tenant(1)))).unwrap();
        ["a", "a"].into_iter().for_each(show);
        assert_eq!(shown(), ["a", "b", "a"], "another token");
    });
}

#[test]
fn credentials_are_told_by_who_made_or_saw_them() {
    on_both(|store| {
        let by = |actor: &str, action: &str, target: String| AuditEvent {
            actor: actor.to_owned(),
            target: Some(target),
            ..event(action, Some(tenant(1)))
        };
        create(store, tenant(1), "First");
        create(store, tenant(2), "Second");
        let made: Vec<_> = [("anonymous", "open"), ("anonymous", "revoked"), ("bootstrap", "known")]
            .into_iter()
            .map(|(actor, name)| {
                let (record, sha256) = key(tenant(1), name);
                let event = by(actor, "key.create", record.id.to_string());
                assert!(store.create_key(record.clone(), sha256, event).unwrap());
                record
            })
            .collect();
        store.revoke_key(made[1].id, event("key.revoke", None)).unwrap();
        for id in [1, 2] {
            let issued = by("bootstrap", "token.issue", tenant(id).to_string());
            store.issue_token(tenant(id), 7, false, issued.clone(), None).unwrap();
            let shown = by("anonymous", "token.show", tenant(id).to_string());
            store.issue_token(tenant(id), 8, false, issued, Some(shown)).unwrap();
        }
        let audit = store.list_audit(Some(tenant(1)), page(2, 0)).unwrap().data;
        assert_eq!((audit[0].action.as_str(), audit[0].actor.as_str()), ("token.show", "anonymous"));
        store.reset_token(tenant(2), 9, by("bootstrap", "token.reset", tenant(2).to_string())).unwrap();
        let known = store.credentials_known_to("anonymous").unwrap();
        assert_eq!(known, Provenance { keys: vec![made[0].clone()], tokens: vec![tenant(1)] });
        assert_eq!(store.credentials_known_to("nobody").unwrap(), Provenance::default());
    });
}
