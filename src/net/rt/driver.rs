//! Which ring the kernel gives us, and the body of a pinned core thread.
//!
//! The ring's flags decide whether io_uring beats epoll at all (see PERF.md): SINGLE_ISSUER|DEFER_TASKRUN first, then
//! COOP_TASKRUN, then a plain ring, then epoll, each tried for real, because seccomp profiles, memlock limits and old
//! kernels refuse at different points.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;

use io_uring::{IoUring, Probe, opcode};
use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};
use weir_config::settings::IoDriver;

use super::Heartbeats;
use super::schedule::{pin_to, take_short_turns};

/// How a core thread waits for the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverMode {
    /// io_uring with SINGLE_ISSUER and DEFER_TASKRUN (Linux 6.1).
    UringDeferTaskrun,
    /// io_uring with COOP_TASKRUN (Linux 5.19).
    UringCoopTaskrun,
    /// io_uring without flags.
    UringPlain,
    /// epoll.
    Epoll,
}

impl DriverMode {
    /// `io_uring` or `epoll`, as `/health` shows it.
    pub const fn driver(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::UringDeferTaskrun | Self::UringCoopTaskrun | Self::UringPlain => "io_uring",
        }
    }

    /// The ring's flags in words.
    pub const fn ring(self) -> &'static str {
        match self {
            Self::UringDeferTaskrun => "single_issuer|defer_taskrun",
            Self::UringCoopTaskrun => "coop_taskrun",
            Self::UringPlain => "plain",
            Self::Epoll => "none",
        }
    }
}

impl fmt::Display for DriverMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epoll => f.write_str("epoll"),
            ring => write!(f, "io_uring ({})", ring.ring()),
        }
    }
}

/// io_uring was demanded and is not to be had.
#[derive(Debug, thiserror::Error)]
#[error(
    "server.io_driver asks for io_uring, but this kernel refuses it: {0}; set server.io_driver to `auto` or `epoll`, or \
     allow io_uring_setup in the container's seccomp profile and raise the memlock limit"
)]
pub struct DriverError(#[source] io::Error);

/// Entries of one core's submission queue.
const RING_ENTRIES: u32 = 1024;

/// Finds the best mode the kernel grants by building a ring of each kind and asking for the operations we need; a mode that
/// is asked for by name is the only one tried.
///
/// # Errors
/// When `wanted` is a ring and no such ring can be built.
pub fn probe(wanted: IoDriver) -> Result<DriverMode, DriverError> {
    let modes: &[DriverMode] = match wanted {
        IoDriver::Epoll => return Ok(DriverMode::Epoll),
        IoDriver::Auto | IoDriver::IoUring => {
            &[DriverMode::UringDeferTaskrun, DriverMode::UringCoopTaskrun, DriverMode::UringPlain]
        }
        IoDriver::IoUringCoop => &[DriverMode::UringCoopTaskrun],
        IoDriver::IoUringPlain => &[DriverMode::UringPlain],
    };
    let mut refusal = io::Error::from(io::ErrorKind::Unsupported);
    for mode in modes {
        match try_ring(*mode) {
            Ok(()) => return Ok(*mode),
            Err(error) => refusal = error,
        }
    }
    match wanted {
        IoDriver::IoUring | IoDriver::IoUringCoop | IoDriver::IoUringPlain => Err(DriverError(refusal)),
        IoDriver::Auto | IoDriver::Epoll => Ok(DriverMode::Epoll),
    }
}

fn ring_builder(mode: DriverMode) -> io_uring::Builder {
    let mut builder = IoUring::builder();
    match mode {
        DriverMode::UringDeferTaskrun => {
            builder.setup_single_issuer().setup_defer_taskrun();
        }
        DriverMode::UringCoopTaskrun => {
            builder.setup_coop_taskrun();
        }
        DriverMode::UringPlain | DriverMode::Epoll => {}
    }
    builder
}

fn try_ring(mode: DriverMode) -> io::Result<()> {
    let ring = ring_builder(mode).build(RING_ENTRIES)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Accept::CODE,
        opcode::Connect::CODE,
        opcode::Recv::CODE,
        opcode::Send::CODE,
        opcode::PollAdd::CODE,
        opcode::AsyncCancel::CODE,
        opcode::Close::CODE,
    ];
    if needed.iter().all(|code| probe.is_supported(*code)) {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's io_uring lacks an operation Weir needs"))
    }
}

/// A running core thread.
pub struct CoreThread {
    handle: JoinHandle<io::Result<()>>,
}

impl CoreThread {
    /// Waits for the thread's end.
    ///
    /// # Errors
    /// What the thread ended with: its runtime could not be built, or it panicked outside a task.
    pub fn join(self) -> io::Result<()> {
        self.handle.join().unwrap_or_else(|_| Err(io::Error::other("a core thread panicked")))
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}

/// A future that lives on one core.
pub(crate) type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// What a core thread is started with.
pub struct CoreStart {
    /// Its number; the first is 0.
    pub index: usize,
    /// The CPU it is pinned to, if any.
    pub cpu: Option<usize>,
    /// Where its loop shows that it turns.
    pub pulse: Arc<Heartbeats>,
}

/// Starts a core thread and runs the future `body` makes until it ends.
///
/// # Errors
/// When the thread cannot be created.
pub fn start_core(
    start: CoreStart,
    mode: DriverMode,
    body: impl FnOnce() -> LocalFuture + Send + 'static,
) -> io::Result<CoreThread> {
    let handle = std::thread::Builder::new().name(format!("weir-core-{}", start.index)).spawn(move || {
        if let Some(cpu) = start.cpu {
            pin_to(cpu);
        }
        take_short_turns();
        run(&start, mode, body)
    })?;
    Ok(CoreThread { handle })
}

fn run(start: &CoreStart, mode: DriverMode, body: impl FnOnce() -> LocalFuture) -> io::Result<()> {
    let (pulse, index) = (Arc::clone(&start.pulse), start.index);
    let with_deadlines = move || async move {
        let sweeping = super::deadline::sweep(move |lag| pulse.beat(index, lag));
        #[cfg(debug_assertions)]
        let sweeping = super::slow_poll::watched(sweeping, std::panic::Location::caller());
        drop(monoio::spawn(sweeping));
        body().await;
    };
    if mode == DriverMode::Epoll {
        RuntimeBuilder::<LegacyDriver>::new().enable_timer().build()?.block_on(with_deadlines());
    } else {
        RuntimeBuilder::<IoUringDriver>::new()
            .with_entries(RING_ENTRIES)
            .uring_builder(ring_builder(mode))
            .enable_timer()
            .build()?
            .block_on(with_deadlines());
    }
    Ok(())
}
