//! One value per tenant, shared by all cores: a fixed array of places, found without a lock and without allocating.
//!
//! Invariants: memory is bounded whatever tenants come, and nothing is resized; a place belongs to one tenant until its
//! user says that it may be forgotten. Where [`PROBES`] neighbours are busy at once, tenants share a place, so a user must
//! err on the safe side then. Tenants' ids may come from clients: the hash is keyed, so that nobody chooses neighbours.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use weir_config::vocab::TenantId;

/// Places: three times the 10,000 tenants that are remembered, so that probing stays short.
pub(crate) const PLACES: usize = 1 << 15;
/// How far a tenant's place may be from its hash.
const PROBES: usize = 16;

/// One value for each tenant.
pub struct PerTenant<T> {
    places: Box<[Place<T>]>,
    seeds: (u64, u64),
}

struct Place<T> {
    /// Hash of the tenant the place belongs to; 0 when it is free.
    tenant: AtomicU64,
    value: T,
}

impl<T: Default> Default for PerTenant<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default> PerTenant<T> {
    /// All places, free and with the value's default.
    pub fn new() -> Self {
        let places = (0..PLACES).map(|_| Place { tenant: AtomicU64::new(0), value: T::default() }).collect();
        let seed = || RandomState::new().build_hasher().finish();
        Self { places, seeds: (seed(), seed()) }
    }
}

impl<T> PerTenant<T> {
    /// The value of `tenant`: its own, else that of a place which is free or may be forgotten, as it was left there, else
    /// one that it shares.
    pub fn of(&self, tenant: TenantId, may_be_forgotten: impl Fn(&T) -> bool) -> &T {
        let hash = self.hash(tenant).max(1);
        let start = hash as usize % PLACES;
        let probes = || (0..PROBES).filter_map(move |step| self.places.get((start + step) % PLACES));
        if let Some(own) = probes().find(|place| place.tenant.load(Ordering::Acquire) == hash) {
            return &own.value;
        }
        for place in probes() {
            let owner = place.tenant.load(Ordering::Acquire);
            let is_free = owner == 0 || may_be_forgotten(&place.value);
            if is_free && place.tenant.compare_exchange(owner, hash, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return &place.value;
            }
            // Another core may have been faster, for the same tenant.
            if place.tenant.load(Ordering::Acquire) == hash {
                return &place.value;
            }
        }
        &self.places[start].value
    }

    /// The values of `count` places from number `from` on, around the end.
    pub fn places(&self, from: usize, count: usize) -> impl Iterator<Item = &T> {
        (0..count).filter_map(move |step| self.places.get((from + step) % PLACES)).map(|place| &place.value)
    }

    /// Two multiplications' worth of mixing: the keyed hash of the standard library costs more than what is decided here.
    fn hash(&self, tenant: TenantId) -> u64 {
        let (high, low) = tenant.uuid().as_u64_pair();
        let once = folded(high ^ self.seeds.0, low ^ self.seeds.1);
        folded(once ^ self.seeds.1, 0x9e37_79b9_7f4a_7c15)
    }
}

/// Both halves of the product, folded.
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts calls in ten seconds, as one that looks for anomalies might: the second and the number.
    #[derive(Default)]
    struct Velocity(AtomicU64, AtomicU64);

    #[test]
    fn ten_thousand_tenants_have_a_value_each_and_more_take_the_places_of_idle_ones() {
        let tenant = |n: u32| TenantId::from_credential(&n.to_be_bytes());
        let table = PerTenant::<Velocity>::new();
        let call = |n: u32, second: u64| {
            let seen = table.of(tenant(n), |seen| seen.0.load(Ordering::Relaxed) + 10 < second);
            if seen.0.swap(second, Ordering::Relaxed) + 10 < second {
                seen.1.store(0, Ordering::Relaxed);
            }
            seen.1.fetch_add(1, Ordering::Relaxed) + 1
        };
        let shared = (0..10_000).filter(|n| (call(*n, 100), call(*n, 101)) != (1, 2)).count();
        assert!(shared < 10, "{shared} of 10,000 share a place");
        assert!((10_000..200_000).all(|n| call(n, 120 + 20 * u64::from(n / 10_000)) >= 1));
        assert_eq!(table.places.len(), PLACES);
    }
}
