//! Promise: no request can be written that the provider and the gateway read differently.
//!
//! A seeded corpus of well over 10,000 ambiguous and damaged requests goes through the real binary to a provider that
//! keeps every byte. A desync is any of these: the bytes at the provider fail the strict automaton; one of seven other
//! readings finds other requests in them; an answer reaches the client out of turn; the provider answered a request the
//! client did not get an answer for, or the other way round.
//!
//! The gate sends every case once per driver, each in one of nine ways by turns. `SMUGGLE_DELIVERIES=9` sends each in
//! every way, `SMUGGLE_SEED` and `SMUGGLE_RANDOM` choose another corpus; `.ci/full` does.

mod answer;
mod answers;
mod clients;
mod corpus;
mod data;
mod deliver;
mod differential;
mod fuzz;
mod hostile;
mod mutate;
mod ordinary;
mod pure;
mod readings;
mod recorder;
mod rng;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use corpus::{Case, corpus};
use deliver::{CONTEXTS, Context, Cut, Outcome, canary_target, cut_somewhere, deliver};
use recorder::Recorder;
use rng::Rng;

use crate::support::{Driver, Setup, on_both_drivers};

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number")))
}

fn seeded_corpus() -> Vec<Case> {
    let seed = setting("SMUGGLE_SEED", 2026);
    let cases = corpus(seed as u64, setting("SMUGGLE_RANDOM", 3000));
    assert!(cases.len() >= 10_000, "the corpus has {} cases", cases.len());
    cases
}

/// What a run has seen so far.
#[derive(Default)]
struct Tally {
    deliveries: usize,
    /// By the last status of a delivery; 0 where nothing was answered.
    statuses: BTreeMap<u16, usize>,
    /// Deliveries in which the provider answered the case itself.
    accepted: usize,
    canaries_sent: usize,
    canaries_answered: usize,
    cut: usize,
    /// How often each target was answered.
    targets: HashMap<String, isize>,
    /// Targets that may have been answered without the client seeing it.
    doubtful: Vec<String>,
    faults: Vec<String>,
}

impl Tally {
    fn add(&mut self, case: &Case, id: usize, way: (Context, Cut), outcome: Outcome) {
        self.deliveries += 1;
        *self.statuses.entry(outcome.answers.last().map_or(0, |answer| answer.status)).or_default() += 1;
        self.cut += usize::from(outcome.is_cut);
        let targets: Vec<&String> = outcome.answers.iter().filter_map(|answer| answer.target.as_ref()).collect();
        let canary = canary_target(id);
        self.canaries_sent += usize::from(way.0 == Context::Canary);
        self.canaries_answered += usize::from(targets.contains(&&canary));
        self.accepted +=
            usize::from(targets.iter().any(|target| target.contains("case-") || target.contains("early-")));
        for target in targets {
            *self.targets.entry(target.clone()).or_default() += 1;
        }
        if outcome.is_cut {
            self.doubtful.push(format!("{id:08}"));
        }
        if let Some(fault) = outcome.fault {
            let bytes = String::from_utf8_lossy(&case.bytes(id)).into_owned();
            self.faults.push(format!("{} {way:?}: {fault}\n  {bytes:?}\n  {:?}", case.family, outcome.answers));
        }
    }
}

/// Sends every case `deliveries` times, in different ways, from a few clients at once.
fn send_all(addr: std::net::SocketAddr, cases: &[Case], deliveries: usize, first_way: usize) -> Tally {
    let (next, tally) = (AtomicUsize::new(0), Mutex::new(Tally::default()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(id / deliveries) else { return };
                    let turn = (first_way + id / deliveries + id % deliveries) % 9;
                    let context = CONTEXTS[turn % 3];
                    let cut = match turn / 3 {
                        0 => Cut::OneWrite,
                        1 => cut_somewhere(case, &mut Rng::new(id as u64)),
                        _ => Cut::EachByte,
                    };
                    let outcome = deliver(addr, case, id, context, cut);
                    tally.lock().expect("no panic in here").add(case, id, (context, cut), outcome);
                }
            });
        }
    });
    tally.into_inner().expect("no panic in here")
}

