//! Whom a TLS connection trusts, and what a TLS provider shows.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use super::error::SetupError;

/// What clients trust: the system's authorities and those of `--ca`, or everybody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Trusted {
    pub(super) ca: Option<std::path::PathBuf>,
    pub(super) insecure: bool,
}

impl Trusted {
    /// The settings of such clients.
    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, SetupError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| SetupError(format!("TLS: {error}")))?;
        if self.insecure {
            let anybody = Arc::new(Anybody(provider));
            return Ok(Arc::new(builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth()));
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = &self.ca {
            for certificate in certificates("--ca", path)? {
                roots.add(certificate).map_err(|error| SetupError(format!("--ca {}: {error}", path.display())))?;
            }
        }
        Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
    }
}

/// The settings of a provider with this certificate and key.
pub(super) fn server(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, SetupError> {
    let refuse = |error: &dyn std::fmt::Display| SetupError(format!("--tls-key {}: {error}", key.display()));
    let chain = certificates("--tls-certificate", certificate)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| refuse(&error))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| refuse(&error))?;
    let config = builder.with_no_client_auth().with_single_cert(chain, private).map_err(|error| refuse(&error))?;
    Ok(Arc::new(config))
}

fn certificates(argument: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let refuse = |error: &dyn std::fmt::Display| SetupError(format!("{argument} {}: {error}", path.display()));
    let found = CertificateDer::pem_file_iter(path).map_err(|error| refuse(&error))?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(|error| refuse(&error))?;
    match found.is_empty() {
        true => Err(refuse(&"it holds no certificate; accepted is PEM")),
        false => Ok(found),
    }
}

/// Trusts whatever certificate comes, as `--insecure` asks.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
