//! Receipts: what a gateway signs of each recorded call, so that whoever has the public key can check later that nothing was altered, left
//! out or put in. A consumer of finished spans with a durable cursor writes them, off the cores; the data path keeps the bodies' bytes
//! until they are digested with the record, and nothing where receipts are off.
//!
//! Invariants: a recorded call that passed the gateway has one receipt, over crashes and restarts; the cursor moves when it is on the
//! disk; while they cannot be written `/health` says so, calls go on, and the store keeps them. No text of anybody stands in a receipt. Calls that others reported get none: the gateway has not seen them.

mod chain;
mod hex;
mod key;
mod receipt;
#[cfg(test)]
mod tests;
mod verify;

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;
use weir_config::Settings;
use weir_storage::AuditLog;
use weir_storage::record::SpanRecord;

use crate::feed::{Batch, Consumer, Failure, Feed, Limits, Texts};
use crate::meter::{Exposition, Registry, Source, names};
use chain::Chain;
pub use key::{KeyError, PublicKey, SigningKey};
pub use receipt::{NOTES, digest};
pub use verify::{Found, Tampering, Verifier};

/// How often the audit log is looked at for a checkpoint; the first time at the start.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(3_600);
/// How soon one that failed is tried again, then twice as long each time.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// How long calls may wait to be brought together where many come.
const PATIENCE: Duration = Duration::from_secs(1);
/// There is always another attempt: the store keeps calls as long as it keeps them.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);
const DAY: Duration = Duration::from_secs(86_400);
/// The tag of a call that was reported by others.
const REPORTED: &str = "reported";

