//! The way out of the operator's network, as the environment of every command line tool describes it: `HTTPS_PROXY`,
//! `http_proxy` (in small letters only, as curl reads it), `ALL_PROXY` and `NO_PROXY` (small letters win over capitals), `SSL_CERT_FILE` and `SSL_CERT_DIR`.
//!
//! Invariant: what is read here is usable or refused by the variable's name, and no message shows the proxy's
//! credential. Opens no file and resolves no name.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::address::{self, Reason, Scheme, Upstream};
use crate::error::{Place, Violation};
use crate::vocab::Secret;

/// Everything the environment says about the way out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Egress {
    /// The proxy the upstream is reached through; `None` for a direct connection.
    pub proxy: Option<Arc<Proxy>>,
    /// `SSL_CERT_FILE`: PEM bundle trusted beside the system's roots.
    pub ca_file: Option<PathBuf>,
    /// `SSL_CERT_DIR`: folders of PEM files, trusted beside the system's roots.
    pub ca_dirs: Vec<PathBuf>,
    /// The same variables for any other destination.
    pub rules: ProxyRules,
}

/// Which proxy leads to a destination that is not the upstream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxyRules {
    https: Option<Result<Arc<Proxy>, UnusableProxy>>,
    http: Option<Result<Arc<Proxy>, UnusableProxy>>,
    /// `NO_PROXY`.
    except: String,
}

/// A variable that names no usable proxy. Its text may hold a credential, so it is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{variable} names no usable proxy: {reason}; correct it, unset it, or exempt the host by NO_PROXY")]
pub struct UnusableProxy {
    /// The variable.
    pub variable: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl ProxyRules {
    /// The proxy on the way to `host`, a name or an address literal without brackets; `None` for a direct connection.
    ///
    /// # Errors
    /// When the variable that concerns the destination names no usable proxy.
    pub fn proxy_for(&self, scheme: Scheme, host: &str, port: u16) -> Result<Option<Arc<Proxy>>, UnusableProxy> {
        let named = if scheme == Scheme::Https { &self.https } else { &self.http };
        match named {
            Some(named) if !is_exempt(&self.except, host, port) => named.clone().map(Some),
            _ => Ok(None),
        }
    }
}

/// An HTTP proxy: `CONNECT` for `https://` upstreams, absolute-form requests for `http://` ones.
pub struct Proxy {
    /// Host name or address literal without brackets.
    pub host: String,
    /// Port, 80 when the URL names none.
    pub port: u16,
    /// `user:password` from the URL, percent-decoded.
    pub credential: Option<Secret>,
    /// The variable that named it, for messages.
    pub variable: &'static str,
}

impl Proxy {
    /// `host:port`, without the credential.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.authority(), self.variable)
    }
}

impl PartialEq for Proxy {
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.credential, &other.credential) {
            (None, None) => true,
            (Some(own), Some(other)) => own.matches(other.expose()),
            _ => false,
        };
        same && (&self.host, self.port, self.variable) == (&other.host, other.port, other.variable)
    }
}

impl Eq for Proxy {}

/// Variables of one meaning, the one that wins first.
const HTTPS: [&str; 4] = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
/// Not `HTTP_PROXY`: a web server hands a request's `Proxy` field to programs under that name, so curl does not read it either.
const HTTP: [&str; 3] = ["http_proxy", "all_proxy", "ALL_PROXY"];
const EXCEPT: [&str; 2] = ["no_proxy", "NO_PROXY"];

/// Reads the environment. A proxy that cannot be used is a mistake where the upstream would be reached through it; the same
/// variables lead to other destinations by [`ProxyRules`].
pub(crate) fn read(env: &BTreeMap<String, String>, upstream: &Upstream, violations: &mut Vec<Violation>) -> Egress {
    let get = |name: &str| env.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
    let first = |names: &'static [&'static str]| names.iter().find_map(|name| get(name).map(|value| (*name, value)));
    let named = |names: &'static [&'static str]| {
        let (variable, text) = first(names)?;
        Some(proxy(variable, text).map(Arc::new).map_err(|reason| UnusableProxy { variable, reason }))
    };
    let except = first(&EXCEPT).map_or_else(String::new, |(_, list)| list.to_owned());
    let rules = ProxyRules { https: named(&HTTPS), http: named(&HTTP), except };
    let proxy = rules.proxy_for(upstream.scheme, &upstream.host, upstream.port).unwrap_or_else(|unusable| {
        violations.push(Violation {
            place: Place::Variable(unusable.variable),
            path: None,
            problem: format!("it names no usable proxy: {}", unusable.reason),
            accepted: Some("http://[user:password@]host[:port]".to_owned()),
            advice: "correct it, unset it, or exempt the upstream by NO_PROXY".to_owned(),
        });
        None
    });
    Egress {
        proxy,
        ca_file: get("SSL_CERT_FILE").map(PathBuf::from),
        ca_dirs: get("SSL_CERT_DIR")
            .map(|list| list.split(':').filter(|dir| !dir.is_empty()).map(PathBuf::from).collect())
            .unwrap_or_default(),
        rules,
    }
}

