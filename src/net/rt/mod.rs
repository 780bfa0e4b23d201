//! The runtime seam: the only folder that imports monoio, and the only one of this crate that may contain `unsafe`
//! (`tests/tidy.rs` checks both). Everything above sees a core thread with connections, deadlines and tasks, not a driver.
//!
//! Rules that hold here and are relied on everywhere else:
//!
//! * An I/O operation in flight is never dropped and resumed: on a busy ring that loses bytes. A deadline shuts the
//!   socket down, so the operation ends by itself and is awaited to its end ([`deadline`]).
//! * A panic in a task costs that task. monoio does not catch panics, so [`spawn`] does.
//! * Nothing here knows HTTP.

mod activation;
mod call_off;
mod clock;
mod conn;
pub(crate) mod deadline;
mod descriptors;
mod driver;
mod dumps;
mod duplex;
pub mod handover;
mod heartbeat;
mod listener;
mod memory;
mod read_while_writing;
mod schedule;
#[cfg(debug_assertions)]
mod slow_poll;
#[cfg(test)]
mod tests;
mod tls;
pub mod yielding;

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;

pub use activation::passed_sockets;
pub use call_off::CallOff;
pub use clock::now_ms;
pub use conn::{Conn, Watch, connect};
pub use deadline::{Deadline, On};
pub use descriptors::raise_descriptor_limit;
pub use driver::{CoreStart, start_core};
pub use driver::{CoreThread, DriverError, DriverMode, probe};
pub use dumps::forbid_core_dumps;
pub use duplex::{Duplex, ReadHalf, WriteHalf};
pub use heartbeat::{Heartbeat, Heartbeats};
pub use listener::{Accepted, Listener, Spare, accept_any, is_out_of_descriptors};
pub use memory::{give_back_memory, resident_bytes};
pub use read_while_writing::{EarlyReader, ReadWhileWriting};
pub use schedule::{allowed_cpus, give_way, give_way_often, let_others_in, stand_back};
pub use tls::{Greeting, TlsAcceptor, TlsConn, TlsConnector};

/// Runs `task` on this core until it ends. A panic inside it is caught, reported to `on_panic` and costs only the task. In debug
/// builds a task that runs for too long without an await is reported (`slow_poll`).
#[track_caller]
pub fn spawn<F>(task: F, on_panic: impl FnOnce(&str) + 'static)
where
    F: Future<Output = ()> + 'static,
{
    #[cfg(debug_assertions)]
    let task = slow_poll::watched(task, std::panic::Location::caller());
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

/// Ends both directions of a connection that somebody else is reading or writing; that operation then ends by itself.
pub fn stop(fd: std::os::fd::RawFd) {
    conn::shutdown_fd(fd, libc::SHUT_RDWR);
}

/// Ends a connection with a reset, whoever holds descriptors of it: pending operations end, what has not arrived never will, and
/// the peer cannot take what it has for whole. (connect(2) with AF_UNSPEC dissolves it at once.)
pub fn reset(fd: std::os::fd::RawFd) {
    conn::reset_fd(fd);
}

/// Ends the reading direction of a connection: a pending read then ends with 0 bytes, writing still works.
pub fn stop_reading(fd: std::os::fd::RawFd) {
    conn::shutdown_fd(fd, libc::SHUT_RD);
}
