//! Notifies the service manager (sd_notify(3)): ready, stopping, still alive.
//!
//! The protocol is a datagram of `NAME=value` lines to the unix socket `NOTIFY_SOCKET` names. The watchdog is fed only
//! while every core's loop turns, so that a core that hangs gets the process restarted. Invariant: a manager that does
//! not listen costs nothing but a line in the log. Knows the cores by the age of their oldest pulse only.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A core counts as alive for at least this long after its last pulse: an idle one beats once a second.
const PULSE_LIMIT_LEAST: Duration = Duration::from_secs(3);

/// The connection to the service manager; does nothing where there is none.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// What the environment names; `get` reads a variable.
    pub fn from_env(get: impl Fn(&str) -> Option<OsString>) -> Self {
        let Some(name) = get("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self { socket: None, watchdog: None };
        };
        let socket = connect(&name).inspect_err(|error| {
            tracing::warn!(socket = %name.display(), %error, "NOTIFY_SOCKET cannot be used: the service manager will not learn that Weir is ready");
        });
        let number = |name| get(name).and_then(|text| text.to_str()?.parse::<u64>().ok());
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|usec| is_ours && *usec > 0).map(Duration::from_micros);
        Self { socket: socket.ok(), watchdog }
    }

    /// Everything is served; `status` is shown by the manager.
    pub fn ready(&self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// The process is on its way out.
    pub fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=finishing what is in flight\n");
    }

    /// Feeds the manager's watchdog, if it has one, until the guard goes; `oldest` is the age of the oldest pulse of all
    /// cores.
    ///
    /// # Errors
    /// The system's, when no thread can be had.
    pub fn watch(&self, oldest: impl Fn() -> Duration + Send + 'static) -> io::Result<Option<Watchdog>> {
        let (Some(socket), Some(interval)) = (&self.socket, self.watchdog) else { return Ok(None) };
        let socket = socket.try_clone()?;
        let (stop, stopped) = sync_channel::<()>(1);
        let limit = interval.max(PULSE_LIMIT_LEAST);
        // Twice in an interval, as sd_watchdog_enabled(3) advises.
        let pause = interval / 2;
        let feed = move || {
            let mut silent = false;
            loop {
                let age = oldest();
                if age < limit {
                    silent = false;
                    send(&socket, "WATCHDOG=1\n");
                } else if !std::mem::replace(&mut silent, true) {
                    let silent_ms = age.as_millis();
                    tracing::error!(
                        silent_ms,
                        "a core thread hangs: the service manager's watchdog gets no more notifications"
                    );
                }
                if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("weir-watchdog".to_owned()).spawn(feed)?;
        Ok(Some(Watchdog { stop, thread: Some(thread) }))
    }

    fn say(&self, text: &str) {
        if let Some(socket) = &self.socket {
            send(socket, text);
        }
    }
}

/// Feeds the watchdog while it lives.
#[derive(Debug)]
pub struct Watchdog {
    stop: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.stop.try_send(()).is_err();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join().is_err();
        }
    }
}

/// A path, or with `@` in front a name in the abstract namespace.
fn connect(name: &OsString) -> io::Result<UnixDatagram> {
    let addr = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&addr)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn send(socket: &UnixDatagram, text: &str) {
    if let Err(error) = socket.send(text.as_bytes()) {
        tracing::warn!(%error, "the service manager could not be notified");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn heard(manager: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    #[test]
    fn the_watchdog_is_fed_only_while_every_core_turns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let notifier = Notifier::from_env(|name| match name {
            "NOTIFY_SOCKET" => Some(path.clone().into()),
            "WATCHDOG_USEC" => Some("20000".into()),
            _ => None,
        });
        let age_ms = Arc::new(AtomicU64::new(0));
        let asked = Arc::clone(&age_ms);
        let watchdog = notifier.watch(move || Duration::from_millis(asked.load(Ordering::SeqCst))).unwrap();
        assert_eq!(heard(&manager).as_deref(), Some("WATCHDOG=1\n"));
        assert_eq!(heard(&manager).as_deref(), Some("WATCHDOG=1\n"));
        age_ms.store(60_000, Ordering::SeqCst);
        manager.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        // What was on its way may still arrive; then it is quiet.
        let late = std::iter::from_fn(|| heard(&manager)).take(100).count();
        assert!(late < 100, "{late} feedings for a core that hangs");
        age_ms.store(0, Ordering::SeqCst);
        manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(heard(&manager).as_deref(), Some("WATCHDOG=1\n"));
        drop(watchdog);
    }

    #[test]
    fn a_watchdog_of_another_process_is_not_fed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let _manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::from_env(|name| match name {
            "NOTIFY_SOCKET" => Some(path.clone().into()),
            "WATCHDOG_USEC" => Some("20000".into()),
            "WATCHDOG_PID" => Some("1".into()),
            _ => None,
        });
        assert!(notifier.watch(|| Duration::ZERO).unwrap().is_none());
    }
}
