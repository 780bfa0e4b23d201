//! The signature of webhooks, by which a receiver knows who sent them and when.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};
use ring::hmac;

/// The header fields of Standard Webhooks: <https://www.standardwebhooks.com>. Without a secret there is no signature.
pub fn signature(secret: Option<&[u8]>, id: &str, seconds: i64, body: &str) -> Vec<(HeaderName, HeaderValue)> {
    let mut fields = vec![(HeaderName::from_static("webhook-timestamp"), HeaderValue::from(seconds))];
    fields.extend(HeaderValue::from_str(id).ok().map(|id| (HeaderName::from_static("webhook-id"), id)));
    let Some(secret) = secret else { return fields };
    // Its form was checked with the settings.
    let encoded = secret.strip_prefix(b"whsec_").unwrap_or(secret);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(encoded).unwrap_or_else(|_| encoded.to_vec()));
    let tag = hmac::sign(&key, format!("{id}.{seconds}.{body}").as_bytes());
    let signed = HeaderValue::from_str(&format!("v1,{}", STANDARD.encode(tag)));
    fields.extend(signed.ok().map(|signed| (HeaderName::from_static("webhook-signature"), signed)));
    fields
}
