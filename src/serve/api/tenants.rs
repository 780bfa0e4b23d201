//! `/api/v1/tenants`: tenants and their tokens. Administrators only, save for a caller's own token.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weir_config::vocab::{Secret, TenantId};
use weir_storage::tenants::{NewTenant, TenantChange};

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::keys::{NAME_CHARACTERS_MAX, NAME_PATTERN, usable_name};
use super::listed::List;
use super::route::Answer;
use super::state::{Api, created, denied, ok};
use crate::admit::access::Access;
use crate::identity::Kept;

/// What `POST /api/v1/tenants` takes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    /// For people.
    #[schemars(length(min = 1, max = 200), extend("pattern" = NAME_PATTERN))]
    name: String,
    /// What it pays for, in the operator's own words.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200), extend("pattern" = NAME_PATTERN))]
    plan: Option<String>,
    /// Whatever the operator wants to keep with it; `access` in it says which models and upstreams the tenant and its keys may
    /// use: `allowed_models`, `allowed_upstreams`, and by a key's id in `keys` the same, `rate_limit` and `budgets`.
    #[serde(default)]
    config: Map<String, Value>,
}

/// What `PUT /api/v1/tenants/{id}` takes: what is left out stays.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Update {
    /// The new name.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200), extend("pattern" = NAME_PATTERN))]
    name: Option<String>,
    /// The new plan; null takes it away.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<String>", length(min = 1, max = 200), extend("pattern" = NAME_PATTERN))]
    plan: Option<Option<String>>,
    /// The new config, whole but for its limits: `access`, and `keys` in it, stay where they are left out, and null takes them away.
    /// `access` in it as in `POST`. `keys` there may name the tenant's own keys only, and is changed one key at a time by
    /// `PUT /api/v1/auth/keys/{id}`.
    #[serde(default)]
    config: Option<Map<String, Value>>,
}

/// A tenant's token.
#[derive(Serialize, JsonSchema)]
pub(super) struct Token<'a> {
    /// Whose it is.
    tenant_id: TenantId,
    /// The token, for `X-Service-Token`.
    token: &'a str,
}

/// A token in the place of the former one.
#[derive(Serialize, JsonSchema)]
pub(super) struct Reset<'a> {
    /// Whose it is.
    tenant_id: TenantId,
    /// The token, for `X-Service-Token`.
    token: &'a str,
    /// False while the store could not take it: the former token is refused and this one holds until the process ends, and is
    /// written down as soon as the store can.
    persisted: bool,
}

pub(super) async fn create(api: Api, ask: Ask) -> Answer {
    let (caller, body) = (ask.caller()?, ask.json::<Create>()?);
    let plan = body.plan.map(|plan| usable_name("plan", plan)).transpose()?;
    Access::read(&body.config).map_err(ErrorAnswer::invalid)?;
    let new = NewTenant { id: TenantId::fresh(), name: usable_name("name", body.name)?, plan, config: body.config };
    api.change(move |identities| created(&identities.create_tenant(&caller, new)?)).await
}

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let page = ask.query.page()?;
    let list = List::new(&ask, "tenants", &(), &[])?;
    if list.comes_as_lines() {
        let identities = api.identities()?;
        return list.read_lines(&api, move |_, page| Ok(identities.list_tenants(page)?)).await;
    }
    api.change(move |identities| ok(&identities.list_tenants(page)?)).await
}

pub(super) async fn one(api: Api, ask: Ask) -> Answer {
    let id: TenantId = ask.id("id")?;
    api.change(move |identities| ok(&identities.tenant(id)?.ok_or_else(unknown)?)).await
}

pub(super) async fn update(api: Api, ask: Ask) -> Answer {
    let (caller, id, body) = (ask.caller()?, ask.id("id")?, ask.json::<Update>()?);
    let name = body.name.map(|name| usable_name("name", name)).transpose()?;
    let plan = body.plan.map(|plan| plan.map(|plan| usable_name("plan", plan)).transpose()).transpose()?;
    body.config.as_ref().map_or(Ok(None), Access::read).map_err(ErrorAnswer::invalid)?;
    let change = TenantChange { name, plan, config: body.config, based_on: None };
    api.change(move |identities| ok(&identities.update_tenant(&caller, id, change)?.ok_or_else(unknown)?)).await
}

pub(super) async fn delete(api: Api, ask: Ask) -> Answer {
    let (caller, id) = (ask.caller()?, ask.id("id")?);
    let costs = api.costs.clone();
    let gone = move |kept: Option<Kept>| {
        let kept = kept.ok_or_else(unknown)?;
        if let Some(costs) = costs {
            costs.forget(id);
        }
        denied(kept)
    };
    api.end(move |identities| gone(identities.delete_tenant(&caller, id)?)).await
}

pub(super) async fn own_token(api: Api, ask: Ask) -> Answer {
    let caller = ask.caller()?;
    api.change(move |identities| show(caller.tenant_id, identities.own_token(&caller)?)).await
}

pub(super) async fn token(api: Api, ask: Ask) -> Answer {
    let (caller, id) = (ask.caller()?, ask.id("id")?);
    api.change(move |identities| show(id, identities.token(&caller, id, false)?)).await
}

pub(super) async fn reset_token(api: Api, ask: Ask) -> Answer {
    let (caller, id) = (ask.caller()?, ask.id("id")?);
    api.end(move |identities| {
        let (token, kept) = identities.reset_token(&caller, id)?.ok_or_else(unknown)?;
        ok(&Reset { tenant_id: id, token: text_of(&token)?, persisted: kept == Kept::Durably })
    })
    .await
}

fn show(tenant_id: TenantId, token: Option<Secret>) -> Answer {
    let token = token.ok_or_else(unknown)?;
    ok(&Token { tenant_id, token: text_of(&token)? })
}

fn text_of(token: &Secret) -> Result<&str, ErrorAnswer> {
    std::str::from_utf8(token.expose()).map_err(|_| ErrorAnswer::internal())
}

fn unknown() -> ErrorAnswer {
    ErrorAnswer::not_found("no tenant with this id")
}

/// Tells a field that is null from one that is not there.
fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

const _: () = assert!(NAME_CHARACTERS_MAX == 200, "the schemas above say so");
