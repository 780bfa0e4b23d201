//! Token buckets per tenant, exact across cores and without a lock.
//!
//! Each bucket is the generic cell rate algorithm (ITU-T I.371, the virtual scheduling form): one 64-bit "theoretical
//! arrival time" moved forward by compare-and-swap, so a request is either wholly counted or not at all, on whichever
//! core it arrives. The table is a fixed array of slots found by hashing the tenant: bounded memory, no allocation, no
//! resize. A slot whose bucket has been full for `window_seconds` belongs to nobody and may be taken over.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use weir_config::settings::{RateLimit, RateLimiting};
use weir_config::vocab::TenantId;

/// Slots of the table: four times the 10,000 tenants that are remembered, so that probing stays short.
const SLOTS: usize = 1 << 15;
/// How far a tenant's slot may stand from its hash.
const PROBES: usize = 16;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// What the bucket says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Admitted; this many requests may still follow at once.
    Admitted {
        /// Whole requests left in the bucket.
        remaining: u32,
    },
    /// Refused; the bucket has room again after this many nanoseconds.
    Limited {
        /// Until one request fits again.
        retry_after_ns: u64,
    },
}

struct Slot {
    /// Hash of the tenant that owns the slot; 0 is nobody.
    tenant: AtomicU64,
    /// Theoretical arrival time in nanoseconds of the caller's clock.
    arrival_ns: AtomicU64,
}

/// The buckets of all tenants, shared by all cores.
pub struct RateTable {
    slots: Box<[Slot]>,
    hasher: RandomState,
}

impl RateTable {
    /// An empty table: every bucket is full.
    pub fn new() -> Self {
        let slots = (0..SLOTS).map(|_| Slot { tenant: AtomicU64::new(0), arrival_ns: AtomicU64::new(0) }).collect();
        Self { slots, hasher: RandomState::new() }
    }

    /// Takes one request from `tenant`'s bucket at `now_ns` of a monotonic clock that all cores share.
    pub fn take(&self, tenant: TenantId, limits: &RateLimiting, now_ns: u64) -> Verdict {
        let limit = limits.tenant_overrides.get(&tenant).copied().unwrap_or(limits.default);
        let idle_ns = u64::from(limits.window_seconds).saturating_mul(NANOS_PER_SECOND);
        let slot = self.slot(tenant, now_ns, idle_ns);
        take(&slot.arrival_ns, limit, now_ns)
    }

    /// The slot of `tenant`: its own, else a free or forgotten one, else (all probes busy) the first, shared.
    fn slot(&self, tenant: TenantId, now_ns: u64, idle_ns: u64) -> &Slot {
        let hash = self.hasher.hash_one(tenant).max(1);
        let start = hash as usize & (SLOTS - 1);
        let probes = || (0..PROBES).filter_map(move |step| self.slots.get((start + step) & (SLOTS - 1)));
        if let Some(own) = probes().find(|slot| slot.tenant.load(Ordering::Acquire) == hash) {
            return own;
        }
        for slot in probes() {
            let owner = slot.tenant.load(Ordering::Acquire);
            let full_since = slot.arrival_ns.load(Ordering::Relaxed);
            let forgotten = owner == 0 || full_since.saturating_add(idle_ns) < now_ns;
            if forgotten && slot.tenant.compare_exchange(owner, hash, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return slot;
            }
            if slot.tenant.load(Ordering::Acquire) == hash {
                return slot;
            }
        }
        // Sharing errs on the side of limiting; it takes 16 busy neighbours.
        self.slots.get(start).unwrap_or(&NOBODY)
    }
}

impl Default for RateTable {
    fn default() -> Self {
        Self::new()
    }
}

static NOBODY: Slot = Slot { tenant: AtomicU64::new(0), arrival_ns: AtomicU64::new(0) };

