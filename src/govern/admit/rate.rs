//! Token buckets per tenant, exact across cores and without a lock.
//!
//! Each bucket is the generic cell rate algorithm (ITU-T I.371, the virtual scheduling form): one 64-bit "theoretical
//! arrival time" moved forward by compare-and-swap, so a request is either wholly counted or not at all, on whichever
//! core it arrives, and no edge of a second or minute means anything to it. Time is counted in 64ths of a nanosecond and
//! the interval between two requests is rounded up, so in any stretch of `t` seconds at most `burst_size + t ×
//! requests_per_second` requests pass, never one more. A bucket that has been full for `window_seconds` may be forgotten;
//! tenants that share one ([`PerTenant`]) are limited together.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use weir_config::settings::{RateLimit, RateLimiting};
use weir_config::vocab::{KeyId, TenantId};

use super::shared::{Share, SharedRates};
use crate::exchange::Refusal;
use crate::per_tenant::PerTenant;

/// Steps of the table's clock in a second: 64 to the nanosecond, which 64 bits hold for nine years of uptime.
const TICKS_PER_SECOND: u64 = 64 * NANOS_PER_SECOND;
const TICKS_PER_NANO: u64 = 64;
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

/// The buckets of all tenants, shared by all cores: of each the theoretical arrival time in ticks of the caller's clock.
pub struct RateTable {
    own: PerTenant<AtomicU64>,
    /// Of how many equal parts of each limit this table grants one.
    parts: AtomicU32,
    /// Where several gateways share them.
    share: OnceLock<Share>,
}

impl RateTable {
    /// An empty table: every bucket is full.
    pub fn new() -> Self {
        Self { own: PerTenant::new(), parts: AtomicU32::new(1), share: OnceLock::new() }
    }

    /// From now on this table grants one of so many equal parts of each limit.
    pub fn divide(&self, parts: u32) {
        self.parts.store(parts.max(1), Ordering::Relaxed);
    }

    /// From now on the buckets are those that several gateways share, of table number `table`.
    pub fn share(&self, shared: &Arc<SharedRates>, table: usize) {
        let _once = self.share.set(Share { shared: Arc::clone(shared), table }).is_ok();
    }

    /// Takes one request from `tenant`'s bucket at `now_ns` of a monotonic clock that all cores share.
    pub fn take(&self, tenant: TenantId, limits: &RateLimiting, now_ns: u64) -> Verdict {
        let limit = limits.tenant_overrides.get(&tenant).copied().unwrap_or(limits.default);
        self.take_within(tenant, limit, limits.window_seconds, now_ns)
    }

    /// The same from the bucket of a key, in a table that holds keys and no tenants.
    pub fn take_of_key(&self, key: KeyId, limit: RateLimit, window_seconds: u32, now_ns: u64) -> Verdict {
        // A place is found by 16 bytes, whatever they name.
        self.take_within(TenantId::from_uuid(key.uuid()), limit, window_seconds, now_ns)
    }

    fn take_within(&self, whose: TenantId, limit: RateLimit, window_seconds: u32, now_ns: u64) -> Verdict {
        if let Some(share) = self.share.get() {
            return share.take(whose, limit, now_ns);
        }
        let now = now_ns.saturating_mul(TICKS_PER_NANO);
        let idle = u64::from(window_seconds).saturating_mul(TICKS_PER_SECOND);
        let is_idle = |arrival: &AtomicU64| arrival.load(Ordering::Relaxed).saturating_add(idle) < now;
        take(self.own.of(whose, is_idle), (limit, self.parts.load(Ordering::Relaxed)), now)
    }
}

impl Default for RateTable {
    fn default() -> Self {
        Self::new()
    }
}

/// The same on the bucket of one of `parts` equal parts of a limit.
pub(super) fn take_part(arrival: &AtomicU64, limit: RateLimit, parts: u32, now_ns: u64) -> Verdict {
    take(arrival, (limit, parts.max(1)), now_ns.saturating_mul(TICKS_PER_NANO))
}

/// The algorithm on one bucket; `now` in ticks.
fn take(arrival: &AtomicU64, (limit, parts): (RateLimit, u32), now: u64) -> Verdict {
    let rate = u64::from(limit.requests_per_second.max(1));
    let burst = u64::from((limit.burst_size / parts).max(1));
    // Rounded up: a rate that does not divide the clock passes a little less, never more.
    let interval = TICKS_PER_SECOND.saturating_mul(u64::from(parts)).div_ceil(rate);
    let tolerance = interval.saturating_mul(burst - 1);
    let mut seen = arrival.load(Ordering::Relaxed);
    loop {
        let next = seen.max(now);
        let ahead = next - now;
        if ahead > tolerance {
            return Verdict::Limited { retry_after_ns: (ahead - tolerance).div_ceil(TICKS_PER_NANO) };
        }
        match arrival.compare_exchange_weak(seen, next.saturating_add(interval), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => {
                let remaining = (tolerance - ahead) / interval;
                return Verdict::Admitted { remaining: u32::try_from(remaining).unwrap_or(u32::MAX) };
            }
            Err(now_there) => seen = now_there,
        }
    }
}

