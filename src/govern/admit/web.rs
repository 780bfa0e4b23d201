//! Whether a web page may ask this. A browser sends requests for any page that is open in it, from a place in the network that
//! may be all the credential there is.
//!
//! | while authentication is off                             | answer                                             |
//! |---------------------------------------------------------|----------------------------------------------------|
//! | `Host` is no name of ours (DNS rebinding)               | 403 on own paths, where a browser seems to ask,    |
//! |                                                         | and where the operator's key would be lent         |
//! | a browser says that another site's page asks            | 403 everywhere                                     |
//! | the same, from an origin that is listed                 | let in, and the page may read the answer           |
//!
//! With authentication on a page would need a credential; still none of another site changes anything on our own paths.
//! Programs send neither `Origin` nor `Sec-Fetch-Site`. Pure: knows no sockets and no routes.

use std::net::{Ipv4Addr, Ipv6Addr};

use weir_config::settings::Web;

use super::Presented;
use crate::exchange::Refusal;

/// How much of what a client says about itself is repeated to it.
const SHOWN_BYTES: usize = 120;

/// The rules for web pages.
pub struct Pages {
    /// Authentication is off.
    open: bool,
    /// `server.allowed_hosts` in small letters.
    hosts: Vec<String>,
    /// `server.cors_allowed_origins`.
    origins: Vec<String>,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// The provider's.
    Proxied,
    /// One of ours.
    Own,
    /// One of ours that says no more than whether the gateway works, to whoever calls it by whatever name.
    Probe,
}

/// A request as far as it matters here.
#[derive(Debug, Clone, Copy)]
pub struct Visit<'a> {
    /// Its method.
    pub method: &'a str,
    /// Where it goes.
    pub path: Path,
    /// The authority it names.
    pub host: Option<&'a str>,
    /// It brings no credential, so that it would get the operator's.
    pub lends: bool,
}

impl Pages {
    /// The rules by these settings.
    pub fn new(web: &Web, is_authentication_on: bool) -> Self {
        let hosts = web.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        Self { open: !is_authentication_on, hosts, origins: web.allowed_origins.clone() }
    }

    /// The rules for a listener that asks nobody for a credential.
    pub fn of_open_listener(web: &Web) -> Self {
        Self::new(web, false)
    }

    /// Whether [`Self::judge`] has anything to look at: for most requests of programs it has not.
    pub fn may_concern(&self, presented: &Presented<'_>, path: Path, lends: bool) -> bool {
        let is_marked = presented.origin.is_some() || presented.site.is_some();
        // To a name that is not `https:` browsers send neither with a plain GET of the page's own origin.
        let may_be_a_page = || match path {
            Path::Own => true,
            Path::Probe => false,
            Path::Proxied => lends || presented.looks_like_a_page(),
        };
        is_marked || self.open && may_be_a_page()
    }

    /// The listed origin whose page asks, if one does.
    ///
    /// # Errors
    /// 403: a page asks that may not.
    pub fn judge<'a>(&self, presented: &Presented<'a>, visit: Visit<'_>) -> Result<Option<&'a [u8]>, Refusal> {
        if !self.may_concern(presented, visit.path, visit.lends) {
            return Ok(None);
        }
        let listed = presented.origin.filter(|origin| self.lists(origin));
        let names_us = || visit.host.is_none_or(|host| self.is_ours(host));
        let needs_our_name = visit.path == Path::Own || visit.path == Path::Proxied && listed.is_none();
        if self.open && needs_our_name && !names_us() {
            return Err(foreign_host(visit.host.unwrap_or_default(), visit.lends));
        }
        let changes = visit.path != Path::Proxied && !matches!(visit.method, "GET" | "HEAD");
        if listed.is_none() && (self.open || changes) && is_foreign(presented, visit) {
            return Err(foreign_page(presented.origin, self.open));
        }
        Ok(listed)
    }

    fn lists(&self, origin: &[u8]) -> bool {
        self.origins.iter().any(|listed| listed.as_bytes().eq_ignore_ascii_case(origin))
    }

    /// Whether the gateway is called by this name. A name without a dot is one of the network it stands in, which no page
    /// elsewhere can have.
    fn is_ours(&self, authority: &str) -> bool {
        let host = host_of(authority);
        if host.starts_with('[') {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            return bare.parse::<Ipv6Addr>().is_ok();
        }
        let host = host.strip_suffix('.').unwrap_or(host);
        let is_listed = |listed: &String| {
            let below = if listed.starts_with('.') { host.len().checked_sub(listed.len()) } else { Some(0) };
            let is_below = !listed.starts_with('.') || below.is_some_and(|at| at > 0);
            let end = below.and_then(|at| host.as_bytes().get(at..)).unwrap_or_default();
            is_below && end.eq_ignore_ascii_case(listed.as_bytes())
        };
        !host.contains('.') || host.parse::<Ipv4Addr>().is_ok() || self.hosts.iter().any(is_listed)
    }
}

