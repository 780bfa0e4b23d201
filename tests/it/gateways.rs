//! Promise: several gateways on the stores of the profile `production` are one: a limit and a budget are those of all of them, and who is
//! denied at one is denied at all.
//!
//! Each test starts its stores, so they run in .ci/full.

mod composition;
mod exports;
mod money;
mod starts;
mod tenants;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::batches;
use crate::ingest::{INGEST, chat, post, request, span};
use crate::stores::{Three, name, shared};
use crate::support::{
    AUTH, BOOTSTRAP, Call, Client, Driver, Gateway, PATIENCE, Setup, Upstream, call, eventually, weir,
};

/// Each call of `cent` costs one cent: one output token at 10,000 dollars per million, nothing for the input.
const PRICES: &str = "cost_estimation: {custom_models: {cent: {input_per_million: 0, output_per_million: 10000}}}";

fn provider() -> Upstream {
    let body = r#"{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json";
    Upstream::always(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

/// An address that nobody listens on.
fn free_addr() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The `storage` block of a gateway on databases of this name, with its journal.
pub(crate) fn storage(three: &Three, database: &str, journal: &str) -> String {
    // The databases are made, where they are not there.
    three.named(database);
    let [analytics, relational, cache] = three.urls(database);
    format!(
        "{{profile: production, database_path: '{journal}', analytics_url: '{analytics}', analytics_database: {database}, \
         relational_url: '{relational}', cache_url: '{cache}', startup_timeout_ms: 60000}}"
    )
}

/// Gateways on the same stores.
fn gateways(three: &Three, database: &str, many: usize, provider: &Upstream, more: &str) -> Vec<Gateway> {
    let one = |at: usize| {
        let journal = std::env::temp_dir().join(format!("{database}-{at}.db"));
        let storage = storage(three, database, journal.to_str().unwrap());
        let key = std::env::temp_dir().join(format!("{database}-{at}.key"));
        let auth = AUTH.replace('}', &format!(", token_key_file: '{}'}}", key.display()));
        Setup::new(Driver::Epoll).upstream(provider.url()).storage(&storage).with(&auth).with(PRICES).with(more).start()
    };
    (0..many).map(one).collect()
}

/// Ends the gateways and takes their journals away.
fn end(gateways: Vec<Gateway>, database: &str) {
    for mut gateway in gateways {
        gateway.terminate();
        gateway.wait();
    }
    for file in std::fs::read_dir(std::env::temp_dir()).unwrap().filter_map(Result::ok) {
        if file.file_name().to_string_lossy().starts_with(database) {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
}

fn ask(key: &str) -> Vec<u8> {
    let body = json!({"model": "cent", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]});
    Call::post("/v1/chat/completions", body.to_string()).key(key).bytes()
}

/// Calls on kept connections, `each` at every gateway, until `goes_on` says no of how many were made and served; how many were served.
fn served(gateways: &[Gateway], each: usize, request: &[u8], goes_on: impl Fn(usize, usize) -> bool + Sync) -> usize {
    let (served, made) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for gateway in gateways.iter().flat_map(|gateway| std::iter::repeat_n(gateway, each)) {
            let (served, made, goes_on) = (&served, &made, &goes_on);
            scope.spawn(move || {
                let mut client = Client::connect(gateway.addr).patient();
                while goes_on(made.fetch_add(1, Ordering::Relaxed), served.load(Ordering::Relaxed)) {
                    client.say(request);
                    match client.answer().status {
                        200 => drop(served.fetch_add(1, Ordering::Relaxed)),
                        429 => {}
                        status => panic!("{status}"),
                    }
                }
            });
        }
    });
    served.into_inner()
}

#[test]
#[ignore = "starts three stores: .ci/full"]
fn results_of_a_batch_are_charged_once_by_all_gateways_on_the_stores() {
    let (three, database, provider) = (&Three::new(), name(), batches::provider());
    let pair = gateways(three, &database, 2, &provider, batches::CAPS);
    let tenant = pair[0].tenant("acme");
    let (_, key) = pair[0].key(&tenant, "operator");
    // No call to the provider: the fetches are all that is recorded.
    let asks = Call::get("/api/v1/spans?limit=1").key(&key).bytes();
    for gateway in &pair {
        eventually("the key is known", || (call(gateway.addr, asks.clone()).status != 401).then_some(()));
    }
    let pair: [Gateway; 2] = pair.try_into().unwrap_or_else(|_| panic!("two"));
    end(batches::are_charged_once(pair, Some(&key)).into(), &database);
}

/// The sum of a metric's samples whose labels contain `labels`; metrics are shown to whoever has a key here.
fn metric(gateway: &Gateway, name: &str, labels: &str) -> f64 {
    let text = gateway.admin(Call::get("/metrics")).text();
    let samples = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let own = series.strip_prefix(name).filter(|rest| rest.is_empty() || rest.starts_with('{'))?;
        own.contains(labels).then(|| value.parse::<f64>().ok())?
    });
    samples.sum()
}