fn assert_no_faults(what: &str, faults: &[String]) {
    let shown = faults.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
    assert!(faults.is_empty(), "{} {what}:\n{shown}", faults.len());
}

/// The provider has answered exactly the requests whose answers the clients have.
fn assert_balanced(tally: &mut Tally, answered: Vec<String>) {
    for target in answered {
        *tally.targets.entry(target).or_default() -= 1;
    }
    let unequal = tally.targets.iter().filter(|(target, balance)| {
        // An answer may be lost with its connection; one from nowhere may not appear.
        let may_be_lost = tally.doubtful.iter().any(|id| target.contains(id.as_str()));
        **balance != 0 && (**balance > 0 || !may_be_lost)
    });
    let unequal: Vec<String> = unequal.map(|(target, balance)| format!("{target}: {balance}")).collect();
    assert_no_faults("targets answered at one end only", &unequal);
}

on_both_drivers! {
    fn no_request_of_the_corpus_is_read_in_two_ways(driver) {
        let cases = seeded_corpus();
        let recorder = Recorder::start();
        let upstream = format!("http://{}", recorder.addr);
        let gateway = Setup::new(driver).upstream(upstream).unlimited().storage("{profile: memory}").start();
        // The two drivers get every case in different ways.
        let first_way = usize::from(driver == Driver::Epoll) * 4;
        let mut tally = send_all(gateway.addr, &cases, setting("SMUGGLE_DELIVERIES", 1), first_way);
        drop(gateway);
        let recorded = recorder.finish();
        println!(
            "{} cases, {} deliveries: {} served, last status {:?}; canaries {} of {} answered; {} cut",
            cases.len(), tally.deliveries, tally.accepted, tally.statuses, tally.canaries_answered, tally.canaries_sent,
            tally.cut
        );
        assert_no_faults("deliveries went wrong", &tally.faults);
        assert_no_faults("connections at the provider can be read in two ways", &recorded.faults);
        assert_balanced(&mut tally, recorded.answered);
        assert!(tally.accepted > cases.len() / 20, "a corpus that is always refused proves little: {}", tally.accepted);
        assert!(tally.canaries_answered > tally.canaries_sent / 20, "{} canaries", tally.canaries_answered);
        assert!(tally.cut < tally.deliveries / 20, "{} deliveries were cut", tally.cut);
    }
}

/// The oracle itself, against a provider that is not protected by anything: it has to find what is there to be found.
#[test]
fn a_gateway_that_only_copies_bytes_is_found_out() {
    let cases: Vec<Case> = seeded_corpus().into_iter().step_by(40).collect();
    let recorder = Recorder::start();
    let copier = copier(recorder.addr);
    let tally = send_all(copier, &cases, 1, 0);
    let recorded = recorder.finish();
    let faults = recorded.faults.len() + tally.faults.len();
    assert!(faults > cases.len() / 4, "only {faults} faults in {} cases", cases.len());
}

/// Copies bytes in both directions.
fn copier(upstream: std::net::SocketAddr) -> std::net::SocketAddr {
    use std::net::{Shutdown, TcpListener, TcpStream};
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let addr = listener.local_addr().expect("a bound socket");
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(upstream) else { return };
            let (client, server) = (Arc::new(client), Arc::new(server));
            for (from, to) in [(Arc::clone(&client), Arc::clone(&server)), (server, client)] {
                std::thread::spawn(move || {
                    drop(std::io::copy(&mut &*from, &mut &*to));
                    drop(to.shutdown(Shutdown::Both));
                    drop(from.shutdown(Shutdown::Both));
                });
            }
        }
    });
    addr
}
