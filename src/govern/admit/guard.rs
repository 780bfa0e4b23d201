//! Authentication and authorisation: the sender of a request, and whether it may do what it asks.
//!
//! Order: a tenant token in `X-Service-Token` decides, valid or not. Else the first of `Authorization: Bearer`,
//! `x-api-key`, `api-key` that holds text with our prefix decides, valid or not. Else the admin key in any of them does: a
//! caller with a key learns nothing by guessing the admin key beside it, and need not be slowed for it. Without any of these
//! the request has no caller. With authentication off everybody is an administrator of the tenant that [`tenant`] resolves.
//!
//! Invariants: the answer is the request's, never the connection's: what a connection remembers counts only while the
//! directory is in the same generation and the same credential is presented. Missing, unknown and revoked look alike.
//! A request without an identity is refused. Knows no routes: its caller names the role that is needed.

use std::sync::Arc;

use weir_config::settings::Auth;
use weir_config::vocab::{Role, Secret, SharedSecret, TenantId, same_bytes};

use super::directory::{Digest, Directory, Entry, Holder};
use super::presented::{Presented, bearer};
use super::tenant::{self, Resolver};
use crate::exchange::{Caller, Proof, Refusal};
use crate::redaction::{KEY_PREFIX, TOKEN_PREFIX};

/// Lets callers in.
pub struct Guard {
    enabled: bool,
    admin: Option<(SharedSecret, Digest)>,
    directory: Arc<Directory>,
}

/// What one connection remembers of its last caller, so that a credential is hashed once and not with every request.
#[derive(Debug, Default)]
pub struct CallerCache {
    tenants: Resolver,
    last: Option<Remembered>,
}

impl CallerCache {
    /// Whether the credential that was let in last has been taken away since.
    pub fn is_over(&self) -> bool {
        self.last.as_ref().is_some_and(|last| matches!(&last.known, Known::Entry(entry) if entry.is_gone()))
    }
}

#[derive(Debug)]
struct Remembered {
    /// A token and a key with the same text are not the same credential.
    is_token: bool,
    credential: Secret,
    generation: u64,
    known: Known,
}

#[derive(Debug)]
enum Known {
    Bootstrap,
    Entry(Arc<Entry>),
}

/// Why a request is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// No credential, or none that is valid.
    Unknown,
    /// Too low a role.
    Role {
        /// Whose credential it is.
        caller: Caller,
        /// What the request needs.
        needed: Role,
    },
    /// `X-Service-Tenant-ID` names a tenant the credential does not belong to.
    OtherTenant {
        /// Whose credential it is.
        caller: Caller,
    },
    /// Whether a credential is still valid could not be asked for too long (`auth.max_stale_seconds`).
    Stale,
}

impl Denied {
    /// A caller that is known and still not let in.
    pub fn caller(&self) -> Option<Caller> {
        match self {
            Self::Unknown | Self::Stale => None,
            Self::Role { caller, .. } | Self::OtherTenant { caller } => Some(*caller),
        }
    }
}

impl Guard {
    /// A guard by these settings over this directory.
    pub fn new(auth: &Auth, directory: Arc<Directory>) -> Self {
        let admin = auth.admin_key.clone();
        Self { enabled: auth.enabled, admin: admin.map(|key| (key.clone(), Digest::of(key.expose()))), directory }
    }

    /// Whether callers need a credential.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The keys and tokens it knows.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The sender of a request that needs at least the role `needed`; `now_s` is the time in seconds since 1970.
    ///
    /// # Errors
    /// [`Denied`], which is the same for a missing, an unknown and a revoked credential.
    pub fn caller(
        &self,
        memory: &mut CallerCache,
        presented: &Presented<'_>,
        needed: Role,
        now_s: u32,
    ) -> Result<Caller, Denied> {
        if !self.enabled {
            return Ok(self.anybody(memory, presented));
        }
        let (is_token, credential) = self.chosen(presented).ok_or(Denied::Unknown)?;
        let known = self.identify(memory, is_token, credential).ok_or(Denied::Unknown)?;
        let named = presented.tenant.and_then(tenant::named);
        let (own, role, proof) = match known {
            Known::Bootstrap => (named.unwrap_or(TenantId::DEFAULT), Role::Admin, Proof::Bootstrap),
            Known::Entry(_) if self.directory.is_stale() => return Err(Denied::Stale),
            Known::Entry(entry) => {
                entry.touch(now_s);
                match entry.holder {
                    Holder::Key { id, tenant_id, role } => (tenant_id, role, Proof::Key(id)),
                    Holder::Token { tenant_id } => (tenant_id, Role::Operator, Proof::Token),
                }
            }
        };
        let caller = Caller { tenant_id: own, role, proof };
        if role < needed {
            return Err(Denied::Role { caller, needed });
        }
        match named {
            // Administration reaches all tenants; data stays with the key's own.
            Some(named) if named != own && (role < Role::Admin || needed < Role::Admin) => {
                Err(Denied::OtherTenant { caller })
            }
            named => Ok(Caller { tenant_id: named.unwrap_or(own), ..caller }),
        }
    }

