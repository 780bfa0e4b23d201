//! Listening sockets that a service manager has opened for us (sd_listen_fds(3)).
//!
//! Invariant: a descriptor is taken only after it has been seen to be a listening TCP socket, and is ours from then on. What was
//! passed stays open with the manager too. Knows nothing of what the sockets are for.

use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd as _, RawFd};

use socket2::{Domain, SockRef, Socket, Type};

/// The first descriptor that is passed.
const FIRST: RawFd = 3;
/// Most sockets that are taken.
const SOCKETS_MAX: RawFd = 250;

/// The sockets that the environment names, when it means this process; `get` reads a variable. To be called once.
///
/// # Errors
/// When a descriptor is no listening TCP socket, or their number is not usable.
pub fn passed_sockets(get: impl Fn(&str) -> Option<OsString>) -> io::Result<Vec<TcpListener>> {
    let text = |name: &str| get(name).and_then(|value| value.into_string().ok());
    if text("LISTEN_PID").and_then(|pid| pid.parse().ok()) != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    let said = text("LISTEN_FDS").unwrap_or_default();
    let Some(count) = said.parse::<RawFd>().ok().filter(|count| (0..=SOCKETS_MAX).contains(count)) else {
        return Err(io::Error::other(format!("LISTEN_FDS is `{said}`, which is no number from 0 to {SOCKETS_MAX}")));
    };
    (FIRST..FIRST + count).map(take).collect()
}

#[allow(unsafe_code)]
fn take(fd: RawFd) -> io::Result<TcpListener> {
    let unusable = |why: String| io::Error::other(format!("descriptor {fd}: {why}"));
    // SAFETY: fcntl with F_GETFD takes integers only and fails for what is no open descriptor.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(unusable(io::Error::last_os_error().to_string()));
    }
    // SAFETY: it is open, and sd_listen_fds(3) makes it ours; nothing in this process has taken it before.
    let socket = unsafe { Socket::from_raw_fd(fd) };
    let state = SockRef::from(&socket);
    let is_inet = state.domain().is_ok_and(|domain| matches!(domain, Domain::IPV4 | Domain::IPV6));
    if !is_inet || !state.r#type().is_ok_and(|kind| kind == Type::STREAM) || !state.is_listener().unwrap_or(false) {
        return Err(unusable("it is no listening TCP socket".to_owned()));
    }
    socket.set_cloexec(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(pid: &str, count: &str) -> io::Result<Vec<TcpListener>> {
        passed_sockets(|name| {
            let value = if name == "LISTEN_PID" { pid } else { count };
            (!value.is_empty()).then(|| value.into())
        })
    }

    #[test]
    fn sockets_of_another_process_are_left_alone() {
        let own = std::process::id().to_string();
        assert!(passed("", "1").unwrap().is_empty());
        assert!(passed("1", "1").unwrap().is_empty());
        assert!(passed(&own, "0").unwrap().is_empty());
        assert!(passed(&own, "many").unwrap_err().to_string().contains("`many`"));
        assert!(passed(&own, "-1").is_err());
    }
}