/// Why receipts cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptsError {
    /// The key cannot be used.
    #[error("receipts.key_file: {0}; `weir receipts init` makes one")]
    Key(#[from] KeyError),
    /// The folder cannot be used.
    #[error("receipts.directory: {}: {source}", path.display())]
    Folder {
        /// Which folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Tells which settings are in effect.
pub type Fingerprint = Arc<dyn Fn() -> String + Send + Sync>;

/// The receipts of a gateway.
#[derive(Clone)]
pub struct Receipts {
    chain: Arc<Mutex<Chain>>,
    public: PublicKey,
    tally: Arc<Tally>,
}

#[derive(Default)]
struct Tally {
    calls: AtomicU64,
    checkpoints: AtomicU64,
    failed_calls: AtomicU64,
    failed_checkpoints: AtomicU64,
    /// Why receipts of calls, and checkpoints, cannot be written, while that is so.
    failing: Mutex<[Option<String>; 2]>,
}

impl Tally {
    /// Notes what became of an attempt.
    fn note(&self, kind: Kind, outcome: &Result<u64, String>) {
        let (done, failed) = match kind {
            Kind::Call => (&self.calls, &self.failed_calls),
            Kind::Audit => (&self.checkpoints, &self.failed_checkpoints),
        };
        match outcome {
            Ok(count) => done.fetch_add(*count, Ordering::Relaxed),
            Err(_) => failed.fetch_add(1, Ordering::Relaxed),
        };
        let [of_calls, of_audit] = &mut *self.failing.lock();
        let failing = if kind == Kind::Call { of_calls } else { of_audit };
        *failing = outcome.as_ref().err().cloned();
    }
}

/// What a receipt is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Call,
    Audit,
}

/// Adds the consumer that writes receipts.
///
/// # Errors
/// [`ReceiptsError`].
pub fn add(
    feed: &mut Feed,
    settings: &Settings,
    fingerprint: Fingerprint,
    registry: &Registry,
) -> Result<Receipts, ReceiptsError> {
    let database = &settings.storage.database_path;
    let key = SigningKey::read(&settings.receipts.key_file(database))?;
    let public = key.public();
    let path = settings.receipts.directory(database);
    let keep = DAY * settings.receipts.retention_days;
    let chain = Chain::open(&path, key, keep).map_err(|source| ReceiptsError::Folder { path, source })?;
    let receipts = Receipts { chain: Arc::new(Mutex::new(chain)), public, tally: Arc::default() };
    feed.add(Writer { receipts: receipts.clone(), fingerprint });
    registry.add_source(Box::new(receipts.clone()));
    Ok(receipts)
}

impl Receipts {
    /// The key by which they are checked.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Starts what signs how the audit log stands.
    pub fn start(&self, runtime: &Handle, audit: &Arc<dyn AuditLog>) {
        let (receipts, audit) = (self.clone(), Arc::clone(audit));
        runtime.spawn(async move {
            let mut retry = RETRY_MIN;
            loop {
                let (signing, audit) = (receipts.clone(), Arc::clone(&audit));
                let done = tokio::task::spawn_blocking(move || signing.checkpoint(&*audit)).await;
                let done = done.unwrap_or_else(|error| Err(error.to_string()));
                receipts.tally.note(Kind::Audit, &done);
                let wait = match done {
                    Ok(_) => {
                        retry = RETRY_MIN;
                        CHECKPOINT_EVERY
                    }
                    Err(error) => {
                        tracing::warn!(error, "the audit log's checkpoint could not be signed; will retry");
                        retry = (retry * 2).min(CHECKPOINT_EVERY);
                        retry
                    }
                };
                tokio::time::sleep(wait).await;
            }
        });
    }

    fn checkpoint(&self, audit: &dyn AuditLog) -> Result<u64, String> {
        let check = audit.check_audit_aside(&[]).map_err(|error| error.to_string())?;
        let written = self.chain.lock().add_checkpoint(check.entries, &check.head, check.intact);
        written.map(u64::from).map_err(|error| error.to_string())
    }

    /// What is to be said of receipts that cannot be written: a disk does not come back by itself, as a receiver does.
    pub fn complaints(&self) -> Vec<String> {
        let [of_calls, of_audit] = &*self.tally.failing.lock();
        let of_calls = of_calls.as_ref().map(|why| format!("receipts of calls cannot be written: {why}"));
        let of_audit = of_audit.as_ref().map(|why| format!("the audit log's checkpoint cannot be signed: {why}"));
        of_calls.into_iter().chain(of_audit).collect()
    }
}

impl Source for Receipts {
    fn collect(&self, out: &mut Exposition) {
        for (kind, count) in [("audit", &self.tally.checkpoints), ("call", &self.tally.calls)] {
            out.counter(names::RECEIPTS, &[("kind", kind)], count.load(Ordering::Relaxed));
        }
        for (kind, count) in [("audit", &self.tally.failed_checkpoints), ("call", &self.tally.failed_calls)] {
            out.counter(names::RECEIPT_FAILURES, &[("kind", kind)], count.load(Ordering::Relaxed));
        }
    }
}

/// The consumer.
struct Writer {
    receipts: Receipts,
    fingerprint: Fingerprint,
}

impl Consumer for Writer {
    fn name(&self) -> &'static str {
        "receipts"
    }

    fn reads_alone(&self) -> bool {
        true
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn limits(&self) -> Limits {
        Limits { batch: FOR_EVER, ..Limits::default() }
    }

    fn texts(&self) -> Texts {
        Texts::Of(|span| !span.tags.contains_key(REPORTED) && receipt::lacks_digests(span))
    }

    async fn take(&mut self, batch: Batch<'_>) -> Result<(), Failure> {
        let own = batch.spans.iter().filter(|span| !span.tags.contains_key(REPORTED));
        let spans: Vec<SpanRecord> = own.map(|span| (*span).clone()).collect();
        let (receipts, fingerprint) = (self.receipts.clone(), Arc::clone(&self.fingerprint));
        let written =
            tokio::task::spawn_blocking(move || receipts.chain.lock().add_calls(spans.iter(), &fingerprint()));
        let written = written.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let written = written.map_err(|error| error.to_string());
        self.receipts.tally.note(Kind::Call, &written);
        written
            .map(drop)
            .map_err(|error| Failure::Later { reason: format!("receipts cannot be written: {error}"), after: None })
    }
}

/// Gives `take` each receipt in a folder, in the order of the chain.
///
/// # Errors
/// A file that cannot be read.
pub fn read<E: From<io::Error>>(folder: &Path, mut take: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
    for path in chain::files(folder)? {
        for line in BufReader::new(File::open(path)?).lines() {
            take(&line?)?;
        }
    }
    Ok(())
}

/// The receipt of a session, whose calls' receipts are `lines`, in the order of the chain; `None` where there are none.
pub fn of_session(lines: &[String], key: &SigningKey) -> Option<String> {
    let first: Value = serde_json::from_str(lines.first()?).ok()?;
    let mut draft = receipt::draft("session", first.get("gateway")?.as_str()?);
    draft.extend(verify::of_session(lines));
    Some(receipt::sign(draft, None, key))
}

/// The SHA-256 of a text in hexadecimal, as receipts name sessions and settings.
pub fn sha256(text: &str) -> String {
    receipt::hash(text)
}
