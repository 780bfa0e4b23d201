//! Promise: a second gateway on a database file is refused by name unless a setting allows it or it takes over; where several are on one,
//! each says what they share, and what they share holds: a budget is that of all of them, and of a rate limit each grants its part.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::caps::{PRICES, answer_using, ask, caps, served};
use crate::support::{AUTH, Call, Client, Driver, Gateway, Setup, Upstream, call, chat_call, eventually, weir};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

fn storage(database: &Path, more: &str) -> String {
    format!("{{database_path: '{}'{more}}}", database.display())
}

fn shared(database: &Path) -> String {
    storage(database, ", shared_file: true")
}

/// What `/health` says of other processes on the file.
fn others(gateway: &Gateway) -> Value {
    gateway.json("/health")["storage"]["shared"].clone()
}

/// Both take calls, and know of each other.
fn know_each_other(pair: [&Gateway; 2]) {
    for gateway in pair {
        eventually("it knows of the other", || (others(gateway)["gateways"] == 2).then_some(()));
    }
}

/// Dollars that the default agent has spent, as far as this gateway knows.
fn spent(gateway: &Gateway) -> f64 {
    gateway.json("/api/v1/costs/current")["windows"][0]["current_spend_usd"].as_f64().unwrap()
}

fn knows(gateway: &Gateway, dollars: f64) {
    eventually(&format!("it knows of {dollars}"), || ((spent(gateway) - dollars).abs() < 1e-9).then_some(()));
}

/// Calls on four connections at each gateway until each knows that the budget is used up; how many were served.
fn spend_all(gateways: [&Gateway; 2], budget: f64) -> usize {
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for gateway in gateways.iter().flat_map(|gateway| std::iter::repeat_n(gateway, 4)) {
            let served = &served;
            scope.spawn(move || {
                loop {
                    match call(gateway.addr, ask("")).status {
                        200 => drop(served.fetch_add(1, Ordering::Relaxed)),
                        429 if spent(gateway) > budget - 1e-9 => break,
                        // Its part of what is left is used up until the others know.
                        429 => std::thread::sleep(Duration::from_millis(20)),
                        status => panic!("{status}"),
                    }
                }
            });
        }
    });
    served.into_inner()
}

