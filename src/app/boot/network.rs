//! The network runtime: where consumers of finished spans work and calls of our own go out. Beside the cores, which never wait,
//! and beside the control thread, whose `/health` and API must not wait for either.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use weir_storage::SpanLog;

use crate::feed::{Feed, Running};
use crate::meter::Registry;
use crate::rt;

/// Threads: with two, one task that blocks where it should not leaves the others a thread.
const THREADS: usize = 2;
/// Threads at most for what blocks: name lookups, and reading the store for consumers.
const BLOCKING_THREADS_MAX: usize = 16;

/// The consumers of finished spans, and the runtime they work on.
pub(super) struct Consumers {
    running: Running,
    runtime: Runtime,
}

impl Consumers {
    /// Starts the runtime and them. Blocks until the store knows where each begins.
    pub(super) fn start(feed: Feed, store: &Arc<dyn SpanLog>, registry: &Registry) -> io::Result<Self> {
        let runtime = start()?;
        let running = feed.start(store, runtime.handle().clone(), registry);
        Ok(Self { running, runtime })
    }

    /// Where they work.
    pub(super) fn runtime(&self) -> &Handle {
        self.runtime.handle()
    }

    /// See [`Running::go`].
    pub(super) fn go(&self) {
        self.running.go();
    }

    /// See [`Running::hand_over`].
    pub(super) fn hand_over(&self) -> impl Fn() + Send + 'static {
        self.running.hand_over()
    }

    /// See [`Running::stop`]; then waits for what is said last of all.
    pub(super) fn stop(self, within: Duration, last: impl Future<Output = ()>) {
        self.running.stop(within);
        self.runtime.block_on(last);
        // A name lookup that hangs must not hold up the exit.
        self.runtime.shutdown_background();
    }
}

fn start() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("weir-network")
        // Calls on their way to the provider go first.
        .on_thread_start(rt::give_way)
        .enable_all()
        .build()
}
