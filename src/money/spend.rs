//! What each agent of each tenant has spent in its hour, day, week and month, exact across cores and without a lock.
//!
//! A request reserves an estimate before it is forwarded and settles with its real cost after. Each window's period is a
//! cell of its own behind an atomic pointer: who first sees that a period is over puts a fresh cell in its place, and a
//! request settles in the cells it reserved in, so a call counts in the period in which it was admitted and nothing is
//! counted twice or lost at an edge. Invariants:
//!
//! * `committed` = spent + reserved never exceeds the hard limit by more than what settled calls cost beyond their
//!   estimates;
//! * a reservation is always settled: explicitly with the real cost, else, when it is dropped, with the estimate;
//! * the table is bounded: [`ACCOUNTS_MAX`] accounts, [`AGENTS_PER_TENANT_MAX`] agents per tenant; who comes later shares
//!   an account, which errs on the side of limiting.
//!
//! Knows no prices, no settings file and no database: what is dirty is handed out as rows, and rows are taken back.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use once_cell::race::OnceBox;
use smallvec::SmallVec;
use weir_config::settings::{Budget, Budgets, Window};
use weir_config::vocab::TenantId;
use weir_storage::SpendRow;

use super::calendar::Period;

/// The agent of a request that names none.
pub const DEFAULT_AGENT: &str = "_default";
/// The agent whose account later agents of a tenant share.
pub const OTHER_AGENT: &str = "_other";
/// Accounts kept apart; a quarter of a mebibyte of pointers.
pub(super) const ACCOUNTS_MAX: usize = 1 << 15;
/// Agents of one tenant kept apart.
pub(super) const AGENTS_PER_TENANT_MAX: u32 = 1_000;
/// How far an account may stand from its hash.
const PROBES: usize = 32;
/// Accounts shared when the table has no room left.
const SHARED: usize = 64;
/// What a sum of spend stands still at, nanodollars: far beyond any real one, and far enough from where it would wrap for
/// as many calls at once as there are threads.
const SPENT_MAX: u64 = 1 << 62;
/// What one call counts at most, nanodollars (72 million dollars).
const CALL_MAX: u64 = 1 << 56;
/// Counters of agents per tenant; tenants that share one only reach the bound earlier.
const COUNTERS: usize = 4_096;

/// One window's spend in one period.
struct Cell {
    period: Period,
    /// The second since which it counts. What a tenant's account holds from before its deletion is not kept.
    since_s: i64,
    /// Spent and reserved, nanodollars.
    committed: AtomicU64,
    /// Nanodollars of settled calls.
    spent: AtomicU64,
    /// Whether reaching the soft limit has been reported.
    warned: AtomicBool,
}

struct Account {
    tenant: TenantId,
    agent: Box<str>,
    windows: [ArcSwap<Cell>; 4],
    dirty: AtomicBool,
}

/// All accounts, shared by all cores.
pub struct Spend {
    slots: Box<[OnceBox<Account>]>,
    shared: Box<[OnceBox<Account>]>,
    agents: Box<[AtomicU32]>,
    hasher: RandomState,
    dirty: AtomicBool,
}

/// A hard limit that a request would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
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
    /// Which window.
    pub window: Window,
    /// Its soft limit, nanodollars.
    pub limit_nano_usd: u64,
    /// Spent, the settled call included.
    pub spent_nano_usd: u64,
}

/// One window of an account at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSpend {
    /// The running period.
    pub period: Period,
    /// Nanodollars of settled calls.
    pub spent_nano_usd: u64,
    /// Nanodollars reserved by calls under way.
    pub reserved_nano_usd: u64,
}

/// What a request has reserved. Dropping it settles with the estimate: a call whose end nobody saw may have cost it.
pub struct Reservation {
    spend: Arc<Spend>,
    at: usize,
    cells: [Arc<Cell>; 4],
    soft: [Option<u64>; 4],
    estimate: u64,
    settled: bool,
}

// === impl Cell ===