#[test]
fn a_second_gateway_on_a_file_is_refused_by_name_unless_it_takes_over() {
    let (upstream, gate) = Upstream::gated(|peer, gate| {
        while let Some(request) = peer.request() {
            if request.path.ends_with("slow") {
                gate.pass();
            }
            peer.say(OK);
        }
    });
    let mut one = Setup::new(Driver::Auto).upstream(upstream.url()).start();
    assert_eq!(others(&one), Value::Null);
    let database = one.folder().join("weir.db");
    let config = one.folder().join("second.yaml");
    std::fs::write(&config, format!("listen_addr: 127.0.0.1:0\nstorage: {}\n", storage(&database, ""))).unwrap();
    let config = config.to_str().unwrap();
    for how in [&["serve"][..], &["serve", "--take-over"]] {
        let second = weir(&[how, &["--config", config]].concat()).output().unwrap();
        let message = String::from_utf8_lossy(&second.stderr).into_owned();
        assert_eq!(second.status.code(), Some(75), "{message}");
        let named = format!("process {}, which listens on {}", one.id(), one.addr);
        for part in ["storage.database_path", &named, "--take-over", "storage.shared_file: true"] {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
    }
    let doctor = weir(&["doctor", "--config", config]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("a gateway uses it now. A second one is refused"), "{said}");
    assert_eq!(call(one.addr, chat_call("hello").bytes()).status, 200, "nothing has happened to the first");

    let begin = |gateway: &Gateway, requests: usize| {
        let mut client = Client::connect(gateway.addr);
        client.say("GET /v1/files/slow HTTP/1.1\r\nHost: llm.example\r\n\r\n");
        upstream.wait_for_requests(requests);
        client
    };
    let mut waiting = vec![begin(&one, 2)];
    let mut two = one.successor(Driver::Auto);
    assert!(one.ended().is_none(), "it still has a call");
    let beside = others(&two);
    assert_eq!((&beside["processes"], &beside["gateways"]), (&json!(2), &json!(1)), "{beside}");
    // One that is told to stop takes no calls any more: another one may begin on its file.
    waiting.push(begin(&two, 3));
    two.terminate();
    let three = Setup::new(Driver::Auto).upstream(upstream.url()).storage(&storage(&database, "")).start();
    assert!(two.ended().is_none() && one.ended().is_none());
    assert_eq!(call(three.addr, chat_call("hello").bytes()).status, 200);
    gate.open();
    waiting.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    assert_eq!((one.wait().code(), two.wait().code()), (Some(0), Some(0)));
    eventually("it is alone", || others(&three).is_null().then_some(()));
}

#[test]
fn a_budget_is_that_of_all_gateways_on_the_file_and_a_restart_knows_it() {
    const BUDGET: f64 = 0.4;
    let upstream = Upstream::always(answer_using(1));
    let folder = tempfile::TempDir::new().unwrap();
    let on = || {
        let setup = Setup::new(Driver::Auto).upstream(upstream.url()).storage(&shared(&folder.path().join("weir.db")));
        setup.with(PRICES).with(&caps(BUDGET, BUDGET)).unlimited().start()
    };
    let (one, mut two) = (on(), on());
    two.logged("it says what is shared", |line| {
        line.contains("Shared between them are records") && line.contains("budgets")
    });
    know_each_other([&one, &two]);
    let cents = spend_all([&one, &two], BUDGET);
    println!("a budget of 40 calls, four connections at each of two gateways: {cents} calls");
    // Two of the other gateway where rounds keep their second; tests run on machines where they do not.
    assert!((40..=40 + 5 * 2).contains(&cents), "{cents} cents");
    let sum = cents as f64 / 100.0;
    for gateway in [&one, &two] {
        knows(gateway, sum);
        assert_eq!(served(gateway, "", 1), 0, "the budget is that of both");
    }
    assert_eq!(served(&one, "rich", 1), 1, "another agent's budget is its own");
    one.terminate();
    two.terminate();
    assert!(two.wait().success());
    drop(one);
    two.restart();
    assert_eq!(served(&two, "", 1), 0);
    knows(&two, sum);
}

#[test]
fn what_an_old_process_spends_while_it_drains_counts_in_the_new_one() {
    let (upstream, gate) = Upstream::gated(|peer, gate| {
        while let Some(request) = peer.request() {
            if String::from_utf8_lossy(&request.body).contains("slowly") {
                gate.pass();
            }
            peer.say(answer_using(1));
        }
    });
    let setup = Setup::new(Driver::Auto).upstream(upstream.url()).with(PRICES).with(&caps(0.03, 0.03)).unlimited();
    let mut old = setup.start();
    let mut client = Client::connect(old.addr);
    let body = json!({"model": "cent", "max_tokens": 1, "messages": [{"role": "user", "content": "slowly"}]});
    client.say(Call::post("/v1/chat/completions", body.to_string()).bytes());
    upstream.wait_for_requests(1);
    let new = old.successor(Driver::Auto);
    assert_eq!(served(&new, "", 1), 1);
    assert!(old.ended().is_none(), "it still has a call");
    gate.open();
    assert_eq!(client.answer().status, 200);
    assert_eq!(old.wait().code(), Some(0));
    knows(&new, 0.02);
    assert_eq!(served(&new, "", 2), 1, "three cents in all");
    knows(&new, 0.03);
}

#[test]
fn each_gateway_on_a_file_grants_its_part_of_a_rate_limit_and_says_what_is_not_shared() {
    // A token every two seconds for each of the two, and a burst of two each.
    const RATE: &str = "rate_limiting: {requests_per_second: 1, burst_size: 4}";
    let upstream = Upstream::always(OK);
    let folder = tempfile::TempDir::new().unwrap();
    let overlay = folder.path().join("flags.yaml");
    let on = || {
        let setup = Setup::new(Driver::Auto).upstream(upstream.url()).storage(&shared(&folder.path().join("weir.db")));
        setup.with(RATE).with(AUTH).env("SERVICE_RUNTIME_CONFIG", overlay.to_str().unwrap()).start()
    };
    let (one, mut two) = (on(), on());
    know_each_other([&one, &two]);
    for gateway in [&one, &two] {
        let not_shared = others(gateway)["not_shared"].to_string();
        for part in ["rate limits", "circuit breakers", "flags"] {
            assert!(not_shared.contains(part), "{not_shared}");
        }
    }
    let tenant = one.tenant("Acme");
    let (_, key) = one.key(&tenant, "operator");
    let ask = |gateway: &Gateway| call(gateway.addr, chat_call("hello").key(&key).bytes()).status;
    for gateway in [&one, &two] {
        eventually("its key is known", || (ask(gateway) != 401).then_some(()));
        let start = Instant::now();
        // One has passed.
        let passed = 1 + (0..6).filter(|_| ask(gateway) == 200).count();
        let flowed_in = start.elapsed().as_secs() as usize / 2 + 1;
        assert!((2..=2 + flowed_in).contains(&passed), "{passed}, {flowed_in} of which may have flowed in");
    }

    // With one overlay flags are the same, too.
    let mode = |gateway: &Gateway| gateway.admin(Call::get("/api/v1/config/features")).json();
    let before = mode(&two);
    let changed = one.admin(Call::put("/api/v1/config/features", &json!({"enforcement_mode": "flag"})));
    assert_eq!(changed.status, 200, "{}", changed.text());
    eventually("the flag holds in both", || (mode(&two) == mode(&one) && mode(&two) != before).then_some(()));

    two.terminate();
    assert!(two.wait().success());
    eventually("it knows that it is alone", || others(&one).is_null().then_some(()));
}
