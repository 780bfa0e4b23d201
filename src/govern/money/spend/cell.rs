//! One window's spend in one period: a pair of sums that cores add to without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::WindowSpend;
use crate::money::calendar::Period;

/// What a sum of spend stands still at, nanodollars: far beyond any real one, and far enough from where it would wrap for
/// as many calls at once as there are threads.
pub(super) const SPENT_MAX: u64 = 1 << 62;
/// What one call counts at most, nanodollars (72 million dollars).
const CALL_MAX: u64 = 1 << 56;

/// What a gateway may take of what is left of a budget.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    /// One of so many shares; all of it where that is one.
    pub(super) of: u64,
    /// One call alone may take more than that.
    pub(super) alone: bool,
}

/// One window's spend in one period.
pub(super) struct Cell {
    pub(super) period: Period,
    /// The second since which it counts. What a tenant's account holds from before its deletion is not kept.
    pub(super) since_s: i64,
    /// Spent and reserved, nanodollars.
    committed: AtomicU64,
    /// Nanodollars of settled calls.
    pub(super) spent: AtomicU64,
    /// What all gateways are known to have spent, which all of them know: ours as far as it is written down, and theirs as far as it is
    /// counted in.
    published: AtomicU64,
    /// What is written down since the others were last heard, and so is not [`published`](Self::published) yet.
    told: AtomicU64,
    /// Whether reaching the soft limit has been reported.
    pub(super) warned: AtomicBool,
}

// === impl Cell ===

impl Cell {
    pub(super) fn new(period: Period, since_s: i64, spent: u64) -> Arc<Self> {
        let [committed, spent, published] = [(); 3].map(|()| AtomicU64::new(spent));
        let (told, warned) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { period, since_s, committed, spent, published, told, warned })
    }

    /// A sum that is now written down. Callers take turns, and with [`count_in`](Self::count_in).
    pub(super) fn tell(&self, spent: u64) {
        let known = self.published.load(Ordering::Acquire).saturating_add(self.told.load(Ordering::Acquire));
        self.told.fetch_add(spent.saturating_sub(known), Ordering::AcqRel);
    }

    /// The others were heard since what is written down was: it is known to all.
    pub(super) fn publish(&self) {
        self.published.fetch_add(self.told.swap(0, Ordering::AcqRel), Ordering::AcqRel);
    }

    /// Counts in what another gateway has written down.
    pub(super) fn count_in(&self, more: u64) {
        self.settle(0, more);
        self.published.fetch_add(more, Ordering::AcqRel);
    }

    /// Adds `amount` unless that exceeds `limit`. Where there are several shares, what others do not know of yet may take one of so many
    /// of what is left; one call alone may take all of it, where [`Shares::alone`] allows that.
    pub(super) fn commit(&self, amount: u64, limit: u64, shares: Shares) -> bool {
        let published = if shares.of > 1 { self.published.load(Ordering::Acquire) } else { 0 };
        let fits_share = |committed: u64, sum: u64| {
            shares.of <= 1
                || (shares.alone && committed <= published)
                || sum.saturating_sub(published) <= limit.saturating_sub(published) / shares.of
        };
        let fits = |committed: u64| {
            let sum = committed.checked_add(amount).filter(|sum| *sum <= limit)?;
            fits_share(committed, sum).then_some(sum)
        };
        self.committed.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    /// Adds `amount` where nothing limits it. Wrapping, so that absurd estimates refuse nobody: what is taken off again is
    /// the same number.
    pub(super) fn note(&self, amount: u64) {
        self.committed.fetch_add(amount, Ordering::AcqRel);
    }

    pub(super) fn release(&self, amount: u64) {
        self.committed.fetch_sub(amount, Ordering::AcqRel);
    }

    /// Turns a reservation into spend; gives the spend after it. Stands still at [`SPENT_MAX`]: a provider that reports
    /// absurd numbers of tokens must not carry a sum past its end and so free the budget.
    pub(super) fn settle(&self, reserved: u64, actual: u64) -> u64 {
        let actual = actual.min(CALL_MAX).min(SPENT_MAX.saturating_sub(self.spent.load(Ordering::Acquire)));
        // One step, wrapping where the call was cheaper than its estimate: the sum is exact at every moment.
        self.committed.fetch_add(actual.wrapping_sub(reserved), Ordering::AcqRel);
        self.spent.fetch_add(actual, Ordering::AcqRel).saturating_add(actual)
    }

    /// Undoes [`settle`](Self::settle) of what was not reserved.
    pub(super) fn take_back(&self, actual: u64) {
        let actual = actual.min(CALL_MAX);
        self.committed.fetch_sub(actual, Ordering::AcqRel);
        self.spent.fetch_sub(actual, Ordering::AcqRel);
    }

    pub(super) fn read(&self) -> WindowSpend {
        let spent_nano_usd = self.spent.load(Ordering::Acquire);
        let reserved_nano_usd = self.committed.load(Ordering::Acquire).saturating_sub(spent_nano_usd);
        WindowSpend { period: self.period, spent_nano_usd, reserved_nano_usd }
    }
}
