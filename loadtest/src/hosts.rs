//! Where load may go: this machine, and other hosts only when they are named once more.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use rustls::pki_types::ServerName;

use crate::error::SetupError;

/// A target's address, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) addr: SocketAddr,
    /// Value of the Host field.
    pub(crate) authority: String,
    /// Empty or `/a/b`.
    pub(crate) path_prefix: String,
    /// The name that a certificate has to bear, where the connection has TLS.
    pub(crate) secure_name: Option<ServerName<'static>>,
}

/// Finds the place of an `http://` or `https://` URL. Anything but a loopback address is refused unless `allowed` names the host.
pub(crate) fn place(argument: &str, url: &str, allowed: &[String]) -> Result<Place, SetupError> {
    let found =
        [("http://", 80), ("https://", 443)].iter().find_map(|(scheme, port)| Some((url.strip_prefix(scheme)?, *port)));
    let (rest, port) = found.filter(|(rest, _)| !rest.is_empty() && !rest.starts_with('/')).ok_or_else(|| {
        SetupError(format!(
            "{argument} is `{url}`; accepted is http://HOST:PORT or https://HOST:PORT, with a path in front of every request's if there is one"
        ))
    })?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path.trim_end_matches('/');
    let path_prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
    let addr = resolve(argument, authority, port, allowed)?;
    let named = |_: &str| {
        ServerName::try_from(host_of(authority).trim_matches(['[', ']']).to_owned())
            .map_err(|error| SetupError(format!("{argument} `{authority}`: {error}")))
    };
    let secure_name = url.strip_prefix("https://").map(named).transpose()?;
    Ok(Place { addr, authority: authority.to_owned(), path_prefix, secure_name })
}

/// `HOST` of `HOST:PORT`.
fn host_of(authority: &str) -> &str {
    let port_at = authority.rfind(':').filter(|at| !authority.get(*at..).unwrap_or_default().contains(']'));
    port_at.map_or(authority, |at| authority.get(..at).unwrap_or_default())
}

/// The first address of `HOST:PORT`, or of `HOST` on this port; every one of them has to be allowed.
pub(crate) fn resolve(
    argument: &str,
    authority: &str,
    port: u16,
    allowed: &[String],
) -> Result<SocketAddr, SetupError> {
    let host = host_of(authority);
    let with_port = if host == authority { format!("{authority}:{port}") } else { authority.to_owned() };
    let is_allowed = allowed.iter().any(|name| name == host || name == authority);
    let addrs = with_port
        .to_socket_addrs()
        .map_err(|error| SetupError(format!("{argument} `{authority}` cannot be resolved: {error}")))?;
    let mut first = None;
    for addr in addrs {
        if !is_allowed {
            require_loopback(argument, addr.ip(), Some(host))?;
        }
        first.get_or_insert(addr);
    }
    first.ok_or_else(|| SetupError(format!("{argument} `{authority}` has no address")))
}

/// Refuses addresses of other machines; `host` is what may be named to lift that.
pub(crate) fn require_loopback(argument: &str, ip: IpAddr, host: Option<&str>) -> Result<(), SetupError> {
    if ip.is_loopback() {
        return Ok(());
    }
    let unless = host.map_or(String::new(), |host| {
        format!(
            "; load on another machine is an attack unless its owner agrees: if so, add --i-may-load-this-host {host}"
        )
    });
    Err(SetupError(format!("{argument} is {ip}; only loopback addresses are accepted (127.0.0.0/8, ::1){unless}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_hosts_have_to_be_named_once_more() {
        let error = place("--target", "http://192.0.2.1:80", &[]).unwrap_err().0;
        assert!(
            error.starts_with("--target is 192.0.2.1; only loopback addresses are accepted (127.0.0.0/8, ::1);"),
            "{error}"
        );
        assert!(error.ends_with("add --i-may-load-this-host 192.0.2.1"), "{error}");
        let allowed = ["192.0.2.1".to_owned()];
        assert_eq!(place("--target", "http://192.0.2.1/v", &allowed).unwrap().addr.port(), 80);
        assert!(place("--target", "http://192.0.2.2:80", &allowed).is_err(), "only the host that was named");
        assert!(require_loopback("--listen", [0, 0, 0, 0].into(), None).unwrap_err().0.ends_with("::1)"));
    }

    #[test]
    fn a_url_is_taken_apart() {
        let place = place("--target", "http://127.0.0.1:9/a/b/", &[]).unwrap();
        assert_eq!((place.authority.as_str(), place.path_prefix.as_str()), ("127.0.0.1:9", "/a/b"));
        assert!(place.secure_name.is_none());
        let secure = super::place("--target", "https://127.0.0.1", &[]).unwrap();
        assert!(secure.addr.port() == 443 && secure.secure_name.is_some());
        assert_eq!(resolve("--to", "[::1]:7", 80, &[]).unwrap().port(), 7);
        assert_eq!(resolve("--to", "[::1]", 80, &[]).unwrap().port(), 80);
    }
}
