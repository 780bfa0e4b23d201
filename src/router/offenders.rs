//! The action `block_ip`: counts offences of the addresses that calls come from, and has those turned away that have too many.
//! What counts is the address of the connection, never what a header says; offences and blocks lie in the store, so that they
//! outlive the process.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use weir_config::settings::IpBlock;
use weir_config::vocab::Timestamp;
use weir_storage::record::SpanRecord;
use weir_storage::{BlockedAddress, Offence, OffenceBook, ReadError};

use super::tally::Unable;
use crate::admit::blocked::Blocked;
use crate::feed::Failure;

/// The tag of a span that says from which address its call came.
pub const SOURCE: &str = "source_ip";
/// How often the count of requests is halved.
const FADE: Duration = Duration::from_secs(60);
const MICROS_PER_SECOND: i64 = 1_000_000;

/// Who has done what, and who is turned away.
pub struct Offenders {
    settings: IpBlock,
    blocked: Arc<Blocked>,
    /// Set before the first span comes.
    book: OnceLock<Arc<dyn OffenceBook>>,
    faded: Mutex<Instant>,
}

impl Offenders {
    /// Nobody has done anything.
    pub fn new(settings: IpBlock) -> Self {
        let faded = Mutex::new(Instant::now());
        Self { settings, blocked: Arc::default(), book: OnceLock::new(), faded }
    }

    /// Who is turned away, for those who turn them away.
    pub fn blocked(&self) -> Arc<Blocked> {
        Arc::clone(&self.blocked)
    }

    /// From now on they are kept in `book`; who stands there is turned away.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn open(&self, book: Arc<dyn OffenceBook>) -> Result<(), ReadError> {
        let now = Timestamp::now();
        for BlockedAddress { address, until } in book.blocked_addresses(now)? {
            self.turn_away(address, until, now);
        }
        // Whoever comes second has the same store.
        let _kept = self.book.set(book);
        Ok(())
    }

    /// Counts the offence of where `span` came from, or says why not.
    pub(super) async fn note(&self, span: &SpanRecord) -> Result<Result<(), Unable>, Failure> {
        self.fade();
        let Some(address) = span.tags.get(SOURCE).and_then(|text| text.parse::<IpAddr>().ok()) else {
            return Ok(Err(Unable::NoAddress));
        };
        if let Some(why) = self.spares(address) {
            return Ok(Err(why));
        }
        let Some(book) = self.book.get().cloned() else { return Ok(Err(Unable::NoAddress)) };
        let now = Timestamp::now();
        let ttl_us = i64::try_from(self.settings.ttl_seconds).unwrap_or(i64::MAX).saturating_mul(MICROS_PER_SECOND);
        let offence = Offence { address, span: span.span_id, at: now, ttl_us, max: self.settings.max_offenses };
        let noted = tokio::task::spawn_blocking(move || book.note_offence(offence)).await;
        let failed = |reason: String| Failure::Later { reason, after: None };
        let noted = noted.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
        if let Some(BlockedAddress { address, until }) = noted {
            tracing::warn!(%address, %until, "an address is turned away for its offences (action_router.ip_block)");
            self.turn_away(address, until, now);
        }
        Ok(Ok(()))
    }

    /// Why `address` is not to be turned away.
    fn spares(&self, address: IpAddr) -> Option<Unable> {
        if self.settings.allow_shared {
            None
        } else if address.to_canonical().is_loopback() {
            Some(Unable::Loopback)
        } else {
            self.blocked.is_most(address.into()).then_some(Unable::Shared)
        }
    }

    fn turn_away(&self, address: IpAddr, until: Timestamp, now: Timestamp) {
        let seconds = |at: Timestamp| at.micros().div_euclid(MICROS_PER_SECOND);
        self.blocked.block(address.into(), seconds(until), seconds(now));
    }

    fn fade(&self) {
        let mut faded = self.faded.lock().unwrap_or_else(PoisonError::into_inner);
        if faded.elapsed() >= FADE {
            *faded = Instant::now();
            self.blocked.fade();
        }
    }
}
