//! The contract of [`Registry`], and of the audit log with it.

use serde_json::{Map, Value};
use weir_config::vocab::{KeyId, Role, TenantId, Timestamp};
use weir_storage::Registry;
use weir_storage::audit::AuditEvent;
use weir_storage::tenants::{KeyRecord, NewTenant, TenantChange, TenantUpdate};

use super::checks;
use crate::ledger::event;
use crate::support::{page, tenant};

checks! { dyn Registry:
    tenants_come_change_and_go,
    keys_let_in_until_they_are_revoked,
    changes_of_identities_are_told_by_tenant_to_who_follows_them,
    a_token_is_issued_once_and_replaced,
    every_change_is_in_the_audit_log_by_the_same_commit,
}

fn create(registry: &dyn Registry, id: TenantId, name: &str) {
    let new = NewTenant { id, name: name.to_owned(), plan: None, config: Map::new() };
    assert_eq!(registry.create_tenant(new, event("tenant.create", Some(id))).unwrap().name, name);
}

fn key(id: KeyId, tenant_id: TenantId) -> KeyRecord {
    KeyRecord {
        id,
        tenant_id,
        name: "k".to_owned(),
        key_prefix: "svc_01234567".to_owned(),
        role: Role::Viewer,
        created_at: Timestamp::from_micros(5),
        revoked_at: None,
        last_used_at: None,
    }
}

fn tenants_come_change_and_go(registry: &dyn Registry) {
    create(registry, tenant(1), "One");
    create(registry, tenant(2), "Two");
    let listed = registry.list_tenants(page(9, 0)).unwrap();
    assert_eq!((listed.data.iter().map(|one| one.name.as_str()).collect(), listed.total), (vec!["Two", "One"], 2));
    let change = TenantChange { plan: Some(Some("gold".to_owned())), ..TenantChange::default() };
    let by = |action| event(action, Some(tenant(1)));
    let TenantUpdate::Made(changed) = registry.update_tenant(tenant(1), change.clone(), by("tenant.update")).unwrap()
    else {
        panic!("it is there")
    };
    assert_eq!((changed.name.as_str(), changed.plan.as_deref()), ("One", Some("gold")));
    assert_eq!(registry.tenant(tenant(1)).unwrap(), Some(changed));
    assert_eq!(registry.update_tenant(tenant(9), change, by("tenant.update")).unwrap(), TenantUpdate::Unknown);
    let lines = registry.identity_changes(u64::MAX).unwrap().upto;
    let outdated = TenantChange {
        config: Some(Map::new()),
        based_on: Some(Map::from_iter([("other".to_owned(), Value::Null)])),
        ..TenantChange::default()
    };
    assert_eq!(registry.update_tenant(tenant(1), outdated, by("tenant.update")).unwrap(), TenantUpdate::Outdated);
    assert_eq!(registry.identity_changes(u64::MAX).unwrap().upto, lines, "what was not changed is in no line");
    assert!(registry.delete_tenant(tenant(1), by("tenant.delete")).unwrap());
    assert!(!registry.delete_tenant(tenant(1), by("tenant.delete")).unwrap());
    assert_eq!(registry.tenant(tenant(1)).unwrap(), None);
    assert_eq!(registry.list_tenants(page(9, 0)).unwrap().total, 1);
}

fn keys_let_in_until_they_are_revoked(registry: &dyn Registry) {
    create(registry, tenant(1), "One");
    let (one, two) = (KeyId::fresh(), KeyId::fresh());
    let put = |id, whose, digest| registry.create_key(key(id, whose), [digest; 32], event("key.create", Some(whose)));
    assert_eq!((put(one, tenant(1), 1), put(two, tenant(1), 2)), (Ok(true), Ok(true)));
    assert_eq!(put(KeyId::fresh(), tenant(9), 3), Ok(false), "nobody's");
    assert!(put(KeyId::fresh(), tenant(1), 1).is_err(), "a digest is one key's");
    registry.touch_keys(vec![(one, Timestamp::from_micros(9)), (one, Timestamp::from_micros(7))]).unwrap();
    assert!(registry.revoke_key(two, event("key.revoke", None)).unwrap());
    assert!(!registry.revoke_key(two, event("key.revoke", None)).unwrap());
    let credentials = registry.load_credentials(None).unwrap();
    assert_eq!(credentials.keys.iter().map(|key| (key.id, key.sha256)).collect::<Vec<_>>(), [(one, [1; 32])]);
    let listed = registry.list_keys(tenant(1), page(9, 0)).unwrap();
    assert_eq!(
        listed.data.iter().map(|key| (key.id, key.revoked_at.is_some())).collect::<Vec<_>>(),
        [(two, true), (one, false)]
    );
    assert_eq!(listed.data[1].last_used_at, Some(Timestamp::from_micros(9)));
    registry.delete_tenant(tenant(1), event("tenant.delete", Some(tenant(1)))).unwrap();
    assert_eq!(registry.load_credentials(None).unwrap().keys, []);
}

