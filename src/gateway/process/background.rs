//! Answers that a provider goes on with in the background: the call that begins one says nothing of what it uses, a later
//! call that fetches its end does.
//!
//! What the first call has reserved waits here, under the tenant and the provider's id of the answer, so that the usage
//! is charged exactly once, however often and on whichever core the end is fetched. Either may be seen first: the record
//! of the first call may be completed after the second has been answered.
//!
//! Bounded: at [`WAITING_MAX`] answers, or after [`WAITING_LIMIT`], the oldest gives way and its reservation settles with
//! the estimate. One short lock, taken by such calls alone. Nothing survives the process: docs/decisions.md says why.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_config::settings::TokenCap;
use weir_config::vocab::TenantId;

use crate::money::Reservation;

/// Answers waited for.
const WAITING_MAX: usize = 4_096;
/// How long an answer is waited for.
const WAITING_LIMIT: Duration = Duration::from_hours(24);
/// Ends remembered that nobody was waiting for yet.
const EARLY_MAX: usize = 256;

/// What the call that began an answer leaves behind for its end.
#[derive(Default)]
pub(crate) struct Open {
    pub(crate) reservation: Option<Box<Reservation>>,
    pub(crate) token_cap: Option<TokenCap>,
}

type Key = (TenantId, Box<str>);

/// The answers under way. `T` is what an end tells.
pub(crate) struct Background<T> {
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    waiting: HashMap<Key, (u64, Open)>,
    /// In the order they began; those that have ended since are passed over.
    order: VecDeque<(u64, Instant, Key)>,
    early: VecDeque<(Key, T)>,
    count: u64,
}

impl<T> Background<T> {
    pub(crate) fn new() -> Self {
        let (waiting, order, early) = (HashMap::new(), VecDeque::new(), VecDeque::new());
        Self { inner: Mutex::new(Inner { waiting, order, early, count: 0 }) }
    }

    /// An answer has begun. Gives back what is open, with what the end told, when that has been seen already.
    pub(crate) fn begin(&self, tenant: TenantId, id: &str, open: Open, now: Instant) -> Option<(Open, T)> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        let key = (tenant, Box::from(id));
        if let Some(at) = inner.early.iter().position(|(known, _)| *known == key) {
            return inner.early.remove(at).map(|(_, told)| (open, told));
        }
        inner.count += 1;
        inner.waiting.insert(key.clone(), (inner.count, open));
        inner.order.push_back((inner.count, now, key));
        while let Some((number, since, key)) = inner.order.front() {
            let ended = inner.waiting.get(key).is_none_or(|(current, _)| current != number);
            let over = inner.order.len() > WAITING_MAX || now.saturating_duration_since(*since) > WAITING_LIMIT;
            if !ended && !over {
                break;
            }
            if !ended {
                // Its estimate stands: the reservation goes with it.
                inner.waiting.remove(key);
            }
            inner.order.pop_front();
        }
        None
    }

    /// Gives up waiting: every reservation settles with its estimate.
    pub(crate) fn clear(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).waiting.clear();
    }

    /// The end of an answer has been fetched. Gives back what was open, the first time; an end nobody waits for is
    /// remembered for a while.
    pub(crate) fn end(&self, tenant: TenantId, id: &str, told: T) -> Option<(Open, T)> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tenant, Box::from(id));
        if let Some((_, open)) = inner.waiting.remove(&key) {
            return Some((open, told));
        }
        if !inner.early.iter().any(|(known, _)| *known == key) {
            if inner.early.len() >= EARLY_MAX {
                inner.early.pop_front();
            }
            inner.early.push_back((key, told));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId::DEFAULT;

    fn begin(background: &Background<u8>, id: &str, now: Instant) -> Option<u8> {
        background.begin(TENANT, id, Open::default(), now).map(|(_, told)| told)
    }

    fn end(background: &Background<u8>, id: &str, told: u8) -> Option<u8> {
        background.end(TENANT, id, told).map(|(_, told)| told)
    }

    #[test]
    fn an_end_is_told_once_whichever_is_seen_first() {
        let (background, now) = (Background::new(), Instant::now());
        assert_eq!(begin(&background, "a", now), None);
        assert_eq!((end(&background, "a", 1), end(&background, "a", 1)), (Some(1), None));
        assert_eq!((end(&background, "b", 2), end(&background, "b", 2)), (None, None));
        assert_eq!(begin(&background, "b", now), Some(2));
        assert_eq!(end(&background, "b", 2), None);
        let other = TenantId::from_bytes([7; 16]);
        assert_eq!(begin(&background, "c", now), None);
        assert!(background.end(other, "c", 3).is_none(), "another tenant's");
        assert_eq!(end(&background, "c", 3), Some(3));
    }

    #[test]
    fn the_oldest_gives_way_at_the_bounds() {
        let (background, now) = (Background::new(), Instant::now());
        for number in 0..=WAITING_MAX {
            begin(&background, &number.to_string(), now);
        }
        assert_eq!((end(&background, "0", 1), end(&background, "1", 1)), (None, Some(1)));
        begin(&background, "late", now + WAITING_LIMIT + Duration::from_secs(1));
        assert_eq!((end(&background, "2", 1), end(&background, "late", 1)), (None, Some(1)));
        for number in 0..=EARLY_MAX {
            end(&background, &format!("early{number}"), 1);
        }
        assert_eq!((begin(&background, "early0", now), begin(&background, "early1", now)), (None, Some(1)));
        let inner = background.inner.lock().unwrap();
        assert!(
            inner.waiting.len() <= WAITING_MAX && inner.order.len() <= WAITING_MAX && inner.early.len() <= EARLY_MAX
        );
    }
}
