//! How many connections each tenant has on loan, so that one tenant cannot take the provider from all others.
//!
//! Each core writes its own counts and nobody else's: on the way of a request that is a load and a store, no lock and no
//! atomic addition. Other cores add them up when places are scarce. Tenants are told apart by a few bits of a keyed hash; two
//! that share them share a share.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bits of the hash.
const BITS: u32 = 10;
/// No tenant yet.
const NOBODY: u32 = u32::MAX;
/// For so long another tenant's request is remembered.
const REMEMBERED_MS: u64 = 60_000;
/// With fewer places than this nothing is set aside.
const RESERVE_FROM: u32 = 4;

/// A tenant, as far as places are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder(u32);

/// What all tenants have on loan.
pub(super) struct Shares {
    cores: Box<[Loans]>,
    factor: u64,
    total: u32,
}

/// What tenants have on loan from one core.
#[repr(align(128))] // A cache line pair of its own.
struct Loans {
    all: AtomicU32,
    /// The tenant that took the last one.
    last: AtomicU32,
    /// When it was not the same tenant as the time before.
    mixed_ms: AtomicU64,
    by_holder: Box<[AtomicU32]>,
}

impl Shares {
    pub(super) fn new(total: u32, cores: usize) -> Self {
        let loans = || Loans {
            all: AtomicU32::new(0),
            last: AtomicU32::new(NOBODY),
            mixed_ms: AtomicU64::new(0),
            by_holder: (0..1 << BITS).map(|_| AtomicU32::new(0)).collect(),
        };
        Self { cores: (0..cores).map(|_| loans()).collect(), factor: RandomState::new().hash_one(total) | 1, total }
    }

    /// The holder that stands for `tenant`.
    pub(super) fn holder(&self, tenant: u128) -> Holder {
        let folded = (tenant >> 64) as u64 ^ tenant as u64;
        Holder((folded.wrapping_mul(self.factor) >> (64 - BITS)) as u32)
    }

    /// `core` lends a connection to `holder`. Called by that core alone, as is [`Shares::returned`].
    pub(super) fn lent(&self, core: usize, holder: Holder, now_ms: u64) {
        let Some(loans) = self.cores.get(core) else { return };
        step(&loans.all, 1);
        loans.of(holder, |count| step(count, 1));
        let last = loans.last.load(Ordering::Relaxed);
        if last != holder.0 {
            loans.last.store(holder.0, Ordering::Relaxed);
            if last != NOBODY {
                loans.mixed_ms.store(now_ms, Ordering::Relaxed);
            }
        }
    }

    /// `core` has it back.
    pub(super) fn returned(&self, core: usize, holder: Holder) {
        let Some(loans) = self.cores.get(core) else { return };
        step(&loans.all, -1);
        loans.of(holder, |count| step(count, -1));
    }

    /// Connections on loan, on all cores.
    pub(super) fn on_loan(&self) -> u32 {
        self.cores.iter().map(|loans| loans.all.load(Ordering::Relaxed)).sum()
    }

    /// Whether half of the places or more are on loan.
    pub(super) fn half_is_on_loan(&self) -> bool {
        self.on_loan() >= self.half()
    }

    /// Whether `holder` has half of the places or more.
    pub(super) fn has_half(&self, holder: Holder) -> bool {
        self.cores.iter().map(|loans| loans.of(holder, |count| count.load(Ordering::Relaxed))).sum::<u32>()
            >= self.half()
    }

    /// The same, judged by what it has from `core`, where that is far from its part of the half.
    pub(super) fn may_have_half(&self, core: usize, holder: Holder) -> bool {
        let here = self.cores.get(core).map_or(0, |loans| loans.of(holder, |count| count.load(Ordering::Relaxed)));
        here as usize * self.cores.len() >= self.half() as usize && self.has_half(holder)
    }

    /// Whether a holder that has half may have one more while nobody waits: where other tenants have been seen lately, the last
    /// eighth is left for them.
    pub(super) fn may_have_more(&self, holder: Holder, now_ms: u64) -> bool {
        !self.others_seen(holder, now_ms) || self.on_loan() + self.reserve() < self.total
    }

    fn others_seen(&self, holder: Holder, now_ms: u64) -> bool {
        self.cores.iter().any(|loans| {
            let (last, mixed_ms) = (loans.last.load(Ordering::Relaxed), loans.mixed_ms.load(Ordering::Relaxed));
            (last != NOBODY && last != holder.0) || (mixed_ms > 0 && now_ms.saturating_sub(mixed_ms) < REMEMBERED_MS)
        })
    }

    fn half(&self) -> u32 {
        self.total.div_ceil(2)
    }

    fn reserve(&self) -> u32 {
        if self.total < RESERVE_FROM { 0 } else { self.total.div_ceil(8) }
    }
}

impl Loans {
    fn of<T: Default>(&self, holder: Holder, then: impl FnOnce(&AtomicU32) -> T) -> T {
        self.by_holder.get(holder.0 as usize).map(then).unwrap_or_default()
    }
}

/// Adds to a count that has one writer.
fn step(count: &AtomicU32, by: i32) {
    count.store(count.load(Ordering::Relaxed).saturating_add_signed(by), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u128 = 7;

    /// A tenant that is told apart from `A`.
    fn other(shares: &Shares) -> Holder {
        (8..).map(|tenant| shares.holder(tenant)).find(|holder| *holder != shares.holder(A)).unwrap()
    }

    #[test]
    fn half_of_the_places_is_counted_over_all_cores() {
        let shares = Shares::new(4, 2);
        let (a, b) = (shares.holder(A), other(&shares));
        shares.lent(0, a, 1);
        assert!(!shares.has_half(a) && !shares.half_is_on_loan());
        shares.lent(1, a, 1);
        assert!(shares.has_half(a) && !shares.has_half(b) && shares.half_is_on_loan());
        shares.returned(0, a);
        assert!(!shares.has_half(a));
        assert_eq!(shares.on_loan(), 1);
    }

    #[test]
    fn an_eighth_is_left_only_where_there_is_another_tenant() {
        let shares = Shares::new(16, 1);
        let (a, b) = (shares.holder(A), other(&shares));
        for _ in 0..14 {
            shares.lent(0, a, 1_000);
        }
        assert!(shares.may_have_more(a, 1_000), "it is alone");
        shares.lent(0, b, 2_000);
        shares.returned(0, b);
        assert!(!shares.may_have_more(a, 2_000));
        shares.returned(0, a);
        assert!(shares.may_have_more(a, 2_000), "three are free");
        shares.lent(0, a, 3_000);
        assert!(!shares.may_have_more(a, 3_000 + REMEMBERED_MS - 1));
        assert!(shares.may_have_more(a, 3_000 + REMEMBERED_MS), "the other has not been seen for long");
    }

    #[test]
    fn a_single_place_is_nobodys_reserve() {
        let shares = Shares::new(1, 1);
        let a = shares.holder(A);
        shares.lent(0, other(&shares), 1);
        shares.returned(0, other(&shares));
        assert!(!shares.has_half(a) && shares.may_have_more(a, 2));
    }
}
