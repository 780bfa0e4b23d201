//! Rate limits that several gateways share. Requests take from what their gateway holds of a bucket that all have; what it holds is
//! taken ahead and given back in rounds, behind the requests, so that none of them waits for a network.
//!
//! A gateway may admit a few requests on credit before the bucket has granted them, and has to be granted as many before it does so
//! again. With `n` gateways at most `rate × t + max(burst, n) + (n + 2) × ⌈0.15 × rate⌉` requests pass in any `t` seconds:
//! the bucket's room and the credit of all are the burst together (and the room at least what flows in between two rounds), and a gateway holds no more than it needs for about a round. While
//! the bucket cannot be reached, each grants its part of the rate and of the burst.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use parking_lot::Mutex;
use uuid::Uuid;
use weir_config::settings::RateLimit;
use weir_config::vocab::TenantId;

use super::rate::{Verdict, take_part};
use crate::per_tenant::PerTenant;

/// Between two rounds, about: they vary by a quarter, so that no gateway always asks behind another.
pub const ROUND: Duration = Duration::from_millis(100);
/// What a gateway holds for requests to come, at most: the rate's tokens of so many milliseconds.
const HELD_MS: u64 = 150;
/// Buckets that begin to be used between two rounds; more wait for the next one, on credit.
const BEGINNING_MAX: usize = 4_096;
/// Buckets of one exchange; the others follow in the next.
const WISHES_MAX: usize = 500;

/// Tokens that a gateway takes out of a shared bucket, or gives back to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// Which of the tables of limits.
    pub table: char,
    /// The tenant or key whose bucket it is.
    pub whose: Uuid,
    /// Tokens per second that flow into it.
    pub rate: u32,
    /// Requests that may come at once after a rest.
    pub burst: u32,
    /// How many are wished for; below zero as many are given back.
    pub tokens: i64,
}

/// What came of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leased {
    /// Gateways that share the buckets, this one included.
    pub gateways: u32,
    /// What was granted for each wish, or taken back.
    pub granted: Vec<i64>,
}

/// How many requests a gateway admits before the bucket has granted them; the bucket holds the burst less that of all.
pub fn credit(burst: u32, gateways: u32) -> i64 {
    (i64::from(burst) / (2 * i64::from(gateways.max(1)))).max(1)
}

/// What a gateway holds of one bucket.
#[derive(Default)]
struct Slice {
    /// Requests that may pass; below zero is what passed on credit.
    balance: AtomicI64,
    /// Requests that came since the last round, refused ones included.
    demand: AtomicU32,
    /// The limit of the latest request, rate and burst.
    limit: AtomicU64,
    /// Whether the rounds know of it.
    listed: AtomicBool,
    /// The bucket of this gateway's own part, for the time in which the shared one cannot be reached.
    own_part: AtomicU64,
}

/// The buckets of one table.
struct Slices(PerTenant<Slice>);

/// The tables of limits, by what they are called in the shared store.
const TABLES: [char; 4] = ['t', 'o', 'k', 'p'];

/// All that this gateway holds.
pub struct SharedRates {
    tables: [Slices; TABLES.len()],
    beginning: ArrayQueue<(usize, Uuid)>,
    gateways: AtomicU32,
    is_away: AtomicBool,
    /// Requests decided by this gateway's own part alone.
    by_own_part: AtomicU64,
    rounds: Mutex<Rounds>,
}

/// One table's way to what is held.
pub(super) struct Share {
    pub(super) shared: Arc<SharedRates>,
    pub(super) table: usize,
}

/// A bucket that is in use.
struct Used {
    table: usize,
    whose: Uuid,
    /// Requests of the round before.
    demand: i64,
}

/// Where the rounds are.
#[derive(Default)]
struct Rounds {
    used: Vec<Used>,
    /// Where in `used` the next exchange begins.
    from: usize,
    /// The exchange that is under way, or whose answer was lost: its number, and for each wish its place in `used`.
    number: u64,
    wishes: Vec<Wish>,
    is_open: bool,
}

/// Figures for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedFigures {
    /// Gateways that share the limits, as far as is known.
    pub gateways: u32,
    /// Whether each grants its own part at the moment.
    pub is_away: bool,
    /// Requests decided so.
    pub by_own_part: u64,
}

fn packed(limit: RateLimit) -> u64 {
    u64::from(limit.requests_per_second.max(1)) << 32 | u64::from(limit.burst_size.max(1))
}

