//! Promise: bodies and rates are limited as configured, and a refusal says which setting did it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::pressure::queued;
use crate::support::{Call, Client, Setup, Upstream, call, chat_call, eventually, on_both_drivers, provider};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

on_both_drivers! {
    fn a_declared_length_over_the_cap_is_refused_before_the_body(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).with("max_request_size_bytes: 1000").start();
        let mut client = Client::connect(gateway.addr);
        client.say("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n");
        let answer = client.answer();
        assert_eq!(answer.status, 413);
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "request_too_large");
        assert!(error["message"].as_str().unwrap().contains("`max_request_size_bytes`"), "{error}");
        client.assert_closed();
        assert_eq!(upstream.requests().len(), 0);
        let exact = Call::post("/v1/files", vec![b'x'; 1000]).bytes();
        assert_eq!(call(gateway.addr, exact).status, 200);
    }

    fn a_chunked_body_over_the_cap_is_refused_while_it_is_read(driver) {
        let upstream = Upstream::always(OK);
        let gateway = Setup::new(driver).upstream(upstream.url()).with("max_request_size_bytes: 100000").start();
        for path in ["/v1/chat/completions", "/v1/files"] {
            let mut client = Client::connect(gateway.addr);
            client.say(format!("POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"));
            let chunk = [b"1000\r\n".as_slice(), &[b'x'; 0x1000], b"\r\n"].concat();
            for _ in 0..25 {
                // The refusal may come before the last chunk has been taken.
                if !client.try_say(&chunk) {
                    break;
                }
            }
            let answer = client.answer();
            assert_eq!((answer.status, &answer.json()["error"]["type"]), (413, &json!("request_too_large")), "{path}");
            client.assert_closed();
        }
        assert_eq!(upstream.requests().len(), 0, "no request has been completed");
        let exact = Call::post("/v1/files", vec![b'x'; 100_000]).chunked(999);
        assert_eq!(call(gateway.addr, exact).status, 200);
    }

    fn the_rate_limit_says_how_long_to_wait(driver) {
        let provider = provider();
        let limit = "rate_limiting: {enabled: true, requests_per_second: 1, burst_size: 3}";
        let gateway = Setup::new(driver).upstream(provider.url()).with(limit).start();
        let mut client = Client::connect(gateway.addr);
        let (mut refused, begun) = (None, Instant::now());
        for _ in 0..20 {
            client.say(chat_call("hello").bytes());
            let answer = client.answer();
            if answer.status == 429 {
                refused = Some(answer);
                break;
            }
            assert_eq!(answer.status, 200);
        }
        let answer = refused.expect("a refusal within 20 requests");
        // A slow machine earns more requests while it asks.
        let (seen, earned) = (provider.requests_seen(), begun.elapsed().as_secs() + 1);
        assert!((3..=3 + earned).contains(&seen), "{seen} requests passed a burst of 3");
        let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!(wait >= 1);
        assert_eq!(answer.header("x-ratelimit-limit").as_deref(), Some("1"));
        assert_eq!(answer.header("x-ratelimit-remaining").as_deref(), Some("0"));
        assert!(answer.header("x-ratelimit-reset").is_some());
        let error = &answer.json()["error"];
        assert_eq!((&error["type"], &error["limit_requests_per_second"]), (&json!("rate_limit_exceeded"), &json!(1)));
        assert_eq!(
            (&error["tenant_id"], &error["retry_after_secs"]),
            (&json!("00000000-0000-0000-0000-000000000000"), &json!(wait))
        );
        let span = gateway.span_of(&answer);
        assert_eq!((&span["status_code"], &span["error_type"]), (&json!(429), &json!("rate_limit_exceeded")));
        assert_eq!(call(gateway.addr, Call::get("/health").bytes()).status, 200, "own paths are not limited");
    }

    fn each_tenant_has_its_own_bucket(driver) {
        let upstream = Upstream::always(OK);
        let favoured = "6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10";
        let limit = format!(
            "rate_limiting: {{requests_per_second: 1, burst_size: 2, \
            tenant_overrides: {{{favoured}: {{requests_per_second: 1, burst_size: 8}}}}}}"
        );
        let gateway = Setup::new(driver).upstream(upstream.url()).with(&limit).start();
        // How many were admitted, and how many it earned beside the burst while it asked.
        let admitted = |field: &str, value: &str| {
            let begun = Instant::now();
            let statuses = (0..14).map(|_| call(gateway.addr, chat_call("hello").field(field, value).bytes()).status);
            let admitted = statuses.filter(|status| *status == 200).count();
            (admitted, usize::try_from(begun.elapsed().as_secs()).unwrap() + 1)
        };
        let one = admitted("Authorization", "Bearer sk-one");
        let two = admitted("x-api-key", "sk-two");
        let three = admitted("X-Service-Tenant-ID", favoured);
        for ((admitted, earned), burst) in [(one, 2), (two, 2), (three, 8)] {
            assert!((burst..=burst + earned).contains(&admitted), "{admitted} of 14 with a burst of {burst}");
        }
    }

    fn a_head_over_its_bounds_is_refused(driver) {
        let gateway = Setup::new(driver).start();
        let long_line = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(9_000));
        let large_head = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(33_000));
        let many_fields = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X: y\r\n".repeat(101));
        for (request, status) in [(long_line, 414), (large_head, 431), (many_fields, 431)] {
            let mut client = Client::connect(gateway.addr);
            client.try_say(&request);
            assert_eq!(client.answer().status, status);
            client.assert_closed();
        }
    }

    fn a_client_that_dribbles_its_head_is_given_up(driver) {
        let gateway = Setup::new(driver).start();
        let mut client = Client::connect(gateway.addr);
        client.say("GET / HTTP/1.1\r\n");
        let begun = Instant::now();
        // A byte now and then does not buy more time.
        while begun.elapsed() < Duration::from_secs(8) {
            client.say("x");
            std::thread::sleep(Duration::from_millis(500));
        }
        assert_eq!(client.answer().status, 408);
        client.assert_closed();
        let took = begun.elapsed();
        assert!((Duration::from_secs(9)..Duration::from_secs(20)).contains(&took), "{took:?}");
    }

    fn max_connections_is_a_queue_and_not_a_refusal(driver) {
        let busy = Arc::new(Busy::default());
        let upstream = busy.provider(Duration::from_millis(20));
        let setup = Setup::new(driver).upstream(upstream.url()).with("max_connections: 2").unlimited();
        let gateway = setup.server("core_threads: 1").start();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(call(gateway.addr, chat_call("hello").bytes()).status, 200));
            }
        });
        assert_eq!(busy.most.load(Ordering::SeqCst), 2);
        assert!(upstream.connections() <= 2, "{} connections", upstream.connections());
    }

    fn one_connection_is_shared_by_all_cores_and_starves_none(driver) {
        let busy = Arc::new(Busy::default());
        let upstream = busy.provider(Duration::from_millis(1));
        let setup = Setup::new(driver).upstream(upstream.url()).with("max_connections: 1\ntimeout_ms: 10000").unlimited();
        let gateway = setup.server("core_threads: 2").start();
        // Kept client connections land on either core; each core in turn wants the one connection the other has just
        // put aside, and most of them want it at once.
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut client = Client::connect(gateway.addr);
                    for _ in 0..12 {
                        client.say(chat_call("hello").bytes());
                        let answer = client.answer();
                        assert_eq!(answer.status, 200, "{}", answer.text());
                    }
                });
            }
        });
        assert_eq!(busy.most.load(Ordering::SeqCst), 1, "one connection carries one request at a time");
        assert_eq!(upstream.requests().len(), 96);
    }

    fn uploads_that_dribble_do_not_keep_another_tenant_from_the_provider(driver) {
        // They dribble from the start, or when they have a place.
        for at_once in [0, 100_000] {
            let upstream = Upstream::always(OK);
            let setup = Setup::new(driver).upstream(upstream.url()).with("max_connections: 4\ntimeout_ms: 15000");
            let gateway = setup.unlimited().start();
            let mut uploads: Vec<Client> = (0..4).map(|_| Client::connect(gateway.addr)).collect();
            for upload in &mut uploads {
                upload.say("POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-a\r\nContent-Length: 5000000\r\n\r\n");
                upload.say(vec![b'x'; at_once]);
            }
            let held = if at_once == 0 { 2 } else { 4 };
            eventually("uploads hold places", || (upstream.connections() >= held).then_some(()));
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::SeqCst) {
                        for upload in &mut uploads {
                            // One that was given up takes nothing more.
                            upload.try_say([b'x'; 130]);
                        }
                        std::thread::sleep(Duration::from_millis(100));
                    }
                });
                for number in 0..6 {
                    let begun = Instant::now();
                    let answer = call(gateway.addr, chat_call("hello").field("Authorization", "Bearer sk-b").bytes());
                    let took = begun.elapsed();
                    done.fetch_or(answer.status != 200, Ordering::SeqCst);
                    assert_eq!(answer.status, 200, "call {number}, {at_once} bytes at once: {}", answer.text());
                    assert!(took < Duration::from_secs(8), "call {number}, {at_once} bytes at once: {took:?}");
                }
                done.store(true, Ordering::SeqCst);
            });
        }
    }

    fn a_tenant_with_half_of_the_places_waits_behind_the_others(driver) {
        let (upstream, gate) = Upstream::gated(|peer, gate| {
            while peer.request().is_some() {
                gate.pass();
                peer.say(OK);
            }
        });
        let setup = Setup::new(driver).upstream(upstream.url()).with("max_connections: 2");
        let gateway = setup.unlimited().server("core_threads: 1").start();
        let mut clients = Vec::new();
        for (tenant, path) in [("a", "/a1"), ("a", "/a2"), ("a", "/a3"), ("a", "/a4"), ("b", "/b1")] {
            let mut client = Client::connect(gateway.addr);
            client.say(Call::get(path).field("Authorization", &format!("Bearer sk-{tenant}")).bytes());
            clients.push(client);
            let count = clients.len() as f64;
            eventually("it has come in", || (gateway.metric("service_active_connections", "") >= count).then_some(()));
            let sent_from = clients.last().unwrap().stream.local_addr().unwrap();
            eventually("it has been read", || (queued(sent_from, gateway.addr) == 0).then_some(()));
            // The core comes to this only after what it has read before.
            gateway.metric("service_active_connections", "");
        }
        upstream.wait_for_requests(2);
        // One at a time: with both places free at once the tenant that asked first has no half.
        gate.open();
        upstream.wait_for_requests(3);
        for _ in 0..4 {
            gate.open();
        }
        for client in &mut clients {
            assert_eq!(client.answer().status, 200);
        }
        let seen: Vec<String> = upstream.requests().into_iter().map(|request| request.path).collect();
        assert_eq!(seen[2], "/b1", "{seen:?}");
    }

    fn who_waits_too_long_for_a_connection_is_told_so(driver) {
        let (upstream, gate) = Upstream::gated(|peer, gate| {
            while peer.request().is_some() {
                peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
                gate.pass();
                peer.say("{}");
            }
        });
        let setup = Setup::new(driver).upstream(upstream.url()).with("max_connections: 1\ntimeout_ms: 300");
        let gateway = setup.server("core_threads: 2").start();
        let mut first = Client::connect(gateway.addr);
        first.say(chat_call("first").bytes());
        first.read_until(|bytes| bytes.ends_with(b"\r\n\r\n"));
        let second = call(gateway.addr, chat_call("second").bytes());
        assert_eq!((second.status, &second.json()["error"]["type"]), (504, &json!("upstream_timeout")));
        let message = second.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("`max_connections`"), "{message}");
        assert_eq!(upstream.requests().len(), 1, "the provider has not seen the one that waited");
        gate.open();
        assert_eq!(first.read_until(|bytes| bytes.len() >= 2), b"{}");
        gate.open();
        assert_eq!(call(gateway.addr, chat_call("third").bytes()).status, 200, "the place is free again");
    }
}

/// Counts the requests a provider works on at the same time.
#[derive(Default)]
struct Busy {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Busy {
    /// A provider that takes `each` for a request.
    fn provider(self: &Arc<Self>, each: Duration) -> Upstream {
        let busy = Arc::clone(self);
        Upstream::play(move |peer| {
            while peer.request().is_some() {
                let now = busy.now.fetch_add(1, Ordering::SeqCst) + 1;
                busy.most.fetch_max(now, Ordering::SeqCst);
                std::thread::sleep(each);
                busy.now.fetch_sub(1, Ordering::SeqCst);
                peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
            }
        })
    }
}
