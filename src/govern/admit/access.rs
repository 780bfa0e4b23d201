//! Which models and upstreams a tenant, and each of its keys, may use, and how much a key: `access` in the tenant's `config`.
//!
//! Invariants: looking up takes no lock and reads no database; a change is seen by every core before the call that makes it
//! returns. A tenant without `access` may use everything, and while no tenant has any this costs one load; one whose `access`
//! cannot be read may use nothing. Knows neither HTTP nor storage.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::{Map, Value};
use weir_config::settings::{Budgets, Pattern, RateLimit};
use weir_config::vocab::{KeyId, TenantId};

use super::key_limits;
use super::operations::Operations;
use crate::exchange::Family;

/// Names in one list.
const NAMES_MAX: usize = 256;
/// Characters of one name.
const NAME_CHARACTERS_MAX: usize = 256;

/// What one list says; `None` where there is no list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Grant {
    models: Option<Vec<String>>,
    upstreams: Option<Vec<String>>,
    operations: Option<Operations>,
    /// Of a key: how often it may be used.
    rate: Option<RateLimit>,
    /// Of a key: what it may cost.
    budgets: Option<Budgets>,
}

/// What a tenant and its keys may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    own: Grant,
    keys: HashMap<KeyId, Grant>,
}

/// What one caller may use.
#[derive(Debug, Clone)]
pub struct Allowed {
    tenant: TenantId,
    access: Arc<Access>,
    key: Option<KeyId>,
}

/// What each tenant may use, for all cores.
#[derive(Default)]
pub struct AccessTable {
    by_tenant: ArcSwap<HashMap<TenantId, Arc<Access>>>,
}

impl Access {
    /// Reads `access` of a tenant's `config`; `None` where there is none.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn read(config: &Map<String, Value>) -> Result<Option<Self>, String> {
        let Some(given) = config.get("access").filter(|given| !given.is_null()) else { return Ok(None) };
        let fields = object("config.access", given)?;
        let mut access = Self::default();
        for (name, value) in fields {
            if name != "keys" {
                access.own.put("config.access", name, value)?;
                continue;
            }
            for (id, value) in object("config.access.keys", value)? {
                let path = format!("config.access.keys.{id}");
                let key = id.parse().map_err(|_| format!("`{path}`: the name has to be the id of a key"))?;
                access.keys.insert(key, Grant::of_key(&path, value)?);
            }
        }
        Ok(Some(access))
    }

    /// Reads what is said of one key, by itself.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn check_key(said: &Map<String, Value>) -> Result<(), String> {
        Grant::of_key("access", &Value::Object(said.clone())).map(drop)
    }

    /// The keys it speaks of.
    pub fn keys(&self) -> impl Iterator<Item = KeyId> {
        self.keys.keys().copied()
    }

    /// What a tenant may use whose record cannot be read: nothing.
    pub fn nothing() -> Self {
        let none = || Some(Vec::new());
        Self { own: Grant { models: none(), upstreams: none(), ..Grant::default() }, keys: HashMap::new() }
    }
}

fn object<'a>(path: &str, value: &'a Value) -> Result<&'a Map<String, Value>, String> {
    value
        .as_object()
        .ok_or_else(|| format!("`{path}` has to be an object with `allowed_models` and `allowed_upstreams`"))
}

impl Grant {
    fn of_key(path: &str, value: &Value) -> Result<Self, String> {
        let mut grant = Self::default();
        for (name, value) in object(path, value)? {
            match name.as_str() {
                "rate_limit" => grant.rate = Some(key_limits::rate(&format!("{path}.{name}"), value)?),
                "budgets" => grant.budgets = Some(key_limits::budgets(&format!("{path}.{name}"), value)?),
                _ => grant.put(path, name, value)?,
            }
        }
        Ok(grant)
    }

