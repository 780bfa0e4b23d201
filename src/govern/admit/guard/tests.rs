//! Who is let in as whom: the order of credentials, roles, tenants, and what a connection may remember.

use weir_config::vocab::KeyId;

use super::*;
use crate::admit::directory::Whom;

const ADMIN: &[u8] = b"bootstrap-key-0123";
const VIEWER: &[u8] = b"svc_viewer";
const OPERATOR: &[u8] = b"svc_operator";
const ADMIN_KEY: &[u8] = b"svc_admin";
const TOKEN: &[u8] = b"svt_token";
const OWN: TenantId = TenantId::from_bytes([1; 16]);
const OTHER: TenantId = TenantId::from_bytes([2; 16]);
const NOW_S: u32 = 1_800_000_000;

fn holder(id: u8, role: Role) -> Holder {
    Holder::Key { id: KeyId::from_bytes([id; 16]), tenant_id: OWN, role }
}

fn guard_with(enabled: bool) -> Guard {
    let directory = Directory::new([
        (Digest::of(VIEWER), holder(1, Role::Viewer)),
        (Digest::of(OPERATOR), holder(2, Role::Operator)),
        (Digest::of(ADMIN_KEY), holder(3, Role::Admin)),
        (Digest::of(TOKEN), Holder::Token { tenant_id: OWN }),
    ]);
    let auth = Auth { enabled, admin_key: Some(SharedSecret::new(ADMIN)), token_key_file: None, ..Auth::default() };
    Guard::new(&auth, Arc::new(directory))
}

fn bearing(credential: &[u8]) -> Vec<u8> {
    [b"Bearer ", credential].concat()
}

fn ask(guard: &Guard, presented: Presented<'_>, needed: Role) -> Result<Caller, Denied> {
    guard.caller(&mut CallerCache::default(), &presented, needed, NOW_S)
}

/// Whose key it is.
fn owner(key: &[u8]) -> Caller {
    let known = [(VIEWER, 1, Role::Viewer), (OPERATOR, 2, Role::Operator), (ADMIN_KEY, 3, Role::Admin)];
    let (_, id, role) = known.into_iter().find(|(known, ..)| *known == key).unwrap();
    Caller { tenant_id: OWN, role, proof: Proof::Key(KeyId::from_bytes([id; 16])) }
}

#[test]
fn a_key_is_taken_from_each_of_the_three_fields() {
    let guard = guard_with(true);
    let caller = Caller { tenant_id: OWN, role: Role::Operator, proof: Proof::Key(KeyId::from_bytes([2; 16])) };
    let bearer = bearing(OPERATOR);
    for presented in [
        Presented { authorization: Some(&bearer), ..Presented::default() },
        Presented { x_api_key: Some(OPERATOR), ..Presented::default() },
        Presented { api_key: Some(OPERATOR), ..Presented::default() },
        // The provider's credential beside ours decides nothing.
        Presented { authorization: Some(b"Bearer sk-provider"), x_api_key: Some(OPERATOR), ..Presented::default() },
    ] {
        assert_eq!(ask(&guard, presented, Role::Operator), Ok(caller));
    }
}

#[test]
fn the_first_credential_that_is_ours_decides_valid_or_not() {
    let guard = guard_with(true);
    let (bad, good) = (bearing(b"svc_revoked"), bearing(OPERATOR));
    let shadowed = Presented { authorization: Some(&bad), x_api_key: Some(OPERATOR), ..Presented::default() };
    assert_eq!(ask(&guard, shadowed, Role::Viewer), Err(Denied::Unknown));
    let bad_token = Presented { token: Some(b"svt_reset"), authorization: Some(&good), ..Presented::default() };
    assert_eq!(ask(&guard, bad_token, Role::Viewer), Err(Denied::Unknown));
    let token = Presented { token: Some(TOKEN), authorization: Some(&bad), ..Presented::default() };
    assert_eq!(ask(&guard, token, Role::Operator).map(|caller| caller.proof), Ok(Proof::Token));
}

