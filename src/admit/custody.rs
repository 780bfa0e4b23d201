//! Recognises credentials addressed to the gateway wherever they stand, so that none of them is ever sent upstream.
//!
//! | where                                         | what counts                                            |
//! |-----------------------------------------------|--------------------------------------------------------|
//! | fields that carry credentials                 | our prefixes at the start of a word; the admin key     |
//! | all other fields, and the request target      | a prefix with 64 hex digits behind it; the admin key   |
//! | `Basic` credentials                           | the same after base64                                  |
//! | the target                                    | the same after percent-decoding                        |
//!
//! Invariant: looking for the admin key takes equally long whatever it is compared with; only its length shows.
//! Knows no directory: a revoked or mistyped key is not sent upstream either.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use weir_config::vocab::{SharedSecret, same_bytes};

use super::presented::{KEY_PREFIX, TOKEN_PREFIX};

/// Hex digits behind a prefix.
pub(super) const DIGITS: usize = 64;

/// Fields whose values are credentials.
const CREDENTIAL_FIELDS: [&[u8]; 6] =
    [b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"proxy-authorization", b"cookie"];

/// Finds our credentials in text from a client.
pub(super) struct Custody {
    admin: Option<Needle>,
}

/// The admin key and the hash that finds candidates for it.
struct Needle {
    key: SharedSecret,
    hash: u64,
    /// `BASE` to the power of the key's length.
    leaving: u64,
}

/// Base of the rolling hash.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

impl Custody {
    pub(super) fn new(admin: Option<SharedSecret>) -> Self {
        let needle = |key: SharedSecret| {
            let hash = key.expose().iter().fold(0u64, |hash, byte| roll(hash, *byte));
            let leaving = key.expose().iter().fold(1u64, |power, _| power.wrapping_mul(BASE));
            Needle { key, hash, leaving }
        };
        Self { admin: admin.map(needle) }
    }

    /// Whether a header field holds one of our credentials.
    pub(super) fn in_field(&self, name: &[u8], value: &[u8]) -> bool {
        let shortest = KEY_PREFIX.len();
        if value.len() < shortest {
            return false;
        }
        let is_credential = CREDENTIAL_FIELDS.iter().any(|known| name.eq_ignore_ascii_case(known));
        self.in_text(value, is_credential) || (is_credential && self.in_basic(value))
    }

    /// Whether a request target holds one of our credentials.
    pub(super) fn in_target(&self, target: &str) -> bool {
        self.in_text(target.as_bytes(), false)
            || (target.contains('%') && self.in_text(&percent_decoded(target.as_bytes()), false))
    }

    fn in_basic(&self, value: &[u8]) -> bool {
        let Some((scheme, rest)) = value.trim_ascii().split_at_checked("Basic ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Basic ")
            && STANDARD.decode(rest.trim_ascii()).is_ok_and(|decoded| self.in_text(&decoded, true))
    }

    fn in_text(&self, text: &[u8], prefix_suffices: bool) -> bool {
        has_prefixed(text, prefix_suffices) || self.admin.as_ref().is_some_and(|needle| needle.is_in(text))
    }
}

impl Needle {
    fn is_in(&self, text: &[u8]) -> bool {
        let key = self.key.expose();
        if text.len() < key.len() {
            return false;
        }
        let mut hash = 0u64;
        let mut found = false;
        for (at, byte) in text.iter().enumerate() {
            hash = roll(hash, *byte);
            let end = at + 1;
            if let Some(left) = end.checked_sub(key.len() + 1).and_then(|left| text.get(left)) {
                hash = hash.wrapping_sub(self.leaving.wrapping_mul(u64::from(*left) + 1));
            }
            if hash == self.hash && end >= key.len() {
                found |= text.get(end - key.len()..end).is_some_and(|window| same_bytes(window, key));
            }
        }
        found
    }
}

fn roll(hash: u64, byte: u8) -> u64 {
    hash.wrapping_mul(BASE).wrapping_add(u64::from(byte) + 1)
}

