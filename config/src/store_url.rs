//! The address of a store: `scheme://user:password@host:port/path?key=value&...`.
//!
//! Invariant: what names it to people (`Debug`, [`StoreUrl::shown`]) holds neither the password nor the user, nor any parameter.

use std::fmt;

/// An address of a store with its credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    /// In lower case.
    pub scheme: String,
    /// Decoded; empty when there is none.
    pub user: String,
    /// Decoded; `None` when there is none.
    pub password: Option<String>,
    /// A name or an address, IPv6 without its brackets.
    pub host: String,
    /// `None` stands for the scheme's own.
    pub port: Option<u16>,
    /// Decoded, without the first slash.
    pub path: String,
    /// Parameters, decoded, in their order.
    pub query: Vec<(String, String)>,
}

impl StoreUrl {
    /// Reads an address; `None` where it is none. Why is not said, as the text may be a credential.
    pub fn parse(text: &str) -> Option<Self> {
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let (scheme, rest) = text.split_once("://")?;
        let rest = rest.split('#').next()?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, place) = authority.rsplit_once('@').map_or((None, authority), |(who, at)| (Some(who), at));
        let (user, password) = match credentials.map(|who| who.split_once(':').unwrap_or((who, ""))) {
            Some((user, "")) if !credentials?.contains(':') => (decoded(user)?, None),
            Some((user, password)) => (decoded(user)?, Some(decoded(password)?)),
            None => (String::new(), None),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(literal) => {
                let (host, rest) = literal.split_once(']')?;
                (host, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some(""))?)
            }
            None => place.split_once(':').unwrap_or((place, "")),
        };
        let port = if port.is_empty() { None } else { Some(port.parse().ok()?) };
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?, decoded(value)?))
        };
        let query = query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect::<Option<_>>()?;
        (!host.is_empty() && !scheme.is_empty()).then_some(())?;
        Some(Self {
            scheme: scheme.to_ascii_lowercase(),
            user,
            password,
            host: decoded(host)?,
            port,
            path: decoded(path)?,
            query,
        })
    }

    /// The value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// For people: where it leads, and nothing else.
    pub fn shown(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{host}{port}", self.scheme)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

/// A text with its `%XX` replaced; `None` where one is no such thing, or it is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_read_and_none_that_is_secret_is_shown() {
        let url = StoreUrl::parse("PostgreSQL://we%69r:p%40ss:w@db.example:6432/weir?sslmode=require&x=%20").unwrap();
        assert_eq!(
            (url.scheme.as_str(), url.user.as_str(), url.password.as_deref()),
            ("postgresql", "weir", Some("p@ss:w"))
        );
        assert_eq!((url.host.as_str(), url.port, url.path.as_str()), ("db.example", Some(6432), "weir"));
        assert_eq!(
            (url.parameter("sslmode"), url.parameter("x"), url.parameter("y")),
            (Some("require"), Some(" "), None)
        );
        assert_eq!(format!("{url:?}"), "postgresql://db.example:6432");
        let bare = StoreUrl::parse("redis://[::1]").unwrap();
        assert_eq!((bare.host.as_str(), bare.port, bare.password.is_none()), ("::1", None, true));
        assert_eq!(StoreUrl::parse("redis://:pw@h").unwrap().password.as_deref(), Some("pw"));
        for text in ["", "h", "redis://", "redis://h:x", "redis://h:99999", "redis://h/%zz", "redis://[::1", "a://h h"]
        {
            assert_eq!(StoreUrl::parse(text), None, "{text}");
        }
    }
}