#[test]
fn beside_a_key_or_token_the_admin_key_neither_counts_nor_is_tried() {
    let guard = guard_with(true);
    let (right, wrong) = (bearing(ADMIN), bearing(&[b'x'; ADMIN.len()]));
    let tries = |presented: &Presented<'_>| guard.tries(&CallerCache::default(), presented);
    for guess in [&right, &wrong] {
        let alone = Presented { authorization: Some(guess), ..Presented::default() };
        assert_eq!(tries(&alone), 1);
        for (beside, proof) in [
            (Presented { x_api_key: Some(VIEWER), ..alone }, Ok(Proof::Key(KeyId::from_bytes([1; 16])))),
            (Presented { api_key: Some(VIEWER), ..alone }, Ok(Proof::Key(KeyId::from_bytes([1; 16])))),
            (Presented { x_api_key: Some(b"svc_revoked"), ..alone }, Err(Denied::Unknown)),
            (Presented { token: Some(TOKEN), ..alone }, Ok(Proof::Token)),
        ] {
            assert_eq!(ask(&guard, beside, Role::Viewer).map(|caller| caller.proof), proof, "right or wrong");
            assert_eq!(tries(&beside), 0, "nothing depends on it");
        }
    }
}

#[test]
fn each_field_that_may_hold_the_admin_key_is_a_try() {
    let guard = guard_with(true);
    let (bearer, known) = (bearing(&[b'x'; ADMIN.len()]), bearing(ADMIN));
    let (guess, short) = ([b'y'; ADMIN.len()], [b'y'; ADMIN.len() - 1]);
    let three = Presented {
        authorization: Some(&bearer),
        x_api_key: Some(&guess),
        api_key: Some(&guess),
        ..Presented::default()
    };
    assert_eq!(guard.tries(&CallerCache::default(), &three), 3);
    assert_eq!(guard.tries(&CallerCache::default(), &Presented { api_key: Some(&short), ..three }), 2);
    let mut memory = CallerCache::default();
    let admin = Presented { authorization: Some(&known), ..Presented::default() };
    assert!(guard.caller(&mut memory, &admin, Role::Admin, NOW_S).is_ok());
    assert_eq!(guard.tries(&memory, &admin), 0, "it is known on this connection");
    assert_eq!(guard.tries(&memory, &three), 3);
}

#[test]
fn keys_are_not_tokens_and_tokens_are_not_keys() {
    let guard = guard_with(true);
    assert_eq!(
        ask(&guard, Presented { token: Some(OPERATOR), ..Presented::default() }, Role::Viewer),
        Err(Denied::Unknown)
    );
    assert_eq!(
        ask(&guard, Presented { x_api_key: Some(TOKEN), ..Presented::default() }, Role::Viewer),
        Err(Denied::Unknown)
    );
    // Nor does the memory of the one let the other in.
    let mut memory = CallerCache::default();
    let as_key = Presented { x_api_key: Some(OPERATOR), ..Presented::default() };
    assert!(guard.caller(&mut memory, &as_key, Role::Viewer, NOW_S).is_ok());
    let as_token = Presented { token: Some(OPERATOR), ..Presented::default() };
    assert_eq!(guard.caller(&mut memory, &as_token, Role::Viewer, NOW_S), Err(Denied::Unknown));
}

#[test]
fn nothing_of_ours_means_nobody() {
    let guard = guard_with(true);
    for authorization in [&b"Bearer sk-provider"[..], b"Bearer ", b"Basic YTpi", b"bootstrap-key-0123", b""] {
        let presented = Presented { authorization: Some(authorization), ..Presented::default() };
        assert_eq!(ask(&guard, presented, Role::Viewer), Err(Denied::Unknown), "{}", authorization.escape_ascii());
    }
    assert_eq!(ask(&guard, Presented::default(), Role::Viewer), Err(Denied::Unknown));
}

#[test]
fn roles_include_the_lower_ones_only() {
    let guard = guard_with(true);
    for (key, role) in [(VIEWER, Role::Viewer), (OPERATOR, Role::Operator), (ADMIN_KEY, Role::Admin)] {
        for needed in Role::ALL {
            let asked = ask(&guard, Presented { x_api_key: Some(key), ..Presented::default() }, needed);
            let caller = owner(key);
            assert_eq!(caller.role, role);
            assert_eq!(asked, if role >= needed { Ok(caller) } else { Err(Denied::Role { caller, needed }) });
        }
    }
}

