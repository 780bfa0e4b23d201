//! The runtime seam: the only folder that imports monoio, and (with the inference kernels) the only one that may
//! contain `unsafe`. Everything above sees a core thread with connections, deadlines and tasks, not a driver.
//!
//! Rules that hold here and are relied on everywhere else:
//!
//! * An I/O operation in flight is never dropped and resumed: on a busy ring that loses bytes. A deadline shuts the
//!   socket down, so the operation ends by itself and is awaited to its end ([`deadline`]).
//! * A panic in a task costs that task. monoio does not catch panics, so [`spawn`] does.
//! * Nothing here knows HTTP.

mod activation;
mod call_off;
mod conn;
pub(crate) mod deadline;
mod descriptors;
mod driver;
mod dumps;
mod duplex;
pub(crate) mod handover;
mod heartbeat;
mod listen;
mod listener;
mod memory;
mod schedule;
#[cfg(test)]
mod tests;
mod tls;

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;

pub(crate) use activation::passed_sockets;
pub use call_off::CallOff;
pub use conn::{Conn, Watch, connect};
pub use deadline::{Deadline, On};
pub(crate) use descriptors::raise_descriptor_limit;
pub(crate) use driver::{CoreSeat, start_core};
pub use driver::{CoreThread, DriverError, DriverMode, probe};
pub(crate) use dumps::forbid_core_dumps;
pub use duplex::{Duplex, ReadHalf, WriteHalf};
pub use heartbeat::{Heartbeat, Heartbeats};
pub use listen::{Ear, Listen};
pub use listener::{Accepted, Listener, Spare, accept_any, is_out_of_descriptors};
pub(crate) use memory::{give_back_memory, resident_bytes};
pub(crate) use schedule::{allowed_cpus, give_way, stand_back};
pub use tls::{Greeting, TlsAcceptor, TlsConn, TlsConnector};

/// Runs `task` on this core until it ends. A panic inside it is caught, reported to `on_panic` and costs only the task.
pub fn spawn<F>(task: F, on_panic: impl FnOnce(&str) + 'static)
where
    F: Future<Output = ()> + 'static,
{
    drop(monoio::spawn(async move {
        if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
            on_panic(panic_text(panic.as_ref()));
        }
    }));
}

/// The text of a panic payload.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic without a message")
}

/// Waits for `duration`; timers of a core have a resolution of one millisecond.
pub async fn sleep(duration: Duration) {
    monoio::time::sleep(duration).await;
}

/// Waits for `future` at most `limit`. Only for futures that lose nothing when dropped (channels, timers): never for a
/// read or a write on a [`Conn`], those take a [`Deadline`].
pub async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    monoio::time::timeout(limit, future).await.ok()
}

/// Milliseconds of the system's monotonic clock, the same on every core. Read from the kernel's coarse clock: it advances
/// every few milliseconds and costs a fifth of the exact one, which is what deadlines need, several times per request.
#[allow(unsafe_code)]
pub fn now_ms() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime fills the timespec it is given and keeps no pointer to it.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut at) };
    let seconds = u64::try_from(at.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000).saturating_add(u64::try_from(at.tv_nsec).unwrap_or(0) / 1_000_000)
}

/// Ends both directions of a connection that somebody else is reading or writing; that operation then ends by itself.
pub(crate) fn stop(fd: std::os::fd::RawFd) {
    conn::shutdown_fd(fd, libc::SHUT_RDWR);
}

/// Ends a connection with a reset, whoever holds descriptors of it: pending operations end, what has not arrived never will, and
/// the peer cannot take what it has for whole. (connect(2) with AF_UNSPEC dissolves it at once.)
pub(crate) fn reset(fd: std::os::fd::RawFd) {
    conn::reset_fd(fd);
}

/// Ends the reading direction of a connection: a pending read then ends with 0 bytes, writing still works.
pub(crate) fn stop_reading(fd: std::os::fd::RawFd) {
    conn::shutdown_fd(fd, libc::SHUT_RD);
}