    /// How many tries at the admin key this is: of its fields, those as long as the key, unless something else decides, or this
    /// connection was let in with it.
    pub fn tries(&self, memory: &CallerCache, presented: &Presented<'_>) -> u32 {
        let Some((key, _)) = self.admin.as_ref().filter(|_| self.enabled && presented.token.is_none()) else {
            return 0;
        };
        let length = key.expose().len();
        let is_known = |tried: &[u8]| {
            let known = memory.last.as_ref().filter(|last| matches!(last.known, Known::Bootstrap));
            known.is_some_and(|last| same_bytes(last.credential.expose(), tried))
        };
        let mut tries = 0;
        for credential in places(presented) {
            if has_our_prefix(credential) || is_known(credential) {
                return 0;
            }
            tries += u32::from(credential.len() == length);
        }
        tries
    }

    /// With authentication off: any caller, whose tenant is what it says; a valid token says it best.
    fn anybody(&self, memory: &mut CallerCache, presented: &Presented<'_>) -> Caller {
        let of_token = |token: &[u8]| match self.find(true, token)?.holder {
            Holder::Token { tenant_id } => Some(tenant_id),
            Holder::Key { .. } => None,
        };
        let by_token = presented.token.and_then(of_token);
        let tenant_id = by_token.unwrap_or_else(|| {
            let api_key = presented.any_api_key().or(presented.google_key);
            memory.tenants.resolve(presented.tenant, presented.authorization, api_key)
        });
        Caller { tenant_id, role: Role::Admin, proof: Proof::Open }
    }

    /// The credential that decides, and whether it is a tenant token.
    fn chosen<'a>(&self, presented: &Presented<'a>) -> Option<(bool, &'a [u8])> {
        if let Some(token) = presented.token {
            return Some((true, token));
        }
        let prefixed = places(presented).find(|credential| has_our_prefix(credential));
        prefixed.or_else(|| places(presented).find(|credential| self.is_admin_key(credential))).map(|key| (false, key))
    }

    fn is_admin_key(&self, credential: &[u8]) -> bool {
        // Whatever its length, so that none takes another time than the key's own.
        self.admin.as_ref().is_some_and(|(_, digest)| Digest::of(credential) == *digest)
    }

    /// Whose the credential is. What is found stays in `memory` and is lent out: a counted reference per request would
    /// make cores that serve the same key fight over its counter.
    fn identify<'m>(&self, memory: &'m mut CallerCache, is_token: bool, credential: &[u8]) -> Option<&'m Known> {
        let generation = self.directory.generation();
        let is_last = |last: &Remembered| {
            last.generation == generation
                && last.is_token == is_token
                && same_bytes(last.credential.expose(), credential)
        };
        if !memory.last.as_ref().is_some_and(is_last) {
            memory.last = None;
            let known = if !is_token && self.is_admin_key(credential) {
                Known::Bootstrap
            } else {
                Known::Entry(self.find(is_token, credential)?)
            };
            memory.last = Some(Remembered { is_token, credential: Secret::new(credential), generation, known });
        }
        memory.last.as_ref().map(|last| &last.known)
    }

    fn find(&self, is_token: bool, credential: &[u8]) -> Option<Arc<Entry>> {
        let prefix = if is_token { TOKEN_PREFIX } else { KEY_PREFIX };
        if !credential.starts_with(prefix.as_bytes()) {
            return None;
        }
        let entry = self.directory.find(&Digest::of(credential))?;
        (matches!(entry.holder, Holder::Token { .. }) == is_token).then_some(entry)
    }
}

/// What may be an API key, in the order in which it counts.
fn places<'a>(presented: &Presented<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    [presented.authorization.and_then(bearer), presented.x_api_key, presented.api_key].into_iter().flatten()
}

fn has_our_prefix(credential: &[u8]) -> bool {
    credential.starts_with(KEY_PREFIX.as_bytes()) || credential.starts_with(TOKEN_PREFIX.as_bytes())
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unknown => Self::new(
                401,
                "authentication_error",
                "a valid credential is required: send an API key as `Authorization: Bearer <key>` (or in x-api-key or \
                 api-key), or a tenant token as `X-Service-Token: <token>`",
            )
            .header("WWW-Authenticate", "Bearer"),
            Denied::Role { caller: Caller { role, .. }, needed } => Self::new(
                403,
                "permission_denied",
                format!("this request needs the role `{needed}`, and the credential has the role `{role}`"),
            ),
            Denied::OtherTenant { .. } => Self::new(
                403,
                "permission_denied",
                "`X-Service-Tenant-ID` names another tenant than the one this credential belongs to; leave it out",
            ),
            Denied::Stale => Self::new(
                503,
                "storage_unavailable",
                "the store that knows which credentials are valid has not answered for longer than auth.max_stale_seconds",
            )
            .header("Retry-After", 1),
        }
    }
}

#[cfg(test)]
mod tests;
