//! The key that receipts are signed with, and the ones by which they are checked: Ed25519 (RFC 8032), the private key as PKCS #8 and the
//! public one as SubjectPublicKeyInfo, both as PEM (RFC 8410), as `openssl genpkey -algorithm ed25519` writes them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};
use weir_config::vocab::Secret;

use super::hex::{hex, unhex};

/// What stands before the 32 bytes of a private key in PKCS #8.
const PRIVATE_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// And before those of a public one in a SubjectPublicKeyInfo.
const PUBLIC_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// Of what every signature covers first: a receipt's signature is none of anything else.
const DOMAIN: &[u8] = b"weir-receipt-v1\n";
/// A key file is no longer.
const FILE_BYTES_MAX: u64 = 16 * 1024;
/// Only its owner may read a private key.
const MODE: u32 = 0o600;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is a file already.
    #[error(
        "{}: there is a file already, and receipts that were signed with another key would no longer be found valid by a new one; keep it, \
         or name another file",
        .0.display()
    )]
    Exists(PathBuf),
    /// It holds something else.
    #[error("{}: this is no {what} (Ed25519, PEM)", path.display())]
    Form {
        /// Which file.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
    },
    /// The kernel gives no random bytes.
    #[error("the kernel gives no random bytes")]
    Random,
}

/// A key that signs.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

/// A key by which signatures are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl SigningKey {
    /// Makes a key and writes it to a file of its own, and the public key beside it.
    ///
    /// # Errors
    /// [`KeyError`]; a file that is there is never written to.
    pub fn create(path: &Path) -> Result<Self, KeyError> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| KeyError::Random)?;
        let secret = Secret::new(pem("PRIVATE KEY", &[&PRIVATE_HEAD[..], &seed].concat()).into_bytes());
        let key = Self::of_seed(&seed).ok_or(KeyError::Random)?;
        write_new(path, secret.expose(), MODE)?;
        Ok(key)
    }

    /// Reads a private key.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let form = || KeyError::Form { path: path.to_owned(), what: "private key" };
        let text = Secret::new(read(path)?.into_bytes());
        let text = std::str::from_utf8(text.expose()).map_err(|_| form())?;
        let seed = of_pem(text, "PRIVATE KEY", &PRIVATE_HEAD).ok_or_else(form)?;
        Self::of_seed(&seed).ok_or_else(form)
    }

    fn of_seed(seed: &[u8; 32]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        let public = PublicKey(pair.public_key().as_ref().try_into().ok()?);
        Some(Self { pair, public })
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The signature of `body`, in hexadecimal.
    pub(super) fn sign(&self, body: &str) -> String {
        hex(self.pair.sign(&[DOMAIN, body.as_bytes()].concat()).as_ref())
    }
}

impl PublicKey {
    /// Reads a public key: PEM, 64 hexadecimal digits, or what the API shows; of a private key its public one.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = read(path)?;
        let shown = serde_json::from_str::<serde_json::Value>(&text).ok();
        let digits = shown.as_ref().and_then(|shown| shown.get("public_key")?.as_str()).unwrap_or(text.trim());
        let public = of_pem(&text, "PUBLIC KEY", &PUBLIC_HEAD).or_else(|| unhex(digits)?.try_into().ok());
        match public {
            Some(public) => Ok(Self(public)),
            None if text.contains("PRIVATE KEY") => Ok(SigningKey::read(path)?.public),
            None => Err(KeyError::Form { path: path.to_owned(), what: "public key" }),
        }
    }

    /// By which receipts name it: the first 16 digits of its SHA-256.
    pub fn id(&self) -> String {
        let mut id = hex(&Sha256::digest(self.0));
        id.truncate(16);
        id
    }

    /// In hexadecimal.
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// As PEM.
    pub fn to_pem(self) -> String {
        pem("PUBLIC KEY", &[&PUBLIC_HEAD[..], &self.0].concat())
    }

    /// Whether `signature` is this key's of `body`.
    pub(super) fn verifies(&self, body: &str, signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, &self.0);
        key.verify(&[DOMAIN, body.as_bytes()].concat(), signature).is_ok()
    }
}

fn read(path: &Path) -> Result<String, KeyError> {
    let fail = |source| KeyError::File { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(fail)?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(fail)?;
    Ok(text)
}

fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), KeyError> {
    let fail = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyError::Exists(path.to_owned()),
        _ => KeyError::File { path: path.to_owned(), source },
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(fail)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // Half a key is none.
        let _gone = fs::remove_file(path).is_ok();
        fail(error)
    })
}

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

fn of_pem(text: &str, label: &str, head: &[u8]) -> Option<[u8; 32]> {
    let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (within, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let der = STANDARD.decode(within.split_whitespace().collect::<String>()).ok()?;
    der.strip_prefix(head)?.try_into().ok()
}
