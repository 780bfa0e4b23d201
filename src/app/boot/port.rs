//! Waiting for a port that no living process holds: the kernel lets go of the sockets of a process that was killed a little after
//! the process itself, while the ring that used them is taken down.
//!
//! Invariant: a port that a living process holds is not waited for longer than [`LIVING_LIMIT`], and the error names the process.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// How long a port may stay with a process that is gone.
const GONE_LIMIT: Duration = Duration::from_secs(10);
/// How long one that still lives may hold it: it may be about to end.
const LIVING_LIMIT: Duration = Duration::from_secs(1);
/// Between two tries.
const STEP: Duration = Duration::from_millis(2);
/// Between two looks at who holds it.
const LOOK: Duration = Duration::from_millis(250);

/// Who listens on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holder {
    /// This process.
    Process { id: u32, name: String },
    /// A process of this user, or none: not everything can be looked into.
    Hidden { user: u32 },
    /// No process.
    Gone,
}

/// A port that was not given up.
#[derive(Debug, thiserror::Error)]
enum Held {
    #[error("the port is in use by process {id} ({name})")]
    Process { id: u32, name: String },
    #[error("the port is in use, probably by a process of user {user} that this one may not look into")]
    Hidden { user: u32 },
    #[error("the port is in use by another process: nothing that can be found holds it, and it was not freed within {} s", GONE_LIMIT.as_secs())]
    Gone,
}

/// Binds as soon as the port is free.
///
/// # Errors
/// What `bind` says; of a port that stays in use, who holds it.
pub(super) fn once_free<T>(addr: SocketAddr, mut bind: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    let mut looked: Option<(Instant, Holder)> = None;
    loop {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && addr.port() != 0 => {}
            outcome => {
                if looked.is_some() && outcome.is_ok() {
                    tracing::info!(listen = %addr, waited_ms = begun.elapsed().as_millis() as u64, "the port is free");
                }
                return outcome;
            }
        }
        if looked.as_ref().is_none_or(|(at, _)| at.elapsed() >= LOOK) {
            let holder = holder(addr);
            if looked.as_ref().is_none_or(|(_, former)| *former != holder) {
                tracing::info!(listen = %addr, "waiting for the port: {}", Held::from(holder.clone()));
            }
            looked = Some((Instant::now(), holder));
        }
        let Some((_, holder)) = &looked else { continue };
        let limit = if matches!(holder, Holder::Process { .. }) { LIVING_LIMIT } else { GONE_LIMIT };
        if begun.elapsed() >= limit {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, Held::from(holder.clone())));
        }
        std::thread::sleep(STEP);
    }
}

impl From<Holder> for Held {
    fn from(holder: Holder) -> Self {
        match holder {
            Holder::Process { id, name } => Self::Process { id, name },
            Holder::Hidden { user } => Self::Hidden { user },
            Holder::Gone => Self::Gone,
        }
    }
}

/// Who listens on `addr`, as far as /proc tells.
fn holder(addr: SocketAddr) -> Holder {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let sockets: Vec<(String, u32)> =
        tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(listener(addr)).collect();
    let Some((_, user)) = sockets.first() else { return Holder::Gone };
    let mut is_hidden = false;
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if id == std::process::id() {
            continue;
        }
        let Ok(open) = fs::read_dir(process.path().join("fd")) else {
            is_hidden = true;
            continue;
        };
        let links = open.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        let holds = |link: std::path::PathBuf| sockets.iter().any(|(socket, _)| link.as_os_str() == socket.as_str());
        if links.into_iter().any(holds) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Holder::Process { id, name: name.trim().to_owned() };
        }
    }
    if is_hidden { Holder::Hidden { user: *user } } else { Holder::Gone }
}

/// Reads lines of the kernel's tables: the socket, as links name it, and its user, where it listens on `addr`.
fn listener(addr: SocketAddr) -> impl Fn(&str) -> Option<(String, u32)> {
    move |line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local, state, user, inode) = (words.get(1)?, words.get(3)?, words.get(7)?, words.get(9)?);
        let (ip, port) = local.split_once(':')?;
        let (ip, port) = (address(ip)?, u16::from_str_radix(port, 16).ok()?);
        let is_same = ip == addr.ip() || ip.is_unspecified() || addr.ip().is_unspecified();
        (*state == "0A" && port == addr.port() && is_same)
            .then(|| Some((format!("socket:[{inode}]"), user.parse().ok()?)))?
    }
}

/// An address as the kernel's tables write it: words of 32 bits in the machine's order.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let bytes: Vec<u8> = (0..4).filter_map(word).flatten().collect();
            Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_in_the_kernel_s_tables() {
        let addr: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        let line = |local: &str, state: &str| {
            format!(
                "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 100 0 0 10 0"
            )
        };
        let found = Some(("socket:[4242]".to_owned(), 1000));
        // As a little-endian machine writes it, where the tests run.
        let own = |ip: Ipv4Addr| format!("{:08X}:1F90", u32::from_ne_bytes(ip.octets()));
        assert_eq!(listener(addr)(&line(&own(Ipv4Addr::LOCALHOST), "0A")), found);
        assert_eq!(listener(addr)(&line(&own(Ipv4Addr::UNSPECIFIED), "0A")), found);
        assert_eq!(listener(addr)(&line("00000000000000000000000000000000:1F90", "0A")), found);
        assert_eq!(listener(addr)(&line(&own(Ipv4Addr::new(10, 0, 0, 1)), "0A")), None);
        assert_eq!(listener(addr)(&line(&own(Ipv4Addr::LOCALHOST), "01")), None, "a connection");
        assert_eq!(listener(addr)("nonsense"), None);
    }

    #[test]
    fn a_port_that_is_freed_is_bound_and_one_of_a_living_process_is_not_waited_for() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = held.local_addr().unwrap();
        let mut tries = 0;
        let mut held = Some(held);
        let bound = once_free(addr, || {
            tries += 1;
            if tries == 20 {
                held = None;
            }
            std::net::TcpListener::bind(addr)
        });
        assert!(bound.is_ok() && tries >= 20);
    }
}
