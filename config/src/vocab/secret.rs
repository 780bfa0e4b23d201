//! A secret that cannot be shown by accident.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// A credential. It has no `Display`, `Serialize`, `Clone` or `PartialEq`; `Debug` prints `***`; memory is overwritten
/// on drop. Compare with [`Secret::matches`], hand out with [`Secret::expose`] at the one place that sends it.
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes ownership of the plaintext.
    pub fn new(plaintext: impl Into<Vec<u8>>) -> Self {
        Self(plaintext.into())
    }

    /// The plaintext, for the one place that has to put it on a wire.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Constant-time comparison: both sides are hashed with SHA-256 and all 32 bytes are always compared.
    pub fn matches(&self, candidate: &[u8]) -> bool {
        same_bytes(&Sha256::digest(&self.0), &Sha256::digest(candidate))
    }
}

/// Whether both hold the same bytes. Takes equally long wherever they differ; only the lengths show.
pub fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let differences = a.iter().zip(b).fold(0u8, |seen, (a, b)| seen | (a ^ b));
    // Keeps the compiler from ending the loop at the first difference.
    std::hint::black_box(differences) == 0
}

/// A secret that settings can hold: clones share the one copy in memory.
#[derive(Clone)]
pub struct SharedSecret(Arc<Secret>);

impl SharedSecret {
    /// Takes ownership of the plaintext.
    pub fn new(plaintext: impl Into<Vec<u8>>) -> Self {
        Self(Arc::new(Secret::new(plaintext)))
    }
}

impl Deref for SharedSecret {
    type Target = Secret;

    fn deref(&self) -> &Secret {
        &self.0
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for SharedSecret {
    fn eq(&self, other: &Self) -> bool {
        self.0.matches(other.expose())
    }
}

impl Eq for SharedSecret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.fill(0);
        // Keeps the compiler from treating the overwrite as dead.
        std::hint::black_box(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_prints_itself() {
        assert_eq!(format!("{:?} {:?}", Secret::new("sk-123"), SharedSecret::new("sk-123")), "*** ***");
    }

    #[test]
    fn matches_only_the_same_bytes() {
        let secret = Secret::new("svc_abc");
        assert!(secret.matches(b"svc_abc"));
        assert!(!secret.matches(b"svc_abd"));
        assert!(!secret.matches(b""));
    }
}
