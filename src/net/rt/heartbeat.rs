//! The pulse of each core thread: when its loop last turned, and how late it was.
//!
//! Invariant: a core writes its own cache line only, with plain stores, and at least once a second however idle it is; any
//! thread may read. Knows nothing of who watches.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::now_ms;

/// One core's pulse, alone on its cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Pulse {
    at_ms: AtomicU64,
    beats: AtomicU64,
    lag_us: AtomicU64,
    lag_us_max: AtomicU64,
}

/// The pulses of all core threads.
#[derive(Debug)]
pub struct Heartbeats(Box<[Pulse]>);

/// One core's pulse as of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Time since the loop last turned. Not more than a second or so while the core is well.
    pub age: Duration,
    /// Turns counted since the start.
    pub beats: u64,
    /// How much later than asked for the loop's timer last woke it: the time one task kept all others waiting.
    pub lag: Duration,
    /// The largest lag since the start.
    pub lag_max: Duration,
}

impl Heartbeats {
    /// Pulses for `cores` threads; each counts as having beaten now.
    pub fn new(cores: usize) -> Self {
        let pulse = || Pulse {
            at_ms: AtomicU64::new(now_ms()),
            beats: AtomicU64::new(0),
            lag_us: AtomicU64::new(0),
            lag_us_max: AtomicU64::new(0),
        };
        Self((0..cores).map(|_| pulse()).collect())
    }

    /// Notes that core `index` is alive and was `lag` late; for that core's thread alone.
    pub(super) fn beat(&self, index: usize, lag: Duration) {
        let Some(pulse) = self.0.get(index) else { return };
        let lag_us = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        pulse.lag_us.store(lag_us, Relaxed);
        if lag_us > pulse.lag_us_max.load(Relaxed) {
            pulse.lag_us_max.store(lag_us, Relaxed);
        }
        pulse.beats.store(pulse.beats.load(Relaxed).wrapping_add(1), Relaxed);
        pulse.at_ms.store(now_ms(), Relaxed);
    }

    /// Every core's pulse, in the order of the cores.
    pub fn read(&self) -> impl Iterator<Item = Heartbeat> + '_ {
        let now = now_ms();
        self.0.iter().map(move |pulse| Heartbeat {
            age: Duration::from_millis(now.saturating_sub(pulse.at_ms.load(Relaxed))),
            beats: pulse.beats.load(Relaxed),
            lag: Duration::from_micros(pulse.lag_us.load(Relaxed)),
            lag_max: Duration::from_micros(pulse.lag_us_max.load(Relaxed)),
        })
    }

    /// How long the core that has been silent longest has been silent; zero without cores.
    pub fn oldest(&self) -> Duration {
        self.read().map(|pulse| pulse.age).max().unwrap_or_default()
    }
}
