//! One budget for all body bytes Weir holds at any time, held requests and captured answers alike.
//!
//! Capacity is taken before the bytes are kept and comes back when the permit is dropped, so memory stays bounded
//! whatever clients send. An exchange that gets none goes on without a copy: the bytes still flow.
//!
//! | who | gets more while |
//! |---|---|
//! | a proxied request | the reserve for our own API stays free |
//! | and, with several tenants | its tenant then holds no more than what is left for the others |
//! | a call of our own API | anything is free, and its tenant's calls of it hold no more than that |
//! | an admin's call of it | anything is free |
//!
//! Tenants are told apart by a few bits; two that share them share a share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_config::vocab::TenantId;

/// Bits that tell tenants apart.
const BITS: u32 = 10;
/// The part of the budget that is kept for our own API.
const RESERVE_PART: usize = 16;
/// With less than this part free, whoever holds bytes that do not become a request soon has to let them go.
const SCARCE_PART: usize = 4;

struct Shared {
    bytes: usize,
    free: AtomicUsize,
    /// What each tenant holds: for proxied requests, and for calls of our own API. Empty where there is one tenant only.
    held: [Box<[AtomicUsize]>; 2],
}

/// In whose name bytes are taken.
#[derive(Debug, Clone, Copy)]
struct Holder {
    /// The tenant's counter, if tenants have shares.
    slot: Option<usize>,
    /// Taken for our own API.
    own: bool,
}

/// The budget, shared by all cores.
#[derive(Clone)]
pub struct Budget {
    shared: Arc<Shared>,
    holder: Holder,
}

impl Budget {
    /// A budget of `bytes`, for `several` tenants or one.
    pub fn new(bytes: usize, several: bool) -> Self {
        let slots = if several { 1 << BITS } else { 0 };
        let held = || (0..slots).map(|_| AtomicUsize::new(0)).collect();
        let shared = Shared { bytes, free: AtomicUsize::new(bytes), held: [held(), held()] };
        Self { shared: Arc::new(shared), holder: Holder { slot: None, own: false } }
    }

    /// The same budget for proxied requests of `tenant`.
    pub fn of(&self, tenant: TenantId) -> Self {
        Self { shared: Arc::clone(&self.shared), holder: Holder { slot: self.slot(tenant), own: false } }
    }

    /// The same budget for a call of our own API, by an admin where there is no tenant.
    pub fn own(&self, tenant: Option<TenantId>) -> Self {
        let slot = tenant.and_then(|tenant| self.slot(tenant));
        Self { shared: Arc::clone(&self.shared), holder: Holder { slot, own: true } }
    }

    fn slot(&self, tenant: TenantId) -> Option<usize> {
        let (high, low) = tenant.uuid().as_u64_pair();
        let mixed = (high ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS);
        (!self.shared.held[0].is_empty()).then_some(mixed as usize)
    }

    /// An empty permit that can grow.
    pub fn permit(&self) -> Permit {
        Permit { shared: Arc::clone(&self.shared), holder: self.holder, held: 0, times: 1 }
    }

    /// The same for bytes whose text is read and kept beside them: each counts twice.
    pub fn permit_with_text(&self) -> Permit {
        let mut permit = self.permit();
        permit.times = 2;
        permit
    }

    /// Bytes nobody holds right now.
    pub fn free(&self) -> usize {
        self.shared.free.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn cell(&self, holder: Holder) -> Option<&AtomicUsize> {
        self.held[usize::from(holder.own)].get(holder.slot?)
    }

    fn take(&self, holder: Holder, bytes: usize) -> bool {
        let reserve = if holder.own { 0 } else { self.bytes / RESERVE_PART };
        let cell = self.cell(holder);
        let held = cell.map_or(0, |cell| cell.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes));
        let after = |free: usize| {
            let left = free.checked_sub(bytes)?;
            (left.checked_sub(reserve)? >= held).then_some(left)
        };
        let taken = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).is_ok();
        if let Some(cell) = cell.filter(|_| !taken) {
            cell.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }

