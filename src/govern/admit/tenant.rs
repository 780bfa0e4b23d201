//! The tenant of a request while authentication is off.
//!
//! | X-Service-Tenant-ID | credential                            | tenant                                |
//! |---------------------|---------------------------------------|---------------------------------------|
//! | a UUID              | any                                   | that one                              |
//! | absent or invalid   | bearer text, not shaped like a JWT    | UUID v5 of the text                   |
//! | absent or invalid   | else the key id of an AWS signature   | UUID v5 of the id                     |
//! | absent or invalid   | else `x-api-key`, not like a JWT      | UUID v5 of the text                   |
//! | absent or invalid   | none of these                         | the default tenant                    |
//!
//! `api-key` and `x-goog-api-key` count as `x-api-key`, in this order. A JWT changes at each refresh, and so does the key id of
//! temporary AWS credentials: they name nobody for long and count as no key. The same credential names the same tenant in
//! whichever field it comes. Invariant: pure and total, every input has a tenant; the proxy and the query API resolve alike.
//! Knows no settings and no tenant table.

use weir_config::vocab::TenantId;

use super::presented::bearer;

/// The tenant of a request by the values of its `X-Service-Tenant-ID`, `Authorization` and `x-api-key` (or related) fields.
pub fn resolve(tenant_header: Option<&[u8]>, authorization: Option<&[u8]>, x_api_key: Option<&[u8]>) -> TenantId {
    if let Some(tenant) = tenant_header.and_then(named) {
        return tenant;
    }
    let authorized = authorization.and_then(|value| bearer(value).or_else(|| aws_key_id(value)));
    let credentials = [authorized, x_api_key.map(<[u8]>::trim_ascii)];
    let usable = |credential: &&[u8]| !credential.is_empty() && !looks_like_jwt(credential);
    credentials.into_iter().flatten().find(usable).map_or(TenantId::DEFAULT, TenantId::from_credential)
}

/// The tenant of one connection's requests. They mostly carry the same credential, so the last answer is kept: hashing it
/// again for each request would cost more than everything else admission does.
#[derive(Debug, Default)]
pub struct Resolver {
    last: Option<(Vec<u8>, TenantId)>,
}

impl Resolver {
    /// See [`resolve`].
    pub fn resolve(
        &mut self,
        tenant_header: Option<&[u8]>,
        authorization: Option<&[u8]>,
        x_api_key: Option<&[u8]>,
    ) -> TenantId {
        if tenant_header.is_some() || authorization.is_some() == x_api_key.is_some() {
            return resolve(tenant_header, authorization, x_api_key);
        }
        // One credential decides. Its field is part of the key: the same bytes mean different things in the two.
        let field: &[u8] = if authorization.is_some() { b"b" } else { b"k" };
        let value = authorization.or(x_api_key).unwrap_or_default();
        if let Some((known, tenant)) = &self.last
            && known.strip_prefix(field).is_some_and(|known| known == value)
        {
            return *tenant;
        }
        let tenant = resolve(None, authorization, x_api_key);
        self.last = Some(([field, value].concat(), tenant));
        tenant
    }
}

/// The tenant a value of `X-Service-Tenant-ID` names.
pub fn named(value: &[u8]) -> Option<TenantId> {
    std::str::from_utf8(value).ok()?.trim_ascii().parse().ok()
}

/// The lasting access key id that an AWS signature (version 4) names: `AWS4-... Credential=<id>/<date>/...`.
fn aws_key_id(value: &[u8]) -> Option<&[u8]> {
    let value = value.trim_ascii();
    let named = b"Credential=";
    let at = value.starts_with(b"AWS4-").then(|| memchr::memmem::find(value, named)).flatten()?;
    let id = value.get(at + named.len()..)?.split(|byte| *byte == b'/').next()?;
    let is_id = (16..=128).contains(&id.len()) && id.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    (is_id && !id.starts_with(b"ASIA")).then_some(id)
}