/// Whether the browser says that a page of another site asks. One that the user goes to, to look at, is none.
fn is_foreign(presented: &Presented<'_>, visit: Visit<'_>) -> bool {
    match (presented.site, presented.origin) {
        (Some(b"same-origin" | b"none"), _) => false,
        (Some(_), None) => {
            let is_followed = presented.destination == Some(b"document") && matches!(visit.method, "GET" | "HEAD");
            !(is_followed && visit.path != Path::Proxied)
        }
        (Some(_), Some(_)) => true,
        (None, Some(origin)) => !is_of(origin, visit.host),
        (None, None) => false,
    }
}

/// Whether an origin's pages come from `authority`. The scheme says nothing: TLS may end in front of us.
fn is_of(origin: &[u8], authority: Option<&str>) -> bool {
    let (Ok(origin), Some(authority)) = (std::str::from_utf8(origin), authority) else { return false };
    let Some((scheme, origin)) = origin.split_once("://") else { return false };
    let default_port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    let without = |text: &str| text.strip_suffix(default_port).unwrap_or(text).to_ascii_lowercase();
    without(origin) == without(authority)
}

/// An authority without its port.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn foreign_host(host: &str, lends: bool) -> Refusal {
    let host: String = host.chars().take(SHOWN_BYTES).collect();
    let instead = if lends { "send a key of the provider's with it, " } else { "" };
    let message = format!(
        "authentication is off, and `Host: {host}` is not a name this gateway is known by: a web page could have pointed it \
         here. Call it by its IP address or localhost, list the name in `server.allowed_hosts`, {instead}or set `auth.enabled: true`"
    );
    Refusal::new(403, "permission_denied", message)
}