impl Cell {
    fn new(period: Period, since_s: i64, spent: u64) -> Arc<Self> {
        let (committed, spent) = (AtomicU64::new(spent), AtomicU64::new(spent));
        Arc::new(Self { period, since_s, committed, spent, warned: AtomicBool::new(false) })
    }

    /// Adds `amount` unless that exceeds `limit`.
    fn commit(&self, amount: u64, limit: u64) -> bool {
        let fits = |committed: u64| committed.checked_add(amount).filter(|sum| *sum <= limit);
        self.committed.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok()
    }

    /// Adds `amount` where nothing limits it. Wrapping, so that absurd estimates refuse nobody: what is taken off again is
    /// the same number.
    fn note(&self, amount: u64) {
        self.committed.fetch_add(amount, Ordering::AcqRel);
    }

    fn release(&self, amount: u64) {
        self.committed.fetch_sub(amount, Ordering::AcqRel);
    }

    /// Turns a reservation into spend; gives the spend after it. Stands still at [`SPENT_MAX`]: a provider that reports
    /// absurd numbers of tokens must not carry a sum past its end and so free the budget.
    fn settle(&self, reserved: u64, actual: u64) -> u64 {
        let actual = actual.min(CALL_MAX).min(SPENT_MAX.saturating_sub(self.spent.load(Ordering::Acquire)));
        // One step, wrapping where the call was cheaper than its estimate: the sum is exact at every moment.
        self.committed.fetch_add(actual.wrapping_sub(reserved), Ordering::AcqRel);
        self.spent.fetch_add(actual, Ordering::AcqRel).saturating_add(actual)
    }

    fn read(&self) -> WindowSpend {
        let spent_nano_usd = self.spent.load(Ordering::Acquire);
        let reserved_nano_usd = self.committed.load(Ordering::Acquire).saturating_sub(spent_nano_usd);
        WindowSpend { period: self.period, spent_nano_usd, reserved_nano_usd }
    }
}

// === impl Account ===

impl Account {
    fn new(tenant: TenantId, agent: &str, now_s: i64) -> Self {
        let cell = |window| ArcSwap::new(Cell::new(Period::of(window, now_s), now_s, 0));
        Self { tenant, agent: agent.into(), windows: Window::ALL.map(cell), dirty: AtomicBool::new(false) }
    }

    fn is(&self, tenant: TenantId, agent: &str) -> bool {
        self.tenant == tenant && *self.agent == *agent
    }

    /// The running cells. A clock that goes back stays in the period it has seen.
    fn cells(&self, now_s: i64) -> [Arc<Cell>; 4] {
        let running = |at: usize, window: Window| {
            let slot = &self.windows[at];
            let seen = slot.load();
            if now_s < seen.period.end_s {
                return Arc::clone(&seen);
            }
            slot.rcu(|seen| {
                if now_s < seen.period.end_s {
                    Arc::clone(seen)
                } else {
                    Cell::new(Period::of(window, now_s), now_s, 0)
                }
            });
            slot.load_full()
        };
        let [hourly, daily, weekly, monthly] = Window::ALL;
        [running(0, hourly), running(1, daily), running(2, weekly), running(3, monthly)]
    }
}

// === impl Spend ===

impl Default for Spend {
    fn default() -> Self {
        Self::new()
    }
}

impl Spend {
    /// No account at all.
    pub fn new() -> Self {
        Self {
            slots: (0..ACCOUNTS_MAX).map(|_| OnceBox::new()).collect(),
            shared: (0..SHARED).map(|_| OnceBox::new()).collect(),
            agents: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            hasher: RandomState::new(),
            dirty: AtomicBool::new(false),
        }
    }

