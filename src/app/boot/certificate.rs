//! The listener's certificate: read at the start, read again on SIGHUP.
//!
//! Invariant: a pair that is not usable never replaces one that is; what is wrong with it names the file. Session tickets
//! survive a replacement, so clients go on resuming.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ProducesTickets;
use time::OffsetDateTime;
use weir_config::Settings;

use super::validity;
use crate::rt::TlsAcceptor;

/// Why a pair of files cannot be used: a sentence that names the setting and the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} `{}`: {problem}; {advice}", path.display())]
pub struct CertificateError {
    setting: &'static str,
    path: PathBuf,
    problem: String,
    advice: &'static str,
}

/// Where the two halves lie.
#[derive(Debug, Clone)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
}

/// The listener's pair of files and the acceptor that answers under it.
pub(super) struct Certificate {
    files: Files,
    tickets: Arc<dyn ProducesTickets>,
    acceptor: Arc<TlsAcceptor>,
}

const CERT: &str = "tls_cert_file";
const KEY: &str = "tls_key_file";

impl Certificate {
    /// Reads the pair the settings name; `None` when the listener does not speak TLS.
    pub(super) fn open(settings: &Settings) -> Result<Option<Self>, CertificateError> {
        let (true, Some(cert), Some(key)) = (settings.enable_tls, &settings.tls_cert_file, &settings.tls_key_file)
        else {
            return Ok(None);
        };
        let files = Files { cert: cert.clone(), key: key.clone() };
        let fail = |problem: String| CertificateError {
            setting: CERT,
            path: files.cert.clone(),
            problem,
            advice: "TLS cannot be set up on this machine",
        };
        let tickets = Ticketer::new().map_err(|error| fail(error.to_string()))?;
        let (config, warning) = read(&files, &tickets)?;
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        let acceptor = Arc::new(TlsAcceptor::new(config));
        Ok(Some(Self { files, tickets, acceptor }))
    }

    /// What the cores answer with.
    pub(super) fn acceptor(&self) -> Arc<TlsAcceptor> {
        Arc::clone(&self.acceptor)
    }

    /// Reads the pair again. New connections get it; present ones stay as they are. In words what is in effect now, or why the
    /// former pair stays.
    pub(super) fn reload(&self) -> Result<String, String> {
        let (config, warning) = read(&self.files, &self.tickets).map_err(|error| error.to_string())?;
        self.acceptor.replace(config);
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        Ok(format!("the certificate in {}", self.files.cert.display()))
    }
}

/// Whether the pair the settings name could be used by a start: `None` without TLS, else what is doubtful about it or
/// nothing.
pub(crate) fn check_certificate(settings: &Settings) -> Result<Option<String>, String> {
    let (true, Some(cert), Some(key)) = (settings.enable_tls, &settings.tls_cert_file, &settings.tls_key_file) else {
        return Ok(None);
    };
    let tickets = Ticketer::new().map_err(|error| error.to_string())?;
    let files = Files { cert: cert.clone(), key: key.clone() };
    let (_, warning) = read(&files, &tickets).map_err(|error| error.to_string())?;
    Ok(Some(warning.unwrap_or_default()))
}

/// A configuration from the pair, and what is doubtful about it.
fn read(
    files: &Files,
    tickets: &Arc<dyn ProducesTickets>,
) -> Result<(Arc<ServerConfig>, Option<String>), CertificateError> {
    let of = |setting, path: &Path, problem: String, advice| CertificateError {
        setting,
        path: path.to_owned(),
        problem,
        advice,
    };
    let cert = |problem| of(CERT, &files.cert, problem, "give a PEM file with the certificate and its chain");
    let key = |problem| of(KEY, &files.key, problem, "give the PEM file of the certificate's private key");
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| cert(in_words(&error, "certificate")))?;
    let Some(first) = chain.first() else { return Err(cert("it holds no PEM certificate".to_owned())) };
    let warning = validity::of(first).and_then(|valid| doubt(&files.cert, valid, OffsetDateTime::now_utc()));
    let warning =
        [warning, exposure(&files.key)].into_iter().flatten().reduce(|first, second| format!("{first}; {second}"));
    let private = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| key(in_words(&error, "private key")))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| cert(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                key(format!("it is not the key of the certificate in `{}`", files.cert.display()))
            }
            other => cert(format!("the pair cannot be used: {other}")),
        })?;
    // HTTP/1.1 is what `wire` speaks; a client that offers only HTTP/2 is told so in the handshake.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer = Arc::clone(tickets);
    config.send_tls13_tickets = 1;
    Ok((Arc::new(config), warning))
}

fn in_words(error: &pem::Error, what: &str) -> String {
    match error {
        pem::Error::NoItemsFound => format!("it holds no PEM {what}"),
        pem::Error::Io(error) => format!("it cannot be read: {error}"),
        other => format!("it is not PEM: {other}"),
    }
}

/// Anybody who reads the private key can pretend to be us. It is used all the same: some platforms mount secrets this way.
fn exposure(key: &Path) -> Option<String> {
    let mode = std::fs::metadata(key).ok()?.permissions().mode();
    (mode & 0o077 != 0).then(|| {
        format!(
            "tls_key_file `{}`: the private key can be read by other users (mode {:04o}); chmod 600 keeps them out",
            key.display(),
            mode & 0o7777
        )
    })
}

/// A certificate outside its time still serves: clients decide whether they mind, and a clock may be wrong.
fn doubt(path: &Path, valid: validity::Validity, now: OffsetDateTime) -> Option<String> {
    let what = if now > valid.not_after {
        format!("expired on {}", valid.not_after.date())
    } else if now < valid.not_before {
        format!("is not valid before {}", valid.not_before.date())
    } else if valid.not_after - now < time::Duration::days(7) {
        format!("expires on {}", valid.not_after.date())
    } else {
        return None;
    };
    Some(format!("tls_cert_file `{}`: the certificate {what}; replace the file and send SIGHUP", path.display()))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_key_that_others_can_read_is_named_with_what_to_do() {
        let folder = tempfile::TempDir::new().unwrap();
        let key = folder.path().join("key.pem");
        std::fs::write(&key, "").unwrap();
        let said = |mode| {
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
            exposure(&key)
        };
        assert_eq!((said(0o600), said(0o400)), (None, None));
        for (mode, shown) in [(0o644, "(mode 0644)"), (0o640, "(mode 0640)"), (0o604, "(mode 0604)")] {
            let said = said(mode).unwrap();
            assert!(said.starts_with("tls_key_file `") && said.contains(shown) && said.contains("chmod 600"), "{said}");
        }
    }

    #[test]
    fn doubt_is_voiced_outside_the_time_and_in_the_last_week() {
        let valid = validity::Validity {
            not_before: datetime!(2026-01-01 0:00 UTC),
            not_after: datetime!(2027-01-01 0:00 UTC),
        };
        let said = |now| doubt(Path::new("a.pem"), valid, now);
        assert_eq!(said(datetime!(2026-06-01 0:00 UTC)), None);
        assert!(said(datetime!(2025-12-31 0:00 UTC)).unwrap().contains("is not valid before 2026-01-01"));
        assert!(said(datetime!(2026-12-26 0:00 UTC)).unwrap().contains("expires on 2027-01-01"));
        assert!(said(datetime!(2027-01-02 0:00 UTC)).unwrap().contains("expired on 2027-01-01"));
    }
}
