//! Credentials for providers that tenants bring themselves, by upstream.
//!
//! Invariants: looking up takes no lock and reads no database; a change is seen by every core before the call that makes it
//! returns. While no tenant has any this costs one load. Knows neither HTTP nor storage.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use weir_config::vocab::{SharedSecret, TenantId, Timestamp};

/// One tenant's own credential for one upstream.
#[derive(Debug, Clone)]
pub struct ProviderKey {
    /// The credential; `None` where it cannot be decrypted. Then nobody else's takes its place.
    pub secret: Option<SharedSecret>,
    /// When the tenant first had one for this upstream.
    pub created_at: Timestamp,
    /// When it was last replaced.
    pub changed_at: Timestamp,
}

/// One tenant's own credentials, by the name of the upstream.
pub type OwnKeys = BTreeMap<Box<str>, ProviderKey>;

/// The credentials of all tenants, for all cores.
#[derive(Default)]
pub struct ProviderKeys {
    by_tenant: ArcSwap<HashMap<TenantId, Arc<OwnKeys>>>,
    /// Whether anybody has ever had one.
    any: AtomicBool,
}

impl ProviderKeys {
    /// From now on calls of `tenant` go to `upstream` with `key`, or as if it had none.
    pub fn set(&self, tenant: TenantId, upstream: &str, key: Option<&ProviderKey>) {
        self.by_tenant.rcu(|former| {
            let mut next = HashMap::clone(former);
            let mut own = next.get(&tenant).map(|own| OwnKeys::clone(own)).unwrap_or_default();
            match key {
                Some(key) => drop(own.insert(upstream.into(), key.clone())),
                None => drop(own.remove(upstream)),
            }
            if own.is_empty() {
                next.remove(&tenant)
            } else {
                next.insert(tenant, Arc::new(own))
            };
            next
        });
        self.any.store(true, Ordering::Release);
    }

    /// The same for all that are stored, at once, before the first request.
    pub fn fill(&self, all: impl IntoIterator<Item = (TenantId, Box<str>, ProviderKey)>) {
        let mut by_tenant: HashMap<TenantId, OwnKeys> = HashMap::new();
        for (tenant, upstream, key) in all {
            by_tenant.entry(tenant).or_default().insert(upstream, key);
        }
        self.any.store(!by_tenant.is_empty(), Ordering::Release);
        self.by_tenant.store(Arc::new(by_tenant.into_iter().map(|(tenant, own)| (tenant, Arc::new(own))).collect()));
    }

    /// From now on a tenant has these and no others.
    pub fn replace(&self, tenant: TenantId, own: OwnKeys) {
        if own.is_empty() {
            return self.forget(tenant);
        }
        let own = Arc::new(own);
        self.by_tenant.rcu(|former| {
            let mut next = HashMap::clone(former);
            next.insert(tenant, Arc::clone(&own));
            next
        });
        self.any.store(true, Ordering::Release);
    }

    /// Forgets a deleted tenant's.
    pub fn forget(&self, tenant: TenantId) {
        if self.of(tenant).is_some() {
            self.by_tenant.rcu(|former| {
                let mut next = HashMap::clone(former);
                next.remove(&tenant);
                next
            });
        }
    }

    /// What a tenant has; `None` is nothing.
    pub fn of(&self, tenant: TenantId) -> Option<Arc<OwnKeys>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.by_tenant.load().get(&tenant).map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_tenant_s_and_its_upstream_s() {
        let (one, other) = (TenantId::from_bytes([1; 16]), TenantId::from_bytes([2; 16]));
        let keys = ProviderKeys::default();
        assert!(keys.of(one).is_none());
        let key = |text: &str| ProviderKey {
            secret: Some(SharedSecret::new(text)),
            created_at: Timestamp::from_micros(1),
            changed_at: Timestamp::from_micros(1),
        };
        keys.set(one, "a", Some(&key("sk-one-a")));
        keys.set(one, "b", Some(&key("sk-one-b")));
        keys.set(other, "a", Some(&key("sk-other-a")));
        let secret = |tenant, upstream: &str| keys.of(tenant).and_then(|own| own.get(upstream)?.secret.clone());
        assert!(secret(one, "a").is_some_and(|secret| secret.matches(b"sk-one-a")));
        assert!(secret(other, "a").is_some_and(|secret| secret.matches(b"sk-other-a")) && secret(other, "b").is_none());
        keys.set(one, "a", None);
        assert!(secret(one, "a").is_none() && secret(one, "b").is_some());
        keys.fill([(one, "c".into(), key("sk-one-c")), (other, "a".into(), key("sk-other-a"))]);
        assert!(secret(one, "b").is_none() && secret(one, "c").is_some());
        keys.forget(one);
        assert!(keys.of(one).is_none() && keys.of(other).is_some());
        keys.set(other, "a", None);
        assert!(keys.of(other).is_none(), "nothing is left");
    }
}
