//! The forms of addresses and secrets that are never shown, so that a wrong one is told by its name alone.

pub(super) const NO_URL: &str = "has to be a whole http:// or https:// URL";
pub(super) const NO_SIGNING_SECRET: &str = "has to be `whsec_` and 24 to 64 bytes as base64";

/// Whether it can be called.
pub(super) fn is_url(url: &[u8]) -> bool {
    let rest = url.strip_prefix(b"https://").or_else(|| url.strip_prefix(b"http://"));
    rest.is_some_and(|rest| {
        rest.iter().all(u8::is_ascii_graphic) && rest.first().is_some_and(|byte| !b"/?#:".contains(byte))
    })
}

/// By its form: 32 to 88 characters of padded base64.
pub(super) fn is_signing_secret(secret: &[u8]) -> bool {
    let Some(encoded) = secret.strip_prefix(b"whsec_") else { return false };
    let digits = encoded.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(byte)).count();
    let padding = encoded.get(digits..).unwrap_or_default();
    (32..=88).contains(&encoded.len())
        && encoded.len().is_multiple_of(4)
        && padding.len() <= 2
        && padding.iter().all(|byte| *byte == b'=')
}
