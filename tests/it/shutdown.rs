//! Promise: SIGTERM lets what is in flight finish, flushes every record and exits with 0.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{
    Answer, Call, Client, Setup, Upstream, chat_body, chat_call, eventually, on_both_drivers, provider, with_stream,
};

/// What became of one request.
struct Sent {
    at: Instant,
    outcome: Result<Answer, Vec<u8>>,
}

/// Sends requests over one connection after another until `stop`, or until the gateway is gone.
fn keep_sending(addr: std::net::SocketAddr, kept_alive: bool, streamed: bool, stop: &AtomicBool) -> Vec<Sent> {
    let mut sent = Vec::new();
    let body = if streamed { with_stream(chat_body("hello")) } else { chat_body("hello") };
    let request = Call::post("/v1/chat/completions", body.to_string()).field("x-fake-delay-ms", "15").bytes();
    while !stop.load(Ordering::SeqCst) {
        let Some(mut client) = Client::try_connect(addr) else { break };
        loop {
            let at = Instant::now();
            if !client.try_say(&request) {
                sent.push(Sent { at, outcome: Err(Vec::new()) });
                break;
            }
            let outcome = client.answer_to("POST").map_err(|cut| cut.received);
            let goes_on = outcome.as_ref().is_ok_and(|answer| answer.keep_alive) && kept_alive;
            sent.push(Sent { at, outcome });
            if !goes_on || stop.load(Ordering::SeqCst) {
                break;
            }
        }
    }
    sent
}

on_both_drivers! {
    fn sigterm_under_load_loses_nothing(driver) {
        let provider = provider();
        let mut gateway = Setup::new(driver).upstream(provider.url()).unlimited().start();
        let stop = AtomicBool::new(false);
        let addr = gateway.addr;
        let (signalled_at, sent, status) = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..12)
                .map(|number| {
                    let stop = &stop;
                    scope.spawn(move || keep_sending(addr, number % 2 == 0, number % 3 == 0, stop))
                })
                .collect();
            eventually("the load flows", || (provider.requests_seen() >= 100).then_some(()));
            let signalled_at = Instant::now();
            gateway.terminate();
            let status = gateway.wait();
            stop.store(true, Ordering::SeqCst);
            let sent: Vec<Sent> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
            (signalled_at, sent, status)
        });
        assert_eq!(status.code(), Some(0), "the gateway says that nothing was cut and nothing lost");
        let mut answered = Vec::new();
        for Sent { at, outcome } in sent {
            match outcome {
                Ok(answer) => {
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    answered.push(answer.trace_id());
                }
                Err(received) => {
                    assert!(received.is_empty(), "an answer was cut: {:?}", String::from_utf8_lossy(&received));
                    // A connection may end before a new request on it has been read; a request that was there before
                    // the signal has to be answered.
                    assert!(at >= signalled_at, "a request sent {:?} before the signal was dropped", signalled_at - at);
                }
            }
        }
        gateway.restart();
        for trace_id in &answered {
            let answer = crate::support::call(gateway.addr, Call::get(&format!("/api/v1/traces/{trace_id}")).bytes());
            assert_eq!(answer.status, 200, "no trace {trace_id} of {} answered calls", answered.len());
        }
        assert!(answered.len() >= 100);
    }

    fn a_stream_in_flight_ends_as_the_provider_ends_it(driver) {
        let (upstream, gate) = Upstream::gated(|peer, gate| {
            peer.request();
            peer.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
            peer.say("9\r\ndata: a\n\n\r\n");
            gate.pass();
            peer.say("9\r\ndata: b\n\n\r\n0\r\n\r\n");
            peer.wait_closed();
        });
        let mut gateway = Setup::new(driver).upstream(upstream.url()).start();
        let idle = Client::connect(gateway.addr);
        let mut client = Client::connect(gateway.addr);
        client.say(chat_call("hello").bytes());
        client.read_until(|bytes| bytes.ends_with(b"data: a\n\n\r\n"));
        gateway.terminate();
        eventually("no new connection is taken", || std::net::TcpStream::connect(gateway.addr).is_err().then_some(()));
        client.assert_silent(Duration::from_millis(50));
        gate.open();
        assert_eq!(client.rest(), b"9\r\ndata: b\n\n\r\n0\r\n\r\n");
        assert_eq!(gateway.wait().code(), Some(0));
        drop(idle);
        gateway.restart();
        assert_eq!(gateway.json("/api/v1/traces")["total"], 1);
    }

    fn what_takes_longer_than_the_limit_is_cut(driver) {
        let upstream = Upstream::play(|peer| {
            peer.request();
            peer.wait_closed();
        });
        let setup = Setup::new(driver).upstream(upstream.url());
        let mut gateway = setup.with("shutdown: {timeout_seconds: 1}").start();
        let mut client = Client::connect(gateway.addr);
        client.say(chat_call("hello").bytes());
        upstream.wait_for_requests(1);
        let start = Instant::now();
        gateway.terminate();
        let status = gateway.wait();
        let took = start.elapsed();
        assert!((Duration::from_millis(900)..Duration::from_secs(12)).contains(&took), "{took:?}");
        assert!(status.code().is_some(), "it ended by itself: {status}");
        assert!(client.rest().is_empty());
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let upstream = Upstream::play(|peer| {
        peer.request();
        peer.wait_closed();
    });
    let mut gateway = Setup::new(crate::support::Driver::Auto).upstream(upstream.url()).start();
    let mut client = Client::connect(gateway.addr);
    client.say(chat_call("hello").bytes());
    upstream.wait_for_requests(1);
    gateway.terminate();
    eventually("the first signal is heard", || {
        gateway.log().iter().any(|line| line.contains("stopping")).then_some(())
    });
    let start = Instant::now();
    // The handler of the second signal is set up right behind the log line; until then it counts as the first.
    let status = eventually("it exits", || {
        let status = gateway.ended();
        if status.is_none() {
            gateway.terminate();
        }
        status
    });
    assert!(!status.success() && start.elapsed() < Duration::from_secs(12), "{status} after {:?}", start.elapsed());
}
