//! Promise: a gateway whose stores are not there yet waits for them, says so, and serves nobody before it knows who may do what; where a
//! store stays away it ends with the code that a supervisor tries again after, and names it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::{ask, free_addr, provider, storage};
use crate::stores::{Running, Three, name};
use crate::support::{AUTH, Call, Client, Driver, Setup, Upstream, call, eventually, weir};

/// What a temporary failure ends with, after sysexits.h.
const EXIT_TEMPORARY: i32 = 75;

/// A gateway that may not be ready yet; killed with this.
pub(super) struct Starting(pub(super) Child);

impl Drop for Starting {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A configuration on these stores that waits so long for them.
fn settings(folder: &Path, addr: SocketAddr, provider: &Upstream, stores: &str, wait_ms: u32) -> String {
    let stores = stores.replace("startup_timeout_ms: 60000", &format!("startup_timeout_ms: {wait_ms}"));
    let text = format!(
        "listen_addr: {addr}\nupstream_url: {}\nstorage: {stores}\nserver: {{io_driver: epoll}}\n{AUTH}\n",
        provider.url()
    );
    let path = folder.join("service.yaml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// What it answers, once it does.
pub(super) fn answer(addr: SocketAddr, request: &[u8]) -> Option<(u16, String)> {
    let mut client = Client::try_connect(addr)?;
    client.try_say(request).then(|| client.answer_to("GET").ok()).flatten().map(|answer| (answer.status, answer.text()))
}

#[test]
#[ignore = "starts three stores: .ci/full"]
fn a_start_waits_for_each_of_the_stores_and_says_so() {
    let (three, provider) = (Three::new(), provider());
    let stores: [(&str, &Running); 3] =
        [("analytics", &three.analytics), ("relational", &three.relational), ("cache", &three.cache)];
    for (which, store) in stores {
        let (folder, database) = (TempDir::new().unwrap(), name());
        let addr = free_addr();
        let block = storage(&three, &database, folder.path().join("journal.db").to_str().unwrap());
        store.kill();
        let config = settings(folder.path(), addr, &provider, &block, 60_000);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = weir(&["--config", &config]).stderr(log).stdout(Stdio::null()).spawn().unwrap();
        let mut process = Starting(process);
        let health = Call::get("/health").bytes();
        let (status, text) = eventually("it answers", || answer(addr, &health));
        assert!(status == 503 && text.contains("\"starting\""), "{which}: {status} {text}");
        assert_eq!(answer(addr, &Call::get("/livez").bytes()).unwrap().0, 200, "{which}: it lives");
        assert_eq!(answer(addr, &Call::get("/readyz").bytes()).unwrap().0, 503, "{which}: it is not ready");
        let before = provider.requests().len();
        let (status, _) = answer(addr, &ask("svc_whoever")).unwrap();
        assert_eq!((status, provider.requests().len()), (503, before), "{which}: nothing passes unchecked");
        let said = || std::fs::read_to_string(folder.path().join("log")).unwrap();
        eventually("the log says what it waits for", || {
            said().lines().any(|line| line.contains("waiting for a store") && line.contains(which)).then_some(())
        });
        assert!(process.0.try_wait().unwrap().is_none(), "{which}: it waits\n{}", said());
        store.start();
        eventually("it is ready", || answer(addr, &Call::get("/readyz").bytes()).filter(|(status, _)| *status == 200));
        assert_eq!(answer(addr, &ask("svc_whoever")).unwrap().0, 401, "{which}");
        drop(process);

        store.kill();
        let config = settings(folder.path(), addr, &provider, &block, 500);
        let ended = weir(&["--config", &config]).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(EXIT_TEMPORARY), "{which}: {said}");
        let named = if which == "cache" { "the cache: ".to_owned() } else { format!("the {which} store") };
        assert!(said.contains(&named) && said.contains("storage.startup_timeout_ms"), "{which}: {said}");
        store.start();
    }
}

#[test]
#[ignore = "starts three stores: .ci/full"]
fn keys_that_could_not_be_looked_after_for_too_long_are_refused_until_they_can_be() {
    let (three, database, provider, folder) = (Three::new(), name(), provider(), TempDir::new().unwrap());
    let block = storage(&three, &database, folder.path().join("journal.db").to_str().unwrap());
    let auth = AUTH.replace('}', ", max_stale_seconds: 2}");
    let gateway = Setup::new(Driver::Epoll).upstream(provider.url()).storage(&block).with(&auth).start();
    let tenant = gateway.tenant("acme");
    let (_, key) = gateway.key(&tenant, "operator");
    let asked = || call(gateway.addr, ask(&key));
    eventually("the key is known", || (asked().status == 200).then_some(()));
    let away = Instant::now();
    three.relational.kill();
    let refused = eventually("it is refused", || Some(asked()).filter(|answer| answer.status != 200));
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("auth.max_stale_seconds"), "{}", refused.text());
    // The last look may have been a moment before.
    assert!(away.elapsed() > Duration::from_secs(1), "it was taken as it was last read for that long");
    assert_eq!(gateway.admin(Call::get("/api/v1/stats")).status, 200, "the bootstrap key stands in the settings");
    assert_eq!(gateway.admin(Call::get("/health")).json()["status"], "degraded");
    three.relational.start();
    eventually("it is taken again", || (asked().status == 200).then_some(()));
}
