//! The clock of the breakers: milliseconds that only grow, injectable so that a test can move time by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Milliseconds since some fixed moment. Cloning shares the same clock.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    Monotonic(Instant),
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's monotonic clock, beginning at 0 now.
    pub fn monotonic() -> Self {
        Self(Source::Monotonic(Instant::now()))
    }

    /// A clock that stands at 0 until the returned handle moves it.
    pub fn manual() -> (Self, ManualClock) {
        let now_ms = Arc::new(AtomicU64::new(0));
        (Self(Source::Manual(now_ms.clone())), ManualClock(now_ms))
    }

    /// Milliseconds since the clock began.
    pub fn now_ms(&self) -> u64 {
        match &self.0 {
            Source::Monotonic(start) => u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
            Source::Manual(now_ms) => now_ms.load(Ordering::Relaxed),
        }
    }
}

/// Moves a manual clock.
#[derive(Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Lets `ms` milliseconds pass.
    pub fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}
