//! A secret that cannot be shown by accident.

use std::fmt;

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
        let ours = Sha256::digest(&self.0);
        let theirs = Sha256::digest(candidate);
        ours.iter().zip(theirs.iter()).fold(0u8, |seen, (a, b)| seen | (a ^ b)) == 0
    }
}

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
        assert_eq!(format!("{:?}", Secret::new("sk-123")), "***");
    }

    #[test]
    fn matches_only_the_same_bytes() {
        let secret = Secret::new("svc_abc");
        assert!(secret.matches(b"svc_abc"));
        assert!(!secret.matches(b"svc_abd"));
        assert!(!secret.matches(b""));
    }
}