const fn halves(packed: u64) -> (u32, u32) {
    ((packed >> 32) as u32, packed as u32)
}

/// What may be held for requests to come.
fn held_max(rate: u32) -> i64 {
    (u64::from(rate) * HELD_MS).div_ceil(1_000).cast_signed()
}

impl Slices {
    fn of(&self, whose: Uuid) -> &Slice {
        self.0.of(TenantId::from_uuid(whose), |slice| !slice.listed.load(Ordering::Acquire))
    }
}

impl Default for SharedRates {
    fn default() -> Self {
        Self::new()
    }
}

impl SharedRates {
    /// Nothing is held yet, and no other gateway known.
    pub fn new() -> Self {
        Self {
            tables: TABLES.map(|_| Slices(PerTenant::new())),
            beginning: ArrayQueue::new(BEGINNING_MAX),
            gateways: AtomicU32::new(1),
            is_away: AtomicBool::new(false),
            by_own_part: AtomicU64::new(0),
            rounds: Mutex::default(),
        }
    }

    /// What there is to say of it.
    pub fn figures(&self) -> SharedFigures {
        SharedFigures {
            gateways: self.gateways.load(Ordering::Relaxed),
            is_away: self.is_away.load(Ordering::Relaxed),
            by_own_part: self.by_own_part.load(Ordering::Relaxed),
        }
    }

    fn take(&self, table: usize, whose: Uuid, limit: RateLimit, now_ns: u64) -> Verdict {
        let Some(slices) = self.tables.get(table) else { return Verdict::Limited { retry_after_ns: u64::MAX } };
        let slice = slices.of(whose);
        let wanted = packed(limit);
        if slice.limit.load(Ordering::Relaxed) != wanted {
            slice.limit.store(wanted, Ordering::Relaxed);
        }
        // Before it is listed: a round that takes it off the list looks at the demand once more.
        slice.demand.fetch_add(1, Ordering::SeqCst);
        if !slice.listed.load(Ordering::SeqCst)
            && !slice.listed.swap(true, Ordering::SeqCst)
            && self.beginning.push((table, whose)).is_err()
        {
            slice.listed.store(false, Ordering::SeqCst);
        }
        let gateways = self.gateways.load(Ordering::Relaxed);
        if self.is_away.load(Ordering::Relaxed) {
            self.by_own_part.fetch_add(1, Ordering::Relaxed);
            return take_part(&slice.own_part, limit, gateways, now_ns);
        }
        let least = -credit(limit.burst_size.max(1), gateways);
        let one = |balance: i64| (balance > least).then(|| balance - 1);
        match slice.balance.fetch_update(Ordering::AcqRel, Ordering::Acquire, one) {
            Ok(before) => Verdict::Admitted { remaining: u32::try_from(before - least - 1).unwrap_or(u32::MAX) },
            Err(_) => {
                let one_token_ns = 1_000_000_000 / u64::from(limit.requests_per_second.max(1));
                Verdict::Limited { retry_after_ns: one_token_ns.max(ROUND.as_nanos() as u64) }
            }
        }
    }

    /// One round: asks for what is needed and gives back what is not, by way of `exchange`, which may be called with the same number
    /// and the same wishes until it has answered once. False when it has not.
    pub fn round(&self, mut exchange: impl FnMut(u64, &[Wish]) -> Option<Leased>) -> bool {
        let mut rounds = self.rounds.lock();
        loop {
            if !rounds.is_open {
                self.wish(&mut rounds);
            }
            let Some(leased) = exchange(rounds.number, &rounds.wishes) else { return false };
            self.gateways.store(leased.gateways, Ordering::Relaxed);
            for (wish, granted) in rounds.wishes.iter().zip(&leased.granted) {
                if *granted > 0
                    && let Some(at) = TABLES.iter().position(|table| *table == wish.table)
                {
                    self.tables[at].of(wish.whose).balance.fetch_add(*granted, Ordering::AcqRel);
                }
            }
            rounds.is_open = false;
            if rounds.from == 0 {
                break;
            }
        }
        self.is_away.store(false, Ordering::Relaxed);
        true
    }

    /// From now on, until a round has succeeded, this gateway grants its own part.
    pub fn is_cut_off(&self) {
        self.is_away.store(true, Ordering::Relaxed);
    }

