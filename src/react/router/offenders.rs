//! The action `block_ip`: counts offences of the addresses that calls come from, and has those turned away that have too many.
//! What counts is the address of the connection, never what a header says; offences and blocks lie in the store, so that they
//! outlive the process.

use std::net::{IpAddr, Ipv6Addr};
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
/// After so many halvings nothing is left of any count.
const FADES_MAX: u64 = 64;
const MICROS_PER_SECOND: i64 = 1_000_000;
/// How often the store is asked whom other processes have blocked.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
        self.take_over(&*book)?;
        // Whoever comes second has the same store.
        let _kept = self.book.set(book);
        Ok(())
    }

    /// Turns away whom `book` says, whoever has blocked them.
    fn take_over(&self, book: &dyn OffenceBook) -> Result<(), ReadError> {
        let now = Timestamp::now();
        for BlockedAddress { address, until } in book.blocked_addresses(now)? {
            if self.blocked.until(address.into()) != Some(seconds(until)) {
                self.turn_away(address, until, now);
            }
        }
        Ok(())
    }

    /// Keeps up with other processes on the same store: who is blocked by one is turned away by all.
    pub async fn keep_up(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let Some(book) = self.book.get().cloned() else { continue };
            let this = Arc::clone(&self);
            let read = tokio::task::spawn_blocking(move || this.take_over(&*book)).await;
            if let Ok(Err(error)) = read {
                tracing::debug!(%error, "blocked addresses cannot be read; those that are known are turned away");
            }
        }
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
        let offence =
            Offence { address: whole(address), span: span.span_id, at: now, ttl_us, max: self.settings.max_offenses };
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
        self.blocked.block(address.into(), seconds(until), seconds(now));
    }

    /// Once for each [`FADE`] that went by, also where nobody has done anything for long.
    fn fade(&self) {
        let mut faded = self.faded.lock().unwrap_or_else(PoisonError::into_inner);
        let periods = (faded.elapsed().as_secs() / FADE.as_secs()).min(FADES_MAX);
        if periods > 0 {
            *faded = Instant::now();
        }
        (0..periods).for_each(|_| self.blocked.fade());
    }
}

fn seconds(at: Timestamp) -> i64 {
    at.micros().div_euclid(MICROS_PER_SECOND)
}

/// What is turned away with an address: an IPv6 client has a whole /64 to come from.
fn whole(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use weir_config::vocab::SpanId;
    use weir_storage::NotWritten;

    use super::*;
    use crate::feed::testing::blank_call;

    /// Offences as the store keeps them, without an end.
    #[derive(Default)]
    struct Book {
        noted: Mutex<Vec<(IpAddr, SpanId)>>,
        blocked: Vec<BlockedAddress>,
    }

    impl OffenceBook for Book {
        fn note_offence(&self, offence: Offence) -> Result<Option<BlockedAddress>, NotWritten> {
            let mut noted = self.noted.lock().unwrap();
            noted.push((offence.address, offence.span));
            let count = noted.iter().filter(|(address, _)| *address == offence.address).count();
            let until = Timestamp::from_micros(offence.at.micros() + offence.ttl_us);
            Ok((count >= offence.max as usize).then_some(BlockedAddress { address: offence.address, until }))
        }

        fn blocked_addresses(&self, _: Timestamp) -> Result<Vec<BlockedAddress>, ReadError> {
            Ok(self.blocked.clone())
        }
    }

    /// Three offences are too many, for a minute.
    fn offenders(allow_shared: bool) -> Offenders {
        let offenders = Offenders::new(IpBlock { ttl_seconds: 60, max_offenses: 3, allow_shared });
        offenders.open(Arc::new(Book::default())).unwrap();
        offenders
    }

    fn offend(offenders: &Offenders, address: &str) -> Result<(), Unable> {
        let mut span = blank_call();
        span.span_id = SpanId::fresh();
        if !address.is_empty() {
            span.tags.insert(Cow::Borrowed(SOURCE), address.to_owned());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(offenders.note(&span)).unwrap()
    }

    fn is_turned_away(offenders: &Offenders, address: &str) -> bool {
        let now = Timestamp::now().micros() / MICROS_PER_SECOND;
        offenders.blocked().turns_away(address.parse::<IpAddr>().unwrap().into(), now).is_some()
    }

    #[test]
    fn neither_this_machine_nor_where_most_come_from_is_blocked_unless_that_is_allowed() {
        let (careful, bold) = (offenders(false), offenders(true));
        for local in ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(offend(&careful, local), Err(Unable::Loopback), "{local}");
            assert_eq!(offend(&bold, local), Ok(()), "{local}");
        }
        for _ in 0..3 {
            is_turned_away(&careful, "10.0.0.1");
        }
        is_turned_away(&careful, "10.0.0.2");
        assert_eq!((offend(&careful, "10.0.0.1"), offend(&careful, "10.0.0.2")), (Err(Unable::Shared), Ok(())));
        assert_eq!(offend(&bold, "10.0.0.1"), Ok(()));
        for nowhere in ["", "client.example"] {
            assert_eq!(offend(&bold, nowhere), Err(Unable::NoAddress), "{nowhere}");
        }
    }

    #[test]
    fn the_third_offence_blocks_the_address_and_no_other_and_of_ipv6_the_whole_prefix() {
        let offenders = offenders(false);
        // Somebody else makes the most requests.
        for _ in 0..100 {
            assert!(!is_turned_away(&offenders, "10.9.9.9"));
        }
        for (offending, also, other) in [
            (["10.0.0.1"; 3], "::ffff:10.0.0.1", "10.0.0.2"),
            (["2001:db8::1", "2001:db8::2:0:0:1", "2001:db8::3"], "2001:db8::ffff", "2001:db8:0:1::1"),
        ] {
            for address in offending {
                assert!(!is_turned_away(&offenders, also), "{address}");
                assert_eq!(offend(&offenders, address), Ok(()), "{address}");
            }
            assert!(is_turned_away(&offenders, also) && !is_turned_away(&offenders, other), "{offending:?}");
        }
    }

    #[test]
    fn who_was_blocked_before_a_restart_is_blocked_after_it_for_as_long() {
        let book = |seconds: i64| {
            let until = Timestamp::from_micros(Timestamp::now().micros() + seconds * MICROS_PER_SECOND);
            Arc::new(Book {
                blocked: vec![BlockedAddress { address: "10.0.0.1".parse().unwrap(), until }],
                ..Book::default()
            })
        };
        for (left, blocked) in [(60, true), (-1, false)] {
            let offenders = Offenders::new(IpBlock { ttl_seconds: 60, max_offenses: 3, allow_shared: false });
            offenders.open(book(left)).unwrap();
            assert_eq!(is_turned_away(&offenders, "10.0.0.1"), blocked);
        }
    }
}
