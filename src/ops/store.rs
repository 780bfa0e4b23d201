//! The watch over the store: its operations become metrics, its failed writes open the storage breaker.
//!
//! Invariant: every row of a batch counts, so a lost batch of more rows than `failure_threshold` opens the breaker at
//! once. Reads are counted but never move the breaker: a query that runs into its limit is the asker's matter. Knows the
//! store's observer interface, not its inside.

use std::sync::Arc;
use std::time::Duration;

use weir_config::settings::Storage;
use weir_storage::{BatchOutcome, Retention, Store, StoreObserver};

use super::breaker::Breakers;
use crate::meter::{Exposition, QueueWatch, Shared, Source, names};

/// Told by the store what became of each batch and read.
#[derive(Debug)]
pub struct StoreWatch {
    /// Where operations are counted.
    pub shared: Arc<Shared>,
    /// Whose storage breaker the writes move.
    pub breakers: Arc<Breakers>,
}

impl StoreObserver for StoreWatch {
    fn batch(&self, rows: usize, _took: Duration, outcome: BatchOutcome) {
        match outcome {
            BatchOutcome::Committed => {
                self.shared.storage("write_trace", true, rows as u64);
                self.breakers.storage.success();
            }
            BatchOutcome::Failed => {
                self.shared.storage("write_trace", false, rows as u64);
                self.shared.dropped("storage", "write_failed", rows as u64);
                (0..rows).for_each(|_| self.breakers.storage.failure());
            }
        }
    }

    fn read(&self, operation: &'static str, _took: Duration, ok: bool) {
        self.shared.storage(operation, ok, 1);
    }

    fn write(&self, operation: &'static str, _took: Duration, ok: bool) {
        self.shared.storage(operation, ok, 1);
        if ok {
            self.breakers.storage.success();
        } else {
            self.breakers.storage.failure();
        }
    }
}

/// The store's queue, for `/metrics` and `/health`; `capacity` is the `queue_items` the store was opened with.
pub fn queue(store: Store, capacity: u64) -> QueueWatch {
    QueueWatch { name: "storage", capacity, depth: Box::new(move || store.counters().queue_items as u64) }
}

/// How long records are kept, and how much room they may take.
pub fn retention(storage: &Storage) -> Retention {
    let days = u64::from(storage.retention_days);
    Retention {
        max_age: (days > 0).then(|| Duration::from_secs(days * 24 * 60 * 60)),
        max_bytes: (storage.max_bytes > 0).then_some(storage.max_bytes),
    }
}

/// Shows spans the store dropped one by one: no store could take them, or their tenant was deleted after they began.
pub struct PoisonedSpans(pub Store);

impl Source for PoisonedSpans {
    fn collect(&self, out: &mut Exposition) {
        let counters = self.0.counters();
        for (reason, dropped) in
            [("poison", counters.dropped_poison), ("tenant_deleted", counters.dropped_tenant_deleted)]
        {
            out.counter(names::DROPPED, &[("queue", "storage"), ("reason", reason)], dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_config::Settings;

    use super::*;
    use crate::meter::Registry;
    use crate::ops::breaker::State;
    use crate::ops::clock::Clock;

    #[test]
    fn a_lost_batch_opens_the_breaker_and_a_committed_one_closes_it() {
        let registry = Registry::new();
        let breakers = Arc::new(Breakers::new(Settings::default().circuit_breaker, &Clock::monotonic()));
        let watch = StoreWatch { shared: registry.shared().clone(), breakers: breakers.clone() };
        let took = Duration::from_millis(1);

        watch.batch(10, took, BatchOutcome::Failed);
        assert_eq!(breakers.storage.state(), State::Closed);
        watch.batch(1, took, BatchOutcome::Failed);
        assert_eq!(breakers.storage.state(), State::Open);
        watch.batch(512, took, BatchOutcome::Committed);
        assert_eq!(breakers.storage.state(), State::Closed);
        watch.read("read_traces", took, false);
        watch.write("write_key", took, true);
        for _ in 0..11 {
            watch.write("write_key", took, false);
        }
        assert_eq!(breakers.storage.state(), State::Open, "writes that are waited for count, too");
        assert_eq!(breakers.security.state(), State::Closed);

        let text = registry.render().unwrap();
        for line in [
            r#"service_storage_operations_total{operation="write_trace",status="success"} 512"#,
            r#"service_storage_operations_total{operation="write_trace",status="error"} 11"#,
            r#"service_storage_operations_total{operation="read_traces",status="error"} 1"#,
            r#"service_storage_operations_total{operation="write_key",status="success"} 1"#,
            r#"service_storage_operations_total{operation="write_key",status="error"} 11"#,
            r#"service_dropped_total{queue="storage",reason="write_failed"} 11"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