/// Whether a key or token stands in `text`; `prefix_suffices` counts anything that begins like one.
fn has_prefixed(text: &[u8], prefix_suffices: bool) -> bool {
    memchr::memchr_iter(b'_', text).any(|at| {
        let start = at.saturating_sub(KEY_PREFIX.len() - 1);
        let prefix = text.get(start..=at).unwrap_or_default();
        if prefix != KEY_PREFIX.as_bytes() && prefix != TOKEN_PREFIX.as_bytes() {
            return false;
        }
        let before = start.checked_sub(1).and_then(|before| text.get(before));
        if prefix_suffices && before.is_none_or(|byte| !byte.is_ascii_alphanumeric()) {
            return true;
        }
        let digits = text.get(at + 1..at + 1 + DIGITS);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        let byte = match (first, after) {
            (b'%', [high, low, behind @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    rest = behind;
                    high << 4 | low
                }
                _ => b'%',
            },
            _ => *first,
        };
        decoded.push(byte);
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "svc_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const TOKEN: &str = "svt_fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
    const ADMIN: &str = "correct-horse=battery+staple";

    fn custody() -> Custody {
        Custody::new(Some(SharedSecret::new(ADMIN)))
    }

    #[test]
    fn finds_each_credential_in_any_field_and_in_the_target() {
        let custody = custody();
        for secret in [KEY, TOKEN, ADMIN] {
            for (name, value) in [
                ("Authorization", format!("Bearer {secret}")),
                ("X-API-Key", secret.to_owned()),
                ("X-Goog-Api-Key", secret.to_owned()),
                ("X-Anything", format!("before,{secret};after")),
                ("Cookie", format!("a=b; session={secret}")),
                ("Authorization", format!("Basic {}", STANDARD.encode(format!("user:{secret}")))),
            ] {
                assert!(custody.in_field(name.as_bytes(), value.as_bytes()), "{name}: {value}");
            }
            assert!(custody.in_target(&format!("/v1/models?key={secret}")));
            let escaped: String = secret.bytes().map(|byte| format!("%{byte:02x}")).collect();
            assert!(custody.in_target(&format!("/v1/models?key={escaped}")));
        }
    }

    #[test]
    fn a_broken_key_in_a_credential_field_is_ours_all_the_same() {
        let custody = custody();
        assert!(custody.in_field(b"authorization", b"Bearer svc_typo"));
        assert!(custody.in_field(b"x-api-key", b"svt_"));
    }

    #[test]
    fn what_belongs_to_others_passes() {
        let custody = custody();
        for (name, value) in [
            ("Authorization", "Bearer sk-proj-abc_def"),
            ("Authorization", "Basic dXNlcjpwYXNz"),
            ("User", "svc_backup"),
            ("X-Job", "svt_nightly-2026"),
            ("X-Api-Key", "mysvc_key"),
            ("X-Note", "correct-horse=battery+stapl"),
            ("X-Empty", ""),
        ] {
            assert!(!custody.in_field(name.as_bytes(), value.as_bytes()), "{name}: {value}");
        }
        assert!(!custody.in_target("/v1/svc_models?key=%zz%4"));
    }

    proptest::proptest! {
        #[test]
        fn the_admin_key_is_found_wherever_it_stands(
            before in proptest::collection::vec(0u8.., 0..80),
            key in "[!-~]{8,40}",
            after in proptest::collection::vec(0u8.., 0..80),
        ) {
            let needle = Custody::new(Some(SharedSecret::new(key.as_str()))).admin;
            let text = [&before[..], key.as_bytes(), &after].concat();
            proptest::prop_assert!(needle.as_ref().is_some_and(|needle| needle.is_in(&text)));
            let without = [&before[..], &after].concat();
            let expected = memchr::memmem::find(&without, key.as_bytes()).is_some();
            proptest::prop_assert_eq!(needle.is_some_and(|needle| needle.is_in(&without)), expected);
        }
    }
}
