//! Reads `listen_addr` and `upstream_url`, and tells when one points at the other.
//!
//! Invariant: an accepted upstream has exactly one reading: no user information, query or fragment, no second spelling
//! of an address. Resolves no names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Scheme of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Plain TCP.
    Http,
    /// TLS by rustls, system roots plus `upstream_ca_file`.
    Https,
}

/// `upstream_url`, taken apart: `scheme://host[:port][/path]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host name or address literal without brackets; what TLS verifies and DNS resolves.
    pub host: String,
    /// Port, 80 or 443 when the URL names none.
    pub port: u16,
    /// What the `Host` field says: the URL's authority without user information; no port when it is the scheme's own.
    pub authority: String,
    /// Path put in front of the request's path: empty, or `/a/b` without a trailing slash.
    pub path_prefix: String,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            scheme: Scheme::Https,
            host: "api.openai.com".to_owned(),
            port: 443,
            authority: "api.openai.com".to_owned(),
            path_prefix: String::new(),
        }
    }
}

/// Why a text is not an address, as a clause that fits behind "got ...:".
pub(crate) type Reason = &'static str;

/// Reads `host:port`; the host is an address literal, `localhost`, or empty for all IPv4 addresses.
pub(crate) fn listen_addr(text: &str) -> Result<SocketAddr, Reason> {
    let (host, port) = text.rsplit_once(':').ok_or("it names no port")?;
    let port = port_number(port, 0)?;
    let ip = if host.is_empty() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else if host.eq_ignore_ascii_case("localhost") {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    } else if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        IpAddr::V6(inner.parse().map_err(|_| "the text in brackets is not an IPv6 address")?)
    } else if host.contains(':') {
        return Err("an IPv6 address needs brackets");
    } else {
        IpAddr::V4(host.parse().map_err(|_| "its host is not an IP address")?)
    };
    Ok(SocketAddr::new(ip, port))
}

/// Reads `scheme://host[:port][/path]` (RFC 3986, http and https only).
pub(crate) fn upstream(text: &str) -> Result<Upstream, Reason> {
    let (scheme, rest) = text.split_once("://").ok_or("it has no http:// or https:// in front")?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return Err("its scheme is neither http nor https"),
    };
    if !rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte)) {
        return Err("it contains a character that a URL has to percent-encode");
    }
    if rest.contains('?') {
        return Err("it has a query");
    }
    if rest.contains('#') {
        return Err("it has a fragment");
    }
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    if authority.contains('@') {
        return Err("it has user information; clients bring the provider's credential");
    }
    let (host_text, port) = split_port(authority)?;
    let host = host_name(host_text)?;
    let default_port = if scheme == Scheme::Https { 443 } else { 80 };
    let port = port.map_or(Ok(default_port), |port| port_number(port, 1))?;
    let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let authority = if port == default_port { shown } else { format!("{shown}:{port}") };
    Ok(Upstream { scheme, host, port, authority, path_prefix: path_prefix(path)? })
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), Reason> {
    let after_host = if authority.starts_with('[') {
        authority.find(']').map(|end| end + 1).ok_or("the bracket of its IPv6 address is not closed")?
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, rest) = authority.split_at(after_host);
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err("something other than a port follows its IPv6 address"),
    }
}

/// The host in lower case, without brackets. A name that ends in a number has to be a dotted-quad address: resolvers
/// read `127.1` and `0x7f.1` as addresses too, and two readings are one too many.
fn host_name(host: &str) -> Result<String, Reason> {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let ip: Ipv6Addr = inner.parse().map_err(|_| "the text in brackets is not an IPv6 address")?;
        return Ok(ip.to_string());
    }
    if host.is_empty() {
        return Err("it names no host");
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if host.len() > 253 || !host.bytes().all(legal) {
        return Err("its host is not a name of letters, digits, `-`, `_` and `.`");
    }
    let labels = host.strip_suffix('.').unwrap_or(host);
    if labels.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return Err("its host has an empty or overlong part");
    }
    let last = labels.rsplit('.').next().unwrap_or(labels);
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") || last.starts_with("0X");
    if numeric && host.parse::<Ipv4Addr>().is_err() {
        return Err("its host looks like an IPv4 address and is none");
    }
    Ok(host.to_ascii_lowercase())
}

fn port_number(text: &str, least: u16) -> Result<u16, Reason> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = if digits { text.parse::<u16>().ok() } else { None };
    port.filter(|port| *port >= least).ok_or("its port is not a number up to 65535")
}

/// The path without trailing slashes; dot segments are refused because providers and we could resolve them differently.
fn path_prefix(path: &str) -> Result<String, Reason> {
    let trimmed = path.trim_end_matches('/');
    let dots = |segment: &str| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        plain == "." || plain == ".."
    };
    if trimmed.split('/').any(dots) {
        return Err("its path has a `.` or `..` segment");
    }
    Ok(trimmed.to_owned())
}

/// True when the upstream is certainly our own listener, so that every request would come back to us. Names other than
/// `localhost` are not resolved; the `Via` check catches those loops at run time.
pub(crate) fn is_own_listener(upstream: &Upstream, listen: SocketAddr) -> bool {
    if listen.port() == 0 || upstream.port != listen.port() {
        return false;
    }
    let ours = listen.ip().to_canonical();
    let local = upstream.host.strip_suffix('.').unwrap_or(&upstream.host);
    if local == "localhost" {
        return ours.is_loopback() || ours.is_unspecified();
    }
    let Ok(target) = upstream.host.parse::<IpAddr>() else { return false };
    let target = target.to_canonical();
    let family_fits = ours.is_ipv6() || target.is_ipv4();
    if ours.is_unspecified() {
        // `0.0.0.0` hears IPv4 only, `[::]` both.
        return family_fits && (target.is_loopback() || target.is_unspecified());
    }
    // Connecting to the unspecified address reaches the loopback one.
    target == ours || (target.is_unspecified() && ours.is_loopback() && target.is_ipv4() == ours.is_ipv4())
}

#[cfg(test)]
mod tests;
