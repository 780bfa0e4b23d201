//! Promise: a member that fares badly is left alone and comes back by itself, no call goes past one that is well, and a client that
//! gives up waiting counts against the member that kept it waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Call, Client, Gateway, Upstream, call, chat_call, eventually, on_both_drivers};
use crate::upstreams::{attempts, attempts_of, group_with, ok, pairs, served_by, status};

/// A provider that answers 500 while it is told to.
struct Moody {
    upstream: Upstream,
    fails: Arc<AtomicBool>,
}

impl Moody {
    fn new(name: &'static str) -> Self {
        let fails = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&fails);
        let upstream = Upstream::play(move |peer| {
            while peer.request().is_some() {
                let answer =
                    if now.load(Ordering::SeqCst) { status("500 Internal Server Error", "") } else { ok(name) };
                peer.say(answer);
            }
        });
        Self { upstream, fails }
    }

    fn fails(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }
}

fn members(names: &[&'static str]) -> (Vec<Moody>, Vec<String>) {
    let members: Vec<Moody> = names.iter().map(|name| Moody::new(name)).collect();
    let urls = members.iter().map(|member| member.upstream.url()).collect();
    (members, urls)
}

/// A `POST` to the group.
fn post(gateway: &Gateway) -> String {
    served_by(&call(gateway.addr, chat_call("hello").bytes()))
}

/// A `GET` to the group.
fn get(gateway: &Gateway) -> String {
    served_by(&call(gateway.addr, Call::get("/upstream/all/v1/models").bytes()))
}

/// A member is put aside by calls to its own address.
fn put_aside(gateway: &Gateway, name: &str, member: &Moody) {
    member.fails(true);
    for _ in 0..2 {
        let path = format!("/upstream/{name}/v1/chat/completions");
        assert_eq!(call(gateway.addr, Call::post(&path, "{}").bytes()).status, 500);
    }
    assert_eq!(healthy(gateway, name), 0.0);
    member.fails(false);
}

fn healthy(gateway: &Gateway, name: &str) -> f64 {
    gateway.metric("service_upstream_healthy", &format!("{{upstream=\"{name}\"}}"))
}

on_both_drivers! {
    fn a_spare_whose_time_is_up_serves_when_the_first_member_fails(driver) {
        for names in [&["m0", "m1"][..], &["m0", "m1", "m2"]] {
            let (all, urls) = members(names);
            let gateway = group_with(driver, &urls, ("", ""), "{eject_after: 2, eject_ms: 200}");
            for (name, member) in names.iter().zip(&all).skip(1) {
                put_aside(&gateway, name, member);
            }
            // Their time passes, and no call tries a spare that stands behind a member that is well.
            std::thread::sleep(Duration::from_millis(250));
            assert_eq!([post(&gateway), post(&gateway)], ["m0", "m0"]);
            assert_eq!(healthy(&gateway, "m1"), 0.0);
            all[0].fails(true);
            // Two failures put it aside; nothing was risked for them but the calls that it failed.
            assert_eq!([post(&gateway), post(&gateway)], ["500", "500"], "{names:?}");
            assert_eq!(post(&gateway), "m1", "{names:?}");
            assert_eq!(healthy(&gateway, "m1"), 1.0);
        }
    }

    fn with_one_of_three_well_each_call_goes_there(driver) {
        let (all, urls) = members(&["m0", "m1", "m2"]);
        let gateway = group_with(driver, &urls, ("", ""), "{eject_after: 2, eject_ms: 300000}");
        put_aside(&gateway, "m2", &all[2]);
        all[0].fails(true);
        assert_eq!([post(&gateway), post(&gateway)], ["500", "500"]);
        let asked = all[0].upstream.requests().len();
        for number in 0..10 {
            assert_eq!([post(&gateway), get(&gateway)], ["m1", "m1"], "{number}");
        }
        assert_eq!(all[0].upstream.requests().len(), asked);
    }

    fn a_call_that_may_be_sent_on_tries_a_spare_behind_a_member_that_is_well(driver) {
        let (all, urls) = members(&["m0", "m1"]);
        let gateway = group_with(driver, &urls, ("", ""), "{eject_after: 2, eject_ms: 200}");
        put_aside(&gateway, "m1", &all[1]);
        std::thread::sleep(Duration::from_millis(250));
        all[1].fails(true);
        let tried = call(gateway.addr, Call::get("/upstream/all/v1/models").bytes());
        assert_eq!(served_by(&tried), "m0", "whatever the spare says");
        assert_eq!(attempts(&gateway, &tried), pairs(&[("m1", "500"), ("m0", "200")]));
        assert_eq!(get(&gateway), "m0");
        all[1].fails(false);
        // Twice as long now.
        eventually("the spare is tried again, and is well", || (get(&gateway) == "m1").then_some(()));
        assert_eq!((healthy(&gateway, "m1"), get(&gateway)), (1.0, "m0".to_owned()));
    }

    fn a_client_that_gives_up_waiting_counts_against_a_member_that_hangs(driver) {
        let hung = Upstream::play(|peer| { peer.request(); peer.wait_closed(); });
        let well = Upstream::always(ok("m1"));
        let health = "{eject_after: 2, eject_ms: 300000, left_after_ms: 200}";
        let gateway = group_with(driver, &[hung.url(), well.url()], (", timeout_ms: 30000", ""), health);
        let given_up = || gateway.metric("service_upstream_calls_total", "{upstream=\"m0\",outcome=\"given_up\"}");
        let leave = |asked: usize, after_ms: u64| {
            let mut client = Client::connect(gateway.addr);
            client.say(chat_call(&format!("the client leaves after {after_ms} ms")).bytes());
            hung.wait_for_requests(asked);
            std::thread::sleep(Duration::from_millis(after_ms));
            drop(client);
        };
        // At once: that may be anybody's whim.
        leave(1, 0);
        gateway.newest_span_of(1);
        assert_eq!(given_up(), 0.0);
        for number in 1..=2 {
            leave(1 + number, 300);
            eventually("the call counts", || (given_up() == number as f64).then_some(()));
        }
        assert_eq!(healthy(&gateway, "m0"), 0.0);
        assert_eq!([post(&gateway), post(&gateway)], ["m1", "m1"]);
        // The record of who gave up says whom it waited for.
        gateway.newest_span_of(5);
        let page = gateway.json("/api/v1/spans?limit=10&error_type=client_disconnected");
        let spans = page["data"].as_array().unwrap();
        let tries = |span: &serde_json::Value| attempts_of(&gateway.json(&format!("/api/v1/spans/{}", span["span_id"].as_str().unwrap())));
        assert_eq!(spans.iter().filter(|span| tries(span) == pairs(&[("m0", "given_up")])).count(), 2, "{page}");
        assert_eq!(spans.len(), 3, "{page}");
    }

    fn a_call_asked_again_on_a_fresh_connection_says_so(driver) {
        let once = Upstream::play(|peer| {
            if peer.request().is_some() {
                peer.say(ok("m0"));
            }
            // The second request on this connection finds it closed.
            if peer.request().is_some() {
                peer.close();
            }
        });
        let gateway = group_with(driver, &[once.url()], ("", ""), "{eject_after: 2}");
        // On one connection, and so on one core, which keeps its own connections to the provider.
        let mut client = Client::connect(gateway.addr);
        let mut get = || {
            client.say(Call::get("/upstream/all/v1/models").bytes());
            client.answer()
        };
        assert_eq!(served_by(&get()), "m0");
        let again = get();
        assert_eq!(served_by(&again), "m0");
        assert_eq!(attempts(&gateway, &again), pairs(&[("m0", "connection_closed"), ("m0", "200")]));
    }
}
