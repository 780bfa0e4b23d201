//! Administrative events: what is written down about them, and how the chain of lines is checked.
//!
//! Every line carries the SHA-256 of the line before it and of its own fields, and the end of the chain is kept beside
//! it: a line that was altered, removed or put in shows. Anybody who can write the file can also rewrite the whole chain;
//! keeping the head's hash elsewhere (`GET /api/v1/audit` shows it) guards against that.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};
use weir_config::vocab::{TenantId, Timestamp};

/// An event to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// The tenant it concerns; `None` for the whole service.
    pub tenant: Option<TenantId>,
    /// Who did it: a key's id, `bootstrap` for the admin key of the configuration, `local` for the machine's own
    /// operator (a signal, a file), `anonymous` when authentication is off.
    pub actor: String,
    /// What was done, as `noun.verb`: `key.create`, `tenant.delete`, `config.reload`.
    pub action: String,
    /// What it was done to: an id or a name.
    pub target: Option<String>,
    /// Details; never a credential.
    pub detail: BTreeMap<String, String>,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AuditEntry {
    /// Position in the log, from 1, without gaps.
    pub seq: u64,
    /// When it was written down.
    pub timestamp: Timestamp,
    /// See [`AuditEvent::tenant`].
    pub tenant_id: Option<TenantId>,
    /// See [`AuditEvent::actor`].
    pub actor: String,
    /// See [`AuditEvent::action`].
    pub action: String,
    /// See [`AuditEvent::target`].
    pub target: Option<String>,
    /// See [`AuditEvent::detail`].
    pub detail: BTreeMap<String, String>,
    /// SHA-256 of the line before and of this one, in hexadecimal.
    pub hash: String,
}

/// What checking the chain gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AuditCheck {
    /// True when no line was altered, removed or put in.
    pub intact: bool,
    /// Lines of the log.
    pub entries: u64,
    /// The first position that is missing or does not fit.
    pub first_bad_seq: Option<u64>,
    /// Hash of the last line, in hexadecimal; of an empty log it is all zeros.
    pub head: String,
    /// When every single line was last checked. What is younger, and what stands on the page, is checked every time.
    pub verified_at: Timestamp,
}

/// A link of the chain.
pub(crate) type Link = [u8; 32];

/// What a line's hash covers, besides the line before it.
pub(crate) struct Line<'a> {
    pub(crate) seq: i64,
    pub(crate) at_us: i64,
    pub(crate) tenant: Option<&'a [u8]>,
    pub(crate) actor: &'a str,
    pub(crate) action: &'a str,
    pub(crate) target: Option<&'a str>,
    pub(crate) detail: &'a str,
}

impl Line<'_> {
    /// Every field with its length in front, so that no two lines have the same text.
    pub(crate) fn link(&self, former: &Link) -> Link {
        let mut hash = Sha256::new();
        hash.update(former);
        hash.update(self.seq.to_be_bytes());
        hash.update(self.at_us.to_be_bytes());
        let optional = |bytes: Option<&[u8]>, hash: &mut Sha256| {
            hash.update([u8::from(bytes.is_some())]);
            let bytes = bytes.unwrap_or_default();
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        optional(self.tenant, &mut hash);
        optional(Some(self.actor.as_bytes()), &mut hash);
        optional(Some(self.action.as_bytes()), &mut hash);
        optional(self.target.map(str::as_bytes), &mut hash);
        optional(Some(self.detail.as_bytes()), &mut hash);
        hash.finalize().into()
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _infallible = write!(text, "{byte:02x}").is_ok();
    }
    text
}
