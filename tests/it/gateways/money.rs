//! Promise: whatever store is killed, no call fails, and what was spent is, to the nanodollar, what the provider's own log says: in the
//! ledger and in the record.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::{ask, end, gateways, knows_all, provider, tenant};
use crate::stores::{Three, name};
use crate::support::{Call, Client, eventually};

/// One call costs one cent.
const CALL_NANO_USD: u64 = 10_000_000;

/// `WEIR_STORE_KILLS` is how many times a store is killed.
#[test]
#[ignore = "starts three stores: .ci/full"]
fn what_is_spent_is_what_the_provider_says_whatever_store_is_killed() {
    let kills: u64 = std::env::var("WEIR_STORE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(9);
    let (three, database, provider) = (Three::new(), name(), provider());
    // A budget that is never reached, so that every call is held against it.
    let caps = "rate_limiting: {enabled: false}\ncost_caps: {enabled: true, default_budget_caps: [{window: monthly, hard_limit_usd: 1000000}]}";
    let gateways = gateways(&three, &database, 2, &provider, caps);
    knows_all(&gateways);
    let (tenant, key) = tenant(&gateways);
    let (calls, stops) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut killed = [0; 3];
    std::thread::scope(|scope| {
        for gateway in &gateways {
            let (calls, stops, key) = (&calls, &stops, &key);
            scope.spawn(move || {
                let mut client = Client::connect(gateway.addr).patient();
                while !stops.load(Ordering::Relaxed) {
                    client.say(ask(key));
                    let answer = client.answer();
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    calls.fetch_add(1, Ordering::Relaxed);
                    // So many that the record stays small, whatever the machine is.
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let mut seed = 0x3a11_u64;
        for _ in 0..kills {
            let before = calls.load(Ordering::Relaxed);
            eventually("calls flow", || (calls.load(Ordering::Relaxed) > before + 5).then_some(()));
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (which, pause) = ((seed >> 33) % 3, (seed >> 40) % 1_500);
            killed[which as usize] += 1;
            let store = [&three.analytics, &three.relational, &three.cache][which as usize];
            store.kill();
            std::thread::sleep(Duration::from_millis(pause));
            store.start();
        }
        stops.store(true, Ordering::Relaxed);
    });
    let log = provider.requests().len() as u64;
    let port = three.relational.port.to_string();
    let psql = |sql: &str| {
        let args = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-d", &database, "-Atc", sql];
        String::from_utf8(Command::new("psql").args(args).output().unwrap().stdout).unwrap().trim().parse::<u64>().ok()
    };
    let of = |gateway: &crate::support::Gateway| {
        gateway.admin(Call::get("/api/v1/stats").field("X-Service-Tenant-ID", &tenant)).json()
    };
    // The last window is the longest: the month.
    eventually("the ledger has all of it", || {
        let sums = ["spend", "spend_ledger"].map(|table| {
            psql(&format!("SELECT coalesce(sum(nano_usd), 0) FROM {table} WHERE span = 3 AND tenant = '{tenant}'"))
        });
        (sums == [Some(log * CALL_NANO_USD); 2]).then_some(())
    });
    for gateway in &gateways {
        let stats = eventually("the record has all of it", || {
            let stats = of(gateway);
            (stats["total_spans"].as_u64() >= Some(log)).then_some(stats)
        });
        let nano_usd = (stats["total_cost_usd"].as_f64().unwrap() * 1e9).round() as u64;
        assert_eq!((stats["total_spans"].as_u64(), nano_usd), (Some(log), log * CALL_NANO_USD), "{stats}");
    }
    println!(
        "{kills} kills of analytics, relational and cache {killed:?} under {log} calls: none failed, {} nanodollars in the provider's log, \
         the ledger and the record",
        log * CALL_NANO_USD
    );
    end(gateways, &database);
}
