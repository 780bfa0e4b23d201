//! What a request holds of one to three accounts until it is known what it cost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use weir_config::settings::{Budgets, Window};
use weir_config::vocab::{KeyId, TenantId};

use super::cell::{Cell, Shares};
use super::{Spend, WindowSpend, key_account};

/// Whose budget it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// One agent's of a tenant.
    Agent,
    /// The tenant's, over all its agents.
    Tenant,
    /// That of a key of the tenant.
    Key,
}

/// A hard limit that a request would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// Whose.
    pub holder: Holder,
    /// Which window.
    pub window: Window,
    /// Its hard limit, nanodollars.
    pub limit_nano_usd: u64,
    /// Spent so far.
    pub spent_nano_usd: u64,
    /// Reserved by requests that are under way.
    pub reserved_nano_usd: u64,
    /// When the next period begins, seconds since 1970.
    pub resets_at_s: i64,
}

/// A soft limit that has just been reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Warning {
    /// Whose.
    pub holder: Holder,
    /// Which window.
    pub window: Window,
    /// Its soft limit, nanodollars.
    pub limit_nano_usd: u64,
    /// Spent, the settled call included.
    pub spent_nano_usd: u64,
}

/// The running cells of one account, with the estimate in each of them.
pub(super) struct Hold {
    holder: Holder,
    at: usize,
    pub(super) cells: [Arc<Cell>; 4],
    soft: [Option<u64>; 4],
}

/// What a request has reserved. Dropping it settles with the estimate: a call whose end nobody saw may have cost it.
pub struct Reservation {
    pub(super) spend: Arc<Spend>,
    /// In the agent's account, then the tenant's and the key's where these have budgets.
    pub(super) holds: SmallVec<[Hold; 2]>,
    pub(super) estimate: u64,
    /// What has been counted of its cost before it settles.
    pub(super) counted: u64,
    pub(super) settled: bool,
}

// === impl Holder ===

impl Holder {
    /// The name in answers and findings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Tenant => "tenant",
            Self::Key => "key",
        }
    }
}

// === impl Hold ===

impl Hold {
    /// Adds `estimate` to all cells, or to none and says which limit does not allow it.
    pub(super) fn of(
        holder: Holder,
        at: usize,
        cells: [Arc<Cell>; 4],
        budgets: &Budgets,
        (estimate, shares): (u64, Shares),
    ) -> Result<Self, Exceeded> {
        for (index, ((cell, budget), window)) in cells.iter().zip(budgets).zip(Window::ALL).enumerate() {
            let limit = budget.map_or(u64::MAX, |budget| budget.hard_nano_usd);
            if limit == u64::MAX {
                cell.note(estimate);
            } else if !cell.commit(estimate, limit, shares) {
                cells.iter().take(index).for_each(|cell| cell.release(estimate));
                let WindowSpend { period, spent_nano_usd, reserved_nano_usd } = cell.read();
                return Err(Exceeded {
                    holder,
                    window,
                    limit_nano_usd: limit,
                    spent_nano_usd,
                    reserved_nano_usd,
                    resets_at_s: period.end_s,
                });
            }
        }
        let soft = budgets.map(|budget| budget.and_then(|budget| budget.soft_nano_usd));
        Ok(Self { holder, at, cells, soft })
    }

    /// Takes the estimate off again, as if it had never been there.
    pub(super) fn undo(&self, estimate: u64) {
        self.cells.iter().for_each(|cell| cell.release(estimate));
    }

    /// Turns what was reserved into what was spent, of which `counted` is there already.
    fn settle(
        &self,
        spend: &Spend,
        (estimate, counted): (u64, u64),
        actual: u64,
        warnings: &mut SmallVec<[Warning; 2]>,
    ) {
        for ((cell, soft), window) in self.cells.iter().zip(self.soft).zip(Window::ALL) {
            let spent = cell.settle(estimate, actual.saturating_sub(counted));
            if let Some(limit) = soft
                && spent >= limit
                && actual > 0
                && !cell.warned.load(Ordering::Relaxed)
                && !cell.warned.swap(true, Ordering::AcqRel)
            {
                warnings.push(Warning { holder: self.holder, window, limit_nano_usd: limit, spent_nano_usd: spent });
            }
        }
        if actual > 0 {
            spend.changed(self.at);
        }
    }
}

// === impl Reservation ===

impl Reservation {
    /// What was reserved, in nanodollars.
    pub const fn estimate_nano_usd(&self) -> u64 {
        self.estimate
    }

    /// Reserves the same in the account of `tenant`'s key, or gives back what is reserved and says which hard limit does not allow it.
    ///
    /// # Errors
    /// The first window whose limit would be exceeded, shortest first; then nothing is reserved.
    pub fn and_of_key(
        mut self,
        (tenant, key): (TenantId, KeyId),
        budgets: &Budgets,
        now_s: i64,
    ) -> Result<Self, Exceeded> {
        let (at, account) = self.spend.account(tenant, &key_account(key), now_s);
        let amount = (self.estimate, self.spend.shares());
        match Hold::of(Holder::Key, at, account.cells(now_s), budgets, amount) {
            Ok(hold) => {
                self.holds.push(hold);
                Ok(self)
            }
            Err(exceeded) => {
                self.holds.iter().for_each(|hold| hold.undo(self.estimate));
                self.settled = true;
                Err(exceeded)
            }
        }
    }

    /// Replaces the estimate by what the call really cost; says which soft limits that reached.
    pub fn settle(mut self, actual_nano_usd: u64) -> SmallVec<[Warning; 2]> {
        self.end(actual_nano_usd)
    }

    /// Counts so much of what the call costs before it settles.
    pub(super) fn count(&mut self, nano_usd: u64) {
        for hold in &self.holds {
            for cell in &hold.cells {
                cell.settle(0, nano_usd);
            }
            self.spend.changed(hold.at);
        }
        self.counted = self.counted.saturating_add(nano_usd);
    }

    /// Takes that back.
    pub(super) fn count_no_more(&mut self, nano_usd: u64) {
        self.holds.iter().flat_map(|hold| &hold.cells).for_each(|cell| cell.take_back(nano_usd));
        self.counted = self.counted.saturating_sub(nano_usd);
    }

    fn end(&mut self, actual: u64) -> SmallVec<[Warning; 2]> {
        let mut warnings = SmallVec::new();
        if std::mem::replace(&mut self.settled, true) {
            return warnings;
        }
        for hold in &self.holds {
            hold.settle(&self.spend, (self.estimate, self.counted), actual, &mut warnings);
        }
        warnings
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.end(self.estimate);
    }
}
