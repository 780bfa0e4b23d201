//! The sender of a request, once that has been settled: made at admission and nowhere else.

use std::borrow::Cow;

use weir_config::vocab::{KeyId, Role, TenantId};

/// The sender of one request. Never outlives it: the next request on the same connection is authenticated again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Whose data, limits and spend this request concerns.
    pub tenant_id: TenantId,
    /// What the caller may do.
    pub role: Role,
    /// How it is known.
    pub proof: Proof,
}

/// How a caller is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// It is not: authentication is off, and anybody is an administrator.
    Open,
    /// By `auth.admin_key`.
    Bootstrap,
    /// By an API key.
    Key(KeyId),
    /// By its tenant's token.
    Token,
}

/// Who acts while authentication is off, in audit records.
pub const OPEN_ACTOR: &str = "anonymous";

impl Caller {
    /// The name audit records give the caller; never a credential.
    pub fn actor(&self) -> Cow<'static, str> {
        match self.proof {
            Proof::Open => Cow::Borrowed(OPEN_ACTOR),
            Proof::Bootstrap => Cow::Borrowed("bootstrap"),
            Proof::Key(id) => Cow::Owned(id.to_string()),
            Proof::Token => Cow::Owned(format!("token of {}", self.tenant_id)),
        }
    }
}
