//! Which traces have calls whose answers are out and whose records are still being made, so that whoever compares reports with the
//! record can wait for them.
//!
//! Counters by a hash of the trace: no lock, no memory that grows. Two traces with the same counter wait for one another at worst.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use weir_config::vocab::TraceId;

/// Counters; a power of two, so that a trace's is cheap to find.
const COUNTERS: usize = 1024;
/// How often one who waits looks again.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The counters.
pub(crate) struct Unsettled([AtomicU32; COUNTERS]);

/// One record that is being made; it counts until this is dropped.
pub(crate) struct Noted {
    table: Arc<Unsettled>,
    at: usize,
}

impl Default for Unsettled {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; COUNTERS])
    }
}

impl Unsettled {
    /// A record of this trace is on its way.
    pub(crate) fn note(self: &Arc<Self>, trace: TraceId) -> Noted {
        let at = place(trace);
        if let Some(counter) = self.0.get(at) {
            counter.fetch_add(1, Ordering::Release);
        }
        Noted { table: Arc::clone(self), at }
    }

    /// Waits until none of these traces has a record on its way, `within` at the most; false when one still has.
    /// Blocks: not for cores.
    pub(crate) fn wait(&self, traces: impl Iterator<Item = TraceId>, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        for trace in traces {
            let Some(counter) = self.0.get(place(trace)) else { continue };
            while counter.load(Ordering::Acquire) != 0 {
                if Instant::now() >= deadline {
                    return false;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        true
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(counter) = self.table.0.get(self.at) {
            counter.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Where a trace is counted. Trace ids are drawn by chance; those of a careless sender may differ in their first bytes only.
fn place(trace: TraceId) -> usize {
    let mixed = trace.as_bytes().iter().fold(0u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    (mixed >> 32) as usize % COUNTERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_waits_for_as_long_as_a_record_is_made_and_no_longer_than_it_may() {
        let table = Arc::new(Unsettled::default());
        let trace = TraceId::from_bytes([7; 16]);
        assert!(table.wait([trace].into_iter(), Duration::ZERO), "nothing is on its way");
        let (first, second) = (table.note(trace), table.note(trace));
        assert!(!table.wait([trace].into_iter(), Duration::from_millis(5)));
        drop(first);
        assert!(!table.wait([trace].into_iter(), Duration::ZERO), "the second one still is");
        let ends = std::thread::spawn(move || drop(second));
        assert!(table.wait([trace].into_iter(), Duration::from_secs(60)));
        ends.join().unwrap();
    }
}