    fn put(&mut self, path: &str, name: &str, value: &Value) -> Result<(), String> {
        let slot = match name {
            "allowed_operations" => {
                self.operations = Some(Operations::read(&format!("{path}.{name}"), value)?);
                return Ok(());
            }
            "allowed_models" => &mut self.models,
            "allowed_upstreams" => &mut self.upstreams,
            _ => {
                let accepted = "accepted: `allowed_models`, `allowed_upstreams`, `allowed_operations`, `keys` directly below \
                                `config.access`, and `rate_limit` and `budgets` of a key";
                return Err(format!("`{path}.{name}`: unknown field; {accepted}"));
            }
        };
        let fits = |name: &str| (1..=NAME_CHARACTERS_MAX).contains(&name.len());
        let names = value.as_array().filter(|names| names.len() <= NAMES_MAX);
        let names = names.and_then(|names| {
            let one = |name: &Value| name.as_str().filter(|name| fits(name)).map(str::to_owned);
            names.iter().map(one).collect::<Option<Vec<String>>>()
        });
        let refused = || {
            format!("`{path}.{name}` has to be a list of at most {NAMES_MAX} texts of 1 to {NAME_CHARACTERS_MAX} bytes")
        };
        *slot = Some(names.ok_or_else(refused)?);
        Ok(())
    }
}

impl AccessTable {
    /// From now on `tenant` may use what `access` says, or everything.
    pub fn set(&self, tenant: TenantId, access: Option<Access>) {
        if self.by_tenant.load().get(&tenant).map(|access| &**access) == access.as_ref() {
            return;
        }
        let access = access.map(Arc::new);
        self.by_tenant.rcu(|former| {
            let mut next = HashMap::clone(former);
            match &access {
                Some(access) => next.insert(tenant, Arc::clone(access)),
                None => next.remove(&tenant),
            };
            next
        });
    }

    /// Whether something is said of this key beside what holds for its tenant.
    pub fn limits_key(&self, tenant: TenantId, key: KeyId) -> bool {
        self.by_tenant.load().get(&tenant).is_some_and(|access| access.keys.contains_key(&key))
    }

    /// What a caller may use; `None` is everything.
    pub fn of(&self, tenant: TenantId, key: Option<KeyId>) -> Option<Allowed> {
        let table = self.by_tenant.load();
        if table.is_empty() {
            return None;
        }
        let access = Arc::clone(table.get(&tenant)?);
        Some(Allowed { tenant, access, key })
    }
}

impl Allowed {
    fn grants(&self) -> impl Iterator<Item = &Grant> {
        std::iter::once(&self.access.own).chain(self.key.and_then(|key| self.access.keys.get(&key)))
    }

    /// Whose it is.
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Whether something is said of the key beside what holds for its tenant.
    pub fn limits_key(&self) -> bool {
        self.of_key().is_some()
    }

    /// Whether it matters which model is asked for.
    pub fn limits_models(&self) -> bool {
        self.grants().any(|grant| grant.models.is_some())
    }

    /// Whether this model may be used: by the tenant, and by the key.
    pub fn allows_model(&self, model: &str) -> bool {
        self.grants().filter_map(|grant| grant.models.as_ref()).all(|names| any_fits(names, model))
    }

    /// Whether this upstream or group may be used: by the tenant, and by the key.
    pub fn allows_upstream(&self, name: &str) -> bool {
        self.grants().filter_map(|grant| grant.upstreams.as_ref()).all(|names| any_fits(names, name))
    }

    /// The tenant's list of operations, and the key's.
    pub fn operations(&self) -> (Option<Operations>, Option<Operations>) {
        let of_key = self.key.and_then(|key| self.access.keys.get(&key));
        (self.access.own.operations, of_key.and_then(|grant| grant.operations))
    }

    /// Whether operations of this family are allowed by name.
    pub fn names_operations(&self, family: Family) -> bool {
        let mut lists = self.grants().filter_map(|grant| grant.operations).peekable();
        lists.peek().is_some() && lists.all(|list| list.names(family))
    }