    fn give(&self, holder: Holder, bytes: usize) {
        self.free.fetch_add(bytes, Ordering::Relaxed);
        if let Some(cell) = self.cell(holder) {
            cell.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// Bytes taken from the budget; dropping it returns them.
pub struct Permit {
    shared: Arc<Shared>,
    holder: Holder,
    held: usize,
    /// What a byte counts.
    times: usize,
}

impl Permit {
    /// Takes `bytes` more. False, and nothing taken, when the budget does not have them.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let bytes = bytes.saturating_mul(self.times);
        let taken = bytes == 0 || self.shared.take(self.holder, bytes);
        if taken {
            self.held += bytes;
        }
        taken
    }

    /// Gives back all that was taken.
    pub fn give_back(&mut self) {
        self.shared.give(self.holder, std::mem::take(&mut self.held));
    }

    /// Takes over what another permit of the same tenant holds.
    pub fn join(&mut self, mut other: Self) {
        self.held += std::mem::take(&mut other.held);
    }

    /// Whether little is left for others of what this one is taken from.
    pub fn is_scarce(&self) -> bool {
        let free = self.shared.free.load(Ordering::Relaxed);
        let held = self.shared.cell(self.holder).map_or(0, |cell| cell.load(Ordering::Relaxed));
        free < self.shared.bytes / SCARCE_PART || held > free / 2
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.held > 0 {
            self.shared.give(self.holder, self.held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(low: u64) -> TenantId {
        TenantId::from_uuid(uuid::Uuid::from_u64_pair(0, low))
    }

    #[test]
    fn is_exact_and_comes_back() {
        let budget = Budget::new(160, false);
        let mut first = budget.permit();
        let mut second = budget.permit();
        assert!(first.grow(60));
        assert!(!second.grow(91));
        assert!(second.grow(90));
        assert_eq!(budget.free(), 10);
        drop(first);
        assert_eq!(budget.free(), 70);
        let mut third = budget.permit();
        third.join(second);
        assert_eq!(budget.free(), 70);
        drop(third);
        assert_eq!(budget.free(), 160);
    }

    #[test]
    fn bytes_that_are_kept_as_text_too_count_twice() {
        let budget = Budget::new(160, false);
        let mut permit = budget.permit_with_text();
        assert!(permit.grow(55) && !permit.grow(21) && permit.grow(20));
        drop(permit);
        assert_eq!(budget.free(), 160);
    }

    #[test]
    fn one_tenant_takes_half_of_what_the_others_have_left() {
        let budget = Budget::new(1_600, true);
        let [mut a, mut also_a, mut b, mut c] = [1, 1, 2, 3].map(|low| budget.of(tenant(low)).permit());
        assert!(a.grow(400) && also_a.grow(350) && !also_a.grow(1), "half of what is not reserved");
        assert!(b.grow(375) && !b.grow(1));
        assert!(c.grow(187) && !c.grow(1));
        drop(also_a);
        assert!(c.grow(100), "what comes back is for all");
        drop((a, b, c));
        assert_eq!(budget.free(), 1_600);
        let mut again = budget.of(tenant(1)).permit();
        assert!(again.grow(750), "what was refused is not held against anybody");
    }

    #[test]
    fn our_own_api_has_room_when_requests_have_none() {
        for several in [false, true] {
            let budget = Budget::new(1_600, several);
            let mut requests = budget.permit();
            assert!(requests.grow(1_500) && !requests.grow(1));
            let (mut listing, mut admin) = (budget.own(Some(tenant(1))).permit(), budget.own(None).permit());
            assert!(listing.grow(50) && admin.grow(50) && !admin.grow(1));
        }
    }

    #[test]
    fn who_holds_much_of_what_is_left_is_told() {
        let budget = Budget::new(1_600, true);
        let (mut a, b) = (budget.of(tenant(1)).permit(), budget.of(tenant(2)).permit());
        assert!(a.grow(500) && !a.is_scarce());
        assert!(a.grow(100) && a.is_scarce() && !b.is_scarce(), "only who has taken it");
        let mut own = budget.own(None).permit();
        assert!(own.grow(700) && b.is_scarce(), "everybody, when little is left at all");
    }
}
