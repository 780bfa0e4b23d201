//! Where the provider is: host, addresses, TLS, and the proxy on the way to it.
//!
//! Addresses are looked up by the control thread and published as an immutable list; a core only loads the pointer.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use weir_config::egress::{Egress, Proxy};
use weir_config::settings::{Scheme, Upstream};
use weir_config::vocab::Secret;

use super::trust;
use crate::rt::TlsConnector;

/// The provider could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// Certificates the operator named cannot be used.
    #[error("{named_by} `{path}`: {reason}; name something readable with at least one PEM certificate")]
    Ca {
        /// The setting or variable.
        named_by: &'static str,
        /// The configured path.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// TLS cannot be set up at all.
    #[error("TLS towards the provider cannot be set up: {0}")]
    Tls(rustls::Error),
    /// The host is no name TLS could verify.
    #[error("{named_by}: `{host}` cannot be verified by TLS: {source}")]
    Host {
        /// The setting.
        named_by: String,
        /// The configured host.
        host: String,
        /// Why.
        source: io::Error,
    },
}

/// One provider endpoint. Two requests may share a pooled connection when they go to the same `Peer`.
pub struct Peer {
    /// The setting that names it.
    named_by: String,
    /// Whom TCP goes to: the provider, or the proxy.
    next_hop: Hop,
    provider: Hop,
    addresses: ArcSwap<Vec<SocketAddr>>,
    tls: Option<TlsConnector>,
    proxy: Option<ViaProxy>,
}

/// A host and a port.
struct Hop {
    host: String,
    port: u16,
}

/// How the proxy is spoken to.
pub struct ViaProxy {
    /// `http://authority` of an `http://` provider, put in front of each request's target; `None` where a tunnel leads
    /// to an `https://` one.
    pub base: Option<String>,
    /// The value of `Proxy-Authorization`.
    pub authorization: Option<Secret>,
    /// The variable that named the proxy.
    pub variable: &'static str,
}

impl Peer {
    /// Builds the endpoint; an address literal is resolved at once, a name by [`Peer::resolve`].
    ///
    /// # Errors
    /// [`PeerError`], for certificates or a host that TLS cannot use.
    pub fn new(
        named_by: String,
        upstream: &Upstream,
        extra_ca: Option<&Path>,
        egress: &Egress,
    ) -> Result<Self, PeerError> {
        let tls = match upstream.scheme {
            Scheme::Http => None,
            Scheme::Https => {
                let connector =
                    TlsConnector::new(trust::client_config(extra_ca, egress)?, &upstream.host).map_err(|source| {
                        PeerError::Host { named_by: named_by.clone(), host: upstream.host.clone(), source }
                    })?;
                Some(connector)
            }
        };
        let provider = Hop { host: upstream.host.clone(), port: upstream.port };
        let next_hop = match &egress.proxy {
            Some(proxy) => Hop { host: proxy.host.clone(), port: proxy.port },
            None => Hop { host: upstream.host.clone(), port: upstream.port },
        };
        let literal: Vec<SocketAddr> =
            next_hop.host.parse::<IpAddr>().map(|ip| vec![SocketAddr::new(ip, next_hop.port)]).unwrap_or_default();
        let base = tls.is_none().then(|| format!("http://{}", upstream.authority));
        let proxy = egress.proxy.as_deref().map(|proxy| ViaProxy {
            base,
            authorization: authorization(proxy),
            variable: proxy.variable,
        });
        Ok(Self { named_by, next_hop, provider, addresses: ArcSwap::from_pointee(literal), tls, proxy })
    }

    /// Looks the next hop's name up and publishes all its addresses; keeps the former ones when the lookup fails.
    /// Blocks: call it off the core threads.
    ///
    /// # Errors
    /// The resolver's.
    pub fn resolve(&self) -> io::Result<()> {
        let found: Vec<SocketAddr> = (self.next_hop.host.as_str(), self.next_hop.port).to_socket_addrs()?.collect();
        if !found.is_empty() {
            self.addresses.store(Arc::new(alternating(found)));
        }
        Ok(())
    }

    /// The addresses to try, in order; empty until the first lookup has succeeded.
    pub fn addresses(&self) -> Arc<Vec<SocketAddr>> {
        self.addresses.load_full()
    }

    /// How to speak TLS to it; `None` for plain HTTP.
    pub fn tls(&self) -> Option<&TlsConnector> {
        self.tls.as_ref()
    }

    /// The proxy on the way, if there is one.
    pub fn proxy(&self) -> Option<&ViaProxy> {
        self.proxy.as_ref()
    }

    /// `host:port` of the provider, as a `CONNECT` names it.
    pub fn authority(&self) -> String {
        self.provider.authority()
    }

    /// The setting that names it, for messages.
    pub fn named_by(&self) -> &str {
        &self.named_by
    }

    /// Where connections go, for messages.
    pub fn describe(&self) -> String {
        match &self.proxy {
            None => self.provider.authority(),
            Some(proxy) => format!(
                "{} through the proxy {} of {}",
                self.provider.authority(),
                self.next_hop.authority(),
                proxy.variable
            ),
        }
    }

    /// How often the name is looked up again.
    pub const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);
}

impl Hop {
    fn authority(&self) -> String {
        let Self { host, port } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// `Basic` credentials (RFC 7617) for the proxy.
pub fn authorization(proxy: &Proxy) -> Option<Secret> {
    let credential = proxy.credential.as_ref()?;
    let encoded = base64::engine::general_purpose::STANDARD.encode(credential.expose());
    Some(Secret::new(format!("Basic {encoded}")))
}

/// The two address families in turn, each in the resolver's order: one family that leads nowhere must not cost a timeout
/// per address before the other gets its chance (RFC 8305 section 4).
pub(crate) fn alternating(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = found.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (Vec<_>, Vec<_>) = found.into_iter().partition(|addr| addr.is_ipv6() == first_is_v6);
    first.dedup();
    second.dedup();
    let mut second = second.into_iter();
    let mut ordered = Vec::new();
    for addr in first {
        ordered.push(addr);
        ordered.extend(second.next());
    }
    ordered.extend(second);
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_families_take_turns() {
        let addrs = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        assert_eq!(
            alternating(addrs(&["[::1]:1", "[::2]:1", "[::3]:1", "127.0.0.1:1"])),
            addrs(&["[::1]:1", "127.0.0.1:1", "[::2]:1", "[::3]:1"])
        );
        assert_eq!(alternating(addrs(&["127.0.0.1:1", "127.0.0.1:1", "[::1]:1"])), addrs(&["127.0.0.1:1", "[::1]:1"]));
        assert!(alternating(Vec::new()).is_empty());
    }
}
