//! Promise: a new process takes the place of a running one on the same port, and no connection is refused or reset.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::{
    Call, Client, Driver, Setup, Upstream, call, chat_call, eventually, on_both_drivers, provider, weir,
};

/// Ends the load however the test ends.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// One connection after the other, each with one request; how many there were, and what went wrong.
fn keep_connecting(addr: SocketAddr, stop: &AtomicBool) -> (usize, Vec<String>) {
    let (mut count, mut faults) = (0, Vec::new());
    let request = chat_call("hello").bytes();
    while !stop.load(Ordering::SeqCst) {
        count += 1;
        let Some(mut client) = Client::try_connect(addr) else {
            faults.push("refused".to_owned());
            continue;
        };
        client.try_say(&request);
        match client.answer_to("POST") {
            Ok(answer) if answer.status == 200 => {}
            Ok(answer) => faults.push(format!("{}: {}", answer.status, answer.text())),
            Err(cut) => faults.push(cut.to_string()),
        }
    }
    (count, faults)
}

on_both_drivers! {
    fn a_takeover_under_load_refuses_and_resets_nobody(driver) {
        let provider = provider();
        let mut old = Setup::new(driver).upstream(provider.url()).unlimited().start();
        let (addr, stop) = (old.addr, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..6).map(|_| scope.spawn(|| keep_connecting(addr, &stop))).collect();
            let ending = Ending(&stop);
            // Twice: the successor has a successor, on the other driver.
            let mut now = None;
            for on in [Driver::Epoll, driver] {
                let seen = provider.requests_seen();
                eventually("the load flows", || (provider.requests_seen() >= seen + 30).then_some(()));
                let new = now.as_ref().unwrap_or(&old).successor(on);
                assert_eq!(new.addr, addr);
                let former = now.as_mut().unwrap_or(&mut old);
                assert_eq!(former.wait().code(), Some(0), "it drained and lost nothing");
                let log = new.log();
                assert!(!log.iter().any(|line| line.contains("not clean")), "nothing crashed: {log:?}");
                now = Some(new);
            }
            let seen = provider.requests_seen();
            eventually("the load flows on", || (provider.requests_seen() >= seen + 30).then_some(()));
            drop(ending);
            let (counts, faults): (Vec<_>, Vec<_>) = workers.into_iter().map(|worker| worker.join().unwrap()).unzip();
            let faults = faults.concat();
            assert!(faults.is_empty(), "{} of {:?} connections: {:?}", faults.len(), counts, &faults[..faults.len().min(5)]);
            assert_eq!(call(addr, chat_call("hello").bytes()).status, 200);
        });
    }

    fn what_the_old_process_has_begun_it_ends(driver) {
        let (upstream, gate) = Upstream::gated(|peer, gate| {
            while let Some(request) = peer.request() {
                if request.path.ends_with("slow") {
                    gate.pass();
                }
                peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        });
        let mut old = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(old.addr);
        client.say("GET /v1/files/slow HTTP/1.1\r\nHost: llm.example\r\n\r\n");
        upstream.wait_for_requests(1);
        let new = old.successor(driver);
        assert_eq!(call(new.addr, chat_call("hello").bytes()).status, 200, "the new one serves");
        assert!(old.ended().is_none(), "the old one still has a request");
        gate.open();
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection").as_deref()), (200, Some("close")));
        assert_eq!(old.wait().code(), Some(0));
        assert_eq!(call(new.addr, chat_call("hello").bytes()).status, 200);
    }
}