    /// Makes the next exchange, and takes off the list what nobody uses.
    fn wish(&self, rounds: &mut Rounds) {
        if rounds.from == 0 {
            let begun = std::iter::from_fn(|| self.beginning.pop()).take(BEGINNING_MAX);
            rounds.used.extend(begun.map(|(table, whose)| Used { table, whose, demand: 0 }));
            rounds.used.retain(|used| {
                let slice = self.tables[used.table].of(used.whose);
                let is_idle = used.demand == 0
                    && slice.demand.load(Ordering::SeqCst) == 0
                    && slice.balance.load(Ordering::Acquire) == 0;
                if is_idle {
                    slice.listed.store(false, Ordering::SeqCst);
                }
                // Who came between those two lines found it listed.
                !is_idle || (slice.demand.load(Ordering::SeqCst) > 0 && !slice.listed.swap(true, Ordering::SeqCst))
            });
        }
        rounds.number += 1;
        rounds.is_open = true;
        rounds.wishes.clear();
        let (from, upto) = (rounds.from, rounds.used.len().min(rounds.from + WISHES_MAX));
        for used in &mut rounds.used[from..upto] {
            let slice = self.tables[used.table].of(used.whose);
            let (rate, burst) = halves(slice.limit.load(Ordering::Relaxed));
            let demand = i64::from(slice.demand.swap(0, Ordering::SeqCst));
            let tokens = wish_of(slice, demand, used.demand, rate);
            used.demand = demand;
            if tokens != 0 {
                rounds.wishes.push(Wish { table: TABLES[used.table], whose: used.whose, rate, burst, tokens });
            }
        }
        rounds.from = if upto == rounds.used.len() { 0 } else { upto };
    }
}

/// How many tokens a slice needs beside those it has; below zero, what it gives back and has no more.
fn wish_of(slice: &Slice, demand: i64, before: i64, rate: u32) -> i64 {
    let balance = slice.balance.load(Ordering::Acquire);
    if balance < demand {
        return demand - balance;
    }
    let kept = demand.max(before).min(held_max(rate));
    let mut given = 0;
    let less = |balance: i64| {
        given = (balance - kept).max(0);
        (given > 0).then(|| balance - given)
    };
    match slice.balance.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) {
        Ok(_) => -given,
        Err(_) => 0,
    }
}