    fn of_key(&self) -> Option<(KeyId, &Grant)> {
        let key = self.key?;
        Some((key, self.access.keys.get(&key)?))
    }

    /// How often the key may be used.
    pub fn key_rate(&self) -> Option<(KeyId, RateLimit)> {
        self.of_key().and_then(|(key, grant)| Some((key, grant.rate?)))
    }

    /// What the key may cost.
    pub fn key_budgets(&self) -> Option<(KeyId, &Budgets)> {
        self.of_key().and_then(|(key, grant)| Some((key, grant.budgets.as_ref()?)))
    }

    /// The lists of models, for a message: each has to hold the model's name.
    pub fn models(&self) -> Vec<&[String]> {
        self.grants().filter_map(|grant| grant.models.as_deref()).collect()
    }

    /// The same of upstreams.
    pub fn upstreams(&self) -> Vec<&[String]> {
        self.grants().filter_map(|grant| grant.upstreams.as_deref()).collect()
    }
}

fn any_fits(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| Pattern::new(pattern).fits(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(access: Value) -> Result<Option<Access>, String> {
        Access::read(json!({ "access": access }).as_object().unwrap())
    }

    #[test]
    fn a_key_may_use_what_its_tenant_may_and_its_own_list_names() {
        let (tenant, key) = (TenantId::from_bytes([1; 16]), KeyId::from_bytes([2; 16]));
        let table = AccessTable::default();
        assert!(table.of(tenant, None).is_none());
        let keys = json!({ key.to_string(): {"allowed_models": ["*-mini"], "allowed_upstreams": ["b"]} });
        table.set(tenant, read(json!({"allowed_models": ["gpt-*"], "keys": keys})).unwrap());
        let (own, limited) = (table.of(tenant, None).unwrap(), table.of(tenant, Some(key)).unwrap());
        assert!(own.allows_model("GPT-4o") && !own.allows_model("o3-mini") && own.allows_upstream("a"));
        assert!(
            limited.allows_model("gpt-4o-mini") && !limited.allows_model("gpt-4o") && !limited.allows_model("o3-mini")
        );
        assert!(limited.allows_upstream("b") && !limited.allows_upstream("a"));
        assert!(table.of(TenantId::from_bytes([3; 16]), Some(key)).is_none(), "another tenant");
        table.set(tenant, None);
        assert!(table.of(tenant, Some(key)).is_none());
    }

    #[test]
    fn whose_record_cannot_be_read_may_use_nothing() {
        let (tenant, table) = (TenantId::from_bytes([1; 16]), AccessTable::default());
        table.set(tenant, Some(Access::nothing()));
        let none = table.of(tenant, Some(KeyId::from_bytes([2; 16]))).unwrap();
        assert!(none.limits_models() && !none.allows_model("gpt-4o") && !none.allows_upstream("default"));
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        for (access, named) in [
            (json!([]), "`config.access` has to be an object"),
            (json!({"allowed_model": []}), "`config.access.allowed_model`: unknown field"),
            (json!({"allowed_models": "gpt-4o"}), "`config.access.allowed_models` has to be a list"),
            (json!({"allowed_upstreams": [1]}), "`config.access.allowed_upstreams` has to be a list"),
            (json!({"allowed_upstreams": [""]}), "`config.access.allowed_upstreams` has to be a list"),
            (json!({"keys": {"mine": {}}}), "has to be the id of a key"),
            (json!({"rate_limit": {}}), "`config.access.rate_limit`: unknown field"),
        ] {
            assert!(read(access.clone()).unwrap_err().contains(named), "{access}");
        }
        assert_eq!(Access::read(&Map::new()), Ok(None));
        assert_eq!(read(Value::Null), Ok(None));
        assert!(!read(json!({"allowed_models": []})).unwrap().unwrap().own.models.unwrap().iter().any(|_| true));
    }
}
