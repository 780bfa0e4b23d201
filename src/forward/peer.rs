//! The provider's address and trust: resolved off the core threads, read by them through an atomic pointer.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use weir_config::settings::{Scheme, Upstream};

use crate::rt::TlsConnector;

/// The provider could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The extra CA file cannot be used.
    #[error("upstream_ca_file `{path}`: {reason}; give a readable file with at least one PEM certificate")]
    CaFile {
        /// The configured path.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The host is no name TLS could verify.
    #[error("upstream_url: `{host}` cannot be verified by TLS: {source}")]
    Host {
        /// The configured host.
        host: String,
        /// Why.
        source: io::Error,
    },
}

/// One provider endpoint. Two requests may share a pooled connection when they go to the same `Peer`.
pub struct Peer {
    host: String,
    port: u16,
    addresses: ArcSwap<Vec<SocketAddr>>,
    tls: Option<TlsConnector>,
}

impl Peer {
    /// Builds the endpoint; an address literal is resolved at once, a name by [`Peer::resolve`].
    ///
    /// # Errors
    /// [`PeerError`], for a CA file or host that TLS cannot use.
    pub fn new(upstream: &Upstream, extra_ca: Option<&Path>) -> Result<Self, PeerError> {
        let tls = match upstream.scheme {
            Scheme::Http => None,
            Scheme::Https => {
                let connector = TlsConnector::new(client_config(extra_ca)?, &upstream.host)
                    .map_err(|source| PeerError::Host { host: upstream.host.clone(), source })?;
                Some(connector)
            }
        };
        let literal: Vec<SocketAddr> =
            upstream.host.parse::<IpAddr>().map(|ip| vec![SocketAddr::new(ip, upstream.port)]).unwrap_or_default();
        Ok(Self { host: upstream.host.clone(), port: upstream.port, addresses: ArcSwap::from_pointee(literal), tls })
    }

    /// Looks the name up and publishes all its addresses; keeps the former ones when the lookup fails. Blocks: call it
    /// off the core threads.
    ///
    /// # Errors
    /// The resolver's.
    pub fn resolve(&self) -> io::Result<()> {
        let found: Vec<SocketAddr> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        if !found.is_empty() {
            self.addresses.store(Arc::new(found));
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

    /// `host:port`, for messages.
    pub fn describe(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// How often the name is looked up again.
    pub const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);
}

/// TLS as a client: the system's roots and, beside them, the operator's own.
fn client_config(extra_ca: Option<&Path>) -> Result<Arc<ClientConfig>, PeerError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!(%error, "a system certificate store could not be read");
    }
    roots.add_parsable_certificates(system.certs);
    if let Some(path) = extra_ca {
        let fail = |reason: String| PeerError::CaFile { path: path.display().to_string(), reason };
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| fail(error.to_string()))?;
        let mut added = 0;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| fail(error.to_string()))?;
            roots.add(certificate).map_err(|error| fail(error.to_string()))?;
            added += 1;
        }
        if added == 0 {
            return Err(fail("it holds no PEM certificate".to_owned()));
        }
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| PeerError::Host { host: String::new(), source: io::Error::other(error) })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // HTTP/1.1 is what `wire` speaks; a server that insists on HTTP/2 has to say so now.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
