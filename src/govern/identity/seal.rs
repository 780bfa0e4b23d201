//! Encrypts credentials for the store: AES-256-GCM under a key that is derived (HKDF, RFC 5869) from the key file.
//!
//! A sealed credential is one byte for the form, 12 random bytes (the nonce), and what AES-GCM makes of the text, its tag at the end.
//! Whose it is and which upstream it is for are authenticated with it: taken from one row to another it cannot be opened. Keys
//! are few, so random nonces do not meet (NIST SP 800-38D allows 2^32 of them). Knows no files and no store.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use weir_config::vocab::{Secret, SharedSecret, TenantId};

/// The form described above.
const FORM: u8 = 1;

/// What credentials are encrypted with.
pub(super) struct Seal(Prk);

impl Seal {
    /// From the bytes of the key file.
    pub(super) fn new(key: &Secret) -> Self {
        Self(Salt::new(HKDF_SHA256, b"weir provider keys").extract(key.expose()))
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        let derived = self.0.expand(&[b"aes-256-gcm"], &AES_256_GCM).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(derived)))
    }

    /// The credential, encrypted; `nonce` is never used twice. `None` where the cipher refuses, which it has no reason to.
    pub(super) fn close(
        &self,
        (tenant, upstream): (TenantId, &str),
        nonce: [u8; NONCE_LEN],
        text: &Secret,
    ) -> Option<Vec<u8>> {
        let mut bytes = text.expose().to_vec();
        let cipher = self.cipher()?;
        let bound = Aad::from(bound_to(tenant, upstream));
        let tag = cipher.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), bound, &mut bytes).ok()?;
        Some([&[FORM], &nonce[..], &bytes, tag.as_ref()].concat())
    }

    /// The credential; `None` where it was encrypted under another key or for another place, or has been changed.
    pub(super) fn open(&self, (tenant, upstream): (TenantId, &str), sealed: &[u8]) -> Option<SharedSecret> {
        let (form, rest) = sealed.split_first()?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>()?;
        if *form != FORM {
            return None;
        }
        let mut bytes = rest.to_vec();
        let bound = Aad::from(bound_to(tenant, upstream));
        let opened = self.cipher()?.open_in_place(Nonce::assume_unique_for_key(*nonce), bound, &mut bytes).ok()?;
        let secret = SharedSecret::new(&*opened);
        bytes.fill(0);
        // Keeps the compiler from treating the overwrite as dead.
        std::hint::black_box(&bytes);
        Some(secret)
    }
}

fn bound_to(tenant: TenantId, upstream: &str) -> Vec<u8> {
    [tenant.as_bytes(), upstream.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId::from_bytes([1; 16]);

    fn seal() -> Seal {
        Seal::new(&Secret::new((0..32).collect::<Vec<u8>>()))
    }

    #[test]
    fn opens_where_it_was_closed_and_nowhere_else() {
        let sealed = seal().close((TENANT, "openai"), [7; NONCE_LEN], &Secret::new("sk-canary")).unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"canary"));
        assert!(seal().open((TENANT, "openai"), &sealed).is_some_and(|secret| secret.matches(b"sk-canary")));
        assert!(seal().open((TENANT, "anthropic"), &sealed).is_none(), "another upstream");
        assert!(seal().open((TenantId::from_bytes([2; 16]), "openai"), &sealed).is_none(), "another tenant");
        assert!(Seal::new(&Secret::new(vec![0; 32])).open((TENANT, "openai"), &sealed).is_none(), "another file");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(seal().open((TENANT, "openai"), &changed).is_none(), "byte {at}");
            assert!(seal().open((TENANT, "openai"), &sealed[..at]).is_none(), "cut at {at}");
        }
    }

    #[test]
    fn is_what_others_make_of_it() {
        // Python, cryptography 48: HKDF(SHA256, 32, salt=b"weir provider keys", info=b"aes-256-gcm") of bytes(range(32)), then
        // AESGCM(key).encrypt(bytes([7]*12), b"sk-canary", bytes([1]*16) + b"openai").
        let sealed = seal().close((TENANT, "openai"), [7; NONCE_LEN], &Secret::new("sk-canary")).unwrap();
        let hex: String = sealed.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "01070707070707070707070707a666593af8c1a547b17e35f050bc381871b959c020636aecf8");
    }
}
