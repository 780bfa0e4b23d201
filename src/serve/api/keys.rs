//! `/api/v1/auth/keys`: API keys. A key's text is in the answer that creates it and nowhere else.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weir_config::vocab::{KeyId, Role, TenantId, Timestamp};
use weir_storage::query::{Page, Paged};
use weir_storage::tenants::KeyRecord;

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::listed::List;
use super::route::Answer;
use super::state::{Api, created, denied, ok};
use crate::admit::access::Access;
use crate::exchange::Proof;
use crate::identity::Identities;

/// Longest name of a tenant or key.
pub(super) const NAME_CHARACTERS_MAX: usize = 200;

/// What [`usable_name`] accepts, as a pattern of JSON Schema: no control character, and something besides blanks.
pub(super) const NAME_PATTERN: &str = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$";

/// What `POST /api/v1/auth/keys` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    /// The tenant the key is bound to.
    tenant_id: TenantId,
    /// For people.
    #[schemars(length(min = 1, max = 200), extend("pattern" = NAME_PATTERN))]
    name: String,
    /// What the key allows.
    role: Role,
    /// What it may use within what its tenant may, and how much: `allowed_models`, `allowed_upstreams`, `rate_limit`, `budgets`.
    #[serde(default)]
    access: Option<Map<String, Value>>,
}

/// Who the caller is.
#[derive(Serialize, JsonSchema)]
pub(super) struct Current {
    /// The tenant whose data the caller sees.
    tenant_id: TenantId,
    /// What the caller may do; `admin` while authentication is off.
    role: Role,
    /// Whether authentication is on.
    authentication: bool,
    /// The key the caller presented; null for the administrator's key, for a tenant's token, and while authentication is off.
    key_id: Option<KeyId>,
}

/// The caller as it was let in.
pub(super) async fn current(_api: Api, ask: Ask) -> Answer {
    let caller = ask.caller()?;
    let key_id = match caller.proof {
        Proof::Key(id) => Some(id),
        Proof::Open | Proof::Bootstrap | Proof::Token => None,
    };
    let authentication = caller.proof != Proof::Open;
    ok(&Current { tenant_id: caller.tenant_id, role: caller.role, authentication, key_id })
}

/// What `PUT /api/v1/auth/keys/{id}` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Update {
    /// What the key may use from now on, whole, as in `POST`; null: what its tenant may.
    #[schemars(with = "Option<Map<String, Value>>", required)]
    access: Value,
}

/// What a key may use from now on.
#[derive(Serialize, JsonSchema)]
pub(super) struct Updated {
    /// The key.
    id: KeyId,
    /// The tenant it is bound to.
    tenant_id: TenantId,
    /// What it may use within what its tenant may, and how much.
    access: Option<Map<String, Value>>,
}

/// A key, as lists show it.
#[derive(Serialize, JsonSchema)]
pub(super) struct Listed {
    #[serde(flatten)]
    key: KeyRecord,
    /// What it may use within what its tenant may, and how much; left out: all of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<Value>,
}

/// A key that has just been made.
#[derive(Serialize, JsonSchema)]
pub(super) struct Created<'a> {
    /// Identifies it.
    id: KeyId,
    /// The key itself, shown this once.
    key: &'a str,
    /// Its first 12 characters.
    key_prefix: &'a str,
    /// The tenant it is bound to.
    tenant_id: TenantId,
    /// Its name.
    name: &'a str,
    /// What it allows.
    role: Role,
    /// When it was made.
    created_at: Timestamp,
    /// What it may use within what its tenant may, and how much; left out: all of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<Map<String, Value>>,
}

pub(super) async fn create(api: Api, ask: Ask) -> Answer {
    let (caller, body) = (ask.caller()?, ask.json::<Create>()?);
    let name = usable_name("name", body.name)?;
    body.access.as_ref().map_or(Ok(()), Access::check_key).map_err(ErrorAnswer::invalid)?;
    api.change(move |identities| {
        let of = (body.tenant_id, name, body.role);
        let made = identities.create_limited_key(&caller, of, body.access.clone())?;
        let made = made.ok_or_else(|| ErrorAnswer::not_found("`tenant_id`: no tenant with this id"))?;
        let key = std::str::from_utf8(made.plaintext.expose()).map_err(|_| ErrorAnswer::internal())?;
        let record = &made.record;
        created(&Created {
            id: record.id,
            key,
            key_prefix: &record.key_prefix,
            tenant_id: record.tenant_id,
            name: &record.name,
            role: record.role,
            created_at: record.created_at,
            access: body.access,
        })
    })
    .await
}

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    // A caller that may list keys administers those of all tenants.
    let tenant = ask.query.id("tenant_id")?.map_or_else(|| ask.tenant(), Ok)?;
    let page = ask.query.page()?;
    let list = List::new(&ask, "keys", &tenant, &[])?;
    if list.comes_as_lines() {
        let identities = api.identities()?;
        return list.read_lines(&api, move |_, page| listed(&identities, tenant, page)).await;
    }
    api.change(move |identities| ok(&listed(identities, tenant, page)?)).await
}

/// A page of a tenant's keys.
fn listed(identities: &Identities, tenant: TenantId, page: Page) -> Result<Paged<Listed>, ErrorAnswer> {
    let keys = identities.list_keys(tenant, page)?;
    let said = identities.key_accesses(tenant)?;
    let access = |id: KeyId| {
        let name = id.to_string();
        said.iter().find(|(key, _)| key.eq_ignore_ascii_case(&name)).map(|(_, access)| access.clone())
    };
    let data = keys.data.into_iter().map(|key| Listed { access: access(key.id), key }).collect();
    let Paged { total, limit, offset, total_is_exact, next, unshipped, .. } = keys;
    Ok(Paged { data, total, limit, offset, total_is_exact, next, unshipped })
}

pub(super) async fn update(api: Api, ask: Ask) -> Answer {
    let (caller, id, body) = (ask.caller()?, ask.id::<KeyId>("id")?, ask.json::<Update>()?);
    let access = match body.access {
        Value::Null => None,
        Value::Object(access) => Some(access),
        _ => return Err(ErrorAnswer::invalid("`access` has to be an object or null")),
    };
    access.as_ref().map_or(Ok(()), Access::check_key).map_err(ErrorAnswer::invalid)?;
    api.change(move |identities| {
        let unknown = || ErrorAnswer::not_found("no key with this id that is not revoked");
        let tenant_id = identities.set_key_access(&caller, id, access.clone())?.ok_or_else(unknown)?;
        ok(&Updated { id, tenant_id, access })
    })
    .await
}

pub(super) async fn revoke(api: Api, ask: Ask) -> Answer {
    let (caller, id) = (ask.caller()?, ask.id::<KeyId>("id")?);
    let unknown = || ErrorAnswer::not_found("no key with this id that is not revoked already");
    api.end(move |identities| denied(identities.revoke_key(&caller, id)?.ok_or_else(unknown)?)).await
}

/// A name as it is kept: without blanks around it.
pub(super) fn usable_name(field: &str, text: String) -> Result<String, ErrorAnswer> {
    let name = text.trim();
    let fits = !name.is_empty() && name.chars().count() <= NAME_CHARACTERS_MAX && !name.chars().any(char::is_control);
    let refused = || {
        ErrorAnswer::invalid(format!(
            "`{field}` must be 1 to {NAME_CHARACTERS_MAX} characters besides blanks around it, none of them a control \
             character"
        ))
    };
    fits.then(|| name.to_owned()).ok_or_else(refused)
}
