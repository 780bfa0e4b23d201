//! Promise: a client that leaves is noticed wherever its request stands: waiting for a connection, while one is made, and while
//! its upload is held up. What it held is free at once, and its span is recorded.

use std::io::Read as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Call, Client, Driver, Gate, Gateway, Setup, Upstream, chat_call, eventually, on_both_drivers};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
/// The promise is 100 ms; machines that run tests are busy. What would be noticed otherwise takes 30 s.
const NOTICED: Duration = Duration::from_secs(5);

/// Asserts that the newest of `count` spans ends with the client's departure, `since` which little time has passed.
fn assert_recorded(gateway: &Gateway, count: u64, since: Instant) {
    let span = gateway.newest_span_of(count);
    let after = since.elapsed();
    assert_eq!((&span["error_type"], &span["status_code"]), (&json!("client_disconnected"), &json!(null)), "{span}");
    println!("recorded after {after:?}");
    assert!(after < NOTICED, "recorded after {after:?}");
}

/// State and unread bytes of the sockets from port `own`, to port `other`, as the kernel lists them (proc(5)).
fn sockets(own: Option<u16>, other: u16) -> Vec<(u8, usize)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let (own, other) = (own.map(|port| format!(":{port:04X}")), format!(":{other:04X}"));
    // The table may be long: only what looks right is taken apart.
    let lines =
        table.lines().filter(|line| line.contains(&other)).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = lines
        .filter(|line| line[2].ends_with(&other) && own.as_ref().is_none_or(|own| line[1].ends_with(own.as_str())));
    let unread = |queues: &str| usize::from_str_radix(queues.rsplit(':').next().unwrap(), 16).unwrap();
    ours.map(|line| (u8::from_str_radix(line[3], 16).unwrap(), unread(line[4]))).collect()
}

/// Bytes that have arrived at the gateway from `client` and that it has not read.
fn unread(client: &Client, gateway: &Gateway) -> usize {
    sockets(Some(gateway.addr.port()), client.stream.local_addr().unwrap().port())[0].1
}

/// Asserts that the gateway soon gives its only connection to `upstream` up, and records the departure.
fn assert_given_up(gateway: &Gateway, upstream: &Upstream, since: Instant) {
    const ESTABLISHED: u8 = 1;
    eventually("the gateway ends its connection", || {
        let own = sockets(None, upstream.addr().port());
        own.iter().all(|(state, _)| *state != ESTABLISHED).then_some(())
    });
    let after = since.elapsed();
    println!("given up after {after:?}");
    assert!(after < NOTICED, "given up after {after:?}");
    let span = gateway.newest_span_of(1);
    assert_eq!((&span["error_type"], &span["status_code"]), (&json!("client_disconnected"), &json!(null)), "{span}");
}

/// Sends until the gateway reads no more, but no more than has arrived there: an end is to be seen behind it.
fn send_until_held_up(client: &mut Client, gateway: &Gateway) {
    let mut since = None;
    while since.is_none_or(|since: Instant| since.elapsed() < Duration::from_millis(300)) {
        if unread(client, gateway) == 0 {
            client.say([b'x'; 64 * 1024]);
            since = None;
        } else {
            since = since.or_else(|| Some(Instant::now()));
        }
    }
}

/// A provider that reads the first bytes of a request and then nothing before the gate opens, at most for `PATIENCE`; when it
/// has seen the end.
fn deaf_provider() -> (Upstream, Gate, Arc<Mutex<Option<Instant>>>) {
    let (gate, ended) = (Gate::new(), Arc::new(Mutex::new(None)));
    let upstream = Upstream::play({
        let (gate, ended) = (gate.clone(), Arc::clone(&ended));
        move |peer| {
            assert!(peer.stream.read(&mut [0; 64]).is_ok());
            gate.pass();
            if peer.wait_closed().is_some() {
                *ended.lock().unwrap() = Some(Instant::now());
            }
        }
    });
    (upstream, gate, ended)
}

fn start_with_one_connection(driver: Driver, upstream: &Upstream) -> Gateway {
    Setup::new(driver).upstream(upstream.url()).with("max_connections: 1").server("core_threads: 1").start()
}