    /// Reserves `estimate` nanodollars in all windows, or says which hard limit does not allow it.
    ///
    /// # Errors
    /// The first window, shortest first, whose limit would be exceeded; then nothing is reserved.
    pub fn reserve(
        self: &Arc<Self>,
        tenant: TenantId,
        agent: &str,
        budgets: &Budgets,
        estimate: u64,
        now_s: i64,
    ) -> Result<Reservation, Exceeded> {
        let (at, account) = self.account(tenant, agent, now_s);
        let cells = account.cells(now_s);
        for (index, (cell, window)) in cells.iter().zip(Window::ALL).enumerate() {
            let limit = budgets[index].map_or(u64::MAX, |budget| budget.hard_nano_usd);
            if limit == u64::MAX {
                cell.note(estimate);
            } else if !cell.commit(estimate, limit) {
                cells.iter().take(index).for_each(|cell| cell.release(estimate));
                let WindowSpend { period, spent_nano_usd, reserved_nano_usd } = cell.read();
                let resets_at_s = period.end_s;
                return Err(Exceeded { window, limit_nano_usd: limit, spent_nano_usd, reserved_nano_usd, resets_at_s });
            }
        }
        let soft = budgets.map(|budget: Option<Budget>| budget.and_then(|budget| budget.soft_nano_usd));
        Ok(Reservation { spend: Arc::clone(self), at, cells, soft, estimate, settled: false })
    }

    /// The running windows of an agent, in the order of [`Window::ALL`].
    pub fn snapshot(&self, tenant: TenantId, agent: &str, now_s: i64) -> [WindowSpend; 4] {
        let account = self.find(tenant, agent);
        let mut at = 0;
        Window::ALL.map(|window| {
            let cell = account.map(|account| account.windows[at].load().read());
            at += 1;
            let fresh = WindowSpend { period: Period::of(window, now_s), spent_nano_usd: 0, reserved_nano_usd: 0 };
            cell.filter(|cell| now_s < cell.period.end_s).unwrap_or(fresh)
        })
    }

    /// Forgets what a tenant has spent, for its deletion.
    pub fn erase(&self, tenant: TenantId, now_s: i64) {
        self.begin_anew(tenant, i64::MAX, now_s, now_s + 1);
    }

    /// The same for a deletion by another process in the second `deleted_s`; what was counted since then stays.
    pub fn erase_until(&self, tenant: TenantId, deleted_s: i64, now_s: i64) {
        self.begin_anew(tenant, deleted_s, now_s, now_s.max(deleted_s) + 1);
    }

    /// Those of a tenant's cells that count since `until_s` or earlier give way to ones that count since `since_s`.
    fn begin_anew(&self, tenant: TenantId, until_s: i64, now_s: i64, since_s: i64) {
        for account in self.accounts().filter(|account| account.tenant == tenant) {
            for (slot, window) in account.windows.iter().zip(Window::ALL) {
                if slot.load().since_s <= until_s {
                    slot.store(Cell::new(Period::of(window, now_s), since_s, 0));
                }
            }
        }
    }

    /// The accounts that changed since the last call, window by window.
    pub fn take_dirty(&self) -> Vec<SpendRow> {
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let changed = self.accounts().filter(|account| account.dirty.swap(false, Ordering::AcqRel));
        let rows = changed.flat_map(|account| {
            account.windows.iter().zip(Window::ALL).map(|(slot, window)| {
                let cell = slot.load();
                SpendRow {
                    tenant: account.tenant,
                    agent: account.agent.to_string(),
                    window,
                    period_start_s: cell.period.start_s,
                    since_s: cell.since_s,
                    spent_nano_usd: cell.spent.load(Ordering::Acquire),
                }
            })
        });
        // Of a deleted tenant a call that was under way leaves nothing.
        rows.filter(|row| row.spent_nano_usd > 0).collect()
    }

    /// Marks rows that could not be kept, so that they are handed out again.
    pub fn not_kept(&self, rows: &[SpendRow]) {
        for row in rows {
            if let Some(account) = self.find(row.tenant, &row.agent) {
                account.dirty.store(true, Ordering::Release);
            }
        }
        self.dirty.store(!rows.is_empty(), Ordering::Release);
    }

