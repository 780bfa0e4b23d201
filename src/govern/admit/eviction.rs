//! How cores ask each other to end idle client connections: one number and a wake for each.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;

/// What one core says and is asked, alone on its cache lines.
#[repr(align(128))]
#[derive(Default)]
struct OfCore {
    /// Connections that wait for a request.
    waiting: AtomicUsize,
    /// How many of them other cores ask to be ended.
    wanted: AtomicUsize,
    waker: AtomicWaker,
}

/// Where cores show how many idle connections they have, and ask each other to end some.
pub struct Evictions(Box<[OfCore]>);

impl Evictions {
    /// For `cores` cores.
    pub fn new(cores: usize) -> Self {
        Self((0..cores).map(|_| OfCore::default()).collect())
    }

    /// Core number `core` has so many.
    pub fn show(&self, core: usize, waiting: usize) {
        if let Some(core) = self.0.get(core) {
            core.waiting.store(waiting, Ordering::Relaxed);
        }
    }

    /// Asks the core with the most idle connections, other than `asking`, to end one. False when there is none.
    pub fn ask(&self, asking: usize) -> bool {
        let spare =
            |core: &OfCore| core.waiting.load(Ordering::Relaxed).saturating_sub(core.wanted.load(Ordering::Relaxed));
        let others = self.0.iter().enumerate().filter(|(core, _)| *core != asking).map(|(_, core)| core);
        let Some(core) = others.max_by_key(|core| spare(core)).filter(|core| spare(core) > 0) else { return false };
        core.wanted.fetch_add(1, Ordering::Release);
        core.waker.wake();
        true
    }

    /// Waits until other cores want idle connections of `core` ended; how many.
    pub async fn asked(&self, core: usize) -> usize {
        let Some(core) = self.0.get(core) else { return std::future::pending().await };
        poll_fn(|context| {
            core.waker.register(context.waker());
            match core.wanted.swap(0, Ordering::Acquire) {
                0 => Poll::Pending,
                wanted => Poll::Ready(wanted),
            }
        })
        .await
    }
}
