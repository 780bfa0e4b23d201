//! Promise: whoever reads finished spans gets every stored one at least once, over kill -9 and restarts; what cannot be stored
//! waits in a bounded queue, and each one lost is counted.

use std::collections::HashSet;
use std::time::Duration;

use crate::guests::RECEIVER;
use crate::support::{Client, Driver, Gateway, Setup, Upstream, call, chat_call, eventually, provider};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A receiver that takes its time for each answer, and what it has been sent.
fn receiver(pause: Duration) -> Upstream {
    Upstream::play(move |peer| {
        while peer.request().is_some() {
            std::thread::sleep(pause);
            peer.say(OK);
        }
    })
}

/// Trace ids in the order they came.
fn received(receiver: &Upstream) -> Vec<String> {
    let ids = |body: &[u8]| String::from_utf8(body.to_vec()).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    receiver.requests().iter().flat_map(|request| ids(&request.body)).collect()
}

/// All trace ids that the API shows; what is stored meanwhile may hide some.
fn stored(gateway: &Gateway) -> HashSet<String> {
    let page = |offset| gateway.json(&format!("/api/v1/spans?limit=100&offset={offset}"))["data"].clone();
    let id = |span: &serde_json::Value| span["trace_id"].as_str().unwrap().to_owned();
    let pages = (0..).step_by(100).map(page).map(|page| page.as_array().unwrap().iter().map(id).collect::<Vec<_>>());
    pages.take_while(|page| !page.is_empty()).flatten().collect()
}

fn ask(client: &mut Client, count: usize) {
    let request = chat_call("What is the capital of France?").bytes();
    for _ in 0..count {
        client.say(&request);
        assert_eq!(client.answer().status, 200);
    }
}

#[test]
fn a_consumer_that_calls_out_gets_every_stored_span_over_kills() {
    let (provider, receiver) = (provider(), receiver(Duration::from_millis(30)));
    let setup = Setup::new(Driver::Auto).upstream(provider.url()).unlimited().guest("webhook");
    let mut gateway = setup.env(RECEIVER, format!("{}/hook", receiver.url())).start();
    for round in 1..=3 {
        ask(&mut Client::connect(gateway.addr), 150);
        let before = receiver.requests().len();
        // In the middle: a batch is on its way, or has been taken and its cursor not kept yet.
        eventually("the receiver is called", || (receiver.requests().len() > before).then_some(()));
        gateway.kill();
        gateway.restart();
        assert!(stored(&gateway).len() > 100 * (round - 1), "round {round}");
    }
    ask(&mut Client::connect(gateway.addr), 10);
    let all = eventually("the last ones are stored", || {
        let all = stored(&gateway);
        let last = gateway.json("/api/v1/spans?limit=1");
        (last["total"].as_u64() == Some(all.len() as u64)).then_some(all)
    });
    let came = eventually("every stored span has come", || {
        let came: HashSet<String> = received(&receiver).into_iter().collect();
        all.is_subset(&came).then_some(came)
    });
    assert!(all.len() > 300 && came.len() >= all.len(), "{} stored, {} came", all.len(), came.len());
    assert_eq!(gateway.metric("service_consumer_lost_total", "webhook"), 0.0);
    assert_eq!(receiver.connections(), 4, "one connection for each process");
}

#[test]
fn with_storage_off_the_queue_is_bounded_and_losses_are_counted() {
    let (receiver, gate) = Upstream::gated(|peer, gate| {
        while peer.request().is_some() && gate.pass() {
            peer.say(OK);
        }
    });
    let provider = provider();
    let setup = Setup::new(Driver::Auto).upstream(provider.url()).unlimited().guest("webhook");
    let setup = setup.with("enable_trace_storage: false\nenable_security_analysis: false");
    let gateway = setup.env(RECEIVER, receiver.url()).start();
    let mut client = Client::connect(gateway.addr);
    let request = chat_call(&"word ".repeat(12_000)).bytes();
    let mut sent = 0;
    eventually("the queue is full", || {
        for _ in 0..50 {
            client.say(&request);
            assert_eq!(client.answer().status, 200);
            sent += 1;
        }
        (gateway.metric("service_consumer_lost_total", "reason=\"queue_full\"") > 0.0).then_some(())
    });
    (0..1_000).for_each(|_| gate.open());
    let came = || gateway.metric("service_consumer_spans_total", "webhook");
    let lost = || gateway.metric("service_consumer_lost_total", "webhook");
    eventually("each has come or is counted", || (came() + lost() == f64::from(sent)).then_some(()));
    assert_eq!(received(&receiver).len() as f64, came());
    assert!(lost() < f64::from(sent) / 2.0, "{} of {sent}", lost());
    assert_eq!(call(gateway.addr, "GET /readyz HTTP/1.1\r\nHost: weir\r\n\r\n").status, 200);
}

#[test]
fn what_waits_in_memory_at_the_end_is_delivered_or_told() {
    let provider = provider();
    for (answer, told) in [(OK, false), ("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", true)] {
        let receiver = Upstream::always(answer);
        let setup = Setup::new(Driver::Auto).upstream(provider.url()).guest("webhook");
        let setup = setup.with("enable_trace_storage: false").env(RECEIVER, receiver.url());
        let mut gateway = setup.start();
        ask(&mut Client::connect(gateway.addr), 5);
        gateway.terminate();
        gateway.wait();
        if told {
            gateway.logged("the loss", |line| line.contains("were not stored were not delivered either"));
        } else {
            assert_eq!(received(&receiver).len(), 5);
        }
    }
}