fn changes_of_identities_are_told_by_tenant_to_who_follows_them(registry: &dyn Registry) {
    create(registry, tenant(1), "One");
    create(registry, tenant(2), "Two");
    let begun = registry.identity_changes(u64::MAX).unwrap();
    assert_eq!((begun.upto, begun.tenants.len()), (2, 0));
    assert_eq!(registry.identity_changes(2).unwrap(), begun, "nothing has happened since");
    registry.audit(AuditEvent { actor: "me".to_owned(), ..event("config.reload", Some(tenant(2))) }).unwrap();
    assert_eq!(registry.identity_changes(2).unwrap().tenants, [], "no identity was changed");
    let id = KeyId::fresh();
    registry.create_key(key(id, tenant(1)), [4; 32], event("key.create", Some(tenant(1)))).unwrap();
    registry.revoke_key(id, event("key.revoke", None)).unwrap();
    registry.issue_token(tenant(2), 5, false, event("token.issue", Some(tenant(2))), None).unwrap();
    let since = registry.identity_changes(3).unwrap();
    assert_eq!((since.upto, since.tenants.len()), (6, 2));
    assert!(since.tenants.contains(&tenant(1)) && since.tenants.contains(&tenant(2)));
    let of_two = registry.load_credentials(Some(tenant(2))).unwrap();
    assert_eq!((of_two.keys.len(), of_two.tokens), (0, vec![(tenant(2), 5)]));
    assert_eq!(registry.load_credentials(Some(tenant(9))).unwrap().tokens, []);
    assert_eq!(registry.provider_keys(Some(tenant(1))).unwrap(), []);
}

fn a_token_is_issued_once_and_replaced(registry: &dyn Registry) {
    create(registry, tenant(1), "One");
    let say = |action: &str| event(action, Some(tenant(1)));
    let issue = |fresh| registry.issue_token(tenant(1), fresh, false, say("token.issue"), None).unwrap();
    assert_eq!(registry.token_nonce(tenant(1)).unwrap(), Some(None));
    assert_eq!((issue(7), issue(8)), (Some(7), Some(7)));
    assert!(registry.reset_token(tenant(1), 9, say("token.reset")).unwrap());
    assert_eq!((issue(8), registry.token_nonce(tenant(1)).unwrap()), (Some(9), Some(Some(9))));
    assert_eq!(registry.issue_token(tenant(5), 1, false, say("token.issue"), None).unwrap(), None);
    assert_eq!(
        registry.issue_token(tenant(5), 1, true, say("token.issue"), None).unwrap(),
        Some(1),
        "it begins with it"
    );
    assert!(!registry.reset_token(tenant(6), 1, say("token.reset")).unwrap());
    registry.note_token_key([3; 32]).unwrap();
    let credentials = registry.load_credentials(None).unwrap();
    assert_eq!((credentials.tokens.len(), credentials.token_key_sha256), (2, Some([3; 32])));
}

fn every_change_is_in_the_audit_log_by_the_same_commit(registry: &dyn Registry) {
    create(registry, tenant(1), "One");
    assert!(
        registry
            .create_tenant(
                NewTenant { id: tenant(1), name: "Again".to_owned(), plan: None, config: Map::new() },
                event("tenant.create", None)
            )
            .is_err()
    );
    registry.reset_token(tenant(9), 1, event("token.reset", None)).unwrap();
    assert_eq!(registry.audit(AuditEvent { actor: "me".to_owned(), ..event("config.reload", None) }).unwrap(), 2);
    let all = registry.list_audit(None, page(9, 0)).unwrap();
    assert_eq!(
        all.data.iter().map(|line| line.action.as_str()).collect::<Vec<_>>(),
        ["config.reload", "tenant.create"]
    );
    assert_eq!(registry.list_audit(Some(tenant(1)), page(9, 0)).unwrap().total, 1);
    for check in [registry.check_audit(), registry.check_audit_since(&all.data), registry.check_audit_aside(&[])] {
        let check = check.unwrap();
        assert_eq!((check.intact, check.entries, check.head.as_str()), (true, 2, all.data[0].hash.as_str()));
    }
}