/// Reads `[http://][user[:password]@]host[:port][/]`.
fn proxy(variable: &'static str, text: &str) -> Result<Proxy, Reason> {
    let rest = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
        Some(_) => return Err("its scheme is not http"),
        None => text,
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let (credential, host) = match authority.rsplit_once('@') {
        Some((credential, host)) => (Some(Secret::new(percent_decoded(credential)?)), host),
        None => (None, authority),
    };
    // The rules for hosts and ports are the upstream's.
    let at = address::upstream(&format!("http://{host}"))?;
    if !at.path_prefix.is_empty() {
        return Err("it has a path");
    }
    Ok(Proxy { host: at.host, port: at.port, credential, variable })
}

/// The text behind `%41` and the like; refuses control characters.
pub(crate) fn percent_decoded(text: &str) -> Result<Vec<u8>, Reason> {
    const BROKEN: Reason = "its user information is not percent-encoded correctly";
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        let (code, after) = rest.split_at_checked(2).ok_or(BROKEN)?;
        let code = std::str::from_utf8(code).ok().filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
        decoded.push(code.and_then(|code| u8::from_str_radix(code, 16).ok()).ok_or(BROKEN)?);
        rest = after;
    }
    if decoded.iter().any(|byte| byte.is_ascii_control()) {
        return Err(BROKEN);
    }
    Ok(decoded)
}

/// Whether `NO_PROXY` exempts a destination. As curl reads it: entries separated by commas or white space; `*` is
/// everything; a name, with or without a leading dot, is itself and everything below; an address is itself, with a
/// prefix length its network; `:port` behind an entry limits it to that port.
fn is_exempt(list: &str, host: &str, port: u16) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    list.split(|at: char| at == ',' || at.is_whitespace()).filter(|entry| !entry.is_empty()).any(|entry| {
        if entry == "*" {
            return true;
        }
        let (name, only) = split_port(entry);
        if only.is_some_and(|only| only != port) {
            return false;
        }
        match host.parse::<IpAddr>() {
            Ok(ip) => is_in_network(ip.to_canonical(), name),
            Err(_) => is_below(host, name),
        }
    })
}

/// An entry and its port. An IPv6 address needs brackets in front of a port.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    if let Some(rest) = entry.strip_prefix('[') {
        let (inner, behind) = rest.split_once(']').unwrap_or((rest, ""));
        return (inner, behind.strip_prefix(':').and_then(|port| port.parse().ok()));
    }
    match entry.split_once(':') {
        Some((name, port)) if !port.contains(':') => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (entry, None),
        },
        _ => (entry, None),
    }
}

fn is_below(host: &str, name: &str) -> bool {
    let name = name.strip_prefix("*.").or_else(|| name.strip_prefix('.')).unwrap_or(name);
    let name = name.strip_suffix('.').unwrap_or(name);
    match host.len().checked_sub(name.len()).and_then(|at| host.split_at_checked(at)) {
        Some((above, end)) => {
            !name.is_empty() && end.eq_ignore_ascii_case(name) && (above.is_empty() || above.ends_with('.'))
        }
        None => false,
    }
}