/// Three base64url parts joined by dots, the first beginning like the encoding of `{"` (RFC 7515 section 7.1).
fn looks_like_jwt(credential: &[u8]) -> bool {
    let base64url = |part: &[u8]| part.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
    let mut parts = credential.split(|byte| *byte == b'.');
    let three = [parts.next(), parts.next(), parts.next()];
    parts.next().is_none()
        && three.iter().flatten().count() == 3
        && three.into_iter().flatten().all(base64url)
        && credential.starts_with(b"eyJ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: &[u8] = b"6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10";
    const JWT: &[u8] = b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";

    fn named_by(text: &str) -> TenantId {
        text.parse().unwrap()
    }

    fn bearing(token: &[u8]) -> Vec<u8> {
        [b"Bearer ", token].concat()
    }

    #[test]
    fn a_connection_s_resolver_answers_like_resolve() {
        let mut resolver = Resolver::default();
        type Fields<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, Option<&'a [u8]>);
        let asked: [Fields<'_>; 8] = [
            (None, Some(b"Bearer sk-1"), None),
            (None, Some(b"Bearer sk-1"), None),
            (None, None, Some(b"Bearer sk-1")),
            (None, None, Some(b"sk-1")),
            (Some(TENANT), Some(b"Bearer sk-1"), None),
            (None, Some(b"Bearer sk-2"), Some(b"sk-1")),
            (None, None, None),
            (None, Some(b"Bearer sk-2"), None),
        ];
        for (header, bearer, key) in asked {
            assert_eq!(resolver.resolve(header, bearer, key), resolve(header, bearer, key));
        }
    }

    #[test]
    fn a_valid_header_wins_over_every_credential() {
        let expected = named_by("6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10");
        assert_eq!(resolve(Some(TENANT), Some(b"Bearer sk-1"), Some(b"sk-2")), expected);
        assert_eq!(resolve(Some(b" 6F1C2B1E-0D5A-4C6F-9E7B-0D9A4C3B2A10\t"), None, None), expected);
    }

    #[test]
    fn the_bearer_names_the_tenant_as_a_uuid_v5_of_its_text() {
        // uuid.uuid5(uuid.NAMESPACE_URL, "sk-1")
        let expected = named_by("5d129cce-0874-5637-a4aa-93fcfcf545e7");
        for header in [&b"Bearer sk-1"[..], b"bearer sk-1", b"  BEARER \t sk-1 "] {
            assert_eq!(resolve(None, Some(header), Some(b"sk-2")), expected, "{}", header.escape_ascii());
        }
        assert_eq!(resolve(None, None, Some(b"sk-1")), expected);
    }

    #[test]
    fn an_invalid_header_is_as_good_as_none() {
        for header in [&b"not-a-uuid"[..], b"", b"\xff\xfe", b"6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a1"] {
            assert_eq!(resolve(Some(header), Some(b"Bearer sk-1"), None), TenantId::from_credential(b"sk-1"));
            assert_eq!(resolve(Some(header), None, None), TenantId::DEFAULT);
        }
    }

    #[test]
    fn a_jwt_counts_as_no_key() {
        assert_eq!(resolve(None, Some(&bearing(JWT)), None), TenantId::DEFAULT);
        assert_eq!(resolve(None, None, Some(JWT)), TenantId::DEFAULT);
        assert_eq!(resolve(None, Some(&bearing(JWT)), Some(b"sk-2")), TenantId::from_credential(b"sk-2"));
    }

    #[test]
    fn an_aws_signature_names_the_tenant_of_its_lasting_key_id() {
        let signed = |id: &str, signature: &str| {
            format!(
                "AWS4-HMAC-SHA256 Credential={id}/20261122/eu-west-1/bedrock/aws4_request, \
                 SignedHeaders=host;x-amz-date, Signature={signature}"
            )
            .into_bytes()
        };
        let id = "AKIAIOSFODNN7EXAMPLE";
        for signature in ["aa", "bb"] {
            assert_eq!(resolve(None, Some(&signed(id, signature)), None), TenantId::from_credential(id.as_bytes()));
        }
        assert_eq!(resolve(None, None, Some(id.as_bytes())), TenantId::from_credential(id.as_bytes()));
        for nobody in ["ASIAIOSFODNN7EXAMPLE", "", "AKIA IOSFODNN7EXAMPLE", &"A".repeat(129)] {
            assert_eq!(resolve(None, Some(&signed(nobody, "aa")), None), TenantId::DEFAULT, "{nobody}");
        }
        assert_eq!(resolve(None, Some(b"AWS4-HMAC-SHA256 Signature=aa"), None), TenantId::DEFAULT);
    }

    #[test]
    fn what_only_resembles_a_jwt_is_a_key() {
        for key in [&b"eyJ.two"[..], b"eyJ.a.b.c", b"eyJ.a+.c", b"a.b.c", b"sk-ant-api03-x_y"] {
            assert_eq!(resolve(None, Some(&bearing(key)), None), TenantId::from_credential(key));
        }
    }

    #[test]
    fn other_schemes_and_empty_credentials_name_nobody() {
        for header in [&b"Basic dXNlcjpwYXNz"[..], b"Bearer", b"Bearer   ", b"Bearersk-1", b""] {
            assert_eq!(resolve(None, Some(header), None), TenantId::DEFAULT, "{}", header.escape_ascii());
        }
        assert_eq!(resolve(None, None, Some(b"  ")), TenantId::DEFAULT);
    }
}
