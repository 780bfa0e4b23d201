//! Tenants' own credentials for providers: encrypted in the store, in the clear in memory only, and shown to nobody.
//!
//! Invariant: what cannot be decrypted stays in the way: the tenant's calls to that upstream are refused, and do not go with the
//! operator's credential instead.

use std::sync::Arc;

use ring::aead::NONCE_LEN;
use schemars::JsonSchema;
use serde::Serialize;
use weir_config::vocab::{Secret, SharedSecret, TenantId, Timestamp};
use weir_storage::tenants::SealedKey;

use super::pending::Denial;
use super::{Identities, IdentityError, event, random};
use crate::admit::provider_keys::{ProviderKey, ProviderKeys};
use crate::exchange::Caller;

/// A tenant's own credential for an upstream, as lists show it. The credential itself is shown nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProviderKeyRecord {
    /// The upstream it is for.
    pub upstream: String,
    /// When the tenant first had one for this upstream.
    pub created_at: Timestamp,
    /// When it was last replaced.
    pub updated_at: Timestamp,
    /// False where it cannot be decrypted, because the key file is another one: calls that need it are refused.
    pub usable: bool,
}

impl ProviderKeyRecord {
    fn of(upstream: &str, key: &ProviderKey) -> Self {
        Self {
            upstream: upstream.to_owned(),
            created_at: key.created_at,
            updated_at: key.changed_at,
            usable: key.secret.is_some(),
        }
    }
}

impl Identities {
    /// Tenants' own credentials for providers, as requests use them.
    pub fn provider_keys(&self) -> &Arc<ProviderKeys> {
        &self.provider_keys
    }

    /// Gives a tenant a credential of its own for an upstream, in the place of its former one; `None` when there is no such
    /// tenant. It is stored, and every core's next request goes with it, when this returns.
    ///
    /// # Errors
    /// [`IdentityError`]; nothing was changed.
    pub fn set_provider_key(
        &self,
        by: &Caller,
        tenant: TenantId,
        upstream: &str,
        key: &Secret,
    ) -> Result<Option<ProviderKeyRecord>, IdentityError> {
        let _one_at_a_time = self.updating.lock();
        let _shared = self.changing.read();
        self.may_make_credentials(by)?;
        if self.pending.holds(Denial::Tenant(tenant)) {
            return Ok(None);
        }
        let file = self.token_key()?;
        let nonce = random::<NONCE_LEN>()?;
        let sealed = file.seal().close((tenant, upstream), nonce, key).ok_or(IdentityError::NoCipher)?;
        let now = Timestamp::now();
        let former = self.provider_keys.of(tenant).and_then(|own| Some(own.get(upstream)?.created_at));
        let created_at = former.unwrap_or(now);
        let action = if former.is_some() { "provider_key.rotate" } else { "provider_key.set" };
        let by = event(by, action, Some(tenant), tenant, [("upstream", upstream.to_owned())]);
        let stored = SealedKey {
            tenant_id: tenant,
            upstream: upstream.to_owned(),
            sealed,
            key_sha256: file.fingerprint(),
            created_at,
            changed_at: now,
        };
        if !self.store.set_provider_key(stored, by)? {
            return Ok(None);
        }
        let key = ProviderKey { secret: Some(SharedSecret::new(key.expose())), created_at, changed_at: now };
        self.provider_keys.set(tenant, upstream, Some(&key));
        Ok(Some(ProviderKeyRecord::of(upstream, &key)))
    }

    /// Takes a tenant's own credential for an upstream away; false when it has none. No request that begins afterwards goes with
    /// it.
    ///
    /// # Errors
    /// [`IdentityError`]; nothing was changed.
    pub fn remove_provider_key(&self, by: &Caller, tenant: TenantId, upstream: &str) -> Result<bool, IdentityError> {
        let _one_at_a_time = self.updating.lock();
        let _shared = self.changing.read();
        self.may_make_credentials(by)?;
        if self.pending.holds(Denial::Tenant(tenant)) {
            return Ok(false);
        }
        let by = event(by, "provider_key.remove", Some(tenant), tenant, [("upstream", upstream.to_owned())]);
        let was_there = self.store.remove_provider_key(tenant, upstream, by)?;
        self.provider_keys.set(tenant, upstream, None);
        Ok(was_there)
    }

    /// A tenant's own credentials, by the name of the upstream; `None` when there is no such tenant.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn list_provider_keys(&self, tenant: TenantId) -> Result<Option<Vec<ProviderKeyRecord>>, IdentityError> {
        if self.tenant(tenant)?.is_none() {
            return Ok(None);
        }
        let own = self.provider_keys.of(tenant).unwrap_or_default();
        Ok(Some(own.iter().map(|(upstream, key)| ProviderKeyRecord::of(upstream, key)).collect()))
    }

    /// Reads the credentials of one tenant again.
    pub(super) fn reload_provider_keys(&self, tenant: TenantId) -> Result<(), IdentityError> {
        let stored = self.store.provider_keys(Some(tenant))?;
        let own = stored.into_iter().map(|stored| self.open_stored(stored)).map(|(_, upstream, key)| (upstream, key));
        self.provider_keys.replace(tenant, own.collect());
        Ok(())
    }

    fn open_stored(&self, stored: SealedKey) -> (TenantId, Box<str>, ProviderKey) {
        let place = (stored.tenant_id, stored.upstream.as_str());
        let secret = self.token_key.get().and_then(|file| file.seal().open(place, &stored.sealed));
        let key = ProviderKey { secret, created_at: stored.created_at, changed_at: stored.changed_at };
        (stored.tenant_id, stored.upstream.into_boxed_str(), key)
    }

    /// Reads the credentials of all tenants, for the start.
    pub(super) fn load_provider_keys(&self) -> Result<(), IdentityError> {
        let file = self.token_key.get();
        let mut lost = 0_usize;
        let opened = self.store.provider_keys(None)?.into_iter().map(|stored| {
            let opened = self.open_stored(stored);
            lost += usize::from(opened.2.secret.is_none());
            opened
        });
        self.provider_keys.fill(opened);
        if lost > 0 {
            let path = self.key_file.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
            let what = if file.is_some() { "is not the one they were encrypted under" } else { "is missing" };
            tracing::error!(
                file = path,
                keys = lost,
                "tenants' own provider keys cannot be decrypted: the key file (`auth.token_key_file`) {what}. Calls that need them \
                 are refused (503 `provider_key_unavailable`); restore the file and restart, or set the keys again (PUT \
                 /api/v1/tenants/{{id}}/provider-keys/{{upstream}})"
            );
        }
        Ok(())
    }
}