/// The refusal of a request that comes too soon.
pub fn refusal(who: &str, limit: RateLimit, retry_after_ns: u64, setting: &str) -> Refusal {
    let seconds = retry_after_ns.div_ceil(1_000_000_000).max(1);
    let message = format!(
        "{who} sends more than {} requests per second (burst {}); retry after {seconds} s, or raise {setting}",
        limit.requests_per_second, limit.burst_size
    );
    Refusal::new(429, "rate_limit_exceeded", message)
        .header("Retry-After", seconds)
        .header("X-RateLimit-Limit", limit.requests_per_second)
        .header("X-RateLimit-Remaining", 0)
        .header("X-RateLimit-Reset", seconds)
        .with("limit_requests_per_second", limit.requests_per_second)
        .with("retry_after_secs", seconds)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

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
    fn of_a_divided_limit_each_table_grants_its_part() {
        let (tables, limits, start) = ([RateTable::new(), RateTable::new()], limits(2, 4), 5 * NANOS_PER_SECOND);
        tables.iter().for_each(|table| table.divide(2));
        let passed = |of: &RateTable, at| (0..9).filter(|_| admitted(of.take(TenantId::DEFAULT, &limits, at))).count();
        assert_eq!(tables.each_ref().map(|table| passed(table, start)), [2, 2]);
        assert_eq!(tables.each_ref().map(|table| passed(table, start + NANOS_PER_SECOND)), [1, 1]);
        tables[0].divide(1);
        assert_eq!(passed(&tables[0], start + 10 * NANOS_PER_SECOND), 4, "alone again");
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

    /// 1,000,000 decisions on four threads over five minutes of one shared clock, for rates that divide a second and rates
    /// that do not: in no stretch of time, across seconds and minutes or within them, does one request more pass than
    /// `burst + t × rate`.
    #[test]
    fn a_million_decisions_never_exceed_the_bound_in_any_stretch_of_time() {
        for (rate, burst) in [(7, 1), (100, 200), (333, 10), (1_000, 50)] {
            let (table, limits) = (RateTable::new(), limits(rate, burst));
            let clock = AtomicU64::new(1);
            let mut passed: Vec<u64> = std::thread::scope(|scope| {
                let workers: Vec<_> = (0..4_u64)
                    .map(|worker| {
                        let (table, limits, clock) = (&table, &limits, &clock);
                        scope.spawn(move || {
                            let mut seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(worker + 1);
                            let mut passed = Vec::new();
                            for _ in 0..62_500 {
                                seed = seed
                                    .wrapping_mul(6_364_136_223_846_793_005)
                                    .wrapping_add(1_442_695_040_888_963_407);
                                // 1.2 ms on average, in bursts: five minutes altogether.
                                let pause = if seed >> 60 == 0 { (seed >> 20) % 38_400_000 } else { 0 };
                                let now = clock.fetch_add(pause, Ordering::SeqCst) + pause;
                                if admitted(table.take(TenantId::DEFAULT, limits, now)) {
                                    passed.push(now);
                                }
                            }
                            passed
                        })
                    })
                    .collect();
                workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
            });
            passed.sort_unstable();
            // The bound holds in every stretch of time when it holds between any two requests that passed.
            let mut earliest = i128::MAX;
            for (count, at) in passed.iter().enumerate() {
                // count - rate × t, scaled: its rise since the lowest point before is the number that passed.
                let level = count as i128 * i128::from(NANOS_PER_SECOND) - i128::from(*at) * i128::from(rate);
                earliest = earliest.min(level);
                let rise = level - earliest;
                let bound = i128::from(burst - 1) * i128::from(NANOS_PER_SECOND);
                assert!(rise <= bound, "rate {rate}, burst {burst}: {rise} of {bound} at {at}");
            }
            let seconds = clock.into_inner() / NANOS_PER_SECOND;
            assert!(seconds > 60, "several minutes' edges were crossed: {seconds} s");
            let least = passed.len() as u64 * 100 / (seconds * u64::from(rate)).min(250_000);
            assert!(least > 20, "the limit is used, not only kept: {} in {seconds} s at {rate}", passed.len());
        }
    }

    #[test]
    fn the_edge_of_a_minute_means_nothing() {
        let (table, limits) = (RateTable::new(), limits(10, 10));
        let minute = 60 * NANOS_PER_SECOND;
        let take = |now| admitted(table.take(TenantId::DEFAULT, &limits, now));
        assert_eq!((0..20).filter(|_| take(minute - 1)).count(), 10);
        assert_eq!((0..20).filter(|_| take(minute)).count(), 0, "no second burst behind the edge");
        assert_eq!((0..20).filter(|_| take(minute + NANOS_PER_SECOND)).count(), 10);
    }

    #[test]
    fn a_rate_that_does_not_divide_the_second_is_never_exceeded() {
        let (table, limits) = (RateTable::new(), limits(300_000, 10));
        let passed =
            (0..2_000_000_u64).filter(|step| admitted(table.take(TenantId::DEFAULT, &limits, 1 + step * 500))).count();
        assert!((299_900..=300_010).contains(&passed), "{passed} in one second");
    }

    #[test]
    fn limits_that_change_while_it_runs_hold_from_the_next_request_on() {
        let table = RateTable::new();
        let (narrow, wide) = (limits(1, 1), limits(1_000, 100));
        assert_eq!((0..200).filter(|_| admitted(table.take(TenantId::DEFAULT, &wide, 5))).count(), 100);
        assert!(!admitted(table.take(TenantId::DEFAULT, &narrow, 5)));
        assert!(admitted(table.take(TenantId::DEFAULT, &narrow, 5 + NANOS_PER_SECOND)));
        assert!(!admitted(table.take(TenantId::DEFAULT, &narrow, 6 + NANOS_PER_SECOND)));
    }
}