on_both_drivers! {
    fn a_client_that_leaves_the_queue_for_a_connection_is_recorded_and_never_forwarded(driver) {
        let (upstream, gate) = Upstream::gated(|peer, gate| {
            while peer.request().is_some() {
                gate.pass();
                peer.say(OK);
            }
        });
        let gateway = start_with_one_connection(driver, &upstream);
        let mut served = Client::connect(gateway.addr);
        served.say(Call::get("/first").bytes());
        upstream.wait_for_requests(1);
        let mut waiting: Vec<Client> = (0..3).map(|_| Client::connect(gateway.addr)).collect();
        waiting[0].say(chat_call("nobody waits for this").bytes());
        // An upload whose bytes lie unread while it waits.
        waiting[1].say("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n");
        waiting[1].say([b'x'; 100_000]);
        waiting[2].say(Call::get("/last").bytes());
        eventually("all four have been read", || {
            (gateway.metric("service_active_connections", "") >= 4.0).then_some(())
        });
        std::thread::sleep(Duration::from_millis(80));
        for count in 1..=2 {
            let left = Instant::now();
            drop(waiting.remove(0));
            assert_recorded(&gateway, count, left);
        }
        gate.open();
        assert_eq!(served.answer().status, 200);
        gate.open();
        assert_eq!(waiting[0].answer().status, 200, "the one behind them moves up");
        let paths: Vec<String> = upstream.requests().into_iter().map(|request| request.path).collect();
        assert_eq!(paths, ["/first", "/last"]);
    }

    fn a_client_that_leaves_while_a_connection_is_made_ends_the_attempt(driver) {
        // It takes connections and never answers a handshake.
        let closed = Arc::new(Mutex::new(None));
        let upstream = Upstream::play({
            let closed = Arc::clone(&closed);
            move |peer| {
                peer.wait_closed();
                *closed.lock().unwrap() = Some(Instant::now());
            }
        });
        let setup = Setup::new(driver).upstream(format!("https://{}", upstream.addr()));
        let gateway = setup.with("connection_timeout_ms: 20000").start();
        let mut client = Client::connect(gateway.addr);
        client.say(chat_call("hello").bytes());
        eventually("it dials", || (upstream.connections() == 1).then_some(()));
        std::thread::sleep(Duration::from_millis(80));
        let left = Instant::now();
        drop(client);
        assert_recorded(&gateway, 1, left);
        let at = eventually("the attempt ends", || *closed.lock().unwrap());
        assert!(at - left < NOTICED, "{:?}", at - left);
        assert_eq!(gateway.metric("service_upstream_connections", ""), 0.0);
    }

    fn a_client_that_leaves_while_its_upload_is_held_up_is_noticed(driver) {
        for resets in [false, true] {
            let (upstream, gate, ended) = deaf_provider();
            let setup = Setup::new(driver).upstream(upstream.url()).with("max_request_size_bytes: 400000000");
            let gateway = setup.with("enable_security_analysis: false").start();
            let mut client = Client::connect(gateway.addr);
            client.say("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 300000000\r\n\r\n");
            send_until_held_up(&mut client, &gateway);
            if resets {
                socket2::SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
            let left = Instant::now();
            drop(client);
            assert_given_up(&gateway, &upstream, left);
            assert!(ended.lock().unwrap().is_none(), "the provider has not read on its own");
            gate.open();
            eventually("the provider is told", || *ended.lock().unwrap());
        }
    }

    fn a_client_whose_held_body_is_not_taken_is_noticed_when_it_leaves(driver) {
        let (upstream, gate, ended) = deaf_provider();
        let setup = Setup::new(driver).upstream(upstream.url()).with("max_request_size_bytes: 100000000");
        // What may not be streamed is held whole before it is forwarded.
        let gateway = setup.with("enable_streaming: false\nenable_security_analysis: false").start();
        let mut client = Client::connect(gateway.addr);
        client.say("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 16777216\r\n\r\n");
        client.say(vec![b'x'; 16_777_216]);
        eventually("it dials", || (upstream.connections() == 1).then_some(()));
        // More than the kernel takes for a provider that does not read.
        std::thread::sleep(Duration::from_millis(80));
        let left = Instant::now();
        drop(client);
        assert_given_up(&gateway, &upstream, left);
        gate.open();
        eventually("the provider is told", || *ended.lock().unwrap());
    }
}
