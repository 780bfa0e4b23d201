//! Promise: the service manager hears when the gateway is ready, that it lives, and that it stops.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::support::{Driver, PATIENCE, Setup};

/// The next datagram that holds `part`.
fn hear(manager: &UnixDatagram, part: &str) -> String {
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    loop {
        let mut bytes = [0; 512];
        let length = manager.recv(&mut bytes).unwrap_or_else(|error| panic!("`{part}` was not said: {error}"));
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if text.lines().any(|line| line.starts_with(part)) {
            return text;
        }
    }
}

#[test]
fn ready_alive_and_stopping_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify.socket");
    let manager = UnixDatagram::bind(&path).unwrap();
    let started = std::time::Instant::now();
    let mut gateway = Setup::new(Driver::Auto)
        .env("NOTIFY_SOCKET", path.display().to_string())
        .env("WATCHDOG_USEC", "200000")
        .start();
    let ready = hear(&manager, "READY=1");
    assert!(ready.contains(&format!("STATUS=serving on {}", gateway.addr)), "{ready}");
    for _ in 0..3 {
        hear(&manager, "WATCHDOG=1");
    }
    assert!(started.elapsed() >= Duration::from_millis(200), "twice in an interval, not all at once");
    gateway.terminate();
    hear(&manager, "STOPPING=1");
    assert!(gateway.wait().success());
}

#[test]
fn a_manager_that_is_not_there_stops_nothing() {
    let gateway = Setup::new(Driver::Auto).env("NOTIFY_SOCKET", "/nowhere/notify.socket").start();
    assert_eq!(gateway.json("/health")["status"], "healthy");
    gateway.logged("the socket is named", |line| line.contains("NOTIFY_SOCKET"));
}
