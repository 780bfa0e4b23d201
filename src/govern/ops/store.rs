//! The watch over the store: its operations become metrics, its failed writes open the storage breaker.
//!
//! Invariant: every row of a batch counts, so a lost batch of more rows than `failure_threshold` opens the breaker at
//! once. Reads are counted but never move the breaker: a query that runs into its limit is the asker's matter. Knows the
//! store's observer interface, not its inside.

use std::sync::Arc;
use std::time::Duration;

use weir_config::Settings;
use weir_config::settings::{BreakerScope, EnforcementAction, EnforcementMode, Storage, StorageProfile};
use weir_storage::{BatchOutcome, Retention, Space, Store, StoreObserver, room_beside};

use super::breaker::Breakers;
use super::health::SpaceReport;
use crate::meter::{Exposition, QueueGauge, Shared, Source, names};

/// Told by the store what became of each batch and read.
#[derive(Debug)]
pub struct StoreHealth {
    /// Where operations are counted.
    pub shared: Arc<Shared>,
    /// The breakers; writes move the one for storage.
    pub breakers: Arc<Breakers>,
}

impl StoreObserver for StoreHealth {
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
pub fn queue(store: Store, capacity: u64) -> QueueGauge {
    QueueGauge { name: "storage", capacity, depth: Box::new(move || store.counters().queue_items as u64) }
}

/// Of the free room beside the database this part is taken where `storage.max_bytes` is not set.
const PART_OF_FREE: (u64, u64) = (4, 5);

/// How long records are kept, and how much room they may take. Without a word about it the database may grow into four fifths
/// of what is free now: a disk that is full stops more than records.
pub fn retention(storage: &Storage) -> Retention {
    let age = |days: u32| (days > 0).then(|| Duration::from_secs(u64::from(days) * 24 * 60 * 60));
    let from_room = || {
        let room = room_beside(&storage.database_path).filter(|_| storage.profile != StorageProfile::Memory)?;
        Some(room.held.saturating_add(room.free / PART_OF_FREE.1 * PART_OF_FREE.0))
    };
    let max_bytes = storage.max_bytes.map_or_else(from_room, Some);
    Retention {
        max_age: age(storage.retention_days),
        text_max_age: age(storage.text_retention_days),
        max_bytes: max_bytes.filter(|bytes| *bytes > 0),
        tenant_max_bytes: Some(storage.tenant_max_bytes).filter(|bytes| *bytes > 0),
    }
}

/// The room the store has, as `/health` shows it.
pub fn space(store: &Store) -> SpaceReport {
    let Space { max_bytes, tenant_max_bytes, removed_for_database, removed_for_tenant, removing } = store.space();
    SpaceReport { max_bytes, tenant_max_bytes, removed_spans: removed_for_database + removed_for_tenant, removing }
}

/// A storage failure must not switch analysis off where a rule blocks: whoever fills the disk would open the gate for all. The
/// specification's default does; this says so. `None` where nothing blocks, or each breaker keeps to its own part.
pub fn breaker_advice(settings: &Settings) -> Option<&'static str> {
    let blocks = settings.enforcement.mode == EnforcementMode::Block
        || settings.enforcement.categories.iter().any(|(_, action)| *action == EnforcementAction::Block);
    let breaker = &settings.circuit_breaker;
    let stops_analysis = breaker.enabled && breaker.scope == BreakerScope::Service;
    (blocks && stops_analysis && settings.enable_trace_storage).then_some(
        "rules block, and `circuit_breaker.scope` is `service`: while storage fails nothing is analysed and nothing blocked; \
         set it to `subsystem`",
    )
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
        let space = self.0.space();
        for (bound, removed) in [("database", space.removed_for_database), ("tenant", space.removed_for_tenant)] {
            out.counter(names::REMOVED_FOR_ROOM, &[("bound", bound)], removed);
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
    fn a_rule_that_blocks_beside_a_breaker_of_the_whole_service_earns_a_word() {
        let with = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            breaker_advice(&settings).is_some()
        };
        assert!(!with(|_| {}), "nothing blocks by default");
        assert!(with(|s| s.enforcement.mode = EnforcementMode::Block));
        assert!(with(|s| s.enforcement.categories.push(("jailbreak".into(), EnforcementAction::Block))));
        assert!(!with(|s| s.enforcement.categories.push(("jailbreak".into(), EnforcementAction::Flag))));
        let subsystem: fn(&mut Settings) = |s| {
            s.enforcement.mode = EnforcementMode::Block;
            s.circuit_breaker.scope = BreakerScope::Subsystem;
        };
        assert!(!with(subsystem));
    }

    #[test]
    fn without_a_bound_the_database_may_grow_into_four_fifths_of_the_free_room() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("service.db");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        let mut storage = Storage { database_path: path, ..Settings::default().storage };
        let free = || room_beside(&storage.database_path).unwrap().free;
        let before = free();
        let bound = retention(&storage).max_bytes.unwrap();
        // Others write to the same disk meanwhile.
        let (least, most) = (before.min(free()), before.max(free()));
        assert!((least / 5 * 4..=most / 5 * 4 + 100_000 + 64 * 1_024).contains(&bound), "{bound} of {least} to {most}");
        storage.max_bytes = Some(0);
        assert_eq!(retention(&storage), Retention::default());
        (storage.max_bytes, storage.tenant_max_bytes) = (Some(5), 7);
        let set = Retention { max_bytes: Some(5), tenant_max_bytes: Some(7), ..Retention::default() };
        assert_eq!(retention(&storage), set);
        (storage.max_bytes, storage.profile) = (None, StorageProfile::Memory);
        assert_eq!(retention(&storage).max_bytes, None, "the memory profile has a bound of its own");
    }

    #[test]
    fn a_lost_batch_opens_the_breaker_and_a_committed_one_closes_it() {
        let registry = Registry::new();
        let breakers = Arc::new(Breakers::new(Settings::default().circuit_breaker, &Clock::monotonic()));
        let watch = StoreHealth { shared: registry.shared().clone(), breakers: breakers.clone() };
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
