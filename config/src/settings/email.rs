//! The URL of a channel of alerts that sends mail:
//! `smtps://user:password@host:465?from=weir@example.org&to=a@example.org,b@example.org`.
//!
//! `smtp://` is not encrypted, so it is for a relay on the same machine only. User, password and addresses are percent-encoded.

use crate::egress::percent_decoded;
use crate::vocab::SharedSecret;

/// Who a message goes to, at most.
const RECIPIENTS_MAX: usize = 50;
/// Octets of an address at most (RFC 5321 section 4.5.3.1).
const ADDRESS_BYTES_MAX: usize = 254;

/// A mail server, and whom it is to bring messages to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailUrl {
    /// Whether the connection is encrypted from its first byte on.
    pub is_tls: bool,
    /// The server's name or address.
    pub host: String,
    /// 465, or 25 of a relay on the same machine, unless the URL says otherwise.
    pub port: u16,
    /// Name and password.
    pub credentials: Option<(String, SharedSecret)>,
    /// The sender.
    pub from: String,
    /// The receivers.
    pub to: Vec<String>,
}

impl MailUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// What it has to be. Never a part of it: it holds a password.
    pub fn parse(url: &[u8]) -> Result<Self, &'static str> {
        const FORM: &str = "has to be smtps://user:password@host:465?from=address&to=address,address";
        let url =
            std::str::from_utf8(url).ok().filter(|url| url.bytes().all(|byte| byte.is_ascii_graphic())).ok_or(FORM)?;
        let (is_tls, rest) = match (url.strip_prefix("smtps://"), url.strip_prefix("smtp://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            (None, None) => return Err(FORM),
        };
        let (authority, query) = rest.split_once('?').ok_or(FORM)?;
        let (user, place) = match authority.trim_end_matches('/').rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority.trim_end_matches('/')),
        };
        let (host, port) = host_and_port(place, if is_tls { 465 } else { 25 }).ok_or(FORM)?;
        if !is_tls && !is_loopback(&host) {
            return Err(
                "has to begin with smtps://: smtp:// is not encrypted, and only for a relay on the same machine",
            );
        }
        let credentials = user.map(credentials).transpose()?;
        let (mut from, mut to) = (None, Vec::new());
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("from", value)) if from.is_none() => from = Some(address(value)?),
                Some(("to", value)) if to.is_empty() => {
                    to = value.split(',').map(address).collect::<Result<Vec<_>, _>>()?;
                }
                _ => return Err("may say `from` and `to` once each behind the `?`, and nothing else"),
            }
        }
        let from = from.ok_or("has to say who it is from: `?from=address`")?;
        if to.is_empty() || to.len() > RECIPIENTS_MAX {
            return Err("has to say whom it goes to, 1 to 50 addresses: `&to=address,address`");
        }
        Ok(Self { is_tls, host, port, credentials, from, to })
    }
}

fn credentials(text: &str) -> Result<(String, SharedSecret), &'static str> {
    const FORM: &str = "has to hold a user and a password, percent-encoded, before the `@`";
    let (user, password) = text.split_once(':').ok_or(FORM)?;
    let decoded = |text: &str| {
        let text = percent_decoded(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        text.filter(|text| !text.is_empty()).ok_or(FORM)
    };
    Ok((decoded(user)?, SharedSecret::new(decoded(password)?)))
}

fn host_and_port(place: &str, usual: u16) -> Option<(String, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, port)| (host, port.strip_prefix(':')))?,
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(usual), |port| port.parse().ok().filter(|port| *port > 0))?;
    let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte));
    is_host.then(|| (host.to_owned(), port))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A plain address: one that holds nothing by which a header could go on.
fn address(text: &str) -> Result<String, &'static str> {
    const FORM: &str = "has an address that is none: expected name@example.org, percent-encoded where it needs to be";
    let text = percent_decoded(text).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or(FORM)?;
    let (name, domain) = text.split_once('@').ok_or(FORM)?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&byte);
    let is_domain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let is_dotted = |text: &str| text.split('.').all(|label| !label.is_empty());
    let fits = name.bytes().all(is_name)
        && domain.bytes().all(is_domain)
        && is_dotted(name)
        && is_dotted(domain)
        && text.len() <= ADDRESS_BYTES_MAX;
    if fits { Ok(text) } else { Err(FORM) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<MailUrl, &'static str> {
        MailUrl::parse(url.as_bytes())
    }

    #[test]
    fn says_where_who_and_whom() {
        let url = "smtps://weir%40example.org:p%40ss%3Aword@mail.example.org:1465?from=weir%2Balerts@example.org&to=a@b.org,c@d.org";
        let read = parse(url).unwrap();
        assert_eq!((read.is_tls, read.host.as_str(), read.port), (true, "mail.example.org", 1465));
        let (user, password) = read.credentials.unwrap();
        assert_eq!((user.as_str(), password.expose()), ("weir@example.org", &b"p@ss:word"[..]));
        assert_eq!(
            (read.from.as_str(), read.to),
            ("weir+alerts@example.org", vec!["a@b.org".to_owned(), "c@d.org".to_owned()])
        );
        assert_eq!(parse("smtps://mail.example.org?to=a@b.org&from=c@d.org").unwrap().port, 465);
        let local = parse("smtp://[::1]?from=a@b.org&to=c@d.org").unwrap();
        assert_eq!((local.is_tls, local.host.as_str(), local.port, local.credentials), (false, "::1", 25, None));
    }

    #[test]
    fn what_could_not_be_sent_or_could_be_overheard_is_refused() {
        for url in [
            "https://mail.example.org?from=a@b.org&to=c@d.org",
            "smtps://mail.example.org",
            "smtps://mail.example.org?from=a@b.org",
            "smtps://mail.example.org?to=a@b.org",
            "smtps://mail.example.org?from=a@b.org&to=",
            "smtps://mail.example.org:0?from=a@b.org&to=c@d.org",
            "smtps://?from=a@b.org&to=c@d.org",
            "smtps://user@mail.example.org?from=a@b.org&to=c@d.org",
            "smtps://mail.example.org?from=a@b.org&to=c@d.org&tls=none",
            "smtps://mail.example.org?from=a@b.org&from=a@b.org&to=c@d.org",
            "smtps://mail.example.org?from=a%0D%0ABcc:x@b.org&to=c@d.org",
            "smtps://mail.example.org?from=a@b.org&to=<c@d.org>",
            "smtps://mail.example.org?from=a@b..org&to=c@d.org",
        ] {
            assert!(parse(url).is_err(), "{url}");
        }
        assert!(parse("smtp://mail.example.org?from=a@b.org&to=c@d.org").unwrap_err().contains("not encrypted"));
        let many = vec!["a@b.org"; RECIPIENTS_MAX + 1].join(",");
        assert!(parse(&format!("smtps://mail.example.org?from=a@b.org&to={many}")).is_err());
    }
}
