//! Addresses that are turned away for what came from them, and from where most requests come.
//!
//! Invariants: only the address of the connection counts, never what a header says; asking takes no lock, and its memory is
//! fixed. Knows nothing of what was found, and who keeps it.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;

use super::connections::ClientKey;
use crate::exchange::Refusal;

/// Cells in which requests are counted; a power of two.
const CELLS: usize = 4_096;

/// Who is turned away, and until when.
pub struct Blocked {
    until_s: ArcSwap<HashMap<ClientKey, i64>>,
    all: AtomicU64,
    cells: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl Blocked {
    /// Nobody is.
    pub fn new() -> Self {
        Self {
            until_s: ArcSwap::default(),
            all: AtomicU64::new(0),
            cells: (0..CELLS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }

    /// A request of `client` comes at second `now_s`: for how many seconds more it is turned away.
    pub fn turns_away(&self, client: ClientKey, now_s: i64) -> Option<u64> {
        self.all.fetch_add(1, Relaxed);
        if let Some(cell) = self.cell(client) {
            cell.fetch_add(1, Relaxed);
        }
        self.left_s(client, now_s)
    }

    /// The same for what is no proxied request, and so tells nothing of where most of these come from.
    pub fn left_s(&self, client: ClientKey, now_s: i64) -> Option<u64> {
        let left = self.until(client)?.saturating_sub(now_s);
        u64::try_from(left).ok().filter(|left| *left > 0)
    }

    /// Until which second `client` is turned away, where it is known.
    pub fn until(&self, client: ClientKey) -> Option<i64> {
        self.until_s.load().get(&client).copied()
    }

    /// Turns `client` away until second `until_s`; what is over at `now_s` is forgotten.
    pub fn block(&self, client: ClientKey, until_s: i64, now_s: i64) {
        self.until_s.rcu(|former| {
            let mut next: HashMap<_, _> =
                former.iter().filter(|(_, until)| **until > now_s).map(|(client, until)| (*client, *until)).collect();
            next.insert(client, until_s);
            next
        });
    }

    /// Whether more than half of the requests come from `client`: it may be a proxy that all come through.
    pub fn is_most(&self, client: ClientKey) -> bool {
        let own = self.cell(client).map_or(0, |cell| cell.load(Relaxed));
        own > self.all.load(Relaxed) / 2
    }

    /// Halves what was counted, so that it tells of lately.
    pub fn fade(&self) {
        for cell in self.cells.iter().chain([&self.all]) {
            cell.fetch_sub(cell.load(Relaxed).div_ceil(2), Relaxed);
        }
    }

    fn cell(&self, client: ClientKey) -> Option<&AtomicU64> {
        let at = usize::try_from(self.hasher.hash_one(client) % CELLS as u64).unwrap_or_default();
        self.cells.get(at)
    }
}

/// The refusal of a client that is turned away for so many seconds more.
pub fn refusal(left_s: u64) -> Refusal {
    let message = "requests from this address are refused for a while, because of what was found in earlier ones \
                   (`action_router.ip_block`)";
    let refusal = Refusal::new(403, "ip_blocked", message).header("Retry-After", left_s);
    refusal.header("x-should-retry", "false")
}

impl Default for Blocked {
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
    fn who_is_blocked_is_turned_away_until_its_time_is_over() {
        let (blocked, one, other) = (Blocked::new(), client("10.0.0.1"), client("10.0.0.2"));
        blocked.block(one, 100, 40);
        assert_eq!((blocked.turns_away(one, 40), blocked.turns_away(other, 40)), (Some(60), None));
        assert_eq!((blocked.turns_away(one, 99), blocked.turns_away(one, 100)), (Some(1), None));
        assert_eq!(
            (blocked.left_s(one, 40), blocked.left_s(one, 100), blocked.left_s(other, 40)),
            (Some(60), None, None)
        );
        blocked.block(other, 200, 100);
        assert_eq!(blocked.until_s.load().len(), 1, "what is over is forgotten");
    }

    #[test]
    fn most_is_more_than_half_of_what_came_lately() {
        let (blocked, proxy, other) = (Blocked::new(), client("10.0.0.1"), client("10.0.0.2"));
        for at in 0..100 {
            blocked.turns_away(if at % 3 == 0 { other } else { proxy }, 0);
        }
        assert!(blocked.is_most(proxy) && !blocked.is_most(other));
        for _ in 0..1_000 {
            blocked.left_s(other, 0);
        }
        assert!(blocked.is_most(proxy), "reports are no proxied requests");
        for _ in 0..8 {
            blocked.fade();
        }
        for _ in 0..10 {
            blocked.turns_away(other, 0);
        }
        assert!(blocked.is_most(other) && !blocked.is_most(proxy));
    }
}