fn knows_all(gateways: &[Gateway]) {
    eventually("all know of all", || {
        gateways.iter().all(|of| metric(of, "service_gateways", "") == gateways.len() as f64).then_some(())
    });
}

/// A tenant with a key that all gateways know.
fn tenant(gateways: &[Gateway]) -> (String, String) {
    let tenant = gateways[0].tenant("acme");
    let (_, key) = gateways[0].key(&tenant, "operator");
    for gateway in gateways {
        eventually("the key is known", || (call(gateway.addr, ask(&key)).status != 401).then_some(()));
    }
    (tenant, key)
}

#[test]
#[ignore = "starts three stores: .ci/full"]
fn three_gateways_have_one_limit_with_the_cache_and_without() {
    const RATE: f64 = 100.0;
    const BURST: f64 = 50.0;
    let (three, database, provider) = (&Three::new(), name(), provider());
    let more = "rate_limiting: {requests_per_second: 100, burst_size: 50}";
    let gateways = gateways(three, &database, 3, &provider, more);
    knows_all(&gateways);
    let (_, key) = tenant(&gateways);
    let for_seconds = |seconds: u64| {
        let began = Instant::now();
        let many = served(&gateways, 2, &ask(&key), |_, _| began.elapsed() < Duration::from_secs(seconds));
        (many as f64, began.elapsed().as_secs_f64())
    };
    let (many, seconds) = for_seconds(5);
    let most = RATE * seconds + BURST + 5.0 * (RATE * 0.15).ceil();
    println!("three gateways, 100/s and a burst of 50: {many} in {seconds:.2} s, at most {most:.0}");
    assert!(many <= most, "{many} in {seconds} s, at most {most}");
    assert!(many >= 0.7 * RATE * seconds, "{many} in {seconds} s: the limit is used");

    three.cache.kill();
    for gateway in &gateways {
        eventually("it grants its own part", || {
            (metric(gateway, "service_rate_limits_apart", "") > 0.0
                && metric(gateway, "service_store_away", "store=\"cache\"") > 0.0
                && gateway.admin(Call::get("/health")).json()["status"] == "degraded")
                .then_some(())
        });
    }
    let (many, seconds) = for_seconds(5);
    let most = RATE * seconds + BURST;
    println!("the same without the cache: {many} in {seconds:.2} s, at most {most:.0}");
    assert!(many <= most, "{many} in {seconds} s without the cache, at most {most}");
    assert!(many >= 0.5 * RATE * seconds, "{many} in {seconds} s without the cache: nobody is shut out");
    assert!(gateways.iter().all(|of| metric(of, "service_rate_limits_apart_decisions_total", "") > 0.0));
    three.cache.start();
    for gateway in &gateways {
        eventually("it shares again", || (metric(gateway, "service_rate_limits_apart", "") == 0.0).then_some(()));
    }
    end(gateways, &database);
}