fn foreign_page(origin: Option<&[u8]>, open: bool) -> Refusal {
    let origin = origin.map(|origin| String::from_utf8_lossy(origin.get(..SHOWN_BYTES).unwrap_or(origin)).into_owned());
    let page =
        origin.map_or_else(|| "a web page of another site".to_owned(), |origin| format!("a web page of {origin}"));
    let why = if open { "authentication is off, so that it" } else { "it" };
    let message = format!(
        "{page} asks for this, and {why} is refused; list the page's origin in `server.cors_allowed_origins` to let it in"
    );
    Refusal::new(403, "permission_denied", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(open: bool) -> Pages {
        let web = Web {
            allowed_hosts: vec!["LLM.example.com".to_owned(), ".internal.example".to_owned()],
            allowed_origins: vec!["https://app.example.com".to_owned()],
        };
        Pages::new(&web, !open)
    }

    fn from<'a>(origin: &'a str, site: &'a str) -> Presented<'a> {
        let given = |text: &'a str| Some(text.as_bytes()).filter(|text| !text.is_empty());
        Presented { origin: given(origin), site: given(site), ..Presented::default() }
    }

    fn visit<'a>(method: &'a str, path: Path, host: &'a str) -> Visit<'a> {
        Visit { method, path, host: Some(host), lends: false }
    }

    #[test]
    fn own_paths_answer_to_names_of_ours_only() {
        let nobody = Presented::default();
        for host in [
            "127.0.0.1:8080",
            "10.1.2.3",
            "[::1]:8080",
            "[2001:db8::1]",
            "localhost:8080",
            "weir",
            "LOCALHOST.",
            "llm.example.com:443",
            "a.b.internal.example",
        ] {
            assert_eq!(pages(true).judge(&nobody, visit("GET", Path::Own, host)), Ok(None), "{host}");
        }
        for host in [
            "rebind.example:8080",
            "127.0.0.1.evil.example",
            "llm.example.com.evil.example",
            "internal.example",
            "evilinternal.example",
            "[rebind.example]",
            "localhost.evil.example",
        ] {
            let refusal = pages(true).judge(&nobody, visit("GET", Path::Own, host)).unwrap_err();
            assert!(refusal.status == 403 && refusal.message.contains("`server.allowed_hosts`"), "{host}: {refusal:?}");
            for path in [Path::Proxied, Path::Probe] {
                assert_eq!(pages(true).judge(&nobody, visit("GET", path, host)), Ok(None), "{host}");
            }
            assert_eq!(pages(false).judge(&nobody, visit("GET", Path::Own, host)), Ok(None), "{host}: it needs a key");
            // A page that has pointed its own name here is of the same origin.
            let rebound = format!("http://{host}");
            let rebound = from(&rebound, "");
            assert!(pages(true).judge(&rebound, visit("POST", Path::Proxied, host)).is_err(), "{host}");
        }
    }

    #[test]
    fn by_a_foreign_name_nothing_that_looks_like_a_page_asks_and_the_operators_key_is_not_lent() {
        let agent = |text: &'static str| Presented { agent: Some(text.as_bytes()), ..Presented::default() };
        let browser = agent("Mozilla/5.0 (X11; Linux x86_64)");
        let followed = Presented { referer: Some(b"http://evil.example/"), ..Presented::default() };
        let program = agent("OpenAI/Python 1.2 Mozilla/5.0");
        for (host, is_ours) in [
            ("evil.example:8080", false),
            ("LLM.example.com", true),
            ("a.Internal.example:443", true),
            (".internal.example", false),
            ("10.0.0.1:8080", true),
            ("weir:8080", true),
        ] {
            for (asker, lends, is_refused) in [
                (browser, false, !is_ours),
                (followed, false, !is_ours),
                (program, false, false),
                (program, true, !is_ours),
            ] {
                let visit = Visit { lends, ..visit("GET", Path::Proxied, host) };
                let judged = pages(true).judge(&asker, visit);
                assert_eq!(judged.is_err(), is_refused, "{host} {asker:?} {lends}");
                let says_what_to_do = |refusal: Refusal| {
                    assert!(refusal.message.contains("`server.allowed_hosts`"), "{refusal:?}");
                    assert_eq!(refusal.message.contains("send a key of the provider's"), lends, "{refusal:?}");
                };
                judged.err().into_iter().for_each(says_what_to_do);
                assert_eq!(pages(false).judge(&asker, visit), Ok(None), "it needs a key");
            }
        }
    }

    #[test]
    fn a_page_of_another_site_is_refused_on_every_path() {
        for page in [
            from("https://evil.example", ""),
            from("https://evil.example", "cross-site"),
            from("http://localhost:3000", "same-site"),
            from("http://localhost:3000", ""),
            from("null", ""),
            from("https://localhost:8080.evil.example", ""),
            from("", "cross-site"),
            from("", "same-site"),
            from("", "whatever comes next"),
        ] {
            for (method, path) in
                [("GET", Path::Proxied), ("POST", Path::Proxied), ("GET", Path::Own), ("POST", Path::Own)]
            {
                let refusal = pages(true).judge(&page, visit(method, path, "localhost:8080")).unwrap_err();
                assert!(refusal.message.contains("`server.cors_allowed_origins`"), "{page:?}: {refusal:?}");
                let is_refused = pages(false).judge(&page, visit(method, path, "localhost:8080")).is_err();
                assert_eq!(is_refused, (method, path) == ("POST", Path::Own), "with authentication on: {page:?}");
            }
        }
    }

    #[test]
    fn pages_of_our_own_programs_and_whom_a_link_brings_are_let_in() {
        let followed = Presented { destination: Some(b"document"), ..from("", "cross-site") };
        for (page, method, path) in [
            (Presented::default(), "POST", Path::Own),
            (from("http://localhost:8080", ""), "POST", Path::Own),
            (from("http://LOCALHOST:8080", "same-origin"), "PUT", Path::Own),
            (from("", "none"), "GET", Path::Own),
            (from("", "same-origin"), "POST", Path::Proxied),
            (followed, "GET", Path::Own),
        ] {
            assert_eq!(pages(true).judge(&page, visit(method, path, "localhost:8080")), Ok(None), "{page:?}");
        }
        assert_eq!(
            pages(true).judge(&from("https://10.0.0.1", ""), visit("POST", Path::Own, "10.0.0.1:443")),
            Ok(None)
        );
        assert!(pages(true).judge(&followed, visit("GET", Path::Proxied, "localhost:8080")).is_err());
        assert!(pages(true).judge(&followed, visit("POST", Path::Own, "localhost:8080")).is_err());
    }

    #[test]
    fn a_listed_origin_is_let_in_by_its_name() {
        let page = from("https://app.example.com", "cross-site");
        for open in [true, false] {
            for path in [Path::Proxied, Path::Own] {
                let judged = pages(open).judge(&page, visit("POST", path, "llm.example.com"));
                assert_eq!(judged, Ok(Some(&b"https://app.example.com"[..])));
            }
        }
        assert!(
            pages(true).judge(&page, visit("POST", Path::Own, "rebind.example")).is_err(),
            "by a name of ours only"
        );
    }
}
