//! What do limits and prices cost per request, with 10,000 tenants in the tables: is it within its rate, is it within its
//! budget, what does its model cost, is it far above the tenant's other calls? And what do the tables take in memory?
//!
//! Budget: at most 1 µs together, on top of what `admission` measures; 0.2 µs for the last question, which nobody asks by
//! default. Run alone: `cargo bench --bench money`.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use weir::admit::rate::RateTable;
use weir::anomalies::{Anomalies, Call};
use weir::money::{Ask, Prices, Spend, cost_nano_usd, estimate_nano_usd};
use weir_config::settings::{
    AnomalyDetection, AnomalyMethod, Budget, Budgets, CostEstimation, RateLimit, RateLimiting,
};
use weir_config::vocab::TenantId;

const TENANTS: u32 = 10_000;
/// 2026-11-21T12:00:00Z.
const NOON: i64 = 1_795_262_400;

fn tenant(number: u32) -> TenantId {
    TenantId::from_credential(&number.to_be_bytes())
}

/// Resident memory of this process in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// Numbers in an order no prefetcher knows.
fn shuffled(below: u32) -> impl FnMut() -> u32 {
    let state = Cell::new(0x2545_f491_4f6c_dd1d_u64);
    move || {
        state.set(state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        ((state.get() >> 33) % u64::from(below)) as u32
    }
}

fn rate(bench: &mut Criterion) {
    let before = resident_kib();
    let limits = RateLimiting {
        enabled: true,
        default: RateLimit { requests_per_second: 1_000_000, burst_size: 1_000_000 },
        window_seconds: 60,
        tenant_overrides: Default::default(),
    };
    let table = RateTable::new();
    let tenants: Vec<TenantId> = (0..TENANTS).map(tenant).collect();
    for tenant in &tenants {
        black_box(table.take(*tenant, &limits, 1));
    }
    println!("rate table, {TENANTS} tenants in it: {} KiB", resident_kib() - before);
    let mut group = bench.benchmark_group("rate");
    let mut now = 1;
    group.bench_function("take/one tenant", |b| {
        b.iter(|| {
            now += 1_000;
            table.take(tenants[7], &limits, now)
        });
    });
    let mut any = shuffled(TENANTS);
    group.bench_function("take/any of 10,000", |b| {
        b.iter(|| {
            now += 1_000;
            table.take(tenants[any() as usize], &limits, now)
        });
    });
    group.finish();
}

fn caps(bench: &mut Criterion) {
    let before = resident_kib();
    let spend = Arc::new(Spend::new());
    println!("spend table, empty: {} KiB", resident_kib() - before);
    let budget = Some(Budget { hard_nano_usd: u64::MAX / 2, soft_nano_usd: Some(u64::MAX / 4) });
    let budgets: Budgets = [budget; 4];
    let tenants: Vec<TenantId> = (0..TENANTS).map(tenant).collect();
    let call = |tenant: TenantId| {
        spend.reserve(tenant, "_default", &budgets, &[None; 4], 1_000, NOON).map(|held| held.settle(900))
    };
    for tenant in &tenants {
        assert!(call(*tenant).is_ok());
    }
    println!("spend table, {TENANTS} accounts in it: {} KiB", resident_kib() - before);
    let mut group = bench.benchmark_group("caps");
    group.bench_function("reserve and settle/one account", |b| b.iter(|| call(tenants[7]).is_ok()));
    let mut any = shuffled(TENANTS);
    group.bench_function("reserve and settle/any of 10,000", |b| b.iter(|| call(tenants[any() as usize]).is_ok()));
    group.finish();
}

fn prices(bench: &mut Criterion) {
    let started = std::time::Instant::now();
    let Ok(prices) = Prices::open(&CostEstimation::default(), "api.openai.com") else { return };
    println!("prices opened in {:?}", started.elapsed());
    let mut group = bench.benchmark_group("prices");
    group.bench_function("find/a model seen before", |b| b.iter(|| prices.find("openai", black_box("gpt-4o-mini"))));
    let mut number = 0_u64;
    group.bench_function("find/a model never seen, 40 bytes", |b| {
        b.iter(|| {
            number += 1;
            prices.find("openai", &format!("somebody-s-own-model-{number:019}"))
        });
    });
    let price = prices.find("openai", "gpt-4o-mini").unwrap_or_default();
    let ask = Ask { prompt_tokens: 1_000, max_tokens: Some(500) };
    group.bench_function("estimate and cost", |b| {
        b.iter(|| {
            let counted = weir::money::Counted { input: black_box(1_000), output: 500, ..Default::default() };
            estimate_nano_usd(&price, black_box(ask), 0) + cost_nano_usd(&price, &counted)
        });
    });
    group.finish();
}

/// Calls with log-normal tokens, costs and times, as an agent's are (`anomalies::tests::day`); more of them than a window holds, so
/// that no two windows are alike. The same in every run.
fn agent_calls() -> Vec<Call> {
    let mut chance = shuffled(1 << 30);
    let mut share = move || f64::from(chance().max(1)) / f64::from(1 << 30);
    let mut log_normal = move |middle: f64, spread: f64| {
        let normal = (-2.0 * share().ln()).sqrt() * (std::f64::consts::TAU * share()).cos();
        middle * (spread * normal).exp()
    };
    let mut one = || {
        let tokens = log_normal(1_500.0, 0.6);
        Call {
            at_us: 0,
            nano_usd: Some(log_normal(tokens * 1_500.0, 0.2) as u64),
            tokens: Some(tokens as u64),
            latency_ms: Some(log_normal(800.0, 0.4)),
        }
    };
    (0..8_192).map(|_| one()).collect()
}

fn anomalies(bench: &mut Criterion) {
    let tenants: Vec<TenantId> = (0..TENANTS).map(tenant).collect();
    let (calls, mut any) = (agent_calls(), shuffled(8_192));
    let mut call = |number: u64| Call {
        at_us: NOON * 1_000_000 + number as i64 * 900_000,
        ..calls.get(any() as usize).copied().unwrap_or_default()
    };
    let mut group = bench.benchmark_group("anomalies");
    for (name, method) in [("sigma", AnomalyMethod::Sigma), ("robust", AnomalyMethod::Robust)] {
        let settings = AnomalyDetection { enabled: true, method, ..AnomalyDetection::default() };
        let Some(watching) = Anomalies::new(settings) else { continue };
        let mut number = 0;
        // Full windows.
        for _ in 0..200 {
            number += 1;
            tenants.iter().for_each(|tenant| drop(black_box(watching.look(*tenant, &call(number)))));
        }
        let (mut next, mut calls) = (shuffled(TENANTS), 0);
        group.bench_function(format!("{name}/{TENANTS} tenants"), |b| {
            b.iter(|| {
                calls += 1;
                watching.look(tenants[next() as usize], &call(number + calls / u64::from(TENANTS)))
            });
        });
        number += calls;
        group.bench_function(format!("{name}/one tenant"), |b| {
            b.iter(|| {
                number += 1;
                watching.look(tenants[7], &call(number))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, rate, caps, prices, anomalies);
criterion_main!(benches);