/// The algorithm on one bucket.
fn take(arrival_ns: &AtomicU64, limit: RateLimit, now_ns: u64) -> Verdict {
    let rate = u64::from(limit.requests_per_second.max(1));
    let burst = u64::from(limit.burst_size.max(1));
    // Kept in units of 1/rate nanoseconds would be exact; a nanosecond is fine enough up to 10^9 requests per second.
    let interval = (NANOS_PER_SECOND / rate).max(1);
    let tolerance = interval.saturating_mul(burst - 1);
    let mut seen = arrival_ns.load(Ordering::Relaxed);
    loop {
        let arrival = seen.max(now_ns);
        let ahead = arrival - now_ns;
        if ahead > tolerance {
            return Verdict::Limited { retry_after_ns: ahead - tolerance };
        }
        match arrival_ns.compare_exchange_weak(seen, arrival + interval, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => {
                let remaining = (tolerance - ahead) / interval;
                return Verdict::Admitted { remaining: u32::try_from(remaining).unwrap_or(u32::MAX) };
            }
            Err(now_there) => seen = now_there,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::*;

    fn limits(requests_per_second: u32, burst_size: u32) -> RateLimiting {
        RateLimiting {
            enabled: true,
            default: RateLimit { requests_per_second, burst_size },
            window_seconds: 60,
            tenant_overrides: HashMap::new(),
        }
    }

    fn admitted(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::Admitted { .. })
    }

    #[test]
    fn grants_the_burst_then_the_steady_rate() {
        let (table, limits) = (RateTable::new(), limits(100, 3));
        let at = |ms: u64| ms * 1_000_000;
        let start = at(1_000);
        assert_eq!(table.take(TenantId::DEFAULT, &limits, start), Verdict::Admitted { remaining: 2 });
        assert_eq!(table.take(TenantId::DEFAULT, &limits, start), Verdict::Admitted { remaining: 1 });
        assert_eq!(table.take(TenantId::DEFAULT, &limits, start), Verdict::Admitted { remaining: 0 });
        assert_eq!(table.take(TenantId::DEFAULT, &limits, start), Verdict::Limited { retry_after_ns: 10_000_000 });
        assert!(admitted(table.take(TenantId::DEFAULT, &limits, start + at(10))));
        assert!(!admitted(table.take(TenantId::DEFAULT, &limits, start + at(10))));
        // A long rest fills the bucket, and no further.
        let later = start + at(60_000);
        assert_eq!((0..10).filter(|_| admitted(table.take(TenantId::DEFAULT, &limits, later))).count(), 3);
    }

    #[test]
    fn tenants_do_not_share_a_bucket_and_overrides_win() {
        let table = RateTable::new();
        let mut limits = limits(1, 1);
        let other = TenantId::from_credential(b"other");
        limits.tenant_overrides.insert(other, RateLimit { requests_per_second: 1, burst_size: 2 });
        assert!(admitted(table.take(TenantId::DEFAULT, &limits, 5)));
        assert!(!admitted(table.take(TenantId::DEFAULT, &limits, 5)));
        assert!(admitted(table.take(other, &limits, 5)));
        assert!(admitted(table.take(other, &limits, 5)));
        assert!(!admitted(table.take(other, &limits, 5)));
    }

    #[test]
    fn all_cores_together_never_exceed_burst_plus_rate() {
        let table = Arc::new(RateTable::new());
        let limits = Arc::new(limits(1_000, 50));
        let counted: usize = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|_| {
                    let (table, limits) = (Arc::clone(&table), Arc::clone(&limits));
                    // Every worker walks the same second in the same steps: 250,000 tries each.
                    scope.spawn(move || {
                        (0..250_000u64)
                            .filter(|step| admitted(table.take(TenantId::DEFAULT, &limits, step * 4_000)))
                            .count()
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert!((1_000..=1_050).contains(&counted), "{counted} of 1,000,000 were admitted in one second");
    }

    #[test]
    fn more_tenants_than_slots_keep_the_table_bounded() {
        let (table, limits) = (RateTable::new(), limits(1, 1));
        for tenant in 0..100_000u32 {
            table.take(TenantId::from_credential(&tenant.to_be_bytes()), &limits, u64::from(tenant));
        }
        assert_eq!(table.slots.len(), SLOTS);
    }
}
