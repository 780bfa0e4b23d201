//! Slows down those who try admin keys. API keys and tokens are random and long enough; the admin key is what somebody chose.
//!
//! A client address that has guessed wrong often waits before each further try is looked at, whether it is right or wrong: an
//! answer that came at once would tell. Invariants: fixed memory, no lock; another address never waits for it, unless it shares a
//! cell in both rows; waiting costs a timer and no thread. Knows neither keys nor sockets.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::connections::ClientKey;

/// Cells of one row; a power of two.
const CELLS: usize = 16_384;
/// Wrong tries that cost nothing.
const FREE: u64 = 20;
/// What each further one costs.
const PACE_MS: u64 = 250;
/// Nobody waits longer; who would have to is refused.
const WAIT_MS_MAX: u64 = 5_000;

/// When each address may try again: the generic cell rate algorithm, in two rows hashed with keys of their own, of which the
/// milder one is believed.
pub struct Attempts {
    rows: [Box<[AtomicU64]>; 2],
    hashers: [RandomState; 2],
}

/// What the next try costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Price {
    /// Nothing.
    Free,
    /// Waiting for that long. It has been counted.
    Wait(Duration),
    /// So many tries wait already that this one is not looked at.
    TooMany {
        /// When it may be made again.
        retry_after_s: u64,
    },
}

impl Attempts {
    /// Nobody has tried.
    pub fn new() -> Self {
        let row = || (0..CELLS).map(|_| AtomicU64::new(0)).collect();
        Self { rows: [row(), row()], hashers: [RandomState::new(), RandomState::new()] }
    }

    /// Asked before so many `tries` in one request are looked at.
    pub fn price(&self, client: ClientKey, tries: u32, now_ms: u64) -> Price {
        let due = self.cells(client).map(|cell| cell.load(Relaxed)).min().unwrap_or(0);
        let wait = due.saturating_sub(now_ms + FREE * PACE_MS);
        if wait == 0 {
            return Price::Free;
        }
        if wait > WAIT_MS_MAX {
            return Price::TooMany { retry_after_s: wait.div_ceil(1_000) };
        }
        self.failed(client, tries, now_ms);
        Price::Wait(Duration::from_millis(wait))
    }

    /// Tries that cost nothing were wrong.
    pub fn failed(&self, client: ClientKey, tries: u32, now_ms: u64) {
        for cell in self.cells(client) {
            // The closure always gives a value.
            let _always =
                cell.fetch_update(Relaxed, Relaxed, |due| Some(due.max(now_ms) + u64::from(tries) * PACE_MS)).is_ok();
        }
    }

    fn cells(&self, client: ClientKey) -> impl Iterator<Item = &AtomicU64> {
        self.rows.iter().zip(&self.hashers).filter_map(move |(row, hasher)| {
            let at = usize::try_from(hasher.hash_one(client) % CELLS as u64).unwrap_or_default();
            row.get(at)
        })
    }
}

impl Default for Attempts {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn client(text: &str) -> ClientKey {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn who_guesses_is_held_to_four_tries_a_second_and_nobody_else_waits() {
        let attempts = Attempts::new();
        let (guesser, other) = (client("10.0.0.1"), client("10.0.0.2"));
        let mut looked_at = 0u64;
        // A try every millisecond for a minute; one that has to wait is one that is looked at later.
        for now_ms in 1_000..61_000 {
            match attempts.price(guesser, 1, now_ms) {
                Price::Free => {
                    attempts.failed(guesser, 1, now_ms);
                    looked_at += 1;
                }
                Price::Wait(wait) => {
                    assert!(wait <= Duration::from_millis(WAIT_MS_MAX), "{wait:?}");
                    looked_at += 1;
                }
                Price::TooMany { retry_after_s } => assert!(retry_after_s <= 6, "{retry_after_s}"),
            }
        }
        let most = FREE + 60_000 / PACE_MS + WAIT_MS_MAX / PACE_MS + 2;
        assert!((most - 4..=most).contains(&looked_at), "{looked_at} of at most {most}");
        assert_eq!(attempts.price(other, 1, 61_000), Price::Free);
        assert_eq!(attempts.price(guesser, 1, 61_000 + WAIT_MS_MAX + FREE * PACE_MS), Price::Free, "it is forgotten");
    }

    #[test]
    fn a_few_mistakes_cost_nothing() {
        let attempts = Attempts::new();
        for _ in 0..FREE {
            assert_eq!(attempts.price(client("::1"), 1, 5_000), Price::Free);
            attempts.failed(client("::1"), 1, 5_000);
        }
        assert_eq!(attempts.price(client("::1"), 1, 5_000), Price::Free);
        attempts.failed(client("::1"), 1, 5_000);
        assert_eq!(attempts.price(client("::1"), 1, 5_000), Price::Wait(Duration::from_millis(PACE_MS)));
    }

    #[test]
    fn each_field_of_a_request_is_a_try() {
        let attempts = Attempts::new();
        for _ in 0..7 {
            assert_eq!(attempts.price(client("::2"), 3, 5_000), Price::Free);
            attempts.failed(client("::2"), 3, 5_000);
        }
        assert_eq!(attempts.price(client("::2"), 3, 5_000), Price::Wait(Duration::from_millis(PACE_MS)), "21 by now");
    }
}
