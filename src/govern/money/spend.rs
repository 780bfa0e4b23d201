//! What each agent of each tenant, each tenant over all its agents, and each key with a budget has spent in its hour, day, week
//! and month, exact across cores and without a lock.
//!
//! A request reserves an estimate before it is forwarded and settles with its real cost after. Each window's period is a
//! cell of its own behind an atomic pointer: who first sees that a period is over puts a fresh cell in its place, and a
//! request settles in the cells it reserved in, so a call counts in the period in which it was admitted and nothing is
//! counted twice or lost at an edge. Invariants:
//!
//! * `committed` = spent + reserved never exceeds the hard limit by more than what settled calls cost beyond their
//!   estimates;
//! * a reservation is always settled: explicitly with the real cost, else, when it is dropped, with the estimate;
//! * the table is bounded: [`ACCOUNTS_MAX`] accounts, [`AGENTS_PER_TENANT_MAX`] agents per tenant; later ones share
//!   an account, which errs on the side of limiting.
//!
//! Knows no prices, no settings file and no database: what is dirty is handed out as rows, and rows are taken back.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arc_swap::ArcSwap;
use once_cell::race::OnceBox;
use parking_lot::Mutex;
use weir_config::settings::{Budgets, Window};
use weir_config::vocab::{KeyId, TenantId};

use self::cell::{Cell, Shares};
use self::hold::Hold;
use super::calendar::Period;

mod cell;
mod hold;

pub use hold::{Exceeded, Holder, Reservation, Warning};

/// The agent of a request that names none.
pub const DEFAULT_AGENT: &str = "_default";
/// Stands for the tenant over all its agents. No request can name it: an empty agent name is taken as none.
pub const WHOLE_TENANT: &str = "";
/// The agent whose account later agents of a tenant share.
pub const OTHER_AGENT: &str = "_other";
/// Begins the account of a key among its tenant's. No request can name it: an agent's name comes in a field, and no field holds a
/// control character.
const KEY_ACCOUNT: char = '\u{1}';
/// Accounts kept apart; a quarter of a mebibyte of pointers.
pub(super) const ACCOUNTS_MAX: usize = 1 << 15;
/// Agents of one tenant kept apart.
pub(super) const AGENTS_PER_TENANT_MAX: u32 = 1_000;
/// How far an account may stand from its hash.
const PROBES: usize = 32;
/// Accounts of agents shared when the table has no room left, and as many of tenants.
const SHARED: usize = 64;
/// Counters of agents per tenant; tenants that share one only reach the bound earlier.
const COUNTERS: usize = 4_096;

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
    keeping: Mutex<()>,
    /// Something was written down since the others were last heard.
    told: AtomicBool,
    /// Into how many shares what is left of a budget is divided; one where no other gateway spends it.
    shares: AtomicU32,
    /// Whether what the others have spent was heard lately enough for one call alone to take all that is left.
    heard: AtomicBool,
}

