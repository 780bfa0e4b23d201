//! `/api/v1/tenants/{id}/provider-keys`: credentials for providers that a tenant brings itself. What is handed in is shown nowhere.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_config::settings::{DEFAULT_UPSTREAM, Settings};
use weir_config::vocab::{Secret, TenantId};

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::listed::{as_lines, lines_of};
use super::route::Answer;
use super::state::{Api, nothing, ok, to_json};
use crate::exchange::Proof;
use crate::identity::ProviderKeyRecord;
use crate::redaction::{KEY_PREFIX, TOKEN_PREFIX};

/// Fewest and most characters of a credential.
const CHARACTERS: std::ops::RangeInclusive<usize> = 8..=4_096;
/// Credentials of one tenant: no more are taken, and those that are there can be replaced.
const KEYS_MAX: usize = 256;

/// What `PUT /api/v1/tenants/{id}/provider-keys/{upstream}` takes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Put {
    /// The provider's credential, without `Bearer`: 8 to 4,096 visible ASCII characters.
    #[schemars(length(min = 8, max = 4096), extend("pattern" = "^[!-~]*$", "writeOnly" = true))]
    api_key: String,
}

/// A tenant's own credentials.
#[derive(Serialize, JsonSchema)]
pub(super) struct ProviderKeys {
    /// By the name of the upstream.
    data: Vec<ProviderKeyRecord>,
}

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let (id, lines): (TenantId, _) = (ask.id("id")?, ask.query.lines()?);
    api.change(move |identities| {
        let data = identities.list_provider_keys(id)?.ok_or_else(unknown_tenant)?;
        if lines { Ok(as_lines(lines_of(&data, to_json)?, None)) } else { ok(&ProviderKeys { data }) }
    })
    .await
}

pub(super) async fn put(api: Api, ask: Ask) -> Answer {
    let (caller, id) = (ask.caller()?, ask.id::<TenantId>("id")?);
    let upstream = ask.text("upstream").unwrap_or_default().to_owned();
    let key = usable(ask.json::<Put>()?.api_key)?;
    if caller.proof == Proof::Open {
        return Err(ErrorAnswer::conflict(
            "`auth.enabled` is off, so anybody may name any tenant, and would spend at this key's cost; switch it on first",
        ));
    }
    known(&api.live.snapshot().load(), &upstream)?;
    api.change(move |identities| {
        let own = identities.list_provider_keys(id)?.ok_or_else(unknown_tenant)?;
        if own.len() >= KEYS_MAX && own.iter().all(|key| key.upstream != upstream) {
            let message = format!("this tenant has {KEYS_MAX} provider keys, as many as it may; delete some");
            return Err(ErrorAnswer::conflict(message));
        }
        ok(&identities.set_provider_key(&caller, id, &upstream, &key)?.ok_or_else(unknown_tenant)?)
    })
    .await
}

pub(super) async fn delete(api: Api, ask: Ask) -> Answer {
    let (caller, id) = (ask.caller()?, ask.id::<TenantId>("id")?);
    let upstream = ask.text("upstream").unwrap_or_default().to_owned();
    api.change(move |identities| match identities.remove_provider_key(&caller, id, &upstream)? {
        true => Ok(nothing()),
        false => Err(ErrorAnswer::not_found("no such tenant, or it has no key of its own for this upstream")),
    })
    .await
}

/// Accepts a credential that fits into a header field and is not one of Weir's own. The error never shows it.
fn usable(text: String) -> Result<Secret, ErrorAnswer> {
    let key = Secret::new(text);
    let bytes = key.expose();
    if !CHARACTERS.contains(&bytes.len()) || !bytes.iter().all(u8::is_ascii_graphic) {
        let (min, max) = (CHARACTERS.start(), CHARACTERS.end());
        let message = format!(
            "`api_key` has to be {min} to {max} visible ASCII characters: the bare credential, without `Bearer`"
        );
        return Err(ErrorAnswer::invalid(message));
    }
    if [KEY_PREFIX, TOKEN_PREFIX].iter().any(|prefix| bytes.starts_with(prefix.as_bytes())) {
        return Err(ErrorAnswer::invalid("`api_key` is a credential of this gateway; it takes the provider's"));
    }
    Ok(key)
}

/// Refuses the name of an unknown upstream: a key stored under it would later be used for any upstream given that name.
fn known(settings: &Settings, upstream: &str) -> Result<(), ErrorAnswer> {
    let members = || settings.upstreams.members.iter().map(|member| member.name.as_str());
    if upstream == DEFAULT_UPSTREAM || members().any(|name| name == upstream) {
        return Ok(());
    }
    let names: Vec<&str> = std::iter::once(DEFAULT_UPSTREAM).chain(members()).collect();
    Err(ErrorAnswer::not_found(format!(
        "no upstream of this name (a group has no key of its own); there are {}",
        names.join(", ")
    )))
}

fn unknown_tenant() -> ErrorAnswer {
    ErrorAnswer::not_found("no tenant with this id")
}
