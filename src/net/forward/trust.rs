//! Whom TLS towards the provider trusts: the system's roots, what `SSL_CERT_FILE` and `SSL_CERT_DIR` name, and
//! `upstream_ca_file`, all together. A bundle the operator names has to be usable; the system's store may be empty.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use weir_config::egress::Egress;

use super::PeerError;

/// Where systems keep their bundle. rustls-native-certs stops looking there once a variable is set; we look at both.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/ssl/cert.pem",
];

/// TLS as a client. One value for the whole process, so that every core can resume a session another core began.
pub fn client_config(extra_ca: Option<&Path>, egress: &Egress) -> Result<Arc<ClientConfig>, PeerError> {
    let mut roots = RootCertStore::empty();
    add_system(&mut roots, egress);
    if let Some(path) = &egress.ca_file {
        add_file(&mut roots, "SSL_CERT_FILE", path)?;
    }
    for dir in &egress.ca_dirs {
        add_folder(&mut roots, dir)?;
    }
    if let Some(path) = extra_ca {
        add_file(&mut roots, "upstream_ca_file", path)?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(PeerError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // HTTP/1.1 is what `wire` speaks; a server that insists on HTTP/2 has to say so now.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn add_system(roots: &mut RootCertStore, egress: &Egress) {
    let overridden = egress.ca_file.is_some() || !egress.ca_dirs.is_empty();
    let found = if overridden {
        let bundle = SYSTEM_BUNDLES.iter().map(Path::new).find(|path| path.exists());
        rustls_native_certs::load_certs_from_paths(bundle, None)
    } else {
        rustls_native_certs::load_native_certs()
    };
    for error in &found.errors {
        tracing::warn!(%error, "a system certificate store could not be read");
    }
    roots.add_parsable_certificates(found.certs);
}

/// Adds every certificate of a PEM file; the name it goes by is part of what is said when it cannot be used.
fn add_file(roots: &mut RootCertStore, named_by: &'static str, path: &Path) -> Result<(), PeerError> {
    let fail = |reason: String| PeerError::Ca { named_by, path: path.display().to_string(), reason };
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| fail(error.to_string()))?;
    let mut added = 0;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| fail(error.to_string()))?;
        roots.add(certificate).map_err(|error| fail(error.to_string()))?;
        added += 1;
    }
    if added == 0 { Err(fail("it holds no PEM certificate".to_owned())) } else { Ok(()) }
}

/// Adds what a folder of hashed or plain PEM files holds; single files that are none are passed over, as OpenSSL does.
fn add_folder(roots: &mut RootCertStore, dir: &Path) -> Result<(), PeerError> {
    let fail = |reason: String| PeerError::Ca { named_by: "SSL_CERT_DIR", path: dir.display().to_string(), reason };
    if !dir.is_dir() {
        return Err(fail("it is not a folder that can be read".to_owned()));
    }
    let found = rustls_native_certs::load_certs_from_paths(None, Some(dir));
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 { Err(fail("it holds no PEM certificate".to_owned())) } else { Ok(()) }
}
