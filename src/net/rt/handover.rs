//! Listening sockets handed from one process to another over a Unix socket (SCM_RIGHTS, unix(7)).
//!
//! Invariant: a descriptor that arrives is owned at once, so none leaks; only a process of the same user, or root, is
//! answered. Knows nothing of when and why.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Most sockets handed over at once; the kernel's own limit is 253.
const SOCKETS_MAX: usize = 250;
/// Room for the control message that carries them.
const CONTROL_BYTES: usize = 1_100;

/// Control data has to be aligned like its header.
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Sends one byte and `sockets` with it.
///
/// # Errors
/// The kernel's; `InvalidInput` for none or too many.
#[allow(unsafe_code)]
pub fn send_sockets(to: &UnixStream, sockets: &[TcpListener]) -> io::Result<()> {
    if sockets.is_empty() || sockets.len() > SOCKETS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let fds: Vec<RawFd> = sockets.iter().map(TcpListener::as_raw_fd).collect();
    let bytes = u32::try_from(size_of_val(fds.as_slice())).map_err(io::Error::other)?;
    let mut control = Control([0; CONTROL_BYTES]);
    let mut byte = [1_u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    // A write of one byte into an empty queue does not wait, so it is not interrupted.
    // SAFETY: the message points at `byte` and `control`, which outlive the call. CMSG_SPACE of at most 250 descriptors fits
    // into `control`, so the first header and its data lie inside it; the copy writes exactly the data it announces.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(bytes) as usize;
        std::ptr::copy_nonoverlapping(fds.as_ptr().cast(), libc::CMSG_DATA(header), bytes as usize);
        libc::sendmsg(to.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives what [`send_sockets`] sent.
///
/// # Errors
/// The kernel's; `InvalidData` when no socket came.
#[allow(unsafe_code)]
pub fn receive_sockets(from: &UnixStream) -> io::Result<Vec<TcpListener>> {
    let mut control = Control([0; CONTROL_BYTES]);
    let mut byte = [0_u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    let mut sockets = Vec::new();
    // SAFETY: the message points at `byte` and `control`, which outlive the call, with their true sizes. The kernel fills in
    // headers that lie inside `control`; each descriptor behind a SCM_RIGHTS header is new, ours, and taken over once.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES;
        loop {
            match libc::recvmsg(from.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) {
                1.. => break,
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {
                    let error = io::Error::last_os_error();
                    // A read with a time limit is not restarted by the kernel.
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if !header.is_null() && (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
            let bytes = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            let data: *const RawFd = libc::CMSG_DATA(header).cast();
            for at in 0..bytes / size_of::<RawFd>() {
                let fd = OwnedFd::from_raw_fd(data.add(at).read_unaligned());
                sockets.push(TcpListener::from(fd));
            }
        }
    }
    if sockets.is_empty() { Err(io::ErrorKind::InvalidData.into()) } else { Ok(sockets) }
}

/// The user this process runs as.
#[allow(unsafe_code)]
pub fn user() -> u32 {
    // SAFETY: geteuid takes nothing and always succeeds.
    unsafe { libc::geteuid() }
}

/// Whether the process at the other end runs as the same user as this one, or as root.
#[allow(unsafe_code)]
pub fn is_trusted(peer: &UnixStream) -> bool {
    let mut who = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: 0 };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: getsockopt writes at most `length` bytes into `who`, and both outlive the call; geteuid always succeeds.
    unsafe {
        let got = libc::getsockopt(
            peer.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut length,
        );
        got == 0 && (who.uid == 0 || who.uid == libc::geteuid())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_socket_that_was_handed_over_takes_what_was_queued_before() {
        let (old, new) = UnixStream::pair().unwrap();
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let queued = TcpStream::connect(listeners[1].local_addr().unwrap()).unwrap();
        send_sockets(&old, &listeners).unwrap();
        drop(listeners);
        let received = receive_sockets(&new).unwrap();
        assert_eq!(received.len(), 3);
        let (accepted, peer) = received[1].accept().unwrap();
        assert_eq!(peer, queued.local_addr().unwrap());
        drop(accepted);
        assert_eq!((&queued).read(&mut [0; 1]).unwrap(), 0);
        assert!(is_trusted(&old));
    }

    #[test]
    fn a_message_without_sockets_is_an_error() {
        use std::io::Write as _;
        let (mut old, new) = UnixStream::pair().unwrap();
        old.write_all(&[1]).unwrap();
        assert_eq!(receive_sockets(&new).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(send_sockets(&old, &[]).is_err());
    }
}