impl Share {
    pub(super) fn take(&self, whose: TenantId, limit: RateLimit, now_ns: u64) -> Verdict {
        self.shared.take(self.table, whose.uuid(), limit, now_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The shared bucket as the cache's script keeps it, by a clock of the test's own.
    struct Cache {
        gateways: u32,
        buckets: HashMap<Uuid, (f64, u64)>,
        now_ns: u64,
        kept: HashMap<usize, (u64, Leased)>,
    }

    impl Cache {
        fn exchange(&mut self, gateway: usize, number: u64, wishes: &[Wish]) -> Leased {
            if let Some((known, leased)) = self.kept.get(&gateway)
                && *known == number
            {
                return leased.clone();
            }
            let granted = wishes
                .iter()
                .map(|wish| {
                    let credits = i64::from(self.gateways) * credit(wish.burst, self.gateways);
                    let room = (i64::from(wish.burst) - credits).max(held_max(wish.rate)) as f64;
                    let (tokens, at) = self.buckets.get(&wish.whose).copied().unwrap_or((room, self.now_ns));
                    let filled = tokens + (self.now_ns - at) as f64 * f64::from(wish.rate) / 1e9;
                    let filled = filled.min(room);
                    let granted = if wish.tokens > 0 { wish.tokens.min(filled.floor() as i64) } else { wish.tokens };
                    self.buckets.insert(wish.whose, ((filled - granted as f64).min(room), self.now_ns));
                    granted
                })
                .collect();
            let leased = Leased { gateways: self.gateways, granted };
            self.kept.insert(gateway, (number, leased.clone()));
            leased
        }
    }

    fn random(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    /// Three gateways by one clock, every answer of the cache lost now and then: in no stretch of time do more pass than stated, and
    /// under steady demand about as many as the limit allows.
    #[test]
    fn several_gateways_keep_one_limit() {
        for (rate, burst, seed) in [(100, 100, 1), (100, 1, 2), (7, 20, 3), (1_000, 200, 4), (1, 1, 5)] {
            let gateways = [(); 3].map(|()| SharedRates::new());
            let mut cache = Cache { gateways: 3, buckets: HashMap::new(), now_ns: 1, kept: HashMap::new() };
            let (limit, mut seed) = (RateLimit { requests_per_second: rate, burst_size: burst }, seed);
            for (at, gateway) in gateways.iter().enumerate() {
                assert!(gateway.round(|number, wishes| Some(cache.exchange(at, number, wishes))));
            }
            let mut due = [0u64; 3];
            let mut passed: Vec<u64> = Vec::new();
            let whose = Uuid::from_u128(9);
            // Half a minute in milliseconds; bursts after rests, steady load, and load on one gateway alone.
            for ms in 0..30_000u64 {
                cache.now_ns = 1 + ms * 1_000_000;
                for (at, gateway) in gateways.iter().enumerate() {
                    if ms >= due[at] {
                        due[at] = ms + 75 + random(&mut seed) % 50;
                        let is_lost = random(&mut seed).is_multiple_of(10);
                        gateway.round(|number, wishes| {
                            let leased = cache.exchange(at, number, wishes);
                            (!is_lost).then_some(leased)
                        });
                    }
                    let phase = ms / 5_000;
                    let comes = match phase {
                        0 | 3 => random(&mut seed) % 4 < 3,
                        1 => at == 0,
                        4 => ms % 1_000 == 0 && at == 1,
                        _ => random(&mut seed) % 1_000 < u64::from(rate) / 4,
                    };
                    let times = if phase == 4 { 500 } else { u64::from(comes) };
                    for _ in 0..if comes { times } else { 0 } {
                        if matches!(gateway.take(0, whose, limit, cache.now_ns), Verdict::Admitted { .. }) {
                            passed.push(cache.now_ns);
                        }
                    }
                }
            }
            let held = (f64::from(rate) * 0.15).ceil();
            let stated = f64::from(burst).max(3.0) + 5.0 * held;
            let mut lowest = f64::MAX;
            for (count, at) in passed.iter().enumerate() {
                let level = count as f64 - *at as f64 * f64::from(rate) / 1e9;
                lowest = lowest.min(level);
                assert!(
                    level - lowest + 1.0 <= stated,
                    "{rate}/s, burst {burst}: {} of {stated}",
                    level - lowest + 1.0
                );
            }
            let busy = passed.iter().filter(|at| **at < 10_000_000_000).count() as f64;
            assert!(busy >= 8.5 * f64::from(rate).min(800.0), "{rate}/s, burst {burst}: {busy} in ten busy seconds");
        }
    }

    #[test]
    fn what_is_not_needed_is_given_back_and_the_bucket_forgotten() {
        let (shared, whose) = (SharedRates::new(), Uuid::from_u128(3));
        let limit = RateLimit { requests_per_second: 1_000, burst_size: 1_000 };
        assert!((0..50).all(|_| matches!(shared.take(0, whose, limit, 1), Verdict::Admitted { .. })));
        let mut total = 0;
        for _ in 0..4 {
            shared.round(|_, wishes| {
                let granted: Vec<i64> = wishes.iter().map(|wish| wish.tokens).collect();
                total += granted.iter().sum::<i64>();
                Some(Leased { gateways: 1, granted })
            });
        }
        assert_eq!(total, 50, "as many as came");
        assert!(shared.rounds.lock().used.is_empty());
        assert!(matches!(shared.take(0, whose, limit, 2), Verdict::Admitted { .. }));
        shared.round(|_, wishes| {
            assert_eq!(wishes.iter().map(|wish| wish.tokens).collect::<Vec<_>>(), [2], "one is owed, one expected");
            None
        });
    }

    #[test]
    fn a_gateway_that_is_cut_off_grants_its_part() {
        let (shared, whose) = (SharedRates::new(), Uuid::from_u128(3));
        let limit = RateLimit { requests_per_second: 30, burst_size: 30 };
        shared.round(|_, _| Some(Leased { gateways: 3, granted: Vec::new() }));
        shared.is_cut_off();
        let second = 1_000_000_000;
        let passed = |from: u64| {
            let at = (0..10 * second).step_by(10_000_000);
            at.filter(|at| matches!(shared.take(0, whose, limit, from + at), Verdict::Admitted { .. })).count()
        };
        assert_eq!(passed(second), 10 + 99, "a third of the burst and of the rate");
        assert_eq!(shared.figures(), SharedFigures { gateways: 3, is_away: true, by_own_part: 1_000 });
    }
}