/// What an agent has spent in one window, as it is kept over restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSpend {
    /// Whose.
    pub tenant: TenantId,
    /// Which agent's.
    pub agent: String,
    /// Which window.
    pub window: Window,
    /// The period's first second, since 1970.
    pub period_start_s: i64,
    /// The second since which this process counts it.
    pub since_s: i64,
    /// Nanodollars spent in it.
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
            shared: (0..2 * SHARED).map(|_| OnceBox::new()).collect(),
            agents: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            hasher: RandomState::new(),
            dirty: AtomicBool::new(false),
            keeping: Mutex::new(()),
            told: AtomicBool::new(false),
            shares: AtomicU32::new(1),
            heard: AtomicBool::new(true),
        }
    }

    /// Reserves `estimate` nanodollars in all windows of the agent, and of the tenant where `over_all` bounds all its agents
    /// together, or says which hard limit does not allow it.
    ///
    /// # Errors
    /// The first window whose limit would be exceeded, the agent's before the tenant's and shortest first; then nothing is
    /// reserved.
    pub fn reserve(
        self: &Arc<Self>,
        tenant: TenantId,
        agent: &str,
        budgets: &Budgets,
        over_all: &Budgets,
        estimate: u64,
        now_s: i64,
    ) -> Result<Reservation, Exceeded> {
        let (at, account) = self.account(tenant, agent, now_s);
        let amount = (estimate, self.shares());
        let own = Hold::of(Holder::Agent, at, account.cells(now_s), budgets, amount)?;
        let shared = if over_all.iter().any(Option::is_some) {
            let (at, account) = self.account(tenant, WHOLE_TENANT, now_s);
            let hold = Hold::of(Holder::Tenant, at, account.cells(now_s), over_all, amount);
            Some(hold.inspect_err(|_| own.undo(estimate))?)
        } else {
            None
        };
        let holds = std::iter::once(own).chain(shared).collect();
        Ok(Reservation { spend: Arc::clone(self), holds, estimate, counted: 0, settled: false })
    }

    /// Divides what is left of each budget among the gateways that spend it. With `gateways` of them, each of which writes down what it
    /// has spent and counts in the others' about once a second (`knows_others`), what they do not know of each other may take half
    /// of what is left, and one call alone may take all of it. A gateway that cannot do so goes on with its part of what was left.
    /// What it wrote down makes room for more only now: between writing and hearing it would take a part of what the others have
    /// taken meanwhile.
    ///
    /// Where a gateway's rounds are at least a second apart and it says by [`went_stale`](Self::went_stale) when what it heard is a second
    /// old, each of the others has told at most once since: it lacks what that was and what is not told yet, one call each near the end
    /// of a budget. So no budget is exceeded by more than two calls of each other gateway, however late rounds come; but a gateway
    /// whose round stands still has its share of what was left when it last told, `left / 2n`, which the others cannot see.
    pub fn divide(&self, gateways: u32, knows_others: bool) {
        let shares = match gateways {
            0 | 1 => 1,
            several if knows_others => several.saturating_mul(2),
            several => several,
        };
        if (shares == 1 || knows_others) && self.told.swap(false, Ordering::AcqRel) {
            self.accounts().flat_map(|account| &account.windows).for_each(|slot| slot.load().publish());
        }
        self.shares.store(shares, Ordering::Relaxed);
        self.heard.store(knows_others, Ordering::Release);
    }

    /// More gateways spend the budgets than at the last [`divide`](Self::divide), which comes about once a second: what others do not know
    /// of is bounded by their number from now on, not from then on. Where there are fewer the next round says so, which knows what those
    /// that left have spent.
    pub fn make_room(&self, gateways: u32) {
        if gateways > 1 {
            self.shares.fetch_max(gateways.saturating_mul(2), Ordering::Relaxed);
        }
    }

    /// What was heard of the others is so old that they may have told twice since: until [`divide`](Self::divide) is called again a
    /// call needs its share.
    pub fn went_stale(&self) {
        self.heard.store(false, Ordering::Release);
    }

    fn shares(&self) -> Shares {
        Shares { of: u64::from(self.shares.load(Ordering::Relaxed)), alone: self.heard.load(Ordering::Acquire) }
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

    /// The same of a key.
    pub fn snapshot_of_key(&self, tenant: TenantId, key: KeyId, now_s: i64) -> [WindowSpend; 4] {
        self.snapshot(tenant, &key_account(key), now_s)
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

    /// Hands what changed since the last call to `write`, which says whether it was kept; what was not is handed out again.
    /// Callers wait for each other: the last one, before the process ends, must not leave while the rows that an earlier one
    /// has taken may still come back.
    pub fn keep(&self, write: impl FnOnce(&[KeptSpend]) -> bool) -> bool {
        let _alone = self.keeping.lock();
        let rows = self.take_dirty();
        let kept = rows.is_empty() || write(&rows);
        if kept {
            self.tell(&rows);
        } else {
            self.not_kept(&rows);
        }
        kept
    }

    /// Counts `nano_usd` more of a call's cost in what it has reserved and hands it out with all else that changed, to `write`, which keeps
    /// all of it (`Some`), nothing because of what others have kept (`None`), or nothing because it fails. What was not kept is not
    /// counted either.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn keep_charge<T, E>(
        &self,
        mut reservation: Option<&mut Reservation>,
        nano_usd: u64,
        write: impl FnOnce(&[KeptSpend]) -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let _alone = self.keeping.lock();
        if let Some(reservation) = &mut reservation {
            reservation.count(nano_usd);
        }
        let rows = self.take_dirty();
        let kept = write(&rows);
        if let Ok(Some(_)) = kept {
            self.tell(&rows);
        } else {
            self.not_kept(&rows);
            if let Some(reservation) = &mut reservation {
                reservation.count_no_more(nano_usd);
            }
        }
        kept
    }

    /// The accounts that changed since the last call, window by window.
    fn take_dirty(&self) -> Vec<KeptSpend> {
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let changed = self.accounts().filter(|account| account.dirty.swap(false, Ordering::AcqRel));
        let rows = changed.flat_map(|account| {
            account.windows.iter().zip(Window::ALL).map(|(slot, window)| {
                let cell = slot.load();
                KeptSpend {
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

    /// The others can hear of these rows now.
    fn tell(&self, rows: &[KeptSpend]) {
        for row in rows {
            let Some(account) = self.find(row.tenant, &row.agent) else { continue };
            let of = account.windows.iter().zip(Window::ALL).find(|(_, window)| *window == row.window);
            if let Some(cell) = of.map(|(slot, _)| slot.load()).filter(|cell| cell.period.start_s == row.period_start_s)
            {
                cell.tell(row.spent_nano_usd);
                self.told.store(true, Ordering::Release);
            }
        }
    }

    /// Marks rows that could not be kept, so that they are handed out again.
    fn not_kept(&self, rows: &[KeptSpend]) {
        for row in rows {
            if let Some(account) = self.find(row.tenant, &row.agent) {
                account.dirty.store(true, Ordering::Release);
            }
        }
        self.dirty.store(!rows.is_empty(), Ordering::Release);
    }

    /// Takes back what was kept; rows of periods that are over mean nothing any more. Called before the first request.
    pub fn restore(&self, rows: Vec<KeptSpend>, now_s: i64) {
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

    /// Counts in what another gateway has spent; of a period that is over it means nothing any more.
    pub fn count_in(&self, more: &KeptSpend, now_s: i64) {
        // What is counted in while a sum is written down would be taken for our own.
        let _alone = self.keeping.lock();
        let (_, account) = self.account(more.tenant, &more.agent, now_s);
        let cells = account.cells(now_s);
        let of = cells.iter().zip(Window::ALL).find(|(_, window)| *window == more.window).map(|(cell, _)| cell);
        if let Some(cell) = of.filter(|cell| cell.period.start_s == more.period_start_s) {
            cell.count_in(more.spent_nano_usd);
        }
    }

    /// An agent's account and its position, opened if need be.
    fn account(&self, tenant: TenantId, agent: &str, now_s: i64) -> (usize, &Account) {
        if let Some(known) = self.position(tenant, agent) {
            return known;
        }
        let counter = &self.agents[self.hasher.hash_one(tenant) as usize % COUNTERS];
        // However many agents a tenant invents, its own account and the one they share are kept apart.
        let bounded = !matches!(agent, OTHER_AGENT | WHOLE_TENANT) && !is_key(agent);
        if counter.fetch_add(1, Ordering::Relaxed) >= AGENTS_PER_TENANT_MAX && bounded {
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
        let (first, name) = if agent == WHOLE_TENANT { (SHARED, WHOLE_TENANT) } else { (0, OTHER_AGENT) };
        let at = first + self.hasher.hash_one(tenant) as usize % SHARED;
        (ACCOUNTS_MAX + at, self.shared[at].get_or_init(|| Box::new(Account::new(tenant, name, now_s))))
    }

    /// What this account holds differs from what was kept.
    fn changed(&self, at: usize) {
        if let Some(account) = self.at(at) {
            account.dirty.store(true, Ordering::Release);
        }
        self.dirty.store(true, Ordering::Release);
    }

    fn find(&self, tenant: TenantId, agent: &str) -> Option<&Account> {
        let shared = || self.position(tenant, OTHER_AGENT).filter(|_| agent != WHOLE_TENANT && !is_key(agent));
        self.position(tenant, agent).or_else(shared).map(|(_, account)| account)
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

/// The name of a key's account.
fn key_account(key: KeyId) -> String {
    format!("{KEY_ACCOUNT}{key}")
}

fn is_key(agent: &str) -> bool {
    agent.starts_with(KEY_ACCOUNT)
}

#[cfg(test)]
mod tests;