#[test]
#[ignore = "starts three stores: .ci/full"]
fn a_budget_is_that_of_all_gateways_and_what_the_command_line_shows_too() {
    let (three, database, provider) = (shared(), name(), provider());
    let caps = "rate_limiting: {enabled: false}\ncost_caps: {enabled: true, default_budget_caps: [{window: monthly, hard_limit_usd: 10}]}";
    let gateways = gateways(three, &database, 3, &provider, caps);
    knows_all(&gateways);
    let (_, key) = tenant(&gateways);
    let before = provider.requests().len();
    // 1,000 calls fit. Whoever meets the end of what is left waits until the others have told.
    let (is_over, last) = (AtomicBool::new(false), parking_lot::Mutex::new((0, Instant::now())));
    let many = served(&gateways, 20, &ask(&key), |made, served| {
        let mut last = last.lock();
        if last.0 != served {
            *last = (served, Instant::now());
        }
        // Several rounds of telling without a call that was served.
        is_over.fetch_or(made > 2_000 && last.1.elapsed() > Duration::from_secs(4), Ordering::Relaxed);
        !is_over.load(Ordering::Relaxed)
    });
    let cents = many + before;
    println!("a budget of 1,000 cents, 60 connections at three gateways: {cents} cents");
    // Two calls of each other gateway, however late rounds come.
    assert!(cents <= 1_000 + 2 * 2, "{cents} cents");
    assert!(cents >= 990, "{cents} cents: the budget is used");

    // What all of them recorded, without a gateway.
    let config = gateways[1].folder().join("service.yaml");
    let config = config.to_str().unwrap();
    let shown = eventually("the spans are shipped", || {
        let output = weir(&["traces", "list", "--config", config, "--tenant", "all", "--json", "--limit", "3"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap().lines().count();
        (lines == 3).then_some(lines)
    });
    assert_eq!(shown, 3);
    let tail = weir(&["traces", "tail", "--config", config]).output().unwrap();
    assert!(!tail.status.success() && String::from_utf8_lossy(&tail.stderr).contains("no one order"), "{tail:?}");
    end(gateways, &database);
}

/// `WEIR_REVOCATIONS` is how many keys are revoked, `WEIR_REVOCATION_MS` how long each may take: on a machine that does nothing else.
#[test]
#[ignore = "starts three stores: .ci/full"]
fn a_key_that_is_revoked_at_one_gateway_is_refused_at_the_other_within_a_second() {
    let trials = std::env::var("WEIR_REVOCATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let (three, database, provider) = (shared(), name(), provider());
    let gateways = gateways(three, &database, 2, &provider, "rate_limiting: {enabled: false}");
    let [a, b] = &gateways[..] else { panic!("two") };
    let tenant = a.tenant("acme");
    let port = three.relational.port.to_string();
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'weir' AND datname = current_database()";
    let psql = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-d", &database, "-Atc", cut];
    let mut took: Vec<Duration> = (0..trials)
        .map(|trial| {
            let (id, key) = a.key(&tenant, "operator");
            eventually("the other one knows it", || (call(b.addr, ask(&key)).status == 200).then_some(()));
            if trial % 5 == 4 {
                // Every connection of both gateways ends, whatever it is doing.
                let done = std::process::Command::new("psql").args(psql).output().unwrap();
                assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            }
            assert_eq!(
                call(a.addr, Call::delete(&format!("/api/v1/auth/keys/{id}")).key(BOOTSTRAP).bytes()).status / 100,
                2
            );
            let revoked = Instant::now();
            loop {
                let mut client = Client::connect(b.addr);
                client.say(ask(&key));
                match client.answer_to("POST") {
                    Ok(answer) if answer.status == 401 => return revoked.elapsed(),
                    Ok(answer) => assert!(revoked.elapsed() < PATIENCE, "{}", answer.status),
                    // Whoever is shut out while its request is read loses the connection.
                    Err(_) => {}
                }
            }
        })
        .collect();
    took.sort();
    let late = took.iter().filter(|took| **took > Duration::from_secs(1)).count();
    println!(
        "{trials} keys revoked at one gateway, every fifth after all connections were cut, refused at the other: median {:?}, 99 of 100 \
         within {:?}, longest {:?}, {late} later than 1 s",
        took[trials / 2],
        took[trials * 99 / 100],
        took[trials - 1]
    );
    let most = std::env::var("WEIR_REVOCATION_MS").ok().and_then(|text| text.parse().ok());
    let most = most.map_or(PATIENCE, Duration::from_millis);
    assert!(took[trials - 1] <= most, "longest {:?}", took[trials - 1]);
    end(gateways, &database);
}

#[test]
#[ignore = "starts three stores: .ci/full"]
fn a_gateway_goes_on_in_the_stores_with_what_it_had_in_a_file() {
    let (three, database, provider) = (shared(), name(), provider());
    let mut lite = Setup::new(Driver::Epoll).upstream(provider.url()).with(AUTH).with(PRICES).start();
    let tenant = lite.tenant("acme");
    let (_, key) = lite.key(&tenant, "operator");
    let traces: Vec<String> = (0..5).map(|_| call(lite.addr, ask(&key)).trace_id()).collect();
    let of = |gateway: &Gateway, trace: &str| {
        let read = Call::get(&format!("/api/v1/traces/{trace}")).field("X-Service-Tenant-ID", &tenant);
        gateway.admin(read)
    };
    for trace in &traces {
        eventually("it is recorded", || (of(&lite, trace).status == 200).then_some(()));
    }
    let before = of(&lite, &traces[2]).json();
    let (file, keys) = (lite.folder().join("weir.db"), lite.folder().to_owned());
    let config = keys.join("production.yaml");
    let journal = keys.join("journal.db");
    let stores = storage(three, &database, journal.to_str().unwrap());
    std::fs::write(&config, format!("listen_addr: 127.0.0.1:0\nstorage: {stores}\n{AUTH}\n")).unwrap();
    let copy = || {
        let (config, file) = (config.to_str().unwrap(), file.to_str().unwrap());
        weir(&["migrate", "--to", "production", "--from", file, "--config", config]).output().unwrap()
    };
    let used = copy();
    assert!(!used.status.success() && String::from_utf8_lossy(&used.stderr).contains("a gateway uses it"), "{used:?}");
    lite.terminate();
    lite.wait();
    let copied = copy();
    let said = String::from_utf8_lossy(&copied.stdout).into_owned();
    assert!(copied.status.success(), "{said}{}", String::from_utf8_lossy(&copied.stderr));
    assert!(said.contains("5 in the file, 5 in the analytics store") && said.contains("0.050000000 USD"), "{said}");

    let setup = Setup::new(Driver::Epoll).upstream(provider.url()).storage(&stores).with(AUTH).with(PRICES);
    let mut production = setup.start();
    assert_eq!(call(production.addr, ask(&key)).status, 200, "the same key");
    assert_eq!(of(&production, &traces[2]).json(), before, "the same record");
    production.terminate();
    production.wait();
}

/// Reports of ten spans each, one after another, until told to stop; what is not answered is sent again, as senders do. How many were
/// answered.
fn report(addr: &parking_lot::Mutex<SocketAddr>, answered: &AtomicUsize, stops: &AtomicBool) {
    let mut client = None;
    while !stops.load(Ordering::Relaxed) {
        let first = 1 + 10 * answered.load(Ordering::Relaxed) as u64;
        let one = |number: u64| {
            let mut span = span(&format!("{number:016x}"), &chat("hello", "hi"));
            span["traceId"] = json!(format!("{number:032x}"));
            span
        };
        let body = request(&(first..first + 10).map(one).collect()).to_string();
        let mut at = client.take().or_else(|| Client::try_connect(*addr.lock()));
        let answer = at
            .as_mut()
            .and_then(|client| client.try_say(post(body).bytes()).then(|| client.answer_to("POST").ok()).flatten());
        match answer {
            Some(answer) if answer.status == 200 => {
                client = at;
                answered.fetch_add(1, Ordering::Relaxed);
            }
            // Starting, or too much at once.
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// `WEIR_STORE_KILLS` is how many times the gateway or one of its stores is killed.
#[test]
#[ignore = "starts three stores: .ci/full"]
fn what_was_answered_is_there_once_whatever_is_killed() {
    let kills: u64 = std::env::var("WEIR_STORE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let (three, database, provider) = (Three::new(), name(), provider());
    let journal = std::env::temp_dir().join(format!("{database}-0.db"));
    let storage = storage(&three, &database, journal.to_str().unwrap());
    let setup = Setup::new(Driver::Epoll).upstream(provider.url()).storage(&storage).unlimited().with(INGEST);
    let mut gateway = setup.start();
    let (answered, stops) = (AtomicUsize::new(0), AtomicBool::new(false));
    let addr = parking_lot::Mutex::new(gateway.addr);
    let mut killed = [0; 4];
    std::thread::scope(|scope| {
        scope.spawn(|| report(&addr, &answered, &stops));
        let mut seed = 0x5eed_u64;
        for _ in 0..kills {
            let before = answered.load(Ordering::Relaxed);
            eventually("a report is answered", || (answered.load(Ordering::Relaxed) > before).then_some(()));
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (which, pause) = ((seed >> 33) % 4, (seed >> 40) % 400);
            killed[which as usize] += 1;
            std::thread::sleep(Duration::from_millis(pause / 20));
            match [&three.analytics, &three.relational, &three.cache].get(which as usize) {
                Some(store) => {
                    store.kill();
                    std::thread::sleep(Duration::from_millis(pause));
                    store.start();
                }
                None => {
                    gateway.kill();
                    gateway.restart();
                    *addr.lock() = gateway.addr;
                }
            }
        }
        stops.store(true, Ordering::Relaxed);
    });
    let spans = 10 * answered.load(Ordering::Relaxed);
    let stats = eventually("all are there", || {
        let stats = gateway.json("/api/v1/stats");
        (stats["total_spans"].as_u64() >= Some(spans as u64)).then_some(stats)
    });
    let usd = stats["total_cost_usd"].as_f64().unwrap();
    println!(
        "{kills} kills of analytics, relational, cache, gateway {killed:?}: {spans} spans answered, {} there, {usd} USD",
        stats["total_spans"]
    );
    // The last report may have been taken and its answer lost with the end of the test.
    let there = stats["total_spans"].as_u64().unwrap();
    assert!([spans as u64, spans as u64 + 10].contains(&there), "{stats}");
    assert_eq!((usd * 1e9).round() as u64, there * 3_000_000, "money of each span once");
    assert_eq!(stats["total_traces"], there);
    end(vec![gateway], &database);
}