on_both_drivers! {
    fn a_successor_of_a_process_that_is_stopping_already_serves_the_port(driver) {
        let (upstream, gate) = Upstream::gated(|peer, gate| {
            while let Some(request) = peer.request() {
                if request.path.ends_with("slow") {
                    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbe");
                    gate.pass();
                    peer.say("gu");
                } else {
                    peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
            }
        });
        let mut old = Setup::new(driver).upstream(upstream.url()).start();
        let mut client = Client::connect(old.addr);
        client.say("GET /v1/files/slow HTTP/1.1\r\nHost: llm.example\r\n\r\n");
        client.read_until(|bytes| bytes.ends_with(b"\r\n\r\nbe"));
        old.terminate();
        eventually("it stops", || old.log().iter().any(|line| line.contains("stopping")).then_some(()));
        let mut new = old.successor(driver);
        assert_eq!(call(new.addr, chat_call("hello").bytes()).status, 200, "the new one serves");
        assert!(old.ended().is_none(), "the old one still has a stream");
        // It offers its sockets in its turn.
        let newest = new.successor(driver);
        assert_eq!(new.wait().code(), Some(0));
        gate.open();
        assert_eq!(client.rest(), b"gu");
        assert_eq!(old.wait().code(), Some(0), "nothing was cut, and no signal killed it");
        assert_eq!(call(newest.addr, chat_call("hello").bytes()).status, 200);
    }
}

on_both_drivers! {
    fn a_tenant_deleted_at_the_successor_is_not_brought_back_by_what_the_old_process_ends(driver) {
        let (upstream, gate) = Upstream::gated(|peer, gate| {
            while peer.request().is_some() {
                gate.pass();
                peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
            }
        });
        let mut old = Setup::new(driver).upstream(upstream.url()).start();
        let made = call(old.addr, Call::post("/api/v1/tenants", "{\"name\": \"leaves\"}").bytes());
        let id = made.json()["id"].as_str().unwrap().to_owned();
        let path = format!("/api/v1/tenants/{id}");
        let mut client = Client::connect(old.addr);
        client.say(chat_call("its only call").field("X-Service-Tenant-ID", &id).bytes());
        upstream.wait_for_requests(1);
        let new = old.successor(driver);
        assert_eq!(call(new.addr, Call::with_method("DELETE", &path, "").bytes()).status, 204);
        gate.open();
        assert_eq!(client.answer().status, 200);
        assert_eq!(old.wait().code(), Some(0), "what was left out is not lost");
        assert_eq!(call(new.addr, Call::get(&path).bytes()).status, 404);
        let listed = call(new.addr, Call::get("/api/v1/traces").field("X-Service-Tenant-ID", &id).bytes());
        assert_eq!(listed.json()["total"], 0);
    }
}

/// A loopback address that was free a moment ago.
fn free_addr() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: weir\r\n\r\n";

#[test]
fn the_listener_for_metrics_is_handed_over_and_no_scrape_is_refused() {
    let addr = free_addr();
    let setup = Setup::new(Driver::Auto).storage("{profile: memory}");
    let mut old = setup.server(&format!("metrics_addr: '{addr}'")).start();
    let (stop, scrapes) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let mut statuses = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                let mut client = Client::try_connect(addr).expect("the metrics port is never closed");
                client.say(SCRAPE);
                statuses.push(client.answer().status);
                scrapes.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            statuses
        });
        let ending = Ending(&stop);
        let new = old.successor(Driver::Auto);
        assert_eq!(old.wait().code(), Some(0));
        assert_eq!(call(addr, SCRAPE).status, 200, "the new one answers");
        assert_eq!(call(new.addr, "GET /livez HTTP/1.1\r\nHost: weir\r\n\r\n").status, 200);
        eventually("it scrapes on", || (scrapes.load(Ordering::SeqCst) > 10).then_some(()));
        drop(ending);
        let statuses = scraper.join().unwrap();
        assert!(statuses.len() > 10 && statuses.iter().all(|status| *status == 200), "{statuses:?}");
    });
}

/// Any local user may take an abstract name first. Needs another user's process, so it is for root to run.
#[test]
fn who_takes_the_name_of_the_meeting_place_prevents_no_takeover() {
    use std::io::BufRead as _;
    use std::os::unix::process::CommandExt as _;

    let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut gateway = Setup::new(Driver::Auto).upstream(upstream.url()).start();
    let script = format!(
        "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.bind('\\0weir-take-over-{}')\ns.listen()\nprint('taken',flush=True)\n\
         sys.stdin.read()",
        gateway.addr
    );
    let mut squatter = std::process::Command::new("python3")
        .args(["-c", &script])
        .uid(65_534)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3, started as another user by root");
    let mut said = String::new();
    std::io::BufReader::new(squatter.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "taken\n");
    let successor = gateway.successor(Driver::Auto);
    assert_eq!(gateway.wait().code(), Some(0));
    assert_eq!(call(successor.addr, chat_call("hello").bytes()).status, 200);
    // It ends with its input.
    drop(squatter.stdin.take());
    assert!(squatter.wait().unwrap().success());
}

#[test]
fn silent_scrapers_delay_nobody() {
    let addr = free_addr();
    let setup = Setup::new(Driver::Auto).storage("{profile: memory}");
    let _gateway = setup.server(&format!("metrics_addr: '{addr}'")).start();
    let silent: Vec<_> = (0..60).map(|_| Client::connect(addr)).collect();
    let start = std::time::Instant::now();
    assert_eq!(call(addr, SCRAPE).status, 200);
    let took = start.elapsed();
    // One after the other they would take two minutes.
    assert!(took < std::time::Duration::from_secs(2), "{took:?}");
    drop(silent);
}

#[test]
fn a_successor_that_does_not_come_up_changes_nothing() {
    let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut gateway = Setup::new(Driver::Auto).upstream(upstream.url()).start();
    // It gets the sockets and then finds that its database cannot be opened.
    let config = gateway.folder().join("broken.yaml");
    let database = gateway.folder().join("a-folder");
    std::fs::create_dir(&database).unwrap();
    let text = format!("listen_addr: {}\nstorage: {{database_path: '{}'}}\n", gateway.addr, database.display());
    std::fs::write(&config, text).unwrap();
    let status = weir(&["serve", "--take-over", "--config", config.to_str().unwrap()]).status().unwrap();
    assert_eq!(status.code(), Some(75));
    assert_eq!(call(gateway.addr, chat_call("hello").bytes()).status, 200);
    assert!(gateway.ended().is_none());
    // A later one that does come up takes over.
    let successor = gateway.successor(Driver::Auto);
    assert_eq!(gateway.wait().code(), Some(0));
    assert_eq!(call(successor.addr, chat_call("hello").bytes()).status, 200);
}
