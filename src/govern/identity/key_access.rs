//! What single keys may use and how much: `access.keys.<id>` in their tenant's `config`, changed one key at a time, and gone
//! with the key.
//!
//! Invariants: a key never lets anybody in before what limits it is in force; what cannot be read is not changed.

use serde_json::{Map, Value};
use weir_config::vocab::{KeyId, TenantId};
use weir_storage::audit::AuditEvent;
use weir_storage::tenants::TenantChange;

use super::{Identities, IdentityError, event};
use crate::admit::access::Access;
use crate::exchange::Caller;

impl Identities {
    /// What is said of each key of a tenant, by its id.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn key_accesses(&self, tenant: TenantId) -> Result<Map<String, Value>, IdentityError> {
        let config = self.store.tenant(tenant)?.map(|tenant| tenant.config).unwrap_or_default();
        Ok(config.get("access").and_then(|access| access.get("keys")?.as_object()).cloned().unwrap_or_default())
    }

    /// From now on a key may use what `access` says, or what its tenant may; whose it is. `None` when there is no key of this id, or
    /// it is revoked.
    ///
    /// # Errors
    /// [`IdentityError`]; nothing was changed.
    pub fn set_key_access(
        &self,
        by: &Caller,
        id: KeyId,
        access: Option<Map<String, Value>>,
    ) -> Result<Option<TenantId>, IdentityError> {
        let _one_at_a_time = self.updating.lock();
        let _shared = self.changing.read();
        self.may_make_credentials(by)?;
        let Some(tenant) = self.directory.tenant_of(id) else { return Ok(None) };
        let event = event(by, "key.update", Some(tenant), id, []);
        let is_there = self.write_key_access(tenant, id, access, event)?;
        Ok(is_there.then_some(tenant))
    }

    /// Writes what is said of one key, and holds requests to it; false when there is no such tenant. The caller holds `updating`.
    pub(super) fn write_key_access(
        &self,
        tenant: TenantId,
        id: KeyId,
        access: Option<Map<String, Value>>,
        event: AuditEvent,
    ) -> Result<bool, IdentityError> {
        let updated = self.change_tenant(tenant, |former| {
            let config = with_key(former.config.clone(), id, access.clone()).ok_or(IdentityError::AccessUnreadable)?;
            Ok((TenantChange { config: Some(config), ..TenantChange::default() }, event.clone()))
        })?;
        Ok(updated.is_some())
    }

    /// Takes out what is said of a key that has been revoked. What cannot be written stays, and limits nobody.
    pub(super) fn forget_key_access(&self, by: &Caller, tenant: TenantId, id: KeyId) {
        let _one_at_a_time = self.updating.lock();
        let _shared = self.changing.read();
        let name = id.to_string();
        let is_named = self.key_accesses(tenant).map(|all| all.keys().any(|key| key.eq_ignore_ascii_case(&name)));
        if !matches!(is_named, Ok(true)) {
            return;
        }
        // It is the tenant's `config` that changes: a key that is revoked is not changed any more.
        let detail = [("changed", format!("config.access.keys.{id}")), ("because", "the key was revoked".to_owned())];
        if let Err(error) =
            self.write_key_access(tenant, id, None, event(by, "tenant.update", Some(tenant), tenant, detail))
        {
            tracing::warn!(%error, key = %id, "what a revoked key was limited to stays in its tenant's `config`");
        }
    }

    /// Refuses a `config` that speaks of keys that this tenant does not have: what is meant to limit a key would limit nobody.
    pub(super) fn refuse_unknown_keys(
        &self,
        tenant: TenantId,
        config: Option<&Map<String, Value>>,
    ) -> Result<(), IdentityError> {
        let Some(Ok(Some(access))) = config.map(Access::read) else { return Ok(()) };
        let unknown = access.keys().find(|id| self.directory.tenant_of(*id) != Some(tenant));
        unknown.map_or(Ok(()), |id| Err(IdentityError::UnknownKey(id)))
    }
}

/// `config` with what is said of one key; `None` where what stands there cannot be read.
fn with_key(mut config: Map<String, Value>, id: KeyId, said: Option<Map<String, Value>>) -> Option<Map<String, Value>> {
    Access::read(&config).ok()?;
    let access = config.entry("access").or_insert(Value::Null);
    if access.is_null() {
        *access = Value::Object(Map::new());
    }
    let access = access.as_object_mut()?;
    let keys = access.entry("keys").or_insert_with(|| Value::Object(Map::new())).as_object_mut()?;
    // However it is spelt.
    keys.retain(|name, _| name.parse::<KeyId>().ok() != Some(id));
    if let Some(said) = said {
        keys.insert(id.to_string(), Value::Object(said));
    }
    if keys.is_empty() {
        access.remove("keys");
    }
    if access.is_empty() {
        config.remove("access");
    }
    Some(config)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_key_is_written_and_taken_out_and_all_else_stays() {
        let (one, two) = (KeyId::from_bytes([1; 16]), KeyId::from_bytes([2; 16]));
        let map = |value: Value| value.as_object().unwrap().clone();
        let models = || map(json!({"allowed_models": ["a"]}));
        let empty = map(json!({"region": "eu"}));
        let with_one = with_key(empty.clone(), one, Some(models())).unwrap();
        assert_eq!(
            Value::Object(with_one.clone())["access"]["keys"][one.to_string()],
            json!({"allowed_models": ["a"]})
        );
        let with_both = with_key(with_one.clone(), two, Some(models())).unwrap();
        assert_eq!(with_key(with_both, two, None).unwrap(), with_one);
        assert_eq!(with_key(with_one, one, None).unwrap(), empty);
        let upper = map(json!({"access": {"allowed_models": [], "keys": {one.to_string().to_uppercase(): {}}}}));
        assert_eq!(Value::Object(with_key(upper, one, None).unwrap()), json!({"access": {"allowed_models": []}}));
        assert_eq!(with_key(map(json!({"access": {"keys": 1}})), one, Some(models())), None);
    }
}