#[test]
fn only_administration_reaches_another_tenant() {
    let guard = guard_with(true);
    let other = OTHER.to_string();
    let named = |key, needed| {
        let presented = Presented { tenant: Some(other.as_bytes()), x_api_key: Some(key), ..Presented::default() };
        ask(&guard, presented, needed).map(|caller| caller.tenant_id)
    };
    for (key, needed) in
        [(VIEWER, Role::Viewer), (OPERATOR, Role::Operator), (ADMIN_KEY, Role::Viewer), (ADMIN_KEY, Role::Operator)]
    {
        assert_eq!(named(key, needed), Err(Denied::OtherTenant { caller: owner(key) }));
    }
    assert_eq!(named(ADMIN_KEY, Role::Admin), Ok(OTHER));
    for needed in Role::ALL {
        assert_eq!(named(ADMIN, needed), Ok(OTHER), "the bootstrap key");
    }
    let token = Presented { tenant: Some(other.as_bytes()), token: Some(TOKEN), ..Presented::default() };
    let caller = Caller { tenant_id: OWN, role: Role::Operator, proof: Proof::Token };
    assert_eq!(ask(&guard, token, Role::Operator), Err(Denied::OtherTenant { caller }));
}

#[test]
fn naming_one_s_own_tenant_or_none_changes_nothing() {
    let guard = guard_with(true);
    let own = OWN.to_string();
    for tenant in [None, Some(own.as_bytes()), Some(&b"not-a-uuid"[..])] {
        let presented = Presented { tenant, x_api_key: Some(VIEWER), ..Presented::default() };
        assert_eq!(ask(&guard, presented, Role::Viewer).map(|caller| caller.tenant_id), Ok(OWN));
    }
    let bootstrap = Presented { x_api_key: Some(ADMIN), ..Presented::default() };
    assert_eq!(ask(&guard, bootstrap, Role::Viewer).map(|caller| caller.tenant_id), Ok(TenantId::DEFAULT));
}

#[test]
fn what_a_connection_remembers_ends_with_a_change_of_the_directory() {
    let guard = guard_with(true);
    let mut memory = CallerCache::default();
    let presented = Presented { x_api_key: Some(OPERATOR), ..Presented::default() };
    let mut caller = || guard.caller(&mut memory, &presented, Role::Viewer, NOW_S);
    assert!(caller().is_ok() && caller().is_ok());
    guard.directory().shut_out(None, Whom::One(holder(2, Role::Operator).named())).unwrap();
    assert_eq!(caller(), Err(Denied::Unknown));
    guard.directory().insert(Digest::of(OPERATOR), holder(4, Role::Viewer));
    assert_eq!(caller().map(|caller| caller.proof), Ok(Proof::Key(KeyId::from_bytes([4; 16]))));
}

#[test]
fn being_let_in_counts_as_use() {
    let guard = guard_with(true);
    assert!(ask(&guard, Presented { x_api_key: Some(VIEWER), ..Presented::default() }, Role::Viewer).is_ok());
    assert_eq!(guard.directory().used_since(1), [(KeyId::from_bytes([1; 16]), NOW_S)]);
}

#[test]
fn switched_off_everybody_is_an_administrator_of_the_tenant_they_name() {
    let guard = guard_with(false);
    let other = OTHER.to_string();
    let by_header = Presented { tenant: Some(other.as_bytes()), x_api_key: Some(VIEWER), ..Presented::default() };
    assert_eq!(
        ask(&guard, by_header, Role::Admin),
        Ok(Caller { tenant_id: OTHER, role: Role::Admin, proof: Proof::Open })
    );
    let by_token = Presented { tenant: Some(other.as_bytes()), token: Some(TOKEN), ..Presented::default() };
    assert_eq!(ask(&guard, by_token, Role::Admin).map(|caller| caller.tenant_id), Ok(OWN));
    let bad_token = Presented { tenant: Some(other.as_bytes()), token: Some(b"svt_x"), ..Presented::default() };
    assert_eq!(ask(&guard, bad_token, Role::Admin).map(|caller| caller.tenant_id), Ok(OTHER));
}