    /// Takes back what was kept; rows of periods that are over mean nothing any more. Called before the first request.
    pub fn restore(&self, rows: Vec<SpendRow>, now_s: i64) {
        for row in rows {
            let period = Period::of(row.window, now_s);
            if period.start_s != row.period_start_s {
                continue;
            }
            let (_, account) = self.account(row.tenant, &row.agent, now_s);
            if let Some(at) = Window::ALL.iter().position(|window| *window == row.window) {
                account.windows[at].store(Cell::new(period, row.since_s, row.spent_nano_usd));
            }
        }
    }

    /// An agent's account and its position, opened if need be.
    fn account(&self, tenant: TenantId, agent: &str, now_s: i64) -> (usize, &Account) {
        if let Some(known) = self.position(tenant, agent) {
            return known;
        }
        let counter = &self.agents[self.hasher.hash_one(tenant) as usize % COUNTERS];
        if counter.fetch_add(1, Ordering::Relaxed) >= AGENTS_PER_TENANT_MAX && agent != OTHER_AGENT {
            counter.fetch_sub(1, Ordering::Relaxed);
            return self.account(tenant, OTHER_AGENT, now_s);
        }
        let start = self.start(tenant, agent);
        for at in (start..start + PROBES).map(|at| at % ACCOUNTS_MAX) {
            let fresh = || Box::new(Account::new(tenant, agent, now_s));
            // Slots are never emptied, so everybody who looks for this agent meets the same first free one.
            let account = self.slots[at].get_or_init(fresh);
            if account.is(tenant, agent) {
                return (at, account);
            }
        }
        counter.fetch_sub(1, Ordering::Relaxed);
        let at = self.hasher.hash_one(tenant) as usize % SHARED;
        (ACCOUNTS_MAX + at, self.shared[at].get_or_init(|| Box::new(Account::new(tenant, OTHER_AGENT, now_s))))
    }

    fn find(&self, tenant: TenantId, agent: &str) -> Option<&Account> {
        self.position(tenant, agent).or_else(|| self.position(tenant, OTHER_AGENT)).map(|(_, account)| account)
    }

    fn position(&self, tenant: TenantId, agent: &str) -> Option<(usize, &Account)> {
        let start = self.start(tenant, agent);
        let mut probes = (start..start + PROBES).map(|at| at % ACCOUNTS_MAX);
        // The first free slot ends the search: an account stands before it or nowhere.
        probes.find_map(|at| match self.slots[at].get() {
            None => Some(None),
            Some(account) => account.is(tenant, agent).then_some(Some((at, account))),
        })?
    }

    fn start(&self, tenant: TenantId, agent: &str) -> usize {
        self.hasher.hash_one((tenant, agent)) as usize % ACCOUNTS_MAX
    }

    fn at(&self, at: usize) -> Option<&Account> {
        self.slots.get(at).or_else(|| self.shared.get(at.checked_sub(ACCOUNTS_MAX)?))?.get()
    }

    fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.slots.iter().chain(&self.shared).filter_map(OnceBox::get)
    }
}

// === impl Reservation ===

impl Reservation {
    /// Replaces the estimate by what the call really cost; says which soft limits that reached.
    pub fn settle(mut self, actual_nano_usd: u64) -> SmallVec<[Warning; 2]> {
        self.end(actual_nano_usd)
    }

    fn end(&mut self, actual: u64) -> SmallVec<[Warning; 2]> {
        let mut warnings = SmallVec::new();
        if std::mem::replace(&mut self.settled, true) {
            return warnings;
        }
        for ((cell, soft), window) in self.cells.iter().zip(self.soft).zip(Window::ALL) {
            let spent = cell.settle(self.estimate, actual);
            if let Some(limit) = soft
                && spent >= limit
                && actual > 0
                && !cell.warned.load(Ordering::Relaxed)
                && !cell.warned.swap(true, Ordering::AcqRel)
            {
                warnings.push(Warning { window, limit_nano_usd: limit, spent_nano_usd: spent });
            }
        }
        if actual > 0 {
            if let Some(account) = self.spend.at(self.at) {
                account.dirty.store(true, Ordering::Release);
            }
            self.spend.dirty.store(true, Ordering::Release);
        }
        warnings
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.end(self.estimate);
    }
}

#[cfg(test)]
mod tests;
