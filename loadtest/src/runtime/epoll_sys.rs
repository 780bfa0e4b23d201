//! The epoll calls and the timer slack, owned and typed. The only file of this crate with unsafe code.
//!
//! # Safety
//! Every call passes a file descriptor that its owner keeps open (`OwnedFd`, `BorrowedFd`) and pointers to locals or
//! slices that outlive the call; the kernel keeps none of them.
#![allow(unsafe_code, reason = "std has no epoll; fenced into this file")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::Duration;

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;

/// What happened to a registered descriptor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    /// The key it was registered with.
    pub(super) key: u64,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// No further edge will come for reading: the peer has finished or the connection broke.
    pub(super) closed: bool,
}

/// An epoll instance.
pub(super) struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
    /// Whether the kernel lacks epoll_pwait2 (before 5.11) and waits are in whole milliseconds.
    coarse: bool,
}

impl Epoll {
    /// Makes an instance, and makes this thread's waits exact: by default the kernel adds up to 50 us to each.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: takes no pointer; a refusal only leaves the waits as they were.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
        // SAFETY: takes no pointer; the result is checked before it is owned.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX], coarse: false })
    }

    /// Registers a descriptor for edges in both directions. Closing it takes it out again.
    pub(super) fn add(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        let interest = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        let mut event = libc::epoll_event { events: interest as u32, u64: key };
        // SAFETY: both descriptors are open for the call, the event is a local the kernel only reads.
        let done = unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for events, at most `limit` if given, and reports each.
    pub(super) fn wait(&mut self, limit: Option<Duration>, mut happened: impl FnMut(Event)) -> io::Result<()> {
        let count = match self.wait_raw(limit) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        for event in self.events.iter().take(count) {
            let bits = event.events;
            let any = |wanted: i32| bits & wanted as u32 != 0;
            let broken = any(libc::EPOLLERR | libc::EPOLLHUP);
            happened(Event {
                key: event.u64,
                readable: broken || any(libc::EPOLLIN | libc::EPOLLRDHUP),
                writable: broken || any(libc::EPOLLOUT),
                closed: broken || any(libc::EPOLLRDHUP),
            });
        }
        Ok(())
    }

    fn wait_raw(&mut self, limit: Option<Duration>) -> io::Result<usize> {
        if !self.coarse {
            let spec = limit.map(|limit| libc::timespec {
                tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: libc::c_long::from(limit.subsec_nanos()),
            });
            let spec_ptr = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: the buffer holds EVENTS_MAX events and is exclusively ours, the timespec is null or a local; no
            // signal mask is passed.
            let count = unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    self.fd.as_raw_fd(),
                    self.events.as_mut_ptr(),
                    EVENTS_MAX as libc::c_int,
                    spec_ptr,
                    std::ptr::null::<libc::sigset_t>(),
                    0usize,
                )
            };
            match usize::try_from(count) {
                Ok(count) => return Ok(count),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.raw_os_error() != Some(libc::ENOSYS) {
                        return Err(error);
                    }
                    self.coarse = true;
                }
            }
        }
        // Rounded up: waking early would only mean waiting again.
        let limit_ms = limit.map_or(-1, |limit| i32::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
        // SAFETY: as above.
        let count = unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), self.events.as_mut_ptr(), EVENTS_MAX as libc::c_int, limit_ms)
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}
