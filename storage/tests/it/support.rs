//! Opens stores of both profiles and builds records.

#[path = "../../../tests/it/support/without.rs"]
mod without;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};
use weir_storage::SpanLog as _;
use weir_storage::query::{Page, SpanFilter};
use weir_storage::record::SpanRecord;
use weir_storage::{Backend, BatchOutcome, Store, StoreObserver, StoreOptions};

pub(crate) use without::do_without;

/// Long enough for a loaded machine; nothing waits this long when all is well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A bound no test comes near.
pub(crate) const ROOMY: usize = 1 << 30;

/// Counts what the store reports.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) committed: AtomicUsize,
    pub(crate) failed: AtomicUsize,
    pub(crate) reads: AtomicUsize,
}

impl StoreObserver for Watch {
    fn batch(&self, rows: usize, _took: Duration, outcome: BatchOutcome) {
        let counter = if outcome == BatchOutcome::Committed { &self.committed } else { &self.failed };
        counter.fetch_add(rows, Ordering::Relaxed);
    }

    fn read(&self, _operation: &'static str, _took: Duration, _ok: bool) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn options(backend: Backend) -> StoreOptions {
    watched(backend, Arc::new(Watch::default()))
}

pub(crate) fn watched(backend: Backend, observer: Arc<Watch>) -> StoreOptions {
    StoreOptions {
        // The stricter of the two: kills and faults then meet the layer that empties pages, too.
        erase: weir_storage::Erase::Pages,
        backend,
        on_writer_start: || {},
        pause: || {},
        batch_timeout: Duration::from_secs(10),
        queue_items: 100_000,
        queue_bytes: 64 * 1024 * 1024,
        observer,
    }
}

pub(crate) fn file(path: &Path) -> Backend {
    Backend::Sqlite { path: path.to_owned(), auto_migrate: true, migration_copy: false }
}

pub(crate) fn open(path: &Path) -> Store {
    Store::open(options(file(path))).unwrap()
}

/// Runs a test against a fresh store of either profile.
pub(crate) fn on_both(test: impl Fn(&Store)) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    for backend in [file(&path), Backend::Memory { max_bytes: ROOMY }] {
        let store = Store::open(options(backend.clone())).unwrap();
        test(&store);
        assert!(store.close(PATIENCE), "{backend:?}");
    }
}

/// Pushes and waits until everything is committed.
pub(crate) fn put(store: &Store, spans: impl IntoIterator<Item = SpanRecord>) {
    let sink = store.sink();
    for span in spans {
        sink.push(Box::new(span)).unwrap();
    }
    assert!(store.flush(PATIENCE));
}

pub(crate) fn page(limit: u32, offset: u64) -> Page {
    Page { limit, offset, or_fewer: false, ..Page::default() }
}

pub(crate) fn total(store: &Store, tenant: TenantId) -> u64 {
    store.list_spans(tenant, &SpanFilter::default(), page(1, 0)).unwrap().total
}

/// Waits for a condition another thread brings about.
pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "{what} did not come about");
        std::thread::yield_now();
    }
}

/// A plain chat completion that began `start_us` after the epoch, of a caller who names no trace.
pub(crate) fn span(start_us: i64) -> SpanRecord {
    let trace_id = TraceId::fresh();
    SpanRecord {
        trace_id,
        span_id: SpanId::of_lone(trace_id),
        parent_span_id: None,
        tenant_id: TenantId::DEFAULT,
        agent_id: None,
        session_id: None,
        client: None,
        operation_name: "chat_completion".into(),
        start_time: Timestamp::from_micros(start_us),
        end_time: Timestamp::from_micros(start_us + 1_500),
        provider: "openai".into(),
        model: Some("gpt-4o".to_owned()),
        streaming: false,
        prompt: Some("How do tides work?".to_owned()),
        response: Some("The moon pulls on the oceans.".to_owned()),
        prompt_tokens: Some(6),
        completion_tokens: Some(7),
        total_tokens: Some(13),
        cached_tokens: None,
        reasoning_tokens: None,
        tokens_estimated: false,
        time_to_first_token_ms: Some(1.2),
        duration_ms: 1.5,
        overhead_us: Some(21),
        status_code: Some(200),
        error_type: None,
        error_message: None,
        finish_reason: Some("stop".to_owned()),
        estimated_cost_usd: Some(0.000_12),
        security_score: Some(0),
        security_findings: Vec::new(),
        enforcement: "none".into(),
        detectors: vec!["rules".into()],
        tags: std::collections::BTreeMap::new(),
        events: Vec::new(),
        agent_actions: Vec::new(),
        parts: Vec::new(),
        frame: None,
        attributes: weir_storage::record::Attributes::default(),
        prompt_cache: None,
    }
}

pub(crate) fn tenant(number: u8) -> TenantId {
    TenantId::from_bytes([number; 16])
}