fn is_in_network(ip: IpAddr, entry: &str) -> bool {
    let (network, bits) = match entry.split_once('/') {
        Some((network, bits)) => (network, bits.parse::<u32>().ok()),
        None => (entry, Some(u32::MAX)),
    };
    let (Ok(network), Some(bits)) = (network.parse::<IpAddr>().map(|ip| ip.to_canonical()), bits) else { return false };
    let differ = |own: u128, other: u128, width: u32| (own ^ other).checked_shr(width - bits.min(width)).unwrap_or(0);
    match (ip, network) {
        (IpAddr::V4(own), IpAddr::V4(other)) => differ(own.to_bits().into(), other.to_bits().into(), 32) == 0,
        (IpAddr::V6(own), IpAddr::V6(other)) => differ(own.to_bits(), other.to_bits(), 128) == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(url: &str, env: &[(&str, &str)]) -> Result<Egress, String> {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut violations = Vec::new();
        let egress = read(&env, &address::upstream(url).unwrap(), &mut violations);
        match violations.as_slice() {
            [] => Ok(egress),
            [one, ..] => Err(one.to_string()),
        }
    }

    fn through(url: &str, env: &[(&str, &str)]) -> Option<String> {
        with(url, env).unwrap().proxy.map(|proxy| proxy.authority())
    }

    #[test]
    fn the_schemes_own_variable_names_the_proxy_and_small_letters_win() {
        let both = [("http_proxy", "http://plain:1"), ("HTTPS_PROXY", "http://tls:2")];
        assert_eq!(through("http://llm.example", &both).as_deref(), Some("plain:1"));
        assert_eq!(through("https://llm.example", &both).as_deref(), Some("tls:2"));
        let spelled = [("HTTPS_PROXY", "http://capital:1"), ("https_proxy", "small")];
        assert_eq!(through("https://llm.example", &spelled).as_deref(), Some("small:80"));
        let all = [("ALL_PROXY", "http://[::1]:3128/")];
        assert_eq!(through("https://llm.example", &all).as_deref(), Some("[::1]:3128"));
        assert_eq!(through("https://llm.example", &[("HTTPS_PROXY", " ")]), None, "set to nothing is unset");
    }

    #[test]
    fn the_credential_is_decoded_and_never_shown() {
        let egress = with("https://llm.example", &[("HTTPS_PROXY", "http://me:p%40ss@corp:8080")]).unwrap();
        let proxy = egress.proxy.clone().unwrap();
        assert_eq!(proxy.credential.as_ref().map(Secret::expose), Some(b"me:p@ss".as_slice()));
        assert!(!format!("{egress:?}").contains("p@ss"), "{egress:?}");
    }

    #[test]
    fn what_is_no_proxy_is_refused_by_name_without_its_text() {
        for bad in
            ["https://corp:1", "socks5://corp:1", "http://", "http://me:hunter2%@corp", "http://a b", "http://c/p"]
        {
            let error = with("https://llm.example", &[("https_proxy", bad)]).unwrap_err();
            assert!(error.starts_with("https_proxy: it names no usable proxy: "), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(with("http://llm.example", &[("https_proxy", "socks5://x")]).is_ok(), "it does not concern http");
        let exempt = [("https_proxy", "socks5://x"), ("no_proxy", "llm.example")];
        assert_eq!(through("https://llm.example", &exempt), None);
    }

    #[test]
    fn other_destinations_follow_the_same_variables() {
        let env = [("https_proxy", "http://tls:2"), ("http_proxy", "socks5://x"), ("no_proxy", "10.0.0.0/8, .corp")];
        let rules = with("https://llm.example", &env).unwrap().rules;
        let to =
            |scheme, host: &str| rules.proxy_for(scheme, host, 443).map(|proxy| proxy.map(|proxy| proxy.authority()));
        assert_eq!(to(Scheme::Https, "hooks.example"), Ok(Some("tls:2".to_owned())));
        assert_eq!(to(Scheme::Https, "pager.corp"), Ok(None));
        assert_eq!(to(Scheme::Http, "10.1.2.3"), Ok(None), "exempt: its variable is not looked at");
        let unusable = to(Scheme::Http, "hooks.example").unwrap_err();
        assert_eq!((unusable.variable, unusable.reason), ("http_proxy", "its scheme is not http"));
    }

    #[test]
    fn no_proxy_is_read_as_curl_reads_it() {
        let exempt = |list: &str, url: &str| {
            let upstream = address::upstream(url).unwrap();
            is_exempt(list, &upstream.host, upstream.port)
        };
        for (list, url) in [
            ("*", "https://llm.example"),
            ("a.test, llm.example", "https://llm.example"),
            ("LLM.example", "https://api.llm.example"),
            (".llm.example", "https://llm.example"),
            (".llm.example", "https://api.llm.example"),
            ("llm.example.", "https://llm.example"),
            ("llm.example:443", "https://llm.example"),
            ("10.1.2.3", "http://10.1.2.3:8000"),
            ("10.0.0.0/8", "http://10.1.2.3:8000"),
            ("0.0.0.0/0", "http://10.1.2.3:8000"),
            ("fd00::/8", "http://[fd12::1]:8000"),
            ("[fd12::1]:8000", "http://[fd12::1]:8000"),
            ("localhost 127.0.0.1", "http://127.0.0.1:11434"),
        ] {
            assert!(exempt(list, url), "{list} should exempt {url}");
        }
        for (list, url) in [
            ("", "https://llm.example"),
            ("example.com", "https://badexample.com"),
            ("llm.example:8443", "https://llm.example"),
            ("10.0.0.0/8", "http://11.1.2.3"),
            ("10.0.0.0/33x", "http://10.1.2.3"),
            ("10.1.2.3", "http://10.1.2.30"),
            ("2.3", "http://10.1.2.3"),
            ("0.0.0.0/0", "http://[fd12::1]"),
            ("localhost", "http://127.0.0.1"),
        ] {
            assert!(!exempt(list, url), "{list} should not exempt {url}");
        }
    }
}
