//! Tenant tokens: derived, never stored. A token is `svt_` and the HMAC-SHA256 (RFC 2104) of the tenant's id and a number
//! that a reset replaces, under a key that lives in a file beside the database.
//!
//! Why derived: a token has to be shown again, so a digest is not enough, and a stored token would make every copy of
//! the database a bunch of keys. Invariant: without the key file neither database nor backup lets anybody in.
//! Knows no files: whoever starts the gateway reads the key.

use ring::hmac;
use sha2::{Digest as _, Sha256};
use weir_config::vocab::{Secret, TenantId};

use super::seal::Seal;
use crate::redaction::TOKEN_PREFIX;

/// Bytes of the key.
pub(super) const KEY_BYTES: usize = 32;

/// What tokens are derived with.
pub(super) struct TokenKey {
    key: hmac::Key,
    seal: Seal,
    fingerprint: [u8; 32],
}

impl TokenKey {
    /// The key of these bytes.
    pub(super) fn new(bytes: &Secret) -> Self {
        // A digest with a text in front, so that it is no digest anybody could find elsewhere.
        let fingerprint = Sha256::new().chain_update(b"weir token key\0").chain_update(bytes.expose()).finalize();
        let (key, seal) = (hmac::Key::new(hmac::HMAC_SHA256, bytes.expose()), Seal::new(bytes));
        Self { key, seal, fingerprint: fingerprint.into() }
    }

    /// A tenant's token.
    pub(super) fn token(&self, tenant: TenantId, nonce: i64) -> String {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(tenant.as_bytes());
        context.update(&nonce.to_be_bytes());
        with_prefix(TOKEN_PREFIX, context.sign().as_ref())
    }

    /// What credentials are encrypted with under this key.
    pub(super) fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Tells this key from others and says nothing about it.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }
}

/// A credential's text: its prefix and bytes in lower-case hexadecimal.
pub(super) fn with_prefix(prefix: &str, bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(prefix.len() + 2 * bytes.len());
    text.push_str(prefix);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _infallible = write!(text, "{byte:02x}").is_ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_hmac_of_tenant_and_number() {
        // hmac.new(bytes(range(32)), bytes([1]*16) + (7).to_bytes(8, "big"), "sha256").hexdigest()
        let key = TokenKey::new(&Secret::new((0..32).collect::<Vec<u8>>()));
        let token = key.token(TenantId::from_bytes([1; 16]), 7);
        assert_eq!(token, "svt_ecb6d475f7bfc9845049533c2564669f264635236ae804bced3b25ea76271fca");
        assert_ne!(key.token(TenantId::from_bytes([1; 16]), 8), token);
        assert_ne!(key.token(TenantId::from_bytes([2; 16]), 7), token);
        let other = TokenKey::new(&Secret::new(vec![0; 32]));
        assert_ne!(other.token(TenantId::from_bytes([1; 16]), 7), token);
        assert_ne!(other.fingerprint(), key.fingerprint());
    }
}
