//! Tenants and API keys as records. No credential is among them: of a key there is a digest, of a tenant's token the
//! number it is derived from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weir_config::vocab::{KeyId, Role, TenantId, Timestamp};

/// A tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TenantRecord {
    /// Identifies it.
    pub id: TenantId,
    /// For people. A tenant that was only seen on traffic is called after its id.
    pub name: String,
    /// What it pays for, in the operator's own words.
    pub plan: Option<String>,
    /// Whatever the operator wants to keep with it.
    pub config: Map<String, Value>,
    /// When it was created, or seen first.
    pub created_at: Timestamp,
    /// When name, plan or config were last changed.
    pub updated_at: Timestamp,
}

/// What is known of a tenant before it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTenant {
    /// Its id.
    pub id: TenantId,
    /// Its name.
    pub name: String,
    /// Its plan.
    pub plan: Option<String>,
    /// Its config.
    pub config: Map<String, Value>,
}

/// A change of a tenant; `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantChange {
    /// The new name.
    pub name: Option<String>,
    /// The new plan; `Some(None)` takes it away.
    pub plan: Option<Option<String>>,
    /// The new config, whole.
    pub config: Option<Map<String, Value>>,
    /// The config that this change was made of: where another one stands there now, nothing is changed.
    pub based_on: Option<Map<String, Value>>,
}

/// What came of a change of a tenant.
#[derive(Debug, Clone, PartialEq)]
pub enum TenantUpdate {
    /// It was made: the tenant as it is now.
    Made(TenantRecord),
    /// There is no such tenant.
    Unknown,
    /// Its config is not the one the change was made of any more: another process has changed it.
    Outdated,
}

/// An API key, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyRecord {
    /// Identifies it.
    pub id: KeyId,
    /// The tenant it is bound to.
    pub tenant_id: TenantId,
    /// For people.
    pub name: String,
    /// The first 12 characters of the key.
    pub key_prefix: String,
    /// What it allows.
    pub role: Role,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// When it last let somebody in; written down every few seconds.
    pub last_used_at: Option<Timestamp>,
}

/// A key that lets somebody in, as it is loaded at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveKey {
    /// Its id.
    pub id: KeyId,
    /// The tenant it is bound to.
    pub tenant_id: TenantId,
    /// What it allows.
    pub role: Role,
    /// SHA-256 of the key.
    pub sha256: [u8; 32],
}

/// A credential for a provider that a tenant brings itself, encrypted by whoever hands it in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedKey {
    /// Whose it is.
    pub tenant_id: TenantId,
    /// The upstream it is for.
    pub upstream: String,
    /// The encrypted credential.
    pub sealed: Vec<u8>,
    /// Digest of the key file that it was encrypted under.
    pub key_sha256: [u8; 32],
    /// When the tenant first had one for this upstream.
    pub created_at: Timestamp,
    /// When it was last replaced.
    pub changed_at: Timestamp,
}

/// Everything that lets somebody in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Keys that are not revoked.
    pub keys: Vec<ActiveKey>,
    /// Tenants whose token has been issued, with the number it is derived from.
    pub tokens: Vec<(TenantId, i64)>,
    /// Digest of the key file that the tokens were derived with.
    pub token_key_sha256: Option<[u8; 32]>,
}

/// What happened to identities behind a line of the audit log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialChanges {
    /// The number of the log's last line.
    pub upto: u64,
    /// Tenants of which something changed, each once.
    pub tenants: Vec<TenantId>,
}

/// Credentials by who knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance {
    /// Keys, oldest first.
    pub keys: Vec<KeyRecord>,
    /// Tenants with such a token.
    pub tokens: Vec<TenantId>,
}
