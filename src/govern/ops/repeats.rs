//! Lines that repeat: of the same kind at most [`LINES_PER_SECOND`] are written in one second, the rest is counted and summed up.
//!
//! Invariant: a provider that is down, or a stranger who keeps knocking, cannot fill a disk or hide other lines: each kind has an
//! account of its own, as long as there are at most [`KINDS_MAX`]. No lock is taken; a count may be attributed to the
//! neighbouring second, never lost.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines of one kind that are written in one second.
pub const LINES_PER_SECOND: u32 = 10;
/// Kinds that are told apart; further ones share an account.
const KINDS_MAX: usize = 128;

/// What makes two lines the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Whether it is logged at `warn`, else at `info`.
    pub is_failure: bool,
    /// The answer's status; 0 when there was none.
    pub status: u16,
    /// Why.
    pub reason: &'static str,
}

/// Lines of a kind that were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOut {
    /// Which.
    pub kind: Kind,
    /// How many.
    pub lines: u32,
}

/// The accounts.
pub struct Repeats {
    accounts: Box<[Account]>,
}

#[derive(Default)]
struct Account {
    kind: OnceLock<Kind>,
    /// The second in the upper half, the lines seen in it in the lower.
    seen: AtomicU64,
}

impl Repeats {
    /// Nothing has been said.
    pub fn new() -> Self {
        Self { accounts: (0..=KINDS_MAX).map(|_| Account::default()).collect() }
    }

    /// Notes one more line of `kind` in `second`: whether it is to be written, and what was left out in the second before.
    pub fn note(&self, kind: Kind, second: u32) -> (bool, Option<LeftOut>) {
        let Some(account) = self.account(kind) else { return (true, None) };
        let mut seen = account.seen.load(Ordering::Relaxed);
        loop {
            let (then, lines) = parts(seen);
            let next = if then == second { (second, lines.saturating_add(1)) } else { (second, 1) };
            match account.seen.compare_exchange_weak(seen, word(next), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    return (next.1 <= LINES_PER_SECOND, (then != second).then(|| account.left_out(lines)).flatten());
                }
                Err(newer) => seen = newer,
            }
        }
    }

    /// What was left out in seconds that are over at `second` and has not been said yet.
    pub fn sum_up(&self, second: u32) -> impl Iterator<Item = LeftOut> + '_ {
        self.accounts.iter().filter_map(move |account| {
            let seen = account.seen.load(Ordering::Relaxed);
            let (then, lines) = parts(seen);
            if then >= second || lines <= LINES_PER_SECOND {
                return None;
            }
            let taken = account.seen.compare_exchange(seen, word((then, 0)), Ordering::Relaxed, Ordering::Relaxed);
            taken.ok().and_then(|_| account.left_out(lines))
        })
    }

    /// The account of `kind`, opened when it is new; the last one is everybody's.
    fn account(&self, kind: Kind) -> Option<&Account> {
        let own = self.accounts.iter().take(KINDS_MAX).find(|account| *account.kind.get_or_init(|| kind) == kind);
        own.or_else(|| {
            let shared = self.accounts.last()?;
            shared.kind.get_or_init(|| Kind { reason: "other", ..kind });
            Some(shared)
        })
    }
}

impl Default for Repeats {
    fn default() -> Self {
        Self::new()
    }
}

impl Account {
    fn left_out(&self, lines: u32) -> Option<LeftOut> {
        let lines = lines.saturating_sub(LINES_PER_SECOND);
        self.kind.get().filter(|_| lines > 0).map(|kind| LeftOut { kind: *kind, lines })
    }
}

fn parts(seen: u64) -> (u32, u32) {
    ((seen >> 32) as u32, seen as u32)
}

fn word((second, lines): (u32, u32)) -> u64 {
    u64::from(second) << 32 | u64::from(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOWN: Kind = Kind { is_failure: true, status: 502, reason: "upstream_connect_error" };
    const STRANGER: Kind = Kind { is_failure: false, status: 401, reason: "authentication_error" };

    #[test]
    fn ten_lines_a_second_are_written_and_the_rest_is_summed_up_once() {
        let repeats = Repeats::new();
        let written = (0..542).filter(|_| repeats.note(DOWN, 7).0).count();
        assert_eq!(written, 10);
        assert_eq!(repeats.note(STRANGER, 7), (true, None), "another kind is not held up");
        assert_eq!(repeats.sum_up(7).count(), 0, "the second is not over");
        let summed: Vec<_> = repeats.sum_up(8).collect();
        assert_eq!(summed, [LeftOut { kind: DOWN, lines: 532 }]);
        assert_eq!(repeats.sum_up(9).count(), 0, "once");
        assert_eq!(repeats.note(DOWN, 9), (true, None));
    }

    #[test]
    fn the_next_line_of_a_kind_sums_up_the_second_before() {
        let repeats = Repeats::new();
        let written = (0..13).filter(|_| repeats.note(DOWN, 1).0).count();
        assert_eq!(written, 10);
        assert_eq!(repeats.note(DOWN, 2), (true, Some(LeftOut { kind: DOWN, lines: 3 })));
        assert_eq!(repeats.sum_up(3).count(), 0);
    }

    #[test]
    fn no_line_is_lost_among_threads() {
        let repeats = Repeats::new();
        let summed = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let said = (0..10_000_u32).map(|n| repeats.note(DOWN, n / 100));
                        said.map(|(told, left)| u32::from(told) + left.map_or(0, |left| left.lines)).sum::<u32>()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u32>()
        });
        let last: u32 = repeats.sum_up(u32::MAX).map(|left| left.lines).sum();
        assert_eq!(summed + last, 40_000);
    }

    #[test]
    fn more_kinds_than_there_is_room_for_share_an_account() {
        let repeats = Repeats::new();
        for status in 0..2_000 {
            repeats.note(Kind { status, ..DOWN }, 1);
        }
        let left: Vec<_> = repeats.sum_up(2).collect();
        assert_eq!(left.len(), 1);
        assert_eq!((left[0].kind.reason, left[0].lines), ("other", 2_000 - KINDS_MAX as u32 - LINES_PER_SECOND));
    }
}
