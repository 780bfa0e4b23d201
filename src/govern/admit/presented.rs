//! What a request's head says about who sends it: the fields that may name a tenant or carry a credential.
//!
//! Invariant: reading keeps the first field of a name; nothing is judged here. Knows no settings and no directory.

/// Values of the fields that concern admission, as they came.
#[derive(Debug, Clone, Copy, Default)]
pub struct Presented<'a> {
    /// `X-Service-Tenant-ID`.
    pub tenant: Option<&'a [u8]>,
    /// `X-Service-Token`.
    pub token: Option<&'a [u8]>,
    /// `Authorization`.
    pub authorization: Option<&'a [u8]>,
    /// `x-api-key`.
    pub x_api_key: Option<&'a [u8]>,
    /// `api-key`, as some SDKs say.
    pub api_key: Option<&'a [u8]>,
    /// `x-goog-api-key`, which is the provider's alone.
    pub google_key: Option<&'a [u8]>,
    /// `User-Agent`.
    pub agent: Option<&'a [u8]>,
    /// `Referer`: the page that asks, or that a link stands on.
    pub referer: Option<&'a [u8]>,
    /// `Origin`: whose page asks.
    pub origin: Option<&'a [u8]>,
    /// `Sec-Fetch-Site`: what that page is to us, in the browser's word.
    pub site: Option<&'a [u8]>,
    /// `Sec-Fetch-Dest`: what the answer is for.
    pub destination: Option<&'a [u8]>,
}

impl<'a> Presented<'a> {
    /// Goes through a head's fields once.
    pub fn read(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut presented = Self::default();
        for (name, value) in fields {
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            // The length decides which one it can be at all.
            let slot = match name.len() {
                6 if is(b"origin") => &mut presented.origin,
                7 if is(b"api-key") => &mut presented.api_key,
                7 if is(b"referer") => &mut presented.referer,
                9 if is(b"x-api-key") => &mut presented.x_api_key,
                10 if is(b"user-agent") => &mut presented.agent,
                13 if is(b"authorization") => &mut presented.authorization,
                14 if is(b"x-goog-api-key") => &mut presented.google_key,
                14 if is(b"sec-fetch-site") => &mut presented.site,
                14 if is(b"sec-fetch-dest") => &mut presented.destination,
                15 if is(b"x-service-token") => &mut presented.token,
                19 if is(b"x-service-tenant-id") => &mut presented.tenant,
                _ => continue,
            };
            slot.get_or_insert(value);
        }
        presented
    }

    /// Whether it brings a credential of its own, so that the operator's is not lent to it.
    pub fn brings_credential(&self) -> bool {
        self.authorization.is_some() || self.any_api_key().is_some() || self.google_key.is_some()
    }

    /// Whether it looks like a browser's, which need not say more of a page that it takes for one of ours.
    pub(super) fn looks_like_a_page(&self) -> bool {
        self.referer.is_some() || self.agent.is_some_and(|agent| agent.starts_with(b"Mozilla/"))
    }

    /// The provider's key outside `Authorization`.
    pub fn any_api_key(&self) -> Option<&'a [u8]> {
        self.x_api_key.or(self.api_key)
    }
}

/// The token of `Bearer <token>`; the scheme in any case (RFC 9110 section 11.1), blanks around it ignored.
pub(super) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let value = value.trim_ascii();
    let (scheme, rest) = value.split_at_checked("Bearer".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer") && rest.first().is_some_and(u8::is_ascii_whitespace);
    is_bearer.then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_in_any_case_and_keeps_the_first_of_each() {
        let fields: [(&[u8], &[u8]); 10] = [
            (b"Host", b"h"),
            (b"ORIGIN", b"o"),
            (b"sec-fetch-site", b"s"),
            (b"Sec-Fetch-Dest", b"d"),
            (b"X-SERVICE-TENANT-ID", b"t"),
            (b"authorization", b"a"),
            (b"Authorization", b"b"),
            (b"X-Api-Key", b"x"),
            (b"API-Key", b"y"),
            (b"x-service-token", b"z"),
        ];
        let read = Presented::read(fields);
        assert_eq!((read.tenant, read.authorization), (Some(&b"t"[..]), Some(&b"a"[..])));
        assert_eq!((read.x_api_key, read.api_key, read.token), (Some(&b"x"[..]), Some(&b"y"[..]), Some(&b"z"[..])));
        assert_eq!((read.origin, read.site, read.destination), (Some(&b"o"[..]), Some(&b"s"[..]), Some(&b"d"[..])));
        assert_eq!(read.any_api_key(), Some(&b"x"[..]));
    }
}
