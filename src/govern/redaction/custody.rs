//! Recognises credentials addressed to the gateway wherever they stand, so that none of them is ever sent upstream.
//!
//! | where                                         | what counts                                            |
//! |-----------------------------------------------|--------------------------------------------------------|
//! | fields that carry credentials                 | our prefixes at the start of a word; the admin key     |
//! | all other fields, and the request target      | a prefix with 64 hex digits behind it; the admin key   |
//! | `Basic` credentials, in any field             | the same after base64, however it is padded or spelt   |
//! | words of base64 or hex digits, in any of them | a prefix with 64 hex digits behind it; the admin key   |
//! | any of these                                  | the same after percent-decoding, once and twice        |
//!
//! Invariant: looking for the admin key takes equally long whatever it is compared with; only its length shows.
//! Knows no directory: a revoked or mistyped key is not sent upstream either.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use smallvec::SmallVec;
use weir_config::vocab::{SharedSecret, same_bytes};

/// First characters of every API key.
pub const KEY_PREFIX: &str = "svc_";
/// First characters of every tenant token.
pub const TOKEN_PREFIX: &str = "svt_";
/// Hex digits behind a prefix.
pub(super) const DIGITS: usize = 64;

/// Fields whose values are credentials.
const CREDENTIAL_FIELDS: [&[u8]; 6] =
    [b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"proxy-authorization", b"cookie"];

/// Shortest word that is read as base64 or hex digits; what it spells has three quarters, or half, of that.
const CODED_BYTES_MIN: usize = 16;

/// Reads base64 whatever stands at its end.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

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
        self.in_spellings(value, is_credential)
    }

    /// Whether a request target holds one of our credentials.
    pub(super) fn in_target(&self, target: &str) -> bool {
        self.in_spellings(target.as_bytes(), false)
    }

    /// The text as it is, and as whoever decodes it, once or twice, would read it.
    fn in_spellings(&self, text: &[u8], prefix_suffices: bool) -> bool {
        let is_in =
            |text: &[u8]| self.in_text(text, prefix_suffices) || self.in_basic(text) || self.in_coded_words(text);
        if is_in(text) {
            return true;
        }
        if memchr::memchr(b'%', text).is_none() {
            return false;
        }
        let once = percent_decoded(text);
        is_in(&once) || memchr::memchr(b'%', &once).is_some() && is_in(&percent_decoded(&once))
    }

    /// Providers' servers differ in how strictly they read base64, so it is read as leniently as any of them.
    fn in_basic(&self, value: &[u8]) -> bool {
        let Some((scheme, rest)) = value.trim_ascii().split_at_checked("Basic ".len()) else { return false };
        if !scheme.trim_ascii().eq_ignore_ascii_case(b"Basic") {
            return false;
        }
        let in_alphabet = |byte: &u8| match byte {
            b'-' => Some(b'+'),
            b'_' => Some(b'/'),
            b'+' | b'/' => Some(*byte),
            byte => byte.is_ascii_alphanumeric().then_some(*byte),
        };
        let mut letters: Vec<u8> = rest.iter().filter_map(in_alphabet).collect();
        if letters.len() % 4 == 1 {
            letters.pop();
        }
        let Ok(decoded) = LENIENT.decode(letters) else { return false };
        self.in_text(&decoded, true)
            || memchr::memchr(b'%', &decoded).is_some() && self.in_text(&percent_decoded(&decoded), true)
    }

    /// Words that spell something longer in base64 or in hex digits; what stands before it in its word shifts where it begins.
    fn in_coded_words(&self, text: &[u8]) -> bool {
        let is_code = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
        let mut words = text.split(|byte| !is_code(byte)).filter(|word| word.len() >= CODED_BYTES_MIN);
        words.any(|word| {
            let mut plain: SmallVec<[u8; 256]> = SmallVec::new();
            (0..4).any(|from| {
                from_base64(word.get(from..).unwrap_or_default(), &mut plain) && self.in_text(&plain, false)
            }) || (0..2)
                .any(|from| from_hex(word.get(from..).unwrap_or_default(), &mut plain) && self.in_text(&plain, false))
        })
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

/// Reads base64 in both of its alphabets; false where it is none.
fn from_base64(word: &[u8], plain: &mut SmallVec<[u8; 256]>) -> bool {
    // A letter left over spells nothing.
    let word = word.get(..word.len() - usize::from(word.len() % 4 == 1)).unwrap_or_default();
    plain.resize(word.len(), 0);
    let letters = word.iter().map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        byte => *byte,
    });
    let letters: SmallVec<[u8; 256]> = letters.collect();
    let length = LENIENT.decode_slice(&letters, plain).ok();
    plain.truncate(length.unwrap_or(0));
    length.is_some()
}

/// Reads pairs of hex digits, as far as there are any.
fn from_hex(word: &[u8], plain: &mut SmallVec<[u8; 256]>) -> bool {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    plain.clear();
    let (pairs, _) = word.as_chunks::<2>();
    plain.extend(pairs.iter().map_while(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)));
    plain.len() * 2 >= CODED_BYTES_MIN
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
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

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
            let hex: String = format!("a:{secret}").bytes().map(|byte| format!("{byte:02X}")).collect();
            for before in ["", "x", "xy-", "key_", "1234/"] {
                for engine in [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD] {
                    let coded = engine.encode(format!("user:{secret}"));
                    assert!(
                        custody.in_field(b"x-spare", format!("note {before}{coded}").as_bytes()),
                        "{before}{coded}"
                    );
                }
                assert!(
                    custody.in_field(b"x-spare", format!("0{hex}").as_bytes())
                        && custody.in_target(&format!("/?a={hex}"))
                );
            }
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

    /// Some bytes of `text` as `%xx`.
    fn percent_encoded(text: &str, chosen: &[bool]) -> String {
        let spell =
            |(byte, chosen): (u8, &bool)| if *chosen { format!("%{byte:02X}") } else { char::from(byte).to_string() };
        text.bytes().zip(chosen.iter().cycle()).map(spell).collect()
    }

    proptest::proptest! {
        #[test]
        fn every_credential_is_found_in_every_spelling_and_field(
            secret in proptest::sample::select(vec![KEY, TOKEN, ADMIN]),
            name in proptest::sample::select(vec!["Authorization", "X-Api-Key", "X-Upstream-Auth", "Cookie", "X-Anything"]),
            user in "[ -~]{0,7}",
            basic in proptest::option::of(0usize..4),
            first in proptest::option::of(proptest::collection::vec(proptest::bool::ANY, 1..9)),
            second in proptest::option::of(proptest::collection::vec(proptest::bool::ANY, 1..9)),
        ) {
            let custody = custody();
            let user = user.replace(['%', '_'], "");
            let mut text = format!("{user}:{secret}");
            if let Some(engine) = basic {
                let engine = [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD][engine];
                text = format!("bAsIc {}", engine.encode(text));
            }
            for chosen in [&first, &second].into_iter().flatten() {
                text = percent_encoded(&text, chosen);
            }
            proptest::prop_assert!(custody.in_field(name.as_bytes(), text.as_bytes()), "{}: {}", name, text);
            let target = format!("/v1/models?key={}", text.replace(' ', ""));
            proptest::prop_assert!(basic.is_some() || custody.in_target(&target), "{}", target);
        }

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
